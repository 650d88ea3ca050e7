"""A new loss is a file of its own: the regression, the judge and a whole fit work with it as with the logistic one."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from scipy.optimize import minimize

import costly_misses
from autocross import AutoCrossClassifier
from autocross.blocks import INTERCEPT, make_blocks
from autocross.engines import SerialEngine
from autocross.events import Reporter
from autocross.features import FIRST, Field, FieldCodes, Penalty
from autocross.folds import ALL, FoldPlan, by_row
from autocross.models.logistic import Regression, again
from autocross.models.losses import LOGISTIC, LOSSES, Loss, register
from autocross.search.judging import Judge, Proposal
from autocross.search.policy import ONE_CROSS
from conftest import Steer
from costly_misses import COSTLY_MISSES
from reference import CodedRows
from strategies import coded_rows

UNIT = 2.0**40
SIZES = (4, 3, 5)
N_ROWS = 300


# The kernels of the new loss.


@given(coded_rows(max_rows=12))
def test_gradient_and_curvature_are_derivatives_of_the_loss(rows: CodedRows) -> None:
    rows.offset[:] = np.clip(rows.offset, -3, 3)
    n_models, h = rows.offset.shape[1], 1e-4
    sums = np.zeros((rows.n_codes, n_models, 2), np.int64)
    known = (rows.label, rows.weight, rows.fold)
    costly_misses.gather_ragged(rows.codes, rows.starts, *known, np.exp(rows.offset), UNIT, sums)
    row = np.repeat(np.arange(len(rows.label)), np.diff(rows.starts))
    for code in range(min(rows.n_codes, 7)):
        values = []
        for move in (-h, 0.0, h):
            moved, totals = rows.offset.copy(), np.zeros((n_models, 2), np.int64)
            np.add.at(moved, row, np.where(rows.codes == code, move, 0.0)[:, None])
            costly_misses.total_loss(*known, np.exp(moved), UNIT, totals)
            values.append(totals[:, 0] / UNIT)
        entries = np.bincount(row[rows.codes == code], minlength=len(rows.label))
        if entries.max(initial=0) <= 1:  # a row with the same code twice moves twice as far
            np.testing.assert_allclose((values[2] - values[0]) / (2 * h), sums[code, :, 0] / UNIT, atol=1e-4)
            np.testing.assert_allclose((values[2] - 2 * values[1] + values[0]) / h**2, sums[code, :, 1] / UNIT, atol=1e-3)


def test_the_steps_may_be_those_of_all_losses() -> None:
    """They need a third derivative that is at most the second, and sums need the two bounds."""
    z, h = np.linspace(-30, 30, 2001), 1e-5
    for loss in (COSTLY_MISSES, LOGISTIC):
        for y in (0, 1):
            label, bends = np.full(len(z), y, np.uint8), []
            for move in (-h, 0.0, h):
                sums = np.zeros((len(z), 1, 2), np.int64)
                weight, nobody = np.ones(len(z), np.float32), np.full(len(z), ALL, np.uint8)
                loss.kernels.gather(
                    np.arange(len(z), dtype=np.uint16), label, weight, nobody, np.exp(z + move)[:, None], 2.0**50, sums
                )
                assert (np.abs(sums) / 2.0**50 <= loss.steepest).all()
                bends.append(sums[:, 0, 1] / 2.0**50)
            assert (np.abs(bends[2] - bends[0]) / (2 * h) <= bends[1] * (1 + 1e-6) + 1e-9).all()
            farthest, losses = np.exp(np.array([-700.0, 700.0])), np.empty(2)
            loss.kernels.row_losses(np.full(2, y, np.uint8), farthest, losses)
            assert 0.0 <= losses.min() < losses.max() <= loss.largest


# The regression and the judge.


class Rows:
    """Rows whose labels depend on three fields, one of them with several codes in a row."""

    def __init__(self, ragged: bool) -> None:
        rng = np.random.default_rng(5)
        self.codes = [FieldCodes((rng.integers(0, size, N_ROWS) + FIRST).astype(np.uint8)) for size in SIZES]
        if ragged:
            own = [np.sort(rng.choice(SIZES[0], rng.integers(0, 4), replace=False)) + FIRST for _ in range(N_ROWS)]
            self.codes[0] = FieldCodes(np.concatenate(own).astype(np.uint8), np.cumsum([0, *map(len, own)]).astype(np.int64))
        self.fields = [
            Field(f"f{number}", f"f{number}", FIRST + size, shares_rare=False, width=coded.width)
            for number, (size, coded) in enumerate(zip(SIZES, self.codes, strict=True))
        ]
        z = sum(matrix @ rng.normal(0, 1, matrix.shape[1]) for matrix in self.one_hot())
        self.label = (rng.random(N_ROWS) < 1 / (1 + np.exp(-z))).astype(np.uint8)
        self.weight = rng.integers(1, 4, N_ROWS).astype(np.float32)

    def one_hot(self) -> list[Any]:
        matrices = []
        for field, coded in zip(self.fields, self.codes, strict=True):
            starts = np.arange(N_ROWS + 1) if coded.starts is None else coded.starts
            matrices.append(np.zeros((N_ROWS, field.n_codes)))
            np.add.at(matrices[-1], (np.repeat(np.arange(N_ROWS), np.diff(starts)), coded.codes), 1.0)
        return matrices

    def regression(self, engine: SerialEngine, plan: FoldPlan, fields: list[int], penalty: Penalty) -> Regression:
        engine.place(make_blocks(self.codes, self.label, self.weight, plan, 0, 3))
        regression = Regression.begin(engine, float(self.weight.sum()), plan.n_models, loss=COSTLY_MISSES)
        for number in fields:
            regression.add((number,), self.fields[number], penalty)
        return regression


@pytest.mark.parametrize("ragged", [False, True], ids=["single", "multivalue"])
def test_the_regression_finds_the_optimum_of_the_new_loss(ragged: bool) -> None:
    rows, penalty = Rows(ragged), Penalty(0.0, 2.0)
    matrix = np.concatenate([np.ones((N_ROWS, 1)), *rows.one_hot()], axis=1)

    def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
        odds = np.exp(matrix @ w)
        g, _ = costly_misses.slopes(rows.label, odds)
        value = rows.weight @ costly_misses.loss(rows.label, odds) + penalty.l2 / 2 * (w[1:] ** 2).sum()
        return float(value), matrix.T @ (rows.weight * g) + penalty.l2 * np.append(0.0, w[1:])

    expected = minimize(objective, np.zeros(matrix.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-6})
    with SerialEngine() as engine:
        plan = FoldPlan(1, False, listed=np.full(N_ROWS, ALL, np.uint8))
        regression = rows.regression(engine, plan, [0, 1, 2], penalty)
        former = regression.objective()
        for _ in range(5):
            regression.sweep()
            assert regression.objective() < former
            former = regression.objective()
        regression.converge(1e-14, 5000)
        assert regression.objective()[0] == pytest.approx(expected.fun, rel=1e-9)
        w = np.concatenate([regression.terms[cross].weight[:, 0] for cross in [INTERCEPT, (0,), (1,), (2,)]])
        np.testing.assert_allclose(matrix @ w, matrix @ expected.x, atol=1e-4)


def log_odds_of(regression: Regression, rows: Rows, fold: np.ndarray) -> np.ndarray:
    """Of each row, under the model that did not learn from it."""
    weights = regression.terms[INTERCEPT].weight[0, fold]
    for number, matrix in enumerate(rows.one_hot()):
        if (number,) in regression.terms:
            weights = weights + (matrix * regression.terms[(number,)].weight[:, fold].T).sum(axis=1)
    return weights


def test_a_proposal_is_judged_by_the_new_loss() -> None:
    rows, folds = Rows(ragged=False), by_row(N_ROWS, 0, False, "")
    with SerialEngine() as engine:
        regression = again(rows.regression(engine, folds.plan, [0, 1], Penalty(0.0, 1.0)))
        assert regression.loss is COSTLY_MISSES
        judge = Judge(engine, Reporter(), 0, lambda regression: -regression.left_out_loss())
        judge.remember(regression)
        former, score = log_odds_of(regression, rows, folds.fold), -regression.left_out_loss()
        with_it = regression.branch()
        with_it.add((2,), rows.fields[2], Penalty(0.0, 1.0))
        verdict = judge.judge(Proposal("f2", [], with_it, ONE_CROSS, began=0.0), has_crosses=False, former_score=score, round=1)
        assert verdict is not None
        gain, error = judge.gain(with_it)  # after the last sweeps, to which the verdict's gain does not belong
        latter = log_odds_of(with_it, rows, folds.fold)
        lost = [rows.weight * costly_misses.loss(rows.label, np.exp(log_odds)) for log_odds in (former, latter)]
        gains = (lost[0] - lost[1]) / rows.weight.mean()
        assert (gain, error) == pytest.approx((gains.mean(), gains.std() / np.sqrt(N_ROWS)), rel=1e-6)
        assert verdict.score == pytest.approx(-lost[1].sum(), rel=1e-9)


# A whole fit.


@pytest.mark.parametrize("metric", ["auc", "log_loss"])
def test_a_fit_reduces_the_new_loss(people: pl.DataFrame, monkeypatch: pytest.MonkeyPatch, steer: Steer, metric: str) -> None:
    steer(first_errors=-9.0, errors=-9.0, lift=-9.0)  # crosses are accepted
    monkeypatch.setattr("autocross.fitting.run.LOGISTIC", COSTLY_MISSES)
    model = AutoCrossClassifier(quiet=True, engine="serial", max_crosses=1, metric=metric).fit(people, "bought")
    assert len(model.crosses_) == 1
    p, label = model.predict_proba(people.drop("bought"))[:, 1], people["bought"].to_numpy()
    # The gradient of the intercept, which has no penalty, is zero.
    assert 2 * (1 - p[label == 1]).sum() == pytest.approx(p[label == 0].sum(), rel=0.01)


# Registering.


@pytest.mark.slow
def test_a_loss_goes_to_another_process_by_its_name() -> None:
    for loss in (LOGISTIC, COSTLY_MISSES):
        assert pickle.loads(pickle.dumps(loss)) is loss
    code = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()).steepest)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    sent = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(COSTLY_MISSES), capture_output=True, env=environment)
    assert sent.stdout.split() == [b"2.0"], sent.stderr


def test_two_losses_cannot_have_one_name() -> None:
    assert LOSSES == {"logistic": LOGISTIC, "costly misses": COSTLY_MISSES}
    with pytest.raises(AssertionError, match="there is a loss 'logistic' already"):
        register(Loss("logistic", costly_misses, 1.0, 1.0))
