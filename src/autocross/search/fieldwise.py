"""Field-wise logistic regression: how much a candidate cross adds if only its own weights learn.

The odds of the current set are frozen. Each row has one code of the candidate, so its weights do not interact. One pass over the
rows gathers the sums, the weights take one step from zero under each penalty, and one pass over the rows left out judges the steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.blocks import Block, Cross
from autocross.crossing import MOST_ENTRIES, axis_of, cross_key, in_parts, pair_up
from autocross.engines import Engine, changes
from autocross.features import FIRST, RARE, Chain, Field, FieldCodes, Penalty, joined, least_rows
from autocross.kernels import lookup, slots
from autocross.kernels import steps as kernels
from autocross.models import monotone
from autocross.models.logistic import Regression, left_out_bins
from autocross.models.losses import Loss
from autocross.models.metrics import bin_odds, measure_bins
from autocross.options import Metric

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# While candidates compete, keys share slots if there are more keys than this. The numbers are primes, so that regular keys do not
# collide regularly.
SLOTS = dict(zip(range(12, 18), (4093, 8191, 16381, 32749, 65521, 131071), strict=True))


@dataclass(frozen=True)
class Candidate:
    """A cross that competes, and how many codes its fields have.

    ``width`` is the largest number of entries that a row has in it. ``axis`` is the field along which it has neighbours, and
    ``direction`` says whether its weights must be monotone there. ``gain`` is what it gained when it was last judged, and
    ``penalty`` the penalty under which it gained most.
    """

    cross: Cross
    sizes: tuple[int, ...]
    width: int
    axis: int | None = None
    direction: int = 0
    gain: float = -math.inf
    penalty: Penalty = Penalty()

    def n_slots(self, n_rows: int) -> int:
        """The number of slots: one for each possible key, or about one for each row if that is less."""
        bits = min(max(math.ceil(math.log2(n_rows)), min(SLOTS)), max(SLOTS))
        return min(math.prod(self.sizes), SLOTS[bits])

    def chain(self, n_slots: int, code: NDArray[np.uint32]) -> Chain | None:
        """The chain of the slots' codes: slots that differ only along the axis are neighbours. None if keys share slots."""
        if self.axis is None or math.prod(self.sizes) > n_slots:
            return None
        size, inner = self.sizes[self.axis], math.prod(self.sizes[self.axis + 1 :])
        slot = np.arange(n_slots).reshape(-1, size, inner).transpose(0, 2, 1).ravel()
        slot = slot[code[slot] >= FIRST]
        place = slot // inner % size
        linked = (np.diff(slot - place * inner) == 0) & (place[:-1] >= FIRST)
        gap = np.where(linked, np.diff(place), 0).astype(np.float64)
        order = np.concatenate([np.arange(FIRST), code[slot]])
        return Chain(order, np.concatenate([np.zeros(FIRST + 1), gap]), np.zeros(len(order)), self.direction)


def candidate(cross: Cross, fields: Sequence[Field]) -> Candidate:
    """The candidate for a cross of these fields."""
    parts = [fields[number] for number in cross]
    width = min(math.prod(part.width for part in parts), MOST_ENTRIES)
    axis = axis_of(parts)
    direction = 0 if axis is None else parts[axis].direction
    return Candidate(cross, tuple(part.n_codes for part in parts), width, axis, direction)


@dataclass(frozen=True)
class Contest:
    """The metric in which candidates compete, and the penalties that each may try: plain ones, and those that hold neighbours
    together."""

    metric: Metric
    plain: tuple[Penalty, ...]
    smooth: tuple[Penalty, ...] = ()


@dataclass(frozen=True)
class Rung:
    """A rung: how many rows learn, how many judge, how many a value needs to have a weight, and the score of the current set
    there."""

    learned: int
    judged: int
    least: int
    score: float


def slot_codes(bits: NDArray[np.uint8], n_slots: int) -> tuple[NDArray[np.uint32], int]:
    """The code of every slot, and how many codes there are. ``bits`` marks slots that get a code of their own; others are rare."""
    code = np.empty(n_slots, np.uint32)
    return code, slots.number(bits, FIRST, RARE, code)


def first_rows(block: Block, n: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Labels, weights, folds and odds of the first n rows."""
    return block.label[:n], block.weight[:n], block.fold[:n], block.odds[:n]


# Tasks: the codes of candidates are put into the block, then their weights learn and are judged.


@changes("trials", anew=True)
def lay_out(block: Block, entrants: Sequence[Candidate], on: Rung) -> list[Ints]:
    """Put the slots of the first rows into the block. Returns how many learning rows each slot has; counts stop where they no
    longer matter."""
    last, first = block.among_first(max(on.learned, on.judged)), block.among_first(on.learned)
    block.trials, counts = [], []
    for entrant in entrants:
        n_slots = entrant.n_slots(on.learned)
        count, parts, row = np.zeros(n_slots, np.int64), [], 0
        for part in in_parts([block.coded((number,)).between(0, last) for number in entrant.cross]):
            columns, starts = pair_up(part)
            keys = cross_key(columns, entrant.sizes)
            slot, learning = np.empty(len(keys), np.uint32), min(max(first - row, 0), part[0].n_rows)
            slots.lay_out(keys, math.prod(entrant.sizes) > n_slots, learning if starts is None else starts[learning], slot, count)
            parts.append(FieldCodes(slot, starts))
            row += part[0].n_rows
        block.trials.append(joined(parts))
        counts.append(np.minimum(count, on.least))
    return counts


def replace_slots(coded: FieldCodes, bits: NDArray[np.uint8], n_slots: int) -> int:
    """Replace the slots of a candidate by codes, and return how many codes there are."""
    code, n_codes = slot_codes(bits, n_slots)
    lookup.spread(code, coded.codes, coded.codes)
    return n_codes


def replace_all_slots(block: Block, coded_slots: Sequence[tuple[NDArray[np.uint8], int]]) -> None:
    """What `gather` does to the block. When a lost block is made again, it may not have the odds for the rest."""
    for (bits, n_slots), coded in zip(coded_slots, block.trials, strict=True):
        replace_slots(coded, bits, n_slots)


@changes("trials", alone=lambda loss, coded_slots, *_: (replace_all_slots, (coded_slots,)))
def gather(
    block: Block, loss: Loss, coded_slots: Sequence[tuple[NDArray[np.uint8], int]], first_n: int, units: Sequence[float]
) -> list[Ints]:
    """Replace slots by codes, then gather gradient, curvature and number of rows of every code: (n_codes, n_models, 3)."""
    last, all_sums, learners = block.among_first(first_n), [], block.learners
    for (bits, n_slots), coded, unit in zip(coded_slots, block.trials, units, strict=True):
        n_codes = replace_slots(coded, bits, n_slots)
        sums = np.zeros((n_codes, block.odds.shape[1], 3), np.int64)
        rows = (block.label[:last], block.weight[:last], learners[:last], block.odds[:last], unit, sums)
        coded = coded.between(0, last)
        if coded.starts is None:
            loss.kernels.gather(coded.codes, *rows)
        else:
            loss.kernels.gather_ragged(coded.codes, coded.starts, *rows)
        all_sums.append(sums)
    return all_sums


def judge(block: Block, loss: Loss, tries: Sequence[Floats], first_n: int, unit: float) -> list[Ints]:
    """Loss on the left-out rows for each step that is tried, candidate by candidate."""
    last, all_losses = block.among_first(first_n), []
    for factors, trial in zip(tries, block.trials, strict=True):
        coded = trial.between(0, last)
        losses = np.zeros(factors.shape[2], np.int64)
        rows = (*first_rows(block, last), factors, unit, losses)
        if coded.starts is None:
            loss.kernels.try_scales(coded.codes, *rows)
        else:
            loss.kernels.try_scales_ragged(coded.codes, coded.starts, *rows)
        all_losses.append(losses)
    return all_losses


def base_loss(block: Block, loss: Loss, first_n: int, unit: float) -> Ints:
    """Loss of the current set on the left-out rows."""
    last = block.among_first(first_n)
    losses = np.zeros((block.odds.shape[1], 2), np.int64)
    loss.kernels.total_loss(*first_rows(block, last), unit, losses)
    return np.array([losses[:, 1].sum()], np.int64)


def tally(block: Block, tries: Sequence[Floats], first_n: int, unit: float) -> list[Ints]:
    """Left-out rows by bin of their odds and by label, for each step that is tried: (n_tries, n_bins, 2) for each candidate."""
    last = block.among_first(first_n)
    rows = np.flatnonzero(block.fold[:last] < block.odds.shape[1])
    fold = block.fold[rows]
    tallies = []
    for factors, trial in zip(tries, block.trials, strict=True):
        coded = trial.between(0, last).take(rows)
        of_row = np.arange(len(rows)) if coded.starts is None else np.repeat(np.arange(len(rows)), np.diff(coded.starts))
        bins = []
        for t in range(factors.shape[2]):
            odds = block.odds[rows, fold]
            np.multiply.at(odds, of_row, factors[coded.codes, fold[of_row], t])
            bins.append(bin_odds(odds, block.label[rows], block.weight[rows], unit))
        tallies.append(np.stack(bins))
    return tallies


def rung(engine: Engine, regression: Regression, contest: Contest, learned: int, judged: int, n_rows: int) -> Rung:
    """The rung with so many learning and judging rows."""
    least = least_rows(regression.min_count, learned / n_rows)
    if contest.metric == "log_loss":
        unit = regression.loss_unit
        loss = float(engine.total(base_loss, regression.loss, judged, unit)[0]) / unit
        return Rung(learned, judged, least, -loss / regression.mean_weight)
    return Rung(learned, judged, least, measure_bins(contest.metric, engine.total(left_out_bins, judged, regression.bin_unit)))


def gains(
    engine: Engine, regression: Regression, contest: Contest, entrants: Sequence[Candidate], on: Rung
) -> Iterator[tuple[float, Penalty]]:
    """By how much each candidate raises the score of the left-out rows, and under which penalty. Losses are summed over rows."""
    together = max(1, engine.stride // max(on.learned, on.judged))
    for first in range(0, len(entrants), together):
        yield from gains_of_some(engine, regression, contest, entrants[first : first + together], on)


def gains_of_some(
    engine: Engine, regression: Regression, contest: Contest, entrants: Sequence[Candidate], on: Rung
) -> Iterator[tuple[float, Penalty]]:
    """The gains of candidates that are in the blocks at the same time."""
    # A slot that is too rare to have a weight of its own needs no code either, and then the sums fit into the cache.
    counts = engine.totals(lay_out, entrants, on)
    coded = [(np.packbits(count >= on.least), len(count)) for count in counts]
    sums = engine.totals(gather, regression.loss, coded, on.learned, [regression.unit_for(entrant.width) for entrant in entrants])
    jobs = list(zip(entrants, coded, sums, strict=True))
    tries = engine.beside(lambda job: steps(regression, contest, *job, on.least), jobs)
    if contest.metric == "log_loss":
        unit = regression.loss_unit
        scores = [
            -losses / unit / regression.mean_weight for losses in engine.totals(judge, regression.loss, tries, on.judged, unit)
        ]
    else:
        tallies = engine.totals(tally, tries, on.judged, regression.bin_unit)
        scores = [np.array([measure_bins(contest.metric, bins) for bins in tried]) for tried in tallies]
    for score in scores:
        best = int(np.argmax(score))
        yield float(score[best]) - on.score, (contest.plain + contest.smooth)[best]


def steps(
    regression: Regression, contest: Contest, entrant: Candidate, coded: tuple[NDArray[np.uint8], int], sums: Ints, least: int
) -> Floats:
    """The factors by which a step under each penalty multiplies the odds: (n_codes, n_models, n_penalties)."""
    tied, unit = sums[:, :, 2] < least, regression.unit_for(entrant.width)
    tied[:FIRST] = False
    chain = entrant.chain(coded[1], slot_codes(*coded)[0]) if contest.smooth or entrant.direction else None
    if chain is not None and chain.direction:
        return monotone_steps(sums, unit, chain, contest, entrant.width)
    kernels.tie(sums, tied)
    factors = np.empty((len(sums), regression.n_models, len(contest.plain) + (0 if chain is None else len(contest.smooth))))
    grid = np.array([(penalty.l1, penalty.l2) for penalty in contest.plain])
    kernels.first_steps(sums, unit, tied, grid, entrant.width, factors)
    if chain is not None:
        zero, step = np.zeros(sums.shape[:2]), np.empty(sums.shape[:2])
        for t, penalty in enumerate(contest.smooth, start=len(contest.plain)):
            kernels.chained_step(sums, unit, zero, tied, *chain.arrays, penalty.l2, penalty.smooth, penalty.slope, step)
            factors[:, :, t] = np.exp(step)
    return factors


def monotone_steps(sums: Ints, unit: float, chain: Chain, contest: Contest, width: int) -> Floats:
    """`steps` of a candidate whose weights must be monotone. (If its keys share slots there is no chain, and it is ranked as if
    they were free; the trial of a proposal has exact codes, and monotone weights.)"""
    penalties, tied = contest.plain + contest.smooth, sums[:, :, 2] == 0
    tied[:FIRST] = False
    zero, step = np.zeros(sums.shape[:2]), np.empty(sums.shape[:2])
    factors = np.empty((*sums.shape[:2], len(penalties)))
    for t, penalty in enumerate(penalties):
        monotone.step(sums, unit, zero, tied, chain, penalty, width, step)
        factors[:, :, t] = np.exp(step)
    return factors
