"""The deep part of a model: a network whose log-odds are blended with those of the regression, as plain arrays.

It scores without the library that trained it. Several networks are averaged; side by side they are one network with a single
hidden layer.

weights  : float32 (n_codes,)                       for each term that the network sees, what it contributes

matrices : float32 (n_in, n_hidden), (n_hidden, 1)
biases   : float32 (n_hidden,), (1,)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from autocross.checks import DAMAGED, MOST_WEIGHT, Facts, is_count, is_text, require
from autocross.errors import BundleError
from autocross.features import FieldCodes
from autocross.producer.addition import Addition, Arrays
from autocross.producer.container import Container
from autocross.producer.deep import ROWS_AT_ONCE, Layer
from autocross.producer.inputs import FARTHEST, HUGE, N_PIECES, PER_TERM, Inputs, known_terms, numbers_of
from autocross.table.columns import Table

if TYPE_CHECKING:
    from autocross.producer.model import Model

Array = NDArray[np.float32]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Network(Addition):
    """Adds ``share`` times the difference between the log-odds of the network and those of the regression. So the log-odds of the
    model are ``share`` times those of the network plus the rest times those of the regression."""

    key = "network"
    format = 4
    reason = "(deep part)"
    no_refit = (
        "The model has a deep part, whose network refit cannot learn anew. "
        "Fit a WideDeepClassifier to the new rows, or refit the model of an AutoCrossClassifier."
    )

    share: float
    inputs: Inputs
    matrices: tuple[Array, Array]
    biases: tuple[Array, Array]

    @cached_property
    def layers(self) -> tuple[Layer, Layer]:
        hidden, output = (Layer.of(matrix, bias) for matrix, bias in zip(self.matrices, self.biases, strict=True))
        return hidden, output

    @property
    def most(self) -> float:
        """A bound on every number that the network computes, for any row."""
        bound = highest = FARTHEST
        for matrix, bias in zip(self.matrices, self.biases, strict=True):
            bound = bound * float(np.abs(matrix).sum(axis=0, dtype=np.float64).max()) + float(np.abs(bias).max())
            highest = max(highest, bound)
        return highest

    def prepare(self) -> None:
        """Build what the first row needs."""
        _ = self.layers, self.inputs.all_known, self.inputs.first, self.inputs.owner, self.inputs.low, self.inputs.length

    def log_odds(self, codes: Sequence[FieldCodes], log_odds: Floats, table: Table) -> Floats:
        """What the network adds in each row."""
        n_rows, numbers = table.n_rows, numbers_of(table, self.inputs.columns)
        added = np.empty(n_rows)
        for first in range(0, n_rows, ROWS_AT_ONCE):
            last = min(first + ROWS_AT_ONCE, n_rows)
            some = [coded.between(first, last) for coded in codes]
            added[first:last] = self.forward(self.inputs.values(some, log_odds[first:last], numbers[first:last]))
        result: Floats = self.share * (added - log_odds)
        return result

    def log_odds_one(self, codes: Sequence[Any], log_odds: float, row: Mapping[str, Any]) -> float:
        """What the network adds in one row."""
        return self.share * (float(self.forward(self.inputs.values_one(codes, log_odds, row))[0]) - log_odds)

    def forward(self, values: Floats) -> Floats:
        """The log-odds of the network."""
        hidden, output = self.layers
        result: Floats = output.apply(np.maximum(hidden.apply(values), 0.0))[:, 0]
        return result

    def pack(self, arrays: Arrays) -> Facts:
        """Terms and columns as JSON, all else as arrays."""
        seen = self.inputs
        arrays |= {"network.centre": seen.centre, "network.spread": seen.spread}
        arrays |= {f"network.weights.{place}": known[:, 0].copy() for place, known in enumerate(seen.known)}
        arrays |= {f"network.knots.{place}": knots for place, knots in enumerate(seen.knots)}
        for word in ("matrices", "biases"):
            arrays |= {f"network.{word}.{place}": array for place, array in enumerate(getattr(self, word))}
        return {"share": self.share, "terms": list(seen.terms), "columns": list(seen.columns)}

    @classmethod
    def expect(cls, entry: Facts, sizes: Sequence[tuple[str, int]], stored: Container) -> None:
        """The hidden layer takes all that the network sees, and the last one gives one number."""
        share, terms, columns = entry["share"], entry["terms"], entry["columns"]
        require(type(share) is float and 0.0 < share <= 1.0, "its deep part has no proper share")
        rising = isinstance(terms, list) and all(map(is_count, terms)) and all(a < b for a, b in pairwise(terms))
        require(rising, "its deep part sees impossible terms")
        named = isinstance(columns, list) and all(map(is_text, columns)) and len(set(columns)) == len(columns)
        require(named, "its deep part sees impossible columns")
        for place in range(len(terms)):
            stored.expect(f"network.weights.{place}", "F32", (None,), f"term {place} of its deep part has no proper weights")
        n_scaled = PER_TERM * len(terms) + 1
        for word in ("centre", "spread"):
            stored.expect(f"network.{word}", "F64", (n_scaled,), "the inputs of its deep part have no proper scale")
        width = n_scaled
        for place in range(len(columns)):
            complaint = f"number {place} of its deep part has no proper knots"
            (n_knots,) = stored.expect(f"network.knots.{place}", "F64", (None,), complaint)
            require(2 <= n_knots <= N_PIECES + 1, complaint)
            width += n_knots
        complaint = "the layers of its deep part do not fit each other"
        (n_hidden,) = stored.expect("network.biases.0", "F32", (None,), complaint)
        require(n_hidden >= 1, complaint)
        stored.expect("network.matrices.0", "F32", (width, n_hidden), complaint)
        stored.expect("network.matrices.1", "F32", (n_hidden, 1), complaint)
        stored.expect("network.biases.1", "F32", (1,), complaint)

    @classmethod
    def unpack(cls, entry: Facts, model: Model, stored: Container) -> Self:
        """The network, whose weights are numbers of bounded size."""
        owner, sizes = "its deep part", [len(weight) for weight in model.weights]
        require(all(term < len(sizes) for term in entry["terms"]), "its deep part sees impossible terms")
        weights = []
        for place, term in enumerate(entry["terms"]):
            name, complaint = f"network.weights.{place}", f"term {place} of its deep part has no proper weights"
            require(stored.entries[name].shape == (sizes[term],), complaint)
            weights.append(stored.array(name, owner, may_be_zero=True))
            require(bool(np.isfinite(weights[-1]).all()), complaint)
        numerical = {column.column.name for column in model.producer.encoder.columns if column.column.kind == "numerical"}
        require(numerical.issuperset(entry["columns"]), "its deep part sees impossible columns")
        centre, spread = (stored.array(f"network.{word}", owner, may_be_zero=True) for word in ("centre", "spread"))
        proper = bool((np.abs(centre) <= MOST_WEIGHT).all() and (spread >= 1 / MOST_WEIGHT).all() and (spread <= MOST_WEIGHT).all())
        require(proper, "the inputs of its deep part have no proper scale")
        knots = tuple(stored.array(f"network.knots.{place}", owner) for place in range(len(entry["columns"])))
        rising = all(bool((np.abs(own) <= HUGE).all() and (np.diff(own) > 0).all()) for own in knots)
        require(rising, "its deep part has knots that do not rise")
        hidden, output = (
            (stored.array(f"network.matrices.{n}", owner), stored.array(f"network.biases.{n}", owner)) for n in (0, 1)
        )
        for array in (*hidden, *output):
            require(bool(np.isfinite(array).all()), "its deep part has a weight that is no number")
        counts, about = model.counts, model.about
        if counts is None or about.n_positive is None:
            raise BundleError(f"its deep part needs counts of rows, which it does not have. {DAMAGED}")
        known = known_terms(weights, [counts[term] for term in entry["terms"]], about.n_positive / about.n_rows)
        inputs = Inputs(tuple(entry["terms"]), known, tuple(entry["columns"]), knots, centre, spread)
        network = cls(entry["share"], inputs, (hidden[0], output[0]), (hidden[1], output[1]))
        require(network.most <= MOST_WEIGHT, "its deep part has weights without measure")
        return network

    def summary(self) -> Facts:
        return {
            "share": self.share,
            "n_terms": len(self.inputs.terms),
            "n_numbers": len(self.inputs.columns),
            "n_hidden": len(self.biases[0]),
        }

    @classmethod
    def in_words(cls, summary: Facts) -> str:
        return (
            f"deep part: a network has {100 * summary['share']:g} % of the log-odds, and all below has the rest; it sees "
            f"{summary['n_terms']} fields and crosses and {summary['n_numbers']} numbers by {summary['n_hidden']} hidden units"
        )
