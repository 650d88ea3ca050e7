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
from autocross.producer import bundle
from autocross.search.granularity import best_half
from forgery import Arrays, Manifest, forge, parts

N_ROWS = 3000
BEGAN = datetime(2023, 3, 1, 8)


def orders(course: float = 3.0) -> pl.DataFrame:
    """Orders of half a year, an hour and a half apart. Returns grow rarer, and then frequent again, unless there is no course."""
    rng, at = np.random.default_rng(0), np.arange(N_ROWS)
    trend = course * (np.abs(at - N_ROWS / 2) / N_ROWS * 2 - 0.5)
    shop = rng.integers(0, 4, N_ROWS)
    label = (rng.random(N_ROWS) < 1 / (1 + np.exp(-trend - 0.5 * (shop - 1.5)))).astype(np.int8)
    when = [BEGAN + timedelta(minutes=90 * int(number)) for number in at]
    return pl.DataFrame({"when": when, "shop": [f"shop {number}" for number in shop], "returned": label})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("course") / "model.acx"
    AutoCrossClassifier(quiet=True, engine="serial", max_crosses=0).fit(orders(), "returned").save(path)
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


@pytest.mark.parametrize("split", ["auto", "random", "forward"])
def test_a_course_that_tells_nothing_is_dropped(split: str) -> None:
    fitted = AutoCrossClassifier(quiet=True, max_crosses=0, split=split).fit(orders(0.0), "returned").model_
    assert not [field.name for field in fitted.producer.fields if "[" in field.name]
    assert "when.month" in [field.name for field in fitted.producer.fields]


def test_moments_compete_among_themselves_and_numbers_as_before() -> None:
    names = ["when.day", "when [10]", "when [100]", "when [1000]", "age [10]", "age [100]", "fare [10]", "fare [100]"]
    fields = [type("F", (), {"column": name.split(" ")[0].split(".")[0]})() for name in names]
    gain = {1: 5.0, 2: 50.0, 3: 0.9, 4: 7.0, 5: 8.0, 6: -3.0, 7: -4.0}
    assert best_half(fields, gain, 1000.0) == [1, 2, 4, 5, 6]  # type: ignore[arg-type]
    assert best_half(fields, gain, 10_000.0) == [2, 4, 5, 6]  # type: ignore[arg-type]
    assert best_half(fields, gain, 100_000.0) == [4, 5, 6]  # type: ignore[arg-type]


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
    fitted = AutoCrossClassifier(quiet=True, max_crosses=0, private=private).fit(rows, "returned")
    fitted.save(path)
    assert isinstance(column_of(path), Course)
    np.testing.assert_array_equal(load(path).score(rows), fitted.predict_proba(rows)[:, 1])
    bundle.save(bundle.read(path), tmp_path / "again.acx")
    assert path.read_bytes() == (tmp_path / "again.acx").read_bytes()
    again = fitted.refit(rows[1000:], "returned").model_
    assert [field.name for field in again.producer.fields] == [field.name for field in bundle.read(path).producer.fields]


def test_a_file_that_is_read_in_parts_has_the_same_course(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autocross.fitting.run.BLOCK_ROWS", 200)
    orders().write_parquet(tmp_path / "rows.parquet")
    options: dict[str, Any] = {"quiet": True, "max_crosses": 0, "n_jobs": 3}
    AutoCrossClassifier(**options).fit(tmp_path / "rows.parquet", "returned").save(tmp_path / "model.acx")
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
    "no calendar": (entry(seen={}), "column 'when' has no calendar parts"),
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
