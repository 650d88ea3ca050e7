"""Is a model monotone, as its columns demand? For changes by hand: a fit makes no other models.

A term is all fields and crosses of the same columns, as its name is these columns joined by ' & '. What must be monotone is their
sum, for every combination of the other columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from autocross.encoding.discretize import Bins
from autocross.errors import OptionError
from autocross.features import FieldCodes
from autocross.producer.model import Model
from autocross.producer.wording import joined, words

Floats = NDArray[np.float64]
Codes = dict[int, NDArray[np.int64]]
MOST_CELLS = 1 << 22  # of a term; if it has more, each of its fields and crosses must be monotone on its own


@dataclass(frozen=True)
class Violation:
    """Two neighbouring cells of a term whose weights are in the wrong order. Each cell has a value for each column of the term; the
    numbers of the first cell are the lower ones."""

    term: str
    column: str
    direction: str
    cells: tuple[tuple[str, ...], tuple[str, ...]]
    weights: tuple[float, float]

    def __str__(self) -> str:
        falls = "falls" if self.direction == "increasing" else "rises"
        low, high = (joined(cell) for cell in self.cells)
        return (
            f"{self.term!r} must be {self.direction} in {self.column!r}, but {falls} from {self.weights[0]:g} at {low} to "
            f"{self.weights[1]:g} at {high}"
        )


def require_monotone(model: Model) -> None:
    """Raise an OptionError that names the first term and cells that break a prescribed direction."""
    for violation in violations(model):
        raise OptionError(f"The model would not be monotone: {violation}. Change neighbouring values as well, or not as far.")


def violations(model: Model) -> Iterator[Violation]:
    """The cells that break a prescribed direction: for each term the first ones, in the order of the model. A monotone model has
    none."""
    base = model.producer.encoder.fields
    columns = {
        number: tuple(dict.fromkeys(base[at].column for at in parts_of(model, number))) for number in range(len(model.weights))
    }
    ordered = [column for column in model.producer.encoder.schema if column.monotone]
    seen = set()
    for number, term in columns.items():
        for column in ordered:
            if column.name in term and (term, column.name) not in seen and not is_monotone(model, number, column.direction):
                seen.add((term, column.name))
                own = [other for other in columns if columns[other] == term]
                if found := broken(model, own, term, column.name):
                    assert column.monotone is not None
                    yield Violation(joined(term), column.name, column.monotone, *found)


def parts_of(model: Model, number: int) -> tuple[int, ...]:
    """The fields of a term of the regression, by their numbers."""
    n_base = len(model.producer.encoder.fields)
    return (number,) if number < n_base else model.producer.crosses[number - n_base].fields


def is_monotone(model: Model, number: int, direction: int) -> bool:
    """Whether a field or a cross is monotone on its own. Unknown combinations have one weight, whatever the number. A change by
    hand is not: it has single cells of a term, and only the sum of the term can tell."""
    producer, n_base = model.producer, len(model.producer.encoder.fields)
    if number >= n_base and producer.crosses[number - n_base].kind == "change":
        return False
    chain = producer.fields[number].chain
    if chain is None:
        return True  # it has no values
    weight, linked = model.weights[number][chain.order], chain.gap[1:] > 0
    return bool((direction * np.diff(weight)[linked] >= 0).all())


def broken(
    model: Model, terms: Sequence[int], columns: Sequence[str], ordered: str
) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], tuple[float, float]] | None:
    """Two cells of the sum of some fields and crosses of these columns that are in the wrong order along a column, and their
    weights."""
    used = sorted({at for number in terms for at in parts_of(model, number)})
    axes = [values_of(model, column, used) for column in columns]
    if np.prod([len(values) for values, _ in axes], dtype=np.float64) > MOST_CELLS:
        raise OptionError(f"The term {joined(columns)!r} has too many cells to be changed by hand and stay monotone.")
    place = list(columns).index(ordered)
    shape = [len(values) for values, _ in axes]
    grid = np.indices(shape).reshape(len(axes), -1)
    codes = {at: known[at][index] for (_, known), index in zip(axes, grid, strict=True) for at in known}
    total = np.zeros(grid.shape[1])
    for number in terms:
        total += model.weights[number][codes_in(model, number, codes)]
    sums = np.moveaxis(total.reshape(shape), place, -1)[..., :-1]  # the last is missing, which is outside the order
    (way,) = (column.direction for column in model.producer.encoder.schema if column.name == ordered)
    wrong = np.argwhere(way * np.diff(sums, axis=-1) < 0)
    if not len(wrong):
        return None
    low = wrong[0].tolist()
    high = [*low[:-1], low[-1] + 1]
    cells = [in_words(axes, [*cell[:-1][:place], cell[-1], *cell[:-1][place:]]) for cell in (low, high)]
    return (cells[0], cells[1]), (float(sums[tuple(low)]), float(sums[tuple(high)]))


def in_words(axes: Sequence[tuple[list[str], Codes]], cell: Sequence[int]) -> tuple[str, ...]:
    return tuple(values[at] for (values, _), at in zip(axes, cell, strict=True))


def values_of(model: Model, column: str, used: Sequence[int]) -> tuple[list[str], Codes]:
    """The values of a column that these fields can tell apart, in words, and the code of each in the fields. The last value of a
    number is missing."""
    encoder = model.producer.encoder
    own = [at for at in used if encoder.fields[at].column == column]
    first = encoder.places[own[0]][0]
    if isinstance(first, Bins):
        merged = Bins(first.column, ("",), (np.unique(np.concatenate([edges_of(model, at) for at in own])),))
        inside = [-np.inf, *merged.edges[0].tolist()]
        codes = {at: np.append(np.searchsorted(edges_of(model, at), inside, side="right") + 2, 0) for at in own}
        return [words(merged.value(0, 2 + place)) for place in range(len(inside))] + [words(merged.value(0, 0))], codes
    # The calendar parts of a time: not all of these combinations exist, but each may be asked for.
    combined = list(product(*(range(encoder.fields[at].n_codes) for at in own)))
    texts = [", ".join(words(encoder.value(at, code)) for at, code in zip(own, value, strict=True)) for value in combined]
    return texts, {at: np.array([value[place] for value in combined]) for place, at in enumerate(own)}


def edges_of(model: Model, field: int) -> Floats:
    encoder, place = model.producer.encoder.places[field]
    assert isinstance(encoder, Bins)
    return encoder.edges[place]


def codes_in(model: Model, number: int, codes: Codes) -> NDArray[np.int64]:
    """The codes of a field or a cross in rows whose fields have these codes, one each."""
    n_base = len(model.producer.encoder.fields)
    if number < n_base:
        return codes[number]
    cross = model.producer.crosses[number - n_base]
    coded: NDArray[np.int64] = cross.encode([FieldCodes(codes[at]) for at in cross.fields]).codes.astype(np.int64)
    return coded
