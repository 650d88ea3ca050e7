"""Hyper-parameters of the encoding that are decided by rule. Each rule is here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.features import CAP, FEWEST_BITS


@dataclass(frozen=True)
class EncodingPlan:
    """What the encoder needs to know beside the columns."""

    min_count: int
    granularities: tuple[int, ...]
    widths: bool = True
    quantiles: bool = True
    cap: int = CAP
    n_buckets: int = 1 << FEWEST_BITS  # codes for the hashed tail beyond the cap
    coarse: bool = False  # whether numbers also get a field of few bins, for groups of weak pairs


def min_count(n_rows: int) -> int:
    """2, and one more for every two million rows. A value that is seen once tells nothing, and large tables need to save memory."""
    return 2 + n_rows // 2_000_000


def granularities(n_rows: int, n_numerical: int, memory: int) -> tuple[int, ...]:
    """10^p for p from 1 to 3, as long as bins have 5 rows or more and codes take no more than a quarter of the memory.

    >>> granularities(30_000, 6, 8 << 30), granularities(800, 6, 8 << 30)
    ((10, 100, 1000), (10, 100))
    """
    kept = []
    for p in (1, 2, 3):
        bytes_needed = n_rows * n_numerical * 2 * p * 2  # two kinds of bins, two bytes a code
        if p == 1 or (n_rows >= 5 * 10**p and bytes_needed <= memory // 4):
            kept.append(10**p)
    return tuple(kept)


def tallied(values: NDArray[Any], n: NDArray[np.int64] | None) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The distinct values in ascending order, and how many rows each has. Each given value stands for ``n`` rows, by default for
    one."""
    distinct, place = np.unique(values, return_inverse=True)
    counts = np.zeros(len(distinct), np.int64)
    np.add.at(counts, place, 1 if n is None else n)
    return distinct, counts
