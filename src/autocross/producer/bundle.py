"""One file for a model: a safetensors file whose metadata holds a JSON manifest.

Reading it runs no code. Everything in it is checked against everything else before it is used: a damaged or forged file raises a
BundleError, and never gives a wrong score.
"""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any

import numpy as np

from autocross.checks import SHOWN, require
from autocross.crossing import CrossCoder
from autocross.encoding.column import Arrays, ColumnEncoder
from autocross.errors import BundleError, FileError
from autocross.features import narrowest
from autocross.producer import background
from autocross.producer.background import KEY, PREFIX, OnFile
from autocross.producer.container import Container, can_be_read, open_file
from autocross.producer.model import About, Model, Producer, timeless
from autocross.producer.unpacking import format_of, unpack
from autocross.table.atomic import replace_file


def save(model: Model, path: str | Path) -> None:
    """Write the bundle. An existing file of that name stays until the new one is complete."""
    from safetensors.numpy import save as to_bytes

    arrays: Arrays = {}
    manifest: dict[str, Any] = {
        "format": 1,
        "schema": [column.facts() for column in model.producer.encoder.schema],
        "columns": [pack_column(number, encoder, arrays) for number, encoder in enumerate(model.producer.encoder.columns)],
        "crosses": [
            pack_cross(number, cross, arrays) | names_of_change(cross, model.producer)
            for number, cross in enumerate(model.producer.crosses)
        ],
        "intercept": model.intercept,
        "penalties": [astuple(penalty) for penalty in model.penalties],
        "about": pack_about(model.about),
    }
    if model.producer.crossed_only:
        manifest["crossed_only"] = sorted(model.producer.crossed_only)
    pack_weights(model, arrays)
    if model.counts is not None:
        manifest["share"] = model.share
    manifest |= {addition.key: addition.pack(arrays) for addition in model.additions}
    if model.background is not None:
        manifest["background"] = model.background.pack(arrays, model.producer.statistics)
    manifest["format"] = format_of(manifest)
    manifest["checksum"] = checksum(manifest, arrays)
    text = json.dumps(manifest)
    content = to_bytes(arrays, metadata={KEY: text})
    if not can_be_read(content, text, len(arrays)):
        raise FileError(
            f"Cannot save {str(path)!r}: {len(manifest['schema']):,} columns and {len(manifest['crosses']):,} crosses are more "
            "than a model file may describe. Leave columns out by exclude=, or fit fewer crosses by max_crosses=."
        )
    replace_file(Path(path), lambda stream: stream.write(content))


def pack_about(about: About) -> dict[str, Any]:
    """The record of the fit. Few models have weights of classes."""
    entry = {**asdict(about), "history": timeless(about.history)}
    if about.class_weight is None:
        del entry["class_weight"]
    return entry


def pack_weights(model: Model, arrays: Arrays) -> None:
    """The weights of every term, and the rows and positives of its codes. In a statistic, values with the same rows and positives
    have the same weight, unless it was changed by hand; so each is stored once, and for every value its number."""
    kind, n_fields = np.int64 if model.about.n_rows >> 32 else np.uint32, len(model.producer.encoder.fields)
    kinds = ["cross"] * n_fields + [cross.kind for cross in model.producer.crosses]
    counts = []
    for number, (of_term, weight) in enumerate(zip(kinds, model.weights, strict=True)):
        arrays[f"weight.{number}"] = weight
        if model.counts is None:
            continue
        counts.append(model.counts[number])
        if of_term == "statistic":
            known = np.column_stack([counts[-1], np.unique(weight, return_inverse=True)[1].reshape(-1)])
            _, first, index = np.unique(known, axis=0, return_index=True, return_inverse=True)
            counts[-1] = counts[-1][first]
            arrays[f"weight.{number}"] = weight[first]
            arrays[f"index.{number}"] = index.reshape(-1).astype(narrowest(len(first)))
    if counts:
        arrays["counts"] = np.concatenate(counts).astype(kind)


def pack_column(number: int, encoder: ColumnEncoder, arrays: Arrays) -> dict[str, Any]:
    """One column's encoder: small facts as JSON, long ones as arrays."""
    return {"name": encoder.column.name, "coder": encoder.coder, **encoder.pack(number, arrays)}


def pack_cross(number: int, cross: CrossCoder, arrays: Arrays) -> dict[str, Any]:
    """One cross: its fields as JSON, its values as an array."""
    entry = {"fields": list(cross.fields), "n_buckets": cross.n_buckets, "width": cross.width}
    arrays[f"cross.{number}"] = cross.values
    if cross.kind == "statistic":
        arrays[f"cross.{number}"] = cross.values.astype(narrowest(max(cross.sizes)))  # it has many values
    return entry if cross.kind == "cross" else {**entry, "kind": cross.kind}


def names_of_change(cross: CrossCoder, producer: Producer) -> dict[str, Any]:
    """The names of the fields of a change by hand. Those of other crosses are in the record of the fit."""
    return {"names": [producer.names[field] for field in cross.fields]} if cross.kind == "change" else {}


def read(path: str | Path) -> Model:
    """The model of a bundle."""
    with open_file(path) as stream:
        try:
            stored = Container(stream, KEY)
            manifest = stored.manifest
            model = unpack(manifest, stored)
            expected = manifest.pop("checksum", None)
            require(expected == checksum(manifest, stored.arrays), "its checksum does not fit its content")
            kept = OnFile(Path(path), expected, manifest["background"]) if "background" in manifest else None
            return replace(model, kept=kept)
        except BundleError as error:
            raise BundleError(f"Cannot load {str(path)!r}: {error}") from None
        except OSError as error:
            raise FileError(f"Cannot read {str(path)!r}: {error.strerror or error}.") from error
        except MemoryError:
            raise BundleError(
                f"Cannot load {str(path)!r}: it needs more memory than there is. Load it on a larger machine."
            ) from None
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError, OverflowError) as error:
            why = f"{type(error).__name__}: {str(error)[:SHOWN]}"
            raise BundleError(f"Cannot load {str(path)!r}: its manifest is damaged ({why}). Save or copy it again.") from error


def is_bundle(path: Path) -> bool:
    """Whether a file is a model of autocross, as far as its header tells."""
    from safetensors import safe_open

    try:
        with safe_open(str(path), framework="numpy") as stored:
            return KEY in (stored.metadata() or {})
    except Exception:  # whatever the file is, it is no bundle
        return False


def checksum(manifest: dict[str, Any], arrays: Arrays) -> str:
    """A hash of everything that is read with the model, so that a flipped bit cannot change a score. What it remembers about its
    rows is read later, and has a checksum of its own in the manifest."""
    own = {name: array for name, array in arrays.items() if not name.startswith(PREFIX)}
    return background.checksum(own, json.dumps(manifest))
