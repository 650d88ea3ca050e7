"""One contract for all engines: same blocks, same tasks, same result to the bit."""

from __future__ import annotations

import threading

import numpy as np
import polars as pl
import pytest

from autocross.engines import Engine, SerialEngine, ThreadsEngine, make_engine
from autocross.estimator import AutoCrossClassifier
from autocross.options import Options


def double(block: list[int], plus: int) -> int:
    return 2 * block[0] + plus


def append(block: list[int], value: int) -> None:
    block.append(value)


def size(block: list[int]) -> np.ndarray:
    return np.array([len(block), 1], np.int64)


def fail(block: list[int]) -> None:
    if block[0] == 3:
        raise ZeroDivisionError("block 3")


def test_each_answers_in_the_order_of_the_blocks(engine: Engine) -> None:
    engine.place([[at] for at in range(11)])
    assert engine.each(double, 1) == [2 * at + 1 for at in range(11)]


def test_tasks_change_their_block_and_total_adds_up(engine: Engine) -> None:
    engine.place([[at] for at in range(7)])
    engine.each(append, 5)
    assert engine.total(size).tolist() == [14, 7]


def test_a_failing_task_raises_its_own_error(engine: Engine) -> None:
    engine.place([[at] for at in range(5)])
    with pytest.raises(ZeroDivisionError, match="block 3"):
        engine.each(fail)
    assert engine.each(double, 0) == [0, 2, 4, 6, 8]


def test_place_replaces_former_blocks(engine: Engine) -> None:
    engine.place([[1], [2]])
    engine.place([[3]])
    assert engine.each(double, 0) == [6]


def test_threads_run_side_by_side() -> None:
    meeting = threading.Barrier(2, timeout=10)

    def meet(block: int) -> int:
        return meeting.wait()

    with ThreadsEngine(2) as engine:
        engine.place([0, 1])
        assert sorted(engine.each(meet)) == [0, 1]


def test_engines_are_made_by_name() -> None:
    assert isinstance(make_engine(Options(engine="serial")), SerialEngine)
    with make_engine(Options(engine="threads", n_jobs=3)) as engine:
        assert isinstance(engine, ThreadsEngine)
        assert engine.n_workers == 3


@pytest.mark.slow
@pytest.mark.parametrize("split", ["auto", "forward"])
@pytest.mark.parametrize("evaluation", ["kfold", "holdout"])
def test_every_engine_finds_the_same_model_to_the_bit(
    people: pl.DataFrame, evaluation: str, split: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights too: they are no whole numbers, so that a sum of floats would show."""
    monkeypatch.setattr("autocross.fitting.run.BLOCK_ROWS", 50)  # several blocks even here
    weight = np.random.default_rng(0).random(people.height)
    rows = people.with_columns(number=pl.int_range(pl.len()))
    options = {"evaluation": evaluation, "split": split, "time": "number" if split == "forward" else None, "exclude": ["number"]}
    models = [
        AutoCrossClassifier(quiet=True, engine=name, n_jobs=n_jobs, **options).fit(rows, "bought", weight).model_
        for name, n_jobs in (("serial", None), ("threads", 1), ("threads", 2), ("threads", 5))
    ]
    for other in models[1:]:
        assert other.intercept == models[0].intercept
        assert other.penalties == models[0].penalties
        assert other.about.score == models[0].about.score
        for ours, theirs in zip(models[0].weights, other.weights, strict=True):
            np.testing.assert_array_equal(ours, theirs)
