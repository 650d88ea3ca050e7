"""Fixtures that several tests share."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import settings

from autocross.engines import Engine, SerialEngine, ThreadsEngine
from autocross.estimator import AutoCrossClassifier
from autocross.search import policy

# The first example of a test may compile a kernel.
settings.register_profile("default", deadline=None)
settings.load_profile("default")

Steer = Callable[..., None]
DATA = Path(os.environ.get("AUTOCROSS_DATA", Path(__file__).parents[2] / "shared" / "data"))

ENGINES: dict[str, Callable[[], Engine]] = {
    "serial": SerialEngine,
    "threads-1": lambda: ThreadsEngine(1),
    "threads-2": lambda: ThreadsEngine(2),
    "threads-5": lambda: ThreadsEngine(5),
}


def steered(chosen: policy.Policy, **numbers: Any) -> policy.Policy:
    """A policy with other numbers: of its own, of how it judges a single cross, or of its rungs, if it has such ones."""
    for name, number in numbers.items():
        if hasattr(chosen, name):
            chosen = replace(chosen, **{name: number})
        elif hasattr(chosen.trial, name):
            chosen = replace(chosen, trial=replace(chosen.trial, **{name: number}))
        elif hasattr(chosen.rungs, name):
            chosen = replace(chosen, rungs=replace(chosen.rungs, **{name: number}))
    return chosen


@pytest.fixture
def steer(monkeypatch: pytest.MonkeyPatch) -> Steer:
    """Give the search other numbers."""

    def change(**numbers: Any) -> None:
        for name in ("AUTO", "PAPER"):
            monkeypatch.setattr(policy, name, steered(getattr(policy, name), **numbers))

    return change


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Every engine, one after the other."""
    with ENGINES[request.param]() as made:
        yield made


@pytest.fixture
def benchmark_data() -> Callable[[str], pl.DataFrame]:
    """A reader of the paper's benchmark tables; skips where they are not at hand."""

    def read(name: str) -> pl.DataFrame:
        path = DATA / f"{name}.parquet"
        if not path.exists():
            pytest.skip(f"the benchmark table {name} is not here")
        return pl.read_parquet(path)

    return read


@pytest.fixture(scope="session")
def people() -> pl.DataFrame:
    """400 rows with a column of every kind, missing values in each, and a label that depends on them."""
    rng = np.random.default_rng(7)
    n = 400
    job = rng.choice(["cook", "nurse", "clerk", "pilot"], n)
    age = rng.normal(40, 12, n).round(1)
    tags = [rng.choice(["a", "b", "c", "d"], rng.integers(0, 4), replace=False).tolist() for _ in range(n)]
    log_odds = (job == "nurse") * 1.5 + (age > 45) * 1.2 + np.array(["a" in t for t in tags]) * 1.0 - 1.5
    frame = pl.DataFrame(
        {
            "job": job,
            "age": age,
            "rooms": rng.integers(1, 5, n),
            "member": rng.random(n) < 0.5,
            "tags": tags,
            "born": [f"19{rng.integers(50, 99)}-{rng.integers(1, 13):02}-{rng.integers(1, 29):02}" for _ in range(n)],
            "bought": (rng.random(n) < 1 / (1 + np.exp(-log_odds))).astype(int),
        }
    )
    holes = {name: pl.Series(rng.random(n) < 0.05) for name in ("job", "age", "rooms", "member", "tags", "born")}
    return frame.with_columns(pl.when(~hole).then(pl.col(name)).alias(name) for name, hole in holes.items())


@pytest.fixture(scope="session")
def classifier(people: pl.DataFrame) -> AutoCrossClassifier:
    """A classifier fitted to `people`."""
    return AutoCrossClassifier(quiet=True, engine="serial").fit(people, "bought")


@pytest.fixture
def saved_model(classifier: AutoCrossClassifier, tmp_path: Path) -> Path:
    """Its bundle."""
    path = tmp_path / "model.acx"
    classifier.save(path)
    return path


class SmallDisk:
    """A real disk of some pages, which can be full and have room again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, but: int = 0) -> None:
        """Leave so many bytes of room."""
        free = os.statvfs(self.folder)
        with (self.folder / "filler").open("ab") as filler:
            filler.write(bytes(free.f_bavail * free.f_bsize - but))

    def make_room(self) -> None:
        (self.folder / "filler").unlink()

    def make_read_only(self) -> None:
        subprocess.run(["mount", "-o", "remount,ro", str(self.folder)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk of 1 MiB, in memory; only root may make one."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    yield SmallDisk(folder)
    subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may do everything; work as somebody who may not."""
    former = os.geteuid()
    if former == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        if former == 0:
            os.seteuid(0)
