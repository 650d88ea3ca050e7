"""The steps of a field's weights that reduce the loss, whichever loss the sums of gradients and curvatures belong to.

sums   : int64 (n_codes, n_models, 2 or 3)   gradient and curvature in fixed point, `unit` to the whole, and rows
weight : float64 (n_codes, n_models)         the weights of the field
tied   : bool (n_codes, n_models)            codes that share the weight of code 1, because they are too rare for their own
delta  : float64 (n_codes, n_models)         the change of the weights

All that is used of the loss is that its third derivative is at most its second; the proof is in `best_move`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.kernels import kernel, part

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FARTHEST = 50.0  # largest weight: there the probability is 0 or 1 to the last bit, and odds do not overflow
ROOM = 2.0**62  # largest sum in fixed point; what steps promise is cut off there, because such a step is large anyway
ROOT_HALF, LN_2 = 0x3FE6A09E00000000, math.log(2.0)  # the bits of about sqrt(1/2)


@part
def ln(x: float) -> float:
    """The natural logarithm of a positive number, within 1e-15. The number is written as 2^n z with z from 0.7 to 1.4, and log z
    comes from the series of atanh.

    It has no branch and no call. So the compiler computes several weights at a time, and the bits are the same on every machine.
    `kernels.logistic` has the same function, because kernels share nothing across files; a test compares the two.
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
def best_move(g: float, h: float, l1: float, w: float) -> float:
    """The u that minimises g*u + h*(exp|u| - |u| - 1) + l1*|w + u|.

    The middle term bounds the loss from above, because the third derivative of the loss is at most its second. So the step never
    raises the penalised loss and needs no learning rate; if it is small, it is Newton's step. Steps below 1e-16 become zero.
    """
    up, down, bend = g + l1, g - l1, h if h > 0.0 else 1.0
    u = math.copysign(ln(1.0 + abs(up) / bend), -up)
    if l1 > 0.0:
        v = math.copysign(ln(1.0 + abs(down) / bend), -down)
        u = u if w + u > 0.0 else v if w + v < 0.0 else -w
    return u if h > 0.0 else 0.0


@kernel
def tie(sums: Ints, tied: Any) -> None:
    """Add the sums of all codes that `tied` (n_codes, n_models) marks to those of code 1: they are too rare for weights of their
    own."""
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


@part
def moves(sums: Ints, unit: float, weight: Floats, tied: Any, l1: float, l2: float, width: int, delta: Floats) -> np.int64:
    """The loop of `step`, several weights at a time. Tied codes are computed too, but they promise nothing."""
    inverse, coarse = 1.0 / unit, unit / 1024  # units are powers of two, so nothing is rounded
    promised, most = np.int64(0), ROOM / weight.shape[0]  # in fixed point: the order of the codes must not matter
    for i in range(weight.shape[0]):
        w = weight[i]
        g, h = sums[2 * i] * inverse + l2 * w, sums[2 * i + 1] * inverse + l2 / width
        move = min(max(w + best_move(g, h, l1, width * w) / width, -FARTHEST), FARTHEST) - w
        delta[i] = move
        promised += np.int64(0) if tied[i] else np.int64(min(abs(g * move) * coarse, most))
    return promised


@kernel
def step(sums: Ints, unit: float, weight: Floats, tied: Any, l1: float, l2: float, width: int, delta: Floats) -> float:
    """Fill `delta` with the step of the field's weights; return the decrease of the loss it promises.

    A tied code shares the weight of code 1, to which `tie` has added its sums. If a row has up to `width` codes, the loss after all
    steps is at most the mean of the losses after `width` times each single step (Jensen's inequality). Hence steps are divided by
    `width`.
    """
    rows = (sums.reshape(-1), unit, weight.reshape(-1), tied.reshape(-1))
    if l1 == 0.0 and width == 1:  # compiled apart
        promised = moves(*rows, 0.0, l2, 1, delta.reshape(-1))
    else:
        promised = moves(*rows, l1, l2, width, delta.reshape(-1))
    for code in range(2, weight.shape[0]):
        for k in range(weight.shape[1]):
            if tied[code, k]:
                delta[code, k] = delta[1, k]
    return float(promised) / (unit / 1024)


@kernel
def centre(weight: Floats, tied: Any, unit: float, mean: Floats) -> None:
    """Fill `mean` with the mean weight of each model, over the codes that are not tied, and subtract it from all weights."""
    for k in range(weight.shape[1]):
        total, n = np.int64(0), np.int64(0)  # in fixed point: the order of the codes must not matter
        for code in range(weight.shape[0]):
            own = np.int64(not tied[code, k])  # all bits of -1 or none: a branch would often be mispredicted
            total += np.int64(np.rint(weight[code, k] * unit)) & -own
            n += own
        mean[k] = total / n / unit
    for code in range(weight.shape[0]):
        for k in range(weight.shape[1]):
            weight[code, k] -= mean[k]


@part
def solve_chain(m: int, n: int, bend: Floats, hold: Floats, right: Floats) -> None:
    """Solve the tridiagonal system of the first `m` weights, each held to the one before by `hold`, for each of the first `n` rows
    of `right`, which become the solutions. Overwrites `bend`."""
    for i in range(1, m):
        ratio = hold[i] / bend[i - 1]
        bend[i] -= hold[i] * ratio
        for r in range(n):
            right[r, i] += ratio * right[r, i - 1]
    for r in range(n):
        right[r, m - 1] /= bend[m - 1]
        for i in range(m - 2, -1, -1):
            right[r, i] = (right[r, i] + hold[i + 1] * right[r, i + 1]) / bend[i]


@part
def add_pull(m: int, l2: float, hold: Floats, values: Floats, result: Floats) -> None:
    """Multiply the first `m` values by the matrix of the penalty, and add the product to `result`. The matrix has l2 for each
    value, and `hold` between neighbours."""
    for i in range(m):
        result[i] += l2 * values[i]
    for i in range(1, m):
        pull = hold[i] * (values[i] - values[i - 1])
        result[i] += pull
        result[i - 1] -= pull


@part
def dot(m: int, a: Floats, b: Floats) -> float:
    """The sum of the products of the first `m` numbers."""
    total = 0.0
    for i in range(m):
        total += a[i] * b[i]
    return total


@kernel
def chained_step(
    sums: Ints,
    unit: float,
    weight: Floats,
    tied: Any,
    order: Ints,
    gap: Floats,
    place: Floats,
    l2: float,
    smooth: float,
    slope: float,
    delta: Floats,
) -> float:
    """`step` for a field with neighbours. `order` lists the codes, with the `gap` of each to the one before, and its `place` on a
    line.

    Weights are held near zero by l2, and near their neighbours by smooth / gap / 2 * difference^2. With a slope, it is their
    distances from a line that are held near zero and near each other. The line is s times the place of each code. Whatever the
    weights are, s is the best slope for them, and costs slope / 2 * s^2. With P for the matrix of the penalty and x for the places,
    the penalty of weights w is then w'Pw / 2 - (x'Pw)^2 / (x'Px + slope) / 2, which again is a quadratic form.

    Newton's step of a chain solves a tridiagonal system, and with a slope the same system for a second right side. It is shortened
    by the factor log(1 + m) / m, where m is its largest change. Then it never raises the penalised loss, for the same reason as in
    `best_move`. Tied codes are skipped.
    """
    n = order.shape[0]
    code, hold, w, x = np.empty(n, np.uint64), np.empty(n), np.empty(n), np.empty(n)
    gradient, bend, of_line, right = np.empty(n), np.empty(n), np.empty(n), np.empty((2, n))
    promised, most = np.int64(0), ROOM / weight.size
    for k in range(weight.shape[1]):
        first = 0
        while first < n:
            m, distance, position = 0, 0.0, first
            while position == first or (position < n and gap[position] > 0.0):
                distance += gap[position]
                if not tied[order[position], k]:
                    code[m], hold[m] = order[position], smooth / distance if m > 0 else 0.0
                    w[m], x[m] = weight[order[position], k], place[position]
                    m, distance = m + 1, 0.0
                position += 1
            first = position
            if m == 0:
                continue
            for i in range(m):
                h = sums[code[i], k, 1] / unit
                gradient[i], of_line[i], right[1, i] = sums[code[i], k, 0] / unit, 0.0, h * x[i]
                bend[i] = h + l2 + hold[i] + (hold[i + 1] if i < m - 1 else 0.0)
            add_pull(m, l2, hold, w, gradient)
            has_line = slope > 0.0 and m > 1
            if has_line:
                add_pull(m, l2, hold, x, of_line)
                s = dot(m, of_line, w) / (dot(m, of_line, x) + slope)
                for i in range(m):
                    gradient[i] -= s * of_line[i]
            for i in range(m):
                right[0, i] = -gradient[i]
            solve_chain(m, 2 if has_line else 1, bend, hold, right)
            if has_line:
                # The line takes a matrix of rank one off the penalty, so the formula of Sherman and Morrison gives the solution.
                share = dot(m, of_line, right[0]) / (slope + dot(m, of_line, right[1]))
                for i in range(m):
                    right[0, i] += share * (x[i] - right[1, i])
            largest = 0.0
            for i in range(m):
                largest = max(largest, abs(right[0, i]))
            shorter = math.log1p(largest) / largest if largest > 0.0 else 0.0
            for i in range(m):
                change = min(max(w[i] + right[0, i] * shorter, -FARTHEST), FARTHEST) - w[i]
                delta[code[i], k] = change
                promised -= np.int64(min(max(gradient[i] * change * (unit / 1024), -most), most))
        for position in range(n):
            if tied[order[position], k]:
                delta[order[position], k] = delta[1, k]
    return float(promised) / (unit / 1024)
