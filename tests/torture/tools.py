"""What several attacks need: models that must be equal, rows that must score alike, commands in processes of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl

from autocross import AutoCrossClassifier
from autocross.errors import AutoCrossError, TableWarning
from autocross.producer import bundle
from autocross.producer.model import Model
from autocross.search import policy
from autocross.serving.scorer import Scorer

ROOT = Path(__file__).resolve().parents[2]
DRIVER = Path(__file__).with_name("driver.py")

GRACE = 10.0  # seconds in which helpers of a process that has ended must have ended too

Row = Mapping[str, Any]


class Fault(AssertionError):  # noqa: N818  what it is called in print
    """Something that must not happen has happened."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise Fault(message)


# Answers.


def same_bits(one: Any, other: Any) -> bool:
    """Whether two arrays of floats are equal, NaN and the sign of zero included."""
    ours, theirs = np.asarray(one, np.float64), np.asarray(other, np.float64)
    return ours.shape == theirs.shape and ours.tobytes() == theirs.tobytes()


def require_same(one: Model, other: Model, message: str) -> None:
    """Models must be equal to the bit; only the seconds they took may differ."""
    ours, theirs = one.about, other.about
    found = [(cross.fields, cross.gain, cross.error) for cross in ours.crosses]
    expected = [(cross.fields, cross.gain, cross.error) for cross in theirs.crosses]
    require(found == expected, f"{message}: crosses {found} are not {expected}")
    require(one.producer.names == other.producer.names, f"{message}: other fields")
    require(one.penalties == other.penalties, f"{message}: other penalties")
    require(same_bits(one.intercept, other.intercept), f"{message}: intercept {one.intercept!r} is not {other.intercept!r}")
    for at, (weight, its) in enumerate(zip(one.weights, other.weights, strict=True)):
        require(same_bits(weight, its), f"{message}: weights of field {one.producer.names[at]!r} differ")
    require(ours.score == theirs.score, f"{message}: validation score {ours.score!r} is not {theirs.score!r}")
    require((ours.classes, ours.n_rows) == (theirs.classes, theirs.n_rows), f"{message}: other labels or rows")


class Refused:
    """The answer where an error of ours came instead."""

    def __init__(self, error: AutoCrossError) -> None:
        self.error = error

    def __repr__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"


def answer(call: Callable[[], Any]) -> Any:
    """What a call returns, or Refused. Other errors, and warnings that are not ours, are faults."""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        try:
            found = call()
        except AutoCrossError as error:
            require(len(str(error)) > 10, f"an error that says nothing: {error!r}")
            found = Refused(error)
    for one in raised:
        require(issubclass(one.category, TableWarning), f"{one.category.__name__} from {one.filename}:{one.lineno}: {one.message}")
    return found


def require_one_as_many(scorer: Scorer, row: Row, frame: Any) -> None:
    """A row alone and as the only one of a frame: the same log-odds to the bit, or both refused."""
    many, alone = answer(lambda: scorer.log_odds(frame)), answer(lambda: scorer.log_odds_one(row))
    if isinstance(many, Refused) or isinstance(alone, Refused):
        both = isinstance(many, Refused) and isinstance(alone, Refused)
        require(both, f"one row gives {alone!r}, a frame of it {many!r}, for {shown(row)}")
        return
    require(same_bits([alone], many), f"one row gives {alone!r}, a frame of it {many!r}, for {shown(row)}")
    require(same_bits([scorer.score_one(row)], scorer.score(frame)), f"probabilities differ for {shown(row)}")


def shown(row: Row) -> str:
    return ascii({name: value if len(repr(value)) < 200 else f"{repr(value)[:200]}..." for name, value in row.items()})[:2000]


# Rows.


def planted(seed: int, n: int = 1500, n_columns: int = 5) -> pl.DataFrame:
    """Rows whose label depends on crosses, which a search finds in several rounds."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 5, (n, n_columns))
    log_odds = sum(rng.normal(0, 1.5, (5, 5))[codes[:, at], codes[:, at + 1]] for at in range(0, n_columns - 1, 2))
    frame = pl.DataFrame({f"c{at}": [f"v{code}" for code in codes[:, at]] for at in range(n_columns)})
    tags = [rng.choice(["a", "b", "c"], rng.integers(0, 3), replace=False).tolist() for _ in range(n)]
    holes = rng.random(n) < 0.1
    return frame.with_columns(
        x=np.where(holes, np.nan, rng.normal(size=n)),
        tags=pl.Series(tags, dtype=pl.List(pl.String)),
        weight=rng.integers(1, 4, n).astype(np.float64),
        label=(rng.random(n) < 1 / (1 + np.exp(-log_odds))).astype(int),
    )


@contextmanager
def by_parts(rows: int) -> Iterator[None]:
    """Within, files are read part by part, so many rows at once."""
    with patch("autocross.table.ingest.bytes_in_memory", lambda path: 1 << 60), patch("autocross.table.ingest.MOST_ROWS", rows):
        yield


@contextmanager
def in_rounds() -> Iterator[None]:
    """Within, a round accepts one cross, so that a small table has several rounds."""
    with patch.object(policy, "AUTO", replace(policy.AUTO, a_round=1)):
        yield


# Processes.


def command(*arguments: object, rounds: bool = False, parts: int = 0) -> list[str]:
    """The command line in a process of its own, perhaps with one cross a round or with files read part by part."""
    return [sys.executable, str(DRIVER), str(int(rounds)), str(parts), *map(str, arguments)]


def run(arguments: Sequence[str], timeout: float = 120.0, **how: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a process to its end; one that hangs is a fault, and so is one that a crash has ended."""
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **how}
    process = subprocess.Popen(arguments, start_new_session=True, **given)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise Fault(f"hangs: {' '.join(arguments[2:])[:500]}\n{said(err)}") from None
    require_no_orphans(process.pid)
    require_no_crash(process.returncode, err, arguments)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def require_no_crash(code: int, err: bytes | None, arguments: Sequence[str]) -> None:
    crashes = (signal.SIGBUS, signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
    crashed = code < 0 and -code in crashes
    require(not crashed, f"died of signal {-code}: {' '.join(arguments[2:])[:500]}\n{said(err)}")


def said(err: bytes | None) -> str:
    return (err or b"").decode(errors="replace")[-3000:]


def session(leader: int) -> list[int]:
    """Processes of the session that a process has led."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            facts = entry.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(facts[3]) == leader and facts[0] != "Z":
            found.append(int(entry.parent.name))
    return found


def require_no_orphans(leader: int) -> None:
    """Nothing that a process has started may outlive it, but for a moment; what does is ended."""
    ends = time.monotonic() + GRACE
    while (left := session(leader)) and time.monotonic() < ends:
        time.sleep(0.02)
    for one in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    require(not left, f"processes {left} outlived the one that had started them")


@cache
def former_model() -> bytes:
    """A model file that was there before: a command replaces nothing but models by models."""
    path = Path(mkdtemp(prefix="torture-former-")) / "model.acx"
    rows = planted(9, 100, 2).drop("weight", "tags", "x")
    AutoCrossClassifier(quiet=True, engine="serial", max_crosses=0).fit(rows, "label").save(path)
    return path.read_bytes()


def require_model(path: Path, former: bytes | None = None) -> None:
    """A model file is whole, or as it was before."""
    if former is not None and path.exists() and path.read_bytes() == former:
        return
    require(former is None or path.exists(), "the former model file is gone")
    if path.exists():
        Scorer(bundle.read(path))
