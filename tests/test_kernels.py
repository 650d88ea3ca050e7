"""Every kernel against its obvious version; ragged twins on the same rows."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from autocross import folds
from autocross.kernels import counting, logistic, scaling, slots, steps
from autocross.models import metrics
from reference import CodedRows
from strategies import coded_rows

UNIT = 2.0**40


def gathered(rows: CodedRows, ragged: bool) -> np.ndarray:
    sums = np.zeros((rows.n_codes, rows.offset.shape[1], 2), np.int64)
    common = (rows.label, rows.weight, rows.learners, np.exp(rows.offset), UNIT, sums)
    if ragged:
        logistic.gather_ragged(rows.codes, rows.starts, *common)
    else:
        logistic.gather(rows.codes, *common)
    return sums / UNIT


@pytest.mark.slow
@given(coded_rows())
def test_gather_matches_the_obvious_version(rows: CodedRows) -> None:
    np.testing.assert_allclose(gathered(rows, ragged=True), reference.gather(rows), rtol=1e-9, atol=1e-9)


@given(coded_rows(ragged=False))
def test_twins_agree_on_the_same_rows(rows: CodedRows) -> None:
    np.testing.assert_array_equal(gathered(rows, ragged=False), gathered(rows, ragged=True))
    n_models = rows.offset.shape[1]
    counts = [np.zeros((rows.n_codes, n_models), np.int64) for _ in range(2)]
    counting.count(rows.codes, rows.learners, counts[0])
    counting.count_ragged(rows.codes, rows.starts, rows.learners, counts[1])
    np.testing.assert_array_equal(*counts)
    delta = np.linspace(-1, 1, rows.n_codes * n_models).reshape(rows.n_codes, n_models)
    odds = [np.exp(rows.offset) for _ in range(2)]
    scaling.scale(rows.codes, np.exp(delta), odds[0])
    scaling.scale_ragged(rows.codes, rows.starts, np.exp(delta), odds[1])
    np.testing.assert_array_equal(*odds)
    losses = [np.zeros(2, np.int64) for _ in range(2)]
    deltas = np.stack([delta, -delta], axis=2)
    common = (rows.label, rows.weight, rows.fold, np.exp(rows.offset), np.exp(deltas), UNIT)
    logistic.try_scales(rows.codes, *common, losses[0])
    logistic.try_scales_ragged(rows.codes, rows.starts, *common, losses[1])
    np.testing.assert_array_equal(*losses)


@given(coded_rows())
def test_count_shift_and_losses_match_the_obvious_versions(rows: CodedRows) -> None:
    n_models = rows.offset.shape[1]
    counts = np.zeros((rows.n_codes, n_models), np.int64)
    counting.count_ragged(rows.codes, rows.starts, rows.learners, counts)
    np.testing.assert_array_equal(counts, reference.count(rows))
    delta = np.linspace(-1, 1, rows.n_codes * n_models).reshape(rows.n_codes, n_models)
    moved = np.exp(rows.offset)
    scaling.scale_ragged(rows.codes, rows.starts, np.exp(delta), moved)
    np.testing.assert_allclose(np.log(moved), reference.shift(rows, delta), rtol=1e-12, atol=1e-12)
    deltas = np.stack([delta, -2 * delta, 0 * delta], axis=2)
    losses = np.zeros(3, np.int64)
    logistic.try_scales_ragged(
        rows.codes, rows.starts, rows.label, rows.weight, rows.fold, np.exp(rows.offset), np.exp(deltas), UNIT, losses
    )
    np.testing.assert_allclose(losses / UNIT, reference.try_shifts(rows, deltas), rtol=1e-9, atol=1e-9)
    totals = np.zeros((n_models, 2), np.int64)
    logistic.total_loss(rows.label, rows.weight, rows.fold, np.exp(rows.offset), UNIT, totals)
    np.testing.assert_allclose(totals / UNIT, reference.total_loss(rows), rtol=1e-9, atol=1e-9)


@given(coded_rows(max_rows=12))
@settings(max_examples=30)
def test_gradient_and_curvature_are_derivatives_of_the_loss(rows: CodedRows) -> None:
    rows.offset[:] = np.clip(rows.offset, -3, 3)
    rows.forward = False  # then a model learns from all rows that do not judge it
    sums = gathered(rows, ragged=True)
    h = 1e-4
    for code in range(min(rows.n_codes, 7)):
        for k in range(rows.offset.shape[1]):
            values = []
            for move in (-h, 0.0, h):
                delta = np.zeros((rows.n_codes, rows.offset.shape[1]))
                delta[code, k] = move
                shifted = CodedRows(**{**vars(rows), "offset": reference.shift(rows, delta)})
                values.append(reference.total_loss(shifted)[k, 0])
            assert (values[2] - values[0]) / (2 * h) == pytest.approx(sums[code, k, 0], abs=1e-4)
            assert (values[2] - 2 * values[1] + values[0]) / h**2 == pytest.approx(sums[code, k, 1], abs=1e-3)


@pytest.mark.parametrize("y", [0, 1])
def test_a_weight_without_penalty_stops_where_nothing_changes_any_more(y: int) -> None:
    """One class only: the best intercept is infinite, and odds must stay finite."""
    label, weight, fold = np.full(5, y, np.uint8), np.ones(5, np.float32), np.full(5, 255, np.uint8)
    codes, odds, intercept = np.zeros(5, np.uint8), np.ones((5, 1)), np.zeros((1, 1))
    for _ in range(300):
        sums, delta = np.zeros((1, 1, 2), np.int64), np.zeros((1, 1))
        logistic.gather(codes, label, weight, fold, odds, UNIT, sums)
        steps.step(sums, UNIT, intercept, np.zeros((1, 1), bool), 0.0, 0.0, 1, delta)
        intercept += delta
        scaling.scale(codes, np.exp(delta), odds)
    assert 10 < abs(intercept[0, 0]) <= steps.FARTHEST
    assert np.isfinite(odds).all()
    assert logistic.row_loss(odds[0, 0], y) < 1e-4


@given(st.floats(-50, 50), st.floats(1e-6, 50), st.floats(0, 10), st.floats(-5, 5))
def test_best_move_minimises_the_bound(g: float, h: float, l1: float, w: float) -> None:
    def bound(u: float) -> float:
        return g * u + h * (math.expm1(abs(u)) - abs(u)) + l1 * abs(w + u)

    u = steps.best_move(g, h, l1, w)
    nearby = [u + sign * size for sign in (-1, 1) for size in (1e-6, 1e-3, 0.1)] + [0.0, -w]
    assert all(bound(u) <= bound(v) + 1e-9 * (1 + abs(bound(v))) for v in nearby)


def test_a_code_without_rows_and_penalty_does_not_move() -> None:
    assert steps.best_move(0.0, 0.0, 0.0, 0.3) == 0.0


@given(st.integers(1, 9), st.integers(0, 1000))
def test_a_chain_moves_by_newtons_step(m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    right, bend, hold = rng.normal(size=(2, m)), rng.random(m) + 0.1, np.append(0.0, rng.random(m - 1))
    bend += hold + np.append(hold[1:], 0.0)
    expected = np.linalg.solve(np.diag(bend) - np.diag(hold[1:], 1) - np.diag(hold[1:], -1), right.T).T
    steps.solve_chain(m, 2, bend, hold, right)
    np.testing.assert_allclose(right, expected, rtol=1e-9, atol=1e-12)


@given(coded_rows(), st.integers(1, 3))
def test_first_steps_are_steps_from_weight_zero(rows: CodedRows, width: int) -> None:
    sums = np.round(reference.gather(rows) * UNIT).astype(np.int64)
    tied = reference.count(rows) < 2
    tied[:2] = False
    zero, penalties = np.zeros(tied.shape), np.array([(0.0, 0.5), (0.3, 20.0)])
    factors, delta = np.empty((*tied.shape, 2)), np.empty(tied.shape)
    steps.tie(sums, tied)
    steps.first_steps(sums, UNIT, tied, penalties, width, factors)
    for t, (l1, l2) in enumerate(penalties.tolist()):
        steps.step(sums, UNIT, zero, tied, l1, l2, width, delta)
        np.testing.assert_allclose(factors[:, :, t], np.exp(delta), rtol=1e-12)


@given(st.floats(1e-300, 1e300))
def test_the_logarithm_is_that_of_the_c_library_but_for_the_last_bits(x: float) -> None:
    assert logistic.ln(x) == steps.ln(x) == pytest.approx(math.log(x), rel=1e-15, abs=1e-300)


def test_the_logarithm_is_exact_at_one() -> None:
    assert logistic.ln(1.0) == steps.ln(1.0) == 0.0


def test_rows_beyond_a_chunk_lose_what_they_do_one_by_one() -> None:
    rng = np.random.default_rng(0)
    n, n_codes, n_models, n_tries = 2 * logistic.CHUNK + 7, 9, 3, 2
    label, fold = (
        rng.integers(0, 2, n).astype(np.uint8),
        rng.integers(0, n_models + 1, n).astype(np.uint8),
    )  # some rows judge nobody
    codes, weight = rng.integers(0, n_codes, n).astype(np.uint8), rng.random(n).astype(np.float32)
    odds, factors = np.exp(rng.normal(size=(n, n_models))), np.exp(rng.normal(size=(n_codes, n_models, n_tries)))
    losses, totals = np.zeros(n_tries, np.int64), np.zeros((n_models, 2), np.int64)
    logistic.try_scales(codes, label, weight, fold, odds, factors, UNIT, losses)
    logistic.total_loss(label, weight, fold, odds, UNIT, totals)
    expected, expected_totals = np.zeros(n_tries), np.zeros((n_models, 2))
    for row in range(n):
        sign = 1 if label[row] == 0 else -1
        for k in range(n_models):
            expected_totals[k, int(k == fold[row])] += float(weight[row]) * math.log(1 + odds[row, k] ** sign)
        if fold[row] < n_models:
            moved = odds[row, fold[row]] * factors[codes[row], fold[row]]
            expected += float(weight[row]) * np.log(1 + moved**sign)
    np.testing.assert_allclose(losses / UNIT, expected, rtol=1e-9)
    np.testing.assert_allclose(totals / UNIT, expected_totals, rtol=1e-9)


@pytest.mark.parametrize("hashed", [True, False])
def test_slots_of_keys_are_counted_and_numbered(hashed: bool) -> None:
    rng = np.random.default_rng(1)
    n_slots, n_seen = 37, 60
    keys = rng.integers(0, 1 << 40 if hashed else n_slots, 100)
    slot, counts = np.zeros(100, np.uint32), np.zeros(n_slots, np.int64)
    slots.lay_out(keys, hashed, n_seen, slot, counts)
    assert slot.tolist() == [key % n_slots for key in keys]
    assert counts.tolist() == [int((slot[:n_seen] == at).sum()) for at in range(n_slots)]
    own, code = counts >= 2, np.zeros(n_slots, np.uint32)
    assert slots.number(np.packbits(own), 2, 1, code) == 2 + own.sum()
    assert code.tolist() == [2 + int(own[:at].sum()) if own[at] else 1 for at in range(n_slots)]


# One loss: kernels, judging and metrics have the same.


@given(st.lists(st.tuples(st.floats(-40, 40), st.integers(0, 1), st.floats(0.1, 3)), min_size=1))
def test_the_loss_of_a_row_is_the_obvious_one(rows: list[tuple[float, int, float]]) -> None:
    log_odds, label, weight = (np.array(column) for column in zip(*rows, strict=True))
    losses = np.empty(len(rows))
    logistic.row_losses(label.astype(np.uint8), np.exp(log_odds), losses)
    expected = [reference.loss(z, y) for z, y, _ in rows]
    np.testing.assert_allclose(losses, expected, rtol=1e-12, atol=1e-15)
    assert metrics.log_loss(label, log_odds, weight) == pytest.approx(np.average(expected, weights=weight), rel=1e-12, abs=1e-15)


def test_the_loss_of_impossible_odds() -> None:
    one = np.ones(1)
    for z in (-1e6, -np.inf):
        assert metrics.log_loss(np.array([1]), np.array([z]), one) == pytest.approx(metrics.MOST_LOG_ODDS)
        assert metrics.log_loss(np.array([0]), np.array([z]), one) == 0.0
    assert math.isnan(metrics.log_loss(np.array([1]), np.array([np.nan]), one))


# One number of folds, and kernels as plain Python.


def test_there_is_one_number_of_folds() -> None:
    assert folds.N_FOLDS is scaling.N_FOLDS
    assert folds.by_row(100, 0, False, "").n_models == scaling.N_FOLDS == logistic.MODELS == counting.MODELS


UNCOMPILED = """
import sys
import numpy as np
from autocross.kernels import logistic, scaling

rng = np.random.default_rng(0)
n, n_codes, n_models = 300, 40, scaling.N_FOLDS
codes, fold = rng.integers(0, n_codes, n).astype(np.uint8), rng.integers(0, n_models + 1, n).astype(np.uint8)
label, weight = rng.integers(0, 2, n).astype(np.uint8), rng.random(n).astype(np.float32)
odds, sums = np.exp(rng.normal(size=(n, n_models))), np.zeros((n_codes, n_models, 2), np.int64)
losses = np.zeros((n_models, 2), np.int64)
logistic.gather(codes, label, weight, fold, odds, 2.0**40, sums)
scaling.scale(codes, np.exp(sums[:, :, 0] / 2.0**42), odds)
logistic.total_loss(label, weight, fold, odds, 2.0**40, losses)
print(type(logistic.gather).__name__, *sums.ravel(), *losses.ravel())
"""


@pytest.mark.slow
def test_kernels_run_as_plain_python_to_the_same_bits() -> None:
    """As they do where coverage is measured: an instruction written for the compiler needs a twin."""
    told = []
    for disabled in ("0", "1"):
        environment = {**os.environ, "NUMBA_DISABLE_JIT": disabled}
        command = [sys.executable, "-W", "error", "-c", UNCOMPILED]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        told.append(done.stdout.split())
    assert [numbers[0] for numbers in told] == ["CPUDispatcher", "function"]
    assert told[0][1:] == told[1][1:]
    assert len(told[0]) > 400
