"""How long scoring takes: one row, a batch of 100,000 rows and a fresh process, beside LightGBM in the same run.

make bench-serve
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import polars as pl
from datasets import NAMES, split
from sections import SOURCE, machine, stamp_now, table, write_section

from autocross import AutoCrossClassifier, load
from autocross.serving.scorer import Scorer, probabilities

N_ALONE, N_TOGETHER, REPEATS = 1_000, 100_000, 7
GOALS = {
    "adult": (6, 0.5),
    "bank": (6, 0.5),
    "credit": (6, 0.6),
    "employee": (12, 1.5),
    "criteo": (20, 3),
}  # us, alone and together


def least(ways: dict[str, Callable[[], Any]], n_rows: int, clock: Callable[[], float]) -> dict[str, float]:
    """Microseconds a row of each way, the least of several runs. The ways take turns, so that a busy machine slows all of them."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(REPEATS):
        for name, way in ways.items():
            begin = clock()
            way()
            times[name].append(1e6 * (clock() - begin) / n_rows)
    return {name: min(found) for name, found in times.items()}


def as_numbers(train: pl.DataFrame, rows: pl.DataFrame) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Rows as LightGBM takes them: numbers, with the number of each text among those of the training rows."""
    columns = []
    for name in rows.columns:
        if rows[name].dtype.is_numeric():
            columns.append(rows[name].cast(pl.Float64).to_numpy())
        else:
            known = {text: number for number, text in enumerate(train[name].cast(pl.String).unique(maintain_order=True).to_list())}
            columns.append(np.array([known.get(text, np.nan) for text in rows[name].cast(pl.String).to_list()], np.float64))
    return np.ascontiguousarray(np.stack(columns, axis=1))


def measure(name: str, path: Path) -> tuple[list[str], list[str]]:
    """The cells of a table in the two tables of the section."""
    train, test = split(name, 0)
    AutoCrossClassifier(quiet=True).fit(train, "label").save(path)
    features = train.drop("label")
    trees = lightgbm.train(
        {"objective": "binary", "verbose": -1}, lightgbm.Dataset(as_numbers(features, features), train["label"].to_numpy())
    )
    scorer, rows = load(path), test.drop("label")
    by_python = Scorer(scorer.model)
    by_python.__dict__["compiled"] = None
    alone, ready = rows.head(N_ALONE).to_dicts(), as_numbers(features, rows.head(N_ALONE))
    one = least(
        {
            "compiled": lambda: [scorer.score_one(row) for row in alone],
            "python": lambda: [by_python.score_one(row) for row in alone],
            "trees": lambda: [trees.predict(ready[at : at + 1], num_threads=1) for at in range(len(ready))],
        },
        len(alone),
        time.process_time,
    )
    many = pl.concat([rows] * (1 + N_TOGETHER // rows.height)).head(N_TOGETHER)
    numbers = as_numbers(features, many)
    ways: dict[str, Callable[[], Any]] = {
        "compiled": lambda: scorer.score(many),
        "crosses": lambda: probabilities(scorer.model.log_odds(scorer.table(many))),
        "trees": lambda: trees.predict(numbers, num_threads=2),
    }
    batch, clock = (least(ways, many.height, of) for of in (time.process_time, time.perf_counter))
    goal, goal_together = GOALS[name]
    first = [name.capitalize(), f"{one['compiled']:.1f}", f"{goal}", f"{one['python']:.1f}", f"{one['trees']:.0f}"]
    first.append(f"{one['trees'] / one['compiled']:.0f}")
    second = [name.capitalize(), f"{clock['compiled']:.2f}", f"{goal_together}", f"{batch['compiled']:.2f}"]
    second += [f"{batch['crosses']:.2f}", f"{clock['trees']:.2f}", f"{batch['trees']:.2f}"]
    return first, second


def start(code: str) -> float:
    """Seconds of processor time that a fresh process takes, the least of several."""
    seconds = []
    for _ in range(REPEATS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds)


def main() -> None:
    warnings.simplefilter("ignore")
    alone, together, stamp = [], [], stamp_now(SOURCE)
    with tempfile.TemporaryDirectory() as folder:
        for name in NAMES:
            first, second = measure(name, Path(folder) / f"{name}.acx")
            print(first, second, flush=True)
            alone.append(first)
            together.append(second)
        numba = start("import numba")
        ready = start(f"from autocross import load; load({str(Path(folder) / 'adult.acx')!r}).score_one({{}})")
    head = ["one row, us", "`score_one`", "goal", "without compiled code", "LightGBM", "times as fast as LightGBM"]
    many = ["100,000 rows, us a row", "`score`, clock", "goal", "processor", "crosses one by one", "LightGBM, clock", "processor"]
    text = f"""## Scoring, by benchmarks/serving.py

{table(head, alone)}

{table(many, together)}

Default models of the training rows of seed 0; test rows, warm. One row is a dict of raw values, and its time that of the processor.
LightGBM has its defaults and 100 trees, and is given rows that are ready: an array of numbers, in which texts are numbered already,
by `Booster.predict`, one row on one thread. Many rows are a polars frame with raw texts. Beside the clock stands the time of the
processor, because others may use the machine. Each time is the least of {REPEATS} runs that took turns. ({machine()})

A fresh process that imports autocross, loads the model of Adult and scores a first row takes {ready:.2f} s of processor time, with
Python's own start; one that does nothing but `import numba` takes {numba:.2f} s.
"""
    write_section("serving", text, stamp)
    print(text)


if __name__ == "__main__":
    main()
