"""Codes -> shuffled row blocks.

A row's place in the shuffle comes from a hash of the seed and its row number, so that it does not depend on how rows
are spread over blocks. Every block keeps its rows in that order: the first share of each block is a random sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.features import FieldCodes, joined
from autocross.folds import mix

Cross = tuple[int, ...]  # sorted fields; one field is order 1, none is the intercept
INTERCEPT: Cross = ()


@dataclass
class Block:
    """Some rows, kept where one worker is. ``odds`` is (n_rows, n_models), those of each model.

    ``row`` are the rows' numbers in the table, ``trial`` the codes of a candidate, ``former`` odds and losses kept for comparison,
    ``whole`` what there was before it was made narrow.
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
    whole: Block | None = None

    @property
    def n_rows(self) -> int:
        return len(self.label)

    def among_first(self, n: int) -> int:
        """How many of the first n rows of the whole shuffle are here; they come first."""
        return max(0, min(self.n_rows, -((self.place - n) // self.n_blocks)))


def keep_fields(block: Block, kept: Sequence[tuple[int, NDArray[Any] | None]], folder: Path | None) -> None:
    """The fields instead of the stems they are read from: each one's stem, and its codes by those of the stem if they differ."""
    fields: dict[Cross, FieldCodes] = {}
    for at, (stem, table) in enumerate(kept):
        coded = block.codes[(stem,)]
        if table is not None:
            codes = room(table.dtype, block.n_rows, folder, f"field-{at}-{block.place}")
            coded = FieldCodes(np.take(table, coded.codes, out=codes))
        fields[(at,)] = coded
    block.codes = {INTERCEPT: block.codes[INTERCEPT], **fields}


def narrow(block: Block, n: int) -> None:
    """Work on those rows only that are among the first n of the whole shuffle, until `widen`."""
    last = block.among_first(n)
    block.whole = whole = replace(block)
    block.codes = {cross: coded.between(0, last) for cross, coded in whole.codes.items()}
    block.label, block.weight, block.fold, block.row = whole.label[:last], whole.weight[:last], whole.fold[:last], whole.row[:last]


def widen(block: Block) -> None:
    """Back to all rows, if there are more."""
    if (whole := block.whole) is not None:
        block.codes, block.label, block.weight = whole.codes, whole.label, whole.weight
        block.fold, block.row, block.whole = whole.fold, whole.row, None


def refold(block: Block, fold: NDArray[np.uint8]) -> None:
    """Other rows judge."""
    block.fold = fold[block.row]


def room(kind: Any, n: int, folder: Path | None, name: str) -> NDArray[Any]:
    """A place for codes: in memory, or in a file of the folder."""
    return np.empty(n, kind) if folder is None or n == 0 else np.memmap(folder / name, kind, "w+", shape=(n,))


class BlockWriter:
    """Rows -> shuffled blocks, part by part. Given a folder, the codes of single-value fields are kept in files there."""

    def __init__(self, kinds: Sequence[Any], n_rows: int, seed: int, n_blocks: int, folder: Path | None = None) -> None:
        self.n_rows, self.n_blocks = n_rows, min(n_blocks, max(1, n_rows))
        self.order = np.argsort(mix(seed, np.arange(n_rows)))  # no two are equal
        self.place = np.empty(n_rows, np.int64)  # of each row in the shuffle
        self.place[self.order] = np.arange(n_rows)
        self.ragged: dict[int, list[FieldCodes]] = {}
        self.codes = [
            [room(kind, len(self.order[part :: self.n_blocks]), folder, f"stem-{at}-{part}") for at, kind in enumerate(kinds)]
            for part in range(self.n_blocks)
        ]

    def add(self, first_row: int, codes: Sequence[FieldCodes], each: Callable[..., Iterable[None]] = map) -> None:
        """The codes of rows in sequence; ``each`` may write them side by side."""
        place = self.place[first_row : first_row + codes[0].n_rows] if codes else self.place[:0]
        mine = [np.flatnonzero(place % self.n_blocks == part) for part in range(self.n_blocks)]
        there = [place[rows] // self.n_blocks for rows in mine]

        def write(at: int) -> None:
            if codes[at].starts is not None:
                self.ragged.setdefault(at, []).append(codes[at])
                return
            for arrays, from_rows, to_rows in zip(self.codes, mine, there, strict=True):
                arrays[at][to_rows] = codes[at].codes[from_rows]

        for _ in each(write, range(len(codes))):
            pass

    def blocks(self, label: NDArray[np.uint8], weight: NDArray[np.float32], fold: NDArray[np.uint8]) -> list[Block]:
        """What was written, with the rest of each row."""
        whole = {at: joined(parts) for at, parts in self.ragged.items()}
        found = []
        for part, arrays in enumerate(self.codes):
            rows = self.order[part :: self.n_blocks]
            codes: dict[Cross, FieldCodes] = {INTERCEPT: FieldCodes(np.zeros(len(rows), np.uint8))}
            for at, array in enumerate(arrays):
                codes[(at,)] = whole[at].take(rows) if at in whole else FieldCodes(array)
            found.append(Block(codes, label[rows], weight[rows], fold[rows], rows, part, self.n_blocks))
        return found


def make_blocks(
    codes: list[FieldCodes],
    label: NDArray[np.uint8],
    weight: NDArray[np.float32],
    fold: NDArray[np.uint8],
    seed: int,
    n_blocks: int,
) -> list[Block]:
    """Spread rows that are all here over blocks, shuffled."""
    writer = BlockWriter([one.codes.dtype for one in codes], len(label), seed, n_blocks)
    writer.add(0, codes)
    return writer.blocks(label, weight, fold)
