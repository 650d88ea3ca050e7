"""A hash of whole numbers. It decides how rows are shuffled and which rows judge, in the same way on every machine."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.features import TOGETHER


def mix(seed: int, numbers: NDArray[Any]) -> NDArray[np.uint64]:
    """A hash of the seed and each number (SplitMix64's finaliser), the same on every machine.

    >>> mix(0, np.arange(2)).tolist()
    [16294208416658607535, 10451216379200822465]
    """
    if len(numbers) > TOGETHER:
        mixed = np.empty(len(numbers), np.uint64)
        for first in range(0, len(numbers), TOGETHER):
            mixed[first : first + TOGETHER] = mix(seed, numbers[first : first + TOGETHER])
        return mixed
    with np.errstate(over="ignore"):
        z = numbers.astype(np.uint64) + np.uint64((0x9E3779B97F4A7C15 * (seed + 1)) & 0xFFFFFFFFFFFFFFFF)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
