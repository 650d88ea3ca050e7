"""The time limit, by a clock that the test controls: what is left out when time is short, and that the model says so."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from autocross import AutoCrossClassifier, events, load, reading
from autocross.errors import TableWarning
from autocross.fitting import encode
from autocross.models.metrics import auc
from autocross.options import GRACE
from autocross.table import ingest

pytestmark = pytest.mark.slow  # all of it takes seconds, and few changes touch it


class Clock:
    """Stands still until a moment comes, and is late from then on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(events, "perf_counter", clock)
    return clock


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(reading, "PIECE", 10)
    yield


def wide(n_columns: int = 100, n_rows: int = 400) -> pl.DataFrame:
    """Many columns, of texts and of numbers, of which the first two say something."""
    rng = np.random.default_rng(4)
    label = rng.integers(0, 2, n_rows)
    columns: dict[str, Any] = {
        "c000": np.where(rng.random(n_rows) < 0.8, label, 1 - label).astype(str),
        "c001": label + rng.normal(size=n_rows),
    }
    for number in range(2, n_columns):
        texts = pl.Series(rng.integers(0, 5, n_rows)).cast(pl.String)
        columns[f"c{number:03}"] = texts if number % 2 else rng.normal(size=n_rows)
    return pl.DataFrame({**columns, "label": label})


def late_at(monkeypatch: pytest.MonkeyPatch, clock: Clock, task: str, call: int, now: float) -> None:
    """Move the clock when a task of reading is run for the n-th time."""
    original, calls = getattr(reading, task), 0

    def late(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            clock.now = now
        return original(*args)

    late.change = original.change  # type: ignore[attr-defined]
    monkeypatch.setattr(reading, task, late)


@pytest.mark.parametrize("engine", ["serial", "threads"])
@pytest.mark.parametrize(("task", "share"), [("look_on", 0.3), ("fill_on", 0.7)])
def test_columns_that_are_not_reached_in_time_are_left_out_and_named(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, task: str, share: float, engine: Any
) -> None:
    late_at(monkeypatch, clock, task, 3, share * 100 + GRACE)
    frame = wide()
    clf = AutoCrossClassifier(quiet=True, time_limit=100, engine=engine, n_jobs=2, max_crosses=0)
    with pytest.warns(TableWarning, match=r"The time limit of 100 s left no time for 70 columns, 'c030' among them"):
        clf.fit(frame, "label")
    model = clf.model_
    assert {column.column.name for column in model.producer.encoder.columns} == {f"c{number:03}" for number in range(30)}
    unread = [column.name for column in model.producer.encoder.schema if column.reason == encode.UNREAD]
    assert unread == [f"c{number:03}" for number in range(30, 100)]
    assert auc(frame["label"].to_numpy(), clf.decision_function(frame), np.ones(frame.height)) > 0.8
    clf.save(tmp_path / "m.acx")
    scorer = load(tmp_path / "m.acx")
    assert [scorer.score_one(row) for row in frame.head(20).to_dicts()] == clf.predict_proba(frame.head(20))[:, 1].tolist()


@pytest.mark.slow
def test_a_model_of_few_columns_is_that_of_a_table_of_those_columns(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = wide()
    whole = AutoCrossClassifier(quiet=True).fit(frame.select("label", *(f"c{number:03}" for number in range(30))), "label")
    late_at(monkeypatch, clock, "look_on", 3, 0.3 * 100 + GRACE)
    with pytest.warns(TableWarning, match="left no time for 70 columns"):
        cut = AutoCrossClassifier(quiet=True, time_limit=100).fit(frame, "label")
    assert cut.model_.intercept == whole.model_.intercept
    for ours, theirs in zip(cut.model_.weights, whole.model_.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_rows_are_thinned_out_where_there_is_no_time_for_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By a rule, so that files, frames and every engine learn from the same rows."""
    monkeypatch.setattr(ingest, "CELLS_A_SECOND", 40)
    monkeypatch.setattr(ingest, "FEWEST_ROWS", 500)
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"a": rng.integers(0, 9, 3000).astype(str), "x": rng.normal(size=3000), "label": rng.integers(0, 2, 3000)})
    frame.write_parquet(tmp_path / "rows.parquet")
    models = []
    for data, bytes_a_second in ((frame, 1), (tmp_path / "rows.parquet", 1), (tmp_path / "rows.parquet", 10**12)):
        monkeypatch.setattr(ingest, "BYTES_A_SECOND", bytes_a_second)
        with pytest.warns(
            TableWarning, match=r"The time limit of 99 s leaves no time for all rows: the model learns from 1,3\d\d,"
        ):
            models.append(AutoCrossClassifier(quiet=True, time_limit=99).fit(data, "label").model_)
    for model in models[1:]:
        assert (model.intercept, model.about.n_rows) == (models[0].intercept, models[0].about.n_rows)
        for ours, theirs in zip(model.weights, models[0].weights, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_file_that_takes_too_long_is_left_before_its_end(clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ingest, "BYTES_A_SECOND", 1)
    monkeypatch.setattr(ingest, "MOST_ROWS", 250)
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"a": rng.integers(0, 9, 2000).astype(str), "x": rng.normal(size=2000), "label": [0] * 700 + [0, 1] * 650})
    frame.write_csv(tmp_path / "rows.csv")
    late_at(monkeypatch, clock, "look_on", 2, 30 + GRACE)
    clf = AutoCrossClassifier(quiet=True, time_limit=100)
    with pytest.warns(TableWarning, match="the model learns from 750, those that were read by then"):
        clf.fit(tmp_path / "rows.csv", "label")
    # The limit came with the second part; rows of the other label came with the third.
    assert clf.model_.about.n_rows == 750
    assert clf.predict_proba(frame)[:, 1].mean() == pytest.approx(25 / 750, abs=0.01)


def test_with_no_time_at_all_the_rate_of_the_labels_is_known(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    late_at(monkeypatch, clock, "fill_on", 10, 1000.0)
    clf = AutoCrossClassifier(quiet=True, time_limit=1)
    frame = wide().with_columns(label=pl.Series([0, 0, 0, 1] * 100))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableWarning)
        clf.fit(frame, "label")
    assert clf.predict_proba(frame)[:, 1].mean() == pytest.approx(0.25, abs=0.02)


def test_an_ample_limit_changes_nothing() -> None:
    frame = wide(20)
    one = AutoCrossClassifier(quiet=True).fit(frame, "label").model_
    other = AutoCrossClassifier(quiet=True, time_limit=3600).fit(frame, "label").model_
    for ours, theirs in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
