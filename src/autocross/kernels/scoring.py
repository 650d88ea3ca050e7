"""The log-odds of a row, by a plan: bin its numbers, look up the weights of its codes, cross the codes and look up again.

plan  : int64   what to do, step after step; `serving.one_row` writes it
words : int64   what is looked up, floats by their bits: the intercept, edges, codes by interval, weights, tables and slots
row   : int64   the code of each field, and behind the codes the numbers by their bits

The plan says how many numbers there are and, for each, its place in the row, where its edges begin, how many there are, and how
many fields are read from it; for each of these its place in the row, and where its codes by interval begin. Then come the number of
fields and, for each, where its weights begin. Last come the number of crosses and, for each:

    n_parts, first, mask, others, n_buckets, and for each part its place in the row, its size, and whether a key is reduced there

A cross without a mask has a table of the weights of all keys, which begins at `first`. Otherwise there are slots, each a key and
its weight; a key lies in or behind the slot of its hash. An empty slot has the weight of unknown keys. If these are hashed, their
weights begin at `others`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.kernels import brief, kernel, part

Words = NDArray[np.int64]
MODULUS = (1 << 40) - 87  # that of `crossing.cross_key`
EMPTY = -1  # the key of an empty slot
DIRECT = -1  # the mask of a cross that has a table of all keys
CHUNK = 256  # rows of which a loop does one thing at a time, as in `kernels.logistic`
STEPS = 5  # of the plan, for each cross before its parts


@part
def as_float(bits: Any) -> Any:
    """The float that has these bits."""
    return np.int64(bits).view(np.float64)


@part
def slot_of(key: int, mask: int) -> int:
    """The slot of a key, which is below 2^40. The products stay below 2^63."""
    return (((key & 0x7FFFFFFF) * 0x9E3779B1 + (key >> 31) * 0x85EBCA6B) >> 24) & mask


@part
def found(key: int, first: int, mask: int, words: Words) -> int:
    """Where the slot of a key begins, or the empty slot in which it belongs."""
    slot = slot_of(key, mask)
    while words[first + 2 * slot] != key and words[first + 2 * slot] != EMPTY:
        slot = (slot + 1) & mask
    return first + 2 * slot


@kernel
def enter(keys: Words, weights: Words, first: int, mask: int, words: Words) -> None:
    """Write keys and their weights into empty slots."""
    for number in range(keys.shape[0]):
        slot = found(keys[number], first, mask, words)
        words[slot], words[slot + 1] = keys[number], weights[number]


@part
def interval(value: float, first: int, n_edges: int, words: Words) -> int:
    """How many edges are not larger than a value; for NaN, one more than there are edges."""
    if value != value:
        return n_edges + 1
    low, n = first, n_edges
    while n > 0:
        half = n >> 1
        if as_float(words[low + half]) <= value:
            low, n = low + half + 1, n - half - 1
        else:
            n = half
    return low - first


@part
def bin_numbers(plan: Words, words: Words, row: Words) -> int:
    """Write the codes of the fields that are read from numbers. Returns how far the plan was read."""
    at = 1
    for _ in range(plan[0]):
        place = interval(as_float(row[plan[at]]), plan[at + 1], plan[at + 2], words)
        n_fields = plan[at + 3]
        at += 4
        for _field in range(n_fields):
            row[plan[at]] = words[plan[at + 1] + place]
            at += 2
    return at


@part
def cross_weight(at: int, plan: Words, words: Words, row: Words) -> Any:
    """The weight of a row's key in the cross whose steps begin here."""
    first, mask, n_buckets = plan[at + 1], plan[at + 2], plan[at + 4]
    key = 0
    for step in range(at + STEPS, at + STEPS + 3 * plan[at], 3):
        key = key * plan[step + 1] + row[plan[step]]
        if plan[step + 2]:
            key %= MODULUS
    if mask == DIRECT:
        return as_float(words[first + key])
    slot = found(key, first, mask, words)
    if n_buckets and words[slot] == EMPTY:
        return as_float(words[plan[at + 3] + key % n_buckets])
    return as_float(words[slot + 1])


@brief
def log_odds(plan: Words, words: Words, row: Words) -> Any:
    """The log-odds of a row: the intercept, and the weights of all fields and crosses, added in this order."""
    at = bin_numbers(plan, words, row)
    total = as_float(words[0])
    n_fields = plan[at]
    for field in range(n_fields):
        total += as_float(words[plan[at + 1 + field] + row[field]])
    at += 1 + n_fields
    n_crosses = plan[at]
    at += 1
    for _ in range(n_crosses):
        total += cross_weight(at, plan, words, row)
        at += STEPS + 3 * plan[at]
    return total


@part
def add_cross(at: int, plan: Words, words: Words, key: Words, total: NDArray[np.float64]) -> None:
    """Add the weights of the rows' keys in the cross whose steps begin here."""
    first, mask, others, n_buckets = plan[at + 1], plan[at + 2], plan[at + 3], plan[at + 4]
    if mask == DIRECT:
        weights = words[first:]
        for i in range(total.shape[0]):
            total[i] += as_float(weights[key[i]])
        return
    for i in range(total.shape[0]):
        slot = found(key[i], first, mask, words)
        if n_buckets and words[slot] == EMPTY:
            total[i] += as_float(words[others + key[i] % n_buckets])
        else:
            total[i] += as_float(words[slot + 1])


@kernel
def add_many(plan: Words, words: Words, codes: NDArray[np.uint32], total: NDArray[np.float64]) -> None:
    """Add the weights of all fields and crosses to the log-odds of many rows, in the order of `log_odds`. `codes` (n_fields,
    n_rows) has the codes of all fields, those of numbers too."""
    at = 1
    for _ in range(plan[0]):
        at += 4 + 2 * plan[at + 3]
    n_fields = plan[at]
    after = at + 2 + n_fields
    key = np.empty(CHUNK, np.int64)
    for first in range(0, total.shape[0], CHUNK):
        own = total[first : first + CHUNK]
        for field in range(n_fields):
            weights, coded = words[plan[at + 1 + field] :], codes[field, first : first + CHUNK]
            for i in range(own.shape[0]):
                own[i] += as_float(weights[coded[i]])
        cross = after
        for _ in range(plan[after - 1]):
            key[:] = 0
            for step in range(cross + STEPS, cross + STEPS + 3 * plan[cross], 3):
                size, coded = plan[step + 1], codes[plan[step], first : first + CHUNK]
                for i in range(own.shape[0]):
                    key[i] = key[i] * size + np.int64(coded[i])
                if plan[step + 2]:
                    for i in range(own.shape[0]):
                        key[i] %= MODULUS
            add_cross(cross, plan, words, key, own)
            cross += STEPS + 3 * plan[cross]
