"""The search: its space, its tournament, and what it finds, or does not, in tables whose truth is known."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocross import AutoCrossClassifier, crossing, features, load
from autocross.blocks import make_blocks
from autocross.crossing import MODULUS, MOST_ENTRIES, CrossCoder, count_keys, cross_key, exact_key, pair_up
from autocross.features import FIRST, RARE, Field, FieldCodes
from autocross.folds import FoldPlan
from autocross.models import metrics
from autocross.search import coding, fieldwise
from autocross.search.candidates import children
from autocross.search.policy import AUTO, PAPER, SLACK
from conftest import Steer

FIELDS = [
    Field("a", "a", 5, True),
    Field("n [10]", "n", 12, False),
    Field("n [100]", "n", 102, False),
    Field("t.month", "t", 14, True, part="month"),
    Field("t.quarter", "t", 6, True, part="quarter"),
    Field("t.weekday", "t", 9, True, part="weekday"),
]


def planted(seed: int, n: int = 8000, shuffled: bool = False) -> pl.DataFrame:
    """Labels that depend on a cross of two columns and of three, and on nothing else; five columns are noise."""
    rng = np.random.default_rng(seed)
    columns = {f"c{at}": rng.integers(0, size, n) for at, size in enumerate((4, 5, 3, 4, 3, 6, 5, 4, 8, 3))}
    pair = rng.normal(0, 1.2, (4, 5))[columns["c0"], columns["c1"]]
    triple = rng.normal(0, 1.2, (3, 4, 3))[columns["c2"], columns["c3"], columns["c4"]]
    label = (rng.random(n) < 1 / (1 + np.exp(1 - pair - triple))).astype(int)
    frame = pl.DataFrame({name: [f"v{value}" for value in values] for name, values in columns.items()})
    return frame.with_columns(y=pl.Series(rng.permutation(label) if shuffled else label))


def found(frame: pl.DataFrame, **options: object) -> list[set[str]]:
    model = AutoCrossClassifier(quiet=True, engine="serial", **options).fit(frame, "y")
    return [set(cross.columns) for cross in model.crosses_]


# The space.


def test_children_are_pairs_once_and_by_meaning() -> None:
    fields = [Field(name, name, 4, True) for name in "abc"]
    assert children([(), (0,), (1,), (2,)], fields, None) == [(0, 1), (0, 2), (1, 2)]
    # With ab in the set: a x ab is ab, and abc comes from ab x c.
    assert children([(), (0,), (1,), (2,), (0, 1)], fields, None) == [(0, 1, 2), (0, 2), (1, 2)]
    assert children([(0,), (1,), (2,), (0, 1)], fields, 2) == [(0, 2), (1, 2)]


def test_a_cross_holds_one_granularity_and_no_calendar_part_that_another_determines() -> None:
    pairs = children([(at,) for at in range(6)], FIELDS, None)
    assert (1, 2) not in pairs
    assert (3, 4) not in pairs
    assert {(3, 5), (4, 5), (0, 1), (1, 3)} <= set(pairs)
    assert (1, 2, 3) not in children([(1, 3), (2,), (3,)], FIELDS, None)


# Crossed codes.


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=30))
def test_keys_tell_combinations_apart_and_one_row_is_as_many(rows: list[tuple[int, int, int]]) -> None:
    sizes = (7, 5, 10)
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
    keys = cross_key(columns, sizes)
    assert len(set(keys.tolist())) == len(set(rows))
    assert keys.tolist() == [cross_key(row, sizes) for row in rows]


@given(st.data(), st.lists(st.integers(1, 1 << 17), min_size=2, max_size=5))
def test_the_key_of_a_row_scored_alone_is_the_same_or_left_to_the_other_way(data: st.DataObject, sizes: list[int]) -> None:
    n_fields = len(sizes) + 2
    fields = data.draw(st.permutations(range(n_fields)))[: len(sizes)]
    codes = [0] * n_fields
    for at, size in zip(fields, sizes, strict=True):
        codes[at] = data.draw(st.integers(0, size - 1))
    key = exact_key(fields, sizes)
    assert (key is None) == (math.prod(sizes) > MODULUS)
    assert key is None or key(codes) == cross_key([codes[at] for at in fields], sizes)


def test_keys_beyond_the_modulus_are_hashed_alike_in_both_paths() -> None:
    sizes = (1 << 20, 1 << 20, 1 << 20)
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, 1 << 20, 500) for _ in range(3)]
    keys = cross_key(columns, sizes)
    assert keys.max() < MODULUS
    assert keys.min() >= 0
    assert len(set(keys.tolist())) == 500
    assert keys.tolist() == [cross_key([int(column[at]) for column in columns], sizes) for at in range(500)]


def test_a_cross_of_multi_value_fields_is_a_set_of_pairs_capped_a_row() -> None:
    left = FieldCodes(np.array([2, 3, 4], np.uint8), np.array([0, 2, 2, 3]))
    right = FieldCodes(np.array([5, 6, 7, 8], np.uint8), np.array([0, 2, 3, 4]))
    columns, starts = pair_up([left, right])
    assert starts.tolist() == [0, 4, 4, 5]
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == [(2, 5), (2, 6), (3, 5), (3, 6), (4, 8)]
    many = FieldCodes(np.arange(20, dtype=np.uint8), np.array([0, 20]))
    assert pair_up([many, many])[1].tolist() == [0, MOST_ENTRIES]


def test_values_without_a_code_are_rare_or_hashed() -> None:
    values = np.array([[2, 2], [2, 3], [3, 2]], np.uint32)
    coder = CrossCoder((0, 1), (4, 4), values)
    rows = [FieldCodes(np.array([2, 3, 3], np.uint8)), FieldCodes(np.array([3, 2, 3], np.uint8))]
    assert coder.encode(rows).codes.tolist() == [FIRST + 1, FIRST + 2, RARE]
    assert [coder.encode_one(pair) for pair in ((2, 3), (3, 2), (3, 3))] == [(FIRST + 1,), (FIRST + 2,), (RARE,)]
    hashed = CrossCoder((0, 1), (4, 4), values, n_buckets=8)
    assert hashed.encode(rows).codes[2] == hashed.encode_one((3, 3))[0] >= FIRST + 3


def test_few_keys_are_counted_and_looked_up_by_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    sizes, rows = (7, 9), [FieldCodes(rng.integers(0, size, 500).astype(np.uint8)) for size in (5, 9)]
    keys = cross_key(pair_up(rows)[0], sizes)
    coder = CrossCoder((0, 1), sizes, np.array([[2, 2], [2, 3], [3, 2]], np.uint32))
    by_table = count_keys(keys, sizes), coder.encode(rows).codes
    monkeypatch.setattr(crossing, "DENSE", 10)
    by_search = count_keys(keys, sizes), coder.encode(rows).codes
    for (distinct, counts), codes in (by_table, by_search):
        assert distinct.tolist() == sorted(set(keys.tolist()))
        assert counts.tolist() == [np.count_nonzero(keys == key) for key in distinct]
        assert codes.tolist() == by_table[1].tolist()


@pytest.mark.parametrize("sizes", [(6, 9, 5), (1 << 20, 1 << 15, 1 << 10)])
@pytest.mark.parametrize("ragged", [False, True])
def test_a_cross_is_the_same_whatever_the_rows_that_are_computed_at_once(
    sizes: tuple[int, ...], ragged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    n = 300
    coded = [FieldCodes(rng.integers(0, min(size, 40), n).astype(np.uint8)) for size in sizes]
    if ragged:
        starts = np.concatenate([[0], np.cumsum(rng.integers(0, 4, n))])
        coded[1] = FieldCodes(rng.integers(0, min(sizes[1], 40), starts[-1]).astype(np.uint8), starts)
    label, weight = rng.integers(0, 2, n).astype(np.uint8), np.ones(n, np.float32)
    one = fieldwise.Candidate((0, 1, 2), sizes, 4 if ragged else 1)

    def everything() -> list[Any]:
        (block,) = make_blocks(coded, label, weight, FoldPlan(5, False), 0, 1)
        counts = coding.sift(block, one, 1000, 3)
        keys, values, n_entries = coding.distinct(block, one, 1000, np.packbits(counts >= 2))
        coder = CrossCoder(one.cross, sizes, values[n_entries > 1])
        coding.put(block, coder)
        (seen,) = fieldwise.lay_out(block, [one], fieldwise.Rung(100, 200, 2, 0.0))
        found = [block.coded(one.cross), *block.trials]
        return [counts, keys, values, n_entries, seen, *(part for each in found for part in (each.codes, each.starts))]

    at_once = everything()
    assert at_once[0].sum() > 50
    assert len(at_once[2]) > 20
    assert cross_key(list(at_once[2].T.astype(np.int64)), sizes).tolist() == at_once[1].tolist()
    monkeypatch.setattr(crossing, "TOGETHER", 7)
    monkeypatch.setattr(features, "TOGETHER", 7)
    for ours, theirs in zip(everything(), at_once, strict=True):
        np.testing.assert_array_equal(ours, theirs)


# The tournament.


def test_rungs_have_a_floor_and_end_with_all_rows() -> None:
    assert AUTO.rungs.plan(200, 150_000, 0.3) == [(32_000, 200), (64_000, 50), (128_000, 12), (150_000, 8)]
    assert AUTO.rungs.plan(200, 40_000, 0.3) == [(10_000, 200), (20_000, 100), (40_000, 50)]
    assert AUTO.rungs.plan(200, 5_000, 0.3) == [(2000, 200), (4000, 100), (5000, 50)]
    assert AUTO.rungs.plan(200, 5_000, 0.01) == [(5000, 200)]
    assert AUTO.rungs.plan(1, 100, 0.5) == [(100, 1)]


def test_the_papers_rungs_use_half_of_a_small_table() -> None:
    rungs = PAPER.rungs.plan(91, 32_561, 0.24)
    assert [n for _, n in rungs] == [91, 45, 22, 11, 5, 2, 1]
    assert rungs[-1][0] == 32_561 // 2
    assert rungs[0][0] == 32_561 // 254
    assert PAPER.rungs.plan(91, 10_000_000, 0.24)[-1] == (2_000_000, 1)


# What it finds.


@pytest.mark.parametrize("seed", range(3))
def test_planted_crosses_are_found(seed: int) -> None:
    crosses = found(planted(seed))
    assert {"c0", "c1"} in crosses
    assert {"c2", "c3", "c4"} in crosses


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"evaluation": "holdout"}, {"halving": "paper"}], ids=str)
def test_planted_crosses_are_found_in_other_modes(options: dict[str, object]) -> None:
    there = [{"c0", "c1"} in found(planted(seed), **options) for seed in range(8)]
    assert sum(there) >= 7  # the paper's first rung has 60 rows: by chance a candidate may end there


@pytest.mark.slow
def test_shuffled_labels_give_no_cross_on_95_of_100_seeds() -> None:
    assert sum(found(planted(seed, shuffled=True)) != [] for seed in range(100)) <= 5


@pytest.mark.slow
def test_a_noise_column_is_in_no_cross_on_19_of_20_seeds() -> None:
    crosses = [found(planted(seed)) for seed in range(20)]
    for noise in ("c5", "c6", "c7", "c8", "c9"):
        assert sum(any(noise in columns for columns in one) for one in crosses) <= 1, noise


def fitted(frame: pl.DataFrame, **options: object) -> AutoCrossClassifier:
    return AutoCrossClassifier(quiet=True, engine="serial", **options).fit(frame, "y")


@pytest.mark.slow
def test_renaming_categories_changes_nothing() -> None:
    frame = planted(4).with_columns(n=pl.Series(np.random.default_rng(0).normal(size=8000)))
    other = frame.with_columns(pl.col(f"c{at}").map_elements(lambda text: f"{hash_like(text)}", pl.String) for at in range(10))
    one, two = fitted(frame), fitted(other)
    assert one.crosses_ == two.crosses_ != ()
    np.testing.assert_array_equal(one.predict_proba(frame), two.predict_proba(other))


def hash_like(text: str) -> int:
    """Another name for a value, in another order."""
    return (ord(text[-1]) * 7919) % 1009


@pytest.mark.slow
def test_permuting_columns_changes_nothing() -> None:
    frame = planted(4)
    other = frame.select(np.random.default_rng(0).permutation(frame.columns).tolist())
    one, two = fitted(frame), fitted(other)
    assert one.crosses_ == two.crosses_ != ()
    np.testing.assert_array_equal(one.predict_proba(frame), two.predict_proba(other))


@pytest.mark.slow
def test_a_wider_beam_follows_several_sets_and_finds_the_truth_too() -> None:
    crosses = found(planted(0), beam_width=2)
    assert {"c0", "c1"} in crosses
    assert {"c2", "c3", "c4"} in crosses
    assert found(planted(0), beam_width=3, max_crosses=1) == found(planted(0), max_crosses=1)


@pytest.mark.slow
@pytest.mark.parametrize("evaluation", ["kfold", "holdout"])
@pytest.mark.parametrize("metric", ["auc", "log_loss", "accuracy"])
def test_the_metric_does_not_fall_from_cross_to_cross(metric: str, evaluation: str) -> None:
    model = fitted(planted(1), metric=metric, evaluation=evaluation)
    scores = [record["score"] for record in model.history_]
    assert len(scores) > 2
    for before, after in pairwise(scores):
        assert after > before - SLACK
    assert model.model_.about.metric == metric


@pytest.mark.slow
def test_limits_are_kept() -> None:
    assert len(found(planted(0), max_crosses=1)) == 1
    assert found(planted(0), max_crosses=0) == []
    assert all(len(columns) == 2 for columns in found(planted(0), max_order=2))
    assert found(planted(0), time_limit=0) == []


@pytest.mark.slow
def test_every_engine_finds_the_same_crosses_and_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autocross.fitting.run.BLOCK_ROWS", 1000)  # several blocks even here
    frame = planted(1)
    models = [
        AutoCrossClassifier(quiet=True, engine=engine, n_jobs=n_jobs).fit(frame, "y").model_
        for engine, n_jobs in (("serial", None), ("threads", 2), ("threads", 3))
    ]
    for other in models[1:]:
        assert other.about.crosses == models[0].about.crosses
        assert other.intercept == models[0].intercept
        for ours, theirs in zip(models[0].weights, other.weights, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_model_with_crosses_is_saved_scored_explained_and_refitted(tmp_path: Path) -> None:
    frame = planted(2)
    model = AutoCrossClassifier(quiet=True, engine="serial").fit(frame, "y")
    cross = model.crosses_[0]
    assert cross.order == len(cross.columns) >= 2
    assert cross.gain > 0 < cross.error
    crosses = [record["crosses"] for record in model.history_]
    n_found = max(crosses)
    assert crosses[: n_found + 1] == list(range(n_found + 1))
    assert crosses[-1] == len(model.crosses_)
    model.save(tmp_path / "m.acx")
    scorer = load(tmp_path / "m.acx")
    np.testing.assert_array_equal(scorer.score(frame), model.predict_proba(frame)[:, 1])
    rows = frame.head(200).to_dicts()
    np.testing.assert_array_equal([scorer.log_odds_one(row) for row in rows], scorer.log_odds(frame.head(200)))
    explanation = scorer.explain(rows[0], by="term")
    assert any(" & " in reason.name and " & " in reason.value for reason in explanation.reasons)
    total = explanation.mean_log_odds + sum(reason.contribution for reason in explanation.reasons)
    assert total == pytest.approx(explanation.log_odds, abs=1e-12)
    before = model.predict_proba(frame)
    model.refit(frame, "y")
    np.testing.assert_allclose(model.predict_proba(frame), before, atol=0.02)
    assert model.crosses_ == scorer.model.about.crosses


# The paper's own way, to the letter.


def test_the_paper_accepts_the_candidate_that_raises_the_metric_most_until_none_does(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    fitted(planted(3), halving="paper", evaluation="holdout", penalty="shared", min_count=1, journal=str(journal))
    tried = [event for event in map(json.loads, journal.read_text().splitlines()) if event["event"] == "CrossTried"]
    assert [one["round"] for one in tried] == list(range(1, len(tried) + 1))
    assert [one["accepted"] for one in tried] == [True] * (len(tried) - 1) + [False]
    scores = [one["score"] for one in tried if one["accepted"]]
    assert len(scores) > 1
    assert all(one < other for one, other in pairwise(scores))


def test_bins_of_odds_tell_auc_and_accuracy() -> None:
    rng = np.random.default_rng(0)
    score = rng.normal(0, 1.5, 50_000)
    label = (rng.random(50_000) < 1 / (1 + np.exp(-score))).astype(np.uint8)
    weight = np.rint(rng.random(50_000) * 2**20)
    bins = metrics.bin_odds(np.exp(score), label, weight, 1.0)
    assert metrics.measure_bins("auc", bins) == pytest.approx(metrics.auc(label, score, weight), abs=1e-5)
    assert metrics.measure_bins("accuracy", bins) == pytest.approx(metrics.accuracy(label, score, weight), abs=1e-12)


def test_with_more_features_than_may_cross_none_is_found_twice(steer: Steer) -> None:
    steer(widest=6)
    crosses = found(planted(0), halving="paper", max_crosses=8)
    assert len(crosses) == len({frozenset(columns) for columns in crosses}) > 2
