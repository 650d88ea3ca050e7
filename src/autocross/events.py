"""Frozen records of what happens in a fit. Observers turn them into lines."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from time import perf_counter
from typing import Any, Protocol

from autocross.errors import AutoCrossError, FileWarning, TableWarning


@dataclass(frozen=True)
class Event:
    """``seconds`` counts from the call of fit."""

    seconds: float


@dataclass(frozen=True)
class FitStarted(Event):
    version: str
    options: dict[str, Any]


@dataclass(frozen=True)
class PhaseStarted(Event):
    """``steps`` is the largest number of steps that the phase can take."""

    phase: str
    steps: int


@dataclass(frozen=True)
class StepDone(Event):
    """``score`` is the validation score after the step, in the user's metric, if the step produced one. More is better
    in the scores of all events, so that log_loss has a minus."""

    phase: str
    step: int
    detail: str
    score: float | None = None


@dataclass(frozen=True)
class CandidatesRanked(Event):
    """A rung of a tournament: how many candidates competed on how many rows, and the best five with their gains. ``took`` has the
    seconds of the rung."""

    round: int
    rung: int
    n_rungs: int
    rows: int
    n_candidates: int
    best: list[list[Any]]
    took: float = 0.0


@dataclass(frozen=True)
class CrossTried(Event):
    """A proposal was judged: what it gained per row on fresh folds, the standard error, and what it needed to gain. ``took``
    has the seconds of the trial, from coding the crosses to the verdict."""

    round: int
    cross: str
    gain: float
    error: float
    needed: float
    accepted: bool
    score: float
    took: float = 0.0


@dataclass(frozen=True)
class SetRefitted(Event):
    """The current set was fitted again on fresh folds, in a round or before crosses are taken out. ``took`` has the seconds of the
    refit."""

    round: int
    n_crosses: int
    took: float


@dataclass(frozen=True)
class RoundFinished(Event):
    """A round of the search is over: how many candidates there were, how many crosses are in the set now. ``took`` has the
    seconds of its tournament, refit and trials."""

    round: int
    n_candidates: int
    n_crosses: int
    took: float


@dataclass(frozen=True)
class CrossesTakenOut(Event):
    """Crosses were taken out when the search was over: how many there were, how many are left, and what a row that judges gains by
    that, with the standard error; a loss is negative. ``took`` has the seconds of all that, the refit of the whole set included."""

    n_before: int
    n_after: int
    gain: float
    error: float
    score: float
    took: float = 0.0


@dataclass(frozen=True)
class WorkersCounted(Event):
    """The state of workers on other machines: how many are alive and how many were lost so far, the blocks they keep, and the bytes
    that were sent in all and since the last count. ``busy`` has the seconds of work of the busiest worker, and the average of
    all."""

    after: str
    workers: int
    lost: int
    blocks: int
    moved: int
    moved_since: int
    busy: tuple[float, float]


@dataclass(frozen=True)
class SearchStopped(Event):
    """Why the search for crosses ended."""

    why: str
    n_crosses: int


@dataclass(frozen=True)
class Noticed(Event):
    """Something the user should know; a ``warning`` is also raised as a Python warning."""

    message: str
    warning: bool = False


@dataclass(frozen=True)
class RuleApplied(Event):
    """A hyper-parameter that a rule decided."""

    name: str
    value: str
    why: str


@dataclass(frozen=True)
class FitFinished(Event):
    n_rows: int
    n_fields: int
    n_crosses: int
    metric: str
    score: float | None


class CountsWorkers(Protocol):
    """What an event needs of an engine."""

    def count_workers(self) -> dict[str, Any] | None: ...


Notify = Callable[[Event], None]
WITHOUT = "The fit goes on without it."


def as_reported(metric: str, score: float) -> float:
    """A score as people know the metric. In a fit more is better, so that log_loss has a minus there."""
    return -score if metric == "log_loss" else score


def as_record(event: Event) -> dict[str, Any]:
    """An event as a JSON object with its name first."""
    return {"event": type(event).__name__, **asdict(event)}


class Reporter:
    """Dates events from the call of fit and hands them to the observers.

    An observer cannot end a fit: one that fails is removed with a warning, and is told nothing more.
    """

    def __init__(self, observers: Iterable[Notify] = ()) -> None:
        self.observers = list(observers)
        self.began = perf_counter()
        self.seconds_before = 0.0  # if the fit was resumed: the seconds it took before the interruption
        self.failed: set[str] = set()

    @property
    def seconds(self) -> float:
        return perf_counter() - self.began

    @property
    def seconds_in_all(self) -> float:
        """Seconds of the fit, including those before an interruption."""
        return self.seconds_before + self.seconds

    def tell(self, kind: type[Event], **facts: Any) -> None:
        """Make an event of this kind and show it to everyone."""
        event = kind(self.seconds, **facts)
        for observer in tuple(self.observers):
            error = failure(partial(observer, event))
            if error is not None and observer in self.observers:
                self.observers.remove(observer)  # before the warning, which is an event too
                failure(closing(observer))
                self.warn_once(name_of(observer), error, WITHOUT)

    def attempt(self, subject: str, work: Callable[[], object], after: str = WITHOUT) -> None:
        """Do something that must not end the fit. If it fails, there is a warning the first time that ``subject`` fails."""
        if (error := failure(work)) is not None:
            self.warn_once(subject, error, after)

    def warn_once(self, subject: str, error: Exception, after: str) -> None:
        """Warn about the first failure. ``after`` says how the fit goes on."""
        if subject not in self.failed:
            self.failed.add(subject)
            self.warn(f"{subject} failed: {in_words(error)}. {after}", FileWarning)

    def close(self) -> None:
        """Close all observers. Those that are still open are told about failures of the others."""
        while self.observers:
            observer = self.observers.pop()
            self.attempt(name_of(observer), closing(observer))

    def count_workers(self, engine: CountsWorkers, after: str) -> None:
        """Report the state of the workers, if they are more than threads."""
        if (facts := engine.count_workers()) is not None:
            self.tell(WorkersCounted, after=after, **facts)

    def notice(self, message: str) -> None:
        """Tell the user something worth knowing."""
        self.tell(Noticed, message=message)

    def warn(self, message: str, category: type[Warning] = TableWarning) -> None:
        """Tell the user something to look at. It is also a Python warning, which shows even if no progress is shown."""
        self.tell(Noticed, message=message, warning=True)
        with suppress(OSError, ValueError):  # stderr may be full or closed; a warning that nobody can read does no harm
            warnings.warn(message, category, stacklevel=2)


def name_of(observer: Notify) -> str:
    """What a warning calls an observer."""
    return getattr(observer, "what", None) or f"The observer {observer!r}"


def closing(observer: Notify) -> Callable[[], object]:
    """The function that closes an observer. A plain function needs no closing."""
    return getattr(observer, "close", lambda: None)


def failure(work: Callable[[], object]) -> Exception | None:
    """Do something. Returns the error if it failed, or else None."""
    try:
        work()
    except Exception as error:
        return error
    return None


def in_words(error: Exception) -> str:
    """An error in a few words that end without a full stop."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).rstrip(".") if isinstance(error, AutoCrossError) else f"{type(error).__name__}: {error}"
