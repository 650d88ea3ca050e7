"""Errors of weights, and intervals around scores."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from autocross import AutoCrossClassifier, load
from autocross.blocks import make_blocks
from autocross.engines import SerialEngine
from autocross.errors import AutoCrossError, OptionError
from autocross.features import Field, FieldCodes, Penalty, in_order
from autocross.fitting.errors import drawn
from autocross.folds import FoldPlan
from autocross.kernels import draws as kernels
from autocross.models.draws import HALF, N_DRAWS, Drawing, draw, stir
from autocross.models.logistic import Regression
from autocross.producer.draws import Draws, rises
from autocross.search.stopping import Stopped, Why
from autocross.serving.intervals import quantile

PLACES = np.array([-1.0, -0.3, 0.3, 1.0])
N_A, N_B, N_ROWS = 6, 5, 300


def truth(n: int, seed: int) -> tuple[pl.DataFrame, np.ndarray]:
    """A table with a category and a number, and the log-odds of its rows."""
    rng = np.random.default_rng(seed)
    kind, size = rng.integers(0, 6, n), rng.normal(0, 1, n)
    effect = np.array([-1.0, -0.5, 0.0, 0.2, 0.6, 1.0])
    return pl.DataFrame({"kind": [f"k{one}" for one in kind], "size": size}), effect[kind] + 0.8 * size - 0.5


@pytest.fixture(scope="module")
def fitted() -> AutoCrossClassifier:
    frame, log_odds = truth(1500, 1)
    label = (np.random.default_rng(2).random(len(log_odds)) < 1 / (1 + np.exp(-log_odds))).astype(int)
    return AutoCrossClassifier(quiet=True, n_jobs=1).fit(frame, label)


def small_regression(penalty: Penalty, n_blocks: int = 2) -> tuple[Regression, np.ndarray]:
    """A regression of two fields, and the matrix of its rows."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, N_A, N_ROWS).astype(np.uint8)
    b = np.minimum(a // 2 + rng.integers(0, 3, N_ROWS), N_B - 1).astype(np.uint8)
    label = (rng.random(N_ROWS) < 1 / (1 + np.exp(-0.6 * (a - 2.5) + 0.4 * b))).astype(np.uint8)
    engine = SerialEngine()
    engine.place(make_blocks([FieldCodes(a), FieldCodes(b)], label, np.ones(N_ROWS, np.float32), FoldPlan(1, True), 0, n_blocks))
    regression = Regression.begin(engine, float(N_ROWS), 1, everyone=True)
    regression.add((0,), Field("a", "a", N_A, False, chain=in_order(N_A, PLACES)), penalty)
    regression.add((1,), Field("b", "b", N_B, False), Penalty(0.0, 1.0))
    regression.converge(1e-9)
    matrix = np.zeros((N_ROWS, 1 + N_A + N_B))
    matrix[:, 0] = matrix[np.arange(N_ROWS), 1 + a] = matrix[np.arange(N_ROWS), 1 + N_A + b] = 1.0
    return regression, matrix


def covariance(regression: Regression, matrix: np.ndarray, penalty: Penalty) -> np.ndarray:
    """The inverse of the matrix of the penalised loss."""
    weights = np.concatenate([regression.terms[term].weight[:, 0] for term in ((), (0,), (1,))])
    p = 1 / (1 + np.exp(-matrix @ weights))
    of_a = penalty.l2 * np.eye(N_A)
    for code in range(3, N_A):
        step = np.zeros(N_A)
        step[[code - 1, code]] = -1.0, 1.0
        of_a += penalty.smooth * np.outer(step, step)
    if penalty.slope:
        line = of_a @ np.concatenate([[0, 0], PLACES])
        of_a -= np.outer(line, line) / (line @ np.concatenate([[0, 0], PLACES]) + penalty.slope)
    whole = matrix.T @ (matrix * (p * (1 - p))[:, None])
    whole[1 : 1 + N_A, 1 : 1 + N_A] += of_a
    whole[1 + N_A :, 1 + N_A :] += np.eye(N_B)
    return np.linalg.inv(whole)


@pytest.mark.slow
@pytest.mark.parametrize("penalty", [Penalty(0.0, 3.0), Penalty(0.0, 1.0, 20.0), Penalty(0.0, 10.0, 20.0, 5.0)], ids=str)
def test_draws_have_the_covariance_of_the_penalised_loss(penalty: Penalty) -> None:
    regression, matrix = small_regression(penalty)
    found = []
    for seed in range(150):
        drawing = Drawing(regression, seed, 1.0)
        drawing.pulls = drawing.prior  # as they are, whatever size the weights have
        drawing.engine.each(stir, seed, drawing.unit, slice(HALF, N_DRAWS))
        drawing.sweep(8)
        found.append(matrix @ np.concatenate([drawing.deviations[term] for term in ((), (0,), (1,))]))
    errors = np.sqrt(np.mean(np.square(np.concatenate(found, axis=1)), axis=1))
    expected = np.sqrt(np.einsum("ij,jk,ik->i", matrix, covariance(regression, matrix, penalty), matrix))
    np.testing.assert_allclose(errors, expected, rtol=0.08)


def test_draws_do_not_depend_on_how_rows_are_spread() -> None:
    one, several = (draw(small_regression(Penalty(0.0, 10.0, 20.0, 5.0), n_blocks)[0], 7) for n_blocks in (1, 3))
    for term, deviations in one.items():
        np.testing.assert_array_equal(deviations, several[term])


def test_a_sample_that_stands_for_all_rows_gives_errors_of_all_rows() -> None:
    regression, matrix = small_regression(Penalty(0.0, 3.0))
    alone, standing_for = (draw(regression, 7, times) for times in (1.0, 16.0))
    errors = [
        np.sqrt(np.mean((matrix @ np.concatenate([found[term] for term in ((), (0,), (1,))])) ** 2))
        for found in (alone, standing_for)
    ]
    assert 2.5 < errors[0] / errors[1] < 5.0


def test_pulls_of_rows_are_gathered_and_moved_alike_where_rows_have_several_codes() -> None:
    rng = np.random.default_rng(0)
    codes, bend = rng.integers(0, 7, 50).astype(np.uint8), rng.random(50).astype(np.float32)
    starts, delta = np.arange(51), rng.normal(0, 1e4, (7, N_DRAWS)).astype(np.float32)
    pulls = rng.integers(-1000, 1000, (50, N_DRAWS)).astype(np.int32)
    ragged, sums, ragged_sums = pulls.copy(), np.zeros((7, N_DRAWS), np.int64), np.zeros((7, N_DRAWS), np.int64)
    expected = pulls + (bend[:, None] * delta[codes]).astype(np.int32)
    kernels.move_pulls(codes, bend, delta, pulls)
    kernels.move_pulls_ragged(codes, starts, bend, delta, ragged)
    np.testing.assert_array_equal(pulls, expected)
    np.testing.assert_array_equal(ragged, expected)
    kernels.gather_pulls(codes, pulls, sums)
    kernels.gather_pulls_ragged(codes, starts, pulls, ragged_sums)
    by_code = np.zeros((7, N_DRAWS), np.int64)
    np.add.at(by_code, codes, pulls)
    np.testing.assert_array_equal(sums, by_code)
    np.testing.assert_array_equal(ragged_sums, by_code)


def test_every_weight_has_an_error(fitted: AutoCrossClassifier) -> None:
    weights = fitted.weights_
    assert weights["error"].null_count() == 0
    seen = weights.filter((pl.col("term") == "kind") & (pl.col("rows") > 100))
    assert 0.03 < seen["error"].min() < seen["error"].max() < 0.5


def test_intervals_of_one_row_and_of_many_are_the_same(fitted: AutoCrossClassifier, tmp_path: Path) -> None:
    frame, _ = truth(50, 3)
    fitted.save(tmp_path / "model.acx")
    scorer = load(tmp_path / "model.acx")
    many, row = scorer.score_interval(frame), scorer.score_interval(frame.to_dicts()[7])
    assert row == tuple(float(bound[7]) for bound in many)
    assert (many.low < many.probability).all() and (many.probability < many.high).all()
    assert row.probability == scorer.score_one(frame.to_dicts()[7])
    for bound, in_memory in zip(many, fitted.score_interval(frame), strict=True):
        np.testing.assert_array_equal(bound, in_memory)
    assert scorer.score_interval(frame.to_pandas().iloc[7]) == row
    wider = scorer.score_interval(frame.to_dicts()[7], level=0.99)
    assert wider.low < row.low and wider.high > row.high


def test_an_interval_covers_the_true_probability_in_most_rows(fitted: AutoCrossClassifier) -> None:
    frame, log_odds = truth(2000, 4)
    low, _, high = fitted.score_interval(frame)
    true = 1 / (1 + np.exp(-log_odds))
    assert ((low <= true) & (true <= high)).mean() > 0.8


@pytest.mark.parametrize("level", [0, 1, -0.5, 1.5, "high", None, True, float("nan")])
def test_a_level_that_is_none_is_refused(fitted: AutoCrossClassifier, level: object) -> None:
    with pytest.raises(OptionError, match="is no level of an interval"):
        fitted.score_interval({"kind": "k1"}, level)  # type: ignore[arg-type]


def test_a_model_without_draws_says_why(fitted: AutoCrossClassifier) -> None:
    smaller = next(iter(fitted.model_.smaller.values()), None)
    if smaller is None:
        return
    assert smaller.draws is None
    with pytest.raises(AutoCrossError, match="does not know the errors of its weights"):
        fitted.at(0).score_interval({"kind": "k1"})


def test_draws_are_left_out_when_the_time_is_up() -> None:
    regression, _ = small_regression(Penalty(0.0, 3.0))

    class Stopping:
        @staticmethod
        def check_spare() -> None:
            raise Stopped(Why.TIME_IS_UP)

    class Run:
        engine, stopping, seed = regression.engine, Stopping, 0

    assert drawn(Run, regression) is None  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_model_without_time_has_no_errors() -> None:
    frame, log_odds = truth(1500, 1)
    classifier = AutoCrossClassifier(quiet=True, n_jobs=1, time_limit=0.0).fit(frame, (log_odds > 0).astype(int))
    assert classifier.model_.draws is None or classifier.weights_["error"].null_count() == 0


@pytest.mark.slow
def test_a_refit_makes_new_draws(fitted: AutoCrossClassifier) -> None:
    frame, log_odds = truth(6000, 5)
    label = (np.random.default_rng(6).random(len(log_odds)) < 1 / (1 + np.exp(-log_odds))).astype(int)
    again = AutoCrossClassifier(quiet=True, n_jobs=1)
    again.__setstate__(fitted.__getstate__())
    again.refit(frame, label)
    rows = truth(500, 7)[0]
    before, after = fitted.score_interval(rows), again.score_interval(rows)
    assert (after.high - after.low).mean() < (before.high - before.low).mean()


def test_a_byte_of_every_deviation_is_enough() -> None:
    rng = np.random.default_rng(0)
    deviations = rng.normal(0, 0.1, (40, N_DRAWS))
    deviations[0] *= 100.0
    draws = Draws.rounded(np.zeros(N_DRAWS), [deviations])
    np.testing.assert_allclose(draws.of(0, np.arange(40)), deviations, atol=0.02, rtol=0.01)


def test_rises_are_steps_on_both_sides() -> None:
    np.testing.assert_allclose(rises(np.array([0.0, 1.0, 3.0])), [1.0, 1.5, 2.0])


def test_quantiles_are_those_of_student() -> None:
    assert math.isclose(quantile(0.9, 10), 1.8124611, rel_tol=1e-6)
    assert math.isclose(quantile(0.5, 2), 0.8164966, rel_tol=1e-6)
