"""What a proposal gains a row, and how sure that is: the numbers by which crosses are accepted, against their formulas."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from autocross import AutoCrossClassifier
from autocross.blocks import make_blocks
from autocross.engines import SerialEngine
from autocross.events import Reporter
from autocross.features import FieldCodes
from autocross.folds import Folds, by_group, by_row
from autocross.models.logistic import Regression
from autocross.search.judging import Judge

N_ROWS = 400


def gained(folds: Folds, weight: np.ndarray, before: np.ndarray, after: np.ndarray, label: np.ndarray) -> tuple[float, float]:
    """Gain a row of mean weight and its standard error, as the judge has them. Log-odds are (n_rows, n_models)."""
    cluster = np.zeros(N_ROWS, np.int64) if folds.cluster is None else folds.cluster
    with SerialEngine() as engine:
        codes = [FieldCodes(np.zeros(N_ROWS, np.uint8))]
        blocks = make_blocks(codes, label, weight, by_row(N_ROWS, 0, False, "").plan, 0, 3)
        for block in blocks:
            block.cluster = cluster[block.row]
            block.fold = folds.plan.of(block.row, block.cluster)
        engine.place(blocks)
        regression = Regression.begin(engine, float(weight.sum(dtype=np.float64)), folds.n_models)
        judge = Judge(engine, Reporter(), folds.n_clusters, lambda regression: 0.0)
        for block in blocks:
            block.odds = np.exp(before[block.row])
        judge.remember(regression)
        for block in blocks:
            block.odds = np.exp(after[block.row])
        return judge.gain(regression)


def obvious(folds: Folds, weight: np.ndarray, before: np.ndarray, after: np.ndarray, label: np.ndarray) -> tuple[float, float]:
    """The same, row by row. Where rows come in clusters, what the error is made of is by how much each cluster gained more than as
    many rows do on average; but it is never less than that of single rows."""
    gains, by_cluster = [], defaultdict(list)
    for row in range(N_ROWS):
        k = int(folds.fold[row])
        if k < folds.n_models:
            sign = -1 if label[row] == 1 else 1
            loss = [math.log(1 + math.exp(sign * log_odds[row, k])) for log_odds in (before, after)]
            gains.append(float(weight[row]) * (loss[0] - loss[1]))
            if folds.cluster is not None:
                by_cluster[int(folds.cluster[row])].append(gains[-1])
    n, gain = len(gains), sum(gains) / len(gains)
    error = math.sqrt(sum((one - gain) ** 2 for one in gains) / n / n)
    if by_cluster:
        beyond = [sum(own) - gain * len(own) for own in by_cluster.values()]
        m = len(beyond)
        error = max(error, math.sqrt(sum(one**2 for one in beyond) * m / max(1, m - 1)) / n)
    mean_weight = float(weight.mean(dtype=np.float64))
    return gain / mean_weight, error / mean_weight


def rows(folds: Folds, agreeing: bool) -> tuple[np.ndarray, ...]:
    """Weights, log-odds before and after, and labels; what the latter gain is the same in each cluster, or differs."""
    rng = np.random.default_rng(1)
    label = rng.integers(0, 2, N_ROWS).astype(np.uint8)
    before = rng.normal(size=(N_ROWS, folds.n_models))
    help_of = np.full(folds.n_clusters or 1, 0.3) if agreeing else rng.normal(0.3, 0.5, folds.n_clusters or 1)
    each = help_of[0 if folds.cluster is None else folds.cluster][..., None] * np.ones((N_ROWS, 1))
    after = before + np.where(label == 1, 1, -1)[:, None] * each
    return rng.random(N_ROWS).astype(np.float32) + np.float32(0.5), before, after, label


def clusters(n: int) -> np.ndarray:
    return np.random.default_rng(2).integers(0, n, N_ROWS)


@pytest.mark.parametrize("holdout", [False, True], ids=["folds", "holdout"])
@pytest.mark.parametrize("n_clusters", [0, 2, 7, 40])
@pytest.mark.parametrize("agreeing", [True, False], ids=["agreeing", "disagreeing"])
def test_gain_and_error_are_those_of_the_formula(holdout: bool, n_clusters: int, agreeing: bool) -> None:
    folds = by_group(clusters(n_clusters), 0, holdout, "") if n_clusters else by_row(N_ROWS, 0, holdout, "")
    assert folds.n_clusters == n_clusters
    given = rows(folds, agreeing)
    gain, error = gained(folds, *given)
    assert (gain, error) == pytest.approx(obvious(folds, *given), rel=1e-9)
    assert error > 0


def test_clusters_that_disagree_make_the_error_larger() -> None:
    folds = by_group(clusters(20), 0, False, "")
    of_rows = Folds(folds.plan, N_ROWS, "", "", folds.cluster, 0)
    for agreeing in (True, False):
        given = rows(folds, agreeing)
        times = gained(folds, *given)[1] / gained(of_rows, *given)[1]
        assert times == 1.0 if agreeing else times > 3


# What follows from it.


def grouped(strength: list[float]) -> pl.DataFrame:
    """Groups of 250 rows. Labels depend on c0 and c1 together, and on nothing else, as strongly as said of each group."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(len(strength)), 250)
    columns = rng.integers(0, 3, (4, len(group)))
    effect = np.array([[1, -1, 0], [-1, 0, 1], [0, 1, -1]])[columns[0], columns[1]]
    label = rng.random(len(group)) < 1 / (1 + np.exp(-np.array(strength)[group] * effect))
    texts = {f"c{at}": [f"v{value}" for value in column] for at, column in enumerate(columns)}
    return pl.DataFrame({**texts, "group": [f"g{number}" for number in group], "y": label.astype(int)})


def tried(frame: pl.DataFrame, folder: Path, **options: str) -> tuple[bool, float, float]:
    """Whether the cross of c0 and c1 was accepted, what it gained, and the error."""
    journal = folder / "journal"
    journal.unlink(missing_ok=True)
    model = AutoCrossClassifier(quiet=True, engine="serial", max_crosses=1, journal=str(journal), **options).fit(frame, "y")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    (one,) = [event for event in events if event["event"] == "CrossTried" and event["cross"] == "c0 x c1"]
    assert one["accepted"] == ([cross.columns for cross in model.crosses_] == [("c0", "c1")])
    return one["accepted"], one["gain"], one["error"]


def test_a_cross_is_accepted_where_groups_agree(tmp_path: Path) -> None:
    frame = grouped([0.3] * 24)
    accepted, _, error = tried(frame, tmp_path, groups="group")
    assert accepted
    alone, _, of_rows = tried(frame.drop("group"), tmp_path)
    assert alone
    assert error < 1.5 * of_rows


def test_a_cross_is_refused_where_it_helps_a_few_groups_only(tmp_path: Path) -> None:
    frame = grouped([2.4] * 3 + [0.0] * 21)
    accepted, gain, error = tried(frame, tmp_path, groups="group")
    assert not accepted
    alone, _, of_rows = tried(frame.drop("group"), tmp_path)
    assert alone
    assert gain > 0
    assert error > 2 * of_rows
