"""Statistics of values: no row sees its own label, the blend helps where ids matter, and nothing joins where they do not."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import log_loss, roc_auc_score

from autocross import AutoCrossClassifier, load, statistic
from autocross.blocks import COUNT, RATE, make_blocks
from autocross.crossing import CrossCoder
from autocross.engines import SerialEngine
from autocross.errors import BundleError
from autocross.features import FIRST, RARE, FieldCodes
from autocross.folds import ALL, FoldPlan, by_row
from autocross.search import policy, statistics
from autocross.search.policy import AUTO
from autocross.table import ingest
from autocross.table.coerce import typed
from autocross.table.frames import to_polars
from conftest import Steer
from forgery import forge, parts

N_ROWS, N_CODES = 300, 12


# The numbers of a row.


def obvious_bins(rows: int, positives: int, base: float) -> tuple[int, int]:
    """The codes of a value, from the definition."""
    up, down = positives + statistic.STRENGTH * base, rows - positives + statistic.STRENGTH * (1 - base)
    above = math.log(up / down) - math.log(base / (1 - base))
    rate = sum(edge < above - 1e-12 for edge in statistic.RATE_EDGES)
    return FIRST + rate, FIRST + sum(edge < rows for edge in statistic.COUNT_EDGES)


@given(rows=st.integers(0, 100_000), share=st.floats(0, 1), base=st.floats(0.001, 0.999))
def test_bins_are_those_of_the_definition(rows: int, share: float, base: float) -> None:
    positives = round(share * rows)
    found = statistic.bins_of_values(np.array([[rows, positives]]), base)[:, 0]
    expected = obvious_bins(rows, positives, base)
    assert abs(int(found[0]) - expected[0]) <= 1  # a rounding error may lie on the other side of an edge
    assert found[1] == expected[1]
    assert found.min() >= FIRST and (found < statistic.SIZES).all()


class Rows:
    """One field of codes with labels, in the blocks of an engine, and the slow way to the statistics of each row."""

    def __init__(self, label: np.ndarray, plan: FoldPlan, n_blocks: int) -> None:
        rng = np.random.default_rng(3)
        self.codes = np.minimum(rng.zipf(1.5, N_ROWS), N_CODES - 1).astype(np.uint8)
        self.label, self.plan = label, plan
        weight = np.ones(N_ROWS, np.float32)
        self.blocks = make_blocks([FieldCodes(self.codes)], label, weight, plan, 5, n_blocks)
        self.coder = CrossCoder((0,), (N_CODES,), np.arange(2, N_CODES, dtype=np.uint32)[:, None], kind="statistic")

    def placed(self) -> tuple[np.ndarray, np.ndarray]:
        """The codes that rows are learned from by, and those by which they judge: (n_rows, 2) each, in the order of the table."""
        learned, judged = np.zeros((2, N_ROWS, 2), np.uint8)
        with SerialEngine() as engine:
            engine.place(self.blocks)
            statistics.place(engine, self.coder, self.plan.n_models, float(self.label.mean()))
        for block in self.blocks:
            for number, part in enumerate((RATE, COUNT)):
                coded = block.coded((part, 0))
                learned[block.row, number] = coded.codes
                judged[block.row, number] = coded.codes if coded.judged is None else coded.judged
        return learned, judged

    def obvious(self, row: int) -> tuple[tuple[int, int], tuple[int, int] | None]:
        """The same for one row, by looking at all others."""
        place, fold = np.zeros(N_ROWS, np.int64), self.plan.of(np.arange(N_ROWS), None)
        for block in self.blocks:
            place[block.row] = block.place
        bucket, base = place >> (32 - statistic.BUCKET_BITS), float(self.label.mean())
        known = self.codes == self.codes[row] if self.codes[row] != RARE else np.zeros(N_ROWS, np.bool_)

        def counted(chosen: np.ndarray) -> tuple[int, int]:
            return obvious_bins(int(chosen.sum()), int(self.label[chosen].sum()), base)

        judges = fold[row] < self.plan.n_models
        learned = (fold == ALL) | (fold < fold[row]) if self.plan.forward else fold != fold[row]
        return counted(known & (bucket < bucket[row])), counted(known & learned) if judges else None


LABEL = (np.random.default_rng(4).random(N_ROWS) < 0.3).astype(np.uint8)
IN_ORDER = np.where(np.arange(N_ROWS) * 6 // N_ROWS == 0, ALL, np.arange(N_ROWS) * 6 // N_ROWS - 1).astype(np.uint8)
PLANS = {
    "folds": by_row(N_ROWS, 0, False, "").plan,
    "forward": FoldPlan(5, False, listed=IN_ORDER, forward=True),
    "holdout": by_row(N_ROWS, 0, True, "").plan,
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("n_blocks", [1, 3])
def test_rows_have_the_statistics_of_the_rows_before_them(name: str, n_blocks: int) -> None:
    rows = Rows(LABEL, PLANS[name], n_blocks)
    learned, judged = rows.placed()
    fold = PLANS[name].of(np.arange(N_ROWS), None)
    for row in range(N_ROWS):
        before, others = rows.obvious(row)
        if name != "holdout" or fold[row] != 0:  # a single model learns from a row or is judged by it
            assert tuple(learned[row]) == before
        if others is not None:
            assert tuple(judged[row]) == others
    assert len({tuple(codes) for codes in learned.tolist()}) > 20


@pytest.mark.parametrize("name", PLANS)
def test_no_row_sees_its_own_label(name: str) -> None:
    """A row with another label has the same statistics. A row of another value takes its label, so that the share of positives,
    which everyone sees, stays the same."""
    rng, rows = np.random.default_rng(6), Rows(LABEL, PLANS[name], 2)
    learned, judged = rows.placed()
    n_changed = 0
    for row in rng.choice(N_ROWS, 20, replace=False):
        other = rng.choice(np.flatnonzero((LABEL[row] != LABEL) & (rows.codes != rows.codes[row])))
        swapped = LABEL.copy()
        swapped[[row, other]] = LABEL[[other, row]]
        now, as_judge = Rows(swapped, PLANS[name], 2).placed()
        assert (now[row] == learned[row]).all() and (as_judge[row] == judged[row]).all()
        n_changed += int((now != learned).sum())
    assert n_changed > 20  # those of other rows


# Whole models.


def ids(n: int = 3000, seed: int = 0) -> pl.DataFrame:
    """Who asks for what in which office, and whether it was granted."""
    rng = np.random.default_rng(seed)
    asker, thing, office = (np.minimum(rng.zipf(1.3, n) - 1, most) for most in (400, 200, 60))
    effects = [rng.normal(0, 1, most + 1) for most in (400, 200, 60)]
    odds = effects[0][asker] + effects[1][thing] + effects[2][office] + rng.normal(0, 1, (401, 201))[asker, thing]
    granted = np.where(rng.random(n) < 1 / (1 + np.exp(-odds)), "yes", "no")
    columns = {"asker": asker, "thing": thing, "office": office}
    texts = {name: [f"{name} {code}" for code in codes] for name, codes in columns.items()}
    return pl.DataFrame({**texts, "age": rng.normal(40, 10, n), "granted": granted})


@pytest.fixture
def eager(steer: Steer) -> None:
    """Statistics are accepted whatever they gain, and stay."""
    assert AUTO.statistics is not None
    trial = replace(AUTO.statistics.trial, first_errors=None, errors=None, lift=-1.0)
    steer(statistics=replace(AUTO.statistics, trial=trial, most=5, hopeless=-math.inf), pruning=None)


def fitted(frame: pl.DataFrame, **options: Any) -> AutoCrossClassifier:
    return AutoCrossClassifier(**{"quiet": True, "engine": "serial", **options}).fit(frame, "granted")


def statistics_of(model: Any) -> list[Any]:
    return [cross for cross in model.crosses_ if cross.kind == "statistic"]


def stored(model: AutoCrossClassifier, folder: Path) -> bytes:
    model.save(folder / "model.acx")
    return (folder / "model.acx").read_bytes()


@pytest.mark.slow
def test_on_real_ids_they_help(benchmark_data: Callable[[str], pl.DataFrame], monkeypatch: pytest.MonkeyPatch) -> None:
    frame = benchmark_data("employee").sample(fraction=1.0, shuffle=True, seed=2)
    train, test = frame[:24_000].rename({"label": "granted"}), frame[24_000:]
    found = fitted(train)
    assert 0 < len(statistics_of(found)) <= 40
    assert {cross.order for cross in statistics_of(found)} <= {1, 2, 3}
    assert 0.0 < found.model_.share < 1.0
    monkeypatch.setattr(statistics, "propose", lambda search, state: None)
    without = fitted(train)
    assert not statistics_of(without)
    auc, auc_without = (roc_auc_score(test["label"], model.predict_proba(test)[:, 1]) for model in (found, without))
    loss, loss_without = (log_loss(test["label"], model.predict_proba(test)[:, 1]) for model in (found, without))
    assert auc > auc_without + 0.002
    assert loss < loss_without - 0.001


def test_the_paper_has_none() -> None:
    assert policy.PAPER.statistics is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_ids_that_tell_nothing_have_no_statistics(seed: int) -> None:
    frame = ids(6000, seed)
    shuffled = frame.with_columns(frame["granted"].shuffle(seed=seed))
    assert not statistics_of(fitted(shuffled))


@pytest.mark.usefixtures("eager")
class TestModels:
    """Models with statistics in every respect in which others are tested."""

    def test_the_journal_has_the_seconds_of_their_whole_trial(self, tmp_path: Path) -> None:
        fitted(ids(), journal=str(tmp_path / "journal"))
        told = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()]
        (phase,) = (one for one in told if one.get("phase") == statistics.PHASE)
        trial = next(one for one in told if one["event"] == "CrossTried" and one["cross"].endswith(" statistics"))
        assert trial["took"] >= trial["seconds"] - phase["seconds"]

    def test_one_row_scores_as_many_do(self, tmp_path: Path) -> None:
        frame = ids()
        model = fitted(frame)
        assert len(statistics_of(model)) > 2
        model.save(tmp_path / "model.acx")
        scorer = load(tmp_path / "model.acx")
        news = pl.concat(
            [frame.drop("granted")[:200], pl.DataFrame({"asker": ["new", None], "thing": ["thing 1", "new"]})], how="diagonal"
        )
        many = scorer.score(news)
        np.testing.assert_array_equal([scorer.score_one(row) for row in news.iter_rows(named=True)], many)
        np.testing.assert_array_equal(model.predict_proba(news)[:, 1], many)
        explanation = scorer.explain(news.row(0, named=True))
        assert sum(reason.contribution for reason in explanation.reasons) + explanation.mean_log_odds == pytest.approx(
            explanation.log_odds
        )
        assert [cross.kind for cross in scorer.model.about.crosses] == [cross.kind for cross in model.crosses_]

    @pytest.mark.slow
    def test_statistics_are_taken_out_as_crosses_are(self, steer: Steer, tmp_path: Path) -> None:
        n_all = len(statistics_of(fitted(ids())))
        steer(pruning=AUTO.pruning)
        model = fitted(ids())
        assert 0 < len(statistics_of(model)) < n_all
        assert not statistics_of(model.at(0))
        assert stored(model, tmp_path) == stored(fitted(ids(), engine="threads", n_jobs=3), tmp_path)

    @pytest.mark.slow
    def test_every_engine_finds_the_same(self, tmp_path: Path) -> None:
        assert stored(fitted(ids()), tmp_path) == stored(fitted(ids(), engine="threads", n_jobs=3), tmp_path)
        holdout = {"evaluation": "holdout"}
        assert stored(fitted(ids(), **holdout), tmp_path) == stored(fitted(ids(), engine="threads", n_jobs=2, **holdout), tmp_path)

    def test_rows_on_disk_give_the_same(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        frame = ids()
        frame.write_parquet(tmp_path / "rows.parquet")
        in_memory = stored(fitted(frame), tmp_path)
        monkeypatch.setattr(ingest, "bytes_in_memory", lambda path: 1 << 60)
        monkeypatch.setattr(ingest, "MOST_ROWS", 700)
        assert stored(fitted(str(tmp_path / "rows.parquet")), tmp_path) == in_memory

    def test_the_weight_of_a_value_comes_from_its_counts(self) -> None:
        """Values with equal counts weigh the same, whatever they are; counts are those of the rows."""
        frame = ids()
        model = fitted(frame).model_
        assert model.counts is not None
        for number, cross in enumerate(model.producer.crosses, start=len(model.producer.encoder.fields)):
            if cross.kind == "statistic":
                bins = statistic.bins_of_values(model.counts[number], model.about.n_positive / model.about.n_rows)
                by_bins = dict(zip(map(tuple, bins.T.tolist()), model.weights[number].tolist(), strict=True))
                assert [by_bins[tuple(codes)] for codes in bins.T.tolist()] == model.weights[number].tolist()
        codes = model.producer.codes(typed(to_polars(frame.drop("granted")), model.producer.encoder.schema))
        positive = (frame["granted"] == "yes").to_numpy()
        for coded, counts in zip(codes, model.counts, strict=True):
            rows = np.bincount(coded.codes, minlength=len(counts))
            np.testing.assert_array_equal(counts[:, 0], rows)
            np.testing.assert_array_equal(counts[:, 1], np.bincount(coded.codes[positive], minlength=len(counts)))

    def test_limits_hold(self) -> None:
        assert not fitted(ids(), max_crosses=0).crosses_
        assert len(fitted(ids(), max_crosses=3).crosses_) == 3
        assert {cross.order for cross in statistics_of(fitted(ids(), max_order=2))} <= {1, 2}

    def test_a_refit_counts_the_new_rows(self) -> None:
        model, other = fitted(ids()), ids(seed=0).sample(fraction=0.7, seed=1)
        share = model.model_.share
        again = model.refit(other, "granted").model_
        assert again.share == share
        assert again.counts is not None
        assert again.about.n_positive == (other["granted"] == "yes").sum()
        for number, cross in enumerate(again.producer.crosses, start=len(again.producer.encoder.fields)):
            if cross.kind == "statistic":
                assert again.counts[number][:, 0].sum() == other.height
        assert [cross.kind for cross in model.crosses_] == [cross.kind for cross in again.about.crosses]

    def test_a_refit_on_the_same_rows_changes_little(self) -> None:
        model = fitted(ids())
        before = model.predict_proba(ids())
        np.testing.assert_allclose(model.refit(ids(), "granted").predict_proba(ids()), before, atol=0.01)

    def test_weights_count_in_relation_to_each_other(self, tmp_path: Path) -> None:
        weight = np.random.default_rng(0).uniform(0.5, 2, 3000)
        options = {"quiet": True, "engine": "serial"}
        once, twice = (AutoCrossClassifier(**options).fit(ids(), "granted", factor * weight) for factor in (1.0, 4.0))
        assert stored(once, tmp_path) == stored(twice, tmp_path)

    def test_a_private_model_scores_the_same(self) -> None:
        readable, private = (fitted(ids(), private=private) for private in (False, True))
        np.testing.assert_array_equal(readable.predict_proba(ids()), private.predict_proba(ids()))

    def test_forged_statistics_are_refused(self, tmp_path: Path) -> None:
        stored(fitted(ids()), tmp_path)
        manifest, arrays = parts(tmp_path / "model.acx")
        number = next(number for number, cross in enumerate(manifest["crosses"]) if "kind" in cross)

        def refused(why: str) -> None:
            with pytest.raises(BundleError, match=why):
                load(forge(tmp_path / "forged.acx", manifest, arrays))

        for share in (0.0, 1.0, -0.5, math.nan, "1"):
            kept, manifest["share"] = manifest["share"], share
            refused("it has no proper share of statistics")
            manifest["share"] = kept
        manifest["crosses"][number]["kind"] = "guess"
        refused("has an unknown kind")
        manifest["crosses"][number]["kind"] = "cross"
        refused("has no proper values|has impossible fields|tells of other crosses")
        manifest["crosses"][number]["kind"] = "statistic"
        arrays["counts"][0, 1] = arrays["counts"][0, 0] + 1
        refused("it has more positive rows than rows")
        arrays["counts"] = arrays["counts"][:-1]
        refused("it has the wrong number of counts")
