"""Events: the journal has all of them, the display says what matters, quiet says nothing."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import pytest

from autocross import events
from autocross.errors import FileError, FileWarning
from autocross.estimator import AutoCrossClassifier
from autocross.events import Event, FitFinished, FitStarted, Noticed, PhaseStarted, Reporter
from autocross.fitted import observed
from autocross.fitting.fit import fit
from autocross.interrupts import Interrupt
from autocross.observers.journal import Journal
from autocross.observers.progress import PlainLines, line
from autocross.options import Options
from autocross.search.coding import CodedCrosses
from autocross.table.ingest import source_of
from conftest import SmallDisk, as_nobody


def test_the_journal_tells_the_story_of_a_fit(people: pl.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    AutoCrossClassifier(quiet=True, engine="serial", journal=str(path)).fit(people, "bought")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    names = [record["event"] for record in records]
    assert names[0] == "FitStarted"
    assert names[-1] == "FitFinished"
    assert {record["phase"] for record in records if record["event"] == "PhaseStarted"} == {
        "reading columns",
        "choosing granularities",
        "tuning penalties",
        "searching crosses",
        "trying weak crosses together",
        "taking out crosses that bring nothing",
        "fitting all rows",
        "fitting smaller models",
    }
    assert {record["name"] for record in records if record["event"] == "RuleApplied"} == {
        "min_count",
        "granularities",
        "evaluation",
        "split",
        "hash_bits",
        "penalty",
    }
    seconds = [record["seconds"] for record in records]
    assert seconds == sorted(seconds)
    assert records[-1]["score"] > 0.6


def test_a_second_fit_is_appended(people: pl.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    model = AutoCrossClassifier(quiet=True, engine="serial", journal=str(path)).fit(people, "bought")
    model.refit(people, "bought")
    assert path.read_text().count("FitStarted") == 2


def test_a_journal_that_cannot_be_written_is_an_error_before_the_work(people: pl.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"journal .*Give another path"):
        AutoCrossClassifier(quiet=True, journal=str(tmp_path / "no" / "folder")).fit(people, "bought")


def test_progress_goes_to_stderr_as_lines_and_quiet_is_silent(people: pl.DataFrame, capsys: pytest.CaptureFixture[str]) -> None:
    AutoCrossClassifier(engine="serial").fit(people, "bought")
    out, err = capsys.readouterr()
    assert out == ""
    assert "tuning penalties" in err
    assert "done: 400 rows" in err
    AutoCrossClassifier(engine="serial", quiet=True).fit(people, "bought")
    assert capsys.readouterr() == ("", "")


# An event of each kind, and its line; None for what is left to the journal. A warning is shown by Python.
LINES: list[tuple[Event, str | None]] = [
    (events.FitStarted(0.0, "1.2", {"seed": 1}), None),
    (events.PhaseStarted(0.5, "tuning", 3), "tuning"),
    (events.StepDone(1.0, "tuning", 1, "l2 3"), "  l2 3"),
    (events.StepDone(1.0, "tuning", 1, "l2 3", 0.91234), "  l2 3   auc 0.9123"),
    (
        events.CandidatesRanked(2.0, 3, 1, 4, 32_000, 200, [["a x b", 12.3456], ["c x d", -0.5]]),
        "  round 3, rung 1 of 4, 200 candidates on 32,000 rows: a x b +12.3, c x d -0.5",
    ),
    (
        events.CrossTried(2.5, 3, "a x b", 0.00123, 0.00045, 0.001, True, 0.85),
        "  + a x b   gained 0.00123 ± 0.00045 a row, needed 0.00100   auc 0.8500",
    ),
    (
        events.CrossTried(2.5, 3, "a x b", 0.0002, 0.00045, 0.001, False, 0.85),
        "  - a x b   gained 0.00020 ± 0.00045 a row, would have needed 0.00100   auc 0.8500",
    ),
    (
        events.CrossesTakenOut(2.8, 120, 40, -0.00012, 0.00034, 0.85),
        "  40 of 120 crosses kept   lost 0.00012 ± 0.00034 a row without the others   auc 0.8500",
    ),
    (events.CrossesTakenOut(2.8, 12, 12, 0.0, 0.0, 0.85), "  nothing is taken out, all crosses stay: 12   auc 0.8500"),
    (
        events.CrossTried(2.5, 3, "a x b", -0.00418, 0.00045, 0.001, False, 0.85),
        "  - a x b   lost 0.00418 ± 0.00045 a row, would have needed 0.00100   auc 0.8500",
    ),
    (events.SetRefitted(2.6, 3, 10, 0.5), None),
    (events.RoundFinished(2.7, 3, 200, 12, 1.5), None),
    (
        events.WorkersCounted(3.0, "round 3", 4, 0, 16, 5 << 20, 2 << 20, (1.0, 0.5)),
        "  after round 3: 4 workers alive, 16 blocks cached, 2.0 MiB moved, 5.0 in all",
    ),
    (
        events.WorkersCounted(3.0, "round 3", 4, 1, 16, 5 << 20, 2 << 20, (1.0, 0.5)),
        "  after round 3: 4 workers alive (1 lost and replaced), 16 blocks cached, 2.0 MiB moved, 5.0 in all",
    ),
    (events.SearchStopped(4.0, "no cross gains enough", 3), "  search ended with 3 crosses: no cross gains enough"),
    (events.RuleApplied(1.5, "split", "time", "named"), "  split: time (named)"),
    (events.Noticed(1.6, "hello"), "  hello"),
    (events.Noticed(1.7, "a warning", warning=True), None),
    (events.FitFinished(5.0, 1000, 3, 0, "auc", None), "done: 1,000 rows, 3 fields, 0 crosses"),
    (events.FitFinished(5.0, 1000, 3, 2, "auc", 0.91234), "done: 1,000 rows, 3 fields, 2 crosses, validation auc 0.9123"),
]


def test_the_journal_says_where_the_time_of_the_search_went(tmp_path: Path) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "journal"
    first, second = rng.integers(0, 4, (2, 4000))
    frame = pl.DataFrame({"a": first.astype(str), "b": second.astype(str), "c": rng.integers(0, 4, 4000).astype(str)})
    AutoCrossClassifier(quiet=True, journal=str(path)).fit(frame, (first + second) % 2)
    told = [json.loads(line) for line in path.read_text().splitlines()]
    parts = [one for one in told if one["event"] in ("CandidatesRanked", "SetRefitted", "CrossTried")]
    rounds = [one for one in told if one["event"] == "RoundFinished"]
    assert {one["event"] for one in parts} == {"CandidatesRanked", "SetRefitted", "CrossTried"}
    assert [one["round"] for one in rounds] == list(range(1, len(rounds) + 1))
    assert rounds[-1]["n_crosses"] >= 1
    for one in rounds:
        in_round = sum(part["took"] for part in parts if part["round"] == one["round"] and part["seconds"] <= one["seconds"])
        assert 0 < in_round <= one["took"] <= told[-1]["seconds"]


def test_the_seconds_of_a_trial_include_coding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, path, ahead, clock, code = np.random.default_rng(0), tmp_path / "journal", [0.0], events.perf_counter, CodedCrosses.code

    def slow(self: CodedCrosses, *args: Any) -> Any:
        ahead[0] += 1000
        return code(self, *args)

    monkeypatch.setattr(events, "perf_counter", lambda: clock() + ahead[0])
    monkeypatch.setattr(CodedCrosses, "code", slow)
    first, second = rng.integers(0, 4, (2, 4000))
    frame = pl.DataFrame({"a": first.astype(str), "b": second.astype(str)})
    AutoCrossClassifier(quiet=True, engine="serial", journal=str(path)).fit(frame, (first + second) % 2)
    told = [json.loads(line) for line in path.read_text().splitlines()]
    trials = [one for one in told if one["event"] == "CrossTried"]
    assert trials
    assert all(one["took"] > 1000 for one in trials)


def kinds() -> set[type[Event]]:
    """All kinds of events that a fit may tell."""
    return {kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)} - {Event}


def test_every_kind_of_event_has_its_line_here() -> None:
    assert {type(event) for event, _ in LINES} == kinds()
    assert len(kinds()) >= 10


@pytest.mark.parametrize(("event", "expected"), LINES, ids=lambda value: type(value).__name__)
def test_an_event_in_words(event: Event, expected: str | None) -> None:
    assert line(event, "auc") == expected
    stream = io.StringIO()
    PlainLines("auc", stream)(event)
    shown = stream.getvalue()
    assert shown == ("" if expected is None else f"{event.seconds:7.1f}s  {expected}\n")
    assert json.loads(json.dumps(events.as_record(event)))["event"] == type(event).__name__


def test_the_time_that_is_left_is_told_with_the_candidates() -> None:
    event = events.CandidatesRanked(2.0, 1, 1, 1, 500, 10, [["a x b", 1.0]])
    assert line(event, "auc", 9.4) == "  round 1, rung 1 of 1, 10 candidates on 500 rows, 7 s left: a x b +1"
    assert line(event, "auc", 1.0) == "  round 1, rung 1 of 1, 10 candidates on 500 rows, 0 s left: a x b +1"


@pytest.mark.slow
def test_on_a_terminal_a_live_display_shows_phase_and_score(people: pl.DataFrame, tmp_path: Path) -> None:
    """A real terminal: a pseudo-terminal as stderr of a real process."""
    data = tmp_path / "people.parquet"
    people.write_parquet(data)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "autocross.cli", "fit", str(data), "--target", "bought", "-o", str(tmp_path / "m.acx")]
    process = subprocess.Popen(command, stderr=theirs, env={**os.environ, "TERM": "xterm", "COLUMNS": "120"})
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert process.wait(timeout=120) == 0
    text = shown.decode()
    assert "tuning penalties" in text
    assert "best auc 0." in text
    assert "\x1b[" in text


# Watching never ends a fit.


def fitted_under(people: pl.DataFrame, **options: Any) -> AutoCrossClassifier:
    return AutoCrossClassifier(**{"engine": "serial", "quiet": True, **options}).fit(people, "bought")


def same(one: AutoCrossClassifier, other: AutoCrossClassifier) -> None:
    for ours, theirs in zip(one.model_.weights, other.model_.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def only(warned: pytest.WarningsRecorder) -> str:
    """The text of the one warning."""
    (warning,) = warned.list
    return str(warning.message)


def test_a_journal_without_room_is_let_go(people: pl.DataFrame, classifier: AutoCrossClassifier) -> None:
    with pytest.warns(FileWarning) as warned:
        same(fitted_under(people, journal="/dev/full"), classifier)
    assert only(warned) == "The journal '/dev/full' failed: No space left on device. The fit goes on without it."


def test_a_disk_that_fills_up_under_the_journal(
    people: pl.DataFrame, classifier: AutoCrossClassifier, small_disk: SmallDisk
) -> None:
    path = small_disk.folder / "journal.jsonl"
    small_disk.fill(but=os.sysconf("SC_PAGE_SIZE"))
    with pytest.warns(FileWarning, match=r"journal.jsonl' failed: No space left on device\. The fit goes on") as warned:
        same(fitted_under(people, journal=str(path)), classifier)
    only(warned)
    *whole, torn = path.read_bytes().splitlines(keepends=True)
    assert json.loads(whole[0])["event"] == "FitStarted"
    assert not torn.endswith(b"\n")
    small_disk.make_room()
    fitted_under(people, journal=str(path))
    after = path.read_bytes().splitlines(keepends=True)[len(whole) + 1 :]
    assert json.loads(after[0])["event"] == "FitStarted", "the second fit began in the middle of the torn line"
    assert json.loads(after[-1])["event"] == "FitFinished"


def test_a_journal_that_may_be_written_but_not_read(people: pl.DataFrame) -> None:
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "journal.jsonl"
        path.write_text("torn")
        path.chmod(0o222)
        with as_nobody():
            journal = Journal(str(path))
            journal(Noticed(0.0, "hello"))
            journal.close()
        assert path.read_text().endswith('"warning": false}\n')


def test_a_journal_whose_reader_has_gone(people: pl.DataFrame, classifier: AutoCrossClassifier, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    given = Options(journal=str(pipe), engine="serial", quiet=True)
    with pytest.warns(FileWarning) as warned, observed(given, people) as (options, reporter):
        assert json.loads(os.read(reader, 1 << 16))["event"] == "FitStarted"
        os.close(reader)
        model = fit(source_of(people, "bought", None, options), options, reporter, Interrupt())
    assert only(warned) == f"The journal {str(pipe)!r} failed: Broken pipe. The fit goes on without it."
    for ours, theirs in zip(model.weights, classifier.model_.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("path", ["no/folder/journal", "/proc/journal"])
def test_a_bad_path_of_the_journal_is_an_error_before_the_rows_are_read(path: str) -> None:
    with pytest.raises(FileError, match=r"Cannot write the journal .*\. Give another path"):
        AutoCrossClassifier(quiet=True, journal=path).fit("no such rows.parquet", "bought")


@pytest.mark.slow
def test_stderr_that_is_closed_or_absent(
    people: pl.DataFrame, classifier: AutoCrossClassifier, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    with pytest.warns(FileWarning, match="The progress display failed: ValueError: I/O operation on closed file") as warned:
        same(fitted_under(people, quiet=False), classifier)
    only(warned)
    monkeypatch.setattr(sys, "stderr", None)
    same(fitted_under(people, quiet=False), classifier)
    assert capsys.readouterr().out == ""  # stdout is for data


class Told:
    """An observer that fails at some events."""

    what = "The observer of this test"

    def __init__(self, *failing: type[Event], at_close: bool = False) -> None:
        self.failing, self.at_close, self.n_closed = failing, at_close, 0
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, self.failing):
            raise ZeroDivisionError("for a reason")
        self.events.append(event)

    def close(self) -> None:
        self.n_closed += 1
        if self.at_close:
            raise OSError(5, "Input/output error")


def test_an_observer_that_fails_is_closed_and_told_nothing_more() -> None:
    before, failing, after = Told(), Told(PhaseStarted), Told()
    reporter = Reporter([before, failing, after])
    reporter.tell(FitStarted, version="1", options={})
    with pytest.warns(FileWarning) as warned:
        reporter.tell(PhaseStarted, phase="one", steps=1)
        reporter.tell(PhaseStarted, phase="two", steps=1)
    message = "The observer of this test failed: ZeroDivisionError: for a reason. The fit goes on without it."
    assert only(warned) == message
    assert [type(event) for event in failing.events] == [FitStarted]
    assert failing.n_closed == 1
    for other in (before, after):
        assert [event.phase for event in other.events if isinstance(event, PhaseStarted)] == ["one", "two"]
        assert [event.message for event in other.events if isinstance(event, Noticed)] == [message]
        assert other.n_closed == 0


def test_observers_that_fail_of_each_others_failure() -> None:
    """The warning of a failure is an event too."""
    reporter = Reporter([Told(FitFinished), Told(Noticed)])
    reporter.observers[1].what = "Another observer"  # type: ignore[attr-defined]
    with pytest.warns(FileWarning) as warned:
        reporter.tell(FitFinished, n_rows=1, n_fields=1, n_crosses=0, metric="auc", score=None)
    assert [str(one.message).partition(" failed")[0] for one in warned.list] == ["Another observer", Told.what]
    assert reporter.observers == []


def test_an_observer_that_cannot_be_closed() -> None:
    others = Told(), Told()
    reporter = Reporter([others[0], Told(at_close=True), others[1]])
    with pytest.warns(FileWarning) as warned:
        reporter.close()
    assert only(warned) == "The observer of this test failed: Input/output error. The fit goes on without it."
    assert [other.n_closed for other in others] == [1, 1]


def test_an_interrupt_is_not_swallowed() -> None:
    def interrupted(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Reporter([interrupted]).notice("hello")


def command(people: pl.DataFrame, folder: Path) -> list[str]:
    rows = folder / "people.parquet"
    people.write_parquet(rows)
    arguments = ["fit", str(rows), "--target", "bought", "-o", str(folder / "m.acx"), "--json"]
    return [sys.executable, "-m", "autocross.cli", *arguments]


@pytest.mark.slow
@pytest.mark.parametrize("stderr", ["full", "closed", "broken pipe"])
def test_a_command_whose_stderr_is_gone(stderr: str, people: pl.DataFrame, saved_model: Path, tmp_path: Path) -> None:
    words = command(people, tmp_path)
    if stderr == "full":
        with open("/dev/full", "wb") as full:
            ended = subprocess.run(words, stdout=subprocess.PIPE, stderr=full, check=False)
    elif stderr == "closed":
        ended = subprocess.run(["sh", "-c", 'exec "$@" 2>&-', "sh", *words], stdout=subprocess.PIPE, check=False)
    else:
        reader, writer = os.pipe()
        os.close(reader)
        ended = subprocess.run(words, stdout=subprocess.PIPE, stderr=writer, check=False)
        os.close(writer)
    assert ended.returncode == 0
    assert json.loads(ended.stdout)["n_rows"] == 400
    assert (tmp_path / "m.acx").read_bytes() == saved_model.read_bytes()


@pytest.mark.slow
def test_a_terminal_that_goes_away(people: pl.DataFrame, saved_model: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command(people, tmp_path), stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    )
    os.close(theirs)
    assert os.read(ours, 1)  # the display has begun
    os.close(ours)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert json.loads(out)["n_rows"] == 400
    assert (tmp_path / "m.acx").read_bytes() == saved_model.read_bytes()


def test_an_option_that_is_an_array_is_told(people: pl.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    fitted_under(people, granularities=np.array([5, 10]), journal=str(path))
    assert json.loads(path.read_text().splitlines()[0])["options"]["granularities"] == "[ 5 10]"
