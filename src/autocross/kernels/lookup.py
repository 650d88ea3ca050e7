"""Values -> places: a table of hashes, and a search among edges.

hashes : uint64 (n_rows,)     hash of the value of each row
keys   : uint64 (n_slots,)    hash kept in each slot; n_slots is a power of two, a hash lies in or behind the slot of its last bits
number : int32 (n_slots,)     the number of the slot's value, -1 where there is none
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.kernels import kernel, part

Hashes = NDArray[np.uint64]
Numbers = NDArray[np.int32]
CHUNK = 256  # rows of which a loop does one thing at a time, as in `kernels.logistic`


@part
def slot_of(hashed: np.uint64, keys: Hashes, number: Numbers) -> np.uint64:
    """The slot that has the hash, or the empty slot in which it belongs."""
    last = np.uint64(keys.shape[0] - 1)
    slot = hashed & last
    while number[slot] >= 0 and keys[slot] != hashed:
        slot = (slot + np.uint64(1)) & last
    return slot


@kernel
def enter(
    hashes: Hashes,
    row: int,
    keys: Hashes,
    number: Numbers,
    n_before: int,
    n: int,
    counts: NDArray[np.int64],
    first: NDArray[np.int64],
    index: Numbers,
) -> tuple[int, int]:
    """Write the numbers of the rows' values into `index`, beginning at `row`, and count them. `n` values have numbers so far, and
    `n_before` had numbers before these rows.

    A new value gets the next number, and its row goes into `first`. The loop ends early if the table is half full. Returns how far
    it came, in rows and in numbers.
    """
    while row < hashes.shape[0] and 2 * n < keys.shape[0]:
        hashed = hashes[np.uint64(row)]
        slot = slot_of(hashed, keys, number)
        if number[slot] < 0:
            keys[slot], number[slot] = hashed, n
            first[n - n_before] = row
            n += 1
        own = number[slot]
        counts[np.uint64(own)] += 1
        index[np.uint64(row)] = own
        row += 1
    return row, n


@kernel
def find(hashes: Hashes, keys: Hashes, number: Numbers, table: Any, entries: Any) -> None:
    """For each row, the entry of the table at the number of its value. A value without a number gets the last entry."""
    last = table.shape[0] - 1
    for row in range(hashes.shape[0]):
        own = number[slot_of(hashes[row], keys, number)]
        entries[row] = table[np.uint64(own if own >= 0 else last)]


@kernel
def spread(table: Any, index: Numbers, entries: Any) -> None:
    """For each row, the entry of the table at its number."""
    for row in range(index.shape[0]):
        entries[row] = table[np.uint32(index[row])]


@part
def in_order(bits: np.int64) -> np.int64:
    """The bits of a float as a whole number. Whole numbers made so have the order of the floats."""
    return bits ^ ((bits >> np.int64(63)) & np.int64(0x7FFFFFFFFFFFFFFF))


@kernel
def locate(
    values: NDArray[np.float64], bits: NDArray[np.int64], edges: NDArray[np.int64], start: Any, shift: int, levels: int, place: Any
) -> None:
    """For each value, how many edges are not larger; for NaN, one more than there are edges.

    `bits` has the bits of the values. `edges` has the bits of the edges, made by `in_order` and padded with the largest number. The
    upper bits of a value, minus those of the first edge, are an index into `start`, which says where to begin. What remains is a
    search among fewer than 2 ** `levels` edges. It has no branches, because these would be mispredicted.
    """
    n = edges.shape[0] - (1 << levels)
    low, high = edges[0], edges[n - 1]
    x, below = np.empty(CHUNK, np.int64), np.empty(CHUNK, np.uint64)
    for first in range(0, bits.shape[0], CHUNK):
        # In views indices count from zero, so the compiler knows that none counts from the end.
        own, value, places = bits[first : first + CHUNK], values[first : first + CHUNK], place[first : first + CHUNK]
        for i in range(own.shape[0]):
            x[i] = in_order(own[i])
            below[i] = start[np.uint64(min(max(x[i], low), high) - low) >> np.uint64(shift)]
        # One level for several rows at a time. A shift is used, because the compiler turns a product or a choice into a branch.
        for up in range(1, levels + 1):
            level = np.uint64(levels - up)
            middle = (np.uint64(1) << level) - np.uint64(1)
            for i in range(own.shape[0]):
                below[i] += np.uint64(edges[below[i] + middle] <= x[i]) << level
        for i in range(own.shape[0]):
            places[i] = below[i] if value[i] == value[i] else np.uint64(n + 1)
