"""Whether a process that was made by fork can still work on tables.

polars works in threads. A fork does not copy threads, and polars cannot start them again. In the child of a process in which they
ran, most calls of polars would wait for ever. Such a child can score single rows, which needs no table, but nothing else.
"""

from __future__ import annotations

import os
import sys

from autocross.errors import EngineError

TASKS = "/proc/self/task"  # the threads of this process, if the system lists them
THREAD = "polars-"  # the names of polars' threads begin with this


class _Process:
    """What is known about this process. A fork copies it."""

    used = False  # whether it has worked on a table
    about_to_leave = False  # whether the threads were running when it was last forked
    left_behind = False  # whether they were running in the process from which it was forked


def check() -> None:
    """Called before all work on tables. Raises an error if the work would never end."""
    if _Process.left_behind:
        raise EngineError(
            "This process was forked from one that had worked on tables. A fork has none of the threads of polars, which do that "
            "work, so it would never end. Start processes by spawn or forkserver: multiprocessing.set_start_method('forkserver'); "
            "in joblib take its own backend, loky, or threading; under gunicorn leave out --preload, or leave all work on tables "
            "to the workers. score_one works here too."
        )
    _Process.used = True


def _threads_run() -> bool:
    """Whether polars has started its threads here, for us or for somebody else."""
    if _Process.used:
        return True
    if "polars" not in sys.modules or not os.path.isdir(TASKS):
        return False
    return any(name_of(task).removeprefix(THREAD).isdigit() for task in os.listdir(TASKS))


def name_of(task: str) -> str:
    """The name of a thread; none if it has ended."""
    try:
        with open(f"{TASKS}/{task}/comm") as name:
            return name.read().strip()
    except OSError:
        return ""


def _before() -> None:
    _Process.about_to_leave = _threads_run()


def _in_child() -> None:
    _Process.left_behind |= _Process.about_to_leave
    _Process.used = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_child=_in_child)
