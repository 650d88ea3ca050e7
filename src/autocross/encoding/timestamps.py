"""Moments -> calendar fields: year, quarter, month, day, weekday, hour and minute, as far as they vary. The moment itself is
a number too, with bins at every granularity, which tell its course: what is older, and what is newer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autocross.checks import Facts, require
from autocross.encoding.column import Arrays, ColumnEncoder, Stem, StoredArrays
from autocross.encoding.discretize import Bins
from autocross.encoding.plan import EncodingPlan, tallied
from autocross.encoding.values import EPOCH, Part, Span
from autocross.features import FIRST, MISSING, RARE, TOGETHER, Field, FieldCodes, narrowest
from autocross.table.columns import NO_TIME, NumberColumn, TimeColumn
from autocross.table.schema import ColumnSchema
from autocross.table.values import TIME_WAY_OUT, moment_of, refused, shown, way_out_of

Floats = NDArray[np.float64]

DAY = 86_400_000_000
ROUND = (DAY, 3_600_000_000, 60_000_000, 1_000_000)  # a bin begins at a full day, hour, minute or second, if one is there
MICROSECOND = timedelta(microseconds=1)
EARLIEST, LATEST = ((end - EPOCH) // MICROSECOND for end in (datetime.min, datetime.max))
# The values that each part of the calendar may have. Years are bounded because moments are kept in microseconds.
PARTS = {
    "year": range(-300_000, 300_000),
    "quarter": range(1, 5),
    "month": range(1, 13),
    "day": range(1, 32),
    "weekday": range(7),
    "hour": range(24),
    "minute": range(60),
}


def parts_of(moment: datetime) -> dict[str, int]:
    """The calendar of one moment."""
    return {
        "year": moment.year,
        "quarter": (moment.month + 2) // 3,
        "month": moment.month,
        "day": moment.day,
        "weekday": moment.weekday(),
        "hour": moment.hour,
        "minute": moment.minute,
    }


def parts_of_all(micros: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """The calendar of many moments. Missing moments get an arbitrary value."""
    moments = np.where(micros == NO_TIME, 0, micros)
    days = np.floor_divide(moments, DAY)
    months = days.astype("datetime64[D]").astype("datetime64[M]")
    month = months.astype(np.int64) % 12 + 1
    minutes = (moments - days * DAY) // 60_000_000
    return {
        "year": months.astype("datetime64[Y]").astype(np.int64) + 1970,
        "quarter": (month + 2) // 3,
        "month": month,
        "day": days - months.astype("datetime64[D]").astype(np.int64) + 1,
        "weekday": (days + 3) % 7,  # 1970 began on a Thursday
        "hour": minutes // 60,
        "minute": minutes % 60,
    }


@dataclass(frozen=True)
class Calendar(ColumnEncoder):
    """The calendar fields of one time column. Each part has the values that were seen often enough, in order."""

    coder: ClassVar[str] = "calendar"

    seen: dict[str, tuple[int, ...]]

    @classmethod
    def fit(cls, schema: ColumnSchema, column: TimeColumn, plan: EncodingPlan, n: NDArray[np.int64] | None = None) -> Calendar:
        """Keep the parts that have more than one value. ``n`` has the number of rows that each moment stands for."""
        with_time = np.flatnonzero(column.micros != NO_TIME)
        rows: dict[str, Counter[int]] = {}
        for first in range(0, max(1, len(with_time)), TOGETHER):  # the parts of a moment take far more memory than the moment
            some_rows = with_time[first : first + TOGETHER]
            for part, values in parts_of_all(column.micros[some_rows]).items():
                distinct, counts = tallied(values, None if n is None else n[some_rows])
                rows.setdefault(part, Counter()).update(dict(zip(distinct.tolist(), counts.tolist(), strict=True)))
        seen = {
            part: tuple(sorted(value for value in counted if counted[value] >= plan.min_count))
            for part, counted in rows.items()
            if len(counted) > 1
        }
        if not seen:  # all moments lie within a minute, and a field of the calendar can only tell whether one is missing
            seen = {"year": tuple(sorted(rows["year"]))}
        numbers = as_numbers(column)
        bins = Bins.fit(schema, numbers, replace(plan, coarse=False), n)
        if not any(map(len, bins.edges)):
            return Calendar(schema, seen)
        edges = tuple(round_moments(edges, numbers.values) for edges in bins.edges)
        return Course(schema, seen, replace(bins, edges=edges, places=()))  # no line, which would end where the future begins

    @cached_property
    def code(self) -> dict[str, dict[int, int]]:
        return {part: {value: FIRST + position for position, value in enumerate(values)} for part, values in self.seen.items()}

    @property
    def fields(self) -> tuple[Field, ...]:
        name = self.column.name
        return tuple(
            Field(f"{name}.{part}", name, FIRST + len(values), shares_rare=True, part=part) for part, values in self.seen.items()
        )

    def encode(self, column: TimeColumn) -> list[FieldCodes]:
        """The codes of all rows, field by field."""
        missing = column.micros == NO_TIME
        parts = parts_of_all(column.micros)
        coded = []
        for part, values in self.seen.items():
            seen = np.array(values, dtype=np.int64)
            position = np.searchsorted(seen, parts[part])
            is_seen = seen[np.minimum(position, len(seen) - 1)] == parts[part] if len(seen) else np.zeros(len(position), bool)
            codes = np.where(missing, MISSING, np.where(is_seen, FIRST + position, RARE))
            coded.append(FieldCodes(codes.astype(narrowest(FIRST + len(seen)))))
        return coded

    def encode_one(self, value: Any) -> tuple[Any, ...]:
        """The codes of one moment."""
        try:
            moment = moment_of(value)
        except ValueError as error:
            raise refused(self.column.name, "time", "the row", shown(value), way_out_of(error, TIME_WAY_OUT)) from None
        return self.codes_of(moment)

    def codes_of(self, moment: datetime | None) -> tuple[int, ...]:
        """The codes of one moment that was read."""
        if moment is None:
            return (MISSING,) * len(self.seen)
        parts = parts_of(moment)
        return tuple(code.get(parts[part], RARE) for part, code in self.code.items())

    def value_of(self, place: int, number: int) -> Part | Span:
        part = list(self.seen)[place]
        return Part(part, self.seen[part][number])

    def keep(self, places: Sequence[int]) -> Calendar:
        """The encoder with only these of its fields."""
        parts = list(self.seen)
        return Calendar(self.column, {parts[place]: self.seen[parts[place]] for place in places})

    def pack(self, number: int, arrays: Arrays) -> Facts:
        """Pack the values that were seen, which are few."""
        return {"seen": {part: list(values) for part, values in self.seen.items()}}

    @classmethod
    def expect(cls, number: int, entry: Facts, column: ColumnSchema, stored: StoredArrays) -> list[tuple[str, int]]:
        owner, seen = f"column {column.name!r}", entry["seen"]
        require(isinstance(seen, dict) and (len(seen) > 0 or cls is not Calendar), f"{owner} has no calendar parts")
        for part, values in seen.items():
            require(part in PARTS, f"{owner} has an unknown calendar part")
            proper = isinstance(values, list) and all(type(value) is int and value in PARTS[part] for value in values)
            require(proper, f"{owner} has a {part} that no calendar has")
            require(all(a < b for a, b in pairwise(values)), f"{owner} has calendar values that do not rise")
        return [(f"{column.name}.{part}", FIRST + len(values)) for part, values in seen.items()]

    @classmethod
    def unpack(cls, number: int, entry: Facts, column: ColumnSchema, stored: StoredArrays) -> Calendar:
        return cls(column, {part: tuple(values) for part, values in entry["seen"].items()})


@dataclass(frozen=True)
class Course(Calendar):
    """A calendar, and behind it fields of bins of the moment itself, in microseconds since 1970."""

    coder: ClassVar[str] = "course"
    format: ClassVar[int] = 4

    bins: Bins

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*super().fields, *self.bins.fields)

    @property
    def stems(self) -> tuple[Stem, ...]:
        """A stem for each calendar field, and the finest intervals of moments."""
        (intervals,) = self.bins.stems
        return (*super().stems[: len(self.seen)], intervals.moved(len(self.seen)))

    def stem_codes(self, column: TimeColumn) -> list[FieldCodes]:
        return [*super().encode(column), *self.bins.stem_codes(as_numbers(column))]

    def encode(self, column: TimeColumn) -> list[FieldCodes]:
        """The codes of all rows, field by field."""
        return [*super().encode(column), *self.bins.encode(as_numbers(column))]

    def codes_of(self, moment: datetime | None) -> tuple[int, ...]:
        """The codes of one moment that was read."""
        return (*super().codes_of(moment), *self.bins.encode_one(None if moment is None else as_number(moment)))

    def value_of(self, place: int, number: int) -> Part | Span:
        if place < len(self.seen):
            return super().value_of(place, number)
        interval = self.bins.value_of(place - len(self.seen), number)
        return Span(interval.low, interval.high, self.clock)

    @cached_property
    def clock(self) -> bool:
        """Whether all bins begin on the first day of 1970, as those of times without a date do."""
        return all(bool(((edges >= 0) & (edges < DAY)).all()) for edges in self.bins.edges)

    def coarsest(self) -> Sequence[int]:
        """The calendar fields."""
        return range(len(self.seen))

    def keep(self, places: Sequence[int]) -> Calendar:
        """The encoder with only these of its fields."""
        n_parts = len(self.seen)
        calendar = super().keep([place for place in places if place < n_parts])
        of_bins = [place - n_parts for place in places if place >= n_parts]
        return Course(self.column, calendar.seen, self.bins.keep(of_bins)) if of_bins else calendar

    def pack(self, number: int, arrays: Arrays) -> Facts:
        """The calendar, and the names and edges of the bins."""
        return {**super().pack(number, arrays), **self.bins.pack(number, arrays)}

    @classmethod
    def expect(cls, number: int, entry: Facts, column: ColumnSchema, stored: StoredArrays) -> list[tuple[str, int]]:
        return [*super().expect(number, entry, column, stored), *Bins.expect(number, entry, column, stored)]

    @classmethod
    def unpack(cls, number: int, entry: Facts, column: ColumnSchema, stored: StoredArrays) -> Course:
        bins = Bins.unpack(number, entry, column, stored)
        for edges in bins.edges:
            proper = bool((edges == np.floor(edges)).all()) and bool(((edges >= EARLIEST) & (edges <= LATEST)).all())
            require(proper, f"column {column.name!r} has edges that are no moments")
        return cls(column, Calendar.unpack(number, entry, column, stored).seen, bins)


def as_numbers(column: TimeColumn) -> NumberColumn:
    """Moments as numbers of microseconds. After the year 2255 the last digits are rounded, here and in `as_number` alike."""
    return NumberColumn(np.where(column.micros == NO_TIME, np.nan, column.micros))


def as_number(moment: datetime) -> float:
    """One moment as a number, as in `as_numbers`."""
    return float((moment.replace(tzinfo=None) - EPOCH) // MICROSECOND)


def round_moments(edges: Floats, values: Floats) -> Floats:
    """Edges that divide the values as the given ones do, each at the roundest moment that does so."""
    values = np.unique(values[np.isfinite(values)])
    place = np.searchsorted(values, edges)  # of the first value that is not below the edge
    below, above = (values[at].astype(np.int64) for at in (place - 1, place))
    moments = above
    for unit in reversed(ROUND):
        full = above // unit * unit
        moments = np.where(full > below, full, moments)
    return moments.astype(np.float64)
