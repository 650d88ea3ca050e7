"""Scores rows with a model that is described in JSON. The Python export is the text of this file with the model behind it, so it
needs nothing but Python's standard library. It reads values as autocross does: tests compare the two."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import islice, product
from typing import Any, NoReturn

EPOCH = datetime(1970, 1, 1)
CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]+)?)?"
ZONE = r"(?:Z|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9])"
MOMENT = re.compile(rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}(?:[T ]{CLOCK}(?P<zone>{ZONE})?)?|{CLOCK}")
WHOLE = re.compile(r"([+-]?)0*([0-9]+)")
NO_VALUE = ("NAType", "NaTType", "MaskedConstant")  # of pandas and NumPy
BITS = (1 << 64) - 1
P1, P2, P3, P4, P5 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


class Reader:
    """A model, ready to score rows. A row is a mapping from names of columns to values; an absent column counts as missing."""

    def __init__(self, model: dict[str, Any]) -> None:
        if (model["format"], model["version"]) != ("autocross-model", 1):
            raise ValueError(
                f"This is version {model['version']!r} of {model['format']!r}, and only autocross-model 1 can be read."
            )
        self.model = model
        self.missing, self.blanks = frozenset(model["missing"]), model["blanks"]
        self.read = {"number": self.number, "text": self.text, "list": self.entries, "moment": self.moment}
        # The codes of texts and of parts of the calendar, and of keys of crosses.
        self.codes = [
            {value: 2 + place for place, value in enumerate(field.get("texts", field.get("numbers", [])))}
            for field in model["fields"]
        ]
        self.keys = [{key: 2 + place for place, key in enumerate(cross["keys"])} for cross in model["crosses"]]

    # From a row to a score.

    def score_one(self, row: Mapping[str, Any]) -> float:
        """The probability of the positive label."""
        log_odds = self.log_odds_one(row)
        e = math.exp(-abs(log_odds))
        return (1.0 if log_odds >= 0 else e) / (1.0 + e)

    def log_odds_one(self, row: Mapping[str, Any]) -> float:
        """The log-odds of the positive label."""
        total: float = self.model["intercept"]
        for term, codes in self.terms(row):
            for code in codes:
                total += term["weights"][code]
        return total

    def reasons_one(self, row: Mapping[str, Any]) -> dict[str, float]:
        """What each column adds to the log-odds, compared with the mean of the training rows."""
        columns = self.model["columns"]
        reasons = [-column["mean"] for column in columns]
        for term, codes in self.terms(row):
            own = term["columns"] if "columns" in term else [term["column"]]
            added = sum(term["weights"][code] for code in codes)
            for column in own:
                reasons[column] += added / len(own)
        return {column["name"]: reason for column, reason in zip(columns, reasons, strict=True)}

    def terms(self, row: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], tuple[int, ...]]]:
        """All fields and then all crosses, each with its codes in a row: one, or several of a list."""
        values = []
        for column in self.model["columns"]:
            value = row.get(column["name"])
            try:
                values.append(self.read[column["reads"]](value, column))
            except (ValueError, TypeError) as error:
                raise ValueError(f"Column {column['name']!r} holds {value!r:.99}: {error}") from None
        coded = []
        for number, field in enumerate(self.model["fields"]):
            coded.append(self.codes_of(number, field, values[field["column"]]))
            yield field, coded[-1]
        for cross, known in zip(self.model["crosses"], self.keys, strict=True):
            rows = product(*(coded[number] for number in cross["fields"]))
            keys = [self.key_of(codes, cross["sizes"]) for codes in islice(rows, self.model["most_entries"])]
            yield cross, tuple(known.get(key, other(len(known), key, cross["n_buckets"])) for key in keys)

    def codes_of(self, number: int, field: dict[str, Any], value: Any) -> tuple[int, ...]:
        """The codes of one field, given the value of its column."""
        if value is None:
            return (0,)
        if "edges" in field:
            return (2 + bisect_right(field["edges"], value if isinstance(value, float) else micros(value)),)
        if "part" in field:
            return (self.codes[number].get(part_of(value, field["part"]), 1),)
        texts = value if isinstance(value, list) else [value]
        return tuple(sorted({self.code_of(number, field, text) for text in texts}))

    def code_of(self, number: int, field: dict[str, Any], text: str) -> int:
        """The code of one text."""
        known = self.codes[number]
        if text in known or not field["n_buckets"]:
            return known.get(text, 1)
        return other(len(known), xxh64(text.encode("utf-8", "surrogatepass")), field["n_buckets"])

    def key_of(self, codes: tuple[int, ...], sizes: list[int]) -> int:
        """The key of a combination of codes."""
        key, span = codes[0], sizes[0]
        for code, size in zip(codes[1:], sizes[1:], strict=True):
            key, span = key * size + code, span * size
            if span > self.model["modulus"]:
                key %= self.model["modulus"]
        return key

    # From a cell to a value.

    def number(self, value: Any, column: dict[str, Any]) -> float | None:
        """A number; None if it is missing."""
        value = plain(value)
        if value is None or isinstance(value, (bytes, complex)) or several(value):
            return None if value is None else refuse("not a number")
        if isinstance(value, timedelta):
            return seconds(value)
        found = self.spelled(value) if isinstance(value, str) else as_float(value)
        return None if found != found else found

    def text(self, value: Any, column: dict[str, Any]) -> str | None:
        """The text of a category; None if it is missing."""
        text = self.text_of(value)
        if text is None or not column["digits"]:
            return text
        number = self.digits(text) if isinstance(plain(value), str) else text
        return None if number is None else column["words"].get(number, number)

    def entries(self, value: Any, column: dict[str, Any]) -> list[str] | None:
        """The texts of a list; None if there is no list."""
        value = plain(value)
        separator = column.get("separator")
        if isinstance(value, str) and separator is not None:
            if value in self.missing:
                return None
            value = [piece.strip(self.blanks) for piece in value.split(separator)]
        if isinstance(value, (Mapping, Iterator)):
            refuse("not a list of values")
        if several(value):
            return [text for text in map(self.text_of, value) if text is not None]
        return None if (text := self.text_of(value)) is None else [text]

    def moment(self, value: Any, column: dict[str, Any]) -> datetime | None:
        """A moment as the clock on the wall showed it; None if it is missing."""
        value = plain(value)
        if isinstance(value, str):
            text = value.strip(self.blanks)
            if text in self.missing:
                return None
            if form := MOMENT.fullmatch(text):
                bare = text.removesuffix(form["zone"] or "")
                return datetime.fromisoformat(bare if "-" in bare else f"1970-01-01 {bare}")
        if value is None or isinstance(value, datetime):
            return value
        if isinstance(value, date):
            return datetime(value.year, value.month, value.day)
        if isinstance(value, time):
            return datetime.combine(EPOCH, value)
        return refuse("not a date or a time")

    def text_of(self, value: Any) -> str | None:
        """The text of a value, which does not depend on its type."""
        value = plain(value)
        if isinstance(value, str):
            return None if value in self.missing else well_formed(value)
        if value is None or isinstance(value, bool):
            return None if value is None else str(value).lower()
        if isinstance(value, (datetime, date, time)):
            return value.isoformat().removesuffix("T00:00:00")
        if isinstance(value, timedelta):
            return number_text(seconds(value))
        if isinstance(value, bytes):
            return value.hex() or None
        if isinstance(value, complex) or several(value):
            refuse("not a single value")
        if isinstance(value, int):
            return str(Decimal(value))  # which has no limit of digits
        return number_text(value) if hasattr(value, "__float__") else self.text_of(str(value))

    def digits(self, text: str) -> str | None:
        """A text that spells a number, in the form that the number has; other texts are returned as they are."""
        if whole := WHOLE.fullmatch(text.strip(self.blanks)):
            sign, number = whole.groups()
            return f"-{number}" if sign == "-" and number != "0" else str(number)
        try:
            return number_text(self.spelled(text))
        except ValueError:
            return text

    def spelled(self, text: str) -> float:
        """The number that a text spells."""
        bare = text.strip(self.blanks)
        if bare in self.missing:
            return math.nan
        return refuse("not a number") if "_" in bare or not bare.isascii() else float(bare)


def refuse(why: str) -> NoReturn:
    """Say that a value cannot be read."""
    raise ValueError(f"it is {why}.")


def other(n_known: int, key: int, n_buckets: int) -> int:
    """The code of what has none of its own: its bucket or, if there are no buckets, the rare code."""
    return 2 + n_known + key % n_buckets if n_buckets else 1


def plain(value: Any) -> Any:
    """A value without its zone or enumeration; None if it is missing."""
    if isinstance(value, Enum):
        return plain(value.value)
    if type(value).__name__ in NO_VALUE or (isinstance(value, float) and value != value):
        return None
    if isinstance(value, Decimal) and value.is_nan():
        return None
    return value.replace(tzinfo=None) if isinstance(value, (datetime, time)) else value


def several(value: Any) -> bool:
    """Whether this holds several values."""
    return isinstance(value, (Collection, Iterator)) and not isinstance(value, (str, bytes))


def as_float(value: Any) -> float:
    """A number as a float. Beyond the largest float it is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def seconds(value: timedelta) -> float:
    """The length of a duration in seconds."""
    return float((value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds) / 1e6


def number_text(value: Any) -> str | None:
    """The text of a number. A whole number has all its digits and no point."""
    if math.isnan(value):
        return None
    return str(int(value)) if math.isfinite(value) and value == int(value) else repr(float(value))


def well_formed(text: str) -> str:
    """The text, with U+FFFD for half a surrogate pair."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def micros(moment: datetime) -> float:
    """Microseconds since 1970."""
    return float((moment - EPOCH) // timedelta(microseconds=1))


def part_of(moment: datetime, part: str) -> int:
    """A part of the calendar. A week begins with Monday, which is 0."""
    if part == "weekday":
        return moment.weekday()
    return (moment.month + 2) // 3 if part == "quarter" else int(getattr(moment, part))


def xxh64(data: bytes) -> int:
    """XXH64 of the bytes, with seed 0."""

    def left(x: int, by: int) -> int:
        return ((x << by) | (x >> (64 - by))) & BITS

    def mixed(lane: int, value: int) -> int:
        return left((lane + value * P2) & BITS, 31) * P1 & BITS

    at, hashed = 0, P5
    if len(data) >= 32:
        lanes = [(P1 + P2) & BITS, P2, 0, -P1 & BITS]
        while at + 32 <= len(data):
            lanes = [mixed(lane, int.from_bytes(data[at + 8 * i : at + 8 * i + 8], "little")) for i, lane in enumerate(lanes)]
            at += 32
        hashed = sum(left(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & BITS
        for lane in lanes:
            hashed = ((hashed ^ mixed(0, lane)) * P1 + P4) & BITS
    hashed = (hashed + len(data)) & BITS
    while at + 8 <= len(data):
        hashed = (left(hashed ^ mixed(0, int.from_bytes(data[at : at + 8], "little")), 27) * P1 + P4) & BITS
        at += 8
    if at + 4 <= len(data):
        hashed = (left(hashed ^ (int.from_bytes(data[at : at + 4], "little") * P1 & BITS), 23) * P2 + P3) & BITS
        at += 4
    for byte in data[at:]:
        hashed = left(hashed ^ (byte * P5 & BITS), 11) * P1 & BITS
    hashed = (hashed ^ (hashed >> 33)) * P2 & BITS
    hashed = (hashed ^ (hashed >> 29)) * P3 & BITS
    return hashed ^ (hashed >> 32)
