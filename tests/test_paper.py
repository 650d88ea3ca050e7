"""The experiments: conditional mutual information, a run that is taken up again, and tables from results."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

sys.path.append(str(Path(__file__).parents[1] / "paper"))
import cmi_lr
import methods
import report
import run

pytestmark = pytest.mark.slow


def alike(n: int = 600) -> pl.DataFrame:
    """A label that two columns tell together and neither alone, and a third column of noise."""
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(0, 3, n) for _ in range(3))
    label = (rng.random(n) < np.where(a == b, 0.9, 0.2)).astype(np.int8)
    return pl.DataFrame({"a": a.astype(str), "b": b.astype(str), "c": c.astype(str), "label": label})


def test_mutual_information_is_the_likelihood_that_a_cross_would_add() -> None:
    rng = np.random.default_rng(1)
    cross, label, given = rng.integers(0, 4, 200), rng.integers(0, 2, 200).astype(np.uint8), rng.uniform(0.2, 0.8, 200)
    expected = 0.0
    for value in range(4):
        rows = np.flatnonzero(cross == value)
        rate, known = label[rows].mean(), given[rows].mean()
        for row in rows:
            expected += math.log(rate / known) if label[row] else math.log((1 - rate) / (1 - known))
    assert cmi_lr.mutual_information(cross, label, given) == pytest.approx(expected / 200)


def test_a_cross_that_the_model_knows_tells_nothing_more() -> None:
    cross, label = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1], np.uint8)
    assert cmi_lr.mutual_information(cross, label, np.array([0.5, 0.5, 1.0, 1.0])) == pytest.approx(0.0, abs=1e-6)


def test_cmi_lr_finds_the_pair_that_tells_the_label() -> None:
    rows = alike()
    method = methods.CmiLR()
    method.fit(rows)
    names = method.base.get_feature_names_out().tolist()
    assert [names[at] for at in method.pairs[0]] == ["a", "b"]
    base = methods.METHODS["LR (base)"]()
    base.fit(rows)
    label = rows["label"].to_numpy()
    crossed, plain = (np.mean((one.score(rows) > 0.5) == label) for one in (method, base))
    assert crossed > plain + 0.1
    row = rows.drop("label").row(0, named=True)
    assert method.score_one(row) == pytest.approx(method.score(rows.head(1))[0])


def test_a_run_is_taken_up_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    table = tmp_path / "mine.parquet"
    alike().rename({"label": "bought"}).write_parquet(table)
    monkeypatch.setattr(run, "HERE", tmp_path)
    arguments = ["--data", str(table), "--target", "bought", "--methods", "LR (base)", "--quick"]
    run.main(arguments)
    assert "0 cells are known, 1 to run" in capfd.readouterr().err
    results = tmp_path / "results-mine-quick.jsonl"
    (record,) = map(json.loads, results.read_text().splitlines())
    assert 0 < record["auc"] < 1
    assert min(record["seconds"], record["one_us"], record["batch_us"]) > 0
    assert {"commit", "date", "changed"} <= record.keys()
    run.main(arguments)
    shown = capfd.readouterr()
    assert "1 cells are known, 0 to run" in shown.err
    assert f"{record['auc']:.4f}" in shown.out
    assert len(results.read_text().splitlines()) == 1


def test_what_failed_is_run_again(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    cell = {"dataset": "bank", "method": "AC+LR", "seed": 0, "commit": "0123abc", "date": "2026-01-31 23:59"}
    without_stamp = {"dataset": "bank", "method": "AC+LR", "seed": 2, "stopped": 900}
    records = [{**cell, "failed": "no memory"}, {**cell, "seed": 1, "stopped": 900}, without_stamp]
    results.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert [key[2] for key in run.known(results)] == [1]


def test_differences_are_paired_by_seed() -> None:
    cells = [("AC+LR", 0, 0.92), ("AC+LR", 1, 0.95), ("EBM", 1, 0.94)]
    results = report.Results([{"dataset": "bank", "method": method, "seed": seed, "auc": auc} for method, seed, auc in cells])
    difference, error, n = results.difference("AC+LR", "EBM", "bank")
    assert (difference, n) == (pytest.approx(0.01), 1)
    assert math.isnan(error)
    assert "AC+LR is above EBM on 1 of 1" in report.verdicts(results)


def test_a_table_that_is_not_there(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        run.main(["--data", "nowhere.parquet", "--methods", "LR (base)"])
    assert "there is no file 'nowhere.parquet'; give the path of a Parquet file" in capsys.readouterr().err


def test_a_method_that_was_too_slow_once_is_not_tried_on_other_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alike().write_parquet(tmp_path / "mine.parquet")
    ran: list[int] = []

    def stopped(cell: dict[str, object]) -> dict[str, object]:
        ran.append(int(str(cell["seed"])))
        return {**cell, "stopped": run.LIMIT}

    monkeypatch.setattr(run, "HERE", tmp_path)
    monkeypatch.setattr(run, "in_a_process", stopped)
    arguments = ["--data", str(tmp_path / "mine.parquet"), "--methods", "LR (base)"]
    run.main(arguments)
    run.main(arguments)
    assert ran == [0]


def test_where_the_paper_has_more_is_said() -> None:
    records = [{"method": "Deep", "dataset": name, "seed": 0, "auc": auc} for name, auc in (("bank", 0.9419), ("adult", 0.9))]
    (line,) = report.below_paper(report.Results(records))
    assert line == "- Deep is below the paper's number on Adult 0.9000 [0.9130]."
