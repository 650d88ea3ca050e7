"""Codes -> shuffled row blocks.

A row's place in the shuffle is a hash of the seed and of its row number, so it does not depend on how rows are spread over blocks.
Every block keeps its rows in the order of their places. The rows with the lowest places are therefore a random sample of all rows,
and the same sample however many blocks there are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.engines import Engine, WorkEnded, changes
from autocross.features import FieldCodes, joined
from autocross.folds import ALL, N_FOLDS, FoldPlan
from autocross.hashing import mix
from autocross.scratch import Scratch, Stored

Cross = tuple[int, ...]  # sorted fields; one field is order 1, none is the intercept; those of a statistic follow RATE or COUNT
INTERCEPT: Cross = ()
RATE, COUNT = -1, -2  # what a statistic tells about the values of its fields: how many rows were positive, and how many there were


def stem_key(number: int) -> Cross:
    """Where a block keeps the codes of a stem, until fields are laid out: at a place that no field or cross has.

    >>> stem_key(0), stem_key(7)
    ((-1,), (-8,))
    """
    return (-1 - number,)


OF_ROWS = ("label", "weight", "fold", "row", "place", "cluster")


@dataclass
class Block:
    """Some of the rows, which stay with one worker.

    ``odds`` (n_rows, n_models) has the odds of each row under each model. ``row`` has the numbers of the rows in the table, which
    has ``n_all`` rows. ``place`` has their places in the shuffle, from 0 to 2^32. ``cluster`` has the numbers of their groups or
    periods. ``trials`` has the codes of candidates. ``former`` has odds and losses that are kept for comparison. ``pulls``
    has, while weights are drawn, the curvature of each row and its pull in each draw. ``whole`` is the block as it was before it
    was narrowed to some of its rows. ``scratch`` is the file that holds the codes, if they are not in memory. ``forward`` says that
    a model learns only from the rows of earlier folds.
    """

    codes: dict[Cross, FieldCodes]
    label: NDArray[np.uint8]
    weight: NDArray[np.float32]
    fold: NDArray[np.uint8]
    row: NDArray[np.int64]
    place: NDArray[np.uint32]
    n_all: int
    cluster: NDArray[np.int64] | None = None
    odds: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    trials: list[FieldCodes] = field(default_factory=list)
    former: tuple[NDArray[np.float64], NDArray[np.float64]] = field(default_factory=lambda: (np.zeros((0, 0)), np.zeros(0)))
    pulls: tuple[NDArray[np.float32], NDArray[np.int32]] = field(
        default_factory=lambda: (np.zeros(0, np.float32), np.zeros((0, 0), np.int32))
    )
    whole: Block | None = None
    scratch: Scratch | None = None
    forward: bool = False

    def coded(self, cross: Cross) -> FieldCodes:
        """The codes of a cross as arrays. Codes on disk are read, and stay in memory for as long as the caller holds them."""
        return self.codes[cross].read()

    def keep(self, cross: Cross, coded: FieldCodes) -> None:
        """Keep the codes of a cross, in memory or on disk."""
        self.codes[cross] = coded.stored(self.scratch)

    @property
    def n_rows(self) -> int:
        return len(self.label)

    @property
    def learners(self) -> NDArray[np.uint8]:
        """Which models learn from each row, as `kernels.logistic` has it: all but that of its fold, or only later ones."""
        return np.where(self.fold == ALL, ALL, self.fold + np.uint8(N_FOLDS + 1)) if self.forward else self.fold

    def among_first(self, n: int) -> int:
        """How many rows of this block are among the first n of the whole shuffle, roughly. They are the first rows of the block."""
        return self.n_rows if n >= self.n_all else bisect_left(self.place, (n << 32) // self.n_all)


@changes("stems")
def keep_fields(block: Block, kept: Sequence[tuple[int, NDArray[Any] | None]]) -> None:
    """Replace the stems by fields. ``kept`` has, for each field, its stem, and a table from codes of the stem to codes of the
    field, unless these are the same."""
    stems, block.codes = block.codes, {INTERCEPT: block.codes[INTERCEPT]}
    for number, (stem, table) in enumerate(kept):
        if table is None:
            block.codes[(number,)] = stems[stem_key(stem)]
        else:
            block.keep((number,), FieldCodes(np.take(table, stems[stem_key(stem)].read().codes, mode="clip")))


@changes("rows", reads=("fold", "odds"))
def narrow(block: Block, n: int) -> None:
    """Until `widen`, have only the rows that are among the first n of the whole shuffle."""
    last = block.among_first(n)
    nothing = np.zeros((0, 0))
    block.odds, block.former = nothing, (nothing, np.zeros(0))  # those of all rows are of no use to a sample
    block.whole = replace(block)
    block.codes = {cross: coded.between(0, last) for cross, coded in block.codes.items()}
    for name in OF_ROWS:
        values = getattr(block, name)
        setattr(block, name, None if values is None else values[:last])


@changes("rows")
def widen(block: Block) -> None:
    """Have all rows again, after `narrow`."""
    if (whole := block.whole) is not None:
        for name in ("codes", *OF_ROWS):
            setattr(block, name, getattr(whole, name))
        block.whole = None


@contextmanager
def narrowed(engine: Engine, n: int) -> Iterator[None]:
    """Inside this context the blocks have only the rows that are among the first n of the whole shuffle."""
    engine.odds_of = engine.former_of = None
    engine.each(narrow, n)
    try:
        yield
    except WorkEnded:  # after any other exception the blocks are not asked for anything
        engine.run(widen)
        raise
    finally:
        engine.odds_of = engine.former_of = None
    engine.run(widen)


def draw_folds(engine: Engine, plan: FoldPlan) -> None:
    """Let other rows judge. The odds in the blocks then belong to no regression."""
    engine.odds_of = engine.former_of = None
    engine.each(refold, plan)


@changes("fold", anew=True)
def refold(block: Block, plan: FoldPlan) -> None:
    """Let other rows judge."""
    block.fold, block.forward = plan.of(block.row, block.cluster), plan.forward


def codes_of(cross: Cross) -> str:
    """The name of the part of a block that holds the codes of a cross."""
    return f"codes {cross}"


def places(seed: int, row: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The places of rows in the shuffle, by their numbers in the table."""
    return (mix(seed, row) >> np.uint64(32)).astype(np.uint32)


class BlockWriter:
    """Collects codes part by part, and then makes shuffled blocks of them. With a scratch file the codes are kept there.

    ``kinds`` has the type of each stem's codes, or None where a row may have several. The rows are ``n_rows`` of ``n_all``,
    beginning with row ``first_row``.

    On disk the codes of a stem are written in the order of the rows, and shuffled later. Codes written at their places in the
    shuffle would dirty every page many times, and the disk could not follow.
    """

    def __init__(
        self,
        kinds: Sequence[Any],
        n_rows: int,
        seed: int,
        scratch: Scratch | None = None,
        first_row: int = 0,
        n_all: int | None = None,
    ) -> None:
        self.n_rows, self.seed, self.scratch = n_rows, seed, scratch
        self.first_row, self.n_all = first_row, n_rows if n_all is None else n_all
        self.ragged: dict[int, list[FieldCodes]] = {}
        self.codes: list[Any] = [self.room(kind) for kind in kinds]

    def room(self, kind: Any) -> Any:
        """Room for the codes of a stem. None if a row may have several codes: these are kept part by part."""
        if kind is None:
            return None
        return np.empty(self.n_rows, kind) if self.scratch is None else self.scratch.room(kind, self.n_rows)

    def add(self, first_row: int, codes: Mapping[int, FieldCodes]) -> None:
        """Add the codes of consecutive rows, by the numbers of their stems."""
        for stem, coded in codes.items():
            room = self.codes[stem]
            if coded.starts is not None:
                self.ragged.setdefault(stem, []).append(coded.stored(self.scratch))
            elif isinstance(room, Stored):
                room.write(first_row, coded.codes)
            else:
                room[first_row : first_row + coded.n_rows] = coded.codes

    def blocks(
        self,
        n_blocks: int,
        stems: Sequence[int],
        label: NDArray[np.uint8],
        weight: NDArray[np.float32],
        plan: FoldPlan,
        cluster: NDArray[np.int64] | None = None,
        each: Callable[..., Iterable[list[FieldCodes]]] = map,
    ) -> list[Block]:
        """Blocks with the codes of these stems, shuffled, and everything else that belongs to a row. ``cluster`` is that of all
        rows of the table."""
        order = np.argsort(mix(self.seed, self.first_row + np.arange(self.n_rows)))  # no two are equal
        n_blocks = min(n_blocks, max(1, self.n_rows))
        rows = [np.ascontiguousarray(order[part::n_blocks]) for part in range(n_blocks)]
        del order

        def shuffled(stem: int) -> list[FieldCodes]:
            if stem in self.ragged:
                written = joined([part.read() for part in self.ragged.pop(stem)])
            else:
                written, self.codes[stem] = FieldCodes(self.codes[stem]).read(), None
            return [written.take(block_rows).stored(self.scratch) for block_rows in rows]

        coded = list(each(shuffled, stems))
        blocks = []
        for part, block_rows in enumerate(rows):
            codes: dict[Cross, FieldCodes] = {INTERCEPT: FieldCodes(np.zeros(len(block_rows), np.uint8))}
            codes |= {stem_key(number): parts[part] for number, parts in enumerate(coded)}
            row = self.first_row + block_rows
            own_cluster = None if cluster is None else cluster[row]
            places_here = places(self.seed, row)
            rest = (label[block_rows], weight[block_rows], plan.of(row, own_cluster), row, places_here, self.n_all, own_cluster)
            blocks.append(Block(codes, *rest, scratch=self.scratch, forward=plan.forward))
        return blocks


def make_blocks(
    codes: list[FieldCodes],
    label: NDArray[np.uint8],
    weight: NDArray[np.float32],
    plan: FoldPlan,
    seed: int,
    n_blocks: int,
) -> list[Block]:
    """Spread rows that are all here over blocks, shuffled."""
    writer = BlockWriter([None if coded.starts is not None else coded.codes.dtype for coded in codes], len(label), seed)
    writer.add(0, dict(enumerate(codes)))
    blocks = writer.blocks(n_blocks, range(len(codes)), label, weight, plan)
    for block in blocks:
        keep_fields(block, [(number, None) for number in range(len(codes))])
    return blocks
