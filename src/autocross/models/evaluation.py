"""How good probabilities are on labelled rows: how well they rank, how well calibrated they are, and how a threshold does.

Rows are ordered by their probability and cut into ten parts of equal weight, the deciles. In a calibrated model the mean
probability of a decile is the share of its rows that are positive.

label  : 0 or 1
weight : float64    how much each row counts
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.errors import OptionError
from autocross.models import metrics
from autocross.options import is_whole

Floats = NDArray[np.float64]
N_DECILES = 10


@dataclass(frozen=True)
class Decile:
    """A tenth of the rows, by their probability, from ``low`` to ``high``. ``mean_score`` and ``observed`` are the mean probability
    and the share of positives. Rows of equal probability are in one decile, so a decile may have more rows, or none at all."""

    decile: int
    rows: int
    weight: float
    low: float
    high: float
    mean_score: float
    observed: float


@dataclass(frozen=True)
class Evaluation:
    """Measures of a model on labelled rows. All but ``n_rows`` are weighted. A measure that does not exist is NaN: AUC,
    KS and Gini if one label is absent, precision if no row is predicted to be positive.

    A row is predicted to be positive if its probability is above ``threshold``. ``ece`` is the expected calibration error: how far
    the mean probability of a decile is from its share of positives, on average.
    """

    auc: float
    log_loss: float
    accuracy: float
    n_rows: int
    brier: float
    ece: float
    ks: float
    gini: float
    threshold: float
    precision: float
    recall: float
    true_positives: float
    false_positives: float
    true_negatives: float
    false_negatives: float
    deciles: tuple[Decile, ...]

    @property
    def measures(self) -> dict[str, float | int | None]:
        """All measures but the deciles, by name. None stands for NaN, which JSON does not have."""
        values = {name: value for name, value in asdict(self).items() if name != "deciles"}
        return {name: None if value != value else value for name, value in values.items()}


def check_threshold(threshold: Any) -> float:
    """The probability above which a row is predicted to be positive."""
    proper = (is_whole(threshold) or isinstance(threshold, (float, np.floating))) and 0 <= threshold <= 1
    if not proper:
        raise OptionError(f"threshold={threshold!r} is no probability. Give a number from 0 to 1.")
    return float(threshold)


def evaluation(label: NDArray[Any], log_odds: Floats, score: Floats, weight: Floats, threshold: float = 0.5) -> Evaluation:
    """The measures of rows with these log-odds, which are the probabilities ``score``."""
    threshold, positive = check_threshold(threshold), label == 1
    predicted = score > threshold
    cells = [weight[positive == own][predicted[positive == own] == told].sum() for told, own in ((1, 1), (1, 0), (0, 0), (0, 1))]
    up, wrong_up, down, wrong_down = (int(cell) if cell == int(cell) else float(cell) for cell in cells)
    tenths = deciles(positive, score, weight)
    total, auc = float(weight.sum()), metrics.auc(label, log_odds, weight)
    return Evaluation(
        auc=auc,
        log_loss=metrics.log_loss(label, log_odds, weight),
        accuracy=ratio(up + down, total),
        n_rows=len(label),
        brier=metrics.brier(label, log_odds, weight),
        ece=calibration_error(tenths),
        ks=kolmogorov_smirnov(positive, log_odds, weight),
        gini=2 * auc - 1,
        threshold=threshold,
        precision=ratio(up, up + wrong_up),
        recall=ratio(up, up + wrong_down),
        true_positives=up,
        false_positives=wrong_up,
        true_negatives=down,
        false_negatives=wrong_down,
        deciles=tenths,
    )


def calibration_error(tenths: Sequence[Decile]) -> float:
    """How far the mean probability of a decile is from its share of positives, on average."""
    off = math.fsum(tenth.weight * abs(tenth.mean_score - tenth.observed) for tenth in tenths)
    return ratio(off, math.fsum(tenth.weight for tenth in tenths))


def ratio(part: float, whole: float) -> float:
    """A share, or NaN if there is nothing to have a share of."""
    return part / whole if whole else math.nan


def kolmogorov_smirnov(positive: NDArray[np.bool_], log_odds: Floats, weight: Floats) -> float:
    """The largest distance between the distributions of the scores of both labels: what the best threshold gets right of one label,
    minus what it gets wrong of the other. NaN if a label is absent."""
    order = np.argsort(log_odds, kind="stable")
    last = np.append(np.flatnonzero(np.diff(log_odds[order])), len(order) - 1)  # rows of equal score are on the same side
    up, down = (np.cumsum(np.where(positive == own, weight, 0.0)[order])[last] for own in (True, False))
    return float(np.abs(up / up[-1] - down / down[-1]).max()) if up[-1] and down[-1] else math.nan


def deciles(positive: NDArray[np.bool_], score: Floats, weight: Floats) -> tuple[Decile, ...]:
    """The deciles that have rows, the lowest probabilities first. A row is where the middle of its weight is, as are all rows of
    the same probability."""
    _, of_row = np.unique(score, return_inverse=True)
    weights = np.bincount(of_row, weight)
    if not weights.any():
        return ()
    ends = np.cumsum(weights)
    place = np.minimum((N_DECILES * (ends - weights / 2) / ends[-1]).astype(int), N_DECILES - 1)[of_row]
    found = []
    for number in range(N_DECILES):
        rows = np.flatnonzero((place == number) & (weight > 0))
        if len(rows):
            own, scores = weight[rows], score[rows]
            low, high, mean_score = float(scores.min()), float(scores.max()), metrics.mean(scores, own)
            observed = metrics.mean(positive[rows], own)
            found.append(Decile(number + 1, len(rows), float(own.sum()), low, high, mean_score, observed))
    return tuple(found)
