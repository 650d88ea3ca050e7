"""The bytes of a CSV file, cut where lines end.

Polars may read hundreds of megabytes ahead, even for a single line, so it is given blocks of bytes instead.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import numpy as np

QUOTE, LINE_END = b'"', b"\n"
GZIP = b"\x1f\x8b"
ONLY_POLARS = (b"\x28\xb5\x2f\xfd", b"\x78\x01", b"\x78\x9c", b"\x78\xda")  # how files packed by zstd and by zlib begin
HEAD = 1 << 16  # bytes that hold the first lines of most files
WIDEST = 64  # blocks; a quote that is not closed within them is taken for an ordinary character


def mark_of(path: Path) -> bytes:
    """The first bytes of a file, which say how it is compressed, whatever its name is."""
    with path.open("rb") as stream:
        return stream.read(4)


def can_cut(path: Path) -> bool:
    """Whether lines can be found here. Some compressed files can be unpacked by polars only."""
    return not mark_of(path).startswith(ONLY_POLARS)


def blocks(path: Path, n_bytes: int) -> Iterator[bytes]:
    """All lines in blocks of about so many bytes. A line break within quotes does not end a line."""
    rest = b""
    with cast(IO[bytes], gzip.open(path)) if mark_of(path).startswith(GZIP) else path.open("rb") as stream:
        while data := some_bytes(stream, n_bytes):
            rest += data
            end = last_line_end(rest)
            if not end and len(rest) > WIDEST * n_bytes:
                end = rest.rfind(LINE_END) + 1
            if end:
                yield rest[:end]
                rest = rest[end:]
    if rest:
        yield rest


def some_bytes(stream: IO[bytes], n_bytes: int) -> bytes:
    """The next bytes of a file that may be compressed."""
    try:
        return stream.read(n_bytes)
    except (EOFError, zlib.error) as error:
        raise OSError(str(error)) from error  # as other readers raise it


def first_lines(path: Path, n: int) -> bytes | Path:
    """At least so many lines from the beginning, or all lines. The file itself if lines cannot be found."""
    if not can_cut(path):
        return path
    text = b""
    for block in blocks(path, HEAD):
        text += block
        if n_lines(text) >= n:
            break
    return text


def n_lines(text: bytes) -> int:
    """How many lines end in a text. Line breaks within quotes do not count."""
    if QUOTE not in text:
        return text.count(LINE_END)
    letters = np.frombuffer(text, np.uint8)
    within = np.cumsum(letters == ord(QUOTE), dtype=np.int64) % 2 == 1
    return int(np.count_nonzero((letters == ord(LINE_END)) & ~within))


def last_line_end(text: bytes) -> int:
    """The position behind the last line break before which all quotes are closed, or 0 if there is none."""
    end = text.rfind(LINE_END)
    n_quotes = text.count(QUOTE, 0, end) if end >= 0 else 0
    while end >= 0 and n_quotes % 2:
        before = text.rfind(LINE_END, 0, end)
        n_quotes -= text.count(QUOTE, max(before, 0), end)
        end = before
    return end + 1
