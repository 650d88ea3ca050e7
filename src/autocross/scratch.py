"""Arrays in a temporary file, for what is too much to keep in memory.

They are written by calls of the system, not through mapped memory: a disk that is full is then an error where it fills up,
not a signal that ends the process. They are read through maps that last as long as somebody holds the array, so that memory
has what is being worked on, and nothing else.
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
CANNOT_RESERVE = (EINVAL, ENODEV, EOPNOTSUPP)  # what file systems say that cannot; those of the C library try by writing


class Scratch:
    """A file without a name in the temporary folder, which goes when it is closed, and with the process.

    ``needed`` is how many bytes all of it will take at most, for the message of a disk that is full.
    """

    def __init__(self, needed: int = 0) -> None:
        self.needed = needed
        self.lock = Lock()
        self.end = 0
        self.free: list[tuple[int, int]] = []  # where there is room, and how many bytes
        self.given_back: deque[tuple[int, int]] = deque()  # the same, by whoever let go of an array, at any moment
        self.folder = ""
        with self.explained(needed):
            self.folder = tempfile.gettempdir()
            self.file = tempfile.TemporaryFile(prefix="autocross-", dir=self.folder)  # noqa: SIM115  closed by `__exit__`

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def room(self, kind: Any, n: int) -> Stored:
        """Room for so many values, on the disk from now on."""
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
        """Where so many bytes were given back, if they were; the rest of a larger room stays free."""
        while self.given_back:
            insort(self.free, self.given_back.popleft())
        at = 0
        while at < len(self.free):
            first, size = self.free[at]
            if at + 1 < len(self.free) and first + size == self.free[at + 1][0]:
                self.free[at : at + 2] = [(first, size + self.free[at + 1][1])]
            elif size >= n_bytes:
                self.free[at : at + 1] = [(first + n_bytes, size - n_bytes)] if size > n_bytes else []
                return first
            else:
                at += 1
        return None

    def keep(self, values: NDArray[Any]) -> Stored:
        """These values, in a room of their own."""
        stored = self.room(values.dtype, len(values))
        stored.write(0, values)
        return stored

    @contextmanager
    def explained(self, n_bytes: int) -> Iterator[None]:
        """The complaint of a disk in words that help."""
        try:
            yield
        except OSError as error:
            left = f", and {in_words(shutil.disk_usage(self.folder).free)} are free" if os.path.isdir(self.folder) else ""
            raise FileError(
                f"Cannot keep the codes of the rows in the temporary folder {self.folder!r}: {error.strerror}. "
                f"They take some {in_words(max(self.needed, self.end + n_bytes))} there{left}. "
                "Set TMPDIR to a folder with more room, or raise memory_limit so that the rows are kept in memory."
            ) from error


class Room:
    """Some bytes of the file. Once nobody holds them they are free again."""

    def __init__(self, scratch: Scratch, first: int, n_bytes: int) -> None:
        self.scratch, self.first, self.n_bytes = scratch, first, n_bytes

    def __del__(self) -> None:
        self.scratch.given_back.append((self.first, self.n_bytes))


@dataclass(frozen=True)
class Stored:
    """An array in the file, or a part of one: ``n`` values from ``first`` on."""

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
        """Put values into the array, from its ``first`` on."""
        assert first + len(values) <= self.n
        data = np.ascontiguousarray(values, self.dtype).data.cast("B")
        scratch, to = self.place.scratch, self.place.first + (self.first + first) * self.dtype.itemsize
        with scratch.explained(len(data)):
            while len(data):
                written = os.pwrite(scratch.file.fileno(), data, to)
                data, to = data[written:], to + written

    def read(self) -> NDArray[Any]:
        """The values, read from the disk as they are looked at."""
        if not self.n:
            return np.empty(0, self.dtype)
        begin = self.place.first + self.first * self.dtype.itemsize
        before = begin % PAGE
        # A copy on write that is never written to: kernels are compiled for arrays that could be.
        file, n_bytes = self.place.scratch.file.fileno(), before + self.n * self.dtype.itemsize
        window = Window(file, n_bytes, access=mmap.ACCESS_COPY, offset=begin - before)
        window.room = self.place
        return np.frombuffer(window, self.dtype, self.n, before)


class Window(mmap.mmap):
    """A part of the file in memory. It holds its room, so that nothing else is written there meanwhile."""

    room: Room


def read(values: Any) -> NDArray[Any]:
    """An array as it is, or from the disk."""
    return values.read() if isinstance(values, Stored) else values


def reserve(file: int, first: int, n_bytes: int) -> None:
    """Claim bytes on the disk, where it can be asked to: too little room shows at once, and not hours later."""
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
