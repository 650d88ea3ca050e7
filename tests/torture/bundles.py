"""Part 2: damaged and forged model files.

Bytes are changed at random, or the manifest and the arrays by their structure, and the checksum made to fit. Such a file is
refused as a bundle, or it is a model: then a row scores alone as among many, and it can be shown and explained. Memory stays
bounded.
"""

from __future__ import annotations

import copy
import json
import resource
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from safetensors.numpy import save as to_bytes

from autocross.errors import FileError
from autocross.features import FIRST
from autocross.producer import bundle
from autocross.producer.words import in_words, summary
from autocross.serving.scorer import Scorer
from torture.tools import Refused, answer, require, require_one_as_many

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "golden"
MOST_CODES = 1 << 20  # of a field that a mutation has made
MOST_MEMORY = 1 << 30  # that a file of a few KB may ask for beyond what the process has

Rng = np.random.Generator
Manifest = dict[str, Any]
Arrays = dict[str, Any]

ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 255, 2**31 - 1, 2**31, 2**53 + 1, 2**63, 2**64, 10**400, -(10**30), 0.5, -0.0, 1e308, 5e-324,
    float("nan"), float("inf"), "", "a", "categorical", "numerical", "time", "multivalue", "ignore", "text", "number", "boolean",
    "vocabulary", "bins", "course", "month", "\ud800", "\x00", "../../x", "x" * 5000, [], [1], [[]], [None], ["a", "b"], [0, 1],
    [1, 0], [0, 0], list(range(40)), {}, {"a": 1}, {"month": [1, 2]}, {"year": [2**31]}, {"name": "age"},
]  # fmt: skip


def beginnings() -> list[Path]:
    """The files that mutations begin with."""
    return [*sorted((HERE / "corpus").glob("*.acx")), *sorted(GOLDEN.glob("*.acx"))]


def split(content: bytes, key: str = bundle.KEY) -> tuple[Manifest, Arrays]:
    """What a file of ours holds, its manifest and its arrays, read without any check. ``key`` is that of its kind."""
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    manifest = json.loads(header.pop("__metadata__")[key])
    kinds = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "U32": "<u4", "U8": "u1", "I32": "<i4", "U16": "<u2", "U64": "<u8"}
    arrays = {}
    for name, facts in header.items():
        first, last = facts["data_offsets"]
        arrays[name] = np.frombuffer(content[8 + size + first : 8 + size + last], kinds[facts["dtype"]]).reshape(facts["shape"])
    return manifest, arrays


def joined(manifest: Manifest, arrays: Arrays) -> bytes:
    """A bundle whose checksum fits what it holds."""
    body = {name: value for name, value in manifest.items() if name != "checksum"}
    sealed = {**body, "checksum": bundle.checksum(body, arrays)}
    return to_bytes({name: np.ascontiguousarray(one) for name, one in arrays.items()}, metadata={bundle.KEY: json.dumps(sealed)})


# Mutations.


def with_bytes_changed(content: bytes, rng: Rng) -> bytes:
    """A few bytes flipped, cut out, doubled, put in, or the end cut off."""
    found = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        if not found:
            break
        at, size = int(rng.integers(len(found))), int(rng.integers(1, 40))
        how = rng.integers(6)
        if how <= 1:
            found[at] ^= 1 << int(rng.integers(8))
        elif how == 2:
            del found[at : at + size]
        elif how == 3:
            found[at:at] = found[at : at + size]
        elif how == 4:
            found[at : at + size] = rng.bytes(size)
        else:
            del found[at:]
    return bytes(found)


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every part of a JSON value."""
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def change_json(node: Any, rng: Rng) -> None:
    """Replace, delete, double or exchange one part, in place. Parts of the model are met more often than its history."""
    top = str(rng.choice(list(node)))
    ways = [path for path in places(node[top], (top,)) if path]
    *way, last = ways[rng.integers(len(ways))]
    for key in way:
        node = node[key]
    how = rng.integers(5)
    if how <= 1 or not isinstance(node, list):
        if how == 4 and isinstance(node, dict):
            del node[last]
        elif isinstance(node[last], (int, float)) and rng.random() < 0.5:
            node[last] += int(rng.choice([-1, 1, 2, 100]))
        else:
            node[last] = copy.deepcopy(ODD[rng.integers(len(ODD))])
    elif how == 2:
        del node[last]
    elif how == 3:
        node.insert(last, copy.deepcopy(node[last]))
    else:
        other = int(rng.integers(len(node)))
        node[last], node[other] = node[other], node[last]


def change_array(arrays: Arrays, rng: Rng) -> None:
    """Change values, shape or type of one array, take it away, or put another in its place."""
    name = str(rng.choice(list(arrays)))
    found = arrays[name].copy()
    how = rng.integers(8)
    if how == 0:
        del arrays[name]
    elif how == 1:
        arrays[name] = arrays[str(rng.choice(list(arrays)))]
    elif how == 2:
        with np.errstate(all="ignore"):
            arrays[name] = found.astype(rng.choice(["f8", "f4", "i8", "u4", "u1", "i4", "u2"]))
    elif how == 3:
        arrays[name] = found[: int(rng.integers(len(found) + 1))] if found.ndim else found.reshape(1)
    elif how == 4:
        arrays[name] = found[None] if rng.random() < 0.5 else found.reshape(-1)
    elif how == 5:
        arrays[name] = np.concatenate([found, found[-1:]])
    elif found.size:
        odd = [0, 1, -1, 2**31 - 1, np.nan, np.inf, -np.inf, 1e308, 5e-324, -0.0, 255, 2**63 - 1]
        flat = found.reshape(-1)
        with np.errstate(all="ignore"):
            chosen = rng.integers(0, flat.size, int(rng.integers(1, 4)))
            flat[chosen] = np.array(rng.choice(odd, len(chosen))).astype(found.dtype) if how == 6 else flat[::-1][chosen]
        arrays[name] = found


def fit_weights(manifest: Manifest, arrays: Arrays) -> None:
    """Give every field as many weights as it has codes now: a forger would."""
    sizes = [n_codes for at, entry in enumerate(manifest["columns"]) for n_codes in sizes_of(at, entry, arrays)]
    crossed = [FIRST + len(arrays[f"cross.{at}"]) + entry["n_buckets"] for at, entry in enumerate(manifest["crosses"])]
    for at, n_codes in enumerate([*sizes, *crossed]):
        tables = [f"weight.{at}", f"deep.embeddings.{at}"] if at < len(sizes) else [f"weight.{at}"]
        seen = manifest["network"]["terms"] if "network" in manifest else []
        tables += [f"network.weights.{place}" for place, term in enumerate(seen) if term == at]
        for name in tables:
            if name in arrays and len(arrays[name]) != n_codes < MOST_CODES:
                arrays[name] = np.resize(arrays[name], (n_codes, *arrays[name].shape[1:]))


def sizes_of(at: int, entry: Manifest, arrays: Arrays) -> list[int]:
    """How many codes each field of a column has, as far as the file says."""
    if entry["coder"] in ("bins", "calendar", "course"):
        parts = [FIRST + len(values) for values in entry.get("seen", {}).values()]
        return parts + [FIRST + len(arrays[f"edges.{at}.{place}"]) + 1 for place in range(len(entry.get("names", [])))]
    values = arrays[f"hash.{at}"] if entry["coder"] == "hashes" else arrays[f"ends.{at}"]
    return [FIRST + len(values) + entry["n_buckets"]]


def mutated(content: bytes, rng: Rng) -> bytes:
    """A file that is damaged, or forged with a checksum that fits."""
    if rng.random() < 0.25:
        return with_bytes_changed(content, rng)
    try:
        manifest, arrays = split(content)
        for _ in range(int(rng.integers(1, 3))):
            if rng.random() < 0.6:
                change_json(manifest, rng)
            else:
                change_array(arrays, rng)
        if rng.random() < 0.5:
            fit_weights(manifest, arrays)
        return joined(manifest, arrays)
    except (ValueError, KeyError, IndexError, TypeError, struct.error, OverflowError, AttributeError):
        return with_bytes_changed(content, rng)  # what is left is no bundle any more


# What may come of it.


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Within, the process can have only so much more memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MOST_MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def rows_for(scorer: Scorer, rng: Rng) -> list[dict[str, Any]]:
    """Rows with values that the columns may have, and with some that they may not."""
    values = {
        "categorical": ["cook", "t1", "true", None, "never seen", 3],
        "numerical": [1, 40.5, None, -1e300, "12"],
        "time": ["1980-05-17", "2024-03-11 10:20:00", None, "23:59"],
        "multivalue": [["a", "b"], [], None, ["zz"], ["a"] * 20],
        "ignore": [None],
    }
    schema = scorer.model.producer.encoder.schema
    return [{one.name: values[one.kind][rng.integers(len(values[one.kind]))] for one in schema} for _ in range(4)]


def check(path: Path, rng: Rng) -> bool:
    """Whether the file is a model; it must be a sound one then, and refused as a bundle otherwise."""
    with bounded_memory():
        model = answer(lambda: bundle.read(path))
        if isinstance(model, Refused):
            require(isinstance(model.error, FileError), f"refused, but not as a file: {model!r}")
            return False
        scorer = Scorer(model)
        require(bool(in_words(summary(model))), "a model that cannot be shown")
        json.dumps(summary(model))
        for row in rows_for(scorer, rng):
            frame = pl.DataFrame({"beside": [1]} | {name: pl.Series([value], strict=False) for name, value in row.items()})
            require_one_as_many(scorer, row, frame)
            answer(lambda row=row: scorer.explain(row))
        bundle.save(model, path.with_name("again.acx"))
        return True


def attack(seed: int, folder: Path) -> None:
    """The first seeds stand for the files of the corpus as they are, all others for mutations."""
    rng = np.random.default_rng(seed)
    files = beginnings()
    path = folder / "model.acx"
    if seed < len(files):
        path.write_bytes(files[seed].read_bytes())
    else:
        path.write_bytes(mutated(files[rng.integers(len(files))].read_bytes(), rng))
    check(path, rng)
