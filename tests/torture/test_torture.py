"""A few cases of the attacks, and the seeds that once found something. `make torture` runs them for as long as one likes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from autocross.options import Options
from autocross.table.ingest import source_of
from torture import run
from torture.tools import by_parts, planted

pytestmark = pytest.mark.slow

QUICK = [name for name, part in run.PARTS.items() if part.quick]


@pytest.mark.torture
@pytest.mark.parametrize("name", QUICK)
def test_a_few_cases(name: str) -> None:
    count = run.some(name, dict.fromkeys([*range(run.PARTS[name].quick), *run.known_seeds(name)]))
    assert count.cases >= run.PARTS[name].quick
    assert not count.faults, "\n\n".join(f"{run.repeat(name, seed)}\n{fault}" for seed, fault in count.faults)


def test_files_are_read_by_parts(tmp_path: Path) -> None:
    planted(0, 100).write_parquet(tmp_path / "rows.parquet", row_group_size=20)
    with by_parts(30):
        source = source_of(tmp_path / "rows.parquet", "label", None, Options())
        assert not source.in_memory
        assert max(len(part.label) for part in source.parts(source.names)) <= 30


# The runner itself: a part that crashes, hangs or raises is a fault, and the next case goes on.

PROGRAM = """
import os, signal
def attack(seed, folder):
    print("noise on stdout")
    (folder / "kept.txt").write_text("evidence")
    if seed == 1: raise ValueError("a wrong answer")
    if seed == 2: os.kill(os.getpid(), signal.SIGSEGV)
    if seed == 3: return 10
    if seed == 4: signal.pause()
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A part of a few lines, in a copy of the runner's folder."""
    folder = tmp_path / "torture"
    folder.mkdir()
    for name in ("__init__.py", "run.py"):
        text = (run.HERE / name).read_text()
        (folder / name).write_text(text.replace("PARTS = {", 'PARTS = {"toy": Part("a toy", 600, 1),', 1))
    (folder / "toy.py").write_text(PROGRAM)
    monkeypatch.setattr(run, "HERE", folder)
    monkeypatch.setattr(run, "KEPT", tmp_path / "kept")
    monkeypatch.setitem(run.PARTS, "toy", run.Part("a toy", 600, 1))
    return "toy"


def test_crashes_and_errors_are_faults(toy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = run.some(toy, range(4))
    assert [seed for seed, _ in count.faults] == [1, 2]
    assert count.cases == 13
    wrong, died = (fault for _, fault in count.faults)
    assert run.headline(wrong) == "ValueError: a wrong answer"
    assert "ended with code -11" in died
    assert "FAULT ValueError: a wrong answer\n      python tests/torture/run.py toy --seed 1" in capsys.readouterr().out
    kept = sorted(path.name for path in (tmp_path / "kept" / "faults").iterdir())
    assert kept == ["toy-1", "toy-2"]
    assert (tmp_path / "kept" / "faults" / "toy-1" / "kept.txt").read_text() == "evidence"
    assert "a wrong answer" in (tmp_path / "kept" / "faults" / "toy-1" / "fault.txt").read_text()
    assert len(run.kinds(count)) == 2


def test_a_hang_is_a_fault(toy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(run.PARTS, toy, run.Part("a toy", timeout=0.0, quick=1))
    ((_, fault),) = run.some(toy, [4]).faults
    assert fault.startswith("Hang: no answer within 0 s")


def test_the_table_goes_into_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "reliability.md"
    page.write_text(f"before\n{run.MARKS[0]}\nold\n{run.MARKS[1]}\nafter\n")
    monkeypatch.setattr(run, "PAGE", page)
    run.write_docs({"tables": run.Count(cases=1234, seconds=61.0)}, first=7)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "| tables |" in text and "| 1,234 | 0 | 61 |" in text and "first seed 7" in text
    run.write_docs({}, first=8)
    assert page.read_text().count(run.MARKS[0]) == 1


def test_the_command_says_what_it_found(toy: str) -> None:
    for seed, code in ((0, 0), (1, 1)):
        done = subprocess.run([sys.executable, run.HERE / "run.py", toy, "--seed", str(seed)], capture_output=True, text=True)
        assert done.returncode == code
        assert f"{code} faults" in done.stdout


def test_seeds_that_found_something_say_what() -> None:
    for line in run.SEEDS.read_text().splitlines():
        if not line.startswith("#") and line.strip():
            (part, seed), (_, reason) = line.split("#")[0].split(), line.split("#", 1)
            assert part in run.PARTS and json.loads(seed) >= 0 and len(reason) > 10
