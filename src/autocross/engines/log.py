"""The calls whose effect blocks still show, so that a lost block can be made again.

A task that changes its block is noted with the parts of the block that it writes and reads. If a later task overwrites a part
before anything has read it, the former task need not be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from autocross.engines.base import Change


@dataclass(frozen=True)
class Entry:
    """A task that changed blocks, with its arguments. ``kind`` says whether it replaced them by others."""

    kind: str
    task: Callable[..., Any]
    args: Sequence[Any]
    writes: frozenset[str]
    reads: frozenset[str]
    anew: bool


class Log:
    """The calls since blocks were placed."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.tidy_at = 64

    def note(self, kind: str, task: Callable[..., Any], args: Sequence[Any]) -> None:
        """Keep a call, if it changed anything."""
        change: Change | None = getattr(task, "change", None)
        if change is None or not (writes := frozenset(change.writes(*args))):
            return
        reads = frozenset(change.reads(*args))
        if change.alone is not None:
            task, args = change.alone(*args)
        kind = kind if kind == "exchange" else "each"
        self.entries.append(Entry(kind, task, args, writes, reads, change.anew))
        if len(self.entries) >= self.tidy_at:
            self.entries = self.still_seen()
            self.tidy_at = 2 * len(self.entries) + 64

    def still_seen(self) -> list[Entry]:
        """The calls whose effect still shows, in their order."""
        kept: list[Entry] = []
        overwritten: set[str] = set()
        for entry in reversed(self.entries):
            if entry.writes <= overwritten:
                continue
            kept.append(entry)
            if entry.anew:
                overwritten |= entry.writes
            overwritten -= entry.reads
        return kept[::-1]
