"""A second loss, in the one file that a loss needs: the logistic loss, in which a positive row counts twice.

The kernels are those of NumPy, which is enough to try a loss out. Compiled loops, as in `kernels.logistic`, would be the next step.
The notation is explained there.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from autocross.folds import ALL, N_FOLDS
from autocross.models.losses import Loss, register

Array = np.ndarray[Any, Any]


def cost(label: Array) -> Array:
    return np.where(label == 1, 2.0, 1.0)


def slopes(label: Array, odds: Array) -> tuple[Array, Array]:
    """Gradient and curvature of rows."""
    p = odds / (1.0 + odds)
    return cost(label) * (p - label), cost(label) * p * (1.0 - p)


def loss(label: Array, odds: Array) -> Array:
    return cost(label) * np.log1p(np.where(label == 1, 1.0 / odds, odds))


def learning(learners: Array, odds: Array) -> Array:
    """Which models learn from a row, (n_rows, n_models)."""
    first = np.where((learners > N_FOLDS) & (learners != ALL), learners - N_FOLDS, 0)
    model = np.arange(odds.shape[1])
    return (learners[:, None] != model) & (first[:, None] <= model)


def gather(codes: Array, label: Array, weight: Array, learners: Array, odds: Array, unit: float, sums: Array) -> None:
    gather_ragged(codes, np.arange(len(codes) + 1), label, weight, learners, odds, unit, sums)


def gather_ragged(
    codes: Array, starts: Array, label: Array, weight: Array, learners: Array, odds: Array, unit: float, sums: Array
) -> None:
    row = np.repeat(np.arange(len(label)), np.diff(starts))
    learns = learning(learners, odds)
    scaled = weight[:, None] * unit * learns
    g, h = slopes(label[:, None], odds)
    for place, part in enumerate((scaled * g, scaled * h, learns)[: sums.shape[2]]):
        np.add.at(sums[:, :, place], codes, part.astype(np.int64)[row])


def row_losses(label: Array, odds: Array, losses: Array) -> None:
    losses[:] = loss(label, odds)


def total_loss(label: Array, weight: Array, fold: Array, odds: Array, unit: float, losses: Array) -> None:
    lost = (weight[:, None] * unit * loss(label[:, None], odds)).astype(np.int64)
    judges = fold[:, None] == np.arange(odds.shape[1])
    losses += np.stack([np.where(judges, 0, lost).sum(axis=0), np.where(judges, lost, 0).sum(axis=0)], axis=1)


def try_scales(
    codes: Array, label: Array, weight: Array, fold: Array, odds: Array, factors: Array, unit: float, losses: Array
) -> None:
    try_scales_ragged(codes, np.arange(len(codes) + 1), label, weight, fold, odds, factors, unit, losses)


def try_scales_ragged(
    codes: Array, starts: Array, label: Array, weight: Array, fold: Array, odds: Array, factors: Array, unit: float, losses: Array
) -> None:
    row = np.repeat(np.arange(len(label)), np.diff(starts))
    for place in range(len(losses)):
        moved, totals = odds.copy(), np.zeros((odds.shape[1], 2), np.int64)
        np.multiply.at(moved, row, factors[codes, :, place])
        total_loss(label, weight, fold, moved, unit, totals)
        losses[place] += totals[:, 1].sum()


COSTLY_MISSES = Loss("costly misses", sys.modules[__name__], steepest=2.0, largest=2048.0)
register(COSTLY_MISSES)
