"""The contract of an engine: it keeps blocks and runs a task on each of them.

A task is a module-level function ``task(block, *args)``, so that it can travel to another process. What it returns travels
back. A task that changes its block says so by `changes`, so that a block that is lost can be made again from what happened
to it. Blocks stay where they were placed.
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


Parts = Callable[..., Iterable[str]]  # of a block, by the arguments of a task


@dataclass(frozen=True)
class Change:
    """What a task does to its block: the parts it ``writes``, and others it ``reads`` for that. ``anew`` means that nothing of
    what the parts held before shows in what they hold after. ``alone`` gives a cheaper task and its arguments with the same
    effect, where nobody asks for the result."""

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
    """What `Engine.between` raises to end the work between two tasks: the blocks are whole, and further tasks may run."""


def carry_on() -> None:
    """What happens between two tasks of an engine, unless it is told otherwise."""


class Engine(ABC):
    """Keeps blocks and runs tasks over them."""

    n_workers: int = 1
    n_shares: int = 1  # in how many shares rows are best read; the workers of a share are threads
    has_disk: bool = True  # whether blocks may be kept in files of this machine
    memory: int | None = None  # bytes for blocks, where that is not a matter of this machine
    stride: int = 1 << 20  # rows that a call should visit: fewer do not pay for it, and more would leave the cache
    odds_of: Any = None  # whose odds the blocks hold now, as the driver knows,
    former_of: Any = None  # and whose they remember for comparison
    between: Callable[[], None] = staticmethod(carry_on)  # called before every task; what it raises ends the work there

    @abstractmethod
    def place(self, blocks: Sequence[Any]) -> None:
        """Take the blocks over, in place of any former ones."""

    def each(self, task: Callable[Concatenate[B, P], R], *args: P.args, **kwargs: P.kwargs) -> list[R]:
        """The task's result for every block, in the order of the blocks."""
        self.between()
        return self.run(task, *args, **kwargs)

    @abstractmethod
    def run(self, task: Callable[Concatenate[B, P], R], *args: P.args, **kwargs: P.kwargs) -> list[R]:
        """What `each` promises, done in this engine's way."""

    def total(self, task: Callable[Concatenate[B, P], NDArray[np.int64]], *args: P.args, **kwargs: P.kwargs) -> NDArray[np.int64]:
        """The sum of the task's results over all blocks. Whole numbers, so the order cannot matter."""
        return reduce(np.add, self.each(task, *args, **kwargs))

    def totals(
        self, task: Callable[Concatenate[B, P], list[NDArray[np.int64]]], *args: P.args, **kwargs: P.kwargs
    ) -> list[NDArray[np.int64]]:
        """The same for a task with a list of results."""
        return [reduce(np.add, same) for same in zip(*self.each(task, *args, **kwargs), strict=True)]

    def beside(self, function: Callable[[A], R], items: Sequence[A]) -> list[R]:
        """What the function makes of each item, for work of the driver's own: side by side, where it has threads for that."""
        return [function(item) for item in items]

    def count_workers(self) -> dict[str, Any] | None:
        """How the workers are, where they are more than threads: the facts of a `WorkersCounted`."""
        return None

    def exchange(self, task: Callable[Concatenate[B, P], list[Any]], *args: P.args, **kwargs: P.kwargs) -> None:
        """Put in place of every block those that the task makes of it."""
        self.place([made for mine in self.each(task, *args, **kwargs) for made in mine])

    @abstractmethod
    def close(self) -> None:
        """Let go of blocks and workers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
