"""One value, as it is read everywhere: what is missing, and what text stands for it.

Batch code applies these functions to the distinct values of a column, the one-row path to the value itself.
"""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta
from typing import Any

# Cells that mean "no value" in files and in text columns alike.
MISSING_TEXTS = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>"})

# A boolean may come back from a file as text or as a number.
BOOLEAN_TEXTS = {"True": "true", "False": "false", "TRUE": "true", "FALSE": "false", "1": "true", "0": "false"}


def text_of(value: Any) -> str | None:
    """The text of a categorical value, the same whatever type it comes in; None where it is missing.

    >>> text_of(39353), text_of(39353.0), text_of("39353"), text_of(True), text_of(float("nan"))
    ('39353', '39353', '39353', 'true', None)
    """
    if isinstance(value, str):
        return None if value in MISSING_TEXTS else value
    if value is None:
        return None
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if hasattr(value, "__float__"):
        number = float(value)
        if math.isnan(number):
            return None
        return str(int(number)) if number.is_integer() else repr(number)
    if isinstance(value, bytes):
        return value.hex()
    text = str(value)
    return None if text in MISSING_TEXTS else text


def number_of(value: Any) -> float:
    """A numerical value; NaN where it is missing. Raises ValueError for what is no number.

    >>> number_of("3.5"), number_of(True), number_of(None)
    (3.5, 1.0, nan)
    """
    if value is None or (isinstance(value, str) and value.strip() in MISSING_TEXTS):
        return math.nan
    if isinstance(value, timedelta):
        return value.total_seconds()
    try:
        return float(value)
    except (TypeError, OverflowError):
        raise ValueError(f"{value!r} is not a number") from None


MIDNIGHT_1970 = datetime(1970, 1, 1)
MICROSECOND = timedelta(microseconds=1)


def moment_of(value: Any) -> datetime | None:
    """A point in time as the clock on the wall showed it; None where it is missing. ValueError for anything else."""
    if value is None or value != value:
        return None
    if isinstance(value, str):
        text = value.strip()
        return None if text in MISSING_TEXTS else datetime.fromisoformat(text).replace(tzinfo=None)
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, time):
        return datetime.combine(MIDNIGHT_1970, value.replace(tzinfo=None))
    if type(value).__name__ == "datetime64":
        return moment_of(value.astype("datetime64[us]").item())
    raise ValueError(f"{value!r} is not a date or a time")
