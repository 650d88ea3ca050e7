"""Why rows score as they do: what each column, term or field adds, compared with the mean over the training rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autocross.errors import TableError
from autocross.features import FIRST, FieldCodes
from autocross.features import MISSING as NO_VALUE
from autocross.producer.merging import Shape, columns_of, in_order, value_of_part
from autocross.producer.model import Model
from autocross.producer.wording import AND, apart, cell_words, joined, number_words
from autocross.serving.reasons import MISSING, By, Explanation, Reason, checked

if TYPE_CHECKING:
    from autocross.serving.scorer import Scorer

Floats = NDArray[np.float64]
DIGITS = 6  # of a number that is a reason


@dataclass(frozen=True)
class Name:
    """A reason that the parts of a model may give, and how much of each of these parts belongs to it: all, unless shares are
    given. Terms have shapes."""

    name: str
    parts: tuple[int, ...]
    shares: tuple[float, ...] = ()
    shapes: tuple[Shape, ...] = ()

    @property
    def shared(self) -> Iterable[tuple[int, float]]:
        """The parts, and how much of each belongs to the reason."""
        return zip(self.parts, self.shares or repeat(1.0, len(self.parts)), strict=True)


def names_of(model: Model, by: By) -> list[Name]:
    """What the reasons are called, in the order of the schema and of the crosses. A cross counts for its columns in equal
    shares."""
    producer = model.producer
    if by == "field":
        names = apart(producer.names)
        return [Name(names[part], (part,)) for part in producer.parts]
    if by == "term":
        terms: dict[str, list[Shape]] = {}
        for shape in producer.shapes:
            terms.setdefault(shape.name, []).append(shape)
        return [
            Name(name, tuple(part for shape in shapes for part in shape.parts), shapes=tuple(shapes))
            for name, shapes in terms.items()
        ]
    columns: dict[str, list[tuple[int, float]]] = {column.name: [] for column in producer.encoder.schema if column.kind != "ignore"}
    for part in range(len(producer.fields)):
        own = columns_of(producer, part)
        for column in own:
            columns[column].append((part, 1.0 / len(own)))
    return [
        Name(name, tuple(part for part, _ in parts), tuple(share for _, share in parts)) for name, parts in columns.items() if parts
    ]


def means_of(model: Model) -> tuple[Floats, tuple[float, ...]]:
    """The means of all parts and of all additions. A model of an older file knows none: its reasons are compared with 0."""
    background = model.background
    means = np.zeros(len(model.weights)) if model.counts is None else model.means
    additions = () if background is None else background.additions
    return means, additions or (0.0,) * len(model.additions)


def explain(scorer: Scorer, rows: Any, top: int, by: By) -> Any:
    """One row's `Explanation`, or a frame of contributions for several rows."""
    checked(top, by)
    if isinstance(rows, Mapping):
        return explain_one(scorer, rows, top, by)
    if hasattr(rows, "to_dict") and not hasattr(rows, "columns"):  # a Series of pandas
        return explain_one(scorer, rows.to_dict(), top, by)
    if isinstance(rows, (int, float, bool, type(None))) or (isinstance(rows, (list, tuple)) and not rows):
        raise TableError(f"A row to explain is a mapping, a Series or a frame, not {type(rows).__name__}. Give one of these.")
    return explain_frame(scorer, rows, top, by)


def explain_one(scorer: Scorer, row: Mapping[str, Any], top: int, by: By) -> Explanation:
    """The reasons of one row, the strongest first."""
    from autocross.serving.scorer import probability

    model, log_odds = scorer.model, scorer.log_odds_one(row)
    codes = model.producer.codes_one(row)
    means, mean_additions = means_of(model)
    added = [
        sum(float(weight[code]) for code in (coded if isinstance(coded, tuple) else (coded,)))
        for weight, coded in zip(model.weights, codes, strict=True)
    ]
    reasons = [
        Reason(
            name.name,
            value_of(model, name, codes, row, by),
            sum(share * (added[part] - float(means[part])) for part, share in name.shared),
        )
        for name in names_of(model, by)
    ]
    steps = scorer.with_additions(row) if model.additions else []
    for addition, (before, after), mean in zip(model.additions, pairwise(steps), mean_additions, strict=True):
        name = apart([*(reason.name for reason in reasons), addition.reason])[-1]
        reasons.append(Reason(name, "all fields", after - before - mean))
    reasons.sort(key=lambda reason: -abs(reason.contribution))
    mean_log_odds = model.intercept + float(means.sum()) + sum(mean_additions)
    return Explanation(probability(log_odds), log_odds, mean_log_odds, tuple(reasons), model.about.classes, top)


def value_of(model: Model, name: Name, codes: Sequence[Any], row: Mapping[str, Any], by: By) -> str:
    """What the row has of a column, a term or a field, in words."""
    producer = model.producer
    if by == "column":
        return value_of_column(model, name, codes, row)
    if by == "field":
        return described(model, name.parts[0], codes)
    texts = []
    for shape in name.shapes:
        if not shape.axes or any(isinstance(codes[number], tuple) for number in shape.fields):
            texts.append(described(model, shape.parts[0], codes))
        else:
            texts.append(joined(cell_words(axis.values[axis.cell_of(codes)]) for axis in shape.axes))
            texts += [known(model, part, codes) for part in shape.parts if part in producer.statistics]
    said = [text for text in dict.fromkeys(texts) if not any(other.startswith(f"{text}, ") for other in texts)]
    return ", ".join(said)


def described(model: Model, part: int, codes: Sequence[Any]) -> str:
    """The values of one part in words. For a combination that has no weight of its own, the values that it consists of."""
    producer = model.producer
    coded = codes[part] if isinstance(codes[part], tuple) else (codes[part],)
    if part >= len(producer.encoder.fields) and all(code < FIRST for code in coded):
        values = AND.join(described(model, number, codes) for number in in_order(producer, part))
        return f"{values} {known(model, part, codes) if part in producer.statistics else '(rare)'}"
    words = " | ".join(cell_words(value_of_part(producer, part, code)) for code in coded) or "(empty)"
    return f"{words}, {known(model, part, codes)}" if part in producer.statistics else words


def known(model: Model, part: int, codes: Sequence[Any]) -> str:
    """What is known about the rows of a statistic's value."""
    coded = codes[part]
    code = coded[0] if isinstance(coded, tuple) else coded
    return model.describe(part, code).removeprefix(f"{model.producer.describe(part, code)}: ")


def value_of_column(model: Model, name: Name, codes: Sequence[Any], row: Mapping[str, Any]) -> str:
    """What the row has in a column. A number or a time is printed as it is, a category as the model knows it."""
    encoder = model.producer.encoder
    numbers = [part for part in name.parts if part < len(encoder.fields)]
    if all(codes[number] == NO_VALUE for number in numbers):
        return MISSING
    column, _ = encoder.places[numbers[0]]
    value = row.get(name.name)
    if column.column.kind == "time":
        return str(value).removesuffix(" 00:00:00")
    if column.column.kind == "numerical":
        return number_words(float(f"{value:.{DIGITS}g}")) if isinstance(value, float) else str(value).strip()
    return described(model, numbers[0], codes)


def explain_frame(scorer: Scorer, rows: Any, top: int, by: By) -> Any:
    """The contributions of all rows, as a frame of the caller's kind. A frame of one row gives the explanation of this row."""
    from autocross.table.coerce import typed
    from autocross.table.dialect import Dialect
    from autocross.table.frames import like, to_polars
    from autocross.table.schema import text_columns

    model = scorer.model
    schema = model.producer.encoder.schema
    frame = to_polars(rows, Dialect(text_columns(schema)))
    table = typed(frame, schema)
    if frame.height == 1:
        return explain_one(scorer, frame.row(0, named=True), top, by)
    codes = model.producer.codes(table)
    means, mean_additions = means_of(model)
    columns: dict[str, Floats] = {}
    for name in names_of(model, by):
        total = np.zeros(table.n_rows)
        for part, share in name.shared:
            total += share * (added_by(codes[part], model.weights[part]) - means[part])
        columns[name.name] = total
    log_odds = np.full(table.n_rows, model.intercept)
    for coded, weight in zip(codes, model.weights, strict=True) if model.additions else ():
        log_odds += added_by(coded, weight)
    for addition, mean in zip(model.additions, mean_additions, strict=True):
        more = addition.log_odds(codes, log_odds, table)
        log_odds += more
        columns[apart([*columns, addition.reason])[-1]] = more - mean  # a column may have that name too
    return like(rows, columns)


def added_by(coded: FieldCodes, weight: Floats) -> Floats:
    """What a field adds in every row."""
    if coded.starts is None:
        return weight[coded.codes]  # type: ignore[no-any-return]
    total = np.zeros(coded.n_rows)
    np.add.at(total, np.repeat(np.arange(coded.n_rows), np.diff(coded.starts)), weight[coded.codes])
    return total
