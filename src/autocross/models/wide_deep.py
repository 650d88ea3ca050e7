"""The networks of Wide & Deep. The one home of PyTorch.

values : float32 (n_rows, n)   what the networks see of each row; `producer/inputs.py` says what that is
label, weight : float32 (n_rows,)

Several small networks, the members, are trained side by side on the same batches. They differ in how they begin, in the hidden
units that are left out of each step, and in what they see: half of them do not see the contributions of terms. Where many terms
overlap, how they share their part of the log-odds is partly chance; elsewhere contributions are of great use. A member begins with
the log-odds of all rows, and its output layer at zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from autocross.errors import MissingLibraryError
from autocross.models.metrics import log_loss

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional
except ModuleNotFoundError as error:
    raise MissingLibraryError("WideDeepClassifier needs PyTorch. Install it by: pip install 'autocross[deep]'") from error

MEMBERS, HIDDEN = 4, 48  # networks that are trained together, and the hidden units of each
DROPOUT = 0.3  # share of the hidden units that are left out of a step
RATE, DECAY = 0.002, 0.0001  # of AdamW
BATCH, MANY_ROWS = 512, 50_000  # rows of a batch, and from how many rows on it has twice as many
PATIENCE = 3  # training ends after so many epochs without a lower loss on the rows left out
ROWS_AT_ONCE = 8192  # rows that are judged at a time

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Array = NDArray[np.float32]


@dataclass(frozen=True)
class Examples:
    """Rows to learn from, and weights whose mean is about 1. ``contributions`` says which values are contributions of terms."""

    values: Array
    label: Array
    weight: Array
    contributions: NDArray[np.bool_]

    @property
    def base(self) -> float:
        """The log-odds of all rows, which must have both labels."""
        positive, negative = (self.weight[self.label == one].sum(dtype=np.float64) for one in (1, 0))
        return math.log(positive) - math.log(negative)


class Members(nn.Module):
    """The log-odds by each member: (n_rows, MEMBERS). ``epoch`` is the one after which they are kept, or 0."""

    seen: Tensor

    def __init__(self, contributions: NDArray[np.bool_], base: float) -> None:
        super().__init__()
        self.base, self.epoch = base, 0
        self.hidden = nn.Linear(len(contributions), MEMBERS * HIDDEN)
        seen = torch.ones(MEMBERS, HIDDEN, len(contributions))
        seen[MEMBERS // 2 :, :, torch.from_numpy(contributions)] = 0.0
        self.register_buffer("seen", seen.flatten(0, 1))
        self.output = nn.Parameter(torch.zeros(MEMBERS, HIDDEN))
        self.bias = nn.Parameter(torch.zeros(MEMBERS))

    def forward(self, values: Tensor) -> Tensor:
        hidden = functional.linear(values, self.hidden.weight * self.seen, self.hidden.bias)
        hidden = functional.dropout(torch.relu(hidden), DROPOUT, self.training)
        return (hidden.view(-1, MEMBERS, HIDDEN) * self.output).sum(2) + (self.bias + self.base)

    def arrays(self) -> list[Array]:
        """Matrix and bias of the hidden layer, and those of the output, which is the mean of the members."""
        matrix, bias, output, constant = (
            weight.detach().cpu().numpy().astype(np.float64)
            for weight in (self.hidden.weight * self.seen, self.hidden.bias, self.output, self.bias)
        )
        of_output = output.reshape(-1, 1) / MEMBERS, constant.mean(keepdims=True) + self.base
        return [array.astype(np.float32, order="C") for array in (matrix.T, bias, *of_output)]


class Watch:
    """What training reports and asks between its steps. This class ignores the reports and never ends the training."""

    def epoch(self, n: int, loss: float) -> None:
        """Called after each epoch with its loss on the rows left out."""

    def enough(self, needed: float = 0.0) -> bool:
        """Whether to end now and keep the best epoch. ``needed`` is the number of seconds that the next piece of work will take."""
        return False


def train(examples: Examples, left_out: NDArray[np.bool_], seed: int, epochs: int, watch: Watch) -> tuple[Members, Floats]:
    """Train until the loss on the rows left out no longer falls, and return to the best epoch.

    Returns the members, and their log-odds of the rows left out.
    """
    learn, judge = np.flatnonzero(~left_out), np.flatnonzero(left_out)
    with torch.random.fork_rng(devices=[]):  # the random numbers of the caller are not disturbed
        torch.manual_seed(seed)
        members = Members(examples.contributions, examples.base).to("cuda" if torch.cuda.is_available() else "cpu")
        kept, log_odds = deepcopy(members.state_dict()), judged(members, examples, judge)
        lowest, began = loss_of(examples, judge, log_odds), perf_counter()
        for n, _ in enumerate(trained(members, examples, learn, seed, epochs, watch), start=1):
            now = judged(members, examples, judge)
            loss = loss_of(examples, judge, now)
            watch.epoch(n, loss)
            if loss < lowest:
                members.epoch, lowest, log_odds, kept = n, loss, now, deepcopy(members.state_dict())
            if n - members.epoch >= PATIENCE or watch.enough((perf_counter() - began) / n):
                break
    members.load_state_dict(kept)
    return members, log_odds


def trained(members: Members, examples: Examples, rows: Ints, seed: int, epochs: int, watch: Watch) -> Iterator[None]:
    """Train by AdamW. Each item is an epoch. If training must end within an epoch, there is no item for that epoch."""
    device = members.bias.device
    optimiser = torch.optim.AdamW(members.parameters(), lr=RATE, weight_decay=DECAY, fused=True)
    rng = np.random.default_rng(seed)
    n = BATCH * (2 if len(rows) >= MANY_ROWS else 1)
    values, label, weight = map(torch.from_numpy, (examples.values, examples.label, examples.weight))
    for _ in range(epochs):
        members.train()
        shuffled = torch.from_numpy(rng.permutation(rows))
        for some in torch.split(shuffled, n):
            if watch.enough():
                return
            members.zero_grad()
            log_odds = members(values[some].to(device))
            labels = label[some].to(device)[:, None].expand_as(log_odds)
            losses = functional.binary_cross_entropy_with_logits(log_odds, labels, reduction="none")
            (losses.sum(1) * weight[some].to(device)).mean().backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        yield


def judged(members: Members, examples: Examples, rows: Ints) -> Floats:
    """The log-odds of these rows: the mean of the members."""
    members.eval()
    with torch.no_grad():
        parts = [
            members(torch.from_numpy(examples.values[part]).to(members.bias.device)).mean(1).cpu().numpy()
            for part in np.split(rows, range(ROWS_AT_ONCE, len(rows), ROWS_AT_ONCE))
        ]
    return np.concatenate(parts).astype(np.float64)


def loss_of(examples: Examples, rows: Ints, log_odds: Floats) -> float:
    return log_loss(examples.label[rows], log_odds, examples.weight[rows].astype(np.float64))


def side_by_side(networks: Sequence[Members]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """The mean of networks as one: matrices and biases of its hidden layer and of its output."""
    matrices, biases, outputs, constants = zip(*(network.arrays() for network in networks), strict=True)
    output, constant = (
        (array / len(networks)).astype(np.float32) for array in (np.concatenate(outputs), np.sum(constants, axis=0))
    )
    return (np.concatenate(matrices, axis=1), output), (np.concatenate(biases), constant)


@contextmanager
def threads(n: int | None) -> Iterator[None]:
    """Inside this context PyTorch has so many threads. None or -1 leaves its own number."""
    before = torch.get_num_threads()
    if n is not None and n > 0:
        torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)
