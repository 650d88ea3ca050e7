"""Keeps arrays that are too large for memory in a temporary file.

Arrays are written by system calls and not through mapped memory: a full disk is then an error, and not a signal that ends the
process. They are read through maps that last for as long as somebody holds the array, so that only what is being worked on is in
memory.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from bisect import insort
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from errno import EINVAL, ENODEV, EOPNOTSUPP
from threading import Lock
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from autocross.errors import FileError

PAGE = mmap.ALLOCATIONGRANULARITY
CANNOT_RESERVE = (EINVAL, ENODEV, EOPNOTSUPP)  # errors of file systems that cannot reserve room


class Scratch:
    """A file without a name in the temporary folder. It disappears when it is closed, or when the process ends.

    ``needed`` is the largest number of bytes that it will take, for the message if the disk is full.
    """

    def __init__(self, needed: int = 0) -> None:
        self.needed = needed
        self.lock = Lock()
        self.end = 0
        self.free: list[tuple[int, int]] = []  # free places, and how many bytes each has
        self.given_back: deque[tuple[int, int]] = deque()  # places that were freed since, at any moment and in any thread
        self.folder = ""
        with self.explained(needed):
            self.folder = tempfile.gettempdir()
            self.file = tempfile.TemporaryFile(prefix="autocross-", dir=self.folder)  # noqa: SIM115  closed by `__exit__`

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def room(self, kind: Any, n: int) -> Stored:
        """Reserve room on disk for so many values."""
        n_bytes = -(-max(1, n * np.dtype(kind).itemsize) // PAGE) * PAGE
        with self.lock:
            first = self.left(n_bytes)
            if first is None:
                first = self.end
                with self.explained(n_bytes):
                    reserve(self.file.fileno(), first, n_bytes)
                self.end += n_bytes
        return Stored(Room(self, first, n_bytes), np.dtype(kind), 0, n)

    def left(self, n_bytes: int) -> int | None:
        """A free place with so many bytes, or None. What is left of a larger place stays free."""
        while self.given_back:
            insort(self.free, self.given_back.popleft())
        position = 0
        while position < len(self.free):
            first, size = self.free[position]
            if position + 1 < len(self.free) and first + size == self.free[position + 1][0]:
                self.free[position : position + 2] = [(first, size + self.free[position + 1][1])]
            elif size >= n_bytes:
                self.free[position : position + 1] = [(first + n_bytes, size - n_bytes)] if size > n_bytes else []
                return first
            else:
                position += 1
        return None

    def keep(self, values: NDArray[Any]) -> Stored:
        """Write these values to the file."""
        stored = self.room(values.dtype, len(values))
        stored.write(0, values)
        return stored

    @contextmanager
    def explained(self, n_bytes: int) -> Iterator[None]:
        """An error of the disk, with a message that helps."""
        try:
            yield
        except OSError as error:
            left = f", and {in_words(shutil.disk_usage(self.folder).free)} are free" if os.path.isdir(self.folder) else ""
            raise FileError(
                f"Cannot keep the codes of the rows in the temporary folder {self.folder!r}: {error.strerror}. "
                f"They take some {in_words(max(self.needed, self.end + n_bytes))} there{left}. "
                "Set TMPDIR to a folder with more room, or raise memory_limit so that the rows are kept in memory."
            ) from error.with_traceback(None)  # from Python 3.12 on its traceback would hold itself, and with it what is mapped


class Room:
    """Some bytes of the file. They are free again when nobody holds this object any more."""

    def __init__(self, scratch: Scratch, first: int, n_bytes: int) -> None:
        self.scratch, self.first, self.n_bytes = scratch, first, n_bytes

    def __del__(self) -> None:
        self.scratch.given_back.append((self.first, self.n_bytes))


@dataclass(frozen=True)
class Stored:
    """An array in the file, or a part of one: ``n`` values, beginning with number ``first``."""

    place: Room = field(repr=False)
    dtype: np.dtype[Any]
    first: int
    n: int

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, part: slice) -> Stored:
        first, last, _ = part.indices(self.n)
        return replace(self, first=self.first + first, n=max(0, last - first))

    def write(self, first: int, values: NDArray[Any]) -> None:
        """Write values into the array, beginning at ``first``."""
        assert first + len(values) <= self.n
        data = np.ascontiguousarray(values, self.dtype).data.cast("B")
        scratch, to = self.place.scratch, self.place.first + (self.first + first) * self.dtype.itemsize
        with scratch.explained(len(data)):
            while len(data):
                written = os.pwrite(scratch.file.fileno(), data, to)
                data, to = data[written:], to + written

    def read(self) -> NDArray[Any]:
        """The values. They are read from disk when they are looked at."""
        if not self.n:
            return np.empty(0, self.dtype)
        begin = self.place.first + self.first * self.dtype.itemsize
        before = begin % PAGE
        # A map that could be written to, though nobody does: kernels are compiled for writable arrays.
        file, n_bytes = self.place.scratch.file.fileno(), before + self.n * self.dtype.itemsize
        window = Window(file, n_bytes, access=mmap.ACCESS_COPY, offset=begin - before)
        window.room = self.place
        return np.frombuffer(window, self.dtype, self.n, before)


class Window(mmap.mmap):
    """A part of the file in memory. It holds on to its room, so that nothing else is written there meanwhile."""

    room: Room


def read(values: Any) -> NDArray[Any]:
    """The array itself or, if it is stored, its values from disk."""
    return values.read() if isinstance(values, Stored) else values


def reserve(file: int, first: int, n_bytes: int) -> None:
    """Reserve bytes on the disk, if the system can do so. Too little room then shows at once, and not hours later."""
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(file, first, n_bytes)
    except OSError as error:
        if error.errno not in CANNOT_RESERVE:
            raise


def in_words(n_bytes: int) -> str:
    """
    >>> in_words(3 << 30), in_words(5 << 19)
    ('3.0 GiB', '2.5 MiB')
    """
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 1 << 30 else f"{n_bytes / 2**20:.1f} MiB"
