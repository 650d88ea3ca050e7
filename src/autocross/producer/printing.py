"""Names and values of strangers, made safe to print."""

from __future__ import annotations

import re
from textwrap import wrap

WIDTH = 80  # characters of a page
LONGEST = 1000  # characters of a value that are shown
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def printable(line: str) -> str:
    """A line in which control characters are escaped, because names and values may come from a stranger.

    >>> printable("a\\x1b[2J\\n"), printable("naïve 日本")
    ('a\\\\x1b[2J\\\\n', 'naïve 日本')
    """
    return CONTROL.sub(lambda match: repr(match[0])[1:-1], line)


def shortened(value: str) -> str:
    """The beginning of a value that is very long. Every cross with the value would show it again."""
    return value if len(value) <= LONGEST else f"{value[:LONGEST]}..."


def named_line(start: str, name: str) -> str:
    """The beginning of a line of a table and, behind it, a name. A long one goes on below itself.

    >>> print(named_line("0.142  ", "NumberOfOpenCreditLines & RevolvingUtilization & DebtRatio & MonthlyIncome"))
    0.142  NumberOfOpenCreditLines & RevolvingUtilization & DebtRatio &
             MonthlyIncome
    """
    lines = wrap(printable(shortened(name)), WIDTH - len(start), subsequent_indent="  ", break_on_hyphens=False)
    return f"\n{' ' * len(start)}".join([start + "".join(lines[:1]), *lines[1:]])
