"""Blocks on the machines of a Ray cluster.

The driver is the process that called fit. It runs the search, with its candidates and rungs, and holds the weights. Workers are
actors. Each reads its own share of the rows and keeps it in memory as blocks of codes, one for each of its threads. Shards are
actors that add up sums that are too large to be sent to the driver by every worker; each shard has a range of codes.

Only calls and results travel, never rows. A call is the same for all workers. Calls and results are pickled once, so that their
bytes can be counted. If the cluster is this machine alone, they go through shared memory (see `mailbox`). A lost worker is hired
again, reads its share anew, and repeats the calls whose effect still shows (see `log`). In the end every call shows in every block
exactly once, so no row counts twice.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from time import perf_counter
from typing import Any, Concatenate, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autocross.engines.base import B, Engine, P, R
from autocross.engines.log import Log
from autocross.engines.mailbox import Box
from autocross.engines.threads import ThreadsEngine, n_cores
from autocross.errors import EngineError, MissingLibraryError

try:
    import ray
    from ray._private import ray_constants
    from ray.exceptions import GetTimeoutError, RayActorError, RayError
except ImportError as error:
    raise MissingLibraryError("engine='ray' needs Ray. Install it with: pip install 'autocross[ray]'") from error

Ints = NDArray[np.int64]

INLINE = 64 << 10  # bytes; a smaller call is sent to each worker, a larger one is put into the object store once
SHARDED = 4 << 20  # bytes; shards add up a sum if its size times the number of workers is at least this
WORKERS_A_SHARD = 4
REPLAYED = 100  # calls that a new worker is sent at the same time
HIRES = 5  # a worker that is lost this often in a row is an error
KNOCK = 10.0  # seconds within which something must answer at an address
PATIENCE = 120.0  # seconds within which a new worker must be ready


class Reply(NamedTuple):
    """The answer of a worker: its result, or the error that ended the task; whether the result went to the shards; how many seconds
    the work took, and how many bytes went to the shards."""

    value: Any
    error: BaseException | None
    pushed: bool
    seconds: float
    n_bytes: int


class Worker:
    """Keeps some blocks, and runs tasks on them."""

    def __init__(self, number: int, n_threads: int, sharded: float) -> None:
        self.number, self.sharded = number, sharded
        self.engine = ThreadsEngine(n_threads)
        self.shards: list[Any] = []
        self.sums: list[Ints] = []  # of the last call, kept until the next one in case a shard is lost

    def place(self, *blocks: bytes) -> int:
        """Keep these blocks instead of any former ones; returns the process id."""
        self.engine.place([pickle.loads(block) for block in blocks])
        return os.getpid()

    def meet(self, shards: list[Any]) -> None:
        """Use these shards from now on."""
        self.shards = shards

    def attend(self, calls: str, replies: str) -> None:
        """From now on, answer the calls that come through shared memory."""
        inbox, outbox = Box(calls), Box(replies)
        outbox.send(b"")
        while True:
            outbox.send(self.run(inbox.wait(), 0))

    def run(self, call: bytes | memoryview, step: int) -> bytes:
        """Answer a call."""
        began = perf_counter()
        reply = Reply(None, None, False, 0.0, 0)
        try:
            kind, task, args = pickle.loads(call)
            reply = reply._replace(value=self.answer(kind, task, args))
            if kind.startswith("total") and self.shards and sum(array.nbytes for array in self.sums) >= self.sharded:
                reply = reply._replace(value=None, pushed=True, n_bytes=self.push(step))
        except Exception as error:  # is sent to the driver, which raises it
            reply = reply._replace(value=None, error=portable(error))
        return pickle.dumps(reply._replace(seconds=perf_counter() - began), 5)

    def answer(self, kind: str, task: Callable[..., Any], args: Sequence[Any]) -> Any:
        """The results for all blocks, or their sums. An exchange and a replay have no result."""
        if kind == "again":
            for former in args:
                self.answer(*former)
            return None
        if kind == "exchange":
            return self.engine.exchange(task, *args)
        if kind == "each":
            return self.engine.each(task, *args)
        self.sums = [self.engine.total(task, *args)] if kind == "total" else self.engine.totals(task, *args)
        return [narrowed(array) for array in self.sums]

    def push(self, step: int) -> int:
        """Send each shard its part of the sums; returns the number of bytes. The driver takes care of lost shards."""
        n = len(self.shards)
        parts = [pickle.dumps([narrowed(piece_of(array, number, n)) for array in self.sums], 5) for number in range(n)]
        sent = [shard.push.remote(step, self.number, part) for shard, part in zip(self.shards, parts, strict=True)]
        for reference in sent:
            try:
                ray.get(reference)
            except RayActorError:
                continue
        return sum(map(len, parts))


class Line:
    """The line from the driver to a worker: calls of Ray."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.sent: Any = None

    def open(self) -> None:
        """Open the line, once the worker is ready."""

    def ask(self, call: Any, step: int) -> None:
        """Send a call."""
        self.sent = self.worker.run.remote(call, step)

    def answer(self) -> bytes | memoryview:
        """The answer of the worker, which is valid until the next call. Raises RayActorError if the worker is lost."""
        reply: bytes = ray.get(self.sent)
        return reply

    def close(self) -> None:
        """End the worker."""
        ray.kill(self.worker)


class HomeLine(Line):
    """The line to a worker on the driver's own machine: shared memory."""

    def open(self) -> None:
        if self.sent is not None:
            return
        self.calls, self.replies = Box.new(), Box.new()
        attend = self.worker.attend.options(concurrency_group="home")
        self.sent = attend.remote(self.calls.path, self.replies.path)
        try:
            self.answer()
        finally:
            self.calls.hide()
            self.replies.hide()

    def ask(self, call: Any, step: int) -> None:
        self.calls.send(call)

    def answer(self) -> bytes | memoryview:
        return self.replies.wait(self.still_there)

    def still_there(self) -> None:
        ended, _ = ray.wait([self.sent], timeout=0)
        ray.get(ended)

    def close(self) -> None:
        super().close()
        if self.sent is not None:
            self.calls.close()
            self.replies.close()


class Shard:
    """Adds up the sums of all workers for a range of codes."""

    def __init__(self) -> None:
        self.step, self.heard, self.sums = -1, set[int](), list[Ints]()

    def push(self, step: int, worker: int, part: bytes) -> None:
        """Add the part of a worker. A part that comes twice counts once."""
        if step != self.step:
            self.step, self.heard, self.sums = step, set(), []
        if worker not in self.heard:
            self.heard.add(worker)
            parts = [pickle.loads(part), self.sums] if self.sums else [pickle.loads(part)]
            self.sums = added(parts)

    def pull(self, step: int) -> tuple[int, bytes]:
        """How many workers have sent their part, and the sums."""
        return len(self.heard) if step == self.step else 0, pickle.dumps([narrowed(array) for array in self.sums], 5)


def added(parts: Sequence[Sequence[NDArray[Any]]]) -> list[Ints]:
    """The totals of sums that were narrowed for sending."""
    return [reduce(np.add, [array.astype(np.int64, copy=False) for array in arrays]) for arrays in zip(*parts, strict=True)]


def piece_of(items: Any, number: int, n: int) -> Any:
    """Part ``number`` of n consecutive parts: the range of codes of a shard, or the blocks of a worker."""
    return items[len(items) * number // n : len(items) * (number + 1) // n]


def narrowed(sums: Ints) -> NDArray[Any]:
    """Whole numbers in as few bytes as they need."""
    if not sums.size or sums.min() < 0:
        return sums
    return sums.astype(np.min_scalar_type(int(sums.max())), copy=False)


def portable(error: Exception) -> BaseException:
    """The error in a form that another process can read."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return EngineError(f"A worker failed: {type(error).__name__}: {error}")
    return error


class RayEngine(Engine):
    """Workers on a Ray cluster: the cluster at the address, or one that is started here and ends with the engine."""

    stride = 1 << 22  # a call to an actor takes milliseconds
    has_disk = False

    def __init__(self, n_jobs: int | None = None, address: str | None = None) -> None:
        self.owns_cluster = connect(address, n_jobs)
        self.at_home = self.owns_cluster and address is None
        cores = [n for node in ray.nodes() if node["Alive"] and (n := int(node["Resources"].get("CPU", 0)))]
        if n_jobs is not None and n_jobs > 0:
            self.n_threads, self.n_shares = 1, n_jobs
        else:  # fewer workers send less, so each machine has one, or several if it is larger than others
            self.n_threads = min(cores, default=1)
            self.n_shares = sum(n // self.n_threads for n in cores)
        self.n_workers = self.n_shares * self.n_threads
        if self.n_workers > sum(cores) or not cores:
            self.close()
            raise EngineError(f"{n_jobs or 1} workers need a core each, and the cluster has {sum(cores)}. Give a lower n_jobs.")
        self.memory = int(ray.cluster_resources().get("memory", 0))
        self.workers: list[Line] = []
        self.shards: list[Any] = []
        self.items: list[list[Any]] = []  # the blocks of each worker, as they were placed
        self.processes: dict[int, int] = {}  # the process id of each worker, on its machine
        self.log = Log()
        self.step = 0
        self.moved = self.counted = 0  # bytes that travelled so far, and until the last count
        self.lost = 0
        self.busy: list[float] = []  # seconds that each worker has worked

    # Placing.

    def place(self, blocks: Sequence[Any]) -> None:
        n = min(self.n_shares, max(1, len(blocks)))
        for line in self.workers[n:]:
            line.close()
        self.workers = self.workers[:n] + [self.hire(number, n) for number in range(len(self.workers), n)]
        n_shards = 0 if n < 2 or self.at_home else -(-n // WORKERS_A_SHARD)
        for shard in self.shards[n_shards:]:
            ray.kill(shard)
        self.shards = self.shards[:n_shards] + [actor(Shard, 0) for _ in range(len(self.shards), n_shards)]
        self.items = [[self.store(block) for block in piece_of(blocks, number, n)] for number in range(n)]
        self.log, self.busy = Log(), [0.0] * n
        for number in range(n):
            try:
                self.equip(number, self.workers[number])
            except (RayActorError, GetTimeoutError):
                self.replace(number)

    def hire(self, number: int, n_workers: int) -> Line:
        """A new worker, on free cores if there are any, or else beside another worker."""
        free = ray.available_resources().get("CPU", 0.0)
        n_cpus = self.n_threads if free >= self.n_threads else 0
        worker = actor(Worker, n_cpus, number, self.n_threads, SHARDED / n_workers)
        return HomeLine(worker) if self.at_home else Line(worker)

    def equip(self, number: int, line: Line) -> None:
        """Send a worker its blocks and tell it about the shards."""
        begun = [line.worker.place.remote(*self.items[number]), line.worker.meet.remote(self.shards)]
        self.processes[number], _ = ray.get(begun, timeout=PATIENCE)
        line.open()

    def store(self, block: Any) -> Any:
        """Put a block into the object store."""
        data = ray.cloudpickle.dumps(block, 5)
        self.moved += len(data)
        return ray.put(data)

    # Calls.

    def run(self, task: Callable[Concatenate[B, P], R], *args: P.args, **kwargs: P.kwargs) -> list[R]:
        assert not kwargs
        return [result for lane in self.call("each", task, args) for result in lane]

    def total(self, task: Callable[Concatenate[B, P], Ints], *args: P.args, **kwargs: P.kwargs) -> Ints:
        assert not kwargs
        self.between()
        totals: list[Ints] = self.call("total", task, args)
        return totals[0]

    def totals(self, task: Callable[Concatenate[B, P], list[Ints]], *args: P.args, **kwargs: P.kwargs) -> list[Ints]:
        assert not kwargs
        self.between()
        return self.call("totals", task, args)

    def exchange(self, task: Callable[Concatenate[B, P], list[Any]], *args: P.args, **kwargs: P.kwargs) -> None:
        assert not kwargs
        self.between()
        self.call("exchange", task, args)

    def call(self, kind: str, task: Callable[..., Any], args: Sequence[Any]) -> list[Any]:
        """The answers of all workers or, if they are sums, their totals."""
        self.step += 1
        data = pickle.dumps((kind, task, args), 5)
        call = data if len(data) < INLINE or self.at_home else ray.put(data)
        self.moved += len(data) * len(self.workers)
        for line in self.workers:
            line.ask(call, self.step)
        replies = [self.reply(number, call) for number in range(len(self.workers))]
        failed = next((reply.error for reply in replies if reply.error is not None), None)
        if failed is not None:
            raise failed
        results = self.results(kind, replies, call)
        self.log.note(kind, task, args)
        return results

    def results(self, kind: str, replies: Sequence[Reply], call: Any) -> list[Any]:
        """The results, from the replies or from the shards."""
        if not kind.startswith("total"):
            return [reply.value for reply in replies]
        if any(reply.pushed for reply in replies):
            return self.pull(call)
        return added([reply.value for reply in replies])

    def reply(self, number: int, call: Any) -> Reply:
        """The answer of a worker or, if it is lost, of the worker that replaces it."""
        for _ in range(HIRES):
            try:
                data = self.workers[number].answer()
                break
            except RayActorError:
                self.replace(number)
                self.workers[number].ask(call, self.step)
        else:
            raise self.lost_again(number)
        reply: Reply = pickle.loads(data)
        self.moved += len(data) + reply.n_bytes
        self.busy[number] += reply.seconds
        return reply

    def count_workers(self) -> dict[str, Any]:
        since, self.counted = self.moved - self.counted, self.moved
        busy = (max(self.busy), sum(self.busy) / len(self.busy))
        facts = {"workers": len(self.workers), "lost": self.lost, "blocks": self.n_threads * len(self.workers), "busy": busy}
        return {**facts, "moved": self.moved, "moved_since": since}

    # What is lost.

    def replace(self, number: int) -> None:
        """Hire a worker in place of a lost one, and bring its blocks to the state in which they were."""
        for _ in range(HIRES):
            self.lost += 1
            self.workers[number].close()
            line = self.workers[number] = self.hire(number, len(self.workers))
            try:
                self.equip(number, line)
                calls = [(entry.kind, entry.task, entry.args) for entry in self.log.still_seen()]
                for first in range(0, len(calls), REPLAYED):
                    line.ask(pickle.dumps(("again", None, calls[first : first + REPLAYED]), 5), 0)
                    if (error := pickle.loads(line.answer()).error) is not None:
                        raise error
                return
            except (RayActorError, GetTimeoutError):
                continue
        raise self.lost_again(number)

    def lost_again(self, number: int) -> EngineError:
        return EngineError(
            f"Worker {number} of {len(self.workers)} was lost {HIRES} times in a row. "
            "Look at the machines and logs of the cluster: most often memory ran out."
        )

    def pull(self, call: Any) -> list[Ints]:
        """Fetch the sums from the shards."""
        parts = []
        for shard in range(len(self.shards)):
            data = self.pull_from(shard, call)
            self.moved += len(data)
            parts.append([array.astype(np.int64) for array in pickle.loads(data)])
        return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]

    def pull_from(self, shard: int, call: Any) -> bytes:
        """Fetch the sums of one shard. If it is lost or new, the workers send it their sums again."""
        for _ in range(HIRES):
            try:
                heard, data = ray.get(self.shards[shard].pull.remote(self.step))
                if heard == len(self.workers):
                    return bytes(data)
            except RayActorError:
                self.shards[shard] = actor(Shard, 0)
            for number in range(len(self.workers)):
                self.push_again(number, call)
        raise EngineError(f"Shard {shard} of the sums was lost {HIRES} times in a row. Look at the logs of the cluster.")

    def push_again(self, number: int, call: Any) -> None:
        """Let a worker send its last sums to the shards again. If it is lost, the worker that replaces it computes them again."""
        worker = self.workers[number].worker
        try:
            ray.get([worker.meet.remote(self.shards), worker.push.remote(self.step)])
        except RayActorError:
            self.replace(number)
            self.workers[number].ask(call, self.step)
            self.reply(number, call)

    def close(self) -> None:
        if getattr(self, "workers", None) is not None:
            for line in self.workers:
                line.close()
            for shard in self.shards:
                ray.kill(shard)
            self.workers, self.shards, self.items = [], [], []
        if self.owns_cluster:
            self.owns_cluster = False
            ray.shutdown()


def actor(kind: type, n_cpus: int, *args: Any) -> Any:
    """A new actor. Ray must not restart it, because its state would be lost; the engine replaces lost actors itself."""
    settings: Any = {"num_cpus": n_cpus, "max_restarts": 0, "scheduling_strategy": "SPREAD", "concurrency_groups": {"home": 1}}
    return ray.remote(**settings)(kind).remote(*args)


def connect(address: str | None, n_jobs: int | None) -> bool:
    """Connect to the cluster, or start one. Returns whether the engine must end the connection."""
    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        with on_loopback():
            ray.init(
                address="local",
                num_cpus=max(n_jobs or 0, n_cores()),
                include_dashboard=False,
                _system_config={"worker_niceness": 0},
                **quiet,
            )
        return True
    try:
        if address != "auto":
            knock(address)
        ray.init(address=address, **quiet)
    except (OSError, ValueError, RuntimeError, RayError) as error:
        text = str(error).strip().partition("\n")[0].rstrip(".")
        raise EngineError(
            f"No Ray cluster answers at address={address!r}: {text}. Give auto, or host:port as `ray start --head` prints it, "
            "or leave address out to start a cluster on this machine."
        ) from error
    return True


@contextmanager
def on_loopback() -> Iterator[None]:
    """Inside this context, a cluster that is started cannot be reached from other machines. Ray has a switch for this, which it
    reads when it is imported and in the processes that it starts."""
    name = ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR
    former = os.environ.get(name), ray_constants.ENABLE_RAY_CLUSTER
    os.environ[name], ray_constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        del os.environ[name]
        if former[0] is not None:
            os.environ[name] = former[0]
        ray_constants.ENABLE_RAY_CLUSTER = former[1]


def knock(address: str) -> None:
    """Fail at once if nobody listens at the address. Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ValueError("that is no host:port")
    socket.create_connection((host, int(port)), timeout=KNOCK).close()
