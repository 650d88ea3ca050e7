"""Files that are replaced as a whole: who may read them, also beside other threads that write files of their own."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Any

import pytest

from autocross.errors import FileError
from autocross.table import atomic
from autocross.table.atomic import replace_file
from conftest import as_nobody


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def fill(stream: IO[bytes]) -> None:
    stream.write(b"new")


@contextmanager
def umask(mask: int) -> Iterator[None]:
    former = os.umask(mask)
    try:
        yield
    finally:
        os.umask(former)


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o000])
def test_a_new_file_has_the_permissions_that_the_umask_leaves(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        replace_file(tmp_path / "new", fill)
    assert mode(tmp_path / "new") == 0o666 & ~mask


@pytest.mark.parametrize("permissions", [0o600, 0o640, 0o664, 0o666])
def test_a_replaced_file_keeps_its_permissions(tmp_path: Path, permissions: int) -> None:
    path = tmp_path / "kept"
    path.write_bytes(b"old")
    path.chmod(permissions)
    seen = []

    def look(stream: IO[bytes]) -> None:
        stream.write(b"new")
        seen.extend(mode(other) for other in tmp_path.iterdir() if other != path)

    with umask(0o022):
        replace_file(path, look)
    assert path.read_bytes() == b"new"
    assert mode(path) == permissions
    assert [unfinished & ~permissions for unfinished in seen] == [0], "the unfinished file was open to more people"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_replaced_file_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_bytes(b"old")
    os.chown(path, 65534, 65534)
    path.chmod(0o600)
    replace_file(path, fill)
    found = path.stat()
    assert (found.st_uid, found.st_gid, mode(path)) == (65534, 65534, 0o600)


def test_files_of_other_threads_are_never_open_to_everyone(tmp_path: Path) -> None:
    """The umask belongs to the whole process: whoever changes it for a moment changes it for all threads.

    Another thread writes a file between any two lines of `replace_file`.
    """
    seen: list[int] = []

    def write_another() -> None:
        path = tmp_path / f"other {len(seen)}"
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))
        seen.append(mode(path))

    with ThreadPoolExecutor(1) as other:

        def between_lines(frame: FrameType, event: str, argument: Any) -> Any:
            if frame.f_code.co_filename != atomic.__file__:
                return None
            other.submit(write_another).result()
            return between_lines

        former = sys.gettrace()
        with umask(0o077):
            sys.settrace(between_lines)
            try:
                atomic.replace_file(tmp_path / "mine", fill)
            finally:
                sys.settrace(former)
    assert len(seen) > 10
    assert set(seen) == {0o600}
    assert mode(tmp_path / "mine") == 0o600


def test_a_folder_that_may_not_be_searched_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    folder.chmod(0)
    try:
        with as_nobody(), pytest.raises(FileError, match=r"Permission denied\. Give a place that can be written"):
            replace_file(folder / "new", fill)
    finally:
        folder.chmod(0o700)
