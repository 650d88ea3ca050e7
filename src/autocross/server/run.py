"""Runs the server: one process, or several that share a port. It ends when it is told to, after what it has begun."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import uvicorn

from autocross.errors import AutoCrossError, OptionError
from autocross.server.app import ROUTES, Gate
from autocross.server.connections import protocol
from autocross.server.limits import Limits
from autocross.server.logs import Forwarded, Log
from autocross.server.metrics import Metrics
from autocross.server.models import Shelf, Source
from autocross.server.service import Service

BACKLOG = 2_048
BAD_INPUT = 2  # the exit code of a process whose models cannot be loaded
LOOPBACK = ("127.", "::1", "localhost")
STOP = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a server is run."""

    sources: tuple[Source, ...]
    host: str = "127.0.0.1"
    port: int = 8080
    limits: Limits = Limits()
    token: str | None = None
    strict: bool = False
    n_threads: int = 2
    n_workers: int = 1
    watch: float = 1.0
    keep_alive: float = 75.0
    grace: float = 30.0
    quiet: bool = False

    def __post_init__(self) -> None:
        ranges = {"port": (0, 65_535), "n_threads": (1, 1_024), "n_workers": (1, 1_024), "watch": (0, 86_400)}
        ranges |= {"keep_alive": (0, 86_400), "grace": (0, 86_400)}
        for name, (least, most) in ranges.items():
            value = getattr(self, name)
            if not least <= value <= most:
                flag = name.removeprefix("n_").replace("_", "-")
                raise OptionError(f"--{flag} {value} is out of range. Give a number between {least} and {most:,}.")
        if self.n_workers > 1 and not hasattr(os, "fork"):
            raise OptionError(f"--workers {self.n_workers} needs a system that can fork. Start several servers on other ports.")


def serve(settings: Settings) -> int:
    """Serve until a signal says stop. Returns the exit code."""
    metrics = Metrics(ROUTES, [source.name for source in settings.sources], settings.n_workers)
    with bound(settings.host, settings.port) as listener:
        if settings.n_workers == 1:
            work(settings, listener, metrics)
            return 0
        return Supervisor(settings, listener, metrics).run()


@contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """A socket on which nothing is heard yet."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, kind, number)
    except OSError as error:
        raise OptionError(f"--host {host} is no address of this machine: {error.strerror}.") from None
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            raise OptionError(
                f"Cannot serve on {host}, port {port}: {error.strerror}. Choose another by --host or --port."
            ) from None
        yield listener


def work(settings: Settings, listener: socket.socket, metrics: Metrics) -> None:
    """Serve in this process."""
    log = Log(settings.quiet)
    shelf = Shelf(settings.sources, log, metrics)
    service = Service(shelf, settings.limits, metrics, settings.strict, settings.n_threads)
    config = uvicorn.Config(
        Gate(service, log, settings.token),
        http=protocol(settings.limits.seconds),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=settings.keep_alive,  # type: ignore[arg-type]
        timeout_graceful_shutdown=settings.grace,  # type: ignore[arg-type]
    )
    logging.getLogger("uvicorn.error").handlers = [Forwarded(log)]
    logging.getLogger("uvicorn").propagate = False
    logging.getLogger("asyncio").handlers = [Forwarded(log)]
    Runner(config, service, log, settings).run([listener])


class Runner(uvicorn.Server):
    """A server that reloads models on a signal or when a file changes, and ends with exit code 0 when it is told to stop."""

    def __init__(self, config: uvicorn.Config, service: Service, log: Log, settings: Settings) -> None:
        super().__init__(config)
        self.service, self.log, self.settings = service, log, settings
        self.asked = asyncio.Event()
        self.watcher: asyncio.Task[None] | None = None
        self.parent = os.getppid()
        service.n_connections = lambda: len(self.server_state.connections)

    @contextmanager
    def capture_signals(self) -> Any:
        yield  # those of `startup` are enough; a signal that says stop is no failure

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        for number in STOP:
            handle(loop, number, self.stop)
        if hasattr(signal, "SIGHUP"):
            handle(loop, signal.SIGHUP, self.asked.set)
        await super().startup(sockets)
        self.watcher = loop.create_task(self.watch())
        host, port = sockets[0].getsockname()[:2] if sockets else ("", 0)
        self.log.info("listening", host=host, port=port)
        if not host.startswith(LOOPBACK) and self.settings.token is None:
            self.log.warning("open", host=host, message="Anybody who reaches this address may ask. Give a token by --token-file.")

    def stop(self) -> None:
        """Take no more requests, and end after those that have begun; at the second call, at once."""
        self.force_exit = self.should_exit
        self.should_exit = self.service.stopping = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.log.info("stopping", requests=len(self.server_state.tasks))
        if self.watcher is not None:
            self.watcher.cancel()
        await super().shutdown(sockets)
        self.service.pool.shutdown(wait=False, cancel_futures=True)
        self.log.info("stopped")

    async def watch(self) -> None:
        """Load what has changed, while requests go on: whenever a signal comes, and every so many seconds."""
        pause = self.settings.watch or None
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.asked.wait(), pause)
            asked = self.asked.is_set()
            self.asked.clear()
            try:
                await asyncio.to_thread(self.service.shelf.reload, asked)
            except Exception as error:
                self.log.error("watch_failed", why=type(error).__name__)
            if os.getppid() != self.parent:  # whoever looked after this process is gone
                self.stop()


def handle(loop: asyncio.AbstractEventLoop, number: int, action: Any) -> None:
    """Do something at a signal."""
    try:
        loop.add_signal_handler(number, action)
    except NotImplementedError:  # on Windows
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(action))


class Supervisor:
    """Looks after several processes that share a port: passes signals on, and replaces a process that has died."""

    def __init__(self, settings: Settings, listener: socket.socket, metrics: Metrics) -> None:
        self.settings, self.listener, self.metrics = settings, listener, metrics
        self.log = Log(settings.quiet)
        self.children: dict[int, int] = {}  # the number of each worker, by process
        self.stopping, self.code = False, 0

    def run(self) -> int:
        """Start all workers, and wait until the last one has ended. Returns the exit code."""
        for number in STOP:
            signal.signal(number, self.stop)
        signal.signal(signal.SIGHUP, lambda *_: self.tell(signal.SIGHUP))
        for worker in range(self.settings.n_workers):
            self.start(worker)
        while self.children:
            began = time.monotonic()
            process, status = os.waitpid(-1, 0)
            worker = self.children.pop(process)
            if self.stopping:
                continue
            code = os.waitstatus_to_exitcode(status)
            if code == BAD_INPUT:
                self.code = code
                self.stop()
                continue
            self.log.error("worker_died", worker=worker, process=process, code=code)
            if time.monotonic() - began < 1:
                time.sleep(1)  # one that dies at once must not be started in a tight loop
            self.start(worker)
        return self.code

    def start(self, worker: int) -> None:
        """Fork a worker. Signals wait until the process has handlers of its own."""
        signals = {*STOP, signal.SIGHUP}
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        process = os.fork()
        if process == 0:
            self.child(worker, signals)
        self.children[process] = worker
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        if self.stopping:
            self.tell(signal.SIGTERM)

    def child(self, worker: int, signals: Sequence[int] | set[signal.Signals]) -> None:
        """What a worker does. It never returns."""
        code = 1
        try:
            for number in STOP:
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
            self.metrics.use(worker)
            work(self.settings, self.listener, self.metrics)
            code = 0
        except AutoCrossError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            code = BAD_INPUT
        except BaseException as error:
            print(f"failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)

    def stop(self, *_: Any) -> None:
        self.stopping = True
        self.tell(signal.SIGTERM)

    def tell(self, number: int) -> None:
        """Pass a signal on to all workers."""
        for process in tuple(self.children):
            with suppress(ProcessLookupError):
                os.kill(process, number)
