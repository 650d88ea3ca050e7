"""The moment itself as a number: kept where it helps, in words, in files, and for a single row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from autocross import AutoCrossClassifier, load
from autocross.encoding.timestamps import LATEST, Calendar, Course
from autocross.errors import BundleError
from autocross.features import Field
from autocross.fitting import tune
from autocross.producer import bundle
from autocross.search.granularity import carried_on, helpful
from forgery import Arrays, Manifest, forge, parts

N_ROWS = 3000
BEGAN = datetime(2023, 3, 1, 8)
OPTIONS: dict[str, Any] = {"quiet": True, "max_crosses": 0, "split": "random"}


def orders(course: float = 3.0, back: bool = True) -> pl.DataFrame:
    """Orders of half a year, an hour and a half apart. Returns grow rarer, and then frequent again if the course turns ``back``."""
    rng, at = np.random.default_rng(0), np.arange(N_ROWS)
    trend = course * (np.abs(at - N_ROWS / 2) / N_ROWS * 2 - 0.5) if back else course * (0.5 - at / N_ROWS) * 2
    shop = rng.integers(0, 4, N_ROWS)
    label = (rng.random(N_ROWS) < 1 / (1 + np.exp(-trend - 0.5 * (shop - 1.5)))).astype(np.int8)
    when = [BEGAN + timedelta(minutes=90 * int(number)) for number in at]
    return pl.DataFrame({"when": when, "shop": [f"shop {number}" for number in shop], "returned": label})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("course") / "model.acx"
    AutoCrossClassifier(**OPTIONS, engine="serial").fit(orders(), "returned").save(path)
    return path


def column_of(path: Path) -> Calendar:
    (calendar,) = (column for column in bundle.read(path).producer.encoder.columns if isinstance(column, Calendar))
    return calendar


def test_the_course_is_kept_where_it_tells_something(model: Path) -> None:
    course = column_of(model)
    assert isinstance(course, Course)
    assert {field.name for field in course.bins.fields} <= {f"when [{n} {kind}]" for n in (10, 100) for kind in ("wide", "even")}
    rows = orders()
    early, middle = (load(model).score(rows[first : first + 200]).mean() for first in (0, N_ROWS // 2 - 100))
    assert early > 0.65 and middle < 0.35


@pytest.mark.filterwarnings("ignore:With random folds")
@pytest.mark.parametrize("split", ["auto", "forward"])
@pytest.mark.parametrize("back", [False, True])
def test_a_course_that_goes_on_is_told_from_one_that_turns_back(split: str, back: bool) -> None:
    """Where rows are known to come in time, the course must help to look ahead, and not only in between."""
    fitted = AutoCrossClassifier(quiet=True, max_crosses=0, split=split).fit(orders(back=back), "returned").model_
    assert bool([field.name for field in fitted.producer.fields if "[" in field.name]) is not back


@pytest.mark.filterwarnings("ignore:With random folds")
@pytest.mark.parametrize("split", ["auto", "random", "forward"])
def test_a_course_that_tells_nothing_is_dropped(split: str) -> None:
    fitted = AutoCrossClassifier(quiet=True, max_crosses=0, split=split).fit(orders(0.0), "returned").model_
    assert not [field.name for field in fitted.producer.fields if "[" in field.name]
    assert "when.month" in [field.name for field in fitted.producer.fields]


def test_of_the_better_half_of_moments_those_are_kept_that_gain_enough() -> None:
    names = ["when [10]", "when [100]", "when [1000]", "born [10]", "born [100]"]
    fields = [Field(name, name.split(" ")[0], 10, shares_rare=False) for name in names]
    gain = {number: np.array([gained]) for number, gained in enumerate([9.0, 50.0, 8.5, -3.0, -4.0])}
    assert [helpful(fields, gain, base) for base in (1000.0, 10_000.0, 100_000.0)] == [[0, 1], [1], []]
    steady, luck = np.array([9.0, 11.0, 10.0, 8.0, 12.0]), np.array([60.0, -10.0, 5.0, -10.0, 5.0])
    assert helpful(fields, {0: steady, 1: luck, 2: -luck}, 1000.0) == [0]


def test_what_is_learned_last_holds_for_what_comes_later() -> None:
    step, sums = np.arange(14.0).reshape(7, 2), np.zeros((7, 2, 2), np.int64)
    sums[2:5, 0, 1] = sums[2:4, 1, 1] = 1
    carried = carried_on(step, sums)
    assert carried[:, 0].tolist() == [0, 2, 4, 6, 8, 8, 8]
    assert carried[:, 1].tolist() == [1, 3, 5, 7, 7, 7, 7]


@pytest.mark.filterwarnings("ignore:With random folds")
def test_gains_ahead_are_those_of_each_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adding them up gives the gain of all models together."""
    found: list[tuple[dict[int, np.ndarray], float]] = []
    monkeypatch.setattr(tune.granularity, "helpful", lambda fields, gain, base, _: found.append((gain, base)) or [])
    monkeypatch.setattr(tune.granularity, "of_each", lambda factors: [factors])
    AutoCrossClassifier(quiet=True, max_crosses=0).fit(orders(), "returned")
    monkeypatch.undo()
    monkeypatch.setattr(tune.granularity, "helpful", lambda fields, gain, base, _: found.append((gain, base)) or [])
    AutoCrossClassifier(quiet=True, max_crosses=0).fit(orders(), "returned")
    (together, base), (by_span, same) = found
    assert base == same and together.keys() == by_span.keys()
    for number, gains in by_span.items():
        assert gains.shape == (5,)
        assert gains.sum() == pytest.approx(together[number].sum(), abs=1e-6)


@pytest.mark.filterwarnings("ignore:With random folds")
def test_one_look_ahead_is_not_enough_to_keep_moments() -> None:
    fitted = AutoCrossClassifier(quiet=True, max_crosses=0, evaluation="holdout").fit(orders(), "returned").model_
    assert not [field.name for field in fitted.producer.fields if "[" in field.name]


def test_one_row_has_the_score_of_many(model: Path) -> None:
    scorer, rows = load(model), orders()[::97]
    before, after = BEGAN - timedelta(days=4000), BEGAN + timedelta(days=4000)
    rows = pl.concat([rows, rows[:2].with_columns(when=pl.Series([before, after])), rows[:1].with_columns(when=None)])
    many = scorer.score(rows)
    for row, score in zip(rows.to_dicts(), many, strict=True):
        assert scorer.score_one(row) == score
        if row["when"] is not None:
            assert scorer.score_one({**row, "when": row["when"].isoformat()}) == score
    fitted = bundle.read(model)
    codes = fitted.producer.encoder.encode_one({"when": after})
    words = {field.name: fitted.describe(at, codes[at]) for at, field in enumerate(fitted.producer.fields)}
    assert all(word.endswith(" or later") for name, word in words.items() if "[" in name)


def test_words_tell_all_values_of_a_field_apart(model: Path) -> None:
    fitted = bundle.read(model)
    for number, field in enumerate(fitted.producer.fields):
        words = [fitted.describe(number, code) for code in range(field.n_codes)]
        assert len(set(words)) == len(words)
        if "[" in field.name:
            assert words[2].startswith("before 2023-") and words[-1].endswith(" or later")


@pytest.mark.parametrize("private", [False, True])
def test_a_saved_course_is_the_same(private: bool, tmp_path: Path) -> None:
    path, rows = tmp_path / "model.acx", orders()
    fitted = AutoCrossClassifier(**OPTIONS, private=private).fit(rows, "returned")
    fitted.save(path)
    assert isinstance(column_of(path), Course)
    np.testing.assert_array_equal(load(path).score(rows), fitted.predict_proba(rows)[:, 1])
    bundle.save(bundle.read(path), tmp_path / "again.acx")
    assert path.read_bytes() == (tmp_path / "again.acx").read_bytes()
    again = fitted.refit(rows[1000:], "returned").model_
    assert [field.name for field in again.producer.fields] == [field.name for field in bundle.read(path).producer.fields]


def test_a_file_in_several_blocks_has_the_same_course(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autocross.fitting.run.BLOCK_ROWS", 200)
    orders().write_parquet(tmp_path / "rows.parquet")
    AutoCrossClassifier(**OPTIONS, n_jobs=3).fit(tmp_path / "rows.parquet", "returned").save(tmp_path / "model.acx")
    assert (tmp_path / "model.acx").read_bytes() == model.read_bytes()


# Forged files.


def edge(value: float) -> Callable[[Manifest, Arrays], None]:
    def change(manifest: Manifest, arrays: Arrays) -> None:
        arrays["edges.1.0"] = arrays["edges.1.0"].copy()
        arrays["edges.1.0"][-1] = value

    return change


def entry(**facts: Any) -> Callable[[Manifest, Arrays], None]:
    return lambda manifest, arrays: manifest["columns"][1].update(facts)


FORGED = {
    "no whole number": (edge(2e15 + 0.5), "column 'when' has edges that are no moments"),
    "after the last year": (edge(LATEST * 1.01), "column 'when' has edges that are no moments"),
    "no number": (edge(np.nan), "column 'when' has edges that do not rise"),
    "endless": (edge(np.inf), "column 'when' has edges that do not rise"),
    "falling": (edge(0.0), "column 'when' has edges that do not rise"),
    "no names": (entry(names=[]), "column 'when' has no proper names of fields"),
    "names of others": (entry(names=["x"]), "column 'when' has no proper names of fields"),
    "no calendar": (entry(seen={}), "field 'when .*' has the wrong number of weights"),
    "a calendar alone": (entry(coder="calendar"), "it has the wrong number of counts"),
    "bins alone": (entry(coder="bins"), "column 'when' is not coded as its kind asks"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_course_is_refused(name: str, model: Path, tmp_path: Path) -> None:
    change, message = FORGED[name]
    manifest, arrays = parts(model)
    assert manifest["columns"][1]["coder"] == "course"
    change(manifest, arrays)
    with pytest.raises(BundleError, match=message):
        bundle.read(forge(tmp_path / "bad.acx", manifest, arrays))


def test_moments_within_a_minute_have_a_course() -> None:
    rng = np.random.default_rng(0)
    n = 2000
    second = np.sort(rng.integers(0, 59, n))
    when = [datetime(2024, 5, 1, 12, 0, int(at)) for at in second]
    rows = pl.DataFrame({"when": when, "y": rng.random(n) < second / 59})
    model = AutoCrossClassifier(quiet=True, engine="serial", split="random", max_crosses=0).fit(rows, "y")
    assert model.model_.about.score > 0.7
