"""Estimators that come back from a file, and rows that are scored strictly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone

from autocross import AutoCross, AutoCrossClassifier, WideDeepClassifier, load
from autocross.cli import run
from autocross.errors import AutoCrossError, BundleError, TableError


@pytest.fixture
def fitted(people: pl.DataFrame, saved_model: Path) -> AutoCrossClassifier:
    return AutoCrossClassifier.load(saved_model)


def test_a_loaded_classifier_does_what_a_fitted_one_does(people: pl.DataFrame, tmp_path: Path) -> None:
    options: dict[str, Any] = {"quiet": True, "engine": "serial", "max_crosses": 2, "metric": "log_loss", "positive": 0}
    options["monotone"] = {"age": "increasing"}
    fitted = AutoCrossClassifier(**options).fit(people, "bought")
    fitted.save(tmp_path / "model.acx")
    loaded = AutoCrossClassifier.load(tmp_path / "model.acx", quiet=True, engine="serial")
    for call in ("predict", "predict_proba", "predict_log_proba", "decision_function", "transform"):
        first, second = getattr(fitted, call)(people), getattr(loaded, call)(people)
        assert (first != second).nnz == 0 if call == "transform" else (first == second).all(), call
    assert loaded.classes_.tolist() == fitted.classes_.tolist() == [0, 1]
    assert loaded.n_features_in_ == fitted.n_features_in_
    assert {*loaded.feature_names_in_} == {*fitted.feature_names_in_}
    assert (loaded.metric, loaded.positive, loaded.engine) == ("log_loss", 0, "serial")
    assert loaded.monotone == {"age": "increasing"}
    assert loaded.feature_importances_.sum() == pytest.approx(fitted.feature_importances_.sum())
    row = people.row(0, named=True)
    assert loaded.explain(row) == fitted.explain(row)
    assert loaded.crosses_ == fitted.crosses_
    assert (loaded.at("all").predict(people) == fitted.predict(people)).all()
    half = people[::2]
    np.testing.assert_array_equal(
        loaded.refit(half, "bought").decision_function(people), fitted.refit(half, "bought").decision_function(people)
    )
    loaded.save(tmp_path / "again.acx")
    fitted.save(tmp_path / "refitted.acx")
    assert (tmp_path / "again.acx").read_bytes() == (tmp_path / "refitted.acx").read_bytes()
    assert clone(loaded).get_params() == loaded.get_params()


def test_every_estimator_loads_the_models_it_can_fit(people: pl.DataFrame, saved_model: Path, tmp_path: Path) -> None:
    assert WideDeepClassifier.load(saved_model).predict(people).shape == (400,)
    features = AutoCross.load(saved_model)
    assert type(features) is AutoCross
    assert (features.transform(people) != AutoCrossClassifier.load(saved_model).transform(people)).nnz == 0
    with pytest.raises(BundleError, match="Cannot load"):
        AutoCross.load(tmp_path / "none.acx") if (tmp_path / "none.acx").write_bytes(b"no model") else None


@pytest.mark.slow
def test_a_model_with_networks_is_loaded_by_its_own_class(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    x = random.normal(size=(1500, 3))
    rows = pl.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "label": (x[:, 0] * x[:, 1] + 0.3 * x[:, 2] > 0).astype(int)})
    fitted = WideDeepClassifier(quiet=True, max_crosses=0, n_jobs=1).fit(rows, "label")
    assert fitted.model_.additions
    fitted.save(tmp_path / "deep.acx")
    loaded = WideDeepClassifier.load(tmp_path / "deep.acx", epochs=3)
    np.testing.assert_array_equal(loaded.decision_function(rows), fitted.decision_function(rows))
    assert loaded.epochs == 3
    with pytest.raises(AutoCrossError, match="refit"):
        loaded.refit(rows, "label")
    with pytest.raises(
        AutoCrossError, match=r"deep.acx' holds more than a regression, \(deep part\), .* by WideDeepClassifier.load"
    ):
        AutoCrossClassifier.load(tmp_path / "deep.acx")
    assert (AutoCross.load(tmp_path / "deep.acx").transform(rows) != fitted.transform(rows)).nnz == 0


def test_rows_without_names(people: pl.DataFrame, tmp_path: Path, fitted: AutoCrossClassifier) -> None:
    with pytest.raises(TableError, match=r"a saved model does not know the order of its columns\. Give a frame"):
        fitted.predict(np.zeros((3, fitted.n_features_in_)))
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 12))  # x10 comes before x2 in the file
    nameless = AutoCrossClassifier(quiet=True, max_crosses=0, engine="serial").fit(x, x[:, 2] + x[:, 10] > 0)
    nameless.save(tmp_path / "nameless.acx")
    loaded = AutoCrossClassifier.load(tmp_path / "nameless.acx", quiet=True)
    assert not hasattr(loaded, "feature_names_in_")
    np.testing.assert_array_equal(loaded.decision_function(x), nameless.decision_function(x))
    again = fitted.set_params(quiet=True, max_crosses=0, engine="serial").fit(x, x[:, 2] > 0)
    assert again.predict(x).shape == (300,)


# Strict rows.


def test_a_strict_row_has_the_columns_of_the_model(saved_model: Path, people: pl.DataFrame) -> None:
    scorer, row = load(saved_model), people.drop("bought").row(0, named=True)
    assert scorer.score_one(row, strict=True) == scorer.score_one(row)
    assert scorer.score_one({}) == scorer.score_one(dict.fromkeys(row), strict=True)  # a column may be there and be missing
    misspelt = {"agee" if name == "age" else name: value for name, value in row.items()}
    assert 0 < scorer.score_one(misspelt) < 1
    with pytest.raises(TableError, match=r"The row has no column 'age'\. It has 'agee'\. Correct the name"):
        scorer.score_one(misspelt, strict=True)
    with pytest.raises(TableError, match=r"The row has a column 'jobs', which the model does not know\. It knows 'job'\."):
        scorer.score_one({**row, "jobs": "cook"}, strict=True)
    with pytest.raises(TableError, match=r"The row has no column 'age'\. It has none\."):
        scorer.score_one({}, strict=True)
    with pytest.raises(
        TableError, match=r"The row has no column 'job'\. It has 'jop'\."
    ):  # others are absent too, but not misspelt
        scorer.score_one({"jop": "cook"}, strict=True)
    with pytest.raises(TableError, match="which the model does not know"):
        scorer.score_one({**row, 3: "cook"}, strict=True)
    with pytest.raises(TableError, match="One row is a mapping"):
        scorer.score_one([row], strict=True)  # type: ignore[arg-type]


def test_columns_that_the_model_leaves_out_may_be_there(people: pl.DataFrame) -> None:
    scorer = AutoCrossClassifier(quiet=True, max_crosses=0, exclude=["born"], engine="serial").fit(people, "bought").scorer_
    row = people.drop("bought").row(0, named=True)
    assert scorer.score_one(row, strict=True) == scorer.score_one(row)
    assert scorer.score_one({name: value for name, value in row.items() if name != "born"}, strict=True) == scorer.score_one(row)


def test_the_command_explains_strictly(saved_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", str(saved_model), '{"job": "cook", "agee": 37}']) == 0
    assert run(["explain", str(saved_model), '{"job": "cook", "agee": 37}', "--strict"]) == 2
    assert "The row has no column 'age'. It has 'agee'." in capsys.readouterr().err
