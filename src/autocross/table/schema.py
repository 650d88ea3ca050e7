"""A kind for every column, and what scoring needs to read the column the same way again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from autocross.errors import OptionError
from autocross.features import Kind

# How the training table held the column. Scoring coerces to it, so types are never inferred twice.
Stored = Literal["text", "number", "boolean", "time", "list"]

KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True)
class ColumnSchema:
    """One column: its kind, why it has it, and how it was stored."""

    name: str
    kind: Kind
    stored: Stored
    reason: str
    separator: str | None = None

    @property
    def is_text(self) -> bool:
        """Whether its values are texts as they stand."""
        return self.kind == "categorical" and self.stored == "text"


Schema = tuple[ColumnSchema, ...]


def text_columns(schema: Schema) -> list[str]:
    """Columns that a CSV reader must leave as text: it would see numbers where their texts are read, or were in training."""
    return [column.name for column in schema if column.kind in ("categorical", "multivalue") or column.stored == "text"]


def parse_kind(column: str, text: str) -> tuple[Kind, str | None]:
    """A user's word for a kind, with the separator of multi-value text.

    >>> parse_kind("genres", "multivalue:|")
    ('multivalue', '|')
    """
    name, _, separator = str(text).partition(":")
    if name not in KINDS:
        raise OptionError(f"Column {column!r} cannot be {text!r}. Choose one of: {', '.join(KINDS)}.")
    return name, separator or None  # type: ignore[return-value]
