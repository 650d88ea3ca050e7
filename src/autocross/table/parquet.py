"""Checks what a Parquet file says about itself before polars relies on it.

Polars allocates memory for as many values as a file claims to have, and ends the whole process if there is not enough: one flipped
bit in a header is enough for that. So before a file is read, its footer and the headers of all its pages are checked against each
other and against the size of the file: sizes, offsets and numbers of values. That takes a small share of the time of reading.

The content of pages is not checked. In one encoding, DELTA_BYTE_ARRAY, lengths within a page can have the same effect. A file that
uses it is first read by another process, and by this one only if the other has survived.
"""

from __future__ import annotations

import mmap
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autocross.errors import FileError
from autocross.kernels import thrift

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

MAGIC = b"PAR1"
SHORTEST = 12  # bytes of the marks at both ends and of the length of the footer
DEEPEST_SCHEMA = 64  # columns within columns
DELTA_BYTE_ARRAY = 7
REPEATED = 2


class Damaged(Exception):  # noqa: N818  the message is put into a FileError, with the file's name
    """Something in the file cannot be right; the text says what."""


def path_of(*fields: int) -> int:
    """How `kernels.thrift` writes the path of a field."""
    path = 1
    for field in fields:
        path = path * 64 + field
    return path


ELEMENT, ELEMENT_TYPE, ELEMENT_REPETITION, ELEMENT_CHILDREN = path_of(2), path_of(2, 1), path_of(2, 3), path_of(2, 5)
N_ROWS, GROUP, GROUP_ROWS = path_of(3), path_of(4), path_of(4, 3)
CHUNK = path_of(4, 1)
CHUNK_VALUES, CHUNK_UNPACKED, CHUNK_PACKED = path_of(4, 1, 3, 5), path_of(4, 1, 3, 6), path_of(4, 1, 3, 7)
CHUNK_PAGES, CHUNK_DICTIONARY = path_of(4, 1, 3, 9), path_of(4, 1, 3, 11)


@dataclass(frozen=True)
class Footer:
    """The groups of rows and, for each column of each group, a chunk: where its pages are, and what they hold."""

    group_rows: Ints
    begins: Ints
    ends: Ints
    n_values: Ints
    unpacked: Ints

    def chunks_of(self, first_row: int, n_rows: int | None) -> slice:
        """The chunks that hold these rows."""
        after = np.cumsum(self.group_rows)
        first = int(np.searchsorted(after, first_row, side="right"))
        last = len(after) if n_rows is None else int(np.searchsorted(after, first_row + n_rows, side="left")) + 1
        n_columns = len(self.begins) // max(1, len(after))
        return slice(first * n_columns, last * n_columns)


@contextmanager
def named(name: str) -> Iterator[None]:
    """Inside this context, `Damaged` becomes a FileError with the name of the file."""
    try:
        yield
    except Damaged as error:
        raise FileError(f"Cannot read {name!r}: {error}. The file is damaged or incomplete; copy it again.") from None


def check(name: str, source: Path | BytesIO, first_row: int = 0, n_rows: int | None = None) -> None:
    """Refuse a file that cannot be read safely. Only these rows are checked; the default is all."""
    with named(name):
        data = bytes_of(source)
        footer = footer_of(data, len(data))
        wanted = footer.chunks_of(first_row, n_rows)
        begins, ends, n_values, unpacked = (part[wanted] for part in (footer.begins, footer.ends, footer.n_values, footer.unpacked))
        paths, values = np.empty(thrift.MOST_VALUES, np.int64), np.empty(thrift.MOST_VALUES, np.int64)
        page, encodings = thrift.walk_pages(data, begins, ends, n_values, unpacked, new_stack(), paths, values)
        if page >= 0:
            raise Damaged(f"the header of the page at byte {page} cannot be right")
        if encodings >> DELTA_BYTE_ARRAY & 1:
            rehearse(source, first_row, n_rows)


def check_footer(name: str, source: Path | BytesIO, n_bytes: int | None = None) -> None:
    """Refuse a file whose rows and columns cannot even be counted. ``n_bytes`` is its size, if only its end is given."""
    with named(name):
        data = bytes_of(source)
        footer_of(data, len(data) if n_bytes is None else n_bytes)


def n_values(name: str, source: Path | BytesIO, n_bytes: int | None = None) -> int:
    """How many values a file has in all columns. Each entry of a list counts."""
    with named(name):
        data = bytes_of(source)
        return int(footer_of(data, len(data) if n_bytes is None else n_bytes).n_values.sum())


def bytes_of(source: Path | BytesIO) -> Bytes:
    """The file as an array. Only the parts that are looked at are read from disk."""
    if isinstance(source, BytesIO):
        return np.frombuffer(source.getvalue(), np.uint8)  # no copy, and no view of the stream, at which Python 3.12.1 may crash
    with source.open("rb") as stream:
        if source.stat().st_size == 0:
            raise Damaged("it is empty")
        return np.frombuffer(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def new_stack() -> Ints:
    return np.empty((thrift.DEEPEST, 4), np.int64)


# The footer.


def footer_of(data: Bytes, n_bytes: int) -> Footer:
    """The footer of a file of so many bytes, checked for whether it can be right."""
    if len(data) < SHORTEST or data[-4:].tobytes() != MAGIC or data[:4].tobytes() != MAGIC:
        raise Damaged("it does not begin and end as a Parquet file does")
    length = int.from_bytes(data[-8:-4].tobytes(), "little")
    if length > len(data) - SHORTEST:
        raise Damaged(f"its footer should have {length:,} bytes, and the file has {n_bytes:,}")
    text = data[len(data) - 8 - length : -8]
    nothing, stack = np.empty(0, np.int64), new_stack()
    n, end = thrift.read(text, 0, nothing, nothing, stack)
    if end < 0:
        raise Damaged("its footer is not well formed")
    paths, values = np.empty(n, np.int64), np.empty(n, np.int64)
    thrift.read(text, 0, paths, values, stack)
    repeated = repeated_leaves(paths, values)
    footer = chunks(paths, values)
    check_chunks(footer, repeated, single(paths, values, N_ROWS), n_bytes - 8 - length)
    return footer


def single(paths: Ints, values: Ints, path: int) -> int:
    """The only value with this path, or -1 if there is none."""
    (places,) = np.nonzero(paths == path)
    return int(values[places[-1]]) if len(places) else -1


def by_owner(paths: Ints, values: Ints, owner: int, path: int, default: int = -1) -> Ints:
    """For each structure at the path ``owner``, the value within it at ``path``."""
    begins = paths == owner
    number = np.cumsum(begins) - 1
    of_owner = np.full(int(begins.sum()), default, np.int64)
    matches = (paths == path) & (number >= 0)
    of_owner[number[matches]] = values[matches]
    return of_owner


def repeated_leaves(paths: Ints, values: Ints) -> NDArray[np.bool_]:
    """For each column that holds values, whether a row may have several of them."""
    is_leaf = by_owner(paths, values, ELEMENT, ELEMENT_TYPE) >= 0
    repeated = by_owner(paths, values, ELEMENT, ELEMENT_REPETITION) == REPEATED
    n_children = by_owner(paths, values, ELEMENT, ELEMENT_CHILDREN, 0)
    may_repeat: list[bool] = []
    open_groups: list[tuple[int, bool]] = []  # how many children are still to come, and whether the group is repeated
    for number, (leaf, several, children) in enumerate(zip(is_leaf.tolist(), repeated.tolist(), n_children.tolist(), strict=True)):
        if number and not open_groups:
            raise Damaged("its columns do not fit together")
        within = open_groups[-1][1] if open_groups else False
        if open_groups:
            open_groups[-1] = (open_groups[-1][0] - 1, within)
        if leaf:
            may_repeat.append(within or several)
        else:
            open_groups.append((children, within or several))
        while open_groups and open_groups[-1][0] <= 0:
            open_groups.pop()
        if len(open_groups) > DEEPEST_SCHEMA:
            raise Damaged(f"its columns lie more than {DEEPEST_SCHEMA} deep within each other")
    if open_groups:
        raise Damaged("its columns do not fit together")
    return np.array(may_repeat, bool)


def chunks(paths: Ints, values: Ints) -> Footer:
    """The chunks of all groups of rows."""
    pages, dictionary, packed = (by_owner(paths, values, CHUNK, path) for path in (CHUNK_PAGES, CHUNK_DICTIONARY, CHUNK_PACKED))
    begins = np.where(dictionary >= 0, dictionary, pages)
    group_rows = by_owner(paths, values, GROUP, GROUP_ROWS)
    n_values, unpacked = (by_owner(paths, values, CHUNK, path) for path in (CHUNK_VALUES, CHUNK_UNPACKED))
    return Footer(group_rows, begins, begins + packed, n_values, unpacked)


def check_chunks(footer: Footer, repeated: NDArray[np.bool_], n_rows: int, n_bytes: int) -> None:
    """Refuse chunks that lie outside the first ``n_bytes`` bytes, or do not have as many values as the rows need."""
    n_groups, n_columns = len(footer.group_rows), len(repeated)
    if len(footer.begins) != n_groups * n_columns:
        raise Damaged(f"it has {n_columns} columns in {n_groups} groups of rows, but {len(footer.begins)} chunks of values")
    if (footer.group_rows < 0).any() or sum(footer.group_rows.tolist()) != n_rows:
        raise Damaged(f"it should have {n_rows:,} rows, but its groups of rows have other numbers")
    outside = (footer.begins < len(MAGIC)) | (footer.ends < footer.begins) | (footer.ends > n_bytes) | (footer.unpacked < 0)
    outside &= footer.n_values != 0  # some writers give no place for a chunk without values
    if outside.any():
        raise Damaged(f"its column {int(np.argmax(outside)) % n_columns} does not lie within it")
    rows = np.repeat(footer.group_rows, n_columns)
    wrong = np.where(np.tile(repeated, n_groups), footer.n_values < 0, footer.n_values != rows)
    if wrong.any():
        raise Damaged(f"its column {int(np.argmax(wrong)) % n_columns} does not have a value for each row")


# Reading where it does no harm.

REHEARSAL = """
import io, sys
import polars as pl
path, first, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rows = pl.scan_parquet(path, glob=False) if path else pl.scan_parquet(io.BytesIO(sys.stdin.buffer.read()))
try:
    for _ in rows.slice(first, None if n < 0 else n).collect_batches():
        pass
except BaseException:
    pass  # as an exception it will be raised again where the rows are needed
print("survived")
"""


def rehearse(source: Path | BytesIO, first_row: int, n_rows: int | None) -> None:
    """Read these rows in another process, which may crash. It has a session of its own, so that Ctrl-C does not reach it."""
    content = source.getvalue() if isinstance(source, BytesIO) else b""
    arguments = ["" if isinstance(source, BytesIO) else str(source), str(first_row), str(-1 if n_rows is None else n_rows)]
    command = [sys.executable, "-c", REHEARSAL, *arguments]
    done = subprocess.run(command, input=content, capture_output=True, start_new_session=True, check=False)
    if b"survived" not in done.stdout:
        raise Damaged("the process that tried to read it has died")
