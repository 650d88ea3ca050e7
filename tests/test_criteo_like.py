"""The generator of rows like Criteo's: the same rows every time, Criteo's shape, and crosses that are there."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import criteo_like as like

pytestmark = pytest.mark.slow  # all of it takes seconds, and few changes touch it

N = 200_000
CRITEO_ROWS, CRITEO_VALUES = 45_840_617, 33_762_577


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    return like.part(0, N)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Parts of 2,000 rows."""
    for name, rows in {"PART_ROWS": 2000, "BLOCK_ROWS": 500, "SAMPLE_ROWS": 2000}.items():
        monkeypatch.setattr(like, name, rows)
    like.intercept.cache_clear()
    yield
    like.intercept.cache_clear()


def n_expected(column: like.Category, rows: int) -> float:
    """How many values of a column that many rows show, missing not counted."""
    edges = np.arange(min(column.values, 3000) + 1.0)
    edges = np.union1d(edges, np.geomspace(edges[-1], column.values, 3000).round())
    width = np.diff(edges)
    share = np.diff(like.below(edges, column)) / width
    return float(width @ -np.expm1(-rows * (1 - column.missing) * share))


@pytest.mark.slow
def test_the_same_seed_gives_the_same_rows_and_another_does_not(frame: pl.DataFrame) -> None:
    assert like.part(0, 1000).equals(like.part(0, 1000))
    assert not like.part(1, 1000).equals(like.part(0, 1000))
    assert not like.part(0, 1000, seed=1).equals(like.part(0, 1000))
    assert frame.head(100_500).equals(like.part(0, 100_500))
    with pytest.raises(ValueError, match="1 to 1,000,000 rows"):
        like.part(0, 1_000_001)


@pytest.mark.slow
def test_columns_have_their_types_and_missing_rates(frame: pl.DataFrame) -> None:
    assert frame.schema == {**dict.fromkeys(like.COUNTS, pl.Int32), **dict.fromkeys(like.CATEGORIES, pl.String), "label": pl.Int8}
    for name, column in {**like.COUNTS, **like.CATEGORIES}.items():
        assert frame[name].null_count() / N == pytest.approx(column.missing, abs=0.005), name
    for name in like.CATEGORIES:
        assert frame[name].drop_nulls().str.contains("^[0-9a-f]{8}$").all(), name
    for name, count in like.COUNTS.items():
        values = frame[name].drop_nulls()
        assert values.min() == count.least, name
        assert values.median() == pytest.approx(np.floor(np.exp(count.mean)) + count.least, rel=0.03, abs=1), name
    assert (frame["C3"].is_null() == frame["C24"].is_null()).all()


def test_as_many_values_are_seen_as_the_frequencies_tell(frame: pl.DataFrame) -> None:
    for name, column in like.CATEGORIES.items():
        expected = n_expected(column, N)
        assert abs(frame[name].drop_nulls().n_unique() - expected) < 4 * expected**0.5, name
    for name in ("C6", "C14", "C17", "C20", "C23"):
        assert frame[name].drop_nulls().n_unique() == like.CATEGORIES[name].values
        counted = frame[name].drop_nulls().value_counts(sort=True)["count"].to_numpy() / N
        np.testing.assert_allclose(counted, np.sort(like.shares(name)[1:])[::-1], atol=0.005)


def test_all_rows_of_criteo_would_show_its_number_of_values() -> None:
    seen = sum(n_expected(column, CRITEO_ROWS) for column in like.CATEGORIES.values())
    assert seen == pytest.approx(CRITEO_VALUES, rel=0.01)


def test_labels_follow_the_true_log_odds(frame: pl.DataFrame) -> None:
    mains, crosses = like.truth(0, N)
    label = frame["label"].to_numpy()
    assert label.mean() == pytest.approx(like.BASE_RATE, abs=0.005)
    rate = like.rate_of(mains + crosses)
    for group in np.array_split(np.argsort(rate), 20):
        assert abs(label[group].mean() - rate[group].mean()) < 4 * (0.25 / len(group)) ** 0.5


@pytest.mark.parametrize("cross", like.PLANTED, ids=" x ".join)
def test_no_effect_of_a_cross_is_one_of_fewer_columns(cross: tuple[str, ...]) -> None:
    for order, size in enumerate(like.EFFECTS[cross], 2):
        assert size > 0
        table = like.effects(cross[:order], 0)
        for axis, name in enumerate(cross[:order]):
            np.testing.assert_allclose(np.tensordot(table, like.shares(name), (axis, 0)), 0, atol=1e-12)


@pytest.mark.parametrize("cross", like.PLANTED, ids=" x ".join)
def test_a_planted_cross_has_signal_beyond_its_parts(cross: tuple[str, ...], frame: pl.DataFrame) -> None:
    n = like.BLOCK_ROWS
    last = like.cross_effect(cross, like.draw(cross, 0, n, 0), 0)[-1]
    odds = np.add(*like.truth(0, n))

    def surprise(odds: np.ndarray) -> float:
        """How far labels are from these log-odds, combination by combination, in standard deviations of a chi-square."""
        rate = like.rate_of(odds)
        rows = frame.head(n).select(*cross, off=pl.col("label") - pl.Series(rate), spread=pl.Series(rate * (1 - rate)))
        cells = rows.group_by(cross).agg(pl.col("off", "spread").sum()).filter(pl.col("spread") > 5)
        squares = (cells["off"] ** 2 / cells["spread"]).sum()
        return float((squares - cells.height) / (2 * cells.height) ** 0.5)

    assert abs(surprise(odds)) < 4
    assert surprise(odds - last) > 10


def test_the_expected_auc_is_that_of_labels_drawn() -> None:
    rng = np.random.default_rng(0)
    score = rng.normal(size=400)
    yes = rng.random(400) < like.rate_of(score)
    pairs = (score[yes][:, None] > score[~yes][None, :]).mean()
    assert like.expected_auc(score, yes.astype(float)) == pytest.approx(pairs)
    facts = like.facts(1, 0)
    assert 0.75 < facts["auc_without_crosses"] + 0.04 < facts["auc"] < 0.85


def test_writing_goes_on_where_it_stopped(small_parts: None, tmp_path: Path) -> None:
    facts = like.write(tmp_path, 5000, seed=3)
    assert json.loads((tmp_path / "facts.json").read_text()) == facts
    assert (facts["rows"], facts["seed"], facts["planted"]) == (5000, 3, [list(cross) for cross in like.PLANTED])
    assert facts["auc"] > facts["auc_without_crosses"] > 0.5
    paths = [tmp_path / f"part-{number:05}.parquet" for number in range(4)]
    assert [like.n_written(path) for path in paths] == [2000, 2000, 1000, 0]
    first = [path.read_bytes() for path in paths[:3]]
    paths[1].unlink()
    (tmp_path / "part-00001.tmp").write_text("half a part")
    before = paths[0].stat().st_mtime_ns
    like.write(tmp_path, 7000, seed=3)
    assert paths[0].stat().st_mtime_ns == before
    assert [like.n_written(path) for path in paths] == [2000, 2000, 2000, 1000]
    assert [path.read_bytes() for path in paths[:2]] == first[:2]
    assert pl.read_parquet(paths[2]).head(1000).equals(pl.read_parquet(first[2]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["facts.json", *(path.name for path in paths)]
    with pytest.raises(ValueError, match="other rows than those of seed 4"):
        like.write(tmp_path, 7000, seed=4)
    with pytest.raises(ValueError, match="more than 5,000 rows"):
        like.write(tmp_path, 5000, seed=3)
