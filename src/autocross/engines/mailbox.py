"""Messages between two processes of one machine, through shared memory.

A message of Ray wakes several threads in turn, which takes milliseconds if all cores are busy. Here the process that waits is woken
by a bell, which is a named pipe, and finds the message in memory.
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

HEAD = 8  # bytes at the beginning that hold the length of the message
FIRST_SIZE = 1 << 16
SHARED = Path("/dev/shm")
ROOM = 1 << 30  # bytes that must be free in that folder; messages have some megabytes
EVERY = 0.1  # seconds between two checks that the other process is still there


class Box:
    """A file through which one process sends messages to another. Each message is read before the next one is written."""

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
        """Delete the names, once both processes have opened the box. It then disappears with them, however they end."""
        os.unlink(self.path)
        os.unlink(bell_of(self.path))

    def close(self) -> None:
        """Close the box. Its memory is freed when nobody reads the last message any more."""
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
        """The next message, which is valid until the one after it. ``still_there`` is called now and then, and raises an error if
        no message can come any more."""
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
    """Make a file this large by writing to it. If memory were mapped without room behind it, using it would end the process."""
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
