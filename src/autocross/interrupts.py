"""Ctrl-C that asks before it aborts: the first one asks the fit to end with what it has found, the second one aborts."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """A handler of SIGINT that remembers the first call, and aborts at the second."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


class ProgramInterrupt(Interrupt):
    """The handler of a whole program. It aborts at once, except within `interruptible`, where it asks first. It aborts only once.

    Before the work begins and after it is done, it does nothing, because an exception during an import, or while another one is
    handled, would end in a traceback.
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
        """From now on Ctrl-C aborts. If it came before, this call aborts."""
        hold_back(False)
        self.deaf = False
        if self.asked:
            self.deaf = True
            raise KeyboardInterrupt


def hold_back(held: bool) -> None:
    """Hold Ctrl-C back, or let it through again, if the system can do so.

    It is held back while libraries are imported: a system call that it interrupts may fail, and polars, which replaces the handler,
    might lose the signal or end the process if one came meanwhile.
    """
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK if held else signal.SIG_UNBLOCK, {signal.SIGINT})


def put_in_place(handler: Interrupt) -> bool:
    """Make this the handler of Ctrl-C, if the present handler is Python's own or one of ours, and this thread may do so."""
    now = signal.getsignal(signal.SIGINT)
    if now is not signal.default_int_handler and not isinstance(now, Interrupt):
        return False
    try:
        signal.signal(signal.SIGINT, handler)
    except ValueError:  # only the main thread may do this
        return False
    return True


def take_over() -> ProgramInterrupt:
    """Take care of Ctrl-C for a whole program, unless somebody else does."""
    interrupt = ProgramInterrupt()
    put_in_place(interrupt)
    return interrupt


def finish() -> None:
    """From now on Ctrl-C has no effect, so that what is being written is completed."""
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, ProgramInterrupt):
        handler.deaf = True


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Inside this context Ctrl-C asks for an end. If it has a handler of the user's, or in another thread, nothing changes."""
    now = signal.getsignal(signal.SIGINT)
    if isinstance(now, Interrupt):
        put_in_place(now)  # once more, because polars may have replaced the handler when it was imported
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
    """Inside this context the handler of a program asks first. Within another `interruptible` it does so already."""
    if not isinstance(interrupt, ProgramInterrupt) or interrupt.patient:
        yield
        return
    interrupt.patient = True
    try:
        yield
    finally:
        interrupt.patient = interrupt.asked = False
