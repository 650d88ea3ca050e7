"""How many rows each model learns from, code by code. Notation as in `kernels.gathering`; counts is (n_codes, n_models)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.kernels import kernel


@kernel
def count(codes: NDArray[Any], fold: Any, counts: NDArray[np.int64]) -> None:
    """Count each code's rows, leaving out the rows of the model's own fold."""
    for row in range(codes.shape[0]):
        code, own = codes[row], fold[row]
        for k in range(counts.shape[1]):
            counts[code, k] += k != own  # a branch would often be guessed wrong


@kernel
def count_ragged(codes: NDArray[Any], starts: NDArray[np.int64], fold: Any, counts: NDArray[np.int64]) -> None:
    """`count` for a field with any number of codes a row."""
    for row in range(starts.shape[0] - 1):
        own = fold[row]
        for at in range(starts[row], starts[row + 1]):
            code = codes[np.uint64(at)]
            for k in range(counts.shape[1]):
                counts[code, k] += k != own
