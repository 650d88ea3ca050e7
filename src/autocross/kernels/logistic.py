"""The logistic loss: gradient, curvature and loss of rows. Everything that only this loss knows is in this file.

codes  : uint8/16/32 (n_rows,)               the field's code in each row
starts : int64 (n_rows + 1,)                 ragged twin: row r holds codes[starts[r]:starts[r + 1]]
label  : uint8 (n_rows,)                     0 or 1
weight : float32 (n_rows,)                   the row's sample weight
fold   : uint8 (n_rows,)                     the model that is judged by this row; learners has those that learn from it
odds   : float64 (n_rows, n_models)          p / (1 - p) of each model
sums   : int64 (n_codes, n_models, 2 or 3)   gradient and curvature in fixed point, `unit` to the whole, and rows

Model k is judged by the rows whose fold is k. `learners` (uint8, n_rows) says which models learn from a row. Mostly it is the fold:
all other models learn. A number MODELS + m says that only the models from m on learn, and 255 that all do. In a table, the rows of
which not all models learn are of the first kind, or they are of the second.

Fixed point makes addition associative: however rows are spread over blocks and threads, the sums are the same to the bit. Odds
are kept instead of log-odds, because a change of weights multiplies them: exp is computed once for each code, and not once for each
row.

What makes the loops fast (benchmarks/kernels.py): the values of a row are read once, before any store, because the compiler cannot
know that a store does not change them. An index that the compiler cannot know to be positive is made unsigned; otherwise it would
be tested for counting from the end. Loops over one model, and over as many models as there are folds, are compiled separately. With
five folds, four models are computed together by vector instructions, which the compiler would not use in a loop over five. A
machine with shorter registers computes them in parts. The operations on each number are the same, and so are the bits.
"""

from __future__ import annotations

import math
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

CHUNK = 256  # rows that go through a loop together: they stay in the cache, and the compiler can use vector instructions
ROOT_HALF, LN_2 = 0x3FE6A09E00000000, math.log(2.0)  # the bits of about sqrt(1/2)

LANES = 4  # models that are computed together
MODELS = LANES + 1  # as many as there are folds; `gather_folds` takes the last one on its own
# Which models learn from a row, by its learners: all but one, or those from one on. The last entry is for a row of which all learn.
LEARNS = np.concatenate([1.0 - np.eye(MODELS), np.triu(np.ones((MODELS + 1, MODELS))), np.ones((1, MODELS))])

FLOATS, INTS = ir.VectorType(ir.DoubleType(), LANES), ir.VectorType(ir.IntType(64), LANES)
PLACES = ir.VectorType(ir.IntType(32), LANES)


# Gradient and curvature.


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


def write_slopes(typing: Any, odds: Any, first: Any, y: Any, scaled: Any, learns: Any, row: Any, sums: Any, to: Any) -> Any:
    """Add gradient and curvature of four models, whose odds are odds[first:][:4], to sums[to:][:8], two numbers for each model.

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
            lane = builder.insert_element(FLOATS(ir.Undefined), number, ir.IntType(32)(0))
            return builder.shuffle_vector(lane, FLOATS(ir.Undefined), PLACES([0] * LANES))

        ones, four_odds = FLOATS([1.0] * LANES), load(pointer(0, 1, FLOATS))
        q = builder.fdiv(ones, builder.fadd(ones, four_odds))
        p = builder.fmul(four_odds, q)
        scale = builder.fmul(all_four(given[3]), load(pointer(4, 5, FLOATS)))
        g = builder.fptosi(builder.fmul(scale, builder.fsub(p, all_four(given[2]))), INTS)
        h = builder.fptosi(builder.fmul(scale, builder.fmul(p, q)), INTS)
        for half, places in enumerate(([0, 4, 1, 5], [2, 6, 3, 7])):
            target = builder.gep(pointer(6, 7, INTS), [ir.IntType(64)(half)])
            builder.store(builder.add(load(target), builder.shuffle_vector(g, h, PLACES(places))), target).align = 8
        return context.get_dummy_value()

    return types.void(odds, types.int64, types.float64, types.float64, learns, types.int64, sums, types.int64), write


def add_slopes_one_by_one(odds: Floats, first: int, y: float, scaled: float, learns: Floats, row: int, sums: Ints, to: int) -> None:
    """The same as `write_slopes` in plain Python, for when nothing is compiled and there are no vector instructions."""
    for k in range(LANES):
        g, h = slopes(odds[first + k], y, scaled * learns[row + k])
        sums[to + 2 * k] += g
        sums[to + 2 * k + 1] += h


compiled = not config.DISABLE_JIT  # type: ignore[attr-defined]
add_slopes: Any = intrinsic(write_slopes) if compiled else add_slopes_one_by_one


@part
def first_learner(own: int) -> int:
    """The first model that may learn from a row with these learners."""
    return own - MODELS if MODELS < own <= 2 * MODELS else 0


@part
def later_ones(learners: Any) -> bool:
    """Whether rows are learned from by later models only. The first row of which not all models learn tells it for all rows, so
    that the loops need not ask."""
    for row in range(learners.shape[0]):
        if learners[row] != 255:
            return bool(learners[row] > MODELS)
    return False


@part
def gather_rows(codes: Codes, label: Any, weight: Any, learners: Any, odds: Floats, unit: float, sums: Ints, n_models: int) -> None:
    for row in range(codes.shape[0]):
        code, own, y, scaled = codes[row], learners[row], float(label[row]), float(weight[row]) * unit
        for j in range(n_models - (own < n_models)):
            k = j + (j >= own)  # all models except its own; a branch would often be mispredicted
            g, h = slopes(odds[row, k], y, scaled)
            add(sums, code, k, g, h)


@part
def gather_later(codes: Codes, label: Any, weight: Any, learners: Any, odds: Floats, unit: float, sums: Ints) -> None:
    """`gather_rows` for rows that are learned from by all models, or by those from one on."""
    for row in range(codes.shape[0]):
        code, y, scaled = codes[row], float(label[row]), float(weight[row]) * unit
        for k in range(first_learner(learners[row]), odds.shape[1]):
            g, h = slopes(odds[row, k], y, scaled)
            add(sums, code, k, g, h)


@part
def gather_folds(codes: Codes, label: Any, weight: Any, learners: Any, odds: Floats, unit: float, sums: Ints) -> None:
    """`gather_rows` for five models, four of them computed together, with the same bits."""
    flat_odds, flat_sums, learns = odds.reshape(-1), sums.reshape(-1), LEARNS.reshape(-1)
    for row in range(codes.shape[0]):
        code, own, y, scaled = codes[row], min(learners[row], 2 * MODELS + 1), float(label[row]), float(weight[row]) * unit
        add_slopes(flat_odds, row * MODELS, y, scaled, learns, own * MODELS, flat_sums, np.int64(code) * 2 * MODELS)
        g, h = slopes(odds[row, MODELS - 1], y, scaled * learns[np.uint64(own * MODELS + LANES)])
        add(sums, code, MODELS - 1, g, h)


@kernel
def gather(codes: Codes, label: Any, weight: Any, learners: Any, odds: Floats, unit: float, sums: Ints) -> None:
    """Add the gradient and curvature of each row to its code. If sums have a third place, count the row there."""
    if odds.shape[1] == 1:
        gather_rows(codes, label, weight, learners, odds, unit, sums, 1)
    elif odds.shape[1] == MODELS and sums.shape[2] == 2:
        gather_folds(codes, label, weight, learners, odds, unit, sums)
    elif later_ones(learners):
        gather_later(codes, label, weight, learners, odds, unit, sums)
    elif odds.shape[1] == MODELS:
        gather_rows(codes, label, weight, learners, odds, unit, sums, MODELS)
    else:
        gather_rows(codes, label, weight, learners, odds, unit, sums, odds.shape[1])


@part
def gather_ragged_later(
    codes: Codes, starts: Ints, label: Any, weight: Any, learners: Any, odds: Floats, unit: float, sums: Ints
) -> None:
    """`gather_ragged` for rows that are learned from by all models, or by those from one on."""
    for row in range(starts.shape[0] - 1):
        y, scaled = float(label[row]), float(weight[row]) * unit
        for k in range(first_learner(learners[row]), odds.shape[1]):
            g, h = slopes(odds[row, k], y, scaled)
            for entry in range(starts[row], starts[row + 1]):
                add(sums, codes[np.uint64(entry)], k, g, h)


@kernel
def gather_ragged(
    codes: Codes, starts: Ints, label: Any, weight: Any, learners: Any, odds: Floats, unit: float, sums: Ints
) -> None:
    """`gather` for a field with any number of codes per row."""
    if later_ones(learners):
        gather_ragged_later(codes, starts, label, weight, learners, odds, unit, sums)
        return
    n_models = odds.shape[1]
    for row in range(starts.shape[0] - 1):
        own, y, scaled = learners[row], float(label[row]), float(weight[row]) * unit
        for j in range(n_models - (own < n_models)):
            k = j + (j >= own)
            g, h = slopes(odds[row, k], y, scaled)
            for entry in range(starts[row], starts[row + 1]):
                add(sums, codes[np.uint64(entry)], k, g, h)


# Losses.


@part
def ln(x: float) -> float:
    """The natural logarithm of a positive number, within 1e-15. The number is written as 2^n z with z from 0.7 to 1.4, and log z
    comes from the series of atanh.

    It has no branch and no call. So the compiler computes several rows at a time, and the bits are the same on every machine.
    """
    bits = np.float64(x).view(np.int64)
    n = (bits - ROOT_HALF) >> 52
    z = np.int64(bits - (n << 52)).view(np.float64)
    s = (z - 1.0) / (z + 1.0)
    q = s * s
    tail = 1 / 19
    for odd in (17, 15, 13, 11, 9, 7, 5, 3):
        tail = tail * q + 1 / odd
    return n * LN_2 + (2.0 * s + 2.0 * s * (tail * q))


@part
def row_loss(odds: float, y: int) -> float:
    """Logistic loss of one row. Losses below 1e-16 are not told apart."""
    return ln(1.0 + (1.0 / odds if y == 1 else odds))


@kernel
def row_losses(label: Any, odds: Any, losses: Floats) -> None:
    """The loss of each row whose odds (n_rows,) are given."""
    for row in range(label.shape[0]):
        losses[row] = row_loss(odds[row], label[row])


@kernel
def try_scales(codes: Codes, label: Any, weight: Any, fold: Any, odds: Floats, factors: Floats, unit: float, losses: Ints) -> None:
    """Loss on the left-out rows for each of several changes of the field's weights, (n_codes, n_models, n_tries)."""
    n_models, n_tries, factor = odds.shape[1], losses.shape[0], factors.reshape(-1)
    place, up = np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.bool_)
    before, scaled, after = np.empty(CHUNK), np.empty(CHUNK), np.empty(CHUNK)
    for first in range(0, codes.shape[0], CHUNK):
        m = 0
        for row in range(first, min(first + CHUNK, codes.shape[0])):
            k = fold[row]
            if k < n_models:
                place[m] = (np.uint64(codes[row]) * n_models + k) * n_tries
                before[m], up[m], scaled[m] = odds[row, k], label[row] == 1, float(weight[row]) * unit
                m += 1
        for t in range(n_tries):
            for i in range(m):
                after[i] = before[i] * factor[place[i] + np.uint64(t)]
            loss = np.int64(0)
            for i in range(m):
                loss += np.int64(scaled[i] * row_loss(after[i], up[i]))
            losses[t] += loss


@kernel
def try_scales_ragged(
    codes: Codes,
    starts: Ints,
    label: Any,
    weight: Any,
    fold: Any,
    odds: Floats,
    factors: Floats,
    unit: float,
    losses: Ints,
) -> None:
    """`try_scales` for a field with any number of codes per row."""
    for row in range(starts.shape[0] - 1):
        k = fold[row]
        if k < odds.shape[1]:
            first, last, y, scaled = starts[row], starts[row + 1], label[row], float(weight[row]) * unit
            for t in range(losses.shape[0]):
                o = odds[row, k]
                for entry in range(first, last):
                    o *= factors[codes[np.uint64(entry)], k, t]
                losses[t] += np.int64(scaled * row_loss(o, y))


@kernel
def total_loss(label: Any, weight: Any, fold: Any, odds: Floats, unit: float, losses: Ints) -> None:
    """Loss of every model: on the rows that judge it, losses[k, 1], and on all others, losses[k, 0]."""
    for first in range(0, label.shape[0], CHUNK):
        last = min(first + CHUNK, label.shape[0])
        for k in range(odds.shape[1]):
            total, left_out = np.int64(0), np.int64(0)
            for row in range(first, last):
                loss = np.int64(float(weight[row]) * unit * row_loss(odds[row, k], label[row]))
                total += loss
                left_out += loss if fold[row] == k else np.int64(0)
            losses[k, 0] += total - left_out
            losses[k, 1] += left_out
