"""The last stage: fit one model to all rows, and record where it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autocross.blocks import INTERCEPT, Cross
from autocross.encoding.encoder import Encoder
from autocross.engines import carry_on
from autocross.events import FitFinished, PhaseStarted, StepDone
from autocross.features import Penalty
from autocross.fitting.encode import Rows
from autocross.fitting.run import Run
from autocross.fitting.tune import Best
from autocross.models import tuning
from autocross.models.logistic import Regression
from autocross.producer.addition import Addition
from autocross.producer.model import About, FoundCross, Model, Producer
from autocross.search.judging import Accepted
from autocross.search.stopping import Stopped

FINAL_SWEEPS = 100  # most sweeps of the final fit; crosses that share columns settle slowly
CERTAIN_SWEEPS = 5  # sweeps that the final fit has even if the time is up, unless it has been up for a while

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Finished:
    """Features with weights learned from all rows, the penalties of the terms, and what else adds to the log-odds."""

    producer: Producer
    intercept: float
    weights: Sequence[Floats]
    penalties: Mapping[Cross, Penalty]
    score: float | None
    additions: tuple[Addition, ...] = ()


def finish(run: Run, rows: Rows, best: Best) -> Finished:
    """Fit the best set to all rows, from the weights already found."""
    producer = Producer(best.encoder, tuple(accepted.coder for accepted in best.accepted))
    terms = {} if best.regression is None else best.regression.terms
    untuned = Penalty(0.0, tuning.START * rows.mean_weight)  # with which the choice of a penalty begins
    penalties = {term: terms[term].penalty if term in terms else untuned for term in producer.terms}
    learned = {} if best.regression is None else best.regression.mean_weights()
    zero = {term: np.zeros(field.n_codes) for term, field in zip(producer.terms, producer.fields, strict=True)}
    intercept, weights = final_weights(run, producer, rows, penalties, {INTERCEPT: np.zeros(1), **zero, **learned})
    return Finished(producer, intercept, weights, penalties, best.score)


def final_weights(
    run: Run, producer: Producer, rows: Rows, penalties: Mapping[Cross, Penalty], start: Mapping[Cross, Floats]
) -> tuple[float, list[Floats]]:
    """Fit one model to all rows. If the time is up it has fewer sweeps; in the worst case only the intercept is fitted."""
    engine, sweeps = run.engine, 0
    engine.between = carry_on
    run.reporter.tell(PhaseStarted, phase="fitting all rows", steps=1)
    regression = Regression.begin(engine, rows.total_weight, 1, everyone=True, loss=run.loss)
    regression.move(INTERCEPT, start[INTERCEPT][:, None])
    for term, field in zip(producer.terms, producer.fields, strict=True):
        regression.add(term, field, penalties[term], start[term][:, None])
    with suppress(Stopped):
        engine.between = run.stopping.check_grace
        sweeps = regression.converge(tuning.FINE, CERTAIN_SWEEPS)
        if sweeps == CERTAIN_SWEEPS:
            engine.between = run.stopping.check_last
            sweeps += regression.converge(tuning.FINE, FINAL_SWEEPS - CERTAIN_SWEEPS)
    engine.between = carry_on
    if not sweeps:
        regression.converge(tuning.FINE, CERTAIN_SWEEPS, [INTERCEPT])
    run.reporter.tell(StepDone, phase="fitting all rows", step=1, detail=f"{sweeps} sweeps")
    weights = [regression.terms[term].weight[:, 0].copy() for term in producer.terms]
    return float(regression.terms[INTERCEPT].weight[0, 0]), weights


def recorded(run: Run, rows: Rows, finished: Finished, crosses: tuple[FoundCross, ...]) -> Model:
    """The model with a record of where it comes from. A private model knows only hashes from here on."""
    producer, score = finished.producer, finished.score
    if run.options.private:
        producer = Producer(producer.encoder.private(), producer.crosses)
    score = None if score is None or score != score else score
    metric = run.options.metric
    about = About(rows.target, rows.classes.words, metric, score, rows.n_rows, crosses, tuple(run.rules), tuple(run.history))
    run.reporter.tell(
        FitFinished,
        n_rows=rows.n_rows,
        n_fields=len(producer.encoder.fields),
        n_crosses=len(crosses),
        metric=metric,
        score=score,
    )
    # In units of a row's mean weight: only how rows weigh against each other counts, in a refit too.
    penalties = tuple(finished.penalties[term].times(1.0 / rows.mean_weight) for term in producer.terms)
    return Model(producer, finished.intercept, tuple(finished.weights), penalties, about, finished.additions)


def found_cross(encoder: Encoder, accepted: Accepted) -> FoundCross:
    """An accepted cross, described by the names of its fields and columns."""
    parts = [encoder.fields[number] for number in accepted.coder.fields]
    columns = tuple(dict.fromkeys(part.column for part in parts))
    return FoundCross(tuple(part.name for part in parts), columns, accepted.gain, accepted.error, accepted.n_collisions)
