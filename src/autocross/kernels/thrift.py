"""Thrift's compact protocol, in which a Parquet file describes itself, and the headers of its pages.

data   : uint8 (n_bytes,)     what is read; whatever it holds, no byte outside of it is touched
paths  : int64 (n_values,)    the fields that lead to a value, six bits for each, the outermost first, behind a leading 1
values : int64 (n_values,)    a whole number as it is, a text as its length, a structure as 0
stack  : int64 (DEEPEST, 4)   room to work: the structures and lists that are open
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.kernels import kernel

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

DEEPEST = 24  # structures and lists within each other; Parquet's own go half as deep
DEEPEST_PATH = 10  # what 63 bits hold
MOST_VALUES = 64  # of a page's header; it has some twenty
FALSE, BYTE, I16, I64, DOUBLE, TEXT, LIST, SET, STRUCTURE = 2, 3, 4, 6, 7, 8, 9, 10, 12  # kinds of values; 1 is true
PATH, FIELD, LEFT, KIND = 0, 1, 2, 3  # of an entry of the stack; LEFT is -1 for a structure, else how many entries a list still has

# Paths in the header of a page: 64 is the leading 1.
PAGE_KIND, UNPACKED_SIZE, PACKED_SIZE = 64 + 1, 64 + 2, 64 + 3
PLAIN_COUNT, PLAIN_ENCODING = (64 + 5) * 64 + 1, (64 + 5) * 64 + 2
DICTIONARY_COUNT = (64 + 7) * 64 + 1
NEWER_COUNT, NEWER_NULLS, NEWER_ROWS, NEWER_ENCODING = (64 + 8) * 64 + 1, (64 + 8) * 64 + 2, (64 + 8) * 64 + 3, (64 + 8) * 64 + 4
NEWER_DEFINED, NEWER_REPEATED = (64 + 8) * 64 + 5, (64 + 8) * 64 + 6
PLAIN_PAGE, DICTIONARY_PAGE, NEWER_PAGE = 0, 2, 3
MOST_PACKED, LITTLE = (
    1000,
    1 << 20,
)  # a page that unpacks to more than so many times its size, and to more than so many bytes, is odd


@kernel
def varint(data: Bytes, position: int) -> tuple[np.uint64, int]:
    """A number of seven bits a byte, the lowest first, and where it ends: -1 where it does not."""
    value = np.uint64(0)
    for shift in range(0, 70, 7):
        if position >= data.shape[0]:
            return value, -1
        byte = np.uint64(data[position])
        position += 1
        value |= (byte & np.uint64(127)) << np.uint64(shift)
        if byte < np.uint64(128):
            return value, position
    return value, -1


@kernel
def signed(value: np.uint64) -> np.int64:
    """A number whose last bit is its sign."""
    return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))


@kernel
def read(data: Bytes, position: int, paths: Ints, values: Ints, stack: Ints) -> tuple[int, int]:
    """The values of the structure that begins at `position`, as far as there is room for them.

    Returns how many there are and where the structure ends: -1 where it is not well formed.
    """
    n_bytes, n, depth = data.shape[0], 0, 0
    stack[0, PATH], stack[0, FIELD], stack[0, LEFT] = 1, 0, -1
    while depth >= 0:
        path, in_structure = stack[depth, PATH], stack[depth, LEFT] < 0
        if in_structure:
            if position >= n_bytes:
                return n, -1
            head = np.int64(data[position])
            position += 1
            if head == 0:
                depth -= 1
                continue
            kind, field = head & 15, stack[depth, FIELD] + (head >> 4)
            if head >> 4 == 0:
                raw, position = varint(data, position)
                if position < 0:
                    return n, -1
                field = signed(raw)
            stack[depth, FIELD] = field
            path = path * 64 + min(max(field, 0), 63)
        else:
            if stack[depth, LEFT] == 0:
                depth -= 1
                continue
            stack[depth, LEFT] -= 1
            kind = stack[depth, KIND]

        value: Any = np.int64(kind == 1)
        if kind < 1 or (kind > SET and kind != STRUCTURE):
            return n, -1
        if kind == BYTE or (kind <= FALSE and not in_structure):
            position += 1
        elif kind == DOUBLE:
            position += 8
        elif I16 <= kind <= I64 or kind == TEXT:
            raw, position = varint(data, position)
            if position < 0:
                return n, -1
            value = signed(raw)
            if kind == TEXT:
                if raw > np.uint64(n_bytes - position):
                    return n, -1
                value = np.int64(raw)
                position += value
        elif kind >= LIST:
            depth += 1
            if depth >= DEEPEST or path >= 64**DEEPEST_PATH:
                return n, -1
            stack[depth, PATH], stack[depth, FIELD], stack[depth, LEFT] = path, 0, -1
            if kind != STRUCTURE:
                if position >= n_bytes:
                    return n, -1
                head = np.int64(data[position])
                position += 1
                size = np.uint64(head >> 4)
                if size == np.uint64(15):
                    size, position = varint(data, position)
                if position < 0 or size > np.uint64(n_bytes - position):  # every entry takes a byte at least
                    return n, -1
                stack[depth, LEFT], stack[depth, KIND] = np.int64(size), head & 15
                continue
        if position > n_bytes:
            return n, -1
        if n < paths.shape[0]:
            paths[n], values[n] = path, value
        n += 1
    return n, position


@kernel
def value_at(path: int, n: int, paths: Ints, values: Ints) -> Any:
    """The value with this path; -1 where there is none."""
    for number in range(n):
        if paths[number] == path:
            return values[number]
    return np.int64(-1)


@kernel
def walk_pages(
    data: Bytes, begins: Ints, ends: Ints, n_values: Ints, unpacked: Ints, stack: Ints, paths: Ints, values: Ints
) -> tuple[int, Any]:
    """Go through the headers of all pages of some chunks, each from `begins` to `ends`, with so many values and unpacked bytes.

    Returns where the first header begins that cannot be right, -1 where all can; and a bit for each encoding there is.
    """
    encodings = np.int64(0)
    for chunk in range(begins.shape[0]):
        position, seen = begins[chunk], np.int64(0)
        while seen < n_values[chunk]:
            page = position
            n, position = read(data[: ends[chunk]], page, paths, values, stack)
            if position < 0 or n > paths.shape[0]:
                return page, encodings
            kind, count, encoding = value_at(PAGE_KIND, n, paths, values), np.int64(0), np.int64(0)
            packed, size = value_at(PACKED_SIZE, n, paths, values), value_at(UNPACKED_SIZE, n, paths, values)
            if packed < 0 or packed > ends[chunk] - position or size < 0:
                return page, encodings
            if size > max(unpacked[chunk], MOST_PACKED * packed + LITTLE):  # not all writers add up their sizes correctly
                return page, encodings
            if kind == PLAIN_PAGE:
                count = value_at(PLAIN_COUNT, n, paths, values)
                encoding = value_at(PLAIN_ENCODING, n, paths, values)
            elif kind == NEWER_PAGE:
                count = value_at(NEWER_COUNT, n, paths, values)
                encoding = value_at(NEWER_ENCODING, n, paths, values)
                nulls, rows = value_at(NEWER_NULLS, n, paths, values), value_at(NEWER_ROWS, n, paths, values)
                defined, repeated = value_at(NEWER_DEFINED, n, paths, values), value_at(NEWER_REPEATED, n, paths, values)
                if min(nulls, rows) < 0 or max(nulls, rows) > count or min(defined, repeated) < 0:
                    return page, encodings
                if max(defined, repeated) > size or defined + repeated > min(packed, size):
                    return page, encodings
            elif kind == DICTIONARY_PAGE:
                in_dictionary = value_at(DICTIONARY_COUNT, n, paths, values)
                if in_dictionary < 0 or in_dictionary > size:  # every value takes a byte at least
                    return page, encodings
            if count < 0 or count > n_values[chunk] - seen or encoding < 0 or encoding > 62:
                return page, encodings
            encodings |= np.int64(1) << encoding
            seen += count
            position += packed
    return -1, encodings
