"""Networks on embeddings of the fields, as the paper compares with, and the loop that trains them.

size   : length of a code's embedding
single : int32 (n_rows, n_fields)   codes of fields that have one in each row
bags   : codes and starts           of each field that may have any number of them
label, weight, log-odds : float32 (n_rows,)

A network is a module from a `Batch` to log-odds. `fit` trains any of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from autocross.features import FIRST, RARE, FieldCodes
from autocross.models.metrics import log_loss

RATE = 0.001  # learning rate of Adam
L2 = 0.0001
MOST_ROWS, FEWEST_ROWS = 4096, 32  # limits of a batch
STEPS = 64  # fewest steps of an epoch; small tables have smaller batches for that
EPOCHS = 50  # most epochs
PATIENCE, PATIENT_STEPS = 3, 1500  # training ends after so many epochs and steps without a lower loss on rows left out
SPREAD = 0.01  # standard deviation of the first embeddings
RISE = 0.1  # standard deviation of how far they rise from the first bin of a number to the last
ROWS_AT_ONCE = 8192  # rows that are judged at a time

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """The codes of some rows. For each field with any number of codes, ``bags`` has the codes and where those of each row begin;
    the field's column of ``single`` is 0."""

    single: Tensor
    bags: Mapping[int, tuple[Tensor, Tensor]]


class Examples:
    """Rows to learn from: the codes of every field, labels, and weights whose mean is 1.

    In the fields of ``sharing``, a code with fewer than ``min_count`` rows counts as rare.
    """

    def __init__(
        self,
        codes: Sequence[FieldCodes],
        label: NDArray[Any],
        weight: NDArray[Any],
        sharing: Sequence[int] = (),
        min_count: int = 1,
    ) -> None:
        single = np.zeros((len(label), len(codes)), np.int32)
        for field, coded in enumerate(codes):
            if coded.starts is None:
                single[:, field] = coded.codes
        self.single = torch.from_numpy(single)
        self.ragged = {field: coded for field, coded in enumerate(codes) if coded.starts is not None}
        self.label = label.astype(np.float32)
        self.weight = (weight / weight.mean(dtype=np.float64)).astype(np.float32)
        self.sharing, self.min_count = sharing, min_count

    @property
    def n_rows(self) -> int:
        return len(self.label)

    def learned_from(self, rows: Ints) -> Examples:
        """The same rows, with rarity judged by these rows only. The other rows then meet rare values as new rows will."""
        seen = copy(self)
        seen.single, seen.ragged = self.single.clone(), dict(self.ragged)
        for field in self.sharing:
            codes = self.ragged[field].codes if field in self.ragged else self.single[:, field].numpy()
            known = self.ragged[field].take(rows).codes if field in self.ragged else codes[rows]
            rare = np.bincount(known, minlength=int(codes.max(initial=0)) + 1) < self.min_count
            rare[:FIRST] = False
            shared = np.where(rare[codes], RARE, codes)
            if field in self.ragged:
                seen.ragged[field] = FieldCodes(shared.astype(codes.dtype), self.ragged[field].starts)
            else:
                seen.single[:, field] = torch.from_numpy(shared)
        return seen

    def batch(self, rows: Ints, device: torch.device) -> Batch:
        """The codes of these rows."""
        bags = {}
        for field, coded in self.ragged.items():
            some = coded.take(rows)
            assert some.starts is not None
            codes, starts = torch.from_numpy(some.codes.astype(np.int64)), torch.from_numpy(some.starts[:-1])
            bags[field] = (codes.to(device), starts.to(device))
        return Batch(self.single[torch.from_numpy(rows)].to(device), bags)


# Networks.


class Embeddings(nn.Module):
    """A vector for every code of the first fields of a batch: (n_rows, n_fields, size). Several codes of a row are averaged or
    added."""

    shift: Tensor

    def __init__(self, sizes: Sequence[int], size: int, several: str = "mean") -> None:
        super().__init__()
        self.sizes, self.several = tuple(sizes), several
        self.table = nn.Embedding(sum(sizes), size)  # one table for all fields, so that there is one look-up
        nn.init.normal_(self.table.weight, 0.0, SPREAD)
        self.register_buffer("shift", torch.tensor([0, *np.cumsum(sizes)[:-1].tolist()]))

    def put_in_order(self, field: int) -> None:
        """Let the vectors of bins begin on a line, so that what is learned about a bin holds for its neighbours too."""
        first, n_values = int(self.shift[field]) + FIRST, self.sizes[field] - FIRST
        if n_values > 1:
            line = torch.linspace(-1.0, 1.0, n_values)[:, None] * RISE * torch.randn(self.table.embedding_dim)
            self.table.weight.data[first : first + n_values] += line

    def forward(self, batch: Batch) -> Tensor:
        places = batch.single[:, : len(self.sizes)] + self.shift
        # The same result as calling the table, but the gradient is several times as fast on a CPU.
        vectors = self.table.weight.index_select(0, places.flatten()).view(*places.shape, -1)
        for field, (codes, starts) in batch.bags.items():
            if field < len(self.sizes):
                bag = functional.embedding_bag(codes + self.shift[field], self.table.weight, starts, mode=self.several)
                vectors = vectors.index_copy(1, torch.tensor([field], device=vectors.device), bag[:, None])
        return vectors


class Wide(nn.Module):
    """A weight for every code and an intercept: logistic regression."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.weights = Embeddings(sizes, 1, "sum")
        nn.init.zeros_(self.weights.table.weight)
        self.intercept = nn.Parameter(torch.tensor(0.0))

    def forward(self, batch: Batch) -> Tensor:
        return self.weights(batch).sum((1, 2)) + self.intercept


class Deep(nn.Module):
    """Embeddings of the fields, hidden layers with max(0, x), and one output, which begins at zero.

    ``in_order`` has the fields whose codes are bins of a number.
    """

    def __init__(self, sizes: Sequence[int], size: int, hidden: Sequence[int], in_order: Sequence[int] = ()) -> None:
        super().__init__()
        self.embeddings = Embeddings(sizes, size)
        for field in in_order:
            self.embeddings.put_in_order(field)
        widths = [len(sizes) * size, *hidden]
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.output = nn.Linear(widths[-1], 1)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, batch: Batch) -> Tensor:
        return self.above(self.embeddings(batch))

    def above(self, embedded: Tensor) -> Tensor:
        """Log-odds from the vectors of the fields, for networks that also use these in other ways."""
        values = embedded.flatten(1)
        for layer in self.hidden:
            values = torch.relu(layer(values))
        return self.output(values)[:, 0]


# Training.


def fit(
    make: Callable[[], nn.Module], examples: Examples, left_out: NDArray[np.bool_], seed: int, epochs: int = EPOCHS
) -> tuple[nn.Module, int]:
    """Find the best number of epochs on the rows left out, then train a new network on all rows for as many epochs.

    If the second training diverges, the first network is returned as it was after its best epoch. The second result is the number
    of epochs; 0 means that no epoch lowered the loss.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with torch.random.fork_rng(devices=[]):  # the random numbers of the caller are not disturbed
        torch.manual_seed(seed)
        first, second = make().to(device), make().to(device)
    learn, judge = np.flatnonzero(~left_out), np.flatnonzero(left_out)
    best, lowest = train_until_best(first, examples.learned_from(learn), learn, judge, seed, epochs)
    if best == 0:
        return second, 0
    for _ in trained(second, examples, np.arange(examples.n_rows), seed, best):
        pass
    # Rows that the network has learned from cannot fit worse than before, unless the training has diverged.
    return (second if judged(second, examples, judge)[0] <= lowest else first), best


def train_until_best(network: nn.Module, examples: Examples, learn: Ints, judge: Ints, seed: int, epochs: int) -> tuple[int, float]:
    """Train until the loss on the rows that judge has not fallen for some epochs, and return to the best epoch.

    Returns the number of that epoch and its loss. 0 means the network as it began.
    """
    best, lowest, kept = 0, judged(network, examples, judge)[0], deepcopy(network.state_dict())
    for n, _ in enumerate(trained(network, examples, learn, seed, epochs), start=1):
        loss, _ = judged(network, examples, judge)
        if loss < lowest:
            best, lowest, kept = n, loss, deepcopy(network.state_dict())
        if n - best >= patience(len(learn)):
            break
    network.load_state_dict(kept)
    return best, lowest


def trained(network: nn.Module, examples: Examples, rows: Ints, seed: int, epochs: int) -> Iterator[None]:
    """Train by Adam. Each item is an epoch."""
    device = next(network.parameters()).device
    optimisers = [kind(some, lr=RATE, weight_decay=L2, fused=True) for kind, some in by_decay(network) if some]
    rng = np.random.default_rng(seed)
    n = batch_rows(len(rows))
    for _ in range(epochs):
        shuffled = rng.permutation(rows)
        for first in range(0, len(rows), n):
            some = shuffled[first : first + n]
            label, weight = (torch.from_numpy(values[some]).to(device) for values in (examples.label, examples.weight))
            network.zero_grad()
            log_odds = network(examples.batch(some, device))
            functional.binary_cross_entropy_with_logits(log_odds, label, weight).backward()
            for optimiser in optimisers:
                optimiser.step()
        yield


def by_decay(network: nn.Module) -> list[tuple[type[torch.optim.Adam], list[nn.Parameter]]]:
    """How weights are penalised: for weights of the regression L2 is part of the loss, and for all others it is decoupled.

    Adam scales the gradient of every weight to the same length. In most batches an embedding would have no gradient except that of
    L2, so with L2 in the loss embeddings vanish before they have learned anything.
    """
    wide = [weight for part in network.modules() if isinstance(part, Wide) for weight in part.parameters()]
    known = {id(weight) for weight in wide}
    return [(torch.optim.Adam, wide), (torch.optim.AdamW, [weight for weight in network.parameters() if id(weight) not in known])]


def judged(network: nn.Module, examples: Examples, rows: Ints) -> tuple[float, Floats]:
    """Loss and log-odds of these rows."""
    device = next(network.parameters()).device
    parts = np.split(rows, range(ROWS_AT_ONCE, len(rows), ROWS_AT_ONCE))
    with torch.no_grad():
        by_part = [network(examples.batch(part, device)).cpu().numpy() for part in parts]
    log_odds = np.concatenate(by_part).astype(np.float64)
    return log_loss(examples.label[rows], log_odds, examples.weight[rows].astype(np.float64)), log_odds


def batch_rows(n_rows: int) -> int:
    """Rows of a batch: 4,096 as in the paper, or a smaller power of two if an epoch would have too few steps.

    >>> batch_rows(1_000_000), batch_rows(30_000), batch_rows(100)
    (4096, 256, 32)
    """
    n = MOST_ROWS
    while n > FEWEST_ROWS and n * STEPS > n_rows:
        n //= 2
    return n


def patience(n_rows: int) -> int:
    """How many epochs to wait for a lower loss. Epochs of a small table have few steps, and a network may need hundreds to start
    learning.

    >>> patience(1_000_000), patience(30_000)
    (7, 13)
    """
    return max(PATIENCE, math.ceil(PATIENT_STEPS / math.ceil(n_rows / batch_rows(n_rows))))
