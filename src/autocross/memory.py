"""How much memory a fit may use, and how it is shared out.

Only what the fit itself takes counts, and not the libraries, or a table that the caller holds in memory anyway.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from threading import Semaphore
from typing import Any

from autocross.scratch import Scratch

AT_ONCE = 1 / 4  # share of the limit that rows may take if they are read as a whole; codes are far smaller
COPY = 1 / 2  # share that a copy of the caller's table may take
BATCH = 1 / 32  # share that a batch of rows may take; reading, copying and encoding it takes several times as much
COUNTS = 3 / 8  # share that the values of the columns may take while they are counted
SETTLED = 64 << 20  # bytes that are kept free of that share, for dropping digits of numbers
SETTLING = 512 << 20  # for so many bytes of the limit, one column at a time may make its digest or its encoder
SHELF = 1 / 4096  # share that the counted values of a column may take in memory; larger ones are kept on disk
NUMBERS = 1 << 11  # for so many bytes of the limit, one number of a column is counted before counts are put aside


class Allowance:
    """What a pass over a table larger than memory may use: so many bytes of memory, and a file for the rest."""

    def __init__(self, limit: int, scratch: Scratch) -> None:
        self.limit, self.scratch = limit, scratch
        self.n_turns = max(1, limit // SETTLING)
        self.turns = Semaphore(self.n_turns)  # how many columns may at the same time do what takes much memory

    @property
    def for_column(self) -> int:
        """Bytes that the values of a column may take while they are counted, if it is counted alone."""
        return int(COUNTS * self.limit)

    @property
    def for_columns(self) -> int:
        """Bytes that the values of several columns may take while they are counted together."""
        return self.for_column - SETTLED

    @property
    def for_digest(self) -> int:
        """Bytes that the counted values of a column may take in memory."""
        return int(SHELF * self.limit)

    @property
    def n_numbers(self) -> int:
        """How many different numbers of a column are counted before the counts are put aside."""
        return self.limit // NUMBERS


def memory_limit(gib: float | None) -> int:
    """Bytes that a fit may use: the given number of GiB, or else half of the machine's memory."""
    return machine_memory() // 2 if gib is None else int(gib * 2**30)


def machine_memory() -> int:
    """Bytes of memory of this machine; 8 GiB if the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 << 30


def give_back() -> None:
    """Return freed memory to the system. Otherwise glibc may keep it."""
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
