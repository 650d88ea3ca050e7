"""Arrays in a temporary file: what was written is read again, rooms are used again, and a full disk is an error."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocross.errors import FileError
from autocross.features import FieldCodes
from autocross.scratch import PAGE, Scratch, read


@given(st.lists(st.tuples(st.integers(0, 3 * PAGE), st.sampled_from(["u1", "u2", "u4", "i8"]), st.booleans()), max_size=20))
def test_what_is_kept_is_what_was_written_however_rooms_come_and_go(arrays: list[tuple[int, str, bool]]) -> None:
    rng = np.random.default_rng(0)
    kept: list[tuple[Any, Any]] = []
    with Scratch() as scratch:
        for n, kind, goes in arrays:
            values = rng.integers(0, 200, n).astype(kind)
            kept.append((values, scratch.keep(values)))
            if goes:
                kept.pop(len(kept) // 2)
            for written, stored in kept:
                np.testing.assert_array_equal(stored.read(), written)


@pytest.mark.slow
def test_a_room_is_used_again_once_nobody_looks_at_it() -> None:
    with Scratch() as scratch:
        first = scratch.keep(np.arange(PAGE, dtype=np.uint8))
        looked_at = first.read()
        del first
        gc.collect()
        scratch.keep(np.zeros(PAGE, np.uint8))
        np.testing.assert_array_equal(looked_at, np.arange(PAGE, dtype=np.uint8))
        before = scratch.end
        del looked_at
        gc.collect()
        halves = [scratch.keep(np.full(PAGE // 2, value, np.uint8)) for value in (1, 2)]
        assert scratch.end == before  # both rooms were free by then: the second array went at once
        assert [set(half.read().tolist()) for half in halves] == [{1}, {2}]


def test_parts_are_read_and_written_by_themselves() -> None:
    with Scratch() as scratch:
        room = scratch.room(np.uint16, 5000)
        for first in range(0, 5000, 700):
            room.write(first, np.arange(first, min(first + 700, 5000)))  # of another type
        np.testing.assert_array_equal(room[1234:4321].read(), np.arange(1234, 4321, dtype=np.uint16))
        np.testing.assert_array_equal(room[1234:4321][10:20].read(), np.arange(1244, 1254))
        assert (len(room[4990:6000]), room[10:10].read().dtype) == (10, np.uint16)
        ragged = FieldCodes(np.arange(6, dtype=np.uint8), np.array([0, 2, 2, 6])).stored(scratch)
        assert ragged.n_rows == 3
        assert ragged.between(1, 3).read().take(np.array([1, 0])).codes.tolist() == [2, 3, 4, 5]
        assert read(np.arange(3)).tolist() == [0, 1, 2]


def test_threads_keep_arrays_side_by_side() -> None:
    def keep_many(seed: int) -> bool:
        rng = np.random.default_rng(seed)
        good = True
        for _ in range(50):
            values = rng.integers(0, 255, rng.integers(1, 5 * PAGE)).astype(np.uint8)
            good &= bool((scratch.keep(values).read() == values).all())
        return good

    with Scratch() as scratch, ThreadPoolExecutor(4) as pool:
        assert all(pool.map(keep_many, range(8)))
        assert scratch.end < 8 * 6 * PAGE  # a few rooms served all of them


def test_a_write_that_fails_says_so() -> None:
    code = (
        "import resource, numpy as np; from autocross.scratch import Scratch\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "with Scratch(5 << 30) as scratch:\n"
        "    scratch.keep(np.zeros(1 << 19, np.uint8))\n"
        "    scratch.keep(np.zeros(1 << 20, np.uint8))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "FileError: Cannot keep the codes of the rows in the temporary folder" in done.stderr
    assert "File too large. They take some 5.0 GiB there" in done.stderr


def test_no_temporary_folder_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(FileError, match=r"temporary folder '.*gone': No such file or directory\..* Set TMPDIR"):
        Scratch()
    assert not os.listdir(tmp_path)
