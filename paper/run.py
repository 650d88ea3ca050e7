"""Every table and figure of the paper, with its reference methods and today's rivals beside them.

make paper                 all cells; those already in paper/results.jsonl are not run again, so an interrupt loses nothing
make paper-quick           one seed, 10,000 rows of each table, under ten minutes
.venv/bin/python paper/run.py --data FILE.parquet --target COL       any other table, the same way
.venv/bin/python paper/run.py --datasets bank adult --methods "AC+LR" LightGBM
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from methods import METHODS, OTHERS, SLOW, TARGET, Method
from report import write
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "benchmarks"))
import held_out  # noqa: E402
from datasets import NAMES, seeds, split  # noqa: E402
from sections import SOURCE, stamp_now  # noqa: E402

LIMIT = 15 * 60  # seconds of a cell
QUICK_ROWS = 10_000
QUICK_METHODS = [name for name in METHODS if name not in ("EBM", "xDeepFM", "LR, all pairs")]


# One cell.


def rows_of(cell: dict[str, Any]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Training and test rows of a cell."""
    if cell.get("data"):
        frame = pl.read_parquet(cell["data"]).rename({cell["target"]: TARGET})
        train, test = train_test_split(np.arange(frame.height), test_size=1 / 3, random_state=cell["seed"], stratify=frame[TARGET])
        parts = frame[train], frame[test]
    elif cell["dataset"] in held_out.NAMES:
        parts = held_out.split(cell["dataset"])
    else:
        parts = split(cell["dataset"], cell["seed"])
    if cell.get("rows"):
        parts = (parts[0].sample(min(cell["rows"], parts[0].height), seed=cell["seed"]), parts[1])
    return parts


def run_cell(cell: dict[str, Any]) -> dict[str, Any]:
    """Fit, score the test rows, and time both, and a single row."""
    train, test = rows_of(cell)
    method = (METHODS | OTHERS)[cell["method"]]()
    if cell["method"].startswith(("LR", "AC", "CMI")):  # compile before the clock starts
        METHODS["AC+LR"]().fit(train.head(2000))
    began = time.perf_counter()
    method.fit(train)
    seconds = time.perf_counter() - began
    began = time.perf_counter()
    score = method.score(test)
    batch = (time.perf_counter() - began) / test.height
    facts = method.facts() if hasattr(method, "facts") else {}
    auc = float(roc_auc_score(test[TARGET].to_numpy(), score))
    return {"auc": auc, "seconds": seconds, "batch_us": batch * 1e6, "one_us": one_row(method, test) * 1e6, **facts}


def one_row(method: Method, test: pl.DataFrame) -> float:
    """Median seconds of scoring a row on its own, over at most two seconds."""
    rows = test.drop(TARGET).head(200).to_dicts()
    times: list[float] = []
    for row in rows:
        began = time.perf_counter()
        method.score_one(row)
        times.append(time.perf_counter() - began)
        if sum(times) > 2:
            break
    return float(np.median(times))


# All cells.


def key(cell: dict[str, Any]) -> tuple[Any, ...]:
    return (cell["dataset"], cell["method"], cell["seed"], cell.get("rows"), cell.get("data"))


def known(results: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The cells that are finished; what failed, or does not say which code it measured, is run again."""
    lines = results.read_text().splitlines() if results.exists() else []
    return {key(record): record for record in map(json.loads, lines) if "failed" not in record and "commit" in record}


def in_a_process(cell: dict[str, Any], limit: float = LIMIT) -> dict[str, Any]:
    """The cell's record, run in a process of its own, which ends with the limit, in seconds."""
    command = [sys.executable, __file__, "--cell", json.dumps(cell)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, errors = process.communicate(timeout=limit)
    except BaseException as stopped:  # an interrupt as well as the limit: some methods have processes of their own
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(stopped, subprocess.TimeoutExpired):
            return {**cell, "stopped": limit}
        raise
    if process.returncode:
        return {**cell, "failed": errors.strip().splitlines()[-1] if errors.strip() else f"exit {process.returncode}"}
    return {**cell, **json.loads(out.splitlines()[-1])}


def stamped(cell: dict[str, Any]) -> dict[str, Any]:
    """The cell's record, with the code that it measures and when it began."""
    stamp = stamp_now(SOURCE)
    return {**in_a_process(cell), "commit": stamp.newest.commit, "date": stamp.newest.date, "changed": stamp.changed}


def cells(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What to run, the quick methods of all tables first."""
    for method in options.methods:
        for name in [Path(options.data).stem] if options.data else options.datasets:
            own = {"data": options.data, "target": options.target} if options.data else {}
            one_split = options.quick or name in held_out.NAMES
            all_seeds = [0] if one_split else range(5) if options.data else seeds(name)
            for seed in all_seeds[: options.seeds or (2 if method in SLOW else None)]:
                yield {"dataset": name, "method": method, "seed": seed, "rows": QUICK_ROWS if options.quick else None, **own}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Every table and figure of the paper.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--datasets", nargs="+", choices=NAMES + held_out.NAMES, help="by default all, and with --quick the paper's"
    )
    parser.add_argument("--methods", nargs="+", choices=list(METHODS))
    parser.add_argument("--seeds", type=int, help="only the first so many; by default 5, of slow methods 2")
    parser.add_argument("--data", help="a Parquet file of your own")
    parser.add_argument("--target", default=TARGET)
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.cell:
        print(json.dumps(run_cell(json.loads(options.cell))))
        return
    options.datasets = options.datasets or (NAMES if options.quick else NAMES + held_out.NAMES)
    options.methods = options.methods or (QUICK_METHODS if options.quick else list(METHODS))
    if options.data and not Path(options.data).is_file():
        parser.error(f"there is no file {options.data!r}; give the path of a Parquet file")
    own = f"-{Path(options.data).stem}" if options.data else ""  # a table of one's own does not mix with the paper's
    results = HERE / f"results{own}{'-quick' if options.quick else ''}.jsonl"
    finished = known(results)
    too_slow = {(record["dataset"], record["method"]) for record in finished.values() if "stopped" in record}
    todo = [cell for cell in cells(options) if key(cell) not in finished]
    print(f"{len(finished)} cells are known, {len(todo)} to run", file=sys.stderr)
    try:
        for number, cell in enumerate(todo, start=1):
            if (cell["dataset"], cell["method"]) in too_slow:  # on other rows it would be no faster
                continue
            record = stamped(cell)
            if "stopped" in record:
                too_slow.add((cell["dataset"], cell["method"]))
            with results.open("a") as stream:
                stream.write(json.dumps(record) + "\n")
            shown = f"AUC {record['auc']:.4f} in {record['seconds']:.1f} s" if "auc" in record else record.get("failed", "stopped")
            print(
                f"{number}/{len(todo)}  {cell['dataset']}, {cell['method']}, seed {cell['seed']}: {shown}",
                file=sys.stderr,
                flush=True,
            )
    except KeyboardInterrupt:
        print("interrupted; the tables hold what is finished", file=sys.stderr)
    write(list(known(results).values()), quick=options.quick, own=options.data is not None)


if __name__ == "__main__":
    main(sys.argv[1:])
