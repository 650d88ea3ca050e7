"""Changes by hand: a term is taken out, or one of its cells is given another weight. The model keeps a record of every change.

A weight is changed in a part of the term, a field or a cross, that has a code in this cell only, so that no other cell changes. If
there is none, as where two granularities of a number overlap, the term gets one: a cross of all its fields whose values are the
changed cells. Its kind is "change". Scoring, merging and saving treat it as they treat any cross, but no fit has found it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from autocross.checks import MOST_CHARACTERS, MOST_WEIGHT, SURROGATE, is_text, shown
from autocross.crossing import CrossCoder
from autocross.encoding.encoder import Encoder
from autocross.encoding.values import Hashed, Missing, Rare
from autocross.errors import AutoCrossError, OptionError
from autocross.features import FIRST, Penalty
from autocross.producer.background import Background
from autocross.producer.draws import Draws
from autocross.producer.merging import Shape, listed, named
from autocross.producer.model import Change, Model, Producer
from autocross.producer.monotone import require_monotone
from autocross.producer.weights import counts_of, mass_of
from autocross.table.schema import ColumnSchema

T = TypeVar("T")
COMPARED = 10_000  # values of a term among which the nearest to a wrong one is looked for
TAKEN_OUT = "taken out by hand"


def checked_change(model: Model) -> Model:
    """The changed model, if it keeps what its fit was promised: columns that must be monotone still are."""
    require_monotone(model)
    return model


def without(model: Model, term: str, note: str = "", refit: bool = False) -> Model:
    """The model without a term. The intercept moves by the mean of the term, so that the mean log-odds stays, unless the rest is
    refitted next."""
    check(model, term, note)
    shapes = named(model.producer, term)
    parts = sorted({part for shape in shapes for part in shape.parts})
    if len(parts) == len(model.producer.parts):
        raise OptionError(f"{shapes[0].name!r} is all that the model has, and cannot be taken out. Fit another model instead.")
    intercept = model.intercept if refit else model.intercept + float(model.means[parts].sum())
    left = replace(taken_out(model, parts, refit), intercept=intercept)
    return checked_change(noted(left, Change("without", recordable(shapes[0].name), note=note)))


def with_weight(model: Model, term: str, value: Any, weight: Any, note: str = "") -> Model:
    """The model in which one cell of a term has this weight, and all else stays."""
    check(model, term, note)
    is_number = isinstance(weight, (int, float, np.integer, np.floating)) and not isinstance(weight, bool)
    if not is_number or not abs(weight) <= MOST_WEIGHT:
        raise OptionError(f"weight={shown(weight)} is no weight. Give a finite number, as in weight=0.2.")
    shape, cell = located(model.producer, named(model.producer, term), value)
    before = float(shape.sums(model.weights)[cell])
    change = Change("weight", recordable(shape.name), recordable(shape.words(cell)), before, float(weight), note)
    number = model.producer.shapes.index(shape)
    if shape.counted_by[0][cell] < 0:
        model = with_code_for(model, shape, cell)
        shape = model.producer.shapes[number]
    part, code = (int(found[cell]) for found in shape.counted_by)
    weights = [of_part.copy() if other == part else of_part for other, of_part in enumerate(model.weights)]
    weights[part][code] = 0.0
    for _ in range(2):  # the second time takes care of rounding, as far as that is possible
        weights[part][code] += float(weight) - float(shape.sums(weights)[cell])
    background = model.background
    if background is not None and background.draws is not None:
        background = replace(background, draws=certain(background.draws, shape, cell, part))
    return checked_change(noted(replace(model, weights=tuple(weights), kept=background), change))


def certain(draws: Draws, shape: Shape, cell: int, part: int) -> Draws:
    """The draws once the weight of a cell was set by hand, which is certain: there a part of the shape takes back by how much all
    others deviate. A change does so in all of its cells."""
    codes, n_base = shape.codes[shape.parts.index(part)], len(shape.producer.encoder.fields)
    if part >= n_base and shape.producer.crosses[part - n_base].kind == "change":
        cells, own = np.flatnonzero(codes >= FIRST), np.zeros((shape.producer.fields[part].n_codes, draws.n_draws))
    else:
        cells, own = np.array([cell]), draws.of(part, slice(None))
    own[codes[cells]] = 0.0
    for other, of_cells in zip(shape.parts, shape.codes, strict=True):
        if other != part:
            own[codes[cells]] -= draws.of(other, of_cells[cells])
    rounded = Draws.rounded(draws.intercept, [own])
    return Draws(draws.intercept, put(draws.terms, part, rounded.terms[0]), put(draws.scales, part, rounded.scales[0]))


def before_refit(model: Model) -> Model:
    """The model as a refit needs it: without changes of weights, but with the record of them. A term with such a change begins at
    zero, so that nothing of the change is left."""
    producer, changes = model.producer, model.about.changes
    terms = {change.term for change in changes if change.what == "weight" and not change.refitted}
    changed = {part for shape in producer.shapes if recordable(shape.name) in terms for part in shape.parts}
    weights = [np.zeros_like(weight) if part in changed else weight for part, weight in enumerate(model.weights)]
    found = tuple(cross for cross in producer.crosses if cross.kind != "change")
    n_parts = len(producer.encoder.fields) + len(found)
    return replace(
        model,
        producer=replace(producer, crosses=found),
        weights=tuple(weights[:n_parts]),
        penalties=model.penalties[:n_parts],
        counts=None if model.counts is None else model.counts[:n_parts],
        about=replace(model.about, changes=tuple(replace(change, refitted=True) for change in changes)),
        kept=None,  # counted anew as well
    )


def check(model: Model, term: Any, note: Any) -> None:
    """Refuse what cannot be changed or written down."""
    for addition in model.additions:
        raise AutoCrossError(
            f"The model has a part that was trained beside its weights, {addition.reason}, and does not fit other weights. "
            "Change the model of an AutoCrossClassifier."
        )
    if not isinstance(term, str):
        raise OptionError(f"term={shown(term)} is no text. Give the names of its columns joined by ' & ', as in 'age & job'.")
    if not is_text(note):
        raise OptionError(f"note={shown(note)} is no text of up to {MOST_CHARACTERS:,} characters. Give one, or leave it out.")


def recordable(text: str) -> str:
    """A text as a file can hold it: not too long, and without halves of characters."""
    return SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text[:MOST_CHARACTERS])


def noted(model: Model, change: Change) -> Model:
    """The model with the change in its record. Nobody has validated it, and how its scores are spread is not known. It has no
    smaller models."""
    about = replace(model.about, changes=(*model.about.changes, change), score=None)
    kept = None if model.background is None else replace(model.background, deciles=None)
    return replace(model, about=about, kept=kept, smaller={})


# Which cell is meant.


def located(producer: Producer, shapes: Sequence[Shape], value: Any) -> tuple[Shape, int]:
    """The cell of a term that is printed like this, or else the one that holds this value."""
    for shape in shapes if isinstance(value, str) else ():
        for cell in listed(shape).tolist():
            if shape.words(cell) == value:
                return shape, cell
    if len(shapes) == 1 and len(shapes[0].columns) == 1 and (found := holding(producer, shapes[0], value)) is not None:
        return shapes[0], found
    printed = islice((shape.words(cell) for shape in shapes for cell in listed(shape).tolist()), COMPARED)
    near = get_close_matches(value if isinstance(value, str) else shown(value), list(printed), 1, 0.0)
    raise OptionError(
        f"The term {shapes[0].name!r} has no value {shown(value)}. The nearest one is {near[0]!r}; `autocross weights` lists all."
    )


def holding(producer: Producer, shape: Shape, value: Any) -> int | None:
    """The cell of a column that holds a value. A value that the model does not know is in none: it may be a slip of the pen."""
    try:
        codes = producer.codes_one({shape.columns[0]: value})
    except AutoCrossError:
        return None
    coded = codes[shape.parts[0]]
    if isinstance(coded, tuple) and len(coded) != 1:
        return None
    cell = shape.axes[0].cell_of(codes) if shape.axes else int(coded[0] if isinstance(coded, tuple) else coded)
    of_cell = shape.value(cell)
    unknown = isinstance(of_cell, (Rare, Hashed)) or isinstance(of_cell, Missing) != (value is None)
    return None if unknown else cell


# A code for a single cell.


def with_code_for(model: Model, shape: Shape, cell: int) -> Model:
    """The model with one more code, for this cell alone. It has no weight yet, so that all scores stay."""
    producer, n_base = model.producer, len(model.producer.encoder.fields)
    counts = counts_of(model, shape)
    if model.counts is None or counts is None:
        raise AutoCrossError(
            "This model was saved by an older version, which did not count the training rows of this value. Fit or refit it first."
        )
    changes = (part for part in shape.parts if part >= n_base and producer.crosses[part - n_base].kind == "change")
    part = next(changes, len(producer.fields))
    changed, weight = np.zeros(shape.n_cells, bool), np.zeros(shape.n_cells)
    if part in shape.parts:
        codes = shape.codes[shape.parts.index(part)]
        changed, weight = codes >= FIRST, model.weights[part][codes]
    changed[cell] = True
    coder, cells = shape.coder()
    values, cells = coder.values[changed[cells]], cells[changed[cells]]
    width = max(producer.fields[one].width for one in shape.parts)
    coder = CrossCoder(coder.fields, coder.sizes, values, width=width, kind="change")
    enlarged = replace(producer, crosses=put(producer.crosses, part - n_base, coder))
    return replace(
        model,
        producer=enlarged,
        weights=put(model.weights, part, np.concatenate([np.zeros(FIRST), weight[cells]])),
        penalties=put(model.penalties, part, Penalty(0.0, 0.0)),
        counts=put(model.counts, part, by_code(counts, cells)),
        kept=background_with(model, shape, enlarged, part, cells),
    )


def background_with(model: Model, shape: Shape, enlarged: Producer, part: int, cells: NDArray[np.int64]) -> Background | None:
    """What is remembered about the rows, once these cells of a shape have codes in this part of the enlarged producer."""
    background, number, n_parts = model.background, model.producer.shapes.index(shape), len(model.producer.fields)
    if background is None:
        return None
    counts, uncounted = counts_of(model, shape), enlarged.shapes[number].uncounted
    assert counts is not None
    mass = background.mass
    if mass is not None:
        of_cells = mass_of(model, shape).astype(np.float32)
        of_parts = put(mass[:n_parts], part, by_code(of_cells, cells))
        mass = of_parts + put(mass[n_parts:], number, of_cells[uncounted])
    return replace(background, cells=put(background.cells, number, counts[uncounted]), mass=mass)


def put(entries: tuple[T, ...], place: int, entry: T) -> tuple[T, ...]:
    """The entries with another one at a place, which may be the first behind them."""
    return (*entries[:place], entry, *entries[place + 1 :])


def by_code(of_cells: NDArray[Any], cells: NDArray[np.int64]) -> NDArray[Any]:
    """Sums over rows for the codes of a change: none is missing, those of all other cells are rare, and then come these cells."""
    own = of_cells[cells]
    others = (of_cells.sum(axis=0) - own.sum(axis=0))[None]
    return np.concatenate([np.zeros_like(others), others, own])


# Taking parts out.


def taken_out(model: Model, parts: Sequence[int], refit: bool) -> Model:
    """The model without these fields and crosses, and without columns that nothing needs any more. A field that a cross needs
    stays, but has no weights."""
    producer, n_base = model.producer, len(model.producer.encoder.fields)
    crosses = [cross for number, cross in enumerate(producer.crosses, start=n_base) if number not in parts]
    silent = {number for number in range(n_base) if number in parts or number in producer.crossed_only}
    crossed = {number for cross in crosses for number in cross.fields}
    fields = [number for number in range(n_base) if number in crossed or number not in silent]
    place = {number: place for place, number in enumerate(fields)}
    left = Producer(
        with_fields(producer.encoder, fields),
        tuple(replace(cross, fields=tuple(place[number] for number in cross.fields)) for cross in crosses),
        frozenset(place[number] for number in fields if number in silent),
    )
    kept = [*fields, *(number for number in range(n_base, len(producer.fields)) if number not in parts)]
    shapes = [number for number, shape in enumerate(producer.shapes) if set(parts).isdisjoint(shape.parts)]
    found = [cross for number, cross in enumerate(model.about.crosses, start=n_base) if number not in parts]
    return replace(
        model,
        producer=left,
        weights=tuple(np.zeros_like(model.weights[number]) if number in silent else model.weights[number] for number in kept),
        penalties=tuple(model.penalties[number] for number in kept),
        about=replace(model.about, crosses=tuple(found)),
        counts=None if model.counts is None else tuple(model.counts[number] for number in kept),
        share=model.share if left.statistics else 0.0,
        kept=None if model.background is None or refit else kept_of(model, model.background, parts, kept, shapes),
    )


def kept_of(model: Model, background: Background, parts: Sequence[int], kept: Sequence[int], shapes: Sequence[int]) -> Background:
    """What is remembered about the rows once these parts are taken out, and others and some shapes are kept. The intercept, which
    moves by the mean of what is taken out, is as uncertain as that."""
    mass, draws = background.mass, background.draws
    if draws is not None:
        moved = sum(model.mass[part] @ draws.of(part, slice(None)) for part in parts) / background.total
        terms = tuple(np.zeros_like(draws.terms[number]) if number in parts else draws.terms[number] for number in kept)
        draws = Draws(draws.intercept + moved, terms, tuple(draws.scales[number] for number in kept))
    return replace(
        background,
        cells=tuple(background.cells[number] for number in shapes),
        mass=None if mass is None else tuple(mass[number] for number in [*kept, *(len(model.weights) + shape for shape in shapes)]),
        draws=draws,
    )


def with_fields(encoder: Encoder, fields: Sequence[int]) -> Encoder:
    """The encoder with only these fields. Columns that have none of them are left out of the tables to score."""
    kept = encoder.keep(fields)
    used = {column.column.name for column in kept.columns}

    def schema_of(column: ColumnSchema) -> ColumnSchema:
        unused = column.kind != "ignore" and column.name not in used
        return replace(column, kind="ignore", reason=TAKEN_OUT, separator=None, monotone=None) if unused else column

    return Encoder(tuple(map(schema_of, encoder.schema)), kept.columns)
