"""Successive mini-batch gradient descent: candidates compete on more and more rows, and the best go on.

Sums are taken at weight zero. So the sums of a rung are those of the former rung plus those of the new rows, and to learn from all
rows of the rung is to go on where learning had stopped.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from autocross.engines import Engine
from autocross.models.logistic import Regression
from autocross.search import fieldwise
from autocross.search.fieldwise import Candidate, Contest


@dataclass(frozen=True, kw_only=True)
class Rungs(ABC):
    """How many rows each rung of a tournament sees."""

    judges: int  # with a single holdout, this many times the learning rows are looked at to find those that judge,
    most_judges: int  # but no more than this many

    @abstractmethod
    def plan(self, n_candidates: int, n_rows: int, rarer_rate: float) -> list[tuple[int, int]]:
        """The rows of each rung, and how many candidates compete on them; the last rung decides."""

    def judged(self, n_learned: int, n_rows: int) -> int:
        """With a single holdout: how many rows are looked at. Those of the holdout among them judge."""
        return min(n_rows, max(n_learned, min(self.judges * n_learned, self.most_judges)))


@dataclass(frozen=True, kw_only=True)
class GrowingRungs(Rungs):
    """Each rung has twice the rows of the one before, and the last few candidates compete on all rows.

    The first rung has one in ``fewest_share`` of all rows, but no more than ``share_ends``. In any case it has ``fewest_rows``
    rows, and ``fewest_rarer`` of the rarer label. After a rung of at least ``share_ends`` rows, one candidate in ``going_on`` goes
    on; after a smaller rung, every other one does.
    """

    fewest_rows: int
    fewest_rarer: int
    fewest_share: int
    share_ends: int
    going_on: int
    finalists: int

    def plan(self, n_candidates: int, n_rows: int, rarer_rate: float) -> list[tuple[int, int]]:
        of_all = min(math.ceil(n_rows / self.fewest_share), self.share_ends)
        rows = max(self.fewest_rows, math.ceil(self.fewest_rarer / max(rarer_rate, 1e-9)), of_all)
        rungs: list[tuple[int, int]] = []
        while rows < n_rows and n_candidates > self.finalists:
            rungs.append((rows, n_candidates))
            n_candidates = n_candidates // 2 if rows < self.share_ends else max(self.finalists, n_candidates // self.going_on)
            rows *= 2
        return [*rungs, (n_rows, n_candidates)]


@dataclass(frozen=True, kw_only=True)
class PaperRungs(Rungs):
    """The rungs of the paper. The rows are divided into N blocks. N is ``n_of_small`` times the number of blocks that all rungs use
    if there are up to ``small`` rows, and ``n_of_large`` times that number otherwise. Half of the candidates go on after each rung,
    and the last one left is the best."""

    small: int
    n_of_small: int
    n_of_large: int

    def plan(self, n_candidates: int, n_rows: int, rarer_rate: float) -> list[tuple[int, int]]:
        n_rungs = max(1, math.ceil(math.log2(max(n_candidates, 2))))
        n_blocks = (self.n_of_small if n_rows <= self.small else self.n_of_large) * (2**n_rungs - 1)
        return [(max(1, n_rows * (2 ** (k + 1) - 1) // n_blocks), max(1, n_candidates >> k)) for k in range(n_rungs)]


Watch = Callable[[int, int, int, Sequence[Candidate]], None]


def tournament(
    engine: Engine,
    regression: Regression,
    contest: Contest,
    candidates: Sequence[Candidate],
    rungs: Rungs,
    n_rows: int,
    watch: Watch,
) -> list[Candidate]:
    """The candidates of the last rung, best first. ``watch`` is called after each rung with its number, the number of rungs, its
    rows, and its ranking."""
    regression.needs_odds()
    planned = rungs.plan(len(candidates), n_rows, regression.rarer_rate)
    left = list(candidates)
    ranked: list[Candidate] = []
    for number, (learned, n_candidates) in enumerate(planned, start=1):
        left = left[:n_candidates]
        # With folds, the rows of the rung judge too.
        judged = learned if regression.n_models > 1 else rungs.judged(learned, n_rows)
        on = fieldwise.rung(engine, regression, contest, learned, judged, n_rows)
        gains = fieldwise.gains(engine, regression, contest, left, on)
        gained = zip(left, gains, strict=True)
        ranked = [replace(candidate, gain=gain, penalty=penalty) for candidate, (gain, penalty) in gained]
        ranked.sort(key=lambda candidate: (-candidate.gain, candidate.cross))
        watch(number, len(planned), learned, ranked)
        left = ranked
    return ranked
