"""Crosses must earn their place: what is taken out when the search is over, and the smaller models that are left on the way."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from autocross import AutoCross, AutoCrossClassifier, load
from autocross.errors import AutoCrossError, OptionError, TableWarning
from autocross.search import policy, pruning
from autocross.search.pruning import Step
from autocross.search.stopping import Stopped, Why

N = 4_000


def many_pairs(n_rows: int = N, seed: int = 0) -> pl.DataFrame:
    """Twelve columns of three values; one pair of columns says much, the other pairs of the first seven say a little."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, (12, n_rows))
    log_odds = 1.5 * rng.normal(size=(3, 3))[codes[0], codes[1]]
    for first in range(7):
        for second in range(first + 1, 7):
            log_odds += 0.35 * rng.normal(size=(3, 3))[codes[first], codes[second]]
    label = rng.random(n_rows) < 1 / (1 + np.exp(-log_odds))
    names = [f"c{at:02}" for at in range(12)]
    return pl.DataFrame({name: code.astype(str) for name, code in zip(names, codes, strict=True)} | {"y": label.astype(np.int8)})


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    return many_pairs()


@pytest.fixture(scope="module")
def fitted(frame: pl.DataFrame) -> AutoCrossClassifier:
    return AutoCrossClassifier(quiet=True, engine="serial").fit(frame, "y")


def events(path: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in map(json.loads, path.read_text().splitlines()) if event["event"] == kind]


# What stays.


@pytest.mark.slow
def test_crosses_go_and_the_score_stays(frame: pl.DataFrame, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    model = AutoCrossClassifier(quiet=True, engine="serial", journal=str(journal)).fit(frame, "y")
    (taken,) = events(journal, "CrossesTakenOut")
    assert 0 < taken["n_after"] == len(model.crosses_) < taken["n_before"]
    assert model.crosses_[0].columns == ("c00", "c01")
    rounds, refits = events(journal, "RoundFinished"), events(journal, "SetRefitted")
    assert len(refits) == len(rounds) + 1  # a single one for all that comes after the rounds
    assert rounds[-1]["seconds"] < refits[-1]["seconds"] < taken["seconds"] - taken["took"]
    (stopped,), (finished,) = events(journal, "SearchStopped"), events(journal, "FitFinished")
    assert stopped["n_crosses"] == finished["n_crosses"] == len(model.crosses_)
    # The history has the whole search, and then the model.
    assert [record["crosses"] for record in model.history_] == [*range(taken["n_before"] + 1), taken["n_after"]]
    assert model.history_[-1]["score"] == model.model_.about.score == taken["score"]


def test_a_small_model_has_no_more_crosses_than_it_may(frame: pl.DataFrame, fitted: AutoCrossClassifier) -> None:
    small = AutoCrossClassifier(quiet=True, engine="serial", size="small").fit(frame, "y")
    assert 0 < len(small.crosses_) <= min(20, len(fitted.crosses_))
    assert len(small.path_) >= 2


@pytest.mark.slow
def test_the_paper_takes_nothing_out(frame: pl.DataFrame, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    model = AutoCrossClassifier(quiet=True, halving="paper", max_crosses=6, journal=str(journal)).fit(frame, "y")
    assert not events(journal, "CrossesTakenOut")
    assert model.path_ == [{"crosses": len(model.crosses_), "score": model.model_.about.score}]


def test_max_crosses_is_pruned_too_and_never_exceeded(frame: pl.DataFrame) -> None:
    model = AutoCrossClassifier(quiet=True, max_crosses=7).fit(frame, "y")
    assert len(model.crosses_) <= 7
    assert len(model.at(5).crosses_) == 5
    assert AutoCrossClassifier(quiet=True, max_crosses=0).fit(frame, "y").path_[0]["crosses"] == 0


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ([0.0, 0.0, 0.0, 0.0, 0.0, -9.0], 6),  # four of ten are too few for the rows left out to tell
        ([0.0, -9.0, 0.0, 0.0, 0.0, -9.0], 10),  # below a set that is worse, none counts
        ([0.0, 2.0, 0.9, -1.0, -1.0, -9.0], 8),  # the best one is the measure, because it was chosen by what it gains
    ],
)
def test_the_smallest_set_within_the_error_is_chosen(gains: list[float], expected: int) -> None:
    path = [Step(FakeState(n), gain, 1.0) for n, gain in zip([10, 9, 8, 6, 4, 0], gains, strict=True)]  # type: ignore[arg-type]
    assert policy.AUTO.pruning is not None
    assert pruning.last_without_loss(path, policy.AUTO.pruning).n == expected


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ([0.0, 0.0, -0.5, -0.9, -9.0], 5),  # the fewest with nine tenths
        ([0.0, -4.0, -5.0, -6.0, -9.0], 20),  # none has as much, so the best of the small ones
    ],
)
def test_a_small_model_keeps_most_of_the_gain(gains: list[float], expected: int) -> None:
    path = [Step(FakeState(n), gain, 1.0) for n, gain in zip([40, 20, 10, 5, 0], gains, strict=True)]  # type: ignore[arg-type]
    assert policy.AUTO.pruning is not None
    assert pruning.smallest_of_most_gain(path, policy.AUTO.pruning).n == expected


class FakeState:
    """As much of a state as a choice needs."""

    def __init__(self, n: int) -> None:
        self.accepted, self.score = (None,) * n, 0.5


# The smaller models.


def test_the_path_has_a_model_for_every_size(frame: pl.DataFrame, fitted: AutoCrossClassifier) -> None:
    n_all = len(fitted.crosses_)
    sizes = [n for n in (0, 5, 10, 20) if n < n_all] + [n_all]
    assert [record["crosses"] for record in fitted.path_] == sizes
    scores = [record["score"] for record in fitted.path_]
    assert scores == sorted(scores)
    for n, score in zip(sizes, scores, strict=True):
        smaller = fitted.at(n)
        assert smaller.crosses_ == fitted.crosses_[:n]
        assert smaller.model_.about.score == score == smaller.history_[-1]["score"]
        assert smaller.history_[-1]["crosses"] == n
    assert fitted.at("all").crosses_ == fitted.at(n_all).crosses_ == fitted.crosses_
    assert fitted.at(10).at(5).crosses_ == fitted.crosses_[:5]


def test_a_smaller_model_is_a_whole_classifier(frame: pl.DataFrame, fitted: AutoCrossClassifier, tmp_path: Path) -> None:
    smaller = fitted.at(5)
    assert type(smaller) is AutoCrossClassifier
    assert smaller.get_params() == fitted.get_params()
    probability = smaller.predict_proba(frame)
    assert not np.array_equal(probability, fitted.predict_proba(frame))
    smaller.save(tmp_path / "small.acx")
    np.testing.assert_array_equal(load(tmp_path / "small.acx").score(frame), probability[:, 1])
    row = frame.row(0, named=True)
    explanation = smaller.explain(row, by="field")
    assert sum(" x " in reason.name for reason in explanation.reasons) == 5
    assert explanation.probability == pytest.approx(probability[0, 1], abs=1e-12)
    assert set(smaller.predict(frame).tolist()) == {0, 1}
    assert len(fitted.crosses_) > 5  # it stays as it was


def test_a_small_model_learned_from_all_rows(frame: pl.DataFrame, fitted: AutoCrossClassifier) -> None:
    base = AutoCrossClassifier(quiet=True, max_crosses=0).fit(frame, "y")
    np.testing.assert_allclose(fitted.at(0).predict_proba(frame), base.predict_proba(frame), atol=0.01)


@pytest.mark.parametrize("n", [1, 7, -1, 1000, "some", 5.5, None, [5]])
def test_another_number_is_an_error_that_names_max_crosses(fitted: AutoCrossClassifier, n: Any) -> None:
    with pytest.raises(OptionError, match=r"there are models of 0, 5, 10, 20 or 'all' crosses.*max_crosses"):
        fitted.at(n)


def test_a_copy_has_the_smaller_models_too(fitted: AutoCrossClassifier) -> None:
    assert copy.deepcopy(fitted).at(0).crosses_ == ()


def test_the_history_ends_with_the_model(fitted: AutoCrossClassifier) -> None:
    last = fitted.history_[-1]
    assert {"crosses": last["crosses"], "score": last["score"]} == fitted.path_[-1]


def test_a_small_model_of_the_paper_is_refused(frame: pl.DataFrame) -> None:
    with pytest.raises(OptionError, match=r"size='small' is not for halving='paper'.*max_crosses=20"):
        AutoCrossClassifier(size="small", halving="paper", quiet=True).fit(frame, "y")


def test_a_small_model_that_could_not_be_made_small_says_so(frame: pl.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise Stopped(Why.INTERRUPTED)

    monkeypatch.setattr("autocross.fitting.search.prune", interrupted)
    monkeypatch.setattr("autocross.fitting.fit.SIZES", (0, 1))
    with pytest.warns(TableWarning, match=r"ended before crosses could be taken out.*fit with max_crosses=1"):
        AutoCrossClassifier(size="small", quiet=True, engine="serial").fit(frame, "y")


@pytest.mark.slow
def test_a_file_has_no_smaller_models(frame: pl.DataFrame, fitted: AutoCrossClassifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model.acx")
    loaded = load(tmp_path / "model.acx")
    for source in (loaded, pickle.loads(pickle.dumps(fitted))):
        with pytest.raises(AutoCrossError, match=r"at\(5\): this model has no smaller ones.*max_crosses=5"):
            source.at(5)
        assert source.at("all")
    again = AutoCrossClassifier(quiet=True).fit(frame, "y").refit(frame, "y")
    with pytest.raises(AutoCrossError, match="max_crosses=5"):
        again.at(5)


def test_a_transformer_has_a_path_too(frame: pl.DataFrame, fitted: AutoCrossClassifier) -> None:
    assert AutoCross(quiet=True, engine="serial").fit(frame, "y").path_ == fitted.path_


# Engines, limits.


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["threads"])
def test_every_engine_takes_out_the_same(frame: pl.DataFrame, fitted: AutoCrossClassifier, engine: str) -> None:
    model = AutoCrossClassifier(quiet=True, engine=engine, n_jobs=3).fit(pl.concat([frame]), "y")
    for n in ("all", 5, 0):
        np.testing.assert_array_equal(model.at(n).predict_proba(frame), fitted.at(n).predict_proba(frame))


def test_without_time_there_are_no_smaller_models(frame: pl.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    from autocross.fitting import fit as fitting

    real: Callable[..., Any] = fitting.finish_smaller
    monkeypatch.setattr(fitting, "finish_smaller", lambda run, rows, best, finished, seconds: real(run, rows, best, finished, 1e9))
    model = AutoCrossClassifier(quiet=True, time_limit=1000).fit(frame, "y")
    assert len(model.path_) == 1
    with pytest.raises(AutoCrossError, match="time left"):
        model.at(5)
