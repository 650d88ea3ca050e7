"""What a request may cost, and how one that is refused is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from autocross.errors import OptionError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
PAUSE = 1.0  # seconds after which a client that is refused, and sends nothing, is waited for no longer
LINGER = 10.0  # seconds that it may go on sending
MOST_DISCARDED = 64 << 20  # bytes that it may still send


@dataclass(frozen=True)
class Limits:
    """The limits of a server: bytes of a body, rows of a request, depth of its JSON, seconds that it may take, and connections at a
    time."""

    body: int = 8 << 20
    rows: int = 10_000
    depth: int = 16
    seconds: float = 30.0
    connections: int = 1_000

    def __post_init__(self) -> None:
        for name, most in (("body", 1 << 31), ("rows", 10**7), ("depth", 500), ("seconds", 86_400), ("connections", 10**6)):
            value = getattr(self, name)
            if not 0 < value <= most:
                flag = {"seconds": "--timeout"}.get(name, f"--max-{name}")
                raise OptionError(f"{flag} {value} is out of range. Give a number above 0 and up to {most:,}.")


class Refused(Exception):  # noqa: N818 (an answer, and no fault of the server)
    """A request that is answered with an error. ``row`` and ``field`` say where the fault is, if it is in a row."""

    def __init__(self, status: int, message: str, row: int | None = None, field: str | None = None, **headers: str) -> None:
        super().__init__(message)
        self.status, self.message, self.row, self.field = status, message, row, field
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Gone(Exception):  # noqa: N818
    """The client went away before it had sent everything."""


class Body:
    """The body of a request, read once, up to a limit."""

    def __init__(self, headers: list[tuple[bytes, bytes]], receive: Receive) -> None:
        self.receive = receive
        names = dict(headers)
        self.length = names.get(b"content-length")
        self.complete = self.length in (None, b"0") and b"transfer-encoding" not in names

    async def read(self, most: int) -> bytes:
        """All of it. A body that says that it is too long is refused before it is read; others as soon as they are."""
        if self.length is not None and int(self.length) > most:
            raise too_long(most)
        parts, n_bytes, more = [], 0, not self.complete
        while more:
            part = await self.part()
            n_bytes += len(part)
            if n_bytes > most:
                raise too_long(most)
            parts.append(part)
            more = not self.complete
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def part(self) -> bytes:
        """The next part."""
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise Gone
        self.complete = not message.get("more_body", False)
        part: bytes = message.get("body", b"")
        return part

    async def discard(self) -> None:
        """Read what a refused client is still sending. Most clients look at an answer when they have sent all, and lose it if the
        connection is closed before."""
        n_bytes = 0
        with suppress(TimeoutError, Gone):
            async with asyncio.timeout(LINGER):
                while not self.complete and n_bytes < MOST_DISCARDED:
                    n_bytes += len(await asyncio.wait_for(self.part(), PAUSE))


def too_long(most: int) -> Refused:
    return Refused(413, f"The body is longer than {most:,} bytes. Send fewer rows at a time, or start the server with --max-body.")


def check_count(n_rows: int, most: int) -> None:
    """Refuse too many rows."""
    if n_rows > most:
        raise Refused(
            413, f"The request has {n_rows:,} rows, of at most {most:,}. Send fewer at a time, or start the server with --max-rows."
        )
