"""A frame and a schema -> typed columns. What a column is was decided once; here it is only read that way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from autocross.errors import ColumnError, TableError
from autocross.table.columns import NO_TIME, Column, ListColumn, NumberColumn, Table, TextColumn, TimeColumn
from autocross.table.dialect import WITH_COMMA
from autocross.table.digest import Numbered, pieces
from autocross.table.inference import is_plain, known
from autocross.table.places import Places
from autocross.table.schema import ColumnSchema, Schema, Stored
from autocross.table.values import ISO_MOMENT, MISSING_TEXTS, stored_text

Rows = NDArray[np.int64]
ONE_VALUE = ("numerical", "categorical")  # kinds of columns with a value or none in each row, and no need of more than its code


def typed(frame: pl.DataFrame, schema: Schema, numbered: Mapping[str, Numbered] | None = None) -> Table:
    """The columns the schema uses, each as its kind; others are not looked at, in any order.

    ``numbered`` are columns whose values have numbers already: of numbers and categories they do instead of the rows.
    """
    used = [column for column in schema if column.kind != "ignore"]
    present = set(frame.columns)
    absent = [column.name for column in used if column.name not in present]
    if absent:
        raise TableError(
            f"Column {absent[0]!r} is missing from the table"
            f"{f' ({len(absent)} columns are)' if len(absent) > 1 else ''}. {known(frame.columns)}"
        )
    if numbered is None:
        return Table(frame.height, {column.name: typed_column(frame[column.name], column) for column in used})
    once = {column.name: numbered[column.name] for column in used if column.kind in ONE_VALUE and column.name in numbered}
    rows = {column.name: once[column.name].values if column.name in once else frame[column.name] for column in used}
    columns = {column.name: typed_column(rows[column.name], column, differ=column.name in once) for column in used}
    return Table(frame.height, columns, {name: one.index for name, one in once.items()})


def typed_column(series: pl.Series, column: ColumnSchema, rows: Rows | None = None, *, differ: bool = False) -> Column:
    """One column as its kind. ``rows`` are the numbers of its rows where these are not 0, 1, ...; ``differ``: no two are equal."""
    if isinstance(series.dtype, (pl.Categorical, pl.Enum)):
        series = series.cast(pl.String)
    if column.kind == "numerical":
        return NumberColumn(numbers(series, rows))
    if column.kind == "time":
        return TimeColumn(moments(series, rows))
    if column.kind == "multivalue":
        return lists(series, column.separator)
    return texts(series, column.stored, differ=differ)


def refuse(series: pl.Series, bad: pl.Series, rows: Rows | None, kind: str, way_out: str) -> ColumnError:
    """The error for the first value that does not fit the column's kind."""
    at = int(bad.arg_true()[0])
    row = at if rows is None else int(rows[at])
    return ColumnError(f"Column {series.name!r} is {kind}, but row {row} holds {series[at]!r}. {way_out}")


def numbers(series: pl.Series, rows: Rows | None = None) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Floats, NaN where missing."""
    if series.dtype == pl.Duration:
        series = series.dt.total_microseconds() / 1e6
    elif series.dtype == pl.String:
        text = stripped(series)
        parsed = text.cast(pl.Float64, strict=False)
        bad = parsed.is_null() & text.is_not_null()
        if bad.any():
            has_comma = bool(text.filter(bad).str.contains(WITH_COMMA)[0])
            way_out = "Give decimal=',' (--decimal) if a comma is the decimal point of the file, or d" if has_comma else "D"
            way_out += f"eclare it categorical, types={{{series.name!r}: 'categorical'}}, or correct the value."
            raise refuse(series, bad, rows, "numerical", way_out)
        series = parsed
    elif not (series.dtype.is_numeric() or series.dtype in (pl.Boolean, pl.Null)):
        raise ColumnError(
            f"Column {series.name!r} is numerical, but the table holds {series.dtype} there. "
            "Give numbers, or declare its kind anew and fit again."
        )
    return series.cast(pl.Float64).to_numpy()


def stripped(series: pl.Series) -> pl.Series:
    """Text without blanks around it, null where it means that there is no value."""
    text = series.str.strip_chars()
    return text.set(text.is_in(sorted(MISSING_TEXTS)), None)


def moments(series: pl.Series, rows: Rows | None = None) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Microseconds of the wall clock since 1970, NO_TIME where missing."""
    if series.dtype == pl.String:
        text = stripped(series)
        parsed = parsed_moments(text)
        bad = parsed.is_null() & text.is_not_null()
        if bad.any():
            raise refuse(series, bad, rows, "time", "Write dates as 2024-12-31 and times as 2024-12-31 23:59:59.")
        series = parsed
    elif series.dtype == pl.Time:
        series = (series.cast(pl.Int64) // 1000).cast(pl.Datetime("us"))
    elif isinstance(series.dtype, pl.Datetime):
        series = series.dt.replace_time_zone(None)
    elif series.dtype not in (pl.Date, pl.Null):
        raise ColumnError(
            f"Column {series.name!r} is time, but the table holds {series.dtype} there. "
            "Give dates or times, or text as 2024-12-31 23:59:59."
        )
    micros = series.cast(pl.Datetime("us")).cast(pl.Int64).fill_null(int(NO_TIME))
    return micros.to_numpy()


def parsed_moments(text: pl.Series) -> pl.Series:
    """Texts in ISO form as moments, null where they are in another; a time of day is one of the first day of 1970."""
    iso = text.set(~text.str.contains(ISO_MOMENT), None)
    # The wall clock is what the text says: a zone behind it is cut off, as scoring one row does.
    bare = iso.str.replace(r"(:[0-9.]+)(Z|[+-][0-9]{2}:?[0-9]{2})$", "$1").str.replace("T", " ", literal=True)
    bare = bare.str.replace(r"^([0-9]{2}:)", "1970-01-01 $1")
    return pl.select(
        pl.coalesce(
            bare.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", strict=False, time_unit="us"),
            bare.str.to_datetime("%Y-%m-%d %H:%M", strict=False, time_unit="us"),
            bare.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("us")),
        )
    ).to_series()


def texts(series: pl.Series, stored: Stored = "text", *, differ: bool = False) -> TextColumn:
    """Each row's text. ``differ``: no two rows are equal."""
    if isinstance(series.dtype, (pl.Categorical, pl.Enum)):
        series = series.cast(pl.String)
    if not (is_plain(series.dtype) or series.dtype == pl.Binary):
        raise ColumnError(f"Column {series.name!r} is categorical, but the table holds {series.dtype} there. Give one value a row.")
    if series.dtype == pl.String and stored == "text":  # texts as they are: no look at each
        return TextColumn(series, differ)
    places = Places()
    index, _ = places.add(series)
    text = pl.Series(series.name, [stored_text(value, stored) for value in places.values.to_list()], dtype=pl.String)
    return TextColumn(text.gather(index))


def lists(series: pl.Series, separator: str | None) -> ListColumn:
    """Distinct texts and the places of each row's own, every one once; what is missing inside a list is no value."""
    if series.dtype == pl.String and separator is not None:
        series = pieces(series, separator)
    elif isinstance(series.dtype, pl.Array):
        series = series.arr.to_list()
    elif not isinstance(series.dtype, pl.List):
        values, alone = texts(series).distinct  # one value a row is a list of one
        return ListColumn(values, alone, np.arange(len(series) + 1, dtype=np.int64))
    series = series.list.unique(maintain_order=True)
    missing = series.is_null().to_numpy()
    sizes = np.where(missing, 1, series.list.len().fill_null(1).to_numpy().astype(np.int64))
    values, flat = texts(series.filter(~missing & (sizes > 0)).explode()).distinct
    index = np.full(sizes.sum(), -1, np.int32)
    index[~np.repeat(missing, sizes)] = flat
    kept = (index >= 0) | np.repeat(missing, sizes)
    before = np.concatenate([[0], np.cumsum(kept)])
    starts = before[np.concatenate([[0], np.cumsum(sizes)])]
    return ListColumn(values, index[kept], starts.astype(np.int64))
