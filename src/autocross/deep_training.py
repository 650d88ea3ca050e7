"""The fit of Wide & Deep: that of the logistic regression, then the network, which begins with its weights."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.blocks import INTERCEPT, refold
from autocross.encoding import rules as encoding_rules
from autocross.engines import Engine
from autocross.errors import AutoCrossError, OptionError
from autocross.events import PhaseStarted, Reporter, StepDone
from autocross.folds import FoldRule
from autocross.hashing import mix
from autocross.interrupts import Interrupt
from autocross.models import tuning, wide_deep
from autocross.models.logistic import Regression
from autocross.models.metrics import measure
from autocross.options import DeepOptions
from autocross.producer.deep import DeepPart
from autocross.producer.model import Model, Producer
from autocross.search.stopping import Stopped, Stopping
from autocross.table.coerce import typed
from autocross.table.source import InMemory, Part, Source
from autocross.training import FINAL_SWEEPS, Rows, Training

SEARCH_SHARE = 0.5  # of the time limit; the rest is the network's
LEFT_OUT = 0.1  # of the rows, where neither time nor groups are known
PHASE, AGAIN = "training the network", "training the network on all rows"

Floats = NDArray[np.float64]


class DeepTraining(Training):
    """One fit of a Wide & Deep model."""

    def __init__(self, options: DeepOptions, reporter: Reporter, interrupt: Interrupt) -> None:
        super().__init__(options, reporter, interrupt)
        self.deep_options = options
        self.part: Part
        self.deep: DeepPart | None = None
        self.deep_score: float | None = None
        if options.time_limit is not None:
            self.stopping.time_limit = SEARCH_SHARE * options.time_limit

    def fit(self, source: Source) -> Model:
        """As before, for rows that are in memory."""
        if self.options.engine == "ray":
            raise OptionError("Option engine='ray' is not for networks, which are trained on this machine. Use engine='threads'.")
        if isinstance(source, InMemory):
            source = replace(source, most_bytes=None)
        if not source.in_memory:
            raise AutoCrossError(
                "The table is larger than a network can be trained on here. "
                "Raise memory_limit if there is memory enough, or fit an AutoCrossClassifier."
            )
        (self.part,) = source.parts(source.names)
        return super().fit(source)

    def final_weights(
        self, engine: Engine, producer: Producer, rows: Rows, penalties: Any, start: Any
    ) -> tuple[float, list[Floats]]:
        """The regression on all rows, then both parts together. Without time or gain the regression stays as it is."""
        found = super().final_weights(engine, producer, rows, penalties, start)
        self.stopping.time_limit = self.options.time_limit
        with suppress(Stopped):
            left_out = self.left_out(rows.n_rows)
            engine.between = self.stopping.check
            without = self.weights_without(left_out, engine, producer, rows, penalties)
            return self.together(producer, rows, left_out, found, without)
        return found

    def left_out(self, n_rows: int) -> NDArray[np.bool_]:
        """Rows that judge the network: a fold of whole periods or groups where such are known, else some at random."""
        folds = self.redraw(self.seed)
        left_out: NDArray[np.bool_] = folds.fold == 0
        if folds.kind == "random" or left_out.all():
            order = np.argsort(mix(self.seed + 2_000_003, np.arange(n_rows)), kind="stable")
            left_out = np.zeros(n_rows, np.bool_)
            left_out[order[: max(1, int(LEFT_OUT * n_rows))]] = True
        return left_out

    def min_count(self, rows: Rows) -> int:
        return self.options.min_count or encoding_rules.min_count(rows.n_rows)

    def weights_without(
        self, left_out: NDArray[np.bool_], engine: Engine, producer: Producer, rows: Rows, penalties: Any
    ) -> tuple[float, list[Floats]]:
        """The regression of rows that are not left out: a network that begins with it has not seen what judges it."""
        engine.each(refold, FoldRule(1, holdout=True, listed=np.where(left_out, 0, 1).astype(np.uint8)))
        regression = Regression(engine, rows.total_weight, 1, min_count=self.min_count(rows))
        for term, field in zip(producer.terms, producer.fields, strict=True):
            regression.add(term, field, penalties[term])
        regression.converge(tuning.FINE, FINAL_SWEEPS)
        weights = [regression.terms[term].weight[:, 0].copy() for term in producer.terms]
        return float(regression.terms[INTERCEPT].weight[0, 0]), weights

    def together(
        self,
        producer: Producer,
        rows: Rows,
        left_out: NDArray[np.bool_],
        found: tuple[float, list[Floats]],
        without: tuple[float, list[Floats]],
    ) -> tuple[float, list[Floats]]:
        """Train both parts; returns the weights of the wide one."""
        options = self.deep_options
        sizes, n_base = [field.n_codes for field in producer.fields], len(producer.encoder.fields)
        in_order = [at for at, field in enumerate(producer.encoder.fields) if field.chain is not None]

        def make(everyone: bool) -> wide_deep.WideDeep:
            intercept, weights = found if everyone else without
            deep = wide_deep.Deep(sizes[:n_base], options.embedding, options.hidden, in_order)
            return wide_deep.WideDeep(wide_deep.Wide(sizes, weights, intercept), deep)

        sharing = [at for at, field in enumerate(producer.fields) if field.shares_rare]
        codes, min_count = producer.codes(typed(self.part.features, producer.encoder.schema)), self.min_count(rows)
        label, weight = rows.classes.codes(self.part.label), self.part.weight
        examples = wide_deep.Examples(codes, label, weight, sharing, min_count)
        watch = Told(self, label[left_out], weight[left_out].astype(np.float64))
        with wide_deep.threads(self.options.n_jobs):
            network, epochs = wide_deep.fit(make, examples, left_out, self.seed, options.epochs, watch)
        if not epochs:
            self.reporter.notice("no epoch lowers the loss on the rows left out: the model is that of the regression alone")
            return found
        self.rule("epochs", epochs, f"lowest loss on {int(left_out.sum()):,} rows left out")
        assert isinstance(network, wide_deep.WideDeep)
        embeddings, matrices, biases = (tuple(one) for one in network.deep.arrays())
        self.deep, self.deep_score = DeepPart(embeddings, matrices, biases), watch.scores[epochs - 1]
        weights = [one[:, 0].astype(np.float64) for one in network.wide.weights.arrays()]
        return float(network.wide.intercept.detach()), weights

    def finish(
        self, producer: Producer, crosses: Any, intercept: float, weights: Any, penalties: Any, score: Any, rows: Rows
    ) -> Model:
        """The model with its deep part, and the validation score of both."""
        score = score if self.deep is None else self.deep_score
        model = super().finish(producer, crosses, intercept, weights, penalties, score, rows)
        return replace(model, deep=self.deep)


class Told(wide_deep.Watch):
    """Tells of epochs, and ends them at an interrupt or at the end of the time."""

    def __init__(self, training: DeepTraining, label: NDArray[np.uint8], weight: Floats) -> None:
        self.tell, self.metric = training.reporter.tell, training.options.metric
        self.stopping: Stopping = training.stopping
        self.label, self.weight = label, weight
        self.scores: list[float] = []
        self.tell(PhaseStarted, phase=PHASE, steps=training.deep_options.epochs)

    def epoch(self, n: int, loss: float, log_odds: Floats) -> None:
        score = measure(self.metric, self.label, log_odds, self.weight)
        self.scores.append(score)
        self.tell(StepDone, phase=PHASE, step=n, detail=f"epoch {n}   loss {loss:.5f}", score=score if score == score else None)

    def again(self, n: int, epochs: int) -> None:
        if n == 0:
            self.tell(PhaseStarted, phase=AGAIN, steps=epochs)
        else:
            self.tell(StepDone, phase=AGAIN, step=n, detail=f"epoch {n} of {epochs}")

    def enough(self, needed: float = 0.0) -> bool:
        left = self.stopping.seconds_left
        return self.stopping.interrupt.asked or (left is not None and left < needed)
