"""Frozen records of what a fit did, in the order in which it did it. Observers turn them into lines."""

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
    """``steps`` is how many steps the phase will take at most."""

    phase: str
    steps: int


@dataclass(frozen=True)
class StepDone(Event):
    """``score`` is the validation score so far, in the user's metric, where the step produced one."""

    phase: str
    step: int
    detail: str
    score: float | None = None


@dataclass(frozen=True)
class CandidatesRanked(Event):
    """A rung of a tournament: how many candidates met on how many rows, and the best five with their gains."""

    round: int
    rung: int
    n_rungs: int
    rows: int
    n_candidates: int
    best: list[list[Any]]


@dataclass(frozen=True)
class CrossTried(Event):
    """The best cross of a round, refitted: what it gained a row on fresh folds, its error, and what it needed to gain."""

    round: int
    cross: str
    gain: float
    error: float
    needed: float
    accepted: bool
    score: float


@dataclass(frozen=True)
class WorkersCounted(Event):
    """Where the work is spread over machines: workers alive and lost so far, the blocks they keep, and the bytes that moved in all
    and since the last count. ``busy`` is the seconds that the busiest worker and all of them on average have worked."""

    after: str
    workers: int
    lost: int
    blocks: int
    moved: int
    moved_since: int
    busy: tuple[float, float]


@dataclass(frozen=True)
class SearchStopped(Event):
    """Why no further cross is looked for."""

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
    """An engine, as far as events go."""

    def count_workers(self) -> dict[str, Any] | None: ...


Notify = Callable[[Event], None]
WITHOUT = "The fit goes on without it."


def as_record(event: Event) -> dict[str, Any]:
    """An event as a JSON object with its name first."""
    return {"event": type(event).__name__, **asdict(event)}


class Reporter:
    """Dates events from the call of fit and hands them to the observers.

    Watching cannot end a fit: an observer that fails is let go with a warning, and is told nothing more.
    """

    def __init__(self, observers: Iterable[Notify] = ()) -> None:
        self.observers = list(observers)
        self.began = perf_counter()
        self.seconds_before = 0.0  # of a fit that is resumed: what it took until it was interrupted
        self.failed: set[str] = set()

    @property
    def seconds(self) -> float:
        return perf_counter() - self.began

    @property
    def seconds_in_all(self) -> float:
        """Those before an interruption included."""
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

    def attempt(self, what: str, work: Callable[[], object], after: str = WITHOUT) -> None:
        """Do something that must not end the fit: a failure is a warning, the first time that ``what`` fails."""
        if (error := failure(work)) is not None:
            self.warn_once(what, error, after)

    def warn_once(self, what: str, error: Exception, after: str) -> None:
        """Warn of the first failure; ``after`` says how the fit goes on."""
        if what not in self.failed:
            self.failed.add(what)
            self.warn(f"{what} failed: {in_words(error)}. {after}", FileWarning)

    def close(self) -> None:
        """Let all observers go; one that is still there is told what happens to the others."""
        while self.observers:
            observer = self.observers.pop()
            self.attempt(name_of(observer), closing(observer))

    def count_workers(self, engine: CountsWorkers, after: str) -> None:
        """Tell how the workers are, where they are more than threads."""
        if (facts := engine.count_workers()) is not None:
            self.tell(WorkersCounted, after=after, **facts)

    def notice(self, message: str) -> None:
        """Something the user should know."""
        self.tell(Noticed, message=message)

    def warn(self, message: str, category: type[Warning] = TableWarning) -> None:
        """Something the user should look at; a Python warning too, so that it shows where no progress is shown."""
        self.tell(Noticed, message=message, warning=True)
        with suppress(OSError, ValueError):  # stderr may be full or closed: a warning that nobody can read does no harm
            warnings.warn(message, category, stacklevel=2)


def name_of(observer: Notify) -> str:
    """What a warning calls an observer."""
    return getattr(observer, "what", None) or f"The observer {observer!r}"


def closing(observer: Notify) -> Callable[[], object]:
    """What lets an observer go; a plain function needs nothing."""
    return getattr(observer, "close", lambda: None)


def failure(work: Callable[[], object]) -> Exception | None:
    """Do something; returns the error that it ended with, if it did."""
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
