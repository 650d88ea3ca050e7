"""The benchmarks on a few rows: what they print is what they measured. Their page: every section says of which code it is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
sys.path.append(str(Path(__file__).parents[1] / "paper"))
import before_after
import criteo_like
import kernels
import memory
import peers
import report
import scale
import sections
from sections import Moment, Stamp


@pytest.mark.slow
def test_a_fit_and_what_it_took(tmp_path: Path) -> None:
    criteo_like.write(tmp_path, 4000)
    found = scale.fit(tmp_path, {"max_crosses": 0})
    assert found["crosses"] == 0
    assert len(found["missed"]) == len(criteo_like.PLANTED)
    assert 0.6 < found["auc"] < 0.8
    assert 0 < found["own"] < found["peak"] < 8
    assert all(seconds > 0 for seconds in found["phases"].values())
    assert 0 < sum(found["phases"].values()) <= found["seconds"]
    line = scale.row_of({"rows": 4000, "best": 0.8, **found})
    assert line[0] == "4,000"
    assert len(line) == len(scale.HEAD)


@pytest.mark.slow
def test_reading_beside_polars(tmp_path: Path) -> None:
    criteo_like.write(tmp_path, 2000)
    ours, theirs = scale.reading(tmp_path / "part-00000.parquet")
    assert min(ours, theirs) > 0


def test_ratios_in_words() -> None:
    assert peers.ratio(2.0, {"seconds": 8.0}) == "0.250"
    assert peers.ratio(9.0, {"stopped": 900}) == "below 0.010"
    assert (peers.seconds_of({"stopped": 900}), peers.seconds_of({"failed": "x"})) == ("over 900", "failed")


@pytest.mark.slow
def test_a_fit_by_the_code_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    criteo_like.part(0, 400).write_parquet(tmp_path / "bank.parquet")
    monkeypatch.setattr(before_after, "FOLDER", tmp_path)
    found = before_after.fit(sections.ROOT / "src", "bank")
    assert min(found["clock"], found["processors"]) > 0
    assert found["crosses"] == 0
    assert len(found["scores"]) == 64


def test_code_is_compared_of_folders_that_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(sys, "argv", ["before_after.py", str(sections.ROOT / "src"), str(tmp_path)])
    with pytest.raises(SystemExit):
        before_after.main()
    assert f"there is no package autocross in {str(tmp_path)!r}; give the folder that it lies in" in capsys.readouterr().err


def test_every_kernel_is_compared_with_c(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"SIZES": ((400, 1), (200, 5)), "CODE_SIZES": ((400, 1), (200, 5)), "MANY": 1000, "LOOKUPS": 2000, "SLOTS": (251,)}
    for name, value in small.items():
        monkeypatch.setattr(kernels, name, value)
    assert {case.kernel for _, _, case, _ in kernels.all_cases()} == set(kernels.all_kernels())


# The stamps of docs/benchmarks.md.

OLD, NEW = Moment("2026-01-31 23:59", "0123abc"), Moment("2026-02-01 00:00", "456789d")
EVERY_SECTION = sorted(sections.sections(sections.PAGE.read_text()))


@pytest.mark.parametrize("name", EVERY_SECTION)
def test_every_section_has_a_stamp(name: str) -> None:
    stamp = sections.stamp_in(sections.sections(sections.PAGE.read_text())[name])
    assert stamp is not None
    assert stamp.oldest <= stamp.newest
    assert all((sections.ROOT / path).exists() for path in stamp.paths)
    if sections.git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("the history is not here")
    for moment in (stamp.oldest, stamp.newest):
        commit = sections.git("rev-parse", "--verify", f"{moment.commit}^{{commit}}")
        assert commit, f"{moment.commit} is no commit of this history"
        assert sections.git("merge-base", commit, "HEAD") == commit


def test_no_section_is_overlooked() -> None:
    assert sections.PAGE.read_text().count("<!-- end of ") == len(EVERY_SECTION) > 10


@pytest.mark.parametrize(
    ("stamp", "words"),
    [
        (Stamp(("src/a",), OLD, OLD), "*Measures `src/a` as of commit `0123abc`, run on 2026-01-31 23:59.*"),
        (
            Stamp(("src/a", "src/b"), OLD, NEW, changed=True),
            "*Measures `src/a`, `src/b` as of commits `0123abc` to `456789d`, run from 2026-01-31 23:59 to 2026-02-01 00:00, "
            "with changes that are in no commit.*",
        ),
        (
            Stamp(("src/a",), OLD, Moment("2026-02-01 00:00", "0123abc"), derived=True),
            "*Measures `src/a` as of commit `0123abc`, run from 2026-01-31 23:59 to 2026-02-01 00:00; derived from the history of "
            "this repository, so that the run may be older.*",
        ),
    ],
)
def test_a_stamp_is_read_as_it_was_written(stamp: Stamp, words: str) -> None:
    assert stamp.words() == words
    assert sections.stamp_in(f"## Title\n\n{words}\n\ntext") == stamp


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A history of two commits, of which the second touches `src/b` alone, and an empty page."""
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    for name in ("DIR", "WORK_TREE", "INDEX_FILE"):  # of the repository whose hook may run these tests
        monkeypatch.delenv(f"GIT_{name}", raising=False)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "someone")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "someone@example.org")
    monkeypatch.setattr(sections, "PAGE", tmp_path / "page.md")
    for part in ("src/a", "src/b"):
        (tmp_path / part).parent.mkdir(exist_ok=True)
        (tmp_path / part).write_text("first")
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    make_commit(tmp_path)
    (tmp_path / "src/b").write_text("second")
    make_commit(tmp_path)
    return tmp_path


def make_commit(root: Path) -> str:
    for words in (["add", "src"], ["commit", "--quiet", "--message", "A change"]):
        subprocess.run(["git", "-C", str(root), *words], check=True)
    return sections.git("rev-parse", "--short=7", "HEAD", root=root)


def test_sections_older_than_their_code_are_listed(repository: Path) -> None:
    first, second = sections.git("log", "--reverse", "--format=%h", "--abbrev=7", root=repository).splitlines()
    for name, path in (("of-a", "src/a"), ("of-b", "src/b")):
        stamp = sections.stamp_now(path, root=repository)
        assert (stamp.newest.commit, stamp.changed) == (first if path == "src/a" else second, False)
        sections.write_section(name, f"## Title\n\nnumbers {name}\n", stamp)
    sections.write_section("of-both", "## Title\n\nnumbers", Stamp(("src/a", "src/b"), Moment("2026-02-01 00:00", first), NEW))
    sections.write_section("foreign", "## Title\n\nnumbers", Stamp(("src/a",), OLD, NEW))
    page = sections.PAGE.read_text()
    day = sections.git("log", "-1", "--format=%cs", root=repository)
    assert sections.older_than_their_code(page, repository) == [
        f"of-both: measured at commit {first} on 2026-02-01 00:00; src/a, src/b has 1 newer, the last {second} of {day}",
        "foreign: measured at commit 0123abc, which this history does not have",
    ]
    (repository / "src/a").write_text("third")
    third = make_commit(repository)
    assert sections.older_than_their_code(page, repository)[0].startswith(f"of-a: measured at commit {first} on ")
    assert f"src/a has 1 newer, the last {third}" in sections.older_than_their_code(page, repository)[0]
    assert [line.partition(":")[0] for line in sections.older_than_their_code(page, repository)] == ["of-a", "of-both", "foreign"]
    assert sections.older_than_their_code("<!-- old -->\n## Title\n<!-- end of old -->", repository) == ["old: has no stamp"]


def test_changes_that_are_in_no_commit_are_told(repository: Path) -> None:
    (repository / "src/a").write_text("third")
    stamp = sections.stamp_now("src/a", root=repository)
    assert stamp.changed
    assert not sections.stamp_now("src/b", root=repository).changed
    sections.write_section("of-a", "## Title\n\nnumbers", stamp)
    (line,) = sections.older_than_their_code(sections.PAGE.read_text(), repository)
    assert line == f"of-a: measured at commit {stamp.newest.commit}, with changes that are in no commit to src/a"


def test_without_a_history_a_section_is_written_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "PAGE", tmp_path / "page.md")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    sections.write_section("of-a", "## Title\n\nnumbers", sections.stamp_now("src/a", root=tmp_path))
    (line,) = sections.older_than_their_code(sections.PAGE.read_text(), tmp_path)
    assert line == "of-a: measured at commit unknown, which this history does not have"


@pytest.mark.slow
def test_the_check_is_a_list_and_no_failure() -> None:
    command = [sys.executable, str(sections.ROOT / "benchmarks" / "sections.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f" of {len(EVERY_SECTION)} sections are older than the code that they measure." in done.stdout.splitlines()[-1]


def test_cells_of_memory_that_are_not_run_stay_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "PAGE", tmp_path / "page.md")
    cells = {
        ("mixed.csv", 0.25): "refused at 0.17",
        ("mixed.csv", 2.0): "0.69, 60 s",
        ("lists.parquet", 2.0): "2.44 (missed), 73 s",
    }
    sections.write_section("memory", memory.text_of(cells), Stamp((sections.SOURCE,), OLD, OLD))
    kept, stamp = memory.kept(sections.PAGE.read_text())
    assert kept == cells
    assert stamp == Stamp((sections.SOURCE,), OLD, OLD)
    assert Stamp((sections.SOURCE,), NEW, NEW).joined(stamp) == Stamp((sections.SOURCE,), OLD, NEW)
    assert memory.kept("<!-- memory -->\n## Title\n\n| table | limit 2 GiB |\n<!-- end of memory -->") == ({}, None)


def test_the_papers_section_has_the_ages_of_its_cells() -> None:
    records = [
        {"method": "AC+LR", "dataset": "bank", "seed": 0, "date": NEW.date, "commit": NEW.commit, "changed": False},
        {"method": "AC+LR", "dataset": "bank", "seed": 1, "date": OLD.date, "commit": OLD.commit, "derived": True},
    ]
    assert report.stamp_of(records) == Stamp((sections.SOURCE,), OLD, NEW, derived=True)
    lines = report.age_table(report.Results(records)).splitlines()
    assert lines[-1] == "| AC+LR | 2 | `0123abc`, 2026-01-31 23:59 | `456789d`, 2026-02-01 00:00 |"
