"""A fit that is interrupted goes on from its last finished round, to the answer of one without a break."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors import safe_open

from autocross import AutoCrossClassifier, checkpoint
from autocross.errors import FileError, FileWarning, OptionError
from autocross.events import CandidatesRanked, Event, Reporter
from autocross.fitting.fit import fit
from autocross.interrupts import Interrupt
from autocross.options import Options
from autocross.producer import bundle, store
from autocross.producer.model import Model
from autocross.table.ingest import source_of
from conftest import SmallDisk, Steer, as_nobody

pytestmark = pytest.mark.slow

N = 6_000


@pytest.fixture(scope="module")
def crossed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows whose label depends on three crosses, which are found in several rounds."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 6, (N, 5))
    log_odds = sum(rng.normal(0, 1.2, (6, 6))[codes[:, at], codes[:, at + 1]] for at in (0, 1, 3))
    frame = pl.DataFrame({f"c{at}": [f"v{code}" for code in codes[:, at]] for at in range(5)})
    frame = frame.with_columns(x=rng.normal(size=N), label=(rng.random(N) < 1 / (1 + np.exp(-log_odds))).astype(int))
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    frame.write_parquet(path)
    return path


def saved(model: Model) -> bytes:
    """The file of a model."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.acx"
        bundle.save(model, path)
        return path.read_bytes()


def same(one: Model, other: Model) -> None:
    """Models that are equal to the bit."""
    assert [(cross.fields, cross.gain, cross.error) for cross in one.about.crosses] == [
        (cross.fields, cross.gain, cross.error) for cross in other.about.crosses
    ]
    assert (one.intercept, one.penalties, one.about.score) == (other.intercept, other.penalties, other.about.score)
    assert one.about.rules == other.about.rules
    assert [entry["score"] for entry in one.about.history] == [entry["score"] for entry in other.about.history]
    for ours, theirs in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert saved(one) == saved(other)


class Killed(BaseException):
    """Stands for a process that ends."""


@pytest.mark.parametrize("n_rounds", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"evaluation": "holdout"}, {"beam_width": 2}], ids=["folds", "holdout", "beam"])
def test_a_fit_resumes_from_any_round(
    crossed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steer: Steer, n_rounds: int, options: dict[str, Any]
) -> None:
    steer(a_round=1)  # several rounds
    whole = AutoCrossClassifier(quiet=True, **options).fit(crossed, "label").model_
    assert len(whole.about.crosses) >= 3
    saves = []
    save = checkpoint.save

    def save_and_end(*args: Any) -> None:
        save(*args)
        saves.append(1)
        if len(saves) == n_rounds:
            raise Killed

    monkeypatch.setattr(checkpoint, "save", save_and_end)
    with pytest.raises(Killed):
        AutoCrossClassifier(quiet=True, checkpoint=str(tmp_path), **options).fit(crossed, "label")
    monkeypatch.setattr(checkpoint, "save", save)
    resumed = AutoCrossClassifier(quiet=True, resume=str(tmp_path), engine="serial", **options).fit(crossed, "label").model_
    same(resumed, whole)
    again = AutoCrossClassifier(quiet=True, resume=str(tmp_path), **options).fit(crossed, "label").model_  # from the last round
    same(again, whole)
    for model in (resumed, again):
        seconds = [entry["seconds"] for entry in model.about.history]
        assert seconds == sorted(seconds)


def test_a_killed_command_resumes(crossed: Path, tmp_path: Path) -> None:
    """Killed by the system after its first round, in the middle of another."""
    script = (
        "import os, signal, sys\n"
        "from autocross import checkpoint\n"
        "from autocross.cli import main\n"
        "from dataclasses import replace\n"
        "from autocross.search import loop, policy\n"
        "save, policy.AUTO = checkpoint.save, replace(policy.AUTO, a_round=1)\n"
        "tries = []\n"
        "propose = loop.Search.propose\n"
        "def killed(self, *args):\n"
        "    tries.append(1)\n"
        "    if len(tries) == 2:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return propose(self, *args)\n"
        "if sys.argv[1] == 'killed':\n"
        "    loop.Search.propose = killed\n"
        "sys.argv[:2] = ['autocross']\n"
        "main()\n"
    )
    path = tmp_path / "run.py"
    path.write_text(script)

    def run(how: str, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
        arguments = ["fit", str(crossed), "--target", "label", "--output", str(out), "--quiet", *options]
        return subprocess.run([sys.executable, str(path), how, *arguments], capture_output=True, text=True, check=False)

    folder = tmp_path / "kept"
    assert run("killed", tmp_path / "a.acx", "--checkpoint", str(folder)).returncode == -signal.SIGKILL
    assert (folder / checkpoint.FILE).exists()
    assert run("resumed", tmp_path / "b.acx", "--resume", str(folder)).returncode == 0
    assert run("whole", tmp_path / "c.acx").returncode == 0
    assert (tmp_path / "b.acx").read_bytes() == (tmp_path / "c.acx").read_bytes()


def parts(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """The facts of a checkpoint and its arrays."""
    with safe_open(str(path), framework="numpy") as stored:
        facts = json.loads(stored.metadata()[checkpoint.KEY])["facts"]
        return facts, {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118


@pytest.fixture(scope="module")
def left(crossed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("left")
    AutoCrossClassifier(quiet=True, checkpoint=str(folder)).fit(crossed, "label")
    return folder


EVERY_KIND: dict[str, dict[str, Any]] = {
    "shared": {"penalty": "shared"},
    "paper": {"halving": "paper"},
    "paper, shared, accuracy": {"halving": "paper", "penalty": "shared", "metric": "accuracy"},
    "log-loss": {"metric": "log_loss"},
    "every value": {"min_count": 1},
    "rare values": {"min_count": 40},
    "groups": {"groups": "client"},
    "time": {"time": "since"},
    "holdout by time": {"time": "since", "evaluation": "holdout"},
    "pairs only": {"max_order": 2, "beam_width": 3},
}


@pytest.mark.parametrize("scale", [1.0, 1e-4, 10.0])
@pytest.mark.parametrize("name", EVERY_KIND)
def test_no_real_checkpoint_is_refused(name: str, scale: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the search does, what it keeps passes all checks, and the model is the same."""
    if scale == 1.0:
        monkeypatch.setattr("autocross.fitting.tune.TUNING_ROWS", 500)  # penalties are chosen on a sample
    rng = np.random.default_rng(2)
    n, jobs = 900, ["cook", "nurse", "clerk"]
    job, town, age = rng.choice(jobs, n), rng.choice(jobs, n), rng.normal(40, 12, n).round(0)
    since = [datetime(2024, 1, 1) + timedelta(days=int(day)) for day in rng.integers(0, 300, n)]
    log_odds = np.where(job == town, 1.5, -1.5) + np.where((age > 40) == (job == "cook"), 1.0, -1.0)
    tags = [rng.choice(["a", "b", "c"], rng.integers(0, 3), replace=False).tolist() for _ in range(n)]
    frame = pl.DataFrame({"job": job, "town": town, "age": age, "since": since, "tags": tags, "client": rng.integers(0, 60, n)})
    frame = frame.with_columns(weight=scale * (0.5 + rng.random(n)), label=rng.random(n) < 1 / (1 + np.exp(-log_odds)))
    given = {"quiet": True, "max_crosses": 3, "exclude": ["client"], **EVERY_KIND[name]}
    whole = AutoCrossClassifier(checkpoint=str(tmp_path), **given).fit(frame, "label", "weight").model_
    same(AutoCrossClassifier(resume=str(tmp_path), **given).fit(frame, "label", "weight").model_, whole)


# Noticed before the rows are read: they are not there either.


def test_other_options_are_refused(left: Path) -> None:
    with pytest.raises(OptionError, match="Option metric='log_loss' differs from the 'auc' of the checkpoint"):
        AutoCrossClassifier(quiet=True, resume=str(left), metric="log_loss").fit("no such rows.parquet", "label")


def test_a_folder_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="There is no checkpoint in"):
        AutoCrossClassifier(quiet=True, resume=str(tmp_path / "mistyped")).fit("no such rows.parquet", "label")
    assert not (tmp_path / "mistyped").exists()


def test_a_damaged_checkpoint_is_refused(left: Path, tmp_path: Path) -> None:
    data = (left / checkpoint.FILE).read_bytes()
    (tmp_path / checkpoint.FILE).write_bytes(data[: len(data) // 2])
    with pytest.raises(FileError, match=r"Cannot read the checkpoint .*The file is damaged .*Or fit anew, without resume"):
        AutoCrossClassifier(quiet=True, resume=str(tmp_path)).fit("no such rows.parquet", "label")


def test_a_later_format_is_refused(left: Path, tmp_path: Path) -> None:
    facts, arrays = parts(left / checkpoint.FILE)
    store.write(tmp_path / checkpoint.FILE, checkpoint.KEY, facts | {"format": 99}, arrays)
    with pytest.raises(FileError, match="has format 99"):
        AutoCrossClassifier(quiet=True, resume=str(tmp_path)).fit("no such rows.parquet", "label")


@pytest.mark.parametrize("name", ["checkpoint", "resume"])
def test_a_bad_folder_is_told_before_the_rows_are_read(name: str, left: Path, small_disk: SmallDisk, tmp_path: Path) -> None:
    def refused(folder: Path | str, message: str) -> None:
        with pytest.raises(FileError, match=rf"Cannot keep checkpoints in .*: {message}\. Give another folder"):
            AutoCrossClassifier(quiet=True, **{name: str(folder)}).fit("no such rows.parquet", "label")

    with TemporaryDirectory() as closed:
        shutil.copy(left / checkpoint.FILE, closed)
        Path(closed).chmod(0o555)
        with as_nobody():
            refused(closed, "Permission denied")
    shutil.copy(left / checkpoint.FILE, small_disk.folder)
    small_disk.make_read_only()
    refused(small_disk.folder, "Read-only file system")
    if name == "checkpoint":
        (tmp_path / "file").write_text("")
        refused(tmp_path / "file", "File exists")
        refused(tmp_path / "file" / "folder", "Not a directory")
        refused(small_disk.folder / "new" / "folder", "Read-only file system")
        (tmp_path / "folder" / checkpoint.FILE).mkdir(parents=True)
        refused(tmp_path / "folder", f"{checkpoint.FILE!r} in it is no file")


# Folders that can no longer be written while the fit goes on.


class Meddling:
    """An observer that does something to the disk when a round begins."""

    def __init__(self, **at_round: Callable[[], object]) -> None:
        self.at_round = at_round

    def __call__(self, event: Event) -> None:
        if isinstance(event, CandidatesRanked) and event.rung == 1 and (work := self.at_round.get(f"round_{event.round}")):
            work()


def fit_while(rows: Path, folder: Path, meddling: Meddling) -> Model:
    options = Options(checkpoint=str(folder))
    return fit(source_of(rows, "label", None, options), options, Reporter([meddling]), Interrupt())


def round_of(path: Path) -> int:
    """How many rounds were finished when the checkpoint was written."""
    with store.opened(path, checkpoint.KEY, "checkpoint") as stored:
        return int(stored.facts["round"])


@pytest.fixture
def small_rounds(steer: Steer) -> None:
    steer(a_round=1)  # three rounds find a cross


def test_a_disk_that_fills_up_under_the_checkpoint(crossed: Path, small_rounds: None, small_disk: SmallDisk) -> None:
    """The fit goes on, the last checkpoint stays as it was, and when there is room again there are new ones."""
    whole = AutoCrossClassifier(quiet=True).fit(crossed, "label").model_
    path = small_disk.folder / checkpoint.FILE
    kept: list[bytes] = []

    def full() -> None:
        kept.append(path.read_bytes())
        small_disk.fill()

    def roomy() -> None:
        assert [one.name for one in small_disk.folder.iterdir() if one.name != "filler"] == [checkpoint.FILE]
        kept.append(path.read_bytes())
        small_disk.make_room()

    with pytest.warns(FileWarning) as warned:
        same(fit_while(crossed, small_disk.folder, Meddling(round_1=full, round_3=roomy)), whole)
    (warning,) = warned.list
    assert re.fullmatch(
        r"Keeping a checkpoint in '.*' failed: Cannot write '.*': No space left on device\. .*"
        r"The fit goes on, and every later round tries again\.",
        str(warning.message),
    )
    assert kept[0] == kept[1]
    assert round_of(path) == 3
    same(AutoCrossClassifier(quiet=True, resume=str(small_disk.folder)).fit(crossed, "label").model_, whole)


def test_a_disk_that_can_no_longer_be_written(crossed: Path, small_rounds: None, small_disk: SmallDisk) -> None:
    with pytest.warns(FileWarning, match=r"Read-only file system.*\. The fit goes on, and every later round tries again") as warned:
        model = fit_while(crossed, small_disk.folder, Meddling(round_1=small_disk.make_read_only))
    assert len(warned.list) == 1
    assert len(model.about.crosses) >= 3
    assert round_of(small_disk.folder / checkpoint.FILE) == 0


def test_a_folder_that_is_removed_is_made_again(crossed: Path, small_rounds: None, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    fit_while(crossed, folder, Meddling(round_2=lambda: shutil.rmtree(folder)))
    assert round_of(folder / checkpoint.FILE) >= 2


def test_a_folder_that_becomes_a_file(crossed: Path, small_rounds: None, tmp_path: Path) -> None:
    folder = tmp_path / "kept"

    def replaced() -> None:
        shutil.rmtree(folder)
        folder.write_text("mine")

    with pytest.warns(FileWarning, match=r"Cannot keep checkpoints in .*kept': File exists\. .*The fit goes on") as warned:
        model = fit_while(crossed, folder, Meddling(round_1=replaced))
    assert len(warned.list) == 1
    assert len(model.about.crosses) >= 3
    assert folder.read_text() == "mine"


def test_more_crosses_may_be_asked_for_later(crossed: Path, tmp_path: Path) -> None:
    folder = str(tmp_path)
    AutoCrossClassifier(quiet=True, checkpoint=folder, max_crosses=1).fit(crossed, "label")
    model = AutoCrossClassifier(quiet=True, resume=folder, max_crosses=2).fit(crossed, "label").model_
    assert len(model.about.crosses) == 2
