"""Messages between two processes of one machine, through memory that both see.

To wake a process that waits takes a good part of a millisecond where all cores are busy, and a message of Ray's wakes several.
Here nobody is woken: who waits for a message looks for it every now and then.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, sleep

import xxhash

HEAD = struct.Struct("<QQQ")  # number of the message, its length, its hash
FIRST_SIZE = 1 << 16
SHARED = Path("/dev/shm")
ROOM = 1 << 30  # bytes that must be free there: messages have some megabytes
SHORTEST, LONGEST = 2e-5, 1e-3  # seconds between two looks
LATER = 0.01  # a message may be found later than it came by this share of the time it took
EVERY = 0.1  # seconds after which to ask again whether the other side is still there


class Box:
    """A file with one message at a time, from one process to another; it is read before the next one is written."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file = os.open(path, os.O_RDWR)
        self.memory = mmap.mmap(self.file, 0)
        self.number = 0  # of the last message

    @classmethod
    def new(cls) -> Box:
        """A box that nobody has opened yet."""
        where = SHARED if SHARED.is_dir() and shutil.disk_usage(SHARED).free > ROOM else None
        file, path = tempfile.mkstemp(prefix="autocross-", dir=where)
        grow(file, FIRST_SIZE)
        os.close(file)
        return cls(path)

    def hide(self) -> None:
        """Take the name away, once both have opened the box: it then goes with them, however they end."""
        os.unlink(self.path)

    def send(self, data: bytes) -> None:
        """Write a message."""
        end = HEAD.size + len(data)
        if end > len(self.memory):
            grow(self.file, 2 * end)
            self.memory = mmap.mmap(self.file, 0)
        self.memory[HEAD.size : end] = data
        self.number += 1
        self.memory[: HEAD.size] = HEAD.pack(self.number, len(data), xxhash.xxh3_64_intdigest(data))

    def look(self) -> bytes | None:
        """The next message, if it is there."""
        number, length, hashed = HEAD.unpack_from(self.memory)
        end = HEAD.size + length
        if number != self.number + 1 or end > os.fstat(self.file).st_size:
            return None
        if end > len(self.memory):
            self.memory = mmap.mmap(self.file, 0)
        data = self.memory[HEAD.size : end]
        if xxhash.xxh3_64_intdigest(data) != hashed:  # not all of it can be seen yet
            return None
        self.number = number
        return data

    def wait(self, still_there: Callable[[], None] = lambda: None) -> bytes:
        """The next message; ``still_there`` is called from time to time and raises if none can come."""
        began, asked = perf_counter(), 0.0
        while (data := self.look()) is None:
            waited = perf_counter() - began
            if waited > asked + EVERY:
                asked = waited
                still_there()
            sleep(min(LONGEST, SHORTEST + LATER * waited))
        return data


def grow(file: int, size: int) -> None:
    """Make a file so large by writing to it: memory that is mapped but not there would end the process."""
    have = os.fstat(file).st_size
    while have < size:
        written = os.pwrite(file, bytes(min(size - have, 1 << 26)), have)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        have += written
