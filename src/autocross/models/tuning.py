"""The penalties of a regression, found by log-grid on the rows left out.

First all fields get one pair (l1, l2). Then each field chooses an l2 of its own: a step of that field alone is tried under every l2
of the grid, and the left-out rows decide. This costs about as much as a sweep. On few rows the choice is mostly noise, so a
field must gain something to move away from the shared penalty. Fields whose codes are in order are then held near a line, too.

Penalties are in units of a row's mean weight, because only the ratios of the weights count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from autocross.blocks import INTERCEPT, Cross
from autocross.features import FEW_ROWS, Penalty
from autocross.models.logistic import Regression

GRID = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
L1_GRID = (0.1, 0.3, 1.0, 3.0, 10.0)
NEAR = (0.1, 0.3, 1.0, 3.0, 10.0)  # times the present penalty
SMOOTHNESS = 1000.0  # smooth is this many times l2
START = 10.0
ROUGH = 1e-4  # while penalties are compared, a sweep that promises less than this per row is the last
FEW_SWEEPS = 3
SHARED_SWEEPS = 10  # of few rows, for each shared penalty; they cost little
SLOPE = 10.0  # strength that holds the slope of a line near zero; with 1 or 100, small tables were worse
FINE = 1e-5
MAX_SWEEPS = 10
DISTRUST = 1.0  # loss that a field must gain to move its penalty away from the shared one by a factor of ten
DISTRUST_OF_FEW = 2.0  # the same on few rows, and there every factor of ten costs as much
CYCLES = 2  # how often every field chooses; a third time changed no score beyond 0.0002

Report = Callable[[str], None]


def has_few_rows(regression: Regression) -> bool:
    """Whether the choice of penalties needs more care, because there are few rows."""
    return regression.n_rows <= FEW_ROWS


def penalties(regression: Regression, l2s: Sequence[float], line: bool = False) -> list[Penalty]:
    """Penalties of the grid for rows of this regression's mean weight. With ``line`` they hold the weights of ordered codes near a
    line, if there are few rows."""
    slope = SLOPE if line and has_few_rows(regression) else 0.0
    return [Penalty(0.0, l2, 0.0, slope).times(regression.mean_weight) for l2 in l2s]


def smoothed(grid: Sequence[Penalty]) -> list[Penalty]:
    """The same penalties with neighbours held together as well."""
    return [replace(penalty, smooth=SMOOTHNESS * penalty.l2) for penalty in grid]


def choices(regression: Regression, cross: Cross) -> list[Penalty]:
    """What a field may choose from at first: every other penalty of the grid."""
    field = regression.terms[cross].field
    grid = penalties(regression, GRID[::2], line=field.has_line)
    return grid if field.chain is None else grid + smoothed(grid)


def set_all(regression: Regression, penalty: Penalty) -> None:
    """Give every field except the intercept this penalty."""
    for cross, term in regression.terms.items():
        if cross != INTERCEPT:
            term.penalty = penalty if term.field.has_line else replace(penalty, slope=0.0)


def tune_shared(regression: Regression, report: Report, *, with_l1: bool) -> Penalty:
    """The best penalty for all fields together. It is searched down the grid of l2 from its middle, or up if that does not help,
    and then up the grid of l1. Without l1, ordered codes may be held near a line."""

    def grid(l2s: Sequence[float]) -> list[Penalty]:
        return penalties(regression, l2s, line=not with_l1)

    def loss(penalty: Penalty) -> float:
        set_all(regression, penalty)
        regression.converge(ROUGH, SHARED_SWEEPS if has_few_rows(regression) else FEW_SWEEPS)
        report(f"l1 {penalty.l1:g}, l2 {penalty.l2:g} for all fields")
        return regression.left_out_loss()

    (best,) = grid([START])
    least = loss(best)

    def walk(path: Sequence[Penalty]) -> bool:
        nonlocal best, least
        improved = False
        for penalty in path:
            reached = loss(penalty)
            if reached >= least:
                break
            best, least, improved = penalty, reached, True
        return improved

    if not walk(grid([l2 for l2 in reversed(GRID) if l2 < START])):
        walk(grid([l2 for l2 in GRID if l2 > START]))
    if with_l1:
        walk([replace(best, l1=l1 * regression.mean_weight) for l1 in L1_GRID])
    set_all(regression, best)
    return best


def tune_fields(regression: Regression, shared: Penalty, report: Report, max_sweeps: int = MAX_SWEEPS) -> None:
    """Choose an l2 for every field, in cycles over the fields until none changes; then sweep, at most ``max_sweeps`` times."""
    for cycle in range(CYCLES):
        regression.converge(ROUGH, FEW_SWEEPS)
        changed = 0
        for cross in fields_of(regression):
            # First try every other penalty of the grid, then those around the chosen one.
            if cycle == 0:
                changed += choose(regression, cross, choices(regression, cross), shared)
            else:
                changed += choose_near(regression, cross, shared)
        report(f"cycle {cycle + 1}: {changed} fields took another penalty")
        if not changed:
            break
    regression.converge(FINE, max_sweeps)


def fields_of(regression: Regression) -> list[Cross]:
    """All fields but the intercept."""
    return [cross for cross in regression.terms if cross != INTERCEPT]


def choose_near(regression: Regression, cross: Cross, anchor: Penalty, distrust: float = DISTRUST) -> bool:
    """Let one field move its penalty by a factor of ten at most. That of the slope stays."""
    now = regression.terms[cross].penalty
    return choose(regression, cross, [replace(now.times(factor), slope=now.slope) for factor in NEAR], anchor, distrust)


def choose(regression: Regression, cross: Cross, grid: Sequence[Penalty], anchor: Penalty, distrust: float = DISTRUST) -> bool:
    """Let one field take the penalty whose step is best on the left-out rows; says whether its penalty has changed.

    A penalty that lies d factors of ten away from the anchor must bring the loss down by ``distrust`` times d squared. A penalty
    that differs from the anchor in whether it is smooth pays nothing. On few rows, every penalty pays in proportion to d.
    """
    losses, deltas = regression.try_penalties(cross, regression.sums(cross), grid)
    distance = np.abs(np.log10([penalty.l2 / anchor.l2 for penalty in grid]))
    if has_few_rows(regression):
        price = DISTRUST_OF_FEW * distrust * distance
    else:
        price = distrust * np.where([bool(penalty.smooth) == bool(anchor.smooth) for penalty in grid], distance**2, 0.0)
    best = int(np.argmin(losses / regression.mean_weight + price))
    regression.move(cross, np.ascontiguousarray(deltas[:, :, best]))
    term = regression.terms[cross]
    changed = term.penalty != grid[best]
    term.penalty = grid[best]
    return changed
