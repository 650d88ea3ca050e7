"""Which granularities of the numerical columns to keep: the better half, with at least one of every column.

A field is judged alone, by how much it improves on the base rate: its weights take one step under each penalty of the grid, and the
loss on the rows left out decides.

The moments of a time column have granularities too. Its calendar can do without them, so that they are kept only if they help. If
it is known when rows happened, they must help to look ahead: most rows to come are in the last bin, whatever the bins in between
know. How good that is differs from one span of time to the next, so it must be good in most of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.blocks import stem_key
from autocross.engines import Engine
from autocross.features import FIRST, Field, Penalty
from autocross.models.logistic import Regression, Term, scale_and_gather, try_scales
from autocross.models.losses import Loss
from autocross.models.tuning import FINE, GRID, penalties

Table = NDArray[Any]
Floats = NDArray[np.float64]

LEAST = 0.001  # share of the loss of the base rate that bins of moments must gain
BY_CHANCE = 8.0  # loss, for rows of mean weight, that one of several fields of noise gains at times
ERRORS = 3.0  # standard errors that they must gain, where several spans of time judge


def gains(
    engine: Engine,
    total_weight: float,
    n_models: int,
    fields: Sequence[Field],
    stems: Mapping[int, Mapping[int, Table]],
    loss: Loss,
    line: bool,
    ahead: bool = False,
) -> tuple[dict[int, Floats], float]:
    """By how much each field lowers the left-out loss, compared with the base rate, and the loss of the base rate.

    The blocks have the codes of stems, and ``stems`` has, for each stem and field, a table from codes of the stem to codes of the
    field. One pass over the rows serves all fields of a stem, because adding up the sums of codes gives the same bits. ``line``
    says whether weights may be held near a line. With ``ahead``, bins after the last that a model learned from have the step of
    that one, as if later rows were in it, and the gain is given model by model.
    """
    regression = Regression.begin(engine, total_weight, n_models, loss=loss)
    regression.converge(FINE)
    base = regression.left_out_loss()
    gain: dict[int, Floats] = {}
    for stem, tables in stems.items():
        n_codes = max(len(table) for table in tables.values())
        together = engine.total(scale_and_gather, regression.loss, None, None, stem_key(stem), n_codes, regression.unit)
        for number, table in tables.items():
            # Not by `add`, which may count rows: the blocks have no codes of the field yet.
            nothing = np.zeros((fields[number].n_codes, n_models))
            regression.terms[(number,)] = Term(fields[number], Penalty(), nothing, nothing.astype(np.bool_))
            sums = np.zeros((fields[number].n_codes, n_models, 2), np.int64)
            np.add.at(sums, table, together)
            steps = [regression.step((number,), sums, penalty)[0] for penalty in penalties(regression, GRID[::2], line)]
            if ahead:
                steps = [carried_on(step, sums) for step in steps]
            factors = np.exp(np.stack(steps, axis=2))[table]
            lost = np.stack([left_out_loss(regression, stem, some) for some in (of_each(factors) if ahead else [factors])])
            gain[number] = base - lost[:, np.argmin(lost.sum(axis=0))]
            del regression.terms[(number,)]
    return gain, base


def left_out_loss(regression: Regression, stem: int, factors: Floats) -> Floats:
    """The loss of the rows left out for each try, (n_tries,)."""
    losses = regression.engine.total(try_scales, regression.loss, stem_key(stem), factors, regression.loss_unit)
    return np.asarray(losses / regression.loss_unit)


def of_each(factors: Floats) -> Iterator[Floats]:
    """The factors of one model after the other, while the others stay at the base rate."""
    for k in range(factors.shape[1]):
        alone = np.ones_like(factors)
        alone[:, k] = factors[:, k]
        yield alone


def carried_on(step: Floats, sums: NDArray[np.int64]) -> Floats:
    """The step of each model, with that of the last bin that it learned from for all later bins."""
    carried = step.copy()
    for k in range(step.shape[1]):
        learned = np.flatnonzero(sums[FIRST:, k, 1])
        if len(learned):
            carried[FIRST + learned[-1] :, k] = step[FIRST + learned[-1], k]
    return carried


def best_half(fields: Sequence[Field], gain: Mapping[int, Floats]) -> list[int]:
    """The better half of the judged fields, rounded up, and the best field of every column that would have none."""
    ranked = sorted(gain, key=lambda number: (-gain[number].sum(), number))
    kept = ranked[: (len(ranked) + 1) // 2]
    columns = {fields[number].column for number in kept}
    for number in ranked:
        if fields[number].column not in columns:
            columns.add(fields[number].column)
            kept.append(number)
    return sorted(kept)


def helpful(fields: Sequence[Field], gain: Mapping[int, Floats], base: float, mean_weight: float = 1.0) -> list[int]:
    """Of the judged fields of each column, those of the better half that gain enough. ``base`` is the loss of the base rate, and
    ``mean_weight`` the weight of a row."""
    kept: list[int] = []
    least = max(LEAST * base, BY_CHANCE * mean_weight)
    for column in {fields[number].column for number in gain}:
        own = {number: gained for number, gained in gain.items() if fields[number].column == column}
        kept += [number for number in best_half(fields, own) if own[number].sum() > max(least, ERRORS * error(own[number]))]
    return sorted(kept)


def error(gains: Floats) -> float:
    """The standard error of a sum of gains, each of which is that of one span of time. A single one tells nothing about it."""
    return float(np.std(gains, ddof=1) * len(gains) ** 0.5) if len(gains) > 1 else 0.0
