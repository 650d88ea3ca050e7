"""The bytes of a CSV file, cut where lines end.

What polars reads ahead of what it is asked for may be hundreds of megabytes, of a single line too: it is given blocks instead.
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
WIDEST = 64  # blocks: a quote that is not closed by then was none


def mark_of(path: Path) -> bytes:
    """The first bytes of a file, which tell how it is packed, whatever its name is."""
    with path.open("rb") as stream:
        return stream.read(4)


def can_cut(path: Path) -> bool:
    """Whether the lines of a file can be told here: some files only polars can unpack."""
    return not mark_of(path).startswith(ONLY_POLARS)


def blocks(path: Path, n_bytes: int) -> Iterator[bytes]:
    """All lines, those within quotes not cut, in blocks of about so many bytes."""
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
    """The next bytes of a file that may be packed."""
    try:
        return stream.read(n_bytes)
    except (EOFError, zlib.error) as error:
        raise OSError(str(error)) from error  # as other readers have it


def first_lines(path: Path, n: int) -> bytes | Path:
    """So many lines from the beginning, or more, or all there are; the file itself where they cannot be told."""
    if not can_cut(path):
        return path
    found = b""
    for block in blocks(path, HEAD):
        found += block
        if n_lines(found) >= n:
            break
    return found


def n_lines(text: bytes) -> int:
    """How many lines end in a text, those within quotes not counted."""
    if QUOTE not in text:
        return text.count(LINE_END)
    letters = np.frombuffer(text, np.uint8)
    within = np.cumsum(letters == ord(QUOTE), dtype=np.int64) % 2 == 1
    return int(np.count_nonzero((letters == ord(LINE_END)) & ~within))


def last_line_end(text: bytes) -> int:
    """Behind the last end of a line before which all quotes are closed; 0 where there is none."""
    end = text.rfind(LINE_END)
    n_quotes = text.count(QUOTE, 0, end) if end >= 0 else 0
    while end >= 0 and n_quotes % 2:
        before = text.rfind(LINE_END, 0, end)
        n_quotes -= text.count(QUOTE, max(before, 0), end)
        end = before
    return end + 1
