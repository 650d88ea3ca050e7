"""What a code stands for, as a structure. `producer/wording.py` puts it into words; exports can read the same classes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime

from autocross.features import MISSING

EPOCH = datetime(1970, 1, 1)  # from which microseconds are counted


@dataclass(frozen=True)
class Missing:
    """No value."""


@dataclass(frozen=True)
class Rare:
    """A value that was seen too seldom in training, or never."""


@dataclass(frozen=True)
class Hashed:
    """A value without a code of its own. All values of a bucket share a code."""

    bucket: int


@dataclass(frozen=True)
class Text:
    """A category."""

    text: str


@dataclass(frozen=True)
class Hash:
    """A category of a private model, known by the hexadecimal digits of its hash. The first ``enough`` digits identify it."""

    digits: str
    enough: int = field(compare=False)


@dataclass(frozen=True)
class Part:
    """A part of a value, such as the month of a time, and its number. A week begins with Monday, which is 0."""

    part: str
    number: int


@dataclass(frozen=True)
class Interval:
    """The numbers from ``low`` up to but not including ``high``. A bound that does not exist is infinite.

    ``before`` and ``after`` are the next bounds of the field; a bound that is rounded must stay apart from them. ``whole`` says
    that the column holds whole numbers, as far as the bounds can tell.
    """

    low: float
    high: float
    before: float = field(default=-math.inf, compare=False, repr=False)
    after: float = field(default=math.inf, compare=False, repr=False)
    whole: bool = field(default=False, compare=False, repr=False)


@dataclass(frozen=True)
class Span:
    """The moments from ``low`` up to but not including ``high``, in microseconds since 1970. A bound that does not exist is
    infinite.

    ``clock`` says that these are times of a day without a date.
    """

    low: float
    high: float
    clock: bool = field(default=False, compare=False, repr=False)


Value = Missing | Rare | Hashed | Text | Hash | Part | Interval | Span


def without_value(code: int) -> Missing | Rare:
    """What the first two codes stand for, in every field: missing and rare."""
    return Missing() if code == MISSING else Rare()
