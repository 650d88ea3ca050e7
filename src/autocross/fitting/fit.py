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
from autocross.engines import carry_on
from autocross.errors import LabelError
from autocross.events import Reporter, SearchStopped
from autocross.features import Penalty
from autocross.fitting.constraints import limits_of
from autocross.fitting.encode import Encoded, Rows, encode
from autocross.fitting.finish import Finished, Start, announced, final_fit, finish, finish_smaller, found_cross, last_fit, recorded
from autocross.fitting.read import CLASS_WEIGHT, note_class_weight, read
from autocross.fitting.run import Run, n_lots, started
from autocross.fitting.search import search
from autocross.fitting.tune import COMPARED, MONOTONE, Best, lay_out
from autocross.folds import FoldPlan
from autocross.interrupts import Interrupt
from autocross.models import tuning
from autocross.options import SIZES, Options
from autocross.producer.changes import before_refit
from autocross.producer.model import Model, Producer
from autocross.producer.printing import shortened
from autocross.search.coding import put, statistic_coder
from autocross.search.fieldwise import candidate
from autocross.search.including import known, missing, unjudged
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
    limits = limits_of(options, source.names)
    search_share = 1.0 if later is None else 1.0 - later.share
    with started(options, reporter, interrupt, search_share, on_disk=not source.in_memory) as run:
        run.limits = limits
        encoded = encode(run, source, read(run, source))
        best = best_found(run, encoded)
        began = reporter.seconds
        finished = last_fit(run, lambda: finish(run, encoded.rows, best))
        if later is not None:
            finished, best = later.run(run, source, encoded, finished), replace(best, smaller=())
        smaller = finish_smaller(run, encoded.rows, best, finished, reporter.seconds - began)
    models: dict[int, Model] = {}
    for smaller_set, fitted in reversed([*zip(reversed(best.smaller), smaller, strict=False)]):  # the time may have ended early
        models[len(smaller_set.accepted)] = replace(modelled(run, encoded.rows, smaller_set, fitted), smaller={**models})
    model = announced(run, replace(modelled(run, encoded.rows, best, finished), smaller=models))
    for rule in run.rules:
        if rule.name == MONOTONE:
            reporter.notice(f"{rule.name} {rule.value}")
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
    best = with_included(run, encoded, kept[-1])
    run.reporter.tell(SearchStopped, why=why.value, n_crosses=len(best.accepted))
    if run.options.size == "small" and len(best.accepted) > max(SIZES):
        run.reporter.warn(
            f"The search was ended before crosses could be taken out, so the model has {len(best.accepted)}, though size='small' "
            f"asks for {max(SIZES)} at most. Give it more time, or fit with max_crosses={max(SIZES)}."
        )
    for n, accepted in enumerate(best.found, start=1):
        run.history.append({"seconds": accepted.seconds, "crosses": n, "score": accepted.score})
    return best


def with_included(run: Run, encoded: Encoded, best: Best) -> Best:
    """The best set with all crosses that must be there, also if the search was ended before they could enter."""
    fields, rows = best.encoder.fields, encoded.rows
    unread = [columns for columns in run.limits.include if not known(columns, fields)]
    for columns in unread:
        run.reporter.warn(f"The cross {' & '.join(columns)!r} is not in the model, which does not know all of its columns.")
    lacking = missing(run.limits.include, best.accepted, fields)
    if not lacking:
        return best
    run.engine.between = carry_on
    penalty = Penalty(0.0, tuning.START * rows.mean_weight)
    added = unjudged(run.engine, rows.n_rows, encoded.min_count, fields, lacking, penalty)
    names = ", ".join(repr(" & ".join(columns)) for columns in lacking)
    run.reporter.warn(f"The search ended before {names} could be judged. The model has it all the same, with a gain of 0.")
    return replace(best, accepted=(*best.accepted, *added))


def refit(model: Model, part: Part, target: str, options: Options, reporter: Reporter) -> Model:
    """New weights on new rows, for the same fields under the same penalties."""
    label = match_labels(part.label, target, model.about.classes)
    if label.min() == label.max():
        raise LabelError(f"The target {target!r} holds one class only, so there is nothing to learn. Give rows of both classes.")
    if lost := [change for change in model.about.changes if change.what == "weight" and not change.refitted]:
        cells = ", ".join(f"{change.term} = {shortened(change.value)}" for change in lost)
        reporter.warn(f"The refit learns all weights anew, so those changed by hand are gone: {cells}. Change them again.")
    model = before_refit(model)
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
        producer = replace(producer, encoder=producer.encoder.fitted_to(codes, weight), crosses=crosses)
        finished = last_fit(run, lambda: final_fit(run, producer, rows, penalties, Start(start), model.share))
    run.rules = [rule for rule in model.about.rules if rule.name != CLASS_WEIGHT]
    note_class_weight(run, model.about.classes)
    renewed = recorded(run, rows, finished, model.about.crosses, model.about.history)
    return announced(run, replace(renewed, about=replace(renewed.about, changes=model.about.changes)))


def anew(run: Run, producer: Producer, cross: CrossCoder, n_rows: int) -> CrossCoder:
    """The coder of a cross for other rows, which are in the blocks now. A statistic has the values of these rows."""
    if cross.kind == "statistic":
        return statistic_coder(run.engine, n_rows, candidate(cross.fields, producer.encoder.fields))
    return replace(cross, width=max(cross.width, *run.engine.each(put, cross)))
