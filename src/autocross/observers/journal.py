"""Events -> a file, one JSON object a line, each written out at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO

from autocross.errors import FileError
from autocross.events import Event, as_record


class Journal:
    """Appends to a file; what was written stays, whatever happens to the fit."""

    def __init__(self, path: str) -> None:
        try:
            self.stream: IO[str] = Path(path).open("a", encoding="utf-8")  # noqa: SIM115  closed by close
        except OSError as error:
            raise FileError(f"Cannot write the journal {path!r}: {error.strerror}. Give another path.") from error

    def __call__(self, event: Event) -> None:
        self.stream.write(json.dumps(as_record(event), default=str) + "\n")
        self.stream.flush()

    def close(self) -> None:
        self.stream.close()
