"""The same fit on threads and on a Ray cluster of this machine: time, bytes, lost and slow workers.

make bench-cluster                                      2 million generated rows; writes docs/benchmarks.md
.venv/bin/python benchmarks/cluster.py --rows 200000

Each fit is a process of its own. Start-up (Ray, hiring workers, compiled kernels) is apart: a small fit on the same engine comes
first, and the seconds until workers are there do not count. What every call took is written to benchmarks/cluster-trace.json,
which benchmarks/simulate.py reads.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # stay on the loopback interface

import criteo_like
import numpy as np
from sections import SOURCE, machine, stamp_now, table, write_section

from autocross.events import CandidatesRanked, Event, PhaseStarted, Reporter, WorkersCounted
from autocross.fitting import fit as fitting
from autocross.interrupts import Interrupt
from autocross.options import Options
from autocross.table.ingest import source_of

TRACE = Path(__file__).parent / "cluster-trace.json"
ROWS = 2_000_000
SLOW = 0.02  # seconds in which a slowed worker stands still, and then works, in turn
FITS: dict[str, tuple[str, int | None]] = {
    "threads 2": ("threads", 2),
    "ray 2": ("ray", 2),
    "ray None": ("ray", None),
    "ray 4": ("ray", 4),
}
IN_TURNS, TURNS = ("threads 2", "ray 2"), 2  # what is compared: the machine may be slower for a while
TRACED = (1, 2, 4)  # workers
MESSAGES = "by messages of Ray"  # as between machines
TOURNAMENT = ("lay_out", "gather", "judge")


class Watched:
    """A fit on Ray with everything that its engine does noted. What happens to workers is said by ``at``."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = Options(**options)
        self.events: list[Event] = []
        self.calls: list[tuple[str, float, float, float, int, int]] = []
        self.replaced: list[float] = []
        self.hiring = 0.0
        self.at: Callable[[Event], None] = lambda event: None
        self.through_memory = True
        self.engine: Any = None
        if self.options.engine == "ray":
            self.watch()

    def watch(self) -> None:
        from autocross.engines import cluster

        engine = cluster.RayEngine
        init, call, replace, place = engine.__init__, engine.call, engine.replace, engine.place

        def timed_place(this: Any, blocks: Any) -> None:
            began = time.perf_counter()
            place(this, blocks)
            self.hiring += time.perf_counter() - began

        def start(this: Any, *args: Any) -> None:
            init(this, *args)
            this.at_home = self.through_memory
            self.engine = this

        def timed_call(this: Any, kind: str, task: Any, args: Any) -> Any:
            before, moved, began = list(this.busy), this.moved, time.perf_counter()
            found = call(this, kind, task, args)
            busy = [now - then for now, then in zip(this.busy, before, strict=True)]
            sent = len(pickle.dumps((kind, task, args), 5)) * len(busy)
            wall = time.perf_counter() - began
            self.calls.append((task.__name__, wall, max(busy), float(np.mean(busy)), sent, this.moved - moved - sent))
            return found

        def timed_replace(this: Any, number: int) -> None:
            began = time.perf_counter()
            replace(this, number)
            self.replaced.append(time.perf_counter() - began)

        engine.__init__, engine.call, engine.replace = start, timed_call, timed_replace  # type: ignore[method-assign]
        engine.place = timed_place  # type: ignore[method-assign]

    def run(self, rows: Any) -> dict[str, Any]:
        """The fit, and the seconds it took."""
        began = time.perf_counter()
        reporter = Reporter([self.events.append, lambda event: self.at(event)])
        model = fitting.fit(source_of(rows, "label", None, self.options), self.options, reporter, Interrupt())
        seconds = time.perf_counter() - began
        crosses = [" x ".join(cross.columns) for cross in model.about.crosses]
        weights = [model.intercept, *(float(weight.sum()) for weight in model.weights)]
        return {"seconds": seconds - self.hiring, "crosses": crosses, "weights": weights}

    def moved(self) -> list[dict[str, Any]]:
        counted = [event for event in self.events if isinstance(event, WorkersCounted)]
        return [{"after": event.after, "bytes": event.moved_since} for event in counted]


def fit(folder: str, options: dict[str, Any], what: str) -> dict[str, Any]:
    """One fit in this process, after a small one on the same engine."""
    if options["engine"] == "ray":
        # Its workers compile nothing anew, and the clock starts when they are there.
        from autocross.engines import cluster

        cluster.connect(None, options["n_jobs"])
        cluster.RayEngine.close = lambda self: cluster.dismiss([*(line.worker for line in self.workers), *self.shards])  # type: ignore[method-assign]
        cluster.connect = lambda address, n_jobs: True  # type: ignore[assignment]
    small = Watched({**options, "max_crosses": 1})
    small.run(criteo_like.part(0, 60_000))
    watched = Watched(options)
    watched.through_memory = what != MESSAGES
    if what == "killed":
        watched.at = kill_twice(watched)
    if what == "slow":
        watched.at = slow_down(watched)
    found = watched.run(Path(folder))
    if options["engine"] == "ray":
        found |= {"calls": watched.calls, "replaced": watched.replaced, "moved": watched.moved()}
    return found


def kill_twice(watched: Watched) -> Callable[[Event], None]:
    """One worker is lost when it has only read its rows, and again in the second round."""
    left = ["choosing granularities", "round 2"]

    def at(event: Event) -> None:
        now = (
            event.phase
            if isinstance(event, PhaseStarted)
            else f"round {event.round}"
            if isinstance(event, CandidatesRanked)
            else ""
        )
        if now in left:
            left.remove(now)
            os.kill(watched.engine.processes[1], signal.SIGKILL)

    return at


def slow_down(watched: Watched) -> Callable[[Event], None]:
    """Once rows are read, one worker stands still half of the time."""

    def stutter() -> None:
        while True:
            for action in (signal.SIGSTOP, signal.SIGCONT):
                try:
                    os.kill(watched.engine.processes[1], action)
                except (ProcessLookupError, KeyError):
                    return
                time.sleep(SLOW)

    def at(event: Event) -> None:
        if isinstance(event, PhaseStarted) and event.phase == "choosing granularities":
            threading.Thread(target=stutter, daemon=True).start()

    return at


def run(folder: Path, engine: str, n_jobs: int | None, what: str = "") -> dict[str, Any]:
    """A fit in a process of its own."""
    options = json.dumps({"engine": engine, "n_jobs": n_jobs, "max_crosses": 6 if what in ("killed", "slow") else None})
    command = [sys.executable, __file__, "--fit", str(folder), "--options", options, "--what", what]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"{engine} {n_jobs} {what}: {found['seconds']:.1f} s", file=sys.stderr, flush=True)
    return found


def tournament(found: dict[str, Any]) -> tuple[float, float]:
    """Seconds of all tournaments, and of the busiest worker in them."""
    calls = [call for call in found["calls"] if call[0] in TOURNAMENT]
    return sum(call[1] for call in calls), sum(call[2] for call in calls)


def text_of(n_rows: int, runs: dict[str, dict[str, Any]]) -> str:
    """The section."""
    plain = runs["threads 2"]
    lines = []
    for name in [*FITS, *(f"ray {n} {MESSAGES}" for n in TRACED)]:
        one = runs[name]
        same = one["crosses"] == plain["crosses"] and one["weights"] == plain["weights"]
        calls = one.get("calls", [])
        waited = f"{sum(call[1] - call[2] for call in calls) / len(calls) * 1e3:.1f}" if calls else ""
        moved = f"{sum(part['bytes'] for part in one['moved']) / 2**20:,.0f}" if calls else ""
        ratio = f"{one['seconds'] / plain['seconds']:.2f}"
        shown = name.replace("ray None", "ray, one worker with 2 threads (default)").replace(MESSAGES, f"({MESSAGES})")
        lines.append([shown, f"{one['seconds']:.1f}", ratio, "yes" if same else "NO", f"{len(calls):,}", waited, moved])
    rounds = ", ".join(f"{part['after']} {part['bytes'] / 2**20:,.0f}" for part in runs["ray 2"]["moved"])
    reload, later = runs["killed"]["replaced"]
    wall, own = tournament(runs["slow"])
    usual, usual_own = tournament(runs["ray 2"])
    head = ["engine and workers", "s", "over threads", "same model", "calls", "ms a call beyond the work", "MiB moved"]
    return f"""## A Ray cluster on this machine, by benchmarks/cluster.py

{n_rows:,} generated rows of Criteo's shape from Parquet files, default options, start-up apart. Calls go through memory, as they do
where the cluster is one machine, or by messages of Ray, as they do between machines. The first two lines are the best of {TURNS}
turns (aim of their ratio: 1.3), the others ran once:

{table(head, lines)}

MiB moved with two workers, by phase: {rounds}.

A worker killed when it had only read its rows was back after {reload:.1f} s: that is its reload. One killed in the second round
was back, where it had been, after {later:.1f} s: {later / reload:.2f} times its reload (aim 1.5).

One worker of two that stands still half of the time: tournaments of the first rounds took {wall:.1f} s, of which it worked {
        own:.1f} s
itself, so a rung took {max(0.0, wall / own - 1):.0%} beyond the work of its slowest worker; in a usual run {
        max(0.0, usual / usual_own - 1):.0%} ({usual:.1f} s and {usual_own:.1f} s in all rounds).

Four workers share two cores here. ({machine()})
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="The same fit on threads and on Ray.")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "autocross-scale", help="for the rows")
    parser.add_argument("--fit", help=argparse.SUPPRESS)
    parser.add_argument("--options", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--what", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fit:
        print(json.dumps(fit(given.fit, given.options, given.what)))
        return
    folder = given.folder / str(given.rows)
    stamp = stamp_now(SOURCE)
    criteo_like.write(folder, given.rows)
    turns = [{name: run(folder, *FITS[name]) for name in IN_TURNS} for _ in range(TURNS)]
    runs = {name: min((turn[name] for turn in turns), key=lambda one: float(one["seconds"])) for name in IN_TURNS}
    runs |= {name: run(folder, engine, n) for name, (engine, n) in FITS.items() if name not in IN_TURNS}
    traced = {n: run(folder, "ray", n, MESSAGES) for n in TRACED}
    runs |= {f"ray {n} {MESSAGES}": one for n, one in traced.items()}
    trace = {n: {"seconds": one["seconds"], "calls": one["calls"]} for n, one in traced.items()}
    facts = {"rows": given.rows, "cores": os.cpu_count(), "bandwidth": bandwidth(), "runs": trace, "stamp": stamp.words()}
    TRACE.write_text(json.dumps(facts))
    runs |= {what: run(folder, "ray", 2, what) for what in ("killed", "slow")}
    write_section("cluster", text_of(given.rows, runs), stamp)


def bandwidth() -> float:
    """Bytes a second that go through the object store from one process to another."""
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    size = 16 << 20
    fetch = ray.remote(lambda: np.zeros(size, np.uint8))
    ray.get(fetch.remote())
    began = time.perf_counter()
    for _ in range(10):
        ray.get(fetch.remote()).sum()
    seconds = time.perf_counter() - began
    ray.shutdown()
    return 10 * size / seconds


if __name__ == "__main__":
    main()
