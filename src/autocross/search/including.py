"""Crosses that must be in the model: they enter before the search, and are judged like others, but never refused.

A number takes part by the granularity that is best, as in a round of the search: all crosses of fields of these columns compete.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product

from autocross.blocks import Cross
from autocross.engines import Engine
from autocross.errors import OptionError
from autocross.events import PhaseStarted
from autocross.features import Field, Penalty
from autocross.search import fieldwise, halving
from autocross.search.coding import CodedCrosses
from autocross.search.judging import Accepted
from autocross.search.limits import can_be_ordered
from autocross.search.loop import Search, State

PHASE = "fitting the crosses that must be there"
MOST = 400  # crosses that compete to be the one of some columns; if there are more, numbers take part by their coarsest field


def include(search: Search, state: State) -> State:
    """The state, which has no crosses yet, with those that must be there. They are coded by the best of their fields as it stands,
    and then judged one after the other on fresh folds."""
    fields = {number: field for number, field in enumerate(search.fields) if (number,) in state.regression.terms}
    possible = [crosses_of(columns, fields) for columns in search.limits.include if known(columns, fields.values())]
    if not possible:
        return state
    search.reporter.tell(PhaseStarted, phase=PHASE, steps=len(possible))
    search.enter(state)
    chosen = [best_of(search, state, crosses) for crosses in possible]
    forced = replace(search.policy.trial, first_errors=None, errors=None, forced=True)
    state = search.refitted(state)
    for candidate in chosen:
        search.judge.remember(state.regression)
        child = search.propose(state, candidate, len(chosen), forced)
        assert child is not None
        state = child
        search.keep(state)
    return state


def best_of(search: Search, state: State, crosses: Sequence[Cross]) -> fieldwise.Candidate:
    """The cross that gains most, if only its own weights learn, and its penalty."""
    entrants = [fieldwise.candidate(cross, search.fields) for cross in crosses]
    contest = search.contest(state.regression)
    ranked = halving.tournament(
        search.engine, state.regression, contest, entrants, search.policy.rungs, search.n_rows, lambda *_: None
    )
    return ranked[0]


def known(columns: Sequence[str], fields: Iterable[Field]) -> bool:
    """Whether all columns have fields. A column that the time limit left out has none."""
    return {*columns} <= {field.column for field in fields}


def crosses_of(columns: Sequence[str], fields: Mapping[int, Field]) -> list[Cross]:
    """All crosses that have exactly one field of each of these columns."""
    of_column = [[number for number, field in fields.items() if field.column == column] for column in columns]
    if math.prod(map(len, of_column)) > MOST:
        of_column = [[min(numbers, key=lambda number: fields[number].n_codes)] for numbers in of_column]
    crosses = [tuple(sorted(numbers)) for numbers in product(*of_column)]
    possible = [cross for cross in crosses if can_be_ordered([fields[number] for number in cross])]
    if not possible:
        raise OptionError(
            f"Option include holds {' & '.join(columns)!r}, a cross of too many values to be monotone. Leave a column out."
        )
    return sorted(possible)


def unjudged(
    engine: Engine, n_rows: int, min_count: int, fields: Sequence[Field], wanted: Iterable[Sequence[str]], penalty: Penalty
) -> list[Accepted]:
    """Crosses of these columns for which there was no time: numbers by their coarsest fields, under a penalty that nobody chose."""
    codes, by_number = CodedCrosses(engine, n_rows), dict(enumerate(fields))
    found = []
    for columns in wanted:
        cross = min(crosses_of(columns, by_number), key=lambda one: (math.prod(fields[number].n_codes for number in one), one))
        coder, n_collisions = codes.code(fieldwise.candidate(cross, fields), min_count)
        found.append(Accepted(coder, penalty, 0.0, 0.0, 0.0, math.nan, n_collisions))
    return found


def missing(include: Iterable[tuple[str, ...]], accepted: Sequence[Accepted], fields: Sequence[Field]) -> list[tuple[str, ...]]:
    """Those of the crosses that must be there which are not."""
    there = [columns_of(one, fields) for one in accepted if one.coder.kind == "cross"]
    return [columns for columns in include if {*columns} not in there and known(columns, fields)]


def forced(include: Iterable[tuple[str, ...]], accepted: Sequence[Accepted], fields: Sequence[Field]) -> set[Cross]:
    """The crosses that must stay: for each of these columns the first one that was accepted, because they enter before others."""
    first: dict[frozenset[str], Cross] = {}
    for one in accepted:
        if one.coder.kind == "cross":
            first.setdefault(frozenset(columns_of(one, fields)), one.coder.term)
    return {first[key] for columns in include if (key := frozenset(columns)) in first}


def columns_of(accepted: Accepted, fields: Sequence[Field]) -> set[str]:
    return {fields[number].column for number in accepted.coder.fields}
