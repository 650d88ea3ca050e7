"""Part 5: full disks.

A small tmpfs where the machine lets us mount one, else a limit on the size of files. The former file stays, the message names the
path, the exit code says what happened; a full disk under the journal or the checkpoint does not end the fit. Never SIGBUS.
"""

from __future__ import annotations

import contextlib
import io
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import polars as pl

from autocross.producer import bundle
from autocross.producer.model import Model
from autocross.table.outputs import PREDICTIONS
from torture.tools import command, former_model, planted, require, require_model, require_same, run, said

PLACES = ("model", "journal", "checkpoint", "temporary", "predict", "transform", "refit", "stdout")


@cache
def reference() -> tuple[Path, Path, Model]:
    """Rows and a model of them."""
    folder = Path(mkdtemp(prefix="torture-disks-"))
    planted(0, 4000).write_parquet(folder / "rows.parquet")
    done = run(fit(folder / "rows.parquet", folder / "model.acx"))
    require(done.returncode == 0, f"a fit on a disk with room failed: {said(done.stderr)}")
    return folder / "rows.parquet", folder / "model.acx", bundle.read(folder / "model.acx")


def fit(rows: Path, output: Path, *options: object, parts: int = 0) -> list[str]:
    return command("fit", rows, "--target", "label", "-o", output, "--quiet", *options, rounds=True, parts=parts)


@cache
def can_mount() -> bool:
    with small_mount(Path(mkdtemp(prefix="torture-mount-")), 64) as mounted:
        return mounted


@contextmanager
def small_mount(place: Path, kib: int) -> Iterator[bool]:
    """A file system of so many KiB; whether it could be had."""
    place.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "none", str(place)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(place)], check=True)


@contextmanager
def little_room(place: Path, kib: int, alone: bool) -> Iterator[dict[str, Any]]:
    """A folder with room for so many KiB; how a process must be started for it. ``alone``: it writes nothing elsewhere."""
    if can_mount():
        with small_mount(place, kib) as mounted:
            require(mounted, "the mount is gone")
            yield {}
    else:
        # The limit is on every file of the process: what is written elsewhere must fit.
        place.mkdir(exist_ok=True)
        most = max(kib * 1024, 0 if alone else 2 * reference()[1].stat().st_size)
        yield {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))}


def attack(seed: int, folder: Path) -> None:
    rng = np.random.default_rng(seed)
    place = PLACES[seed % len(PLACES)]
    kib = int(rng.choice([4, 8, 12, 16, 24] if place in ("journal", "checkpoint", "model", "refit") else [4, 16, 40, 80, 160, 320]))
    parts = int(rng.choice([0, 700])) if place != "temporary" else 700
    (folder / "case.txt").write_text(f"{place}, {kib} KiB, parts {parts}, mounts {can_mount()}")
    alone = place not in ("journal", "checkpoint", "temporary")
    beside = -(-len(former_model()) // 4096) * 4 if place in ("model", "refit", "predict", "transform") else 0  # the former file
    with little_room(folder / "full", kib + beside, alone) as how:
        ATTACKS[place](folder, folder / "full", parts, how, rng)


def under_output(arguments: list[str], output: Path, former: bytes, how: dict[str, Any]) -> None:
    """A file that does not fit: the former one stays, nothing is left beside it, and the message names it and says why."""
    output.write_bytes(former)
    done = run(arguments, **how)
    if done.returncode == 0:
        require(output.read_bytes() != former, "said to be done, but nothing was written")
        return
    message = said(done.stderr)
    require(done.returncode == 2, f"exit code {done.returncode}: {message}")
    require(str(output) in message, f"the message does not name the file: {message}")
    require("No space left" in message or "File too large" in message, f"the message does not say why: {message}")
    require("Traceback" not in message, message)
    require(output.read_bytes() == former, "the former file is lost")
    left = [one.name for one in output.parent.iterdir() if one != output]
    require(not left, f"left behind: {left}")


def under_model(folder: Path, full: Path, parts: int, how: dict[str, Any], rng: Any) -> None:
    rows, _, whole = reference()
    under_output(fit(rows, full / "model.acx", parts=parts), full / "model.acx", former_model(), how)
    require_model(full / "model.acx", former_model())
    if (full / "model.acx").read_bytes() != former_model():
        require_same(bundle.read(full / "model.acx"), whole, "on a small disk")


def under_log(folder: Path, full: Path, parts: int, how: dict[str, Any], rng: Any, option: str, name: str) -> None:
    """A journal or a checkpoint that no longer fits: the fit goes on, and says so."""
    rows, _, whole = reference()
    if not how:
        with contextlib.suppress(OSError):  # as much of it as there is room for
            (full / "filler").write_bytes(bytes(int(rng.integers(0, 4)) * 4096))
    place = full / name
    done = run(fit(rows, folder / "model.acx", option, place, parts=parts), **how)
    message = said(done.stderr)
    if done.returncode == 2:  # refused before the work: nothing fits at all
        require(str(place) in message and not (folder / "model.acx").exists(), f"exit code 2: {message}")
        began = place.exists() and (place.is_dir() or place.stat().st_size > 0)
        require(not began, f"{option} began to fit, and its full disk ended the fit: {message}")
        return
    require(done.returncode == 0, f"exit code {done.returncode}: {message}")
    require_same(bundle.read(folder / "model.acx"), whole, f"with {option} on a full disk")
    require("Traceback" not in message, message)


def under_temporary(folder: Path, full: Path, parts: int, how: dict[str, Any], rng: Any) -> None:
    """Codes of rows that are read part by part do not fit into the temporary folder."""
    rows, _, whole = reference()
    done = run(fit(rows, folder / "model.acx", parts=parts), env={**os.environ, "TMPDIR": str(full)}, **how)
    message = said(done.stderr)
    require(done.returncode in (0, 2), f"exit code {done.returncode}: {message}")
    require("Traceback" not in message, message)
    if done.returncode == 0:
        require_same(bundle.read(folder / "model.acx"), whole, "with a small temporary folder")
    else:
        require(str(full) in message, f"the message does not name the folder: {message}")
        require(not (folder / "model.acx").exists(), "a model of a fit that failed")
    left = [one.name for one in full.iterdir()]
    require(not left, f"left behind: {left}")


def under_table(folder: Path, full: Path, parts: int, how: dict[str, Any], rng: Any, word: str) -> None:
    rows, model, _ = reference()
    ending = str(rng.choice(["csv", "parquet"]))
    output, former = full / f"scores.{ending}", io.BytesIO()
    getattr(pl.DataFrame({name: [0.5] for name in PREDICTIONS}), f"write_{ending}")(former)
    # Features cannot be told from other tables: they replace one only if they must.
    force = ["--force"] if word == "transform" else []
    under_output(command(word, model, rows, "-o", output, *force), output, former.getvalue(), how)


def under_refit(folder: Path, full: Path, parts: int, how: dict[str, Any], rng: Any) -> None:
    rows, model, _ = reference()
    output = full / "model.acx"
    under_output(command("refit", model, rows, "-o", output, "--quiet"), output, former_model(), how)
    require_model(output, former_model())


def under_stdout(folder: Path, full: Path, parts: int, how: dict[str, Any], rng: Any) -> None:
    """Standard output on a full device."""
    rows, model, _ = reference()
    words = [("predict", model, rows), ("show", model), ("show", model, "--json"), ("explain", model, rows)]
    with open("/dev/full", "wb") as stream:
        done = run(command(*words[rng.integers(len(words))]), stdout=stream)
    message = said(done.stderr)
    require(done.returncode in (1, 2), f"exit code {done.returncode} where nothing could be written: {message}")
    require("Traceback" not in message and "Exception ignored" not in message, message)
    require("No space left" in message, f"the message does not say why: {message!r}")


ATTACKS: dict[str, Any] = {
    "model": under_model,
    "journal": lambda *given: under_log(*given, "--journal", "journal.jsonl"),
    "checkpoint": lambda *given: under_log(*given, "--checkpoint", "kept"),
    "temporary": under_temporary,
    "predict": lambda *given: under_table(*given, "predict"),
    "transform": lambda *given: under_table(*given, "transform"),
    "refit": under_refit,
    "stdout": under_stdout,
}
