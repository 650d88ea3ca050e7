"""Which granularities of the numerical columns to keep: the better half, with at least one of every column.

A field is judged alone, by how much it improves on the base rate: its weights take one step under each penalty of the grid, and the
loss on the rows left out decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.blocks import stem_key
from autocross.engines import Engine
from autocross.features import Field, Penalty
from autocross.models.logistic import Regression, scale_and_gather, try_scales
from autocross.models.losses import Loss
from autocross.models.tuning import FINE, GRID, penalties

Table = NDArray[Any]


def gains(
    engine: Engine,
    total_weight: float,
    n_models: int,
    fields: Sequence[Field],
    stems: Mapping[int, Mapping[int, Table]],
    loss: Loss,
    line: bool,
) -> dict[int, float]:
    """By how much each field lowers the left-out loss, compared with the base rate.

    The blocks have the codes of stems, and ``stems`` has, for each stem and field, a table from codes of the stem to codes of the
    field. One pass over the rows serves all fields of a stem, because adding up the sums of codes gives the same bits. ``line``
    says whether weights may be held near a line.
    """
    regression = Regression.begin(engine, total_weight, n_models, loss=loss)
    regression.converge(FINE)
    base = regression.left_out_loss()
    gain = {}
    for stem, tables in stems.items():
        n_codes = max(len(table) for table in tables.values())
        together = engine.total(scale_and_gather, regression.loss, None, None, stem_key(stem), n_codes, regression.unit)
        for number, table in tables.items():
            regression.add((number,), fields[number], Penalty())
            sums = np.zeros((fields[number].n_codes, n_models, 2), np.int64)
            np.add.at(sums, table, together)
            steps = [regression.step((number,), sums, penalty)[0] for penalty in penalties(regression, GRID[::2], line)]
            factors = np.exp(np.stack(steps, axis=2))[table]
            losses = engine.total(try_scales, regression.loss, stem_key(stem), factors, regression.loss_unit) / regression.loss_unit
            gain[number] = base - float(losses.min())
            del regression.terms[(number,)]
    return gain


def best_half(fields: Sequence[Field], gain: dict[int, float]) -> list[int]:
    """The better half of the judged fields, rounded up, and the best field of every column that would have none."""
    ranked = sorted(gain, key=lambda number: (-gain[number], number))
    kept = ranked[: (len(ranked) + 1) // 2]
    columns = {fields[number].column for number in kept}
    for number in ranked:
        if fields[number].column not in columns:
            columns.add(fields[number].column)
            kept.append(number)
    return sorted(kept)
