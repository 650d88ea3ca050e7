"""Codes -> shuffled row blocks.

A row's place in the shuffle comes from a hash of the seed and its row number, so that it does not depend on how rows
are spread over blocks. Every block keeps its rows in that order: the first share of each block is a random sample.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autocross.features import FieldCodes
from autocross.folds import mix

Cross = tuple[int, ...]  # sorted fields; one field is order 1, none is the intercept
INTERCEPT: Cross = ()


@dataclass
class Block:
    """Some rows, kept where one worker is. ``odds`` is (n_rows, n_models), those of each model."""

    codes: dict[Cross, FieldCodes]
    label: NDArray[np.uint8]
    weight: NDArray[np.float32]
    fold: NDArray[np.uint8]
    odds: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def n_rows(self) -> int:
        return len(self.label)


def make_blocks(
    codes: list[FieldCodes],
    label: NDArray[np.uint8],
    weight: NDArray[np.float32],
    fold: NDArray[np.uint8],
    seed: int,
    n_blocks: int,
) -> list[Block]:
    """Spread the rows over blocks, shuffled."""
    order = np.argsort(mix(seed, np.arange(len(label))), kind="stable")
    blocks = []
    for part in range(min(n_blocks, max(1, len(label)))):
        rows = order[part::n_blocks]
        coded: dict[Cross, FieldCodes] = {INTERCEPT: FieldCodes(np.zeros(len(rows), np.uint8))}
        coded.update({(at,): one.take(rows) for at, one in enumerate(codes)})
        blocks.append(Block(coded, label[rows], weight[rows], fold[rows]))
    return blocks
