"""Run the attacks in rotation for as long as asked, count what they find, and keep every fault with the command that repeats it.

    python tests/torture/run.py --seconds 600            all parts; `make torture SECONDS=600` does this
    python tests/torture/run.py tables kills             some parts
    python tests/torture/run.py tables --seed 123        one case again
    python tests/torture/run.py --seconds 3600 --write-docs

A part is a module with a function ``attack(seed, folder)`` that raises where something is wrong; it may return how many cases it
ran if they were more than one. It runs in a child process, so that a crash, a hang or a library that ends the process is a fault
like any other. The folder is the case's own, and is kept where the case found something.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import importlib
import importlib.metadata
import importlib.util
import itertools
import json
import os
import platform
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
KEPT = ROOT / ".torture"  # faults, and what the children wrote to stderr
PAGE = ROOT / "docs" / "reliability.md"
MARKS = "<!-- torture: begin -->", "<!-- torture: end -->"
SEEDS = HERE / "seeds.txt"
TURN = 20.0  # seconds after which another part has its turn
MOST_FOLDERS = 50  # kept for each part; further faults are only printed


@dataclass(frozen=True)
class Part:
    """``timeout``: seconds after which a case hangs. ``quick``: how many cases the test suite runs. ``needs``: a library."""

    what: str
    timeout: float
    quick: int
    needs: str = "autocross"

    @property
    def can_run(self) -> bool:
        return importlib.util.find_spec(self.needs) is not None


PARTS = {
    "tables": Part("tables of every type and defect: one row, many rows, files, parts, engines agree", 300, 12),
    "files": Part("damaged input files, outputs that are inputs", 120, 40),
    "bundles": Part("damaged and forged model files", 120, 300),
    "guided": Part("the same, guided by coverage (atheris)", 300, 0, "atheris"),
    "checkpoints": Part("checkpoints that are damaged, forged, or of other rows", 300, 12),
    "kills": Part("fits killed at random moments, then resumed", 600, 1),
    "disks": Part("full disks under model, journal, checkpoint, temporary folder, scores", 300, 5),
    "forks": Part("scoring and fitting in forked and spawned processes", 300, 2),
    "streams": Part("closed streams, pipes that go away, ASCII terminals, storms of Ctrl-C", 300, 4),
    "limits": Part("time_limit and memory_limit, measured", 900, 0),
    "engines": Part("serial, threads and Ray with lost workers: the same bits", 600, 4),
    "noise": Part("noise with weights of any scale", 600, 1),
}


@dataclass
class Count:
    """What a part has found so far."""

    cases: int = 0
    seconds: float = 0.0
    faults: list[tuple[int, str]] = field(default_factory=list)  # seeds, and what was wrong


# The child.


def serve(name: str) -> None:
    """Read seeds, attack, answer each with one line of JSON."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    faulthandler.enable()
    attack = importlib.import_module(f"torture.{name}").attack
    for line in sys.stdin:
        seed, folder = json.loads(line)
        try:
            answer = {"cases": attack(seed, Path(folder)) or 1}
        except BaseException:  # a panic of polars is no Exception
            answer = {"fault": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


class Child:
    """A process that runs cases of one part, started anew where it has died."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: subprocess.Popen[str] | None = None
        self.log = KEPT / f"{name}.log"
        self.work = ""  # its temporary folder

    def start(self) -> subprocess.Popen[str]:
        KEPT.mkdir(exist_ok=True)
        self.work = tempfile.mkdtemp(prefix="torture-")
        command = [sys.executable, str(HERE / "run.py"), self.name, "--serve"]
        how: dict[str, Any] = {"text": True, "start_new_session": True, "env": {**os.environ, "TMPDIR": self.work}}
        with self.log.open("w") as log:
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, **how)

    def run(self, seed: int) -> int | str:
        """How many cases the seed stood for, or what went wrong."""
        folder = KEPT / "faults" / f"{self.name}-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.process = self.process or self.start()
        found = self.ask(self.process, seed, folder)
        if isinstance(found, int):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            (folder / "fault.txt").write_text(f"{repeat(self.name, seed)}\n\n{found}\n")
        return found

    def ask(self, process: subprocess.Popen[str], seed: int, folder: Path) -> int | str:
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps([seed, str(folder)]), file=process.stdin, flush=True)
        timeout = PARTS[self.name].timeout
        if not select.select([process.stdout], [], [], timeout)[0]:
            self.end(signal.SIGABRT)  # faulthandler then says where it hung
            return f"Hang: no answer within {timeout:.0f} s\n{excerpt(self.log)}"
        line = process.stdout.readline()
        if not line:
            code = process.wait()
            self.end()
            return f"Death: the process ended with code {code} in the middle of a case\n{excerpt(self.log)}"
        answer = json.loads(line)
        return answer.get("fault") or int(answer["cases"])

    def end(self, first: signal.Signals = signal.SIGTERM) -> None:
        """End the child and all that it has started."""
        if self.process is None:
            return
        for number in (first, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self.process = None
        shutil.rmtree(self.work, ignore_errors=True)


def excerpt(path: Path) -> str:
    """The first and the last lines of what a child wrote: its last words come first in a dump of all threads."""
    lines = path.read_text(errors="replace").splitlines()
    return "\n".join(lines if len(lines) <= 50 else [*lines[:10], "...", *lines[-40:]])


def repeat(name: str, seed: int) -> str:
    """The command that runs a case again."""
    return f"python tests/torture/run.py {name} --seed {seed}"


# The rotation.


def turn(child: Child, seeds: Iterable[int], count: Count, seconds: float = float("inf")) -> None:
    """Run cases of a part until the seeds or the seconds have run out."""
    began = time.monotonic()
    for seed in seeds:
        found = child.run(seed)
        count.cases += found if isinstance(found, int) else 1
        if isinstance(found, str):
            count.faults.append((seed, found))
            if len(count.faults) > MOST_FOLDERS:
                shutil.rmtree(KEPT / "faults" / f"{child.name}-{seed}", ignore_errors=True)
            print(f"FAULT {headline(found)}\n      {repeat(child.name, seed)}", flush=True)
        if time.monotonic() - began >= seconds:
            break
    count.seconds += time.monotonic() - began


def some(name: str, seeds: Iterable[int]) -> Count:
    """Run the cases of these seeds."""
    child, count = Child(name), Count()
    try:
        turn(child, seeds, count)
    finally:
        child.end()
    return count


def rotate(names: Sequence[str], seconds: float, first: int) -> dict[str, Count]:
    """Always the part that has had the least time, until all the time is spent."""
    counts, children = {name: Count() for name in names}, {name: Child(name) for name in names}
    seeds = {name: itertools.count(first) for name in names}
    ends = time.monotonic() + seconds
    try:
        while (left := ends - time.monotonic()) > 0:
            name = min(names, key=lambda one: counts[one].seconds)
            count = counts[name]
            turn(children[name], seeds[name], count, min(TURN, left))
            print(f"{name:12} {count.cases:>9,} cases {len(count.faults):>6} faults {count.seconds:>8.0f} s", flush=True)
    except KeyboardInterrupt:
        print("interrupted")
    finally:
        for child in children.values():
            child.end()
    return counts


def known_seeds(name: str) -> list[int]:
    """Seeds that once found something."""
    lines = [line.split("#")[0].split() for line in SEEDS.read_text().splitlines()]
    return [int(seed) for part, seed in filter(None, lines) if part == name]


# What is said in the end.


def headline(fault: str) -> str:
    """The line of a fault that says what was wrong."""
    lines = [line for line in fault.splitlines() if line.strip()]
    if not fault.startswith("Traceback"):
        return lines[0][:300]
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Fault|Interrupt|Expired|Exit)\b", line)]
    return (raised or lines)[-1][:300]


def kinds(count: Count) -> list[str]:
    """Faults that differ in more than numbers, with how often each was met and the first seed."""

    def kind(fault: str) -> str:
        return re.sub(r"[-+\w./]*\d[\w./]*|'[^']*'", "#", headline(fault))[:80]

    alike = Counter(kind(fault) for _, fault in count.faults)
    firsts = {kind(fault): (seed, headline(fault)) for seed, fault in reversed(count.faults)}
    return ["{:>5} x first seed {}: {}".format(n, *firsts[one]) for one, n in alike.most_common()]


def table(counts: dict[str, Count]) -> str:
    """All parts, as Markdown."""
    lines = ["| part | what is attacked | cases | faults | seconds |", "| --- | --- | ---: | ---: | ---: |"]
    lines += [
        f"| {name} | {PARTS[name].what} | {count.cases:,} | {len(count.faults)} | {count.seconds:,.0f} |"
        for name, count in counts.items()
    ]
    return "\n".join(lines)


def version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def write_docs(counts: dict[str, Count], first: int) -> None:
    """Put the table into docs/reliability.md."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    libraries = ", ".join(f"{one} {version(one)}" for one in ("numpy", "numba", "polars", "pandas", "pyarrow", "ray", "atheris"))
    about = (
        f"Run on {datetime.now(UTC):%Y-%m-%d} at commit {commit.strip() or 'unknown'}, first seed {first}, "
        f"{os.cpu_count()} cores, Python {platform.python_version()}, {libraries}."
    )
    before, _, rest = PAGE.read_text().partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    PAGE.write_text(f"{before}{MARKS[0]}\n{about}\n\n{table(counts)}\n{MARKS[1]}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Attack the package, and keep every fault.")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="parts to run; by default all")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long, in all")
    parser.add_argument("--first", type=int, default=None, help="first seed; by default drawn from the clock")
    parser.add_argument("--seed", type=int, default=None, help="run the one case of this seed")
    parser.add_argument("--write-docs", action="store_true", help="write the table to docs/reliability.md")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = given.parts or [name for name, part in PARTS.items() if part.can_run]
    if given.serve:
        serve(names[0])
        return 0
    if given.seed is not None:
        counts = {name: some(name, [given.seed]) for name in names}
        for name, count in counts.items():
            print("\n".join([f"{name}: {count.cases} cases", *(fault for _, fault in count.faults)]))
    else:
        first = time.time_ns() // 1000 % 10**9 * 1000 if given.first is None else given.first
        left_out = sorted(set(PARTS) - set(names))
        print(f"first seed {first}" + (f"; without {', '.join(left_out)}" if left_out else ""), flush=True)
        counts = rotate(names, given.seconds, first)
        print("\n" + table(counts))
        for name, count in counts.items():
            print("\n".join([f"\n{name}:", *kinds(count)]) if count.faults else "", end="")
        if given.write_docs:
            write_docs(counts, first)
    n_faults = sum(len(count.faults) for count in counts.values())
    print(f"\n{n_faults} faults" + (f", kept in {KEPT / 'faults'}" if n_faults else ""))
    return 1 if n_faults else 0


sys.path.insert(0, str(HERE.parent))  # `torture` is a package there

if __name__ == "__main__":
    sys.exit(main())
