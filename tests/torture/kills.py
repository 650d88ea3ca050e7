"""Part 4: fits killed at random moments, then resumed.

The model is that of a fit without a break, to the bit. The journal is lines of JSON, of which only the last may be broken. A model
file is the former one or a whole one. After Ctrl-C or SIGTERM no temporary file is left, and no process after any signal.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np

from autocross import checkpoint
from autocross.producer import bundle
from autocross.producer.model import Model
from torture.tools import (
    Fault,
    command,
    former_model,
    planted,
    require,
    require_model,
    require_no_crash,
    require_no_orphans,
    require_same,
    run,
    said,
)

N_TABLES = 3
LONGEST = 120.0  # seconds that a fit may take before it hangs


@cache
def reference(table: int, parts: int) -> tuple[Path, Model, float, int]:
    """A table, its model without a break, the seconds that took and the lines of its journal."""
    folder = Path(mkdtemp(prefix="torture-kills-"))
    planted(table).write_parquet(folder / "rows.parquet")
    done = run(fit(folder, folder / "rows.parquet", parts, "--checkpoint", folder / "kept"))
    require(done.returncode == 0, f"the fit without a break failed: {said(done.stderr)}")
    model = bundle.read(folder / "model.acx")
    require(len(model.about.crosses) >= 2, "the table of the attack has too few crosses")
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    return folder / "rows.parquet", model, lines[-1]["seconds"], len(lines)


def fit(folder: Path, rows: Path, parts: int, *options: object) -> list[str]:
    given = ("--target", "label", "--quiet", "-o", folder / "model.acx", "--journal", folder / "journal.jsonl")
    return command("fit", rows, *given, *options, rounds=True, parts=parts)


def n_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def run_and_kill(arguments: list[str], folder: Path, number: int, after: float, again: bool) -> int:
    """Send the signal once the journal has grown by so many lines (int), or so many seconds after that began; the exit code."""
    environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
    how: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "env": environment, "start_new_session": True}
    journal, before = folder / "journal.jsonl", n_lines(folder / "journal.jsonl")
    process = subprocess.Popen(arguments, **how)
    began: float | None = None
    while process.poll() is None:
        grown = n_lines(journal) - before
        began = time.monotonic() if began is None and grown else began
        if grown >= after if isinstance(after, int) else began is not None and time.monotonic() - began >= after:
            process.send_signal(number)
            break
        time.sleep(0.0005)
    try:
        if again and process.poll() is None:
            time.sleep(0.05)
            process.send_signal(number)
        _, err = process.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Fault(f"hangs after signal {number}") from None
    require_no_orphans(process.pid)
    require_no_crash(process.returncode, err, arguments)
    return process.returncode


def require_journal(path: Path) -> None:
    """Lines of JSON; only the last may be broken."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    for at, line in enumerate(lines):
        try:
            json.loads(line)
        except ValueError:
            require(at == len(lines) - 1, f"line {at} of {len(lines)} of the journal is broken: {line[:200]!r}")


def require_tidy(folder: Path) -> None:
    """No temporary file is left beside the model, the checkpoint, or in the temporary folder."""
    expected = {"rows.parquet", "model.acx", "journal.jsonl", "kept", "tmp", "case.txt"}
    left = [one.name for one in folder.iterdir() if one.name not in expected]
    left += [one.name for one in (folder / "kept").glob("*") if one.name != checkpoint.FILE]
    left += [one.name for one in (folder / "tmp").iterdir()]
    require(not left, f"left behind: {left}")


def attack(seed: int, folder: Path) -> int:
    rng = np.random.default_rng(seed)
    parts = int(rng.choice([0, 0, 400]))
    rows, whole, seconds, lines = reference(int(rng.integers(N_TABLES)), parts)
    (folder / "tmp").mkdir()
    (folder / "model.acx").write_bytes(former_model())
    n_kills = int(rng.integers(1, 4))
    for _ in range(n_kills):
        number = signal.Signals(rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
        after = int(rng.integers(1, lines + 1)) if rng.random() < 0.6 else float(rng.uniform(0, 1.1 * seconds))
        again = bool(number == signal.SIGINT and rng.random() < 0.3)
        with (folder / "case.txt").open("a") as note:
            print(f"{number!r} after {after} of {lines} lines, {seconds} s, parts {parts}, again {again}", file=note)
        code = run_and_kill(fit(folder, rows, parts, *kept(folder)), folder, number, after, again)
        require_sound(folder, number, code)
    done = run(fit(folder, rows, parts, *kept(folder)), env={**os.environ, "TMPDIR": str(folder / "tmp")})
    require(done.returncode == 0, f"the fit cannot be resumed: {said(done.stderr)}")
    require_same(bundle.read(folder / "model.acx"), whole, "resumed")
    return n_kills


def kept(folder: Path) -> list[object]:
    """Go on from what is kept, if anything is, and keep what comes."""
    there = (folder / "kept" / checkpoint.FILE).exists()
    return ["--checkpoint", folder / "kept", *(["--resume", folder / "kept"] if there else [])]


def require_sound(folder: Path, number: int, code: int) -> None:
    """What must be true after a fit was sent a signal."""
    require_model(folder / "model.acx", former_model())
    require_journal(folder / "journal.jsonl")
    if number == signal.SIGKILL:
        for one in (folder / "tmp").iterdir():  # nobody can tidy up after SIGKILL
            shutil.rmtree(one, ignore_errors=True)
        for one in [*folder.glob(".*"), *(folder / "kept").glob(".*")]:
            one.unlink()
    require_tidy(folder)
    if code == 0:
        require((folder / "model.acx").read_bytes() != former_model(), "a fit that says it is done has written no model")
