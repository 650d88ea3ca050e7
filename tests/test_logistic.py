"""Logistic regression: scikit-learn's optimum, a loss that never rises, warm starts, ties of rare codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.sparse import csr_matrix, hstack
from sklearn.linear_model import LogisticRegression

import reference
from autocross.blocks import INTERCEPT, Cross, make_blocks
from autocross.crossing import CrossCoder
from autocross.encoding.encoder import Encoder
from autocross.encoding.plan import EncodingPlan
from autocross.engines import Engine, SerialEngine
from autocross.features import FIRST, Field, FieldCodes, Penalty, in_order
from autocross.folds import ALL, FoldPlan
from autocross.models import metrics, tuning
from autocross.models.logistic import Regression, smoothness_and_line
from autocross.table.coerce import typed
from autocross.table.inference import infer


class Problem:
    """Some fields of codes with labels, and the same as a one-hot matrix."""

    def __init__(self, seed: int, n_rows: int, sizes: list[int], ragged: bool = False, weighted: bool = False) -> None:
        rng = np.random.default_rng(seed)
        self.sizes = sizes
        self.codes = [FieldCodes(rng.integers(0, size, n_rows).astype(np.uint16)) for size in sizes]
        if ragged:
            rows = [np.sort(rng.choice(sizes[0], rng.integers(0, 4), replace=False)) for _ in range(n_rows)]
            starts = np.cumsum([0, *map(len, rows)]).astype(np.int64)
            self.codes[0] = FieldCodes(np.concatenate(rows).astype(np.uint16), starts)
        z = sum(self.one_hot()[at] @ rng.normal(0, 1, size) for at, size in enumerate(sizes))
        self.label = (rng.random(n_rows) < 1 / (1 + np.exp(-z))).astype(np.uint8)
        self.weight = (rng.integers(1, 4, n_rows) if weighted else np.ones(n_rows)).astype(np.float32)
        self.width = 3 if ragged else 1

    def one_hot(self) -> list[csr_matrix]:
        parts = []
        for one, size in zip(self.codes, self.sizes, strict=True):
            starts = np.arange(one.n_rows + 1) if one.starts is None else one.starts
            parts.append(csr_matrix((np.ones(len(one.codes)), one.codes.astype(int), starts), shape=(one.n_rows, size)))
        return parts

    def regression(
        self, penalty: Penalty, engine: Engine | None = None, fold: Any = None, n_models: int = 1, **more: Any
    ) -> Regression:
        engine = engine or SerialEngine()
        fold = np.full(len(self.label), ALL, np.uint8) if fold is None else fold
        engine.place(make_blocks(self.codes, self.label, self.weight, FoldPlan(n_models, False, listed=fold), 0, 3))
        regression = Regression.begin(engine, float(self.weight.sum()), n_models, **more)
        for at, size in enumerate(self.sizes):
            width = self.width if at == 0 else 1
            regression.add((at,), Field(f"f{at}", f"f{at}", size, bool(more), width), penalty)
        return regression

    def probability(self, regression: Regression) -> np.ndarray:
        z = regression.terms[INTERCEPT].weight[0, 0] + sum(
            part @ regression.terms[(at,)].weight[:, 0] for at, part in enumerate(self.one_hot())
        )
        return 1 / (1 + np.exp(-z))


def sklearn_probability(one_hot: list[csr_matrix], label: np.ndarray, weight: np.ndarray, penalty: Penalty) -> np.ndarray:
    """scikit-learn's optimum. Its liblinear and saga scale the loss by C: l1 = ratio / C, l2 = (1 - ratio) / C."""
    total = penalty.l1 + penalty.l2
    mixed = {"l1_ratio": penalty.l1 / total, "solver": "saga"} if penalty.l1 else {"solver": "newton-cholesky"}
    model = LogisticRegression(C=1 / total, tol=1e-10, max_iter=200_000, **mixed)
    if penalty.l1 and getattr(model, "penalty", None) == "l2":  # before scikit-learn 1.8, the ratio alone did not say it
        model.set_params(penalty="elasticnet")
    matrix = hstack(one_hot, format="csr")
    return model.fit(matrix, label, weight).predict_proba(matrix)[:, 1]


@pytest.mark.slow
@pytest.mark.parametrize("penalty", [Penalty(0, 1), Penalty(0, 30), Penalty(2, 0), Penalty(1, 0.5)], ids=str)
@pytest.mark.parametrize("ragged", [False, True], ids=["single", "multivalue"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_equals_scikit_learns_optimum(penalty: Penalty, ragged: bool, weighted: bool) -> None:
    problem = Problem(3, 300, [6, 9, 4], ragged, weighted)
    regression = problem.regression(penalty)
    regression.converge(1e-16, 20_000)
    expected = sklearn_probability(problem.one_hot(), problem.label, problem.weight, penalty)
    np.testing.assert_allclose(problem.probability(regression), expected, atol=1e-5)


@pytest.mark.parametrize("tied", [{}, {"min_count": 12}], ids=["all", "rare ones tied"])
def test_centring_lowers_the_objective_and_moves_no_odds(tied: dict[str, int]) -> None:
    problem = Problem(3, 300, [6, 40, 4])
    regression = problem.regression(Penalty(0, 1), **tied)
    regression.move((0,), np.full((6, 1), 0.7))
    regression.move((1,), np.full((40, 1), -0.2))
    before, odds = regression.objective(), [block.odds.copy() for block in regression.engine.blocks]
    regression.centre(tuple(regression.terms))
    assert regression.objective() < before
    np.testing.assert_allclose(regression.terms[(0,)].weight, 0.0, atol=1e-9)
    np.testing.assert_allclose(regression.terms[INTERCEPT].weight, 0.5, atol=1e-9)
    regression.restore()  # from the weights alone
    for block, was in zip(regression.engine.blocks, odds, strict=True):
        np.testing.assert_allclose(block.odds, was)


def test_a_row_without_a_value_keeps_a_field_from_being_centred() -> None:
    assert FieldCodes(np.array([2, 3]), np.array([0, 1, 1, 2])).width == 2
    problem = Problem(3, 300, [6, 9], ragged=True)
    regression = problem.regression(Penalty(0, 1))
    regression.move((0,), np.full((6, 1), 0.7))
    regression.centre(tuple(regression.terms))
    assert (regression.terms[(0,)].weight == 0.7).all()


@pytest.mark.slow
@pytest.mark.parametrize("penalty", [Penalty(0, 3), Penalty(3, 0), Penalty(2, 2)], ids=str)
def test_equals_scikit_learns_optimum_on_real_rows(penalty: Penalty, benchmark_data: Callable[[str], pl.DataFrame]) -> None:
    frame = benchmark_data("adult_train").head(2000)
    label = frame["label"].to_numpy().astype(np.uint8)
    frame = frame.select("workclass", "education", "age", "hours_per_week", tags=pl.concat_list("marital_status", "relationship"))
    schema = infer(frame, {}, {})
    table = typed(frame, schema)
    encoder = Encoder.fit(schema, table.columns, EncodingPlan(2, (10,), quantiles=False))
    problem = Problem.__new__(Problem)
    problem.codes, problem.sizes = encoder.encode(table), [field.n_codes for field in encoder.fields]
    problem.label, problem.weight, problem.width = label, np.ones(len(label), np.float32), 1
    engine = SerialEngine()
    engine.place(
        make_blocks(problem.codes, label, problem.weight, FoldPlan(1, False, listed=np.full(len(label), ALL, np.uint8)), 0, 2)
    )
    regression = Regression.begin(engine, float(len(label)), 1)
    for at, field in enumerate(encoder.fields):
        regression.add((at,), field, penalty)
    regression.converge(1e-15, 5000)
    expected = sklearn_probability(problem.one_hot(), label, problem.weight, penalty)
    np.testing.assert_allclose(problem.probability(regression), expected, atol=1e-5)


def assert_it_never_rises(regression: Regression) -> None:
    """The penalised loss of every model, over some sweeps."""
    before = regression.objective()
    for _ in range(15):
        regression.sweep()
        after = regression.objective()
        assert (after <= before + 1e-9 * (1 + np.abs(before))).all()
        before = after


@given(
    st.integers(0, 10_000),
    st.sampled_from([Penalty(0, 0.01), Penalty(0, 1), Penalty(0, 100), Penalty(1, 0), Penalty(0.3, 0.1)]),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_the_loss_never_rises(seed: int, penalty: Penalty, ragged: bool, warm: bool) -> None:
    problem = Problem(seed, 60, [5, 8], ragged)
    regression = problem.regression(penalty)
    if warm:  # a far start, where Newton's undamped step diverges
        regression.move((1,), np.random.default_rng(seed).normal(0, 5, (8, 1)))
    assert_it_never_rises(regression)


def with_neighbours(regression: Regression, penalty: Penalty) -> Regression:
    """The same regression, the codes of its second field being neighbours."""
    term = regression.terms[(1,)]
    places = np.random.default_rng(1).normal(size=term.field.n_codes - FIRST).cumsum()
    term.field, term.penalty = replace(term.field, chain=in_order(term.field.n_codes, places - places.mean())), penalty
    return regression


HELD = [Penalty(0, 0.01, 0.1), Penalty(0, 0.01, 1000.0), Penalty(0, 3.0, 0.0, 1.0), Penalty(0, 0.01, 3.0, 0.1)]


@given(st.integers(0, 10_000), st.sampled_from(HELD), st.booleans())
@settings(max_examples=40, deadline=None)
def test_the_loss_never_rises_while_neighbours_are_held_together(seed: int, penalty: Penalty, warm: bool) -> None:
    problem = Problem(seed, 60, [5, 12])
    fold = (np.arange(60) % 2).astype(np.uint8)
    min_count = 1 if penalty.slope else 3  # only bins of numbers have a line, and these are never tied
    regression = with_neighbours(problem.regression(Penalty(), None, fold, 2, min_count=min_count), penalty)
    if warm:
        start = np.random.default_rng(seed).normal(0, 5, (12, 2))
        regression.move((1,), np.where(regression.terms[(1,)].tied, start[1], start))
    assert_it_never_rises(regression)


@pytest.mark.parametrize("penalty", [Penalty(0, 0.5, 7.0), Penalty(0, 5.0, 0.0, 0.5), Penalty(0, 0.5, 70.0, 0.5)], ids=str)
def test_neighbours_held_together_end_at_the_optimum_of_a_general_optimiser(penalty: Penalty) -> None:
    problem = Problem(4, 300, [6, 15])
    regression = with_neighbours(problem.regression(replace(penalty, slope=0.0)), penalty)
    chain = regression.terms[(1,)].field.chain
    assert chain is not None
    regression.converge(1e-16, 20_000)
    matrix = hstack([csr_matrix(np.ones((300, 1))), *problem.one_hot()], format="csr")

    def objective(parameters: np.ndarray) -> float:
        weight, slope = parameters[:-1], parameters[-1] if penalty.slope else 0.0
        z = matrix @ weight
        loss = np.logaddexp(0, np.where(problem.label == 1, -z, z)).sum()
        off = weight[1:].copy()
        off[6:] -= slope * chain.place  # the distances of the second field's weights from the line
        held = penalty.l2 / 2 * (off**2).sum() + penalty.smooth / 2 * (np.diff(off[6 + FIRST :]) ** 2).sum()
        return float(loss + held + penalty.slope / 2 * slope**2)

    best = minimize(objective, np.zeros(matrix.shape[1] + 1), method="BFGS", options={"gtol": 1e-6})
    assert regression.objective()[0] == pytest.approx(best.fun, rel=1e-9)
    np.testing.assert_allclose(problem.probability(regression), 1 / (1 + np.exp(-(matrix @ best.x[:-1]))), atol=1e-4)


def in_direction(regression: Regression, penalty: Penalty, direction: int) -> Regression:
    """The same regression, the weights of its second field being monotone."""
    field = with_neighbours(regression, penalty).terms.pop((1,)).field
    assert field.chain is not None
    regression.add((1,), replace(field, chain=replace(field.chain, direction=direction)), penalty)
    return regression


@given(
    st.integers(0, 10_000), st.sampled_from([*HELD, Penalty(0.3, 0.1), Penalty(0, 0.1)]), st.sampled_from([1, -1]), st.booleans()
)
@settings(max_examples=40, deadline=None)
def test_the_loss_never_rises_while_weights_are_monotone(seed: int, penalty: Penalty, direction: int, warm: bool) -> None:
    problem = Problem(seed, 60, [5, 12])
    fold = (np.arange(60) % 2).astype(np.uint8)
    min_count = 1 if penalty.slope else 3
    regression = in_direction(problem.regression(Penalty(), None, fold, 2, min_count=min_count), penalty, direction)
    term = regression.terms[(1,)]
    assume(not (penalty.slope and term.tied.any()))  # centring is made for lines whose places have a mean of zero
    if warm and not term.tied.any():
        regression.move((1,), direction * np.sort(np.random.default_rng(seed).normal(0, 5, (12, 2)), axis=0))
    assert_it_never_rises(regression)
    free = np.diff(term.weight[FIRST:], axis=0)
    assert (direction * free >= -1e-12).all()


@given(st.integers(0, 10_000), st.sampled_from([1, -1]))
@settings(max_examples=20, deadline=None)
def test_the_loss_never_rises_if_a_row_has_several_monotone_codes(seed: int, direction: int) -> None:
    regression = Problem(seed, 60, [8, 4], ragged=True).regression(Penalty())
    field = regression.terms.pop((0,)).field
    regression.add((0,), replace(field, chain=in_order(8, direction=direction)), Penalty(0, 0.1))
    assert_it_never_rises(regression)
    assert (direction * np.diff(regression.terms[(0,)].weight[FIRST:, 0]) >= -1e-12).all()


@pytest.mark.parametrize("penalty", [Penalty(0, 0.5), Penalty(0, 0.5, 7.0), Penalty(0, 0.5, 7.0, 0.5)], ids=str)
@pytest.mark.parametrize("direction", [1, -1])
def test_monotone_weights_end_at_the_optimum_of_a_general_optimiser(penalty: Penalty, direction: int) -> None:
    problem = Problem(4, 300, [3, 9])
    regression = in_direction(problem.regression(replace(penalty, slope=0.0, smooth=0.0)), penalty, direction)
    chain = regression.terms[(1,)].field.chain
    assert chain is not None
    regression.converge(1e-16, 20_000)
    matrix = hstack([csr_matrix(np.ones((300, 1))), *problem.one_hot()], format="csr")

    def objective(parameters: np.ndarray) -> float:
        weight, slope = parameters[:-1], parameters[-1] if penalty.slope else 0.0
        z, off = matrix @ weight, weight[1:].copy()
        off[3:] -= slope * chain.place
        held = penalty.l2 / 2 * (off**2).sum() + penalty.smooth / 2 * (np.diff(off[3 + FIRST :]) ** 2).sum()
        return float(np.logaddexp(0, np.where(problem.label == 1, -z, z)).sum() + held + penalty.slope / 2 * slope**2)

    ordered = {"type": "ineq", "fun": lambda parameters: direction * np.diff(parameters[1 + 3 + FIRST : -1])}
    best = minimize(objective, np.zeros(matrix.shape[1] + 1), method="SLSQP", constraints=[ordered], options={"ftol": 1e-13})
    assert regression.objective()[0] == pytest.approx(best.fun, rel=1e-7)


def test_a_rare_code_is_passed_over_and_its_gap_kept() -> None:
    chain = in_order(7)
    tied = np.array([False, False, False, True, False, False, False])
    weight = np.array([9.0, 9.0, 1.0, 5.0, 3.0, 3.0, 2.0])
    rough = (3 - 1) ** 2 / 2 + 0 + 1
    assert smoothness_and_line(chain, weight, tied, Penalty(0.0, 1.0, 10.0)) == pytest.approx(10.0 / 2 * rough)


def test_neighbours_of_a_cross_differ_along_its_finest_ordered_field() -> None:
    parts = [Field("n", "n", 6, False, chain=in_order(6)), Field("c", "c", 4, True), Field("m", "m", 5, False, chain=in_order(5))]
    values = np.array([(0, 2, 2), (2, 2, 2), (2, 2, 3), (3, 2, 2), (3, 3, 2), (5, 2, 2), (5, 3, 2)], np.uint32)
    chain = CrossCoder((0, 1, 2), (6, 4, 5), values).chain(parts)
    assert chain is not None
    rows = [tuple(values[code - FIRST].tolist()) if code >= FIRST else code for code in chain.order.tolist()]
    linked = [(before, after, gap) for (before, after), gap in zip(pairwise(rows), chain.gap[1:].tolist(), strict=True) if gap]
    assert linked == [((2, 2, 2), (3, 2, 2), 1), ((3, 2, 2), (5, 2, 2), 2), ((3, 3, 2), (5, 3, 2), 2)]


def test_a_warm_start_ends_at_the_same_optimum_in_fewer_sweeps() -> None:
    problem = Problem(1, 400, [7, 5, 9])
    cold = problem.regression(Penalty(0, 2))
    from_zero = cold.converge(1e-13)
    weights = {cross: term.weight[:, 0] * 1.05 for cross, term in cold.terms.items()}
    expected = problem.probability(cold)
    warm = problem.regression(Penalty(0, 2))
    for cross, weight in weights.items():
        warm.move(cross, weight[:, None])
    assert warm.converge(1e-13) < from_zero
    np.testing.assert_allclose(problem.probability(warm), expected, atol=1e-6)


def test_fields_that_promise_little_rest_until_all_promise_too_little() -> None:
    problem = Problem(1, 400, [7, 5, 9, 3, 30, 12])
    regression = problem.regression(Penalty(0, 2))
    sums, steps = regression.sums, 0

    def counted(cross: Cross, *moved: Any) -> Any:
        nonlocal steps
        steps += 1
        return sums(cross, *moved)

    regression.sums = counted  # type: ignore[method-assign]
    sweeps = regression.converge(1e-7)
    assert sweeps < 1000 and steps < sweeps * len(regression.terms)
    assert regression.sweep() < 1e-7


def test_models_side_by_side_equal_models_alone() -> None:
    problem = Problem(5, 300, [6, 4])
    fold = (np.arange(300) % 3).astype(np.uint8)
    together = problem.regression(Penalty(0, 1), fold=fold, n_models=3)
    for _ in range(20):
        together.sweep()
    for k in range(3):
        kept = fold != k
        alone = Problem.__new__(Problem)
        alone.codes = [one.take(np.flatnonzero(kept)) for one in problem.codes]
        alone.label, alone.weight, alone.sizes, alone.width = problem.label[kept], problem.weight[kept], problem.sizes, 1
        single = alone.regression(Penalty(0, 1))
        for _ in range(20):
            single.sweep()
        for cross, term in single.terms.items():
            np.testing.assert_allclose(together.terms[cross].weight[:, k], term.weight[:, 0], atol=1e-7)


def test_codes_rare_for_a_model_share_the_weight_of_the_rare_code() -> None:
    problem = Problem(2, 200, [40, 3])
    fold = (np.arange(200) % 2).astype(np.uint8)
    regression = problem.regression(Penalty(0, 1), fold=fold, n_models=2, min_count=3)
    regression.converge(1e-10)
    term = regression.terms[(0,)]
    for k in range(2):
        counts = np.bincount(problem.codes[0].codes[fold != k], minlength=40)
        rare = np.flatnonzero(counts[2:] < 3) + 2
        assert len(rare) > 0
        np.testing.assert_allclose(term.weight[rare, k], term.weight[1, k], rtol=0, atol=1e-12)


def test_tuning_finds_strong_penalties_for_noise_and_weak_ones_for_signal() -> None:
    rng = np.random.default_rng(0)
    n = 3000
    problem = Problem.__new__(Problem)
    problem.sizes, problem.width = [4, 200], 1
    problem.codes = [FieldCodes(rng.integers(0, size, n).astype(np.uint16)) for size in problem.sizes]
    problem.weight = np.ones(n, np.float32)
    z = np.array([-2.0, -1.0, 1.0, 2.0])[problem.codes[0].codes]
    problem.label = (rng.random(n) < 1 / (1 + np.exp(-z))).astype(np.uint8)
    fold = (np.arange(n) % 5).astype(np.uint8)
    regression = problem.regression(Penalty(0, 1), fold=fold, n_models=5)
    said: list[str] = []
    shared = tuning.tune_shared(regression, said.append, with_l1=False)
    tuning.tune_fields(regression, shared, said.append)
    assert regression.terms[(0,)].penalty.l2 <= 3
    assert regression.terms[(1,)].penalty.l2 >= 100  # 15 rows a code: their weights are held within a few hundredths
    assert said


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(-3, 3), st.sampled_from([0.5, 1.0, 2.0])), max_size=30))
def test_auc_counts_pairs(rows: list[tuple[int, int, float]]) -> None:
    label, score, weight = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    ours = metrics.auc(np.array(label), np.array(score, float), np.array(weight, float))
    np.testing.assert_allclose(ours, reference.auc(label, score, weight), atol=1e-12)


def test_log_loss_and_accuracy_match_scikit_learn() -> None:
    from sklearn.metrics import accuracy_score, log_loss

    rng = np.random.default_rng(1)
    label, score, weight = rng.integers(0, 2, 50), rng.normal(size=50), rng.random(50)
    p = 1 / (1 + np.exp(-score))
    assert metrics.log_loss(label, score, weight) == pytest.approx(log_loss(label, p, sample_weight=weight))
    assert metrics.accuracy(label, score, weight) == pytest.approx(accuracy_score(label, p > 0.5, sample_weight=weight))
