"""docs/benchmarks.md is written section by section, each by its own script."""

from __future__ import annotations

import platform
import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Every section is written by the script it names; run it again to check. Test AUC on rows that took no part in fitting or
tuning, defaults everywhere. Splits: stratified at random with seeds 0 to 4, test share 1/3 for Bank and Credit, 1/10 for Employee
and the Criteo sample; Adult has its own. Times are of one run on a shared machine: compare within a table, not across.
"""


def write_section(name: str, text: str) -> None:
    """Replace one section of the page, or add it at the end."""
    page = PAGE.read_text() if PAGE.exists() and PAGE.read_text().strip() else HEAD
    marked = f"<!-- {name} -->\n{text.strip()}\n<!-- end of {name} -->"
    pattern = re.compile(rf"<!-- {name} -->.*?<!-- end of {name} -->", re.DOTALL)
    page = pattern.sub(lambda _: marked, page) if pattern.search(page) else f"{page.rstrip()}\n\n{marked}"
    PAGE.write_text(page.rstrip() + "\n")


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def machine() -> str:
    """What the numbers were taken on."""
    import os

    return f"{os.cpu_count()} cores, Python {platform.python_version()}"
