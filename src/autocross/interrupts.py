"""Ctrl-C that asks instead of raising: the first time for an end with what is found so far, the second time it aborts."""

from __future__ import annotations

import signal
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


class ProgramInterrupt(Interrupt):
    """That of a whole program: it aborts at once, but within `interruptible` asks first; and it aborts no more than once.

    Before the work begins and after it is done it is deaf: an exception within an import, or while another one is dealt with,
    would end in a traceback.
    """

    def __init__(self) -> None:
        super().__init__()
        self.deaf, self.patient = True, False
        hold_back(True)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.deaf or (self.patient and not self.asked):
            self.asked = True
        else:
            self.deaf = True
            raise KeyboardInterrupt

    def begin(self) -> None:
        """From now on it aborts, and does so here if it was called before."""
        hold_back(False)
        self.deaf = False
        if self.asked:
            self.deaf = True
            raise KeyboardInterrupt


def hold_back(held: bool) -> None:
    """Whether Ctrl-C waits until it is let through, where the system can do so.

    While libraries are imported: a system call of theirs that it interrupts may fail, and polars, which puts itself before the
    handler, would lose a signal or the whole process if one came meanwhile.
    """
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK if held else signal.SIG_UNBLOCK, {signal.SIGINT})


def put_in_place(handler: Interrupt) -> bool:
    """Make this the handler of Ctrl-C, where only Python's own or one like it is there, and this is the thread that may do so."""
    now = signal.getsignal(signal.SIGINT)
    if now is not signal.default_int_handler and not isinstance(now, Interrupt):
        return False
    try:
        signal.signal(signal.SIGINT, handler)
    except ValueError:  # another thread than the main one
        return False
    return True


def take_over() -> ProgramInterrupt:
    """Take care of Ctrl-C for a whole program, unless somebody else does."""
    interrupt = ProgramInterrupt()
    put_in_place(interrupt)
    return interrupt


def finish() -> None:
    """From now on Ctrl-C comes too late for a program: what is written now is to be complete."""
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, ProgramInterrupt):
        handler.deaf = True


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Within, Ctrl-C asks for an end. Where it has another handler, or in another thread, nothing changes."""
    now = signal.getsignal(signal.SIGINT)
    if isinstance(now, Interrupt):
        put_in_place(now)  # once more: polars, if imported since, has put itself before it, and would raise
        with patient(now):
            yield now
        return
    interrupt = Interrupt()
    in_place = put_in_place(interrupt)
    try:
        yield interrupt
    finally:
        if in_place:
            signal.signal(signal.SIGINT, now)


@contextmanager
def patient(interrupt: Interrupt) -> Iterator[None]:
    """Within, that of a program asks first, too; within another `interruptible` it does so already."""
    if not isinstance(interrupt, ProgramInterrupt) or interrupt.patient:
        yield
        return
    interrupt.patient = True
    try:
        yield
    finally:
        interrupt.patient = interrupt.asked = False
