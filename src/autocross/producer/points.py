"""Points instead of weights: log-odds times a factor, rounded to whole numbers so that little is lost.

Every term is compared with its mean over the training rows, as reasons are, and what the means add up to is in the base. A column
that may hold several values is not compared with its mean: a row without any value has no points of it.

The errors of rounding add up over the terms. If a term is moved as a whole, the base can undo it, and only its errors change. So
each term is moved by the part of a point for which the errors vary least over the training rows: values that many rows have are
then rounded alike. The base is such that the mean score of the training rows stays as it is.

exact : float64 (n_cells,)   the points of the cells of a shape before they are rounded
mass  : float64 (n_cells,)   the share of the training rows that each cell has
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from autocross.producer.merging import Shape
from autocross.producer.model import Model
from autocross.producer.weights import counts_of, mass_of

Floats = NDArray[np.float64]
SHIFTS = np.array(sorted(np.arange(-25, 25) / 50, key=abs))  # parts of a point by which a term may be moved


def rounded_points(model: Model, factor: float) -> tuple[float, tuple[Floats, ...]]:
    """The base, which is not rounded, and whole numbers for all cells of every shape, where the log-odds are multiplied by this
    factor."""
    base, points, knows = factor * model.intercept, [], model.counts is not None
    for shape in model.producer.shapes:
        several = is_ragged(shape)
        mean = sum(float(model.means[part]) for part in shape.parts) if knows and not several else 0.0
        exact = factor * (shape.sums(model.weights) - mean)
        mass = shares(model, shape)
        rounded = np.rint(exact) if mass is None else best_rounding(exact, mass, SHIFTS[:1] if several else SHIFTS)
        base += factor * mean - (0.0 if mass is None else float(mass @ (rounded - exact)))
        points.append(rounded + 0.0)  # which turns -0.0 into 0.0
    return base, tuple(points)


def best_rounding(exact: Floats, mass: Floats, shifts: Floats) -> Floats:
    """Whole numbers for the cells of a shape, which is moved by the one of these shifts for which the errors vary least."""
    errors = [variance(np.rint(exact + shift) - exact, mass) for shift in shifts.tolist()]
    rounded: Floats = np.rint(exact + shifts[int(np.argmin(errors))])  # of equal ones the first, which is the smallest shift
    return rounded


def deviations(model: Model, points: tuple[Floats, ...], factor: float) -> tuple[float, float]:
    """The standard deviations, over the training rows, of the errors of rounding and of the exact scores, as if the terms were
    independent. Terms whose rows are not known are left out."""
    errors, scores = 0.0, 0.0
    for shape, rounded in zip(model.producer.shapes, points, strict=True):
        if (mass := shares(model, shape)) is not None:
            exact = factor * shape.sums(model.weights)
            errors += variance(rounded - exact, mass)
            scores += variance(exact, mass)
    return math.sqrt(errors), math.sqrt(scores)


def shares(model: Model, shape: Shape) -> Floats | None:
    """The share of the training rows that each cell has, if it is known."""
    if counts_of(model, shape) is None:
        return None
    return mass_of(model, shape) / (model.about.n_rows if model.background is None else model.background.total)


def variance(values: Floats, mass: Floats) -> float:
    """The variance of numbers with these shares."""
    return max(0.0, float(mass @ values**2) - float(mass @ values) ** 2)


def is_ragged(shape: Shape) -> bool:
    """Whether a row may have several cells of a shape, or none."""
    places = shape.producer.encoder.places
    return any(places[number][0].ragged for number in shape.fields)
