"""Which fields and crosses of a model belong together, and what they say together.

A number may have fields of several granularities, and the same columns may stand in several crosses. For people these are one
thing: a merged term, named after its columns. Its shape is a table from cells to weights. The cells of a number are the intervals
between the edges of all its fields, and in each of them the weights of all fields are added up.

Weights are added up only where that can be read. Parts of the calendar stay apart, because a cell for every month, day and hour
would say nothing. The same holds for crosses whose merged table would be large.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autocross.crossing import CrossCoder, cross_key
from autocross.encoding.encoder import Encoder
from autocross.encoding.values import Hashed, Interval, Missing, Rare, Span, Value
from autocross.errors import OptionError
from autocross.features import FIRST, MISSING, RARE
from autocross.producer.wording import AND, cell_words, joined

if TYPE_CHECKING:
    from autocross.producer.model import Producer

Ints = NDArray[np.int64]
MOST_CELLS = 5_000  # most cells of a shape that are combinations of several axes


@dataclass(frozen=True)
class Axis:
    """What a shape knows about a column: its cells, with the codes that the fields of the column have in each."""

    encoder: Encoder = field(repr=False)
    fields: tuple[int, ...]
    codes: Ints  # (n_cells, n_fields)

    @cached_property
    def values(self) -> tuple[Value, ...]:
        """What each cell stands for."""
        if len(self.fields) == 1:
            return tuple(self.encoder.value(self.fields[0], code) for code in self.codes[:, 0].tolist())
        cells = [
            overlap([self.encoder.value(number, code) for number, code in zip(self.fields, codes, strict=True)])
            for codes in self.codes.tolist()
        ]
        return tuple(beside(cells, cell) for cell in range(len(cells)))

    def cell_of(self, codes: Sequence[Any]) -> int:
        """The cell of a row, given the codes of all its fields."""
        return self.places[tuple(codes[number] for number in self.fields)]

    @cached_property
    def places(self) -> dict[tuple[int, ...], int]:
        return {tuple(codes): cell for cell, codes in enumerate(self.codes.tolist())}


def overlap(values: Sequence[Value]) -> Value:
    """What several fields of a column say together: the part that their intervals have in common."""
    intervals = [value for value in values if isinstance(value, (Interval, Span))]
    if len(intervals) < len(values):
        return values[0]  # missing in one field is missing in all
    low, high = max(value.low for value in intervals), min(value.high for value in intervals)
    first = intervals[0]
    if isinstance(first, Span):
        return Span(low, high, first.clock)
    return Interval(low, high, whole=all(isinstance(value, Interval) and value.whole for value in intervals))


def beside(cells: Sequence[Value], number: int) -> Value:
    """A cell that knows the bounds next to its own, from which it must be told apart when it is printed."""
    value = cells[number]
    if not isinstance(value, Interval):
        return value
    before, after = (cells[place] if 0 <= place < len(cells) else None for place in (number - 1, number + 1))
    return replace(
        value,
        before=before.low if isinstance(before, Interval) else -math.inf,
        after=after.high if isinstance(after, Interval) else math.inf,
    )


@dataclass(frozen=True)
class Shape:
    """One table of a merged term. ``parts`` are the fields and crosses that are added up in it, by their numbers in the producer,
    and ``codes`` has the code of each part in every cell.

    If it has axes, its cells are all combinations of their cells, and the last axis changes fastest. A shape of a single part has
    none: its cells are the codes of the part. ``label`` is the name of its first part, if the term has other shapes beside it; with
    ``alike`` these have the same axes, and only the label tells their cells apart.
    """

    producer: Producer = field(repr=False)
    columns: tuple[str, ...]
    parts: tuple[int, ...]
    codes: tuple[Ints, ...]
    axes: tuple[Axis, ...] = ()
    label: str = ""
    alike: bool = False

    @property
    def name(self) -> str:
        """The name of the term. No other term has it, whatever the columns are called."""
        return joined(self.columns)

    @property
    def n_cells(self) -> int:
        return len(self.codes[0])

    def sums(self, of_parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """What numbers, given for every code of every term of the model, add up to in each cell."""
        first, *others = (of_parts[part][codes] for part, codes in zip(self.parts, self.codes, strict=True))
        return sum(others, start=first)

    def value(self, cell: int) -> Value | tuple[Value, ...]:
        """What a cell stands for."""
        if not self.axes:
            return value_of_part(self.producer, self.parts[0], cell)
        places = np.unravel_index(cell, [len(axis.codes) for axis in self.axes])
        values = tuple(axis.values[int(place)] for axis, place in zip(self.axes, places, strict=True))
        return values if len(values) > 1 else values[0]

    def words(self, cell: int) -> str:
        """What a cell stands for, in words. Cells of one term never read the same."""
        value = self.value(cell)
        values = value if isinstance(value, tuple) else (value,)
        telling = not self.alike and not any(isinstance(one, (Missing, Rare, Hashed)) for one in values)
        return cell_words(value) if telling or not self.label else f"{cell_words(value)} [{self.label}]"

    @cached_property
    def counted_by(self) -> tuple[Ints, Ints]:
        """For each cell, a part that has a code in this cell only, and that code: both have the same rows. The part is -1 if there
        is none, so that the rows of the cell must be counted."""
        part_of, code_of = np.full(self.n_cells, -1), np.zeros(self.n_cells, np.int64)
        for part, codes in zip(self.parts, self.codes, strict=True):
            alone = np.bincount(codes)[codes] == 1
            part_of[alone], code_of[alone] = part, codes[alone]
        return part_of, code_of

    @property
    def uncounted(self) -> Ints:
        """The cells whose rows no part knows."""
        return np.flatnonzero(self.counted_by[0] < 0)

    def counts(self, of_parts: Sequence[NDArray[Any]], uncounted: NDArray[Any]) -> NDArray[Any]:
        """Sums over the rows of each cell, such as how many there are, given those of every code of every term, and those of the
        cells that no part knows."""
        part_of, code_of = self.counted_by
        counts = np.zeros((self.n_cells, *uncounted.shape[1:]), uncounted.dtype)
        for part in self.parts:
            counts[part_of == part] = of_parts[part][code_of[part_of == part]]
        counts[part_of < 0] = uncounted
        return counts

    @property
    def fields(self) -> tuple[int, ...]:
        """The fields of all parts. Their codes tell in which cell a row is."""
        terms = (fields_of(self.producer, part) for part in self.parts)
        return tuple(sorted({number for term in terms for number in term}))

    def coder(self) -> tuple[CrossCoder, Ints]:
        """The cells as the values of a cross of all these fields, and the cell of each of its codes."""
        order = [number for axis in self.axes for number in axis.fields]
        places = np.unravel_index(np.arange(self.n_cells), [len(axis.codes) for axis in self.axes])
        codes = np.concatenate([axis.codes[place] for axis, place in zip(self.axes, places, strict=True)], axis=1)
        codes = codes[:, np.argsort(order)]
        fields = self.fields
        sizes = tuple(self.producer.encoder.fields[number].n_codes for number in fields)
        cells = np.argsort(cross_key(list(codes.T), sizes), kind="stable")
        return CrossCoder(fields, sizes, codes[cells].astype(np.uint32)), cells


def fields_of(producer: Producer, part: int) -> tuple[int, ...]:
    """The fields of a part: those of a cross, or the field itself."""
    n_base = len(producer.encoder.fields)
    return (part,) if part < n_base else producer.crosses[part - n_base].fields


def in_order(producer: Producer, part: int) -> list[int]:
    """The fields of a part in the order of its columns in the schema, in which people read them."""
    encoder = producer.encoder
    return sorted(fields_of(producer, part), key=lambda number: encoder.place_of[encoder.fields[number].column])


def value_of_part(producer: Producer, part: int, code: int) -> Value | tuple[Value, ...]:
    """What a code of a field or of a cross stands for; the values of a cross are in the order of the schema."""
    value = producer.value(part, code)
    if not isinstance(value, tuple):
        return value
    by_field = dict(zip(fields_of(producer, part), value, strict=True))
    values = tuple(by_field[number] for number in in_order(producer, part))
    return values if len(values) > 1 else values[0]


def columns_of(producer: Producer, part: int) -> tuple[str, ...]:
    """The columns of a part, in the order of the schema."""
    return tuple(dict.fromkeys(producer.encoder.fields[number].column for number in in_order(producer, part)))


def axis_key(encoder: Encoder, number: int) -> tuple[int, int]:
    """What tells axes apart: the place of the column of a field, and its number. The bins of a number, of all granularities, are on
    one axis, and so are those of moments."""
    return encoder.place_of[encoder.fields[number].column], -1 if is_line(encoder, number) else number


def is_line(encoder: Encoder, number: int) -> bool:
    """Whether the values of a field are intervals of numbers or of moments."""
    return encoder.fields[number].n_codes > FIRST and isinstance(encoder.value(number, FIRST), (Interval, Span))


def apart(producer: Producer) -> tuple[Shape, ...]:
    """Every field and every cross as a shape of its own."""
    return tuple(alone(producer, columns_of(producer, part), part) for part in producer.parts)


def alone(producer: Producer, columns: tuple[str, ...], part: int) -> Shape:
    """A single field or cross as a shape."""
    return Shape(producer, columns, (part,), (np.arange(producer.fields[part].n_codes),))


def merged(producer: Producer) -> tuple[Shape, ...]:
    """The shapes of all merged terms: single columns in the order of the schema, then crosses in the order of their first parts."""
    encoder = producer.encoder
    groups: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for part in producer.parts:
        axes = {axis_key(encoder, number) for number in fields_of(producer, part)}
        groups.setdefault(tuple(sorted(axes)), []).append(part)
    shapes = [shape for parts in groups.values() for shape in shapes_of(producer, parts)]
    n_shapes = Counter(shape.name for shape in shapes)
    shapes = [replace(shape, label=producer.names[shape.parts[0]]) if n_shapes[shape.name] > 1 else shape for shape in shapes]
    place, last = encoder.place_of, len(encoder.schema)
    return tuple(sorted(shapes, key=lambda shape: place[shape.columns[0]] if len(shape.columns) == 1 else last))


def named(producer: Producer, name: str) -> list[Shape]:
    """The shapes of the term of this name, in which columns may stand in any order. A column needs no quotes, if no cross has that
    name."""
    names = {in_any_order(shape.name): shape.name for shape in reversed(producer.shapes)}
    found = next((one for one in (name, joined([name]), names.get(in_any_order(name))) if one in names.values()), None)
    if found is None:
        spaced = AND.join(part.strip() for part in name.split("&"))
        (near,) = get_close_matches(in_any_order(spaced), names, 1, 0.0)
        raise OptionError(
            f"The model has no column or cross {name!r}. The nearest name is {names[near]!r}; `autocross show` lists more."
        )
    return [shape for shape in producer.shapes if shape.name == found]


def in_any_order(name: str) -> str:
    """The name of a term with its columns sorted, so that names which differ only in their order are equal.

    >>> in_any_order("job & age")
    'age & job'
    """
    return AND.join(sorted(name.split(AND)))


def shapes_of(producer: Producer, parts: Sequence[int]) -> Iterable[Shape]:
    """The shape of parts with the same axes: a single one, unless it would be large."""
    columns = columns_of(producer, parts[0])
    if len(parts) == 1:
        return [alone(producer, columns, parts[0])]
    axes = axes_of(producer, parts)
    n_cells = math.prod(len(axis.codes) for axis in axes)
    if len(axes) > 1 and n_cells > MOST_CELLS:
        return [replace(alone(producer, columns, part), alike=True) for part in parts]
    places = np.unravel_index(np.arange(n_cells), [len(axis.codes) for axis in axes])
    codes = {
        number: axis.codes[place, column]
        for axis, place in zip(axes, places, strict=True)
        for column, number in enumerate(axis.fields)
    }
    return [Shape(producer, columns, tuple(parts), tuple(codes_in(producer, part, codes) for part in parts), axes)]


def axes_of(producer: Producer, parts: Sequence[int]) -> tuple[Axis, ...]:
    """The axes of parts that have the same ones, in the order of their columns in the schema."""
    encoder = producer.encoder
    by_key: dict[tuple[int, int], list[int]] = {}
    for number in sorted({number for part in parts for number in fields_of(producer, part)}):
        by_key.setdefault(axis_key(encoder, number), []).append(number)
    return tuple(Axis(encoder, tuple(numbers), joint_codes(encoder, numbers)) for _, numbers in sorted(by_key.items()))


def joint_codes(encoder: Encoder, numbers: Sequence[int]) -> Ints:
    """The codes of the fields of an axis in each of its cells: (n_cells, n_fields). If these are bins, the cells are missing values
    and the intervals between the edges of all fields."""
    if not is_line(encoder, numbers[0]):
        return np.arange(encoder.fields[numbers[0]].n_codes)[:, None]
    edges = [np.array(edges_of(encoder, number)) for number in numbers]
    all_edges = np.unique(np.concatenate(edges))
    codes = [FIRST + np.concatenate([[0], np.searchsorted(own, all_edges, side="right")]) for own in edges]
    return np.concatenate([np.full((1, len(numbers)), MISSING), np.stack(codes, axis=1)]).astype(np.int64)


def edges_of(encoder: Encoder, number: int) -> list[float]:
    """The edges between the bins of a field."""
    bins = [encoder.value(number, code) for code in range(FIRST + 1, encoder.fields[number].n_codes)]
    return [value.low for value in bins if isinstance(value, (Interval, Span))]


def codes_in(producer: Producer, part: int, codes: dict[int, Ints]) -> Ints:
    """The codes of a part where the fields have these codes."""
    n_base = len(producer.encoder.fields)
    if part < n_base:
        return codes[part]
    cross = producer.crosses[part - n_base]
    keys = cross_key([codes[number].astype(np.int64) for number in cross.fields], cross.sizes)
    return cross.look_up(np.asarray(keys))


def listed(shape: Shape) -> Ints:
    """The cells of a shape that rows can have. No row lacks the value of a cross as a whole; only its fields may be missing."""
    encoder, part = shape.producer.encoder, shape.parts[0]
    cells = np.arange(shape.n_cells)
    if shape.axes:
        return cells
    if part >= len(encoder.fields):
        return cells[RARE:]
    return cells[cells != RARE] if is_line(encoder, part) else cells  # no number is rare
