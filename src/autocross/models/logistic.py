"""Regression on fields of codes, with the logistic loss or another one. The fields take steps in turn until no step promises much.

Several models are fitted side by side: model k does not learn from the rows of fold k, nor from later ones if folds go forward. The
intercept is a field with a single code and no penalty. The penalty of a field, l1 * |w| + l2 / 2 * w^2 for each weight, is added to
the summed loss, and so is smooth / 2 * (difference of neighbours)^2 where codes have neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from autocross.blocks import COUNT, INTERCEPT, RATE, Block, Cross, codes_of
from autocross.engines import Engine, changes
from autocross.features import FIRST, RARE, Chain, Field, Penalty
from autocross.folds import ALL
from autocross.kernels import counting, scaling, steps
from autocross.models import monotone
from autocross.models.losses import LOGISTIC, Loss
from autocross.models.metrics import bin_odds

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


UNPENALISED = Penalty(0.0, 0.0)
CENTRE_UNIT = 2.0**32  # the fixed-point unit in which weights are averaged


# Tasks: what an engine runs on each block.


@changes("odds", anew=True)
def start(block: Block, n_models: int) -> Ints:
    """Set all odds to 1; return how many rows have each label."""
    begin(block, n_models)
    return np.bincount(block.label, minlength=2).astype(np.int64)


def begin(block: Block, n_models: int) -> None:
    """Set all odds to 1, in the array of the former odds if it has the right shape."""
    if block.odds.shape != (block.n_rows, n_models):
        block.odds = np.empty((0, 0))  # frees the former array before a new one is made
        block.odds = np.empty((block.n_rows, n_models))
    block.odds.fill(1.0)


@changes("fold", anew=True)
def learn_from_all(block: Block) -> None:
    """From now on, leave no row out."""
    block.fold = np.full(block.n_rows, ALL, np.uint8)


def count(block: Block, cross: Cross, n_codes: int) -> Ints:
    """How many rows with each code each model learns from."""
    coded = block.coded(cross)
    counts = np.zeros((n_codes, block.odds.shape[1]), np.int64)
    if coded.starts is None:
        counting.count(coded.codes, block.learners, counts)
    else:
        counting.count_ragged(coded.codes, coded.starts, block.learners, counts)
    return counts


def scaled_by(cross: Cross | None) -> list[str]:
    """The parts of a block by which a term scales odds. A statistic has other codes for the model of a row's own fold."""
    if cross is None:
        return []
    return [codes_of(cross), "fold"] if len(cross) > 1 and cross[0] in (RATE, COUNT) else [codes_of(cross)]


@changes("odds", reads=lambda cross, factor: scaled_by(cross))
def scale(block: Block, cross: Cross, factor: Floats) -> None:
    """Apply a change of weights, given as exp(change), to the odds."""
    coded = block.coded(cross)
    if coded.judged is not None:
        scaling.scale_judged(coded.codes, coded.judged, block.fold, factor, block.odds)
    elif coded.starts is None:
        scaling.scale(coded.codes, factor, block.odds)
    else:
        scaling.scale_ragged(coded.codes, coded.starts, factor, block.odds)


@changes("odds", reads=lambda _, factors: [part for cross in factors for part in scaled_by(cross)], anew=True)
def start_from(block: Block, n_models: int, factors: Mapping[Cross, Floats]) -> None:
    """Set the odds to those of some weights, given as exp(weight)."""
    begin(block, n_models)
    for cross, factor in factors.items():
        scale(block, cross, factor)


@changes(
    lambda loss, moved, *_: ["odds"] if moved is not None else [],
    reads=lambda loss, moved, *_: scaled_by(moved),
    alone=lambda loss, moved, factor, *_: (scale, (moved, factor)),
)
def scale_and_gather(
    block: Block, loss: Loss, moved: Cross | None, factor: Floats | None, cross: Cross, n_codes: int, unit: float
) -> Ints:
    """Apply the step of the former field, then gather the sums of the next one, so that a field costs one visit to the block."""
    if moved is not None and factor is not None:
        scale(block, moved, factor)
    coded = block.coded(cross)
    sums = np.zeros((n_codes, block.odds.shape[1], 2), np.int64)
    rows = (block.label, block.weight, block.learners, block.odds, unit, sums)
    if coded.starts is None:
        loss.kernels.gather(coded.codes, *rows)
    else:
        loss.kernels.gather_ragged(coded.codes, coded.starts, *rows)
    return sums


def try_scales(block: Block, loss: Loss, cross: Cross, factors: Floats, unit: float) -> Ints:
    """Loss on the left-out rows for each change of weights."""
    coded = block.coded(cross)
    losses = np.zeros(factors.shape[2], np.int64)
    rows = (block.label, block.weight, block.fold, block.odds, factors, unit, losses)
    if coded.starts is None:
        loss.kernels.try_scales(coded.codes if coded.judged is None else coded.judged, *rows)
    else:
        loss.kernels.try_scales_ragged(coded.codes, coded.starts, *rows)
    return losses


def losses(block: Block, loss: Loss, unit: float) -> Ints:
    """Each model's loss on the rows that judge it, in the second place, and on all others."""
    totals = np.zeros((block.odds.shape[1], 2), np.int64)
    loss.kernels.total_loss(block.label, block.weight, block.fold, block.odds, unit, totals)
    return totals


def learned_losses(block: Block, loss: Loss, unit: float) -> Ints:
    """Each model's loss on the rows that it learns from."""
    totals = np.zeros(block.odds.shape[1], np.int64)
    for k in range(len(totals)):
        rows = np.flatnonzero((block.fold < k) | (block.fold == ALL) if block.forward else block.fold != k)
        lost = np.empty(len(rows))
        loss.kernels.row_losses(block.label[rows], block.odds[rows, k], lost)
        totals[k] = (block.weight[rows] * unit * lost).astype(np.int64).sum()
    return totals


def left_out(block: Block) -> tuple[Floats, NDArray[np.uint8], NDArray[np.float32], NDArray[np.uint8]]:
    """Log-odds, label, weight and fold of the rows that judge, each row by the model that did not learn from it."""
    rows = np.flatnonzero(block.fold < block.odds.shape[1])
    fold = block.fold[rows]
    return np.log(block.odds[rows, fold]), block.label[rows], block.weight[rows], fold


def left_out_bins(block: Block, first_n: int, unit: float) -> Ints:
    """The rows that judge, among roughly the first ``first_n`` of the shuffle, counted by bin of their odds and by label."""
    last = block.among_first(first_n)
    rows = np.flatnonzero(block.fold[:last] < block.odds.shape[1])
    return bin_odds(block.odds[rows, block.fold[rows]], block.label[rows], block.weight[rows], unit)


# The regression itself.


@dataclass
class Term:
    """One field of the model: ``weight`` is (n_codes, n_models), ``tied`` marks codes too rare to have their own.

    ``promised`` is by how much its last step was to bring the loss down, per unit of weight.
    """

    field: Field
    penalty: Penalty
    weight: Floats
    tied: NDArray[np.bool_]
    promised: float = 0.0


def by_label(block: Block, cross: Cross, n_codes: int) -> Ints:
    """How many rows with each code are positive, and how many are negative."""
    coded, counts = block.coded(cross), np.zeros((n_codes, 2), np.int64)
    # The kernel leaves out the rows that a model does not learn from. Given labels, it leaves the negative rows out of the first
    # count, and the positive rows out of the second.
    if coded.starts is None:
        counting.count(coded.codes, block.label, counts)
    else:
        counting.count_ragged(coded.codes, coded.starts, block.label, counts)
    return counts


def counts_of(engine: Engine, cross: Cross, n_codes: int) -> Ints:
    """How many rows have each code, and how many of them are positive: (n_codes, 2)."""
    counts = engine.total(by_label, cross, n_codes)
    return np.stack([counts.sum(axis=1), counts[:, 0]], axis=1)


class WrongOrder(AssertionError):  # noqa: N818  our own mistake, not the user's
    """A regression is asked for something that needs its odds in the blocks, and the blocks hold those of another."""


class Regression:
    """Models side by side: their loss, their terms, and the engine whose blocks hold the odds of one regression at a time.

    `begin`, `branch` and `restore` bring the odds of a regression into the blocks. Another one that is asked for a step, a loss or
    a score then raises `WrongOrder`.
    """

    def __init__(self, engine: Engine, total_weight: float, n_models: int, min_count: int, n_labels: Ints, loss: Loss) -> None:
        self.engine = engine
        self.loss = loss
        self.total_weight = total_weight
        self.n_models = n_models
        self.min_count = min_count
        self.n_rows = int(n_labels.sum())
        self.mean_weight = total_weight / self.n_rows
        self.rarer_rate = int(n_labels.min()) / self.n_rows
        self.positive_rate = int(n_labels[1]) / self.n_rows
        # Fixed point: a sum over all rows is at most 2^61, or 2^62 if a sample of rows weighs twice its share.
        self.unit = 2.0 ** (61 - ceil_log2(total_weight * loss.steepest))
        self.loss_unit = 2.0 ** (61 - ceil_log2(total_weight * loss.largest))
        self.bin_unit = 2.0 ** (50 - ceil_log2(total_weight))  # bins are summed as floats, and stay below 2^51
        self.terms: dict[Cross, Term] = {}
        self.n_moves = 0  # how often its weights have changed
        self.sweep_seconds = 0.0  # what the last sweep over all fields took

    @classmethod
    def begin(
        cls,
        engine: Engine,
        total_weight: float,
        n_models: int,
        *,
        min_count: int = 1,
        everyone: bool = False,
        loss: Loss = LOGISTIC,
    ) -> Regression:
        """A new regression whose intercept is zero; the odds in the blocks are 1. With ``everyone`` no row is left out any more."""
        if everyone:
            engine.each(learn_from_all)
        regression = cls(engine, total_weight, n_models, min_count, engine.total(start, n_models), loss)
        engine.odds_of = regression
        regression.add(INTERCEPT, Field("", "", 1, shares_rare=False), UNPENALISED)
        return regression

    def branch(self) -> Regression:
        """A copy whose terms can change without changing this one. From now on the odds in the blocks belong to the copy."""
        self.needs_odds()
        twin = copy(self)
        twin.terms = {cross: replace(term, weight=term.weight.copy()) for cross, term in self.terms.items()}
        self.engine.odds_of = twin
        return twin

    def restore(self) -> None:
        """Set the odds in the blocks to those of this regression."""
        self.engine.each(start_from, self.n_models, {cross: np.exp(term.weight) for cross, term in self.terms.items()})
        self.engine.odds_of = self

    def needs_odds(self) -> None:
        """Fail unless the blocks hold the odds of this regression."""
        if self.engine.odds_of is not self:
            raise WrongOrder("The blocks hold the odds of another regression. Call restore first.")

    def add(self, cross: Cross, field: Field, penalty: Penalty, weight: Floats | None = None) -> None:
        """Put a field into the model, with weight zero or with the weights given, (n_codes, n_models) or (n_codes, 1)."""
        tied = rare = np.zeros((field.n_codes, self.n_models), np.bool_)
        if field.direction:
            rows = self.engine.total(count, cross, field.n_codes)
            tied, rare = monotone.tied(field, rows, self.min_count)
        elif field.shares_rare and self.min_count > 1:
            # Rarity is judged by the rows a model learns from, so that its left-out rows meet rare values as serving will.
            tied[FIRST:] = self.engine.total(count, cross, field.n_codes)[FIRST:] < self.min_count  # and these are the rare ones
        term = Term(field, penalty, np.zeros((field.n_codes, self.n_models)), tied)
        self.terms[cross] = term
        if weight is not None and weight.any():
            initial = np.where(rare, weight[RARE] if field.n_codes > RARE else 0.0, weight)
            self.move(cross, initial)

    def move(self, cross: Cross, delta: Floats) -> None:
        """Change a field's weights, here and in the odds of the blocks."""
        self.needs_odds()
        self.n_moves += 1
        self.terms[cross].weight += delta
        self.engine.each(scale, cross, np.exp(delta))

    def sums(self, cross: Cross, moved: Cross | None = None, factor: Floats | None = None) -> Ints:
        """Gradient and curvature of every code of a field, after applying the former field's step, if one is due."""
        self.needs_odds()
        term = self.terms[cross]
        sums = self.engine.total(scale_and_gather, self.loss, moved, factor, cross, term.field.n_codes, self.unit_of(cross))
        steps.tie(sums, term.tied)
        return sums

    def unit_of(self, cross: Cross) -> float:
        """The unit of the sums of a field."""
        return self.unit_for(self.terms[cross].field.width)

    def unit_for(self, width: int) -> float:
        """The fixed-point unit of sums to which one row may add ``width`` times, as it may where rare values share a code.

        A sum has room for four times the steepest gradients of all rows. While the loss is no more than that of odds 1, with which
        every fit begins, gradients add up to at most half of these. So widths up to seven need no coarser unit.
        """
        return self.unit / 2.0 ** max(0, width.bit_length() - 3)

    def step(self, cross: Cross, sums: Ints, penalty: Penalty) -> tuple[Floats, float]:
        """The change of the weights that these sums suggest, and the decrease of the loss that it promises."""
        term = self.terms[cross]
        delta, unit = np.empty_like(term.weight), self.unit_of(cross)
        if term.field.direction:
            assert term.field.chain is not None
            return delta, monotone.step(sums, unit, term.weight, term.tied, term.field.chain, penalty, term.field.width, delta)
        if (penalty.smooth or penalty.slope) and (chain := term.field.chain):
            strengths = (penalty.l2, penalty.smooth, penalty.slope)
            return delta, steps.chained_step(sums, unit, term.weight, term.tied, *chain.arrays, *strengths, delta)
        promised = steps.step(sums, unit, term.weight, term.tied, penalty.l1, penalty.l2, term.field.width, delta)
        return delta, promised

    def sweep(self, crosses: Sequence[Cross] | None = None) -> float:
        """Take a step for every field in turn; returns the decrease of the loss that all steps promise, per unit of weight."""
        self.needs_odds()
        began, chosen = perf_counter(), crosses or tuple(self.terms)
        self.n_moves += 1
        moved: Cross | None = None
        factor: Floats | None = None
        for cross in chosen:
            term = self.terms[cross]
            delta, gain = self.step(cross, self.sums(cross, moved, factor), term.penalty)
            term.weight += delta
            term.promised = gain / self.total_weight / self.n_models
            moved, factor = cross, np.exp(delta)
        if moved is not None and factor is not None:
            self.engine.each(scale, moved, factor)
        self.centre(chosen)
        if len(chosen) == len(self.terms):
            self.sweep_seconds = perf_counter() - began
        return sum(self.terms[cross].promised for cross in chosen)

    def centre(self, crosses: Sequence[Cross]) -> None:
        """Move the mean weight of each field into the intercept.

        Where every row has one code of the field, this changes no odds and lowers the penalty. It brings the intercept at once to
        where many small steps of all fields would bring it.
        """
        for cross in crosses:
            term = self.terms[cross]
            if cross == INTERCEPT or term.penalty.l1 or term.field.width > 1:
                continue
            mean = np.empty(self.n_models)
            steps.centre(term.weight, term.tied, CENTRE_UNIT, mean)
            self.terms[INTERCEPT].weight += mean

    def converge(self, tolerance: float, max_sweeps: int = 1000, crosses: Sequence[Cross] | None = None) -> int:
        """Sweep over all fields, or some, until a sweep promises less than ``tolerance`` per row; returns the number of sweeps.

        A field that promises less than its share of the tolerance rests until the others are done. Then all fields take a step
        again, and together they must promise less than the tolerance.
        """
        everyone = at_work = tuple(crosses or self.terms)
        for sweep in range(1, max_sweeps + 1):
            if self.sweep(at_work) >= tolerance:
                at_work = tuple(cross for cross in at_work if self.terms[cross].promised > tolerance / len(everyone))
            elif at_work == everyone:
                return sweep
            else:
                at_work = everyone
        return max_sweeps

    def objective(self) -> Floats:
        """The penalised loss of each model on the rows it learns from, which the sweeps reduce."""
        self.needs_odds()
        loss = self.engine.total(learned_losses, self.loss, self.loss_unit) / self.loss_unit
        for term in self.terms.values():
            own = np.where(term.tied, 0.0, term.weight)  # a shared weight is penalised once
            loss += term.penalty.l1 * np.abs(own).sum(axis=0) + term.penalty.l2 / 2 * (own**2).sum(axis=0)
            if (term.penalty.smooth or term.penalty.slope) and (chain := term.field.chain):
                columns = zip(own.T, term.tied.T, strict=True)
                loss += np.array([smoothness_and_line(chain, weight, tied, term.penalty) for weight, tied in columns])
        return loss

    def left_out_loss(self) -> float:
        """Summed loss of the rows that judge."""
        self.needs_odds()
        return float(self.engine.total(losses, self.loss, self.loss_unit)[:, 1].sum()) / self.loss_unit

    def try_penalties(self, cross: Cross, sums: Ints, penalties: Sequence[Penalty]) -> tuple[Floats, Floats]:
        """Loss of the left-out rows after one step of the field under each penalty, and the steps; their last axis is the
        penalty."""
        self.needs_odds()
        deltas = np.stack([self.step(cross, sums, penalty)[0] for penalty in penalties], axis=2)
        return self.engine.total(try_scales, self.loss, cross, np.exp(deltas), self.loss_unit) / self.loss_unit, deltas

    def judged(self) -> tuple[Floats, NDArray[np.uint8], Floats]:
        """Log-odds, labels and weights of the rows that judge. The log-odds of a row come from the model that did not learn from
        it."""
        self.needs_odds()
        parts = self.engine.each(left_out)
        score, label, weight, _ = (np.concatenate(column) for column in zip(*parts, strict=True))
        weight = weight.astype(np.float64)
        # Sums of floats must not depend on how rows are spread over blocks.
        if len(weight) > 0 and np.ptp(weight) > 0:
            order = np.lexsort([weight, label, score])
            return score[order], label[order], weight[order]
        return np.concatenate([np.sort(score[label == 0]), np.sort(score[label == 1])]), np.sort(label), weight

    def effect(self, cross: Cross) -> float:
        """How far a field moves the log-odds: the mean over rows of its squared weight."""
        term = self.terms[cross]
        rows = self.engine.total(count, cross, term.field.n_codes)
        return float((rows * term.weight**2).sum() / max(1, rows.sum()))

    def mean_weights(self) -> Mapping[Cross, Floats]:
        """The weights, averaged over the models: a fit to all rows may begin there."""
        return {cross: term.weight.mean(axis=1) for cross, term in self.terms.items()}


def ceil_log2(x: float) -> int:
    """The exponent of the least power of two that is not below a number, computed without rounding.

    >>> ceil_log2(1.0), ceil_log2(2.0), ceil_log2(2.1), ceil_log2(0.3)
    (0, 1, 2, -1)
    """
    digits, power = math.frexp(x)
    return power - (digits == 0.5)


def smoothness_and_line(chain: Chain, weight: Floats, tied: NDArray[np.bool_], penalty: Penalty) -> float:
    """What smoothness adds to the penalty of weights, less what a line takes off. Tied codes are skipped."""
    own = np.flatnonzero(~tied[chain.order])
    w, x = weight[chain.order[own]], chain.place[own]
    total = penalty.smooth / 2 * roughness(chain, own, w, w)
    if not penalty.slope:
        return total
    link = np.cumsum(chain.gap == 0)[own]
    for chained in (link == number for number in np.unique(link)):
        if chained.sum() < 2:
            continue  # a single code has no line
        across, along = (
            penalty.l2 * float(values[chained] @ x[chained])
            + penalty.smooth * roughness(chain, own[chained], values[chained], x[chained])
            for values in (w, x)
        )
        total -= across**2 / (along + penalty.slope) / 2
    return total


def roughness(chain: Chain, own: Ints, a: Floats, b: Floats) -> float:
    """The sum over neighbours of the products of their differences in two columns of numbers, divided by the gap between them.
    ``own`` has the places of these numbers in the order of the chain."""
    place, link = np.cumsum(chain.gap), np.cumsum(chain.gap == 0)  # where on its chain a code lies, and on which chain
    linked = link[own[1:]] == link[own[:-1]]
    return float((np.diff(a)[linked] * np.diff(b)[linked] / np.diff(place[own])[linked]).sum())


def again(former: Regression, tolerance: float = 1e-5, max_sweeps: int = 10) -> Regression:
    """A regression with the same terms and penalties, fitted from zero to the blocks as they are now.

    It does not begin with the old weights, because these may have seen the rows that judge now.
    """
    regression = Regression.begin(former.engine, former.total_weight, former.n_models, min_count=former.min_count, loss=former.loss)
    for cross, term in former.terms.items():
        if cross != INTERCEPT:
            regression.add(cross, term.field, term.penalty)
    regression.converge(tolerance, max_sweeps)
    return regression
