"""The deep part of a model of an older version: a network on embeddings of the fields, as plain arrays.

Such files are still read and scored, but no longer written by a fit; `producer/network.py` has the deep part of today.

embeddings : float32 (n_codes, size)   one for each original field
matrices   : float32 (n_in, n_out)     one for each layer; the first takes the fields' embeddings side by side
biases     : float32 (n_out,)          the last layer has one output, the log-odds
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from autocross.checks import MOST_WEIGHT, Facts, is_count, require
from autocross.features import FieldCodes
from autocross.producer.addition import Addition, Arrays
from autocross.producer.container import Container
from autocross.producer.inputs import as_row
from autocross.table.columns import Table

if TYPE_CHECKING:
    from autocross.producer.model import Model

ROWS_AT_ONCE = 8192  # limits the memory of intermediate results
DIGITS = 53  # of a float
LEAST_POWER = -700  # inputs far below 2 to this power count as zero
MOST_HIDDEN = 99  # layers between the embeddings and the log-odds

Array = NDArray[np.float32]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DeepPart(Addition):
    """Computes what the network adds to the log-odds from the codes of the original fields."""

    key = "deep"
    format = 2
    reason = "(deep part)"
    no_refit = (
        "The model has a deep part, whose embeddings and layers refit cannot learn anew. "
        "Fit a WideDeepClassifier to the new rows, or refit the model of an AutoCrossClassifier."
    )

    embeddings: tuple[Array, ...]
    matrices: tuple[Array, ...]
    biases: tuple[Array, ...]

    @property
    def hidden(self) -> tuple[int, ...]:
        """Sizes of the layers between the embeddings and the output."""
        return tuple(len(bias) for bias in self.biases[:-1])

    @cached_property
    def layers(self) -> list[Layer]:
        return [Layer.of(matrix, bias) for matrix, bias in zip(self.matrices, self.biases, strict=True)]

    @property
    def most(self) -> float:
        """A bound on every number that the network computes, for any row."""
        bound = highest = max(float(np.abs(table).max(initial=0.0)) for table in self.embeddings)
        for matrix, bias in zip(self.matrices, self.biases, strict=True):
            bound = bound * float(np.abs(matrix).sum(axis=0, dtype=np.float64).max()) + float(np.abs(bias).max())
            highest = max(highest, bound)
        return highest

    def log_odds(self, codes: Sequence[FieldCodes], log_odds: Floats, table: Table) -> Floats:
        """What the network adds in each row."""
        n_rows, codes = codes[0].n_rows, codes[: len(self.embeddings)]
        starts = range(0, n_rows, ROWS_AT_ONCE)
        parts = [
            self.add_up([coded.between(first_row, min(first_row + ROWS_AT_ONCE, n_rows)) for coded in codes])
            for first_row in starts
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def add_up(self, codes: Sequence[FieldCodes]) -> Floats:
        """What the network adds in each row, for as many rows as are computed at the same time."""
        return self.forward(np.concatenate([embedded(*pair) for pair in zip(self.embeddings, codes, strict=True)], axis=1))

    def log_odds_one(self, codes: Sequence[Any], log_odds: float, row: Mapping[str, Any]) -> float:
        """What the network adds in one row. A multi-value field has a tuple of codes."""
        vectors = [
            embedded(table, as_row(code))[0] if isinstance(code, tuple) else table[code]
            for table, code in zip(self.embeddings, codes[: len(self.embeddings)], strict=True)
        ]
        return float(self.forward(np.concatenate(vectors)[None].astype(np.float64))[0])

    def forward(self, values: Floats) -> Floats:
        """Put the embeddings side by side and apply the layers, with max(0, x) between them."""
        for layer in self.layers[:-1]:
            values = np.maximum(layer.apply(values), 0.0)
        result: Floats = self.layers[-1].apply(values)[:, 0]
        return result

    def pack(self, arrays: Arrays) -> Facts:
        """How many layers it has as JSON, all else as arrays."""
        for word in ("embeddings", "matrices", "biases"):
            arrays.update({f"deep.{word}.{number}": array for number, array in enumerate(getattr(self, word))})
        return {"n_layers": len(self.matrices)}

    @classmethod
    def expect(cls, entry: Facts, sizes: Sequence[tuple[str, int]], stored: Container) -> None:
        """Each layer takes what the one before gives, and the last gives one number."""
        n_layers = entry["n_layers"]
        require(is_count(n_layers, 1) and n_layers <= MOST_HIDDEN + 1, "its deep part has no proper number of layers")
        width, size = 0, None
        for number, (name, n_codes) in enumerate(sizes):
            complaint = f"field {name!r} has embeddings of the wrong shape"
            _, size = stored.expect(f"deep.embeddings.{number}", "F32", (n_codes, size), complaint)
            require(size >= 1, complaint)
            width += size
        for number in range(n_layers):
            complaint = f"layer {number} of its deep part does not fit the one before"
            (n_out,) = stored.expect(f"deep.biases.{number}", "F32", (None,), complaint)
            stored.expect(f"deep.matrices.{number}", "F32", (width, n_out), complaint)
            require(n_out >= 1, complaint)
            width = n_out
        require(len(sizes) > 0 and width == 1, "its deep part has more than one output")

    @classmethod
    def unpack(cls, entry: Facts, model: Model, stored: Container) -> Self:
        """The network, whose weights are numbers of bounded size."""
        counts = {"embeddings": len(model.producer.encoder.fields), "matrices": entry["n_layers"], "biases": entry["n_layers"]}
        embeddings, matrices, biases = (
            tuple(stored.array(f"deep.{word}.{number}", "its deep part") for number in range(n)) for word, n in counts.items()
        )
        for array in (*embeddings, *matrices, *biases):
            require(bool(np.isfinite(array).all()), "its deep part has a weight that is no number")
        deep = cls(embeddings, matrices, biases)
        require(deep.most <= MOST_WEIGHT, "its deep part has weights without measure")
        return deep

    def summary(self) -> Facts:
        return {"embedding": self.embeddings[0].shape[1], "hidden": list(self.hidden)}

    @classmethod
    def in_words(cls, summary: Facts) -> str:
        hidden = " and ".join(map(str, summary["hidden"]))
        return f"deep part: embeddings of {summary['embedding']} numbers a field, hidden layers of {hidden}"


@dataclass(frozen=True)
class Layer:
    """A layer in whole numbers. Its sums are exact, so one row and many agree, however a library orders and divides the work.

    Inputs are rounded to whole numbers of ``bits`` bits, in a unit that depends on the largest input of the row. Weights are whole
    numbers in units of 2 ** -``shift``. Both have so few bits that no sum of products exceeds the 53 bits of a float.
    """

    matrix: Floats
    bias: Floats
    bits: int
    shift: int

    @classmethod
    def of(cls, matrix: Array, bias: Array) -> Layer:
        room = DIGITS - math.ceil(math.log2(len(matrix)))
        bits = room - room // 2
        shift = room // 2 - math.frexp(float(np.abs(matrix).max()))[1]
        return cls(np.rint(np.ldexp(matrix.astype(np.float64), shift)), bias.astype(np.float64), bits, shift)

    def apply(self, values: Floats) -> Floats:
        """Each row's outputs."""
        # A power of two above the largest input of the row. Multiplying by a power of two changes no digit.
        power = np.maximum(np.frexp(np.abs(values).max(axis=1, keepdims=True))[1], LEAST_POWER)
        whole = np.rint(values * np.ldexp(1.0, self.bits - power))
        result: Floats = (whole @ self.matrix) * np.ldexp(1.0, power - (self.bits + self.shift)) + self.bias
        return result


def embedded(table: Array, coded: FieldCodes) -> Floats:
    """The embedding of a field in each row: the mean if a row has several codes, and zero if it has none."""
    if coded.starts is None:
        single: Floats = table[coded.codes].astype(np.float64)
        return single
    sizes = np.diff(coded.starts)
    total = np.zeros((coded.n_rows, table.shape[1]))
    np.add.at(total, np.repeat(np.arange(coded.n_rows), sizes), table[coded.codes[coded.starts[0] : coded.starts[-1]]])
    total /= np.maximum(sizes, 1)[:, None]
    return total
