"""A model as a scorecard: points for every cell of every term, whose sum is the score of a row.

score  = offset + factor * ln(odds of the favourable label)
factor = pdo / ln 2,   offset = points - factor * ln(odds)

So a score of ``points`` stands for ``odds``, and ``pdo`` more points double the odds. `producer/points.py` says how log-odds become
points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, overload
from warnings import warn

import numpy as np
from numpy.typing import NDArray

from autocross.checks import shown
from autocross.encoding.values import Interval, Span, Value
from autocross.errors import AutoCrossError, OptionError, OptionWarning
from autocross.features import FIRST
from autocross.producer.merging import Shape, listed
from autocross.producer.model import Model
from autocross.producer.points import deviations, rounded_points
from autocross.producer.weights import bounds, counts_of, importances
from autocross.producer.wording import cell_words
from autocross.serving.explaining import added_by
from autocross.serving.reasons import favours_negative
from autocross.table.outputs import CARD_COLUMNS
from autocross.table.schema import text_columns

Floats = NDArray[np.float64]
BASE = "(base)"
MOST = 1e9  # points, odds and pdo are no larger
MOST_DECIMALS = 6
EXACT = 2.0**53  # whole numbers below are added up without error
COARSE = 0.08  # if errors spread over more than this share of the spread of scores, they may cost more than 0.001 of the AUC


@dataclass(frozen=True)
class Line:
    """One line of a card. ``low`` and ``high`` are the bounds of a number, where there are any; ``rows`` are those of the training
    rows that have the value, if the model knows them."""

    term: str
    value: str
    low: float | None
    high: float | None
    rows: int | None
    points: float


@dataclass(frozen=True)
class Scorecard:
    """Points for every bin, value and combination of values of a model. The base points and those of a row's values add up to its
    score: ``points`` stand for ``odds`` of the label ``favourable``, and ``pdo`` more points double them.

    Inside, points are whole numbers of ``units`` of the last decimal, so that they are added up without error.
    """

    model: Model = field(repr=False)
    points: float
    odds: float
    pdo: float
    favourable: Any
    decimals: int
    base_units: float
    units: tuple[Floats, ...] = field(repr=False)  # of all cells of every shape of the producer

    @property
    def base(self) -> float:
        """The points that every row has."""
        points: float = self.in_points(self.base_units)
        return points

    def in_points(self, units: Any) -> Any:
        """Units as points: whole numbers, if there are no decimals."""
        if self.decimals:
            return units / 10.0**self.decimals
        return units.astype(np.int64) if isinstance(units, np.ndarray) else int(units)

    @cached_property
    def order(self) -> list[int]:
        """The numbers of the shapes, those of the most important term first. A term may have several, which stay together."""
        shapes = self.model.producer.shapes
        if self.model.counts is None:
            by_name: dict[str, float] = {}
            for shape, units in zip(shapes, self.units, strict=True):
                by_name[shape.name] = max(by_name.get(shape.name, 0.0), float(np.ptp(units)))
        else:
            by_name = importances(self.model)
        place = {name: number for number, name in enumerate(dict.fromkeys(shape.name for shape in shapes))}
        return sorted(range(len(shapes)), key=lambda number: (-by_name[shapes[number].name], place[shapes[number].name], number))

    @cached_property
    def lines(self) -> list[Line]:
        """The base points, and then a line for every cell of every term, the most important term first."""
        n_rows = self.model.about.n_rows
        return [Line(BASE, "", None, None, n_rows, self.base), *(line for number in self.order for line in self.lines_of(number))]

    def lines_of(self, number: int, groups: Sequence[list[int]] | None = None) -> list[Line]:
        """The lines of one shape: one for every cell, or for every group of neighbouring bins that have the same points."""
        shape, units = self.model.producer.shapes[number], self.units[number]
        counts, lines = counts_of(self.model, shape), []
        for cells in [[cell] for cell in listed(shape).tolist()] if groups is None else groups:
            value = joined_value(shape, cells)
            words = shape.words(cells[0]) if len(cells) == 1 else cell_words(value)
            rows = None if counts is None else int(counts[cells, 0].sum())
            lines.append(Line(shape.name, words, *bounds(value), rows, self.in_points(float(units[cells[0]]))))
        return lines

    def groups_of(self, number: int) -> list[list[int]]:
        """The cells of a shape, in which neighbouring bins with the same points are together."""
        shape, units = self.model.producer.shapes[number], self.units[number]
        cells = listed(shape).tolist()
        if len(shape.columns) > 1:
            return [[cell] for cell in cells]
        groups: list[list[int]] = []
        before: Any = None
        for cell in cells:
            value = shape.value(cell)
            if groups and units[cell] == units[groups[-1][-1]] and follows(value, before):
                groups[-1].append(cell)
            else:
                groups.append([cell])
            before = value
        return groups

    @property
    def table(self) -> Any:
        """All lines as a frame of polars."""
        from autocross.table.frames import typed_frame

        columns = {name: [getattr(line, name) for line in self.lines] for name in CARD_COLUMNS}
        return typed_frame(columns, {"low": float, "high": float, "rows": int})

    @overload
    def score(self, rows: Mapping[str, Any]) -> float: ...

    @overload
    def score(self, rows: Any) -> Any: ...

    def score(self, rows: Any) -> Any:
        """The score of one row, given as a mapping or a Series, or the scores of all rows of a frame or a file."""
        if isinstance(rows, Mapping):
            return self.score_one(rows)
        if hasattr(rows, "to_dict") and not hasattr(rows, "columns"):  # a Series of pandas
            return self.score_one(rows.to_dict())
        from autocross.table.coerce import typed
        from autocross.table.dialect import Dialect
        from autocross.table.frames import to_polars

        producer = self.model.producer
        table = typed(to_polars(rows, Dialect(text_columns(producer.encoder.schema))), producer.encoder.schema)
        codes, total = producer.codes(table), np.full(table.n_rows, self.base_units)
        for shape, units, coding in zip(producer.shapes, self.units, self.codings, strict=True):
            if coding is None:
                total += added_by(codes[shape.parts[0]], units)
            else:
                coder, cells = coding
                of_codes = np.concatenate([np.zeros(FIRST), units[cells]])
                total += added_by(coder.encode([codes[number] for number in coder.fields]), of_codes)
        return self.in_points(total)

    def score_one(self, row: Mapping[str, Any]) -> float:
        """The score of one row. An absent column counts as missing."""
        codes, total = self.model.producer.codes_one(row), self.base_units
        for shape, units, coding in zip(self.model.producer.shapes, self.units, self.codings, strict=True):
            if coding is None:
                found = codes[shape.parts[0]]
                cells = found if isinstance(found, tuple) else (found,)
            else:
                coder, order = coding
                cells = tuple(int(order[code - FIRST]) for code in coder.encode_one([codes[number] for number in coder.fields]))
            total += sum(float(units[cell]) for cell in cells)
        points: float = self.in_points(total)
        return points

    @cached_property
    def codings(self) -> list[Any]:
        """For every shape, what finds the cell of a row; None where cells are the codes of the only part."""
        return [shape.coder() if shape.axes else None for shape in self.model.producer.shapes]

    @overload
    def points_to_probability(self, score: float) -> float: ...

    @overload
    def points_to_probability(self, score: Any) -> Any: ...

    def points_to_probability(self, score: Any) -> Any:
        """The probability of the favourable label for a score or for many."""
        from autocross.serving.scorer import probabilities, probability

        log_odds = math.log(self.odds) + (np.asarray(score, np.float64) - self.points) * (math.log(2.0) / self.pdo)
        return probabilities(log_odds) if log_odds.ndim else probability(float(log_odds))

    def to_html(self) -> str:
        """The card as a page that needs nothing else, to be read or printed."""
        from autocross.serving.card_page import page

        return page(self)


def scorecard(
    model: Model, points: float = 600, odds: float = 50, pdo: float = 20, favourable: Any = None, decimals: int = 0
) -> Scorecard:
    """The scorecard of a model. ``odds`` are those of the favourable label, which is the negative one unless ``favourable`` says
    otherwise."""
    check(points, odds, pdo, decimals)
    is_negative = favours_negative(model.about.classes, favourable)
    if model.additions:
        raise AutoCrossError(
            "The model has a network, and no table of points can hold what it adds. Fit an AutoCrossClassifier for a scorecard."
        )
    points, odds, pdo, unit = float(points), float(odds), float(pdo), 10.0 ** int(decimals)
    factor = unit * pdo / math.log(2.0)
    base, units = rounded_points(model, -factor if is_negative else factor)
    base = float(np.rint(base + unit * points - factor * math.log(odds)))
    if not all(np.abs(of_shape).max(initial=abs(base)) < EXACT for of_shape in units):
        raise OptionError(f"pdo={shown(pdo)} gives points beyond all bounds. Give a smaller one.")
    errors, scores = deviations(model, units, -factor if is_negative else factor)
    if errors > COARSE * scores:
        warn(
            f"Rounded points are coarse for pdo={pdo:g}: rounding moves a score by {errors / unit:.2g} points, which may cost more "
            f"than 0.001 of the AUC. Give a larger pdo, or decimals={decimals + 1}.",
            OptionWarning,
            stacklevel=3,
        )
    label = model.about.classes[0 if is_negative else 1]
    return Scorecard(model, points, odds, pdo, label, int(decimals), base, units)


def follows(value: Any, before: Any) -> bool:
    """Whether a value is the interval that begins where another one ends."""
    return isinstance(value, (Interval, Span)) and isinstance(before, (Interval, Span)) and before.high == value.low


def joined_value(shape: Shape, cells: Sequence[int]) -> Value | tuple[Value, ...]:
    """What one cell stands for, or several neighbouring bins together."""
    first, last = shape.value(cells[0]), shape.value(cells[-1])
    if isinstance(first, Interval) and isinstance(last, Interval):
        return replace(first, high=last.high, after=last.after)
    return replace(first, high=last.high) if isinstance(first, Span) and isinstance(last, Span) else first


def check(points: Any, odds: Any, pdo: Any, decimals: Any) -> None:
    """Refuse numbers that make no scorecard."""
    for name, value, least in (("points", points, -MOST), ("odds", odds, 1 / MOST), ("pdo", pdo, 1 / MOST)):
        is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
        if not is_number or not least <= value <= MOST:
            above = "" if least < 0 else " above 0"
            raise OptionError(
                f"{name}={shown(value)} is out of range. Give a number{above} of at most {MOST:,.0f}, as in {name}=20."
            )
    is_whole = isinstance(decimals, (int, np.integer)) and not isinstance(decimals, bool)
    if not is_whole or not 0 <= decimals <= MOST_DECIMALS:
        raise OptionError(f"decimals={shown(decimals)} is out of range. Give a whole number from 0 to {MOST_DECIMALS}.")
