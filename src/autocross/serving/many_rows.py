"""Many rows in compiled code: some rows at a time get the codes of their fields, and one kernel crosses them, looks up and adds."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autocross.engines.threads import n_cores
from autocross.features import FieldCodes
from autocross.kernels import scoring
from autocross.table.columns import Table

if TYPE_CHECKING:
    from autocross.producer.model import Model
    from autocross.serving.one_row import Words

TOGETHER = 1 << 12  # rows whose codes lie side by side, so that they stay in the cache
FEW = 20_000  # rows that are not worth a second thread


def log_odds(model: Model, plan: Words, words: Words, table: Table) -> NDArray[np.float64]:
    """The log-odds of all rows of a table, by the plan of a model."""
    codes = model.producer.encoder.encode(table)
    total = np.full(table.n_rows, model.intercept)

    def add(first: int, last: int) -> None:
        for begin in range(first, last, TOGETHER):
            end = min(last, begin + TOGETHER)
            scoring.add_many(plan, words, side_by_side(codes, begin, end), total[begin:end])

    n_threads = min(n_cores(), 1 + table.n_rows // FEW)
    bounds = [table.n_rows * number // n_threads for number in range(n_threads + 1)]
    if n_threads == 1:
        add(0, table.n_rows)
    else:
        with ThreadPoolExecutor(n_threads) as pool:
            list(pool.map(add, bounds[:-1], bounds[1:]))
    return total


def side_by_side(codes: Sequence[FieldCodes], first: int, last: int) -> NDArray[np.uint32]:
    """The codes of some rows: (n_fields, n_rows)."""
    matrix = np.empty((len(codes), last - first), np.uint32)
    for own, coded in zip(matrix, codes, strict=True):
        own[:] = coded.codes[first:last]
    return matrix
