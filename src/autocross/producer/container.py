"""A safetensors file, read with suspicion: what it costs stays in proportion to what is really in it.

The file is the length of a header (8 bytes), the header (JSON: texts, and for each array its type, shape and place), and the
arrays, end to end. The header is checked before anything is built from it. An array is read when it is asked for, which may be
after its shape was compared with all that is known of it.
"""

from __future__ import annotations

import json
import math
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from autocross.errors import BundleError, FileError

# The header of a model of 50,000 numerical columns: its bytes, and its brackets, commas and colons, each of which may stand for
# an object of some 100 bytes.
MOST_BYTES, MOST_MARKS = 1 << 25, 1 << 22
MARKS = "[{,:"
# A stretch of as many zeros is a hole in the file, unless an array may well be zero.
CHUNK = 1 << 16
HOLE = bytes(CHUNK)

SHOWN = 200  # characters of a name
TOO_LARGE = "its header is larger than a model of autocross needs"

TYPES: dict[str, np.dtype[Any]] = {
    "U8": np.dtype("u1"),
    "U32": np.dtype("<u4"),
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
    "F64": np.dtype("<f8"),
}


def require(condition: bool, complaint: str) -> None:
    """Stop at the first thing that cannot be true of a bundle of ours."""
    if not condition:
        raise BundleError(f"{complaint}. The file is damaged or was not written by autocross; save or copy it again.")


def quoted(value: Any) -> str:
    """A name from a file that may not be believed: a message shows no more of it than helps."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


@dataclass(frozen=True)
class Entry:
    """What the header says of one array; ``start`` counts from the beginning of the file."""

    kind: np.dtype[Any]
    shape: tuple[int, ...]
    start: int

    @property
    def n_bytes(self) -> int:
        return self.kind.itemsize * math.prod(self.shape)


class Container:
    """An open file: the text that its header keeps under a key, and its arrays."""

    def __init__(self, stream: IO[bytes], key: str, what: str = "model") -> None:
        self.stream = stream
        self.size = os.fstat(stream.fileno()).st_size
        self.expected: set[str] = set()
        self.arrays: dict[str, NDArray[Any]] = {}  # those read so far
        header = self.read_header()
        texts = header.pop("__metadata__", None)
        text = texts.get(key) if isinstance(texts, dict) else None
        if text is None:
            raise BundleError(f"it is a safetensors file, but not a {what} of autocross. Give the path of a saved {what}.")
        self.manifest = objects_of(text)
        self.entries = self.tiled(header)

    def read_header(self) -> dict[str, Any]:
        """The header as objects, unless it would make too many of them."""
        require(self.size >= 8, "it is too short for a header")
        (length,) = struct.unpack("<Q", self.stream.read(8))
        require(length <= self.size - 8, "its header is longer than the file")
        require(length <= MOST_BYTES, TOO_LARGE)
        content = bytearray()
        while len(content) < length:
            chunk = self.stream.read(min(CHUNK, length - len(content)))
            require(bool(chunk) and b"\0" not in chunk, "its header is no JSON, or its end is lost")
            content += chunk
        self.first = 8 + length
        header = objects_of(content.decode())
        require(isinstance(header, dict), "its header is no JSON object")
        return header  # type: ignore[no-any-return]

    def tiled(self, header: dict[str, Any]) -> dict[str, Entry]:
        """The arrays; they must follow each other without a gap and end with the file."""
        entries, bounds = {}, []
        for name, facts in header.items():
            owner = f"array {quoted(name)}"
            require(isinstance(facts, dict) and set(facts) == {"dtype", "shape", "data_offsets"}, f"{owner} is not described")
            require(isinstance(facts["dtype"], str) and facts["dtype"] in TYPES, f"{owner} has an unknown type")
            kind, shape, offsets = TYPES[facts["dtype"]], facts["shape"], facts["data_offsets"]
            require(isinstance(shape, list) and all(map(is_size, shape)) and len(shape) <= 2, f"{owner} has no proper shape")
            require(isinstance(offsets, list) and len(offsets) == 2 and all(map(is_size, offsets)), f"{owner} has no place")
            entries[name] = Entry(kind, tuple(shape), self.first + offsets[0])
            require(offsets[1] - offsets[0] == entries[name].n_bytes, f"{owner} does not fill its place")
            bounds.append(offsets)
        end = 0
        for start, stop in sorted(bounds):
            require(start == end, "its arrays do not follow each other")
            end = stop
        require(self.first + end == self.size, "its arrays do not end with the file")
        return entries

    def expect(self, name: str, kind: str, shape: tuple[int | None, ...], complaint: str) -> tuple[int, ...]:
        """The shape of an array that must be there; None stands for any size."""
        require(name in self.entries, f"it has no array {name!r}")
        entry = self.entries[name]
        fits = len(entry.shape) == len(shape) and all(b in (a, None) for a, b in zip(entry.shape, shape, strict=True))
        require(fits and entry.kind == TYPES[kind], complaint)
        self.expected.add(name)
        return entry.shape

    def expect_no_more(self) -> None:
        """All arrays were expected."""
        for name in self.entries:
            require(name in self.expected, f"it has an array {quoted(name)}, which no part of it speaks of")

    def array(self, name: str, owner: str, *, may_be_zero: bool = False) -> NDArray[Any]:
        """The content of an array, which belongs to the owner. No memory is taken for one that is a hole in the file."""
        entry = self.entries[name]
        if not may_be_zero:
            self.require_content(entry, owner)
        self.arrays[name] = found = np.empty(entry.shape, entry.kind)
        self.stream.seek(entry.start)
        n_read = self.stream.readinto(found.reshape(-1).view(np.uint8))  # type: ignore[attr-defined]
        require(n_read == found.nbytes, "its end is lost")
        return found

    def require_content(self, entry: Entry, owner: str) -> None:
        """An array that cannot be zero for long is not."""
        self.stream.seek(entry.start)
        for _ in range(entry.n_bytes // CHUNK):
            require(self.stream.read(CHUNK) != HOLE, f"{owner} has an array of nothing but zeros")


def objects_of(text: Any) -> Any:
    """JSON as objects, which take many times the memory of their text: not if there are more of them than a model needs.

    How deep they lie within each other is bounded by Python itself.
    """
    require(isinstance(text, str), "its manifest is no text")
    require(is_short(text), TOO_LARGE)
    return json.loads(text)


def header_of(content: bytes) -> str:
    """The header of a file in good order."""
    (length,) = struct.unpack("<Q", content[:8])
    return content[8 : 8 + length].decode()


def is_short(header: str) -> bool:
    """Whether a header is one that will be read."""
    return len(header) <= MOST_BYTES and sum(map(header.count, MARKS)) <= MOST_MARKS


def is_size(value: Any) -> bool:
    """Whether this is a number of bytes or entries."""
    return type(value) is int and 0 <= value < 1 << 48


def open_file(path: str | Path) -> IO[bytes]:
    """An ordinary file, open for reading. Pipes and devices, which may wait or never end, are not even opened."""
    try:
        if stat.S_ISREG(os.stat(path).st_mode):
            # Without waiting, and asked again: something else may have taken the place of the file by now.
            stream = open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))  # noqa: SIM115
            if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return stream
            stream.close()
    except FileNotFoundError:
        raise FileError(f"There is no model file {str(path)!r}. Check the path.") from None
    except (OSError, ValueError) as error:  # the latter: a path that no system has
        why = getattr(error, "strerror", None) or error
        raise FileError(f"Cannot read {str(path)!r}: {why}. Check the path.") from error
    raise FileError(f"There is no model file {str(path)!r}, but something that is no ordinary file. Check the path.")
