"""Weak crosses together: after the search, those that gain too little one by one to be told from chance.

Where columns have many values and rows are few, every cross is too sparse to prove itself, yet all of them may bring a lot. So
all crosses of low order of the strongest columns are tried as one: they were not chosen by what they gain, hence one standard
error tells them from chance. They must bring much, since so many crosses cost time in serving and are harder to read.
"""

from __future__ import annotations

from itertools import combinations

from autocross.blocks import Cross
from autocross.crossing import CrossCoder
from autocross.events import CrossTried, PhaseStarted, StepDone
from autocross.models import tuning
from autocross.models.logistic import Penalty, Regression
from autocross.search import fieldwise
from autocross.search.loop import ACCURACY, ROUGH_SWEEPS, WARM_SWEEPS, Accepted, Search, State, remember

ORDERS = (2, 3)
STRONGEST = 9  # columns: 120 crosses at most
STRONG = 30.0  # penalty at first sight
SIGMAS = 1.0  # standard errors of the gain; where crosses are noise, so many lose three or more
LIFT = 0.001  # of the metric at first sight, or it is not worth while
PHASE = "trying weak crosses together"

Coded = tuple[CrossCoder, int]  # and how many of its values share a bucket


def broaden(search: Search, state: State) -> State | None:
    """The state with all crosses of low order of its strongest columns, if that is much better."""
    before, options = state.regression, search.options
    if not state.accepted or before.n_models == 1 or options.penalty == "shared":
        return None
    found = weak_crosses(search, before)
    if len(found) < 2 or (options.max_crosses is not None and len(state.accepted) + len(found) > options.max_crosses):
        return None
    search.reporter.tell(PhaseStarted, phase=PHASE, steps=2)
    search.enter(state)
    fresh = search.refit(state)  # the folds so far have chosen crosses: they flatter these
    alone = search.score(fresh)
    search.engine.each(remember)
    broad, coded = with_all(search, fresh, found)
    score, (gain, error) = search.score(broad), search.gain(broad)
    accepted = gain > SIGMAS * error and score > alone + LIFT
    facts = {"cross": f"{len(coded)} crosses together", "gain": gain, "error": error, "needed": SIGMAS * error, "score": score}
    search.reporter.tell(CrossTried, round=state.round + 1, accepted=accepted, **facts)
    if not accepted:
        search.forget_all_but([state])
        return None

    def report(detail: str) -> None:
        search.reporter.tell(StepDone, phase=PHASE, step=1, detail=detail)

    # Fields say less where crosses say more.
    tuning.tune_fields(broad, tuning.tune_shared(broad, report, with_l1=False), report, WARM_SWEEPS)
    share = (gain / len(coded), error / len(coded), search.reporter.seconds, search.score(broad))
    new = [Accepted(coder, broad.terms[coder.fields].penalty, *share, n_collisions) for coder, n_collisions in coded]
    return State((*state.accepted, *new), broad, state.round + 1, share[-1], broad.left_out_loss())


def weak_crosses(search: Search, regression: Regression) -> list[Cross]:
    """The crosses of low order of the strongest columns that are not there yet, a number by its coarsest field."""
    effect: dict[str, float] = {}
    coarsest: dict[str, int] = {}
    for at, field in enumerate(search.fields):
        effect[field.column] = max(effect.get(field.column, 0.0), regression.effect((at,)))
        known = coarsest.setdefault(field.column, at)
        if field.n_codes < search.fields[known].n_codes:
            coarsest[field.column] = at
    strongest = sorted(coarsest, key=lambda column: (-effect[column], column))[:STRONGEST]
    fields = sorted(coarsest[column] for column in strongest)
    there = {search.columns(cross) for cross in regression.terms}
    orders = [order for order in ORDERS if search.options.max_order is None or order <= search.options.max_order]
    return [cross for order in orders for cross in combinations(fields, order) if search.columns(cross) not in there]


def with_all(search: Search, before: Regression, found: list[Cross]) -> tuple[Regression, list[Coded]]:
    """The regression with all of the crosses, under one strong penalty."""
    broad, coded = before.copy(), []
    for cross in found:
        coder, n_collisions = search.code(fieldwise.candidate(cross, search.fields), before.min_count)
        broad.add(cross, coder.field([search.fields[at] for at in cross]), Penalty(0.0, STRONG * before.mean_weight))
        coded.append((coder, n_collisions))
    broad.converge(ACCURACY, ROUGH_SWEEPS)
    return broad, coded
