"""How a single value is read, everywhere: whether it is missing, and which number, moment or text it stands for.

For a single row these functions are applied to its values. For a table they are applied to the distinct values of a column, or to
values that no column type can hold. Where `coerce` reads a whole column in a faster way, a test proves that it reads the same.

A value that cannot be read raises ValueError, whose text says what to give instead. The caller knows the column, and names it in a
ColumnError.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np

from autocross.checks import shown as shown
from autocross.errors import ColumnError

# Cells that mean "no value" in files and in text columns alike.
MISSING_TEXTS = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>"})

# What may surround a number, a time or an entry of a list: the white space that polars strips. Python would strip more.
BLANKS = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"

# A boolean may come back from a file as text or as a number.
BOOLEAN_WORDS = {"True": "true", "False": "false", "TRUE": "true", "FALSE": "false", "true": "true", "false": "false"}
BOOLEAN_TEXTS = {**BOOLEAN_WORDS, "1": "true", "0": "false"}
NUMBERS_OF_BOOLEANS = {word: "1" if text == "true" else "0" for word, text in BOOLEAN_WORDS.items()}

# A date, a time of day, or both, with or without a zone. Nothing else is read as a moment.
DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
# 24:00, which Python takes from 3.14 on, is the next day.
CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]+)?)?"
ZONE = r"(?:Z|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9])"
ISO_MOMENT = rf"^(?:{DATE}(?:[T ]{CLOCK}(?P<zone>{ZONE})?)?|{CLOCK})$"
MOMENT = re.compile(ISO_MOMENT)

MIDNIGHT_1970 = datetime(1970, 1, 1)
YEARS = "0001 to 9999"  # those that Python's own dates have
TIME_WAY_OUT = f"Write dates as 2024-12-31 and times as 2024-12-31 23:59:59, of the years {YEARS}."
DURATION_WAY_OUT = f"Give durations in weeks or shorter units, of at most {timedelta.max.days:,} days."
SEVERAL_WAY_OUT = "Give one value."

WHOLE = re.compile(r"([+-]?)0*([0-9]+)")

NO_VALUE = ("NAType", "NaTType", "MaskedConstant")  # pandas' NA and NaT and NumPy's masked, without a look into these libraries
AS_IT_IS = frozenset({type(None), bool, int, str, bytes, date, timedelta, list, tuple, set, frozenset, dict})
FIXED_UNITS = {"W": "weeks", "D": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds", "us": "microseconds"}
FINER_UNITS = ("ns", "ps", "fs", "as")


class SeveralError(ValueError):
    """Several values where there should be one. A list or an array of one value counts as several."""


def way_out_of(error: ValueError, usual: str) -> str:
    """What to give instead of a value that cannot be read."""
    return str(error) if isinstance(error, SeveralError) else usual


def refused(column: str, kind: str, place: str, value: str, way_out: str) -> ColumnError:
    """The error for a value that cannot be read as the kind of its column."""
    return ColumnError(f"Column {column!r} is {kind}, but {place} holds {value}. {way_out}")


def plain(value: Any) -> Any:
    """The value in Python's own types, or None if it is missing.

    NumPy, pandas, pyarrow and enumerations have types of their own for the same values, and several for missing ones. Moments are
    those of the clock on the wall. As in polars, moments are rounded down to microseconds, and durations are rounded towards zero.

    >>> plain(np.float32("nan")), plain(Decimal("NaN")), plain(np.int8(7)), plain(np.datetime64("2024-12-31"))
    (None, None, 7, datetime.datetime(2024, 12, 31, 0, 0))
    """
    kind = type(value)
    if kind in AS_IT_IS:
        return value
    if kind is datetime:
        return value.replace(tzinfo=None)
    if isinstance(value, float):
        return None if value != value else float(value)
    if kind.__name__ in NO_VALUE:
        return None
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, (np.generic, np.ndarray)):
        return of_numpy(value)
    if isinstance(value, Decimal):
        return None if value.is_nan() else value
    if isinstance(value, datetime):
        if not 1 <= value.year <= 9999:  # possible in pandas
            raise ValueError(f"Give times of the years {YEARS}.")
        return datetime(value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond)
    if isinstance(value, time):
        return value.replace(tzinfo=None)
    if isinstance(value, timedelta):
        if abs(value.days) > timedelta.max.days:
            raise ValueError(DURATION_WAY_OUT)
        towards_zero = value.days < 0 and getattr(value, "nanoseconds", 0) > 0  # possible in pandas
        return timedelta(value.days, value.seconds, value.microseconds + towards_zero)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    return plain(value.as_py()) if hasattr(value, "as_py") else value


def of_numpy(value: Any) -> Any:
    """A NumPy value in Python's own types. An array of several values is returned as it is."""
    if isinstance(value, np.ndarray):
        return value if value.ndim else plain(value[()])
    if isinstance(value, (np.datetime64, np.timedelta64)) and np.isnat(value):
        return None
    if isinstance(value, np.datetime64):
        if not 1 <= int(value.astype("datetime64[Y]").astype(np.int64)) + 1970 <= 9999:
            raise ValueError(f"Give times of the years {YEARS}.")
        return value.astype("datetime64[us]").item()
    if isinstance(value, np.timedelta64):
        return duration_of(value)
    if isinstance(value, np.floating):  # long doubles are read as any float is
        return plain(float(value))
    return value.item()


def duration_of(value: np.timedelta64) -> timedelta:
    """A duration. Years and months have no fixed length."""
    unit, step = np.datetime_data(value.dtype)
    try:
        if unit in FINER_UNITS:
            length: timedelta = abs(value).astype("timedelta64[us]").item()
            return -length if value.astype(np.int64) < 0 else length
        return timedelta(**{FIXED_UNITS[unit]: int(value.astype(np.int64)) * step})
    except (KeyError, OverflowError):
        raise ValueError(DURATION_WAY_OUT) from None


def seconds_of(value: timedelta) -> float:
    """The length of a duration in seconds, with the same rounding as for a whole column."""
    return float((value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds) / 1e6


def is_several(value: Any) -> bool:
    """Whether this holds several values."""
    return isinstance(value, (Collection, Iterator)) and not isinstance(value, (str, bytes))


# Texts.


def text_of(value: Any) -> str | None:
    """The text of a categorical value, which does not depend on its type. None if it is missing.

    >>> text_of(39353), text_of(39353.0), text_of("39353"), text_of(True), text_of(float("nan"))
    ('39353', '39353', '39353', 'true', None)
    """
    if type(value) is not str:
        value = plain(value)
    if isinstance(value, str):
        return None if value in MISSING_TEXTS else value if value.isascii() else well_formed(value)
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return whole_text(value)
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, (datetime, date, time)):
        return moment_text(value)
    if isinstance(value, timedelta):
        return number_text(seconds_of(value))
    if isinstance(value, bytes):
        return value.hex() or None
    if isinstance(value, complex):
        raise ValueError("Give real and imaginary parts as two columns.")
    if is_several(value):
        raise SeveralError(SEVERAL_WAY_OUT)
    return foreign_text(value)


def foreign_text(value: Any) -> str | None:
    """The text of a value of an unknown type: that of its number, if it can be converted to one, or else its own."""
    try:
        return number_text(value) if hasattr(value, "__float__") else text_of(str(value))
    except OverflowError:
        return number_text(number_of(value))
    except Exception:  # a foreign type may raise anything
        raise ValueError("Give a value that has a text.") from None


def well_formed(text: str) -> str:
    """The text in a form that files and frames can hold. Half a surrogate pair becomes U+FFFD, like bytes that cannot be
    decoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def whole_text(value: int) -> str:
    """All digits of a whole number."""
    try:
        return str(int(value))
    except ValueError:  # Python refuses more than some thousands of digits; decimals do not
        return str(Decimal(int(value)))


def number_text(value: Any) -> str | None:
    """The text of a number. A whole number has all its digits and no point, because an id may have more digits than a float."""
    if math.isnan(value):
        return None
    return str(int(value)) if math.isfinite(value) and value == int(value) else repr(float(value))


def moment_text(value: datetime | date | time) -> str:
    """The wall clock in ISO form. Midnight is written as the day alone, because some libraries have no dates without a time."""
    return value.isoformat().removesuffix("T00:00:00")


def stored_text(value: Any, stored: str) -> str | None:
    """The text of a categorical value, if training stored the column as booleans or numbers, whatever type the value has now.

    >>> stored_text("True", "boolean"), stored_text(0, "boolean"), stored_text("007", "number"), stored_text(True, "number")
    ('true', 'false', '7', '1')
    """
    if type(value) is not str:
        value = plain(value)
    text = text_of(value)
    if text is None or stored not in ("boolean", "number"):
        return text
    number = digits(text) if isinstance(value, str) else text
    words = BOOLEAN_TEXTS if stored == "boolean" else NUMBERS_OF_BOOLEANS
    return None if number is None else words.get(number, number)


def digits(text: str) -> str | None:
    """A text that spells a number, in the form that `text_of` gives the number; None for NaN. Other texts are returned as they
    are."""
    if whole := WHOLE.fullmatch(text.strip(BLANKS)):
        sign, number = whole.groups()
        return f"-{number}" if sign == "-" and number != "0" else number
    try:
        return number_text(spelled_number(text))
    except ValueError:
        return text


def entries_of(value: Any, separator: str | None) -> list[str] | None:
    """The texts of a multi-value cell. None if the whole cell is missing. Missing entries of a list are skipped.

    >>> entries_of("a | b", "|"), entries_of([1, None, "a"], None), entries_of(1.0, None), entries_of(np.float32("nan"), None)
    (['a', 'b'], ['1', 'a'], ['1'], None)
    """
    value = plain(value)
    if isinstance(value, str) and separator is not None:
        if value in MISSING_TEXTS:
            return None
        texts = [text_of(piece.strip(BLANKS)) for piece in value.split(separator)]
    elif isinstance(value, (Mapping, Iterator)):
        raise ValueError("Give a list of values.")
    elif is_several(value):
        texts = [text_of(entry) for entry in value]
    else:
        return None if (text := text_of(value)) is None else [text]
    return [text for text in texts if text is not None]


# Numbers.


def number_of(value: Any) -> float:
    """A numerical value; NaN if it is missing. Raises ValueError if it is not a number.

    Texts must spell numbers in ASCII. Beyond the largest float a number is infinite, even if it has too many digits to be read.

    >>> number_of("3.5"), number_of(True), number_of(None), number_of(10**400)
    (3.5, 1.0, nan, inf)
    """
    if type(value) is str:
        return spelled_number(value)
    if type(value) is not int:
        value = plain(value)
    if value is None:
        return math.nan
    if isinstance(value, (int, float, Decimal)):
        return as_float(value)
    if isinstance(value, str):
        return spelled_number(value)
    if isinstance(value, timedelta):
        return seconds_of(value)
    if is_several(value):
        raise SeveralError(SEVERAL_WAY_OUT)
    if not isinstance(value, (bytes, complex)):
        with suppress(Exception):  # a foreign type may raise anything
            return as_float(value)
    raise ValueError(f"{shown(value)} is not a number")


def as_float(value: Any) -> float:
    """A number as a float. Beyond the largest float it is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def spelled_number(text: str) -> float:
    """The number that a text spells in ASCII, without underscores, which Python itself would accept."""
    bare = text.strip(BLANKS)
    if bare in MISSING_TEXTS:
        return math.nan
    if "_" in bare or not bare.isascii():
        raise ValueError(f"{shown(text)} is not a number")
    return float(bare)


def whole_number(text: str) -> int | str:
    """Digits as a whole number or, if there are too many for Python to read, as text, which means the same in every column."""
    try:
        return int(text)
    except ValueError:
        return text


# Moments.


def moment_of(value: Any) -> datetime | None:
    """A point in time as the clock on the wall showed it, or None if it is missing. Raises ValueError for anything else."""
    value = plain(value)
    if value is None:
        return None
    if isinstance(value, str):
        text = value.strip(BLANKS)
        if text in MISSING_TEXTS:
            return None
        if form := MOMENT.match(text):
            bare = text.removesuffix(form["zone"] or "")
            return datetime.fromisoformat(bare if "-" in bare else f"1970-01-01 {bare}")
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, time):
        return datetime.combine(MIDNIGHT_1970, value)
    if is_several(value):
        raise SeveralError(SEVERAL_WAY_OUT)
    raise ValueError(f"{shown(value)} is not a date or a time")
