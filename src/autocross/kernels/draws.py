"""Draws of the weights: how rows pull at the deviations of several draws at once.

codes  : uint8/16/32 (n_rows,)        the field's code in each row
starts : int64 (n_rows + 1,)          ragged twin: row r holds codes[starts[r]:starts[r + 1]]
bend   : float32 (n_rows,)            the curvature of the loss of each row, in the unit of pulls
delta  : float32 (n_codes, N_DRAWS)   a change of the field's deviations
pulls  : int32 (n_rows, N_DRAWS)      the gradient of each row in each draw, in fixed point
sums   : int64 (n_codes, N_DRAWS)     their sums by code
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.kernels import kernel

N_DRAWS = 10  # for the whole package; the loops are compiled for this number

Codes = NDArray[Any]
Ints = NDArray[np.int64]
Pulls = NDArray[np.int32]
Singles = NDArray[np.float32]


@kernel
def gather_pulls(codes: Codes, pulls: Pulls, sums: Ints) -> None:
    """Add the pulls of each row to its code."""
    for row in range(codes.shape[0]):
        code = np.uint64(codes[row])
        for draw in range(N_DRAWS):
            sums[code, draw] += np.int64(pulls[row, draw])


@kernel
def gather_pulls_ragged(codes: Codes, starts: Ints, pulls: Pulls, sums: Ints) -> None:
    """`gather_pulls` for a field with any number of codes per row."""
    for row in range(starts.shape[0] - 1):
        for entry in range(starts[row], starts[row + 1]):
            code = np.uint64(codes[np.uint64(entry)])
            for draw in range(N_DRAWS):
                sums[code, draw] += np.int64(pulls[row, draw])


@kernel
def move_pulls(codes: Codes, bend: Singles, delta: Singles, pulls: Pulls) -> None:
    """Apply a change of the field's deviations to the pulls of every row."""
    for row in range(codes.shape[0]):
        code, by = np.uint64(codes[row]), bend[row]
        for draw in range(N_DRAWS):
            pulls[row, draw] += np.int32(by * delta[code, draw])


@kernel
def move_pulls_ragged(codes: Codes, starts: Ints, bend: Singles, delta: Singles, pulls: Pulls) -> None:
    """`move_pulls` for a field with any number of codes per row."""
    for row in range(starts.shape[0] - 1):
        by = bend[row]
        for entry in range(starts[row], starts[row + 1]):
            code = np.uint64(codes[np.uint64(entry)])
            for draw in range(N_DRAWS):
                pulls[row, draw] += np.int32(by * delta[code, draw])
