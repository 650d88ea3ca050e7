"""What a code stands for, as a structure. Words are one rendering of it (`producer/wording.py`); others read the same classes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from autocross.features import MISSING


@dataclass(frozen=True)
class Missing:
    """No value."""


@dataclass(frozen=True)
class Rare:
    """A value that was seen too seldom in training, or never."""


@dataclass(frozen=True)
class Hashed:
    """A value without a code of its own: it shares the code of this bucket with others."""

    bucket: int


@dataclass(frozen=True)
class Text:
    """A category."""

    text: str


@dataclass(frozen=True)
class Hash:
    """A category of a private model, by the digits of its hash, hexadecimal; the first ``enough`` of them tell it from others."""

    digits: str
    enough: int = field(compare=False)


@dataclass(frozen=True)
class Part:
    """A part of a value, such as the month of a time, and its number; a week begins with Monday, 0."""

    part: str
    number: int


@dataclass(frozen=True)
class Interval:
    """Numbers from ``low`` up to ``high``, which is not among them; both are infinite where nothing bounds it.

    ``before`` and ``after`` are the next bounds in its field: a bound that is rounded must still be told from them. ``whole`` says
    that its column holds whole numbers, as far as bounds can tell.
    """

    low: float
    high: float
    before: float = field(default=-math.inf, compare=False, repr=False)
    after: float = field(default=math.inf, compare=False, repr=False)
    whole: bool = field(default=False, compare=False, repr=False)


Value = Missing | Rare | Hashed | Text | Hash | Part | Interval


def without_value(code: int) -> Missing | Rare:
    """What the codes before the first value stand for, in every field."""
    return Missing() if code == MISSING else Rare()
