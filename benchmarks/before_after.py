"""Default fits by the code of two source folders: what a change of the code costs or saves.

.venv/bin/python benchmarks/before_after.py BEFORE/src AFTER/src
.venv/bin/python benchmarks/before_after.py BEFORE/src AFTER/src --tables adult bank --turns 3

Each fit is a process of its own, which first fits a few rows, so that imports and compilation are apart. In each turn both folders
fit the same rows, one right after the other, and which is first changes from turn to turn. The ratio is that of a turn, after over
before; the median of the turns counts. Seconds of the processors are told beside those of the clock: they tell more where others
share the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from datasets import FOLDER
from sections import table

FILES = {"adult": "adult_train", "bank": "bank", "credit": "credit", "employee": "employee"}
MOST_ROWS = 20_000  # of Credit, the largest
TURNS = 5
SMALL = 2000
NAMES = ("before", "after")

# Run in a process of its own.
CHILD = """
import hashlib, json, sys, time, warnings
from pathlib import Path
import numpy as np
import polars as pl
import autocross
from autocross import AutoCrossClassifier

source, path, most_rows, n_small = sys.argv[1:]
warnings.simplefilter("ignore")  # of columns that are constant in a few rows
assert Path(autocross.__file__).is_relative_to(source), f"{autocross.__file__} is not in {source}"
rows = pl.read_parquet(path).head(int(most_rows))
AutoCrossClassifier(quiet=True).fit(rows.head(int(n_small)), "label")
began, of_processors = time.perf_counter(), time.process_time()
model = AutoCrossClassifier(quiet=True).fit(rows, "label")
seconds, of_processors = time.perf_counter() - began, time.process_time() - of_processors
scores = hashlib.sha256(np.ascontiguousarray(model.decision_function(rows)).tobytes()).hexdigest()
print(json.dumps({"clock": seconds, "processors": of_processors, "crosses": len(model.crosses_), "scores": scores}))
"""


def fit(source: Path, name: str) -> dict[str, Any]:
    """One fit by the code of a folder: its seconds by the clock and of the processors, its crosses, and a hash of its scores."""
    most_rows = MOST_ROWS if name == "credit" else sys.maxsize
    command = [sys.executable, "-c", CHILD, str(source), str(FOLDER / f"{FILES[name]}.parquet"), str(most_rows), str(SMALL)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(source)}, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compared(sources: dict[str, Path], name: str, n_turns: int) -> list[str]:
    """A line of the table."""
    for source in sources.values():
        fit(source, name)  # compiles, where the folder has no compiled code yet, and brings the file into memory
    turns = []
    for number in range(n_turns):
        order = NAMES if number % 2 == 0 else NAMES[::-1]
        turn = {which: fit(sources[which], name) for which in order}
        turns.append(turn)
        seconds = ", ".join(f"{which} {turn[which]['clock']:.2f} s" for which in NAMES)
        print(f"{name}, turn {number + 1}: {seconds}; load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    line = [name.capitalize(), str(turns[0]["after"]["crosses"])]
    for clock in ("clock", "processors"):
        line += [f"{median(turn[which][clock] for turn in turns):.2f}" for which in NAMES]
        line.append(f"{median(turn['after'][clock] / turn['before'][clock] for turn in turns):.3f}")
    same = len({turn[which]["scores"] for turn in turns for which in NAMES}) == 1
    return [*line, "yes" if same else "NO"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Default fits by the code of two source folders.")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--tables", nargs="+", choices=list(FILES), default=list(FILES))
    parser.add_argument("--turns", type=int, default=TURNS)
    given = parser.parse_args()
    sources = {which: getattr(given, which).resolve() for which in NAMES}
    for source in sources.values():
        if not (source / "autocross" / "__init__.py").is_file():
            parser.error(f"there is no package autocross in {str(source)!r}; give the folder that it lies in, such as src")
    lines = [compared(sources, name, given.turns) for name in given.tables]
    head = ["", "crosses", "s before", "s after", "ratio", "processor s before", "processor s after", "ratio", "same scores"]
    print(table(head, lines))


if __name__ == "__main__":
    main()
