"""When the work ends early: an interrupt, or the time limit.

Work ends between two tasks of an engine, never within one, so that what was found before is whole.
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

FINAL_SHARE = 0.25  # most of the time limit that is kept back for the last fit


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
        """Whether the search had tried all it would, and nothing ended it from outside."""
        return self in (Why.NO_MORE, Why.HARDLY_MORE, Why.NO_RISE)


class Stopped(WorkEnded):
    """There is a reason to end. That is no error: the fit goes on to its end."""

    def __init__(self, why: Why) -> None:
        super().__init__(why.value)
        self.why = why


class Stopping:
    """Knows when to end. ``share`` is that of the time limit which belongs to the search and the last fit.

    ``reserve`` is how many seconds the last fit will take, as far as that is known.
    """

    def __init__(self, time_limit: float | None, reporter: Reporter, interrupt: Interrupt, share: float = 1.0) -> None:
        self.whole_limit = time_limit
        self.time_limit = None if time_limit is None else share * time_limit
        self.reporter = reporter
        self.interrupt = interrupt
        self.compiled_before = seconds_compiling()
        self.reserve = math.inf
        self.excused = 0.0  # seconds that do not count: those of starting a cluster

    def for_all(self) -> Stopping:
        """The same for what comes after the search, which may take the rest of the time limit."""
        later = copy(self)
        later.time_limit = self.whole_limit
        return later

    @property
    def seconds_left(self) -> float | None:
        """Of the time limit; compilation does not count."""
        if self.time_limit is None:
            return None
        return self.time_limit - self.reporter.seconds + seconds_compiling() - self.compiled_before + self.excused

    def hurry(self, share: float) -> bool:
        """Whether more than this share of the time limit is gone, and a moment of grace, without which a short limit would leave
        nothing to learn from."""
        left = self.seconds_left
        return left is not None and self.time_limit is not None and left < (1 - share) * self.time_limit - GRACE

    def check(self) -> None:
        """Raise if the search must end now, for the last fit to be in time."""
        if self.interrupt.asked:
            raise Stopped(Why.INTERRUPTED)
        left = self.seconds_left
        if left is not None and self.time_limit is not None and left < min(self.reserve, FINAL_SHARE * self.time_limit):
            raise Stopped(Why.TIME_IS_UP)

    def check_last(self) -> None:
        """Raise if the last fit, too, must end."""
        left = self.seconds_left
        if left is not None and left < 0:
            raise Stopped(Why.TIME_IS_UP)

    def check_grace(self) -> None:
        """Raise if not even the first sweeps of the last fit can be waited for."""
        if self.hurry(1.0):
            raise Stopped(Why.TIME_IS_UP)
