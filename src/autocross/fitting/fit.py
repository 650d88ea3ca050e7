"""A whole fit on one page: read, encode, tune, search, finish. Below it, a refit: new weights for the features of a fitted
model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from autocross import reading
from autocross.blocks import INTERCEPT, make_blocks
from autocross.crossing import CrossCoder
from autocross.errors import LabelError
from autocross.events import Reporter, SearchStopped
from autocross.fitting.encode import Encoded, Rows, encode
from autocross.fitting.finish import Finished, announced, final_fit, finish, finish_smaller, found_cross, last_fit, recorded
from autocross.fitting.read import read
from autocross.fitting.run import Run, n_lots, started
from autocross.fitting.search import search
from autocross.fitting.tune import COMPARED, Best, lay_out
from autocross.folds import FoldPlan
from autocross.interrupts import Interrupt
from autocross.options import SIZES, Options
from autocross.producer.model import Model, Producer
from autocross.search.coding import put, statistic_coder
from autocross.search.fieldwise import candidate
from autocross.search.stopping import Stopped
from autocross.table.coerce import typed
from autocross.table.labels import Classes, match_labels
from autocross.table.source import Part, Source


@dataclass(frozen=True)
class LaterStage:
    """What another kind of model does after the logistic model is finished, and the share of the time limit that is kept for it.

    ``check`` is called before the work begins, and raises an error if this stage cannot run.
    """

    share: float
    check: Callable[[Options, Source], None]
    run: Callable[[Run, Source, Encoded, Finished], Finished]


def fit(source: Source, options: Options, reporter: Reporter, interrupt: Interrupt, later: LaterStage | None = None) -> Model:
    """Fit a model to the rows."""
    if later is not None:
        later.check(options, source)
    search_share = 1.0 if later is None else 1.0 - later.share
    with started(options, reporter, interrupt, search_share, on_disk=not source.in_memory) as run:
        encoded = encode(run, source, read(run, source))
        best = best_found(run, encoded)
        began = reporter.seconds
        finished = last_fit(run, lambda: finish(run, encoded.rows, best))
        if later is not None:
            finished, best = later.run(run, source, encoded, finished), replace(best, smaller=())
        smaller = finish_smaller(run, encoded.rows, best, reporter.seconds - began)
    models: dict[int, Model] = {}
    for smaller_set, fitted in reversed([*zip(reversed(best.smaller), smaller, strict=False)]):  # the time may have ended early
        models[len(smaller_set.accepted)] = replace(modelled(run, encoded.rows, smaller_set, fitted), smaller={**models})
    model = announced(run, replace(modelled(run, encoded.rows, best, finished), smaller=models))
    for rule in run.rules:
        if rule.name == COMPARED:  # what the score means is the last thing that is said
            reporter.notice(rule.value)
    return model


def modelled(run: Run, rows: Rows, best: Best, finished: Finished) -> Model:
    """The model of a set of features that is fitted to all rows."""
    crosses = tuple(found_cross(best.encoder, accepted) for accepted in best.accepted)
    history = run.history
    if history and best.score is not None and (history[-1]["crosses"], history[-1]["score"]) != (len(crosses), best.score):
        # The set was fitted on other folds, and crosses may have been taken out, after the search.
        history = [*history, {"seconds": history[-1]["seconds"], "crosses": len(crosses), "score": best.score}]
    return recorded(run, rows, finished, crosses, history)


def best_found(run: Run, encoded: Encoded) -> Best:
    """The best set of features that was found by the time the search ended."""
    kept: list[Best] = []
    run.engine.between = run.stopping.check
    try:
        why = search(run, encoded, kept.append)
    except Stopped as stopped:
        why = stopped.why
        if not kept:
            all_fields = range(len(encoded.encoder.fields))
            fields = all_fields if run.options.time_limit is None else encoded.encoder.coarsest()
            kept.append(Best(lay_out(run, encoded, fields, coarse=False).encoder))
    best = kept[-1]
    run.reporter.tell(SearchStopped, why=why.value, n_crosses=len(best.accepted))
    if run.options.size == "small" and len(best.accepted) > max(SIZES):
        run.reporter.warn(
            f"The search was ended before crosses could be taken out, so the model has {len(best.accepted)}, though size='small' "
            f"asks for {max(SIZES)} at most. Give it more time, or fit with max_crosses={max(SIZES)}."
        )
    for n, accepted in enumerate(best.found, start=1):
        run.history.append({"seconds": accepted.seconds, "crosses": n, "score": accepted.score})
    return best


def refit(model: Model, part: Part, target: str, options: Options, reporter: Reporter) -> Model:
    """New weights on new rows, for the same fields under the same penalties."""
    label = match_labels(part.label, target, model.about.classes)
    if label.min() == label.max():
        raise LabelError(f"The target {target!r} holds one class only, so there is nothing to learn. Give rows of both classes.")
    producer = model.producer
    codes = producer.encoder.encode(typed(part.features, producer.encoder.schema))
    total_weight = reading.weighed(reading.weigh(part.weight))
    exponent = reading.mean_exponent(total_weight, len(label))
    weight, total_weight = np.ldexp(part.weight, -exponent), math.ldexp(total_weight, -exponent)
    rows = Rows(len(label), int(np.count_nonzero(label)), total_weight, target, Classes(*model.about.classes))
    penalties = {term: penalty.times(rows.mean_weight) for term, penalty in zip(producer.terms, model.penalties, strict=True)}
    # A blend's share is taken out of the weights. That the intercept has some of the statistics' as well matters little at a start.
    start = {INTERCEPT: np.array([model.intercept]), **dict(zip(producer.terms, model.weights, strict=True))}
    start = {term: weight / (1.0 - model.share) for term, weight in start.items()}
    with started(options, reporter, Interrupt(), 1.0, on_disk=False) as run:
        n_blocks = n_lots(rows.n_rows, run.engine.n_workers)
        run.engine.place(make_blocks(codes, label, weight, FoldPlan(1, holdout=True), run.seed, n_blocks))
        crosses = tuple(anew(run, producer, cross, rows.n_rows) for cross in producer.crosses)
        producer = Producer(producer.encoder.fitted_to(codes, weight), crosses)
        finished = last_fit(run, lambda: final_fit(run, producer, rows, penalties, start, model.share))
    run.rules = list(model.about.rules)
    return announced(run, recorded(run, rows, finished, model.about.crosses, model.about.history))


def anew(run: Run, producer: Producer, cross: CrossCoder, n_rows: int) -> CrossCoder:
    """The coder of a cross for other rows, which are in the blocks now. A statistic has the values of these rows."""
    if cross.kind == "statistic":
        return statistic_coder(run.engine, n_rows, candidate(cross.fields, producer.encoder.fields))
    return replace(cross, width=max(cross.width, *run.engine.each(put, cross)))
