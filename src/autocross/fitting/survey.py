"""What a model remembers about its training rows, counted once its features are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.blocks import Block
from autocross.crossing import CrossCoder
from autocross.engines import Engine
from autocross.features import FIRST
from autocross.models.logistic import ceil_log2
from autocross.producer.background import Background
from autocross.producer.model import Producer

Ints = NDArray[np.int64]


def surveyed(engine: Engine, producer: Producer, total_weight: float) -> Background:
    """Count the rows of the cells of merged terms that no single field or cross knows and, if rows weigh differently, add up the
    weights of the rows of every code and of these cells."""
    unknown = {number: shape.coder() for number, shape in enumerate(producer.shapes) if len(shape.uncounted)}
    coders = [coder for coder, _ in unknown.values()]
    cells = of_cells(producer, unknown, totals(engine, rows_of_values, coders), np.zeros((0, 2), np.int64))
    if not any(engine.each(weighs_differently)):
        return Background(total_weight, cells)
    # In fixed point, so that the sum does not depend on how rows are shared out. Sums stay below 2^51, and are exact as floats.
    unit = 2.0 ** (50 - ceil_log2(total_weight))
    fields = [CrossCoder((number,), (one.n_codes,), all_codes(one.n_codes)) for number, one in enumerate(producer.encoder.fields)]
    terms = [*fields, *producer.crosses]
    units = totals(engine, weights_of_values, [*terms, *coders], unit)
    mass = [of_codes[FIRST:] if number < len(fields) else of_codes for number, of_codes in enumerate(units[: len(terms)])]
    mass += of_cells(producer, unknown, units[len(terms) :], np.zeros(0, np.int64))
    return Background(total_weight, cells, tuple((of_codes / unit).astype(np.float32) for of_codes in mass))


def totals(engine: Engine, task: Callable[..., Ints], coders: Sequence[CrossCoder], *arguments: Any) -> list[Ints]:
    """The sums over all rows for the codes of each coder, in one pass."""
    if not coders:
        return []
    return np.split(engine.total(task, coders, *arguments), np.cumsum([coder.n_codes for coder in coders])[:-1])


def of_cells(
    producer: Producer, unknown: Mapping[int, tuple[CrossCoder, Ints]], sums: Sequence[Ints], nothing: Ints
) -> tuple[Ints, ...]:
    """What the cells have that no part knows, for every shape, given the sums for the coders of those that have such cells."""
    found = {
        number: of_codes[codes_of_cells(cells, producer.shapes[number].uncounted)]
        for (number, (_, cells)), of_codes in zip(unknown.items(), sums, strict=True)
    }
    return tuple(found.get(number, nothing) for number in range(len(producer.shapes)))


def all_codes(n_codes: int) -> NDArray[np.uint32]:
    """The codes of a field as the values of a cross of this field alone."""
    return np.arange(n_codes, dtype=np.uint32)[:, None]


def codes_of_cells(cells: Ints, wanted: Ints) -> Ints:
    """The codes of these cells; ``cells`` has the cell of each code from the first value on."""
    code_of = np.empty(len(cells), np.int64)
    code_of[cells] = FIRST + np.arange(len(cells))
    return code_of[wanted]


# Tasks.


def rows_of_values(block: Block, coders: Sequence[CrossCoder]) -> Ints:
    """How many rows have each code of each cross, and how many of them are positive."""
    counts = []
    for coder in coders:
        codes, rows = entries_of(block, coder)
        positive = np.bincount(codes[block.label[rows] == 1], minlength=coder.n_codes)
        counts.append(np.stack([np.bincount(codes, minlength=coder.n_codes), positive], axis=1))
    return np.concatenate(counts).astype(np.int64)


def weights_of_values(block: Block, coders: Sequence[CrossCoder], unit: float) -> Ints:
    """The weights of the rows that have each code of each cross, in whole units."""
    weight, sums = np.rint(block.weight.astype(np.float64) * unit), []
    for coder in coders:
        codes, rows = entries_of(block, coder)
        sums.append(np.bincount(codes, weight[rows], coder.n_codes))
    return np.concatenate(sums).astype(np.int64)


def entries_of(block: Block, coder: CrossCoder) -> tuple[NDArray[np.int64], Ints]:
    """The codes of a cross in all rows, and the row of each."""
    coded = coder.encode([block.coded((number,)) for number in coder.fields])
    n = np.ones(block.n_rows, np.int64) if coded.starts is None else np.diff(coded.starts)
    return coded.codes.astype(np.int64), np.repeat(np.arange(block.n_rows), n)


def weighs_differently(block: Block) -> bool:
    """Whether a row weighs more or less than 1."""
    return bool((block.weight != 1.0).any())
