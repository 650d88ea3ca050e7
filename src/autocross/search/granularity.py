"""Which granularities of the numerical columns to keep: the best half, and of every column at least one.

A field is judged by field-wise logistic regression over the base rate: one step of its weights under each penalty of
the grid, scored on the rows left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from autocross.engines import Engine
from autocross.features import Field
from autocross.models.logistic import Penalty, Regression
from autocross.models.tuning import FINE, GRID, penalties


def gains(engine: Engine, total_weight: float, n_models: int, fields: Sequence[Field], judged: Sequence[int]) -> dict[int, float]:
    """How much each of these fields brings the left-out loss down from that of the base rate."""
    regression = Regression(engine, total_weight, n_models)
    regression.converge(FINE)
    base = regression.left_out_loss()
    found = {}
    for at in judged:
        regression.add((at,), fields[at], Penalty())
        losses, _ = regression.try_penalties((at,), regression.sums((at,)), penalties(regression, GRID[::2]))
        found[at] = base - float(losses.min())
        del regression.terms[(at,)]
    return found


def best_half(fields: Sequence[Field], gain: dict[int, float]) -> list[int]:
    """The better half of the fields judged, rounded up, and the best of any column that would be left without."""
    ranked = sorted(gain, key=lambda at: (-gain[at], at))
    kept = ranked[: (len(ranked) + 1) // 2]
    columns = {fields[at].column for at in kept}
    for at in ranked:
        if fields[at].column not in columns:
            columns.add(fields[at].column)
            kept.append(at)
    return sorted(kept)
