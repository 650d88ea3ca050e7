"""Where work runs, and nothing else: any engine gives the same result, to the bit."""

from __future__ import annotations

from autocross.engines.base import Engine, carry_on
from autocross.engines.serial import SerialEngine
from autocross.engines.threads import ThreadsEngine
from autocross.options import EngineName

__all__ = ["Engine", "SerialEngine", "ThreadsEngine", "carry_on", "make_engine"]


def make_engine(name: EngineName, n_jobs: int | None) -> Engine:
    """The engine of that name."""
    return SerialEngine() if name == "serial" else ThreadsEngine(n_jobs)
