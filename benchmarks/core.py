"""LR (base): test AUC and time on the benchmark tables, beside scikit-learn's LogisticRegressionCV; compilation and start-up.

make bench-core            all tables and seeds, about 15 minutes
.venv/bin/python benchmarks/core.py adult bank     only these tables
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
from datasets import NAMES, seeds, split
from sections import SOURCE, machine, stamp_now, table, write_section

from autocross import AutoCross, AutoCrossClassifier
from autocross.models.metrics import auc

PAPER = {"adult": 0.9169, "bank": 0.9400, "credit": 0.8292, "employee": 0.8655, "criteo": float("nan")}
AIM = {"adult": 0.925, "bank": 0.947, "credit": 0.860, "employee": 0.862, "criteo": 0.765}
HEAD = ["", "LR (base), mean ± sd over seeds", "aim", "s a fit, median"]
HEAD += ["LogisticRegressionCV, same columns", "s", "ratio", "scaled numbers", "s", "ratio", "paper's LR (other splits)"]
PATIENCE = 60  # seconds that a rival may take on one table


def ours(name: str, seed: int) -> tuple[float, float]:
    """Test AUC and seconds of LR (base)."""
    train, test = split(name, seed)
    began = time.perf_counter()
    model = AutoCrossClassifier(max_crosses=0, quiet=True).fit(train, "label")
    seconds = time.perf_counter() - began
    return auc(test["label"].to_numpy(), model.decision_function(test), np.ones(test.height)), seconds


def on_same_columns(name: str) -> tuple[float, float]:
    """Test AUC and seconds of LogisticRegressionCV on the one-hot columns of the fields that ours uses."""
    from sklearn.linear_model import LogisticRegressionCV

    warnings.simplefilter("ignore")
    train, test = split(name, 0)
    producer = AutoCross(quiet=True, max_crosses=0).fit(train, "label")
    left, right = producer.transform(train), producer.transform(test)
    rival = LogisticRegressionCV(scoring="roc_auc", use_legacy_attributes=False, l1_ratios=(0,))
    began = time.perf_counter()
    rival.fit(left, train["label"].to_numpy())
    seconds = time.perf_counter() - began
    return auc(test["label"].to_numpy(), rival.decision_function(right), np.ones(test.height)), seconds


def on_scaled_numbers(name: str) -> tuple[float, float]:
    """Test AUC and seconds of LogisticRegressionCV on one-hot categories and scaled numbers, as most would write it."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    warnings.simplefilter("ignore")
    train, test = split(name, 0)
    numbers = [column for column in train.columns if train[column].dtype.is_numeric() and column != "label"]
    words = [column for column in train.columns if column not in numbers and column != "label"]

    def matrix(frame: pl.DataFrame) -> np.ndarray:
        parts = [
            frame.select(pl.col(numbers).cast(pl.Float64).fill_null(float("nan"))),
            frame.select(pl.col(words).fill_null("missing")),
        ]
        return np.concatenate([part.to_numpy().astype(object).reshape(frame.height, -1) for part in parts], axis=1)

    n = len(numbers)
    prepare = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), list(range(n))),
        (OneHotEncoder(handle_unknown="ignore"), list(range(n, n + len(words)))),
    )
    rival = make_pipeline(prepare, LogisticRegressionCV(scoring="roc_auc", use_legacy_attributes=False, l1_ratios=(0,)))
    began = time.perf_counter()
    rival.fit(matrix(train), train["label"].to_numpy())
    seconds = time.perf_counter() - began
    return auc(test["label"].to_numpy(), rival.predict_proba(matrix(test))[:, 1], np.ones(test.height)), seconds


def patiently(method: Callable[[str], tuple[float, float]], name: str) -> tuple[float, float] | None:
    """A rival in a process of its own, stopped when patience ends."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        waiting = pool.apply_async(method, (name,))
        try:
            return waiting.get(PATIENCE)
        except multiprocessing.TimeoutError:
            return None


def shown(rival: tuple[float, float] | None, seconds: float) -> list[str]:
    """A rival's AUC, seconds, and our time over its."""
    if rival is None:
        return [f"stopped after {PATIENCE} s", "", ""]
    return [f"{rival[0]:.4f}", f"{rival[1]:.1f}", f"{seconds / rival[1]:.2f}"]


def start_up() -> tuple[float, float]:
    """Seconds of a fresh process that loads a model and scores a row; seconds of all compilation, once per machine."""
    frame = pl.DataFrame({"job": ["a", "b", "c"] * 100, "age": np.arange(300) / 7, "y": [0, 1, 1] * 100})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.acx"
        AutoCrossClassifier(quiet=True).fit(frame, "y").save(path)
        code = f"from autocross import load; load({str(path)!r}).score_one({{'job': 'a', 'age': 3.0}})"
        times = []
        for _ in range(5):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times.append(time.perf_counter() - began)
        compiling = (
            "import numpy as np, time\n"
            "from autocross.kernels import counting, logistic, scaling, steps\n"
            "began = time.perf_counter()\n"
            "l, w, f, z, s = np.zeros(3, np.uint8), np.ones(3, np.float32), np.zeros(3, np.uint8), np.ones((3, 2)), 2.0**30\n"
            "for kind in (np.uint8, np.uint16, np.uint32):\n"
            "    c, at, d = np.zeros(3, kind), np.arange(4), np.zeros((2, 2))\n"
            "    sums, tries, counts = np.zeros((2, 2, 2), np.int64), np.zeros(3, np.int64), np.zeros((2, 2), np.int64)\n"
            "    logistic.gather(c, l, w, f, z, s, sums); logistic.gather_ragged(c, at, l, w, f, z, s, sums)\n"
            "    scaling.scale(c, d, z); scaling.scale_ragged(c, at, d, z)\n"
            "    logistic.try_scales(c, l, w, f, z, np.zeros((2, 2, 3)), s, tries)\n"
            "    logistic.try_scales_ragged(c, at, l, w, f, z, np.zeros((2, 2, 3)), s, tries)\n"
            "    counting.count(c, f, counts); counting.count_ragged(c, at, f, counts)\n"
            "logistic.total_loss(l, w, f, z, s, np.zeros((2, 2), np.int64))\n"
            "tied, counted = np.zeros((2, 2), bool), np.zeros((2, 2, 3), np.int64)\n"
            "logistic.gather(c, l, w, f, z, s, counted); logistic.gather_ragged(c, at, l, w, f, z, s, counted)\n"
            "steps.tie(sums, tied); steps.step(sums, s, d, tied, 0.0, 1.0, 1, np.zeros((2, 2)))\n"
            "steps.first_steps(counted, s, tied, np.ones((1, 2)), 1, np.zeros((2, 2, 1)))\n"
            "steps.chained_step(sums, s, d, tied, np.arange(2), np.zeros(2), 1.0, 1.0, np.zeros((2, 2)))\n"
            "print(time.perf_counter() - began)\n"
        )
        fresh = {**os.environ, "NUMBA_CACHE_DIR": str(Path(folder) / "cache")}
        done = subprocess.run([sys.executable, "-c", compiling], check=True, env=fresh, capture_output=True, text=True)
    return sorted(times)[2], float(done.stdout)


def main(names: list[str]) -> None:
    rows, stamp = [], stamp_now(SOURCE)
    ours("adult", 0)  # compile before the clock starts
    for name in names:
        found = [ours(name, seed) for seed in seeds(name)]
        values, times = np.array([value for value, _ in found]), [seconds for _, seconds in found]
        typical = float(np.median(times if len(times) > 1 else [*times, ours(name, 0)[1], ours(name, 0)[1]]))
        same, scaled = patiently(on_same_columns, name), patiently(on_scaled_numbers, name)
        print(f"{name}: {values.round(4).tolist()} in {np.round(times, 1).tolist()} s; {same}, {scaled}", flush=True)
        spread = f" ± {values.std(ddof=1):.4f}" if len(values) > 1 else ""
        missed = " (missed)" if values.mean() < AIM[name] else ""
        paper = "" if np.isnan(PAPER[name]) else f"{PAPER[name]:.4f}"
        row = [name.capitalize(), f"{values.mean():.4f}{spread}", f"{AIM[name]:.3f}{missed}", f"{typical:.1f}"]
        rows.append([*row, *shown(same, typical), *shown(scaled, typical), paper])
    ready, compiled = start_up()
    text = f"""## LR (base), by benchmarks/core.py

{table(HEAD, rows)}

LogisticRegressionCV has its defaults (10 values of C, 5 folds, one job), scored by AUC, seed 0. It is given the one-hot columns of
the very fields that ours uses, or what most would write: one-hot categories and scaled numbers. Its time is that of the fit alone
on the former, with preparation on the latter; ours, on 2 threads, is from the frame to the model. The ratio is our time over its.
A fresh process that loads a model and scores one row takes {ready:.2f} s in all (median of 5), Python's own start included.
Compiling every kernel for every width of codes takes {compiled:.1f} s, once per machine. ({machine()})
"""
    if set(names) == set(NAMES):
        write_section("core", text, stamp)
    print(text)


if __name__ == "__main__":
    main(sys.argv[1:] or NAMES)
