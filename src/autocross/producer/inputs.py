"""What a network sees of a row: three numbers for each of some terms, the log-odds of the regression, and numbers in pieces.

known  : float32 (n_codes, 3)    for each code of a term: its weight, the log-odds of its rows, and the logarithm of their number
values : float64 (n_rows, n)     the three numbers of every term, then the log-odds of the regression; all are brought to mean 0 and
                                 spread 1, and cut off at 5. The pieces of the numerical columns come last

The pieces of a number are those between neighbouring knots. A piece is 0 below its lower knot, 1 above its upper one, and rises in
a straight line between them. A missing number has 0 everywhere, except in one more entry, which is 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.features import FieldCodes
from autocross.statistic import numbers
from autocross.table.columns import NumberColumn, Table
from autocross.table.values import number_of

STRENGTH = 5.0  # so many rows like all others are added to those of a code, before their log-odds are computed
FARTHEST = 5.0  # where values are cut off
N_PIECES = 16  # most pieces of a number
HUGE = 2.0**900  # knots are smaller, so that the distance of two knots is finite
PER_TERM = 3

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Known = NDArray[np.float32]


def known_of(weight: Floats, counts: Ints, base: float, factor: float = 1.0) -> Known:
    """What is known about each code, by its weight and by how many rows it had and how many of them were positive. ``base`` is the
    share of positives among all rows. Counts of a part of the rows are multiplied by ``factor``, as if they were those of all."""
    return np.column_stack([weight, numbers(factor * counts, base, STRENGTH)]).astype(np.float32)


def known_terms(weights: Sequence[NDArray[Any]], counts: Sequence[Ints], base: float) -> tuple[Known, ...]:
    """What is known about the codes of several terms, by the counts of all rows."""
    return tuple(known_of(weight.astype(np.float64), own, base) for weight, own in zip(weights, counts, strict=True))


def gathered(known: Known, coded: FieldCodes) -> Floats:
    """What is known about the codes of each row. Of several codes in a row, weights are added up and the rest is averaged."""
    if coded.starts is None:
        single: Floats = known[coded.codes].astype(np.float64)
        return single
    sizes, total = np.diff(coded.starts), np.zeros((coded.n_rows, PER_TERM))
    np.add.at(total, np.repeat(np.arange(coded.n_rows), sizes), known[coded.codes[coded.starts[0] : coded.starts[-1]]])
    total[:, 1:] /= np.maximum(sizes, 1)[:, None]
    return total


def as_row(codes: tuple[int, ...]) -> FieldCodes:
    """One row's codes of a multi-value field."""
    return FieldCodes(np.array(codes, np.int64), np.array([0, len(codes)]))


def knots_of(values: Floats) -> Floats:
    """Where the pieces of a number begin and end: at quantiles of its values. A number of fewer than two values has no piece."""
    present = np.clip(values[~np.isnan(values)], -HUGE, HUGE)
    if not len(present):
        return np.zeros(0)
    knots: Floats = np.unique(np.quantile(present, np.linspace(0, 1, N_PIECES + 1), method="nearest"))
    return knots if len(knots) > 1 else np.zeros(0)


def numbers_of(table: Table, columns: Sequence[str]) -> Floats:
    """The numbers of these columns in all rows, (n_rows, n_columns)."""
    numbers = np.empty((table.n_rows, len(columns)))
    for place, name in enumerate(columns):
        column, index = table.columns[name], table.index.get(name)
        assert isinstance(column, NumberColumn)
        numbers[:, place] = column.values if index is None else column.values[index]
    return numbers


@dataclass(frozen=True)
class Inputs:
    """Says what the network sees. ``known`` has a table for each of the ``terms``, which are numbers of fields and crosses."""

    terms: tuple[int, ...]
    known: tuple[Known, ...]
    columns: tuple[str, ...]
    knots: tuple[Floats, ...]
    centre: Floats
    spread: Floats

    @property
    def width(self) -> int:
        """How many values a row has."""
        return len(self.centre) + len(self.owner) + len(self.columns)

    @cached_property
    def owner(self) -> Ints:
        """The column that each piece belongs to."""
        return np.repeat(np.arange(len(self.knots)), [len(knots) - 1 for knots in self.knots])

    @cached_property
    def low(self) -> Floats:
        return np.concatenate([np.zeros(0), *(knots[:-1] for knots in self.knots)])

    @cached_property
    def length(self) -> Floats:
        return np.concatenate([np.zeros(0), *(np.diff(knots) for knots in self.knots)])

    @cached_property
    def first(self) -> Ints:
        """Where the codes of each term begin, if those of all terms follow each other."""
        return np.cumsum([0, *(len(known) for known in self.known)], dtype=np.int64)[:-1]

    @cached_property
    def all_known(self) -> Known:
        return np.concatenate(self.known) if self.known else np.zeros((0, PER_TERM), np.float32)

    def values(self, codes: Sequence[FieldCodes], log_odds: Floats, numbers: Floats) -> Floats:
        """The values of all rows. ``codes`` has those of all fields and crosses."""
        of_terms = [gathered(known, codes[term]) for term, known in zip(self.terms, self.known, strict=True)]
        return self.joined(np.concatenate([*of_terms, log_odds[:, None]], axis=1), numbers)

    def values_one(self, codes: Sequence[Any], log_odds: float, row: Mapping[str, Any]) -> Floats:
        """The values of one row, whose multi-value fields have a tuple of codes: (1, n)."""
        several = [(place, codes[term]) for place, term in enumerate(self.terms) if isinstance(codes[term], tuple)]
        found = [codes[term] for term in self.terms]
        for place, _ in several:
            found[place] = 0
        raw = np.empty((1, len(self.centre)))
        raw[0, :-1] = self.all_known[self.first + np.array(found, np.int64)].reshape(-1)
        raw[0, -1] = log_odds
        for place, code in several:
            raw[0, PER_TERM * place : PER_TERM * (place + 1)] = gathered(self.known[place], as_row(code))[0]
        return self.joined(raw, np.array([[number_of(row.get(name)) for name in self.columns]], np.float64))

    def joined(self, raw: Floats, numbers: Floats) -> Floats:
        """All values of rows, from those that still have to be brought to scale and from the numbers."""
        scaled = np.minimum(np.maximum((raw - self.centre) / self.spread, -FARTHEST), FARTHEST)
        missing = np.isnan(numbers)
        with np.errstate(over="ignore"):
            pieces = (np.where(missing, -np.inf, numbers)[:, self.owner] - self.low) / self.length
        return np.concatenate([scaled, np.minimum(np.maximum(pieces, 0.0), 1.0), missing], axis=1)
