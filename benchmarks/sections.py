"""docs/benchmarks.md is written section by section, each by its own script, which stamps it with the code that it measured.

make bench-check           the sections whose code has changed since they were measured

A stamp names the paths that a section measures, the last commit that had touched them when the run began, and when it began. Where
the cells of a section come from several runs, it names the oldest and the newest.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
SOURCE = "src/autocross"  # what a benchmark measures that fits whole models
HEAD = """# Benchmarks

Every section is written by the script it names; run it again to check. The line under its title says which code it measured, and
when (UTC): sections differ in age, and then also in their numbers for the same fit, of which the newest counts. `make bench-check`
lists the sections that are older than their code.

Test AUC on rows that took no part in fitting or tuning, defaults everywhere. Splits: stratified at random with seeds 0 to 4, test
share 1/3 for Bank and Credit, 1/10 for Employee and the Criteo sample; Adult has its own. Times are of one run on a shared machine:
compare within a table, not across.
"""

# Stamps.

UNKNOWN = "unknown"  # the commit of code that is in no repository
CHANGED = ", with changes that are in no commit"
DERIVED = "; derived from the history of this repository, so that the run may be older"
STAMP = re.compile(
    r"^\*Measures (?P<paths>`[^`]+`(?:, `[^`]+`)*) as of commits? `(?P<oldest>\w+)`(?: to `(?P<newest>\w+)`)?, "
    r"run (?:on|from) (?P<first>[-0-9]+ [:0-9]+)(?: to (?P<last>[-0-9]+ [:0-9]+))?"
    rf"(?P<changed>{re.escape(CHANGED)})?(?P<derived>{re.escape(DERIVED)})?\.\*$",
    re.MULTILINE,
)


@dataclass(frozen=True, order=True)
class Moment:
    """When a run began, and the last commit that had touched the measured code by then."""

    date: str
    commit: str


@dataclass(frozen=True)
class Stamp:
    """Which code a section measures, and when it was run."""

    paths: tuple[str, ...]
    oldest: Moment
    newest: Moment
    changed: bool = False  # the measured code had changes that were in no commit
    derived: bool = False  # found in the history afterwards, not noted by the run

    def words(self) -> str:
        """The line under the title of a section."""
        paths = ", ".join(f"`{path}`" for path in self.paths)
        commits, dates = f"commit `{self.oldest.commit}`", f"on {self.oldest.date}"
        if self.oldest.commit != self.newest.commit:
            commits = f"commits `{self.oldest.commit}` to `{self.newest.commit}`"
        if self.oldest.date != self.newest.date:
            dates = f"from {self.oldest.date} to {self.newest.date}"
        notes = (CHANGED if self.changed else "") + (DERIVED if self.derived else "")
        return f"*Measures {paths} as of {commits}, run {dates}{notes}.*"

    def joined(self, other: Stamp) -> Stamp:
        """The stamp of a section that has cells of both."""
        return replace(
            self,
            oldest=min(self.oldest, other.oldest),
            newest=max(self.newest, other.newest),
            changed=self.changed or other.changed,
            derived=self.derived or other.derived,
        )


def git(*arguments: str, root: Path = ROOT) -> str:
    """What git prints; nothing where there is no git or no repository, or where it knows no such commit."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def stamp_now(*paths: str, root: Path = ROOT) -> Stamp:
    """The stamp of a run that begins now."""
    commit = git("log", "-1", "--format=%h", "--abbrev=7", "--", *paths, root=root) or UNKNOWN
    moment = Moment(datetime.now(UTC).strftime("%Y-%m-%d %H:%M"), commit)
    return Stamp(paths, moment, moment, changed=bool(git("status", "--porcelain", "--", *paths, root=root)))


def stamp_in(text: str) -> Stamp | None:
    """The stamp of a section, or None if it has none."""
    found = STAMP.search(text)
    if found is None:
        return None
    oldest = Moment(found["first"], found["oldest"])
    newest = Moment(found["last"] or found["first"], found["newest"] or found["oldest"])
    return Stamp(tuple(re.findall("`([^`]+)`", found["paths"])), oldest, newest, bool(found["changed"]), bool(found["derived"]))


# The page.


def sections(page: str) -> dict[str, str]:
    """The texts of the page's sections by their names."""
    return {name: text.strip() for name, text in re.findall(r"<!-- ([\w-]+) -->\n(.*?)\n<!-- end of \1 -->", page, re.DOTALL)}


def write_section(name: str, text: str, stamp: Stamp) -> None:
    """Replace one section of the page, or add it at the end, with its stamp under the title."""
    page = PAGE.read_text() if PAGE.exists() and PAGE.read_text().strip() else HEAD
    title, _, body = text.strip().partition("\n")
    marked = f"<!-- {name} -->\n{title}\n\n{stamp.words()}\n\n{body.strip()}\n<!-- end of {name} -->"
    pattern = re.compile(rf"<!-- {name} -->.*?<!-- end of {name} -->", re.DOTALL)
    page = pattern.sub(lambda _: marked, page) if pattern.search(page) else f"{page.rstrip()}\n\n{marked}"
    PAGE.write_text(page.rstrip() + "\n")


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def table_rows(text: str) -> list[list[str]]:
    """The rows of the first Markdown table in a text, its head first."""
    lines = [line for line in text.partition("\n|")[2].partition("\n\n")[0].splitlines() if "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]


def machine() -> str:
    """What the numbers were taken on."""
    return f"{os.cpu_count()} cores, Python {platform.python_version()}"


# The check.


def older_than_their_code(page: str, root: Path = ROOT) -> list[str]:
    """A line for each section that was not measured on the present code, or of which that cannot be told."""
    lines = []
    for name, text in sections(page).items():
        stamp = stamp_in(text)
        reason = "has no stamp" if stamp is None else reason_to_run_again(stamp, root)
        if reason:
            lines.append(f"{name}: {reason}")
    return lines


def reason_to_run_again(stamp: Stamp, root: Path) -> str:
    """Why the oldest cells of a section are not of the present code, or an empty text."""
    commit, paths = stamp.oldest.commit, ", ".join(stamp.paths)
    if not git("rev-parse", "--verify", f"{commit}^{{commit}}", root=root):
        return f"measured at commit {commit}, which this history does not have"
    since = git("log", "--format=%h of %cs", "--abbrev=7", f"{commit}..HEAD", "--", *stamp.paths, root=root).splitlines()
    if since:
        return f"measured at commit {commit} on {stamp.oldest.date}; {paths} has {len(since)} newer, the last {since[0]}"
    return f"measured at commit {commit}{CHANGED} to {paths}" if stamp.changed else ""


def main(arguments: Sequence[str]) -> None:
    if list(arguments) != ["--check"]:
        sys.exit("usage: python benchmarks/sections.py --check")
    page = PAGE.read_text()
    lines = older_than_their_code(page)
    print(*lines, f"{len(lines)} of {len(sections(page))} sections are older than the code that they measure.", sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
