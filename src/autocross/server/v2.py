"""The Open Inference Protocol, version 2: a tensor for each column goes in, and one of probabilities comes out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import autocross
from autocross.checks import shown
from autocross.server.limits import Refused, check_count
from autocross.server.models import Loaded
from autocross.server.payload import PLAIN, Row, from_columns, parse
from autocross.server.service import Answer, Call, answer, encode

OUTPUT = "probability"
NUMBERS = {
    "BOOL": np.dtype("?"),
    **{f"UINT{8 * size}": np.dtype(f"<u{size}") for size in (1, 2, 4, 8)},
    **{f"INT{8 * size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)},
    **{f"FP{8 * size}": np.dtype(f"<f{size}") for size in (2, 4, 8)},
}
HEADER = b"inference-header-content-length"


async def live(call: Call) -> Answer:
    """The server runs."""
    return answer({"live": True})


async def ready(call: Call) -> Answer:
    """All models are ready."""
    stopping = call.service.stopping
    return answer({"ready": not stopping}, 503 if stopping else 200)


async def server(call: Call) -> Answer:
    """The server and its version."""
    return answer({"name": "autocross", "version": autocross.__version__, "extensions": ["binary_tensor_data"]})


async def model_ready(call: Call) -> Answer:
    """The model is ready."""
    return answer({"name": call.find().name, "ready": True})


async def metadata(call: Call) -> Answer:
    """The tensors of a model: one for each column."""
    model = call.find()
    inputs = [
        {"name": one.name, "datatype": "FP64" if one.kind == "numerical" else "BYTES", "shape": shape_of(one.kind)}
        for one in model.scorer.model.producer.encoder.schema
        if one.kind != "ignore"
    ]
    versions = [*call.service.shelf.models[model.name]]
    outputs = [{"name": OUTPUT, "datatype": "FP64", "shape": [-1]}]
    return answer({"name": model.name, "versions": versions, "platform": "autocross", "inputs": inputs, "outputs": outputs})


def shape_of(kind: str) -> list[int]:
    """The shape of a column: a row of a multi-value column has any number of values."""
    return [-1, -1] if kind == "multivalue" else [-1]


async def infer(call: Call) -> Answer:
    """Probabilities of the positive label. Each input is a tensor of shape [n], [n, 1], or [n, k] for several values in a row."""
    model, content = call.find(), await call.content()
    request, rest = split(content, call)
    if type(request) is not dict:
        raise Refused(422, "The request is no object. Give an object with inputs.")
    check_request(request)
    found = await call.score(model, rows_of_tensors(request["inputs"], rest, call.service.limits.rows))
    return respond(model, request, found)


def split(content: bytes, call: Call) -> tuple[Any, bytes]:
    """The JSON of a request, and the bytes of tensors behind it, if there are any."""
    length = call.header(HEADER)
    depth = call.service.limits.depth
    if not length:
        return parse(content, depth), b""
    if not (length.isascii() and length.isdigit()) or int(length) > len(content):
        raise Refused(400, "The header Inference-Header-Content-Length is no length of a part of the body.")
    return parse(content[: int(length)], depth), content[int(length) :]


def check_request(request: dict[str, Any]) -> None:
    """Refuse a request whose parts are not what they must be."""
    inputs, outputs = request.get("inputs"), request.get("outputs", [])
    if type(inputs) is not list or not inputs or any(type(one) is not dict for one in inputs):
        raise Refused(422, "inputs must be a list of tensors, with at least one.", field="inputs")
    if "id" in request and type(request["id"]) is not str:
        raise Refused(422, "id must be a text.", field="id")
    if type(outputs) is not list or any(type(one) is not dict or one.get("name") != OUTPUT for one in outputs):
        raise Refused(422, f"outputs may only name {OUTPUT!r}.", field="outputs")


def rows_of_tensors(inputs: list[dict[str, Any]], rest: bytes, most: int) -> list[Row]:
    """The rows of tensors that have a column each."""
    columns: dict[str, list[Any]] = {}
    for tensor in inputs:
        name = tensor.get("name")
        if type(name) is not str or name in columns:
            raise Refused(422, "Each input needs a name of its own.", field="name")
        shape = tensor.get("shape")
        if type(shape) is not list or len(shape) not in (1, 2) or any(type(n) is not int or n < 0 for n in shape):
            raise Refused(422, f"Input {shown(name)} has the shape {shown(shape)}. Give [n], [n, 1] or [n, k].", field=name)
        check_count(shape[0], most)
        size = (
            (tensor.get("parameters") or {}).get("binary_data_size") if type(tensor.get("parameters")) in (dict, type(None)) else -1
        )
        if size is None:
            values = data_of(tensor, name)
        else:
            if type(size) is not int or not 0 <= size <= len(rest):
                raise Refused(422, f"Input {shown(name)} has a binary_data_size that does not fit the body.", field=name)
            values, rest = from_bytes(rest[:size], tensor.get("datatype"), name), rest[size:]
        if len(values) != math.prod(shape):
            raise Refused(422, f"Input {shown(name)} has {len(values):,} values, but its shape is {shape}.", field=name)
        width = shape[1] if len(shape) == 2 else 1
        columns[name] = values if width == 1 else [values[row * width : (row + 1) * width] for row in range(shape[0])]
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        name = next(name for name, values in columns.items() if len(values) != len(next(iter(columns.values()))))
        raise Refused(422, f"Input {shown(name)} has another number of rows than the first input.", field=name)
    return from_columns(list(columns), list(columns.values()))


def data_of(tensor: dict[str, Any], name: str) -> list[Any]:
    """The values of a tensor in JSON, flat or nested. null is a missing value."""
    kind, data = tensor.get("datatype"), tensor.get("data")
    if kind != "BYTES" and kind not in NUMBERS:
        raise Refused(
            422, f"Input {shown(name)} has the datatype {shown(kind)}. Give BYTES, BOOL, FP64 or another number.", field=name
        )
    if type(data) is not list:
        raise Refused(422, f"Input {shown(name)} has no list of data.", field=name)
    flat: list[Any] = []
    for value in data:
        flat.extend(value) if type(value) is list else flat.append(value)
    proper = (str,) if kind == "BYTES" else (bool, int) if kind == "BOOL" else (int, float)
    for value in flat:
        if value is not None and (type(value) not in PLAIN or type(value) not in proper):
            raise Refused(422, f"Input {shown(name)} is {kind}, but holds {shown(value)}.", field=name)
    return flat


def from_bytes(content: bytes, kind: Any, name: str) -> list[Any]:
    """The values of a tensor in bytes. A text has its length before it, in four bytes."""
    if kind in NUMBERS:
        if len(content) % NUMBERS[kind].itemsize:
            raise Refused(422, f"Input {shown(name)} has bytes that are no whole number of values.", field=name)
        values = np.frombuffer(content, NUMBERS[kind]).tolist()
        return [None if type(value) is float and math.isnan(value) else value for value in values]
    if kind != "BYTES":
        raise Refused(
            422, f"Input {shown(name)} has the datatype {shown(kind)}. Give BYTES, BOOL, FP64 or another number.", field=name
        )
    texts, place = [], 0
    while place < len(content):
        end = place + 4 + int.from_bytes(content[place : place + 4], "little")
        if end > len(content) or place + 4 > len(content):
            raise Refused(422, f"Input {shown(name)} has a text that is longer than its bytes.", field=name)
        try:
            texts.append(content[place + 4 : end].decode())
        except UnicodeDecodeError:
            raise Refused(422, f"Input {shown(name)} has a text that is not UTF-8.", field=name) from None
        place = end
    return texts


def respond(model: Loaded, request: dict[str, Any], found: list[float]) -> Answer:
    """The response: JSON, or bytes behind it, if the client prefers them."""
    output: dict[str, Any] = {"name": OUTPUT, "shape": [len(found)], "datatype": "FP64"}
    facts: dict[str, Any] = {"model_name": model.name, "model_version": model.version}
    if "id" in request:
        facts["id"] = request["id"]
    if not wants_bytes(request):
        return answer({**facts, "outputs": [{**output, "data": found}]})
    content = np.asarray(found, "<f8").tobytes()
    head = encode({**facts, "outputs": [{**output, "parameters": {"binary_data_size": len(content)}}]})
    return Answer(200, head + content, b"application/octet-stream", ((HEADER, b"%d" % len(head)),))


def wants_bytes(request: dict[str, Any]) -> bool:
    """Whether the output is asked for in bytes: for all outputs, or for this one."""
    for place, name in ((request, "binary_data_output"), *((one, "binary_data") for one in request.get("outputs", []))):
        parameters = place.get("parameters")
        if type(parameters) is dict and parameters.get(name) is True:
            return True
    return False
