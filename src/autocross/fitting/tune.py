"""The third stage: choose the granularities of numbers and a penalty for every field, and fit a regression without crosses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross import folds as splits
from autocross import reading
from autocross.blocks import INTERCEPT, Block, draw_folds, keep_fields, narrowed
from autocross.encoding.encoder import Encoder
from autocross.events import PhaseStarted, StepDone, as_reported
from autocross.features import Penalty, least_rows
from autocross.fitting import leaks
from autocross.fitting.encode import Encoded
from autocross.fitting.run import Run
from autocross.folds import FoldPlan, Folds
from autocross.models import tuning
from autocross.models.logistic import Regression, again
from autocross.options import Metric
from autocross.producer.model import Rule
from autocross.search import granularity
from autocross.search.judging import Accepted

TUNING_ROWS = 1_000_000  # most rows on which penalties are chosen; more rows would choose the same
LEAK = 0.02  # random folds that promise this much more AUC than blocked ones, beyond noise, have seen the answer
MONOTONE = "monotone"  # the rule that says what it costs that some columns must be monotone
COMPARED = "compared"  # the rule that says what the folds mean, and what random ones would give
BY = {"time": "time", "group": "group", "forward": "time"}


@dataclass(frozen=True)
class Best:
    """The best features that a fit has found so far. If the fit must end early, it ends with these.

    A field that has no term in the regression has not been fitted yet. ``statistics`` is a regression on statistics of
    values, whose log-odds count by this ``share``. ``found`` has all crosses of the search in the order in which they were
    accepted, and ``smaller`` the smaller sets for which there will be models too.
    """

    encoder: Encoder
    regression: Regression | None = None
    accepted: tuple[Accepted, ...] = ()
    score: float | None = None
    statistics: Regression | None = None
    share: float = 0.0
    found: tuple[Accepted, ...] = ()
    smaller: tuple[Best, ...] = ()


Keep = Callable[[Best], None]


@dataclass(frozen=True)
class Layout:
    """The fields that the blocks have. ``broader`` has those of ``encoder`` and, behind them, coarse fields for groups of
    crosses."""

    kept: Sequence[int]
    encoder: Encoder
    broader: Encoder


@dataclass(frozen=True)
class Tuned:
    """The fields that were kept, and a regression on them, with its score."""

    layout: Layout
    regression: Regression
    score: float


def tune(run: Run, encoded: Encoded, keep: Keep) -> Tuned:
    """Choose granularities, then penalties, and then look for what makes the score too good to be true."""
    twins = leaks.find_twins(run, encoded)
    layout = lay_out(run, encoded, kept_granularities(run, encoded))
    keep(Best(layout.encoder))
    regression = tuned(run, encoded, layout.encoder, keep)
    score = run.score(regression)
    keep(Best(layout.encoder, regression, (), score))
    run.history.append({"seconds": run.reporter.seconds, "crosses": 0, "score": score})
    run.reporter.count_workers(run.engine, "tuning penalties")
    tell_cost_of_order(run, regression, score)
    leaks.warn_of_answers(run, encoded, layout.encoder, regression, score)
    leaks.warn_of_twins(run, encoded, twins)
    if compare_with_random_folds(run, encoded, regression, score):
        draw_folds(run.engine, encoded.folds.plan)
        regression = again(regression)
    return Tuned(layout, regression, score)


def lay_out(run: Run, encoded: Encoded, kept: Sequence[int], coarse: bool = True) -> Layout:
    """Put these fields into the blocks in place of the stems, and with ``coarse`` also the coarse fields for groups of crosses."""
    encoder = encoded.encoder
    origins, narrower = encoder.origins, encoder.keep(kept)
    added = encoder.coarse(narrower) if coarse and encoded.folds.n_models > 1 else []  # groups of crosses are tried only with folds
    run.engine.run(keep_fields, [*(origins[number] for number in kept), *((stem, table) for stem, table, _ in added)])
    return Layout(kept, narrower, Encoder(narrower.schema, (*narrower.columns, *(column for _, _, column in added))))


def kept_granularities(run: Run, encoded: Encoded) -> list[int]:
    """The better half of the numerical fields, those of moments that help, and all other fields."""
    fields = encoded.encoder.fields
    stems = {number: stem.tables for number, stem in enumerate(encoded.encoder.stems) if stem.tables}
    judged = [field for tables in stems.values() for field in tables]
    if not judged:
        return list(range(len(fields)))
    calendars = {fields[number].column for number in {*range(len(fields))} - {*judged}}
    moments = {stem: tables for stem, tables in stems.items() if fields[min(tables)].column in calendars}
    numbers = {stem: tables for stem, tables in stems.items() if stem not in moments}
    run.reporter.tell(PhaseStarted, phase="choosing granularities", steps=1)
    best = granularity.best_half(fields, judged_alone(run, encoded, numbers)[0]) + helpful_moments(run, encoded, moments)
    detail = f"{len(best)} of {len(judged)} numerical fields kept"
    run.reporter.tell(StepDone, phase="choosing granularities", step=1, detail=detail)
    return sorted({*range(len(fields))} - {*judged} | {*best})


def judged_alone(
    run: Run, encoded: Encoded, stems: Mapping[int, Mapping[int, NDArray[Any]]], ahead: FoldPlan | None = None
) -> tuple[dict[int, NDArray[np.float64]], float]:
    """What the fields of these stems gain, and the loss of the base rate. ``ahead`` has the folds in the blocks, if these look
    ahead."""
    n_models = encoded.folds.n_models if ahead is None else ahead.n_models
    rest = (encoded.encoder.fields, stems, run.loss, run.options.penalty == "field", ahead is not None)
    return granularity.gains(run.engine, encoded.rows.total_weight, n_models, *rest) if stems else ({}, 0.0)


def helpful_moments(run: Run, encoded: Encoded, stems: Mapping[int, Mapping[int, NDArray[Any]]]) -> list[int]:
    """The fields of moments that help. If it is known when rows happened, several spans of later rows must say so."""
    ahead, fields = encoded.ahead, encoded.encoder.fields
    if ahead is not None and ahead.n_models == 1:
        return []
    if stems and ahead is not None:
        draw_folds(run.engine, ahead)
    kept = granularity.helpful(fields, *judged_alone(run, encoded, stems, ahead), encoded.rows.mean_weight)
    if stems and ahead is not None:
        draw_folds(run.engine, encoded.folds.plan)
    return kept


def weight_of(block: Block) -> NDArray[np.int64]:
    """The summed weight of the rows of a block, in the form of `reading.weigh`."""
    return reading.weigh(block.weight)


def tuned(run: Run, encoded: Encoded, encoder: Encoder, keep: Keep) -> Regression:
    """A regression of all fields with the penalties chosen. If there are many rows, a sample of them chooses the penalties."""
    engine, rows, n_models = run.engine, encoded.rows, encoded.folds.n_models
    share = min(1.0, TUNING_ROWS / rows.n_rows)
    if share == 1.0:
        regression = Regression.begin(engine, rows.total_weight, n_models, min_count=encoded.min_count, loss=run.loss)
        keep(Best(encoder, regression))
        choose_penalties(run, regression, encoder)
        return regression
    with narrowed(engine, TUNING_ROWS):
        # A few heavy rows may make the sample weigh more than its share. A sum has room for twice the weight that is given here.
        weight = max(reading.weighed(engine.total(weight_of)) / 2, rows.total_weight * share)
        sample = Regression.begin(engine, weight, n_models, min_count=least_rows(encoded.min_count, share), loss=run.loss)
        keep(Best(encoder, sample))
        choose_penalties(run, sample, encoder)
    regression = Regression.begin(engine, rows.total_weight, n_models, min_count=encoded.min_count, loss=run.loss)
    for cross, term in sample.terms.items():
        if cross == INTERCEPT:
            regression.move(cross, term.weight)
        else:
            regression.add(cross, term.field, term.penalty, term.weight)
    regression.converge(tuning.FINE, tuning.MAX_SWEEPS)
    return regression


def choose_penalties(run: Run, regression: Regression, encoder: Encoder) -> None:
    """Fit all fields, and choose their penalties on the rows left out."""
    phase, step = "tuning penalties", 0
    shared = run.options.penalty == "shared"
    at_most = len(tuning.GRID) + (len(tuning.L1_GRID) if shared else tuning.CYCLES)
    run.reporter.tell(PhaseStarted, phase=phase, steps=at_most)

    def report(detail: str) -> None:
        nonlocal step
        step += 1
        run.reporter.tell(StepDone, phase=phase, step=step, detail=detail, score=run.score(regression))

    for number, field in enumerate(encoder.fields):
        regression.add((number,), field, Penalty())
    best = tuning.tune_shared(regression, report, with_l1=shared)
    if shared:
        regression.converge(tuning.FINE, tuning.MAX_SWEEPS)
        run.rule("penalty", f"l1 {best.l1:g}, l2 {best.l2:g} for every field", "best on the rows left out")
    else:
        tuning.tune_fields(regression, best, report)
        run.rule(
            "penalty",
            "one for each field, smooth where bins are neighbours",
            f"best on the rows left out, l2 from {tuning.GRID[0]:g} to {tuning.GRID[-1]:g}",
        )


def unordered(regression: Regression, shared: bool) -> Regression:
    """A regression of the same fields in which no weights need be monotone. It chooses penalties of its own, unless there are so
    many rows that those of the other will do."""
    engine, total, n_models, least = regression.engine, regression.total_weight, regression.n_models, regression.min_count
    free = Regression.begin(engine, total, n_models, min_count=least, loss=regression.loss)
    for cross, term in regression.terms.items():
        if cross != INTERCEPT:
            chain = None if term.field.chain is None else replace(term.field.chain, direction=0)
            free.add(cross, replace(term.field, chain=chain), term.penalty)
    if regression.n_rows <= TUNING_ROWS:
        best = tuning.tune_shared(free, lambda _: None, with_l1=shared)
        if not shared:
            tuning.tune_fields(free, best, lambda _: None)
    free.converge(tuning.FINE, tuning.MAX_SWEEPS)
    return free


def tell_cost_of_order(run: Run, regression: Regression, score: float) -> None:
    """If columns must be monotone, say what the regression would score if they need not be. Afterwards the blocks hold the odds of
    the monotone one again."""
    monotone = run.options.monotone or {}
    if not any(term.field.direction for term in regression.terms.values()):
        return
    without = run.score(unordered(regression, shared=run.options.penalty == "shared"))
    regression.restore()
    metric = run.options.metric
    word, with_it, without = "AUC" if metric == "auc" else metric, as_reported(metric, score), as_reported(metric, without)
    ways = ", ".join(f"{name} {way}" for name, way in sorted(monotone.items()))
    cost = f"LR has {word} {with_it:.4f} with it, and {without:.4f} by the same fields without it"
    run.rule(MONOTONE, f"{ways}: {cost}", "given")


def compare_with_random_folds(run: Run, encoded: Encoded, regression: Regression, score: float) -> bool:
    """If folds are by time or group, say what random folds would give, and warn if the gap is so large that it must be a leak.

    Returns whether the comparison was made, after which the blocks have other folds.
    """
    rows, folds = encoded.rows, encoded.folds
    if folds.kind == "random":
        return False
    random = splits.by_row(rows.n_rows, run.seed, folds.n_models == 1, "")
    draw_folds(run.engine, random.plan)
    at_random = run.score(again(regression))
    if score == score and at_random == at_random:  # there is no AUC if all rows that judge have one label
        run.rules.append(Rule(COMPARED, compared(folds, run.options.metric, score, at_random), "without crosses"))
    gap, error = at_random - score, max(0.0, score * (1 - score) / rows.n_rarer) ** 0.5  # of an AUC, roughly
    # Models of earlier rows learn from fewer rows, so that random folds look better without any leak.
    if run.options.metric == "auc" and folds.kind != "forward" and gap > max(LEAK, 2 * error):
        run.reporter.warn(
            f"With random folds the AUC would look {gap:.3f} better than with folds by {BY[folds.kind]} ({score:.4f}): "
            f"some columns tell which {'group' if folds.kind == 'group' else 'period'} a row is from. "
            "The lower figure is the honest one for new rows."
        )
    return True


def compared(folds: Folds, metric: Metric, score: float, at_random: float) -> str:
    """What the folds mean, and what LR has with them and with random ones."""
    of, word = f"{folds.clusters} of {folds.column!r}", "AUC" if metric == "auc" else metric
    if folds.kind == "forward":
        judged, use = f"Rows are judged by models of earlier {of}", "predicting the future"
    elif folds.kind == "time" and folds.plan.holdout:
        judged, use = f"The last {of} are the holdout", f"predicting later {folds.clusters}"
    else:
        judged = f"Some {of} are the holdout" if folds.plan.holdout else f"Folds are whole {of}"
        use = f"predicting new {folds.clusters}"
    chosen = "a random holdout" if folds.plan.holdout else "random folds"
    return (
        f"{judged}, as for {use}: LR has {word} {as_reported(metric, score):.4f}. With {chosen} (split='random'), as for rows of "
        f"the same {folds.clusters}, it would have {as_reported(metric, at_random):.4f}."
    )
