"""Events -> a file with one JSON object per line. Each line is written at once."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import IO

from autocross.errors import FileError
from autocross.events import Event, as_record


class Journal:
    """Appends events to a file. What was written stays, whatever happens to the fit."""

    def __init__(self, path: str) -> None:
        self.what = f"The journal {path!r}"
        try:
            if not may_append(Path(path)):
                raise ValueError("it is no journal of autocross")
            torn = ends_within_a_line(Path(path))
            self.stream: IO[str] = Path(path).open("a", encoding="utf-8")  # noqa: SIM115  closed by close
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise FileError(f"Cannot write the journal {path!r}: {why}. Give another path.") from error
        if torn:
            self.stream.write("\n")  # is written to disk together with the first event

    def __call__(self, event: Event) -> None:
        self.stream.write(json.dumps(as_record(event), default=str) + "\n")
        self.stream.flush()

    def close(self) -> None:
        self.stream.close()


def ends_within_a_line(path: Path) -> bool:
    """Whether the last line of a file is incomplete, because the disk was full or the fit was killed."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with suppress(PermissionError), path.open("rb") as former:  # it may be for writing only
        former.seek(-1, os.SEEK_END)
        return former.read(1) != b"\n"
    return False


def may_append(path: Path) -> bool:
    """Whether there is no file yet, or an empty one, or one that begins with an event."""
    if not path.is_file():
        return True
    try:
        with path.open("rb") as stream:
            first = stream.readline(100_000)
        return not first or "event" in dict(json.loads(first))
    except PermissionError:  # it may be for writing only
        return True
    except (ValueError, TypeError, RecursionError):
        return False
