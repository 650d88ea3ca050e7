"""The logistic loss, one field at a time.

codes  : uint8/16/32 (n_rows,)               the field's code in each row
starts : int64 (n_rows + 1,)                 ragged twin: row r holds codes[starts[r]:starts[r + 1]]
label  : uint8 (n_rows,)                     0 or 1
weight : float32 (n_rows,)                   the row's sample weight
fold   : uint8 (n_rows,)                     the model that must not learn from this row
odds   : float64 (n_rows, n_models)          p / (1 - p) of each model
sums   : int64 (n_codes, n_models, 2)        gradient and curvature in fixed point, `unit` to the whole

Model k learns from the rows whose fold is not k and is judged on those whose fold is k. Fixed point makes
addition associative: however rows are spread over blocks and threads, the sums are the same to the bit. Odds instead of
log-odds, because a change of weights multiplies them: exp is taken once a code, not once a row.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.kernels import kernel

Codes = NDArray[Any]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


FARTHEST = 50.0  # no weight goes beyond: the probability is 0 or 1 to the last bit, and odds must not overflow


@kernel
def add_row(sums: Ints, code: int, row: int, label: Any, weight: Any, fold: Any, odds: Floats, unit: float) -> None:
    """Add one row's gradient and curvature to one code, for every model that learns from the row."""
    y = float(label[row])
    scaled = float(weight[row]) * unit
    for k in range(odds.shape[1]):
        if k != fold[row]:
            q = 1.0 / (1.0 + odds[row, k])
            p = odds[row, k] * q
            sums[code, k, 0] += np.int64(scaled * (p - y))
            sums[code, k, 1] += np.int64(scaled * (p * q))


@kernel
def gather(codes: Codes, label: Any, weight: Any, fold: Any, odds: Floats, unit: float, sums: Ints) -> None:
    """Add each row's gradient and curvature to its code."""
    for row in range(codes.shape[0]):
        add_row(sums, codes[row], row, label, weight, fold, odds, unit)


@kernel
def gather_ragged(codes: Codes, starts: Ints, label: Any, weight: Any, fold: Any, odds: Floats, unit: float, sums: Ints) -> None:
    """`gather` for a field with any number of codes a row."""
    for row in range(starts.shape[0] - 1):
        for at in range(starts[row], starts[row + 1]):
            add_row(sums, codes[at], row, label, weight, fold, odds, unit)


@kernel
def count_row(sums: Ints, code: int, row: int, fold: Any) -> None:
    """Count one row for every model that learns from it, in the third place of the sums."""
    for k in range(sums.shape[1]):
        if k != fold[row]:
            sums[code, k, 2] += 1


@kernel
def gather_counted(codes: Codes, label: Any, weight: Any, fold: Any, odds: Floats, unit: float, sums: Ints) -> None:
    """`gather` into sums (n_codes, n_models, 3), the third being the number of rows."""
    for row in range(codes.shape[0]):
        add_row(sums, codes[row], row, label, weight, fold, odds, unit)
        count_row(sums, codes[row], row, fold)


@kernel
def gather_counted_ragged(
    codes: Codes, starts: Ints, label: Any, weight: Any, fold: Any, odds: Floats, unit: float, sums: Ints
) -> None:
    """`gather_counted` for a field with any number of codes a row."""
    for row in range(starts.shape[0] - 1):
        for at in range(starts[row], starts[row + 1]):
            add_row(sums, codes[at], row, label, weight, fold, odds, unit)
            count_row(sums, codes[at], row, fold)


@kernel
def scale(codes: Codes, factor: Floats, odds: Floats) -> None:
    """Apply a change of the field's weights, given as exp(change) (n_codes, n_models), to the odds of every row."""
    for row in range(codes.shape[0]):
        code = codes[row]
        for k in range(odds.shape[1]):
            odds[row, k] *= factor[code, k]


@kernel
def scale_ragged(codes: Codes, starts: Ints, factor: Floats, odds: Floats) -> None:
    """`scale` for a field with any number of codes a row."""
    for row in range(starts.shape[0] - 1):
        for at in range(starts[row], starts[row + 1]):
            code = codes[at]
            for k in range(odds.shape[1]):
                odds[row, k] *= factor[code, k]


@kernel
def row_loss(odds: float, y: int) -> float:
    """Logistic loss of one row. log1p would tell losses below 1e-16 apart, at three times the cost."""
    return math.log(1.0 + (1.0 / odds if y == 1 else odds))


@kernel
def try_scales(codes: Codes, label: Any, weight: Any, fold: Any, odds: Floats, factors: Floats, unit: float, losses: Ints) -> None:
    """Loss on the left-out rows for each of several changes of the field's weights, (n_codes, n_models, n_tries)."""
    for row in range(codes.shape[0]):
        k = fold[row]
        if k < odds.shape[1]:
            scaled = float(weight[row]) * unit
            for t in range(losses.shape[0]):
                losses[t] += np.int64(scaled * row_loss(odds[row, k] * factors[codes[row], k, t], label[row]))


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
            scaled = float(weight[row]) * unit
            for t in range(losses.shape[0]):
                o = odds[row, k]
                for at in range(starts[row], starts[row + 1]):
                    o *= factors[codes[at], k, t]
                losses[t] += np.int64(scaled * row_loss(o, label[row]))


@kernel
def total_loss(label: Any, weight: Any, fold: Any, odds: Floats, unit: float, losses: Ints) -> None:
    """Loss of every model: on the rows it learned from, losses[k, 0], and on the rows left out, losses[k, 1]."""
    for row in range(label.shape[0]):
        scaled = float(weight[row]) * unit
        for k in range(odds.shape[1]):
            losses[k, 1 if k == fold[row] else 0] += np.int64(scaled * row_loss(odds[row, k], label[row]))


@kernel
def best_move(g: float, h: float, l1: float, w: float) -> float:
    """The u that minimises g*u + h*(exp|u| - |u| - 1) + l1*|w + u|.

    The middle term bounds the logistic loss from above (its third derivative is at most its second), so the step
    never raises the penalised loss, needs no learning rate, and is Newton's when it is small.
    """
    if h <= 0.0:
        return 0.0
    up = g + l1
    u = math.copysign(math.log1p(abs(up) / h), -up)
    if w + u > 0.0:
        return u
    down = g - l1
    u = math.copysign(math.log1p(abs(down) / h), -down)
    if w + u < 0.0:
        return u
    return u if l1 == 0.0 else -w


@kernel
def tie(sums: Ints, tied: Any) -> None:
    """Add the sums of the codes marked in `tied` (n_codes, n_models), too rare for a weight of their own, to those of code 1."""
    for code in range(2, sums.shape[0]):
        for k in range(sums.shape[1]):
            if tied[code, k]:
                sums[1, k, 0] += sums[code, k, 0]
                sums[1, k, 1] += sums[code, k, 1]


@kernel
def first_steps(sums: Ints, unit: float, tied: Any, penalties: Floats, width: int, factors: Floats) -> None:
    """Fill the first of `factors` (n_codes, n_models, n_tries) with exp(step from zero) under each l1 and l2."""
    for code in range(sums.shape[0]):
        for k in range(sums.shape[1]):
            g, h = sums[code, k, 0] / unit, sums[code, k, 1] / unit
            for t in range(penalties.shape[0]):
                pull = abs(g) - penalties[t, 0]
                if tied[code, k]:
                    factors[code, k, t] = factors[1, k, t]
                elif pull <= 0.0:
                    factors[code, k, t] = 1.0
                else:
                    ratio = 1.0 + pull / (h + penalties[t, 1] / width)  # exp of the whole step, as `best_move` has it
                    factor = ratio if g < 0.0 else 1.0 / ratio
                    factors[code, k, t] = factor if width == 1 else factor ** (1.0 / width)


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


@kernel
def solve_chain(m: int, slope: Floats, bend: Floats, hold: Floats, move: Floats) -> float:
    """Newton's step of the first `m` weights, each tied to the one before by `hold`; spoils `bend`, returns the largest change."""
    for i in range(m):
        move[i] = -slope[i]
        if i > 0:
            ratio = hold[i] / bend[i - 1]
            bend[i] -= hold[i] * ratio
            move[i] += ratio * move[i - 1]
    largest = 0.0
    for i in range(m - 1, -1, -1):
        if i + 1 < m:
            move[i] += hold[i + 1] * move[i + 1]
        move[i] /= bend[i]
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
    code, hold = np.empty(n, np.int64), np.empty(n)
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
