"""The whole search against its slow, obvious version: the same crosses, gains, penalties and weights, to the bit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from autocross.blocks import make_blocks
from autocross.engines import SerialEngine
from autocross.events import CandidatesRanked, CrossTried, Event, Reporter
from autocross.features import FIRST, MISSING, RARE, Field, FieldCodes, Penalty, in_order
from autocross.folds import Folds, by_row
from autocross.hashing import mix
from autocross.models import tuning
from autocross.models.logistic import Regression
from autocross.models.metrics import measure
from autocross.options import Options
from autocross.search import policy
from autocross.search.loop import Search, State
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
    penalties: tuple[Penalty, ...] = PENALTIES


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


def fast(table: Table, holdout: bool, n_blocks: int) -> tuple[Search, State, list[Event]]:
    """The search after its run, the set it ended with, and what it told."""
    n = len(table.label)
    folds = by_row(n, SEED, holdout, "")
    with SerialEngine() as engine:
        codes = [FieldCodes(column) for column in table.columns]
        engine.place(make_blocks(codes, table.label, np.ones(n, np.float32), folds.rule, SEED, n_blocks))
        regression = Regression.begin(engine, float(n), folds.n_models, min_count=MIN_COUNT)
        for at, one in enumerate(table.fields):
            regression.add((at,), one, table.penalties[at])
        regression.converge(tuning.FINE, tuning.MAX_SWEEPS)
        events: list[Event] = []
        kept: list[State] = []

        def fresh(round: int) -> Folds:
            return by_row(n, SEED + 7919 * round, holdout, "")

        def score(regression: Regression) -> float:
            scores, label, weight = regression.judged()
            return measure("auc", label, scores, weight)

        search = Search(engine, table.fields, n, Options(), Reporter([events.append]), 0, fresh, score)
        search.run([State((), regression)], kept.append, lambda beam: None)
    return search, kept[-1], events


def slow(table: Table, holdout: bool) -> SlowSearch:
    """The reference from the same start."""
    n = len(table.label)
    order = np.argsort(mix(SEED, np.arange(n)), kind="stable")
    columns = [column[order].tolist() for column in table.columns]

    def fresh(round: int) -> list[int]:
        return by_row(n, SEED + 7919 * round, holdout, "").fold[order].tolist()

    place = [number >> 32 for number in mix(SEED, order).tolist()]
    search = SlowSearch(columns, place, table.fields, fresh)
    search.run(table.label[order].tolist(), 1 if holdout else 5, MIN_COUNT, table.penalties)
    return search


def same(table: Table, holdout: bool, n_blocks: int) -> SlowSearch:
    """Assert that both searches did the same; what the slow one did."""
    ours, last, events = fast(table, holdout, n_blocks)
    search = slow(table, holdout)

    def name(cross: tuple[int, ...]) -> str:
        return " x ".join(table.fields[at].name for at in cross)

    rungs = [(one.round, one.rows, one.n_candidates, one.best) for one in events if isinstance(one, CandidatesRanked)]
    assert rungs == [
        (one.round, one.rows, one.n_candidates, [[name(cross), gain] for cross, gain in one.best]) for one in search.rungs
    ]
    tries = [
        (one.round, one.cross, one.gain, one.error, one.needed, one.accepted, one.score)
        for one in events
        if isinstance(one, CrossTried)
    ]
    assert tries == [(one.round, name(one.cross), one.gain, one.error, one.needed, one.accepted, one.score) for one in search.tries]
    assert (ours.last, ours.in_vain) == (search.last, search.in_vain)
    accepted = [(one.coder.fields, one.penalty, one.gain, one.error, one.score) for one in last.accepted]
    assert accepted == [(one.cross, one.penalty, one.gain, one.error, one.score) for one in search.accepted]
    if accepted:
        assert (last.loss, last.score) == (search.accepted[-1].loss, search.accepted[-1].score)
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


@pytest.mark.parametrize("n_blocks", [1, 3])
@pytest.mark.parametrize("holdout", [False, True], ids=["folds", "holdout"])
def test_a_planted_pair(holdout: bool, n_blocks: int) -> None:
    assert same(planted(103, 300, 2.0, 0.0), holdout, n_blocks).accepted[0].cross == (0, 1)


@pytest.mark.parametrize("holdout", [False, True], ids=["folds", "holdout"])
def test_a_planted_pair_and_triple_by_several_crosses_a_round(holdout: bool, steer: Steer) -> None:
    steer(a_round=2)
    search = same(planted(100, 400, 2.0, 2.5), holdout, 3)
    assert {(0, 1), (2, 3, 4)} <= {one.cross for one in search.accepted}
    assert (0, 1, 2, 3, 4) in search.last  # which has more values than a tournament has slots
    assert [one.round for one in search.accepted][:3] == [1, 1, 2]


@pytest.mark.parametrize("holdout", [False, True], ids=["folds", "holdout"])
def test_several_rungs_and_many_rounds_that_do_not_rank_everything(holdout: bool, steer: Steer) -> None:
    rungs = replace(policy.AUTO.rungs, fewest_rows=100, fewest_rarer=20, finalists=1)  # type: ignore[call-arg]
    steer(rungs=rungs, rescored=4, everything_every=3, tries=2, errors=0.8)
    search = same(planted(7, 400, 2.0, 2.5), holdout, 3)
    assert {one.rows for one in search.rungs} == {100, 200, 400}
    assert search.rungs[-1].round > 2


def test_a_cross_that_gains_may_cost_no_score(steer: Steer) -> None:
    steer(lift=0.03, least_rise=-0.03)  # it must even bring some
    search = same(planted(101, 400, 2.0, 2.5), True, 3)
    assert search.accepted
    assert any(one.gain > one.needed and not one.accepted for one in search.tries)


@pytest.mark.parametrize("holdout", [False, True], ids=["folds", "holdout"])
def test_shuffled_labels(holdout: bool) -> None:
    search = same(planted(0, 500, 2.0, 2.5, shuffled=True), holdout, 3)
    assert search.rungs
    assert not search.accepted


def test_too_few_rows_of_the_rarer_label() -> None:
    assert not same(planted(0, 190, 3.0, 0.0), False, 3).rungs


@pytest.mark.parametrize("holdout", [False, True], ids=["folds", "holdout"])
def test_columns_in_order_and_several_rungs(holdout: bool, steer: Steer) -> None:
    steer(rungs=replace(policy.AUTO.rungs, fewest_rows=150, fewest_rarer=50, finalists=2))  # type: ignore[call-arg]
    search = same(ordered(34, 500, 2.5, 2.5), holdout, 3)
    assert {one.rows for one in search.rungs} == {150, 300, 500}
    assert {(0, 1), (2, 3)} <= smooth_ones(search)


@pytest.mark.parametrize("holdout", [False, True], ids=["folds", "holdout"])
def test_smooth_penalties_that_relax(holdout: bool, steer: Steer) -> None:
    steer(relax=1.0, a_round=1)
    search = same(ordered(20, 500, 2.5, 2.5), holdout, 3)
    assert {(0, 1), (2, 3)} <= smooth_ones(search)
    first = search.accepted[0]
    assert search.models.terms[first.cross].penalty.smooth < first.penalty.smooth
