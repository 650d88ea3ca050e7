"""The one way to judge a proposal: is the set better with these crosses than without, beyond chance?

A proposal is one cross or several. Both sets are fitted to the same rows and judged by the rows left out, row by row, so that the
gain has a standard error. A `Trial` of the policy says how many sweeps the weights get, and how much they must gain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autocross.blocks import Block, Cross
from autocross.crossing import CrossCoder
from autocross.engines import Engine, changes
from autocross.events import CrossTried, Reporter
from autocross.features import Penalty
from autocross.models.logistic import Regression, WrongOrder
from autocross.models.losses import Loss
from autocross.models.tuning import FINE
from autocross.search.coding import Coded
from autocross.search.policy import Trial

Ints = NDArray[np.int64]
SQUARE_DIGITS = (1 << 52, 1 << 26, 1)  # places of the digits of a square; no sum of digits overflows below 2^37 rows


# Tasks.


def row_losses(block: Block, loss: Loss, share: float = 1.0) -> NDArray[np.float64]:
    """Loss of every row that judges, under the model that did not learn from it. With a ``share``, the log-odds are blended with
    those that were remembered, of which the rest counts."""
    rows = np.flatnonzero(block.fold < block.odds.shape[1])
    losses, fold = np.empty(len(rows)), block.fold[rows]
    odds = block.odds[rows, fold]
    if share != 1.0:
        odds = blended(block.former[0][rows, fold], odds, share)
    loss.kernels.row_losses(block.label[rows], odds, losses)
    return block.weight[rows] * losses


def blended(former: NDArray[np.float64], odds: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """The odds whose logarithm is a share of one plus the rest of the other."""
    return former ** (1.0 - share) * odds**share


@changes("former", reads=("odds", "fold"), anew=True)
def remember(block: Block, loss: Loss) -> None:
    """Keep the odds and losses of the current set, to compare others with them."""
    block.former = (copied(block.odds, block.former[0]), row_losses(block, loss))


@changes("odds", reads=("former",), anew=True)
def recall(block: Block) -> None:
    """Go back to the odds that were remembered."""
    block.odds = copied(block.former[0], block.odds)


def copied(values: NDArray[np.float64], room: NDArray[np.float64]) -> NDArray[np.float64]:
    """A copy of the values: in ``room``, an array that is no longer needed, if it has the right shape."""
    if room.shape != values.shape:
        return values.copy()
    np.copyto(room, values)
    return room


@changes("odds", reads=("former",))
def mix(block: Block, share: float) -> None:
    """Blend the odds with those that were remembered, of which the rest counts."""
    block.odds = blended(block.former[0], block.odds, share)


def compare(block: Block, loss: Loss, unit: float, share: float) -> Ints:
    """Number of rows, summed gain, and summed square of the gain over the remembered losses, in fixed point.

    The squared gain of a heavy row may be far larger than any sum of gains. Squares are therefore split into digits, and each digit
    is added up on its own. The highest digit comes first.
    """
    gains = block.former[1] - row_losses(block, loss, share)
    squares, digits = gains**2 * unit, []
    for power in SQUARE_DIGITS:
        digit = np.floor(squares / power)
        digits.append(digit.astype(np.int64).sum())
        squares -= digit * power
    return np.array([len(gains), (gains * unit).astype(np.int64).sum(), *digits], np.int64)


def compare_clusters(block: Block, loss: Loss, unit: float, share: float, n_clusters: int) -> Ints:
    """Rows and summed gain of every cluster, in fixed point: (n_clusters, 2)."""
    assert block.cluster is not None
    gains = block.former[1] - row_losses(block, loss, share)
    of_row = block.cluster[block.fold < block.odds.shape[1]]
    sums = np.zeros((n_clusters, 2), np.int64)
    np.add.at(sums[:, 0], of_row, 1)
    np.add.at(sums[:, 1], of_row, (gains * unit).astype(np.int64))
    return sums


# Judging.


@dataclass(frozen=True)
class Accepted:
    """An accepted cross: its codes, its first penalty, and what it gained per row on fresh folds, with the standard error."""

    coder: CrossCoder
    penalty: Penalty
    gain: float
    error: float
    seconds: float
    score: float
    n_collisions: int


@dataclass(frozen=True)
class Proposal:
    """Crosses that are accepted or refused together, and a regression of the set with them, in which their weights are still zero.

    Its trial ``began`` so many seconds after the call of fit, before its crosses were coded. ``near`` has the terms that share a
    column with the proposal, its own included. ``n_rivals`` is the number of candidates from which the proposal was chosen by its
    gain, or None if it was not chosen by its gain.
    """

    name: str
    crosses: Sequence[Coded]
    regression: Regression
    trial: Trial
    began: float
    near: Sequence[Cross] = ()
    n_rivals: int | None = None

    @property
    def first(self) -> Sequence[Cross] | None:
        """The terms that the look goes over; None means all."""
        return [coder.fields for coder, _ in self.crosses] if self.trial.reach == "own first" else self.then

    @property
    def then(self) -> Sequence[Cross] | None:
        """The terms that the sweeps after the look go over; None means all."""
        return None if self.trial.reach == "all" else self.near

    def errors(self, has_crosses: bool) -> float | None:
        """How many standard errors the gain must exceed."""
        errors = self.trial.errors if has_crosses else self.trial.first_errors
        if errors is None or self.n_rivals is None:
            return errors
        return errors * math.sqrt(2 * math.log(max(self.n_rivals, 2)))


@dataclass(frozen=True)
class Verdict:
    """What a proposal gains per row, with the standard error, and the score of the set with it."""

    gain: float
    error: float
    score: float


class Judge:
    """Compares proposals with a set that the blocks remember."""

    def __init__(self, engine: Engine, reporter: Reporter, n_clusters: int, score: Callable[[Regression], float]) -> None:
        self.engine = engine
        self.reporter = reporter
        self.n_clusters = n_clusters
        self.score = score
        self.n_moves = 0  # how often the remembered regression had changed when it was remembered

    def remember(self, regression: Regression) -> None:
        """From now on proposals are compared with this regression, whose odds the blocks hold."""
        regression.needs_odds()
        self.engine.each(remember, regression.loss)
        self.engine.former_of = regression
        self.n_moves = regression.n_moves

    def recall(self) -> None:
        """Give the blocks the odds of that regression again."""
        regression = self.engine.former_of
        if regression is None or regression.n_moves != self.n_moves:
            raise WrongOrder("The blocks remember no regression, or one that has changed since.")
        self.engine.each(recall)
        self.engine.odds_of = regression

    def judge(self, proposal: Proposal, has_crosses: bool, former_score: float, round: int) -> Verdict | None:
        """What the proposal gains over the remembered set, or None if that is not enough. ``has_crosses`` says whether the
        remembered set has crosses."""
        trial, regression = proposal.trial, proposal.regression
        errors = proposal.errors(has_crosses)
        regression.converge(FINE, trial.look, proposal.first)
        gain, error = self.gain(regression)
        if errors is None or gain > errors * error * trial.hope:
            regression.converge(FINE, trial.go_on, proposal.then)
            gain, error = self.gain(regression)
        if trial.settle and (errors is None or gain > errors * error):
            regression.converge(FINE, trial.settle)
        verdict = Verdict(gain, error, self.score(regression))
        return self.decide(proposal, errors, verdict, former_score, round)

    def blend(
        self, proposal: Proposal, shares: Sequence[float], has_crosses: bool, former_score: float, round: int
    ) -> tuple[float, Verdict] | None:
        """What a fitted regression gains if it is blended with the remembered one, and the best of these shares for its log-odds;
        None if that is not enough. The blocks hold the blend then."""
        regression = proposal.regression
        gains = {share: self.gain(regression, share) for share in shares}
        best = max(shares, key=lambda share: gains[share][0])
        self.engine.each(mix, best)
        verdict = Verdict(*gains[best], self.score(regression))
        decided = self.decide(proposal, proposal.errors(has_crosses), verdict, former_score, round)
        return None if decided is None else (best, decided)

    def decide(self, proposal: Proposal, errors: float | None, verdict: Verdict, former_score: float, round: int) -> Verdict | None:
        """The verdict if the proposal is accepted: its gain must exceed so many standard errors, and the score must rise."""
        needed = 0.0 if errors is None else errors * verdict.error
        # If all rows that judge have one label, there is no AUC, and the loss alone decides.
        risen = verdict.score > former_score + proposal.trial.lift or (math.isnan(verdict.score) and errors is not None)
        accepted = proposal.trial.forced or ((errors is None or verdict.gain > needed) and risen)
        facts = {"cross": proposal.name, "gain": verdict.gain, "error": verdict.error, "needed": needed, "accepted": accepted}
        self.reporter.tell(CrossTried, round=round, **facts, score=verdict.score, took=self.reporter.seconds - proposal.began)
        return verdict if accepted else None

    def gain(self, regression: Regression, share: float = 1.0) -> tuple[float, float]:
        """The gain over the remembered set, for a row of mean weight, and its standard error; with a ``share``, that of a blend of
        the two. Rows of one group or period are not independent, so their errors are added up before they are squared."""
        regression.needs_odds()
        if self.engine.former_of is None:
            raise WrongOrder("The blocks remember no regression to compare with.")
        unit, mean_weight = regression.loss_unit, regression.mean_weight
        rows, total, *digits = self.engine.total(compare, regression.loss, unit, share).tolist()
        n, squares = float(rows), float(sum(digit * power for digit, power in zip(digits, SQUARE_DIGITS, strict=True)))
        gain = float(total) / unit / n
        error = math.sqrt(max(squares / unit / n - gain**2, 0.0) / n)
        if not self.n_clusters:
            return gain / mean_weight, error / mean_weight
        sums = self.engine.total(compare_clusters, regression.loss, unit, share, self.n_clusters).astype(np.float64)
        off = sums[:, 1] / unit - gain * sums[:, 0]  # what each cluster gained beyond its rows' share
        n_judging = np.count_nonzero(sums[:, 0])
        error = max(error, math.sqrt((off**2).sum() * n_judging / max(1, n_judging - 1)) / n)
        return gain / mean_weight, error / mean_weight
