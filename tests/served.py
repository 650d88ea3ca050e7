"""A server in a process of its own, and a client that speaks to it byte by byte."""

from __future__ import annotations

import http.client
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple, Self

WAIT = 60  # seconds, for machines that are very busy


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Served:
    """`autocross serve` on a free port of this machine. Leaving the context stops it; it must then end well."""

    def __init__(self, *arguments: str | Path, env: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "autocross", "serve", *map(str, arguments), "--port", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, **(env or {})})
        self.lines: list[str] = []
        self.events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.port: int = self.wait_for("listening")["port"]

    def read(self) -> None:
        """Collect the log, so that the server never has to wait for a reader."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.decode())
            self.events.put(json.loads(line) if line.startswith(b"{") else {"event": "text", "text": line.decode()})
        self.events.put(None)

    def wait_for(self, event: str, **facts: Any) -> dict[str, Any]:
        """The next line of the log about an event."""
        while True:
            found = self.events.get(timeout=WAIT)
            assert found is not None, "".join(self.lines)
            if found["event"] == event and facts.items() <= found.items():
                return found

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """One request on a connection of its own. What is neither bytes nor text is sent as JSON."""
        content = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
        try:
            connection.request(method, path, content, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        return self.ask("POST", path, body, **headers)

    def raw(self, *pieces: bytes) -> bytes:
        """What comes back for these bytes, until the server closes the connection."""
        with self.connect() as line:
            for piece in pieces:
                line.sendall(piece)
            return read_all(line)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT)

    def stop(self) -> int:
        """Stop it as a system would, and wait. Returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(WAIT)
        self.reader.join(WAIT)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            assert self.stop() == 0, "".join(self.lines)
        finally:
            self.process.kill()
            assert self.process.stderr is not None
            self.process.stderr.close()


def read_all(line: socket.socket) -> bytes:
    """Everything until the other side closes."""
    parts = []
    while part := line.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)
