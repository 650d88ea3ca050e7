"""Which granularities of the numerical columns to keep: the better half, with at least one of every column. The moments of a time
column have granularities too; its calendar may do without them, so that they are kept only if they help.

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

LEAST = 0.001  # share of the loss of the base rate that bins of moments must gain: less than that is the luck of single periods


def gains(
    engine: Engine,
    total_weight: float,
    n_models: int,
    fields: Sequence[Field],
    stems: Mapping[int, Mapping[int, Table]],
    loss: Loss,
) -> tuple[dict[int, float], float]:
    """By how much each field lowers the left-out loss, compared with the base rate, and the loss of the base rate.

    The blocks have the codes of stems, and ``stems`` has, for each stem and field, a table from codes of the stem to codes of the
    field. One pass over the rows serves all fields of a stem, because adding up the sums of codes gives the same bits.
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
            steps = [regression.step((number,), sums, penalty)[0] for penalty in penalties(regression, GRID[::2])]
            factors = np.exp(np.stack(steps, axis=2))[table]
            losses = engine.total(try_scales, regression.loss, stem_key(stem), factors, regression.loss_unit) / regression.loss_unit
            gain[number] = base - float(losses.min())
            del regression.terms[(number,)]
    return gain, base


def best_half(fields: Sequence[Field], gain: dict[int, float], base: float) -> list[int]:
    """The better half of the judged fields, rounded up, and the best field of every column that would have none.

    A column that has other fields too is a time. Its judged fields, which are bins of moments, compete among themselves, and those
    of the better half are kept that gain enough of ``base``, the loss of the base rate.
    """
    with_others = {field.column for number, field in enumerate(fields) if number not in gain}
    numbers = {number: gained for number, gained in gain.items() if fields[number].column not in with_others}
    ranked = sorted(numbers, key=lambda number: (-numbers[number], number))
    kept = ranked[: (len(ranked) + 1) // 2]
    columns = {fields[number].column for number in kept}
    for number in ranked:
        if fields[number].column not in columns:
            columns.add(fields[number].column)
            kept.append(number)
    for column in with_others:
        moments = sorted((number for number in gain if fields[number].column == column), key=lambda number: (-gain[number], number))
        kept += [number for number in moments[: (len(moments) + 1) // 2] if gain[number] > LEAST * base]
    return sorted(kept)
