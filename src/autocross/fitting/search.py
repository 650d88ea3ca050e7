"""The fourth stage: the search for crosses, which begins with a regression without crosses or with a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from autocross import checkpoint, fingerprint
from autocross.blocks import Cross
from autocross.checkpoint import Checkpoint, Setting
from autocross.events import PhaseStarted
from autocross.features import Penalty
from autocross.fitting.encode import Encoded
from autocross.fitting.finish import FINAL_SWEEPS
from autocross.fitting.run import Run
from autocross.fitting.tune import Best, Keep, Layout, lay_out, tune
from autocross.folds import Folds
from autocross.search import statistics
from autocross.search.including import include
from autocross.search.loop import Search, State
from autocross.search.pruning import prune
from autocross.search.stopping import Why
from autocross.search.together import broaden

ROUND_APART = 7919  # difference between the seeds of the folds of two rounds


def search(run: Run, encoded: Encoded, keep: Keep) -> Why:
    """Tune, then search. ``keep`` is called with the best features whenever there are better ones. Returns why the search ended."""
    folder = checkpoint.folder_of(run.options)
    same = {} if folder is None else identity(run, encoded)
    layout, begun = resumed(run, encoded, same) if run.options.resume is not None else tuned(run, encoded, keep)
    run.reporter.tell(PhaseStarted, phase="searching crosses", steps=0)

    def best_of(state: State, score: float) -> Best:
        needs_coarse = max(field for cross in state.features for field in cross) >= len(layout.encoder.fields)
        encoder = layout.broader if needs_coarse else layout.encoder
        return Best(encoder, state.regression, state.accepted, score, state.statistics, state.share, state.accepted)

    def keep_state(state: State) -> None:
        run.stopping.reserve = FINAL_SWEEPS / 2 * state.regression.sweep_seconds
        keep(best_of(state, state.accepted[-1].score if state.accepted else begun.score))

    def finished(beam: list[State]) -> None:
        if folder is not None:
            now = replace(begun, beam=beam, last=loop.last, in_vain=loop.in_vain, seconds=run.reporter.seconds_in_all)
            subject, after = f"Keeping a checkpoint in {str(folder)!r}", "The fit goes on, and every later round tries again."
            run.reporter.attempt(subject, lambda: checkpoint.save(folder, now, same), after)

    def fresh(round: int) -> Folds:
        return encoded.redraw(run.seed + ROUND_APART * round)

    n_clusters = encoded.folds.n_clusters
    rest = (run.options, run.reporter, n_clusters, fresh, run.score, run.limits)
    loop = Search(run.engine, layout.broader.fields, encoded.rows.n_rows, *rest)
    loop.last, loop.in_vain = begun.last, begun.in_vain
    for coder in {accepted.coder.fields: accepted.coder for state in begun.beam for accepted in state.accepted}.values():
        loop.codes.put(coder)
    beam = begun.beam
    if run.limits.include and not beam[0].round:  # a checkpoint is of a later moment, and has them
        loop.keep = keep_state
        beam = [include(loop, beam[0])]
    best, why = loop.run(beam, keep_state, finished)
    fields: dict[Cross, Penalty] = {cross: term.penalty for cross, term in best.regression.terms.items() if len(cross) == 1}
    if (why.by_itself or (why is Why.AS_MANY_AS_ASKED and best.accepted)) and loop.policy.goes_on:
        best = loop.afresh(best)
        for more in (broaden, statistics.propose) if why.by_itself else ():
            if better := more(loop, best):
                best = better
                keep_state(best)
        pruned, smaller = prune(loop, best, fields)
        if pruned is not best:
            sets = tuple(best_of(state, state.score) for state in smaller)
            keep(replace(best_of(pruned, pruned.score), found=best.accepted, smaller=sets))
    return why


def identity(run: Run, encoded: Encoded) -> dict[str, Any]:
    """What must be the same if the search is to be resumed later."""
    rows = encoded.rows
    return fingerprint.identity(run.options, run.engine, encoded.encoder, rows.n_rows, rows.target, rows.classes.words, run.rules)


def tuned(run: Run, encoded: Encoded, keep: Keep) -> tuple[Layout, Checkpoint]:
    """The beginning of a search that has no crosses yet."""
    n_rules = len(run.rules)
    begun = tune(run, encoded, keep)
    (scored,) = run.history
    rules, seconds = run.rules[n_rules:], run.reporter.seconds
    beam = [State((), begun.regression)]
    return begun.layout, Checkpoint(list(begun.layout.kept), beam, {}, set(), rules, begun.score, scored["seconds"], seconds)


def resumed(run: Run, encoded: Encoded, same: Mapping[str, Any]) -> tuple[Layout, Checkpoint]:
    """The state in which a search was left, from its checkpoint."""
    assert run.options.resume is not None
    rows = encoded.rows
    setting = Setting(
        run.options,
        run.engine,
        encoded.encoder,
        rows.n_rows,
        rows.total_weight,
        encoded.folds.n_models,
        encoded.min_count,
        run.loss,
    )
    left = checkpoint.load(Path(run.options.resume), same, setting)
    run.rules += left.rules
    run.history.append({"seconds": left.scored_after, "crosses": 0, "score": left.score})
    run.reporter.seconds_before = left.seconds - run.reporter.seconds
    return lay_out(run, encoded, left.kept), left
