"""How many rows each model learns from, code by code. Notation as in `kernels.gathering`; counts is (n_codes, n_models)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.kernels import kernel


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
