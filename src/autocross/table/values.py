"""One value, as it is read everywhere: what is missing, and what text stands for it.

Batch code applies these functions to the distinct values of a column, the one-row path to the value itself.
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime, time, timedelta
from typing import Any

# Cells that mean "no value" in files and in text columns alike.
MISSING_TEXTS = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>"})

# A boolean may come back from a file as text or as a number.
BOOLEAN_WORDS = {"True": "true", "False": "false", "TRUE": "true", "FALSE": "false", "true": "true", "false": "false"}
BOOLEAN_TEXTS = {**BOOLEAN_WORDS, "1": "true", "0": "false"}

# A date, a time of day, or both with or without a zone; nothing else is read as a moment.
DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
CLOCK = r"[0-9]{2}:[0-5][0-9](:[0-5][0-9](\.[0-9]+)?)?"
ISO_MOMENT = rf"^({DATE}([T ]{CLOCK}(Z|[+-][0-9]{{2}}:?[0-9]{{2}})?)?|{CLOCK})$"
MOMENT = re.compile(ISO_MOMENT)


def is_missing(value: Any) -> bool:
    """None, NaN, and pandas' NA and NaT, which a row taken from a frame may hold."""
    return value is None or (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")


def text_of(value: Any) -> str | None:
    """The text of a categorical value, the same whatever type it comes in; None where it is missing.

    >>> text_of(39353), text_of(39353.0), text_of("39353"), text_of(True), text_of(float("nan"))
    ('39353', '39353', '39353', 'true', None)
    """
    if isinstance(value, str):
        return None if value in MISSING_TEXTS else value
    if is_missing(value):
        return None
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):  # numpy's has had both names
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (datetime, date, time)):
        return moment_text(value)
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if hasattr(value, "__float__") and not hasattr(value, "__len__"):
        return number_text(value)
    if isinstance(value, bytes):
        return value.hex()
    text = str(value)
    return None if text in MISSING_TEXTS else text


def number_text(value: Any) -> str | None:
    """A whole number without a point and with all its digits: an id may have more than a float can hold."""
    if math.isnan(value):
        return None
    return str(int(value)) if math.isfinite(value) and value == int(value) else repr(float(value))


def moment_text(value: datetime | date | time) -> str:
    """The wall clock in ISO form; midnight is the day itself, because some libraries know no dates without a time."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    text = value.replace(tzinfo=None).isoformat()
    return text.removesuffix("T00:00:00")


def stored_text(value: Any, stored: str) -> str | None:
    """The text of a categorical value of a column that training held as booleans or numbers, whatever holds it now.

    >>> stored_text("True", "boolean"), stored_text(0, "boolean"), stored_text("007", "number"), stored_text(True, "number")
    ('true', 'false', '7', '1')
    """
    text = text_of(value)
    if stored == "boolean" and text is not None:
        return BOOLEAN_TEXTS.get(text, text)
    if stored != "number":
        return text
    if text in ("true", "false"):
        return "1" if text == "true" else "0"
    return digits(value) if isinstance(value, str) and text is not None else text


def digits(text: str) -> str | None:
    """A number that came as text, written as the number would be; other texts as they are."""
    for number in (int, float):
        try:
            return text_of(number(text))
        except ValueError:
            continue
    return text


def number_of(value: Any) -> float:
    """A numerical value; NaN where it is missing. Raises ValueError for what is no number.

    >>> number_of("3.5"), number_of(True), number_of(None)
    (3.5, 1.0, nan)
    """
    if isinstance(value, str):
        text = value.strip()
        if "_" in text:
            raise ValueError(f"{value!r} is not a number")
        return math.nan if text in MISSING_TEXTS else float(text)
    if is_missing(value):
        return math.nan
    if isinstance(value, timedelta):
        return value.total_seconds()
    if type(value).__name__ == "timedelta64":
        return number_of(value.astype("timedelta64[us]").item())
    try:
        return float(value)
    except (TypeError, OverflowError):
        raise ValueError(f"{value!r} is not a number") from None


MIDNIGHT_1970 = datetime(1970, 1, 1)
MICROSECOND = timedelta(microseconds=1)


def moment_of(value: Any) -> datetime | None:
    """A point in time as the clock on the wall showed it; None where it is missing. ValueError for anything else."""
    if is_missing(value):
        return None
    if isinstance(value, str):
        text = value.strip()
        if text in MISSING_TEXTS:
            return None
        if not MOMENT.match(text):
            raise ValueError(f"{value!r} is not a date or a time")
        return datetime.fromisoformat(text if "-" in text else f"1970-01-01 {text}").replace(tzinfo=None)
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, time):
        return datetime.combine(MIDNIGHT_1970, value.replace(tzinfo=None))
    if type(value).__name__ == "datetime64":
        return moment_of(value.astype("datetime64[us]").item())
    raise ValueError(f"{value!r} is not a date or a time")
