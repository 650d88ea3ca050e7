"""Statistics of values: how often a value, or a combination of values, was seen, and how its rows turned out.

A statistic has two numbers for each value: the log-odds of its rows, held near those of all rows, and the count of its rows. Both
are cut into bins whose edges never change, and a model learns a weight for each bin. At scoring the numbers of a value are fixed,
so a statistic is then a table from values to weights, as a cross is.

A row that is learned from must not see its own label. It has the numbers of the rows before it: rows come in one random order for
all statistics, cut into buckets, and a row sees the buckets before its own. A row that judges has the numbers of the rows that its
model learns from, as a new row has those of all rows.

counts : int64 (..., 2)   rows with a value, and how many of them have the positive label
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.features import FIRST

Ints = NDArray[np.int64]
Codes = NDArray[np.uint8]

BUCKET_BITS = 4  # with finer buckets, models are no better
N_BUCKETS = 1 << BUCKET_BITS
STRENGTH = 3.0  # so many rows like all others are added to those of a value, before its log-odds are computed
_ABOVE = (0.05, 0.15, 0.25, 0.4, 0.55, 0.7, 0.9, 1.1, 1.35, 1.6, 1.9, 2.2, 2.6, 3.0, 3.5, 4.0, 5.0)
RATE_EDGES = np.array([*(-edge for edge in reversed(_ABOVE)), *_ABOVE])  # of log-odds, compared with those of all rows
COUNT_EDGES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, *(1 << power for power in range(8, 16))]) + 0.5
SIZES = (FIRST + len(RATE_EDGES) + 1, FIRST + len(COUNT_EDGES) + 1)  # codes of the log-odds, and of the count


def bucket_of(place: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The buckets of rows with these places in the shuffle."""
    bucket: NDArray[np.uint32] = place >> np.uint32(32 - BUCKET_BITS)
    return bucket


def numbers(counts: NDArray[Any], base: float, strength: float = STRENGTH) -> NDArray[np.float64]:
    """The log-odds and the logarithm of one plus the count, (..., 2), where ``counts`` is (..., 2).

    >>> numbers(np.array([[0, 0], [5, 5]]), 0.5).round(3).tolist()
    [[0.0, 0.0], [1.466, 1.792]]
    """
    n_rows, n_positive = counts[..., 0], counts[..., 1]
    up, down = n_positive + strength * base, n_rows - n_positive + strength * (1.0 - base)
    rate = np.log(up) - np.log(down) - (math.log(base) - math.log(1.0 - base))
    return np.stack([rate, np.log1p(n_rows)], axis=-1)


def bins(counts: Ints, codes: NDArray[Any], column: NDArray[Any], base: float) -> Codes:
    """The codes of the log-odds and of the count (2, n), by what ``counts`` (n_codes, n_columns, 2) has for each of these codes and
    columns. ``base`` is the share of positives among all rows.

    >>> bins(np.array([[[0, 0]], [[41, 40]]]), np.array([0, 1]), np.array([0, 0]), 0.5).tolist()
    [[19, 32], [2, 13]]
    """
    from autocross.kernels import counting  # not above: scoring single rows does without it

    found = np.empty((2, len(codes)), np.uint8)
    up, down = STRENGTH * base, STRENGTH * (1.0 - base)
    counting.cut(codes, column, counts, np.exp(RATE_EDGES) * (up / down), COUNT_EDGES, up, down, FIRST, found)
    return found


def bins_of_values(counts: Ints, base: float) -> Codes:
    """The codes of all values for new rows, (2, n_codes). ``counts`` is (n_codes, 2)."""
    n_codes = len(counts)
    return bins(counts[:, None], np.arange(n_codes), np.zeros(n_codes, np.int64), base)
