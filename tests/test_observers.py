"""Events: the journal has all of them, the display says what matters, quiet says nothing."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from autocross import events
from autocross.errors import FileError
from autocross.estimator import AutoCrossClassifier
from autocross.observers.progress import PlainLines


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
        "fitting all rows",
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


def test_every_event_has_a_line_or_is_left_to_the_journal() -> None:
    stream = io.StringIO()
    show = PlainLines("auc", stream)
    show(events.PhaseStarted(0.5, "tuning", 3))
    show(events.StepDone(1.0, "tuning", 1, "l2 3", 0.91234))
    show(events.RuleApplied(1.5, "split", "time", "named"))
    show(events.Noticed(1.6, "hello"))
    show(events.Noticed(1.7, "a warning is shown by Python", warning=True))
    show(events.FitFinished(2.0, 1000, 3, 0, "auc", None))
    lines = stream.getvalue().splitlines()
    assert [line.split("s  ", 1)[1].strip() for line in lines] == [
        "tuning",
        "l2 3   auc 0.9123",
        "split: time (named)",
        "hello",
        "done: 1,000 rows, 3 fields, 0 crosses",
    ]


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
