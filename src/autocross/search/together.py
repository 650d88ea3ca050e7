"""Weak crosses together: after the search, those that gain too little one by one to be told from chance.

Each may be too sparse or too faint to prove itself, yet all of them may bring a lot. So all crosses of low order of the strongest
columns are tried as one: they were not chosen by what they gain, hence a standard error or two tell them from chance. There are
three such groups. Where columns have so many values that some pair is sparse, crosses of order two and three, under a penalty of
their own. Else the pairs of columns that are not, numbers by quarters, held near zero and smooth, as most of them say little.
Else every pair, held nearer still. Of pairs the faintest are dropped again. The first and the last group must bring much, since
so many crosses cost time in serving and are harder to read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations

from autocross.blocks import Cross
from autocross.crossing import CrossCoder
from autocross.events import CrossTried, PhaseStarted, StepDone
from autocross.models import tuning
from autocross.models.logistic import Penalty, Regression
from autocross.search import fieldwise
from autocross.search.loop import ACCURACY, WARM_SWEEPS, Accepted, Search, State, recall, remember

# Standard errors of the gain, where the search has found no cross and where it has: others are likelier then.
FIRST_SIGMAS, SIGMAS = 2.0, 1.0
FAINTEST = 0.05  # of the effect of all pairs: the share of those that are dropped
FEW_ROWS = 10  # for each possible value: a pair with fewer is sparse
LOOK_SWEEPS = 2  # after which a group that loses is given up; one that gains has some more
PHASE = "trying weak crosses together"


@dataclass(frozen=True)
class Group:
    """All crosses of these orders of so many columns, their penalty at first sight, and by how much the metric must rise then.

    With ``coarse`` a number is crossed by few bins that are in no other term.
    """

    orders: tuple[int, ...]
    strongest: int
    penalty: Penalty
    lift: float = 0.0
    coarse: bool = False


SPARSE = Group((2, 3), 9, Penalty(0.0, 30.0), 0.001)  # 120 crosses at most
PAIRS = Group((2,), 20, Penalty(0.0, 100.0, 300.0), coarse=True)  # 190 at most
EVERY_PAIR = Group((2,), 20, Penalty(0.0, 1000.0, 3000.0), 0.0005, coarse=True)

Coded = tuple[CrossCoder, int]  # and how many of its values share a bucket


def broaden(search: Search, state: State) -> State | None:
    """The state with all crosses of the first group that gains more than chance would."""
    if state.regression.n_models == 1 or search.options.penalty == "shared":
        return None
    search.enter(state)
    groups = worth_trying(search, state)
    if not groups:
        return None
    search.reporter.tell(PhaseStarted, phase=PHASE, steps=2)
    fresh = search.refit(state)  # the folds so far have chosen crosses: they flatter these
    before = replace(state, regression=fresh, score=search.score(fresh))
    search.engine.each(remember)
    for group, found in groups:
        if broad := tried(search, before, group, found):
            return broad
        search.forget_all_but([state])
        search.engine.each(recall)
    return None


def worth_trying(search: Search, state: State) -> list[tuple[Group, list[Cross]]]:
    """The groups and their crosses. Where the search has found nothing, sparse crosses would be a long shot."""
    found = {group: weak_crosses(search, state.regression, group) for group in (SPARSE, PAIRS, EVERY_PAIR)}
    if not state.accepted or not any(is_sparse(search, cross) for cross in found[SPARSE]):
        del found[SPARSE]
    found[PAIRS] = [cross for cross in found[PAIRS] if not is_sparse(search, cross)]
    most = search.options.max_crosses
    return [
        (group, new) for group, new in found.items() if len(new) > 1 and (most is None or len(state.accepted) + len(new) <= most)
    ]


def is_sparse(search: Search, cross: Cross) -> bool:
    """Whether a pair of columns has few rows for each value that is possible."""
    return len(cross) == 2 and FEW_ROWS * math.prod(search.fields[at].n_codes for at in cross) > search.n_rows


def tried(search: Search, state: State, group: Group, found: list[Cross]) -> State | None:
    """The state with these crosses of a group, if they gain enough over what is remembered."""
    broad, coded = with_all(search, state.regression, found, group)
    broad.converge(ACCURACY, LOOK_SWEEPS)
    gain, error = search.gain(broad)
    if gain > 0:  # what has lost by now would need a turn to pass, and none was seen
        broad.converge(ACCURACY, WARM_SWEEPS)
        gain, error = search.gain(broad)
    score = search.score(broad)
    needed = (SIGMAS if state.accepted else FIRST_SIGMAS) * error
    accepted = gain > needed and score > state.score + group.lift
    facts = {"cross": f"{len(coded)} crosses together", "gain": gain, "error": error, "needed": needed, "score": score}
    search.reporter.tell(CrossTried, round=state.round + 1, accepted=accepted, **facts)
    if not accepted:
        return None

    def report(detail: str) -> None:
        search.reporter.tell(StepDone, phase=PHASE, step=1, detail=detail)

    if group is SPARSE:
        tuning.tune_shared(broad, report, with_l1=False)
        broad.converge(ACCURACY, WARM_SWEEPS)
        for cross in tuning.fields_of(broad):  # fields say less where crosses say more
            tuning.choose_near(broad, cross, broad.terms[cross].penalty)
        broad.converge(ACCURACY, WARM_SWEEPS)
    else:
        drop_faintest(broad, [coder.fields for coder, _ in coded])
        broad.sweep()  # the last fit goes on from there
        coded = [one for one in coded if one[0].fields in broad.terms]
        report(f"{len(coded)} of them kept")
    share = (gain / len(coded), error / len(coded), search.reporter.seconds_in_all, search.score(broad))
    new = [Accepted(coder, broad.terms[coder.fields].penalty, *share, n_collisions) for coder, n_collisions in coded]
    broader = State((*state.accepted, *new), broad, state.round + 1, share[-1], broad.left_out_loss())
    search.forget_all_but([broader])
    return broader


def weak_crosses(search: Search, regression: Regression, group: Group) -> list[Cross]:
    """The crosses of the group that are not there yet, a number by its coarsest field."""
    effect: dict[str, float] = {}
    coarsest: dict[str, int] = {}
    for at, field in enumerate(search.fields):
        if (at,) in regression.terms:
            effect[field.column] = max(effect.get(field.column, 0.0), regression.effect((at,)))
        elif not group.coarse:
            continue
        known = coarsest.setdefault(field.column, at)
        if field.n_codes < search.fields[known].n_codes:
            coarsest[field.column] = at
    strongest = sorted(coarsest, key=lambda column: (-effect[column], column))[: group.strongest]
    fields = sorted(coarsest[column] for column in strongest)
    orders = [order for order in group.orders if search.options.max_order is None or order <= search.options.max_order]
    found = [cross for order in orders for cross in combinations(fields, order)]
    if group.coarse:  # beside a finer one of the same columns
        return [cross for cross in found if cross not in regression.terms]
    there = {search.columns(cross) for cross in regression.terms}
    return [cross for cross in found if search.columns(cross) not in there]


def with_all(search: Search, before: Regression, found: list[Cross], group: Group) -> tuple[Regression, list[Coded]]:
    """The regression with all of the crosses, under one strong penalty, their weights still zero."""
    broad, coded = before.copy(), []
    smooth = group.penalty.times(before.mean_weight)
    for at, field in enumerate(search.fields):
        if group.coarse and (at,) not in broad.terms:
            broad.add((at,), field, smooth)
    for cross in found:
        coder, n_collisions = search.code(fieldwise.candidate(cross, search.fields), before.min_count)
        field = coder.field([search.fields[at] for at in cross])
        broad.add(cross, field, smooth if field.chain else replace(smooth, smooth=0.0))
        coded.append((coder, n_collisions))
    return broad, coded


def drop_faintest(broad: Regression, pairs: list[Cross]) -> None:
    """Take those pairs out that have the least effect, as long as all of them together have little: serving is faster without."""
    effect = {cross: broad.effect(cross) for cross in pairs}
    left = FAINTEST * sum(effect.values())
    for cross in sorted(pairs, key=lambda cross: (effect[cross], cross)):
        left -= effect[cross]
        if left < 0:
            break
        broad.move(cross, -broad.terms[cross].weight)
        del broad.terms[cross]
