"""The command line, in process: data on stdout, logs on stderr, exit codes, JSON for machines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from autocross import load
from autocross.cli import run
from autocross.producer.features import Features


@pytest.fixture
def data(people: pl.DataFrame, tmp_path: Path) -> Path:
    path = tmp_path / "people.parquet"
    people.write_parquet(path)
    return path


def flat(people: pl.DataFrame) -> pl.DataFrame:
    """`people` as a CSV can hold it."""
    return people.with_columns(tags=pl.col("tags").list.join("|"))


def test_fit_writes_a_model_and_says_so_as_json(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "m.acx"
    assert run(["fit", str(data), "--target", "bought", "-o", str(model), "--max-crosses", "0", "--json", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    facts = json.loads(out)
    assert facts["n_rows"] == 400
    assert 0.6 < facts["validation_score"] < 1
    assert 0 < load(model).score_one({"job": "cook"}) < 1


def test_fit_shows_progress_on_stderr_only(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fit", str(data), "--target", "bought", "-o", str(tmp_path / "m.acx")]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "tuning penalties" in err
    assert "saved" in err


def test_fit_takes_every_option(people: pl.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    flat(people).with_columns(w=pl.lit(1.5), shop=pl.Series(np.arange(400) % 7)).write_csv(path)
    arguments = ["fit", str(path), "--target", "bought", "-o", str(tmp_path / "m.acx"), "--quiet", "--weight", "w"]
    arguments += ["--type", "tags=multivalue:|", "--type", "rooms=numerical", "--exclude", "born", "--positive", "0"]
    arguments += ["--metric", "log_loss", "--granularities", "5", "--granularities", "20", "--bins", "quantile"]
    arguments += ["--min-count", "3", "--penalty", "shared", "--evaluation", "holdout", "--groups", "shop"]
    arguments += ["--engine", "serial", "--n-jobs", "1", "--random-state", "4", "--journal", str(tmp_path / "j.jsonl")]
    assert run(arguments) == 0
    model = load(tmp_path / "m.acx").model
    assert model.about.classes == (1, 0)
    assert len(set(model.penalties)) == 1
    kinds = {column.name: column.kind for column in model.producer.encoder.schema}
    expected = {"tags": "multivalue", "rooms": "numerical", "born": "ignore", "shop": "ignore", "job": "categorical"}
    assert expected.items() <= kinds.items()
    assert "w" not in kinds
    assert {rule.name: rule.value for rule in model.about.rules}["split"] == "group"
    assert (tmp_path / "j.jsonl").exists()


def test_evaluate_prints_one_flat_object(saved_model: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", str(saved_model), str(data), "--target", "bought", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"auc", "log_loss", "accuracy", "n_rows", "brier", "ece", "ks", "gini"} <= set(found)
    assert found["n_rows"] == 400
    assert 0.7 < found["auc"] < 1
    assert run(["evaluate", str(saved_model), str(data)]) == 0
    assert "auc" in capsys.readouterr().out


def test_evaluate_of_one_class_has_no_auc(
    saved_model: Path, people: pl.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    people.filter(pl.col("bought") == 1).write_parquet(tmp_path / "ones.parquet")
    assert run(["evaluate", str(saved_model), str(tmp_path / "ones.parquet"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["auc"] is None


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_predict_writes_probabilities(saved_model: Path, data: Path, people: pl.DataFrame, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"scores.{ending}"
    assert run(["predict", str(saved_model), str(data), "-o", str(out)]) == 0
    scores = pl.read_csv(out) if ending == "csv" else pl.read_parquet(out)
    np.testing.assert_allclose(scores["probability"].to_numpy(), load(saved_model).score(people), rtol=1e-12)
    assert ((scores["probability"] > 0.5) == (scores["prediction"] == 1)).all()


def test_predict_writes_intervals(saved_model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "scores.csv"
    for _ in range(2):  # what is there is a table of predictions, and may be replaced
        assert run(["predict", str(saved_model), str(data), "--interval", "0.9", "-o", str(out)]) == 0
    scores = pl.read_csv(out)
    assert scores.columns == ["probability", "prediction", "low", "high"]
    assert ((scores["low"] < scores["probability"]) & (scores["probability"] < scores["high"])).all()
    out.unlink()
    for level in ("0", "1", "high"):
        assert run(["predict", str(saved_model), str(data), "--interval", level, "-o", str(out)]) == 2
        assert not out.exists()
    assert "is no level of an interval" in capsys.readouterr().err


def test_predict_without_a_file_prints_csv(saved_model: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", str(saved_model), str(data)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines()[0] == "probability,prediction"
    assert len(out.splitlines()) == 401


def test_transform_writes_readable_columns(saved_model: Path, data: Path, people: pl.DataFrame, tmp_path: Path) -> None:
    out = tmp_path / "features.parquet"
    assert run(["transform", str(saved_model), str(data), "-o", str(out)]) == 0
    features = pl.read_parquet(out)
    assert features.columns == Features(load(saved_model).model).names
    assert features["job"].to_list() == people["job"].fill_null("(missing)").to_list()


def test_transform_to_codes_refuses_several_codes_a_row(
    saved_model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["transform", str(saved_model), str(data), "--codes", "-o", str(tmp_path / "f.csv")]) == 2
    assert "'tags' has several codes" in capsys.readouterr().err
    assert not (tmp_path / "f.csv").exists()


def test_show_names_rules_columns_and_fields(saved_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", str(saved_model), "--all"]) == 0
    text = capsys.readouterr().out
    for word in ("bought", "min_count", "granularities", "split", "multivalue", "born.month", "validation auc"):
        assert word in text
    assert run(["show", str(saved_model), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [column["name"] for column in found["columns"]][:2] == ["age", "born"]
    assert [tuple(one["columns"]) for one in found["crosses"]] == [one.columns for one in load(saved_model).model.about.crosses]


def test_explain_a_row_of_a_file_or_of_json(
    saved_model: Path, data: Path, people: pl.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", str(saved_model), str(data), "--row", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["probability"] == load(saved_model).score_one(people.row(3, named=True))
    assert run(["explain", str(saved_model), '{"job": "cook", "age": 30}']) == 0
    assert "job = cook" in capsys.readouterr().out
    assert run(["explain", str(saved_model), str(data), "--row", "400"]) == 2
    assert "rows 0 to 399" in capsys.readouterr().err
    assert run(["explain", str(saved_model), "{job: cook}"]) == 2
    assert "no JSON object" in capsys.readouterr().err


def test_refit_learns_new_weights_for_the_same_fields(saved_model: Path, people: pl.DataFrame, tmp_path: Path) -> None:
    flipped = tmp_path / "flipped.parquet"
    people.with_columns(bought=1 - pl.col("bought")).write_parquet(flipped)
    assert run(["refit", str(saved_model), str(flipped), "-o", str(tmp_path / "new.acx"), "--quiet"]) == 0
    old, new = load(saved_model), load(tmp_path / "new.acx")
    assert new.model.producer.names == old.model.producer.names
    assert np.corrcoef(old.log_odds(people), new.log_odds(people))[0, 1] < -0.9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit"], "requires an argument"),
        (["fly"], "fly"),
        (["fit", "x.csv", "--target", "y", "-o", "m.acx", "--type", "zip"], "--type COLUMN=KIND"),
        (["fit", "x.csv", "--target", "y", "-o", "m.acx", "--metric", "f1"], "f1"),
        (["fit", "x.csv", "--target", "y", "-o", "m.acx", "--max-crosses", "-3"], "max_crosses=-3"),
        (["fit", "x.csv", "--target", "y", "-o", "m.acx", "--n-jobs", "0"], "n_jobs=0"),
        (["fit", "x.csv", "--target", "y", "-o", "no/such/folder/m.acx"], "no/such/folder"),
        (["fit", "x.csv", "--target", "y", "-o", "m.acx"], "no file 'x.csv'"),
        (["show", "m.acx"], "no model file 'm.acx'"),
    ],
    ids=lambda value: " ".join(value[:1] + value[-2:]) if isinstance(value, list) else "",
)
def test_bad_usage_is_exit_code_2_with_a_message(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_our_own_failure_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("a bug")

    assert run([], broken) == 1
    assert "failed: ZeroDivisionError: a bug" in capsys.readouterr().err
