"""The networks on embeddings that the paper compares with, and how they are trained."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from autocross.features import FieldCodes
from autocross.models import wide_deep
from autocross.models.metrics import auc

sys.path.append(str(Path(__file__).parents[1] / "paper"))
import embeddings
import xdeepfm

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small networks are no work for two."""
    with wide_deep.threads(1):
        yield


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


def examples_of(codes: list[FieldCodes]) -> embeddings.Examples:
    n = codes[0].n_rows
    return embeddings.Examples(codes, np.arange(n) % 2, np.ones(n))


CPU = torch.device("cpu")


@pytest.fixture
def turning() -> tuple[embeddings.Examples, Any]:
    """Rows whose labels want the weight to rise, and left-out ones that want it not to rise too far."""
    n = 6400
    left_out = np.arange(n) % 10 == 0
    label = np.where(left_out, np.arange(n) % 20 != 0, 1)
    label[np.flatnonzero(left_out)[::5]] = 1
    return embeddings.Examples([FieldCodes(label.astype(np.uint8))], label, np.ones(n)), left_out


def test_the_wide_part_adds_up_its_weights() -> None:
    codes, sizes = rows_of_every_kind()
    wide = embeddings.Wide(sizes)
    nn.init.normal_(wide.weights.table.weight)
    first = wide.weights.table.weight.detach().numpy()[:, 0]
    weights = np.split(first, np.cumsum(sizes)[:-1])
    found = wide(examples_of(codes).batch(np.arange(40), CPU))
    assert codes[1].starts is not None
    several = [weights[1][codes[1].codes[a:b]].sum() for a, b in zip(codes[1].starts[:-1], codes[1].starts[1:], strict=True)]
    np.testing.assert_allclose(found.detach(), weights[0][codes[0].codes] + several + weights[2][codes[2].codes], atol=1e-5)


class Slope(nn.Module):
    """One weight, which sets every log-odds."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(0.02))

    def forward(self, batch: embeddings.Batch) -> torch.Tensor:
        return self.weight + 0 * batch.single[:, 0]


def test_early_stopping_finds_the_best_epoch_and_trains_again_for_as_many(turning: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    examples, left_out = turning
    lengths: list[int] = []
    trained = embeddings.trained

    def counted(*args: Any) -> Iterator[None]:
        lengths.append(0)
        for _ in trained(*args):
            lengths[-1] += 1
            yield

    monkeypatch.setattr(embeddings, "trained", counted)
    _, epochs = embeddings.fit(Slope, examples, left_out, 0, 200)
    assert epochs > 0
    assert lengths == [epochs + embeddings.patience(5760), epochs]


def test_bins_begin_in_order() -> None:
    torch.manual_seed(0)
    table = embeddings.Deep([300, 300], 8, (4,), in_order=[1]).embeddings.table.weight.detach().numpy()
    first, second = table[:300], table[300:]
    assert np.abs(first).max() < 0.1
    steps = np.diff(second[2:], axis=0).mean(axis=0)
    np.testing.assert_allclose(second[-1] - second[2], 297 * steps, rtol=1e-3)
    assert np.abs(second[-1] - second[2]).mean() > 0.1


def test_cin_is_the_sum_over_all_pairs() -> None:
    torch.manual_seed(0)
    cin = xdeepfm.CIN(3, (4, 2)).double()
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
    assert torch.autograd.gradcheck(xdeepfm.CIN(3, (4, 2)).double(), x0)
    for network in (xdeepfm.XDeepFM(sizes, 2, (5,), (3, 2)).double(), embeddings.Deep(sizes, 2, (5,)).double()):
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
    examples = embeddings.Examples(codes, label, np.ones(1000))
    left_out = np.arange(1000) % 10 == 0
    network, _ = embeddings.fit(lambda: xdeepfm.XDeepFM([4, 4], 4, (16,), (8, 8)), examples, left_out, 0, 20)
    _, log_odds = embeddings.judged(network, examples, np.arange(1000))
    assert auc(label, log_odds, np.ones(1000)) > 0.99
