"""Any frame, array or path -> one polars frame. The frame libraries are at home in this room and nowhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import polars as pl

from autocross import forks
from autocross.errors import TableError
from autocross.table.dialect import ANY, Dialect
from autocross.table.files import place_of, read
from autocross.table.values import text_of


def to_polars(data: Any, dialect: Dialect = ANY) -> pl.DataFrame:
    """The rows of a frame, a two-dimensional array or a path, in case of a CSV file with what is known of it."""
    forks.check()
    if isinstance(data, (str, Path)):
        return read(place_of(data), dialect)
    if isinstance(data, pl.DataFrame):
        return data
    if isinstance(data, pl.LazyFrame):
        return data.collect()
    if hasattr(data, "column_names"):  # pyarrow's word for it; its ``columns`` are the values
        return from_arrow(data)
    if hasattr(data, "columns") and not isinstance(data, np.ndarray):
        return from_frame(data)
    return from_array(data)


def check_names(names: Sequence[Any]) -> list[str]:
    """Column names as text; twice the same name is an error, because one of the two would be lost."""
    texts = [str(name) for name in names]
    if len(set(texts)) < len(texts):
        name, n_times = Counter(texts).most_common(1)[0]
        raise TableError(f"Column name {name!r} occurs {n_times} times. Rename the columns.")
    return texts


def from_frame(data: Any) -> pl.DataFrame:
    """Pandas, or whatever else narwhals reads."""
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
        return native
    if not frame.implementation.is_pandas_like():
        return from_arrow(frame.to_arrow())
    series = [from_pandas(native.iloc[:, at]) for at in range(len(names))]
    return pl.DataFrame(dict(zip(names, series, strict=True)))


def from_arrow(data: Any) -> pl.DataFrame:
    """A pyarrow table."""
    check_names(data.column_names)
    frame = pl.from_arrow(data)
    assert isinstance(frame, pl.DataFrame)
    return frame


def from_pandas(native: Any) -> pl.Series:
    """One pandas column, without pyarrow: native numbers go over as arrays, the rest value by value."""
    kind = getattr(native.dtype, "kind", "O")
    if isinstance(native.dtype, np.dtype) and kind in "iufb":
        values = native.to_numpy()
        return pl.Series(values, nan_to_null=bool(kind == "f" and np.isnan(values).any()))
    series = nw.from_native(native, series_only=True)
    if kind == "M" and series.dtype != nw.Date:
        return pl.Series(series.dt.replace_time_zone(None).to_numpy().astype("datetime64[us]"))
    missing = series.is_null().to_numpy()
    values = [None if gone else value for value, gone in zip(series.to_list(), missing, strict=True)]
    if series.dtype in (nw.Categorical, nw.Enum):  # categories are categories, numbers and dates too
        return pl.Series([text_of(value) for value in values], dtype=pl.Categorical)
    return from_values(values)


def from_values(values: list[Any]) -> pl.Series:
    """Python values; where their types do not go together or polars has none for them, their texts."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) > 1 and all(issubclass(kind, (int, float, np.number)) and kind is not bool for kind in kinds):
        return pl.Series([None if value is None else float(value) for value in values], dtype=pl.Float64)
    if kinds and all(issubclass(kind, (list, tuple, set, frozenset, np.ndarray)) for kind in kinds):
        entries = [None if value is None else [text_of(entry) for entry in value] for value in values]
        return pl.Series(entries, dtype=pl.List(pl.String))
    if len(kinds) <= 1:
        try:
            column = pl.Series(values, strict=True)
        except (TypeError, OverflowError, pl.exceptions.PolarsError):
            column = pl.Series(dtype=pl.Object)
        if column.dtype != pl.Object:
            return column
    return pl.Series([text_of(value) for value in values], dtype=pl.String)


def from_array(data: Any) -> pl.DataFrame:
    """A two-dimensional array; its columns are called x0, x1, ..."""
    if hasattr(data, "toarray"):
        raise TableError("Sparse input is not supported. Give a frame with one column a feature, or call .toarray().")
    array = np.asarray(data)
    if array.ndim != 2:
        raise TableError(
            f"Expected a table, got an array of {array.ndim} dimensions. "
            "Reshape your data, for one column with array.reshape(-1, 1)."
        )
    if array.dtype.kind == "c":
        raise TableError("Complex data not supported. Give real and imaginary parts as two columns.")
    names = [f"x{at}" for at in range(array.shape[1])]
    if array.dtype.kind in "iufb":
        columns = [pl.Series(np.ascontiguousarray(array[:, at])) for at in range(array.shape[1])]
    else:
        columns = [from_values(list(array[:, at])) for at in range(array.shape[1])]
    return pl.DataFrame(dict(zip(names, columns, strict=True)))
