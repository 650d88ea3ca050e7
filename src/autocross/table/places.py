"""Numbers distinct values in the order in which they come, and finds them again by their 64-bit hashes.

Two of ten million values share a hash once in 400,000 columns. The hashes are polars' own; nothing that is kept depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from autocross.kernels import lookup
from autocross.table.values import MISSING_TEXTS

Numbers = NDArray[np.int32]
FEWEST_SLOTS = 1 << 10
FEW = 10_000  # texts that are looked at one by one
MANY_SLOTS = 1 << 20  # larger tables grow twofold instead of fourfold, to save memory


def hashed(values: pl.Series) -> NDArray[np.uint64]:
    """A hash for each value, including null. Equal numbers have equal hashes, whatever their type."""
    return values.hash().to_numpy()


class Places:
    """A table from values to their numbers.

    ``apart`` says that rows come in several parts, and that nobody else keeps these in memory. New texts are then copied; otherwise
    a single new text would keep all texts of its part in memory.
    """

    def __init__(self, n_expected: int = 0, *, apart: bool = False) -> None:
        self.n, self.apart = 0, apart
        self.parts: list[pl.Series] = []
        self.make(max(FEWEST_SLOTS, 1 << (2 * n_expected).bit_length()))

    @classmethod
    def of(cls, values: pl.Series | Sequence[str | None]) -> Places:
        """A table of values that all differ. Their numbers are 0, 1, ..."""
        places = cls(len(values))
        places.add(pl.Series(values))
        return places

    def make(self, n_slots: int) -> None:
        self.keys, self.number = np.zeros(n_slots, np.uint64), np.full(n_slots, -1, np.int32)
        self.counts = np.zeros(n_slots // 2 + 1, np.int64)

    def grow(self, n: int) -> None:
        """Make the table larger. The hashes are entered in the order of their numbers, so that each keeps its number."""
        taken, hashes, counts = self.number >= 0, np.empty(n, np.uint64), self.counts
        hashes[self.number[taken]] = self.keys[taken]
        self.make((4 if len(self.keys) < MANY_SLOTS else 2) * len(self.keys))
        lookup.enter(hashes, 0, self.keys, self.number, 0, 0, self.counts, np.empty(n, np.int64), np.empty(n, np.int32))
        self.counts[: len(counts)] = counts

    def add(self, values: pl.Series, hashes: NDArray[np.uint64] | None = None) -> tuple[Numbers, NDArray[np.int64]]:
        """The number of each row's value, and the rows with new values. ``hashes`` has the hashes of the values, if they are
        known."""
        hashes = hashed(values) if hashes is None else hashes
        index, first = np.empty(len(values), np.int32), np.empty(len(values), np.int64)
        row, n = 0, self.n
        while True:
            row, n = lookup.enter(hashes, row, self.keys, self.number, self.n, n, self.counts, first, index)
            new = first[: n - self.n]
            if row == len(values):
                break
            self.grow(n)
        self.n = n
        if len(new):
            is_new = np.zeros(len(values), bool)
            is_new[new] = True
            # A filter is faster than gathering if rows are in several chunks. If no two values are equal, neither is needed.
            new_values = values if len(new) == len(values) else values.filter(pl.Series(is_new))
            self.parts.append(new_values + "" if self.apart and new_values.dtype == pl.String else new_values)
        return index, new

    def find(self, values: pl.Series, table: NDArray[Any]) -> NDArray[Any]:
        """For each row, the entry of ``table`` at the number of its value. A value without a number gets the last entry."""
        entries = np.empty(len(values), table.dtype)
        lookup.find(hashed(values), self.keys, self.number, table, entries)
        return entries

    @property
    def n_bytes(self) -> int:
        """Bytes that everything here takes in memory."""
        table = self.keys.nbytes + self.number.nbytes + self.counts.nbytes
        return table + sum(int(part.estimated_size()) for part in self.parts)

    @property
    def n_rows(self) -> NDArray[np.int64]:
        """How many rows have each value, by number. This is a copy, because most of the original array may be unused."""
        return self.counts[: self.n].copy()

    @property
    def values(self) -> pl.Series:
        """All values, by number."""
        self.parts = [pl.concat(self.parts)] if len(self.parts) > 1 else self.parts
        return self.parts[0] if self.parts else pl.Series(dtype=pl.Null)


def missing(values: pl.Series) -> NDArray[np.bool_] | None:
    """Which values mean that there is no value. None if there are no such values.

    For few values a loop is faster than an expression of polars, and a table may have 100,000 columns.
    """
    if values.dtype.is_float():
        gone = np.isnan(values.to_numpy())  # nulls too
    elif values.dtype == pl.String and len(values) <= FEW:
        gone = np.array([text is None or text in MISSING_TEXTS for text in values.to_list()], np.bool_)
    elif values.dtype == pl.String:
        gone = (values.is_null() | values.is_in(sorted(MISSING_TEXTS))).to_numpy()
    else:
        gone = values.is_null().to_numpy() if values.null_count() else np.zeros(0, np.bool_)
    return gone if gone.any() else None


def factored(texts: pl.Series, differ: bool = False) -> tuple[pl.Series, Numbers]:
    """The distinct texts and, for each row, the place of its text, or -1 for missing. ``differ`` says that no two texts are
    equal."""
    values, index = texts, np.arange(len(texts), dtype=np.int32)
    if not differ:
        places = Places()
        index, _ = places.add(texts)
        values = places.values
    if (gone := missing(values)) is None:
        return values, index
    number = np.where(gone, -1, np.cumsum(~gone) - 1).astype(np.int32)
    return values.filter(pl.Series(~gone)), number[index]
