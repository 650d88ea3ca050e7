"""When the work ends early: at an interrupt, or when the time is up.

Work ends between two tasks of an engine and never within one, so that the blocks stay consistent.
"""

from __future__ import annotations

import math
from copy import copy
from enum import Enum

from autocross.engines import WorkEnded
from autocross.events import Reporter
from autocross.interrupts import Interrupt
from autocross.kernels import seconds_compiling
from autocross.options import GRACE

FINAL_SHARE = 0.25  # largest share of the time limit that is kept for the last fit


class Why(Enum):
    """Why a search ended, in words."""

    TOO_FEW = "there are too few rows of the rarer label to tell a cross from chance"
    AS_MANY_AS_ASKED = "the number of crosses asked for is reached"
    NO_MORE = "no cross gains more than chance would"
    HARDLY_MORE = "the last round hardly raised the metric"
    NO_RISE = "the best cross does not raise the metric"
    INTERRUPTED = "interrupted, and what was found before is kept; another interrupt aborts"
    TIME_IS_UP = "the time is up"

    @property
    def by_itself(self) -> bool:
        """Whether the search came to its own end, and was not ended by a limit or an interrupt."""
        return self in (Why.NO_MORE, Why.HARDLY_MORE, Why.NO_RISE)


class Stopped(WorkEnded):
    """Ends the search early. This is no error: the fit goes on with what was found."""

    def __init__(self, why: Why) -> None:
        super().__init__(why.value)
        self.why = why


class Stopping:
    """Knows when to end. ``share`` is the share of the time limit that the search and the last fit may use.

    ``reserve`` is the number of seconds that the last fit will probably take.
    """

    def __init__(self, time_limit: float | None, reporter: Reporter, interrupt: Interrupt, share: float = 1.0) -> None:
        self.whole_limit = time_limit
        self.time_limit = None if time_limit is None else share * time_limit
        self.reporter = reporter
        self.interrupt = interrupt
        self.compiled_before = seconds_compiling()
        self.reserve = math.inf
        self.excused = 0.0  # seconds that do not count, because a cluster was being started

    def for_all(self) -> Stopping:
        """The same clock for what comes after the search, which may use the rest of the time limit."""
        later = copy(self)
        later.time_limit = self.whole_limit
        return later

    @property
    def seconds_left(self) -> float | None:
        """What is left of the time limit. Compilation does not count."""
        if self.time_limit is None:
            return None
        return self.time_limit - self.reporter.seconds + seconds_compiling() - self.compiled_before + self.excused

    def hurry(self, share: float) -> bool:
        """Whether more than this share of the time limit is gone, plus some grace. Without the grace a very short limit would leave
        nothing to learn from."""
        left = self.seconds_left
        return left is not None and self.time_limit is not None and left < (1 - share) * self.time_limit - GRACE

    def check(self) -> None:
        """Raise if the search must end now, so that the last fit ends in time."""
        if self.interrupt.asked:
            raise Stopped(Why.INTERRUPTED)
        left = self.seconds_left
        if left is not None and self.time_limit is not None and left < min(self.reserve, FINAL_SHARE * self.time_limit):
            raise Stopped(Why.TIME_IS_UP)

    def check_last(self) -> None:
        """Raise if the last fit must end now."""
        left = self.seconds_left
        if left is not None and left < 0:
            raise Stopped(Why.TIME_IS_UP)

    def check_spare(self) -> None:
        """Raise if there is no time for what a model can do without, or after an interrupt."""
        if self.interrupt.asked:
            raise Stopped(Why.INTERRUPTED)
        self.check_last()

    def check_grace(self) -> None:
        """Raise if even the first sweeps of the last fit would take too long."""
        if self.hurry(1.0):
            raise Stopped(Why.TIME_IS_UP)
