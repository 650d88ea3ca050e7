"""Field-wise logistic regression: how much one candidate cross adds, its weights alone learning.

The odds of the current set are frozen. With one code a row the candidate's weights do not interact: one pass for the
sums, one step from zero under each penalty, one pass over the rows left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autocross.blocks import Block, Cross
from autocross.crossing import MOST_ENTRIES, axis_of, cross_key, pair_up
from autocross.engines import Engine
from autocross.features import FIRST, RARE, Chain, Field, FieldCodes, least_rows
from autocross.kernels import logistic as kernels
from autocross.models.logistic import Penalty, Regression
from autocross.models.metrics import bin_odds, measure_bins
from autocross.options import Metric

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

PLAIN = (Penalty(0.0, 3.0), Penalty(0.0, 30.0), Penalty(0.0, 300.0))
SMOOTH = (Penalty(0.0, 1.0, 30.0), Penalty(0.0, 1.0, 300.0))  # where a cross has neighbours
# While candidates compete, keys beyond this many share codes. Primes, so that regular keys do not collide regularly.
SLOTS = dict(zip(range(12, 18), (4093, 8191, 16381, 32749, 65521, 131071), strict=True))


@dataclass(frozen=True)
class Candidate:
    """A cross in competition, and how many codes its fields have.

    ``width`` is the most entries a row has in it, ``axis`` the field along which it has neighbours.
    """

    cross: Cross
    sizes: tuple[int, ...]
    width: int
    axis: int | None = None

    def n_slots(self, n_rows: int) -> int:
        """Slots for all keys, or about one a row where there would be more."""
        bits = min(max(math.ceil(math.log2(n_rows)), min(SLOTS)), max(SLOTS))
        return min(math.prod(self.sizes), SLOTS[bits])

    def chain(self, n_slots: int, code: NDArray[np.uint32]) -> Chain | None:
        """Codes of slots that differ along the axis only are neighbours, unless keys share slots."""
        if self.axis is None or math.prod(self.sizes) > n_slots:
            return None
        size, inner = self.sizes[self.axis], math.prod(self.sizes[self.axis + 1 :])
        slot = np.arange(n_slots).reshape(-1, size, inner).transpose(0, 2, 1).ravel()
        slot = slot[code[slot] >= FIRST]
        place = slot // inner % size
        linked = (np.diff(slot - place * inner) == 0) & (place[:-1] >= FIRST)
        gap = np.where(linked, np.diff(place), 0).astype(np.float64)
        return Chain(np.concatenate([np.arange(FIRST), code[slot]]), np.concatenate([np.zeros(FIRST + 1), gap]))


def candidate(cross: Cross, fields: Sequence[Field]) -> Candidate:
    """The candidate that crosses these of the fields."""
    parts = [fields[at] for at in cross]
    width = min(math.prod(part.width for part in parts), MOST_ENTRIES)
    return Candidate(cross, tuple(part.n_codes for part in parts), width, axis_of(parts))


# Tasks: the candidate is laid out in the block, then its codes learn and are judged.


def lay_out(block: Block, one: Candidate, n_slots: int, learned: int, judged: int) -> Ints:
    """Put the slot of each of the first rows into the block; returns how many of those that learn each slot has."""
    last = block.among_first(max(learned, judged))
    columns, starts = pair_up([block.codes[(at,)].between(0, last) for at in one.cross])
    keys = cross_key(columns, one.sizes)
    block.trial = FieldCodes((keys % n_slots if math.prod(one.sizes) > n_slots else keys).astype(np.uint32), starts)
    seen = block.trial.between(0, block.among_first(learned))
    entries = seen.codes if seen.starts is None else seen.codes[: seen.starts[-1]]
    return np.bincount(entries, minlength=n_slots)


def gather(block: Block, code: NDArray[np.uint32], n_codes: int, first_n: int, unit: float) -> Ints:
    """Give each slot its code; then gradient, curvature and rows of every code: (n_codes, n_models, 3)."""
    block.trial = coded = FieldCodes(code[block.trial.codes], block.trial.starts)
    last = block.among_first(first_n)
    sums = np.zeros((n_codes, block.odds.shape[1], 3), np.int64)
    rows = (block.label[:last], block.weight[:last], block.fold[:last], block.odds[:last], unit, sums)
    coded = coded.between(0, last)
    if coded.starts is None:
        kernels.gather(coded.codes, *rows)
    else:
        kernels.gather_ragged(coded.codes, coded.starts, *rows)
    return sums


def judge(block: Block, factors: Floats, first_n: int, unit: float) -> Ints:
    """Loss on the left-out rows for each try."""
    last = block.among_first(first_n)
    coded = block.trial.between(0, last)
    losses = np.zeros(factors.shape[2], np.int64)
    rows = (block.label[:last], block.weight[:last], block.fold[:last], block.odds[:last], factors, unit, losses)
    if coded.starts is None:
        kernels.try_scales(coded.codes, *rows)
    else:
        kernels.try_scales_ragged(coded.codes, coded.starts, *rows)
    return losses


def base_loss(block: Block, first_n: int, unit: float) -> Ints:
    """Loss of the current set on the left-out rows."""
    last = block.among_first(first_n)
    found = np.zeros((block.odds.shape[1], 2), np.int64)
    kernels.total_loss(block.label[:last], block.weight[:last], block.fold[:last], block.odds[:last], unit, found)
    return np.array([found[:, 1].sum()], np.int64)


def tally(block: Block, factors: Floats, first_n: int, trial: bool) -> Ints:
    """Left-out rows by try, bin of their odds and label, in 2^-20 of their weight; ``trial`` tells whether the candidate counts."""
    last = block.among_first(first_n)
    rows = np.flatnonzero(block.fold[:last] < block.odds.shape[1])
    fold, label = block.fold[rows], block.label[rows]
    weight = np.rint(block.weight[rows] * 2.0**20)
    coded = block.trial.between(0, last)
    found = []
    for t in range(factors.shape[2]):
        odds = block.odds[rows, fold]
        if trial:
            mine = coded.take(rows)
            of_row = np.arange(len(rows)) if mine.starts is None else np.repeat(np.arange(len(rows)), np.diff(mine.starts))
            np.multiply.at(odds, of_row, factors[mine.codes, fold[of_row], t])
        found.append(bin_odds(odds, label, weight))
    return np.stack(found)


@dataclass(frozen=True)
class Contest:
    """What candidates compete in, and the penalties each may try, with neighbours held together or without."""

    metric: Metric
    plain: tuple[Penalty, ...]
    smooth: tuple[Penalty, ...] = ()


@dataclass(frozen=True)
class Rung:
    """Rows a rung learns from and is judged on, how many a value needs to have a weight, and the score of the current set there."""

    learned: int
    judged: int
    least: int
    score: float


def rung(engine: Engine, regression: Regression, contest: Contest, learned: int, judged: int, n_rows: int) -> Rung:
    """A rung of the tournament."""
    least = least_rows(regression.min_count, learned / n_rows)
    if contest.metric == "log_loss":
        unit = regression.loss_unit
        return Rung(learned, judged, least, -float(engine.total(base_loss, judged, unit)[0]) / unit / regression.mean_weight)
    (bins,) = engine.total(tally, np.ones((1, 1, 1)), judged, False)
    return Rung(learned, judged, least, measure_bins(contest.metric, bins))


def gain(engine: Engine, regression: Regression, contest: Contest, one: Candidate, on: Rung) -> tuple[float, Penalty]:
    """How much the candidate raises the score of the left-out rows, and under which penalty. Losses are summed over rows."""
    n_slots = one.n_slots(on.learned)
    counts = engine.total(lay_out, one, n_slots, on.learned, on.judged)
    # A slot too rare to have a weight of its own needs no code either: what is left fits the cache.
    frequent = np.flatnonzero(counts >= on.least)
    code = np.full(n_slots, RARE, np.uint32)
    code[frequent] = np.arange(FIRST, FIRST + len(frequent))
    found = engine.total(gather, code, FIRST + len(frequent), on.learned, regression.unit)
    tied = found[:, :, 2] < on.least
    tied[:FIRST] = False
    kernels.tie(found, tied)
    chain = one.chain(n_slots, code) if contest.smooth else None
    tries = contest.plain if chain is None else contest.plain + contest.smooth
    factors = np.empty((len(found), regression.n_models, len(tries)))
    grid = np.array([(penalty.l1, penalty.l2) for penalty in contest.plain])
    kernels.first_steps(found, regression.unit, tied, grid, one.width, factors)
    if chain is not None:
        zero, step = np.zeros(found.shape[:2]), np.empty(found.shape[:2])
        for t, penalty in enumerate(contest.smooth, start=len(contest.plain)):
            kernels.chained_step(found, regression.unit, zero, tied, chain.order, chain.gap, penalty.l2, penalty.smooth, step)
            factors[:, :, t] = np.exp(step)
    if contest.metric == "log_loss":
        unit = regression.loss_unit
        scores = -engine.total(judge, factors, on.judged, unit) / unit / regression.mean_weight
    else:
        scores = np.array([measure_bins(contest.metric, bins) for bins in engine.total(tally, factors, on.judged, True)])
    best = int(np.argmax(scores))
    return float(scores[best]) - on.score, tries[best]
