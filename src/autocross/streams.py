"""The standard streams of a program, made so that none of them can end the work.

A stream that is closed is as good as /dev/null. A reader of stdout who goes away has seen enough, and logs that cannot be written
are lost; only data that cannot be written for another reason, such as a full disk, are a failure. What a terminal cannot show is
written with backslashes; data that are no words, such as CSV, are UTF-8 everywhere.
"""

from __future__ import annotations

import io
import os
import sys


class Outlet(io.FileIO):
    """A file that takes what is written, and loses it once something went wrong."""

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
    """Open what is closed, before another file takes its number; and put streams in place that do not fail."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
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
