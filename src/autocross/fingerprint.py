"""Describes everything that a fit reads by a few numbers. If they are the same, the search finds the same.

Each part of the rows (their labels, their weights, the codes of each column) has a sum over all rows. A row adds a hash of its
number and of what it holds, so the sum changes even if two rows exchange their values. The order of addition does not matter, and
therefore neither the division into blocks nor the engine does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.blocks import Block, stem_key
from autocross.encoding.encoder import Encoder
from autocross.engines import Engine
from autocross.features import FieldCodes
from autocross.hashing import mix
from autocross.options import Options
from autocross.producer import bundle
from autocross.producer.model import Rule

# Options that change where a search runs, how long it runs or how rows are read, but not what it finds on the way.
FREE = {"engine", "address", "n_jobs", "memory_limit", "time_limit", "max_crosses", "size"}
FREE |= {"separator", "decimal", "checkpoint", "resume", "private", "quiet", "journal"}
SLICE = 1 << 15  # rows that are hashed at a time, so that they stay in the cache
OF_ROWS = ("labels", "weights", "groups or periods", "folds")  # the first parts; the others are the codes

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]


# Rows.


def row_sums(block: Block) -> Ints:
    """The sums of hashes of a block, one for each part of its rows: first the parts of `OF_ROWS`, then the stems in their order."""
    cluster = np.zeros(block.n_rows, np.int64) if block.cluster is None else block.cluster
    parts = [FieldCodes(part) for part in (block.label, block.weight.view(np.uint32), cluster, block.fold)]
    parts += [block.codes[stem_key(number)] for number in range(len(block.codes) - 1)]  # all but the intercept
    sums = np.zeros(len(parts), np.uint64)
    for first in range(0, block.n_rows, SLICE):
        last = min(first + SLICE, block.n_rows)
        row = mix(0, block.row[first:last])
        sums += np.array([mix(1, row ^ held_by(part.between(first, last).read())).sum() for part in parts])
    return sums.view(np.int64)


def held_by(coded: FieldCodes) -> Hashes:
    """A number that stands for what each row holds: its code, or a hash of its codes and their order."""
    if coded.starts is None:
        alone: Hashes = coded.codes.astype(np.uint64)
        return alone
    starts = coded.starts - coded.starts[0]
    codes = coded.codes[coded.starts[0] : coded.starts[-1]]
    place = np.arange(len(codes)) - np.repeat(starts[:-1], np.diff(starts))
    up_to = np.zeros(len(codes) + 1, np.uint64)
    np.cumsum(mix(3, mix(2, place) ^ codes), out=up_to[1:])
    hashes: Hashes = up_to[starts[1:]] - up_to[starts[:-1]]
    return hashes


# Everything.


def identity(
    options: Options, engine: Engine, encoder: Encoder, n_rows: int, target: str, classes: Sequence[Any], rules: Iterable[Rule]
) -> dict[str, Any]:
    """What must be the same if a search is to be resumed, in a form for JSON. Errors use the names of the parts."""
    sums = [f"{int(total):016x}" for total in engine.total(row_sums).view(np.uint64)]
    rows: dict[str, Any] = {
        "names of the target": target,
        "classes": json.dumps(list(classes)),  # as text, because 1 and true are equal but not the same
        "numbers of rows": n_rows,
        "kinds of columns": bundle.checksum({"schema": [column.facts() for column in encoder.schema]}, {}),
        **{f"{rule.name}, which follow from the rows and memory_limit,": rule.value for rule in rules},
        **{f"codes of column {name!r}": checksum for name, checksum in column_checksums(encoder).items()},
        **dict(zip(OF_ROWS, sums, strict=False)),
    }
    for name, total in zip(stem_columns(encoder), sums[len(OF_ROWS) :], strict=True):
        key = f"values of column {name!r}"
        rows[key] = rows.get(key, "") + total  # a time has several stems
    return {"options": of_options(options), "rows": rows}


def of_options(options: Options) -> dict[str, Any]:
    """The options that must be the same."""
    values = {entry.name: getattr(options, entry.name) for entry in fields(options) if entry.name not in FREE}
    as_json: dict[str, Any] = json.loads(json.dumps(values, default=str))
    return as_json


def column_checksums(encoder: Encoder) -> dict[str, str]:
    """For each column a checksum of what its codes stand for."""
    checksums = {}
    for column in encoder.columns:
        arrays = column.unsaved()
        facts = bundle.pack_column(0, column, arrays)
        checksums[column.column.name] = bundle.checksum(facts, arrays)
    return checksums


def stem_columns(encoder: Encoder) -> list[str]:
    """The column of each stem."""
    return [column.column.name for column in encoder.columns for _ in column.stems]
