"""Where rows come from: a table in memory, or files that are read part by part. Rows can be read as often as needed, in the same
order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from autocross.table.batches import MOST_ROWS, batches, rows_of
from autocross.table.dialect import Dialect
from autocross.table.files import Piece, Place, column_names, spread


@dataclass(frozen=True)
class Part:
    """Some consecutive rows: their features, their labels in the original form, and their weights."""

    features: pl.DataFrame
    label: NDArray[Any]
    weight: NDArray[np.float32]

    def between(self, first: int, last: int) -> Part:
        return Part(self.features[first:last], self.label[first:last], self.weight[first:last])


class Source(Protocol):
    """Rows to learn from."""

    @property
    def target(self) -> str: ...
    @property
    def names(self) -> list[str]:
        """The columns without the target and the weights."""

    @property
    def in_memory(self) -> bool: ...
    @property
    def n_rows(self) -> int:
        """The number of rows, including those of weight zero."""

    @property
    def first_row(self) -> int:
        """The number of the first row in the whole table."""

    @property
    def share(self) -> float:
        """The share of the rows that there is time to learn from."""

    def parts(self, names: Sequence[str]) -> Iterator[Part]:
        """These columns of all rows, part by part."""

    def shares(self, n: int) -> Sequence[Source]:
        """The same rows, divided into that many consecutive sources, or fewer."""


@dataclass(frozen=True)
class InMemory:
    """A table in memory. It is a single part, unless ``most_bytes`` limits the size of parts; then it is treated like files."""

    part: Part
    target: str
    first_row: int = 0
    share: float = 1.0
    most_bytes: int | None = None

    @property
    def in_memory(self) -> bool:
        return self.most_bytes is None

    @property
    def names(self) -> list[str]:
        return self.part.features.columns

    @property
    def n_rows(self) -> int:
        return self.part.features.height

    def parts(self, names: Sequence[str]) -> Iterator[Part]:
        if self.most_bytes is None:
            yield self.part
            return
        rows = replace(self.part, features=self.part.features.select(names))
        n = rows_of(self.most_bytes, rows.features.estimated_size() / self.n_rows)
        for first in range(0, self.n_rows, n):
            yield rows.between(first, first + n)

    def shares(self, n: int) -> Sequence[InMemory]:
        cuts = np.linspace(0, self.n_rows, min(n, self.n_rows) + 1).astype(int).tolist()
        return [replace(self, part=self.part.between(first, last), first_row=first) for first, last in pairwise(cuts)]


@dataclass(frozen=True)
class InFiles:
    """Files that are too large for memory, of which ``most_bytes`` are read at a time. ``split`` separates the target and the
    weights from a frame, given the number of its first row. ``besides`` has the names of these columns."""

    path: Place
    dialect: Dialect
    target: str
    besides: frozenset[str]
    split: Callable[[pl.DataFrame, int], Part]
    pieces: Sequence[Piece]
    most_bytes: int
    first_row: int = 0
    share: float = 1.0
    height: int = MOST_ROWS  # of a part, at most
    in_memory = False

    @property
    def names(self) -> list[str]:
        return [name for name in column_names(self.path, self.dialect) if name not in self.besides]

    @property
    def n_rows(self) -> int:
        return sum(piece.n_rows for piece in self.pieces)

    def parts(self, names: Sequence[str]) -> Iterator[Part]:
        first_row = self.first_row
        for frame in batches(self.path, self.dialect, self.pieces, [*names, *self.besides], self.most_bytes, self.height):
            yield self.split(frame, first_row)
            first_row += frame.height

    def shares(self, n: int) -> Sequence[InFiles]:
        shares, first_row = [], 0
        for pieces in spread(self.pieces, n):
            shares.append(replace(self, pieces=pieces, first_row=first_row))
            first_row += shares[-1].n_rows
        return shares
