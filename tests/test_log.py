"""What happened to blocks is enough to make them again."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from autocross import blocks, reading
from autocross.blocks import Block, codes_of
from autocross.engines import Engine, SerialEngine, changes
from autocross.engines.log import Log
from autocross.errors import AutoCrossError
from autocross.events import Reporter
from autocross.features import FIRST, Field, FieldCodes, Penalty
from autocross.fitting.fit import fit
from autocross.folds import FoldPlan
from autocross.interrupts import Interrupt
from autocross.models import logistic
from autocross.options import Options
from autocross.producer.model import Model
from autocross.search import coding, fieldwise, judging, statistics
from autocross.search.policy import AUTO
from autocross.table.source import InMemory, Part
from conftest import Steer
from test_statistics import ids

MOST_CALLS = 100_000  # far more than any fit here makes
pytestmark = pytest.mark.slow


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
        assert self.n_calls < MOST_CALLS, "what was done is lost for good"
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


# The marks of tasks are checked: what a task changes, and what that depends on, is what its mark says.

OF_BLOCK = {"odds", "fold", "former", "trials"}
OF_ROWS = {"label", "weight", "row", "place", "cluster"}


def parts_of(block: Block) -> dict[str, Any]:
    """The parts of a block by the names that marks give them; fields have their codes for good once they are laid out."""
    found = {name: getattr(block, name) for name in OF_BLOCK}
    found["rows"] = [getattr(block, name) for name in sorted(OF_ROWS)]
    found["stems"] = {cross: coded for cross, coded in block.codes.items() if len(cross) < 2}
    return found | {codes_of(cross): coded for cross, coded in block.codes.items() if len(cross) > 1}


def digests_of(block: Any) -> dict[str, bytes]:
    """Each part's bytes; all that a reader has is one part."""
    if not isinstance(block, Block):
        return {}
    return {name: bytes_of(part) for name, part in parts_of(block).items()}


def bytes_of(part: Any) -> bytes:
    """What is in arrays, one after the other."""
    if isinstance(part, dict):
        return b"".join(repr(name).encode() + bytes_of(part[name]) for name in sorted(part))
    if isinstance(part, FieldCodes):
        return bytes_of([part.codes, part.starts, part.judged])
    if isinstance(part, (list, tuple)):
        return b"".join(map(bytes_of, part))
    return b"" if part is None else repr((part.shape, part.dtype)).encode() + np.ascontiguousarray(part).tobytes()


def spoiled(block: Block, kept: set[str]) -> Block:
    """A copy in which all parts but these hold something else, of the same shape."""
    copy: Block = pickle.loads(pickle.dumps(block))
    if "odds" not in kept:
        copy.odds = np.full_like(copy.odds, 7.0)
    if "fold" not in kept:
        copy.fold = np.zeros_like(copy.fold)
    if "former" not in kept:
        copy.former = (np.full_like(copy.former[0], 3.0), np.full_like(copy.former[1], 2.0))
    if "trials" not in kept:
        copy.trials = [FieldCodes(np.zeros_like(coded.codes), coded.starts) for coded in copy.trials]
    for cross, coded in copy.codes.items():
        if len(cross) > 1 and codes_of(cross) not in kept:
            judged = None if coded.judged is None else np.zeros_like(coded.judged)
            copy.codes[cross] = FieldCodes(np.zeros_like(coded.codes), coded.starts, judged)
    return copy


class Watchful(SerialEngine):
    """Compares what tasks do to blocks with what their marks say."""

    n_shares = n_workers = 2

    def run(self, task: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        before = [pickle.loads(pickle.dumps(block)) if isinstance(block, Block) else None for block in self.blocks]
        digests = [digests_of(block) for block in self.blocks]
        found = super().run(task, *args, **kwargs)
        change = getattr(task, "change", None)
        writes = set(change.writes(*args)) if change is not None else set()
        for block, former, digest in zip(self.blocks, before, digests, strict=True):
            now = digests_of(block)
            changed = {name for name in {*now, *digest} if now.get(name) != digest.get(name)}
            if "rows" not in writes:  # which stands for all that has a length
                assert changed <= writes, f"{task.__name__} changes {changed}, and says {writes}"
            if former is not None and changed and not writes & {"rows", "stems"}:
                self.repeat(task, args, former, now, writes)
        return found

    def repeat(self, task: Callable[..., Any], args: Any, former: Block, now: dict[str, bytes], writes: set[str]) -> None:
        """The task on a block of which only what it reads is as it was must write the same."""
        change = task.change  # type: ignore[attr-defined]
        alone = spoiled(former, set(change.reads(*args)) | (set() if change.anew else writes))
        if change.alone is not None:
            task, args = change.alone(*args)
        task(alone, *args)
        again = digests_of(alone)
        assert all(again.get(name) == now.get(name) for name in writes), f"{task.__name__} reads more than it says"


def watched(people: pl.DataFrame, monkeypatch: pytest.MonkeyPatch, steer: Steer) -> Model:
    """Two fits in which every task that changes blocks takes part."""
    assert AUTO.statistics is not None
    certain = replace(AUTO.statistics.trial, first_errors=None, errors=None, lift=-1.0)
    steer(first_errors=9.0, errors=9.0, groups=(), statistics=replace(AUTO.statistics, trial=certain, most=2, many_values=2))
    assert fitted(ids(400).rename({"granted": "bought"}), Watchful(), monkeypatch).share > 0
    steer(first_errors=-9.0, errors=-9.0)  # crosses are accepted
    monkeypatch.setattr("autocross.fitting.tune.TUNING_ROWS", 300)  # blocks are made narrow, and wide again
    return fitted(people.drop("tags"), Watchful(), monkeypatch, max_crosses=2, penalty="shared", beam_width=2)


def marked() -> list[Callable[..., Any]]:
    """All tasks with a mark."""
    modules = [blocks, coding, fieldwise, judging, logistic, reading, statistics]
    return [
        task
        for module in modules
        for task in vars(module).values()
        if hasattr(task, "change") and task.__module__ == module.__name__
    ]


def test_marks_say_what_tasks_change_and_read(people: pl.DataFrame, monkeypatch: pytest.MonkeyPatch, steer: Steer) -> None:
    assert watched(people, monkeypatch, steer).about.crosses


@pytest.mark.parametrize("task", [task for task in marked() if task.__module__ != reading.__name__], ids=lambda task: task.__name__)
def test_a_task_that_loses_its_mark_is_noticed(
    task: Callable[..., Any], people: pl.DataFrame, monkeypatch: pytest.MonkeyPatch, steer: Steer
) -> None:
    monkeypatch.delattr(task, "change")
    with pytest.raises(AssertionError, match=f"{task.__name__} changes "):
        watched(people, monkeypatch, steer)


@pytest.mark.parametrize("task", [task for task in marked() if task.__module__ == reading.__name__], ids=lambda task: task.__name__)
def test_a_reading_task_that_loses_its_mark_is_noticed(
    task: Callable[..., Any], people: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = fitted(people, SerialEngine(), monkeypatch, max_crosses=0)
    monkeypatch.delattr(task, "change")
    with pytest.raises((AssertionError, AttributeError, AutoCrossError, IndexError, KeyError, TypeError, ValueError)):
        monkeypatch.setattr("test_log.MOST_CALLS", 500)  # a pass that is never done
        again = fitted(people, Forgetful(1), monkeypatch, max_crosses=0)
        assert again.intercept == plain.intercept


def test_a_wrong_order_fails(people: pl.DataFrame) -> None:
    rng = np.random.default_rng(0)
    codes = [FieldCodes((rng.integers(0, 3, 300) + FIRST).astype(np.uint8))]
    label, weight = rng.integers(0, 2, 300).astype(np.uint8), np.ones(300, np.float32)
    with SerialEngine() as engine:
        engine.place(blocks.make_blocks(codes, label, weight, FoldPlan(5, False), 0, 2))
        first = logistic.Regression.begin(engine, 300.0, 5)
        first.add((0,), Field("a", "a", FIRST + 3, shares_rare=True), Penalty())
        judge = judging.Judge(engine, Reporter(), 0, lambda regression: 0.0)
        with pytest.raises(logistic.WrongOrder, match="remember no regression"):
            judge.gain(first)
        judge.remember(first)
        twin = first.branch()
        twin.sweep()
        with pytest.raises(logistic.WrongOrder, match="hold the odds of another regression"):
            first.sweep()
        assert judge.gain(twin)[0] != 0.0
        judge.recall()
        assert judge.gain(first)[0] == 0.0
        first.sweep()
        with pytest.raises(logistic.WrongOrder, match="one that has changed since"):
            judge.recall()
        blocks.draw_folds(engine, FoldPlan(5, False, seed=1))
        for use in (first.sweep, first.left_out_loss, first.judged, first.branch, judge.recall):
            with pytest.raises(logistic.WrongOrder):
                use()
        first.restore()
        first.sweep()


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
