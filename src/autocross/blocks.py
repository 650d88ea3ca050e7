"""Codes -> shuffled row blocks.

A row's place in the shuffle comes from a hash of the seed and its row number, so that it does not depend on how rows
are spread over blocks. Every block keeps its rows in that order: those with places below some share of all are a random sample,
the same rows whatever the blocks.
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
from autocross.folds import FoldPlan
from autocross.hashing import mix
from autocross.scratch import Scratch, Stored

Cross = tuple[int, ...]  # sorted fields; one field is order 1, none is the intercept
INTERCEPT: Cross = ()


def stem_key(number: int) -> Cross:
    """Where a block keeps the codes of a stem, until fields are laid out: at a place that no field or cross has.

    >>> stem_key(0), stem_key(7)
    ((-1,), (-8,))
    """
    return (-1 - number,)


OF_ROWS = ("label", "weight", "fold", "row", "place", "cluster")


@dataclass
class Block:
    """Some rows, kept where one worker is. ``odds`` is (n_rows, n_models), those of each model.

    ``row`` are the rows' numbers in the table of ``n_all`` rows, ``place`` their places in the shuffle, 2^32 being its length,
    ``cluster`` the numbers of their groups or periods, ``trials`` the codes of candidates, ``former`` odds and losses kept for
    comparison, ``whole`` what there was before it was made narrow, ``scratch`` where codes are kept, if not in memory.
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
    whole: Block | None = None
    scratch: Scratch | None = None

    def coded(self, cross: Cross) -> FieldCodes:
        """The codes of a cross, to work with: those on the disk are in memory as long as they are held."""
        return self.codes[cross].read()

    def keep(self, cross: Cross, coded: FieldCodes) -> None:
        """Keep the codes of a cross, in memory or on the disk."""
        self.codes[cross] = coded.stored(self.scratch)

    @property
    def n_rows(self) -> int:
        return len(self.label)

    def among_first(self, n: int) -> int:
        """How many of about the first n rows of the whole shuffle are here; they come first."""
        return self.n_rows if n >= self.n_all else bisect_left(self.place, (n << 32) // self.n_all)


@changes("stems")
def keep_fields(block: Block, kept: Sequence[tuple[int, NDArray[Any] | None]]) -> None:
    """The fields instead of the stems they are read from: each one's stem, and its codes by those of the stem if they differ."""
    stems, block.codes = block.codes, {INTERCEPT: block.codes[INTERCEPT]}
    for at, (stem, table) in enumerate(kept):
        if table is None:
            block.codes[(at,)] = stems[stem_key(stem)]
        else:
            block.keep((at,), FieldCodes(np.take(table, stems[stem_key(stem)].read().codes, mode="clip")))


@changes("rows", reads=("fold", "odds"))
def narrow(block: Block, n: int) -> None:
    """Work on those rows only that are among the first n of the whole shuffle, until `widen`."""
    last = block.among_first(n)
    nothing = np.zeros((0, 0))
    block.odds, block.former = nothing, (nothing, np.zeros(0))  # those of other rows are of no use
    block.whole = replace(block)
    block.codes = {cross: coded.between(0, last) for cross, coded in block.codes.items()}
    for name in OF_ROWS:
        values = getattr(block, name)
        setattr(block, name, None if values is None else values[:last])


@changes("rows")
def widen(block: Block) -> None:
    """Back to all rows, if there are more."""
    if (whole := block.whole) is not None:
        for name in ("codes", *OF_ROWS):
            setattr(block, name, getattr(whole, name))
        block.whole = None


@contextmanager
def narrowed(engine: Engine, n: int) -> Iterator[None]:
    """Within, the blocks have only those rows that are among the first n of the whole shuffle."""
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
    """Other rows judge. The odds that the blocks hold are then of use to nobody."""
    engine.odds_of = engine.former_of = None
    engine.each(refold, plan)


@changes("fold", anew=True)
def refold(block: Block, plan: FoldPlan) -> None:
    """Other rows judge."""
    block.fold = plan.of(block.row, block.cluster)


def codes_of(cross: Cross) -> str:
    """The part of a block that holds the codes of a cross."""
    return f"codes {cross}"


class BlockWriter:
    """Rows -> shuffled blocks, part by part. Given a scratch file, codes are kept there.

    ``kinds`` are the types of the fields' codes, None where a row may have several. The rows are ``n_rows`` of ``n_all``, from the
    ``first_row`` on.

    On the disk a field's codes are written from the first to the last: pages written here and there would go there many times over.
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
        """Where the codes of a field go; those of which a row may have several need a room for each part."""
        if kind is None:
            return None
        return np.empty(self.n_rows, kind) if self.scratch is None else self.scratch.room(kind, self.n_rows)

    def add(self, first_row: int, codes: Mapping[int, FieldCodes]) -> None:
        """The codes of rows in sequence, by the numbers of their stems."""
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
        """What was written of these stems, shuffled, with the rest of each row; ``cluster`` is that of all rows of the table."""
        order = np.argsort(mix(self.seed, self.first_row + np.arange(self.n_rows)))  # no two are equal
        n_blocks = min(n_blocks, max(1, self.n_rows))
        rows = [np.ascontiguousarray(order[part::n_blocks]) for part in range(n_blocks)]
        del order

        def shuffled(at: int) -> list[FieldCodes]:
            if at in self.ragged:
                written = joined([part.read() for part in self.ragged.pop(at)])
            else:
                written, self.codes[at] = FieldCodes(self.codes[at]).read(), None
            return [written.take(mine).stored(self.scratch) for mine in rows]

        coded = list(each(shuffled, stems))
        found = []
        for part, mine in enumerate(rows):
            codes: dict[Cross, FieldCodes] = {INTERCEPT: FieldCodes(np.zeros(len(mine), np.uint8))}
            codes |= {stem_key(number): parts[part] for number, parts in enumerate(coded)}
            row = self.first_row + mine
            own = None if cluster is None else cluster[row]
            place = (mix(self.seed, row) >> np.uint64(32)).astype(np.uint32)
            rest = (label[mine], weight[mine], plan.of(row, own), row, place, self.n_all, own)
            found.append(Block(codes, *rest, scratch=self.scratch))
        return found


def make_blocks(
    codes: list[FieldCodes],
    label: NDArray[np.uint8],
    weight: NDArray[np.float32],
    plan: FoldPlan,
    seed: int,
    n_blocks: int,
) -> list[Block]:
    """Spread rows that are all here over blocks, shuffled."""
    writer = BlockWriter([None if one.starts is not None else one.codes.dtype for one in codes], len(label), seed)
    writer.add(0, dict(enumerate(codes)))
    blocks = writer.blocks(n_blocks, range(len(codes)), label, weight, plan)
    for block in blocks:
        keep_fields(block, [(number, None) for number in range(len(codes))])
    return blocks
