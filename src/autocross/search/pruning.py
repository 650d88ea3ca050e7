"""Crosses must earn their place: when the search is over, those that cost nothing to leave out are taken out.

The whole set is fitted on fresh folds. Then crosses are taken out in steps, each time those that the rows left out miss least, and
what is left is fitted on. Every step is compared, row by row, with the whole set. So there is a path from all crosses to none, and
the policy says where on it the model lies. Some sets of the path are kept, so that smaller models can be fitted too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autocross.blocks import COUNT, RATE, Block, Cross
from autocross.crossing import CrossCoder
from autocross.engines import changes
from autocross.events import CrossesTakenOut, PhaseStarted
from autocross.features import Penalty
from autocross.models import tuning
from autocross.models.logistic import Regression, try_scales
from autocross.models.tuning import FINE
from autocross.search.including import forced
from autocross.search.judging import Accepted, copied, mix
from autocross.search.loop import Search, State
from autocross.search.policy import Pruning

PHASE = "taking out crosses that bring nothing"


@changes("former", reads=("odds",))
def lay_aside(block: Block) -> None:
    """Keep the odds to be blended with others. The losses to compare with stay."""
    block.former = (copied(block.odds, block.former[0]), block.former[1])


@dataclass(frozen=True)
class Step:
    """A set of the path: what a row gains over the whole set, which is negative if it loses, and the standard error of that."""

    state: State
    gain: float
    error: float

    @property
    def n(self) -> int:
        return len(self.state.accepted)


def prune(search: Search, state: State, fields: Mapping[Cross, Penalty]) -> tuple[State, list[State]]:
    """The set without the crosses that bring nothing, and smaller sets of the path, the smallest first.

    ``fields`` has the single fields of the search, with their penalties before groups of crosses were tried. Other fields exist for
    groups alone.
    """
    policy = search.policy.pruning
    if policy is None or not state.accepted:
        return state, []
    began = search.reporter.seconds
    search.reporter.tell(PhaseStarted, phase=PHASE, steps=1)
    path = steps_down(search, settled(search, state, policy), policy, fields)
    chosen = smallest_of_most_gain(path, policy) if search.options.size == "small" else last_without_loss(path, policy)
    in_order = order_of(path)
    kept = [ordered(step.state, in_order) for step in path if step.n in policy.stops and step.n < chosen.n]
    facts = {"n_before": len(state.accepted), "n_after": chosen.n, "gain": chosen.gain, "error": chosen.error}
    search.forget_all_but([chosen.state])
    search.engine.former_of = None  # of a blend, the blocks have laid aside other odds
    search.reporter.tell(CrossesTakenOut, **facts, score=chosen.state.score, took=search.reporter.seconds - began)
    return ordered(chosen.state, in_order), kept[::-1]


# The path.


def settled(search: Search, state: State, policy: Pruning) -> State:
    """The whole set after more sweeps, so that no smaller set looks better only because it had more. Its odds are in the blocks."""
    if search.engine.odds_of is not state.regression:
        state.regression.restore()
    regression = state.regression.branch()
    regression.converge(FINE, policy.settle)
    whole = replace(state, regression=regression)
    show(search, whole)
    return replace(whole, score=search.score(shown(whole)))


def coders_of(state: State, kind: str) -> list[CrossCoder]:
    """The coders of the crosses of a kind."""
    return [accepted.coder for accepted in state.accepted if accepted.coder.kind == kind]


def show(search: Search, state: State) -> None:
    """Put the odds of a set into the blocks, blended with those of its statistics if it has any."""
    if state.statistics is None:
        if search.engine.odds_of is not state.regression:
            state.regression.restore()
        return
    state.regression.restore()
    search.engine.each(lay_aside)
    state.statistics.restore()
    search.engine.each(mix, state.share)


def shown(state: State) -> Regression:
    """The regression whose odds the blocks hold after `show`, blended or not."""
    return state.regression if state.statistics is None else state.statistics


def steps_down(search: Search, whole: State, policy: Pruning, fields: Mapping[Cross, Penalty]) -> list[Step]:
    """The path from the whole set, whose odds are in the blocks, to the set without crosses."""
    search.judge.remember(shown(whole))
    path, state, ratio, small = [Step(whole, 0.0, 0.0)], whole, policy.ratio, search.options.size == "small"
    staying = forced(search.limits.include, whole.accepted, search.fields)
    while (n := len(state.accepted)) > len(staying):
        lower = max(stop for stop in policy.stops if stop < n)
        ranked, n_left = by_worth(state, staying), max(lower, int(ratio * n))
        least = 0.0 if small else policy.least_share * path[0].n
        if n_left < least or (lower >= least and n_left <= policy.near * lower):
            n_left = lower
        n_left = max(n_left, len(staying))
        gone = gone_with(ranked[:n_left], ranked[n_left:], fields)
        state = without(search, state, gone, fields if n_left <= policy.small else {}, policy)
        gain, error = search.judge.gain(shown(state))
        state = replace(state, score=search.score(shown(state)))
        path.append(Step(state, gain, error))
        if not costs_nothing(path[-1], path, policy):
            ratio = policy.ratio if small else 0.0  # the model lies above, and the rest are smaller ones
    return path


def by_worth(state: State, staying: Collection[Cross]) -> list[Accepted]:
    """The crosses of a set whose odds are in the blocks; those that must stay, and those that the rows left out would miss most,
    come first."""
    now = shown(state).left_out_loss()
    worth = {accepted.coder.term: missed(state, accepted.coder, now) for accepted in state.accepted}

    def rank(accepted: Accepted) -> tuple[bool, float, Cross]:
        return accepted.coder.term not in staying, -worth[accepted.coder.term], accepted.coder.term

    return sorted(state.accepted, key=rank)


def gone_with(left: Sequence[Accepted], gone: Sequence[Accepted], fields: Mapping[Cross, Penalty]) -> set[Cross]:
    """The terms that go with some crosses. The fields that exist for groups alone go with the last cross that has one."""
    terms = {part for accepted in gone for part in parts_of(accepted.coder)}
    if any((number,) not in fields for accepted in left for number in accepted.coder.fields):
        return terms
    return terms | {(number,) for accepted in gone for number in accepted.coder.fields if (number,) not in fields}


def without(search: Search, state: State, gone: set[Cross], fields: Mapping[Cross, Penalty], policy: Pruning) -> State:
    """The set without these terms, with these penalties of single fields, fitted on. Its odds are in the blocks."""
    left = tuple(accepted for accepted in state.accepted if gone.isdisjoint(parts_of(accepted.coder)))
    if state.statistics is not None:
        state.regression.restore()
    regression = taken_from(state.regression, gone)
    for term, penalty in fields.items():
        regression.terms[term].penalty = penalty
    crosses = [term for term in regression.terms if len(term) > 1]
    regression.sweep([term for term in regression.terms if len(term) < 2])
    if policy.distrust is not None:  # each choice is a step, too
        for term in crosses:
            tuning.choose_near(regression, term, regression.terms[term].penalty, policy.distrust)
    regression.converge(FINE, policy.few_sweeps if fields else policy.sweeps)
    smaller = replace(state, accepted=left, regression=regression)
    if state.statistics is None or not coders_of(smaller, "statistic"):
        return replace(smaller, statistics=None, share=0.0)
    state.statistics.restore()
    known = taken_from(state.statistics, gone)
    known.converge(FINE, policy.sweeps)
    smaller = replace(smaller, statistics=known)
    show(search, smaller)
    return smaller


def taken_from(regression: Regression, gone: set[Cross]) -> Regression:
    """The regression, whose odds the blocks hold, without some terms."""
    regression = regression.branch()
    for term in sorted(gone & set(regression.terms)):
        regression.move(term, -regression.terms[term].weight)
        del regression.terms[term]
    return regression


def parts_of(coder: CrossCoder) -> list[Cross]:
    """The terms of a cross, or of a statistic."""
    return [(part, *coder.fields) for part in (RATE, COUNT)] if coder.kind == "statistic" else [coder.fields]


def missed(state: State, coder: CrossCoder, now: float) -> float:
    """By how much the loss of the rows left out, which is ``now``, would rise without this cross if all other weights stayed."""
    regression, own, share = shown(state), state.regression, 1.0 - state.share
    if coder.kind == "statistic":
        own, share = regression, state.share
    total = 0.0
    for term in parts_of(coder):
        factor = np.exp(-share * own.terms[term].weight)[:, :, None]
        (without,) = regression.engine.total(try_scales, regression.loss, term, factor, regression.loss_unit).tolist()
        total += without / regression.loss_unit - now
    return total


# Where on the path the model lies.


def costs_nothing(step: Step, path: Sequence[Step], policy: Pruning) -> bool:
    """Whether a set is as good as the best of the path, as far as the rows left out can tell, and not too small for them to tell.

    It is not compared with the whole set: the rows that judge have also chosen what was taken out, which flatters all sets but the
    whole one.
    """
    if step.n < policy.least_share * path[0].n:
        return False
    least_gain = max(other.gain for other in path) - policy.errors * step.error
    least_score = max(other.state.score for other in path) - policy.slack
    return step.gain >= least_gain and not step.state.score < least_score


def last_without_loss(path: Sequence[Step], policy: Pruning) -> Step:
    """The last set on the way down before one that is worse than the best. There is always one: the best itself, or the whole."""
    enough = [step for step in path if step.n >= policy.least_share * path[0].n]
    best = max(range(len(enough)), key=lambda place: enough[place].gain)
    chosen = enough[best] if costs_nothing(enough[best], enough, policy) else path[0]
    for step in enough[best + 1 :]:
        if not costs_nothing(step, enough, policy):
            break
        chosen = step
    return chosen


def smallest_of_most_gain(path: Sequence[Step], policy: Pruning) -> Step:
    """The smallest set that keeps most of what all crosses gain, or the best of those that are small. If more crosses must stay,
    the smallest set is that of these."""
    all_gain = -path[-1].gain  # over the set without crosses, which is the last
    small = [step for step in path if step.n <= policy.small] or [path[-1]]
    enough = [step for step in small if step.gain - path[-1].gain >= policy.small_share * all_gain]
    return enough[-1] if enough else max(small, key=lambda step: step.gain)


def order_of(path: Sequence[Step]) -> dict[Cross, int]:
    """The place of every cross: those that stay longest come first. Crosses that go in one step stay in the order of the search."""
    terms: dict[Cross, None] = {}
    for step in reversed(path):
        terms |= dict.fromkeys(accepted.coder.term for accepted in step.state.accepted)
    return {term: place for place, term in enumerate(terms)}


def ordered(state: State, place: dict[Cross, int]) -> State:
    """The set with its crosses in this order."""
    by_place: list[Accepted] = sorted(state.accepted, key=lambda accepted: place[accepted.coder.term])
    return replace(state, accepted=tuple(by_place))
