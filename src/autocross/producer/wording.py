"""Values in words. Two values of a field never read the same.

An interval is printed by its bounds, and these are rounded: the bound midway between 0.1 and 0.2 need not read 0.15000000000000002.
A bound is printed with six digits, or with as many more as bring it closer than a hundredth of the distance to the next bounds of
its field. Zeros at the end are left out. So bounds stay apart and in order, and few numbers lie between a bound and its printed
form.

Bounds between whole numbers are not rounded, because a whole number might lie between a bound and its printed form. An interval
around a single whole number, such as 8.5 to 9.5, is printed as that number, 9.

The bounds of a span of time are round moments as it is. They are printed in full, so that they stay apart too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import timedelta

from autocross.encoding.values import EPOCH, Hash, Hashed, Interval, Missing, Part, Rare, Span, Text, Value

AND = " & "  # between the columns of a term, and between the values of these
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
FEWEST_DIGITS, MOST_DIGITS = 6, 17  # digits of a bound; 17 tell all floats apart
CLOSE = 0.01  # largest rounding, as a share of the distance to the next bound
# Texts that could be mistaken for "(missing)" and the like, or for such a text in quotes.
LIKE_NO_TEXT = re.compile(r"""['"\\]*\(""")


def words(value: Value) -> str:
    """A value in words.

    >>> words(Missing()), words(Hashed(3)), words(Text("cook")), words(Text("(missing)")), words(Part("weekday", 1))
    ('(missing)', '(hashed 3)', 'cook', "'(missing)'", 'Tuesday')
    """
    match value:
        case Interval():
            return interval_words(value)
        case Span():
            return span_words(value)
        case Text(text):
            return repr(text) if LIKE_NO_TEXT.match(text) else text
        case Missing():
            return "(missing)"
        case Rare():
            return "(rare)"
        case Hashed(bucket):
            return f"(hashed {bucket})"
        case Hash(digits, enough):
            return f"#{digits[:enough]}"
        case Part("weekday", number):
            return WEEKDAYS[number]
        case Part(_, number):
            return str(number)


def cell_words(value: Value | tuple[Value, ...]) -> str:
    """What a cell of a term stands for, in words. Cells of the same term never read the same.

    >>> cell_words(Part("month", 5)), cell_words((Interval(3.5, 7.0), Text("cook"))), cell_words((Text("a & b"), Missing()))
    ('month 5', '3.5 to 7 & cook', "'a & b' & (missing)")
    """
    if isinstance(value, tuple):
        return joined(map(cell_words, value))
    return f"{value.part} {words(value)}" if isinstance(value, Part) else words(value)


def joined(parts: Iterable[str]) -> str:
    """Names or values joined by ' & '. Those that could be taken for several, or for one in quotes, are put in quotes, so that
    whatever reads the same is the same.

    >>> joined(["age", "job"]), joined(["a & b"]), joined(["a &", "b"]), joined(["a", "& b"])
    ('age & job', "'a & b'", "'a &' & b", "a & '& b'")
    """
    return AND.join(repr(part) if AND in f" {part} " or part.startswith(("'", '"')) else part for part in parts)


def apart(texts: list[str]) -> list[str]:
    """The same texts. If two of them are equal, which only names and values that look like others can bring about, the later one
    has its number behind it.

    >>> apart(["a", "b", "a"])
    ['a', 'b', 'a (2)']
    """
    if len(set(texts)) == len(texts):
        return texts
    seen: set[str] = set()
    found = []
    for number, text in enumerate(texts):
        while text in seen:
            text = f"{text} ({number})"
        seen.add(text)
        found.append(text)
    return found


def interval_words(interval: Interval) -> str:
    """An interval in words.

    >>> interval_words(Interval(-math.inf, 3.5)), interval_words(Interval(3.5, 7.0)), interval_words(Interval(7.0, math.inf))
    ('below 3.5', '3.5 to 7', '7 or more')
    >>> interval_words(Interval(8.5, 9.5, whole=True)), interval_words(Interval(8.5, 10.5, whole=True))
    ('9', '8.5 to 10.5')
    """
    low, high = interval.low, interval.high
    if interval.whole and high - low == 1 and low % 1 == 0.5:
        return number_words(low + 0.5)
    if not interval.whole:
        low, high = rounded(low, interval.before, high), rounded(high, low, interval.after)
    if low == -math.inf:
        return "any" if high == math.inf else f"below {number_words(high)}"
    return f"{number_words(low)} or more" if high == math.inf else f"{number_words(low)} to {number_words(high)}"


def span_words(span: Span) -> str:
    """A span of time in words.

    >>> day = 86_400_000_000.0
    >>> span_words(Span(-math.inf, 366 * day)), span_words(Span(366 * day, 366.5 * day)), span_words(Span(366.5 * day, math.inf))
    ('before 1971-01-02', '1971-01-02 to 1971-01-02 12:00', '1971-01-02 12:00 or later')
    >>> span_words(Span(day / 4, day / 2, clock=True))
    '06:00 to 12:00'
    """
    low, high = (None if math.isinf(bound) else moment_words(bound, span.clock) for bound in (span.low, span.high))
    if low is None:
        return "any" if high is None else f"before {high}"
    return f"{low} or later" if high is None else f"{low} to {high}"


def moment_words(micros: float, clock: bool) -> str:
    """A moment without the zeros at its end, or only its time of day."""
    moment = EPOCH + timedelta(microseconds=int(micros))
    exact = "microseconds" if moment.microsecond else "seconds" if moment.second else "minutes"
    day, time = moment.date().isoformat(), moment.time().isoformat(exact)
    return time if clock else day if time == "00:00" else f"{day} {time}"


def rounded(bound: float, before: float, after: float) -> float:
    """A bound with the fewest digits that bring it close enough, compared with the distance to the bounds next to it.

    >>> rounded(0.15000000000000002, 0.05, 0.25), rounded(1234567.5, 1234566.5, 1234568.5), rounded(1234567.5, 0.0, math.inf)
    (0.15, 1234567.5, 1234570.0)
    """
    if math.isinf(bound):
        return bound
    most = CLOSE * min(bound - before, after - bound)
    digits = (float(f"{bound:.{n - 1}e}") for n in range(FEWEST_DIGITS, MOST_DIGITS))
    return next((short for short in digits if abs(short - bound) <= most), bound)


def number_words(number: float) -> str:
    """The shortest decimal number that reads as exactly this float.

    >>> number_words(9.0), number_words(-0.25), number_words(1234567.5), number_words(1e22)
    ('9', '-0.25', '1234567.5', '1e+22')
    """
    return repr(number + 0.0).removesuffix(".0")  # + 0.0 turns -0.0 into 0.0
