"""Part 7: the command line with closed streams, pipes that go away, an ASCII terminal, and storms of Ctrl-C.

No traceback, no hang; an exit code that says what happened; a model file that is whole, or the former one, or none.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import polars as pl

from torture.tools import Fault, former_model, planted, require, require_model, require_no_crash, require_no_orphans, run, said

Rng = np.random.Generator


def cli(*arguments: object) -> list[str]:
    """The command as users call it: what is imported, and when, is part of what Ctrl-C may meet."""
    return [sys.executable, "-m", "autocross", *map(str, arguments)]


@cache
def reference() -> tuple[Path, Path]:
    """Rows with names and values beyond ASCII, and a model of them."""
    folder = Path(mkdtemp(prefix="torture-streams-"))
    rows = planted(2, 900).rename({"c0": "Größe", "c1": "名前"}).with_columns(pl.col("c2") + "é🙂")
    rows.write_parquet(folder / "rows.parquet")
    done = run(cli("fit", folder / "rows.parquet", "--target", "label", "-o", folder / "model.acx", "--quiet"))
    require(done.returncode == 0, f"a fit with open streams failed: {said(done.stderr)}")
    return folder / "rows.parquet", folder / "model.acx"


def some_command(rng: Rng, folder: Path) -> list[str]:
    rows, model = reference()
    fit = ["fit", rows, "--target", "label", "-o", folder / "model.acx"]
    row = '{"Größe": "v1", "名前": "v2", "c2": "v3é🙂"}'
    words: list[list[Any]] = [
        fit,
        [*fit, "--json"],
        ["predict", model, rows],
        ["transform", model, rows],
        ["transform", model, rows, "-o", folder / "out.csv"],
        ["show", model],
        ["show", model, "--json"],
        ["explain", model, rows],
        ["explain", model, row],
        ["evaluate", model, rows, "--json"],
        ["refit", model, rows, "-o", folder / "model.acx"],
        ["--help"],
        ["fit", "--help"],
        ["fly"],
        ["show", folder / "名前.acx"],
    ]
    return cli(*words[rng.integers(len(words))])


def is_wrong(words: list[str]) -> bool:
    """Whether a command can only be refused: there is no such command, or no such file."""
    return "fly" in words or "名前.acx" in words[-1]


def require_quiet_end(done: subprocess.CompletedProcess[bytes], codes: tuple[int, ...], folder: Path) -> None:
    message = said(done.stderr)
    require(done.returncode in codes, f"exit code {done.returncode}: {' '.join(done.args[3:])}: {message}")
    require("Traceback" not in message and "Exception ignored" not in message, f"{' '.join(done.args[3:])}: {message}")
    require_model(folder / "model.acx")
    left = [one.name for one in folder.iterdir() if one.name.startswith(".")]
    require(not left, f"left behind: {left}")


def closed(rng: Rng, folder: Path) -> None:
    """Some of the three streams are closed before the command starts."""
    which = [number for number in (0, 1, 2) if rng.random() < 0.6] or [1]
    words = some_command(rng, folder)
    shell = " ".join(f"{number}>&-" if number else "0<&-" for number in which)
    done = run(["sh", "-c", f'exec "$@" {shell}', "sh", *words])
    require(len(done.stdout) == 0 or 1 not in which, "wrote to a closed stream")
    require_quiet_end(done, (0, 1, 2), folder)


def gone(rng: Rng, folder: Path) -> None:
    """The reader of stdout, or of stderr, goes away after some bytes."""
    words, n = some_command(rng, folder), int(rng.choice([0, 1, 10, 100, 5000]))
    stream = str(rng.choice(["stdout", "stderr"]))
    process = subprocess.Popen(
        words, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    leaving, staying = (process.stdout, process.stderr) if stream == "stdout" else (process.stderr, process.stdout)
    assert leaving is not None and staying is not None
    leaving.read(n)
    leaving.close()
    rest = staying.read()
    staying.close()
    ended(process, words, rest)
    err = rest if stream == "stdout" else b""
    codes = (0, 1, 2, -signal.SIGPIPE, 128 + signal.SIGPIPE)
    require_quiet_end(subprocess.CompletedProcess(words, process.returncode, b"", err), codes, folder)
    if "fit" in words[3:4] and "--help" not in words:
        require((folder / "model.acx").exists(), f"a reader of {stream} that went away cost the model: {said(err)}")


def ended(process: subprocess.Popen[bytes], words: list[str], err: bytes) -> None:
    try:
        process.wait(120)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise Fault(f"hangs: {' '.join(words[3:])}") from None
    require_no_orphans(process.pid)
    require_no_crash(process.returncode, err, words)


def ascii_only(rng: Rng, folder: Path) -> None:
    """Streams that take ASCII alone, or bytes of an old code page."""
    coding = str(rng.choice(["ascii", "latin-1", "cp1252", "ascii:strict", "utf-8"]))
    words = some_command(rng, folder)
    environment = {**os.environ, "PYTHONIOENCODING": coding, "PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    done = run(words, env=environment)
    require_quiet_end(done, (0, 2), folder)
    require(is_wrong(words) or done.returncode == 0, f"exit code 2: {said(done.stderr)}")


def storm(rng: Rng, folder: Path) -> None:
    """Ctrl-C again and again, from some moment on."""
    words = some_command(rng, folder)
    (folder / "model.acx").write_bytes(former_model())
    process = subprocess.Popen(
        words, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    time.sleep(float(rng.uniform(0, 4)))
    for _ in range(int(rng.integers(1, 12))):
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGINT)
        time.sleep(float(rng.exponential(0.05)))
    assert process.stderr is not None
    err = process.stderr.read()
    process.stderr.close()
    ended(process, words, err)
    codes = (0, 1, -signal.SIGINT, 130, *([2] if is_wrong(words) else []))
    require(process.returncode in codes, f"exit code {process.returncode}: {said(err)}")
    require_model(folder / "model.acx", former_model())
    left = [one.name for one in folder.iterdir() if one.name.startswith(".")]
    require(not left, f"left behind: {left}")
    if b"interrupted: the model" in err or b"saved" in err:
        require((folder / "model.acx").read_bytes() != former_model(), f"said to be saved, but is not: {said(err)}")


WAYS: list[Callable[[Rng, Path], None]] = [closed, gone, ascii_only, storm]


def attack(seed: int, folder: Path) -> None:
    WAYS[seed % len(WAYS)](np.random.default_rng(seed), folder)
