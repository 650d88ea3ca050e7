"""The rules that give a column its kind.

1. What the user says holds.
2. Lists are multivalue; dates and times are time; text, booleans, enums and categories are categorical, except that
   text in which every value is an ISO date or time is time.
3. Decimals, floats and durations are numerical. Whole numbers with at most 10 different values are categorical (the
   coarsest granularity would give each its own bin anyway), otherwise numerical.
4. Left out, with a warning: a column that is constant or always missing; text or whole numbers unique in every row of
   a table of 50 rows or more (an id, or a row number); structs, bytes and lists of lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from autocross.errors import ColumnError, OptionError
from autocross.features import Kind
from autocross.table.schema import ColumnSchema, Schema, Stored, parse_kind
from autocross.table.values import BOOLEAN_WORDS, ISO_MOMENT, MISSING_TEXTS, MOMENT

FEW_VALUES = 10
ROWS_TO_CALL_IT_AN_ID = 50


def infer(frame: pl.DataFrame, types: Mapping[str, str], left_out: Mapping[str, str]) -> Schema:
    """A kind for every column of the frame. ``left_out`` maps a column to the reason for which it is not a feature."""
    for word, names in (("types", types), ("exclude", left_out)):
        for name in names:
            if name not in frame.columns:
                raise OptionError(f"Option {word} names column {name!r}, which the table does not have. {known(frame.columns)}")
    columns = []
    for name in frame.columns:
        series = frame[name]
        if name in left_out:
            columns.append(ColumnSchema(name, "ignore", stored_as(series), left_out[name]))
        elif name in types:
            columns.append(declared(series, types[name]))
        else:
            columns.append(inferred(series))
    return tuple(columns)


def known(names: Sequence[str]) -> str:
    """A short list of the columns there are."""
    shown = ", ".join(repr(name) for name in names[:10])
    return f"Its columns are {shown}{' and more' if len(names) > 10 else ''}."


def is_plain(kind: Any) -> bool:
    """Whether a cell holds one value that has a text."""
    return kind.is_numeric() or kind.is_temporal() or kind in (pl.String, pl.Boolean, pl.Categorical, pl.Enum, pl.Null)


def stored_as(series: pl.Series) -> Stored:
    """How the table holds the column; text that says true and false is boolean."""
    kind = series.dtype
    if isinstance(kind, (pl.List, pl.Array)):
        return "list"
    if kind == pl.Boolean or is_boolean(series):
        return "boolean"
    if kind.is_numeric() or kind == pl.Duration:
        return "number"
    return "time" if kind.is_temporal() else "text"


def declared(series: pl.Series, text: str) -> ColumnSchema:
    """The kind the user gave, if the column can have it."""
    kind, separator = parse_kind(series.name, text)
    stored = stored_as(series)
    if kind == "multivalue" and stored == "text" and separator is None:
        raise ColumnError(
            f"Column {series.name!r} holds text, so multivalue needs its separator. Write it behind a colon, as in 'multivalue:|'."
        )
    if kind != "multivalue" and stored == "list" and kind != "ignore":
        raise ColumnError(f"Column {series.name!r} holds lists and cannot be {kind}. Declare it multivalue or ignore.")
    return ColumnSchema(series.name, kind, stored, "declared", separator)


def inferred(series: pl.Series) -> ColumnSchema:
    """The kind by rule."""
    stored = stored_as(series)

    def decide(kind: Kind, reason: str) -> ColumnSchema:
        return ColumnSchema(series.name, kind, stored, reason)

    kind = series.dtype.inner if isinstance(series.dtype, (pl.List, pl.Array)) else series.dtype
    if not is_plain(kind):
        return decide("ignore", f"values of type {series.dtype} cannot be read")
    values = present(series)
    if not len(values):
        return decide("ignore", "always missing")
    if stored == "list":
        return decide("multivalue", "holds lists")
    n_values = values.n_unique()
    if n_values == 1 and len(values) == len(series):
        return decide("ignore", f"constant, always {values[0]!r}")
    whole = stored == "number" and is_whole(values)
    if n_values == len(series) >= ROWS_TO_CALL_IT_AN_ID and (whole or (stored == "text" and not is_iso(values))):
        return decide("ignore", "different in every row, as an id is")
    if stored == "time" or (stored == "text" and is_iso(values)):
        return decide("time", "dates or times")
    if stored in ("text", "boolean"):
        return decide("categorical", "text" if stored == "text" else "boolean")
    if whole and n_values <= FEW_VALUES:
        return decide("categorical", f"whole numbers with {n_values} different values")
    return decide("numerical", f"numbers with {n_values:,} different values")


def present(series: pl.Series) -> pl.Series:
    """The values that are not missing."""
    if series.dtype == pl.String and series.is_in(sorted(MISSING_TEXTS)).any():
        series = series.filter(~series.is_in(sorted(MISSING_TEXTS)))
    elif series.dtype.is_float() and np.isnan(series.to_numpy()).any():
        series = series.fill_nan(None)
    return series.drop_nulls() if series.null_count() else series


def is_whole(values: pl.Series) -> bool:
    """Whether every number is a whole one, also where they are stored as floats."""
    if values.dtype.is_integer():
        return True
    if not values.dtype.is_float():
        return False
    numbers = values.to_numpy()
    finite = numbers[np.isfinite(numbers)]
    return len(finite) > 0 and bool((finite == np.floor(finite)).all())


def is_boolean(series: pl.Series) -> bool:
    """Whether every text says true or false; the first hundred decide quickly against it."""
    words = {*BOOLEAN_WORDS, *MISSING_TEXTS, None}
    if series.dtype != pl.String or not set(series.head(100)) <= words:
        return False
    distinct = set(series.unique())
    return distinct <= words and not distinct.isdisjoint(BOOLEAN_WORDS)


def is_iso(values: pl.Series) -> bool:
    """Whether every text is an ISO date or time; the first hundred decide quickly against it."""
    if values.dtype != pl.String or not all(MOMENT.match(text) for text in values.head(100)):
        return False
    return bool(values.str.contains(ISO_MOMENT).all())
