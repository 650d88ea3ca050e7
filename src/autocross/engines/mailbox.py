"""Messages between two processes of one machine, through memory that both see.

A message of Ray's wakes several threads in turn, which takes milliseconds where all cores are busy. Here the one who waits is woken
by a bell, a pipe with a name, and finds the message in memory.
"""

from __future__ import annotations

import mmap
import os
import select
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from autocross.errors import FileError

HEAD = 8  # bytes that tell the length of the message
FIRST_SIZE = 1 << 16
SHARED = Path("/dev/shm")
ROOM = 1 << 30  # bytes that must be free there: messages have some megabytes
EVERY = 0.1  # seconds after which to ask again whether the other side is still there


class Box:
    """A file with one message at a time, from one process to another; it is read before the next one is written."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file = os.open(path, os.O_RDWR)
        self.bell = os.open(bell_of(path), os.O_RDWR)
        self.memory = mmap.mmap(self.file, 0)

    @classmethod
    def new(cls) -> Box:
        """A box that nobody has opened yet."""
        where = SHARED if SHARED.is_dir() and shutil.disk_usage(SHARED).free > ROOM else None
        file, path = tempfile.mkstemp(prefix="autocross-", dir=where)
        grow(file, FIRST_SIZE, path)
        os.close(file)
        os.mkfifo(bell_of(path), 0o600)
        return cls(path)

    def hide(self) -> None:
        """Take the names away, once both have opened the box: it then goes with them, however they end."""
        os.unlink(self.path)
        os.unlink(bell_of(self.path))

    def close(self) -> None:
        """Let go of the box; the memory goes when nobody reads the last message any more."""
        with suppress(BufferError):
            self.memory.close()
        os.close(self.file)
        os.close(self.bell)

    def send(self, data: bytes) -> None:
        """Write a message."""
        end = HEAD + len(data)
        if end > len(self.memory):
            grow(self.file, 2 * end, self.path)
            self.memory = mmap.mmap(self.file, 0)
        self.memory[:HEAD] = len(data).to_bytes(HEAD, "little")
        self.memory[HEAD:end] = data
        os.write(self.bell, b"!")

    def wait(self, still_there: Callable[[], None] = lambda: None) -> memoryview:
        """The next message, there until the one after it; ``still_there`` is called now and then and raises if none can come."""
        while not select.select([self.bell], [], [], EVERY)[0]:
            still_there()
        os.read(self.bell, 1)
        end = HEAD + int.from_bytes(self.memory[:HEAD], "little")
        if end > len(self.memory):
            self.memory = mmap.mmap(self.file, 0)
        return memoryview(self.memory)[HEAD:end]


def bell_of(path: str) -> str:
    return f"{path}.bell"


def grow(file: int, size: int, path: str) -> None:
    """Make a file so large by writing to it: memory that is mapped but not there would end the process."""
    have = os.fstat(file).st_size
    try:
        while have < size:
            have += os.pwrite(file, bytes(min(size - have, 1 << 26)), have)
    except OSError as error:
        folder = os.path.dirname(path)
        raise FileError(
            f"A message between processes takes {size / 2**20:.1f} MiB in {folder!r}: {error.strerror}. Make room there, "
            f"set TMPDIR to a folder with more of it, or use engine='threads'."
        ) from error
