"""How the scores of the training rows are spread, as the finished model scores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from autocross.blocks import Block, Cross
from autocross.crossing import CrossCoder
from autocross.engines import Engine
from autocross.producer.deciles import Deciles, count_cells
from autocross.producer.model import Producer, add_weights

Floats = NDArray[np.float64]


def deciles_of(engine: Engine, producer: Producer, intercept: float, weights: Sequence[Floats]) -> Deciles:
    """The deciles of the log-odds of all rows in the blocks. Every row counts once, whatever its weight."""
    statistics = {coder.term: coder for coder in producer.crosses if coder.kind == "statistic"}
    return Deciles.of(engine.total(cells_of, intercept, producer.terms, weights, statistics))


def cells_of(
    block: Block, intercept: float, terms: Sequence[Cross], weights: Sequence[Floats], statistics: Mapping[Cross, CrossCoder]
) -> NDArray[np.int64]:
    """How many rows have log-odds in each cell. Weights are added in the order of the terms, as in scoring."""
    total = np.full(block.n_rows, intercept)
    for term, weight in zip(terms, weights, strict=True):
        if (coder := statistics.get(term)) is None:
            add_weights(total, block.coded(term), weight)
        else:  # the block has what was known before each row, but a new row has the value itself
            add_weights(total, coder.encode([block.coded((field,)) for field in coder.fields]), weight)
    return count_cells(total)
