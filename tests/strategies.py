"""Generated rows, tables and values, with the cases that break things: empty, one row, one code, no code, values of any type."""

from __future__ import annotations

import enum
import uuid
import warnings
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import PurePosixPath
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import strategies as st

from autocross.features import narrowest
from reference import CodedRows


@st.composite
def coded_rows(draw: st.DrawFn, ragged: bool | None = None, max_rows: int = 40) -> CodedRows:
    """Rows of one field, for one to five models, whose folds may go forward."""
    n_rows = draw(st.integers(0, max_rows))
    n_codes = draw(st.sampled_from([2, 3, 7, 300]))
    n_models = draw(st.sampled_from([1, 2, 3, 5]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if draw(st.booleans()) if ragged is None else ragged:
        rows = [rng.choice(n_codes, min(n_codes, rng.integers(0, 4)), replace=False) for _ in range(n_rows)]
    else:
        rows = [rng.integers(0, n_codes, 1) for _ in range(n_rows)]
    return CodedRows(
        codes=np.concatenate([*rows, np.empty(0, int)]).astype(narrowest(n_codes)),
        starts=np.cumsum([0, *map(len, rows)]).astype(np.int64),
        n_codes=n_codes,
        label=rng.integers(0, 2, n_rows).astype(np.uint8),
        weight=rng.choice([0.0, 0.5, 1.0, 3.0], n_rows).astype(np.float32),
        fold=rng.choice([*range(n_models), 255], n_rows).astype(np.uint8),
        offset=rng.normal(0, draw(st.sampled_from([0.1, 2.0, 20.0])), (n_rows, n_models)),
        forward=n_models > 1 and draw(st.booleans()),
    )


# Texts that may be numbers or times.

BLANKS = ["", "", "", " ", "\t", "\n", "\xa0", "\u2003", "\u3000", "\x85", "\x1c", "\x00", "\u200b", "\ufeff"]
DIGITS = ["0", "1", "7", "42", "007", "1_0", "\u0663", "\uff11", "\u00b2", "9" * 20, "9" * 400, "0x1f", "0b1", ""]


@cache  # to make a strategy takes longer than to draw from it
def spelled_numbers() -> st.SearchStrategy[str]:
    """Texts that are numbers, and texts that nearly are."""
    sign = st.sampled_from(["", "", "+", "-", "--", "\u2212", "+ "])
    digits = st.sampled_from(DIGITS)
    point = st.sampled_from(["", "", ".", ",", "..", "\u066b"])
    exponent = st.sampled_from(["", "", "e5", "E-5", "e+05", "e", "e5.5", "d5", "e400", "e-400", "p3", "f", "%"])
    parts = st.tuples(st.sampled_from(BLANKS), sign, digits, point, digits, exponent, st.sampled_from(BLANKS))
    word = st.sampled_from(["inf", "Inf", "INFINITY", "infinity", "infinit", "nan", "NaN", "NAN", "nAn", "true", "NA", "None"])
    words = st.tuples(st.sampled_from(BLANKS), sign, word, st.sampled_from(BLANKS))
    return st.one_of(parts.map("".join), words.map("".join), st.text("0123456789+-.eE_ \xa0\u0661infa", max_size=8))


@cache
def spelled_moments() -> st.SearchStrategy[str]:
    """Texts that are dates or times in ISO form, and texts that nearly are."""
    day = st.tuples(
        st.sampled_from(["2024", "1969", "0001", "9999", "0000", "10000", "-2024", "24", "\u0662\u0660\u0662\u0664"]),
        st.sampled_from(["-", "-", "-", "/", ""]),
        st.sampled_from(["01", "02", "12", "00", "13", "1"]),
        st.just("-"),
        st.sampled_from(["01", "28", "29", "30", "31", "32", "00", "5"]),
    ).map("".join)
    clock = st.tuples(
        st.sampled_from(["00", "08", "23", "24", "25", "8", "\u0660\u0668"]),
        st.sampled_from([":00", ":59", ":60", ":5", ""]),
        st.sampled_from(["", "", ":00", ":59", ":60", ":61"]),
        st.sampled_from(["", "", ".", ".5", ",5", ".999999", ".9999999", ".999999999", ".1234567890123"]),
    ).map("".join)
    zone = st.sampled_from(
        ["", "", "", "Z", "z", "+05:30", "-0800", "+23:59", "+24:00", "+10:75", "+99:00", "+05", " +05:00", "UTC"]
    )
    between = st.sampled_from(["T", " ", "t", "  ", "_"])
    both = st.tuples(st.sampled_from(BLANKS), day, between, clock, zone, st.sampled_from(BLANKS)).map("".join)
    alone = st.tuples(st.sampled_from(BLANKS), st.one_of(day, clock), zone, st.sampled_from(BLANKS)).map("".join)
    return st.one_of(both, alone)


# Values as a row of Python's may hold them.


class Colour(enum.Enum):
    RED = "red"
    BLUE = 7


class Word(str, enum.Enum):  # noqa: UP042 (its text is another than that of a StrEnum)
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Stubborn:
    """Has neither a number nor a text."""

    def __float__(self) -> float:
        raise RuntimeError("no number")

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __repr__(self) -> str:
        return "Stubborn()"


BERLIN = ZoneInfo("Europe/Berlin")

with warnings.catch_warnings():  # NumPy 2.5 warns that it will give them up
    warnings.simplefilter("ignore", DeprecationWarning)
    NO_MOMENT, NO_DURATION, FIVE_OF_NO_UNIT = np.datetime64("NaT"), np.timedelta64("NaT"), np.timedelta64(5)

NOTHING: list[Any] = [
    None, float("nan"), np.float64("nan"), np.float32("nan"), np.float16("nan"), np.longdouble("nan"), Decimal("NaN"),
    Decimal("-NaN7"), Decimal("sNaN"), pd.NA, pd.NaT, NO_MOMENT, NO_DURATION, np.timedelta64("NaT", "s"),
    np.ma.masked, np.array(np.nan), pa.scalar(None), "", "NA", "null", " NA ",
]  # fmt: skip
WHOLE_NUMBERS: list[Any] = [
    0, 1, -1, 7, 2**53 + 1, 2**53 + 3, 2**63 - 1, 2**63, -(2**64), 10**25, 10**40, 10**400, -(10**400), 10**5_000, -(10**5_000),
    np.int8(-7), np.uint8(200), np.int64(2**62 + 1), np.uint64(2**64 - 1), True, False, np.True_, np.False_, Level.LOW, Colour.BLUE,
    np.array(7), pa.scalar(7), pa.scalar(True),
]  # fmt: skip
NUMBERS: list[Any] = [
    0.0, -0.0, 0.1, 1.5, 7.0, 1e16, 1e22, 1.7e308, -1.7e308, 5e-324, float("inf"), float("-inf"),
    np.float16(0.1), np.float32(0.1), np.float64(0.1), np.float32("inf"), np.array(1.5), pa.scalar(1.5),
    np.longdouble("0.1"), np.longdouble("1e400"), np.longdouble(2**64 + 1), np.longdouble("inf"),
    Decimal("0.1"), Decimal("7"), Decimal("7.00"), Decimal("-0"), Decimal("1e30"), Decimal("1e-30"), Decimal("1e400"),
    Decimal("1" * 50), Decimal("0." + "3" * 50), Decimal("Infinity"), Decimal("-Infinity"),
    Fraction(1, 3), Fraction(7), Fraction(10**400),
]  # fmt: skip
MOMENTS: list[Any] = [
    date(2024, 2, 29), date.min, date.max, time(8, 15), time(8, 15, 0, 1), time(23, 59, tzinfo=UTC),
    datetime(2024, 2, 29, 8, 15), datetime(2024, 2, 29), datetime.min, datetime.max, datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime(2024, 3, 31, 2, 30, tzinfo=BERLIN), datetime(2024, 2, 29, 23, tzinfo=UTC),
    datetime(2024, 2, 29, 23, 30, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=9))),
    pd.Timestamp("2024-02-29"), pd.Timestamp("2024-02-29 08:15:00.000000001"), pd.Timestamp("1969-12-31 23:59:59.999999999"),
    pd.Timestamp("2024-02-29 23:00", tz="America/New_York"),
    np.datetime64("2024"), np.datetime64("2024-02"), np.datetime64("2024-02-29"), np.datetime64("2024-02-29T08"),
    np.datetime64("2024-02-29T08:15"), np.datetime64("2024-02-29T08:15:00", "s"), np.datetime64("2024-02-29T08:15:00.5", "ms"),
    np.datetime64("1969-12-31T23:59:59.999999999", "ns"), np.datetime64("0000-12-31"), np.datetime64("0001-01-01"),
    np.datetime64("9999-12-31T23:59:59", "s"), np.datetime64("10000-01-01"),
    np.datetime64(2**62, "s"), np.datetime64(-(2**62), "D"), np.array("2024-02-29", "M8[s]"), pa.scalar(datetime(2024, 2, 29, 8)),
]  # fmt: skip
DURATIONS: list[Any] = [
    timedelta(0), timedelta(1), timedelta(microseconds=-1), timedelta.max, timedelta(days=365 * 300, microseconds=1),
    np.timedelta64(1, "W"), np.timedelta64(1, "D"), np.timedelta64(90, "m"), np.timedelta64(-1, "ns"), np.timedelta64(2**62, "s"),
    np.timedelta64(2**60, "ms"), np.timedelta64(1, "Y"), FIVE_OF_NO_UNIT,
    pd.Timedelta(1, "D"), pd.Timedelta(-1, "ns"), pd.Timedelta(1_500, "ns"),
]  # fmt: skip
TEXTS: list[Any] = [
    "a", "b", "red", "unseen", "a|b", " b | NA |a", "|", "ünïcode", "\ud800", "a\udfff", "\ufffd", "\ud83d\ude00",
    "7", "007", "7.0", "0.1", "1e16", "\u0663", "1_000", " 7 ", "9" * 5_000, "-0", "+7", "inf", "true", "True", "FALSE",
    "2024-02-29", "2024-02-29T08:15:00+05:30", "08:15", "0000-01-01", "x" * 10_000, "a\x00b", np.str_("a"), np.str_("\ud800"),
    Colour.RED, Word.RED, pa.scalar("a"), uuid.UUID(int=7), PurePosixPath("a/b"), pd.Period("2024-02", "M"), pd.Interval(0, 5),
    b"ab", b"7", b"", bytearray(b"ab"), memoryview(b"ab"), np.bytes_(b"ab"),
]  # fmt: skip
REFUSED: list[Any] = [1 + 2j, 0j, complex("nan"), np.complex64(1), np.complex128(2j), {"a": 1}, Stubborn()]


def one_of_these(values: Sequence[Any]) -> st.SearchStrategy[Any]:
    """As sampled_from, which hashes and prints the values, but some of these can be neither hashed nor printed."""
    return st.integers(0, len(values) - 1).map(lambda at: values[at])


LIKE = [NOTHING, WHOLE_NUMBERS, NUMBERS, MOMENTS, DURATIONS, TEXTS]


@cache
def single_values() -> st.SearchStrategy[Any]:
    """What one cell may hold."""
    odd = st.one_of(*map(one_of_these, (*LIKE, REFUSED)))
    drawn = st.one_of(
        st.integers(), st.floats(), st.text(max_size=5), spelled_numbers(), spelled_moments(), st.datetimes(), st.timedeltas()
    )
    return st.one_of(odd, odd, drawn)


def collections_of(entries: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Lists, and what else holds several values."""

    def array(values: list[Any]) -> Any:
        made = np.empty(len(values), object)
        made[:] = values
        return made

    def hashable(values: list[Any]) -> list[Any]:
        return [value for value in values if isinstance(value, (str, int, date, type(None)))]

    lists = st.lists(entries, max_size=3)
    made = one_of_these([list, tuple, array, lambda values: set(hashable(values)), lambda values: frozenset(hashable(values))])
    ready: list[Any] = [
        [], (), np.array([]), np.array([1.5, np.nan]), np.array(["2024-02-29"], "M8[ns]"), np.array([["a"], ["b"]]),
        [["a"], []], [[]], [{"a": 1}], range(3), pd.Series([1, 2]), pa.scalar(["a", "b"]),
    ]  # fmt: skip
    return st.one_of(st.tuples(made, lists).map(lambda pair: pair[0](pair[1])), one_of_these(ready))


@cache
def cells(max_rows: int = 4) -> st.SearchStrategy[list[Any]]:
    """The cells of one column: alike, of one type, any single values, collections, or all of these side by side."""
    several = st.one_of(st.none(), collections_of(single_values()))
    by_type = [[value for value in values if type(value) is kind] for values in LIKE for kind in dict.fromkeys(map(type, values))]
    entries = [
        *(one_of_these(values) for values in LIKE),
        *(one_of_these([None, *values]) for values in by_type),
        *[single_values(), several, st.one_of(several, single_values())] * 10,
    ]
    return st.one_of(*(st.lists(some, min_size=1, max_size=max_rows) for some in entries))
