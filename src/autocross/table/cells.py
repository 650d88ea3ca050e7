"""A cell of a typed column, including cells that Python's own types cannot hold."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import polars as pl

from autocross.table.values import MIDNIGHT_1970, shown

FIRST_DAY, LAST_DAY = ((end - MIDNIGHT_1970.date()).days for end in (date.min, date.max))
A_DAY = {"ms": 86_400_000, "us": 86_400_000_000}  # no need of nanoseconds: in 64 bits they stay within Python's years

MOST_ENTRIES = 5  # of a list that a message shows


def limits(dtype: Any) -> tuple[int, int] | None:
    """The first and the last date or time, or the shortest and the longest duration, that Python can hold, in the type's unit.

    None if Python can hold all values of the type.
    """
    if dtype == pl.Date:
        return FIRST_DAY, LAST_DAY
    if isinstance(dtype, pl.Datetime) and dtype.time_unit in A_DAY:
        margin = 0 if dtype.time_zone is None else 1  # the clock on the wall may show another day
        return (FIRST_DAY - margin) * A_DAY[dtype.time_unit], (LAST_DAY + 1 + margin) * A_DAY[dtype.time_unit] - 1
    if isinstance(dtype, pl.Duration) and dtype.time_unit == "ms":
        return timedelta.min.days * A_DAY["ms"], (timedelta.max.days + 1) * A_DAY["ms"] - 1
    return None


def beyond(series: pl.Series) -> pl.Series | None:
    """Which dates, times and durations Python cannot hold. None if it can hold all of them."""
    if (ends := limits(series.dtype)) is None:
        return None
    number = series.to_physical()
    if number.null_count() == len(number) or (ends[0] <= number.min() and number.max() <= ends[1]):  # type: ignore[operator]
        return None
    return ((number < ends[0]) | (number > ends[1])).fill_null(False)


def wall_clock(series: pl.Series) -> pl.Series:
    """Times with a zone, as the clock on the wall showed them. A column of another type is returned as it is."""
    return series.dt.replace_time_zone(None) if isinstance(series.dtype, pl.Datetime) and series.dtype.time_zone else series


def cell(series: pl.Series, position: int) -> str:
    """One of the values, for a message."""
    alone = series[position : position + 1]
    if isinstance(alone.dtype, (pl.List, pl.Array)):
        entries = alone.cast(pl.List(alone.dtype.inner)).explode(empty_as_null=False)
        first = [cell(entries, number) for number in range(min(len(entries), MOST_ENTRIES))]
        return f"[{', '.join(first)}{', ...' if len(entries) > MOST_ENTRIES else ''}]"
    if beyond(alone) is None and beyond(alone := wall_clock(alone)) is None:
        return shown(alone[0])
    unit = "days" if alone.dtype == pl.Date else alone.dtype.time_unit  # type: ignore[attr-defined]
    since = "" if isinstance(alone.dtype, pl.Duration) else " from 1970-01-01"
    return f"{alone.to_physical()[0]:,} {unit}{since}"
