"""The search on a real Ray cluster of several nodes on this machine: the same answer, whatever happens to workers."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # stay on the loopback interface

import numpy as np
import polars as pl
import pytest

from autocross import AutoCrossClassifier
from autocross.errors import EngineError, FileError, LabelError, MissingLibraryError, OptionError, TableError
from autocross.events import CandidatesRanked, CrossTried, Event, PhaseStarted, Reporter, WorkersCounted
from autocross.fitting import fit as fitting
from autocross.interrupts import Interrupt
from autocross.options import Options
from autocross.producer import bundle
from autocross.producer.model import Model
from autocross.search import policy, statistics
from autocross.search.policy import AUTO
from autocross.table.source import InMemory, Part
from conftest import Steer, steered
from costly_misses import COSTLY_MISSES
from test_statistics import ids

pytest.importorskip("ray", reason="Ray is not installed")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import ray
    from ray.cluster_utils import Cluster

from autocross.engines import cluster as engines

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

REAL = engines.RayEngine
FAST = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_failure_threshold": 3}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    """Two nodes with two cores each, whose workers can import what is beside this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False, "_system_config": FAST})
        made.add_node(num_cpus=2)
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def people(people: pl.DataFrame) -> pl.DataFrame:
    """Fewer columns: a call to an actor takes milliseconds."""
    return people.drop("rooms", "member")


@pytest.fixture(autouse=True)
def small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autocross.fitting.run.BLOCK_ROWS", 50)


def rows_of(people: pl.DataFrame) -> InMemory:
    """The rows, with weights that are no whole numbers."""
    weight = np.random.default_rng(0).random(people.height).astype(np.float32)
    return InMemory(Part(people.drop("bought"), people["bought"].to_numpy(), weight), "bought")


class Fit:
    """A fit whose engine and events can be looked at, and met with misfortune."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at_home: bool = False, **options: Any) -> None:
        self.options = Options(**{"max_crosses": 2, "engine": "ray", "n_jobs": 2, **options})
        self.events: list[Event] = []
        self.engine: engines.RayEngine
        self.at: Callable[[Event], None] = lambda event: None

        def keep(*args: Any) -> engines.RayEngine:
            self.engine = REAL(*args)
            self.engine.at_home = at_home
            return self.engine

        monkeypatch.setattr(engines, "RayEngine", keep)
        monkeypatch.setattr(policy, "AUTO", steered(policy.AUTO, first_errors=-9.0, errors=-9.0))  # crosses are accepted

    def run(self, source: Any) -> Model:
        return fitting.fit(source, self.options, Reporter([self.events.append, self.tell]), Interrupt())

    def tell(self, event: Event) -> None:
        self.at(event)

    def kill(self, worker: int) -> None:
        """End the process of a worker, as the system would."""
        os.kill(self.engine.processes[worker], signal.SIGKILL)

    def counted(self) -> list[WorkersCounted]:
        return [event for event in self.events if isinstance(event, WorkersCounted)]


def saved(model: Model) -> bytes:
    """The file of a model."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.acx"
        bundle.save(model, path)
        return path.read_bytes()


def same(one: Model, other: Model) -> None:
    """Models that are equal to the bit."""
    assert one.about.crosses == other.about.crosses
    assert one.about.n_rows == other.about.n_rows
    assert (one.intercept, one.penalties, one.about.score) == (other.intercept, other.penalties, other.about.score)
    for ours, theirs in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert saved(one) == saved(other)


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Fit]:
    return lambda *at_home, **options: Fit(monkeypatch, *at_home, **options)


def of_threads(people: pl.DataFrame, fit: Callable[..., Fit], **options: Any) -> Model:
    """What the answer must be."""
    model = fit(engine="threads", n_jobs=2, **options).run(rows_of(people))
    assert max(record["crosses"] for record in model.about.history) == 2  # that were found; one may have been taken out again
    return model


# The same answer.


@pytest.mark.parametrize("at_home", [False, True])
@pytest.mark.parametrize(
    ("n_workers", "evaluation"), [(1, "kfold"), (2, "holdout"), (4, "kfold"), (4, "holdout"), (None, "kfold"), (None, "holdout")]
)
def test_any_number_of_workers_gives_the_answer_of_threads(
    nodes: Cluster, people: pl.DataFrame, fit: Callable[..., Fit], n_workers: int | None, evaluation: str, at_home: bool
) -> None:
    """By default there is a worker for each machine, with a thread for each of its cores."""
    ours = fit(at_home, n_jobs=n_workers, evaluation=evaluation)
    same(ours.run(rows_of(people)), of_threads(people, fit, evaluation=evaluation))
    last = ours.counted()[-1]
    assert (last.workers, last.blocks, last.lost) == ((2, 4, 0) if n_workers is None else (n_workers, n_workers, 0))
    assert last.moved > 0


@pytest.mark.parametrize("evaluation", ["kfold", "holdout"])
def test_statistics_are_the_same_even_if_a_worker_is_lost(
    nodes: Cluster, fit: Callable[..., Fit], monkeypatch: pytest.MonkeyPatch, evaluation: str
) -> None:
    frame = ids(1500)
    rows = InMemory(Part(frame.drop("granted"), frame["granted"].to_numpy(), np.ones(frame.height, np.float32)), "granted")
    threads = fit(engine="threads", max_crosses=None, evaluation=evaluation)
    ours = fit(max_crosses=None, evaluation=evaluation)
    assert AUTO.statistics is not None
    certain = replace(AUTO.statistics.trial, first_errors=None, errors=None, lift=-1.0)
    monkeypatch.setattr(policy, "AUTO", replace(AUTO, statistics=replace(AUTO.statistics, trial=certain)))

    def lose_one(event: Event) -> None:
        if isinstance(event, PhaseStarted) and event.phase in (statistics.PHASE, "fitting all rows"):
            ours.kill(0)

    ours.at = lose_one
    found = ours.run(rows)
    assert any(cross.kind == "statistic" for cross in found.about.crosses)
    same(found, threads.run(rows))
    assert ours.engine.lost == 2


@pytest.fixture
def files(people: pl.DataFrame, tmp_path: Path) -> Path:
    """Files and row groups of uneven size."""
    folder = tmp_path / "rows"
    folder.mkdir()
    for at, (first, last) in enumerate([(0, 30), (30, 290), (290, 400)]):
        people[first:last].write_parquet(folder / f"{at}.parquet", row_group_size=100)
    return folder


@pytest.mark.parametrize("at_url", [False, True], ids=["path", "url"])
def test_workers_read_their_own_files(
    nodes: Cluster, people: pl.DataFrame, files: Path, at_url: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are never read by the driver, and workers need no folder of its."""
    monkeypatch.setattr("autocross.table.batches.batches", None)
    monkeypatch.setattr("autocross.table.remote.Remote.whole", None)
    where = files.as_uri() if at_url else files
    found = AutoCrossClassifier(engine="ray", n_jobs=3, quiet=True).fit(where, "bought").model_
    monkeypatch.undo()
    same(found, AutoCrossClassifier(quiet=True, engine="serial").fit(people, "bought").model_)


def test_a_csv_file_is_read_in_shares(nodes: Cluster, people: pl.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    people.drop("tags").with_columns(pl.col("age").cast(pl.String).str.replace(".", ",", literal=True)).write_csv(
        path, separator=";"
    )
    found = AutoCrossClassifier(engine="ray", n_jobs=2, quiet=True).fit(path, "bought").model_
    same(found, AutoCrossClassifier(quiet=True, engine="serial").fit(path, "bought").model_)


@pytest.mark.parametrize("options", [{"groups": "job"}, {"time": "born"}, {"time": "born", "split": "forward"}], ids=str)
def test_groups_and_times_reach_all_workers(nodes: Cluster, people: pl.DataFrame, options: dict[str, Any]) -> None:
    rows = people.drop_nulls()
    found = AutoCrossClassifier(engine="ray", n_jobs=3, quiet=True, **options).fit(rows, "bought").model_
    same(found, AutoCrossClassifier(quiet=True, engine="serial", **options).fit(rows, "bought").model_)


def test_sums_may_go_by_shards(
    nodes: Cluster, people: pl.DataFrame, fit: Callable[..., Fit], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "SHARDED", 64)  # nearly all sums
    monkeypatch.setattr(engines, "WORKERS_A_SHARD", 2)
    ours = fit(n_jobs=4)
    same(ours.run(rows_of(people)), of_threads(people, fit))


def test_a_model_is_refitted_by_workers(nodes: Cluster, people: pl.DataFrame) -> None:
    ours = AutoCrossClassifier(engine="ray", n_jobs=2, quiet=True).fit(people, "bought").refit(people[:300], "bought")
    theirs = AutoCrossClassifier(quiet=True).fit(people, "bought").refit(people[:300], "bought")
    same(ours.model_, theirs.model_)


# Faults.


class At:
    """Does something once, at the event for which it waits."""

    def __init__(self, kind: type[Event], do: Callable[[], None], **facts: Any) -> None:
        self.kind, self.do, self.facts, self.done = kind, do, facts, False

    def __call__(self, event: Event) -> None:
        found = isinstance(event, self.kind) and all(getattr(event, name) == value for name, value in self.facts.items())
        if found and not self.done:
            self.done = True
            self.do()


@pytest.mark.parametrize(("evaluation", "at_home"), [("kfold", False), ("holdout", False), ("kfold", True)])
def test_workers_killed_at_chosen_moments_change_nothing(
    nodes: Cluster, people: pl.DataFrame, fit: Callable[..., Fit], evaluation: str, at_home: bool
) -> None:
    ours = fit(at_home, n_jobs=3, evaluation=evaluation)
    plans = [
        At(PhaseStarted, lambda: ours.kill(0), phase="choosing granularities"),
        At(PhaseStarted, lambda: ours.kill(2), phase="tuning penalties"),
        At(CandidatesRanked, lambda: ours.kill(1), round=1, rung=1),
        At(CrossTried, lambda: ours.kill(1), accepted=True),
        At(PhaseStarted, lambda: (ours.kill(0), ours.kill(2)), phase="fitting all rows"),
    ]
    ours.at = lambda event: [plan(event) for plan in plans]
    model = ours.run(rows_of(people))
    assert all(plan.done for plan in plans)
    assert ours.engine.lost == 6
    gc.collect()
    left = map(os.path.realpath, Path("/proc/self/fd").iterdir())
    assert not [file for file in left if "autocross-" in file]  # of the lines to them
    same(model, of_threads(people, fit, evaluation=evaluation))


def test_a_worker_that_is_hired_anew_knows_a_loss_of_another_file(
    nodes: Cluster, people: pl.DataFrame, fit: Callable[..., Fit], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autocross.fitting.run.LOGISTIC", COSTLY_MISSES)
    ours = fit()
    ours.at = At(CrossTried, lambda: ours.kill(1), accepted=True)
    model = ours.run(rows_of(people))
    assert ours.counted()[-1].lost == 1
    same(model, of_threads(people, fit))


@pytest.mark.parametrize(("n_call", "at_home"), [(1, False), (2, True), (3, False), (5, True), (8, False)])
def test_a_worker_killed_while_it_reads_changes_nothing(
    nodes: Cluster, people: pl.DataFrame, fit: Callable[..., Fit], monkeypatch: pytest.MonkeyPatch, n_call: int, at_home: bool
) -> None:
    """Killed while the call is under way, or just after it."""
    ours = fit(at_home)
    reply, calls = REAL.reply, []

    def killed(self: Any, number: int, call: Any) -> Any:
        calls.append(number)
        if len(calls) == n_call:
            ours.kill(number)
        return reply(self, number, call)

    monkeypatch.setattr(REAL, "reply", killed)
    model = ours.run(rows_of(people))
    assert ours.engine.lost == 1
    same(model, of_threads(people, fit))


def test_a_node_that_goes_takes_nothing_with_it(nodes: Cluster, people: pl.DataFrame, fit: Callable[..., Fit]) -> None:
    extra = nodes.add_node(num_cpus=2)
    nodes.wait_for_nodes()
    ours = fit(n_jobs=6)
    plan = At(CandidatesRanked, lambda: nodes.remove_node(extra, allow_graceful=False), round=1)
    ours.at = plan
    model = ours.run(rows_of(people))
    assert plan.done
    assert ours.engine.lost >= 1
    same(model, of_threads(people, fit))


def test_a_shard_that_is_lost_is_filled_again(
    nodes: Cluster, people: pl.DataFrame, fit: Callable[..., Fit], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "SHARDED", 64)
    monkeypatch.setattr(engines, "WORKERS_A_SHARD", 2)
    ours = fit(n_jobs=4)
    killed: list[int] = []
    pull = REAL.pull

    def pull_after_a_loss(self: Any, call: Any) -> Any:
        if len(killed) < 3 and self.step % 50 == 0:
            ray.kill(self.shards[len(killed) % 2])
            killed.append(self.step)
        return pull(self, call)

    monkeypatch.setattr(REAL, "pull", pull_after_a_loss)
    model = ours.run(rows_of(people))
    assert len(killed) == 3
    same(model, of_threads(people, fit))


def test_a_worker_that_dies_again_and_again_is_a_failure_of_the_cluster(
    nodes: Cluster, people: pl.DataFrame, fit: Callable[..., Fit], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = fit()
    equip = REAL.equip

    def stillborn(self: Any, number: int, line: Any) -> None:
        if number == 1 and self.lost:
            ray.kill(line.worker)
        equip(self, number, line)

    monkeypatch.setattr(REAL, "equip", stillborn)
    ours.at = At(PhaseStarted, lambda: ours.kill(1), phase="tuning penalties")
    with pytest.raises(EngineError, match="Worker 1 of 2 was lost 5 times in a row"):
        ours.run(rows_of(people))


# Interrupts and limits.


def test_an_interrupt_keeps_what_was_found(nodes: Cluster, people: pl.DataFrame, fit: Callable[..., Fit], steer: Steer) -> None:
    ours = fit()
    steer(a_round=1)
    interrupt = Interrupt()
    ask = At(CandidatesRanked, lambda: interrupt(signal.SIGINT, None), round=2)
    model = fitting.fit(rows_of(people), ours.options, Reporter([ask]), interrupt)
    assert len(model.about.crosses) == 1


def test_a_time_limit_holds(nodes: Cluster, people: pl.DataFrame, fit: Callable[..., Fit]) -> None:
    model = fit(time_limit=0.5).run(rows_of(people))
    assert len(model.about.crosses) < 2


def test_a_fit_on_threads_goes_on_with_workers(nodes: Cluster, people: pl.DataFrame, tmp_path: Path) -> None:
    """A checkpoint does not know its engine."""
    options: dict[str, Any] = {"quiet": True, "max_crosses": 1}
    AutoCrossClassifier(**options, checkpoint=str(tmp_path)).fit(people, "bought")
    found = AutoCrossClassifier(**options, resume=str(tmp_path), engine="ray", n_jobs=2).fit(people, "bought").model_
    same(found, AutoCrossClassifier(**options).fit(people, "bought").model_)


# Bytes.


def test_bytes_of_a_round_do_not_grow_with_the_rows(nodes: Cluster, fit: Callable[..., Fit]) -> None:
    """The same columns, values and candidates; five times the rows."""
    rng = np.random.default_rng(1)

    def moved(n: int) -> float:
        codes = rng.integers(0, 8, (n, 4))
        frame = pl.DataFrame({f"c{at}": [f"v{code}" for code in codes[:, at]] for at in range(4)})
        label = (rng.random(n) < 0.3 + 0.4 * (codes[:, 0] == codes[:, 1])).astype(int)
        ours = fit(evaluation="holdout", max_crosses=1, min_count=2)
        ours.run(InMemory(Part(frame, label, np.ones(n, np.float32)), "label"))
        n_calls = ours.engine.step
        after = [event for event in ours.counted() if event.after == "round 1"]
        return after[0].moved_since / n_calls

    # Up to 250,000 rows the scores of those that judge are ranked in one place: what is compared comes without them.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autocross.fitting.run.EXACT_ROWS", 0)
        few, many = moved(4_000), moved(20_000)
    assert many < 1.2 * few


# Errors.


def test_errors_of_tasks_come_back_as_they_are(nodes: Cluster, people: pl.DataFrame) -> None:
    rows = people.with_columns(bought=pl.when(pl.int_range(pl.len()) == 377).then(None).otherwise("bought"))
    with pytest.raises(LabelError, match="first in row 377"):
        AutoCrossClassifier(engine="ray", n_jobs=2, quiet=True).fit(rows, "bought")


def test_a_file_without_rows_is_told(nodes: Cluster, people: pl.DataFrame, tmp_path: Path) -> None:
    people[:0].write_parquet(tmp_path / "rows.parquet")
    with pytest.raises(TableError, match="The table has no rows"):
        AutoCrossClassifier(engine="ray", n_jobs=2, quiet=True).fit(tmp_path / "rows.parquet", "bought")


def test_a_damaged_file_is_told_and_kills_no_worker(nodes: Cluster, people: pl.DataFrame, tmp_path: Path) -> None:
    """Its footer, which the driver reads, is sound; the header of a page says that there are -401 values."""
    path = tmp_path / "rows.parquet"
    people.write_parquet(path)
    header = b"\x2c\x15\xa0\x06"  # a page of data with 400 values
    content = path.read_bytes()
    path.write_bytes(content.replace(header, b"\x2c\x15\xa1\x06", 1))
    assert path.read_bytes() != content
    with pytest.raises(FileError, match=r"rows\.parquet': the header of the page at byte \d+ cannot be right"):
        AutoCrossClassifier(engine="ray", n_jobs=2, quiet=True).fit(path, "bought")


def test_more_workers_than_cores_are_refused(nodes: Cluster, people: pl.DataFrame) -> None:
    with pytest.raises(EngineError, match="99 workers need a core each, and the cluster has"):
        AutoCrossClassifier(engine="ray", n_jobs=99, quiet=True).fit(people, "bought")


def test_a_cluster_too_small_for_the_rows_is_told(nodes: Cluster, people: pl.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autocross.needs.OF_ROW", 1 << 40)
    with pytest.raises(EngineError, match=r"400 rows in \d+ fields need some .* GiB of memory, and the workers have"):
        AutoCrossClassifier(engine="ray", n_jobs=2, quiet=True).fit(people, "bought")


ALONE = """
from getpass import getuser
import polars as pl
from autocross import AutoCrossClassifier
from autocross.engines import cluster, mailbox
from autocross.errors import EngineError

def files():
    return {path for path in mailbox.SHARED.glob("autocross-*") if path.owner() == getuser()}

before = files()  # of other processes, among them some that were killed
rows = pl.DataFrame({"job": ["cook", "cook", "nurse", "nurse"] * 10, "bought": [0, 0, 1, 1] * 10})
for address in ("127.0.0.1:1", "somewhere"):
    try:
        AutoCrossClassifier(engine="ray", address=address, quiet=True).fit(rows, "bought")
    except EngineError as error:
        print(error)
place = cluster.RayEngine.place

def place_and_tell(self, blocks):
    print("node", [node["NodeManagerAddress"] for node in cluster.ray.nodes()])
    place(self, blocks)

cluster.RayEngine.place = place_and_tell
call = cluster.RayEngine.call

def call_and_tell(self, *args):
    if self.step == 0:
        print("through memory", self.at_home, files() <= before)
    return call(self, *args)

cluster.RayEngine.call = call_and_tell
AutoCrossClassifier(engine="ray", n_jobs=1, quiet=True).fit(rows, "bought")
print("running", cluster.ray.is_initialized())
"""


def test_a_cluster_of_its_own_stays_on_this_machine_and_wrong_addresses_are_told() -> None:
    """In a process that has no cluster yet, and no hint where to find one."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, env=environment, timeout=120, check=True)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("\x1b")]
    assert lines[0].startswith("No Ray cluster answers at address='127.0.0.1:1': ")
    assert lines[1].startswith("No Ray cluster answers at address='somewhere': that is no host:port")
    assert lines[2:] == ["node ['127.0.0.1']", "through memory True True", "running False"]


def test_an_address_is_for_ray(people: pl.DataFrame) -> None:
    with pytest.raises(OptionError, match="Option address='auto' is for engine='ray'"):
        AutoCrossClassifier(address="auto", quiet=True).fit(people, "bought")


def test_ray_that_is_not_installed_is_told(people: pl.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "autocross.engines.cluster")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingLibraryError, match=r"pip install 'autocross\[ray\]'"):
        AutoCrossClassifier(engine="ray", quiet=True).fit(people, "bought")


def test_a_table_of_no_weight_is_told(nodes: Cluster, people: pl.DataFrame) -> None:
    with pytest.raises(TableError, match="All sample weights are zero"):
        AutoCrossClassifier(engine="ray", n_jobs=2, quiet=True).fit(people, "bought", np.zeros(people.height))
