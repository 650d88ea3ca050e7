"""The slots of a candidate cross, in which its keys are counted while candidates compete.

keys  : int64 (n_entries,)    key of the cross in each entry
slots : uint32 (n_entries,)   slot of each key; the key itself if there are slots for all keys
bits  : uint8                 one for each slot, the first in the highest place: whether it has a code of its own
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.kernels import kernel

Ints = NDArray[np.int64]


@kernel
def lay_out(keys: Ints, hashed: bool, n_seen: int, slots: NDArray[np.uint32], counts: Ints) -> None:
    """Give each key its slot, and count the slots of the first `n_seen` entries."""
    n_slots = np.uint64(counts.shape[0])
    for entry in range(keys.shape[0]):
        key = np.uint64(keys[entry])
        slot = key % n_slots if hashed else key
        slots[entry] = slot
        if entry < n_seen:
            counts[slot] += 1


@kernel
def number(bits: Any, first: int, others: int, code: NDArray[np.uint32]) -> int:
    """Number the slots that have a code of their own, beginning with `first`. The `others` share a code. Returns the number of
    codes."""
    following = first
    for slot in range(code.shape[0]):
        own = (bits[slot >> 3] >> (7 - (slot & 7))) & 1
        code[slot] = following if own else others
        following += own
    return following


@kernel
def find(keys: Ints, known: Ints, start: Ints, shift: int, places: Ints) -> None:
    """Fill `places` with the place of each key among the keys `known`, which are in ascending order, or with -1.

    The upper bits of a key, after a shift, are an index into `start`, which says where keys with these bits begin; what remains is
    a search among few.
    """
    last = np.uint64(start.shape[0] - 2)
    for entry in range(keys.shape[0]):
        key = keys[entry]
        bits = min(np.uint64(key) >> np.uint64(shift), last)
        low, high = np.uint64(start[bits]), np.uint64(start[bits + np.uint64(1)])
        while low < high:
            middle = (low + high) >> np.uint64(1)
            if known[middle] < key:
                low = middle + np.uint64(1)
            else:
                high = middle
        places[entry] = np.int64(low) if low < np.uint64(known.shape[0]) and known[low] == key else -1
