"""Codes of fields -> codes of a cross. This is the only place that computes them: search, refit and scoring all call it.

A cross of fields with n1, n2, ... codes has the key ((c1 * n2 + c2) * n3 + c3) ..., taken modulo a prime below 2^40: exact
while the product of the sizes is smaller, a hash beyond. Frequent keys get codes of their own, as texts do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from autocross.features import FIRST, RARE, TOGETHER, Chain, Field, FieldCodes, joined, narrowest

Ints = NDArray[np.int64]

MODULUS = (1 << 40) - 87  # a prime; its product with any number of codes below 2^23 fits into 63 bits
DENSE = 1 << 22  # a cross with no more possible keys than this may have a table of all of them
MOST_ENTRIES = 64  # combinations of a row that count in a cross of multi-value fields

Kind = Literal["cross", "statistic", "change"]
MARKS = {"cross": (), "statistic": (-3,), "change": (-4,)}  # stand before the fields, where crosses are told apart by these


def cross_key(codes: Sequence[Any], sizes: Sequence[int]) -> Any:
    """The key of the codes of one row, given as whole numbers, or of many rows, given as arrays of 64-bit integers.

    >>> cross_key([1, 2, 3], [10, 20, 30]), cross_key([np.array([1, 0]), np.array([2, 4])], [10, 20])
    (663, array([22,  4]))
    """
    key, span = codes[0], sizes[0]
    for code, size in zip(codes[1:], sizes[1:], strict=True):
        key, span = key * size + code, span * size
        if span > MODULUS:
            key = key % MODULUS
    return key


def exact_key(fields: Sequence[int], sizes: Sequence[int]) -> Callable[[Sequence[int]], int] | None:
    """A faster `cross_key` for single rows: it takes these fields from all codes of a row. None where keys are hashed.

    >>> exact_key([0, 2, 3], [10, 20, 30])([1, 7, 2, 3]), exact_key([2, 3], [20, 30])([1, 7, 2, 3])
    (663, 63)
    """
    if math.prod(sizes) > MODULUS:
        return None
    if len(fields) == 2:
        (first, second), size = fields, sizes[1]
        return lambda codes: codes[first] * size + codes[second]
    digits = tuple(zip(fields, sizes, strict=True))

    def key_of(codes: Sequence[int]) -> int:
        key = 0
        for number, size in digits:
            key = key * size + codes[number]
        return key

    return key_of


def in_parts(coded: Sequence[FieldCodes]) -> Iterator[list[FieldCodes]]:
    """The codes of the fields, some rows at a time, because computing the codes of a cross takes far more room than the codes.
    There is at least one part."""
    for first in range(0, max(1, coded[0].n_rows), TOGETHER):
        yield [field.between(first, first + TOGETHER) for field in coded]


def pair_up(coded: Sequence[FieldCodes]) -> tuple[list[Ints], Ints | None]:
    """The codes of the fields side by side, with one entry for each combination in a row. Where rows differ in the number of their
    combinations, the second result says where each row begins."""
    if all(field.starts is None for field in coded):
        return [field.codes.astype(np.int64) for field in coded], None
    n_rows = coded[0].n_rows
    columns = [
        (field.codes if field.starts is None else field.codes[field.starts[0] : field.starts[-1]]).astype(np.int64)
        for field in coded
    ]
    bounds = [np.arange(n_rows + 1) if field.starts is None else field.starts - field.starts[0] for field in coded]
    sizes = [np.diff(bound) for bound in bounds]
    total = np.minimum(np.prod(sizes, axis=0), MOST_ENTRIES)
    starts = np.concatenate([[0], np.cumsum(total)]).astype(np.int64)
    rows = np.repeat(np.arange(n_rows), total)
    place = np.arange(starts[-1]) - starts[rows]  # its number within its row: the digits say which code of each field
    paired = []
    for column, bound, size in zip(reversed(columns), reversed(bounds), reversed(sizes), strict=True):
        paired.append(column[bound[rows] + place % size[rows]])
        place = place // size[rows]
    return paired[::-1], starts


def axis_of(parts: Sequence[Field]) -> int | None:
    """The field along which a cross has neighbours: the one whose weights must be monotone, or else the finest one of those whose
    codes have neighbours."""
    for number, part in enumerate(parts):
        if part.direction:
            return number
    axes = [number for number, part in enumerate(parts) if part.chain is not None]
    if not axes or any(part.width > 1 for part in parts):
        return None
    return max(axes, key=lambda number: parts[number].n_codes)


def count_keys(keys: Ints, sizes: Sequence[int]) -> tuple[Ints, Ints]:
    """The distinct keys in order, and how many entries have each."""
    span = math.prod(sizes)
    if span > min(DENSE, len(keys)):
        distinct, counts = np.unique(keys, return_counts=True)
        return distinct, counts.astype(np.int64)
    counts = np.bincount(keys, minlength=span)
    distinct = np.flatnonzero(counts)
    return distinct, counts[distinct].astype(np.int64)


def values_of(keys: Ints, sizes: Sequence[int]) -> NDArray[np.uint32]:
    """The fields' codes behind keys that are exact: (n_keys, order).

    >>> values_of(np.array([663, 31]), [10, 20, 30]).tolist()
    [[1, 2, 3], [0, 1, 1]]
    """
    values = np.empty((len(keys), len(sizes)), np.uint32)
    for position in reversed(range(len(sizes))):
        keys, values[:, position] = np.divmod(keys, sizes[position])
    return values


@dataclass(frozen=True)
class CrossCoder:
    """The codes of one cross. ``values`` (n_values, order) has, for each combination with a code of its own, the codes of the
    fields.

    ``kind`` says where the weights of these codes come from. In a cross each code was learned on its own, and in a statistic from
    what is known about its rows (`autocross.statistic`). In a change they were set by hand.
    """

    fields: tuple[int, ...]
    sizes: tuple[int, ...]
    values: NDArray[np.uint32]
    n_buckets: int = 0
    width: int = 1
    kind: Kind = "cross"

    @property
    def term(self) -> tuple[int, ...]:
        """What tells this term from all others: its fields, and for a statistic or a change a mark before them."""
        return (*MARKS[self.kind], *self.fields)

    @cached_property
    def keys(self) -> Ints:
        """The keys of the values, in ascending order."""
        keys: Ints = cross_key([self.values[:, position].astype(np.int64) for position in range(len(self.fields))], self.sizes)
        return keys

    @cached_property
    def code(self) -> dict[int, int]:
        return {key: FIRST + position for position, key in enumerate(self.keys.tolist())}

    @property
    def n_codes(self) -> int:
        return FIRST + len(self.values) + self.n_buckets

    def field(self, parts: Sequence[Field]) -> Field:
        """The cross as a field, named after its parts."""
        name, columns = " x ".join(part.name for part in parts), " x ".join(part.column for part in parts)
        if self.kind != "cross":
            return Field(f"{name} [{self.kind}]", columns, self.n_codes, shares_rare=False, width=self.width)
        return Field(name, columns, self.n_codes, shares_rare=True, width=self.width, chain=self.chain(parts))

    def chain(self, parts: Sequence[Field]) -> Chain | None:
        """The chain of the cross: values that differ only along the axis are neighbours."""
        axis = axis_of(parts)
        if axis is None or self.n_buckets or not len(self.values):
            return None
        values = np.roll(self.values.astype(np.int64), -1 - axis, axis=1)  # the axis comes last
        order = np.lexsort(values.T[::-1])
        values = values[order]
        linked = (values[1:, :-1] == values[:-1, :-1]).all(axis=1) & (values[:-1, -1] >= FIRST)
        gap = np.where(linked, np.diff(values[:, -1]), 0).astype(np.float64)
        codes = np.concatenate([np.arange(FIRST), FIRST + order])
        return Chain(codes, np.concatenate([np.zeros(FIRST + 1), gap]), np.zeros(len(codes)), parts[axis].direction)

    def encode(self, coded: Sequence[FieldCodes]) -> FieldCodes:
        """The codes of the cross in rows whose fields have these codes."""
        table, parts = self.table(coded[0].n_rows), []
        for part in in_parts(coded):
            columns, starts = pair_up(part)
            keys = cross_key(columns, self.sizes)
            codes = self.look_up(keys) if table is None else table[keys]
            parts.append(FieldCodes(codes.astype(narrowest(self.n_codes), copy=False), starts))
        return joined(parts)

    def table(self, n_rows: int) -> NDArray[Any] | None:
        """A table of the codes of all possible keys, if there are no more keys than rows."""
        span = math.prod(self.sizes)
        if self.n_buckets or span > min(DENSE, n_rows):
            return None
        table = np.full(span, RARE, narrowest(self.n_codes))
        table[self.keys] = np.arange(FIRST, FIRST + len(self.keys))
        return table

    def look_up(self, keys: Ints) -> Ints:
        """The codes of keys. An unknown key gets the code of its bucket or, if there are no buckets, the rare code."""
        from autocross.kernels import slots  # not above: scoring single rows does without it

        code_of_unknown = FIRST + len(self.keys) + keys % self.n_buckets if self.n_buckets else np.int64(RARE)
        if not len(self.keys):
            return np.broadcast_to(code_of_unknown, keys.shape)
        place = np.empty(len(keys), np.int64)
        slots.find(keys, self.keys, *self.starts, place)
        return np.where(place >= 0, FIRST + place, code_of_unknown)

    @cached_property
    def starts(self) -> tuple[Ints, int]:
        """Where the keys with certain upper bits begin, and by how much a key is shifted to have only these."""
        shift = max(0, int(self.keys[-1]).bit_length() - len(self.keys).bit_length())
        n_equal = np.bincount(self.keys >> shift)
        return np.concatenate([[0], np.cumsum(n_equal)]), shift

    def encode_one(self, coded: Sequence[Any]) -> tuple[int, ...]:
        """The codes of one row: a single code, or one for each combination if a field has several codes."""
        rows = product(*(code if isinstance(code, tuple) else (code,) for code in coded))  # in the order of `pair_up`
        return tuple(self.code_of(cross_key(codes, self.sizes)) for codes in islice(rows, MOST_ENTRIES))

    def code_of(self, key: int) -> int:
        """`look_up` for a single key."""
        return self.code.get(key, FIRST + len(self.values) + key % self.n_buckets if self.n_buckets else RARE)


def most_frequent(
    keys: Ints, values: NDArray[np.uint32], counts: Ints, min_count: int, cap: int
) -> tuple[NDArray[np.uint32], Ints]:
    """The values that get a code of their own, in the order of their keys, and the keys beyond the cap, which must be hashed."""
    frequent = np.flatnonzero(counts >= min_count)
    ranked = frequent[np.lexsort([keys[frequent], -counts[frequent]])] if len(frequent) > cap else frequent
    return values[np.sort(ranked[:cap])], keys[ranked[cap:]]
