"""Wide & Deep: what it learns, what it keeps, and that plain arrays score as the network does."""

from __future__ import annotations

import copy
import json
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save as to_bytes
from sklearn.base import clone
from torch import nn

from autocross import AutoCrossClassifier, WideDeepClassifier, load
from autocross.errors import AutoCrossError, BundleError, MissingLibraryError, OptionError
from autocross.features import FieldCodes
from autocross.interrupts import Interrupt
from autocross.models import wide_deep
from autocross.models.metrics import auc
from autocross.options import DeepOptions, all_options
from autocross.producer.deep import DeepPart

pytestmark = pytest.mark.slow

XDEEPFM = runpy.run_path(str(Path(__file__).parents[1] / "paper" / "xdeepfm.py"))

make = partial(WideDeepClassifier, quiet=True, engine="serial", n_jobs=1, hidden=(64, 32), embedding=8)


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


def judge(model: Any, frame: pl.DataFrame) -> float:
    return auc(frame["y"].to_numpy(), model.decision_function(frame), np.ones(frame.height))


@pytest.fixture(scope="module")
def fitted(people: pl.DataFrame) -> WideDeepClassifier:
    """Fitted to columns of every kind, multi-value and time among them, until the network has learned something."""
    rows = pl.concat([people] * 4)  # rows left out are known, so that every epoch is better than the one before
    return make(epochs=3, max_crosses=2).fit(rows, "bought")


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
    assert next(rule.value for rule in both.model_.about.rules if rule.name == "epochs") != "0"


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


def test_the_face(fitted: WideDeepClassifier, people: pl.DataFrame) -> None:
    parameters = clone(fitted).get_params()
    assert set(parameters) == {one.name for one in all_options()} | {"hidden", "embedding", "epochs"}
    assert WideDeepClassifier().get_params() == asdict(DeepOptions())
    assert fitted.classes_.tolist() == [0, 1]
    assert fitted.predict_proba(people).shape == (people.height, 2)
    np.testing.assert_array_equal(fitted.predict(people), (fitted.decision_function(people) > 0).astype(int))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hidden": 400}, "hidden=400 is no list"),
        ({"hidden": (0,)}, "no list of sizes"),
        ({"hidden": (1,) * 100}, "hidden has 100 layers. Give at most 99"),
        ({"embedding": 0}, "embedding=0 is out of"),
    ],
)
def test_options_out_of_range(given: dict[str, Any], message: str, people: pl.DataFrame) -> None:
    with pytest.raises(OptionError, match=message):
        make(**given).fit(people, "bought")


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


def test_a_saved_model_scores_the_same_without_pytorch(saved: Path, fitted: WideDeepClassifier, people: pl.DataFrame) -> None:
    assert fitted.model_.additions
    model = load(saved)
    np.testing.assert_array_equal(model.score(people), fitted.predict_proba(people)[:, 1])
    np.testing.assert_array_equal([model.log_odds_one(row) for row in people.to_dicts()], model.log_odds(people))
    assert model.log_odds(people.clear()).shape == (0,)
    code = (
        f"import sys; sys.modules['torch'] = None; from autocross import load; model = load({str(saved)!r}); "
        "assert 0 < model.score_one({'job': 'cook', 'tags': []}) < 1; "
        "assert not {'numba', 'polars', 'sklearn'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_private_model_scores_the_same(fitted: WideDeepClassifier, people: pl.DataFrame, tmp_path: Path) -> None:
    private = make(epochs=3, max_crosses=2, private=True).fit(pl.concat([people] * 4), "bought")
    private.save(tmp_path / "private.acx")
    model = load(tmp_path / "private.acx")
    assert model.model.additions
    np.testing.assert_array_equal(model.log_odds(people), fitted.scorer_.log_odds(people))
    np.testing.assert_array_equal([model.log_odds_one(row) for row in people.to_dicts()], fitted.scorer_.log_odds(people))
    assert parts(tmp_path / "private.acx")[0]["format"] == 4
    assert b"nurse" not in (tmp_path / "private.acx").read_bytes()


def test_reasons_add_up_and_name_the_deep_part(saved: Path, people: pl.DataFrame) -> None:
    model = load(saved)
    for row in people.head(20).to_dicts():
        found = model.explain_one(row)
        assert found.reasons[-1].field == DeepPart.reason
        assert found.intercept + sum(reason.contribution for reason in found.reasons) == pytest.approx(found.log_odds, abs=1e-9)


def parts(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    with safe_open(str(path), framework="numpy") as stored:
        return json.loads(stored.metadata()["autocross"]), {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118


def reshaped(name: str, change: Callable[[Any], Any]) -> Callable[[dict[str, Any], dict[str, Any]], object]:
    return lambda manifest, arrays: arrays.update({name: np.ascontiguousarray(change(arrays[name]))})


FORGED: dict[str, tuple[Callable[[dict[str, Any], dict[str, Any]], object], str]] = {
    "embedding NaN": (reshaped("deep.embeddings.0", lambda one: one * np.float32("nan")), "a weight that is no number"),
    "matrix infinite": (reshaped("deep.matrices.1", lambda one: one + np.float32("inf")), "a weight that is no number"),
    "other numbers": (reshaped("deep.biases.0", lambda one: one.astype("f8")), "layer 0 of its deep part does not fit"),
    "too few codes": (reshaped("deep.embeddings.1", lambda one: one[1:]), "embeddings of the wrong shape"),
    "another size": (reshaped("deep.embeddings.1", lambda one: one[:, 1:]), "embeddings of the wrong shape"),
    "no size": (reshaped("deep.embeddings.0", lambda one: one[:, :0]), "embeddings of the wrong shape"),
    "layers that do not meet": (reshaped("deep.matrices.1", lambda one: one[1:]), "layer 1 of its deep part does not fit"),
    "layer turned": (reshaped("deep.matrices.0", lambda one: one.T), "layer 0 of its deep part does not fit"),
    "bias too long": (reshaped("deep.biases.0", lambda one: np.append(one, one[:1])), "layer 0 of its deep part does not fit"),
    "no output": (lambda m, a: m["deep"].update(n_layers=2), "more than one output"),
    "no layer": (lambda m, a: m["deep"].update(n_layers=0), "no proper number of layers"),
    "endless layers": (lambda m, a: m["deep"].update(n_layers=10**9), "no proper number of layers"),
    "a layer missing": (lambda m, a: a.pop("deep.biases.1"), "it has no array 'deep.biases.1'"),
    "an older format": (lambda m, a: m.update(format=1), "its format does not fit its parts"),
    "a deep part lost": (lambda m, a: m.pop("deep"), "which no part of it speaks of"),
    "a weight changed": (reshaped("deep.biases.2", lambda one: one + 1), "its checksum does not fit"),
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


def rows_of_every_kind(n: int = 40) -> tuple[list[FieldCodes], list[int]]:
    """Two fields of one code a row, and one of any number."""
    rng = np.random.default_rng(6)
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 4, n))])
    many = FieldCodes(rng.integers(0, 7, starts[-1]).astype(np.uint8), starts)
    return [FieldCodes(rng.integers(0, 5, n).astype(np.uint8)), many, FieldCodes(rng.integers(0, 300, n).astype(np.uint16))], [
        5,
        7,
        300,
    ]


def examples_of(codes: list[FieldCodes]) -> wide_deep.Examples:
    n = codes[0].n_rows
    return wide_deep.Examples(codes, np.arange(n) % 2, np.ones(n))


CPU = torch.device("cpu")


def test_plain_arrays_compute_what_the_network_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autocross.producer.deep.ROWS_AT_ONCE", 16)
    codes, sizes = rows_of_every_kind()
    network = wide_deep.Deep(sizes, 4, (8, 6))
    nn.init.normal_(network.embeddings.table.weight)
    nn.init.normal_(network.output.weight)
    expected = network(examples_of(codes).batch(np.arange(40), CPU)).detach().numpy()
    deep = DeepPart(*(tuple(one) for one in network.arrays()))
    assert deep.hidden == (8, 6)
    np.testing.assert_allclose(deep.log_odds(codes), expected, rtol=1e-4, atol=1e-5)
    one = [tuple(part.codes[part.starts[3] : part.starts[4]]) if part.starts is not None else part.codes[3] for part in codes]
    assert deep.log_odds_one(one) == pytest.approx(deep.log_odds(codes)[3], abs=1e-12)


def test_the_wide_part_adds_up_its_weights() -> None:
    codes, sizes = rows_of_every_kind()
    weights = [np.random.default_rng(at).normal(size=size) for at, size in enumerate(sizes)]
    found = wide_deep.Wide(sizes, weights, 0.5)(examples_of(codes).batch(np.arange(40), CPU))
    assert codes[1].starts is not None
    several = [weights[1][codes[1].codes[a:b]].sum() for a, b in zip(codes[1].starts[:-1], codes[1].starts[1:], strict=True)]
    np.testing.assert_allclose(found.detach(), 0.5 + weights[0][codes[0].codes] + several + weights[2][codes[2].codes], atol=1e-5)


class Slope(nn.Module):
    """One weight, which sets every log-odds. The network that may know all rows knows something of the label, right or wrong."""

    def __init__(self, everyone: bool, known: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(0.02))
        self.known = known if everyone else 0.0

    def forward(self, batch: wide_deep.Batch) -> torch.Tensor:
        return self.weight + self.known * (2 * batch.single[:, 0] - 1)


class Recorded(wide_deep.Watch):
    """Keeps the losses, and asks for the end after so many epochs, or after so many steps."""

    def __init__(self, epochs: int = 1000, steps: int = 10**9) -> None:
        self.epochs, self.steps, self.n_again = epochs, steps, 0
        self.losses: list[float] = []

    def epoch(self, n: int, loss: float, log_odds: Any) -> None:
        self.losses.append(loss)

    def again(self, n: int, epochs: int) -> None:
        self.n_again = n

    def enough(self, needed: float = 0.0) -> bool:
        self.steps -= 1
        return len(self.losses) >= self.epochs or self.steps < 0


@pytest.fixture
def turning() -> tuple[wide_deep.Examples, Any]:
    """Rows whose labels want the weight to rise, and left-out ones that want it not to rise too far."""
    n = 6400
    left_out = np.arange(n) % 10 == 0
    label = np.where(left_out, np.arange(n) % 20 != 0, 1)
    label[np.flatnonzero(left_out)[::5]] = 1
    return wide_deep.Examples([FieldCodes(label.astype(np.uint8))], label, np.ones(n)), left_out


def test_early_stopping_keeps_the_best_epoch_and_trains_again_for_as_many(turning: Any) -> None:
    examples, left_out = turning
    watch = Recorded()
    network, epochs = wide_deep.fit(Slope, examples, left_out, 0, 200, watch)
    assert epochs == int(np.argmin(watch.losses)) + 1
    assert len(watch.losses) == epochs + wide_deep.patience(5760)
    assert watch.n_again == epochs
    assert network.known == 1.0
    network, _ = wide_deep.fit(partial(Slope, known=-1.0), examples, left_out, 0, 200)
    assert network.known == 0.0  # the second training went astray


def test_bins_begin_in_order() -> None:
    torch.manual_seed(0)
    first, second = wide_deep.Deep([300, 300], 8, (4,), in_order=[1]).embeddings.arrays()
    assert np.abs(first).max() < 0.1
    steps = np.diff(second[2:], axis=0).mean(axis=0)
    np.testing.assert_allclose(second[-1] - second[2], 297 * steps, rtol=1e-3)
    assert np.abs(second[-1] - second[2]).mean() > 0.1


def test_an_interrupt_keeps_the_best_epoch_so_far(turning: Any) -> None:
    examples, left_out = turning
    whole = Recorded()
    _, epochs = wide_deep.fit(Slope, examples, left_out, 0, 200, whole)
    for n in (1, epochs - 1, epochs, epochs + 2):
        network, kept = wide_deep.fit(Slope, examples, left_out, 0, 200, Recorded(epochs=n))
        assert (kept, network.known) == (min(n, epochs), 0.0)
        loss, _ = wide_deep.judged(network, examples, np.flatnonzero(left_out))
        assert loss == pytest.approx(whole.losses[kept - 1], abs=1e-12)
    network, kept = wide_deep.fit(Slope, examples, left_out, 0, watch=Recorded(steps=3))  # within the first epoch
    assert (kept, network.known) == (0, 1.0)  # as it began, knowing all rows


def test_ctrl_c_before_the_network_gives_the_regression(people: pl.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Interrupt, "asked", property(lambda self: True, lambda self, value: None), raising=False)
    model = make().fit(people, "bought")
    assert not model.model_.additions
    assert 0 < model.predict_proba(people)[0, 1] < 1


def test_the_time_limit_covers_both_parts(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    frame = smooth_table(20_000)
    make(time_limit=4, hidden=(400, 400), journal=str(journal)).fit(frame, "y")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    assert events[-1]["event"] == "FitFinished"
    assert events[-1]["seconds"] < 6
    epochs = [event for event in events if event["event"] == "StepDone" and event["phase"] == "training the network"]
    assert [event["step"] for event in epochs] == list(range(1, len(epochs) + 1))
    assert all(0 < event["score"] < 1 for event in epochs)


# xDeepFM, for comparison.


def test_cin_is_the_sum_over_all_pairs() -> None:
    torch.manual_seed(0)
    cin = XDEEPFM["CIN"](3, (4, 2)).double()
    x0 = torch.randn(5, 3, 2, dtype=torch.float64)
    xk, sums = x0, []
    for weight, n_maps in zip(cin.weights, (4, 2), strict=True):
        n = xk.shape[1]
        following = torch.zeros(5, n_maps, 2, dtype=torch.float64)
        for h in range(n_maps):
            for i in range(n):
                for j in range(3):
                    following[:, h] += weight[h, i * 3 + j] * xk[:, i] * x0[:, j]
        xk = following
        sums.append(xk.sum(2))
    torch.testing.assert_close(cin.pooled(x0), torch.cat(sums, 1))


def test_gradients_are_those_of_small_differences() -> None:
    torch.manual_seed(0)
    codes, sizes = rows_of_every_kind(6)
    batch = examples_of(codes).batch(np.arange(6), CPU)
    x0 = torch.randn(4, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(XDEEPFM["CIN"](3, (4, 2)).double(), x0)
    for network in (XDEEPFM["XDeepFM"](sizes, 2, (5,), (3, 2)).double(), wide_deep.Deep(sizes, 2, (5,)).double()):
        names = [name for name, _ in network.named_parameters()]
        start = tuple(torch.randn_like(one).requires_grad_() for one in network.parameters())

        def by_parameters(*values: torch.Tensor, network: nn.Module = network, names: list[str] = names) -> torch.Tensor:
            return torch.func.functional_call(network, dict(zip(names, values, strict=True)), (batch,))

        assert torch.autograd.gradcheck(by_parameters, start)


def test_xdeepfm_learns_by_the_same_training() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.integers(0, 4, (2, 1000))
    label = (a + b) % 2
    codes = [FieldCodes(a.astype(np.uint8)), FieldCodes(b.astype(np.uint8))]
    examples = wide_deep.Examples(codes, label, np.ones(1000))
    left_out = np.arange(1000) % 10 == 0
    network, _ = wide_deep.fit(lambda everyone: XDEEPFM["XDeepFM"]([4, 4], 4, (16,), (8, 8)), examples, left_out, 0, 20)
    _, log_odds = wide_deep.judged(network, examples, np.arange(1000))
    assert auc(label, log_odds, np.ones(1000)) > 0.99
