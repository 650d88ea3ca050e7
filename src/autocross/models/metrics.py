"""How good probabilities are: AUC, log-loss, accuracy, each with sample weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.kernels import logistic as kernels
from autocross.options import Metric

Floats = NDArray[np.float64]

MOST_LOG_ODDS = 700.0


def auc(label: NDArray[Any], score: Floats, weight: Floats) -> float:
    """Probability that a positive row scores above a negative one, ties counting half. NaN if a class is absent."""
    positive = label == 1
    up, own, down = score[positive], weight[positive], score[~positive]
    order = np.argsort(down, kind="stable")
    below = np.concatenate([[0.0], np.cumsum(weight[~positive][order])])  # weight of so many of the lowest negatives
    won = sum(below[np.searchsorted(down[order], up, side)] for side in ("left", "right")) / 2
    pairs = float(own.sum() * below[-1])
    return float((own * won).sum()) / pairs if pairs else float("nan")


def log_loss(label: NDArray[Any], score: Floats, weight: Floats) -> float:
    """Mean logistic loss of log-odds."""
    return mean(log_losses(label, score), weight)


def log_losses(label: NDArray[Any], score: Floats) -> Floats:
    """The logistic loss of each row. Log-odds beyond the range of float odds count as the end of that range."""
    losses = np.empty(len(score))
    kernels.row_losses((label == 1).astype(np.uint8), np.exp(np.clip(score, -MOST_LOG_ODDS, MOST_LOG_ODDS)), losses)
    losses[np.isnan(score)] = np.nan
    return losses


def accuracy(label: NDArray[Any], score: Floats, weight: Floats) -> float:
    """Share of rows on the right side of log-odds 0."""
    return mean((score > 0) == (label == 1), weight)


def brier(label: NDArray[Any], score: Floats, weight: Floats) -> float:
    """Mean squared error of the probabilities that log-odds stand for."""
    return mean((chances(score) - (label == 1)) ** 2, weight)


def chances(score: Floats) -> Floats:
    """The probabilities that log-odds stand for."""
    return 1.0 / (1.0 + np.exp(-np.clip(score, -MOST_LOG_ODDS, MOST_LOG_ODDS)))


def mean(values: NDArray[Any], weight: Floats) -> float:
    """The weighted mean, or NaN if there is nothing to average. A small table may have no row that judges."""
    return float(np.average(values, weights=weight)) if weight.any() else float("nan")


def measure(metric: Metric, label: NDArray[Any], score: Floats, weight: Floats) -> float:
    """The metric of log-odds, with a sign such that more is better."""
    if metric == "auc":
        return auc(label, score, weight)
    return -log_loss(label, score, weight) if metric == "log_loss" else accuracy(label, score, weight)


# If there are many rows, or if a score only ranks candidates, rows are counted in bins of their odds, 2^7 for every factor of two.
CUT = 52 - 7
LOWEST, N_BINS = (1023 - 32) << 7, 64 << 7  # from odds 2^-32 to 2^32


def bin_odds(odds: Floats, label: NDArray[Any], weight: NDArray[Any], unit: float) -> NDArray[np.int64]:
    """Summed weight by bin and label, (N_BINS, 2), as whole numbers, so that the order of the rows cannot matter."""
    place = np.clip((odds.view(np.int64) >> CUT) - LOWEST, 0, N_BINS - 1)
    whole = np.rint(weight * unit)
    return np.bincount(2 * place + label, whole, 2 * N_BINS).astype(np.int64).reshape(N_BINS, 2)


def measure_bins(metric: Metric, bins: NDArray[np.int64]) -> float:
    """AUC or accuracy of rows that were counted in bins. Rows of the same bin count as ties."""
    down, up = bins.astype(np.float64).T
    if metric == "accuracy" and bins.any():
        return float((down[: N_BINS // 2].sum() + up[N_BINS // 2 :].sum()) / bins.sum())
    return float((up * (np.cumsum(down) - down / 2)).sum() / (up.sum() * down.sum())) if up.any() and down.any() else float("nan")
