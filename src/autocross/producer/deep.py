"""The deep part of a model as plain arrays: what a network learned scores without the library that trained it.

embeddings : float32 (n_codes, size)   one for each original field
matrices   : float32 (n_in, n_out)     one for each layer; the first takes the fields' embeddings side by side
biases     : float32 (n_out,)          the last layer has one output, the log-odds
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.features import FieldCodes

ROWS_AT_ONCE = 8192  # keeps what lies between two layers small

Array = NDArray[np.float32]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DeepPart:
    """Codes of the original fields -> what the network adds to the log-odds."""

    embeddings: tuple[Array, ...]
    matrices: tuple[Array, ...]
    biases: tuple[Array, ...]

    @property
    def hidden(self) -> tuple[int, ...]:
        """Sizes of the layers between the embeddings and the output."""
        return tuple(len(bias) for bias in self.biases[:-1])

    @cached_property
    def layers(self) -> list[tuple[Floats, Floats]]:
        """In double precision, so that one row and many agree however the sums are ordered."""
        return [
            (matrix.astype(np.float64), bias.astype(np.float64)) for matrix, bias in zip(self.matrices, self.biases, strict=True)
        ]

    def log_odds(self, codes: Sequence[FieldCodes]) -> Floats:
        """What the network adds in each row."""
        n_rows = codes[0].n_rows
        starts = range(0, n_rows, ROWS_AT_ONCE)
        parts = [self.forward([one.between(at, min(at + ROWS_AT_ONCE, n_rows)) for one in codes]) for at in starts]
        return np.concatenate(parts) if parts else np.zeros(0)

    def log_odds_one(self, codes: Sequence[Any]) -> float:
        """What it adds in one row, whose multi-value fields have a tuple of codes."""
        return float(self.forward([as_row(one) for one in codes])[0])

    def forward(self, codes: Sequence[FieldCodes]) -> Floats:
        """Embeddings, then layer after layer, with max(0, x) between them."""
        values = np.concatenate([embedded(table, one) for table, one in zip(self.embeddings, codes, strict=True)], axis=1)
        for matrix, bias in self.layers[:-1]:
            values = np.maximum(values @ matrix + bias, 0.0)
        matrix, bias = self.layers[-1]
        result: Floats = (values @ matrix + bias)[:, 0]
        return result


def as_row(code: Any) -> FieldCodes:
    """One row's code, or tuple of codes, of a field."""
    if isinstance(code, tuple):
        return FieldCodes(np.array(code, np.int64), np.array([0, len(code)]))
    return FieldCodes(np.array([code]))


def embedded(table: Array, coded: FieldCodes) -> Floats:
    """A field's embedding in each row; of several codes the mean, of none zero."""
    if coded.starts is None:
        single: Floats = table[coded.codes].astype(np.float64)
        return single
    sizes = np.diff(coded.starts)
    total = np.zeros((coded.n_rows, table.shape[1]))
    np.add.at(total, np.repeat(np.arange(coded.n_rows), sizes), table[coded.codes[coded.starts[0] : coded.starts[-1]]])
    total /= np.maximum(sizes, 1)[:, None]
    return total
