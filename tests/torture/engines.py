"""Part 9: the same bits from one thread, from several, and, seldom, from a Ray cluster that loses workers."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl

from autocross import AutoCrossClassifier
from autocross.producer import bundle
from torture.tools import answer, by_parts, in_rounds, planted, require, require_same, run, said

SELDOM = 25  # of so many cases one is on Ray
ON_RAY = """
import os, signal, sys, warnings
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # stay on the loopback interface
warnings.simplefilter("ignore")
from unittest.mock import patch
import numpy as np
from autocross import AutoCrossClassifier
from autocross.engines import cluster

rows, output, seed, n_jobs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rng = np.random.default_rng(seed)
moments = set(rng.integers(1, 150, 2).tolist())
reply, calls = cluster.RayEngine.reply, []

def killed(self, number, call):
    calls.append(number)
    if len(calls) in moments:
        os.kill(self.processes[number], signal.SIGKILL)
    return reply(self, number, call)

with patch.object(cluster.RayEngine, "reply", killed), patch("autocross.fitting.run.BLOCK_ROWS", 100):
    model = AutoCrossClassifier(quiet=True, engine="ray", n_jobs=n_jobs, max_crosses=1).fit(rows, "label", "weight")
model.save(output)
print(len(calls), sorted(moments))
"""


def attack(seed: int, folder: Path) -> None:
    rng = np.random.default_rng(seed)
    if seed % SELDOM == SELDOM - 1 and importlib.util.find_spec("ray") is not None:
        on_ray(seed, rng, folder)
    else:
        on_threads(rng, folder)


def on_threads(rng: np.random.Generator, folder: Path) -> None:
    rows = planted(int(rng.integers(1 << 30)), int(rng.choice([60, 333, 1500, 4000])), int(rng.integers(2, 7)))
    rows = rows.with_columns(weight=pl.Series(rng.lognormal(0, 1, rows.height) * float(2.0 ** rng.integers(-20, 20))))
    options: dict[str, Any] = {"quiet": True, "max_crosses": int(rng.integers(0, 4)), "random_state": int(rng.integers(5))}
    options["evaluation"] = str(rng.choice(["auto", "holdout", "kfold"]))
    options["beam_width"] = int(rng.choice([1, 1, 2]))
    options["halving"] = str(rng.choice(["auto", "auto", "paper"]))
    rows.write_parquet(folder / "rows.parquet", row_group_size=int(rng.integers(20, 500)))
    (folder / "case.txt").write_text(str(options))

    def fit(**more: Any) -> Any:
        return answer(lambda: AutoCrossClassifier(**options, **more).fit(folder / "rows.parquet", "label", "weight").model_)

    with in_rounds():
        alone = fit(engine="serial")
        for _ in range(2):
            n_jobs, block = int(rng.integers(1, 6)), int(rng.choice([10, 100, 1000, 25_000]))
            with patch("autocross.fitting.run.BLOCK_ROWS", block):
                require_same(fit(engine="threads", n_jobs=n_jobs), alone, f"{n_jobs} threads, blocks of {block} rows")
        n_jobs, batch = int(rng.integers(1, 6)), int(rng.integers(30, 900))
        with by_parts(batch):
            require_same(fit(engine="threads", n_jobs=n_jobs), alone, f"{n_jobs} threads, {batch} rows at a time")


def on_ray(seed: int, rng: np.random.Generator, folder: Path) -> None:
    rows = planted(int(rng.integers(1 << 30)), 800, 4)
    rows.write_parquet(folder / "rows.parquet", row_group_size=100)
    alone = AutoCrossClassifier(quiet=True, engine="serial", max_crosses=1).fit(folder / "rows.parquet", "label", "weight").model_
    arguments = [folder / "rows.parquet", folder / "model.acx", seed, int(rng.integers(1, 4))]
    done = run([sys.executable, "-c", ON_RAY, *map(str, arguments)], timeout=400)
    require(done.returncode == 0, f"on Ray: {said(done.stderr)}")
    require_same(bundle.read(folder / "model.acx"), alone, "on Ray with killed workers")
