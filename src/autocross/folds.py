"""Which rows judge which model: at random, by whole groups, by whole periods of time, or by the periods after those learned from.

fold : uint8 (n_rows,)   the model that is judged by the row and must not learn from it; ALL if every model learns from it
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autocross.errors import OptionError
from autocross.hashing import mix
from autocross.kernels.scaling import N_FOLDS as N_FOLDS
from autocross.options import Evaluation, Split
from autocross.table.columns import NO_TIME, TimeColumn

ALL = 255
KFOLD_ROWS = 250_000  # up to so many rows five folds are affordable; beyond, one holdout is precise enough
FEWEST_PERIODS = 20
SPANS = "spans"  # what periods are called that are cut by numbers of rows
N_SPANS = N_FOLDS + 1  # of time, with forward folds: every model is judged by one, and the first is only learned from
PERIODS = {"weeks": 7 * 86_400_000_000, "days": 86_400_000_000, "hours": 3_600_000_000}
MONDAY = 4 * 86_400_000_000  # weeks begin on Monday; 1970 began on a Thursday


@dataclass(frozen=True)
class FoldPlan:
    """Says which fold a row is in, on whatever machine it is kept: by a hash of its number, by its cluster (its group or period),
    or by a list.

    With ``holdout`` only the first fold judges. With ``forward`` folds are in the order of time, and a model learns only from the
    rows of earlier folds.
    """

    n_models: int
    holdout: bool
    seed: int = 0
    by_cluster: NDArray[np.uint8] | None = None
    listed: NDArray[np.uint8] | None = None
    forward: bool = False

    def of(self, row: NDArray[np.int64], cluster: NDArray[np.int64] | None) -> NDArray[np.uint8]:
        """The folds of rows with these numbers."""
        if self.listed is not None:
            fold = self.listed[row]
        elif self.by_cluster is not None and cluster is not None:
            fold = self.by_cluster[cluster]
        else:
            fold = (mix(self.seed + 1_000_003, row) % np.uint64(N_FOLDS)).astype(np.uint8)
        return np.where(fold == 0, 0, ALL).astype(np.uint8) if self.holdout else fold


@dataclass(frozen=True)
class Folds:
    """Which rows judge which model, and how that was decided. If rows come in groups or periods, there are ``n_clusters`` of these,
    ``cluster`` says in which one each row is, ``clusters`` what they are called, and ``column`` which column they come from."""

    plan: FoldPlan
    n_rows: int
    kind: str
    why: str
    cluster: NDArray[np.int64] | None = None
    n_clusters: int = 0
    clusters: str = ""
    column: str = ""

    @property
    def n_models(self) -> int:
        return self.plan.n_models

    @property
    def fold(self) -> NDArray[np.uint8]:
        """The folds of all rows."""
        return self.plan.of(np.arange(self.n_rows), self.cluster)


def use_holdout(evaluation: Evaluation, n_rows: int) -> bool:
    """Whether one fold judges, or all five."""
    return evaluation == "holdout" or (evaluation == "auto" and n_rows > KFOLD_ROWS)


def choose(
    split: Split,
    n_rows: int,
    seed: int,
    holdout: bool,
    groups: NDArray[np.int64] | None,
    times: Mapping[str, TimeColumn],
    time: str | None,
) -> Folds:
    """Folds that resemble the use of the model: by group or by time if one is known, or else at random."""
    if split in ("auto", "group") and groups is not None:
        if groups.max(initial=0) > 0:
            return by_group(groups, seed, holdout, "groups were named")
        return by_row(n_rows, seed, holdout, "there is only one group")
    if split in ("auto", "time"):
        name, why = event_time(times, time, asked=split == "time")
        if name is not None:
            return replace(by_time(times[name].micros, seed, holdout, why), column=name)
        return by_row(n_rows, seed, holdout, why)
    if split == "forward":
        name, why = event_time(times, time, asked=True)
        if name is None:
            raise OptionError(f"Option split='forward' needs a time column, but there are {len(times)}. Name one by time=.")
        return replace(by_earlier_time(times[name].micros, name, holdout, why), column=name)
    return by_row(n_rows, seed, holdout, "asked for")


def event_time(times: Mapping[str, TimeColumn], time: str | None, asked: bool) -> tuple[str | None, str]:
    """The column that says when a row happened, and why it is taken for that.

    A date of birth is a time too, but it does not say when a row happened. So if nobody named the column, one of two things must
    hold: the rows come in the order of the column, or most rows have a moment of their own and a time of day.
    """
    if time is not None:
        return time, f"time column {time!r} was named"
    if len(times) != 1:
        return None, "no time or group column is known" if not times else "several time columns, none named by time="
    (name, column) = next(iter(times.items()))
    micros = column.micros[column.micros != NO_TIME]
    steps = np.diff(micros)
    if asked:
        return name, f"{name!r} is the only time column"
    if len(steps) and max((steps >= 0).mean(), (steps <= 0).mean()) >= 0.99:
        return name, f"rows come in the order of {name!r}"
    if len(np.unique(micros)) > len(micros) / 2 and (micros % PERIODS["days"] != 0).mean() > 0.5:
        return name, f"{name!r} varies from row to row"
    return None, f"{name!r} neither orders the rows nor varies from row to row, so it is no event's time"


def by_row(n_rows: int, seed: int, holdout: bool, why: str) -> Folds:
    """Folds of single rows at random."""
    return Folds(FoldPlan(1 if holdout else N_FOLDS, holdout, seed), n_rows, "random", why)


def by_group(group: NDArray[np.int64], seed: int, holdout: bool, why: str) -> Folds:
    """Folds of whole groups. The largest groups go first, each to the fold that has the fewest rows."""
    names, index, sizes = np.unique(group, return_inverse=True, return_counts=True)
    n_folds = min(N_FOLDS, len(names))
    order = np.lexsort([mix(seed, np.arange(len(names))), -sizes])
    filled = np.zeros(n_folds, np.int64)
    fold_of = np.zeros(len(names), np.uint8)
    for name in order.tolist():
        fold_of[name] = int(np.argmin(filled))
        filled[fold_of[name]] += sizes[name]
    plan = FoldPlan(1 if holdout else n_folds, holdout, by_cluster=fold_of)
    return Folds(plan, len(group), "group", why, index, len(names), "groups")


def by_time(micros: NDArray[np.int64], seed: int, holdout: bool, why: str) -> Folds:
    """Folds of whole periods, or the last fifth of the rows as the holdout."""
    name, period = periods(micros)
    if not holdout:
        folds = by_group(period, seed, holdout, why)
        return replace(folds, kind="time", why=f"{why}; folds of whole {in_full(name)}", clusters=name)
    _, index, counts = np.unique(period, return_inverse=True, return_counts=True)
    later = np.cumsum(counts[::-1])[::-1]  # rows in this period or after it
    held = later <= max(len(micros) / N_FOLDS, later[-1])
    plan = FoldPlan(1, holdout=True, by_cluster=np.where(held, 0, 1).astype(np.uint8))
    return Folds(plan, len(micros), "time", f"{why}; the last {in_full(name)} are the holdout", index, len(counts), name)


def by_earlier_time(micros: NDArray[np.int64], column: str, holdout: bool, why: str) -> Folds:
    """Six spans of time, each judged by a model of those before. Of a holdout, only the last span judges.

    Spans are whole periods, the longest of which the spans have about equally many rows.
    """
    for name, period in kinds_of_periods(micros):  # noqa: B007  used below
        _, index, counts = np.unique(period, return_inverse=True, return_counts=True)
        span = spans(counts)
        rows = np.bincount(span, counts)
        if len(rows) == N_SPANS and rows.min() >= len(micros) / N_SPANS / 2:
            break
    if len(rows) == 1:
        raise OptionError(
            f"Option split='forward' needs rows of different times, but nearly all rows have the same time in column {column!r}. "
            "Name another column by time=, or use another split."
        )
    if holdout or len(rows) == 2:
        plan = FoldPlan(1, holdout=True, by_cluster=np.where(span == len(rows) - 1, 0, 1).astype(np.uint8))
        why = f"{why}; the last {in_full(name)} are the holdout"
    else:
        plan = forward_plan(span)
        whole = in_full(name) if name == SPANS else f"spans of whole {name}"
        why = f"{why}; {len(rows)} {whole}, each judged by a model of those before"
    return Folds(plan, len(micros), "forward", why, index, len(counts), name)


def in_full(periods: str) -> str:
    """The name of periods with what it leaves open."""
    return "spans of about equal numbers of rows" if periods == SPANS else periods


def spans(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The span of each period, if periods in the order of time have these numbers of rows."""
    middle = np.cumsum(counts) - counts / 2
    span: NDArray[np.int64] = np.unique((middle * N_SPANS / counts.sum()).astype(np.int64), return_inverse=True)[1]
    return span


def forward_plan(span: NDArray[np.int64]) -> FoldPlan:
    """Folds by the spans of periods, of which there are three or more."""
    fold_of = np.where(span == 0, ALL, span - 1).astype(np.uint8)
    return FoldPlan(int(span.max()), holdout=False, by_cluster=fold_of, forward=True)


def looking_ahead(folds: Folds) -> FoldPlan | None:
    """A plan by which models of earlier rows are judged by later ones, if periods are known. Needs the clusters of all rows."""
    if folds.kind == "forward" or (folds.kind == "time" and folds.plan.holdout):
        return folds.plan
    if folds.kind != "time" or folds.cluster is None:
        return None
    span = spans(np.bincount(folds.cluster))  # periods are numbered in the order of time
    return forward_plan(span) if span.max() > 1 else None


def periods(micros: NDArray[np.int64]) -> tuple[str, NDArray[np.int64]]:
    """The longest kind of period of which there are enough, and the period of each row."""
    return next(kinds_of_periods(micros))


def kinds_of_periods(micros: NDArray[np.int64]) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """The kinds of periods of which there are enough, the longest first, with the period of each row. The last kind is spans
    with equally many rows. Rows without a time are the earliest."""
    for name, length in PERIODS.items():
        period = np.where(micros == NO_TIME, np.int64(-(2**62)), (micros - MONDAY) // length)
        if len(np.unique(period)) >= FEWEST_PERIODS:
            yield name, period
    _, rank = np.unique(micros, return_inverse=True)
    below = np.cumsum(np.bincount(rank)) - 1
    yield SPANS, (below * FEWEST_PERIODS // len(micros))[rank]
