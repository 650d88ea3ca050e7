"""Logs as lines of JSON. They say what happened and how long it took, and nothing of what is in rows."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, BinaryIO

import msgspec

encode = msgspec.json.Encoder().encode


class Log:
    """Writes a line for each event. If it is quiet, only for problems."""

    def __init__(self, quiet: bool = False, stream: BinaryIO | None = None) -> None:
        self.quiet = quiet
        self.stream = stream or sys.stderr.buffer
        self.pid = os.getpid()

    def info(self, event: str, **facts: Any) -> None:
        if not self.quiet:
            self.write("info", event, facts)

    def warning(self, event: str, **facts: Any) -> None:
        self.write("warning", event, facts)

    def error(self, event: str, **facts: Any) -> None:
        self.write("error", event, facts)

    def write(self, level: str, event: str, facts: dict[str, Any]) -> None:
        """One line. Nobody may read the logs, or they may be on a full disk: the server goes on."""
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = encode({"time": moment, "level": level, "event": event, "pid": self.pid, **facts}) + b"\n"
        with suppress(OSError, ValueError):
            self.stream.write(line)
            self.stream.flush()


class Forwarded(logging.Handler):
    """Writes what the libraries of the server log. Of an exception it has the kind and the place, and not the message, which may
    hold values."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        facts = {"message": record.getMessage()}
        if record.exc_info and record.exc_info[1]:
            facts["failure"] = place_of(record.exc_info[1])
        self.log.write(record.levelname.lower(), "library", facts)


def place_of(error: BaseException) -> str:
    """The kind of an exception, and the line that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" in {os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
    return f"{type(error).__name__}{where}"
