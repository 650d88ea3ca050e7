"""The standard streams of a program, arranged so that none of them can end the work.

A closed stream counts as /dev/null. If the reader of stdout goes away, the rest of the output is dropped, and logs that cannot be
written are lost. It is a failure only if data cannot be written for another reason, such as a full disk. Characters that a terminal
cannot show are written with backslashes. Data such as CSV is UTF-8 everywhere.
"""

from __future__ import annotations

import io
import os
import sys


class Outlet(io.FileIO):
    """A file that accepts whatever is written, and drops it once something has gone wrong."""

    def __init__(self, number: int, lossy: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self.lossy, self.broken = lossy, False

    def write(self, content: object) -> int:
        size = memoryview(content).nbytes  # type: ignore[arg-type]
        if self.broken:
            return size
        try:
            return super().write(content)  # type: ignore[arg-type]
        except OSError as error:
            self.broken = True
            if self.lossy or isinstance(error, BrokenPipeError):
                return size
            raise


def settle() -> None:
    """Open closed streams, before another file takes their numbers, and install streams that do not fail."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
    sys.stdout = outward(1, sys.stdout, lossy=False)
    sys.stderr = outward(2, sys.stderr, lossy=True)


def outward(number: int, former: object, lossy: bool) -> io.TextIOWrapper:
    """A stream of text like the former one, if there was one."""
    outlet = Outlet(number, lossy)
    return io.TextIOWrapper(
        io.BufferedWriter(outlet),
        encoding=getattr(former, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=lossy or outlet.isatty(),
    )
