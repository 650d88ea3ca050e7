"""Sample weights say how rows count against each other: their unit changes nothing, and no sum leaves its 64 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from autocross import AutoCrossClassifier
from autocross.blocks import make_blocks
from autocross.engines import SerialEngine
from autocross.errors import TableError
from autocross.features import Field, FieldCodes, Penalty, in_order
from autocross.folds import FoldPlan
from autocross.models.logistic import Regression
from autocross.producer.model import Model

N = 3_000


def crossed(n_rows: int = N) -> tuple[pl.DataFrame, np.ndarray[Any, Any]]:
    """Rows whose label depends on a cross, and lognormal weights."""
    rng = np.random.default_rng(11)
    a, b = rng.integers(0, 5, n_rows), rng.integers(0, 5, n_rows)
    log_odds = 2.5 * ((a + b) % 2) - 1.2
    frame = pl.DataFrame(
        {
            "a": [f"a{code}" for code in a],
            "b": [f"b{code}" for code in b],
            "x": rng.normal(size=n_rows),
            "label": (rng.random(n_rows) < 1 / (1 + np.exp(-log_odds))).astype(int),
        }
    )
    return frame, rng.lognormal(0, 1, n_rows)


def noise(seed: int, n_rows: int = 2_000) -> tuple[pl.DataFrame, np.ndarray[Any, Any]]:
    """Rows whose label depends on nothing, and lognormal weights."""
    rng = np.random.default_rng(seed)
    columns = {f"c{at}": [f"v{code}" for code in rng.integers(0, 8, n_rows)] for at in range(5)}
    return pl.DataFrame({**columns, "label": rng.integers(0, 2, n_rows)}), rng.lognormal(0, 1, n_rows)


def fitted(frame: pl.DataFrame, weight: Any, **options: Any) -> Model:
    return AutoCrossClassifier(quiet=True, **options).fit(frame, "label", weight).model_


def crosses_of(model: Model) -> list[tuple[str, ...]]:
    return [cross.fields for cross in model.about.crosses]


@pytest.mark.slow
@pytest.mark.parametrize("power", [-100, -20, 13, 27, 100])
def test_weights_times_a_power_of_two_give_the_same_model_to_the_bit(power: int) -> None:
    frame, weight = crossed()
    one, other = fitted(frame, weight), fitted(frame, np.ldexp(weight.astype(np.float32), power))
    assert crosses_of(one)
    assert (one.about.crosses, one.intercept) == (other.about.crosses, other.intercept)
    assert one.penalties == other.penalties
    assert one.about.score == other.about.score
    for ours, theirs in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1e-12, 0.3, 1e4, 3.7e8])
def test_weights_times_any_factor_give_the_same_crosses(factor: float) -> None:
    frame, weight = crossed()
    one, other = fitted(frame, weight), fitted(frame, factor * weight)
    assert crosses_of(one) == crosses_of(other) != []
    for ours, theirs in zip(one.weights, other.weights, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    for ours, theirs in zip(one.about.crosses, other.about.crosses, strict=True):
        assert (ours.gain, ours.error) == pytest.approx((theirs.gain, theirs.error), rel=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_large_weights_accept_no_more_noise_than_small_ones(seed: int) -> None:
    frame, weight = noise(seed)
    assert crosses_of(fitted(frame, weight)) == crosses_of(fitted(frame, 1e4 * weight)) == crosses_of(fitted(frame, 1e8 * weight))


def test_the_error_of_a_gain_is_right_however_unequal_the_weights_are() -> None:
    """A row that weighs as much as all others together is most of the error; it must not vanish in an overflow."""
    frame, weight = noise(1)
    weight[7] = 1e7 * weight.sum()
    assert crosses_of(fitted(frame, weight)) == []


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.0, 2.0**30, 1e7])
@pytest.mark.parametrize("other", [1.0, 2.0**-20, 1e8])
def test_a_refit_weighs_rows_against_penalties_as_the_fit_did(factor: float, other: float) -> None:
    """In whatever unit the weights of the new rows come."""
    frame, weight = crossed()
    clf = AutoCrossClassifier(quiet=True).fit(frame, "label", factor * weight)
    before = clf.model_.weights
    for ours, theirs in zip(clf.refit(frame, "label", other * weight).model_.weights, before, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=0.01)


@pytest.mark.parametrize("bad", [1e-46, 1e-39, 1e39, -1.0, float("nan")])
def test_a_weight_that_cannot_be_held_is_refused_by_name(bad: float) -> None:
    frame, weight = crossed(200)
    weight[7] = bad
    with pytest.raises(TableError, match=r"Sample weight .* in row 7 .*Give 0, or a number from 1e-37 to 1e\+38"):
        fitted(frame, weight)


def test_files_and_memory_weigh_alike(tmp_path: Path) -> None:
    """Out of core the mean weight is known after the first pass only."""
    frame, weight = crossed()
    frame = frame.with_columns(w=5e6 * weight)
    frame.write_parquet(tmp_path / "rows.parquet")
    clf = AutoCrossClassifier(quiet=True, memory_limit=0.25)
    from autocross.table import files

    one = clf.fit(frame, "label", "w").model_
    former, files.CELL = files.CELL, 1 << 20
    try:
        other = clf.fit(tmp_path / "rows.parquet", "label", "w").model_
    finally:
        files.CELL = former
    assert (one.intercept, one.about.crosses) == (other.intercept, other.about.crosses)


def multivalue(width: int, n_rows: int = 64) -> Regression:
    """A regression on one multi-value field, each row holding so many codes that only it has."""
    starts = np.arange(n_rows + 1, dtype=np.int64) * width
    codes = FieldCodes((2 + np.arange(n_rows * width)).astype(np.uint32), starts)
    label = (np.arange(n_rows) % 2).astype(np.uint8)
    engine = SerialEngine()
    engine.place(make_blocks([codes], label, np.ones(n_rows, np.float32), FoldPlan(1, holdout=True), 0, 1))
    regression = Regression.begin(engine, float(n_rows), 1, min_count=2, everyone=True)
    regression.add((0,), Field("tags", "tags", 2 + n_rows * width, shares_rare=True, width=width), Penalty(0.0, 1.0))
    return regression


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 7, 8, 40, 1000])
def test_many_rare_values_in_a_row_add_up_without_overflow(width: int) -> None:
    """All values are rare and share a weight: its curvature is a quarter of the rows' weight, once for every value."""
    regression = multivalue(width)
    sums = regression.sums((0,))
    assert sums[1, 0, 1] / regression.unit_of((0,)) == pytest.approx(64 * width / 4)
    before = regression.objective()[0]
    regression.converge(1e-9, 20)
    assert regression.objective()[0] <= before


def test_a_promise_beyond_64_bits_is_cut_not_wrapped() -> None:
    """A strong penalty that meets large weights promises more than a sum of gradients may hold."""
    n_rows = 4
    codes = FieldCodes(np.arange(2, 2 + n_rows, dtype=np.uint8))
    engine = SerialEngine()
    label = np.array([0, 1, 0, 1], np.uint8)
    engine.place(make_blocks([codes], label, np.ones(n_rows, np.float32), FoldPlan(1, holdout=True), 0, 1))
    for penalty in (Penalty(0.0, 1e9), Penalty(0.0, 1e9, 1e9)):
        regression = Regression.begin(engine, float(n_rows), 1, everyone=True)
        weight = np.array([0.0, 0.0, 50.0, -50.0, 50.0, -50.0])[:, None]
        field = Field("x", "x", 6, shares_rare=False, chain=in_order(6))
        regression.add((0,), field, penalty, weight)
        assert regression.sweep([(0,)]) > 1.0


def test_a_refit_makes_room_for_longer_lists() -> None:
    """Steps of a multi-value field are divided by the most values a row has; new rows may have more than those of the fit."""
    rng = np.random.default_rng(2)

    def rows(most: int, n_rows: int = 600) -> pl.DataFrame:
        tags = [[f"t{tag}" for tag in rng.choice(30, rng.integers(1, most + 1), replace=False)] for _ in range(n_rows)]
        return pl.DataFrame({"tags": tags, "label": [int("t1" in row or rng.random() < 0.2) for row in tags]})

    clf = AutoCrossClassifier(quiet=True).fit(rows(3), "label")
    (before,) = clf.model_.producer.fields
    (after,) = clf.refit(rows(20), "label").model_.producer.fields
    assert (before.width, after.width) == (3, 20)
