"""The scikit-learn face of Wide & Deep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from autocross.estimator import AutoCrossClassifier
from autocross.events import Reporter
from autocross.interrupts import Interrupt
from autocross.options import Bins, DeepOptions, EngineName, Evaluation, Halving, Metric, Options, PenaltyMode, Split
from autocross.training import Training


class WideDeepClassifier(AutoCrossClassifier):
    """The regression of `AutoCrossClassifier` plus a network on the same columns, trained together.

    It needs PyTorch to fit, but not to score. ``hidden`` are the sizes of the network's layers, ``embedding`` how many numbers
    stand for a value, ``epochs`` the most passes over the rows. It uses a GPU where PyTorch finds one, which is untested.

    >>> import polars as pl
    >>> X = pl.DataFrame({"job": ["cook", "cook", "nurse", "nurse"] * 10, "age": [20, 30, 40, 50] * 10})
    >>> clf = WideDeepClassifier(hidden=(8,), epochs=2, quiet=True).fit(X, ["no", "no", "yes", "yes"] * 10)
    >>> clf.predict(X)[:4].tolist()
    ['no', 'no', 'yes', 'yes']
    """

    def __init__(
        self,
        *,
        hidden: Sequence[int] = (400, 400),
        embedding: int = 10,
        epochs: int = 50,
        types: Mapping[str, str] | None = None,
        exclude: Sequence[str] | None = None,
        positive: Any = None,
        metric: Metric = "auc",
        max_crosses: int | None = None,
        max_order: int | None = None,
        beam_width: int = 1,
        time_limit: float | None = None,
        halving: Halving = "auto",
        granularities: Sequence[int] | None = None,
        bins: Bins = "auto",
        min_count: int | None = None,
        penalty: PenaltyMode = "field",
        evaluation: Evaluation = "auto",
        split: Split = "auto",
        time: str | None = None,
        groups: str | None = None,
        engine: EngineName = "threads",
        address: str | None = None,
        n_jobs: int | None = None,
        random_state: int | None = None,
        memory_limit: float | None = None,
        separator: str | None = None,
        decimal: str | None = None,
        checkpoint: str | None = None,
        resume: str | None = None,
        private: bool = False,
        quiet: bool = False,
        journal: str | None = None,
    ) -> None:
        super().__init__(
            types=types,
            exclude=exclude,
            positive=positive,
            metric=metric,
            max_crosses=max_crosses,
            max_order=max_order,
            beam_width=beam_width,
            time_limit=time_limit,
            halving=halving,
            granularities=granularities,
            bins=bins,
            min_count=min_count,
            penalty=penalty,
            evaluation=evaluation,
            split=split,
            time=time,
            groups=groups,
            engine=engine,
            address=address,
            n_jobs=n_jobs,
            random_state=random_state,
            memory_limit=memory_limit,
            separator=separator,
            decimal=decimal,
            checkpoint=checkpoint,
            resume=resume,
            private=private,
            quiet=quiet,
            journal=journal,
        )
        self.hidden = hidden
        self.embedding = embedding
        self.epochs = epochs

    def _training(self, options: Options, reporter: Reporter, interrupt: Interrupt) -> Training:
        from autocross.deep_training import DeepTraining  # which needs PyTorch

        deep = DeepOptions(**{entry.name: getattr(self, entry.name) for entry in fields(DeepOptions)})
        return DeepTraining(options, deep, reporter, interrupt)
