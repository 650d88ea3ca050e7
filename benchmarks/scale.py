"""Time and memory by the number of rows, on generated rows of Criteo's shape; and reading and encoding beside polars.

make bench-scale                                        0.1, 1 and 10 million rows
make bench-scale-full                                   Criteo's 45.8 million
.venv/bin/python benchmarks/scale.py --rows 1000000 --folder DIR

Each fit is a process of its own that reads Parquet files. Peak memory is what the system counts for that process, pages of
memory-mapped codes included, and without them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import criteo_like
import polars as pl
from sections import SOURCE, machine, stamp_now, table, write_section

from autocross import AutoCrossClassifier
from autocross.models.metrics import auc

SIZES = (100_000, 1_000_000, 10_000_000)
FULL = 45_840_617
TEST_PART = 10**6  # a part beyond those that are learned from
CROSSES = 10  # in the runs that are compared with each other


def memory(what: str) -> int:
    """KiB of this process. The peak that `resource` tells would be that of the parent, if it was larger."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what))


class Watch(threading.Thread):
    """The most memory of this process's own, looked at ten times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0

    def run(self) -> None:
        while True:
            self.most = max(self.most, memory("RssAnon"))
            time.sleep(0.1)


def fit(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """One fit and what it took: seconds by phase, peak memory in GiB, crosses, AUC on fresh rows."""
    warm = criteo_like.part(0, 3000)
    AutoCrossClassifier(quiet=True, max_crosses=1).fit(warm, "label")  # compile before the clock starts
    watch = Watch()
    watch.start()
    journal = Path(tempfile.mkdtemp()) / "journal.jsonl"
    began = time.perf_counter()
    model = AutoCrossClassifier(quiet=True, journal=str(journal), **options).fit(folder, "label")
    seconds = time.perf_counter() - began
    peak = memory("VmHWM") / 2**20
    test = criteo_like.part(TEST_PART, 200_000)
    label = test["label"].to_numpy()
    found = {frozenset(cross.columns) for cross in model.crosses_}
    missed = [" x ".join(planted) for planted in criteo_like.PLANTED if frozenset(planted) not in found]
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    starts = [(one["phase"], one["seconds"]) for one in events if one["event"] == "PhaseStarted"] + [("", seconds)]
    phases: dict[str, float] = {}
    for (phase, at), (_, then) in pairwise(starts):
        phases[phase] = phases.get(phase, 0.0) + then - at
    return {
        "seconds": seconds,
        "peak": peak,
        "own": watch.most / 2**20,
        "crosses": len(model.crosses_),
        "missed": missed,
        "auc": auc(label, model.decision_function(test), pl.Series(label).cast(pl.Float64).to_numpy() * 0 + 1),
        "phases": phases,
    }


def reading(path: Path) -> tuple[float, float]:
    """Seconds until all rows of a file are read and coded, and those of polars to read it: the best of three turns each."""
    journal = Path(tempfile.mkdtemp()) / "journal.jsonl"
    ours, theirs = [], []
    for _ in range(3):
        AutoCrossClassifier(quiet=True, journal=str(journal), max_crosses=0, time_limit=0.1).fit(path, "label")
        events = [json.loads(line) for line in journal.read_text().splitlines()]
        ours.append(next(one["seconds"] for one in reversed(events) if one.get("phase") == "reading columns" and "step" in one))
        began = time.perf_counter()
        pl.read_csv(path) if path.suffix == ".csv" else pl.read_parquet(path)
        theirs.append(time.perf_counter() - began)
    return min(ours), min(theirs)


def reading_lines(folder: Path) -> list[list[str]]:
    """Reading and encoding a million rows, beside polars reading them."""
    rows = 1_000_000
    criteo_like.write(folder / str(rows), rows)
    parquet, csv = folder / str(rows) / "part-00000.parquet", folder / "rows.csv"
    pl.read_parquet(parquet).write_csv(csv)
    lines = []
    for name, path, aim in (("Parquet", parquet, 0.2), ("CSV", csv, 0.3)):
        ours, theirs = reading(path)
        lines.append([name, f"{ours:.2f}", f"{theirs:.2f}", f"{theirs / ours:.2f}", f"{aim:g}"])
        print(lines[-1], file=sys.stderr, flush=True)
    csv.unlink()
    return lines


def run(folder: Path, rows: int, options: dict[str, Any]) -> dict[str, Any]:
    """The fit in a process of its own."""
    known = criteo_like.write(folder / str(rows), rows)
    command = [sys.executable, __file__, "--fit", str(folder / str(rows)), "--options", json.dumps(options)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(rows, options, found, file=sys.stderr, flush=True)
    return {"rows": rows, "best": known["auc"], **found}


def row_of(one: dict[str, Any]) -> list[str]:
    """A line of the table."""
    share = one["peak"] * 2**30 / one["rows"]
    return [
        f"{one['rows']:,}",
        f"{one['seconds']:.0f}",
        f"{one['seconds'] / one['rows'] * 1e6:.1f}",
        f"{one['peak']:.2f}",
        f"{one['own']:.2f}",
        f"{share:,.0f}",
        str(one["crosses"]),
        ", ".join(one["missed"]) or "none",
        f"{one['auc']:.4f} of {one['best']:.4f}",
    ]


HEAD = [
    "rows",
    "s",
    "us a row",
    "peak GiB",
    "without mapped codes",
    "bytes a row",
    "crosses",
    "planted ones missed",
    "AUC of the best possible",
]


def text_of(fixed: list[dict[str, Any]], default: list[dict[str, Any]], read: list[list[str]]) -> str:
    """The section."""
    ratios = [f"{b['seconds'] / a['seconds']:.1f}" for a, b in pairwise(fixed)]
    steps = "; ".join(f"{name} {seconds:.0f} s" for name, seconds in default[-1]["phases"].items())
    return f"""## Rows of Criteo's shape, by benchmarks/scale.py

One holdout, {CROSSES} crosses, so that the work is the same but for the rows:

{table(HEAD, [row_of(one) for one in fixed])}

Ten times the rows cost {" and ".join(ratios)} times the time. With default options:

{table(HEAD, [row_of(one) for one in default])}

The last one by phase: {steps}.

Reading a million rows and giving them codes, and polars reading the same file, seconds:

{table(["", "ours", "polars", "share of its speed", "aim"], read)}

13 numbers and 26 categories from Parquet files, 2 threads, a process for each fit, kernels compiled before. Planted crosses:
{", ".join(" x ".join(one) for one in criteo_like.PLANTED)}. AUC is on 200,000 fresh rows. ({machine()})
"""


def full_text(one: dict[str, Any]) -> str:
    """The section of the full size."""
    steps = "; ".join(f"{name} {seconds:.0f} s" for name, seconds in one["phases"].items())
    return f"""## Criteo's number of rows, by benchmarks/scale.py --full

{table(HEAD, [row_of(one)])}

By phase: {steps}. Default options, 2 threads. ({machine()})
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory by the number of rows.")
    parser.add_argument("--rows", type=int, nargs="+", default=SIZES)
    parser.add_argument("--full", action="store_true", help=f"{FULL:,} rows instead, default options")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "autocross-scale", help="for the rows; 50 bytes each"
    )
    parser.add_argument("--fit", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--options", type=json.loads, default={}, help=argparse.SUPPRESS)
    given, stamp = parser.parse_args(), stamp_now(SOURCE)
    if given.fit:
        print(json.dumps(fit(given.fit, given.options)))
    elif given.full:
        write_section("scale-full", full_text(run(given.folder, FULL, {})), stamp)
    else:
        read = reading_lines(given.folder)
        fixed = [run(given.folder, rows, {"evaluation": "holdout", "max_crosses": CROSSES}) for rows in given.rows]
        write_section("scale", text_of(fixed, [run(given.folder, rows, {}) for rows in given.rows], read), stamp)


if __name__ == "__main__":
    main()
