"""Blocks side by side in threads; the kernels let go of the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Concatenate

from autocross.engines.base import A, B, Engine, P, R


class ThreadsEngine(Engine):
    """A pool of ``n_jobs`` threads, None or a negative number is one for each core this process may use."""

    def __init__(self, n_jobs: int | None = None) -> None:
        self.n_workers = n_jobs if n_jobs is not None and n_jobs > 0 else n_cores()
        self.blocks: Sequence[Any] = ()
        self.pool = ThreadPoolExecutor(self.n_workers, thread_name_prefix="autocross")

    def place(self, blocks: Sequence[Any]) -> None:
        self.blocks = blocks

    def run(self, task: Callable[Concatenate[B, P], R], *args: P.args, **kwargs: P.kwargs) -> list[R]:
        return self.beside(lambda block: task(block, *args, **kwargs), self.blocks)

    def beside(self, function: Callable[[A], R], items: Sequence[A]) -> list[R]:
        def lane(first: int) -> list[R]:
            return [function(item) for item in items[first :: self.n_workers]]

        # The caller's thread works too: one hand-over fewer for every task.
        others = [self.pool.submit(lane, first) for first in range(1, min(self.n_workers, len(items)))]
        try:
            lanes = [lane(0), *(other.result() for other in others)]
        finally:
            wait(others)  # an interrupt must not leave a thread at work on a block
        return [lanes[at % self.n_workers][at // self.n_workers] for at in range(len(items))]

    def close(self) -> None:
        self.blocks = ()
        self.pool.shutdown()


def n_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
