"""Rows -> blocks, in two passes: what the columns hold, then codes.

Rows are read in shares, each by a `Reader`, which an engine keeps where the share is to be worked on. Shares follow each other:
a row's number is that in its share plus the rows of the shares before it. What a pass finds is merged from what it finds in
each share, and does not depend on where one ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from autocross.blocks import Block, BlockWriter
from autocross.encoding.encoder import Encoder
from autocross.engines import changes
from autocross.features import narrowest
from autocross.folds import FoldRule
from autocross.table.coerce import typed
from autocross.table.columns import TimeColumn
from autocross.table.digest import Digest, Digests, Numbered, merged, moved
from autocross.table.labels import Classes, LabelValues
from autocross.table.source import Part, Source

Ints = NDArray[np.int64]
Each = Callable[..., Iterable[Any]]  # `map`, or what works on columns side by side


@dataclass
class Reader:
    """A share of the rows, and the pass that is going on over it. ``number`` is its place among the shares.

    Given a folder, codes are kept in files there. ``numbered`` is what the second pass need not find again: columns of rows that
    are in memory anyway. It may be missing.
    """

    source: Source
    number: int
    n_threads: int = 1
    folder: Path | None = None
    numbered: dict[str, Numbered] = field(default_factory=dict, repr=False)
    looking: Looking = field(init=False, repr=False)
    filling: Filling = field(init=False, repr=False)

    @cached_property
    def each(self) -> Each:
        return map if self.n_threads == 1 else ThreadPoolExecutor(self.n_threads).map


# The first pass.


class Looking:
    """What the columns hold, as far as they are read."""

    def __init__(self, source: Source, types: Mapping[str, str]) -> None:
        self.parts: Iterator[Part] = source.parts()
        self.labels = LabelValues(source.target, source.first_row)
        # By name, so that the order of columns changes nothing.
        self.digests = {name: Digests(name, types.get(name)) for name in sorted(source.names)}
        self.n_rows = 0
        self.weight = weigh(np.empty(0, np.float32))


@changes("pass", anew=True)
def begin_to_look(reader: Reader, types: Mapping[str, str]) -> None:
    """Begin the first pass."""
    reader.looking = Looking(reader.source, types)


@changes("pass")
def look_on(reader: Reader) -> tuple[int, bool]:
    """Look at the next rows, if there are any; returns how many were looked at so far, and whether that is all."""
    looking = reader.looking
    if (part := next(looking.parts, None)) is None:
        return looking.n_rows, True
    looking.labels.add(part.label)
    list(reader.each(lambda name: looking.digests[name].add(part.features[name]), looking.digests))
    looking.n_rows += part.features.height
    looking.weight += weigh(part.weight)
    return looking.n_rows, False


@dataclass(frozen=True)
class Looked:
    """What was found in the columns and in the labels of some rows, and their weight as by `weigh`."""

    digests: list[Digest]
    labels: LabelValues
    n_rows: int
    weight: Ints


@changes("pass")
def looked(reader: Reader) -> Looked:
    """What the first pass found."""
    looking = reader.looking
    del reader.looking
    if reader.source.in_memory:
        found = {name: column.numbered for name, column in looking.digests.items()}
        reader.numbered = {name: column for name, column in found.items() if column is not None}
    digests = list(reader.each(Digests.whole, looking.digests.values())) if looking.n_rows else []
    return Looked(digests, looking.labels, looking.n_rows, looking.weight)


def together(shares: Sequence[Looked], each: Each = map) -> tuple[list[Digest], LabelValues]:
    """What was found in all rows."""
    labels = shares[0].labels
    for share in shares[1:]:
        labels.add_distinct(share.labels.distinct)
    with_rows = [(share, sum(before.n_rows for before in shares[:at])) for at, share in enumerate(shares) if share.n_rows]

    def whole(at: int) -> Digest:
        parts = [moved(share.digests[at], first_row) for share, first_row in with_rows]
        return parts[0] if len(parts) == 1 else merged(parts)

    return list(each(whole, range(len(with_rows[0][0].digests)))) if with_rows else [], labels


# The second pass.


@dataclass(frozen=True)
class Recipe:
    """How rows become codes. ``named`` are columns that folds may need; ``n_rows`` are those of each share; weights are divided by
    2 to the power of ``exponent``."""

    encoder: Encoder
    classes: Classes
    named: Sequence[str]
    n_rows: Sequence[int]
    seed: int
    exponent: int


class Filling:
    """The codes, labels and weights of rows, as far as they are read."""

    def __init__(self, source: Source, recipe: Recipe, number: int, folder: Path | None) -> None:
        self.parts: Iterator[Part] = source.parts()
        self.recipe = recipe
        n_rows, first_row = recipe.n_rows[number], sum(recipe.n_rows[:number])
        kinds = [narrowest(stem.n_codes) for stem in recipe.encoder.stems]
        self.writer = BlockWriter(kinds, n_rows, recipe.seed, folder, first_row, sum(recipe.n_rows))
        self.label, self.weight = np.empty(n_rows, np.uint8), np.empty(n_rows, np.float32)
        self.widths = [1] * len(kinds)
        self.named: list[pl.DataFrame] = []
        self.times: list[dict[str, NDArray[np.int64]]] = []
        self.done = 0


@changes("pass", anew=True)
def begin_to_fill(reader: Reader, recipe: Recipe) -> None:
    """Begin the second pass."""
    reader.filling = Filling(reader.source, recipe, reader.number, reader.folder)


@changes("pass")
def fill_on(reader: Reader) -> tuple[int, bool]:
    """Encode the next rows, if there are any; returns how many were encoded so far, and whether that is all."""
    filling, recipe = reader.filling, reader.filling.recipe
    if (part := next(filling.parts, None)) is None:
        return filling.done, True
    table = typed(part.features, recipe.encoder.schema, reader.numbered)
    codes = recipe.encoder.stem_codes(table, reader.each)
    filling.writer.add(filling.done, codes, reader.each)
    filling.widths = [max(width, coded.width) for width, coded in zip(filling.widths, codes, strict=True)]
    here = slice(filling.done, filling.done + table.n_rows)
    filling.label[here], filling.weight[here] = recipe.classes.codes(part.label), np.ldexp(part.weight, -recipe.exponent)
    filling.named.append(part.features.select(recipe.named))
    filling.times.append({name: column.micros for name, column in table.columns.items() if isinstance(column, TimeColumn)})
    filling.done += table.n_rows
    return filling.done, False


@dataclass(frozen=True)
class Filled:
    """What must be known of all rows, from some: the most codes of a row in each stem, rows of each label, and columns that folds
    may need."""

    widths: list[int]
    n_labels: Ints
    named: pl.DataFrame
    times: dict[str, NDArray[np.int64]]


def filled(reader: Reader) -> Filled:
    """What the second pass found."""
    one = reader.filling
    times = {name: np.concatenate([part[name] for part in one.times]) for name in (one.times[0] if one.times else {})}
    named = pl.concat(one.named, how="vertical_relaxed") if one.named else pl.DataFrame()
    return Filled(one.widths, np.bincount(one.label, minlength=2).astype(np.int64), named, times)


@changes("pass")
def to_blocks(reader: Reader, n_blocks: int, rule: FoldRule, cluster: Ints | None) -> list[Block]:
    """The rows shuffled, in blocks; ``cluster`` is that of all rows."""
    filling = reader.filling
    reader.numbered = {}
    return filling.writer.blocks(n_blocks, filling.label, filling.weight, rule, cluster, reader.each)


# Weights are floats, but their sum must not depend on how rows are spread. What counts is how rows weigh against each other, so all
# weights are divided by a power of two, which rounds nothing, until their mean is between 1 and 2: no sum depends on their unit.

DIGITS, POWERS = 24, 149  # of a float with 32 bits: its digits, and the least power of two among them


def weigh(weight: NDArray[np.float32]) -> Ints:
    """Summed digits of the weights by their power of two: whole numbers."""
    digits, power = np.frexp(weight)
    return np.bincount(power + POWERS, digits * 2.0**DIGITS, POWERS + 130).astype(np.int64)


def weighed(sums: Ints) -> float:
    """The sum of the weights, rounded once.

    >>> weighed(weigh(np.array([0.1, 1e9, 3e-9], np.float32)) + weigh(np.array([2.5], np.float32)))
    1000000002.6
    """
    return math.fsum(math.ldexp(float(digits), power - POWERS - DIGITS) for power, digits in enumerate(sums.tolist()))


def mean_exponent(total_weight: float, n_rows: int) -> int:
    """The power of two by which weights are divided for their mean to lie between 1 and 2.

    >>> mean_exponent(100.0, 100), mean_exponent(1e8, 100), mean_exponent(0.5, 100)
    (0, 19, -8)
    """
    return math.frexp(total_weight / n_rows)[1] - 1
