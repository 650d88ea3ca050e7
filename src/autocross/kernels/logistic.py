"""The logistic loss, one field at a time.

codes  : uint8/16/32 (n_rows,)               the field's code in each row
starts : int64 (n_rows + 1,)                 ragged twin: row r holds codes[starts[r]:starts[r + 1]]
label  : uint8 (n_rows,)                     0 or 1
weight : float32 (n_rows,)                   the row's sample weight
fold   : uint8 (n_rows,)                     the model that must not learn from this row
odds   : float64 (n_rows, n_models)          p / (1 - p) of each model
sums   : int64 (n_codes, n_models, 2 or 3)   gradient and curvature in fixed point, `unit` to the whole, and rows

Model k learns from the rows whose fold is not k and is judged on those whose fold is k. Fixed point makes
addition associative: however rows are spread over blocks and threads, the sums are the same to the bit. Odds instead of
log-odds, because a change of weights multiplies them: exp is taken once a code, not once a row.

For speed (benchmarks/kernels.py): what a row has is read once, before stores that might change it for all the compiler knows;
a place it cannot know to be positive is made unsigned, or it would be tested for counting from the end.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.kernels import kernel, part

Codes = NDArray[Any]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


FARTHEST = 50.0  # no weight goes beyond: the probability is 0 or 1 to the last bit, and odds must not overflow
FOLDS = 5  # loops over one model, or over this many, are compiled apart: much faster where the compiler knows the number


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


@part
def gather_rows(codes: Codes, label: Any, weight: Any, fold: Any, odds: Floats, unit: float, sums: Ints, n_models: int) -> None:
    for row in range(codes.shape[0]):
        code, own, y, scaled = codes[row], fold[row], float(label[row]), float(weight[row]) * unit
        for j in range(n_models - (own < n_models)):
            k = j + (j >= own)  # all but its own; a branch would often be guessed wrong
            g, h = slopes(odds[row, k], y, scaled)
            add(sums, code, k, g, h)


@kernel
def gather(codes: Codes, label: Any, weight: Any, fold: Any, odds: Floats, unit: float, sums: Ints) -> None:
    """Add each row's gradient and curvature to its code, and count it where sums have a third place for that."""
    if odds.shape[1] == 1:
        gather_rows(codes, label, weight, fold, odds, unit, sums, 1)
    elif odds.shape[1] == FOLDS:
        gather_rows(codes, label, weight, fold, odds, unit, sums, FOLDS)
    else:
        gather_rows(codes, label, weight, fold, odds, unit, sums, odds.shape[1])


@kernel
def gather_ragged(codes: Codes, starts: Ints, label: Any, weight: Any, fold: Any, odds: Floats, unit: float, sums: Ints) -> None:
    """`gather` for a field with any number of codes a row."""
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
    elif odds.shape[1] == FOLDS:
        scale_rows(codes, factor, odds, FOLDS)
    else:
        scale_rows(codes, factor, odds, odds.shape[1])


@kernel
def scale_ragged(codes: Codes, starts: Ints, factor: Floats, odds: Floats) -> None:
    """`scale` for a field with any number of codes a row."""
    for row in range(starts.shape[0] - 1):
        for at in range(starts[row], starts[row + 1]):
            code = codes[np.uint64(at)]
            for k in range(odds.shape[1]):
                odds[row, k] *= factor[code, k]


@part
def row_loss(odds: float, y: int) -> float:
    """Logistic loss of one row. log1p would tell losses below 1e-16 apart, at three times the cost."""
    return math.log(1.0 + (1.0 / odds if y == 1 else odds))


@kernel
def try_scales(codes: Codes, label: Any, weight: Any, fold: Any, odds: Floats, factors: Floats, unit: float, losses: Ints) -> None:
    """Loss on the left-out rows for each of several changes of the field's weights, (n_codes, n_models, n_tries)."""
    for row in range(codes.shape[0]):
        k = fold[row]
        if k < odds.shape[1]:
            code, o, y, scaled = codes[row], odds[row, k], label[row], float(weight[row]) * unit
            for t in range(losses.shape[0]):
                losses[t] += np.int64(scaled * row_loss(o * factors[code, k, t], y))


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
    """`try_scales` for a field with any number of codes a row."""
    for row in range(starts.shape[0] - 1):
        k = fold[row]
        if k < odds.shape[1]:
            first, last, y, scaled = starts[row], starts[row + 1], label[row], float(weight[row]) * unit
            for t in range(losses.shape[0]):
                o = odds[row, k]
                for at in range(first, last):
                    o *= factors[codes[np.uint64(at)], k, t]
                losses[t] += np.int64(scaled * row_loss(o, y))


@kernel
def total_loss(label: Any, weight: Any, fold: Any, odds: Floats, unit: float, losses: Ints) -> None:
    """Loss of every model: on the rows it learned from, losses[k, 0], and on the rows left out, losses[k, 1]."""
    for row in range(label.shape[0]):
        y, scaled = label[row], float(weight[row]) * unit
        for k in range(odds.shape[1]):
            losses[k, 1 if k == fold[row] else 0] += np.int64(scaled * row_loss(odds[row, k], y))


@part
def best_move(g: float, h: float, l1: float, w: float) -> float:
    """The u that minimises g*u + h*(exp|u| - |u| - 1) + l1*|w + u|.

    The middle term bounds the logistic loss from above (its third derivative is at most its second), so the step
    never raises the penalised loss, needs no learning rate, and is Newton's when it is small. log1p would make out steps
    below 1e-16, at twice the cost.
    """
    if h <= 0.0:
        return 0.0
    up = g + l1
    u = math.copysign(math.log(1.0 + abs(up) / h), -up)
    if l1 == 0.0 or w + u > 0.0:
        return u
    down = g - l1
    u = math.copysign(math.log(1.0 + abs(down) / h), -down)
    return u if w + u < 0.0 else -w


@kernel
def tie(sums: Ints, tied: Any) -> None:
    """Add the sums of the codes marked in `tied` (n_codes, n_models), too rare for a weight of their own, to those of code 1."""
    for k in range(sums.shape[1] if sums.shape[0] > 2 else 0):
        g, h = np.int64(0), np.int64(0)
        for code in range(2, sums.shape[0]):
            if tied[code, k]:
                g += sums[code, k, 0]
                h += sums[code, k, 1]
        sums[1, k, 0] += g
        sums[1, k, 1] += h


@part
def first_factor(g: float, h: float, l1: float, l2: float, width: int) -> float:
    """exp(step from zero) of one weight."""
    pull = abs(g) - l1
    if pull <= 0.0:
        return 1.0
    ratio = 1.0 + pull / (h + (l2 if width == 1 else l2 / width))  # exp of the whole step, as `best_move` has it
    factor = ratio if g < 0.0 else 1.0 / ratio
    return factor if width == 1 else factor ** (1.0 / width)


@kernel
def first_steps(sums: Ints, unit: float, tied: Any, penalties: Floats, width: int, factors: Floats) -> None:
    """Fill the first of `factors` (n_codes, n_models, n_tries) with exp(step from zero) under each l1 and l2."""
    for code in range(sums.shape[0]):
        for k in range(sums.shape[1]):
            g, h, shared = sums[code, k, 0] / unit, sums[code, k, 1] / unit, tied[code, k]
            for t in range(penalties.shape[0]):
                if shared:
                    factors[code, k, t] = factors[1, k, t]
                else:
                    factors[code, k, t] = first_factor(g, h, penalties[t, 0], penalties[t, 1], width)


@kernel
def step(sums: Ints, unit: float, weight: Floats, tied: Any, l1: float, l2: float, width: int, delta: Floats) -> float:
    """Fill `delta` with the step of the field's weights; return the decrease of the loss it promises.

    A tied code shares the weight of code 1, to which `tie` has added its sums. With at most `width` codes a row the
    loss is bounded by the mean of its value at `width` times each single step (Jensen), hence the division.
    """
    promised = np.int64(0)  # in fixed point: the order of the codes must not matter
    for code in range(weight.shape[0]):
        for k in range(weight.shape[1]):
            if tied[code, k]:
                delta[code, k] = delta[1, k]
                continue
            w = weight[code, k]
            g = sums[code, k, 0] / unit + l2 * w
            move = best_move(g, sums[code, k, 1] / unit + l2 / width, l1, width * w) / width
            move = min(max(w + move, -FARTHEST), FARTHEST) - w
            delta[code, k] = move
            promised += np.int64(abs(g * move) * (unit / 1024))
    return float(promised) / (unit / 1024)


@part
def solve_chain(m: int, slope: Floats, bend: Floats, hold: Floats, move: Floats) -> float:
    """Newton's step of the first `m` weights, each tied to the one before by `hold`; spoils `bend`, returns the largest change."""
    move[0] = -slope[0]
    for i in range(1, m):
        ratio = hold[i] / bend[i - 1]
        bend[i] -= hold[i] * ratio
        move[i] = ratio * move[i - 1] - slope[i]
    move[m - 1] /= bend[m - 1]
    largest = float(abs(move[m - 1]))
    for i in range(m - 2, -1, -1):
        move[i] = (move[i] + hold[i + 1] * move[i + 1]) / bend[i]
        largest = max(largest, abs(move[i]))
    return largest


@kernel
def chained_step(
    sums: Ints, unit: float, weight: Floats, tied: Any, order: Ints, gap: Floats, l2: float, smooth: float, delta: Floats
) -> float:
    """`step` for a field with neighbours, whose weights are held together by smooth / gap / 2 * difference^2.

    Newton's step of a chain solves a tridiagonal system. Shortened by log(1 + m) / m, m being its largest change, it never
    raises the penalised loss, for the same reason as `best_move`. Tied codes are passed over.
    """
    n = order.shape[0]
    code, hold = np.empty(n, np.uint64), np.empty(n)
    slope, bend, move = np.empty(n), np.empty(n), np.empty(n)
    promised = np.int64(0)
    for k in range(weight.shape[1]):
        first = 0
        while first < n:
            m, distance = 0, 0.0
            at = first
            while at == first or (at < n and gap[at] > 0.0):
                distance += gap[at]
                if not tied[order[at], k]:
                    code[m], hold[m] = order[at], smooth / distance if m > 0 else 0.0
                    m, distance = m + 1, 0.0
                at += 1
            first = at
            if m == 0:
                continue
            for i in range(m):
                w = weight[code[i], k]
                slope[i] = sums[code[i], k, 0] / unit + l2 * w
                bend[i] = sums[code[i], k, 1] / unit + l2
                if i > 0:
                    pull = hold[i] * (w - weight[code[i - 1], k])
                    slope[i] += pull
                    slope[i - 1] -= pull
                    bend[i] += hold[i]
                    bend[i - 1] += hold[i]
            largest = solve_chain(m, slope, bend, hold, move)
            shorter = math.log1p(largest) / largest if largest > 0.0 else 0.0
            for i in range(m):
                w = weight[code[i], k]
                change = min(max(w + move[i] * shorter, -FARTHEST), FARTHEST) - w
                delta[code[i], k] = change
                promised -= np.int64(slope[i] * change * (unit / 1024))
        for at in range(n):
            if tied[order[at], k]:
                delta[order[at], k] = delta[1, k]
    return float(promised) / (unit / 1024)
