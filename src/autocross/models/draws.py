"""Draws of the weights: how far those of a fitted regression are to be trusted.

The fitted weights minimise the loss plus the penalty. Near them, this sum is a quadratic form with the matrix H = X'VX + P: V has
the curvature of the loss of each row, and P is the matrix of the penalty. A draw is a vector of deviations d that solves

    H d = X' V^(1/2) e + P^(1/2) f,        e and f being +1 or -1 at random

Its first part is what other rows of the same kind would change, its second part what the penalty may have taken off the weights
or put on. Together they have the covariance H^-1, which is that of the weights if the penalty is seen as a prior. Any sum of
weights deviates in a draw by the sum of their deviations. The root mean square over draws is its standard error: for a weight, for
a cell to which several fields add, and for the log-odds of a row.

Whether weights are as large as their penalty expects is asked of the weights themselves: see `Drawing.adapt`.

All draws are solved at once, by sweeps over the terms as in `models.logistic`. Signs are hashes of the numbers of rows, so that
they do not depend on where rows are kept, and sums are in fixed point.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from autocross.blocks import INTERCEPT, Block, Cross
from autocross.engines import changes
from autocross.features import RARE, TOGETHER, Chain, Penalty
from autocross.hashing import mix
from autocross.kernels import draws as kernels
from autocross.kernels import steps
from autocross.kernels.draws import N_DRAWS as N_DRAWS
from autocross.models.logistic import CENTRE_UNIT, Regression, Term, ceil_log2, scaled_by, smoothness_and_line
from autocross.models.losses import Loss

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Signs = NDArray[np.int8]

SWEEPS = 5  # before the draws adapt to the size of the weights, and again after it
HALF = N_DRAWS // 2
ROOM = 24  # bits of fixed point for the pull of the heaviest row; 7 more are left for large deviations
CURVATURE_UNIT = 2.0**40
SMALL = 2.0**-10  # steps are computed for deviations so much smaller, because then they are Newton's
OF_PENALTIES, OF_RARE = 1_000_000_007, 2_000_000_011  # added to the seed, so that signs of different things differ


def signs(seed: int, numbers: Ints) -> Signs:
    """+1 or -1 at random for each number, in each draw."""
    bits = mix(seed, numbers)[:, None] >> np.arange(N_DRAWS, dtype=np.uint64)
    return (bits & np.uint64(1)).astype(np.int8) * np.int8(2) - np.int8(1)


# Tasks.


def heaviest(block: Block) -> float:
    """The largest weight of a row."""
    return float(block.weight.max(initial=0.0))


@changes("pulls", reads=("odds",), anew=True)
def begin(block: Block, loss: Loss, unit: float) -> None:
    """Compute the curvature of every row. No draw pulls at it yet."""
    bend = np.empty(block.n_rows, np.float32)
    for first in range(0, block.n_rows, TOGETHER):
        some = slice(first, first + TOGETHER)
        weight, sums = block.weight[some], np.zeros((len(bend[some]), 1, 2), np.int64)
        rows = (block.label[some], np.ones_like(weight), block.learners[some], block.odds[some], CURVATURE_UNIT, sums)
        loss.kernels.gather(np.arange(len(weight), dtype=np.uint32), *rows)  # every row is a code of its own
        bend[some] = weight * sums[:, 0, 1] * (unit / CURVATURE_UNIT)
    block.pulls = (bend, np.zeros((block.n_rows, N_DRAWS), np.int32))


@changes("pulls")
def stir(block: Block, seed: int, unit: float, draws: slice) -> None:
    """Let random signs pull at the rows, in some of the draws. A row that weighs more is no more certain for that."""
    bend, pulls = block.pulls
    for first in range(0, block.n_rows, TOGETHER):
        some = slice(first, first + TOGETHER)
        strength = np.sqrt(bend[some].astype(np.float64) * block.weight[some] * unit)
        pulls[some, draws] += np.rint(strength[:, None] * signs(seed, block.row[some])[:, draws]).astype(np.int32)


@changes("pulls", reads=lambda cross, delta: scaled_by(cross))
def move(block: Block, cross: Cross, delta: NDArray[np.float32]) -> None:
    """Apply a change of deviations to the pulls."""
    coded, (bend, pulls) = block.coded(cross), block.pulls
    if coded.starts is None:
        kernels.move_pulls(coded.codes, bend, delta, pulls)
    else:
        kernels.move_pulls_ragged(coded.codes, coded.starts, bend, delta, pulls)


@changes(
    lambda moved, *_: ["pulls"] if moved is not None else [],
    reads=lambda moved, *_: scaled_by(moved),
    alone=lambda moved, delta, *_: (move, (moved, delta)),
)
def move_and_gather(block: Block, moved: Cross | None, delta: NDArray[np.float32] | None, cross: Cross, n_codes: int) -> Ints:
    """Apply the step of the former term, then gather the pulls at the next one."""
    if moved is not None and delta is not None:
        move(block, moved, delta)
    coded, sums = block.coded(cross), np.zeros((n_codes, N_DRAWS), np.int64)
    if coded.starts is None:
        kernels.gather_pulls(coded.codes, block.pulls[1], sums)
    else:
        kernels.gather_pulls_ragged(coded.codes, coded.starts, block.pulls[1], sums)
    return sums


@changes("pulls", anew=True)
def end(block: Block) -> None:
    """Free the pulls."""
    block.pulls = (np.zeros(0, np.float32), np.zeros((0, N_DRAWS), np.int32))


# The draws.


def draw(regression: Regression, seed: int, times: float = 1.0) -> dict[Cross, Floats]:
    """The deviations of all weights of a regression of one model: (n_codes, N_DRAWS) for each term.

    The odds in the blocks must be those of the regression. Each row in the blocks stands for ``times`` rows.
    """
    drawing = Drawing(regression, seed, times)
    try:
        drawing.sweep(SWEEPS)
        drawing.adapt()
        drawing.sweep(SWEEPS)
    finally:
        regression.engine.run(end)
    drawing.compare_with_mean()
    for cross, deviation in drawing.rare.items():
        drawing.deviations[cross][RARE] += deviation
    return drawing.deviations


class Drawing:
    """Draws under way. In the beginning, half of them have the pulls of the rows, and the other half those of the penalties; once
    they are adapted, all have both."""

    def __init__(self, regression: Regression, seed: int, times: float) -> None:
        regression.needs_odds()
        self.engine, self.terms, self.mean_weight = regression.engine, regression.terms, regression.mean_weight
        self.seed, self.unit = seed, 2.0 ** (ROOM - ceil_log2(times * max(self.engine.each(heaviest))))
        self.engine.each(begin, regression.loss, self.unit * times)
        self.engine.each(stir, seed, self.unit, slice(0, HALF))
        self.bends: dict[Cross, Floats] = {}
        for cross in self.terms:
            self.bends[cross] = regression.sums(cross)[:, 0, 1].astype(np.float64) * (times / regression.unit_of(cross))
        # Penalties are in proportion to the mean weight, but what they are unsure of is not.
        spread = math.sqrt(self.mean_weight)
        self.prior = {cross: spread * of_penalty(term, self.signs_of(cross, OF_PENALTIES)) for cross, term in self.terms.items()}
        self.pulls = {cross: np.where(np.arange(N_DRAWS) < HALF, 0.0, prior) for cross, prior in self.prior.items()}
        self.deviations = {cross: np.zeros((term.field.n_codes, N_DRAWS)) for cross, term in self.terms.items()}
        self.rare: dict[Cross, Floats] = {}
        self.due: tuple[Cross | None, NDArray[np.float32] | None] = (None, None)

    def signs_of(self, cross: Cross, of: int) -> Signs:
        """Signs for a term: three for each code."""
        number = list(self.terms).index(cross)
        return signs(self.seed + of + number, np.arange(3 * self.terms[cross].field.n_codes))

    def sweep(self, n: int) -> None:
        """Solve for each term in turn, so many times."""
        for _ in range(n):
            for cross, term in self.terms.items():
                pulled = self.engine.total(move_and_gather, *self.due, cross, term.field.n_codes)
                pulled -= np.rint(self.pulls[cross] * self.unit).astype(np.int64)
                delta = solved(term, pulled, self.bends[cross], self.deviations[cross], self.unit)
                self.deviations[cross] += delta
                self.due = (cross, delta.astype(np.float32))
            self.centre()

    def centre(self) -> None:
        """Move the mean deviation of each term into the intercept, as the regression does with weights."""
        for cross, deviation in self.deviations.items():
            if cross == INTERCEPT or self.terms[cross].field.width > 1:
                continue
            mean = np.empty(N_DRAWS)
            steps.centre(deviation, np.zeros(deviation.shape, np.bool_), CENTRE_UNIT, mean)
            self.deviations[INTERCEPT][:] += mean

    def compare_with_mean(self) -> None:
        """Let weights deviate from the mean of their rows, and not from that of all codes, some of which may have no rows."""
        for cross, deviation in self.deviations.items():
            if cross != INTERCEPT and self.terms[cross].field.width == 1 and (rows := self.bends[cross].sum()) > 0:
                mean = self.bends[cross] @ deviation / rows
                deviation -= mean
                self.deviations[INTERCEPT][:] += mean

    def adapt(self) -> None:
        """Scale the pulls of each penalty to the size of the weights, and let all draws have all pulls.

        A penalty that is chosen on the rows left out may be stronger or weaker than the weights are small, and that of a cross is
        stronger on purpose. With w'Pw for the size of weights in the eyes of their penalty, there are three sizes: that of the
        fitted weights; `noise`, that of weights which rows pull away from zero at random, from the first draws; and `signal`, what
        a fit would find of random weights that are as large as the penalty expects, from the other draws. So the true weights are
        larger than expected by about (fitted - noise) / signal. One is added on both sides, so that a term about which rows say
        little keeps its penalty. One standard error of this estimate is added to it, so that its own chance does not make errors
        too small.

        Where values without a code of their own share one, this code has the deviation of a single such value in addition.
        """
        self.engine.each(stir, self.seed, self.unit, slice(HALF, N_DRAWS))
        for cross, term in self.terms.items():
            if cross == INTERCEPT:
                continue
            n_codes = term.field.n_codes
            pulled = np.rint(-self.prior[cross] * self.unit).astype(np.int64)
            expected = solved(term, pulled, np.zeros(n_codes), np.zeros((n_codes, N_DRAWS)), self.unit)
            noise = size(term, self.deviations[cross][:, :HALF]) / self.mean_weight
            signal = size(term, (expected - self.deviations[cross])[:, HALF:]) / self.mean_weight
            fitted = size(term, term.weight) / self.mean_weight
            larger = max(0.0, fitted - noise + 1.0) / (signal + 1.0)
            larger *= 1.0 + math.sqrt(2.0 * signal) / (signal + 1.0)
            self.pulls[cross] = math.sqrt(larger) * self.prior[cross]
            if term.field.shares_rare and term.field.n_codes > RARE and term.penalty.l2:
                of_one = math.sqrt(larger * self.mean_weight / term.penalty.l2)
                self.rare[cross] = of_one * self.signs_of(cross, OF_RARE)[RARE].astype(np.float64)


def solved(term: Term, pulled: Ints, bend: Floats, deviation: Floats, unit: float) -> Floats:
    """The change of a term's deviations that brings the pulls at it to zero."""
    penalty, field = term.penalty, term.field
    sums = np.empty((*pulled.shape, 2), np.int64)
    sums[..., 0], sums[..., 1] = pulled, np.rint(bend * (unit / SMALL)).astype(np.int64)[:, None]
    tied, delta = np.zeros(pulled.shape, np.bool_), np.empty(pulled.shape)
    rows = (sums, unit / SMALL, deviation * SMALL, tied)
    if (penalty.smooth or penalty.slope) and (chain := field.chain):
        steps.chained_step(*rows, *chain.arrays, penalty.l2, penalty.smooth, penalty.slope, delta)
    else:
        steps.step(*rows, 0.0, penalty.l2, field.width, delta)
    return delta / SMALL


def size(term: Term, weights: Floats) -> float:
    """The size w'Pw of weights in the eyes of their penalty, averaged over columns of weights."""
    penalty = term.penalty
    total = penalty.l2 * float((weights**2).sum())
    if (penalty.smooth or penalty.slope) and (chain := term.field.chain):
        tied = np.zeros(len(weights), np.bool_)
        total += 2.0 * math.fsum(smoothness_and_line(chain, weight, tied, penalty) for weight in weights.T)
    return total / int(weights.shape[1])


def of_penalty(term: Term, random: Signs) -> Floats:
    """Random pulls at the codes of a term whose covariance is the matrix of its penalty. ``random`` has three signs a code."""
    penalty, n = term.penalty, term.field.n_codes
    pulls: Floats = math.sqrt(penalty.l2) * random[:n].astype(np.float64)
    if term.field.width == 1:
        pulls -= pulls.mean(axis=0)  # the mean of the weights is the intercept's, which has no penalty
    if (penalty.smooth or penalty.slope) and (chain := term.field.chain):
        pulls[chain.order] = chained(chain, penalty, pulls[chain.order], random[n:])
    return pulls


def chained(chain: Chain, penalty: Penalty, along: Floats, random: Signs) -> Floats:
    """The same for a term with neighbours, in the order of the chain. Every link between neighbours has a sign of its own, and so
    has the slope of every line."""
    n, linked = len(along), chain.gap > 0
    tension = np.zeros_like(along)
    tension[linked] = np.sqrt(penalty.smooth / chain.gap[linked])[:, None] * random[:n][linked]
    along = along + tension
    along[:-1] -= tension[1:]
    firsts = np.flatnonzero(~linked)
    for first, last in zip(firsts, [*firsts[1:], n], strict=True):
        if penalty.slope and last - first > 1:
            on_line = slice(first, last)
            along[on_line] = without_line(chain.gap[on_line], chain.place[on_line], penalty, along[on_line], random[n + first])
    return along


def without_line(gap: Floats, x: Floats, penalty: Penalty, along: Floats, sign: Signs) -> Floats:
    """Random pulls at codes on a line, given those of the penalty without a line.

    With s for the slope of the line, x for the places and P for the penalty without a line, the penalty of w and s is
    (w - s x)'P(w - s x) / 2 + slope / 2 * s^2. If the pulls a at w have the covariance P, those at s are -x'a and slope^(1/2) at
    random. Where s is the best slope for w, the pulls at w are a + Px (x'Px + slope)^-1 times those at s.
    """
    hold = penalty.smooth / gap[1:]
    of_line = penalty.l2 * x
    of_line[1:] += hold * np.diff(x)
    of_line[:-1] -= hold * np.diff(x)
    at_slope = -x @ along + math.sqrt(penalty.slope) * sign
    return along + np.outer(of_line / (x @ of_line + penalty.slope), at_slope)
