"""Rows -> blocks, in two passes: the first finds out what the columns hold, the second writes codes.

Rows are divided into shares. Each share is read by a `Reader`, which stays with the worker that will work on the share. Shares are
consecutive: the number of a row is its number within its share plus the rows of all shares before. The result of a pass is merged
from the results of all shares, and does not depend on where one share ends and the next begins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from autocross.blocks import Block, BlockWriter
from autocross.encoding.encoder import Encoder, stem_codes
from autocross.engines import changes, in_lanes
from autocross.errors import TableError
from autocross.features import narrowest
from autocross.folds import FoldPlan
from autocross.memory import COUNTS, Allowance, gib, give_back
from autocross.scratch import Scratch
from autocross.table.coerce import typed
from autocross.table.columns import TimeColumn
from autocross.table.digest import Digest, Digests, Numbered, is_counted_as_it_is, merged, moved
from autocross.table.labels import Classes, LabelValues
from autocross.table.source import Part, Source
from autocross.table.weights import mean_exponent as mean_exponent
from autocross.table.weights import weigh as weigh
from autocross.table.weights import weighed as weighed

Ints = NDArray[np.int64]
HASHED_CELLS = 1 << 22  # most cells that are hashed together; their hashes take 32 MB
PIECE = 250  # columns that are looked at between two looks at the clock
Each = Callable[..., Iterable[Any]]  # `map`, or a parallel version of it


def in_pieces(parts: Iterable[Part], names: Sequence[str], n_threads: int) -> Iterator[tuple[Part, list[list[str]]]]:
    """Each part as often as it has pieces, together with the columns of the piece, in lists that threads look at in parallel."""
    for part in parts:
        size = max(1, min(PIECE // n_threads, HASHED_CELLS // max(1, part.features.height)))
        lists = [list(names[first : first + size]) for first in range(0, len(names), size)]
        for first in range(0, len(lists), n_threads):
            yield part, lists[first : first + n_threads]


def first_rows(source: Source, names: Sequence[str], n_rows: int) -> Iterator[Part]:
    """The parts of a source, with only these columns and the first ``n_rows`` rows."""
    for part in source.parts(names):
        if n_rows <= 0:
            return
        yield part if part.features.height <= n_rows else part.between(0, n_rows)
        n_rows -= part.features.height


@dataclass
class Reader:
    """A share of the rows, and the pass over it that is under way. ``number`` is its place among the shares.

    ``numbered`` has columns whose distinct values the first pass has numbered, if the rows are in memory. The second pass can do
    without it, but is slower then.
    """

    source: Source
    number: int
    n_threads: int = 1
    numbered: dict[str, Numbered] = field(default_factory=dict, repr=False)
    looking: Looking = field(init=False, repr=False)
    filling: Filling = field(init=False, repr=False)

    @cached_property
    def each(self) -> Each:
        return map if self.n_threads == 1 else in_lanes(ThreadPoolExecutor(self.n_threads), self.n_threads)


# The first pass.


@dataclass(frozen=True)
class Request:
    """The columns to look at, in this order. ``types`` has the kinds that the user gave; ``unused`` has columns that are no
    features."""

    names: Sequence[str]
    types: Mapping[str, str]
    unused: Collection[str]
    allowed: Allowance | None


class Looking:
    """The first pass over some columns: what was found so far. If that takes too much memory, some columns must wait."""

    def __init__(self, source: Source, request: Request, n_threads: int) -> None:
        self.labels = LabelValues(source.target, source.first_row)
        self.allowed, apart = request.allowed, not source.in_memory
        self.digests = {
            name: Digests(name, request.types.get(name), self.allowed, apart=apart, unused=apart and name in request.unused)
            for name in request.names
        }
        self.pieces = in_pieces(source.parts(request.names), request.names, n_threads)
        self.part: Part | None = None  # the part that is looked at now
        self.n_rows, self.n_all = 0, source.n_rows  # rows up to the end of this part, and of all parts
        self.cut = False  # whether rows were left unread
        self.weight = weigh(np.empty(0, np.float32))
        self.waiting: dict[str, int] = {}  # columns that must wait for another pass, and the bytes they may take then

    def let_wait(self) -> None:
        """Take out columns, the largest first, until the others fit."""
        if self.allowed is None:
            return
        sizes = {name: digests.n_bytes for name, digests in self.digests.items()}
        while sum(sizes.values()) > self.allowed.for_columns:
            name = max(sizes, key=lambda name: sizes[name])
            size = sizes.pop(name)
            in_all = size * self.n_all // max(1, self.n_rows)
            if not sizes and size <= self.allowed.for_column:
                break
            if not sizes:
                raise TableError(
                    f"Column {name!r} has more than {self.digests[name].n_values:,} different values. To count them all may take "
                    f"some {gib(in_all)}, which is too much for memory_limit={self.allowed.limit / 2**30:g}. Leave the column out, "
                    f"exclude=[{name!r}], or raise memory_limit to {in_all / COUNTS / 2**30:.2g}."
                )
            self.waiting[name] = in_all
            del self.digests[name]


@changes("pass", anew=True)
def begin_to_look(reader: Reader, request: Request) -> None:
    """Begin the first pass, or a further one over columns that had to wait."""
    reader.looking = Looking(reader.source, request, reader.n_threads)


@changes("pass")
def look_on(reader: Reader, hurry: bool) -> tuple[int, bool]:
    """Look at some columns of the next rows, if there are any. Returns how many rows were met so far, and whether that is all.

    In a hurry, columns that were not reached in the first part of the rows are left unread. Further parts are left unread too, once
    rows of both labels were met.
    """
    looking = reader.looking
    if hurry and looking.part is not None and looking.n_rows == looking.part.features.height:
        looking.digests = {name: digests for name, digests in looking.digests.items() if digests.begun}
    if (piece := next(looking.pieces, None)) is None:
        return looking.n_rows, True
    part, lists = piece
    if part is not looking.part:
        if hurry and looking.labels.n_distinct > 1:
            looking.cut = True
            return looking.n_rows, True
        looking.part = part
        looking.labels.add(part.label)
        looking.n_rows += part.features.height
        looking.weight += weigh(part.weight)
    list(reader.each(lambda names: look_at(reader, part.features, names), lists))
    looking.let_wait()
    if looking.allowed is not None:
        give_back()
    return looking.n_rows, False


def look_at(reader: Reader, rows: pl.DataFrame, names: Sequence[str]) -> None:
    """Look at some columns of some rows. They are hashed together, which takes a tenth of the time if there are many small
    columns."""
    digests = reader.looking.digests
    names = [name for name in names if name in digests]
    plain = [name for name in names if is_counted_as_it_is(rows[name].dtype, digests[name].separator)]
    hashes = pl.DataFrame([rows[name] for name in plain]).select(pl.all().hash()).get_columns() if plain else []
    known_hashes = {name: column.to_numpy() for name, column in zip(plain, hashes, strict=True)}
    for name in names:
        digests[name].add(rows[name], known_hashes.get(name))
        if reader.source.in_memory:
            digests[name].seal()


@dataclass(frozen=True)
class Looked:
    """What the first pass found in the columns and labels of a share, and the summed weight in the form of `weigh`. ``cut`` says
    that rows were left unread; ``waiting`` has the columns that need another pass."""

    digests: list[Digest]
    labels: LabelValues
    n_rows: int
    weight: Ints
    cut: bool
    waiting: dict[str, int]


def looked(reader: Reader) -> Looked:
    """What the first pass found."""
    looking = reader.looking
    del reader.looking
    digests = list(reader.each(Digests.whole, looking.digests.values())) if looking.n_rows else []
    if reader.source.in_memory:
        numbered = {name: column.numbered for name, column in looking.digests.items()}
        reader.numbered = {name: column for name, column in numbered.items() if column is not None}
    return Looked(digests, looking.labels, looking.n_rows, looking.weight, looking.cut, looking.waiting)


def labels_of(shares: Sequence[Looked]) -> LabelValues:
    """The labels of all rows."""
    labels = shares[0].labels
    for share in shares[1:]:
        labels.add_distinct(share.labels.distinct)
    return labels


def together(shares: Sequence[Looked], each: Each = map) -> list[Digest]:
    """The digests of all rows, for the columns that were looked at in every share."""
    with_rows = [
        ({digest.name: digest for digest in share.digests}, sum(before.n_rows for before in shares[:number]))
        for number, share in enumerate(shares)
        if share.n_rows
    ]

    def whole(name: str) -> Digest:
        parts = [moved(digests[name], first_row) for digests, first_row in with_rows]
        return parts[0] if len(parts) == 1 else merged(parts)

    names = [name for name in with_rows[0][0] if all(name in digests for digests, _ in with_rows)] if with_rows else []
    return list(each(whole, names))


# The second pass.


@dataclass(frozen=True)
class Recipe:
    """How rows become codes. ``named`` has columns that folds may need, and ``n_rows`` the number of rows of each share. Weights
    are divided by 2 to the power of ``exponent``. With a scratch file, codes are kept there."""

    encoder: Encoder
    classes: Classes
    named: Sequence[str]
    n_rows: Sequence[int]
    seed: int
    exponent: int
    scratch: Scratch | None = None


class Filling:
    """The second pass: codes, labels and weights of the rows that were read so far."""

    def __init__(self, source: Source, recipe: Recipe, number: int, n_threads: int) -> None:
        self.recipe = recipe
        self.columns = {column.column.name: column for column in recipe.encoder.columns}
        self.stems = recipe.encoder.stems_of_columns
        read = [*dict.fromkeys((*self.columns, *recipe.named))]
        self.pieces = in_pieces(first_rows(source, read, recipe.n_rows[number]), list(self.columns), n_threads)
        self.part: Part | None = None  # the part that is encoded now
        self.encoded: set[str] = set()  # columns of which codes were written
        n_rows, first_row = recipe.n_rows[number], sum(recipe.n_rows[:number])
        kinds = [None if stem.ragged else narrowest(stem.n_codes) for stem in recipe.encoder.stems]
        self.writer = BlockWriter(kinds, n_rows, recipe.seed, recipe.scratch, first_row, sum(recipe.n_rows))
        self.label, self.weight = np.empty(n_rows, np.uint8), np.empty(n_rows, np.float32)
        self.widths = [1] * len(kinds)
        self.named: list[pl.DataFrame] = []
        self.times: list[dict[str, NDArray[np.int64]]] = []
        self.n_rows = 0  # rows up to the end of this part


@changes("pass", anew=True)
def begin_to_fill(reader: Reader, recipe: Recipe) -> None:
    """Begin the second pass."""
    reader.filling = Filling(reader.source, recipe, reader.number, reader.n_threads)


@changes("pass")
def fill_on(reader: Reader, hurry: bool) -> tuple[int, bool]:
    """Encode some columns of the next rows, if there are any. Returns how many rows were met so far, and whether that is all.

    In a hurry, columns are left out of which not even the first rows were encoded.
    """
    filling, recipe = reader.filling, reader.filling.recipe
    if hurry and filling.part is not None and filling.n_rows == filling.part.features.height:
        filling.columns = {name: column for name, column in filling.columns.items() if name in filling.encoded}
    if (piece := next(filling.pieces, None)) is None:
        return filling.n_rows, True
    part, lists = piece
    if part is not filling.part:
        rows = slice(filling.n_rows, filling.n_rows + part.features.height)
        filling.label[rows], filling.weight[rows] = recipe.classes.codes(part.label), np.ldexp(part.weight, -recipe.exponent)
        filling.named.append(part.features.select(recipe.named))
        filling.times.append({})
        filling.part, filling.n_rows = part, rows.stop
    list(reader.each(lambda names: fill_in(reader, part.features, names), lists))
    if recipe.scratch is not None:
        give_back()
    return filling.n_rows, False


def fill_in(reader: Reader, rows: pl.DataFrame, names: Sequence[str]) -> None:
    """Encode some columns of some rows."""
    filling = reader.filling
    columns = [filling.columns[name] for name in names if name in filling.columns]
    frame = pl.DataFrame([rows[column.column.name] for column in columns])  # `select` takes long in a table of 100,000 columns
    table = typed(frame, tuple(column.column for column in columns), reader.numbered)
    for column in columns:
        name = column.column.name
        codes = dict(zip(filling.stems[name], stem_codes(column, table), strict=True))
        filling.writer.add(filling.n_rows - rows.height, codes)
        for stem, coded in codes.items():
            filling.widths[stem] = max(filling.widths[stem], coded.width)
        if isinstance(moments := table.columns[name], TimeColumn):
            filling.times[-1][name] = moments.micros
        filling.encoded.add(name)


@dataclass(frozen=True)
class Filled:
    """What one share contributes to the knowledge of all rows: which columns were encoded, the most codes that a row has in each
    stem, how many rows have each label, and columns that folds may need."""

    columns: set[str]
    widths: list[int]
    n_labels: Ints
    named: pl.DataFrame
    times: dict[str, NDArray[np.int64]]


def filled(reader: Reader) -> Filled:
    """What the second pass found."""
    filling = reader.filling
    times = {name: np.concatenate([part[name] for part in filling.times]) for name in (filling.times[0] if filling.times else {})}
    named = pl.concat(filling.named, how="vertical_relaxed") if filling.named else pl.DataFrame()
    return Filled(filling.encoded, filling.widths, np.bincount(filling.label, minlength=2).astype(np.int64), named, times)


@changes("pass")
def to_blocks(reader: Reader, n_blocks: int, stems: Sequence[int], plan: FoldPlan, cluster: Ints | None) -> list[Block]:
    """Shuffled blocks of the rows, with the codes of these stems. ``cluster`` is that of all rows."""
    filling = reader.filling
    reader.numbered = {}
    return filling.writer.blocks(n_blocks, stems, filling.label, filling.weight, plan, cluster, reader.each)
