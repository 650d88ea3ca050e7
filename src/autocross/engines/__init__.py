"""Where work runs. An engine decides nothing else: all engines give the same result, to the bit."""

from __future__ import annotations

from autocross.engines.base import Engine, WorkEnded, carry_on, changes
from autocross.engines.serial import SerialEngine
from autocross.engines.threads import ThreadsEngine, in_lanes, n_cores
from autocross.options import Options

__all__ = ["Engine", "SerialEngine", "ThreadsEngine", "WorkEnded", "carry_on", "changes", "in_lanes", "make_engine", "n_cores"]


def make_engine(options: Options) -> Engine:
    """The engine that the options ask for."""
    if options.engine == "ray":
        from autocross.engines.cluster import RayEngine  # not above: Ray is heavy, and may be absent

        return RayEngine(options.n_jobs, options.address)
    return SerialEngine() if options.engine == "serial" else ThreadsEngine(options.n_jobs)
