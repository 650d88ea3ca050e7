"""Folds and holdouts: at random, by group, by time, and when each is chosen."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from autocross import AutoCrossClassifier
from autocross.blocks import INTERCEPT, make_blocks
from autocross.errors import OptionError
from autocross.features import FieldCodes
from autocross.folds import (
    ALL,
    KFOLD_ROWS,
    FoldPlan,
    by_earlier_time,
    by_group,
    by_row,
    by_time,
    choose,
    looking_ahead,
    use_holdout,
)
from autocross.hashing import mix
from autocross.kernels import counting
from autocross.producer.words import in_words, summary
from autocross.table.columns import NO_TIME, TimeColumn

DAY = 86_400_000_000


def test_the_row_hash_has_fixed_values() -> None:
    # Row 0 under seeds 0, 1, 2: the published output of SplitMix64 from state 0.
    published = [16294208416658607535, 7960286522194355700, 487617019471545679]
    assert [int(mix(seed, np.arange(1))[0]) for seed in range(3)] == published
    assert mix(5, np.arange(3)).tolist() != mix(0, np.arange(3)).tolist()


def test_random_folds_are_even_and_depend_on_the_seed_alone() -> None:
    folds = by_row(10_000, 3, False, "")
    assert folds.n_models == 5
    counts = np.bincount(folds.fold)
    assert counts.min() > 1800
    np.testing.assert_array_equal(folds.fold[:100], by_row(100, 3, False, "").fold)
    assert (by_row(10_000, 4, False, "").fold != folds.fold).mean() > 0.7


def test_a_holdout_is_a_fifth_that_one_model_is_judged_on() -> None:
    folds = by_row(10_000, 0, True, "")
    assert folds.n_models == 1
    assert set(np.unique(folds.fold).tolist()) == {0, ALL}
    assert 0.18 < (folds.fold == 0).mean() < 0.22


@pytest.mark.parametrize("holdout", [False, True])
def test_groups_stay_together(holdout: bool) -> None:
    group = np.random.default_rng(0).integers(0, 40, 2000)
    folds = by_group(group, 0, holdout, "")
    for name in range(40):
        assert len(np.unique(folds.fold[group == name])) == 1
    if not holdout:
        assert np.bincount(folds.fold).min() > 300


def test_two_groups_give_two_folds_and_one_group_falls_back_to_rows() -> None:
    assert by_group(np.repeat([0, 1], 50), 0, False, "").n_models == 2
    folds = choose("auto", 50, 0, False, np.zeros(50, np.int64), {}, None)
    assert folds.kind == "random"
    assert "only one group" in folds.why


def test_folds_by_time_are_whole_weeks() -> None:
    micros = np.arange(300) * DAY
    folds = by_time(np.repeat(micros, 3), 0, False, "")
    weeks = (np.repeat(micros, 3) - 4 * DAY) // (7 * DAY)
    for week in np.unique(weeks):
        assert len(np.unique(folds.fold[weeks == week])) == 1
    assert "weeks" in folds.why


def test_the_holdout_by_time_is_the_end() -> None:
    micros = np.random.default_rng(0).permutation(1000) * DAY
    folds = by_time(micros, 0, True, "")
    held = folds.fold == 0
    assert micros[held].min() > micros[~held].max()
    assert 0.15 < held.mean() <= 0.2


def test_short_tables_use_shorter_periods_or_spans_of_equal_numbers_of_rows() -> None:
    assert "hours" in by_time(np.arange(100) * DAY // 24, 0, False, "").why
    assert "folds of whole spans of about equal numbers of rows" in by_time(np.arange(100) * 1000, 0, False, "").why
    assert "the last spans of about equal numbers of rows are the holdout" in by_time(np.arange(100) * 1000, 0, True, "").why
    assert "6 spans of about equal numbers of rows, each" in by_earlier_time(np.arange(100) * 1000, "when", False, "").why


def test_missing_times_are_a_period_of_their_own() -> None:
    micros = np.where(np.arange(500) % 10 == 0, NO_TIME, np.arange(500) * DAY)
    folds = by_time(micros, 0, False, "")
    assert len(np.unique(folds.fold[micros == NO_TIME])) == 1


def test_forward_folds_are_six_spans_of_which_the_first_only_learns() -> None:
    micros = np.random.default_rng(0).permutation(1000) * DAY
    folds = by_earlier_time(micros, "when", False, "")
    assert (folds.kind, folds.n_models, folds.plan.forward, folds.clusters) == ("forward", 5, True, "weeks")
    spans = [micros[folds.fold == fold] for fold in (ALL, 0, 1, 2, 3, 4)]
    assert all(earlier.max() < later.min() for earlier, later in pairwise(spans))
    assert min(map(len, spans)) > 140 and max(map(len, spans)) < 190
    weeks = (micros - 4 * DAY) // (7 * DAY)
    assert all(len(np.unique(folds.fold[weeks == week])) == 1 for week in np.unique(weeks))
    held = by_earlier_time(micros, "when", True, "")
    assert held.n_models == 1 and not held.plan.forward
    np.testing.assert_array_equal(held.fold == 0, folds.fold == 4)


def test_forward_spans_have_about_equal_rows_also_where_one_week_has_most_of_them() -> None:
    rng = np.random.default_rng(0)
    micros = np.concatenate([np.arange(300) * DAY, 100 * DAY + rng.integers(0, 7 * DAY, 5000)])
    folds = by_earlier_time(micros, "when", False, "")
    counts = np.bincount(folds.fold)[[0, 1, 2, 3, 4, ALL]]
    assert counts.min() > 400
    assert folds.clusters != "weeks"
    few = by_earlier_time(np.repeat(np.arange(3) * DAY, 50), "when", False, "")
    assert (few.n_models, len(np.unique(few.fold))) == (2, 3)
    two = by_earlier_time(np.repeat(np.arange(2) * DAY, 50), "when", False, "")
    assert two.plan.holdout and not two.plan.forward
    with pytest.raises(OptionError, match="nearly all rows have the same time in column 'when'"):
        by_earlier_time(np.zeros(50, np.int64), "when", False, "")


def test_folds_by_time_know_a_plan_that_looks_ahead() -> None:
    micros = np.random.default_rng(0).permutation(1000) * DAY
    by_weeks, forward = by_time(micros, 0, False, ""), by_earlier_time(micros, "when", False, "")
    plan = looking_ahead(by_weeks)
    assert plan is not None and plan.forward
    np.testing.assert_array_equal(plan.of(np.arange(1000), by_weeks.cluster), forward.fold)
    held = by_time(micros, 0, True, "")
    assert (looking_ahead(forward), looking_ahead(held)) == (forward.plan, held.plan)
    assert looking_ahead(by_row(1000, 0, False, "")) is None
    assert looking_ahead(by_group(micros % 7, 0, False, "")) is None


def test_which_models_learn_from_a_row() -> None:
    fold = np.array([ALL, 0, 1, 2, 3, 4], np.uint8)
    codes = [FieldCodes(np.zeros(6, np.uint8))]
    rest = (np.zeros(6, np.uint8), np.ones(6, np.float32))
    for forward, expected in ((False, fold[:, None] != np.arange(5)), (True, np.triu(np.ones((6, 5))))):
        (block,) = make_blocks(codes, *rest, FoldPlan(5, False, listed=fold, forward=forward), 0, 1)
        counts = np.zeros((6, 5), np.int64)
        counting.count(block.row.astype(np.uint8), block.learners, counts)
        np.testing.assert_array_equal(counts, expected)


def test_an_events_time_is_told_from_a_date_of_birth() -> None:
    rng = np.random.default_rng(0)
    births = TimeColumn(rng.integers(-10_000, 10_000, 300) * DAY)
    log = TimeColumn(np.arange(300) * DAY)
    clock = TimeColumn(rng.permutation(300) * DAY + rng.integers(1, DAY, 300))

    def kind(times: dict[str, TimeColumn], split: str = "auto", time: str | None = None) -> str:
        return choose(split, 300, 0, False, None, times, time).kind  # type: ignore[arg-type]

    assert kind({"birth": births}) == "random"
    assert kind({"log": log}) == "time"
    assert kind({"clock": clock}) == "time"
    assert kind({"birth": births}, split="time") == "time"
    assert kind({"birth": births}, time="birth") == "time"
    assert kind({"log": log}, split="random") == "random"
    assert kind({"log": log, "birth": births}) == "random"
    assert kind({"log": log, "birth": births}, time="log") == "time"
    assert kind({"birth": births}, split="forward") == "forward"
    assert kind({"log": log, "birth": births}, split="forward", time="log") == "forward"
    with pytest.raises(OptionError, match=r"split='forward' needs a time column, but there are 2\. Name one by time="):
        kind({"log": log, "birth": births}, split="forward")


def test_large_tables_are_judged_by_a_holdout() -> None:
    assert not use_holdout("auto", KFOLD_ROWS)
    assert use_holdout("auto", KFOLD_ROWS + 1)
    assert use_holdout("holdout", 10)
    assert not use_holdout("kfold", 10**9)


@pytest.mark.parametrize("n_blocks", [1, 2, 7, 400])
def test_blocks_hold_every_row_once_in_the_order_of_the_shuffle(n_blocks: int) -> None:
    n = 300
    codes = [FieldCodes(np.arange(n).astype(np.uint16))]
    label = (np.arange(n) % 2).astype(np.uint8)
    weight = np.arange(n).astype(np.float32)
    blocks = make_blocks(codes, label, weight, FoldPlan(5, False), 0, n_blocks)
    keys = mix(0, np.arange(n))
    rows = [block.codes[(0,)].codes for block in blocks]
    assert sorted(np.concatenate(rows).tolist()) == list(range(n))
    for block, mine in zip(blocks, rows, strict=True):
        assert (np.diff(keys[mine].astype(object)) > 0).all()
        np.testing.assert_array_equal(block.weight, mine.astype(np.float32))
        np.testing.assert_array_equal(block.label, mine % 2)
        assert (block.codes[INTERCEPT].codes == 0).all()


@pytest.mark.parametrize("metric", ["auc", "log_loss", "accuracy"])
def test_a_holdout_of_so_few_rows_that_it_is_empty_gives_no_score(metric: str) -> None:
    seed = next(seed for seed in range(100) if not (by_row(4, seed, True, "").fold == 0).any())
    X = pl.DataFrame({"a": ["p", "q", "p", "q"], "x": [1.5, 2.5, 0.5, 3.5]})
    clf = AutoCrossClassifier(quiet=True, evaluation="holdout", metric=metric, random_state=seed).fit(X, [0, 1, 0, 1])
    assert clf.model_.about.score is None
    assert np.isfinite(clf.predict_proba(X)).all()


# Whole fits.


@pytest.fixture
def visits() -> pl.DataFrame:
    """Rows of 200 days in order. Who comes on a day decides much of its label, so that rows of the same day tell it."""
    rng = np.random.default_rng(0)
    day = np.sort(rng.integers(0, 200, 3000))
    luck, x = rng.normal(0, 1.5, 200)[day], rng.normal(0, 1, 3000)
    label = (rng.random(3000) < 1 / (1 + np.exp(-luck - x))).astype(np.int64)
    when = pl.Series(day).cast(pl.Int64) * DAY
    return pl.DataFrame({"when": when.cast(pl.Datetime("us")), "guide": (day % 199).astype(str), "x": x, "label": label})


SAYS = {
    "time": "Folds are whole weeks of 'when', as for predicting new weeks: LR has AUC ",
    "forward": "Rows are judged by models of earlier weeks of 'when', as for predicting the future: LR has AUC ",
    "group": "Folds are whole groups of 'guide', as for predicting new groups: LR has AUC ",
    "group holdout": "Some groups of 'guide' are the holdout, as for predicting new groups: LR has AUC ",
    "holdout": "The last weeks of 'when' are the holdout, as for predicting later weeks: LR has AUC ",
}


@pytest.mark.filterwarnings("ignore:With random folds")
@pytest.mark.parametrize("split", SAYS)
def test_the_last_line_says_what_folds_mean_and_what_random_ones_would_give(
    split: str, visits: pl.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"forward": {"split": "forward"}, "group": {"groups": "guide"}, "group holdout": {"groups": "guide"}}
    evaluation = "holdout" if "holdout" in split else "kfold"
    model = AutoCrossClassifier(max_crosses=0, evaluation=evaluation, **options.get(split, {})).fit(visits, "label").model_
    said = [line.partition("s  ")[2].strip() for line in capsys.readouterr().err.splitlines()]
    chosen = "a random holdout" if evaluation == "holdout" else "random folds"
    assert said[-2].startswith("done:")
    assert said[-1].startswith(SAYS[split] + f"{model.about.score:.4f}. With {chosen} (split='random'), as for rows of the ")
    assert said[-1] in " ".join(in_words(summary(model)).split())


def test_log_loss_is_told_without_a_minus(visits: pl.DataFrame, capsys: pytest.CaptureFixture[str]) -> None:
    model = AutoCrossClassifier(max_crosses=0, metric="log_loss").fit(visits, "label").model_
    said = capsys.readouterr().err
    assert model.about.score is not None and model.about.score < 0
    assert f"LR has log_loss {-model.about.score:.4f}. With" in said.splitlines()[-1]
    assert f"validation log_loss {-model.about.score:.4f}" in in_words(summary(model))
    assert "log_loss -" not in said and "have -" not in said


def test_two_spans_of_time_are_a_holdout(visits: pl.DataFrame) -> None:
    two = visits.with_columns(when=pl.Series(np.arange(3000) // 1500 * DAY).cast(pl.Datetime("us")))
    model = AutoCrossClassifier(max_crosses=0, quiet=True, split="forward").fit(two, "label").model_
    (rule,) = (rule for rule in model.about.rules if rule.name == "evaluation")
    assert (rule.value, rule.why) == ("holdout of the last span of time", "there are only two spans of time")


def test_random_folds_are_compared_with_nothing(visits: pl.DataFrame) -> None:
    model = AutoCrossClassifier(max_crosses=0, quiet=True, split="random").fit(visits, "label").model_
    assert "compared" not in {rule.name for rule in model.about.rules}


@pytest.mark.filterwarnings("ignore:With random folds")
def test_forward_folds_judge_what_a_model_of_earlier_rows_can_know(visits: pl.DataFrame) -> None:
    """Every day has a guide of its own, so that nothing is known about the guides of later days."""
    scores = {
        split: AutoCrossClassifier(max_crosses=0, quiet=True, split=split, time="when").fit(visits, "label").model_.about.score
        for split in ("random", "forward")
    }
    assert scores["random"] > scores["forward"] + 0.05  # type: ignore[operator]


def test_forward_folds_need_a_time_column(visits: pl.DataFrame) -> None:
    with pytest.raises(OptionError, match=r"Option split='forward' needs a time column\. Name it by time=, or declare its kind"):
        AutoCrossClassifier(quiet=True, split="forward").fit(visits.drop("when"), "label")
    two = visits.with_columns(then="when")
    with pytest.raises(OptionError, match=r"Option split='forward' needs a time column, but there are 2\. Name one by time="):
        AutoCrossClassifier(quiet=True, split="forward").fit(two, "label")
