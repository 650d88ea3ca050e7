"""Numbers -> bins, at every granularity, of equal width and of equal counts.

A discretisation of training values v[0] < v[1] < ... is the set of places j at which a bin begins; its edges lie midway between
v[j-1] and v[j]. Two ways of binning that group the values in the same way give a single field.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autocross.checks import Facts, is_text, require
from autocross.encoding.column import Arrays, ColumnEncoder, Stem, StoredArrays
from autocross.encoding.plan import EncodingPlan, tallied
from autocross.encoding.values import Interval
from autocross.features import FIRST, MISSING, Field, FieldCodes, in_order, narrowest
from autocross.table.columns import NumberColumn
from autocross.table.schema import ColumnSchema
from autocross.table.values import number_of, refused, shown, way_out_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

COARSE = 4  # bins of the coarse field
FEW = 10_000  # for fewer numbers no table is built, because it takes a quarter of a megabyte
SEARCH_BITS = 16  # upper bits of a number, from which its place is guessed
HALVES = 2.0**52  # all floats beyond this are whole numbers
HUGE = 2.0**900  # smaller numbers can be multiplied by any granularity without coming near the largest float


@dataclass(frozen=True)
class Bins(ColumnEncoder):
    """The fields of one numerical column, each with its name and its edges. Bin i holds edges[i-1] <= x < edges[i].

    ``coarse`` has the edges of an additional field of few bins, which `coarser` may bring in later. ``places`` says for each field
    where its bins lie on a line; a model that was loaded has none, until `placed` gives them.
    """

    coder: ClassVar[str] = "bins"

    names: tuple[str, ...]
    edges: tuple[Floats, ...]
    coarse: Floats = field(default_factory=lambda: np.empty(0))
    places: tuple[Floats, ...] = ()

    @classmethod
    def fit(cls, schema: ColumnSchema, column: NumberColumn, plan: EncodingPlan, n: Ints | None = None) -> Bins:
        """Make a field for every granularity, unless another one groups the values in the same way. ``n`` has the number of rows
        that each value stands for."""
        finite = np.isfinite(column.values)
        values, counts = tallied(column.values[finite], None if n is None else n[finite])
        names: dict[tuple[int, ...], str] = {}
        for granularity in plan.granularities:
            if len(values) <= granularity:
                names.setdefault(thick(np.arange(1, len(values)), counts, plan.min_count), "values")
                continue
            if plan.widths:
                names.setdefault(thick(width_places(values, granularity), counts, plan.min_count), f"{granularity} wide")
            if plan.quantiles:
                places = thick(quantile_places(counts, granularity), counts, plan.min_count)
                names.setdefault(places, f"{granularity} even")
        if len(names) > 1:
            names.pop((), None)  # a single bin would tell nothing
        few = thick(quantile_places(counts, COARSE), counts, plan.min_count) if plan.coarse and len(values) else ()
        edges = tuple(midpoints(values, np.array(places, dtype=np.int64)) for places in (*names, few))
        n_rows = [np.add.reduceat(counts, [0, *begins]) if len(counts) else np.ones(1) for begins in names]
        field_names = tuple(f"{schema.name} [{name}]" for name in names.values())
        return cls(schema, field_names, edges[:-1], edges[-1], tuple(map(normal_places, n_rows)))

    @property
    def fields(self) -> tuple[Field, ...]:
        way = self.column.direction
        chains = [in_order(FIRST + len(edges) + 1, places, way) for edges, places in zip_longest(self.edges, self.places)]
        return tuple(
            Field(name, self.column.name, len(chain.order), shares_rare=False, chain=chain)
            for name, chain in zip(self.names, chains, strict=True)
        )

    @cached_property
    def merged(self) -> Floats:
        """The edges of all fields together, so that one search finds the codes of all fields."""
        return np.unique(np.concatenate([*self.edges, self.coarse]))

    @cached_property
    def codes_by_interval(self) -> list[NDArray[Any]]:
        """For each field, its code in every interval between merged edges. The last entry is for missing values."""
        return [self.by_interval(edges) for edges in self.edges]

    def by_interval(self, edges: Floats) -> NDArray[Any]:
        """The code of a field with these edges in every interval between merged edges, followed by the code of missing values."""
        codes = np.concatenate([[0], np.searchsorted(edges, self.merged, side="right")]) + FIRST
        return np.append(codes, MISSING).astype(narrowest(FIRST + len(edges) + 1))

    @cached_property
    def one_row(self) -> tuple[list[float], list[tuple[int, ...]]]:
        """Merged edges and codes by interval as lists, for scoring one row."""
        return self.merged.tolist(), list(zip(*(table.tolist() for table in self.codes_by_interval), strict=True))

    @cached_property
    def search(self) -> Search:
        return Search(self.merged)

    @property
    def stems(self) -> tuple[Stem, ...]:
        """The intervals between merged edges, from which the codes of all fields are read."""
        return (Stem(len(self.merged) + 2, None, dict(enumerate(self.codes_by_interval))),)

    def stem_codes(self, column: NumberColumn) -> list[FieldCodes]:
        return [FieldCodes(self.search.find(column.values))]

    def encode(self, column: NumberColumn) -> list[FieldCodes]:
        """The codes of all rows, field by field."""
        interval = self.search.find(column.values)
        return [FieldCodes(table[interval]) for table in self.codes_by_interval]

    def encode_one(self, value: Any) -> tuple[int, ...]:
        """The codes of one number."""
        edges, codes = self.one_row
        if type(value) is not float:
            value = self.number(value)
        return codes[-1] if value != value else codes[bisect_right(edges, value)]

    def number(self, value: Any) -> float:
        """One number as a float, as the caller gives it. NaN is missing."""
        try:
            return number_of(value)
        except ValueError as error:
            way_out = way_out_of(error, "Give a number, or None if it is missing.")
            raise refused(self.column.name, "numerical", "the row", shown(value), way_out) from None

    def contributions(self, weights: list[list[float]]) -> Callable[[Any], Sequence[float]]:
        """What one number adds to the log-odds, field by field."""
        by_code = super().contributions(weights)
        missing = by_code(None)
        edges, codes = self.one_row
        by_interval = [[weight[code] for weight, code in zip(weights, field_codes, strict=True)] for field_codes in codes]

        def by_edges(value: Any) -> Sequence[float]:
            kind = type(value)
            if kind is int:
                try:
                    value = float(value)  # rounded as in a table: an integer with many digits may reach an edge only by rounding
                except OverflowError:
                    return by_code(value)
            elif kind is not float or value != value:
                return missing if value is None else by_code(value)
            return by_interval[bisect_right(edges, value)]

        return by_edges

    def value_of(self, place: int, number: int) -> Interval:
        """The interval of a bin."""
        before, low, high, after = self.bounds[place][number : number + 4]
        return Interval(low, high, before, after, self.whole)

    @cached_property
    def bounds(self) -> list[list[float]]:
        """The edges of each field with infinities around them, so that every bin has two bounds on either side."""
        return [[-math.inf, -math.inf, *edges.tolist(), math.inf, math.inf] for edges in self.edges]

    @cached_property
    def whole(self) -> bool:
        """Whether all edges can lie between whole numbers. A bundle knows no more than that about the values."""
        return all(map(between_whole_numbers, self.edges))

    def coarser(self, than: Sequence[Field]) -> tuple[NDArray[Any], Bins] | None:
        """The coarse field, if it has several bins, but fewer than each of these fields."""
        if not 0 < len(self.coarse) < min(field.n_codes for field in than) - FIRST - 1:
            return None
        return self.by_interval(self.coarse), Bins(self.column, (f"{self.column.name} [{COARSE} even]",), (self.coarse,))

    def coarsest(self) -> Sequence[int]:
        """The field with the fewest bins."""
        return [min(range(len(self.edges)), key=lambda place: len(self.edges[place]))]

    def keep(self, places: Sequence[int]) -> Bins:
        """The encoder with only these of its fields."""
        names, edges = tuple(self.names[place] for place in places), tuple(self.edges[place] for place in places)
        return Bins(self.column, names, edges, places=tuple(self.places[place] for place in places if self.places))

    def placed(self, codes: Sequence[FieldCodes], weight: Floats) -> Bins:
        """The encoder with places for its bins, by the rows that each bin has."""
        n_codes = [field.n_codes for field in self.fields]
        n_rows = [np.bincount(coded.codes, weight, n) for coded, n in zip(codes, n_codes, strict=True)]
        return replace(self, places=tuple(normal_places(of_codes[FIRST:]) for of_codes in n_rows))

    def pack(self, number: int, arrays: Arrays) -> Facts:
        """The names of the fields, and an array of edges for each."""
        for place, edges in enumerate(self.edges):
            arrays[f"edges.{number}.{place}"] = edges
        return {"names": list(self.names)}

    def unsaved(self) -> Arrays:
        """The edges of the coarse field."""
        return {"coarse": self.coarse}

    @classmethod
    def expect(cls, number: int, entry: Facts, column: ColumnSchema, stored: StoredArrays) -> list[tuple[str, int]]:
        owner, names = f"column {column.name!r}", entry["names"]
        proper = isinstance(names, list) and all(is_text(name) and name.startswith(column.name) for name in names)
        require(proper and len(names) > 0, f"{owner} has no proper names of fields")
        complaint = f"{owner} has no proper edges"
        shapes = [stored.expect(f"edges.{number}.{place}", "F64", (None,), complaint) for place in range(len(names))]
        return [(name, FIRST + n_edges + 1) for name, (n_edges,) in zip(names, shapes, strict=True)]

    @classmethod
    def unpack(cls, number: int, entry: Facts, column: ColumnSchema, stored: StoredArrays) -> Bins:
        owner = f"column {column.name!r}"
        all_edges = tuple(stored.array(f"edges.{number}.{place}", owner) for place in range(len(entry["names"])))
        for edges in all_edges:
            rising = bool(np.isfinite(edges).all()) and bool((np.diff(edges) > 0).all())
            require(rising, f"{owner} has edges that do not rise")
        return cls(column, tuple(entry["names"]), all_edges)


class Search:
    """Finds the places of numbers among edges. NaN has the place behind the last. The table for `lookup.locate` is built once."""

    def __init__(self, edges: Floats) -> None:
        self.kind = narrowest(len(edges) + 2)
        self.plain = edges
        self.ready = False

    def prepare(self) -> None:
        """Build the table from which places are guessed."""
        bits = (self.plain + 0.0).view(np.int64)  # + 0.0 turns -0.0 into 0.0
        bits ^= (bits >> 63) & np.iinfo(np.int64).max
        self.shift = max(0, (int(bits[-1]) - int(bits[0])).bit_length() - SEARCH_BITS)
        bucket = (bits.view(np.uint64) - bits.view(np.uint64)[0]) >> np.uint64(self.shift)
        n_edges = np.bincount(bucket.astype(np.int64))
        self.start = (np.cumsum(n_edges) - n_edges).astype(np.uint32)
        self.levels = int(n_edges.max()).bit_length()
        self.edges = np.append(bits, np.full(1 << self.levels, np.iinfo(np.int64).max))
        self.ready = True

    def find(self, values: Floats) -> NDArray[Any]:
        """The place of each value."""
        if not len(self.plain) or (not self.ready and len(values) <= FEW):
            place = np.searchsorted(self.plain, values, side="right")
            return (place + np.isnan(values)).astype(self.kind)  # NaN is sorted last, and its place is one behind that
        if not self.ready:
            self.prepare()
        from autocross.kernels import lookup  # not above: scoring single rows does without it

        place, values = np.empty(len(values), self.kind), values + 0.0
        lookup.locate(values, values.view(np.int64), self.edges, self.start, self.shift, self.levels, place)
        return place


def width_places(values: Floats, granularity: int) -> Ints:
    """Where bins of equal width begin among the values.

    Values are divided first, because their range and its multiples may exceed the largest float. Dividing by a power of two changes
    no digit, unless a number becomes too small; so only huge values are divided by a large power.
    """
    divisor = 2.0 if max(-values[0], values[-1]) < HUGE else 2.0**64
    low, high = values[0] / divisor, values[-1] / divisor
    edges = (low + (high - low) * np.arange(1, granularity) / granularity) * divisor
    return np.unique(np.searchsorted(values, edges, side="left"))


def quantile_places(counts: Ints, granularity: int) -> Ints:
    """Where bins of equal counts begin among the values."""
    below = np.cumsum(counts)
    targets = below[-1] * np.arange(1, granularity) / granularity
    return np.unique(np.searchsorted(below, targets, side="left") + 1)


def normal_places(n_rows: NDArray[Any]) -> Floats:
    """The places of bins on a line, by the number or the weight of the rows in each: the mean normal score of these rows.

    The rows are ranked, and the ranks are stretched to a normal distribution, so that neither outliers nor the unit of a number
    matter. The mean over all bins is zero, so that a line does not change the mean weight of a field.

    >>> normal_places(np.array([10, 10, 80])).round(2).tolist()
    [-0.94, -0.23, 1.17]
    """
    from statistics import NormalDist  # not above: scoring single rows does without it

    share = np.concatenate([[0.0], np.cumsum(n_rows) / (n_rows.sum() or 1.0)])
    normal = NormalDist()
    density = np.array([normal.pdf(normal.inv_cdf(below)) if 0.0 < below < 1.0 else 0.0 for below in share.tolist()])
    scores = -np.diff(density) / np.maximum(np.diff(share), 1e-9)  # a bin without rows has no score of its own
    places: Floats = scores - scores.mean()
    return places


def thick(places: Ints, counts: Ints, min_count: int) -> tuple[int, ...]:
    """Those places at which a bin may begin if every bin must hold ``min_count`` rows. Smaller bins join their neighbour."""
    below = np.concatenate([[0], np.cumsum(counts)])
    kept: list[int] = []
    last = 0  # rows below the last place that was kept
    for place, n_below in zip(places.tolist(), below[places].tolist(), strict=True):
        if 0 < place < len(counts) and n_below - last >= min_count:
            kept.append(place)
            last = n_below
    while kept and below[-1] - below[kept[-1]] < min_count:
        kept.pop()
    return tuple(kept)


def midpoints(values: Floats, places: Ints) -> Floats:
    """Edges midway between neighbours. If no float lies between two values, the edge is the upper one."""
    if not len(places):
        return np.empty(0)
    below, above = values[places - 1], values[places]
    middle = below / 2 + above / 2
    return np.where(middle > below, middle, above)


def between_whole_numbers(edges: Floats) -> bool:
    """Whether these can be edges midway between whole numbers, with a whole number in every bin.

    Values such as 0.1 and 0.2 have other edges. The answer is False for huge numbers, where floats have no halves.

    >>> between_whole_numbers(np.array([8.5, 9.5, 12.0])), between_whole_numbers(np.array([8.5, 9.0])), midpoints(
    ...     np.array([8.0, 9.0, 10.0, 14.0]), np.arange(1, 4)
    ... )
    (True, False, array([ 8.5,  9.5, 12. ]))
    """
    least_above, most_below = np.floor(edges) + 1, np.ceil(edges) - 1
    halves = (edges % 0.5 == 0).all() and (np.abs(edges) < HALVES).all()
    return bool(halves and (least_above[:-1] <= most_below[1:]).all())
