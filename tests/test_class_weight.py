"""Weights of classes: the same fit as with these weights given row by row, to the bit, on every way in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.utils.class_weight import compute_sample_weight

from autocross import AutoCrossClassifier, WideDeepClassifier, load
from autocross.cli import run
from autocross.errors import OptionError, TableError
from autocross.options import Options
from autocross.table.ingest import source_of

N_ROWS = 500


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    random = np.random.default_rng(2)
    job, age = random.integers(0, 5, N_ROWS), random.integers(18, 70, N_ROWS)
    bought = np.where(random.random(N_ROWS) < 0.1 + 0.1 * (job == 2) + (age > 50) / 5, "yes", "no")
    return pl.DataFrame(
        {"job": [f"j{number}" for number in job], "age": age, "w": random.choice([0.0, 0.1, 0.3, 2.0], N_ROWS), "bought": bought}
    )


def fit(rows: Any, weight: Any = None, **options: Any) -> AutoCrossClassifier:
    return AutoCrossClassifier(quiet=True, **{"engine": "serial", "max_crosses": 1, **options}).fit(rows, "bought", weight)


def same(first: AutoCrossClassifier, second: AutoCrossClassifier) -> bool:
    """Whether two models are equal to the bit."""
    pairs = zip(first.model_.weights, second.model_.weights, strict=True)
    return first.model_.intercept == second.model_.intercept and all(np.array_equal(*pair) for pair in pairs)


WEIGHTS: dict[str, Any] = {"balanced": "balanced", "mapping": {"yes": 3}, "both": {"yes": 0.7, "no": 1.3}}


@pytest.mark.parametrize("class_weight", WEIGHTS.values(), ids=WEIGHTS)
def test_it_is_the_fit_with_these_sample_weights(rows: pl.DataFrame, class_weight: Any) -> None:
    explicit = compute_sample_weight(class_weight, rows["bought"].to_numpy())
    features = rows.drop("w")
    weighted = fit(features, class_weight=class_weight)
    assert same(weighted, fit(features, explicit))
    assert not same(weighted, fit(features))


def test_sample_weights_are_multiplied(rows: pl.DataFrame) -> None:
    label = rows["bought"].to_numpy()
    given = rows["w"].to_numpy()
    assert same(fit(rows, "w", class_weight={"yes": 3}), fit(rows.drop("w"), given * np.where(label == "yes", 3, 1)))
    whole = np.round(given * 10)
    sums = {one: whole[label == one].sum() for one in ("yes", "no")}  # as scikit-learn from 1.8 on
    factor = np.array([whole.sum() / (2 * sums[one]) for one in label])
    assert same(fit(rows.drop("w"), whole, class_weight="balanced"), fit(rows.drop("w"), whole * factor))


@pytest.mark.parametrize(
    ("engine", "class_weight"),
    [("threads", "balanced"), ("threads", {"yes": 3}), pytest.param("ray", "balanced", marks=pytest.mark.slow)],
    ids=str,
)
def test_files_that_are_read_part_by_part(
    rows: pl.DataFrame, class_weight: Any, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.parquet"
    rows.write_parquet(path, row_group_size=100)
    expected = fit(rows, "w", class_weight=class_weight)
    if engine == "threads":
        monkeypatch.setattr("autocross.table.ingest.AT_ONCE", 0.0)
    assert not source_of(path, "bought", "w", Options(class_weight=class_weight, engine=engine)).in_memory
    assert same(fit(path, "w", class_weight=class_weight, engine=engine, n_jobs=1), expected)


def test_a_refit_has_the_weights_of_the_fit(rows: pl.DataFrame, tmp_path: Path) -> None:
    half, path = rows[::2], tmp_path / "model.acx"
    explicit = compute_sample_weight({"yes": 3}, half["bought"].to_numpy())
    model = fit(rows.drop("w"), class_weight={"yes": 3})
    model.save(path)
    half.write_parquet(tmp_path / "half.parquet")
    assert run(["refit", str(path), str(tmp_path / "half.parquet"), "-o", str(tmp_path / "again.acx"), "--quiet"]) == 0
    loaded = AutoCrossClassifier.load(path, quiet=True, engine="serial")
    assert loaded.class_weight == {"no": 1.0, "yes": 3.0}
    expected = fit(rows.drop("w"), class_weight={"yes": 3}).set_params(class_weight=None).refit(half, "bought", explicit)
    assert same(loaded.refit(half, "bought"), expected)
    assert same(AutoCrossClassifier.load(tmp_path / "again.acx"), expected)
    assert load(tmp_path / "again.acx").model.about.class_weight == (1.0, 3.0)
    arguments = ["refit", str(path), str(tmp_path / "half.parquet"), "-o", str(tmp_path / "again.acx"), "--quiet"]
    assert run([*arguments, "--class-weight", "balanced"]) == 0
    assert load(tmp_path / "again.acx").model.about.class_weight == "balanced"
    assert [rule.value for rule in load(tmp_path / "again.acx").model.about.rules if rule.name == "class_weight"] == ["balanced"]


def test_the_command_line(rows: pl.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = tmp_path / "rows.csv", tmp_path / "model.acx"
    rows.drop("w").write_csv(data)
    arguments = ["fit", str(data), "--target", "bought", "-o", str(out), "--quiet", "--max-crosses", "1", "--engine", "serial"]
    assert run([*arguments, "--class-weight", "yes=0.7", "--class-weight", "no=1.3"]) == 0
    assert same(AutoCrossClassifier.load(out), fit(rows.drop("w"), class_weight=WEIGHTS["both"]))
    assert run(["show", str(out), "--json"]) == 0
    assert "yes 0.7" in json.dumps(json.loads(capsys.readouterr().out))
    assert run([*arguments, "--class-weight", "balanced"]) == 0
    assert same(AutoCrossClassifier.load(out), fit(rows.drop("w"), class_weight="balanced"))
    for given in (["yes"], ["yes=three"], ["=3"], ["balanced", "yes=3"], ["yes=3", "yes=4"]):
        flags = [part for text in given for part in ("--class-weight", text)]
        assert run([*arguments, *flags]) == 2
        assert "Write --class-weight balanced, or once for each label" in capsys.readouterr().err
    assert run([*arguments, "--class-weight", "yes=-1"]) == 2
    assert "gives the label 'yes' the weight -1.0. Give a number above 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("even", r"class_weight='even' is unknown\. Give 'balanced', or labels and weights, as in \{'yes': 3\}"),
        (3, "class_weight=3 is unknown"),
        ({"yes": 0}, "gives the label 'yes' the weight 0"),
        ({"yes": float("nan")}, "gives the label 'yes' the weight nan"),
        ({"yes": float("inf")}, "gives the label 'yes' the weight inf"),
        ({"yes": 10**400}, "gives the label 'yes' the weight 1000"),
        ({"yes": True}, "gives the label 'yes' the weight True"),
        ({"yes": "3"}, "gives the label 'yes' the weight '3'"),
    ],
    ids=str,
)
def test_bad_weights_are_refused(given: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Options(class_weight=given)


def test_labels_that_there_are_not(rows: pl.DataFrame, tmp_path: Path) -> None:
    rows.write_parquet(tmp_path / "rows.parquet")
    for table in (rows, tmp_path / "rows.parquet"):
        with pytest.raises(OptionError, match="class_weight names the label 'maybe', but 'bought' holds 'no' and 'yes'"):
            fit(table, class_weight={"maybe": 3})
    numbers = rows.with_columns(bought=(pl.col("bought") == "yes").cast(pl.Int8))
    with pytest.raises(OptionError, match="class_weight names the label '1' twice"):
        fit(numbers, class_weight={1: 3, "1": 3})
    assert same(fit(numbers, class_weight={"1": 3}), fit(numbers, class_weight={1: np.float32(3)}))
    with pytest.raises(TableError, match="Sample weights times class_weight are beyond the range of weights"):
        fit(rows.drop("w"), np.full(N_ROWS, 1e37), class_weight={"yes": 1000})


def test_booleans_and_an_empty_mapping(rows: pl.DataFrame) -> None:
    truth = rows.drop("w").with_columns(bought=pl.col("bought") == "yes")
    explicit = compute_sample_weight({True: 2, False: 1}, truth["bought"].to_numpy())
    assert same(fit(truth, class_weight={True: 2}), fit(truth, explicit))
    assert same(fit(truth, class_weight={}), fit(truth))


@pytest.mark.slow
def test_wide_and_deep(rows: pl.DataFrame) -> None:
    explicit = compute_sample_weight("balanced", rows["bought"].to_numpy())
    options: dict[str, Any] = {"quiet": True, "max_crosses": 0, "epochs": 2, "n_jobs": 1}
    first = WideDeepClassifier(**options, class_weight="balanced").fit(rows.drop("w"), "bought")
    second = WideDeepClassifier(**options).fit(rows.drop("w"), "bought", explicit)
    np.testing.assert_array_equal(first.decision_function(rows), second.decision_function(rows))
