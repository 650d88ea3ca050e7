"""Measures of a model on labelled rows, next to scikit-learn's, and what the commands make of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics
from sklearn.calibration import calibration_curve

from autocross import AutoCrossClassifier, load
from autocross.cli import run
from autocross.errors import LabelError, OptionError, TableError
from autocross.models.evaluation import Evaluation, evaluation
from autocross.serving.scorer import probabilities


@pytest.fixture
def data(people: pl.DataFrame, tmp_path: Path) -> Path:
    path = tmp_path / "people.parquet"
    people.with_columns(w=pl.Series(np.arange(400) % 4)).write_parquet(path)
    return path


def rows(n_rows: int, seed: int, rounded: bool) -> tuple[Any, ...]:
    """Labels, log-odds and weights, with ties if the log-odds are rounded."""
    random = np.random.default_rng(seed)
    log_odds = random.normal(0, 2, n_rows)
    label = (random.random(n_rows) < 1 / (1 + np.exp(-log_odds))).astype(np.uint8)
    label[:2] = 0, 1
    return label, np.round(log_odds) if rounded else log_odds, random.random(n_rows) + 0.1


def measured(label: Any, log_odds: Any, weight: Any, threshold: float = 0.5) -> tuple[Evaluation, Any]:
    score = probabilities(log_odds)
    return evaluation(label, log_odds, score, weight, threshold), score


@pytest.mark.slow
@given(st.integers(2, 60), st.integers(0, 10_000), st.booleans(), st.sampled_from([0.1, 0.5, 0.7]))
def test_measures_are_those_of_scikit_learn(n_rows: int, seed: int, rounded: bool, threshold: float) -> None:
    label, log_odds, weight = rows(n_rows, seed, rounded)
    found, score = measured(label, log_odds, weight, threshold)
    by_weight: dict[str, Any] = {"sample_weight": weight}
    auc = metrics.roc_auc_score(label, log_odds, **by_weight)
    false_rate, true_rate, _ = metrics.roc_curve(label, log_odds, **by_weight, drop_intermediate=False)
    predicted = score > threshold
    cells = metrics.confusion_matrix(label, predicted, **by_weight, labels=[0, 1]).ravel()
    expected = {
        "auc": auc,
        "gini": 2 * auc - 1,
        "log_loss": metrics.log_loss(label, score, **by_weight),
        "brier": metrics.brier_score_loss(label, score, **by_weight),
        "ks": np.abs(true_rate - false_rate).max(),
        "accuracy": metrics.accuracy_score(label, predicted, **by_weight),
        "recall": metrics.recall_score(label, predicted, **by_weight),
    }
    if predicted.any():
        expected["precision"] = metrics.precision_score(label, predicted, **by_weight)
    names = ("true_negatives", "false_positives", "false_negatives", "true_positives")
    expected |= dict(zip(names, cells, strict=True))
    for name, value in expected.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-9, abs=1e-12), name
    assert found.n_rows == n_rows


def test_deciles_are_those_of_scikit_learns_calibration_curve() -> None:
    label, log_odds, _ = rows(1000, 3, rounded=False)
    found, score = measured(label, log_odds, np.ones(1000))
    observed, mean_score = calibration_curve(label, score, n_bins=10, strategy="quantile")
    np.testing.assert_allclose([tenth.observed for tenth in found.deciles], observed)
    np.testing.assert_allclose([tenth.mean_score for tenth in found.deciles], mean_score)
    assert [(tenth.decile, tenth.rows) for tenth in found.deciles] == [(number, 100) for number in range(1, 11)]
    assert found.ece == pytest.approx(np.abs(observed - mean_score).mean())
    assert all(before.high < after.low for before, after in zip(found.deciles, found.deciles[1:], strict=False))


@settings(max_examples=25)
@given(st.integers(2, 60), st.integers(0, 10_000), st.booleans())
def test_a_weight_of_three_is_three_rows(n_rows: int, seed: int, rounded: bool) -> None:
    label, log_odds, weight = rows(n_rows, seed, rounded)
    times = np.floor(weight * 3).astype(int)  # zero among them
    if not times.any():
        return
    weighted, _ = measured(label, log_odds, times.astype(float))
    repeated, _ = measured(np.repeat(label, times), np.repeat(log_odds, times), np.ones(times.sum()))
    for name, value in repeated.measures.items():
        if name != "n_rows" and value is not None:
            assert weighted.measures[name] == pytest.approx(value, abs=1e-12), name
    shapes = [[(tenth.decile, tenth.low, tenth.high, tenth.weight) for tenth in found.deciles] for found in (weighted, repeated)]
    assert shapes[0] == shapes[1]


def test_rows_of_one_score_share_a_decile_and_one_class_has_no_auc() -> None:
    found, _ = measured(np.ones(7, np.uint8), np.zeros(7), np.ones(7))
    assert [(tenth.decile, tenth.rows, tenth.mean_score, tenth.observed) for tenth in found.deciles] == [(6, 7, 0.5, 1.0)]
    assert found.ece == 0.5
    nothing = {name for name, value in found.measures.items() if value is None}
    assert nothing == {"auc", "gini", "ks", "precision"}


def test_scorer_estimator_and_command_agree(
    saved_model: Path, people: pl.DataFrame, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["evaluate", str(saved_model), str(data), "--weight", "w", "--threshold", "0.3", "--json"]
    assert run(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    scorer = load(saved_model)
    assert told == scorer.evaluate(data, weight="w", threshold=0.3).measures
    weight = np.arange(400) % 4
    assert told == scorer.evaluate(people.drop("bought"), people["bought"], weight, threshold=0.3).measures
    assert told == scorer.evaluate(people.to_pandas(), "bought", weight, threshold=0.3).measures
    assert {"auc", "log_loss", "accuracy", "n_rows", "brier", "ece", "ks", "gini", "precision", "recall"} <= set(told)
    assert told["n_rows"] == 400
    assert sum(told[f"{truth}_{label}s"] for truth in ("true", "false") for label in ("positive", "negative")) == weight.sum()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_deciles_go_to_a_file(
    saved_model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    path = tmp_path / f"deciles.{ending}"
    for _ in range(2):  # a table of deciles may replace another one
        assert run(["evaluate", str(saved_model), str(data), "--deciles", str(path)]) == 0
    text = capsys.readouterr().out
    found = pl.read_csv(path) if ending == "csv" else pl.read_parquet(path)
    assert found.columns == ["decile", "rows", "weight", "low", "high", "mean_score", "observed"]
    assert found["rows"].sum() == 400
    assert all(f"{value:.4f}" in text for value in found["mean_score"])
    path.with_stem("other").write_bytes(data.read_bytes())
    assert run(["evaluate", str(saved_model), str(data), "--deciles", str(path.with_stem("other"))]) == 2
    assert "deciles" in capsys.readouterr().err


@pytest.mark.parametrize("threshold", ["-0.1", "1.5", "nan"])
@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_a_threshold_is_a_probability(
    saved_model: Path, data: Path, capsys: pytest.CaptureFixture[str], command: str, threshold: str
) -> None:
    assert run([command, str(saved_model), str(data), "--threshold", threshold]) == 2
    assert "is no probability. Give a number from 0 to 1." in capsys.readouterr().err


def test_bad_input_is_named(saved_model: Path, people: pl.DataFrame) -> None:
    scorer = load(saved_model)
    with pytest.raises(OptionError, match=r"threshold='high' is no probability"):
        scorer.evaluate(people, threshold="high")  # type: ignore[arg-type]
    with pytest.raises(TableError, match="400 rows, but there are 3 labels"):
        scorer.evaluate(people, [0, 1, 0])
    with pytest.raises(LabelError, match="'sold' is not in the table"):
        scorer.evaluate(people, "sold")


def test_predict_labels_by_the_threshold(saved_model: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "scores.csv"
    assert run(["predict", str(saved_model), str(data), "--threshold", "0.8", "-o", str(out)]) == 0
    scores = pl.read_csv(out)
    assert ((scores["probability"] > 0.8) == (scores["prediction"] == 1)).all()
    assert 0 < scores["prediction"].sum() < (scores["probability"] > 0.5).sum()


# Columns that are kept beside the predictions.


def test_predict_keeps_columns_as_they_are_written(saved_model: Path, people: pl.DataFrame, tmp_path: Path) -> None:
    data, out = tmp_path / "people.csv", tmp_path / "scores.csv"
    ids = [f"{number:05}" for number in range(400)]
    people.drop("tags").with_columns(pl.Series("id", ids), pl.Series("a,b", ids), tags=pl.lit("x")).write_csv(data)
    for _ in range(2):  # predictions may replace predictions with the same columns
        assert run(["predict", str(saved_model), str(data), "--keep", "id,job", "--keep", "a,b", "-o", str(out)]) == 0
    scores = pl.read_csv(out, schema_overrides={"id": pl.String, "a,b": pl.String})
    assert scores.columns == ["id", "job", "a,b", "probability", "prediction"]
    assert scores["id"].to_list() == scores["a,b"].to_list() == ids
    assert scores["job"].to_list() == people["job"].to_list()
    assert run(["predict", str(saved_model), str(data), "--keep", "id", "-o", str(out)]) == 2


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        ("job,shop", "The column 'shop' of --keep is not in "),
        ("probability", "The column 'probability' of --keep has the name of a prediction"),
        ("tags", "The column 'tags' of --keep holds lists or structs, which a CSV file cannot"),
    ],
)
def test_what_cannot_be_kept_is_refused(
    saved_model: Path, people: pl.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str], keep: str, message: str
) -> None:
    data, out = tmp_path / "people.parquet", tmp_path / "scores.csv"
    people.with_columns(probability=pl.lit(0.5)).write_parquet(data)
    assert run(["predict", str(saved_model), str(data), "--keep", keep, "-o", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_lists_are_kept_in_parquet(saved_model: Path, people: pl.DataFrame, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "scores.parquet"
    assert run(["predict", str(saved_model), str(data), "--keep", "tags", "-o", str(out)]) == 0
    assert pl.read_parquet(out)["tags"].to_list() == people["tags"].to_list()


def test_log_probabilities_are_exact_far_out(people: pl.DataFrame) -> None:
    model = AutoCrossClassifier(quiet=True, max_crosses=0).fit(people, "bought")
    np.testing.assert_allclose(model.predict_log_proba(people), np.log(model.predict_proba(people)), rtol=1e-12)
    model._keep(replace(model.model_, intercept=-800.0))
    assert (model.predict_proba(people)[:, 1] < 1e-300).all()
    np.testing.assert_allclose(model.predict_log_proba(people)[:, 1], model.decision_function(people), rtol=1e-12)
    assert model.evaluate(people).measures == model.scorer_.evaluate(people, "bought").measures
