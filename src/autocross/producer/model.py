"""The result of a fit: the feature producer, a weight for every code of its fields and crosses, and perhaps additions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from autocross.crossing import CrossCoder, Kind
from autocross.encoding.encoder import Encoder
from autocross.encoding.values import Hashed, Value, without_value
from autocross.errors import AutoCrossError, OptionError
from autocross.features import FIRST, Field, FieldCodes, Penalty
from autocross.options import SIZES
from autocross.producer import merging
from autocross.producer.addition import Addition
from autocross.producer.background import Background, OnFile
from autocross.producer.draws import Draws
from autocross.producer.wording import words
from autocross.table.columns import Table

Floats = NDArray[np.float64]
NEVER_SEEN = "(never seen)"
UNCOUNTED = "This model was saved by an older version, which did not count the training rows of each value. Fit or refit it."


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

    ``n_collisions`` is the number of its values that share a hashed code with another value. ``kind`` is "cross" if every value has
    a weight of its own, or "statistic" if its weight comes from how often it was seen and how its rows turned out.
    """

    fields: tuple[str, ...]
    columns: tuple[str, ...]
    gain: float
    error: float
    n_collisions: int = 0
    kind: Kind = "cross"

    @property
    def order(self) -> int:
        return len(self.columns)


@dataclass(frozen=True)
class Change:
    """A change by hand. ``what`` is "without" if a term was taken out, or "weight" if one of its cells was given another weight;
    then ``value`` is the cell, and ``before`` and ``after`` are its weights. ``note`` says why.

    ``refitted`` says that weights were learned anew since: the rest of the model after a term was taken out, or the weight that had
    been set, which is then gone. There is no date, so that equal changes write equal files.
    """

    what: Literal["without", "weight"]
    term: str
    value: str = ""
    before: float | None = None
    after: float | None = None
    note: str = ""
    refitted: bool = False


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
    n_positive: int | None = None  # unknown in older files
    class_weight: str | tuple[float, float] | None = None  # balanced, or the weights of the negative and of the positive label
    changes: tuple[Change, ...] = ()


def timeless(history: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """A history without the seconds that each step took, so that equal fits write equal bytes, wherever and whenever they ran."""
    return [{name: value for name, value in record.items() if name != "seconds"} for record in history]


@dataclass(frozen=True)
class Producer:
    """Turns rows into the codes of all fields and, behind them, of all crosses. Changes of weights by hand are the last crosses.

    ``crossed_only`` has the fields that were taken out of the model by hand, but stand in crosses. They have no weights.
    """

    encoder: Encoder
    crosses: tuple[CrossCoder, ...] = ()
    crossed_only: frozenset[int] = frozenset()

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        base = self.encoder.fields
        return (*base, *(cross.field([base[number] for number in cross.fields]) for cross in self.crosses))

    @cached_property
    def statistics(self) -> dict[int, CrossCoder]:
        """The statistics among the fields, by their numbers."""
        n_base = len(self.encoder.fields)
        return {n_base + number: cross for number, cross in enumerate(self.crosses) if cross.kind == "statistic"}

    @property
    def parts(self) -> list[int]:
        """The fields and crosses that have weights, by their numbers."""
        return [number for number in range(len(self.fields)) if number not in self.crossed_only]

    @property
    def found(self) -> list[int]:
        """The same without changes by hand: what a fit found and learned weights for."""
        n_base = len(self.encoder.fields)
        return [number for number in self.parts if number < n_base or self.crosses[number - n_base].kind != "change"]

    @cached_property
    def shapes(self) -> tuple[merging.Shape, ...]:
        """The tables of all merged terms."""
        return merging.merged(self)

    @property
    def terms(self) -> list[tuple[int, ...]]:
        """The terms of the regression: single fields, then crosses, each as a tuple of fields."""
        return [*((number,) for number in range(len(self.encoder.fields))), *(cross.term for cross in self.crosses)]

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


@dataclass(frozen=True)
class Model:
    """A producer and the weights of its codes. Additions, such as a network, may add to the log-odds.

    ``counts`` has, for each term, how many training rows had each code and how many of these were positive; models of older files
    have none. ``share`` is the share of the log-odds that comes from statistics. ``kept`` is what is remembered about the training
    rows, or where to read it. ``smaller`` has models of fewer crosses, by how many they have; a fit leaves them in memory, and no
    file has them.
    """

    producer: Producer
    intercept: float
    weights: tuple[Floats, ...]
    penalties: tuple[Penalty, ...]
    about: About = field(default_factory=lambda: About("", (0, 1), "auc", None, 0))
    additions: tuple[Addition, ...] = ()
    counts: tuple[NDArray[np.int64], ...] | None = None
    share: float = 0.0
    kept: Background | OnFile | None = field(default=None, repr=False)
    smaller: Mapping[int, Model] = field(default_factory=dict, compare=False, repr=False)

    @property
    def path(self) -> list[dict[str, Any]]:
        """How many crosses the smaller models and this one have, and their validation scores."""
        models = [*(self.smaller[n] for n in sorted(self.smaller)), self]
        return [{"crosses": len(model.about.crosses), "score": model.about.score} for model in models]

    def at(self, n: int | str) -> Model:
        """The model of the first n crosses, if it was fitted. All crosses are those of this model, which a loaded one has too."""
        n_all, is_number = len(self.about.crosses), isinstance(n, (int, np.integer)) and not isinstance(n, bool)
        if is_number and n in SIZES and int(n) > n_all:
            n = n_all
        if (isinstance(n, str) and n == "all") or (is_number and n == n_all):
            return self
        asked = f"at({n!r}): "
        if not is_number or n not in SIZES:
            sizes = ", ".join(map(str, SIZES))
            raise OptionError(f"{asked}there are models of {sizes} or 'all' crosses. For another number, fit with max_crosses.")
        if n in self.smaller:
            return self.smaller[int(n)]
        if self.additions:
            raise AutoCrossError(f"{asked}a network was trained with all crosses, and fits no others. Fit with max_crosses={n}.")
        raise AutoCrossError(
            f"{asked}this model has no smaller ones. They are fitted at the end of fit if the search came to its own end and there "
            "was time left, and are kept in memory only, neither in a file nor through a refit or a change by hand. Fit with "
            f"max_crosses={n}."
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        return self  # nothing changes a model, so copies of an estimator may share it

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "smaller": {}}  # a pickle is a file too
        return state | {"kept": self.background}  # which may be read on another machine

    @cached_property
    def background(self) -> Background | None:
        """What is remembered about the training rows; None in models of older files. It may have to be read from the file."""
        return self.kept.read(self.producer) if isinstance(self.kept, OnFile) else self.kept

    @property
    def draws(self) -> Draws | None:
        """How far the weights may be off, if the fit found out."""
        return None if self.background is None else self.background.draws

    @cached_property
    def mass(self) -> tuple[NDArray[Any], ...]:
        """How much the training rows of each code weigh, for every term."""
        if self.counts is None:
            raise AutoCrossError(UNCOUNTED)
        mass = None if self.background is None else self.background.mass
        return tuple(counts[:, 0] for counts in self.counts) if mass is None else mass[: len(self.weights)]

    @cached_property
    def means(self) -> Floats:
        """What each term adds to the log-odds of the training rows, on average, weighted as the fit was."""
        total = self.about.n_rows if self.background is None else self.background.total
        return np.array([float(mass @ weight) / total for mass, weight in zip(self.mass, self.weights, strict=True)])

    @property
    def mean_log_odds(self) -> float:
        """The mean log-odds of the training rows."""
        additions = () if self.background is None else self.background.additions
        return self.intercept + float(self.means.sum()) + sum(additions)

    def describe(self, field: int, code: int) -> str:
        """What a code of a field stands for, in words. For a value of a statistic they say what is known about its rows."""
        value = self.producer.describe(field, code)
        if self.counts is None or field not in self.producer.statistics:
            return value
        counts, positive = self.counts[field], self.about.classes[1]
        if code < FIRST:  # values without a code may have been seen, if there were too many
            return NEVER_SEEN if counts[:, 0].sum() == self.about.n_rows else value
        n_rows, n_positive = counts[code].tolist()
        share = f", {100 * n_positive / n_rows:.0f} % {positive if isinstance(positive, str) else 'positive'}" if n_rows else ""
        return f"{value}: {n_rows:,} {'row' if n_rows == 1 else 'rows'}{share}"

    def log_odds(self, table: Table) -> Floats:
        """The log-odds of all rows. Intercept and weights are added in the order of the fields, as for a single row."""
        return self.log_odds_of(self.producer.codes(table), table)

    def log_odds_of(self, codes: Sequence[FieldCodes], table: Table) -> Floats:
        """The same, for rows whose codes are known."""
        total = np.full(table.n_rows, self.intercept)
        for coded, weight in zip(codes, self.weights, strict=True):
            add_weights(total, coded, weight)
        for addition in self.additions:
            total += addition.log_odds(codes, total, table)
        return total


def add_weights(total: Floats, coded: FieldCodes, weight: Floats) -> None:
    """Add the weights of a term to the log-odds of rows with these codes."""
    if coded.starts is None:
        total += weight[coded.codes]
    else:
        np.add.at(total, np.repeat(np.arange(len(total)), np.diff(coded.starts)), weight[coded.codes])
