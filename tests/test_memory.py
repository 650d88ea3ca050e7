"""memory_limit: a process that measures itself takes no more than it, libraries apart, and a fifth; or the fit is refused."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from autocross import AutoCrossClassifier
from autocross.errors import TableError
from autocross.table import ingest

pytestmark = pytest.mark.slow

LIMIT = 0.25  # GiB
SLACK = 1.2

# The small fits load libraries and compile loops, once for each way to read and to judge. Then the peak so far is forgotten.
PROGRAM = """
import json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np, polars as pl
from autocross import AutoCrossClassifier
from autocross.errors import TableError
from autocross.memory import give_back

small, rows, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])

def status(word):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(word))

for evaluation in ("holdout", "kfold"):
    AutoCrossClassifier(quiet=True, evaluation=evaluation, max_crosses=0).fit(small, "label")
if options.pop("frame"):
    rows = pl.read_parquet(rows)
give_back()
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before, outcome = status("VmRSS"), "done"
try:
    AutoCrossClassifier(quiet=True, **options).fit(rows, "label")
except TableError as error:
    outcome = str(error)
print(json.dumps([outcome, status("VmHWM") - before]))
"""

on_linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the most memory since a moment")


def numbers(n: int, n_columns: int = 10) -> pl.DataFrame:
    """Columns of numbers that all differ: nothing takes more memory to count."""
    rng = np.random.default_rng(n)
    columns = {f"x{number}": rng.normal(size=n) for number in range(n_columns)}
    return pl.DataFrame(columns).with_columns(label=rng.integers(0, 2, n))


def written(frame: pl.DataFrame, path: Path) -> Path:
    if path.suffix == ".parquet":
        frame.write_parquet(path)
    else:
        text = frame.write_csv().encode()
        path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
    return path


def measured(small: Path, rows: Path, **options: Any) -> tuple[str, float]:
    """What came of a fit in a process of its own, and the most memory that it took beyond what was there before, in GiB."""
    given = json.dumps({"frame": False, "memory_limit": LIMIT, "max_crosses": 0, **options})
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(small), str(rows), given], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    outcome, n_bytes = json.loads(done.stdout)
    return outcome, n_bytes / 2**30


@on_linux
@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "rows.csv.gz", "frame.parquet"])
def test_a_fit_keeps_within_its_memory_limit(name: str, tmp_path: Path) -> None:
    n_columns = 6 if "csv" in name else 10
    small, rows = (written(numbers(n, n_columns), tmp_path / f"{n}-{name}") for n in (3000, 270_000))
    outcome, most = measured(small, rows, frame=name.startswith("frame"), evaluation="holdout")
    assert outcome == "done"
    assert most < SLACK * LIMIT


@on_linux
def test_a_fit_is_refused_before_it_takes_the_memory(tmp_path: Path) -> None:
    small, rows = written(numbers(3000, 1), tmp_path / "small.parquet"), written(numbers(1_500_000, 1), tmp_path / "rows.parquet")
    outcome, most = measured(small, rows, evaluation="kfold")
    assert "1,500,000 rows in" in outcome and "GiB of memory, and memory_limit is 0.25 GiB. Raise it, give fewer rows" in outcome
    assert most < SLACK * LIMIT


@pytest.mark.parametrize("library", ["pandas", "numpy"])
def test_a_table_that_must_be_copied_counts(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = numbers(3000)
    data: Any = frame.drop("label").to_pandas() if library == "pandas" else frame.drop("label").to_numpy()
    label = frame["label"].to_numpy()
    AutoCrossClassifier(quiet=True, max_crosses=0).fit(data, label)
    monkeypatch.setattr(ingest, "memory_limit", lambda gib: 300_000)
    with pytest.raises(
        TableError, match=r"takes some 0 GiB of memory when it is copied.*save it as a Parquet file and give its path"
    ):
        AutoCrossClassifier(quiet=True, max_crosses=0).fit(data, label)
