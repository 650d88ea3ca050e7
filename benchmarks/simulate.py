"""What a fit would take on more workers than are at hand.

.venv/bin/python benchmarks/simulate.py                 print the tables
.venv/bin/python benchmarks/simulate.py --write         and write them into docs/benchmarks.md

Reads what benchmarks/cluster.py measured: every call of fits to the same rows with 1, 2 and 4 workers, by
messages of Ray. A fit is its calls, one after the other, and what the driver does between them. With W workers, each on a core of
its own, a call is taken to last

    latency + W * submit              the driver sends it and collects the answers; fitted to the runs with 1 and 2 workers
    + busy / W                        the work, from the same call of the run with 1 worker
    + call * hops / bandwidth         through the object store, from machine to machine; a small call W times instead
    + answers                         of all workers to the driver, which adds them up; large sums by shards, see engines/cluster.py

The run with 4 workers takes no part in the fit of these numbers: it is the check.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from time import thread_time
from typing import Any, NamedTuple

import numpy as np
from sections import Stamp, machine, stamp_in, table, write_section

from autocross.engines.cluster import INLINE, SHARDED, WORKERS_A_SHARD
from autocross.fitting.run import BLOCK_ROWS, n_lots

TRACE = Path(__file__).parent / "cluster-trace.json"
FITTED = (1, 2)  # workers of the runs that the numbers are fitted to
WORKERS = (1, 2, 10, 100, 1000)
MORE_ROWS = 100  # times the measured ones
LISTS = {"looked", "filled", "distinct", "left_out"}  # tasks whose answers are no sums: shards cannot add them up


# What was measured.


class Call(NamedTuple):
    """A call of the engine: seconds from sending it to its sum, seconds of the workers, and bytes."""

    task: str
    wall: float
    busiest: float
    mean: float
    call_bytes: float
    reply_bytes: float  # of all workers


@dataclass(frozen=True)
class Run:
    """A fit with some number of workers."""

    seconds: float
    calls: Sequence[Call]

    @property
    def between(self) -> float:
        """Seconds that the driver worked between calls."""
        return max(0.0, self.seconds - sum(call.wall for call in self.calls))


@dataclass(frozen=True)
class Trace:
    """Fits to the same rows, by the number of workers; bytes a second from process to process."""

    rows: int
    cores: int
    bandwidth: float
    runs: Mapping[int, Run]
    stamp: Stamp


def load(path: Path) -> Trace:
    """Read a trace."""
    if not path.exists():
        raise SystemExit(f"There is no trace {str(path)!r}. Measure one with benchmarks/cluster.py, or give another by --trace.")
    found: dict[str, Any] = json.loads(path.read_text())
    runs = {int(n): Run(run["seconds"], [Call(*call) for call in run["calls"]]) for n, run in found["runs"].items()}
    absent = [n for n in FITTED if n not in runs]
    if absent:
        raise SystemExit(f"The trace {str(path)!r} has no run with {absent[0]} workers. Measure it with benchmarks/cluster.py.")
    stamp = stamp_in(found.get("stamp", ""))
    if stamp is None:
        raise SystemExit(f"The trace {str(path)!r} does not say which code it measured. Measure it with benchmarks/cluster.py.")
    return Trace(found["rows"], found["cores"], found["bandwidth"], runs, stamp)


# The model.


@dataclass(frozen=True)
class Work:
    """A call, apart from how many workers there are. The answers of W workers have ``fixed`` + W * ``each`` bytes: what is told by
    rows is spread over the workers, what is told by codes comes from each of them."""

    busy: float
    call_bytes: float
    fixed: float
    each: float
    is_sum: bool


@dataclass(frozen=True)
class Costs:
    """Seconds of a call and of a worker's part in it; bytes a second from process to process, and as the driver adds them up."""

    latency: float
    submit: float
    bandwidth: float
    adding: float


@dataclass(frozen=True)
class Spent:
    """Seconds by what they went into."""

    computing: float = 0.0
    moving: float = 0.0
    waiting: float = 0.0
    driver: float = 0.0

    @property
    def total(self) -> float:
        return self.computing + self.moving + self.waiting + self.driver

    def shares(self) -> list[str]:
        parts = (self.computing, self.moving, self.waiting, self.driver)
        return [f"{100 * part / self.total:.0f} %" if self.total else "" for part in parts]


def works(trace: Trace) -> list[Work]:
    """The calls of the run with one worker; how their answers grow is told by the run with two."""
    of_two = dict(numbered(trace.runs[2].calls))
    found = []
    for key, call in numbered(trace.runs[1].calls):
        twice = of_two[key].reply_bytes if key in of_two else 2 * call.reply_bytes
        each = min(max(twice - call.reply_bytes, 0.0), call.reply_bytes)
        found.append(Work(call.mean, call.call_bytes, call.reply_bytes - each, each, call.task not in LISTS))
    return found


def numbered(calls: Iterable[Call]) -> Iterable[tuple[tuple[str, int], Call]]:
    """Calls by their task and how often it was called before. Passes over files take fewer calls the smaller the shares are."""
    seen: Counter[str] = Counter()
    for call in calls:
        seen[call.task] += 1
        yield (call.task, seen[call.task]), call


def n_shards(work: Work, n_workers: int) -> int:
    """How many shards add up the answers; none where they go to the driver."""
    by_shards = work.is_sum and n_workers > 1 and n_workers * work.each >= SHARDED
    return math.ceil(n_workers / WORKERS_A_SHARD) if by_shards else 0


def moving(work: Work, n_workers: int, costs: Costs) -> float:
    """Seconds in which bytes of a call are under way or added up."""
    large = work.call_bytes >= INLINE
    copies = math.ceil(math.log2(n_workers + 1)) if large else n_workers
    there = copies * work.call_bytes / costs.bandwidth
    if shards := n_shards(work, n_workers):
        # A shard hears its part from all workers, side by side with the others; then the driver hears all parts.
        heard = n_workers / shards * work.each
        return there + heard / costs.bandwidth + heard / costs.adding + (work.fixed + work.each) / costs.bandwidth
    heard = n_workers * work.each
    return there + (work.fixed + heard) / costs.bandwidth + heard / costs.adding


def waiting(work: Work, n_workers: int, costs: Costs) -> float:
    """Seconds that a call takes however little there is to do. Each worker tells every shard, and the driver asks one by one."""
    return costs.latency + n_workers * costs.submit + n_shards(work, n_workers) * (costs.submit + costs.latency)


def simulate(trace: Trace, costs: Costs, n_workers: int, *, times_rows: float = 1.0, cores: int | None = None) -> Spent:
    """A fit with so many workers, on so many cores if these are fewer. Work grows with the rows, bytes do not."""
    side_by_side, slower = n_workers, 1.0
    if cores is not None and n_workers > 1:  # cores of one machine share its memory
        side_by_side, slower = min(n_workers, cores), crowding(trace)
    calls = works(trace)
    return Spent(
        sum(work.busy for work in calls) * times_rows / side_by_side * slower,
        sum(moving(work, n_workers, costs) for work in calls),
        sum(waiting(work, n_workers, costs) for work in calls),
        trace.runs[1].between,
    )


# Its numbers.


def crowding(trace: Trace) -> float:
    """How much longer the same work takes where two workers do it side by side on one machine."""
    return 2 * sum(call.busiest for call in trace.runs[2].calls) / sum(call.busiest for call in trace.runs[1].calls)


def fitted(trace: Trace) -> Costs:
    """Latency and submit from the means, over calls, of what neither work nor bytes explain."""
    costs = Costs(0.0, 0.0, trace.bandwidth, adding_speed())
    known = dict(zip((key for key, _ in numbered(trace.runs[1].calls)), works(trace), strict=True))
    rest = [fmean(unexplained(trace.runs[n], n, known, costs)) for n in FITTED]
    (latency, submit), *_ = np.linalg.lstsq(np.array([[1.0, n] for n in FITTED]), np.array(rest), rcond=None)
    if submit < 0:  # noise: on so few workers a part of its own cannot be told from none
        latency, submit = np.mean(rest), 0.0
    if latency < 0:
        latency, submit = 0.0, np.mean([one / n for one, n in zip(rest, FITTED, strict=True)])
    return replace(costs, latency=max(0.0, float(latency)), submit=max(0.0, float(submit)))


def unexplained(run: Run, n_workers: int, known: Mapping[tuple[str, int], Work], costs: Costs) -> list[float]:
    """Seconds of each call beyond the busiest worker's and those of its bytes."""
    return [
        call.wall - call.busiest - moving(known[key], n_workers, costs) for key, call in numbered(run.calls) if key in known
    ] or [0.0]


def adding_speed() -> float:
    """Bytes a second at which sums are added up, here and now."""
    total, part = np.zeros(1 << 21, np.int64), np.arange(1 << 21)  # more than the cache holds

    def once() -> float:
        began = thread_time()  # other work on the machine does not count
        np.add(total, part, out=total)
        return thread_time() - began

    return part.nbytes / min(once() for _ in range(20))


# What is told.


def check_table(trace: Trace, costs: Costs) -> str:
    """Measured and simulated, on the cores there were."""
    rows = []
    for n, run in sorted(trace.runs.items()):
        found = simulate(trace, costs, n, cores=trace.cores).total
        part = "fitted to" if n in FITTED else "check"
        rows.append([str(n), f"{run.seconds:.1f}", f"{found:.1f}", f"{found / run.seconds:.2f}", part])
    return table(["workers", "measured s", "simulated s", "ratio", ""], rows)


def prediction_table(trace: Trace, costs: Costs, times_rows: int) -> str:
    """Seconds by the number of workers, each on a core of its own."""
    alone = simulate(trace, costs, 1, times_rows=times_rows).total
    rows = []
    for n in WORKERS:
        at_work = n_lots(times_rows * trace.rows, n)
        found = simulate(trace, costs, at_work, times_rows=times_rows)
        speed_up = f"{alone / found.total:.1f}" if found.total else ""
        rows.append([str(n), str(at_work), f"{found.total:.1f}", speed_up, *found.shares()])
    return table(["workers", "at work", "s", "speed-up", "computing", "moving bytes", "latency", "driver alone"], rows)


def section(trace: Trace, costs: Costs) -> str:
    """The section of docs/benchmarks.md."""
    return f"""## More workers than are at hand, by benchmarks/simulate.py

A simulation, not a measurement. It takes the {len(trace.runs[1].calls):,} calls of a fit to {trace.rows:,} rows as
benchmarks/cluster.py measured them with one worker, and asks what each would take with more. A call costs
{1000 * costs.latency:.2f} ms and {1000 * costs.submit:.2f} ms a worker, fitted to the runs with 1 and 2 workers; bytes move at
{costs.bandwidth / 1e6:,.0f} MB/s, as measured between processes of one machine, and are added up at {costs.adding / 1e6:,.0f} MB/s.
The check, on {trace.cores} cores, which more workers share (side by side their work takes {crowding(trace):.2f} times as long):

{check_table(trace, costs)}

Each worker on a core of its own, {trace.rows:,} rows:

{prediction_table(trace, costs, 1)}

{MORE_ROWS * trace.rows:,} rows:

{prediction_table(trace, costs, MORE_ROWS)}

A worker has {BLOCK_ROWS:,} rows at least, so that of many workers few rows leave some without work. With more rows all work is
taken to grow with them: too much for rungs of a fixed size and for penalties chosen on a sample. Bytes and calls are taken not to
grow: too little where more rows bring more values or more rungs. Left out: workers slower than others, workers that are lost,
starting the cluster, a network slower than the bandwidth above. ({machine()})
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="What a fit would take on more workers than are at hand.")
    parser.add_argument("--trace", type=Path, default=TRACE, help="what benchmarks/cluster.py measured")
    parser.add_argument("--write", action="store_true", help="write the section of docs/benchmarks.md")
    arguments = parser.parse_args()
    trace = load(arguments.trace)
    text = section(trace, fitted(trace))
    print(text)
    if arguments.write:
        write_section("cluster-simulation", text, trace.stamp)


if __name__ == "__main__":
    main()
