"""One file for a model: a safetensors file whose metadata holds a JSON manifest.

Reading it runs no code. Everything in it is checked against everything else before it is believed: a damaged or forged
file gives a BundleError, never a wrong score.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import xxhash
from numpy.typing import NDArray

from autocross.crossing import CrossCoder
from autocross.encoding.discretize import Bins
from autocross.encoding.encoder import ColumnEncoder, Encoder
from autocross.encoding.timestamps import Calendar, parts_of
from autocross.encoding.vocabulary import Vocabulary
from autocross.errors import BundleError, FileError
from autocross.producer.deep import DeepPart
from autocross.producer.model import About, FoundCross, Model, Producer, Rule
from autocross.table.atomic import replace_file
from autocross.table.schema import KINDS, ColumnSchema, Stored
from autocross.table.values import MIDNIGHT_1970, MISSING_TEXTS

FORMAT = 2  # with a deep part, which a reader of format 1 would overlook; a model without one is written as format 1
KEY = "autocross"
MOST_LAYERS = 100

Arrays = dict[str, NDArray[Any]]


def save(model: Model, path: str | Path) -> None:
    """Write the bundle; a former file of that name stays until the new one is complete."""
    from safetensors.numpy import save as to_bytes

    arrays: Arrays = {}
    manifest: dict[str, Any] = {
        "format": 1 if model.deep is None else FORMAT,
        "schema": [asdict(column) for column in model.producer.encoder.schema],
        "columns": [pack_column(at, one, arrays) for at, one in enumerate(model.producer.encoder.columns)],
        "crosses": [pack_cross(at, one, arrays) for at, one in enumerate(model.producer.crosses)],
        "intercept": model.intercept,
        "penalties": model.penalties,
        "about": {**asdict(model.about), "history": timeless(model.about.history)},
    }
    for at, weight in enumerate(model.weights):
        arrays[f"weight.{at}"] = weight
    if model.deep is not None:
        manifest["deep"] = pack_deep(model.deep, arrays)
    manifest["checksum"] = checksum(manifest, arrays)
    content = to_bytes(arrays, metadata={KEY: json.dumps(manifest)})
    replace_file(Path(path), lambda stream: stream.write(content))


def timeless(history: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """A history without the seconds that each step took: equal fits write equal bytes, wherever and whenever they ran."""
    return [{name: value for name, value in record.items() if name != "seconds"} for record in history]


def pack_column(at: int, encoder: ColumnEncoder, arrays: Arrays) -> dict[str, Any]:
    """One column's encoder: small facts as JSON, long ones as arrays."""
    name = encoder.column.name
    if isinstance(encoder, Vocabulary):
        arrays[f"text.{at}"] = np.frombuffer("".join(encoder.values).encode("utf-8", "surrogatepass"), np.uint8)
        arrays[f"ends.{at}"] = np.cumsum([len(value) for value in encoder.values], dtype=np.int64)
        return {"name": name, "coder": "vocabulary", "n_buckets": encoder.n_buckets, "width": encoder.width}
    if isinstance(encoder, Bins):
        for place, edges in enumerate(encoder.edges):
            arrays[f"edges.{at}.{place}"] = edges
        return {"name": name, "coder": "bins", "names": list(encoder.names)}
    assert isinstance(encoder, Calendar)
    return {"name": name, "coder": "calendar", "seen": {part: list(values) for part, values in encoder.seen.items()}}


def pack_cross(at: int, cross: CrossCoder, arrays: Arrays) -> dict[str, Any]:
    """One cross: its fields as JSON, its values as an array."""
    arrays[f"cross.{at}"] = cross.values
    return {"fields": list(cross.fields), "n_buckets": cross.n_buckets, "width": cross.width}


def pack_deep(deep: DeepPart, arrays: Arrays) -> dict[str, Any]:
    """The network: how many layers it has as JSON, all else as arrays."""
    for word in ("embeddings", "matrices", "biases"):
        arrays.update({f"deep.{word}.{at}": one for at, one in enumerate(getattr(deep, word))})
    return {"n_layers": len(deep.matrices)}


def read(path: str | Path) -> Model:
    """The model of a bundle."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FileError(f"There is no model file {str(path)!r}. Check the path.")
    try:
        with safe_open(str(path), framework="numpy") as stored:
            text = (stored.metadata() or {}).get(KEY)
            if text is None:
                raise BundleError(f"{str(path)!r} is a safetensors file, but not a model of autocross.")
            arrays = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except OSError as error:
        raise FileError(f"Cannot read {str(path)!r}: {error.strerror or error}.") from error
    except (SafetensorError, UnicodeDecodeError, OverflowError, AttributeError, TypeError) as error:  # the latter: odd dtypes
        raise BundleError(f"{str(path)!r} is no model of autocross, or damaged: {error}. Save or copy it again.") from error
    try:
        manifest = json.loads(text)
        model = unpack(manifest, arrays)
        require(manifest.pop("checksum", None) == checksum(manifest, arrays), "its checksum does not fit its content")
        return model
    except BundleError as error:
        raise BundleError(f"Cannot load {str(path)!r}: {error}") from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError, OverflowError) as error:
        raise BundleError(
            f"Cannot load {str(path)!r}: its manifest is damaged ({type(error).__name__}: {error}). Save or copy it again."
        ) from error


def checksum(manifest: dict[str, Any], arrays: Arrays) -> str:
    """A hash of all that is stored: a bit that flips must not change a score."""
    digest = xxhash.xxh64(json.dumps(manifest).encode())
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def require(condition: bool, complaint: str) -> None:
    """Stop at the first thing that cannot be true of a bundle of ours."""
    if not condition:
        raise BundleError(f"{complaint}. The file is damaged or was not written by autocross; save or copy it again.")


def unpack(manifest: dict[str, Any], arrays: Arrays) -> Model:
    """Manifest and arrays -> model, each part checked."""
    require(isinstance(manifest, dict) and isinstance(manifest.get("format"), int), "it has no format number")
    if manifest["format"] > FORMAT:
        raise BundleError(
            f"it has format {manifest['format']}, newer than the {FORMAT} this version reads. "
            "Update autocross, or save it with this version."
        )
    schema = tuple(unpack_schema(entry) for entry in manifest["schema"])
    by_name = {column.name: column for column in schema}
    require(len(by_name) == len(schema), "two columns have the same name")
    columns = []
    for at, entry in enumerate(manifest["columns"]):
        require(entry["name"] in by_name, f"column {entry['name']!r} is not in its schema")
        columns.append(unpack_column(at, entry, by_name[entry["name"]], arrays))
    encoder = Encoder(schema, tuple(columns))
    crosses = tuple(unpack_cross(at, entry, encoder, arrays) for at, entry in enumerate(manifest["crosses"]))
    producer = Producer(encoder, crosses)
    weights = tuple(arrays[f"weight.{at}"] for at in range(len(producer.fields)))
    for field, weight in zip(producer.fields, weights, strict=True):
        require(
            weight.dtype == np.float64 and weight.shape == (field.n_codes,),
            f"field {field.name!r} has the wrong number of weights",
        )
        require(bool(np.isfinite(weight).all()), f"field {field.name!r} has a weight that is no number")
    intercept = manifest["intercept"]
    require(isinstance(intercept, float) and bool(np.isfinite(intercept)), "its intercept is no number")
    penalties = tuple((float(l1), float(l2), float(smooth)) for l1, l2, smooth in manifest["penalties"])
    require(len(penalties) == len(weights), "it has the wrong number of penalties")
    require(all(0 <= one < np.inf for three in penalties for one in three), "it has a penalty that is no number of 0 or more")
    require(all(l2 > 0 for _, l2, smooth in penalties if smooth), "it holds neighbours together, but nothing near zero")
    require(("deep" in manifest) == (manifest["format"] == FORMAT), "its format does not fit its parts")
    deep = unpack_deep(manifest["deep"], encoder, arrays) if "deep" in manifest else None
    return Model(producer, intercept, weights, penalties, unpack_about(manifest["about"]), deep)


def unpack_schema(entry: dict[str, Any]) -> ColumnSchema:
    column = ColumnSchema(**entry)
    require(
        isinstance(column.name, str) and column.kind in KINDS and column.stored in get_args(Stored),
        f"column {column.name!r} has no known kind",
    )
    require(column.separator is None or isinstance(column.separator, str), f"column {column.name!r} has no proper separator")
    return column


def unpack_column(at: int, entry: dict[str, Any], schema: ColumnSchema, arrays: Arrays) -> ColumnEncoder:
    """One column's encoder."""
    expected = {"vocabulary": ("categorical", "multivalue"), "bins": ("numerical",), "calendar": ("time",)}
    require(schema.kind in expected.get(entry["coder"], ()), f"column {schema.name!r} is not coded as its kind asks")
    if entry["coder"] == "vocabulary":
        values = unpack_texts(schema.name, arrays[f"text.{at}"], arrays[f"ends.{at}"])
        n_buckets, width = entry["n_buckets"], entry["width"]
        require(
            isinstance(n_buckets, int) and 0 <= n_buckets < 1 << 31,
            f"column {schema.name!r} has no proper number of buckets",
        )
        require(isinstance(width, int) and width >= 1, f"column {schema.name!r} has no proper width")
        return Vocabulary(schema, values, n_buckets, width)
    if entry["coder"] == "bins":
        edges = tuple(arrays[f"edges.{at}.{place}"] for place in range(len(entry["names"])))
        for one in edges:
            rising = one.dtype == np.float64 and one.ndim == 1 and bool(np.isfinite(one).all()) and bool((np.diff(one) > 0).all())
            require(rising, f"column {schema.name!r} has edges that do not rise")
        return Bins(schema, tuple(map(str, entry["names"])), edges)
    seen = {part: tuple(int(value) for value in values) for part, values in entry["seen"].items()}
    require(set(seen) <= set(parts_of(MIDNIGHT_1970)), f"column {schema.name!r} has an unknown calendar part")
    for known in seen.values():
        rising = list(known) == sorted(set(known)) and all(abs(value) < 1 << 31 for value in known)
        require(rising, f"column {schema.name!r} has calendar values that do not rise")
    return Calendar(schema, seen)


def unpack_cross(at: int, entry: dict[str, Any], encoder: Encoder, arrays: Arrays) -> CrossCoder:
    """One cross, its values in the order of their keys."""
    fields, values = tuple(entry["fields"]), arrays[f"cross.{at}"]
    in_range = all(isinstance(one, int) and 0 <= one < len(encoder.fields) for one in fields)
    require(in_range and list(fields) == sorted(set(fields)) and len(fields) >= 2, f"cross {at} has impossible fields")
    sizes = tuple(encoder.fields[one].n_codes for one in fields)
    require(values.dtype == np.uint32 and values.ndim == 2 and values.shape[1] == len(fields), f"cross {at} has no proper values")
    require(bool((values < np.array(sizes)).all()), f"cross {at} has a value that its fields cannot have")
    n_buckets, width = entry["n_buckets"], entry["width"]
    require(isinstance(n_buckets, int) and 0 <= n_buckets < 1 << 31, f"cross {at} has no proper number of buckets")
    require(isinstance(width, int) and width >= 1, f"cross {at} has no proper width")
    cross = CrossCoder(fields, sizes, values, n_buckets, width)
    require(bool((np.diff(cross.keys) > 0).all()), f"cross {at} has values out of order")
    return cross


def unpack_deep(entry: dict[str, Any], encoder: Encoder, arrays: Arrays) -> DeepPart:
    """The network: each layer takes what the one before gives, and the last gives one number."""
    n_layers = entry["n_layers"]
    require(isinstance(n_layers, int) and 1 <= n_layers <= MOST_LAYERS, "its deep part has no proper number of layers")
    embeddings = tuple(arrays[f"deep.embeddings.{at}"] for at in range(len(encoder.fields)))
    matrices, biases = (tuple(arrays[f"deep.{word}.{at}"] for at in range(n_layers)) for word in ("matrices", "biases"))
    for one in (*embeddings, *matrices, *biases):
        require(one.dtype == np.float32 and bool(np.isfinite(one).all()), "its deep part has a weight that is no number")
    size = embeddings[0].shape[-1]
    for field, table in zip(encoder.fields, embeddings, strict=True):
        require(size >= 1 and table.shape == (field.n_codes, size), f"field {field.name!r} has embeddings of the wrong shape")
    width = size * len(embeddings)
    for at, (matrix, bias) in enumerate(zip(matrices, biases, strict=True)):
        fits = bias.ndim == 1 and len(bias) >= 1 and matrix.shape == (width, len(bias))
        require(fits, f"layer {at} of its deep part does not fit the one before")
        width = len(bias)
    require(width == 1, "its deep part has more than one output")
    return DeepPart(embeddings, matrices, biases)


def unpack_texts(name: str, content: NDArray[Any], ends: NDArray[Any]) -> tuple[str, ...]:
    """Texts stored end to end; ``ends`` counts characters."""
    require(
        content.dtype == np.uint8 and ends.dtype == np.int64 and ends.ndim == 1,
        f"column {name!r} has no proper vocabulary",
    )
    text = content.tobytes().decode("utf-8", "surrogatepass")
    bounds = [0, *ends.tolist()]
    in_order = all(a <= b for a, b in pairwise(bounds)) and bounds[-1] == len(text)
    require(in_order, f"column {name!r} has a vocabulary with impossible lengths")
    values = tuple(text[a:b] for a, b in pairwise(bounds))
    require(len(set(values)) == len(values), f"column {name!r} has a vocabulary with one value twice")
    require(MISSING_TEXTS.isdisjoint(values), f"column {name!r} has a vocabulary with a value that means missing")
    return values


def unpack_about(entry: dict[str, Any]) -> About:
    first, second = entry["classes"]
    require(all(isinstance(one, (str, int, float)) for one in (first, second)) and first != second, "it has no two labels")
    return About(
        target=str(entry["target"]),
        classes=(first, second),
        metric=str(entry["metric"]),
        score=None if entry["score"] is None else float(entry["score"]),
        n_rows=int(entry["n_rows"]),
        crosses=tuple(unpack_found(cross) for cross in entry["crosses"]),
        rules=tuple(Rule(**{key: str(value) for key, value in rule.items()}) for rule in entry["rules"]),
        history=tuple(timeless(entry["history"])),  # older files have seconds
    )


def unpack_found(entry: dict[str, Any]) -> FoundCross:
    fields, columns = (tuple(map(str, entry[word])) for word in ("fields", "columns"))
    return FoundCross(fields, columns, float(entry["gain"]), float(entry["error"]), int(entry.get("n_collisions", 0)))
