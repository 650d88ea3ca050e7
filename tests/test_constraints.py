"""Constraints in the fit: monotone columns, crosses that must be there, forbidden ones, and crosses of too many values."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autocross import AutoCrossClassifier, WideDeepClassifier, checkpoint, load
from autocross.cli import run
from autocross.encoding.discretize import Bins
from autocross.errors import BundleError, OptionError, TableWarning
from autocross.features import FIRST, in_order
from autocross.fitting import search as fitting_search
from autocross.kernels import rising
from autocross.producer import bundle
from autocross.producer.model import Model
from autocross.producer.monotone import require_monotone, violations
from autocross.producer.words import in_words, summary
from autocross.search.stopping import Stopped, Why
from autocross.serving.scorer import Scorer

N = 3_000
WAYS = {"age": "increasing", "debt": "decreasing"}
FAR = [-math.inf, -1e308, -1e6, 1e6, 1e308, math.inf]


def people(n_rows: int = N, seed: int = 0) -> pl.DataFrame:
    """Numbers whose effect rises and falls, in each job in another way, with missing values; a list; and many small shops."""
    rng = np.random.default_rng(seed)
    age, debt, wealth = rng.integers(18, 80, n_rows).astype(float), rng.exponential(10, n_rows), rng.normal(size=n_rows)
    job, shop = rng.integers(0, 5, n_rows), rng.integers(0, 300, n_rows)
    tags = [rng.choice(list("abcd"), rng.integers(0, 4), replace=False).tolist() for _ in range(n_rows)]
    log_odds = np.sin(age / 8 + job) * 1.5 + 0.03 * (age - 45) * (job - 2) - np.cos(debt / 3) + wealth
    label = rng.random(n_rows) < 1 / (1 + np.exp(-log_odds))
    age[rng.random(n_rows) < 0.1] = np.nan
    columns = {"age": age, "debt": debt, "wealth": wealth, "job": np.char.add("job", job.astype(str)), "tags": tags}
    frame = pl.DataFrame({**columns, "shop": np.char.add("s", shop.astype(str)), "y": label.astype(np.int8)})
    return frame.with_columns(pl.col("age").fill_nan(None))


def pairs(frame: pl.DataFrame, column: str, n: int, seed: int = 0) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows of all kinds of values, which differ only in a column: the number is lower in the first ones. Numbers are those of the
    table, some between them, the next float to them, and some far away."""
    rng = np.random.default_rng(seed)
    rows = pl.DataFrame({name: frame[name].gather(rng.integers(0, frame.height, n)) for name in frame.columns})
    known = np.unique(frame[column].drop_nulls().to_numpy())
    middle = (known[1:] + known[:-1]) / 2
    values = np.concatenate([known, middle, np.nextafter(middle, np.inf), np.nextafter(known, -np.inf), FAR * 20])
    low, high = np.sort(rng.choice(values, (2, n)), axis=0)
    high = np.where(rng.random(n) < 0.3, values[np.minimum(np.searchsorted(np.sort(values), low) + 1, len(values) - 1)], high)
    low, high = np.minimum(low, high), np.maximum(low, high)
    return rows.with_columns(pl.Series(column, low)), rows.with_columns(pl.Series(column, high))


def assert_monotone(scorer: Scorer, frame: pl.DataFrame, ways: dict[str, str], n: int = 10_000) -> None:
    """On random pairs of rows, to the last bit: log-odds and probabilities, of many rows and of single ones."""
    for column, way in ways.items():
        low, high = pairs(frame.drop("y"), column, n)
        if way == "decreasing":
            low, high = high, low
        for score in (scorer.log_odds, scorer.score):
            assert (score(low) <= score(high)).all(), column
        for one, other in list(zip(low.iter_rows(named=True), high.iter_rows(named=True), strict=True))[: n // 10]:
            assert scorer.score_one(one) <= scorer.score_one(other), column
    assert list(violations(scorer.model)) == []


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    return people()


@pytest.fixture(scope="module")
def fitted(frame: pl.DataFrame) -> AutoCrossClassifier:
    return AutoCrossClassifier(quiet=True, engine="serial", monotone=WAYS, include=[("age", "job"), "debt & tags"]).fit(frame, "y")


# Monotone columns.


@pytest.mark.slow
def test_a_model_is_monotone_to_the_bit(frame: pl.DataFrame, fitted: AutoCrossClassifier) -> None:
    assert {"age", "debt"} <= {column for cross in fitted.crosses_ for column in cross.columns}
    assert_monotone(fitted.scorer_, frame, WAYS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_rows", "options"),
    [
        (600, {}),
        (600, {"split": "random", "size": "small", "include": [("age", "wealth")]}),
        (1_000, {"penalty": "shared", "include": [("age", "job"), ("debt", "wealth", "job")]}),
        (1_000, {"evaluation": "holdout", "include": [("age", "tags"), ("debt", "shop")], "types": {"shop": "categorical"}}),
        (1_000, {"min_count": 1, "include": [("age", "job", "tags")]}),
        (2_000, {"halving": "paper", "include": [("age", "job")], "max_crosses": 3}),
        (6_000, {"granularities": [5, 50, 500], "include": [("age", "wealth"), ("debt", "job")]}),
        (6_000, {"beam_width": 2, "max_crosses": 4}),
        (6_000, {"positive": 0}),
        (6_000, {"metric": "log_loss", "bins": "width", "private": True}),
    ],
    ids=str,
)
def test_every_fit_and_refit_is_monotone(n_rows: int, options: dict[str, Any]) -> None:
    frame = people(n_rows, seed=n_rows)
    model = AutoCrossClassifier(quiet=True, engine="serial", monotone=WAYS, **options).fit(frame, "y")
    assert_monotone(model.scorer_, frame, WAYS, 2_000)
    for smaller in model.model_.smaller.values():
        assert_monotone(Scorer(smaller), frame, WAYS, 500)
    model.refit(people(300, seed=5), "y")
    assert_monotone(model.scorer_, frame, WAYS, 2_000)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(40, 400), st.sampled_from(["increasing", "decreasing"]), st.booleans())
def test_random_tables_are_monotone(seed: int, n_rows: int, way: str, rare: bool) -> None:
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=n_rows) * 10.0 ** rng.integers(-3, 4), rng.integers(0, 4))
    x[rng.random(n_rows) < 0.2] = np.nan
    frame = pl.DataFrame({"x": x, "c": rng.integers(0, 2 + n_rows // 10, n_rows).astype(str), "y": rng.random(n_rows) < 0.3})
    frame = frame.with_columns(pl.col("x").fill_nan(None), pl.Series("y", [True, False] * 10 + frame["y"].to_list()[20:]))
    options = {"quiet": True, "engine": "serial", "types": {"x": "numerical", "c": "categorical"}, "min_count": 1 + rare}
    model = AutoCrossClassifier(monotone={"x": way}, include=["x & c"], **options).fit(frame, "y")
    assert_monotone(model.scorer_, frame, {"x": way}, 500)


def test_a_saved_model_keeps_its_directions(fitted: AutoCrossClassifier, frame: pl.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "m.acx"
    fitted.save(path)
    model = load(path).model
    ways = {column.name: column.monotone for column in model.producer.encoder.schema if column.monotone}
    assert ways == WAYS
    bundle.save(model, tmp_path / "again.acx")
    assert (tmp_path / "again.acx").read_bytes() == path.read_bytes()
    frame.write_parquet(tmp_path / "rows.parquet")
    assert run(["refit", str(path), str(tmp_path / "rows.parquet"), "-o", str(tmp_path / "new.acx"), "--quiet"]) == 0
    assert_monotone(load(tmp_path / "new.acx"), frame, WAYS, 500)


def test_a_file_of_a_monotone_column_that_is_no_number_is_refused(fitted: AutoCrossClassifier, tmp_path: Path) -> None:
    producer = fitted.model_.producer
    schema = tuple(replace(column, monotone="increasing") for column in producer.encoder.schema)
    forged = replace(fitted.model_, producer=replace(producer, encoder=replace(producer.encoder, schema=schema)))
    bundle.save(forged, tmp_path / "m.acx")
    with pytest.raises(BundleError, match="column 'job' cannot be monotone in this way"):
        load(tmp_path / "m.acx")


def test_the_cost_is_told(frame: pl.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = tmp_path / "journal"
    model = AutoCrossClassifier(engine="serial", monotone=WAYS, max_crosses=0, journal=str(journal)).fit(frame, "y").model_
    (rule,) = [rule for rule in model.about.rules if rule.name == "monotone"]
    cost = r"LR has AUC (0\.\d{4}) with it, and (0\.\d{4}) by the same fields without it"
    found = re.fullmatch(f"age increasing, debt decreasing: {cost}", rule.value)
    assert found is not None and model.about.score is not None
    assert float(found[1]) == pytest.approx(model.about.score, abs=1e-4)
    assert float(found[1]) < float(found[2])
    assert f"monotone {rule.value}" in capsys.readouterr().err
    assert rule.value in journal.read_text()
    assert f"monotone {rule.value}" in " ".join(in_words(summary(model)).split())


def test_every_bin_of_a_monotone_cross_has_a_code(fitted: AutoCrossClassifier) -> None:
    producer = fitted.model_.producer
    n_base = len(producer.encoder.fields)
    (cross,) = [cross for cross in producer.crosses if [producer.fields[at].column for at in cross.fields] == ["age", "job"]][:1]
    n_bins = cross.sizes[0] - FIRST
    in_order_of_age = cross.values[cross.values[:, 0] >= FIRST]
    assert (np.unique(in_order_of_age[:, 1], return_counts=True)[1] == n_bins).all()
    assert cross.n_buckets == 0
    assert (cross.values[:, 0] == 0).any()  # missing has cells of its own
    # A job that was never seen has one weight, whatever the age.
    number = n_base + producer.crosses.index(cross)
    codes = {producer.codes_one({"age": age, "job": "astronaut"})[number] for age in (1.0, 30.0, 99.0)}
    assert len(codes) == 1


def test_changes_of_cells_in_which_bins_overlap_are_checked(frame: pl.DataFrame) -> None:
    options: dict[str, Any] = {"granularities": [7, 10], "max_crosses": 0, "monotone": {"wealth": "increasing"}}
    rows = frame.select("wealth", "job", "y")[:1000]
    fitted = AutoCrossClassifier(quiet=True, n_jobs=1, **options).fit(rows, "y")
    (shape,) = (shape for shape in fitted.model_.producer.shapes if shape.name == "wealth")
    cell = int(shape.uncounted[1])  # no field has a code for this cell alone
    value, own, before = shape.words(cell), shape.sums(fitted.model_.weights)[cell], shape.sums(fitted.model_.weights)[cell - 1]
    with pytest.raises(OptionError, match="The model would not be monotone: 'wealth' must be increasing in 'wealth', but falls"):
        fitted.with_weight("wealth", value, before - 0.5)
    changed = fitted.with_weight("wealth", value, (own + before) / 2)
    assert_monotone(changed.scorer_, rows, options["monotone"], 500)
    with pytest.raises(OptionError, match="would not be monotone"):
        changed.with_weight("wealth", value, before - 0.5)


def test_few_whole_numbers_may_be_monotone() -> None:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"n": rng.integers(0, 4, 6_000), "z": rng.normal(size=6_000)})
    frame = frame.with_columns(y=rng.random(6_000) < 0.2 + 0.1 * (frame["n"].to_numpy() % 3))
    model = AutoCrossClassifier(quiet=True, engine="serial", monotone={"n": "increasing"}, max_crosses=0).fit(frame, "y")
    assert_monotone(model.scorer_, frame.with_columns(pl.col("n").cast(float)), {"n": "increasing"}, 200)
    declared = AutoCrossClassifier(quiet=True, monotone={"n": "increasing"}, types={"n": "categorical"})
    with pytest.raises(OptionError, match=r"monotone names column 'n', which is categorical \(declared\)"):
        declared.fit(frame, "y")


def test_a_step_with_a_pool_is_the_best_one() -> None:
    """The pools are found by trying all of them."""
    rng = np.random.default_rng(0)
    for trial in range(30):
        m, sign = int(rng.integers(1, 6)), float(rng.choice([-1, 1]))
        strengths = [(0.0, 1.0, 0.0, 0.0), (0.7, 0.5, 0.0, 0.0), (0.0, 0.3, 5.0, 0.0)][trial % 3]
        sums = (rng.normal(size=(m + FIRST, 1, 2)) * 2.0**40).astype(np.int64)
        sums[..., 1] = np.abs(sums[..., 1])
        chain = in_order(m + FIRST)
        weight = sign * np.sort(rng.normal(size=(m + FIRST, 1)), axis=0)
        delta, tied = np.empty_like(weight), np.zeros(weight.shape, np.bool_)
        rising.step(sums, 2.0**40, weight, tied, *chain.arrays, sign, np.array(strengths), 1, delta)
        best = best_pools(sums[FIRST:, 0] / 2.0**40, weight[FIRST:, 0], sign, strengths) - weight[FIRST:, 0]
        farthest = np.abs(best).max()
        np.testing.assert_allclose(delta[FIRST:, 0], best * math.log1p(farthest) / farthest, atol=1e-9)


def best_pools(sums: np.ndarray, weight: np.ndarray, sign: float, strengths: tuple[float, ...]) -> np.ndarray:
    """The monotone weights that minimise the quadratic bound, slowly: all ways to pool neighbours are tried."""
    g, h, m = sums[:, 0], sums[:, 1], len(weight)
    l1, l2, smooth, _ = strengths
    rough = np.diff(np.eye(m), axis=0)
    matrix, right = np.diag(h + l2) + smooth * rough.T @ rough, h * weight - g
    best, least = weight, math.inf
    for cuts in range(1 << (m - 1)):
        pool = np.cumsum([0, *((cuts >> at) & 1 for at in range(m - 1))])
        spread = np.eye(pool[-1] + 1)[pool]
        for signs in (
            ([0] if not l1 else [-1, 0, 1])
            if not l1
            else np.array(np.meshgrid(*[[-1, 0, 1]] * (pool[-1] + 1))).reshape(pool[-1] + 1, -1).T
        ):
            of_pool = np.broadcast_to(signs, pool[-1] + 1)
            level = np.linalg.solve(spread.T @ matrix @ spread, spread.T @ (right - l1 * of_pool[pool]))
            if l1:
                level = np.where(of_pool == 0, 0.0, level)
            v = level[pool]
            value = v @ matrix @ v / 2 - right @ v + l1 * np.abs(v).sum()
            if (sign * np.diff(v) >= -1e-12).all() and value < least:
                best, least = v, value
    return best


def test_codes_without_rows_follow_the_one_below() -> None:
    chain = in_order(FIRST + 5, direction=-1)
    weight = np.array([9.0, 9.0, 7.0, 5.0, 6.0, 5.0 - 1e-12, 1.0])
    rising.settle(weight, np.array([0, 3, 0, 2, 0, 4, 5]), chain.order, chain.gap, -1.0)
    assert weight.tolist() == [9.0, 9.0, 5.0, 5.0, 5.0, 5.0, 1.0]
    nobody = np.array([9.0, 9.0, 1.0, 2.0, 2.0, 0.5, 0.5])
    rising.settle(nobody, np.zeros(7, np.int64), chain.order, chain.gap, -1.0)
    assert nobody.tolist() == [9.0, 9.0, 1.0, 1.0, 1.0, 0.5, 0.5]


# Changes by hand.


def changed(model: Model, number: int, code: int, by: float) -> Model:
    """The model with one weight changed."""
    weights = [weight.copy() for weight in model.weights]
    weights[number][code] += by
    return replace(model, weights=tuple(weights))


def test_a_change_by_hand_that_breaks_the_order_is_found(fitted: AutoCrossClassifier) -> None:
    model = fitted.model_
    require_monotone(model)
    numbers = [number for number, field in enumerate(model.producer.encoder.fields) if field.column == "age"]
    (found,) = violations(changed(model, numbers[0], FIRST + 1, 5.0))
    assert (found.term, found.column, found.direction) == ("age", "age", "increasing")
    assert found.weights[0] > found.weights[1] and len(found.cells[0]) == 1
    with pytest.raises(OptionError, match="The model would not be monotone: 'age' must be increasing in 'age', but falls from"):
        require_monotone(changed(model, numbers[0], FIRST + 1, 5.0))
    assert list(violations(changed(model, numbers[0], 0, 5.0))) == []  # missing is outside the order
    top = model.producer.fields[numbers[0]].n_codes - 1
    assert list(violations(changed(model, numbers[0], top, 5.0))) == []
    (found,) = violations(changed(model, numbers[0], top, -5.0))
    assert found.weights[0] - found.weights[1] > 1


def test_a_cell_of_a_cross_is_named_by_its_values(fitted: AutoCrossClassifier) -> None:
    model, producer = fitted.model_, fitted.model_.producer
    n_base = len(producer.encoder.fields)
    crosses = [[producer.fields[at].column for at in cross.fields] for cross in producer.crosses]
    number = crosses.index(["age", "job"])
    cross = producer.crosses[number]
    code = FIRST + int(np.flatnonzero((cross.values[:, 0] == FIRST + 1) & (cross.values[:, 1] == FIRST))[0])
    (found,) = violations(changed(model, n_base + number, code, 9.0))
    assert found.term == "age & job" and found.column == "age"
    assert found.cells[0][1] == found.cells[1][1] == producer.encoder.value(cross.fields[1], FIRST).text  # type: ignore[union-attr]
    assert "'age & job' must be increasing in 'age', but falls" in str(found)


def test_what_counts_is_the_sum_of_a_column(fitted: AutoCrossClassifier) -> None:
    """One granularity may fall where another rises more."""
    model = fitted.model_
    fields = [number for number, field in enumerate(model.producer.encoder.fields) if field.column == "age"]
    (encoder, first), (_, second) = (model.producer.encoder.places[number] for number in fields[:2])
    assert isinstance(encoder, Bins)
    edge = np.intersect1d(encoder.edges[first], encoder.edges[second])[0]
    weights = [weight.copy() for weight in model.weights]
    for number in fields:
        weights[number][FIRST:] = 0.0
    for number, place, height in zip(fields, (first, second), (1.0, -0.5), strict=False):
        weights[number][FIRST + 1 + int(np.searchsorted(encoder.edges[place], edge)) :] = height
    assert list(violations(replace(model, weights=tuple(weights)))) == []
    weights[fields[1]] *= 10
    assert [found.term for found in violations(replace(model, weights=tuple(weights)))] == ["age"]


# Crosses that must be there.


def crossed(n_rows: int = 3_000) -> pl.DataFrame:
    """Four columns of three values each, of which two say something together, and a number."""
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 3, (4, n_rows))
    log_odds = 2 * rng.normal(size=(3, 3))[codes[0], codes[1]]
    columns = {name: np.char.add(name, code.astype(str)) for name, code in zip("abcd", codes, strict=True)}
    return pl.DataFrame({**columns, "x": rng.normal(size=n_rows), "y": rng.random(n_rows) < 1 / (1 + np.exp(-log_odds))})


@pytest.fixture(scope="module")
def pairs_of_columns() -> pl.DataFrame:
    return crossed()


def columns_of(model: AutoCrossClassifier) -> list[set[str]]:
    return [set(cross.columns) for cross in model.crosses_]


@pytest.mark.parametrize(
    "options", [{}, {"size": "small"}, {"max_crosses": 2}, {"evaluation": "holdout"}, {"halving": "paper"}], ids=str
)
def test_included_crosses_stay_and_the_search_goes_on(pairs_of_columns: pl.DataFrame, options: dict[str, Any]) -> None:
    options = {"size": "auto", **options}
    model = AutoCrossClassifier(quiet=True, engine="serial", include=[("d", "c", "x")], **options).fit(pairs_of_columns, "y")
    assert columns_of(model)[0] == {"c", "d", "x"}
    assert {"a", "b"} in columns_of(model)
    first, *others = model.crosses_
    assert abs(first.gain) < 0.01 < others[0].gain and first.error > 0
    for smaller in model.model_.smaller.values():
        assert {"c", "d", "x"} in [set(cross.columns) for cross in smaller.about.crosses]


def test_no_more_than_the_included_crosses_if_these_are_all(pairs_of_columns: pl.DataFrame) -> None:
    model = AutoCrossClassifier(quiet=True, engine="serial", include=["c & d", "x & a"], max_crosses=2)
    assert columns_of(model.fit(pairs_of_columns, "y")) in ([{"c", "d"}, {"x", "a"}], [{"x", "a"}, {"c", "d"}])


def test_few_rows_have_included_crosses_too(pairs_of_columns: pl.DataFrame) -> None:
    model = AutoCrossClassifier(quiet=True, engine="serial", include=["c & d"]).fit(pairs_of_columns.head(60), "y")
    assert columns_of(model) == [{"c", "d"}]


@pytest.mark.parametrize("time_limit", [0, None])
def test_included_crosses_are_there_however_early_a_fit_ends(
    pairs_of_columns: pl.DataFrame, monkeypatch: pytest.MonkeyPatch, time_limit: float | None
) -> None:
    def too_late(*_: Any) -> Any:
        raise Stopped(Why.TIME_IS_UP)

    monkeypatch.setattr(fitting_search, "include", too_late)
    classifier = AutoCrossClassifier(quiet=True, engine="serial", include=["c & x", "a & b"], time_limit=time_limit)
    with pytest.warns(TableWarning, match="The search ended before 'c & x', 'a & b' could be judged"):
        model = classifier.fit(pairs_of_columns, "y")
    assert columns_of(model) == [{"c", "x"}, {"a", "b"}]
    assert model.crosses_[0].gain == 0
    assert np.isfinite(model.decision_function(pairs_of_columns)).all()


@pytest.mark.slow
def test_every_engine_gives_the_same_constrained_model(frame: pl.DataFrame, fitted: AutoCrossClassifier, tmp_path: Path) -> None:
    options = {"monotone": WAYS, "include": [("age", "job"), "debt & tags"]}
    fitted.save(tmp_path / "serial.acx")
    for engine, n_jobs in (("threads", 2), ("threads", 5), ("ray", 2)):
        if engine == "ray":
            pytest.importorskip("ray", reason="Ray is not installed")
        other = AutoCrossClassifier(quiet=True, engine=engine, n_jobs=n_jobs, **options).fit(frame, "y")
        other.save(tmp_path / f"{engine}.acx")
        assert (tmp_path / f"{engine}.acx").read_bytes() == (tmp_path / "serial.acx").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("n_rounds", [1, 2])
def test_a_constrained_fit_resumes(
    frame: pl.DataFrame, fitted: AutoCrossClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_rounds: int
) -> None:
    options = {"quiet": True, "engine": "serial", "monotone": WAYS, "include": [("age", "job"), "debt & tags"]}
    save, saves = checkpoint.save, list[int]()

    def save_and_end(*args: Any) -> None:
        save(*args)
        saves.append(1)
        if len(saves) == n_rounds:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save", save_and_end)
    with pytest.raises(KeyboardInterrupt):
        AutoCrossClassifier(checkpoint=str(tmp_path), **options).fit(frame, "y")
    monkeypatch.setattr(checkpoint, "save", save)
    resumed = AutoCrossClassifier(resume=str(tmp_path), **options).fit(frame, "y")
    fitted.save(tmp_path / "whole.acx")
    resumed.save(tmp_path / "resumed.acx")
    assert (tmp_path / "resumed.acx").read_bytes() == (tmp_path / "whole.acx").read_bytes()
    with pytest.raises(OptionError, match="Option include=None differs"):
        AutoCrossClassifier(resume=str(tmp_path), quiet=True, monotone=WAYS).fit(frame, "y")


# Forbidden ones, and those of too many values.


def test_a_forbidden_column_stands_alone(pairs_of_columns: pl.DataFrame) -> None:
    model = AutoCrossClassifier(quiet=True, engine="serial", forbid=["a"]).fit(pairs_of_columns, "y")
    assert all("a" not in columns for columns in columns_of(model))
    assert "a" in {field.column for field in model.model_.producer.encoder.fields}


@pytest.mark.parametrize("forbid", [[("a", "b")], ["b & a"], [("a", "b", "x")]], ids=str)
def test_columns_that_never_meet(pairs_of_columns: pl.DataFrame, forbid: list[Any]) -> None:
    model = AutoCrossClassifier(quiet=True, engine="serial", forbid=forbid).fit(pairs_of_columns, "y")
    assert all(not {"a", "b"} <= columns for columns in columns_of(model))


@pytest.mark.slow
def test_statistics_keep_to_the_limits() -> None:
    rng = np.random.default_rng(2)
    n = 4_000
    codes = rng.integers(0, 70, (3, n))
    log_odds = sum(1.5 * rng.normal(size=(70, 70))[codes[at], codes[at + 1]] for at in (0, 1))
    frame = pl.DataFrame(
        {name: code.astype(str) for name, code in zip("uvw", codes, strict=True)}
        | {"y": rng.random(n) < 1 / (1 + np.exp(-log_odds))}
    )
    free = AutoCrossClassifier(quiet=True, engine="serial").fit(frame, "y")
    assert any(cross.kind == "statistic" for cross in free.crosses_)
    for limits in ({"forbid": [("u", "v")]}, {"forbid": ["v"]}, {"max_values": 100}):
        model = AutoCrossClassifier(quiet=True, engine="serial", **limits).fit(frame, "y")
        several = [columns for columns in columns_of(model) if len(columns) > 1]
        assert all(not {"u", "v"} <= columns for columns in several)
        assert limits.get("max_values") is None or not several


def test_crosses_of_too_many_values_are_not_proposed(pairs_of_columns: pl.DataFrame) -> None:
    model = AutoCrossClassifier(quiet=True, engine="serial", max_values=9).fit(pairs_of_columns, "y")
    assert {"a", "b"} in columns_of(model)
    assert all(len(cross.values) <= 9 for cross in model.model_.producer.crosses)
    model = AutoCrossClassifier(quiet=True, engine="serial", max_values=8, include=[("c", "d", "x")]).fit(pairs_of_columns, "y")
    assert columns_of(model) == [{"c", "d", "x"}]  # what must be there obeys no limit


# Bad input.

BAD = [
    ({"monotone": {"shoe": "increasing"}}, "Option monotone names column 'shoe', which the table does not have. Its columns are"),
    ({"monotone": {"job": "increasing"}}, "Option monotone names column 'job', which is categorical"),
    ({"monotone": {"tags": "increasing"}}, "Option monotone names column 'tags', which is multivalue"),
    ({"monotone": {"day": "increasing"}}, "Option monotone names column 'day', which is time"),
    ({"monotone": {"same": "increasing"}}, "Option monotone names column 'same', which is left out"),
    ({"monotone": {"age": "increasing"}, "exclude": ["age"]}, "Option monotone names column 'age', which exclude= leaves out"),
    ({"monotone": {"age": "increasing"}, "types": {"age": "ignore"}}, "monotone names column 'age', which is left out: declared"),
    ({"monotone": {"age": "up"}}, "Option monotone says 'up' of column 'age'. Choose increasing or decreasing"),
    ({"monotone": {"age": 1}}, "Option monotone says 1 of column 'age'. Choose"),
    ({"monotone": {3: "increasing"}}, "Option monotone names 3. Give names of columns"),
    ({"monotone": "age"}, "Option monotone='age' is not a mapping. Give column names and directions, as in"),
    ({"include": [("job", "shoe")]}, "Option include names column 'shoe', which the table does not have"),
    ({"include": ["job"]}, "Option include holds 'job'. A cross has two different columns or more"),
    ({"include": ["job & job"]}, "Option include holds 'job & job'. A cross has two different columns"),
    ({"include": [("job", "job")]}, "Option include holds .*, which names a column twice"),
    ({"include": [()]}, "Option include holds .*Give columns by their names"),
    ({"include": [5]}, "Option include holds 5. Give columns by their names"),
    ({"include": "job & age"}, "Option include='job & age' is one text. Give a list"),
    ({"include": [("job", "age")], "exclude": ["age"]}, "Option include names column 'age', which exclude= leaves out"),
    ({"include": [("job", "same")]}, "Option include holds 'job & same', but column 'same' is left out"),
    ({"include": [("job", "shop")], "groups": "shop"}, "Option include names column 'shop', which groups= leaves out"),
    ({"include": ["job & age", "job & debt"], "max_crosses": 1}, "Option include has 2 crosses, and max_crosses=1"),
    ({"include": ["job & age", ("age", "job")]}, "Option include holds 'age & job' twice"),
    ({"include": [("job", "age")], "forbid": ["age"]}, "Option include holds 'job & age', which forbid does not allow"),
    (
        {"include": ["job & age & tags"], "forbid": [("tags", "job")]},
        "include holds 'job & age & tags', which forbid does not allow",
    ),
    ({"include": [("age", "debt")], "monotone": WAYS}, "'age' and 'debt' are both monotone"),
    ({"forbid": ["shoe"]}, "Option forbid names column 'shoe', which the table does not have"),
    ({"forbid": [("age", "shoe")]}, "Option forbid names column 'shoe'"),
    ({"forbid": 7}, "Option forbid=7 is no list"),
    ({"max_values": 0}, "Option max_values=0 is out of range. Give a number at least 1"),
    ({"max_values": "many"}, "Option max_values='many' is not a whole number"),
]


@pytest.fixture(scope="module")
def small() -> pl.DataFrame:
    frame = people(200)
    days = pl.Series("day", [f"2024-01-{1 + at % 28:02}" for at in range(200)])
    return frame.with_columns(days, same=pl.lit(1.0))


@pytest.mark.filterwarnings("ignore::autocross.errors.TableWarning")
@pytest.mark.parametrize(("given", "message"), BAD, ids=str)
def test_bad_constraints_are_refused(small: pl.DataFrame, given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        AutoCrossClassifier(quiet=True, engine="serial", **given).fit(small, "y")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--monotone", "age=up"], "Option monotone says 'up' of column 'age'"),
        (
            ["--monotone", "age"],
            "--monotone age is no assignment. Write --monotone COLUMN=DIRECTION, as in --monotone age=increasing",
        ),
        (["--monotone", "age=increasing", "--monotone", "age=decreasing"], "--monotone names a column twice"),
        (["--monotone", "job=increasing"], "Option monotone names column 'job', which is categorical"),
        (["--include", "job & shoe"], "Option include names column 'shoe'"),
        (["--include", "job & age", "--forbid", "age"], "which forbid does not allow"),
        (["--forbid", "shoe"], "Option forbid names column 'shoe'"),
        (["--max-values", "0"], "Option max_values=0 is out of range"),
    ],
    ids=str,
)
def test_bad_flags_end_with_two_and_write_nothing(
    small: pl.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    small.drop("day", "same").write_parquet(tmp_path / "rows.parquet")
    model = tmp_path / "m.acx"
    assert run(["fit", str(tmp_path / "rows.parquet"), "--target", "y", "-o", str(model), "--quiet", *flags]) == 2
    assert message in capsys.readouterr().err
    assert not model.exists()


def test_the_command_line_has_every_constraint(frame: pl.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame.write_parquet(tmp_path / "rows.parquet")
    model = str(tmp_path / "m.acx")
    flags = ["--monotone", "age=increasing", "--monotone", "debt=decreasing", "--include", "age & job", "--include", "job & tags"]
    flags += ["--forbid", "wealth", "--forbid", "age & shop", "--max-values", "1000", "--max-crosses", "3", "--quiet"]
    assert run(["fit", str(tmp_path / "rows.parquet"), "--target", "y", "-o", model, "--engine", "serial", *flags]) == 0
    assert_monotone(load(model), frame, WAYS, 300)
    assert run(["show", model, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    found = [set(cross["columns"]) for cross in facts["crosses"]]
    assert {"age", "job"} in found and {"job", "tags"} in found
    assert not any("wealth" in columns or {"age", "shop"} <= columns for columns in found)
    assert any(rule["value"].startswith("age increasing, debt decreasing: LR has AUC") for rule in facts["rules"])


@pytest.mark.slow
def test_networks_refuse_what_they_cannot_keep_to(small: pl.DataFrame) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    with pytest.raises(OptionError, match="Option monotone names 'age', but a network is monotone in no column"):
        WideDeepClassifier(quiet=True, monotone={"age": "increasing"}).fit(small, "y")
    with pytest.raises(OptionError, match="Option forbid is not for networks, in which all columns meet"):
        WideDeepClassifier(quiet=True, forbid=["age"]).fit(small, "y")
