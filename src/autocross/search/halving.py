"""Successive mini-batch gradient descent: candidates compete on ever more rows, the best of them going on.

Sums are taken at weight zero, so a rung's sums over all its rows are those of the former rung plus those of the new rows:
learning goes on where it stopped. Small rungs lie; a rung has 2,000 rows and 200 of the rarer label at least, and a
quarter of all rows where that is no more than 32,000. After a rung of so many a quarter of the candidates goes on, after a smaller
one half of them. The last few compete on all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autocross.engines import Engine
from autocross.models.logistic import Penalty, Regression
from autocross.options import Halving
from autocross.search import fieldwise
from autocross.search.fieldwise import Candidate, Contest

FEWEST_ROWS = 2_000
FEWEST_RARER = 200
FEWEST_SHARE, SHARE_ENDS = 4, 32_000
GOING_ON = 4  # after a rung of so many rows, one of so many candidates goes on
# One holdout, a fifth of all, judges with as many rows as learn, until these are 200,000.
JUDGES, MOST_JUDGES = 5, 1_000_000
FINALISTS = 8  # so few are compared on all rows at once: a round may accept several
SMALL = 1_000_000  # rows up to which the paper's N is twice the sum, five times beyond


@dataclass(frozen=True)
class Scored:
    """A candidate with what it gained on a rung."""

    candidate: Candidate
    gain: float
    penalty: Penalty


def plan(halving: Halving, n_candidates: int, n_rows: int, rarer_rate: float) -> list[tuple[int, int]]:
    """How many rows each rung sees, and how many candidates compete on them; the last one decides."""
    if halving == "paper":
        n_rungs = max(1, math.ceil(math.log2(max(n_candidates, 2))))
        n_blocks = (2 if n_rows <= SMALL else 5) * (2**n_rungs - 1)
        return [(max(1, n_rows * (2 ** (k + 1) - 1) // n_blocks), max(1, n_candidates >> k)) for k in range(n_rungs)]
    rows = max(FEWEST_ROWS, math.ceil(FEWEST_RARER / max(rarer_rate, 1e-9)), min(math.ceil(n_rows / FEWEST_SHARE), SHARE_ENDS))
    rungs: list[tuple[int, int]] = []
    while rows < n_rows and n_candidates > FINALISTS:
        rungs.append((rows, n_candidates))
        n_candidates = n_candidates // 2 if rows < SHARE_ENDS else max(FINALISTS, n_candidates // GOING_ON)
        rows *= 2
    return [*rungs, (n_rows, n_candidates)]


Watch = Callable[[int, int, Sequence[Scored]], None]


def tournament(
    engine: Engine,
    regression: Regression,
    contest: Contest,
    candidates: Sequence[Candidate],
    rungs: Sequence[tuple[int, int]],
    n_rows: int,
    watch: Watch,
) -> list[Scored]:
    """The candidates of the last rung, best first. ``watch`` is told of each rung: its number, its rows, its ranking."""
    left = list(candidates)
    ranked: list[Scored] = []
    for number, (learned, n_candidates) in enumerate(rungs):
        left = left[:n_candidates]
        # Folds judge with the rows of the rung.
        judged = learned if regression.n_models > 1 else min(n_rows, max(learned, min(JUDGES * learned, MOST_JUDGES)))
        on = fieldwise.rung(engine, regression, contest, learned, judged, n_rows)
        gains = fieldwise.gains(engine, regression, contest, left, on)
        ranked = [Scored(one, *gain) for one, gain in zip(left, gains, strict=True)]
        ranked.sort(key=lambda scored: (-scored.gain, scored.candidate.cross))
        watch(number, learned, ranked)
        left = [scored.candidate for scored in ranked]
    return ranked
