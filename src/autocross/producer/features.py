"""What a model gives to other models: the codes of its fields and crosses and, of each statistic, the bins of its two numbers.

In the model every value of a statistic has a code, because its two weights are added up there. As a feature that would be a column
for each of its values, which may be tens of thousands. So here a statistic is two fields: one of log-odds, one of counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross import statistic
from autocross.blocks import places
from autocross.encoding.values import Interval, Value, without_value
from autocross.errors import OptionError
from autocross.features import FIRST, RARE, Field, FieldCodes, in_order
from autocross.kernels import counting
from autocross.producer.model import Model
from autocross.producer.wording import apart, words
from autocross.table.coded import Category, Texts

PARTS = ("rate", "count")  # of a statistic
# The bounds of all bins, with one more on either side. There is no count below 0.
BOUNDS = (
    (-math.inf, -math.inf, *statistic.RATE_EDGES.tolist(), math.inf, math.inf),
    (-math.inf, -0.5, *statistic.COUNT_EDGES.tolist(), math.inf, math.inf),
)


def value_of_bin(part: int, code: int) -> Value:
    """What a code of one part of a statistic stands for.

    >>> words(value_of_bin(0, 2)), words(value_of_bin(0, 19)), words(value_of_bin(1, 2)), words(value_of_bin(1, 7))
    ('below -5', '-0.05 to 0.05', '0', '4.5 to 6.5')
    """
    if code < FIRST:
        return without_value(code)
    before, low, high, after = BOUNDS[part][code - FIRST : code - FIRST + 4]
    return Interval(low, high, before, after, whole=PARTS[part] == "count")


@dataclass(frozen=True)
class Learned:
    """The rows that a model was fitted to: their numbers in the table, their labels, and their places in the shuffle."""

    rows: NDArray[np.int64]
    label: NDArray[np.uint8]
    place: NDArray[np.uint32]

    @classmethod
    def of(cls, label: NDArray[np.uint8], number: NDArray[np.int64], seed: int) -> Learned:
        """``number`` has the numbers that all rows of the table had in the fit, which is below 0 for rows that it left out."""
        rows = np.flatnonzero(number >= 0)
        return cls(rows, label[rows], places(seed, number[rows]))

    def folds(self, n: int) -> NDArray[np.uint32]:
        """Which of n folds each row is in, by its place."""
        return ((self.place.astype(np.uint64) * np.uint64(n)) >> np.uint64(32)).astype(np.uint32)

    def bins(self, codes: NDArray[Any], n_codes: int, base: float) -> statistic.Codes:
        """The codes of both parts of a statistic, whose values have these codes, by the rows of the buckets before."""
        counts, bucket = np.zeros((n_codes, statistic.N_BUCKETS, 2), np.int64), statistic.bucket_of(self.place)
        no_fold = np.zeros(len(codes), np.uint8)
        counting.tally(codes, bucket, no_fold, self.label, statistic.N_BUCKETS, counts)
        counts[RARE] = 0  # as if never seen, as in the fit
        counting.before(counts, statistic.N_BUCKETS, np.empty((n_codes, 2), np.int64))
        return statistic.bins(counts, codes, bucket, base)


class Features:
    """The features of a model as columns: what ``transform`` returns."""

    def __init__(self, model: Model) -> None:
        self.model, self.producer = model, model.producer
        self.kept_categories: dict[int, list[str]] = {}
        # For each feature the field of the producer and, if that is a statistic, which part of it.
        self.sources: list[tuple[int, int | None]] = []
        for number in self.producer.found:
            is_statistic = number in self.producer.statistics
            self.sources += [(number, part) for part in range(len(PARTS))] if is_statistic else [(number, None)]

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return tuple(
            self.producer.fields[number] if part is None else self.field_of_part(number, part) for number, part in self.sources
        )

    def field_of_part(self, number: int, part: int) -> Field:
        """One part of a statistic as a field."""
        fields = [self.producer.encoder.fields[one] for one in self.producer.statistics[number].fields]
        name, columns = " x ".join(field.name for field in fields), " x ".join(field.column for field in fields)
        size = statistic.SIZES[part]
        return Field(part_name(name, PARTS[part]), columns, size, shares_rare=False, chain=in_order(size))

    @cached_property
    def names(self) -> list[str]:
        """The names of the features as columns."""
        return apart([as_column(field.name) for field in self.fields])

    @property
    def base(self) -> float:
        """The share of positives among all rows of the fit."""
        about = self.model.about
        assert about.n_positive is not None  # models that have statistics know it
        return about.n_positive / about.n_rows

    @cached_property
    def bins(self) -> dict[int, statistic.Codes]:
        """For each statistic, the codes of both parts (2, n_codes) for each of its values."""
        if not self.producer.statistics:
            return {}
        assert self.model.counts is not None
        return {number: statistic.bins_of_values(self.model.counts[number], self.base) for number in self.producer.statistics}

    def codes(self, coded: list[FieldCodes], learned: Learned | None = None) -> list[FieldCodes]:
        """The codes of all rows, feature by feature, from those of the producer. Rows have the statistics of all rows of the fit,
        as new rows do. Rows that are ``learned`` have those that they were learned from with: of the rows before them."""
        cut = {number: bins.take(coded[number].codes, axis=1) for number, bins in self.bins.items()}
        if learned is not None:
            for number, bins in cut.items():
                codes = coded[number].codes[learned.rows]
                bins[:, learned.rows] = learned.bins(codes, self.producer.fields[number].n_codes, self.base)
        return [coded[number] if part is None else FieldCodes(cut[number][part]) for number, part in self.sources]

    def describe(self, feature: int, code: int) -> str:
        """What a code of a feature stands for, in words."""
        number, part = self.sources[feature]
        return self.producer.describe(number, code) if part is None else words(value_of_bin(part, code))

    def value_names(self) -> list[str]:
        """A name for every code of every feature: the columns of the one-hot matrix."""
        return [
            f"{name}={self.describe(feature, code)}"
            for feature, (name, field) in enumerate(zip(self.names, self.fields, strict=True))
            for code in range(field.n_codes)
        ]

    def code_columns(self, codes: list[FieldCodes]) -> dict[str, NDArray[Any]]:
        """The codes of every feature as a column. A field that may have several codes per row is an error."""
        for name, coded in zip(self.names, codes, strict=True):
            if coded.starts is not None:
                raise OptionError(
                    f"Field {name!r} has several codes a row, which a column of codes cannot hold. Ask for readable values."
                )
        return {name: coded.codes for name, coded in zip(self.names, codes, strict=True)}

    def categories(self, feature: int) -> list[str]:
        """What all codes of a feature stand for, in words that differ. They are kept, because a feature may have a million."""
        if feature not in self.kept_categories:
            in_words = [self.describe(feature, code) for code in range(self.fields[feature].n_codes)]
            self.kept_categories[feature] = apart(in_words)
        return self.kept_categories[feature]

    def is_ordered(self, feature: int) -> bool:
        """Whether the codes of a feature are in the order of its values, as the bins of a number are."""
        number, part = self.sources[feature]
        return part is not None or (number < len(self.producer.encoder.fields) and self.fields[feature].chain is not None)

    def worded(self, codes: list[FieldCodes]) -> list[Category | Texts]:
        """The values of every feature in words, as a column. Several values of a multi-value field are joined by `|`."""
        columns: list[Category | Texts] = []
        for feature, (name, coded) in enumerate(zip(self.names, codes, strict=True)):
            if coded.starts is None:
                columns.append(Category(name, coded.codes, self.categories(feature), self.is_ordered(feature)))
                continue
            in_words = {code: self.describe(feature, code) for code in np.unique(coded.codes).tolist()}
            texts = [in_words[code] for code in coded.codes.tolist()]
            columns.append(Texts(name, ["|".join(texts[a:b]) for a, b in pairwise(coded.starts.tolist())]))
        return columns


def as_column(name: str) -> str:
    """The name of a field as that of a column. LightGBM and XGBoost refuse brackets.

    >>> as_column("age [10 even]")
    'age (10 even)'
    """
    return name.replace("[", "(").replace("]", ")")


def part_name(name: str, part: str) -> str:
    """The name of one of the numbers of a field."""
    return f"{as_column(name)} ({part})"
