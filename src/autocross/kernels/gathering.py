"""Gathers gradient and curvature of a field's weights from the odds of rows, and scales the odds when weights change.

codes  : uint8/16/32 (n_rows,)               the field's code in each row
starts : int64 (n_rows + 1,)                 ragged twin: row r holds codes[starts[r]:starts[r + 1]]
label  : uint8 (n_rows,)                     0 or 1
weight : float32 (n_rows,)                   the row's sample weight
fold   : uint8 (n_rows,)                     the model that must not learn from this row
odds   : float64 (n_rows, n_models)          p / (1 - p) of each model
sums   : int64 (n_codes, n_models, 2 or 3)   gradient and curvature in fixed point, `unit` to the whole, and rows

Model k learns from the rows whose fold is not k, and is judged by those whose fold is k. Fixed point makes addition associative:
however rows are spread over blocks and threads, the sums are the same to the bit. Odds are kept instead of log-odds, because a
change of weights multiplies them: exp is computed once for each code, and not once for each row.

What makes the loops fast (benchmarks/kernels.py): the values of a row are read once, before any store, because the compiler cannot
know that a store does not change them. An index that the compiler cannot know to be positive is made unsigned; otherwise it would
be tested for counting from the end. Loops over one model, and over as many models as there are folds, are compiled separately. With
five folds, four models are computed together by vector instructions, which the compiler would not use in a loop over five. A
machine with shorter registers computes them in parts. The operations on each number are the same, and so are the bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from autocross.kernels import kernel, part

Codes = NDArray[Any]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

N_FOLDS = 5  # for the whole package; it is here because machine code on disk would not notice a change in another file
LANES = 4  # models that are computed together
assert N_FOLDS == LANES + 1, "gather_folds takes the last fold on its own"
LEARNS = 1.0 - np.eye(N_FOLDS + 1, N_FOLDS)  # which models learn from a row of each fold; the last entry is for a row of no fold

FLOATS, INTS = ir.VectorType(ir.DoubleType(), LANES), ir.VectorType(ir.IntType(64), LANES)
PLACES = ir.VectorType(ir.IntType(32), LANES)


@part
def slopes(odds: float, y: float, scaled: float) -> tuple[np.int64, np.int64]:
    """Gradient and curvature of one row under one model, in fixed point."""
    q = 1.0 / (1.0 + odds)
    p = odds * q
    return np.int64(scaled * (p - y)), np.int64(scaled * (p * q))


@part
def add(sums: Ints, code: int, k: int, g: np.int64, h: np.int64) -> None:
    """Add one row to one code of one model."""
    sums[code, k, 0] += g
    sums[code, k, 1] += h
    if sums.shape[2] == 3:
        sums[code, k, 2] += 1


def write_slopes(typing: Any, odds: Any, at: Any, y: Any, scaled: Any, learns: Any, row: Any, sums: Any, to: Any) -> Any:
    """Add gradient and curvature of four models, whose odds are odds[at:][:4], to sums[to:][:8], two numbers for each model.

    Arrays are flat. ``learns[row:][:4]`` is 1.0 for a model that learns from the row, else 0.0.
    """

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        def pointer(array: int, place: int, vector: Any) -> Any:
            data = context.make_array(signature.args[array])(context, builder, given[array]).data
            return builder.bitcast(builder.gep(data, [given[place]]), vector.as_pointer())

        def load(source: Any) -> Any:
            loaded = builder.load(source)
            loaded.align = 8
            return loaded

        def all_four(number: Any) -> Any:
            first = builder.insert_element(FLOATS(ir.Undefined), number, ir.IntType(32)(0))
            return builder.shuffle_vector(first, FLOATS(ir.Undefined), PLACES([0] * LANES))

        one, odd = FLOATS([1.0] * LANES), load(pointer(0, 1, FLOATS))
        q = builder.fdiv(one, builder.fadd(one, odd))
        p = builder.fmul(odd, q)
        scale = builder.fmul(all_four(given[3]), load(pointer(4, 5, FLOATS)))
        g = builder.fptosi(builder.fmul(scale, builder.fsub(p, all_four(given[2]))), INTS)
        h = builder.fptosi(builder.fmul(scale, builder.fmul(p, q)), INTS)
        for half, places in enumerate(([0, 4, 1, 5], [2, 6, 3, 7])):
            target = builder.gep(pointer(6, 7, INTS), [ir.IntType(64)(half)])
            builder.store(builder.add(load(target), builder.shuffle_vector(g, h, PLACES(places))), target).align = 8
        return context.get_dummy_value()

    return types.void(odds, types.int64, types.float64, types.float64, learns, types.int64, sums, types.int64), write


def add_slopes_one_by_one(odds: Floats, at: int, y: float, scaled: float, learns: Floats, row: int, sums: Ints, to: int) -> None:
    """The same as `write_slopes` in plain Python, for when nothing is compiled and there are no vector instructions."""
    for k in range(LANES):
        g, h = slopes(odds[at + k], y, scaled * learns[row + k])
        sums[to + 2 * k] += g
        sums[to + 2 * k + 1] += h


compiled = not config.DISABLE_JIT  # type: ignore[attr-defined]
add_slopes: Any = intrinsic(write_slopes) if compiled else add_slopes_one_by_one


@part
def gather_rows(codes: Codes, label: Any, weight: Any, fold: Any, odds: Floats, unit: float, sums: Ints, n_models: int) -> None:
    for row in range(codes.shape[0]):
        code, own, y, scaled = codes[row], fold[row], float(label[row]), float(weight[row]) * unit
        for j in range(n_models - (own < n_models)):
            k = j + (j >= own)  # all models except its own; a branch would often be mispredicted
            g, h = slopes(odds[row, k], y, scaled)
            add(sums, code, k, g, h)


@part
def gather_folds(codes: Codes, label: Any, weight: Any, fold: Any, odds: Floats, unit: float, sums: Ints) -> None:
    """`gather_rows` for five models, four of them computed together, with the same bits."""
    odd, total, learns = odds.reshape(-1), sums.reshape(-1), LEARNS.reshape(-1)
    for row in range(codes.shape[0]):
        code, own, y, scaled = codes[row], min(fold[row], N_FOLDS), float(label[row]), float(weight[row]) * unit
        add_slopes(odd, row * N_FOLDS, y, scaled, learns, own * N_FOLDS, total, np.int64(code) * 2 * N_FOLDS)
        g, h = slopes(odds[row, N_FOLDS - 1], y, scaled if own != N_FOLDS - 1 else 0.0)
        add(sums, code, N_FOLDS - 1, g, h)


@kernel
def gather(codes: Codes, label: Any, weight: Any, fold: Any, odds: Floats, unit: float, sums: Ints) -> None:
    """Add the gradient and curvature of each row to its code. If sums have a third place, count the row there."""
    if odds.shape[1] == 1:
        gather_rows(codes, label, weight, fold, odds, unit, sums, 1)
    elif odds.shape[1] == N_FOLDS and sums.shape[2] == 2:
        gather_folds(codes, label, weight, fold, odds, unit, sums)
    elif odds.shape[1] == N_FOLDS:
        gather_rows(codes, label, weight, fold, odds, unit, sums, N_FOLDS)
    else:
        gather_rows(codes, label, weight, fold, odds, unit, sums, odds.shape[1])


@kernel
def gather_ragged(codes: Codes, starts: Ints, label: Any, weight: Any, fold: Any, odds: Floats, unit: float, sums: Ints) -> None:
    """`gather` for a field with any number of codes per row."""
    n_models = odds.shape[1]
    for row in range(starts.shape[0] - 1):
        own, y, scaled = fold[row], float(label[row]), float(weight[row]) * unit
        for j in range(n_models - (own < n_models)):
            k = j + (j >= own)
            g, h = slopes(odds[row, k], y, scaled)
            for at in range(starts[row], starts[row + 1]):
                add(sums, codes[np.uint64(at)], k, g, h)


@part
def scale_rows(codes: Codes, factor: Floats, odds: Floats, n_models: int) -> None:
    for row in range(codes.shape[0]):
        code = codes[row]
        for k in range(n_models):
            odds[row, k] *= factor[code, k]


@kernel
def scale(codes: Codes, factor: Floats, odds: Floats) -> None:
    """Apply a change of the field's weights, given as exp(change) (n_codes, n_models), to the odds of every row."""
    if odds.shape[1] == 1:
        scale_rows(codes, factor, odds, 1)
    elif odds.shape[1] == N_FOLDS:
        scale_rows(codes, factor, odds, N_FOLDS)
    else:
        scale_rows(codes, factor, odds, odds.shape[1])


@part
def scale_ragged_rows(codes: Codes, starts: Ints, factor: Floats, odds: Floats, n_models: int) -> None:
    for row in range(starts.shape[0] - 1):
        for at in range(starts[row], starts[row + 1]):
            code = codes[np.uint64(at)]
            for k in range(n_models):
                odds[row, k] *= factor[code, k]


@kernel
def scale_ragged(codes: Codes, starts: Ints, factor: Floats, odds: Floats) -> None:
    """`scale` for a field with any number of codes per row."""
    if odds.shape[1] == 1:
        scale_ragged_rows(codes, starts, factor, odds, 1)
    elif odds.shape[1] == N_FOLDS:
        scale_ragged_rows(codes, starts, factor, odds, N_FOLDS)
    else:
        scale_ragged_rows(codes, starts, factor, odds, odds.shape[1])
