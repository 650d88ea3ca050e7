"""Reads a safetensors file that may be forged. Memory and time stay in proportion to the size of the file.

The file consists of the length of the header (8 bytes), the header (JSON: texts, and for each array its type, shape and place), and
the arrays, one after the other. The header is read array by array, and reading ends at the first array that is not described
correctly. So memory stays in proportion to the length of the header. The manifest, a JSON text within the header, may hold
anything, so its brackets, commas and colons are counted before objects are made of it. An array is read only when it is asked for;
until then its shape can be compared with everything that is known about it.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from autocross.checks import DAMAGED, quoted, require
from autocross.errors import BundleError, FileError

# Limits on the bytes of a header, on its arrays, and on the brackets, commas and colons of its manifest, each of which may stand
# for an object of some 100 bytes. A model of 100,000 columns and 150,000 fields has 52 million, 350,000 and 2.7 million of these.
MOST_BYTES, MOST_ARRAYS, MOST_MARKS = 1 << 26, 1 << 19, 1 << 22
MARKS = "[{,:"
LONGEST_ENTRY = 1000  # most characters with which the header may describe an array
BLANKS = re.compile(r"[ \t\n\r]*")
# A run of this many zeros is taken for a hole in the file, unless the array may well be zero.
CHUNK = 1 << 16
HOLE = bytes(CHUNK)

TOO_LARGE = "its header is larger than a model of autocross needs"

TYPES: dict[str, np.dtype[Any]] = {
    "U8": np.dtype("u1"),
    "U16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
    "F32": np.dtype("<f4"),
    "I8": np.dtype("i1"),
    "I64": np.dtype("<i8"),
    "F64": np.dtype("<f8"),
}


class Cursor:
    """A place in a JSON text that moves forward as the text is read, so that only what is asked for becomes objects."""

    def __init__(self, text: str) -> None:
        self.text, self.place = text, 0

    def skip_blanks(self) -> None:
        match = BLANKS.match(self.text, self.place)
        assert match is not None
        self.place = match.end()

    def take(self, mark: str) -> bool:
        """Skip this mark if it comes next, perhaps after blanks; says whether it does."""
        if not self.text.startswith(mark, self.place):
            self.skip_blanks()
        follows = self.text.startswith(mark, self.place)
        self.place += follows
        return follows

    def string(self) -> str:
        """The text between quotes that must follow."""
        require(self.take('"'), "its header is no JSON that autocross writes")
        text: str
        text, self.place = scanstring(self.text, self.place, True)
        return text

    def members(self) -> Iterator[str]:
        """The keys of the object that must come next. The caller must read the value of a key before it asks for the next key."""
        require(self.take("{"), "its header is no JSON object")
        if self.take("}"):
            return
        more = True
        while more:
            key = self.string()
            require(self.take(":"), "its header is no JSON object")
            yield key
            more = self.take(",")
        require(self.take("}"), "its header is no JSON object")

    def flat_object(self) -> Any:
        """The object that comes next, or None if it is long or has other objects in it."""
        self.skip_blanks()
        end = self.text.find("}", self.place, self.place + LONGEST_ENTRY) + 1
        if not self.text.startswith("{", self.place) or not end:
            return None
        self.place, text = end, self.text[self.place : end]
        return json.loads(text)


@dataclass(frozen=True, slots=True)
class Entry:
    """What the header says about one array. ``start`` counts from the beginning of the file."""

    kind: np.dtype[Any]
    shape: tuple[int, ...]
    start: int

    @property
    def n_bytes(self) -> int:
        return self.kind.itemsize * math.prod(self.shape)


class Container:
    """An open file: the text that its header keeps under a key, and its arrays."""

    def __init__(self, stream: IO[bytes], key: str, kind: str = "model") -> None:
        self.stream = stream
        self.size = os.fstat(stream.fileno()).st_size
        self.expected: set[str] = set()
        self.arrays: dict[str, NDArray[Any]] = {}  # arrays that were read so far
        self.entries: dict[str, Entry] = {}
        text = self.read_header(key)
        if text is None:
            raise BundleError(f"it is a safetensors file, but not a {kind} of autocross. Give the path of a saved {kind}.")
        self.check_tiled()
        self.manifest = objects_of(text)

    def read_header(self, key: str) -> str | None:
        """Read what the header says about the arrays, and the text under the key, which must come before them. None if there is no
        such text."""
        cursor, entries = Cursor(self.header_text()), self.entries
        manifest: str | None = None
        for name in cursor.members():
            if name == "__metadata__":
                for word in cursor.members():
                    text = cursor.string()
                    manifest = text if word == key else manifest
                continue
            if manifest is None:
                return None
            require(name not in entries, "it describes an array twice")
            require(len(entries) < MOST_ARRAYS, TOO_LARGE)
            entries[name] = self.entry(name, cursor.flat_object())
        cursor.skip_blanks()
        require(cursor.place == len(cursor.text), "its header goes on behind its end")
        return manifest

    def header_text(self) -> str:
        """The header, if it is not too long."""
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
        require(content.isascii(), "its header is no JSON that autocross writes")  # else it takes four times the memory
        return content.decode()

    def entry(self, name: str, facts: Any) -> Entry:
        """What the header says about an array, checked for whether it can be right."""
        if not isinstance(facts, dict) or facts.keys() != {"dtype", "shape", "data_offsets"}:
            wrong = "is not described"
        elif not isinstance(facts["dtype"], str) or facts["dtype"] not in TYPES:
            wrong = "has an unknown type"
        elif not is_list_of_sizes(facts["shape"]) or len(facts["shape"]) > 2:
            wrong = "has no proper shape"
        elif not is_list_of_sizes(facts["data_offsets"]) or len(facts["data_offsets"]) != 2:
            wrong = "has no place"
        else:
            start, end = facts["data_offsets"]
            entry = Entry(TYPES[facts["dtype"]], tuple(facts["shape"]), self.first + start)
            if end - start == entry.n_bytes:
                return entry
            wrong = "does not fill its place"
        raise BundleError(f"array {quoted(name)} {wrong}. {DAMAGED}")

    def check_tiled(self) -> None:
        """Check that the arrays follow each other without a gap, and end with the file."""
        end = self.first
        for start, n_bytes in sorted((entry.start, entry.n_bytes) for entry in self.entries.values()):
            require(start == end, "its arrays do not follow each other")
            end += n_bytes
        require(end == self.size, "its arrays do not end with the file")

    def expect(self, name: str, kind: str, shape: tuple[int | None, ...], complaint: str) -> tuple[int, ...]:
        """The shape of an array that must be there; None stands for any size."""
        require(name in self.entries, f"it has no array {name!r}")
        entry = self.entries[name]
        fits = len(entry.shape) == len(shape) and all(b in (a, None) for a, b in zip(entry.shape, shape, strict=True))
        require(fits and entry.kind == TYPES[kind], complaint)
        self.expected.add(name)
        return entry.shape

    def expect_no_more(self) -> None:
        """Check that the file has no array that nobody expected."""
        for name in self.entries:
            require(name in self.expected, f"it has an array {quoted(name)}, which no part of it speaks of")

    def array(self, name: str, owner: str, *, may_be_zero: bool = False) -> NDArray[Any]:
        """The content of an array; ``owner`` names what it belongs to. A hole in the file is refused before memory is taken for
        it."""
        entry = self.entries[name]
        if not may_be_zero:
            self.require_content(entry, owner)
        self.arrays[name] = content = np.empty(entry.shape, entry.kind)
        self.stream.seek(entry.start)
        n_read = self.stream.readinto(content.reshape(-1).view(np.uint8))  # type: ignore[attr-defined]
        require(n_read == content.nbytes, "its end is lost")
        return content

    def require_content(self, entry: Entry, owner: str) -> None:
        """Refuse an array with long runs of zeros that it cannot have."""
        self.stream.seek(entry.start)
        for _ in range(entry.n_bytes // CHUNK):
            require(self.stream.read(CHUNK) != HOLE, f"{owner} has an array of nothing but zeros")


def objects_of(text: Any) -> Any:
    """The objects of a JSON text. They take many times the memory of the text, so a text with more of them than a model needs is
    refused.

    Python itself limits how deeply they can be nested.
    """
    require(isinstance(text, str), "its manifest is no text")
    require(text.isascii(), "its manifest is no JSON that autocross writes")
    require(is_short(text), TOO_LARGE)
    return json.loads(text)


def can_be_read(content: bytes, manifest: str, n_arrays: int) -> bool:
    """Whether a file with this manifest and so many arrays is within the limits of what can be read again."""
    (length,) = struct.unpack("<Q", content[:8])
    return length <= MOST_BYTES and n_arrays <= MOST_ARRAYS and is_short(manifest)


def is_short(manifest: str) -> bool:
    """Whether a manifest is within the limit of what is made into objects."""
    return sum(map(manifest.count, MARKS)) <= MOST_MARKS


def is_list_of_sizes(values: Any) -> bool:
    """Whether this is a list of numbers that can be sizes."""
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 48 for value in values)


def open_file(path: str | Path) -> IO[bytes]:
    """An ordinary file, open for reading. Pipes and devices are not even opened, because they may block or never end."""
    try:
        if stat.S_ISREG(os.stat(path).st_mode):
            # Opened without blocking, and checked again: something else may have replaced the file in the meantime.
            stream = open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))  # noqa: SIM115
            if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return stream
            stream.close()
    except FileNotFoundError:
        raise FileError(f"There is no model file {str(path)!r}. Check the path.") from None
    except (OSError, ValueError) as error:  # ValueError: a path that no system can have
        why = getattr(error, "strerror", None) or error
        raise FileError(f"Cannot read {str(path)!r}: {why}. Check the path.") from error
    raise FileError(f"There is no model file {str(path)!r}, but something that is no ordinary file. Check the path.")
