"""What the later rooms talk about: a field, and the codes of a field."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.scratch import Scratch, read

MISSING = 0  # code of a missing value
RARE = 1  # code shared by rare and unseen values
FIRST = 2  # code of the first value
CAP = 1 << 20  # most values of a column or a cross that get a code of their own
FEWEST_BITS = 18
MOST_BITS = 22  # with the values that have a code of their own fewer than 2^23 codes: a cross of them has keys of 63 bits
TOGETHER = 1 << 16  # rows of which something is computed at once: what is needed on the way to it stays small


def hash_bits(n_rows: int) -> int:
    """Values beyond the cap share 2^18 codes, or a code for every 16 rows where that is more, up to 2^22.

    >>> hash_bits(100_000), hash_bits(45_000_000), hash_bits(10**9)
    (18, 22, 22)
    """
    return min(MOST_BITS, max(FEWEST_BITS, math.ceil(math.log2(max(1, n_rows) / 16))))


def least_rows(min_count: int, share: float) -> int:
    """``min_count`` for a sample of that share of the rows: in proportion, but no value seen once, unless that is enough at all.

    >>> least_rows(24, 0.5), least_rows(24, 0.001), least_rows(1, 0.1)
    (12, 2, 1)
    """
    return max(min(min_count, 2), round(min_count * share))


@dataclass(frozen=True)
class Penalty:
    """How strongly the weights of a field are held near zero, and those of neighbours together."""

    l1: float = 0.0
    l2: float = 1.0
    smooth: float = 0.0

    def times(self, factor: float) -> Penalty:
        """So many times as strong."""
        return Penalty(self.l1 * factor, self.l2 * factor, self.smooth * factor)


@dataclass(frozen=True)
class Chain:
    """Codes that have neighbours. ``order`` lists all codes, ``gap`` how far each lies from the one before, 0 where none does."""

    order: NDArray[np.int64]
    gap: NDArray[np.float64]


@lru_cache
def in_order(n_codes: int) -> Chain:
    """The codes of values are neighbours; missing and rare have none. Fields of as many codes share what says so."""
    gap = np.ones(n_codes)
    gap[: FIRST + 1] = 0.0
    return Chain(np.arange(n_codes), gap)


@dataclass(frozen=True)
class Field:
    """One encoded column: what a weight can be learned for.

    ``shares_rare`` says that values too rare to judge share code 1; bins of a number do not, they have neighbours.
    ``width`` is the largest number of codes in a row, 1 only where every row has one, ``part`` the calendar part of a time,
    ``chain`` says which codes are neighbours, if any are.
    """

    name: str
    column: str
    n_codes: int
    shares_rare: bool
    width: int = 1
    part: str = ""
    chain: Chain | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class FieldCodes:
    """A field's codes in some rows; ``starts`` only where a row may hold any number of them.

    Both are arrays, or `Stored` ones of a `Scratch`, which can be cut but must be `read` to be worked with.
    """

    codes: Any
    starts: Any = None

    @property
    def n_rows(self) -> int:
        return len(self.codes) if self.starts is None else len(self.starts) - 1

    @property
    def width(self) -> int:
        """The most codes of a row; two at least where it may hold none, so that one says that each row has one."""
        return 1 if self.starts is None else int(np.diff(self.starts).max(initial=2))

    def between(self, first: int, last: int) -> FieldCodes:
        """The codes of some rows in sequence; nothing is copied."""
        if self.starts is None:
            return FieldCodes(self.codes[first:last])
        return FieldCodes(self.codes, self.starts[first : last + 1])

    def read(self) -> FieldCodes:
        """The same as arrays."""
        return FieldCodes(read(self.codes), None if self.starts is None else read(self.starts))

    def stored(self, scratch: Scratch | None) -> FieldCodes:
        """The same on the disk, if there is a file for it."""
        if scratch is None:
            return self
        return FieldCodes(scratch.keep(self.codes), None if self.starts is None else scratch.keep(self.starts))

    def take(self, rows: NDArray[np.int64]) -> FieldCodes:
        """The codes of these rows, in this order."""
        if self.starts is None:
            return FieldCodes(self.codes.take(rows, mode="clip"))  # they are there: nothing has to be checked, or copied for it
        starts = np.zeros(len(rows) + 1, np.int64)
        parts = [(first, rows[first : first + TOGETHER]) for first in range(0, len(rows), TOGETHER)]
        for first, some in parts:
            starts[first + 1 : first + 1 + len(some)] = self.starts[some + 1] - self.starts[some]
        np.cumsum(starts, out=starts)
        codes = np.empty(starts[-1], self.codes.dtype)
        for first, some in parts:
            own = starts[first : first + len(some) + 1]
            # Position of every code in the old array: its row's old start plus its place within the row.
            codes[own[0] : own[-1]] = self.codes[np.repeat(self.starts[some] - own[:-1], np.diff(own)) + np.arange(own[0], own[-1])]
        return FieldCodes(codes, starts)


def joined(parts: Sequence[FieldCodes]) -> FieldCodes:
    """The rows of all parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    codes = np.concatenate([part.codes for part in parts])
    if parts[0].starts is None:
        return FieldCodes(codes)
    starts, row = np.zeros(1 + sum(part.n_rows for part in parts), np.int64), 0
    for part in parts:
        starts[row + 1 : row + 1 + part.n_rows] = part.starts[1:] + (starts[row] - part.starts[0])
        row += part.n_rows
    return FieldCodes(codes, starts)


def narrowest(n_codes: int) -> type[np.unsignedinteger[Any]]:
    """The smallest unsigned type that holds codes below ``n_codes``.

    >>> narrowest(256).__name__, narrowest(257).__name__
    ('uint8', 'uint16')
    """
    if n_codes <= 1 << 8:
        return np.uint8
    return np.uint16 if n_codes <= 1 << 16 else np.uint32
