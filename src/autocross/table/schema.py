"""A kind for every column, and what scoring needs to read the column the same way again."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from autocross.errors import OptionError
from autocross.options import Direction

# How the training table stored the column. Scoring converts to it, so types are never inferred twice.
Stored = Literal["text", "number", "boolean", "time", "list"]

# What the cells of a column are read as.
Reading = Literal["text", "number", "list", "moment"]
# The kinds of columns. Columns to ignore are not read. The encoders of the others are in encoding/registry.py.
READINGS: dict[str, Reading | None] = {
    "categorical": "text",
    "numerical": "number",
    "multivalue": "list",
    "time": "moment",
    "ignore": None,
}


@dataclass(frozen=True)
class ColumnSchema:
    """One column: its kind, the reason for that kind, and how it was stored. ``monotone`` says which way the probability of the
    positive label must go as the number rises, if a way is prescribed."""

    name: str
    kind: str
    stored: Stored
    reason: str
    separator: str | None = None
    monotone: Direction | None = None

    @property
    def direction(self) -> int:
        """1 for increasing, -1 for decreasing, 0 for free."""
        return {"increasing": 1, "decreasing": -1, None: 0}[self.monotone]

    def facts(self) -> dict[str, Any]:
        """The column in a form for JSON. A prescribed direction is there only if there is one."""
        return {name: value for name, value in asdict(self).items() if name != "monotone" or value is not None}

    @property
    def reading(self) -> Reading | None:
        """What its cells are read as."""
        return READINGS[self.kind]

    @property
    def is_text(self) -> bool:
        """Whether its values are texts, unchanged."""
        return self.kind == "categorical" and self.stored == "text"


Schema = tuple[ColumnSchema, ...]


def text_columns(schema: Schema) -> list[str]:
    """Columns that a CSV reader must leave as text, because it might see numbers in them where the model needs the text."""
    return [column.name for column in schema if is_read_as_text(column.kind) or column.stored == "text"]


def is_read_as_text(kind: str) -> bool:
    """Whether columns of this kind hold texts, or lists of them."""
    return READINGS.get(kind) in ("text", "list")


def parse_kind(column: str, text: str) -> tuple[str, str | None]:
    """A user's word for a kind, with the separator of multi-value text.

    >>> parse_kind("genres", "multivalue:|")
    ('multivalue', '|')
    """
    name, _, separator = str(text).partition(":")
    if name not in READINGS:
        raise OptionError(f"Column {column!r} cannot be {text!r}. Choose one of: {', '.join(READINGS)}.")
    return name, separator or None
