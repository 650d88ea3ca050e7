"""Statistics of columns and crosses with many values, proposed together after the search.

They are fitted as a regression of their own, and the two models are blended: the log-odds are `share` times those of the statistics
plus the rest times those of the crosses. In one regression with the crosses they would be of less use: the weights of a cross know
the labels of the rows that they were learned from, and leave little to learn for a statistic, which does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from autocross.blocks import COUNT, RATE, Block, Cross, codes_of
from autocross.crossing import CrossCoder
from autocross.engines import Engine, changes
from autocross.events import PhaseStarted
from autocross.features import RARE, Field, FieldCodes, Penalty, in_order
from autocross.kernels import counting
from autocross.models import tuning
from autocross.models.logistic import Regression
from autocross.models.tuning import FINE
from autocross.search import coding, fieldwise
from autocross.search.judging import Accepted, Proposal
from autocross.search.loop import Search, State
from autocross.search.policy import StatisticsPolicy
from autocross.statistic import N_BUCKETS, SIZES, Ints, bins, bins_of_values, bucket_of

PHASE = "trying statistics of values"
PARTS = (RATE, COUNT)


# Tasks.


def tally(block: Block, coder: CrossCoder, n_folds: int) -> Ints:
    """Rows and positives of every value, by bucket, and those that each model does not learn from: (n_codes, N_BUCKETS + n_folds,
    2)."""
    codes = coder.encode([block.coded((field,)) for field in coder.fields]).codes
    counts = np.zeros((coder.n_codes, N_BUCKETS + n_folds, 2), np.int64)
    counting.tally(codes, bucket_of(block.place), block.learners, block.label, N_BUCKETS, counts)
    return counts


@changes(lambda coder, *_: [codes_of((part, *coder.fields)) for part in PARTS], reads=("fold",), anew=True)
def put(block: Block, coder: CrossCoder, known: Ints, base: float) -> None:
    """Keep the codes of a statistic. ``known`` (n_codes, N_BUCKETS + n_folds, 2) has the counts of the rows before each bucket, and
    those of the rows that each model learns from, for rows that judge."""
    codes = coder.encode([block.coded((field,)) for field in coder.fields]).codes
    n_folds = known.shape[1] - N_BUCKETS
    learned = bins(known, codes, bucket_of(block.place), base)
    judges, judged = np.flatnonzero(block.fold < n_folds), learned.copy()
    judged[:, judges] = bins(known, codes[judges], block.fold[judges] + np.uint8(N_BUCKETS), base)
    for part, own, as_judge in zip(PARTS, learned, judged, strict=True):
        # A single model learns from a row or is judged by it, so that one code is enough.
        coded = FieldCodes(own, judged=as_judge) if n_folds > 1 else FieldCodes(as_judge)
        block.keep((part, *coder.fields), coded)


# The regression on statistics.


def place(engine: Engine, coder: CrossCoder, n_folds: int, base: float) -> Ints:
    """Put the codes of a statistic into the blocks. Returns the counts of its values. Rare values count as never seen, because
    most of those to come will be new."""
    tallied = engine.total(tally, coder, n_folds)
    tallied[RARE] = 0
    counts = np.empty((len(tallied), 2), np.int64)
    counting.before(tallied, N_BUCKETS, counts)
    engine.each(put, coder, tallied, base)
    return counts


def parts_of(coder: CrossCoder) -> list[tuple[Cross, Field]]:
    """The two terms of a statistic, and their fields."""
    sizes = zip(PARTS, SIZES, strict=True)
    return [((part, *coder.fields), Field("", "", size, shares_rare=False, chain=in_order(size))) for part, size in sizes]


def add(regression: Regression, coder: CrossCoder, penalty: Penalty, weights: Mapping[Cross, NDArray[np.float64]]) -> None:
    """Put both terms of a statistic into the regression, with weights zero unless some are given."""
    for term, field in parts_of(coder):
        weight = weights.get(term)
        regression.add(term, field, penalty, None if weight is None else weight[:, None])


def weights(regression: Regression, coder: CrossCoder, counts: Ints, base: float, model: int = 0) -> NDArray[np.float64]:
    """The weight of every value of a statistic for new rows, by the counts of its rows, in one model of a regression."""
    return of_values([regression.terms[(part, *coder.fields)].weight[:, model] for part in PARTS], counts, base)


def of_values(of_parts: Sequence[NDArray[np.float64]], counts: Ints, base: float) -> NDArray[np.float64]:
    """What the bins of the two parts of a statistic add up to for every value, by the counts of its rows."""
    total: NDArray[np.float64] = sum(of_bins[codes] for of_bins, codes in zip(of_parts, bins_of_values(counts, base), strict=True))
    return total


# The proposal.


def propose(search: Search, state: State) -> State | None:
    """The state with the statistics that help, or None."""
    policy, accepted, began = search.policy.statistics, state.accepted, search.reporter.seconds
    if policy is None:
        return None
    crosses = with_many_values(search, state.regression, policy)
    room = policy.most if search.options.max_crosses is None else min(policy.most, search.options.max_crosses - len(accepted))
    if not crosses or room < 1:
        return None
    search.reporter.tell(PhaseStarted, phase=PHASE, steps=1)
    search.enter(state)
    search.judge.remember(state.regression)
    score = search.score(state.regression)
    regression, coders = fitted(search, state.regression, crosses, room, policy)
    proposal = Proposal(f"{len(coders)} statistics", (), regression, policy.trial, began)
    blended = search.judge.blend(proposal, policy.shares, bool(accepted), score, state.round)
    if blended is None:
        forget(search.engine, coders)
        return None
    share, verdict = blended
    gained = (verdict.gain / len(coders), verdict.error / len(coders), search.reporter.seconds_in_all, verdict.score)
    new = [Accepted(coder, regression.terms[(RATE, *coder.fields)].penalty, *gained, 0) for coder in coders]
    return replace(state, accepted=(*accepted, *new), statistics=regression, share=share, score=verdict.score)


def fitted(
    search: Search, former: Regression, crosses: Sequence[Cross], room: int, policy: StatisticsPolicy
) -> tuple[Regression, list[CrossCoder]]:
    """A regression on statistics of these crosses, with those that were kept. It is left unfinished where there is no hope."""
    engine, trial, coders = search.engine, policy.trial, list[CrossCoder]()
    regression = Regression.begin(engine, former.total_weight, former.n_models, min_count=former.min_count, loss=former.loss)
    regression.converge(FINE, tuning.MAX_SWEEPS)
    for some in looks(crosses, policy):
        for cross in some:
            coder = coding.statistic_coder(engine, search.n_rows, fieldwise.candidate(cross, search.fields))
            place(engine, coder, regression.n_models, regression.positive_rate)
            add(regression, coder, policy.penalty.times(regression.mean_weight), {})
            coders.append(coder)
        regression.converge(FINE, trial.look)
        # The loss is convex in the share, so if the smallest share loses, larger ones lose more.
        gain, error = search.judge.gain(regression, min(policy.shares))
        if gain < policy.hopeless * error:
            return regression, coders
    coders = keep_strongest(regression, coders, room)
    regression.converge(FINE, trial.go_on)
    for _ in range(tuning.CYCLES):
        choose_penalties(regression, coders)
        regression.converge(FINE, trial.settle)
    return regression, coders


def looks(crosses: Sequence[Cross], policy: StatisticsPolicy) -> list[list[Cross]]:
    """The candidates in the order in which they join: those of few columns first if there are enough of them, because most tables
    that do without statistics show it there."""
    simple = [cross for cross in crosses if len(cross) <= policy.simple]
    rest = [cross for cross in crosses if len(cross) > policy.simple]
    return [simple, rest] if rest and len(simple) >= policy.enough else [[*crosses]]


def with_many_values(search: Search, regression: Regression, policy: StatisticsPolicy) -> list[Cross]:
    """The candidates: categories, and crosses of the strongest categories, that have few rows for each possible value, and a column
    of many values. On many rows fewer columns are crossed, because every statistic is counted on all rows."""
    fields, sizes = search.fields, [field.n_codes for field in search.fields]
    categories = [number for number in range(len(fields)) if (number,) in regression.terms and fields[number].is_category]
    effect = {number: regression.effect((number,)) for number in categories}
    strongest = sorted(categories, key=lambda number: (-effect[number], number))[: policy.strongest]
    orders = [order for order in policy.orders if search.options.max_order is None or order <= search.options.max_order]
    while search.n_rows * sum(math.comb(len(strongest), order) for order in orders) > policy.most_rows:
        strongest.pop()
    crosses = [cross for order in orders for cross in combinations(sorted(strongest), order) if search.allows(cross)]
    many = [cross for cross in crosses if max(sizes[number] for number in cross) >= policy.many_values]
    return [cross for cross in many if policy.few_rows * math.prod(sizes[number] for number in cross) > search.n_rows]


def keep_strongest(regression: Regression, coders: Sequence[CrossCoder], n: int) -> list[CrossCoder]:
    """Take out all but the statistics that move the log-odds most."""
    effect = {coder.fields: sum(regression.effect((part, *coder.fields)) for part in PARTS) for coder in coders}
    ranked = sorted(coders, key=lambda coder: (-effect[coder.fields], coder.fields))
    for coder in ranked[n:]:
        for part in PARTS:
            term = (part, *coder.fields)
            regression.move(term, -regression.terms[term].weight)
            del regression.terms[term]
    forget(regression.engine, ranked[n:])
    return ranked[:n]


def forget(engine: Engine, coders: Sequence[CrossCoder]) -> None:
    """Drop the codes of statistics from the blocks."""
    engine.each(coding.forget, [(part, *coder.fields) for coder in coders for part in PARTS])


def choose_penalties(regression: Regression, coders: Sequence[CrossCoder]) -> None:
    """Let each statistic move its penalty, by what is best for its log-odds."""
    for coder in coders:
        rate, count = ((part, *coder.fields) for part in PARTS)
        tuning.choose_near(regression, rate, regression.terms[rate].penalty)
        regression.terms[count].penalty = regression.terms[rate].penalty
