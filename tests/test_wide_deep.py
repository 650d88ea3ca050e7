"""Wide & Deep: what it learns, what it keeps, and that plain arrays score as the network does."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save as to_bytes
from sklearn.base import clone

from autocross import AutoCrossClassifier, WideDeepClassifier, load
from autocross.errors import AutoCrossError, BundleError, MissingLibraryError, OptionError
from autocross.features import FieldCodes
from autocross.fitting import deepen
from autocross.fitting.crossfit import cross_fit, folds_for, others, pool
from autocross.interrupts import Interrupt
from autocross.models import wide_deep
from autocross.models.metrics import auc
from autocross.options import DeepOptions, all_options
from autocross.producer.network import Network
from autocross.serving.scorer import Scorer
from test_statistics import eager, ids  # noqa: F401 (a fixture)

pytestmark = pytest.mark.slow

make = partial(WideDeepClassifier, quiet=True, engine="serial", n_jobs=1)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small networks are no work for two."""
    with wide_deep.threads(1):
        yield


def smooth_table(n: int = 4000, seed: int = 1) -> pl.DataFrame:
    """A label that depends on the product of two numbers, noise beside."""
    rng = np.random.default_rng(seed)
    a, b, c = rng.uniform(-1, 1, (3, n))
    return pl.DataFrame({"a": a, "b": b, "c": c, "y": rng.random(n) < 1 / (1 + np.exp(-8 * a * b))})


def learnable(people: pl.DataFrame) -> pl.DataFrame:
    """Columns of every kind, and a label that depends on a cross and on the product of two numbers."""
    rows, rng = pl.concat([people] * 8), np.random.default_rng(2)
    height, income = rng.normal(size=(2, rows.height))
    sign = (rows["job"] == "cook").fill_null(False) ^ rows["member"].fill_null(False)
    log_odds = 2 * height * income + np.where(sign.to_numpy(), 1, -1)
    bought = (rng.random(rows.height) < 1 / (1 + np.exp(-log_odds))).astype(int)
    return rows.with_columns(height=height, income=income, bought=bought)


def judge(model: Any, frame: pl.DataFrame) -> float:
    return auc(frame["y"].to_numpy(), model.decision_function(frame), np.ones(frame.height))


@pytest.fixture(scope="module")
def fitted(people: pl.DataFrame) -> WideDeepClassifier:
    """Fitted to columns of every kind, multi-value and time among them."""
    return make(max_crosses=1).fit(learnable(people), "bought")


@pytest.fixture(scope="module")
def rows(people: pl.DataFrame) -> pl.DataFrame:
    """Some of the rows that it is fitted to."""
    return learnable(people).head(400)


@pytest.fixture
def saved(fitted: WideDeepClassifier, tmp_path: Path) -> Path:
    path = tmp_path / "deep.acx"
    fitted.save(path)
    return path


# What it learns.


def test_it_learns_a_smooth_interaction_that_a_regression_cannot() -> None:
    train, test = smooth_table(), smooth_table(seed=2)
    wide = AutoCrossClassifier(quiet=True, engine="serial", max_crosses=0).fit(train, "y")
    both = make(max_crosses=0).fit(train, "y")
    assert judge(wide, test) < 0.55
    assert judge(both, test) > 0.8
    assert both.model_.additions
    assert next(rule.value for rule in both.model_.about.rules if rule.name == "share of the networks") != "0.0"
    assert both.model_.about.score == pytest.approx(judge(both, test), abs=0.05)


def test_it_has_the_crosses_of_the_search() -> None:
    rng = np.random.default_rng(4)
    a, b, c = rng.integers(0, 6, (3, 4000))
    y = (a + b) % 2 ^ (rng.random(4000) < 0.1)
    frame = pl.DataFrame({"a": a, "b": b, "c": c, "y": y}).with_columns(pl.col("a", "b", "c").cast(pl.String))
    model = make(epochs=2).fit(frame[:3000], "y")
    assert ("a", "b") in [cross.columns for cross in model.crosses_]
    assert judge(model, frame[3000:]) > 0.87


def test_where_the_network_adds_nothing_the_model_is_the_regression() -> None:
    rng = np.random.default_rng(5)
    word = rng.choice(["u", "v", "w"], 300)
    frame = pl.DataFrame({"word": word, "noise": rng.random(300), "y": (word == "u") ^ (rng.random(300) < 0.2)})
    model = make(epochs=0).fit(frame, "y")
    wide = AutoCrossClassifier(quiet=True, engine="serial").fit(frame, "y")
    assert not model.model_.additions
    np.testing.assert_array_equal(model.predict_proba(frame), wide.predict_proba(frame))


def few_rows(n_rarer: int) -> pl.DataFrame:
    """Noise, and a label with so many rows of its rarer value."""
    rng = np.random.default_rng(6)
    return pl.DataFrame({"a": rng.random(400), "b": rng.random(400), "y": rng.permutation(400) < n_rarer})


@pytest.mark.parametrize(("n_rarer", "trains"), [(99, False), (100, True)])
def test_few_rows_of_the_rarer_label_train_no_networks(n_rarer: int, trains: bool, tmp_path: Path) -> None:
    frame, journal = few_rows(n_rarer), tmp_path / "journal.jsonl"
    model = make(max_crosses=0, epochs=1, journal=str(journal)).fit(frame, "y")
    assert ('"training the networks"' in journal.read_text()) == trains
    assert ("no networks: they need 100 rows of the rarer label, and there are 99" in journal.read_text()) != trains
    if not trains:
        wide = AutoCrossClassifier(quiet=True, engine="serial", max_crosses=0).fit(frame, "y")
        assert not model.model_.additions
        np.testing.assert_array_equal(model.predict_proba(frame), wide.predict_proba(frame))


@pytest.mark.parametrize("label", [True, False])
def test_rows_drawn_of_one_label_train_no_networks(label: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = few_rows(200)
    of_one_label = np.flatnonzero(frame["y"].to_numpy() == label)
    monkeypatch.setattr(deepen, "drawn", lambda seed, n_rows: of_one_label)
    assert not make(max_crosses=0).fit(frame, "y").model_.additions


def test_rows_without_weight_do_not_count() -> None:
    label, weight = np.array([0, 0, 0, 1, 1], np.uint8), np.array([1, 1, 2, 1, 0], np.float32)
    assert deepen.n_rarer(label, weight) == 1
    assert deepen.n_rarer(label, weight * np.float32(1e-20)) == 1
    assert deepen.n_rarer(label, np.where(label, 1e-38, weight).astype(np.float32)) == 0
    assert deepen.n_rarer(label, weight * 0) == 0
    assert deepen.n_rarer(label[:3], weight[:3]) == 0


def test_networks_that_no_epoch_has_helped_do_not_count() -> None:
    """They say the same about every row, which may still be better than a regression that has learned chance."""
    train = wide_deep.train

    def harmed(examples: wide_deep.Examples, left_out: Any, *args: Any) -> Any:
        members, _ = train(replace(examples, label=np.where(left_out, 1 - examples.label, examples.label)), left_out, *args)
        assert members.epoch == 0
        return members, np.where(examples.label[left_out] == 1, 9.0, -9.0)  # would be taken if they counted

    with patch.object(wide_deep, "train", harmed):
        model = make(max_crosses=0).fit(smooth_table(), "y")
    assert not model.model_.additions


def test_a_blend_must_gain_more_than_a_standard_error() -> None:
    rng = np.random.default_rng(8)
    label, before = rng.integers(0, 2, 1000).astype(np.uint8), np.zeros(1000)
    towards = np.where(label == 1, 0.1, -0.1)
    right = rng.random(1000)
    one = np.ones(1000)
    assert deepen.gains(label, before, np.where(right < 0.9, towards, -towards), one)
    assert not deepen.gains(label, before, np.where(right < 0.5, towards, -towards), one)
    assert not deepen.gains(label, before, before, one)
    mixed = np.where(right < 0.6, towards, -towards)
    assert deepen.gains(label, before, mixed, one)
    assert not deepen.gains(label, before, mixed, np.where(right < 0.6, 0.1, 1.0))  # weighted as the rows are


def test_the_same_seed_gives_the_same_model(people: pl.DataFrame) -> None:
    torch.manual_seed(1)
    one = make(epochs=2, random_state=3).fit(people, "bought").decision_function(people)
    before = torch.random.get_rng_state()
    two = make(epochs=2, random_state=3).fit(people, "bought").decision_function(people)
    np.testing.assert_array_equal(one, two)
    assert torch.equal(before, torch.random.get_rng_state())  # the user's own random numbers are left alone


def test_rows_count_by_their_weight() -> None:
    frame = smooth_table().with_columns(y=np.random.default_rng(3).random(4000) < 0.5)
    weight = np.where(frame["y"].to_numpy() == (frame["a"] * frame["b"] > 0).to_numpy(), 5.0, 1.0)
    plain, weighed = make(max_crosses=0, epochs=2).fit(frame, "y"), make(max_crosses=0, epochs=15).fit(frame, "y", weight)
    truth = smooth_table(seed=9).with_columns(y=pl.col("a") * pl.col("b") > 0)
    assert judge(weighed, truth) > 0.85
    assert judge(plain, truth) < 0.6


def test_the_face(fitted: WideDeepClassifier, rows: pl.DataFrame) -> None:
    parameters = clone(fitted).get_params()
    assert set(parameters) == {one.name for one in all_options()} | {"epochs"}
    assert WideDeepClassifier().get_params() == asdict(DeepOptions())
    assert fitted.classes_.tolist() == [0, 1]
    assert fitted.predict_proba(rows).shape == (rows.height, 2)
    np.testing.assert_array_equal(fitted.predict(rows), (fitted.decision_function(rows) > 0).astype(int))


@pytest.mark.parametrize("given", [{"hidden": (400, 400)}, {"embedding": 10}])
def test_options_that_are_gone_say_so(given: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"Option {next(iter(given))}=.* is gone: the deep part has no embeddings any more"):
        WideDeepClassifier(**given)


def test_options_out_of_range(people: pl.DataFrame) -> None:
    with pytest.raises(OptionError, match="epochs=-1 is out of"):
        make(epochs=-1).fit(people, "bought")


def test_refit_says_what_to_do(fitted: WideDeepClassifier, people: pl.DataFrame) -> None:
    with pytest.raises(AutoCrossError, match=r"deep part, .* Fit a WideDeepClassifier to the new rows"):
        fitted.refit(people, "bought")


def test_without_pytorch_the_error_says_how_to_get_it(people: pl.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*sys.modules]:
        if name.partition(".")[0] == "torch" or name in ("autocross.fitting.deepen", "autocross.models.wide_deep"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("autocross.models.wide_deep")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingLibraryError, match=r"needs PyTorch. Install it by: pip install 'autocross\[deep\]'"):
        make().fit(people, "bought")


# Saved and loaded.


def test_a_saved_model_scores_the_same_without_pytorch(saved: Path, fitted: WideDeepClassifier, rows: pl.DataFrame) -> None:
    assert fitted.model_.additions
    model = load(saved)
    np.testing.assert_array_equal(model.score(rows), fitted.predict_proba(rows)[:, 1])
    np.testing.assert_array_equal([model.log_odds_one(row) for row in rows.to_dicts()], model.log_odds(rows))
    assert model.log_odds(rows.clear()).shape == (0,)
    code = (
        f"import sys; sys.modules['torch'] = None; from autocross import load; model = load({str(saved)!r}); "
        "assert 0 < model.score_one({'job': 'cook', 'tags': []}) < 1; "
        "assert not {'numba', 'polars', 'sklearn'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_private_model_scores_the_same(
    fitted: WideDeepClassifier, people: pl.DataFrame, rows: pl.DataFrame, tmp_path: Path
) -> None:
    private = make(max_crosses=1, private=True).fit(learnable(people), "bought")
    private.save(tmp_path / "private.acx")
    model = load(tmp_path / "private.acx")
    assert model.model.additions
    np.testing.assert_array_equal(model.log_odds(rows), fitted.scorer_.log_odds(rows))
    np.testing.assert_array_equal([model.log_odds_one(row) for row in rows.to_dicts()], fitted.scorer_.log_odds(rows))
    assert parts(tmp_path / "private.acx")[0]["format"] == 5
    assert b"nurse" not in (tmp_path / "private.acx").read_bytes()


def test_reasons_add_up_and_name_the_deep_part(saved: Path, rows: pl.DataFrame) -> None:
    model = load(saved)
    for row in rows.head(20).to_dicts():
        found = model.explain(row)
        assert Network.reason in [reason.name for reason in found.reasons]
        assert found.mean_log_odds + sum(reason.contribution for reason in found.reasons) == pytest.approx(found.log_odds, abs=1e-9)


def parts(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    with safe_open(str(path), framework="numpy") as stored:
        return json.loads(stored.metadata()["autocross"]), {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118


def reshaped(name: str, change: Callable[[Any], Any]) -> Callable[[dict[str, Any], dict[str, Any]], object]:
    return lambda manifest, arrays: arrays.update({name: np.ascontiguousarray(change(arrays[name]))})


FORGED: dict[str, tuple[Callable[[dict[str, Any], dict[str, Any]], object], str]] = {
    "weight NaN": (
        reshaped("network.weights.0", lambda one: one * np.float32("nan")),
        "term 0 of its deep part has no proper weights",
    ),
    "matrix infinite": (reshaped("network.matrices.1", lambda one: one + np.float32("inf")), "a weight that is no number"),
    "without measure": (reshaped("network.matrices.0", lambda one: one * 0 + np.float32(1e38)), "weights without measure|damaged"),
    "other numbers": (reshaped("network.biases.0", lambda one: one.astype("f8")), "layers of its deep part do not fit"),
    "too few codes": (reshaped("network.weights.1", lambda one: one[1:]), "term 1 of its deep part has no proper weights"),
    "weights of another kind": (reshaped("network.weights.1", lambda one: one.astype("f8")), "term 1 .* no proper weights"),
    "no scale": (reshaped("network.spread", lambda one: one * 0), "inputs of its deep part have no proper scale"),
    "scale NaN": (reshaped("network.centre", lambda one: one * np.nan), "inputs of its deep part have no proper scale"),
    "scale too short": (reshaped("network.centre", lambda one: one[1:]), "inputs of its deep part have no proper scale"),
    "knots that fall": (reshaped("network.knots.0", lambda one: one[::-1]), "knots that do not rise"),
    "knots NaN": (reshaped("network.knots.0", lambda one: one * np.nan), "knots that do not rise"),
    "one knot": (reshaped("network.knots.0", lambda one: one[:1]), "number 0 of its deep part has no proper knots"),
    "many knots": (reshaped("network.knots.0", lambda one: np.arange(99.0)), "number 0 of its deep part has no proper knots"),
    "layers that do not meet": (reshaped("network.matrices.1", lambda one: one[1:]), "layers of its deep part do not fit"),
    "layer turned": (reshaped("network.matrices.0", lambda one: one.T), "layers of its deep part do not fit"),
    "no hidden unit": (reshaped("network.biases.0", lambda one: one[:0]), "layers of its deep part do not fit"),
    "two outputs": (reshaped("network.biases.1", lambda one: np.append(one, one)), "layers of its deep part do not fit"),
    "no share": (lambda m, a: m["network"].update(share=0.0), "no proper share"),
    "all and more": (lambda m, a: m["network"].update(share=1.5), "no proper share"),
    "share of another kind": (lambda m, a: m["network"].update(share=True), "no proper share"),
    "terms out of order": (lambda m, a: m["network"]["terms"].reverse(), "sees impossible terms"),
    "an unknown term": (lambda m, a: m["network"]["terms"].__setitem__(-1, 999), "sees impossible terms"),
    "terms of another kind": (lambda m, a: m["network"].update(terms="abc"), "sees impossible terms"),
    "a column of words": (lambda m, a: m["network"]["columns"].__setitem__(0, "job"), "sees impossible columns"),
    "a column twice": (lambda m, a: m["network"].update(columns=m["network"]["columns"][:1] * 2), "sees impossible columns"),
    "a layer missing": (lambda m, a: a.pop("network.biases.1"), "it has no array 'network.biases.1'"),
    "an older format": (lambda m, a: m.update(format=3), "its format does not fit its parts"),
    "no counts": (lambda m, a: (m.pop("share"), a.pop("counts")), "its deep part needs counts of rows"),
    "a deep part lost": (lambda m, a: m.pop("network"), "which no part of it speaks of"),
    "a weight changed": (reshaped("network.biases.1", lambda one: one + 1), "its checksum does not fit"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_bundle_is_refused(name: str, saved: Path) -> None:
    forge, message = FORGED[name]
    manifest, arrays = copy.deepcopy(parts(saved))
    forge(manifest, arrays)
    saved.write_bytes(to_bytes(arrays, metadata={"autocross": json.dumps(manifest)}))
    with pytest.raises(BundleError, match=message):
        load(saved)


# Networks and their training.


def examples_of(n: int = 4000, seed: int = 0) -> tuple[wide_deep.Examples, Any]:
    """Rows with a label that depends on the product of two inputs, and which of them are left out."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, 3)).astype(np.float32)
    label = (rng.random(n) < 1 / (1 + np.exp(-2 * values[:, 0] * values[:, 1] - 1))).astype(np.float32)
    return wide_deep.Examples(values, label, np.ones(n, np.float32), np.array([False, False, True])), np.arange(n) % 5 == 0


class Recorded(wide_deep.Watch):
    """Keeps the losses, and asks for the end after so many epochs, or after so many steps."""

    def __init__(self, epochs: int = 1000, steps: int = 10**9) -> None:
        self.epochs, self.steps = epochs, steps
        self.losses: list[float] = []

    def epoch(self, n: int, loss: float) -> None:
        self.losses.append(loss)

    def enough(self, needed: float = 0.0) -> bool:
        self.steps -= 1
        return len(self.losses) >= self.epochs or self.steps < 0


def test_training_ends_when_the_loss_no_longer_falls_and_keeps_the_best_epoch() -> None:
    examples, left_out = examples_of(1500)
    watch = Recorded()
    members, log_odds = wide_deep.train(examples, left_out, 0, 500, watch)
    best = int(np.argmin(watch.losses))
    assert len(watch.losses) == best + 1 + wide_deep.PATIENCE
    judge = np.flatnonzero(left_out)
    assert wide_deep.loss_of(examples, judge, log_odds) == pytest.approx(watch.losses[best], abs=1e-12)
    np.testing.assert_array_equal(wide_deep.judged(members, examples, judge), log_odds)


def test_a_network_begins_with_the_log_odds_of_all_rows() -> None:
    examples, left_out = examples_of()
    _, log_odds = wide_deep.train(examples, left_out, 0, 0, wide_deep.Watch())
    np.testing.assert_allclose(log_odds, examples.base, rtol=1e-6)
    assert 1 / (1 + np.exp(-examples.base)) == pytest.approx(examples.label.mean(), rel=1e-6)


def test_an_interrupt_keeps_the_best_epoch_so_far() -> None:
    examples, left_out = examples_of()
    whole = Recorded()
    wide_deep.train(examples, left_out, 0, 20, whole)
    best = int(np.argmin(whole.losses)) + 1
    for n in (1, best):
        _, log_odds = wide_deep.train(examples, left_out, 0, 20, Recorded(epochs=n))
        kept = wide_deep.loss_of(examples, np.flatnonzero(left_out), log_odds)
        assert kept == pytest.approx(min(whole.losses[:n]), abs=1e-12)
    _, log_odds = wide_deep.train(examples, left_out, 0, 20, Recorded(steps=3))  # within the first epoch
    np.testing.assert_allclose(log_odds, examples.base, rtol=1e-6)


def test_networks_side_by_side_are_their_mean() -> None:
    examples, left_out = examples_of()
    networks = [wide_deep.train(examples, left_out, seed, 2, wide_deep.Watch())[0] for seed in (1, 2)]
    expected = np.mean([wide_deep.judged(network, examples, np.arange(100)) for network in networks], axis=0)
    (matrix, output), (bias, constant) = wide_deep.side_by_side(networks)
    found = np.maximum(examples.values[:100] @ matrix + bias, 0) @ output + constant
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-4, atol=1e-5)
    assert {array.dtype for array in (matrix, output, bias, constant)} == {np.dtype(np.float32)}
    of_members = matrix[2].reshape(2, wide_deep.MEMBERS, wide_deep.HIDDEN)  # half of them do not see the third input
    assert of_members[:, :2].all() and not of_members[:, 2:].any()


# How they are fitted.


def test_the_share_of_the_log_odds_is_the_networks(fitted: WideDeepClassifier, people: pl.DataFrame) -> None:
    """The weights are those of the regression alone, and the network comes on top."""
    model = fitted.model_
    alone = AutoCrossClassifier(quiet=True, engine="serial", max_crosses=1).fit(learnable(people), "bought").model_
    for found, expected in zip(model.weights, alone.weights, strict=True):
        np.testing.assert_array_equal(found, expected)
    (network,) = model.additions
    assert isinstance(network, Network)
    rows = learnable(people)
    linear, both = (Scorer(replace(model, additions=kept)).log_odds(rows) for kept in ((), (network,)))
    whole = Scorer(replace(model, additions=(replace(network, share=1.0),))).log_odds(rows)
    np.testing.assert_allclose(both, network.share * whole + (1 - network.share) * linear, rtol=1e-9)


def test_the_log_odds_are_those_of_models_that_did_not_learn_from_the_row(people: pl.DataFrame) -> None:
    """As the blocks have them after the regressions were fitted, up to the rounding of weights."""
    found = []

    def fitted(run: Any, encoded: Any, finished: Any, codes: Any, *args: Any) -> Any:
        crossed = cross_fit(run, encoded, finished, codes, *args)
        for row, fold, odds in run.engine.each(lambda block: (block.row, block.fold, block.odds)):
            found.append((crossed.log_odds(codes)[0][row], np.log(odds[np.arange(len(row)), fold]), crossed.fold[row] == fold))
        return crossed

    with patch.object(deepen, "cross_fit", fitted):
        make(epochs=0, max_crosses=1).fit(learnable(people), "bought")
    ((log_odds, expected, same),) = found
    assert same.all()
    np.testing.assert_allclose(log_odds, expected, atol=1e-5)


def test_counts_are_those_of_the_other_folds() -> None:
    codes, fold, label = np.array([2, 2, 3, 1, 2]), np.array([0, 1, 0, 1, 1], np.uint8), np.array([1, 0, 1, 1, 1], np.uint8)
    counts = others(FieldCodes(codes), 4, label, fold, 3)
    assert counts[:, 0].tolist() == [[0, 0], [1, 1], [2, 1], [0, 0]]  # outside fold 0
    assert counts[:, 1].tolist() == [[0, 0], [0, 0], [1, 1], [1, 1]]
    assert counts[:, 2].tolist() == [[0, 0], [1, 1], [3, 2], [1, 1]]  # nothing is in fold 2
    tied = np.zeros((4, 3), np.bool_)
    tied[[2, 3], 1] = True
    pool(counts, tied)
    assert counts[:, 1].tolist() == [[0, 0], [2, 2], [2, 2], [2, 2]]
    several = FieldCodes(np.array([2, 3, 3, 2]), np.array([0, 2, 2, 4]))
    assert others(several, 4, label[:3], fold[:3], 2)[:, 0].tolist() == [[0, 0], [0, 0], [0, 0], [0, 0]]
    assert others(several, 4, label[:3], fold[:3], 2)[:, 1].tolist() == [[0, 0], [0, 0], [2, 2], [2, 2]]


@pytest.mark.parametrize(
    "given",
    [{"groups": "job"}, {"time": "born"}, {"time": "born", "split": "forward"}, {"evaluation": "holdout"}, {"split": "random"}],
)
def test_folds_are_those_of_the_package(given: dict[str, Any], people: pl.DataFrame) -> None:
    found: list[Any] = []
    with patch.object(deepen, "folds_for", lambda *args: found.append(folds_for(*args)) or found[-1]):
        make(epochs=1, max_crosses=0, **given).fit(people, "bought")
    (folds,) = found
    assert folds.n_models > 1 and not folds.plan.holdout
    assert set(np.unique(folds.fold)) == set(range(folds.n_models))
    if "groups" in given:
        groups = people["job"].fill_null("").to_numpy()
        assert all(len(np.unique(folds.fold[groups == group])) == 1 for group in np.unique(groups))


@pytest.mark.parametrize(
    ("given", "own"),
    [({"evaluation": "holdout"}, False), ({"time": "t", "split": "forward"}, False), ({"time": "t"}, True), ({}, True)],
)
def test_the_score_stays_that_of_the_regression_where_folds_are_replaced(given: dict[str, Any], own: bool) -> None:
    frame = smooth_table().with_columns(t=pl.int_range(4000))
    options = {"max_crosses": 0, "types": {"t": "ignore"}, **given}
    both = make(**options).fit(frame, "y").model_
    alone = AutoCrossClassifier(quiet=True, engine="serial", **options).fit(frame, "y").model_
    assert both.additions
    assert both.about.score is not None and alone.about.score is not None
    assert (both.about.score > alone.about.score + 0.2) == own
    assert own or both.about.score == alone.about.score


@pytest.mark.usefixtures("eager")
def test_networks_see_statistics_as_well(tmp_path: Path) -> None:
    frame = ids().with_columns(other=np.random.default_rng(4).normal(40, 10, 3000))
    log_odds = ((frame["age"] - 40) * (frame["other"] - 40) / 50).to_numpy()
    bought = np.random.default_rng(5).random(3000) < 1 / (1 + np.exp(-log_odds))
    frame = frame.with_columns(granted=np.where(bought, "yes", "no"))
    classifier = make(max_crosses=3).fit(frame, "granted")
    statistics = set(classifier.model_.producer.statistics)
    (network,) = classifier.model_.additions
    assert isinstance(network, Network)
    assert statistics & set(network.inputs.terms)
    classifier.save(tmp_path / "model.acx")
    model = load(tmp_path / "model.acx")
    np.testing.assert_array_equal(model.score(frame), classifier.predict_proba(frame)[:, 1])
    np.testing.assert_array_equal([model.score_one(row) for row in frame.head(200).to_dicts()], model.score(frame.head(200)))


def test_a_number_with_a_coarse_field_is_seen_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    numbers = rng.normal(size=(6, 3000))
    log_odds = sum(0.35 * numbers[one] * numbers[other] for one in range(6) for other in range(one))
    columns = {f"x{place}": own for place, own in enumerate(numbers)}
    frame = pl.DataFrame({**columns, "y": rng.random(3000) < 1 / (1 + np.exp(-log_odds))})
    classifier = make().fit(frame, "y")
    (network,) = classifier.model_.additions
    assert isinstance(network, Network)
    assert len(classifier.model_.producer.encoder.columns) > 6
    assert network.inputs.columns == tuple(columns)
    classifier.save(tmp_path / "model.acx")
    np.testing.assert_array_equal(load(tmp_path / "model.acx").log_odds(frame), classifier.decision_function(frame))


def test_ctrl_c_before_the_network_gives_the_regression(people: pl.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Interrupt, "asked", property(lambda self: True, lambda self, value: None), raising=False)
    model = make().fit(people, "bought")
    assert not model.model_.additions
    assert 0 < model.predict_proba(people)[0, 1] < 1


def test_ctrl_c_keeps_the_networks_that_there_are(people: pl.DataFrame) -> None:
    epoch = deepen.Told.epoch

    def interrupted(told: deepen.Told, n: int, loss: float) -> None:
        epoch(told, n, loss)
        if told.fold == 1:
            told.stopping.interrupt.asked = True

    with patch.object(deepen.Told, "epoch", interrupted):
        model = make(max_crosses=0).fit(learnable(people), "bought").model_
    (network,) = model.additions
    assert isinstance(network, Network)
    assert len(network.biases[0]) == 2 * wide_deep.MEMBERS * wide_deep.HIDDEN


def test_more_rows_than_networks_learn_from(people: pl.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deepen, "MOST_ROWS", 2500)
    model = make(max_crosses=0).fit(learnable(people), "bought")
    rule = next(rule for rule in model.model_.about.rules if rule.name == "share of the networks")
    assert "on 2,500 rows left out" in rule.why


def test_the_time_limit_covers_both_parts(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    make(time_limit=4, journal=str(journal)).fit(smooth_table(20_000), "y")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    assert events[-1]["event"] == "FitFinished"
    assert events[-1]["seconds"] < 6
    epochs = [event for event in events if event["event"] == "StepDone" and event["phase"] == deepen.PHASE]
    assert [event["step"] for event in epochs] == sorted(event["step"] for event in epochs)
