"""Intervals around scores: between which bounds the probability of a row lies, as far as the rows of the fit can tell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autocross.checks import shown
from autocross.errors import AutoCrossError, OptionError
from autocross.features import FieldCodes
from autocross.producer.draws import Draws
from autocross.producer.model import Model

if TYPE_CHECKING:
    from autocross.serving.scorer import Scorer

LEVEL = 0.9
Floats = NDArray[np.float64]


class ScoreInterval(NamedTuple):
    """The probability of the positive label, and the bounds between which it lies: numbers for one row, arrays for many."""

    low: Any
    probability: Any
    high: Any


def score_interval(scorer: Scorer, data: Any, level: float = LEVEL) -> ScoreInterval:
    """The interval of one row, given as a mapping or a Series, or of all rows of a frame or a file."""
    times = quantile(checked(level), drawn_for(scorer.model).n_draws)
    if hasattr(data, "to_dict") and not hasattr(data, "columns"):  # a Series of pandas
        data = data.to_dict()
    if isinstance(data, Mapping):
        log_odds, codes = np.array([scorer.log_odds_one(data)]), codes_of_row(scorer.model, data)
        low, probability, high = bounds(scorer.model, log_odds, codes, times)
        return ScoreInterval(float(low[0]), float(probability[0]), float(high[0]))
    table = scorer.table(data)
    return ScoreInterval(*bounds(scorer.model, scorer.model.log_odds(table), scorer.model.producer.codes(table), times))


def bounds(model: Model, log_odds: Floats, codes: list[FieldCodes], times: float) -> tuple[Floats, Floats, Floats]:
    """Lower bounds, probabilities and upper bounds, so many standard errors away from the log-odds.

    Fields and crosses count by the rest of what statistics have as their share, and so do their deviations. But a statistic knows
    no more about a value than its rows tell, and a network no more than all rows tell. So blending does not make an error smaller.
    """
    from autocross.serving.scorer import probabilities

    error = drawn_for(model).errors_of_rows(codes, len(log_odds)) / (1.0 - model.share)
    return probabilities(log_odds - times * error), probabilities(log_odds), probabilities(log_odds + times * error)


def codes_of_row(model: Model, row: Mapping[str, Any]) -> list[FieldCodes]:
    """The codes of a single row, as those of many."""
    coded = [codes if isinstance(codes, tuple) else (codes,) for codes in model.producer.codes_one(row)]
    return [FieldCodes(np.array(codes, np.int64), None if len(codes) == 1 else np.array([0, len(codes)])) for codes in coded]


def drawn_for(model: Model) -> Draws:
    """The draws of a model, or an error that says why there are none."""
    if model.draws is not None:
        return model.draws
    raise AutoCrossError(
        "This model does not know the errors of its weights, so it gives no intervals. They are estimated at the end of fit and "
        "refit, unless the time limit or an interrupt ended it; smaller models and files of older versions have none. Fit again "
        "with more time, or refit."
    )


def checked(level: Any) -> float:
    """A level that is a number between 0 and 1."""
    is_number = isinstance(level, (int, float, np.integer, np.floating)) and not isinstance(level, bool)
    if not is_number or not 0.0 < level < 1.0:
        raise OptionError(f"level={shown(level)} is no level of an interval. Give a number between 0 and 1, such as {LEVEL}.")
    return float(level)


def quantile(level: float, n: int) -> float:
    """How many standard errors an interval of this level reaches to each side, if the errors are estimated from n draws: a quantile
    of Student's t with n degrees of freedom, n being even.

    >>> round(quantile(0.9, 10), 4), round(quantile(0.95, 10), 4)
    (1.8125, 2.2281)
    """
    low, high = 0.0, math.pi / 2  # t = sqrt(n) tan(angle); the probability between -t and t is a finite sum in the angle
    for _ in range(60):
        angle = (low + high) / 2
        term = total = 1.0
        for k in range(1, n // 2):
            term *= math.cos(angle) ** 2 * (2 * k - 1) / (2 * k)
            total += term
        low, high = (angle, high) if math.sin(angle) * total < level else (low, angle)
    return math.sqrt(n) * math.tan((low + high) / 2)
