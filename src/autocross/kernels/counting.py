"""How many rows each model learns from, code by code. Notation as in `kernels.gathering`; counts is (n_codes, n_models)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.kernels import kernel, part


@kernel
def count(codes: NDArray[Any], fold: Any, counts: NDArray[np.int64]) -> None:
    """Count the rows of each code, without those of the model's own fold."""
    for row in range(codes.shape[0]):
        code, own = codes[row], fold[row]
        for k in range(counts.shape[1]):
            counts[code, k] += k != own  # without a branch, which would often be mispredicted


@kernel
def count_ragged(codes: NDArray[Any], starts: NDArray[np.int64], fold: Any, counts: NDArray[np.int64]) -> None:
    """`count` for a field with any number of codes per row."""
    for row in range(starts.shape[0] - 1):
        own = fold[row]
        for entry in range(starts[row], starts[row + 1]):
            code = codes[np.uint64(entry)]
            for k in range(counts.shape[1]):
                counts[code, k] += k != own


@kernel
def tally(codes: NDArray[Any], bucket: Any, fold: Any, label: Any, n_buckets: int, counts: NDArray[np.int64]) -> None:
    """Count rows and positives of each code, by bucket and by fold: counts is (n_codes, n_buckets + n_folds, 2). A row of no fold
    is counted by its bucket only."""
    n_folds = counts.shape[1] - n_buckets
    for row in range(codes.shape[0]):
        code, first, own, y = codes[row], bucket[row], fold[row], label[row]
        counts[code, first, 0] += 1
        counts[code, first, 1] += y
        if own < n_folds:
            counts[code, n_buckets + own, 0] += 1
            counts[code, n_buckets + own, 1] += y


@part
def n_below(edges: Any, value: float) -> int:
    """How many of the edges, which are in ascending order, are below a value."""
    low, high = 0, edges.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if edges[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def cut(
    codes: Any, column: Any, counts: Any, odds_edges: Any, row_edges: Any, up: float, down: float, first: int, cuts: Any
) -> None:
    """Fill cuts (2, n) with the bins of odds and rows of counts[codes[i], column[i]], which has rows and positives.

    Bins are numbered from `first`; `up` and `down` are added to positives and negatives.
    """
    for i in range(codes.shape[0]):
        code, place = codes[i], column[i]
        rows, positives = counts[code, place, 0], counts[code, place, 1]
        cuts[0, i] = first + n_below(odds_edges, (positives + up) / (rows - positives + down))
        cuts[1, i] = first + n_below(row_edges, float(rows))


@kernel
def before(counts: NDArray[np.int64]) -> None:
    """Replace what counts (n_codes, n_buckets, 2) has of each bucket by what it has of all buckets before."""
    for code in range(counts.shape[0]):
        for k in range(2):
            total = np.int64(0)
            for bucket in range(counts.shape[1]):
                own = counts[code, bucket, k]
                counts[code, bucket, k] = total
                total += own
