"""The whole search against its slow, obvious version: the same crosses, gains, penalties and weights, to the bit."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest

from autocross.blocks import make_blocks
from autocross.engines import SerialEngine
from autocross.events import CandidatesRanked, CrossTried, Event, Reporter
from autocross.features import FIRST, MISSING, RARE, Field, FieldCodes, Penalty, in_order
from autocross.folds import Folds, by_earlier_time, by_row
from autocross.hashing import mix
from autocross.models import tuning
from autocross.models.logistic import Regression
from autocross.models.metrics import measure
from autocross.options import Options
from autocross.search import policy
from autocross.search.loop import Search, State
from autocross.search.together import broaden
from conftest import Steer
from slow_search import Models, SlowSearch

SEED, MIN_COUNT = 3, 3
PENALTIES = tuple(Penalty(0.0, l2) for l2 in (1.0, 3.0, 10.0, 0.3, 30.0))
SIZES = (3, 4, 3, 4, 3)  # values of each column
ORDERED = {1: 20, 2: 6, 3: 20}  # columns in order, and how many values they have instead
EMPTY = FIRST + 5  # a code of column 3 without rows
SMOOTH = (Penalty(0.0, 1.0), Penalty(0.0, 0.3, 300.0), Penalty(0.0, 3.0), Penalty(0.0, 0.1, 3.0), Penalty(0.0, 30.0))


@dataclass
class Table:
    """Codes of single-value columns, some missing or rare, and labels."""

    columns: list[np.ndarray[Any, Any]]
    label: np.ndarray[Any, Any]
    fields: list[Field]
    penalties: tuple[Penalty | None, ...] = PENALTIES  # None for a field that is not in the first model


def planted(seed: int, n: int, pair: float, triple: float, shuffled: bool = False) -> Table:
    """Labels that depend on columns 0 and 1, and on 2, 3 and 4, as strongly as said."""
    rng = np.random.default_rng(seed)
    columns = [rng.integers(0, size, n) for size in SIZES]
    odds = rng.normal(0, 1, SIZES[:2])[columns[0], columns[1]] * pair
    odds += rng.normal(0, 1, SIZES[2:])[columns[2], columns[3], columns[4]] * triple
    label = (rng.random(n) < 1 / (1 + np.exp(-odds))).astype(np.uint8)
    codes = [(FIRST + column).astype(np.uint8) for column in columns]
    codes[0][rng.random(n) < 0.03] = MISSING
    codes[1][rng.random(n) < 0.01] = RARE
    codes[3][:MIN_COUNT] = FIRST + SIZES[3]  # rare in some folds, not in the table
    fields = [Field(name, name, FIRST + size + 1, shares_rare=True) for name, size in zip("abcde", SIZES, strict=True)]
    return Table(codes, rng.permutation(label) if shuffled else label, fields)


def ordered(seed: int, n: int, pair: float, both: float) -> Table:
    """Labels that depend on columns 0 and 1, of which 1 is in order, and on 2 and 3, which both are: smoothly along 1 and 3."""
    rng = np.random.default_rng(seed)
    sizes = [ORDERED.get(at, size) for at, size in enumerate(SIZES)]
    columns = [(rng.beta(1, 1.5, n) * size).astype(np.int64) for size in sizes]
    odds = pair * np.array([-1, 0, 1])[columns[0]] * np.sin(columns[1] / 4)
    odds += both * np.where(columns[2] < 2, 1, -1) * np.sin(columns[3] / 4)
    label = (rng.random(n) < 1 / (1 + np.exp(-odds))).astype(np.uint8)
    codes = [(FIRST + column).astype(np.uint8) for column in columns]
    codes[1][rng.random(n) < 0.05] = MISSING
    codes[2][rng.random(n) < 0.03] = RARE
    codes[3][codes[3] == EMPTY] += 1
    fields = [
        Field(name, name, FIRST + size, shares_rare=False, chain=in_order(FIRST + size))
        if at in ORDERED
        else Field(name, name, FIRST + size, shares_rare=True)
        for at, (name, size) in enumerate(zip("abcde", sizes, strict=True))
    ]
    return Table(codes, label, fields, SMOOTH)


def faint(seed: int, n: int, each: float) -> Table:
    """Labels that depend on every pair of two columns and two numbers, as strongly as said. Numbers have a fine field in the model,
    and quarters, on which labels depend, beside it."""
    rng = np.random.default_rng(seed)
    values = [*rng.integers(0, 5, (2, n)), *(rng.random((2, n)) * 12).astype(np.int64)]
    values += [column // 3 for column in values[2:]]
    sizes, names = (5, 5, 12, 12, 4, 4), ("a", "b", "c [12]", "d [12]", "c [4]", "d [4]")
    odds = np.zeros(n)
    for one, other in combinations((0, 1, 4, 5), 2):
        odds += rng.normal(0, each, (sizes[one], sizes[other]))[values[one], values[other]]
    label = (rng.random(n) < 1 / (1 + np.exp(-odds))).astype(np.uint8)
    chains = [None, None, *(in_order(FIRST + size) for size in sizes[2:])]
    fields = [
        Field(name, name[0], FIRST + size, shares_rare=chain is None, chain=chain)
        for name, size, chain in zip(names, sizes, chains, strict=True)
    ]
    few, smooth = Penalty(0.0, 3.0), Penalty(0.0, 3.0, 300.0)
    return Table([(FIRST + column).astype(np.uint8) for column in values], label, fields, (few, few, smooth, smooth, None, None))


def passed_over(search: SlowSearch, cross: tuple[int, ...]) -> set[tuple[int, ...]]:
    """Values of a cross that occur between two neighbours, too rare in a model for a weight there."""
    axis, between = search.axis(cross), set()
    for chain in search.models.terms[cross].chains:
        for (before, (value, _)), (place, _) in pairwise(chain):
            between |= {(*value[:axis], rare, *value[axis + 1 :]) for rare in range(before + 1, place)}
    return between & set(search.values(cross))


def smooth_ones(search: SlowSearch) -> set[tuple[int, ...]]:
    """The crosses accepted under a smooth penalty. Some value must be passed over, and one without rows have a weight."""
    smooth = {one.cross for one in search.accepted if one.penalty.smooth}
    assert any(passed_over(search, cross) for cross in smooth)
    assert all(search.models.terms[(3,)].weight[EMPTY, k] for k in search.models.models)
    return smooth


def drawn(n: int, round: int, holdout: bool) -> Folds:
    """The folds of a round."""
    return by_row(n, SEED + 7919 * round, holdout, "")


def by_order(n: int, round: int, holdout: bool) -> Folds:
    """Forward folds, the same in every round."""
    folds = by_earlier_time(np.arange(n), "when", holdout, "")
    plan = replace(folds.plan, by_cluster=None, listed=folds.fold)  # by rows: these blocks have no clusters
    return Folds(plan, n, folds.kind, folds.why)


def fast(table: Table, holdout: bool, n_blocks: int, options: Options) -> tuple[Search, State, list[Event]]:
    """The search after its run, the set it ended with, and what it told."""
    n = len(table.label)
    folds = drawn(n, 0, holdout)
    with SerialEngine() as engine:
        codes = [FieldCodes(column) for column in table.columns]
        engine.place(make_blocks(codes, table.label, np.ones(n, np.float32), folds.plan, SEED, n_blocks))
        regression = Regression.begin(engine, float(n), folds.n_models, min_count=MIN_COUNT)
        for at, (field, penalty) in enumerate(zip(table.fields, table.penalties, strict=True)):
            if penalty is not None:
                regression.add((at,), field, penalty)
        if options.penalty == "shared":
            tuning.tune_shared(regression, lambda detail: None, with_l1=True)
        regression.converge(tuning.FINE, tuning.MAX_SWEEPS)
        events: list[Event] = []

        def fresh(round: int) -> Folds:
            return drawn(n, round, holdout)

        def score(regression: Regression) -> float:
            scores, label, weight = regression.judged()
            return measure("auc", label, scores, weight)

        search = Search(engine, table.fields, n, options, Reporter([events.append]), 0, fresh, score)
        last, _ = search.run([State((), regression)], lambda state: None, lambda beam: None)
        if search.policy.groups:
            last = broaden(search, search.afresh(last)) or last
    return search, last, events


def slow(table: Table, holdout: bool, options: Options) -> SlowSearch:
    """The reference from the same start."""
    n = len(table.label)
    order = np.argsort(mix(SEED, np.arange(n)), kind="stable")
    columns = [column[order].tolist() for column in table.columns]

    def fresh(round: int) -> list[int]:
        return drawn(n, round, holdout).fold[order].tolist()

    place = [number >> 32 for number in mix(SEED, order).tolist()]
    search = SlowSearch(columns, place, table.fields, fresh, options)
    search.run(table.label[order].tolist(), 1 if holdout else 5, MIN_COUNT, table.penalties, options.penalty == "shared")
    if not holdout:
        search.broaden()
    return search


def same(table: Table, holdout: bool, n_blocks: int, **options: Any) -> SlowSearch:
    """Assert that both searches did the same; what the slow one did."""
    ours, last, events = fast(table, holdout, n_blocks, Options(**options))
    search = slow(table, holdout, Options(**options))

    def name(*crosses: tuple[int, ...]) -> str:
        if len(crosses) > 1:
            return f"{len(crosses)} crosses together"
        return " x ".join(table.fields[at].name for at in crosses[0])

    rungs = [(one.round, one.rows, one.n_candidates, one.best) for one in events if isinstance(one, CandidatesRanked)]
    assert rungs == [
        (one.round, one.rows, one.n_candidates, [[name(cross), gain] for cross, gain in one.best]) for one in search.rungs
    ]
    tries = [
        (one.round, one.cross, one.gain, one.error, one.needed, one.accepted, one.score)
        for one in events
        if isinstance(one, CrossTried)
    ]
    assert tries == [
        (one.round, name(*one.crosses), one.gain, one.error, one.needed, one.accepted, one.score) for one in search.tries
    ]
    assert (ours.last, ours.in_vain) == (search.last, search.in_vain)
    accepted = [(one.coder.fields, one.penalty, one.gain, one.error, one.score) for one in last.accepted]
    expected = [*search.accepted, *search.joined]
    assert accepted == [(one.cross, one.penalty, one.gain, one.error, one.score) for one in expected]
    if accepted:
        assert (last.loss, last.score) == search.reached
    same_weights(last, search.models)
    return search


def same_weights(state: State, models: Models) -> None:
    """Assert that every term has the same penalty, the same tied codes and the same weights in every model."""
    assert list(state.regression.terms) == list(models.terms)
    coders = {one.coder.fields: one.coder for one in state.accepted}
    for cross, term in state.regression.terms.items():
        other = models.terms[cross]
        assert term.penalty == other.penalty
        values: list[Any] = list(range(term.field.n_codes))
        if cross in coders:
            values = [MISSING, RARE, *map(tuple, coders[cross].values.tolist())]
        expected = [
            [other.weight.get((RARE if term.tied[code, k] else value, k), 0.0) for k in models.models]
            for code, value in enumerate(values)
        ]
        assert term.weight.tolist() == expected, cross
        assert other.weight.keys() <= {
            (value, k) for code, value in enumerate(values) for k in models.models if not term.tied[code, k]
        }


@pytest.mark.slow
@pytest.mark.parametrize("n_blocks", [1, 3])
@pytest.mark.parametrize("holdout", [False, True], ids=["folds", "holdout"])
def test_a_planted_pair(holdout: bool, n_blocks: int) -> None:
    assert same(planted(103, 300, 2.0, 0.0), holdout, n_blocks).accepted[0].cross == (0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("n_blocks", [1, 3])
def test_a_planted_pair_by_models_of_earlier_rows(n_blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "drawn", by_order)
    monkeypatch.setattr(Models, "forward", True)
    search = same(planted(103, 400, 2.0, 0.0), False, n_blocks)
    assert search.accepted[0].cross == (0, 1)
    learned = [sum(k in search.models.learners(row) for row in range(400)) for k in range(5)]
    assert learned == sorted(learned) and 40 < learned[0] < 90 and 300 < learned[4] < 360


@pytest.mark.slow
@pytest.mark.parametrize("holdout", [False, True], ids=["folds", "holdout"])
def test_a_planted_pair_and_triple_by_several_crosses_a_round(holdout: bool, steer: Steer) -> None:
    steer(a_round=2)
    search = same(planted(100, 400, 2.0, 2.5), holdout, 3)
    assert {(0, 1), (2, 3, 4)} <= {one.cross for one in search.accepted}
    assert (0, 1, 2, 3, 4) in search.last  # which has more values than a tournament has slots
    assert [one.round for one in search.accepted][:3] == [1, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("holdout", [False, True], ids=["folds", "holdout"])
def test_several_rungs_and_many_rounds_that_do_not_rank_everything(holdout: bool, steer: Steer) -> None:
    rungs = replace(policy.AUTO.rungs, fewest_rows=100, fewest_rarer=20, finalists=1)  # type: ignore[call-arg]
    steer(rungs=rungs, rescored=4, everything_every=3, tries=2, errors=0.8)
    search = same(planted(7, 400, 2.0, 2.5), holdout, 3)
    assert {one.rows for one in search.rungs} == {100, 200, 400}
    assert search.rungs[-1].round > 2


@pytest.mark.slow
def test_a_cross_that_gains_may_cost_no_score(steer: Steer) -> None:
    steer(lift=0.03, least_rise=-0.03)  # it must even bring some
    search = same(planted(101, 400, 2.0, 2.5), True, 3)
    assert search.accepted
    assert any(one.gain > one.needed and not one.accepted for one in search.tries)


@pytest.mark.slow
@pytest.mark.parametrize("holdout", [False, True], ids=["folds", "holdout"])
def test_shuffled_labels(holdout: bool) -> None:
    search = same(planted(0, 500, 2.0, 2.5, shuffled=True), holdout, 3)
    assert search.rungs
    assert not search.accepted


def test_too_few_rows_of_the_rarer_label() -> None:
    assert not same(planted(0, 190, 3.0, 0.0), False, 3).rungs


@pytest.mark.slow
@pytest.mark.parametrize("holdout", [False, True], ids=["folds", "holdout"])
def test_columns_in_order_and_several_rungs(holdout: bool, steer: Steer) -> None:
    steer(rungs=replace(policy.AUTO.rungs, fewest_rows=150, fewest_rarer=50, finalists=2))  # type: ignore[call-arg]
    search = same(ordered(34, 500, 2.5, 2.5), holdout, 3)
    assert {one.rows for one in search.rungs} == {150, 300, 500}
    assert {(0, 1), (2, 3)} <= smooth_ones(search)


@pytest.mark.slow
@pytest.mark.parametrize("holdout", [False, True], ids=["folds", "holdout"])
def test_smooth_penalties_that_relax(holdout: bool, steer: Steer) -> None:
    steer(relax=1.0, a_round=1)
    search = same(ordered(20, 500, 2.5, 2.5), holdout, 3)
    assert {(0, 1), (2, 3)} <= smooth_ones(search)
    first = search.accepted[0]
    assert search.models.terms[first.cross].penalty.smooth < first.penalty.smooth


# The paper's policy: the metric alone decides, and candidates compete in it.


@pytest.mark.slow
@pytest.mark.parametrize("holdout", [False, True], ids=["folds", "holdout"])
def test_the_papers_policy(holdout: bool) -> None:
    search = same(planted(104, 640, 2.5, 0.0), holdout, 3, halving="paper")
    first = [one for one in search.rungs if one.round == 1]
    assert [(one.rows, one.n_candidates) for one in first] == [(21, 10), (64, 5), (149, 2), (320, 1)]
    assert [one.accepted for one in search.tries] == [True] * (len(search.tries) - 1) + [False]
    assert search.accepted
    assert all(one.needed == 0.0 for one in search.tries)


@pytest.mark.slow
@pytest.mark.parametrize("holdout", [False, True], ids=["folds", "holdout"])
def test_the_papers_policy_with_one_penalty_for_all(holdout: bool) -> None:
    search = same(ordered(20, 600, 2.5, 2.5), holdout, 3, halving="paper", penalty="shared")
    assert search.accepted
    assert not search.models.terms[(1,)].penalty.smooth


# One penalty for all fields and crosses, l1 too.


@pytest.mark.slow
@pytest.mark.parametrize("holdout", [False, True], ids=["folds", "holdout"])
def test_a_shared_penalty_with_l1(holdout: bool) -> None:
    search = same(ordered(20, 600, 2.5, 2.5), holdout, 3, penalty="shared")
    (shared,) = {term.penalty for cross, term in search.models.terms.items() if cross}
    assert shared.l1 > 0
    assert {(0, 1), (2, 3)} <= {one.cross for one in search.accepted}
    weights = [w for cross, term in search.models.terms.items() if cross for w in term.weight.values()]
    assert 0 < weights.count(0.0) < len(weights)


# Weak crosses together.


def groups_of(search: SlowSearch) -> list[tuple[int, bool]]:
    """How many crosses each group had that was tried, and whether it was accepted."""
    return [(len(one.crosses), one.accepted) for one in search.tries if len(one.crosses) > 1]


@pytest.mark.slow
def test_weak_pairs_come_in_by_quarters_and_the_faintest_go_again() -> None:
    search = same(faint(1, 600, 0.3), False, 3)
    assert not search.accepted
    assert groups_of(search) == [(6, True)]
    assert {(4, 5), (0, 4)} <= {one.cross for one in search.joined}
    assert len(search.joined) < 6


@pytest.mark.slow
def test_weak_pairs_beside_crosses_after_sparse_ones_were_refused() -> None:
    search = same(faint(1, 600, 0.5), False, 3)
    assert search.accepted
    assert [accepted for _, accepted in groups_of(search)] == [False, True]


@pytest.mark.slow
def test_sparse_crosses_of_two_and_three_columns_choose_their_penalties_anew(steer: Steer) -> None:
    steer(groups=(replace(policy.SPARSE, trial=replace(policy.SPARSE.trial, errors=0.1, lift=-0.01)),), a_round=1, tries=1)
    search = same(faint(1, 600, 0.5), False, 3)
    assert search.accepted
    assert {len(one.cross) for one in search.joined} == {2, 3}
    assert len({one.penalty for one in search.joined}) > 1


@pytest.mark.slow
def test_every_pair_where_those_with_many_rows_do_not_do(steer: Steer) -> None:
    careful, careless = (replace(policy.TOGETHER, first_errors=errors) for errors in (99.0, 0.5))
    steer(groups=(replace(policy.PAIRS, trial=careful), replace(policy.EVERY_PAIR, trial=careless)), few_rows=13)
    search = same(faint(1, 600, 0.3), False, 3)
    assert groups_of(search) == [(5, False), (6, True)]  # one pair is sparse
    assert {one.penalty for one in search.joined} == {policy.EVERY_PAIR.penalty, replace(policy.EVERY_PAIR.penalty, smooth=0.0)}


@pytest.mark.slow
def test_groups_that_gain_nothing() -> None:
    search = same(faint(3, 600, 0.0), False, 3)
    assert groups_of(search)
    assert not any(accepted for _, accepted in groups_of(search))
    assert not search.joined
