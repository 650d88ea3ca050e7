"""Checks of the facts in a file that may be damaged or forged, before they are used."""

from __future__ import annotations

import math
import re
from typing import Any

from autocross.errors import BundleError

MOST_CHARACTERS = 1 << 16  # most characters of a name or a remark
MOST_BUCKETS = 4  # most buckets for each value that has a code of its own
SHOWN = 200  # characters of a name or a value that a message shows
SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which cannot be printed
DAMAGED = "The file is damaged or was not written by autocross; save or copy it again."

MOST_WEIGHT = 1e100  # no sum of weights within this bound is infinite

Facts = dict[str, Any]


def shown(value: Any) -> str:
    """A value for a message, of limited length. It works for any value."""
    try:
        text = repr(value)
    except Exception:  # a foreign type may raise anything; Python itself refuses to write whole numbers of too many digits
        text = f"a whole number of {value.bit_length():,} bits" if isinstance(value, int) else f"a value of {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def require(condition: bool, complaint: str) -> None:
    """Stop at the first thing that cannot be true of a file of ours."""
    if not condition:
        raise BundleError(f"{complaint}. {DAMAGED}")


def quoted(value: Any) -> str:
    """A name from a file that cannot be trusted, shortened for a message."""
    text = repr(value[: SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MOST_CHARACTERS and SURROGATE.search(value) is None


def is_count(value: Any, least: int = 0) -> bool:
    return type(value) is int and least <= value < 1 << 63


def is_number(value: Any) -> bool:
    return (type(value) is float and math.isfinite(value)) or (type(value) is int and abs(value) < 1 << 64)


def expect_room(entry: Facts, n_values: int, owner: str) -> None:
    """Buckets and width of a vocabulary or a cross."""
    proper = is_count(entry["n_buckets"]) and entry["n_buckets"] <= MOST_BUCKETS * n_values
    require(proper, f"{owner} has no proper number of buckets")
    require(is_count(entry["width"], 1), f"{owner} has no proper width")
