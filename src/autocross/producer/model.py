"""What a fit leaves behind: the feature producer, and one weight for every code of its fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.encoding.encoder import Encoder
from autocross.features import Field, FieldCodes
from autocross.table.columns import Table

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rule:
    """A hyper-parameter that a rule decided, and why."""

    name: str
    value: str
    why: str


@dataclass(frozen=True)
class About:
    """Where a model comes from; nothing here changes a score."""

    target: str
    classes: tuple[Any, Any]
    metric: str
    score: float | None
    n_rows: int
    rules: tuple[Rule, ...] = ()
    history: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Producer:
    """Rows -> codes of every field."""

    encoder: Encoder

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.encoder.fields

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.fields]

    def codes(self, table: Table) -> list[FieldCodes]:
        """The codes of all rows, field by field."""
        return self.encoder.encode(table)

    def value_names(self) -> list[str]:
        """A name for every code of every field: the columns of the one-hot matrix."""
        return [
            f"{one.name}={self.encoder.describe(at, code)}" for at, one in enumerate(self.fields) for code in range(one.n_codes)
        ]

    def readable(self, codes: list[FieldCodes]) -> dict[str, list[str | None]]:
        """Every field's values in words; those of a multi-value field joined by `|`."""
        columns: dict[str, list[str | None]] = {}
        for at, (one, coded) in enumerate(zip(self.fields, codes, strict=True)):
            used = np.unique(coded.codes).tolist()
            words = {code: self.encoder.describe(at, code) for code in used}
            texts: list[str | None] = [words[code] for code in coded.codes.tolist()]
            if coded.starts is not None:
                bounds = coded.starts.tolist()
                texts = ["|".join(map(str, texts[a:b])) for a, b in pairwise(bounds)]
            columns[one.name] = texts
        return columns


@dataclass(frozen=True)
class Model:
    """A producer with a logistic regression on its codes."""

    producer: Producer
    intercept: float
    weights: tuple[Floats, ...]
    penalties: tuple[tuple[float, float], ...]
    about: About = field(default_factory=lambda: About("", (0, 1), "auc", None, 0))

    def log_odds(self, table: Table) -> Floats:
        """Intercept plus each field's weight, in the order of the fields, as the one-row path adds them."""
        total = np.full(table.n_rows, self.intercept)
        for coded, weight in zip(self.producer.codes(table), self.weights, strict=True):
            if coded.starts is None:
                total += weight[coded.codes]
            else:
                np.add.at(total, np.repeat(np.arange(table.n_rows), np.diff(coded.starts)), weight[coded.codes])
        return total
