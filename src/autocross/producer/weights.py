"""All weights of a model as one table, and how important each of its terms and columns is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.encoding.values import Interval, Value
from autocross.errors import AutoCrossError
from autocross.producer import wording
from autocross.producer.merging import Shape, alone, apart, listed
from autocross.producer.model import UNCOUNTED, Model
from autocross.table.outputs import WEIGHT_COLUMNS

Floats = NDArray[np.float64]
INTERCEPT = "(intercept)"


@dataclass(frozen=True)
class Cell:
    """One line of the table. ``low`` and ``high`` are the bounds of a number, where there are any. What an older file does not know
    is None."""

    term: str
    value: str
    low: float | None
    high: float | None
    rows: int | None
    positives: int | None
    weight: float
    error: float | None


def cells(model: Model, merge: bool = True) -> Iterable[tuple[Shape | None, Cell]]:
    """Every line of the table, with the shape that it belongs to. The first line is the intercept, which belongs to none."""
    about = model.about
    draws = model.draws
    error = None if draws is None else draws.error_of_intercept()
    yield None, Cell(INTERCEPT, "", None, None, about.n_rows, about.n_positive, model.intercept, error)
    for shape in model.producer.shapes if merge else apart(model.producer):
        for cell in cells_of(model, shape):
            yield shape, cell


def cells_of(model: Model, shape: Shape) -> list[Cell]:
    """The lines of one shape."""
    weights, counts = shape.sums(model.weights), counts_of(model, shape)
    errors = None if model.draws is None else model.draws.errors(shape)
    lines = []
    for cell in listed(shape).tolist():
        value = shape.value(cell)
        rows, positives = (None, None) if counts is None else counts[cell].tolist()
        error = None if errors is None else float(errors[cell])
        lines.append(Cell(shape.name, shape.words(cell), *bounds(value), rows, positives, float(weights[cell]), error))
    return lines


def bounds(value: Value | tuple[Value, ...]) -> tuple[float | None, float | None]:
    """The bounds of an interval of numbers; None where there is none."""
    if not isinstance(value, Interval):
        return None, None
    low, high = value.low, value.high
    return None if math.isinf(low) else low, None if math.isinf(high) else high


def counts_of(model: Model, shape: Shape) -> NDArray[np.int64] | None:
    """The rows and positives of every cell of a shape, if they are known."""
    if model.counts is None:
        return None
    if not len(shape.uncounted):
        return shape.counts(model.counts, np.zeros((0, 2), np.int64))
    if model.background is None:
        return None
    return shape.counts(model.counts, model.background.cells[model.producer.shapes.index(shape)])


def mass_of(model: Model, shape: Shape) -> Floats:
    """How much the training rows of every cell weigh."""
    background = model.background
    if background is None or background.mass is None:
        counts = counts_of(model, shape)
        assert counts is not None
        return counts[:, 0].astype(np.float64)
    uncounted = background.mass[len(model.weights) + model.producer.shapes.index(shape)] if len(shape.uncounted) else np.zeros(0)
    return shape.counts(background.mass, uncounted).astype(np.float64)


def table(model: Model, merge: bool = True) -> dict[str, list[Any]]:
    """All lines as columns. If the fields of a term are not merged, the first column says which field or cross a line is of."""
    lines = list(cells(model, merge))
    columns = {name: [getattr(cell, name) for _, cell in lines] for name in WEIGHT_COLUMNS}
    names = wording.apart(model.producer.names)
    return columns if merge else {"field": [INTERCEPT if shape is None else names[shape.parts[0]] for shape, _ in lines], **columns}


def importances(model: Model) -> dict[str, float]:
    """How much each term moves the log-odds of a training row, up or down, on average: the mean absolute difference from its mean.
    A term of several shapes, such as the parts of a calendar, has the sum of them."""
    if model.counts is None:
        raise AutoCrossError(UNCOUNTED)
    total = model.about.n_rows if model.background is None else model.background.total
    terms: dict[str, float] = {}
    for shape in countable(model):
        mass, weight = mass_of(model, shape), shape.sums(model.weights)
        mean = float(mass @ weight) / max(float(mass.sum()), 1e-300)
        terms[shape.name] = terms.get(shape.name, 0.0) + float(mass @ np.abs(weight - mean)) / total
    return terms


def countable(model: Model) -> Iterable[Shape]:
    """The shapes of the model. Where an older file does not know the rows of merged cells, the parts of a shape take its place."""
    for shape in model.producer.shapes:
        if counts_of(model, shape) is not None:
            yield shape
        else:
            yield from (alone(model.producer, shape.columns, part) for part in shape.parts)


def column_importances(model: Model) -> dict[str, float]:
    """The importances of the columns: what their terms have, a cross being shared equally by its columns."""
    columns = {column.name: 0.0 for column in model.producer.encoder.schema}
    sharing = {shape.name: shape.columns for shape in model.producer.shapes}
    for name, importance in importances(model).items():
        for column in sharing[name]:
            columns[column] += importance / len(sharing[name])
    return columns
