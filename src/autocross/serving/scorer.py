"""Scores rows with a saved model: one row as a dict in microseconds, or a whole frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from autocross.crossing import CrossCoder, exact_key
from autocross.errors import TableError
from autocross.features import FIRST, RARE
from autocross.producer.bundle import read
from autocross.producer.model import Model
from autocross.serving import intervals
from autocross.serving.intervals import LEVEL, ScoreInterval
from autocross.serving.one_row import OneRow, compiled
from autocross.serving.reasons import TOP, By, Explanation
from autocross.table.columns import Table
from autocross.table.schema import text_columns

if TYPE_CHECKING:
    from autocross.models.evaluation import Evaluation
    from autocross.serving.drift import Report
    from autocross.serving.scorecard import Scorecard

FEW = 1_000  # rows for which no plan is made, because they take less time than that


LEAST = -709.0  # log-odds at and below which a probability is 0: that of these is 1e-308


def load(path: str | Path) -> Scorer:
    """Load a saved model, ready to score its first row."""
    scorer = Scorer(read(path))
    scorer.prepare()
    return scorer


def probability(log_odds: float) -> float:
    """The probability for log-odds. It uses NumPy's exp, as for many rows, because the exp of the C library may differ in the last
    bit. It never overflows, and never falls as log-odds rise, not even by rounding."""
    return 1.0 / (1.0 + float(np.exp(-log_odds))) if log_odds > LEAST else 0.0


def probabilities(log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
    """The probabilities for many log-odds."""
    return np.where(log_odds > LEAST, 1.0 / (1.0 + np.exp(np.minimum(-log_odds, -LEAST))), 0.0)


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

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self.model}  # all else is made from it

    @cached_property
    def compiled(self) -> OneRow | None:
        """What scores one row by compiled code, if that can be had."""
        return compiled(self.model)

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
        if self.compiled is not None:
            self.compiled.log_odds({})  # loads the machine code
            return
        _ = (self.finders, self.weights) if self.model.additions else (self.plan, self.crosses)
        for addition in self.model.additions:
            addition.prepare()

    def at(self, n: int | str) -> Scorer:
        """A scorer for the model of the first n crosses. A model that was loaded from a file has no smaller ones."""
        return Scorer(self.model.at(n))

    def log_odds_one(self, row: Mapping[str, Any]) -> float:
        """The log-odds of one row, added up in the order of the fields."""
        if type(row) is not dict and not isinstance(row, Mapping):
            raise TableError(f"One row is a mapping of column names to values, not {type(row).__name__}. For many rows call score.")
        if self.compiled is not None:
            return self.compiled.log_odds(row)
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

    def score_one(self, row: Mapping[str, Any], strict: bool = False) -> float:
        """The probability of the positive label for one row. An absent column counts as missing, and unknown columns are ignored;
        with ``strict``, both are errors."""
        if strict:
            self.check_names(row)
        return probability(self.log_odds_one(row))

    def check_names(self, row: Mapping[str, Any]) -> None:
        """Refuse a row that lacks a column that the model uses, or has one that the table of the fit did not have."""
        from autocross.serving.names import check_names

        encoder = self.model.producer.encoder
        check_names(row, [column.column.name for column in encoder.columns], [column.name for column in encoder.schema])

    def table(self, data: Any) -> Table:
        """The rows of a frame or a file as typed columns."""
        from autocross.table.coerce import typed
        from autocross.table.dialect import Dialect
        from autocross.table.frames import to_polars

        schema = self.model.producer.encoder.schema
        return typed(to_polars(data, Dialect(text_columns(schema))), schema)

    def log_odds(self, data: Any) -> NDArray[np.float64]:
        """The log-odds of every row of a frame or a file."""
        table = self.table(data)
        if ("compiled" not in self.__dict__ and table.n_rows < FEW) or self.compiled is None:
            return self.model.log_odds(table)
        from autocross.serving import many_rows  # not above: it imports Numba

        return many_rows.log_odds(self.model, self.compiled.plan, self.compiled.words, table)

    def score(self, data: Any) -> NDArray[np.float64]:
        """The probability of the positive label for every row of a frame or a file."""
        return probabilities(self.log_odds(data))

    def evaluate(
        self,
        data: Any,
        target: Any = None,
        weight: Any = None,
        *,
        threshold: float = 0.5,
        separator: str | None = None,
        decimal: str | None = None,
    ) -> Evaluation:
        """How good the scores of labelled rows are: AUC, calibration, and what is right above and below a threshold.

        ``target`` has the labels, or is the name of their column, by default that of the fit; so does ``weight``. ``separator`` and
        ``decimal`` say how a CSV file is written, if rules cannot find it out.
        """
        from autocross.models.evaluation import check_threshold, evaluation
        from autocross.options import Options
        from autocross.table.ingest import labelled
        from autocross.table.labels import match_labels

        check_threshold(threshold)
        about, schema = self.model.about, self.model.producer.encoder.schema
        target = about.target if target is None else target
        options = Options(separator=separator, decimal=decimal)
        frame, label, counts, name = labelled(data, target, weight, schema, options)
        log_odds = self.log_odds(frame)
        code = match_labels(label, name, about.classes)
        return evaluation(code, log_odds, probabilities(log_odds), counts, threshold)

    def score_interval(self, row: Any, level: float = LEVEL) -> ScoreInterval:
        """The probability of the positive label, and the bounds between which it lies: at this ``level``, in so many of all rows.

        One row is a mapping or a Series and gives three numbers, ``low``, ``probability`` and ``high``. A frame or a file gives
        three arrays.
        """
        return intervals.score_interval(self, row, level)

    @overload
    def explain(self, row: Mapping[str, Any], top: int = TOP, by: By = "column") -> Explanation: ...

    @overload
    def explain(self, row: Any, top: int = TOP, by: By = "column") -> Any: ...

    def explain(self, row: Any, top: int = TOP, by: By = "column") -> Any:
        """Why rows score as they do, compared with the mean of the training rows.

        One row is a mapping, a Series or a frame of one row, and gives an `Explanation`. A frame of more rows gives a frame with
        the contributions of every row, which has a column for each reason. ``by`` says what a reason is: a column of the table, a
        term (all fields and crosses of the same columns), or a single field. ``top`` is how many reasons are printed.
        """
        from autocross.serving import explaining

        return explaining.explain(self, row, top, by)

    def monitor(self, data: Any, target: Any = None, weight: Any = None, reference: Any = None) -> Report:
        """By how much the rows of a frame, or of a file of any size, differ from the rows of the fit. With labels, which
        ``target`` names or has, also how good the model is on them. Scores are compared with those of the rows of ``reference``, if
        it is given, which a model needs that was changed by hand."""
        from autocross.serving.monitor import monitor  # not above: scoring single rows does without it

        return monitor(self.model, data, target, weight, reference)

    def scorecard(
        self, points: float = 600, odds: float = 50, pdo: float = 20, favourable: Any = None, decimals: int = 0
    ) -> Scorecard:
        """The model as a scorecard: whole points, or points with decimals, whose sum is the score of a row.

        ``points`` stand for ``odds`` of the favourable label, and ``pdo`` more points double them. The favourable label is the
        negative one unless ``favourable`` says otherwise.
        """
        from autocross.serving.scorecard import scorecard

        return scorecard(self.model, points, odds, pdo, favourable, decimals)
