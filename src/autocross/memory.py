"""How much memory a fit may use, and how it is shared out.

What counts is what the fit itself takes: neither the libraries, nor a table that the caller holds in memory anyway.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from threading import Semaphore
from typing import Any

from autocross.scratch import Scratch

AT_ONCE = 1 / 4  # of the limit, which rows may take that are read as a whole; codes are far smaller
COPY = 1 / 2  # which a copy of the caller's table may take
BATCH = 1 / 32  # which a batch of rows may take; to read, copy and encode it takes several times as much
COUNTS = 3 / 8  # which the values of the columns may take while they are counted
SETTLED = 64 << 20  # bytes less, so that numbers can lose digits meanwhile
SETTLING = 512 << 20  # bytes of the limit for each column of which a digest, or an encoder, is made at the same time
SHELF = 1 / 4096  # which the values of a column may take once they are counted; those of more are on the disk
NUMBERS = 1 << 11  # bytes of the limit for each number of a column that is counted before it is put aside


class Allowance:
    """What a pass over rows may use that are not all in memory: so many bytes of memory, and a file for the rest."""

    def __init__(self, limit: int, scratch: Scratch) -> None:
        self.limit, self.scratch = limit, scratch
        self.n_turns = max(1, limit // SETTLING)
        self.turns = Semaphore(self.n_turns)  # of columns that may do at the same time what takes memory

    @property
    def for_column(self) -> int:
        """Bytes in which the values of a column must be counted, if it is looked at alone."""
        return int(COUNTS * self.limit)

    @property
    def for_columns(self) -> int:
        """Bytes in which the values of several are."""
        return self.for_column - SETTLED

    @property
    def for_digest(self) -> int:
        """Bytes of a column's values, counted, that stay in memory."""
        return int(SHELF * self.limit)

    @property
    def n_numbers(self) -> int:
        """Different numbers of a column that are counted before they are put aside."""
        return self.limit // NUMBERS


def memory_limit(gib: float | None) -> int:
    """Bytes that a fit may use: what is given, else half of the machine's memory."""
    return machine_memory() // 2 if gib is None else int(gib * 2**30)


def machine_memory() -> int:
    """Bytes of memory of this machine; 8 GiB where it does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 << 30


def give_back() -> None:
    """Let the system have the memory that was freed: else the C library may keep it, where it is glibc."""
    if trim := _trim():
        trim(0)


@cache
def _trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None


def gib(n_bytes: float) -> str:
    """
    >>> gib(3 << 30), gib(3.14159 * 2**28)
    ('3 GiB', '0.79 GiB')
    """
    return f"{n_bytes / 2**30:.2f}".rstrip("0").rstrip(".") + " GiB"
