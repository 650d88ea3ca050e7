"""Scores rows with a saved model: one row as a dict in microseconds, or a whole frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.crossing import CrossCoder, exact_key
from autocross.errors import TableError
from autocross.features import FIRST, RARE
from autocross.producer.bundle import read
from autocross.producer.model import Model
from autocross.table.schema import text_columns


def load(path: str | Path) -> Scorer:
    """Load a saved model, ready to score its first row."""
    scorer = Scorer(read(path))
    scorer.prepare()
    return scorer


@dataclass(frozen=True)
class Reason:
    """What one field adds to the log-odds of a row."""

    field: str
    value: str
    contribution: float


@dataclass(frozen=True)
class Explanation:
    """Why a row scores as it does: the intercept and all contributions add up to the log-odds."""

    probability: float
    log_odds: float
    intercept: float
    reasons: tuple[Reason, ...]

    def strongest(self, n: int = 5) -> list[Reason]:
        """The reasons that move the score most, up or down."""
        return sorted(self.reasons, key=lambda reason: -abs(reason.contribution))[:n]


def probability(log_odds: float) -> float:
    """The probability for log-odds. It uses NumPy's exp, as for many rows, because the exp of the C library may differ in the last
    bit; it never overflows."""
    e = float(np.exp(-abs(log_odds)))
    return (1.0 if log_odds >= 0 else e) / (1.0 + e)


def probabilities(log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
    """The probabilities for many log-odds."""
    e = np.exp(-np.abs(log_odds))
    return np.where(log_odds >= 0, 1.0, e) / (1.0 + e)


def adder(cross: CrossCoder, weight: list[float], ragged: bool) -> Callable[[float, Sequence[Any]], float]:
    """A function that adds the weight of a cross to the log-odds so far, given the codes of a row. Where possible, weights are
    found by the key of the cross."""
    key = exact_key(cross.fields, cross.sizes)
    if ragged or cross.n_buckets or key is None:

        def by_code(total: float, codes: Sequence[Any]) -> float:
            for code in cross.encode_one([codes[number] for number in cross.fields]):
                total += weight[code]
            return total

        return by_code
    get, rare = dict(zip(cross.keys.tolist(), weight[FIRST:], strict=True)).get, weight[RARE]
    return lambda total, codes: total + get(key(codes), rare)


def finder(cross: CrossCoder, ragged: bool) -> Callable[[Sequence[Any]], Any]:
    """A function that finds the code of a cross, given the codes of a row, or a tuple of codes if there may be several."""
    key = exact_key(cross.fields, cross.sizes)
    if ragged:
        return lambda codes: cross.encode_one([codes[number] for number in cross.fields])
    if cross.n_buckets or key is None:
        return lambda codes: cross.encode_one([codes[number] for number in cross.fields])[0]
    get = cross.code.get
    return lambda codes: get(key(codes), RARE)


class Scorer:
    """Scores rows with a model. ``score`` is the probability of the positive label."""

    def __init__(self, model: Model) -> None:
        self.model = model

    @cached_property
    def plan(self) -> list[tuple[str, Callable[[Any], Sequence[float]]]]:
        """For each column, the function that says what its value adds to the log-odds of one row. It is built on first use, because
        scoring many rows does not need it."""
        plan, first = [], 0
        for column in self.model.producer.encoder.columns:
            last = first + len(column.fields)
            weights = [weight.tolist() for weight in self.model.weights[first:last]]
            plan.append((column.column.name, column.contributions(weights)))
            first = last
        return plan

    @cached_property
    def crosses(self) -> list[Callable[[float, Sequence[Any]], float]]:
        """For each cross, the function that adds its weight to the log-odds of one row."""
        producer = self.model.producer
        ragged = {number for number, (column, _) in enumerate(producer.encoder.places) if column.ragged}
        weights = self.model.weights[len(producer.encoder.fields) :]
        return [
            adder(cross, weight.tolist(), not ragged.isdisjoint(cross.fields))
            for cross, weight in zip(producer.crosses, weights, strict=True)
        ]

    @cached_property
    def finders(self) -> list[Callable[[Sequence[Any]], Any]]:
        """For each cross, the function that finds its code. Additions want to know the codes."""
        producer = self.model.producer
        ragged = {number for number, (column, _) in enumerate(producer.encoder.places) if column.ragged}
        return [finder(cross, not ragged.isdisjoint(cross.fields)) for cross in producer.crosses]

    @cached_property
    def weights(self) -> list[list[float]]:
        """The weights of all fields and crosses, by their codes."""
        return [weight.tolist() for weight in self.model.weights]

    def prepare(self) -> None:
        """Build everything that scoring one row needs, before the first row comes."""
        _ = (self.finders, self.weights) if self.model.additions else (self.plan, self.crosses)
        for addition in self.model.additions:
            addition.prepare()

    def at(self, n: int | str) -> Scorer:
        """A scorer for the model of the first n crosses. A model that was loaded from a file has no smaller ones."""
        return Scorer(self.model.at(n))

    def log_odds_one(self, row: Mapping[str, Any]) -> float:
        """The log-odds of one row, added up in the order of the fields."""
        if not isinstance(row, Mapping):
            raise TableError(f"One row is a mapping of column names to values, not {type(row).__name__}. For many rows call score.")
        if self.model.additions:
            return self.with_additions(row)[-1]
        total = self.model.intercept
        get = row.get
        for name, look_up in self.plan:
            for contribution in look_up(get(name)):
                total += contribution
        if self.crosses:
            codes = self.model.producer.encoder.encode_one(row)
            for add in self.crosses:
                total = add(total, codes)
        return total

    def with_additions(self, row: Mapping[str, Any]) -> list[float]:
        """The log-odds of one row: those of the regression, and then with each addition. The codes are needed here, so weights are
        looked up by them."""
        codes, total = self.model.producer.encoder.encode_one(row), self.model.intercept
        for find in self.finders:
            codes.append(find(codes))
        for weight, code in zip(self.weights, codes, strict=True):
            if type(code) is tuple:
                for one in code:
                    total += weight[one]
            else:
                total += weight[code]
        steps = [total]
        for addition in self.model.additions:
            steps.append(steps[-1] + addition.log_odds_one(codes, steps[-1], row))
        return steps

    def score_one(self, row: Mapping[str, Any]) -> float:
        """The probability of the positive label for one row. An absent column counts as missing; unknown columns are ignored."""
        return probability(self.log_odds_one(row))

    def log_odds(self, data: Any) -> NDArray[np.float64]:
        """The log-odds of every row of a frame or a file."""
        from autocross.table.coerce import typed
        from autocross.table.dialect import Dialect
        from autocross.table.frames import to_polars

        schema = self.model.producer.encoder.schema
        return self.model.log_odds(typed(to_polars(data, Dialect(text_columns(schema))), schema))

    def score(self, data: Any) -> NDArray[np.float64]:
        """The probability of the positive label for every row of a frame or a file."""
        return probabilities(self.log_odds(data))

    def explain_one(self, row: Mapping[str, Any]) -> Explanation:
        """The contribution of every field to one row's log-odds, and that of each addition as a whole."""
        log_odds = self.log_odds_one(row)
        producer = self.model.producer
        reasons = []
        for number, (coded, field) in enumerate(zip(producer.codes_one(row), producer.fields, strict=True)):
            codes = coded if isinstance(coded, tuple) else (coded,)
            value = " | ".join(self.model.describe(number, code) for code in codes) or "(empty)"
            reasons.append(Reason(field.name, value, sum(float(self.model.weights[number][code]) for code in codes)))
        if self.model.additions:
            steps = self.with_additions(row)
            for addition, (before, after) in zip(self.model.additions, pairwise(steps), strict=True):
                reasons.append(Reason(addition.reason, "all fields", after - before))
        return Explanation(probability(log_odds), log_odds, self.model.intercept, tuple(reasons))
