"""A folder without room enough: an error that says so, at any moment of a fit or of writing a table, and nothing left behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from autocross.errors import FileError
from autocross.table.files import write as write_table
from conftest import SmallDisk

pytestmark = pytest.mark.slow

# A mount that only the process under test sees, and that goes with it.
ALONE = ["unshare", "--mount", "--map-root-user"]

FIT = """
import json, os, subprocess, sys, threading, traceback
from autocross import AutoCrossClassifier
from autocross.table import ingest
from autocross.errors import FileError

folder, rows, engine, *sizes = sys.argv[1:]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder], check=True)
os.environ["TMPDIR"] = folder
ingest.bytes_in_memory = lambda path: 1 << 60  # everything that comes as a path is read part by part
for size in sizes:
    subprocess.run(["mount", "-o", f"remount,size={size}", folder], check=True)
    seen = {"size": int(size), "error": None, "steps": []}
    try:
        AutoCrossClassifier(quiet=True, max_crosses=0, engine=engine, n_jobs=2).fit(rows, "bought")
    except FileError as error:
        seen["error"] = str(error)
        seen["steps"] = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    for _ in range(1000):  # a thread that had no turn since may still hold the array of its last task
        left = os.statvfs(folder)
        seen["used"] = (left.f_blocks - left.f_bfree) * left.f_bsize
        if not seen["used"] or threading.Event().wait(0.01):
            break
    seen["left"] = os.listdir(folder)
    print(json.dumps(seen), flush=True)
"""


def mounts_are_allowed() -> bool:
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        return False
    return subprocess.run([*ALONE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Codes of 1 and 2 bytes: some 1.1 MB to read into, and as much again for the fields that are read from numbers."""
    rng = np.random.default_rng(0)
    n = 60_000
    columns: dict[str, Any] = {f"number{at}": rng.normal(size=n) for at in range(6)}
    columns |= {f"text{at}": [f"t{code}" for code in rng.integers(0, 300, n)] for at in range(3)}
    columns["tags"] = pl.Series([["a", "b"], [], ["c"]] * (n // 3))
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pl.DataFrame({**columns, "bought": rng.integers(0, 2, n)}).write_parquet(path)
    return path


@pytest.mark.skipif(not mounts_are_allowed(), reason="needs a small file system of its own, and may not mount one here")
@pytest.mark.parametrize("engine", ["serial", "threads"])
def test_a_full_temporary_folder_is_an_error_at_any_moment(rows: Path, tmp_path: Path, engine: str) -> None:
    sizes = [str(kib << 10) for kib in (16, 1300, 1680, 2300, 4096)]
    command = [*ALONE, sys.executable, "-c", FIT, str(tmp_path), str(rows), engine, *sizes]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.returncode, done.stderr)
    seen = [json.loads(line) for line in done.stdout.splitlines()]
    failed = [one for one in seen if one["error"]]
    assert len(failed) == len(seen) - 1  # with room enough the fit goes through
    for one in seen:
        assert one["left"] == []
        assert one["used"] == 0
    for one in failed:
        assert str(tmp_path) in one["error"]
        assert "TMPDIR" in one["error"] and "memory_limit" in one["error"]
        assert "No space left on device. They take some 3.8 MiB there" in one["error"]
    for step, one in zip(("begin_to_fill", "fill_on", "to_blocks", "keep_fields"), failed, strict=True):
        assert step in one["steps"]


@pytest.mark.parametrize("room", [0, 4096, 65536, 262144])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_that_does_not_fit_is_told_with_its_name(ending: str, room: int, small_disk: SmallDisk) -> None:
    path = small_disk.folder / f"scores.{ending}"
    path.write_bytes(b"former")
    frame = pl.DataFrame({"probability": np.random.default_rng(0).random(100_000)})
    small_disk.fill(but=room)
    with pytest.raises(FileError, match=rf"Cannot write '.*scores\.{ending}': No space left on device.* The former file"):
        write_table(frame, path)
    assert path.read_bytes() == b"former"
    assert sorted(each.name for each in small_disk.folder.iterdir()) == ["filler", path.name]
