"""How many rows each model learns from, code by code. Notation as in `kernels.logistic`; counts is (n_codes, n_models)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.kernels import kernel, part

KNOWN = 64  # values with fewer rows have bins that are computed once
MODELS = 5  # as in `kernels.logistic`; it is here too because machine code on disk would not notice a change in another file


@part
def first_learner(own: int) -> int:
    """The first model that may learn from a row with these learners."""
    return own - MODELS if MODELS < own <= 2 * MODELS else 0


@part
def later_ones(learners: Any) -> bool:
    """Whether rows are learned from by later models only. The first row of which not all models learn tells it for all rows, so
    that the loops need not ask."""
    for row in range(learners.shape[0]):
        if learners[row] != 255:
            return bool(learners[row] > MODELS)
    return False


@kernel
def count(codes: NDArray[Any], learners: Any, counts: NDArray[np.int64]) -> None:
    """Count the rows of each code that each model learns from."""
    if later_ones(learners):
        for row in range(codes.shape[0]):
            for k in range(first_learner(learners[row]), counts.shape[1]):
                counts[codes[row], k] += 1
        return
    for row in range(codes.shape[0]):
        code, own = codes[row], learners[row]
        for k in range(counts.shape[1]):
            counts[code, k] += k != own  # without a branch, which would often be mispredicted


@kernel
def count_ragged(codes: NDArray[Any], starts: NDArray[np.int64], learners: Any, counts: NDArray[np.int64]) -> None:
    """`count` for a field with any number of codes per row."""
    for row in range(starts.shape[0] - 1):
        own = learners[row]
        for entry in range(starts[row], starts[row + 1]):
            code = codes[np.uint64(entry)]
            for k in range(first_learner(own), counts.shape[1]):
                counts[code, k] += k != own


@kernel
def tally(codes: NDArray[Any], bucket: Any, learners: Any, label: Any, n_buckets: int, counts: NDArray[np.int64]) -> None:
    """Count rows and positives of each code, by bucket, and those that each model does not learn from: counts is
    (n_codes, n_buckets + n_models, 2)."""
    n_models = counts.shape[1] - n_buckets
    for row in range(codes.shape[0]):
        code, first, own, y = codes[row], bucket[row], learners[row], label[row]
        counts[code, first, 0] += 1
        counts[code, first, 1] += y
        for k in range(own if own < n_models else 0, own + 1 if own < n_models else min(first_learner(own), n_models)):
            counts[code, n_buckets + k, 0] += 1
            counts[code, n_buckets + k, 1] += y


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


@part
def rate_bin(rows: int, positives: int, edges: Any, up: float, down: float) -> int:
    """The bin of the odds of a value. `up` and `down` are added to positives and negatives."""
    return n_below(edges, (positives + up) / (rows - positives + down))


@kernel
def cut(
    codes: Any, column: Any, counts: Any, odds_edges: Any, row_edges: Any, up: float, down: float, first: int, cuts: Any
) -> None:
    """Fill cuts (2, n) with the bins of odds and rows of counts[codes[i], column[i]], which has rows and positives.

    Bins are numbered from `first`; `up` and `down` are added to positives and negatives. Most values have few rows, so the bins of
    few rows are computed once if there is much to cut.
    """
    n_known = KNOWN if codes.shape[0] > KNOWN * KNOWN else 0
    of_rows, of_odds = np.empty(n_known, np.uint8), np.empty((n_known, n_known), np.uint8)
    for rows in range(n_known):
        of_rows[rows] = first + n_below(row_edges, float(rows))
        for positives in range(rows + 1):
            of_odds[rows, positives] = first + rate_bin(rows, positives, odds_edges, up, down)
    for i in range(codes.shape[0]):
        code, place = codes[i], column[i]
        rows, positives = counts[code, place, 0], counts[code, place, 1]
        if rows < n_known:
            cuts[0, i] = of_odds[np.uint64(rows), np.uint64(positives)]
            cuts[1, i] = of_rows[np.uint64(rows)]
        else:
            cuts[0, i] = first + rate_bin(rows, positives, odds_edges, up, down)
            cuts[1, i] = first + n_below(row_edges, float(rows))


@kernel
def before(counts: NDArray[np.int64], n_buckets: int, totals: NDArray[np.int64]) -> None:
    """Replace what counts (n_codes, n_buckets + n_models, 2) has of each bucket by what it has of all buckets before, and what it
    has of the rows that a model does not learn from by what it has of all others. Fill totals (n_codes, 2) with all rows."""
    for code in range(counts.shape[0]):
        rows, positives = np.int64(0), np.int64(0)
        for bucket in range(n_buckets):
            own_rows, own_positives = counts[code, bucket, 0], counts[code, bucket, 1]
            counts[code, bucket, 0], counts[code, bucket, 1] = rows, positives
            rows += own_rows
            positives += own_positives
        for k in range(n_buckets, counts.shape[1]):
            counts[code, k, 0] = rows - counts[code, k, 0]
            counts[code, k, 1] = positives - counts[code, k, 1]
        totals[code, 0], totals[code, 1] = rows, positives
