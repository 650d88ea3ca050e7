"""Moments -> calendar fields: year, quarter, month, day, weekday, hour and minute, as far as they vary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autocross.checks import Facts, require
from autocross.encoding.column import Arrays, ColumnEncoder, StoredArrays
from autocross.encoding.plan import EncodingPlan, tallied
from autocross.encoding.values import Part
from autocross.features import FIRST, MISSING, RARE, TOGETHER, Field, FieldCodes, narrowest
from autocross.table.columns import NO_TIME, TimeColumn
from autocross.table.schema import ColumnSchema
from autocross.table.values import TIME_WAY_OUT, moment_of, refused, shown, way_out_of

DAY = 86_400_000_000
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
        # If there is only one moment, a field can only tell whether it is missing.
        return cls(schema, seen or {"year": tuple(sorted(rows["year"]))})

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
        if moment is None:
            return (MISSING,) * len(self.seen)
        parts = parts_of(moment)
        return tuple(code.get(parts[part], RARE) for part, code in self.code.items())

    def value_of(self, place: int, number: int) -> Part:
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
        require(isinstance(seen, dict) and len(seen) > 0, f"{owner} has no calendar parts")
        for part, values in seen.items():
            require(part in PARTS, f"{owner} has an unknown calendar part")
            proper = isinstance(values, list) and all(type(value) is int and value in PARTS[part] for value in values)
            require(proper, f"{owner} has a {part} that no calendar has")
            require(all(a < b for a, b in pairwise(values)), f"{owner} has calendar values that do not rise")
        return [(f"{column.name}.{part}", FIRST + len(values)) for part, values in seen.items()]

    @classmethod
    def unpack(cls, number: int, entry: Facts, column: ColumnSchema, stored: StoredArrays) -> Calendar:
        return cls(column, {part: tuple(values) for part, values in entry["seen"].items()})
