"""A frame and a schema -> typed columns. The kinds of columns were decided before; here the columns are only read by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from autocross.errors import ColumnError, TableError
from autocross.features import TOGETHER
from autocross.table.cells import beyond, cell, wall_clock
from autocross.table.columns import NO_TIME, Column, ListColumn, NumberColumn, Table, TextColumn, TimeColumn
from autocross.table.dialect import WITH_COMMA
from autocross.table.digest import Numbered, pieces
from autocross.table.inference import columns_in_words, is_plain, within
from autocross.table.places import Places, missing
from autocross.table.schema import ColumnSchema, Reading, Schema, Stored
from autocross.table.values import (
    DURATION_WAY_OUT,
    ISO_MOMENT,
    MISSING_TEXTS,
    SEVERAL_WAY_OUT,
    TIME_WAY_OUT,
    YEARS,
    ZONE,
    entries_of,
    moment_of,
    number_of,
    refused,
    shown,
    stored_text,
    way_out_of,
)

Rows = NDArray[np.int64]
ONE_VALUE = ("number", "text")  # readings with at most one value per row, of which only the code is needed


def typed(
    frame: pl.DataFrame, schema: Schema, numbered: Mapping[str, Numbered] | None = None, rows_here: Rows | None = None
) -> Table:
    """The columns that the schema uses, each read by its kind. Other columns are ignored, and the order does not matter.

    ``numbered`` has columns whose distinct values are numbered already. For numbers and categories these are used instead of the
    rows. ``rows_here`` has the numbers of the rows, if these are not 0, 1, ...
    """
    used = used_of(frame.columns, schema)
    if numbered is None:
        return Table(frame.height, {column.name: typed_column(frame[column.name], column, rows_here) for column in used})
    once = {column.name: numbered[column.name] for column in used if column.reading in ONE_VALUE and column.name in numbered}
    assert all(len(column.index) == frame.height for column in once.values())  # kernels trust these without a check
    rows = {column.name: once[column.name].values if column.name in once else frame[column.name] for column in used}
    columns = {column.name: typed_column(rows[column.name], column, differ=column.name in once) for column in used}
    return Table(frame.height, columns, {name: column.index for name, column in once.items()})


def used_of(names: Sequence[str], schema: Schema) -> list[ColumnSchema]:
    """The columns that the schema uses. All of them must be in the table, which has columns of these names."""
    used, present = [column for column in schema if column.kind != "ignore"], set(names)
    absent = [column.name for column in used if column.name not in present]
    if absent:
        raise TableError(
            f"Column {absent[0]!r} is missing from the table"
            f"{f' ({len(absent)} columns are)' if len(absent) > 1 else ''}. {columns_in_words(names)}"
        )
    return used


def typed_column(series: pl.Series, column: ColumnSchema, rows: Rows | None = None, *, differ: bool = False) -> Column:
    """One column, read by its kind. ``rows`` has the numbers of its rows, if these are not 0, 1, ...; ``differ`` says that no two
    values are equal."""
    stored: Stored = column.stored
    if series.dtype == pl.Object:
        series, stored = of_objects(series, column, rows), "text"
    if isinstance(series.dtype, (pl.Categorical, pl.Enum)):
        series = series.cast(pl.String)
    if column.reading == "number":
        return NumberColumn(numbers(series, rows, column.kind))
    if column.reading == "moment":
        return TimeColumn(moments(series, rows, column.kind))
    if column.reading == "list":
        return lists(series, column.separator, rows, column.kind)
    return texts(series, stored, rows, differ=differ, kind=column.kind)


def of_objects(series: pl.Series, column: ColumnSchema, rows: Rows | None = None) -> pl.Series:
    """A column of Python values that no column type can hold. They are read one by one, like the values of a single row."""
    readers: dict[Reading | None, tuple[Callable[[Any], Any], Any]] = {
        "number": (number_of, pl.Float64),
        "moment": (moment_of, pl.Datetime("us")),
        "text": (lambda value: stored_text(value, column.stored), pl.String),
        "list": (lambda value: entries_of(value, column.separator), pl.List(pl.String)),
    }
    ways_out: dict[Reading | None, str] = {"number": number_way_out(column.name), "moment": TIME_WAY_OUT}
    read, dtype = readers[column.reading]
    values = []
    for position, value in enumerate(series.to_list()):
        try:
            values.append(read(value))
        except ValueError as error:
            way_out = way_out_of(error, ways_out.get(column.reading, str(error)))
            raise refused(series.name, column.kind, row_of(position, rows), shown(value), way_out) from None
    return pl.Series(series.name, values, dtype=dtype)


# What does not fit.


def number_way_out(name: str, has_comma: bool = False) -> str:
    """The advice for a value that is not a number."""
    first = "Give decimal=',' (--decimal) if a comma is the decimal point of the file, or d" if has_comma else "D"
    return f"{first}eclare it categorical, types={{{name!r}: 'categorical'}}, or correct the value."


def row_of(position: int, rows: Rows | None) -> str:
    """The row of a value, for a message."""
    return f"row {position if rows is None else int(rows[position])}"


def first_refused(series: pl.Series, bad: pl.Series, rows: Rows | None, kind: str, way_out: str) -> ColumnError:
    """The error for the first value that cannot be read by the kind of its column."""
    position = int(bad.arg_true()[0])
    return refused(series.name, kind, row_of(position, rows), cell(series, position), way_out)


def nothing_else(series: pl.Series, rows: Rows | None, kind: str, way_out: str) -> pl.Series:
    """Nulls in place of a column whose type cannot be read by its kind. This is allowed only if all values are missing."""
    gone = missing(series)
    if len(series) and (gone is None or not gone.all()):
        if isinstance(series.dtype, (pl.List, pl.Array)) and is_plain(within(series.dtype)):
            raise first_refused(series, series.is_not_null(), rows, kind, SEVERAL_WAY_OUT)
        raise ColumnError(f"Column {series.name!r} is {kind}, but the table holds {series.dtype} there. {way_out}")
    return pl.Series(series.name, [None] * len(series), dtype=pl.Null)


def in_range(series: pl.Series, rows: Rows | None, kind: str, way_out: str) -> pl.Series:
    """Times as the clock on the wall showed them, or durations. As in a single row, they must be such that Python can hold them."""
    if (bad := beyond(series)) is None:
        series = wall_clock(series)
        bad = beyond(series)
    if bad is not None:
        raise first_refused(series, bad, rows, kind, way_out)
    return series


# Kind by kind.


def numbers(series: pl.Series, rows: Rows | None = None, kind: str = "numerical") -> np.ndarray[Any, np.dtype[np.float64]]:
    """`number_of` for whole columns: floats, with NaN for missing."""
    if series.dtype == pl.Duration:
        series = seconds(in_range(series, rows, kind, DURATION_WAY_OUT))
    elif series.dtype == pl.String:
        text = stripped(series)
        parsed = text.cast(pl.Float64, strict=False)
        bad = parsed.is_null() & text.is_not_null()
        if bad.any():
            has_comma = bool(text.filter(bad).str.contains(WITH_COMMA)[0])
            raise first_refused(series, bad, rows, kind, number_way_out(series.name, has_comma))
        series = parsed
    elif not (series.dtype.is_numeric() or series.dtype in (pl.Boolean, pl.Null)):
        series = nothing_else(series, rows, kind, "Give numbers, or declare its kind anew and fit again.")
    return series.cast(pl.Float64).to_numpy()


def seconds(durations: pl.Series) -> pl.Series:
    """`seconds_of` for whole columns."""
    if durations.dtype.time_unit == "ms":  # type: ignore[attr-defined]
        return durations.to_physical().cast(pl.Float64) * 1e3 / 1e6  # as microseconds they might exceed 64 bits
    return durations.dt.total_microseconds() / 1e6


def stripped(series: pl.Series) -> pl.Series:
    """Text without blanks around it, and null if it means that there is no value."""
    text = series.str.strip_chars()
    return text.set(text.is_in(sorted(MISSING_TEXTS)), None)


def moments(series: pl.Series, rows: Rows | None = None, kind: str = "time") -> np.ndarray[Any, np.dtype[np.int64]]:
    """`moment_of` for whole columns: microseconds of the wall clock since 1970, with NO_TIME for missing."""
    if series.dtype == pl.String:
        text = stripped(series)
        parsed = parsed_moments(text)
        bad = parsed.is_null() & text.is_not_null()
        if bad.any():
            raise first_refused(series, bad, rows, kind, TIME_WAY_OUT)
        series = parsed
    elif series.dtype == pl.Time:
        series = (series.cast(pl.Int64) // 1000).cast(pl.Datetime("us"))
    elif series.dtype in (pl.Date, pl.Datetime):
        series = in_range(series, rows, kind, TIME_WAY_OUT)
    elif series.dtype != pl.Null:
        series = nothing_else(series, rows, kind, "Give dates or times, or text as 2024-12-31 23:59:59.")
    micros = series.cast(pl.Datetime("us")).cast(pl.Int64).fill_null(int(NO_TIME))
    return micros.to_numpy()


def parsed_moments(text: pl.Series) -> pl.Series:
    """Texts in ISO form as moments, and null for texts in another form. A time of day is taken to be on the first day of 1970."""
    if len(text) > TOGETHER:  # each text is copied several times before it is a moment
        return pl.concat([parsed_moments(text[first : first + TOGETHER]) for first in range(0, len(text), TOGETHER)])
    # Python's calendar, by which single rows are read, begins in the year 1.
    iso = text.set(~text.str.contains(ISO_MOMENT) | text.str.starts_with("0000-"), None)
    # The text says what the wall clock showed, so a zone behind it is cut off.
    bare = iso.str.replace(f"{ZONE}$", "").str.replace("T", " ", literal=True)
    bare = bare.str.replace(r"^([0-9]{2}:)", "1970-01-01 $1")
    return pl.select(
        pl.coalesce(
            bare.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", strict=False, time_unit="us"),
            bare.str.to_datetime("%Y-%m-%d %H:%M", strict=False, time_unit="us"),
            bare.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("us")),
        )
    ).to_series()


def texts(
    series: pl.Series, stored: Stored = "text", rows: Rows | None = None, *, differ: bool = False, kind: str = "categorical"
) -> TextColumn:
    """The text of each row, by `stored_text` of the distinct values. ``differ`` says that no two rows are equal."""
    if isinstance(series.dtype, (pl.Categorical, pl.Enum)):
        series = series.cast(pl.String)
    if not (is_plain(series.dtype) or series.dtype == pl.Binary):
        series = nothing_else(series, rows, kind, "Give one value a row.")
    if series.dtype == pl.String and stored == "text":  # texts are taken as they are
        return TextColumn(series, differ)
    way_out = DURATION_WAY_OUT if series.dtype == pl.Duration else f"Give times of the years {YEARS}."
    places = Places()
    index, _ = places.add(in_range(series, rows, kind, way_out))
    text = pl.Series(series.name, [stored_text(value, stored) for value in places.values.to_list()], dtype=pl.String)
    return TextColumn(text.gather(index))


def lists(series: pl.Series, separator: str | None, rows: Rows | None = None, kind: str = "multivalue") -> ListColumn:
    """`entries_of` for whole columns: the distinct texts, and for each row the places of its texts, without repetition."""
    if series.dtype == pl.String and separator is not None:
        series = pieces(series, separator)
    elif isinstance(series.dtype, pl.Array):
        series = series.arr.to_list()
    elif not isinstance(series.dtype, pl.List):
        values, alone = texts(series, rows=rows, kind=kind).distinct  # a single value is a list of one
        return ListColumn(values, alone, np.arange(len(series) + 1, dtype=np.int64))
    series = series.list.unique(maintain_order=True)
    gone = series.is_null().to_numpy()
    sizes = np.where(gone, 1, series.list.len().fill_null(1).to_numpy().astype(np.int64))
    row_of_entry = np.repeat(np.arange(len(series)) if rows is None else rows, np.where(gone, 0, sizes))
    entries = series.filter(~gone & (sizes > 0)).explode(empty_as_null=False)
    values, flat = texts(entries, rows=row_of_entry, kind=kind).distinct
    index = np.full(sizes.sum(), -1, np.int32)
    index[~np.repeat(gone, sizes)] = flat
    kept = (index >= 0) | np.repeat(gone, sizes)
    before = np.concatenate([[0], np.cumsum(kept)])
    starts = before[np.concatenate([[0], np.cumsum(sizes)])]
    return ListColumn(values, index[kept], starts.astype(np.int64))
