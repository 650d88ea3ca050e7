"""Scales the odds of rows when weights change, whatever the loss.

The notation is that of `kernels.logistic`, which also says what makes loops fast.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.kernels import kernel, part

Codes = NDArray[Any]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

N_FOLDS = 5  # for the whole package; it is here because machine code on disk would not notice a change in another file


@part
def scale_rows(codes: Codes, factor: Floats, odds: Floats, n_models: int) -> None:
    for row in range(codes.shape[0]):
        code = codes[row]
        for k in range(n_models):
            odds[row, k] *= factor[code, k]


@kernel
def scale(codes: Codes, factor: Floats, odds: Floats) -> None:
    """Apply a change of the field's weights, given as exp(change) (n_codes, n_models), to the odds of every row."""
    if odds.shape[1] == 1:
        scale_rows(codes, factor, odds, 1)
    elif odds.shape[1] == N_FOLDS:
        scale_rows(codes, factor, odds, N_FOLDS)
    else:
        scale_rows(codes, factor, odds, odds.shape[1])


@part
def scale_judged_rows(codes: Codes, judged: Codes, fold: Any, factor: Floats, odds: Floats, n_models: int) -> None:
    for row in range(codes.shape[0]):
        code, own, own_code = codes[row], fold[row], judged[row]
        for k in range(n_models):
            odds[row, k] *= factor[own_code if k == own else code, k]


@kernel
def scale_judged(codes: Codes, judged: Codes, fold: Any, factor: Floats, odds: Floats) -> None:
    """`scale` for a field in which a row has another code for the model that it judges, `judged` (n_rows,)."""
    if odds.shape[1] == N_FOLDS:
        scale_judged_rows(codes, judged, fold, factor, odds, N_FOLDS)
    else:
        scale_judged_rows(codes, judged, fold, factor, odds, odds.shape[1])


@part
def scale_ragged_rows(codes: Codes, starts: Ints, factor: Floats, odds: Floats, n_models: int) -> None:
    for row in range(starts.shape[0] - 1):
        for entry in range(starts[row], starts[row + 1]):
            code = codes[np.uint64(entry)]
            for k in range(n_models):
                odds[row, k] *= factor[code, k]


@kernel
def scale_ragged(codes: Codes, starts: Ints, factor: Floats, odds: Floats) -> None:
    """`scale` for a field with any number of codes per row."""
    if odds.shape[1] == 1:
        scale_ragged_rows(codes, starts, factor, odds, 1)
    elif odds.shape[1] == N_FOLDS:
        scale_ragged_rows(codes, starts, factor, odds, N_FOLDS)
    else:
        scale_ragged_rows(codes, starts, factor, odds, odds.shape[1])
