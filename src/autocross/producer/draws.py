"""How far the weights of a model may be off: a few draws of what they may be as well, and the errors of sums of weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autocross.checks import Facts, is_count, is_number, require
from autocross.encoding.column import Arrays
from autocross.encoding.values import Interval
from autocross.features import FIRST, FieldCodes, narrowest
from autocross.producer.merging import Shape, is_line

if TYPE_CHECKING:
    from autocross.producer.model import Producer

Floats = NDArray[np.float64]
LARGEST = 127  # of a deviation, in one byte
OTHERS = "it has draws of other features than it has"


@dataclass(frozen=True)
class Draws:
    """Deviations from the weights, in some draws: ``intercept`` (n_draws,), and for each term (n_codes, n_draws) whole numbers q
    that stand for q * |q| times its scale. Squares leave room for values without rows, which deviate far more than others.

    Any sum of weights deviates in a draw by the sum of their deviations.
    """

    intercept: Floats
    terms: tuple[NDArray[np.int8], ...]
    scales: tuple[float, ...]

    @classmethod
    def rounded(cls, intercept: Floats, deviations: Sequence[Floats]) -> Draws:
        """Draws that keep a byte of every deviation."""
        scales = [float(np.abs(of_term).max(initial=0.0)) / LARGEST**2 or 1.0 for of_term in deviations]
        terms = [
            (np.sign(of_term) * np.rint(np.sqrt(np.abs(of_term) / scale))).astype(np.int8)
            for of_term, scale in zip(deviations, scales, strict=True)
        ]
        return cls(intercept, tuple(terms), tuple(scales))

    @property
    def n_draws(self) -> int:
        return len(self.intercept)

    def of(self, part: int, codes: Any) -> Floats:
        """The deviations of codes of a term: (n_codes, n_draws)."""
        roots = self.terms[part][codes].astype(np.float64)
        deviations: Floats = roots * np.abs(roots) * self.scales[part]
        return deviations

    def errors(self, shape: Shape) -> Floats:
        """The standard error of the weight of every cell of a shape, to which several fields or crosses may add."""
        total = np.zeros((shape.n_cells, self.n_draws))
        for part, codes in zip(shape.parts, shape.codes, strict=True):
            total += self.of(part, codes)
        return root_mean_square(total)

    def error_of_intercept(self) -> float:
        return float(root_mean_square(self.intercept[None])[0])

    def errors_of_rows(self, codes: Sequence[FieldCodes], n_rows: int) -> Floats:
        """The standard errors of the log-odds of rows, given their codes."""
        total = np.tile(self.intercept, (n_rows, 1))
        for part, coded in enumerate(codes):
            deviations = self.of(part, coded.codes)
            if coded.starts is None:
                total += deviations
            else:
                np.add.at(total, np.repeat(np.arange(n_rows), np.diff(coded.starts)), deviations)
        return root_mean_square(total)

    def pack(self, arrays: Arrays, statistics: Iterable[int]) -> Facts:
        """Small facts for the manifest; deviations go into arrays. Many values of a statistic deviate alike, so what they have is
        stored once, and for every value its number."""
        distinct = list(self.terms)
        for part in statistics:
            distinct[part], index = np.unique(self.terms[part], axis=0, return_inverse=True)
            arrays[f"draw.{part}"] = index.reshape(-1).astype(narrowest(len(distinct[part])))
        arrays["draws"] = np.concatenate([np.zeros((0, self.n_draws), np.int8), *distinct])
        sizes = [len(of_term) for of_term in distinct]
        return {"intercept": self.intercept.tolist(), "scales": list(self.scales), "sizes": sizes}

    @classmethod
    def unpack(cls, facts: Facts, producer: Producer, stored: Mapping[str, NDArray[Any]]) -> Draws:
        """What was packed, checked against the features of the model."""
        intercept, scales, sizes = facts["intercept"], facts["scales"], facts["sizes"]
        require(all(map(is_number, [*intercept, *scales])) and len(intercept) > 0, "its draws are no numbers")
        require(all(map(is_count, sizes)) and len(sizes) == len(scales) == len(producer.fields), OTHERS)
        draws = stored["draws"]
        require(draws.shape == (sum(sizes), len(intercept)) and draws.dtype == np.int8, OTHERS)
        terms = np.split(draws, np.cumsum(sizes)[:-1]) if sizes else []
        for part in producer.statistics:
            index = stored[f"draw.{part}"]
            require(index.dtype.kind == "u" and int(index.max(initial=0)) < len(terms[part]), OTHERS)
            terms[part] = terms[part][index]
        n_codes = [field.n_codes for field in producer.fields]
        require([len(of_term) for of_term in terms] == n_codes, OTHERS)
        return cls(np.array(intercept, np.float64), tuple(terms), tuple(map(float, scales)))


def root_mean_square(deviations: Floats) -> Floats:
    """The standard errors of sums of weights, given their deviations (n_sums, n_draws)."""
    errors: Floats = np.sqrt((deviations**2).mean(axis=1))
    return errors


def rises(weights: Floats) -> Floats:
    """How much the weights of cells in order, (n_cells, ...), change across each cell: the mean of the steps to it and from it."""
    steps = np.diff(weights, axis=0)
    ends = np.concatenate([steps[:1], steps, steps[-1:]])
    mean: Floats = (ends[1:] + ends[:-1]) / 2.0
    return mean


def inside_bins(shape: Shape, weights: Sequence[Floats], deviations: Sequence[Floats]) -> tuple[int, Floats] | None:
    """How far the log-odds of a row may lie from the weight of its bin of a number. Inside a bin they go on rising as they do from
    bin to bin; what is chance in these rises, by the draws, is taken off.

    Returns the finest field of the number, and the standard deviation in each of its bins. None if the shape is no number's.
    """
    finest = max(range(len(shape.parts)), key=lambda part: int(shape.codes[part].max()))
    codes, encoder = shape.codes[finest], shape.producer.encoder
    bins = np.flatnonzero(codes >= FIRST)
    if shape.parts[finest] >= len(encoder.fields) or not is_line(encoder, shape.parts[finest]) or len(bins) < 2:
        return None
    rise, chance = rises(shape.sums(weights)[bins]), rises(shape.sums(deviations)[bins])
    total = float((rise**2).sum())
    left = max(0.0, total - float((chance**2).mean(axis=1).sum())) / total if total else 0.0
    single = np.array([is_single(shape.value(cell)) for cell in bins.tolist()])
    squares = np.where(single, 0.0, rise**2 * left / 12.0)  # the variance of a uniform distribution is a twelfth
    n_codes = encoder.fields[shape.parts[finest]].n_codes
    cells = np.bincount(codes[bins], minlength=n_codes)
    return shape.parts[finest], np.sqrt(np.bincount(codes[bins], squares, n_codes) / np.maximum(cells, 1))


def is_single(value: Any) -> bool:
    """Whether a bin holds a single whole number."""
    return isinstance(value, Interval) and value.whole and value.high - value.low <= 1
