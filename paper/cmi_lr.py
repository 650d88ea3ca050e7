"""CMI+LR: crosses of second order by conditional mutual information, after Chapelle et al. 2015.

label : uint8   (n_rows,)            0 or 1
given : float64 (n_rows,)            probability of 1 under the present model: what the label is conditioned on
codes : int     (n_rows, n_fields)   the fields

A cross with value v in n rows, y of them positive, the present model expecting p, would add to the likelihood
y log(y / p) + (n - y) log((n - y) / (n - p)); summed over its values and divided by the rows, that is the mutual information of
cross and label given what the model knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import xlogy

Ints = NDArray[np.int64]


def mutual_information(cross: Ints, label: NDArray[np.uint8], given: NDArray[np.float64]) -> float:
    """Conditional mutual information of a cross, given as one number a row, and the label."""
    _, value = np.unique(cross, return_inverse=True)
    n, y, p = (np.bincount(value, weight) for weight in (np.ones(len(value)), label, given))
    p = np.clip(p, 1e-9, n - 1e-9)
    gained = xlogy(y, y / p) + xlogy(n - y, (n - y) / (n - p))
    return float(gained.sum() / len(label))


def conditional_crosses(
    codes: Ints, columns: Sequence[str], label: NDArray[np.uint8], given: NDArray[np.float64], taken: set[frozenset[int]]
) -> list[tuple[int, int]]:
    """All pairs of fields of different columns that are not taken, the most informative first, of two columns only the best."""
    sizes = codes.max(axis=0) + 1
    found: dict[frozenset[str], tuple[float, tuple[int, int]]] = {}
    used = {frozenset(columns[at] for at in pair) for pair in taken}
    for one, other in combinations(range(codes.shape[1]), 2):
        pair = frozenset((columns[one], columns[other]))
        if len(pair) == 2 and pair not in used:
            bits = mutual_information(codes[:, one].astype(np.int64) * sizes[other] + codes[:, other], label, given)
            found[pair] = max(found.get(pair, (-1.0, (0, 0))), (bits, (one, other)))
    return [pair for _, pair in sorted(found.values(), reverse=True)]


def with_crosses(rows: pl.DataFrame, codes: Ints, names: Sequence[str], pairs: Sequence[tuple[int, int]]) -> pl.DataFrame:
    """The table with a column of text for each pair of fields."""
    texts = pl.DataFrame({f"field {at}": codes[:, at] for at in sorted({at for pair in pairs for at in pair})}).cast(pl.String)
    crossed = texts.select(
        pl.concat_str(f"field {one}", f"field {other}", separator=" x ").alias(f"{names[one]} x {names[other]}")
        for one, other in pairs
    )
    return pl.concat([rows, crossed], how="horizontal")
