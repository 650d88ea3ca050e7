"""The contract of an engine: it keeps blocks and runs a task on each of them.

A task is a function ``task(block, *args)`` at the top level of a module, so that it can be sent to another process. Its result is
sent back. A task that changes its block is marked by `changes`, so that a lost block can be made again by repeating what
happened to it. Blocks stay where they were placed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")


Parts = Callable[..., Iterable[str]]  # the names of parts of a block, computed from the arguments of a task


@dataclass(frozen=True)
class Change:
    """What a task does to its block: which parts it ``writes``, and which others it ``reads`` to do so.

    ``anew`` means that the new content of the parts does not depend on their old content. ``alone`` gives a cheaper task, with its
    arguments, that has the same effect on the block, for cases in which nobody needs the result.
    """

    writes: Parts
    reads: Parts
    anew: bool
    alone: Callable[..., tuple[Callable[..., Any], tuple[Any, ...]]] | None


T = TypeVar("T", bound=Callable[..., Any])


def changes(
    writes: str | Parts,
    *,
    reads: Sequence[str] | Parts = (),
    anew: bool = False,
    alone: Callable[..., tuple[Callable[..., Any], tuple[Any, ...]]] | None = None,
) -> Callable[[T], T]:
    """Mark a task that changes its block."""

    def mark(task: T) -> T:
        written = (lambda *_: (writes,)) if isinstance(writes, str) else writes
        read = reads if callable(reads) else (lambda *_: reads)
        task.change = Change(written, read, anew, alone)  # type: ignore[attr-defined]
        return task

    return mark


class WorkEnded(Exception):  # noqa: N818  no error
    """Raised by `Engine.between` to end the work between two tasks. The blocks are consistent, and further tasks may run."""


def carry_on() -> None:
    """The default of `Engine.between`: do nothing, and let the work go on."""


class Engine(ABC):
    """Keeps blocks and runs tasks over them."""

    n_workers: int = 1
    n_shares: int = 1  # into how many shares rows should be divided for reading; the workers of a share are threads
    has_disk: bool = True  # whether blocks may be kept in files of this machine
    memory: int | None = None  # bytes for blocks, if they are not on this machine
    stride: int = 1 << 20  # rows that a call should visit: fewer are not worth a call, and more do not fit into the cache
    odds_of: Any = None  # the regression whose odds the blocks hold now
    former_of: Any = None  # the regression whose odds they remember for comparison
    between: Callable[[], None] = staticmethod(carry_on)  # called before every task; an exception from it ends the work

    @abstractmethod
    def place(self, blocks: Sequence[Any]) -> None:
        """Keep these blocks instead of any former ones."""

    def each(self, task: Callable[Concatenate[B, P], R], *args: P.args, **kwargs: P.kwargs) -> list[R]:
        """The task's result for every block, in the order of the blocks."""
        self.between()
        return self.run(task, *args, **kwargs)

    @abstractmethod
    def run(self, task: Callable[Concatenate[B, P], R], *args: P.args, **kwargs: P.kwargs) -> list[R]:
        """Do what `each` promises, in the way of this engine."""

    def total(self, task: Callable[Concatenate[B, P], NDArray[np.int64]], *args: P.args, **kwargs: P.kwargs) -> NDArray[np.int64]:
        """The sum of the task's results over all blocks. These are whole numbers, so the order of addition cannot matter."""
        return reduce(np.add, self.each(task, *args, **kwargs))

    def totals(
        self, task: Callable[Concatenate[B, P], list[NDArray[np.int64]]], *args: P.args, **kwargs: P.kwargs
    ) -> list[NDArray[np.int64]]:
        """The same for a task that returns a list of arrays."""
        return [reduce(np.add, arrays) for arrays in zip(*self.each(task, *args, **kwargs), strict=True)]

    def beside(self, function: Callable[[A], R], items: Sequence[A]) -> list[R]:
        """The results of a function for all items, for work in the driver itself. An engine with threads does them in parallel."""
        return [function(item) for item in items]

    def count_workers(self) -> dict[str, Any] | None:
        """The state of the workers, as facts of a `WorkersCounted` event. None if the workers are threads."""
        return None

    def exchange(self, task: Callable[Concatenate[B, P], list[Any]], *args: P.args, **kwargs: P.kwargs) -> None:
        """Replace every block by the blocks that the task makes of it."""
        self.place([block for blocks in self.each(task, *args, **kwargs) for block in blocks])

    @abstractmethod
    def close(self) -> None:
        """Release blocks and workers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
