"""Connections that nobody can hold for ever: clients that send headers slowly or without end, and clients that do not read."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

MOST_HEADERS = 64 << 10  # bytes


def protocol(seconds: float) -> type[HttpToolsProtocol]:
    """The protocol of connections that have so many seconds for the headers of a request."""
    return type("Connection", (Connection,), {"patience": seconds})


class Connection(HttpToolsProtocol):
    """A connection. Between requests, the server's own time for idle connections counts; from the first byte of a request on, a
    timer runs until its headers are there. The body and the answer are timed by the gate."""

    patience = 30.0
    timer: asyncio.TimerHandle | None = None
    n_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.expect_headers()

    def expect_headers(self) -> None:
        """From now on headers must come."""
        if self.timer is None:
            self.n_bytes, self.timer = 0, self.loop.call_later(self.patience, self.give_up)

    def data_received(self, data: bytes) -> None:
        if self.timer is not None:
            self.n_bytes += len(data)
            if self.n_bytes > MOST_HEADERS and len(data) < self.n_bytes:  # the first piece may have a body behind its headers
                self.refuse(431, f"The headers are longer than {MOST_HEADERS:,} bytes.")
                return
        super().data_received(data)
        if self.timer is None and (self.cycle is None or self.cycle.response_complete) and self.timeout_keep_alive_task is None:
            self.expect_headers()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.expect_headers()

    def on_headers_complete(self) -> None:
        self.stop_timer()
        super().on_headers_complete()

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop_timer()
        super().connection_lost(exc)

    def give_up(self) -> None:
        """The headers did not come in time."""
        self.timer = None
        if not self.transport.is_closing():
            self.refuse(408, f"The headers did not arrive within {self.patience:g} seconds.")

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self.loop.call_later(self.patience, self.transport.abort)  # the client may never read what is left

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        self.refuse(400, msg)

    def refuse(self, status: int, message: str) -> None:
        """Answer what has not become a request, and close the connection."""
        self.stop_timer()
        facts: dict[str, Any] = {"error": message}
        body = msgspec.json.encode(facts)
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()
