"""Any frame, array or path -> one polars frame. The frame libraries are at home in this room and nowhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import polars as pl
from numpy.typing import NDArray

from autocross import forks
from autocross.errors import TableError
from autocross.table.coerce import of_objects
from autocross.table.dialect import ANY, Dialect
from autocross.table.files import place_of, read
from autocross.table.schema import ColumnSchema, parse_kind
from autocross.table.values import entries_of, number_of, plain, text_of, well_formed

SEVERAL = (list, tuple, set, frozenset, np.ndarray)
# The column type for Python values of exactly this type. None means that polars has to find out more.
COLUMN_TYPES: dict[type, Any] = {
    bool: pl.Boolean,
    int: None,
    float: pl.Float64,
    str: pl.String,
    bytes: pl.Binary,
    date: pl.Date,
    datetime: pl.Datetime("us"),
    time: pl.Time,
    timedelta: pl.Duration("us"),
    Decimal: None,
    dict: None,
}
LARGEST = (1 << 127) - 1
LONGEST = timedelta(microseconds=(1 << 63) - 1)
UNLIKE_ARROW = ("extension<", "decimal256")  # pyarrow's types that polars takes for others, or panics at
# What polars raises where it has no type for some values.
NOT_TAKEN = (TypeError, ValueError, OverflowError, RuntimeError, pl.exceptions.PolarsError)


def to_polars(data: Any, dialect: Dialect = ANY) -> pl.DataFrame:
    """The rows of a frame, a two-dimensional array or a path, as a polars frame. The dialect is used for CSV files."""
    forks.check()
    if isinstance(data, (str, Path)):
        return read(place_of(data), dialect)
    if isinstance(data, pl.LazyFrame):
        data = data.collect()
    if isinstance(data, pl.DataFrame):
        return data.with_columns(from_values(column.to_list()).alias(column.name) for column in data if holds_objects(column.dtype))
    if hasattr(data, "column_names"):  # pyarrow calls the names so; its ``columns`` are the values
        return from_arrow(data)
    if hasattr(data, "columns") and not isinstance(data, np.ndarray):
        return from_frame(data)
    return from_array(data)


def holds_objects(dtype: Any) -> bool:
    """Whether a polars column holds Python objects in its cells, or in lists in its cells."""
    return dtype == pl.Object or (isinstance(dtype, (pl.List, pl.Array)) and holds_objects(dtype.inner))


def check_names(names: Sequence[Any]) -> list[str]:
    """Column names as text. A name that occurs twice is an error, because one of the two columns would be lost."""
    texts = [str(name) for name in names]
    for text in texts:
        if text != well_formed(text):
            raise TableError(f"Column name {text!r} is no text that can be written. Rename the column.")
    if len(set(texts)) < len(texts):
        name, n_times = Counter(texts).most_common(1)[0]
        raise TableError(f"Column name {name!r} occurs {n_times} times. Rename the columns.")
    return texts


def from_frame(data: Any) -> pl.DataFrame:
    """A frame of pandas, or of another library that narwhals reads."""
    columns = data.columns
    names = check_names(columns if isinstance(columns, (list, tuple)) else list(columns))
    try:
        frame = nw.from_native(data)
    except TypeError:
        raise TableError(
            f"A {type(data).__module__}.{type(data).__name__} is no table. "
            "Give a pandas, polars or pyarrow frame, or the path of a CSV or Parquet file."
        ) from None
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    native = frame.to_native()
    if isinstance(native, pl.DataFrame):
        return to_polars(native)
    if not frame.implementation.is_pandas_like():
        return from_arrow(frame.to_arrow())
    return pl.DataFrame({name: taken_over(name, from_pandas, native.iloc[:, number]) for number, name in enumerate(names)})


def taken_over(name: str, take: Callable[[Any], pl.Series], column: Any) -> pl.Series:
    """A column of another library. If the library cannot even give its values, its error becomes one that helps."""
    try:
        return take(column)
    except Exception as error:  # of a foreign library, which may raise anything
        raise TableError(
            f"Column {name!r} cannot be read: {type(error).__name__}: {error}. Convert it to another type, or leave it out."
        ) from error


def from_arrow(data: Any) -> pl.DataFrame:
    """A pyarrow table. Columns of types that polars does not have are converted value by value."""
    check_names(data.column_names)
    if not any(str(field.type).startswith(UNLIKE_ARROW) for field in data.schema):
        try:
            return pl.DataFrame(pl.from_arrow(data))
        except NOT_TAKEN:
            pass
    return pl.DataFrame(
        {name: taken_over(name, arrow_column, data.column(number)) for number, name in enumerate(data.column_names)}
    )


def arrow_column(column: Any) -> pl.Series:
    """One column of a pyarrow table."""
    if not str(column.type).startswith(UNLIKE_ARROW):
        try:
            return pl.Series(pl.from_arrow(column))
        except NOT_TAKEN:
            pass
    return from_values(column.to_pylist())


def from_pandas(native: Any) -> pl.Series:
    """One pandas column, without pyarrow. Native numbers are converted as arrays, everything else value by value."""
    kind, is_numpy = getattr(native.dtype, "kind", "O"), isinstance(native.dtype, np.dtype)
    if is_numpy and kind in "iufb":
        values = native.to_numpy()
        return from_numbers(values, nan_to_null=bool(kind == "f" and np.isnan(values).any()))
    if is_numpy and kind == "m":
        return from_durations(native.to_numpy())
    if is_numpy and kind in "Oc":
        return from_values(native.to_list())
    series = nw.from_native(native, series_only=True)
    if kind == "M" and series.dtype != nw.Date:
        if hasattr(native.dtype, "pyarrow_dtype"):  # pandas 2 would not cut the zone off, but convert the times to UTC
            return arrow_column(series.to_arrow())
        return from_moments(series.dt.replace_time_zone(None).to_numpy())
    missing = series.is_null().to_numpy()
    values = [None if is_missing else value for value, is_missing in zip(series.to_list(), missing, strict=True)]
    if series.dtype in (nw.Categorical, nw.Enum):  # also if the categories are numbers or dates
        try:
            return pl.Series([text_of(value) for value in values], dtype=pl.Categorical)
        except ValueError:
            return objects(values)
    return from_values(values)


def from_numbers(values: NDArray[Any], nan_to_null: bool = False) -> pl.Series:
    """An array of numbers or booleans."""
    if values.dtype.kind == "f" and values.dtype.itemsize not in (4, 8):
        with np.errstate(over="ignore"):  # a long double beyond the largest float is infinite
            values = values.astype(np.float64)
    return pl.Series(np.ascontiguousarray(values), nan_to_null=nan_to_null)


def from_moments(values: NDArray[np.datetime64]) -> pl.Series:
    """An array of moments, of whatever unit."""
    try:
        for end in ends(values):
            plain(end)
    except ValueError:  # a column cannot hold all of them
        return objects(list(values))
    return pl.Series(values.astype("datetime64[us]"))


def from_durations(values: NDArray[np.timedelta64]) -> pl.Series:
    """An array of durations, of whatever unit."""
    try:
        if all(abs(plain(end)) <= LONGEST for end in ends(values)):
            return pl.Series(
                np.where(values.astype(np.int64) < 0, -(-values).astype("timedelta64[us]"), values.astype("timedelta64[us]"))
            )
    except ValueError:
        pass
    return objects(list(values))


def ends(values: NDArray[Any]) -> list[Any]:
    """The least and the largest of the values that are not missing."""
    present = values[~np.isnat(values)]
    return [present.min(), present.max()] if len(present) else []


def from_values(values: list[Any]) -> pl.Series:
    """A column of Python values: of their type, if polars has a type that holds them all, or else of Python objects.

    The schema of a model says what the objects mean, or `settled` decides it if there is no model yet.
    """
    originals, kinds = values, types_of(values)
    if len(kinds) > 1 or not kinds <= {bool, int, float, str}:
        try:
            values = [plain(value) for value in originals]
        except ValueError:
            return objects(originals)
        kinds = types_of(values)
    if not kinds:
        return pl.Series([None] * len(values), dtype=pl.Null)
    try:
        if all(issubclass(kind, SEVERAL) for kind in kinds):
            return pl.Series([entries_of(value, None) for value in values], dtype=pl.List(pl.String))
        if len(kinds) == 1 and (kind := kinds.pop()) in COLUMN_TYPES and fits(kind, values):
            column = pl.Series(values, dtype=COLUMN_TYPES[kind], strict=True)
            return column.fill_nan(None) if kind is float else column
    except NOT_TAKEN:
        pass
    return objects(originals)


def types_of(values: list[Any]) -> set[type]:
    """The types of the values that are not missing."""
    return set(map(type, values)) - {type(None)}


def fits(kind: type, values: list[Any]) -> bool:
    """Whether polars can hold these values in the type. Beyond its range it would panic, or silently lose some."""
    if kind not in (int, timedelta, Decimal):
        return True
    present = [value for value in values if value is not None]
    if kind is Decimal:
        return all(value.is_finite() for value in present) and pl.Series(values).to_list() == values
    return bool(max(max(present), -min(present)) <= (LARGEST if kind is int else LONGEST))


def objects(values: list[Any]) -> pl.Series:
    """A column of Python objects. Polars decides by the first value whether to convert them all, so an untyped object comes
    first."""
    return pl.Series([object(), *values], dtype=pl.Object)[1:]


# Before a fit.


def settled(frame: pl.DataFrame, types: Mapping[str, str], unread: Container[str] = ()) -> pl.DataFrame:
    """The frame, with a type for every column of Python objects. A fit needs this, because no schema says yet how to read them.

    ``types`` has the kinds that the user declared. Columns that are ``unread`` are not needed.
    """
    columns = []
    for series in frame.select(pl.col(pl.Object)):
        kind, separator = parse_kind(series.name, types.get(series.name, "categorical"))
        if series.name in unread or kind == "ignore":
            columns.append(pl.Series(series.name, [None] * len(series), dtype=pl.Null))
        elif series.name not in types and (column := guessed(series.to_list())) is not None:
            columns.append(column.alias(series.name))
        else:
            columns.append(of_objects(series, ColumnSchema(series.name, kind, "text", "", separator)))
    return frame.with_columns(columns)


def guessed(values: list[Any]) -> pl.Series | None:
    """Numbers of several types as floats, and values of one type as polars reads them. None if they can only be texts."""
    try:
        values = [plain(value) for value in values]
        kinds = types_of(values)
        if kinds == {Decimal} or (len(kinds) > 1 and all(issubclass(kind, (int, float)) and kind is not bool for kind in kinds)):
            return pl.Series([number_of(value) for value in values], dtype=pl.Float64).fill_nan(None)
        if len(kinds) != 1 or not fits(kinds.pop(), values):
            return None
        column = pl.Series([as_lists(value) for value in values], strict=True)
    except NOT_TAKEN:
        return None
    return None if holds_objects(column.dtype) else column


def as_lists(value: Any) -> Any:
    """An array, and every array in it, as a list. Polars holds arrays of arrays as objects, and panics when it frees them."""
    return [as_lists(entry) for entry in value] if isinstance(value, (np.ndarray, list)) else value


def from_array(data: Any) -> pl.DataFrame:
    """A two-dimensional array; its columns are called as `unnamed` says."""
    if hasattr(data, "toarray"):
        raise TableError("Sparse input is not supported. Give a frame with one column a feature, or call .toarray().")
    if isinstance(data, np.ma.MaskedArray):
        data, hidden = data.data.astype(object), np.ma.getmaskarray(data)
        data[hidden] = None
    array = np.asarray(data)
    if array.ndim != 2:
        raise TableError(
            f"Expected a table, got an array of {array.ndim} dimensions. "
            "Reshape your data, for one column with array.reshape(-1, 1)."
        )
    if array.dtype.kind == "c":
        raise TableError("Complex data not supported. Give real and imaginary parts as two columns.")
    readers: dict[str, Callable[[Any], pl.Series]] = {**dict.fromkeys("iufb", from_numbers), "M": from_moments, "m": from_durations}
    from_column = readers.get(array.dtype.kind, lambda column: from_values(column.tolist()))
    return pl.DataFrame({name: from_column(array[:, number]) for number, name in enumerate(unnamed(array.shape[1]))})


def unnamed(n_columns: int) -> list[str]:
    """The names of columns that have none: x0, x1, ..."""
    return [f"x{number}" for number in range(n_columns)]


def like(data: Any, columns: Mapping[str, Any]) -> Any:
    """Columns as a frame of the same library as the caller's, with its index, if that is pandas; or else as a frame of polars."""
    if type(data).__module__.partition(".")[0] == "pandas":
        return type(data)(dict(columns), index=data.index)
    return pl.DataFrame(dict(columns))


def typed_frame(columns: Mapping[str, Any], types: Mapping[str, Any]) -> pl.DataFrame:
    """Columns as a frame of polars. Some may hold nothing at all, and have these types."""
    return pl.DataFrame(dict(columns), schema_overrides=dict(types))
