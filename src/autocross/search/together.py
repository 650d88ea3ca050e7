"""Groups of weak crosses, proposed after the search: each gains too little to be told from chance, but together they may help a
lot.

A group has all crosses of low order of the strongest columns. The policy has three groups, which are tried in turn. If some pair of
columns is sparse, the first group has the crosses of order two and three, under a penalty of their own. The second group has the
pairs that are not sparse; numbers are cut into quarters, and weights are held near zero and near their neighbours. The third group
has every pair, held nearer to zero. If a group of pairs is accepted, the faintest pairs are dropped again.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

from autocross.blocks import Cross
from autocross.events import PhaseStarted, StepDone
from autocross.models import tuning
from autocross.models.logistic import Regression
from autocross.models.tuning import FINE
from autocross.search import fieldwise
from autocross.search.coding import Coded
from autocross.search.judging import Accepted, Proposal
from autocross.search.loop import Search, State
from autocross.search.policy import Group

PHASE = "trying weak crosses together"


def broaden(search: Search, state: State) -> State | None:
    """The state, whose odds are in the blocks, with the crosses of the first group that is accepted, or None."""
    if state.regression.n_models == 1 or not search.policy.groups:
        return None
    groups = worth_trying(search, state)
    if not groups:
        return None
    search.reporter.tell(PhaseStarted, phase=PHASE, steps=2)
    search.judge.remember(state.regression)
    for group, crosses in groups:
        if broad := propose(search, state, group, crosses):
            return broad
        search.forget_all_but([state])
        search.judge.recall()
    return None


def worth_trying(search: Search, state: State) -> list[tuple[Group, list[Cross]]]:
    """The groups that may be tried, with their crosses: there must be at least two, and no more than the options allow."""
    most, worth = search.options.max_crosses, []
    for group in search.policy.groups:
        crosses = weak_crosses(search, state.regression, group)
        if group.needs_cross and not state.accepted:
            continue
        if group.needs_sparse and not any(is_sparse(search, cross) for cross in crosses):
            continue
        if group.dense_only:
            crosses = [cross for cross in crosses if not is_sparse(search, cross)]
        if len(crosses) > 1 and (most is None or len(state.accepted) + len(crosses) <= most):
            worth.append((group, crosses))
    return worth


def is_sparse(search: Search, cross: Cross) -> bool:
    """Whether this is a pair of columns with few rows for each possible value."""
    n_values = math.prod(search.fields[number].n_codes for number in cross)
    return len(cross) == 2 and search.policy.few_rows * n_values > search.n_rows


def propose(search: Search, state: State, group: Group, crosses: list[Cross]) -> State | None:
    """The state with these crosses of a group, or None if they are refused."""
    began = search.reporter.seconds
    broad, coded = with_all(search, state.regression, crosses, group)
    proposal = Proposal(f"{len(coded)} crosses together", coded, broad, group.trial, began)
    verdict = search.judge.judge(proposal, bool(state.accepted), state.score, state.round)
    if verdict is None:
        return None

    def report(detail: str) -> None:
        search.reporter.tell(StepDone, phase=PHASE, step=1, detail=detail)

    if group.retune:
        tuning.tune_shared(broad, report, with_l1=False)
        broad.converge(FINE, search.policy.refit_sweeps)
        for cross in tuning.fields_of(broad):
            tuning.choose_near(broad, cross, broad.terms[cross].penalty)
        broad.converge(FINE, search.policy.refit_sweeps)
    else:
        drop_faintest(broad, [coder.fields for coder, _ in coded], search.policy.faintest)
        broad.sweep()  # the last fit goes on from there
        coded = [(coder, n_collisions) for coder, n_collisions in coded if coder.fields in broad.terms]
        report(f"{len(coded)} of them kept")
    score = search.score(broad)
    share = (verdict.gain / len(coded), verdict.error / len(coded), search.reporter.seconds_in_all, score)
    new = [Accepted(coder, broad.terms[coder.fields].penalty, *share, n_collisions) for coder, n_collisions in coded]
    broader = state.with_crosses(new, broad, score)
    search.forget_all_but([broader])
    return broader


def weak_crosses(search: Search, regression: Regression, group: Group) -> list[Cross]:
    """The crosses of a group that the set does not have yet. A number takes part by its coarsest field."""
    effect: dict[str, float] = {}
    coarsest: dict[str, int] = {}
    for number, field in enumerate(search.fields):
        if (number,) in regression.terms:
            effect[field.column] = max(effect.get(field.column, 0.0), regression.effect((number,)))
        elif not group.coarse:
            continue
        coarsest_so_far = coarsest.setdefault(field.column, number)
        if field.n_codes < search.fields[coarsest_so_far].n_codes:
            coarsest[field.column] = number
    strongest = sorted(coarsest, key=lambda column: (-effect[column], column))[: group.strongest]
    fields = sorted(coarsest[column] for column in strongest)
    orders = [order for order in group.orders if search.options.max_order is None or order <= search.options.max_order]
    crosses = [cross for order in orders for cross in combinations(fields, order) if search.allows(cross)]
    if group.coarse:  # a coarse pair may stand beside a finer cross of the same columns
        return [cross for cross in crosses if cross not in regression.terms]
    crossed_columns = {search.columns(cross) for cross in regression.terms}
    return [cross for cross in crosses if search.columns(cross) not in crossed_columns]


def with_all(search: Search, before: Regression, crosses: list[Cross], group: Group) -> tuple[Regression, list[Coded]]:
    """The regression with all of the crosses, under the penalty of the group; their weights are still zero."""
    broad, coded = before.branch(), []
    smooth = group.penalty.times(before.mean_weight)
    for number, field in enumerate(search.fields):
        if group.coarse and (number,) not in broad.terms:
            broad.add((number,), field, smooth)
    for cross in crosses:
        coder, n_collisions = search.codes.code(fieldwise.candidate(cross, search.fields), before.min_count)
        field = coder.field([search.fields[number] for number in cross])
        broad.add(cross, field, smooth if field.chain else replace(smooth, smooth=0.0))
        coded.append((coder, n_collisions))
    return broad, coded


def drop_faintest(broad: Regression, pairs: list[Cross], share: float) -> None:
    """Take out the pairs with the least effect, as long as they have no more than this share of the effect of all pairs."""
    effect = {cross: broad.effect(cross) for cross in pairs}
    left = share * sum(effect.values())
    for cross in sorted(pairs, key=lambda cross: (effect[cross], cross)):
        left -= effect[cross]
        if left < 0:
            break
        broad.move(cross, -broad.terms[cross].weight)
        del broad.terms[cross]
