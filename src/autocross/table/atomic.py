"""Writing a file so that nothing is lost when it goes wrong."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from typing import IO

from autocross.errors import FileError


def replace_file(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write a file under a temporary name beside ``path``, then rename it, so that a full disk leaves the old file as it was.

    A file that is replaced keeps its permissions, as if it were written in place. A new file has those that the umask leaves.
    """
    try:
        former = path.stat() if path.exists() else None
        if former is not None and not stat.S_ISREG(former.st_mode):
            raise FileError(f"Cannot write {str(path)!r}: it is no file. Give the name of a file.")
        handle, temporary = open_beside(path, 0o666 if former is None else stat.S_IMODE(former.st_mode))
    except OSError as error:
        raise FileError(f"Cannot write {str(path)!r}: {error.strerror}. Give a place that can be written.") from error
    try:
        with os.fdopen(handle, "wb") as stream:
            if former is not None:
                keep_permissions(temporary, former)
            fill(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            why = error.strerror or error
            raise FileError(
                f"Cannot write {str(path)!r}: {why}. The former file, if any, is unchanged; make room or give another place."
            ) from error
        raise


def open_beside(path: Path, permissions: int) -> tuple[int, Path]:
    """A new file in the folder of ``path``, open for writing, and its name.

    The permissions are given when the file is made, and the system applies the umask. To ask for the umask would change it for a
    moment, in all threads.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        temporary = path.with_name(f".{path.name}.{token_hex(4)}")
        with contextlib.suppress(FileExistsError):
            return os.open(temporary, flags, permissions), temporary


def keep_permissions(path: Path, former: os.stat_result) -> None:
    """Give a file the permissions of a former file and, as far as we are allowed to, its group and owner."""
    os.chmod(path, stat.S_IMODE(former.st_mode))
    for owner, group in ((-1, former.st_gid), (former.st_uid, -1)):
        with contextlib.suppress(OSError):
            os.chown(path, owner, group)
