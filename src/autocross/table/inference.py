"""The rules that give a column its kind.

1. The kind that the user declared.
2. Lists are multivalue; dates and times are time; text, booleans, enums and categories are categorical, except that
   text in which every value is an ISO date or time is time.
3. Decimals, floats and durations are numerical. Whole numbers with at most 10 different values are categorical (the
   coarsest granularity would give each its own bin anyway), otherwise numerical. In a table of 5,000 rows or fewer, three
   different values up to 100 are enough to be numerical, as counts and grades are: there the order of the values says more than
   each value alone.
4. Left out, with a warning: a column that is constant or always missing; text or integers that differ in every row of a table of 50
   rows or more (an id, or a row number; floats are measurements, even if all of them are whole); structs, bytes and lists of lists.

Whole numbers that are numerical by rule, but look like ids, stay numerical; `looks_like_an_id` tells which they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from autocross.errors import ColumnError, OptionError
from autocross.features import FEW_ROWS
from autocross.table.digest import BITS, Digest, digest
from autocross.table.schema import READINGS, ColumnSchema, Schema, Stored, parse_kind
from autocross.table.values import BOOLEAN_WORDS, ISO_MOMENT, MISSING_TEXTS, MOMENT

FEW_VALUES = 10
MOST_COUNTED = 100  # a larger number may be a code or a year
ROWS_TO_CALL_IT_AN_ID = 50

# What makes repeated whole numbers look like ids. Below a hundred values, a field of a hundred bins gives each its own anyway.
VALUES_OF_AN_ID = 100
ROWS_OF_AN_ID, ROWS_IF_NAMED = 3, 1.2  # on average; fewer are enough if the name says that it is an id
HOLES_OF_AN_ID = 20  # numbers that do not occur, for each one that does
MOST_OF_A_DIGIT = 0.3  # share of the values that may end in the same digit; amounts and prices end in 0, 5 or 9
SECONDS = (946_684_800, 2_208_988_800)  # from 2000 to 2040; numbers in between may be moments, as may their thousandfold

# The last word of a name that tells an id, in any of the ways to write several words: user_id, UserID, shop.code, zip.
OF = "user|item|product|customer|client|member|shop|store|merchant|movie|film|book|article|ad|account|device|session|order"
ID_NAME = re.compile(
    rf"(?:.*(?:[\W_]|(?<=[a-z0-9])(?=[A-Z])))?(?i:ids?|(?:{OF})id|code|(?:zip|post|postal)_?code|zip|plz|postcode)"
)


def infer(frame: pl.DataFrame, types: Mapping[str, str], left_out: Mapping[str, str]) -> Schema:
    """A kind for every column of the frame."""
    return infer_all([digest(frame[name]) for name in frame.columns], types, left_out)


def infer_all(columns: Sequence[Digest], types: Mapping[str, str], left_out: Mapping[str, str]) -> Schema:
    """A kind for every column. ``left_out`` has columns that are no features, each with the reason."""
    present = [column.name for column in columns]
    for word, names in (("types", types), ("exclude", left_out)):
        for name in names:
            if name not in present:
                raise OptionError(
                    f"Option {word} names column {name!r}, which the table does not have. {columns_in_words(present)}"
                )
    schema = []
    for column in map(Digest.loaded, columns):
        if column.name in left_out:
            schema.append(ColumnSchema(column.name, "ignore", stored_as(column), left_out[column.name]))
        elif column.name in types:
            schema.append(declared(column, types[column.name]))
        else:
            schema.append(inferred(column))
    return tuple(schema)


def columns_in_words(names: Sequence[str]) -> str:
    """A short list of the columns, for a message. A single column may be the uncut line of a CSV file with another separator."""
    shown = ", ".join(repr(name) for name in names[:10])
    uncut = len(names) == 1 and not names[0].isidentifier()
    hint = " If that is a line of several cells, say what separates them by separator= (--separator)." if uncut else ""
    return f"Its columns are {shown}{' and more' if len(names) > 10 else ''}.{hint}"


def is_plain(kind: Any) -> bool:
    """Whether a cell of this type holds a single value that can be written as text."""
    return kind.is_numeric() or kind.is_temporal() or kind in (pl.String, pl.Boolean, pl.Categorical, pl.Enum, pl.Null)


def within(dtype: Any) -> Any:
    """The type of the values in a cell. For lists it is the type of their entries."""
    return dtype.inner if isinstance(dtype, (pl.List, pl.Array)) else dtype


def type_name(kind: Any) -> str:
    """The name of a type, without the values that it may list: a reason is kept in the model and must not hold values.

    >>> type_name(pl.List(pl.Enum(["cook", "nurse"])))
    'List(Enum)'
    """
    inner = f"({type_name(kind.inner)})" if isinstance(kind, (pl.List, pl.Array)) else ""
    return f"{kind.base_type().__name__}{inner}"


def stored_as(column: Digest) -> Stored:
    """How the table stores the column. Text that says only true and false counts as boolean."""
    kind = column.dtype
    if isinstance(kind, (pl.List, pl.Array)):
        return "list"
    if kind == pl.Boolean or (kind == pl.String and is_boolean(column.values)):
        return "boolean"
    if kind.is_numeric() or kind == pl.Duration:
        return "number"
    return "time" if kind.is_temporal() else "text"


def declared(column: Digest, text: str) -> ColumnSchema:
    """The kind the user gave, if the column can have it."""
    kind, separator = parse_kind(column.name, text)
    stored = stored_as(column)
    if kind != "ignore" and not (is_plain(within(column.dtype)) or within(column.dtype) == pl.Binary):
        raise ColumnError(
            f"Column {column.name!r} holds values of type {type_name(column.dtype)}, which cannot be {kind}. "
            "Give the parts columns of their own, or declare it ignore."
        )
    if READINGS[kind] == "list" and stored == "text" and separator is None:
        raise ColumnError(
            f"Column {column.name!r} holds text, so {kind} needs its separator. Write it behind a colon, as in '{kind}:|'."
        )
    if READINGS[kind] not in ("list", None) and stored == "list":
        raise ColumnError(f"Column {column.name!r} holds lists and cannot be {kind}. Declare it multivalue or ignore.")
    return ColumnSchema(column.name, kind, stored, "declared", separator)


def inferred(column: Digest) -> ColumnSchema:
    """The kind by rule. Reasons name no value, because models and journals keep them, and must not hold values of columns left
    out."""
    stored = stored_as(column)

    def decide(kind: str, reason: str) -> ColumnSchema:
        return ColumnSchema(column.name, kind, stored, reason)

    if not is_plain(within(column.dtype)):
        return decide("ignore", f"values of type {type_name(column.dtype)} cannot be read")
    if column.n_missing == column.n_rows:
        return decide("ignore", "always missing")
    if stored == "list":
        return decide("multivalue", "holds lists")
    values, n_values = column.present, len(column.present)
    if n_values == 1 and not column.n_missing:
        return decide("ignore", "constant")
    whole = stored == "number" and column.whole and bool(values.is_finite().any())
    iso = column.dtype == pl.String and is_iso(values)
    like_an_id = column.dtype.is_integer() or (stored == "text" and not iso)
    if like_an_id and column.all_differ and column.n_rows >= ROWS_TO_CALL_IT_AN_ID:
        return decide("ignore", "different in every row, as an id is")
    if stored == "time" or iso:
        return decide("time", "dates or times")
    if stored in ("text", "boolean"):
        return decide("categorical", "text" if stored == "text" else "boolean")
    like_counts = whole and 2 < n_values <= FEW_VALUES and column.n_rows <= FEW_ROWS and are_small(values)
    if whole and n_values <= FEW_VALUES and not like_counts:
        return decide("categorical", f"whole numbers with {n_values} different values")
    return decide("numerical", f"numbers with {n_values:,} different values")


def are_small(values: pl.Series) -> bool:
    """Whether no number is beyond what people count."""
    numbers = values.cast(pl.Float64).to_numpy()
    return bool((np.abs(numbers[np.isfinite(numbers)]) <= MOST_COUNTED).all())


def looks_like_an_id(column: Digest) -> bool:
    """Whether a column of whole numbers looks like the id of a user or a shop, or like a code.

    If its name says so, many values are enough. Without such a name its numbers must repeat and still leave large holes. A
    measurement, a count or an amount does not: where its numbers repeat, most of those in between occur too. It is looked at where
    half of the rows lie, because counts and amounts have holes in their long tails.
    """
    if not column.whole or column.all_differ or column.n_values < VALUES_OF_AN_ID:
        return False
    column = column.loaded()
    values, n = column.values.cast(pl.Float64).fill_null(np.nan).to_numpy(), column.n
    finite = np.isfinite(values)
    values, n = values[finite], n[finite]
    if len(values) < VALUES_OF_AN_ID:
        return False
    order = np.argsort(values)
    values, n = values[order], n[order]
    if is_moment(values):
        return False
    if ID_NAME.fullmatch(column.name):
        return bool(n.sum() >= ROWS_IF_NAMED * len(values))
    if column.bits < BITS or n.sum() < ROWS_OF_AN_ID * len(values):
        return False
    if np.bincount((values % 10).astype(np.int64)).max() > MOST_OF_A_DIGIT * len(values):
        return False
    first, last = np.searchsorted(np.cumsum(n), (n.sum() * 0.25, n.sum() * 0.75))
    values, n = values[first : last + 1], n[first : last + 1]
    return bool(np.ptp(values) >= HOLES_OF_AN_ID * len(values) and n.sum() >= ROWS_OF_AN_ID * len(values))


def is_moment(values: NDArray[np.float64]) -> bool:
    """Whether sorted whole numbers may be days, such as 20261118, or moments in seconds or milliseconds."""
    low, high = values[0], values[-1]
    if any(SECONDS[0] * unit <= low and high <= SECONDS[1] * unit for unit in (1, 1e3, 1e6, 1e9)):
        return True
    year, month, day = values // 10_000, values // 100 % 100, values % 100
    whole_days = (year >= 1800) & (year <= 2200) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    return bool(whole_days.all())


def is_boolean(series: pl.Series) -> bool:
    """Whether every text says true or false. In most other columns the first hundred texts settle it."""
    words = {*BOOLEAN_WORDS, *MISSING_TEXTS, None}
    if series.dtype != pl.String or not set(series.head(100)) <= words:
        return False
    distinct = set(series.unique())
    return distinct <= words and not distinct.isdisjoint(BOOLEAN_WORDS)


def is_iso(values: pl.Series) -> bool:
    """Whether every text is an ISO date or time. In most other columns the first hundred texts settle it."""
    if values.dtype != pl.String or not all(MOMENT.fullmatch(text) for text in values.head(100)):
        return False
    return bool(values.str.contains(ISO_MOMENT).all())
