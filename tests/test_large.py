"""The rules of large tables, on small ones: penalties chosen on a sample, finalists, values that are rare on a rung."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score

from autocross import AutoCrossClassifier, needs
from autocross.blocks import OF_ROWS, make_blocks, narrow, widen
from autocross.engines import SerialEngine
from autocross.errors import TableError
from autocross.features import FIRST, Field, FieldCodes
from autocross.fitting import tune
from autocross.folds import FoldPlan
from autocross.models import tuning
from autocross.models.logistic import Regression
from autocross.search import fieldwise, loop
from autocross.search.policy import AUTO
from autocross.search.stopping import Stopped, Why

N = 6000


def planted(seed: int = 0) -> pl.DataFrame:
    """Two columns that matter together, one that matters alone, a number, and twice the rows that a fit gets."""
    rng = np.random.default_rng(seed)
    a, b, c = rng.integers(0, 6, (3, 2 * N))
    number = rng.normal(size=2 * N)
    log_odds = rng.normal(0, 1, (6, 6))[a, b] + rng.normal(0, 0.7, 6)[c] + 0.5 * number - 0.5
    label = rng.random(2 * N) < 1 / (1 + np.exp(-log_odds))
    texts = {name: [f"v{code}" for code in column.tolist()] for name, column in (("a", a), ("b", b), ("c", c))}
    return pl.DataFrame({**texts, "number": number, "label": label.astype(np.uint8)})


def fitted(**options: Any) -> tuple[AutoCrossClassifier, float]:
    frame = planted()
    model = AutoCrossClassifier(quiet=True, **{"engine": "serial"} | options).fit(frame[:N], "label")
    return model, float(roc_auc_score(frame[N:]["label"], model.predict_proba(frame[N:])[:, 1]))


def test_penalties_chosen_on_a_sample_serve_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, auc_of_whole = fitted(evaluation="holdout")
    monkeypatch.setattr(tune, "TUNING_ROWS", 1500)
    sampled, auc = fitted(evaluation="holdout")
    assert auc > auc_of_whole - 0.005
    assert sampled.crosses_[0].columns == whole.crosses_[0].columns == ("a", "b")
    assert sampled.model_.penalties != whole.model_.penalties
    in_blocks, _ = fitted(evaluation="holdout", engine="threads", n_jobs=3)
    np.testing.assert_array_equal(np.concatenate(in_blocks.model_.weights), np.concatenate(sampled.model_.weights))


@pytest.mark.parametrize("stage", ["tune_shared", "tune_fields"])
def test_a_stop_while_the_sample_is_tuned_leaves_a_model_of_all_rows(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "TUNING_ROWS", 1500)

    def stop(*arguments: Any, **options: Any) -> None:
        raise Stopped(Why.TIME_IS_UP)

    monkeypatch.setattr(tuning, stage, stop)
    model, auc = fitted()
    assert not model.crosses_
    assert auc > 0.6
    frame = planted()[:N]
    mean = float(frame["label"].mean())  # type: ignore[arg-type]
    assert model.predict_proba(frame)[:, 1].mean() == pytest.approx(mean, abs=1e-3)  # as a fit to all rows has it


def test_rows_that_need_more_than_the_memory_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "OF_ROW", 100_000)
    with pytest.raises(
        TableError, match=r"6,000 rows in 9 fields need some 0\.62 GiB of memory, and memory_limit is 0\.25 GiB\. Raise it"
    ):
        fitted(memory_limit=0.25)
    fitted(memory_limit=1, max_crosses=0)


def test_a_narrow_block_is_wide_again() -> None:
    rng = np.random.default_rng(0)
    codes = [FieldCodes(rng.integers(0, 9, 1000).astype(np.uint8)), FieldCodes(rng.integers(0, 9, 2000).astype(np.uint8))]
    codes[1] = FieldCodes(codes[1].codes, np.arange(0, 2001, 2))
    label, weight = rng.integers(0, 2, 1000).astype(np.uint8), np.ones(1000, np.float32)
    (block,) = make_blocks(codes, label, weight, FoldPlan(5, False), 0, 1)
    before = {name: getattr(block, name) for name in ("codes", *OF_ROWS)}
    narrow(block, 300)
    assert 250 < block.n_rows < 350
    assert block.codes[(1,)].n_rows == block.n_rows == len(block.row)
    widen(block)
    assert all(getattr(block, name) is value for name, value in before.items())
    widen(block)  # nothing to do
    assert block.n_rows == 1000


def test_the_last_few_compete_on_all_rows() -> None:
    assert AUTO.rungs.plan(1888, 10_000_000, 0.25)[-2:] == [(256_000, 29), (10_000_000, 8)]
    assert AUTO.rungs.plan(8, 10_000_000, 0.25) == [(10_000_000, 8)]


def test_a_value_needs_its_share_of_rows_on_a_rung() -> None:
    """With 40 rows to a value, a cross of 36 values would have none on a rung of a tenth of the rows."""
    frame = planted()[:N]
    columns = [(frame[name].str.slice(1).cast(pl.UInt8) + FIRST).to_numpy() for name in ("a", "b")]
    fields = [Field(name, name, FIRST + 6, shares_rare=True) for name in ("a", "b")]
    with SerialEngine() as engine:
        codes = [FieldCodes(column) for column in columns]
        engine.place(make_blocks(codes, frame["label"].to_numpy(), np.ones(N, np.float32), FoldPlan(5, False), 0, 2))
        regression = Regression.begin(engine, float(N), 5, min_count=40)
        regression.converge(1e-6)
        contest = fieldwise.Contest("log_loss", AUTO.plain)
        rung = fieldwise.rung(engine, regression, contest, N // 10, N // 10, N)
        assert rung.least == 4
        cross = fieldwise.candidate((0, 1), fields)
        ((gain, _),) = fieldwise.gains(engine, regression, contest, [cross], rung)
        ((nothing, _),) = fieldwise.gains(engine, regression, contest, [cross], replace(rung, least=40))
    assert gain > 10
    assert nothing < 1


def test_parts_that_gain_nearly_as_much_come_first() -> None:
    class Columns(loop.Search):
        def __init__(self) -> None:
            self.policy = AUTO

        def columns(self, cross: tuple[int, ...]) -> frozenset[str]:
            return frozenset(map(str, cross))

    def scored(gain: float, *cross: int) -> fieldwise.Candidate:
        return fieldwise.Candidate(cross, (2,) * len(cross), 1, gain=gain)

    three, pair, weak, other = scored(10.0, 1, 2, 3), scored(9.85, 1, 3), scored(9.0, 1, 2), scored(9.9, 4, 5)
    assert Columns().simpler_first([three, other, pair, weak]) == [pair, three, other, weak]
