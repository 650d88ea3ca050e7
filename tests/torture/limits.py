"""Part 8: time_limit and memory_limit, measured on wide, long and ordinary tables.

A fit returns within its time limit, a tenth of it and two seconds; what it has allocated stays below its memory limit and a fifth
of it, libraries apart. Imports are done and kernels compiled by a tiny fit before either is measured. Only `make torture` runs this
part: it needs a machine with nothing else to do.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from torture.tools import Fault, require, require_no_crash, said

LONGEST = 800.0  # seconds after which a fit hangs
PROGRAM = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np, polars as pl
from autocross import AutoCrossClassifier

what, options = json.loads(sys.argv[1]), json.loads(sys.argv[2])
rng = np.random.default_rng(what["seed"])

def rows(n, n_texts, n_numbers):
    found = {f"t{at}": pl.Series(rng.integers(0, what["n_values"], n)).cast(pl.String) for at in range(n_texts)}
    found |= {f"x{at}": rng.normal(size=n) for at in range(n_numbers)}
    return pl.DataFrame(found).with_columns(label=rng.integers(0, 2, n))

def warm(folder):
    # The kinds of columns, the kinds of fits and the ways to read that are to come: kernels are compiled for each.
    small = rows(3000, 3, 3)
    small.write_parquet(folder + "/small.parquet")
    for evaluation in ("kfold", "holdout"):
        AutoCrossClassifier(quiet=True, evaluation=evaluation, max_crosses=1).fit(folder + "/small.parquet", "label")

folder = sys.argv[3]
warm(folder)
if what["file"]:
    path, n = folder + "/rows", what["n_rows"]
    import os
    os.mkdir(path)
    step = 250_000
    for at, first in enumerate(range(0, n, step)):
        rows(min(step, n - first), what["n_texts"], what["n_numbers"]).write_parquet(f"{path}/{at:03}.parquet")
    X, y = path, "label"
else:
    X, y = rows(what["n_rows"], what["n_texts"], what["n_numbers"]), "label"
import gc
gc.collect()
print("ready", flush=True)
sys.stdin.readline()
began = time.perf_counter()
try:
    model = AutoCrossClassifier(quiet=True, **options).fit(X, y)
    outcome = f"{len(model.crosses_)} crosses"
except ValueError as error:
    outcome = f"{type(error).__name__}: {error}"
print(json.dumps([time.perf_counter() - began, outcome]), flush=True)
"""
TIMED: list[dict[str, Any]] = [
    {"name": "5,000 columns", "n_rows": 1000, "n_texts": 2500, "n_numbers": 2500, "n_values": 20, "file": False},
    {"name": "20,000 columns", "n_rows": 300, "n_texts": 10_000, "n_numbers": 10_000, "n_values": 5, "file": False},
    {"name": "2 million rows", "n_rows": 2_000_000, "n_texts": 8, "n_numbers": 6, "n_values": 1000, "file": True},
    {"name": "ordinary", "n_rows": 30_000, "n_texts": 10, "n_numbers": 8, "n_values": 50, "file": False},
    {"name": "many values", "n_rows": 100_000, "n_texts": 6, "n_numbers": 0, "n_values": 60_000, "file": False},
]
SIZED: list[dict[str, Any]] = [
    {"name": "1 million rows", "n_rows": 1_000_000, "n_texts": 10, "n_numbers": 10, "n_values": 1000, "file": True},
    {"name": "3 million rows", "n_rows": 3_000_000, "n_texts": 4, "n_numbers": 8, "n_values": 100, "file": True},
    {"name": "200,000 rows, many values", "n_rows": 200_000, "n_texts": 8, "n_numbers": 8, "n_values": 100_000, "file": True},
    {"name": "2,000 columns", "n_rows": 10_000, "n_texts": 1000, "n_numbers": 1000, "n_values": 20, "file": True},
]


def allocated(pid: int) -> int:
    """Bytes that a process has in memory and that are not pages of a file, which the system may drop."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    facts = dict(line.split(":", 1) for line in lines)
    return sum(int(facts[word].split()[0]) * 1024 for word in ("RssAnon", "RssShmem") if word in facts)


def measured(what: dict[str, Any], options: dict[str, Any], folder: Path) -> tuple[float, str, int]:
    """Seconds from the call of fit to its return, what came of it, and the bytes it had allocated at most beyond those before."""
    arguments = [sys.executable, "-c", PROGRAM, json.dumps(what), json.dumps(options), str(folder)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(arguments, text=True, start_new_session=True, **pipes)
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    try:
        if process.stdout.readline() != "ready\n":
            raise Fault(f"the table could not be made: {process.stderr.read()[-2000:]}")
        before = most = allocated(process.pid)
        print("go", file=process.stdin, flush=True)
        ends = time.monotonic() + LONGEST
        while process.poll() is None and time.monotonic() < ends:
            most = max(most, allocated(process.pid))
            time.sleep(0.005)
        require(process.poll() is not None, f"hangs with {options} on {what['name']}")
        out, err = process.communicate()
        require_no_crash(process.returncode, err.encode(), arguments)
        require(process.returncode == 0, f"exit code {process.returncode}: {said(err.encode())}")
        seconds, outcome = json.loads(out)
        return seconds, outcome, most - before
    finally:
        process.kill()
        process.communicate()


def attack(seed: int, folder: Path) -> None:
    rng = np.random.default_rng(seed)
    timed = seed % 2 == 0
    kinds = TIMED if timed else SIZED
    what = {**kinds[seed // 2 % len(kinds)], "seed": seed}
    limit = float(rng.choice([1, 2, 5, 10, 20])) if timed else float(rng.choice([0.25, 0.5, 1.0, 2.0]))
    options = {"time_limit": limit} if timed else {"memory_limit": limit, "time_limit": 60.0}
    try:
        seconds, outcome, extra = measured(what, options, folder)
    finally:
        for path in [*folder.glob("rows/*.parquet"), *folder.glob("small.parquet")]:
            path.unlink()  # large, and made again from the seed
    note = f"{what['name']}, {options}: {seconds:.1f} s, {extra / 2**30:.2f} GiB, {outcome}"
    (folder / "case.txt").write_text(note)
    print(note, file=sys.stderr, flush=True)
    if timed:
        require(seconds <= 1.1 * limit + 2, f"time_limit not kept: {note}")
    else:
        require(extra <= 1.2 * limit * 2**30, f"memory_limit not kept: {note}")
