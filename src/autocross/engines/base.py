"""The contract of an engine: it keeps blocks and runs a task on each of them.

A task is a module-level function ``task(block, *args)``, so that it can travel to another process. It may change its
block; what it returns travels back. Blocks stay where they were placed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")
B = TypeVar("B")


def carry_on() -> None:
    """What happens between two tasks of an engine, unless it is told otherwise."""


class Engine(ABC):
    """Keeps blocks and runs tasks over them."""

    n_workers: int = 1
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

    @abstractmethod
    def close(self) -> None:
        """Let go of blocks and workers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
