"""Writing a file so that nothing is lost when it goes wrong."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from autocross.errors import FileError


def replace_file(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write to a temporary name beside ``path``, then rename: a full disk leaves the old file as it was."""
    if path.exists() and not path.is_file():
        raise FileError(f"Cannot write {str(path)!r}: it is no file. Give the name of a file.")
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise FileError(f"Cannot write {str(path)!r}: {error.strerror}. Give a place that can be written.") from error
    try:
        with os.fdopen(handle, "wb") as stream:
            fill(stream)
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
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
