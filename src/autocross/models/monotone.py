"""Fields whose weights must be monotone along their chains, as `Chain.direction` says: the regression's part of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.features import FIRST, Chain, Field, Penalty
from autocross.kernels import rising

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Marks = NDArray[np.bool_]


def tied(field: Field, rows: Ints, min_count: int) -> tuple[Marks, Marks]:
    """Which codes have no weight of their own: those without rows, which follow a neighbour, and whole chains that are too rare,
    which share the rare code. The second result has only the latter. ``rows`` is (n_codes, n_models)."""
    in_chain = over_chains(field, rows)
    rare = in_chain < (min_count if field.shares_rare and min_count > 1 else 0)
    rare[:FIRST] = False
    return rare | ((rows == 0) & (in_chain > 0)), rare


def over_chains(field: Field, numbers: Ints) -> Ints:
    """For every code, the sum over all codes of its chain: (n_codes, n_models)."""
    assert field.chain is not None
    link, links = np.empty(field.n_codes, np.int64), np.cumsum(field.chain.gap == 0) - 1
    link[field.chain.order] = links
    sums = np.zeros((links[-1] + 1, numbers.shape[1]), np.int64)
    np.add.at(sums, link, numbers)
    return sums[link]


def wholly_tied(field: Field, tied: NDArray[Any]) -> Marks:
    """Which codes are in chains that share the weight of the rare code."""
    n_free = over_chains(field, (tied == 0).astype(np.int64))
    return np.asarray(n_free == 0)


def step(sums: Ints, unit: float, weight: Floats, tied: Marks, chain: Chain, penalty: Penalty, width: int, delta: Floats) -> float:
    """Fill ``delta`` with the step of a monotone field; returns the decrease of the loss that it promises."""
    assert not (penalty.l1 and (penalty.smooth or penalty.slope))
    strengths = np.array([penalty.l1, penalty.l2, penalty.smooth, penalty.slope])
    return rising.step(sums, unit, weight, tied, *chain.arrays, float(chain.direction), strengths, width, delta)


def settled(field: Field, weight: Floats, rows: Ints) -> Floats:
    """The final weights of a field, monotone to the last bit if they have to be. ``rows`` is (n_codes,)."""
    if field.chain is None or not field.direction:
        return weight
    order, gap, _ = field.chain.arrays
    exact = np.ascontiguousarray(weight, np.float64).copy()
    rising.settle(exact, np.ascontiguousarray(rows), order, gap, float(field.direction))
    return exact
