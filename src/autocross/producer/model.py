"""The result of a fit: the feature producer, a weight for every code of its fields and crosses, and perhaps additions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.crossing import CrossCoder
from autocross.encoding.encoder import Encoder
from autocross.encoding.values import Hashed, Value, without_value
from autocross.errors import OptionError
from autocross.features import FIRST, Field, FieldCodes, Penalty
from autocross.producer.addition import Addition
from autocross.producer.wording import words
from autocross.table.columns import Table

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rule:
    """A hyper-parameter that a rule decided, and why."""

    name: str
    value: str
    why: str


@dataclass(frozen=True)
class FoundCross:
    """A cross of the model: its fields and columns, and by how much it lowered the loss per row on fresh folds, with the standard
    error.

    ``n_collisions`` is the number of its values that share a hashed code with another value.
    """

    fields: tuple[str, ...]
    columns: tuple[str, ...]
    gain: float
    error: float
    n_collisions: int = 0

    @property
    def order(self) -> int:
        return len(self.columns)


@dataclass(frozen=True)
class About:
    """Where a model comes from; nothing here changes a score."""

    target: str
    classes: tuple[Any, Any]
    metric: str
    score: float | None
    n_rows: int
    crosses: tuple[FoundCross, ...] = ()
    rules: tuple[Rule, ...] = ()
    history: tuple[dict[str, Any], ...] = ()


def timeless(history: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """A history without the seconds that each step took, so that equal fits write equal bytes, wherever and whenever they ran."""
    return [{name: value for name, value in record.items() if name != "seconds"} for record in history]


@dataclass(frozen=True)
class Producer:
    """Turns rows into the codes of all fields and, behind them, of all crosses."""

    encoder: Encoder
    crosses: tuple[CrossCoder, ...] = ()

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        base = self.encoder.fields
        return (*base, *(cross.field([base[number] for number in cross.fields]) for cross in self.crosses))

    @property
    def terms(self) -> list[tuple[int, ...]]:
        """The terms of the regression: single fields, then crosses, each as a tuple of fields."""
        return [*((number,) for number in range(len(self.encoder.fields))), *(cross.fields for cross in self.crosses)]

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    def codes(self, table: Table) -> list[FieldCodes]:
        """The codes of all rows, field by field."""
        coded = self.encoder.encode(table)
        return [*coded, *(cross.encode([coded[number] for number in cross.fields]) for cross in self.crosses)]

    def codes_one(self, row: Mapping[str, Any]) -> list[Any]:
        """The codes of one row, field by field. A field that may have several codes has a tuple."""
        coded = self.encoder.encode_one(row)
        return [*coded, *(cross.encode_one([coded[number] for number in cross.fields]) for cross in self.crosses)]

    def value(self, field: int, code: int) -> Value | tuple[Value, ...]:
        """What a code of a field stands for. For a cross it is the values of all its fields."""
        n_base = len(self.encoder.fields)
        if field < n_base:
            return self.encoder.value(field, code)
        if code < FIRST:
            return without_value(code)
        cross, number = self.crosses[field - n_base], code - FIRST
        if number >= len(cross.values):
            return Hashed(number - len(cross.values))
        return tuple(
            self.encoder.value(part, part_code) for part, part_code in zip(cross.fields, cross.values[number].tolist(), strict=True)
        )

    def describe(self, field: int, code: int) -> str:
        """What a code of a field stands for, in words."""
        value = self.value(field, code)
        if not isinstance(value, tuple):
            return words(value)
        parts = self.crosses[field - len(self.encoder.fields)].fields
        return " x ".join(
            f"{self.encoder.fields[part].name}={words(part_value)}" for part, part_value in zip(parts, value, strict=True)
        )

    def value_names(self) -> list[str]:
        """A name for every code of every field: the columns of the one-hot matrix."""
        return [
            f"{field.name}={self.describe(number, code)}"
            for number, field in enumerate(self.fields)
            for code in range(field.n_codes)
        ]

    def code_columns(self, codes: list[FieldCodes]) -> dict[str, NDArray[Any]]:
        """The codes of every field as a column. A field that may have several codes per row is an error."""
        for name, coded in zip(self.names, codes, strict=True):
            if coded.starts is not None:
                raise OptionError(
                    f"Field {name!r} has several codes a row, which a column of codes cannot hold. Ask for readable values."
                )
        return {name: coded.codes for name, coded in zip(self.names, codes, strict=True)}

    def readable(self, codes: list[FieldCodes]) -> dict[str, list[str | None]]:
        """The values of every field in words. Several values of a multi-value field are joined by `|`."""
        columns: dict[str, list[str | None]] = {}
        for number, (name, coded) in enumerate(zip(self.names, codes, strict=True)):
            used = np.unique(coded.codes).tolist()
            words = {code: self.describe(number, code) for code in used}
            texts: list[str | None] = [words[code] for code in coded.codes.tolist()]
            if coded.starts is not None:
                bounds = coded.starts.tolist()
                texts = ["|".join(map(str, texts[a:b])) for a, b in pairwise(bounds)]
            columns[name] = texts
        return columns


@dataclass(frozen=True)
class Model:
    """A producer and the weights of its codes. Additions, such as a network, may add to the log-odds."""

    producer: Producer
    intercept: float
    weights: tuple[Floats, ...]
    penalties: tuple[Penalty, ...]
    about: About = field(default_factory=lambda: About("", (0, 1), "auc", None, 0))
    additions: tuple[Addition, ...] = ()

    def log_odds(self, table: Table) -> Floats:
        """The log-odds of all rows. Intercept and weights are added in the order of the fields, as for a single row."""
        total = np.full(table.n_rows, self.intercept)
        codes = self.producer.codes(table)
        for coded, weight in zip(codes, self.weights, strict=True):
            if coded.starts is None:
                total += weight[coded.codes]
            else:
                np.add.at(total, np.repeat(np.arange(table.n_rows), np.diff(coded.starts)), weight[coded.codes])
        for addition in self.additions:
            total += addition.log_odds(codes[: len(self.producer.encoder.fields)])
        return total
