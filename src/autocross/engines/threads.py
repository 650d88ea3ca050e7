"""Blocks are worked on in parallel threads; the kernels release the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Concatenate

from autocross.engines.base import A, B, Engine, P, R

LANES = 8  # portions of work for each thread, so that no thread waits long for the others
Answer = tuple[Any, BaseException | None]
Job = tuple[Callable[[], Any], SimpleQueue[Answer]]


def serve(jobs: SimpleQueue[Job | None]) -> None:
    """Do one job after the other, until None comes."""
    while (job := jobs.get()) is not None:
        work, answers = job
        try:
            answers.put((work(), None))
        except BaseException as error:
            answers.put((None, error))
        del job, work  # an idle thread holds no block


class ThreadsEngine(Engine):
    """``n_jobs`` threads, including the caller's. None or a negative number means one for each core that this process may use.

    The threads have queues of their own. A pool of the standard library takes longer to hand over a call, and a call is often no
    more than a millisecond of work.
    """

    def __init__(self, n_jobs: int | None = None) -> None:
        self.n_workers = n_jobs if n_jobs is not None and n_jobs > 0 else n_cores()
        self.blocks: Sequence[Any] = ()
        self.jobs: list[SimpleQueue[Job | None]] = [SimpleQueue() for _ in range(1, self.n_workers)]
        self.threads = [Thread(target=serve, args=[jobs], name="autocross", daemon=True) for jobs in self.jobs]
        for thread in self.threads:
            thread.start()

    def place(self, blocks: Sequence[Any]) -> None:
        self.blocks = blocks

    def run(self, task: Callable[Concatenate[B, P], R], *args: P.args, **kwargs: P.kwargs) -> list[R]:
        return self.beside(lambda block: task(block, *args, **kwargs), self.blocks)

    def beside(self, function: Callable[[A], R], items: Sequence[A]) -> list[R]:
        def lane(first: int) -> list[R]:
            return [function(item) for item in items[first :: self.n_workers]]

        answers: list[SimpleQueue[Answer]] = [SimpleQueue() for _ in range(1, min(self.n_workers, len(items)))]
        for first, (jobs, answer) in enumerate(zip(self.jobs, answers, strict=False), start=1):
            jobs.put((partial(lane, first), answer))
        try:
            lanes = [lane(0)]
        finally:
            others = [answer.get() for answer in answers]  # an interrupt must not leave a thread at work on a block
        for results, error in others:
            if error is not None:
                raise error
            lanes.append(results)
        return [lanes[number % self.n_workers][number // self.n_workers] for number in range(len(items))]

    def close(self) -> None:
        self.blocks = ()
        for jobs, thread in zip(self.jobs, self.threads, strict=True):
            jobs.put(None)
            thread.join()


def in_lanes(pool: Executor, n_threads: int) -> Callable[..., list[Any]]:
    """A `map` in the threads of a pool. Items are handed over in bundles, because handing over one takes as long as the work on a
    small column."""

    def each(function: Callable[[A], R], items: Iterable[A]) -> list[R]:
        all_items = list(items)
        n_lanes = min(len(all_items), LANES * n_threads)
        lanes = list(pool.map(lambda first: [function(item) for item in all_items[first::n_lanes]], range(n_lanes)))
        return [lanes[number % n_lanes][number // n_lanes] for number in range(len(all_items))]

    return each


def n_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
