"""The names of a row, compared with those that a model knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from autocross.checks import shown
from autocross.errors import TableError

MOST_NAMES = 10  # that a message lists


def check_names(row: Mapping[str, Any], used: Sequence[str], known: Sequence[str]) -> None:
    """Refuse a row that lacks a column that is used, or has one that is not known. Columns that are not used may be absent.

    The message has the name that is nearest: a name is rather misspelt than absent.
    """
    if not isinstance(row, Mapping):
        raise TableError(f"One row is a mapping of column names to values, not {type(row).__name__}.")
    unknown = [name for name in row if name not in {*known}]
    absent = [name for name in used if name not in row]
    for name in sorted(absent, key=lambda name: not near(name, unknown)):  # those that are misspelt come first
        raise TableError(f"The row has no column {shown(name)}. {nearest(name, unknown or list(row), 'It has')}")
    for name in unknown:
        absent = [one for one in known if one not in row]
        raise TableError(
            f"The row has a column {shown(name)}, which the model does not know. {nearest(name, absent or known, 'It knows')}"
        )


def nearest(name: Any, names: Sequence[Any], has: str) -> str:
    """A sentence about the name that is nearest or, if none is near, about all of them."""
    texts = [one for one in names if isinstance(one, str)]
    close = near(name, names)
    listed = close or texts[:MOST_NAMES]
    more = f" and {len(texts) - len(listed):,} more" if not close and len(texts) > len(listed) else ""
    way_out = "Correct the name, or score without strict."
    return f"{has} {', '.join(map(shown, listed)) or 'none'}{more}. {way_out}"


def near(name: Any, names: Sequence[Any]) -> list[str]:
    """The name that is nearest, if one is near."""
    return get_close_matches(name, [one for one in names if isinstance(one, str)], n=1) if isinstance(name, str) else []
