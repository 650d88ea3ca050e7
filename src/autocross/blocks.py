"""Codes -> shuffled row blocks.

A row's place in the shuffle comes from a hash of the seed and its row number, so that it does not depend on how rows
are spread over blocks. Every block keeps its rows in that order: the first share of each block is a random sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autocross.features import FieldCodes
from autocross.folds import mix

Cross = tuple[int, ...]  # sorted fields; one field is order 1, none is the intercept
INTERCEPT: Cross = ()


@dataclass
class Block:
    """Some rows, kept where one worker is. ``odds`` is (n_rows, n_models), those of each model.

    ``row`` are the rows' numbers in the table, ``trial`` the codes of a candidate, ``former`` odds and losses kept for comparison.
    Of the whole shuffle, the block has every ``n_blocks``-th row from ``place``.
    """

    codes: dict[Cross, FieldCodes]
    label: NDArray[np.uint8]
    weight: NDArray[np.float32]
    fold: NDArray[np.uint8]
    row: NDArray[np.int64]
    place: int = 0
    n_blocks: int = 1
    odds: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    trial: FieldCodes = field(default_factory=lambda: FieldCodes(np.zeros(0, np.uint32)))
    former: tuple[NDArray[np.float64], NDArray[np.float64]] = field(default_factory=lambda: (np.zeros((0, 0)), np.zeros(0)))

    @property
    def n_rows(self) -> int:
        return len(self.label)

    def among_first(self, n: int) -> int:
        """How many of the first n rows of the whole shuffle are here; they come first."""
        return max(0, min(self.n_rows, -((self.place - n) // self.n_blocks)))


def keep_fields(block: Block, kept: Sequence[int]) -> None:
    """Only these fields, numbered anew."""
    fields: dict[Cross, FieldCodes] = {(new,): block.codes[(old,)] for new, old in enumerate(kept)}
    block.codes = {INTERCEPT: block.codes[INTERCEPT], **fields}


def refold(block: Block, fold: NDArray[np.uint8]) -> None:
    """Other rows judge."""
    block.fold = fold[block.row]


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
        blocks.append(Block(coded, label[rows], weight[rows], fold[rows], rows, part, n_blocks))
    return blocks
