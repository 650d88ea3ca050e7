"""xDeepFM (KDD 2018): a linear part, a compressed interaction network (CIN) and a deep part on shared embeddings.

x0 : (n_rows, n_fields, size)   the fields' embeddings
xk : (n_rows, n_maps, size)     a layer of the CIN: map h is the sum over i, j of W[h, i, j] * x(k-1)[:, i] * x0[:, j]
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from embeddings import Batch, Deep, Wide
from torch import Tensor, nn


class CIN(nn.Module):
    """Explicit interactions of embeddings, their order rising with each layer; every map is summed up over the embedding."""

    def __init__(self, n_fields: int, layers: Sequence[int] = (100, 100)) -> None:
        super().__init__()
        maps = [n_fields, *layers]
        self.weights = nn.ParameterList(nn.Parameter(torch.empty(n_maps, n * n_fields)) for n, n_maps in pairwise(maps))
        for weight in self.weights:
            nn.init.xavier_uniform_(weight)
        self.output = nn.Linear(sum(layers), 1)

    def pooled(self, x0: Tensor) -> Tensor:
        """The sums of all maps: (n_rows, sum of the layers)."""
        x0 = x0.transpose(1, 2)  # the fields come last: all rows then take part in one product of matrices
        xk, sums = x0, []
        for weight in self.weights:
            products = (xk[..., None] * x0[:, :, None]).flatten(2)  # (n_rows, size, n_maps * n_fields)
            xk = products @ weight.T
            sums.append(xk.sum(1))
        return torch.cat(sums, 1)

    def forward(self, x0: Tensor) -> Tensor:
        return self.output(self.pooled(x0))[:, 0]


class XDeepFM(nn.Module):
    """The log-odds of all three parts added up; `embeddings.fit` trains it."""

    def __init__(
        self,
        sizes: Sequence[int],
        size: int = 10,
        hidden: Sequence[int] = (400, 400),
        layers: Sequence[int] = (100, 100),
        in_order: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.linear = Wide(sizes)
        self.cin = CIN(len(sizes), layers)
        self.deep = Deep(sizes, size, hidden, in_order)

    def forward(self, batch: Batch) -> Tensor:
        embedded = self.deep.embeddings(batch)
        return self.linear(batch) + self.cin(embedded) + self.deep.above(embedded)
