"""What happened to blocks is enough to make them again."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest

from autocross.engines import Engine, SerialEngine, changes
from autocross.engines.log import Log
from autocross.events import Reporter
from autocross.fitting.fit import fit
from autocross.interrupts import Interrupt
from autocross.options import Options
from autocross.producer.model import Model
from autocross.table.source import InMemory, Part
from conftest import Steer


class Forgetful(SerialEngine):
    """Loses all blocks every few calls, and makes them again from the log."""

    n_shares = n_workers = 3

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every, self.n_calls, self.longest = every, 0, 0
        self.log = Log()

    def place(self, blocks: Sequence[Any]) -> None:
        self.placed = pickle.dumps(list(blocks))
        self.log = Log()
        super().place(list(blocks))

    def run(self, task: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        self.lose()
        found = super().run(task, *args, **kwargs)
        self.log.note("each", task, args)
        return found

    def exchange(self, task: Callable[..., list[Any]], *args: Any, **kwargs: Any) -> None:
        self.lose()
        self.blocks = [made for block in self.blocks for made in task(block, *args)]
        self.log.note("exchange", task, args)

    def lose(self) -> None:
        self.n_calls += 1
        if self.n_calls % self.every:
            return
        self.blocks = pickle.loads(self.placed)
        seen = self.log.still_seen()
        self.longest = max(self.longest, len(seen))
        for entry in seen:
            found = [entry.task(block, *entry.args) for block in self.blocks]
            if entry.kind == "exchange":
                self.blocks = [made for mine in found for made in mine]


def fitted(people: pl.DataFrame, engine: Engine, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Model:
    """A model fitted by this engine."""
    monkeypatch.setattr("autocross.fitting.run.BLOCK_ROWS", 50)
    monkeypatch.setattr("autocross.fitting.run.make_engine", lambda options: engine)
    weight = np.random.default_rng(0).random(people.height).astype(np.float32)
    part = Part(people.drop("bought"), people["bought"].to_numpy(), weight)
    return fit(InMemory(part, "bought"), Options(**options), Reporter(), Interrupt())


@pytest.mark.parametrize("evaluation", ["kfold", "holdout"])
@pytest.mark.parametrize("every", [3, 10])
def test_lost_blocks_are_made_again_to_the_bit(
    people: pl.DataFrame, monkeypatch: pytest.MonkeyPatch, steer: Steer, every: int, evaluation: str
) -> None:
    """A task that changes its block without saying so, or says too little, would show."""
    steer(first_errors=-9.0, errors=-9.0)  # crosses are accepted
    monkeypatch.setattr("autocross.fitting.tune.TUNING_ROWS", 300)  # blocks are made narrow, and wide again
    options = {"evaluation": evaluation, "max_crosses": 2}
    engine = Forgetful(every)
    again = fitted(people, engine, monkeypatch, **options)
    plain = fitted(people, SerialEngine(), monkeypatch, **options)
    assert again.about.crosses == plain.about.crosses
    assert len(plain.about.crosses) == 2
    assert (again.intercept, again.penalties, again.about.score) == (plain.intercept, plain.penalties, plain.about.score)
    for ours, theirs in zip(again.weights, plain.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert engine.longest < 1500  # sweeps since the odds were last made anew; in all there are some thousands


@changes("odds", anew=True)
def begin(block: Any) -> None: ...


@changes("odds")
def go_on(block: Any, by: int) -> None: ...


@changes("former", reads=("odds",), anew=True)
def keep(block: Any) -> None: ...


@changes("odds", reads=("former",), anew=True)
def go_back(block: Any) -> None: ...


def look(block: Any) -> None: ...


@pytest.mark.parametrize(
    ("calls", "seen"),
    [
        ([(begin,), (go_on, 1), (look,), (begin,), (go_on, 2)], [(begin,), (go_on, 2)]),
        ([(begin,), (go_on, 1), (keep,), (go_on, 2), (go_back,)], [(begin,), (go_on, 1), (keep,), (go_back,)]),
        ([(begin,), (keep,), (begin,), (keep,)], [(begin,), (keep,)]),
        ([(go_on, n) for n in range(200)], [(go_on, n) for n in range(200)]),
    ],
)
def test_what_is_overwritten_need_not_happen_again(calls: list[Any], seen: list[Any]) -> None:
    log = Log()
    for task, *args in calls:
        log.note("each", task, args)
    assert [(entry.task, *entry.args) for entry in log.still_seen()] == seen
