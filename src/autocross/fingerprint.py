"""What a fit reads, in a few numbers: where they are the same, the search finds the same.

Of each part of the rows (their labels, their weights, the codes of each column) there is one sum over all rows. A row adds a hash
of its number and of what it holds, so the sum tells which row holds what: values that two rows exchange change it. The order of
addition does not matter, so neither does it matter how rows are spread over blocks, nor on which engine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
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

# Options that change where and how long a search runs, or how rows are read, but not what it finds in the same rows until then.
FREE = {"engine", "address", "n_jobs", "memory_limit", "time_limit", "max_crosses"}
FREE |= {"separator", "decimal", "checkpoint", "resume", "private", "quiet", "journal"}
SLICE = 1 << 15  # rows that are hashed at a time: what is worked on stays in the cache
OF_ROWS = ("labels", "weights", "groups or periods", "folds")  # the first parts; the others are the codes

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]


# Rows.


def row_sums(block: Block) -> Ints:
    """For each part of the rows of a block the sum of their hashes: those of `OF_ROWS`, then those of the stems, in their order."""
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
    """A number for what each row holds: its code, or a hash of its codes and of their places among them."""
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
    """What must be the same for a search to go on, as JSON has it. The names of parts are those that an error gives."""
    sums = [f"{int(total):016x}" for total in engine.total(row_sums).view(np.uint64)]
    rows: dict[str, Any] = {
        "names of the target": target,
        "classes": json.dumps(list(classes)),  # a text: 1 and true are equal, but not the same
        "numbers of rows": n_rows,
        "kinds of columns": bundle.checksum({"schema": [asdict(column) for column in encoder.schema]}, {}),
        **{f"{rule.name}, which follow from the rows and memory_limit,": rule.value for rule in rules},
        **{f"codes of column {name!r}": checksum for name, checksum in column_checksums(encoder).items()},
        **dict(zip(OF_ROWS, sums, strict=False)),
    }
    for name, total in zip(stem_columns(encoder), sums[len(OF_ROWS) :], strict=True):
        what = f"values of column {name!r}"
        rows[what] = rows.get(what, "") + total  # a time has several stems
    return {"options": of_options(options), "rows": rows}


def of_options(options: Options) -> dict[str, Any]:
    """The options that must be the same."""
    given = {entry.name: getattr(options, entry.name) for entry in fields(options) if entry.name not in FREE}
    as_json: dict[str, Any] = json.loads(json.dumps(given, default=str))
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
