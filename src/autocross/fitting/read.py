"""The first stage: one pass over all rows finds out what each column holds, and which labels there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autocross import reading
from autocross.errors import TableError
from autocross.events import PhaseStarted, StepDone
from autocross.fitting.run import Run, n_lots
from autocross.memory import Allowance
from autocross.options import Options
from autocross.reading import Looked, Reader, Request
from autocross.table.digest import Digest
from autocross.table.labels import Classes
from autocross.table.source import Source
from autocross.table.weights import in_order

READING = "reading columns"
CLASS_WEIGHT = "class_weight"  # name of a rule
LOOK_SHARE = 0.25  # once this share of the time limit is gone, columns that were not reached are left out


@dataclass(frozen=True)
class Contents:
    """What a table holds: a digest of each column, the two labels, the rows of each share, and the weight of all of them."""

    digests: Sequence[Digest]
    classes: Classes
    share_rows: Sequence[int]
    total_weight: float

    @property
    def n_rows(self) -> int:
        return sum(self.share_rows)


def read(run: Run, source: Source) -> Contents:
    """Look at all columns. If there is not enough memory to count their values together, take several passes over all rows."""
    run.reporter.tell(PhaseStarted, phase=READING, steps=2)
    if not source.n_rows:
        raise TableError("The table has no rows. Give at least one.")
    engine, options = run.engine, run.options
    shares = source.shares(n_lots(source.n_rows, engine.n_shares))
    n_threads = engine.n_workers // engine.n_shares
    engine.place([Reader(share, number, n_threads) for number, share in enumerate(shares)])
    digests: dict[str, Digest] = {}
    waiting = dict.fromkeys(sorted(source.names), 0)  # sorted, so that the order of columns changes nothing
    looked: list[Looked] = []  # what the first pass found
    while waiting and not (looked and run.stopping.hurry(LOOK_SHARE)):
        names = columns_that_fit(waiting, run.allowed)
        engine.each(reading.begin_to_look, Request(names, options.types or {}, unused(options), run.allowed))
        go_through(run, 1, reading.look_on, "looked at", LOOK_SHARE)
        new = engine.each(reading.looked)
        if looked and any(share.cut for share in new):
            break  # this pass met fewer rows than the first one, so its columns are not complete
        looked = looked or new
        digests |= {digest.name: digest for digest in reading.together(new, run.each)}
        waiting = {name: size for name, size in waiting.items() if name not in names} | new[0].waiting
    share_rows = [share.n_rows for share in looked]
    if source.share < 1.0 or any(share.cut for share in looked):
        which = "those that were read by then" if any(share.cut for share in looked) else "drawn at random"
        run.reporter.warn(
            f"The time limit of {options.time_limit:g} s leaves no time for all rows: the model learns from "
            f"{sum(share_rows):,}, {which}. Raise time_limit to use more."
        )
    if not sum(share_rows):
        raise TableError("All sample weights are zero, so no row counts. Give a weight above 0 to some rows.")
    classes = reading.labels_of(looked).classes(options.positive)
    total_weight = reading.weighed(np.sum([share.weight for share in looked], axis=0))
    note_class_weight(run, classes.words)
    return Contents([digests[name] for name in sorted(digests)], classes, share_rows, total_weight)


def note_class_weight(run: Run, classes: tuple[Any, Any]) -> None:
    """Note by which weights of labels rows count, so that `show` prints it."""
    weights = in_order(run.options.class_weight, classes)
    if isinstance(weights, tuple):
        weights = ", ".join(f"{label} {weight:g}" for label, weight in zip(classes, weights, strict=True))
    if weights is not None:
        run.rule(CLASS_WEIGHT, weights, "given")


def columns_that_fit(expected: Mapping[str, int], allowed: Allowance | None) -> list[str]:
    """The columns for the next pass, at least one. ``expected`` has the bytes that the values of each column are expected to
    take."""
    names: list[str] = []
    for name, size in expected.items():
        if names and allowed is not None and size + sum(expected[earlier] for earlier in names) > allowed.for_columns:
            break
        names.append(name)
    return names


def unused(options: Options) -> set[str]:
    """The columns that options keep out of the features."""
    ignored = {name for name, kind in (options.types or {}).items() if kind == "ignore"}
    return ignored | {*(options.exclude or ())} | ({options.groups} if options.groups else set())


def go_through(run: Run, step: int, task: Callable[[Reader, bool], tuple[int, bool]], progress: str, share: float) -> None:
    """A pass over the rows, piece by piece. Once ``share`` of the time limit is gone, the task is told to hurry."""
    n_rows, done = 0, False
    while not done:
        former = n_rows
        counts = run.engine.each(task, run.stopping.hurry(share))
        n_rows, done = sum(n for n, _ in counts), all(over for _, over in counts)
        if n_rows > former:
            run.reporter.tell(StepDone, phase=READING, step=step, detail=f"{n_rows:,} rows {progress}")
