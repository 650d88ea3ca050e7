"""Steps of a field whose weights must be monotone along its chains: they never fall, or never rise, from one code to the next.

sums   : int64 (n_codes, n_models, 2 or 3)   gradient and curvature in fixed point, `unit` to the whole, and rows
weight : float64 (n_codes, n_models)         the weights of the field, which are monotone
tied   : bool (n_codes, n_models)            codes without rows of their own. If all codes of a chain are tied, they share the
                                             weight of code 1; otherwise a tied code has the weight of the nearest free code below
                                             it, or of the lowest free code if there is none below
order, gap, place                            the chain, as in `kernels.steps`
sign   : 1.0 if weights must never fall, -1.0 if they must never rise; the latter is solved with all signs turned
delta  : float64 (n_codes, n_models)         the change of the weights

Newton's step minimises a quadratic bound q of the penalised loss. Here it is minimised among monotone weights. As the weights were
monotone before, and the set of monotone weights is convex, every point on the way to the minimum is monotone too. With u for the
change, the derivative of q at the minimum says g'u <= -u'Hu, which is all that the proof in `steps.chained_step` needs. So the same
shortening, by log(1 + m) / m for a largest change m, makes a step that never raises the loss.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.kernels import kernel, part

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FARTHEST = 50.0  # largest weight, as in `kernels.steps`
ROOM = 2.0**62  # largest sum in fixed point
TURNS = 50  # most turns that weights and the slope of their line take in one step
CLOSE = 1e-9  # a slope that changes by no more than this has settled
SAME = 1e-9  # neighbours that differ by less in the end get one weight: a probability, which is rounded, can tell the others apart


@part
def soft(x: float, threshold: float) -> float:
    """x moved towards zero by the threshold."""
    return math.copysign(max(abs(x) - threshold, 0.0), x)


@part
def pooled(m: int, bend: Floats, right: Floats, hold: Floats, l1: float, room: Any, first: Ints, result: Floats) -> None:
    """Fill the first `m` of `result` with the v that minimise sum(bend v^2 / 2 - right v) + sum(hold (v - v before)^2 / 2) + l1
    sum|v| among those that never fall. `room` is (4, m) and overwritten, and so is `first`. l1 and hold are not used together.

    Neighbours that fall are pooled: they get one value. Then the others are computed anew, until nothing falls. Pooling never has
    to be undone. Let x be the minimum with the pools so far, y that among values that never fall, and let y have these pools too.
    Suppose that x falls from i to i + 1 and y rises there. The sum of all derivatives of the parts of single values up to i, which
    is what the pair i has to hold, is larger in y than in x. Take all pairs around i of which that is true. Left of them, y - x
    must be positive and right of them negative, because of the single values there. But at each of these pairs y - x stays or
    rises, because the pair holds more in y. That is a contradiction, and so y has the pool of i and i + 1 too.
    """
    own, pull, link, value = room[0], room[1], room[2], room[3]
    coupled, n = False, m
    for i in range(m):
        own[i], pull[i], link[i], first[i] = bend[i], right[i], hold[i], i
        coupled = coupled or hold[i] > 0.0
    while True:
        if coupled:
            for j in range(n):  # a tridiagonal system, as in `steps.solve_chain`
                value[j] = own[j] + link[j] + (link[j + 1] if j < n - 1 else 0.0)
                result[j] = pull[j]
            for j in range(1, n):
                ratio = link[j] / value[j - 1]
                value[j] -= link[j] * ratio
                result[j] += ratio * result[j - 1]
            result[n - 1] /= value[n - 1]
            for j in range(n - 2, -1, -1):
                result[j] = (result[j] + link[j + 1] * result[j + 1]) / value[j]
        else:
            for j in range(n):
                size = (first[j + 1] if j < n - 1 else m) - first[j]
                result[j] = soft(pull[j], l1 * size) / own[j]
        last = 0
        for j in range(1, n):
            if result[j] < result[j - 1]:
                own[last] += own[j]
                pull[last] += pull[j]
            else:
                last += 1
                own[last], pull[last], link[last], first[last] = own[j], pull[j], link[j], first[j]
        if last + 1 == n:
            break
        n = last + 1
    for j in range(n - 1, -1, -1):  # from the end, because pools become longer in the same array
        after = first[j + 1] if j < n - 1 else m
        level = result[j]
        for i in range(first[j], after):
            result[i] = level


@part
def add_pull(m: int, l2: float, hold: Floats, values: Floats, result: Floats) -> None:
    """`steps.add_pull`: multiply the values by the matrix of the penalty, and add the product to `result`."""
    for i in range(m):
        result[i] += l2 * values[i]
    for i in range(1, m):
        pull = hold[i] * (values[i] - values[i - 1])
        result[i] += pull
        result[i - 1] -= pull


@part
def dot(m: int, a: Floats, b: Floats) -> float:
    total = 0.0
    for i in range(m):
        total += a[i] * b[i]
    return total


@kernel
def step(
    sums: Ints,
    unit: float,
    weight: Floats,
    tied: Any,
    order: Ints,
    gap: Floats,
    place: Floats,
    sign: float,
    strengths: Floats,
    width: int,
    delta: Floats,
) -> float:
    """Fill `delta` with the step of the field's weights; return the decrease of the loss it promises. `strengths` are l1, l2,
    smooth and slope, as in `steps.step` and `steps.chained_step`; l1 is not used together with the last two.

    If a row has up to `width` codes, curvatures and the largest change count so many times, for the reason that `steps.step` gives.
    The line of a slope is a variable of its own here: weights and slope take turns, and each turn brings the penalised bound down.
    """
    n, l1, l2, smooth, slope = order.shape[0], strengths[0], strengths[1], strengths[2], strengths[3]
    code, hold, w, x = np.empty(n, np.int64), np.empty(n), np.empty(n), np.empty(n)
    gradient, bend, base, right = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    of_line, goal, room, begins = np.empty(n), np.empty(n), np.empty((4, n)), np.empty(n, np.int64)
    promised, most = np.int64(0), ROOM / weight.size
    for k in range(weight.shape[1]):
        first = 0
        while first < n:
            m, distance, position = 0, 0.0, first
            while position == first or (position < n and gap[position] > 0.0):
                distance += gap[position]
                if not tied[order[position], k]:
                    code[m], hold[m] = order[position], smooth / distance if m > 0 else 0.0
                    w[m], x[m] = sign * weight[order[position], k], place[position]
                    m, distance = m + 1, 0.0
                position += 1
            for i in range(m):
                g, h = sign * sums[code[i], k, 0] / unit, width * sums[code[i], k, 1] / unit
                bend[i] = h + l2 if h + l2 > 0.0 else 1.0
                gradient[i], of_line[i] = g if h + l2 > 0.0 else 0.0, 0.0
                base[i] = h * w[i] - gradient[i] if h + l2 > 0.0 else w[i]
            add_pull(m, l2, hold, w, gradient)
            has_line, s = slope > 0.0 and m > 1, 0.0
            if has_line:
                add_pull(m, l2, hold, x, of_line)
                s = dot(m, of_line, w) / (dot(m, of_line, x) + slope)
                for i in range(m):
                    gradient[i] -= s * of_line[i]
            for _ in range(TURNS if m > 0 else 0):
                for i in range(m):
                    right[i] = base[i] + s * of_line[i]
                pooled(m, bend, right, hold, l1, room, begins, goal)
                former = s
                if has_line:
                    s = dot(m, of_line, goal) / (dot(m, of_line, x) + slope)
                if abs(s - former) <= CLOSE:
                    break
            largest = 0.0
            for i in range(m):
                largest = max(largest, width * abs(goal[i] - w[i]))
            shorter = math.log1p(largest) / largest if largest > 0.0 else 0.0
            for i in range(m):
                goal[i] = min(max(w[i] + (goal[i] - w[i]) * shorter, -FARTHEST), FARTHEST)
                if i > 0 and goal[i] < goal[i - 1]:
                    goal[i] = goal[i - 1]  # by rounding
                change = goal[i] - w[i]
                # An l1 penalty has no derivative at zero; what it takes off the promise is how far it rises.
                lost = l1 * (abs(goal[i]) - abs(w[i]))
                promised -= np.int64(min(max((gradient[i] * change + lost) * (unit / 1024), -most), most))
            at = -1
            for here in range(first, position):
                if tied[order[here], k]:
                    if m == 0:
                        delta[order[here], k] = delta[1, k]
                    else:
                        delta[order[here], k] = sign * goal[max(at, 0)] - weight[order[here], k]
                else:
                    at += 1
                    delta[order[here], k] = sign * (goal[at] - w[at])
            first = position
    return float(promised) / (unit / 1024)


@kernel
def settle(weight: Floats, n_rows: Ints, order: Ints, gap: Floats, sign: float) -> None:
    """Make the final weights (n_codes,) monotone to the last bit, in place.

    Sums of changes are rounded, so neighbours that were pooled may differ in their last bits. Those that differ by less than `SAME`
    get one weight. A code without rows gets that of the nearest code below it that has rows, or else of the lowest one.
    """
    n, first = order.shape[0], 0
    while first < n:
        end, lowest = first + 1, first if n_rows[order[first]] > 0 else -1
        while end < n and gap[end] > 0.0:
            if lowest < 0 and n_rows[order[end]] > 0:
                lowest = end
            end += 1
        level = sign * weight[order[max(lowest, first)]]
        for position in range(first, end):
            own = sign * weight[order[position]]
            if own >= level + SAME and (lowest < 0 or (position > lowest and n_rows[order[position]] > 0)):
                level = own
            weight[order[position]] = sign * level
        first = end
