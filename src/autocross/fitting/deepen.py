"""An additional stage for Wide & Deep: a network begins with the weights of the regression, and then both learn together."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from autocross.blocks import INTERCEPT, draw_folds
from autocross.errors import AutoCrossError, OptionError
from autocross.events import PhaseStarted, StepDone
from autocross.fitting.encode import Encoded
from autocross.fitting.finish import FINAL_SWEEPS, Finished
from autocross.fitting.fit import LaterStage
from autocross.fitting.run import Run
from autocross.folds import FoldPlan
from autocross.hashing import mix
from autocross.models import tuning, wide_deep
from autocross.models.logistic import Regression
from autocross.models.metrics import measure
from autocross.options import DeepOptions, Options
from autocross.producer.deep import DeepPart
from autocross.search.stopping import Stopped, Stopping
from autocross.table.coerce import typed
from autocross.table.source import Source

NETWORK_SHARE = 0.5  # share of the time limit that is kept for the network
LEFT_OUT = 0.1  # share of the rows that judge the network, unless they are a fold by time or group
PHASE, AGAIN = "training the network", "training the network on all rows"

Floats = NDArray[np.float64]
Weights = tuple[float, list[Floats]]  # the intercept, and the weights of every term


def check(options: Options, source: Source) -> None:
    """Refuse an engine or a table with which no network can be trained."""
    if options.engine == "ray":
        raise OptionError("Option engine='ray' is not for networks, which are trained on this machine. Use engine='threads'.")
    if not source.in_memory:
        raise AutoCrossError(
            "The table is larger than a network can be trained on here. "
            "Raise memory_limit if there is memory enough, or fit an AutoCrossClassifier."
        )


def deepen(run: Run, source: Source, encoded: Encoded, finished: Finished) -> Finished:
    """Train both parts together. If there is no time for that, or no gain, the regression stays as it is."""
    stopping = run.stopping.for_all()
    with suppress(Stopped):
        left_out = rows_left_out(run, encoded)
        run.engine.between = stopping.check
        without = weights_without(run, encoded, finished, left_out)
        return together(run, stopping, source, encoded, finished, left_out, without)
    return finished


STAGE = LaterStage(NETWORK_SHARE, check, deepen)


def rows_left_out(run: Run, encoded: Encoded) -> NDArray[np.bool_]:
    """The rows that judge the network: a fold of whole periods or groups if these are known, or else rows drawn at random."""
    n_rows, folds = encoded.rows.n_rows, encoded.redraw(run.seed)
    left_out: NDArray[np.bool_] = folds.fold == 0
    if folds.kind == "random" or left_out.all():
        order = np.argsort(mix(run.seed + 2_000_003, np.arange(n_rows)), kind="stable")
        left_out = np.zeros(n_rows, np.bool_)
        left_out[order[: max(1, int(LEFT_OUT * n_rows))]] = True
    return left_out


def weights_without(run: Run, encoded: Encoded, finished: Finished, left_out: NDArray[np.bool_]) -> Weights:
    """The weights of a regression that learns only from the rows that are not left out. A network that begins with these weights
    has not seen the rows that judge it."""
    producer = finished.producer
    draw_folds(run.engine, FoldPlan(1, holdout=True, listed=np.where(left_out, 0, 1).astype(np.uint8)))
    regression = Regression.begin(run.engine, encoded.rows.total_weight, 1, min_count=encoded.min_count, loss=run.loss)
    for term, field in zip(producer.terms, producer.fields, strict=True):
        regression.add(term, field, finished.penalties[term])
    regression.converge(tuning.FINE, FINAL_SWEEPS)
    weights = [regression.terms[term].weight[:, 0].copy() for term in producer.terms]
    return float(regression.terms[INTERCEPT].weight[0, 0]), weights


def together(
    run: Run,
    stopping: Stopping,
    source: Source,
    encoded: Encoded,
    finished: Finished,
    left_out: NDArray[np.bool_],
    without: Weights,
) -> Finished:
    """Train both parts: a first time to find the best number of epochs, and then on all rows."""
    options = run.options
    assert isinstance(options, DeepOptions)
    producer = finished.producer
    sizes, n_base = [field.n_codes for field in producer.fields], len(producer.encoder.fields)
    in_order = [number for number, field in enumerate(producer.encoder.fields) if field.chain is not None]

    def make(everyone: bool) -> wide_deep.WideDeep:
        intercept, weights = (finished.intercept, list(finished.weights)) if everyone else without
        deep = wide_deep.Deep(sizes[:n_base], options.embedding, options.hidden, in_order)
        return wide_deep.WideDeep(wide_deep.Wide(sizes, weights, intercept), deep)

    (part,) = source.parts(source.names)
    sharing = [number for number, field in enumerate(producer.fields) if field.shares_rare]
    codes = producer.codes(typed(part.features, producer.encoder.schema))
    label, weight = encoded.rows.classes.codes(part.label), part.weight
    examples = wide_deep.Examples(codes, label, weight, sharing, encoded.min_count)
    watch = Told(run, stopping, label[left_out], weight[left_out].astype(np.float64))
    with wide_deep.threads(options.n_jobs):
        network, epochs = wide_deep.fit(make, examples, left_out, run.seed, options.epochs, watch)
    if not epochs:
        run.reporter.notice("no epoch lowers the loss on the rows left out: the model is that of the regression alone")
        return finished
    run.rule("epochs", epochs, f"lowest loss on {int(left_out.sum()):,} rows left out")
    assert isinstance(network, wide_deep.WideDeep)
    embeddings, matrices, biases = (tuple(arrays) for arrays in network.deep.arrays())
    return replace(
        finished,
        intercept=float(network.wide.intercept.detach()),
        weights=[array[:, 0].astype(np.float64) for array in network.wide.weights.arrays()],
        score=watch.scores[epochs - 1],
        additions=(*finished.additions, DeepPart(embeddings, matrices, biases)),
    )


class Told(wide_deep.Watch):
    """Reports epochs, and ends the training at an interrupt or when the time is up."""

    def __init__(self, run: Run, stopping: Stopping, label: NDArray[np.uint8], weight: Floats) -> None:
        assert isinstance(run.options, DeepOptions)
        self.tell, self.metric, self.stopping = run.reporter.tell, run.options.metric, stopping
        self.label, self.weight = label, weight
        self.scores: list[float] = []
        self.tell(PhaseStarted, phase=PHASE, steps=run.options.epochs)

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
