"""A field, and the codes of a field in rows: what all later rooms work with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.scratch import Scratch, read

MISSING = 0  # code of a missing value
RARE = 1  # code shared by rare and unseen values
FIRST = 2  # code of the first value
CAP = 1 << 20  # most values of a column or a cross that get a code of their own
FEWEST_BITS = 18
MOST_BITS = 22  # a field then has fewer than 2^23 codes in all, so that the keys of a cross fit into 63 bits
FEW_ROWS = 5_000  # on so few rows, numbers are held near a line, and penalties of fields move only for a good reason
TOGETHER = 1 << 16  # rows that are worked on at the same time, so that intermediate results stay small


def hash_bits(n_rows: int) -> int:
    """The bits of the codes that values beyond the cap share: 18, or enough for a code for every 16 rows, up to 22.

    >>> hash_bits(100_000), hash_bits(45_000_000), hash_bits(10**9)
    (18, 22, 22)
    """
    return min(MOST_BITS, max(FEWEST_BITS, math.ceil(math.log2(max(1, n_rows) / 16))))


def least_rows(min_count: int, share: float) -> int:
    """``min_count`` for a sample that has this share of the rows: in proportion, but at least 2, unless ``min_count`` is 1.

    >>> least_rows(24, 0.5), least_rows(24, 0.001), least_rows(1, 0.1)
    (12, 2, 1)
    """
    return max(min(min_count, 2), round(min_count * share))


@dataclass(frozen=True)
class Penalty:
    """How strongly the weights of a field are held near zero, and those of neighbours together.

    With a ``slope`` above 0, the weights of ordered codes are held near a straight line instead, and the slope of the line is held
    near zero by this strength. 0 means that there is no line.
    """

    l1: float = 0.0
    l2: float = 1.0
    smooth: float = 0.0
    slope: float = 0.0

    def times(self, factor: float) -> Penalty:
        """The penalty made stronger by this factor."""
        return Penalty(self.l1 * factor, self.l2 * factor, self.smooth * factor, self.slope * factor)


@dataclass(frozen=True)
class Chain:
    """Which codes are neighbours.

    ``order`` lists all codes. ``gap`` says how far each code lies from the code before it in that order; 0 means that the two are
    not neighbours. ``place`` says where each code lies on the line that its weight may be held to. ``direction`` is 1 if weights
    must never fall from one neighbour to the next, -1 if they must never rise, and 0 if they are free.
    """

    order: NDArray[np.int64]
    gap: NDArray[np.float64]
    place: NDArray[np.float64]
    direction: int = 0

    @property
    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """What a kernel takes."""
        return self.order, self.gap, self.place


def in_order(n_codes: int, places: NDArray[np.float64] | None = None, direction: int = 0) -> Chain:
    """The chain of a field whose values are in order. Missing and rare have no neighbours. ``places`` are those of the values; by
    default there is no line."""
    gap, place = np.ones(n_codes), np.zeros(n_codes)
    gap[: FIRST + 1] = 0.0
    if places is not None:
        place[FIRST:] = places
    return Chain(np.arange(n_codes), gap, place, direction)


@dataclass(frozen=True)
class Field:
    """One encoded column: what a weight can be learned for.

    ``shares_rare`` says that values too rare to judge share code 1. Bins of a number do not, because they have neighbours.
    ``width`` is the largest number of codes that a row has. A width of 1 also means that every row has exactly one code.
    ``part`` is the calendar part, if the column is a time. ``chain`` says which codes are neighbours, if any are.
    """

    name: str
    column: str
    n_codes: int
    shares_rare: bool
    width: int = 1
    part: str = ""
    chain: Chain | None = field(default=None, compare=False, repr=False)

    @property
    def has_line(self) -> bool:
        """Whether the codes lie on a line, so that weights can be held near it."""
        return self.chain is not None and bool(self.chain.place.any())

    @property
    def direction(self) -> int:
        """Whether weights must never fall along the chain (1), must never rise (-1), or are free (0)."""
        return 0 if self.chain is None else self.chain.direction

    @property
    def is_category(self) -> bool:
        """Whether the codes are categories, and every row has one of them."""
        return self.chain is None and self.width == 1 and not self.part


@dataclass(frozen=True)
class FieldCodes:
    """The codes of a field in some rows.

    ``starts`` is given only if a row may hold any number of codes: row r then holds ``codes[starts[r]:starts[r + 1]]``. ``judged``
    is given only if rows have other codes where they judge than where they are learned from, as those of a statistic do. All are
    NumPy arrays, or `Stored` arrays of a `Scratch`, which can be cut but must be `read` before anything else is done with them.
    """

    codes: Any
    starts: Any = None
    judged: Any = None

    @property
    def n_rows(self) -> int:
        return len(self.codes) if self.starts is None else len(self.starts) - 1

    @property
    def width(self) -> int:
        """The largest number of codes in a row. If rows may hold several codes or none, it is at least 2: a width of 1 promises
        that every row has exactly one code."""
        return 1 if self.starts is None else int(np.diff(self.starts).max(initial=2))

    def between(self, first: int, last: int) -> FieldCodes:
        """The codes of consecutive rows; nothing is copied."""
        if self.starts is None:
            return FieldCodes(self.codes[first:last], judged=None if self.judged is None else self.judged[first:last])
        return FieldCodes(self.codes, self.starts[first : last + 1])

    def read(self) -> FieldCodes:
        """The same codes as NumPy arrays."""
        return FieldCodes(*(None if values is None else read(values) for values in (self.codes, self.starts, self.judged)))

    def stored(self, scratch: Scratch | None) -> FieldCodes:
        """The same codes on disk, if a scratch file is given."""
        if scratch is None:
            return self
        return FieldCodes(*(None if values is None else scratch.keep(values) for values in (self.codes, self.starts, self.judged)))

    def take(self, rows: NDArray[np.int64]) -> FieldCodes:
        """The codes of these rows, in this order."""
        if self.starts is None:
            return FieldCodes(self.codes.take(rows, mode="clip"))  # all rows exist, and this mode neither checks nor copies
        starts = np.zeros(len(rows) + 1, np.int64)
        parts = [(first, rows[first : first + TOGETHER]) for first in range(0, len(rows), TOGETHER)]
        for first, part in parts:
            starts[first + 1 : first + 1 + len(part)] = self.starts[part + 1] - self.starts[part]
        np.cumsum(starts, out=starts)
        codes = np.empty(starts[-1], self.codes.dtype)
        for first, part in parts:
            part_starts = starts[first : first + len(part) + 1]
            # The position of a code in the old array is the old start of its row plus its place within the row.
            codes[part_starts[0] : part_starts[-1]] = self.codes[
                np.repeat(self.starts[part] - part_starts[:-1], np.diff(part_starts)) + np.arange(part_starts[0], part_starts[-1])
            ]
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
