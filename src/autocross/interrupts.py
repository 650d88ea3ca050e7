"""Ctrl-C that asks instead of raising: the first time for an end with what is found so far, the second time it aborts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """A handler of SIGINT that remembers being called once, and aborts when called again."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Within, Ctrl-C asks for an end. Where it has another handler, or in another thread, nothing changes."""
    now, here = signal.getsignal(signal.SIGINT), threading.current_thread() is threading.main_thread()
    if isinstance(now, Interrupt):
        if here:  # once more: polars, if imported since, has put itself before it, and would raise
            signal.signal(signal.SIGINT, now)
        yield now
        return
    interrupt = Interrupt()
    if now is not signal.default_int_handler or not here:
        yield interrupt
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, now)
