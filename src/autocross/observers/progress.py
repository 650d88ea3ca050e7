"""Events -> stderr: a live display on a terminal, and plain lines elsewhere. stdout is for data."""

from __future__ import annotations

import sys
from typing import IO, Protocol

from autocross.events import (
    CandidatesRanked,
    CrossesTakenOut,
    CrossTried,
    Event,
    FitFinished,
    FitStarted,
    Noticed,
    PhaseStarted,
    RuleApplied,
    SearchStopped,
    StepDone,
    WorkersCounted,
    as_reported,
)

DISPLAY = "The progress display"


class Observer(Protocol):
    """Anything that is told of events. ``what`` is its name in a warning, should it fail."""

    what: str

    def __call__(self, event: Event) -> None: ...
    def close(self) -> None: ...


def line(event: Event, metric: str, time_limit: float | None = None) -> str | None:
    """An event in words; None if it is not worth a line."""
    if isinstance(event, PhaseStarted):
        return event.phase
    if isinstance(event, StepDone):
        return f"  {event.detail}" + ("" if event.score is None else f"   {scored(metric, event.score)}")
    if isinstance(event, CandidatesRanked):
        best = ", ".join(f"{name} {gain:+.3g}" for name, gain in event.best)
        return f"  {where(event, time_limit)}: {best}"
    if isinstance(event, CrossTried):
        sign, verb = ("+", "needed") if event.accepted else ("-", "would have needed")
        changed = f"{gained(event.gain, event.error)}, {verb} {event.needed:.5f}"
        return f"  {sign} {event.cross}   {changed}   {scored(metric, event.score)}"
    if isinstance(event, CrossesTakenOut):
        if event.n_after == event.n_before:
            return f"  nothing is taken out, all crosses stay: {event.n_after}   {scored(metric, event.score)}"
        changed = f"{gained(event.gain, event.error)} without the others"
        return f"  {event.n_after} of {event.n_before} crosses kept   {changed}   {scored(metric, event.score)}"
    if isinstance(event, WorkersCounted):
        lost = f" ({event.lost} lost and replaced)" if event.lost else ""
        moved = f"{event.moved_since / 2**20:,.1f} MiB moved, {event.moved / 2**20:,.1f} in all"
        return f"  after {event.after}: {event.workers} workers alive{lost}, {event.blocks} blocks cached, {moved}"
    if isinstance(event, SearchStopped):
        return f"  search ended with {event.n_crosses} crosses: {event.why}"
    if isinstance(event, RuleApplied):
        return f"  {event.name}: {event.value} ({event.why})"
    if isinstance(event, Noticed) and not event.warning:
        return f"  {event.message}"
    if isinstance(event, FitFinished):
        score = "" if event.score is None else f", validation {scored(metric, event.score)}"
        return f"done: {event.n_rows:,} rows, {event.n_fields} fields, {event.n_crosses} crosses{score}"
    return None


def scored(metric: str, score: float) -> str:
    """A validation score in words."""
    return f"{metric} {as_reported(metric, score):.4f}"


def gained(gain: float, error: float) -> str:
    """What a row gains or loses, with the standard error, in words."""
    return f"{'lost' if gain < 0 else 'gained'} {abs(gain):.5f} ± {error:.5f} a row"


def where(event: CandidatesRanked, time_limit: float | None) -> str:
    """How far the tournament of a round is."""
    left = "" if time_limit is None else f", {max(0.0, time_limit - event.seconds):.0f} s left"
    rung = f"round {event.round}, rung {event.rung} of {event.n_rungs}"
    return f"{rung}, {event.n_candidates} candidates on {event.rows:,} rows{left}"


class PlainLines:
    """One line for each event, beginning with the seconds."""

    what = DISPLAY

    def __init__(self, metric: str, stream: IO[str] | None = None) -> None:
        self.metric = metric
        self.stream = stream or sys.stderr
        self.time_limit: float | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, FitStarted):
            self.time_limit = event.options.get("time_limit")
        text = line(event, self.metric, self.time_limit)
        if text is not None:
            print(f"{event.seconds:7.1f}s  {text}", file=self.stream, flush=True)

    def close(self) -> None:
        pass


class LiveDisplay:
    """One moving line with phase, step, best score, elapsed and remaining time. During the search the best five candidates are
    below it. What is finished stays above it."""

    what = DISPLAY

    def __init__(self, metric: str) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.metric = metric
        self.best: float | None = None
        self.time_limit: float | None = None
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[score]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self.progress.start()

    def __call__(self, event: Event) -> None:
        if isinstance(event, FitStarted):
            self.time_limit = event.options.get("time_limit")
        elif isinstance(event, PhaseStarted):
            self.finish_phase()
            self.progress.add_task(event.phase, total=event.steps or None, score="")
        elif isinstance(event, CandidatesRanked):
            best = "".join(f"\n  {gain:+9.3g}  {name}" for name, gain in event.best)
            shown = where(event, self.time_limit) + best
            self.progress.update(self.progress.task_ids[-1], description=shown, completed=event.rung, total=event.n_rungs)
        elif isinstance(event, StepDone):
            self.progress.update(self.progress.task_ids[-1], completed=event.step, score=self.best_of(event.score))
        else:
            if isinstance(event, CrossTried) and event.accepted:
                self.progress.update(self.progress.task_ids[-1], score=self.best_of(event.score))
            if isinstance(event, FitFinished):
                self.finish_phase()
            text = line(event, self.metric)
            if text is not None:
                self.progress.console.print(text.strip(), highlight=False, markup=False)

    def best_of(self, score: float | None) -> str:
        """The best score so far, including this one, in words."""
        if score is not None:
            self.best = score if self.best is None else max(self.best, score)
        return "" if self.best is None else f"best {scored(self.metric, self.best)}"

    def finish_phase(self) -> None:
        for task in self.progress.tasks:
            task.description = task.description.partition("\n")[0]
            self.progress.update(task.id, total=max(task.completed, 1), completed=max(task.completed, 1))

    def close(self) -> None:
        self.progress.stop()


def display(metric: str) -> Observer | None:
    """The display that suits stderr, or None if there is no stderr. stdout is for data."""
    if sys.stderr is None:  # the process was started without stderr
        return None
    return LiveDisplay(metric) if sys.stderr.isatty() else PlainLines(metric)
