"""The last stage: fit one model to all rows, and record where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.blocks import INTERCEPT, Cross
from autocross.encoding.encoder import Encoder
from autocross.engines import carry_on
from autocross.events import FitFinished, PhaseStarted, StepDone
from autocross.features import Penalty
from autocross.fitting.encode import Rows
from autocross.fitting.errors import blended, drawn, draws_of
from autocross.fitting.run import Run
from autocross.fitting.scores import deciles_of
from autocross.fitting.survey import surveyed
from autocross.fitting.tune import Best
from autocross.models import monotone, tuning
from autocross.models.logistic import Regression, counts_of
from autocross.producer.addition import Addition
from autocross.producer.background import Background
from autocross.producer.model import About, FoundCross, Model, Producer
from autocross.search import statistics
from autocross.search.judging import Accepted
from autocross.search.stopping import Stopped
from autocross.table.weights import in_order

PHASE, PHASE_OF_SMALLER = "fitting all rows", "fitting smaller models"
FINAL_SWEEPS = 100  # most sweeps of the final fit; crosses that share columns settle slowly
SMALLER_SWEEPS = 8  # the same for smaller sets, which settle sooner
CERTAIN_SWEEPS = 5  # sweeps that the final fit has even if the time is up, unless it has been up for a while

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Start:
    """Where a fit to all rows begins: weights of fields and crosses, and of statistics. ``counts`` has the rows and positives of
    terms whose codes, as those of rows that all are learned from, are in the blocks already."""

    weights: Mapping[Cross, Floats]
    statistics: Mapping[Cross, Floats] = field(default_factory=dict)
    counts: Mapping[Cross, Ints] = field(default_factory=dict)


@dataclass(frozen=True)
class Finished:
    """Features with weights learned from all rows, the penalties of the terms, and what else adds to the log-odds.

    ``counts`` has the rows and positives of every code. ``share`` is the share of the log-odds that statistics have. ``sweeps`` is
    how many it took to fit the weights. ``background`` is what else is remembered about the rows."""

    producer: Producer
    intercept: float
    weights: Sequence[Floats]
    counts: Sequence[Ints]
    penalties: Mapping[Cross, Penalty]
    score: float | None = None
    share: float = 0.0
    additions: tuple[Addition, ...] = ()
    sweeps: int = 0
    background: Background | None = None


def last_fit(run: Run, fit: Callable[[], Finished]) -> Finished:
    """Do the last fit, and report it."""
    run.reporter.tell(PhaseStarted, phase=PHASE, steps=1)
    finished = fit()
    run.reporter.tell(StepDone, phase=PHASE, step=1, detail=f"{finished.sweeps} sweeps")
    return finished


def finish(run: Run, rows: Rows, best: Best, larger: Finished | None = None) -> Finished:
    """Fit the best set to all rows, from the weights already found; or a smaller one, after a larger one was fitted."""
    producer = Producer(best.encoder, tuple(accepted.coder for accepted in best.accepted))
    terms = {} if best.regression is None else best.regression.terms
    untuned = Penalty(0.0, tuning.START * rows.mean_weight)  # with which the choice of a penalty begins
    penalties = {term: terms[term].penalty if term in terms else untuned for term in producer.terms}
    penalties |= {one.coder.term: one.penalty for one in best.accepted if one.coder.kind == "statistic"}
    start = Start(
        {} if best.regression is None else best.regression.mean_weights(),
        {} if best.statistics is None else best.statistics.mean_weights(),
        {} if larger is None else dict(zip(larger.producer.terms, larger.counts, strict=True)),
    )
    return replace(final_fit(run, producer, rows, penalties, start, best.share, larger is not None), score=best.score)


def finish_smaller(run: Run, rows: Rows, best: Best, finished: Finished, seconds: float) -> list[Finished]:
    """The smaller sets, fitted to all rows too, the largest first. None is begun if there is not as much time left as the best set
    took, or after an interrupt."""
    done: list[Finished] = []
    if best.smaller:
        run.reporter.tell(PhaseStarted, phase=PHASE_OF_SMALLER, steps=len(best.smaller))
    for number, smaller in enumerate(reversed(best.smaller), start=1):
        left = run.stopping.seconds_left
        if run.stopping.interrupt.asked or (left is not None and left < seconds):
            break
        done.append(finish(run, rows, smaller, finished))
        detail = f"{len(smaller.accepted)} crosses, {done[-1].sweeps} sweeps"
        run.reporter.tell(StepDone, phase=PHASE_OF_SMALLER, step=number, detail=detail, score=smaller.score)
    return done


def final_fit(
    run: Run,
    producer: Producer,
    rows: Rows,
    penalties: Mapping[Cross, Penalty],
    start: Start,
    share: float = 0.0,
    smaller: bool = False,
) -> Finished:
    """Fit one model to all rows. If the time is up it has fewer sweeps; in the worst case only the intercept is fitted.

    Statistics are fitted on their own, and count by ``share``; fields and crosses count by the rest. A ``smaller`` model beside the
    best one has fewer sweeps, and nobody asks how far its weights may be off.
    """
    engine, zero, most_sweeps = run.engine, np.zeros(1), SMALLER_SWEEPS if smaller else FINAL_SWEEPS
    engine.between = carry_on
    regression = Regression.begin(engine, rows.total_weight, 1, everyone=True, loss=run.loss)
    regression.move(INTERCEPT, start.weights.get(INTERCEPT, zero)[:, None])
    fields = dict(zip(producer.terms, producer.fields, strict=True))
    coders = {coder.term: coder for coder in producer.crosses if coder.kind == "statistic"}
    silent = {(number,) for number in producer.crossed_only}
    plain = [term for term in producer.terms if term not in coders and term not in silent]
    for term in plain:
        regression.add(term, fields[term], penalties[term], start.weights[term][:, None] if term in start.weights else None)
    sweeps = settle(run, regression, most_sweeps)
    deviations = None if smaller else blended(1.0 - share, drawn(run, regression))
    counts = {**start.counts}
    own = [term for term in producer.terms if term not in coders]
    counts |= {term: counts_of(engine, term, fields[term].n_codes) for term in own if term not in counts}
    learned = {term: (1.0 - share) * regression.terms[term].weight[:, 0] for term in plain}
    weights = {term: monotone.settled(fields[term], learned[term], counts[term][:, 0]) for term in plain}
    weights |= {term: np.zeros(fields[term].n_codes) for term in silent}
    intercept = (1.0 - share) * float(regression.terms[INTERCEPT].weight[0, 0])
    if coders:
        regression = Regression.begin(engine, rows.total_weight, 1, everyone=True, loss=run.loss)
        regression.move(INTERCEPT, start.statistics.get(INTERCEPT, zero)[:, None])
        base = regression.positive_rate
        for term, coder in coders.items():
            if term not in counts:
                counts[term] = statistics.place(engine, coder, 0, base)
            statistics.add(regression, coder, penalties[term], start.statistics)
        sweeps += settle(run, regression, most_sweeps)
        deviations = None if deviations is None else blended(share, drawn(run, regression), deviations)
        for term, coder in coders.items():
            weights[term] = share * statistics.weights(regression, coder, counts[term], base)
            if deviations is not None:
                of_parts = [deviations.pop(part) for part, _ in statistics.parts_of(coder)]
                deviations[term] = statistics.of_values(of_parts, counts[term], base)
        intercept += share * float(regression.terms[INTERCEPT].weight[0, 0])
    in_order = [weights[term] for term in producer.terms], [counts[term] for term in producer.terms]
    background = replace(
        surveyed(engine, producer, rows.total_weight),
        deciles=deciles_of(engine, producer, intercept, in_order[0]),
        draws=draws_of(run, producer, in_order[0], deviations),
    )
    return Finished(producer, intercept, *in_order, penalties, share=share, sweeps=sweeps, background=background)


def settle(run: Run, regression: Regression, most_sweeps: int) -> int:
    """Sweep until the weights have settled, or the time is up; returns the number of sweeps."""
    engine, sweeps = run.engine, 0
    with suppress(Stopped):
        engine.between = run.stopping.check_grace
        sweeps = regression.converge(tuning.FINE, CERTAIN_SWEEPS)
        if sweeps == CERTAIN_SWEEPS:
            engine.between = run.stopping.check_last
            sweeps += regression.converge(tuning.FINE, most_sweeps - CERTAIN_SWEEPS)
    engine.between = carry_on
    if not sweeps:
        regression.converge(tuning.FINE, CERTAIN_SWEEPS, [INTERCEPT])
    return sweeps


def recorded(run: Run, rows: Rows, finished: Finished, crosses: tuple[FoundCross, ...], history: Sequence[dict[str, Any]]) -> Model:
    """The model with a record of where it comes from. A private model knows only hashes from here on."""
    producer, score = finished.producer, finished.score
    if run.options.private:
        producer = replace(producer, encoder=producer.encoder.private())
    score = None if score is None or score != score else score
    metric = run.options.metric
    about = About(
        rows.target, rows.classes.words, metric, score, rows.n_rows, crosses, tuple(run.rules), tuple(history), rows.n_positive
    )
    about = replace(about, class_weight=in_order(run.options.class_weight, about.classes))
    # In units of a row's mean weight: only how rows weigh against each other counts, in a refit too.
    penalties = tuple(finished.penalties[term].times(1.0 / rows.mean_weight) for term in producer.terms)
    weights, counts = tuple(finished.weights), tuple(finished.counts)
    parts = (producer, finished.intercept, weights, penalties, about, finished.additions, counts, finished.share)
    return Model(*parts, kept=finished.background)


def announced(run: Run, model: Model) -> Model:
    """Report that the model is finished."""
    about, n_fields = model.about, len(model.producer.encoder.fields)
    facts = {"n_rows": about.n_rows, "n_fields": n_fields, "n_crosses": len(about.crosses), "metric": about.metric}
    run.reporter.tell(FitFinished, **facts, score=about.score)
    return model


def found_cross(encoder: Encoder, accepted: Accepted) -> FoundCross:
    """An accepted cross, described by the names of its fields and columns."""
    parts = [encoder.fields[number] for number in accepted.coder.fields]
    columns = tuple(dict.fromkeys(part.column for part in parts))
    return FoundCross(
        tuple(part.name for part in parts), columns, accepted.gain, accepted.error, accepted.n_collisions, accepted.coder.kind
    )
