"""What a model computes, in plain numbers and texts. Every export is a rendering of this description; the JSON export is its text.

A row's log-odds are the intercept plus, for each field and each cross, the weight of its code in the row, in this order. Code 0 is
a missing value, 1 a rare or unseen one. `docs/exports.md` explains every entry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autocross.crossing import MODULUS, CrossCoder
from autocross.encoding.column import ColumnEncoder
from autocross.encoding.discretize import Bins
from autocross.encoding.timestamps import Calendar, Course
from autocross.encoding.vocabulary import PrivateVocabulary, Vocabulary
from autocross.errors import OptionError
from autocross.producer.model import Model
from autocross.serving.explaining import means_of, names_of
from autocross.table.schema import ColumnSchema, Reading
from autocross.table.values import BOOLEAN_TEXTS, NUMBERS_OF_BOOLEANS

VERSION = 1  # of the description; a reader must refuse others


@dataclass(frozen=True)
class Column:
    """A column of the rows, in the order of the schema.

    ``reads`` says as what its cells are read. ``digits`` says that texts that spell a number are written as the number is, and
    ``words`` has texts that stand for others; both are for categories that were numbers or booleans in training. ``mean`` is what
    the column adds to the log-odds of the training rows, on average.
    """

    name: str
    reads: Reading
    separator: str | None
    digits: bool
    words: dict[str, str]
    mean: float | None


@dataclass(frozen=True)
class Field:
    """A field of a column: how its codes come about, and the weight of each.

    A field has one of three forms. With ``edges``, the code is 2 plus the number of edges that are not above the number, or above
    the moment in microseconds since 1970. With ``texts``, it is 2 plus the place of the text; unknown texts share ``n_buckets``
    codes behind them, if there are buckets. With ``part``, it is 2 plus the place of that part of the calendar among ``numbers``.
    """

    name: str
    column: int
    weights: list[float]
    edges: list[float] | None = None
    texts: list[str] | None = None
    n_buckets: int = 0
    part: str | None = None
    numbers: list[int] | None = None


@dataclass(frozen=True)
class Cross:
    """Several fields together. The code is 2 plus the place of its key among ``keys``; unknown keys share ``n_buckets`` codes
    behind them, if there are buckets. ``columns`` are the columns of the fields, which have an equal share in its weight."""

    name: str
    fields: list[int]
    sizes: list[int]
    columns: list[int]
    keys: list[int]
    weights: list[float]
    n_buckets: int = 0

    @property
    def hashed(self) -> bool:
        """Whether keys are taken modulo the prime, because there are more combinations."""
        return math.prod(self.sizes) > MODULUS


@dataclass(frozen=True)
class Description:
    """A whole model. ``mean`` is the mean log-odds of the training rows, if reasons are wanted."""

    target: str
    labels: list[Any]
    intercept: float
    mean: float | None
    columns: list[Column]
    fields: list[Field]
    crosses: list[Cross]

    def fields_of(self, column: int) -> list[int]:
        """The fields of a column."""
        return [number for number, field in enumerate(self.fields) if field.column == column]

    @property
    def crossed(self) -> set[int]:
        """The fields that stand in a cross."""
        return {number for cross in self.crosses for number in cross.fields}


def describe(model: Model, reasons: bool = False) -> Description:
    """The description of a model. What only autocross itself can compute is refused."""
    encoder = model.producer.encoder
    refuse_unknown(model)
    used = [column for column in encoder.schema if column.kind != "ignore"]
    place = {column.name: number for number, column in enumerate(used)}
    fields: list[Field] = []
    for coded in encoder.columns:
        weights = [weight.tolist() for weight in model.weights[len(fields) : len(fields) + len(coded.fields)]]
        fields += fields_of(coded, place[coded.column.name], weights)
    crosses = [
        cross_of(name, cross, fields, weight.tolist())
        for name, cross, weight in zip(
            model.producer.names[len(fields) :], model.producer.crosses, model.weights[len(fields) :], strict=True
        )
    ]
    means = means_of(model)[0].tolist() if reasons else []
    of_columns = {
        name.name: float(sum(share * means[part] for part, share in name.shared)) if reasons else None
        for name in names_of(model, "column")
    }
    return Description(
        target=model.about.target,
        labels=list(model.about.classes),
        intercept=model.intercept,
        mean=model.intercept + float(sum(means)) if reasons else None,
        columns=[column_of(column, of_columns[column.name]) for column in used],
        fields=fields,
        crosses=crosses,
    )


def refuse_unknown(model: Model) -> None:
    """Refuse what no export can hold, with the way out."""
    if model.additions:
        raise OptionError(
            f"This model has {model.additions[0].reason}, which no export can hold. Fit an AutoCrossClassifier, whose model is a "
            "logistic regression, or score with autocross.load."
        )
    for column in model.producer.encoder.columns:
        if isinstance(column, PrivateVocabulary):
            raise OptionError(
                f"This model is private: it knows the categories of column {column.column.name!r} by their hashes only, and an "
                "export has them as they are. Fit without private, or score with autocross.load."
            )
        if not isinstance(column, (Vocabulary, Bins, Calendar)):
            raise OptionError(
                f"Column {column.column.name!r} is of kind {column.column.kind!r}, which no export knows. Leave it out by "
                "exclude, or score with autocross.load."
            )


def column_of(column: ColumnSchema, mean: float | None) -> Column:
    """What a reader has to know about a column."""
    assert column.reading is not None  # columns to ignore are not exported
    words: dict[str, str] = {}
    if column.reading == "text":
        words = {"boolean": BOOLEAN_TEXTS, "number": NUMBERS_OF_BOOLEANS}.get(column.stored, {})
    words = {word: text for word, text in words.items() if word != text}
    digits = column.reading == "text" and column.stored in ("boolean", "number")
    return Column(column.name, column.reading, column.separator, digits, words, mean)


def fields_of(coded: ColumnEncoder, column: int, weights: Sequence[list[float]]) -> list[Field]:
    """The fields of a column."""
    names = [field.name for field in coded.fields]
    if isinstance(coded, Vocabulary):
        return [Field(names[0], column, weights[0], texts=list(coded.values), n_buckets=coded.n_buckets)]
    if isinstance(coded, Bins):
        return [
            Field(name, column, weight, edges=edges.tolist())
            for name, edges, weight in zip(names, coded.edges, weights, strict=True)
        ]
    assert isinstance(coded, Calendar)
    fields = [
        Field(name, column, weight, part=part, numbers=list(numbers))
        for name, weight, (part, numbers) in zip(names, weights, coded.seen.items(), strict=False)
    ]
    return fields + (fields_of(coded.bins, column, weights[len(fields) :]) if isinstance(coded, Course) else [])


def cross_of(name: str, cross: CrossCoder, fields: Sequence[Field], weights: list[float]) -> Cross:
    """One cross."""
    columns = sorted({fields[number].column for number in cross.fields})
    return Cross(name, list(cross.fields), list(cross.sizes), columns, cross.keys.tolist(), weights, cross.n_buckets)
