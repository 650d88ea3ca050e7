"""Weak crosses taken together: accepted where they bring a lot, not where one cross is all there is."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score

from autocross import AutoCrossClassifier, load
from autocross.blocks import Cross
from autocross.fitting import search as searching
from autocross.models.logistic import Regression
from autocross.search import together
from autocross.search.loop import Search, State
from autocross.search.policy import AUTO, EVERY_PAIR, PAIRS, SPARSE, Group
from autocross.search.together import broaden, drop_faintest, weak_crosses
from conftest import Steer

pytestmark = pytest.mark.slow

N = 12_000


def crossed(n_columns: int, n_values: int, each: float, seed: int = 0) -> pl.DataFrame:
    """Every pair of columns has an effect of its own on the label, as strong as said."""
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, n_values, (n_columns, 2 * N))
    odds = sum(rng.normal(0, each, (n_values, n_values))[one, other] for one, other in combinations(columns, 2))
    label = (rng.random(2 * N) < 1 / (1 + np.exp(-odds))).astype(np.uint8)
    texts = {f"c{at}": [f"v{code}" for code in column] for at, column in enumerate(columns)}
    return pl.DataFrame({**texts, "label": label})


@pytest.fixture(autouse=True)
def _nothing_is_taken_out(steer: Steer) -> None:
    """These tests are about what comes in; `test_pruning.py` is about what goes out again."""
    steer(pruning=None)


def fitted(frame: pl.DataFrame, **options: Any) -> tuple[AutoCrossClassifier, float]:
    """A model of the first half, and its AUC on the second."""
    model = AutoCrossClassifier(quiet=True, engine="serial", **options).fit(frame[:N], "label")
    return model, float(roc_auc_score(frame[N:]["label"], model.predict_proba(frame[N:])[:, 1]))


def test_many_weak_crosses_come_in_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    frame = crossed(6, 40, 0.25)
    both, auc = fitted(frame)
    assert len(both.crosses_) >= 15
    assert {frozenset(one.columns) for one in both.crosses_} >= {
        frozenset(pair) for pair in combinations([f"c{at}" for at in range(6)], 2)
    }
    monkeypatch.setattr(searching, "broaden", lambda search, state: None)
    one_by_one, without = fitted(frame)
    assert len(one_by_one.crosses_) < 15
    assert auc > without + 0.005
    both.save(tmp_path / "model.acx")
    scorer = load(tmp_path / "model.acx")
    assert scorer.score_one(frame.row(N, named=True)) == pytest.approx(both.predict_proba(frame[N : N + 1])[0, 1], abs=1e-12)


def test_where_one_cross_is_all_there_is_nothing_joins_it() -> None:
    rng = np.random.default_rng(1)
    columns = rng.integers(0, 8, (5, 2 * N))
    label = (rng.random(2 * N) < np.where((columns[0] + columns[1]) % 2, 0.7, 0.3)).astype(np.uint8)
    frame = pl.DataFrame({**{f"c{at}": [f"v{code}" for code in one] for at, one in enumerate(columns)}, "label": label})
    model, _ = fitted(frame)
    assert [one.columns for one in model.crosses_] == [("c0", "c1")]


def bent(seed: int, each: float) -> pl.DataFrame:
    """Numbers, of which every two bend each other's effect on the label a little, as strongly as said."""
    rng = np.random.default_rng(seed)
    columns = rng.normal(0, 1, (8, 2 * N))
    odds = columns.sum(axis=0) / 3 + sum(rng.choice([-each, each]) * one * other for one, other in combinations(columns, 2))
    label = (rng.random(2 * N) < 1 / (1 + np.exp(-odds))).astype(np.uint8)
    return pl.DataFrame({**{f"c{at}": column for at, column in enumerate(columns)}, "label": label})


def test_faint_pairs_of_numbers_come_in_together(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = bent(0, 0.1)
    both, auc = fitted(frame)
    monkeypatch.setattr(searching, "broaden", lambda search, state: None)
    one_by_one, without = fitted(frame)
    assert len(both.crosses_) > len(one_by_one.crosses_) + 5
    assert auc > without + 0.002


def test_pairs_of_numbers_are_of_quarters_that_only_they_need(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    frame = bent(0, 0.1)
    model, _ = fitted(frame)
    coarse = {name for name in model.model_.producer.names if name.endswith("[4 even]") and " x " not in name}
    assert coarse == {f"c{at} [4 even]" for at in range(8)}
    pairs = [one.fields for one in model.crosses_ if {*one.fields} <= coarse]
    assert len(pairs) > 5
    model.save(tmp_path / "model.acx")
    scorer = load(tmp_path / "model.acx")
    assert scorer.score(frame[N : N + 50]).tolist() == [scorer.score_one(row) for row in frame[N : N + 50].iter_rows(named=True)]
    given, _ = fitted(frame, granularities=[10, 100])
    assert not any("[4 even]" in name for name in given.model_.producer.names)
    alone, _ = fitted(bent(0, 0.0))
    assert not any("[4 even]" in name for name in alone.model_.producer.names)


@pytest.mark.parametrize("seed", range(5))
def test_numbers_that_do_not_bend_each_other_are_left_alone(seed: int) -> None:
    model, _ = fitted(bent(seed, 0.0))
    assert len(model.crosses_) <= 1  # chance may let one pass


def test_the_faintest_pairs_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[tuple[dict[Cross, float], set[Cross]]] = []

    def watch(broad: Regression, pairs: list[Cross], share: float) -> None:
        effect = {cross: broad.effect(cross) for cross in pairs}
        drop_faintest(broad, pairs, share)
        watched.append((effect, set(pairs) & set(broad.terms)))

    monkeypatch.setattr(together, "drop_faintest", watch)
    model, _ = fitted(bent(0, 0.1))
    ((effect, kept),) = watched
    dropped = [effect[cross] for cross in effect.keys() - kept]
    least = min(effect[cross] for cross in kept)
    assert max(dropped) <= least
    assert sum(dropped) <= AUTO.faintest * sum(effect.values()) < sum(dropped) + least
    assert len(model.crosses_) >= len(kept)


def seen(frame: pl.DataFrame, group: Group, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[list[tuple[int, ...]]]:
    """What would be tried together."""
    found: list[list[tuple[int, ...]]] = []

    def watch(search: Search, state: State) -> State | None:
        found.append(weak_crosses(search, state.regression, group))
        return None

    monkeypatch.setattr(searching, "broaden", watch)
    fitted(frame, **options)
    return found


def test_what_is_tried_together(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = crossed(11, 5, 0.3)
    (found,) = seen(frame, SPARSE, monkeypatch)
    columns = {at for cross in found for at in cross}
    assert len(columns) == SPARSE.strongest
    assert {len(cross) for cross in found} == set(SPARSE.orders)
    (found,) = seen(frame, SPARSE, monkeypatch, max_order=2)
    assert {len(cross) for cross in found} == {2}
    (found,) = seen(frame, PAIRS, monkeypatch)
    assert {at for cross in found for at in cross} == set(range(11))
    assert {len(cross) for cross in found} == {2}


@pytest.mark.parametrize(("n_values", "each", "first"), [(40, 0.25, SPARSE), (10, 0.1, PAIRS)])
def test_sparse_crosses_are_tried_where_some_pair_is_sparse_then_pairs_that_are_not_then_all(
    monkeypatch: pytest.MonkeyPatch, n_values: int, each: float, first: Group
) -> None:
    tried: list[Group] = []
    monkeypatch.setattr(together, "propose", lambda search, state, group, found: tried.append(group))
    fitted(crossed(6, n_values, each))
    assert tried == [first, EVERY_PAIR]


@pytest.mark.parametrize(("n_columns", "n_values", "each", "refused"), [(14, 20, 0.06, PAIRS), (18, 40, 0.1, SPARSE)])
def test_where_crosses_lose_that_are_held_less_every_pair_may_gain(
    monkeypatch: pytest.MonkeyPatch, n_columns: int, n_values: int, each: float, refused: Group
) -> None:
    accepted: dict[Group, bool] = {}

    def watch(search: Search, state: State, group: Group, found: list[Cross]) -> State | None:
        broad = propose(search, state, group, found)
        accepted[group] = broad is not None
        return broad

    propose = together.propose
    monkeypatch.setattr(together, "propose", watch)
    frame = crossed(n_columns, n_values, each)
    both, auc = fitted(frame)
    assert accepted == {refused: False, EVERY_PAIR: True}
    assert len(both.crosses_) > 50
    monkeypatch.setattr(searching, "broaden", lambda search, state: None)
    _, without = fitted(frame)
    assert auc > without + 0.002


def test_the_number_of_crosses_asked_for_holds() -> None:
    model, _ = fitted(crossed(6, 40, 0.35), max_crosses=10)
    assert len(model.crosses_) <= 10


def test_one_penalty_or_one_holdout_leaves_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Regression] = []

    def watch(search: Search, state: State) -> State | None:
        monkeypatch.setattr(search.judge, "remember", tried.append)
        return broaden(search, state)

    monkeypatch.setattr(searching, "broaden", watch)
    frame = crossed(4, 10, 0.5)
    fitted(frame, penalty="shared")
    fitted(frame, evaluation="holdout")
    assert not tried
