"""Where commands write: never over what they read, and over files of others only with --force."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import polars as pl
import pytest

from autocross import AutoCrossClassifier, demo, load
from autocross.cli import run
from autocross.errors import FileError
from autocross.table import outputs
from autocross.table.files import write

pytestmark = pytest.mark.slow  # all of it takes seconds, and few changes touch it

Refused = Callable[..., None]


@pytest.fixture
def data(people: pl.DataFrame, tmp_path: Path) -> Path:
    path = tmp_path / "data.csv"
    people.with_columns(tags=pl.col("tags").list.join("|")).write_csv(path)
    return path


@pytest.fixture
def folder(people: pl.DataFrame, tmp_path: Path) -> Path:
    """Parquet files."""
    path = tmp_path / "parts"
    path.mkdir()
    people[:200].write_parquet(path / "a.parquet")
    people[200:].write_parquet(path / "b.parquet")
    return path


@pytest.fixture
def model(saved_model: Path, data: Path) -> Path:
    """A model that reads `data`, under a name that is good for a table too."""
    path = saved_model.with_name("model.csv")
    AutoCrossClassifier(quiet=True, engine="serial", max_crosses=0).fit(data, "bought").save(path)
    return path


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Refused:
    """Run a command that must be refused with a message before any work, and leave all files as they were."""

    def contents() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def refuse(*arguments: Any, message: str) -> None:
        before = contents()
        with monkeypatch.context() as patch:
            patch.setattr(pl.LazyFrame, "collect", None)  # what reads rows would fail
            assert run([str(argument) for argument in arguments]) == 2
        printed = capsys.readouterr()
        assert message in printed.err
        assert printed.out == ""
        assert contents() == before

    return refuse


def spellings(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Other ways to name a file."""
    monkeypatch.chdir(path.parent)
    (path.parent / "inner").mkdir(exist_ok=True)
    link, hard, chain = path.with_name("link.csv"), path.with_name("hard.csv"), path.with_name("chain.csv")
    link.symlink_to(path.name)
    os.link(path, hard)
    chain.symlink_to(link)
    linked_folder = path.parent / "again"
    linked_folder.symlink_to(path.parent)
    relative = [path.name, f"./{path.name}", f"inner/../{path.name}", f"inner//..//./{path.name}"]
    return [*relative, str(path), str(link), str(hard), str(chain), str(linked_folder / path.name)]


def fit(data: object, output: object, *more: object) -> list[object]:
    return ["fit", data, "--target", "bought", "-o", output, "--quiet", "--max-crosses", "0", *more]


# What is read is not written.


@pytest.mark.slow
def test_no_command_writes_over_its_data(data: Path, model: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in spellings(data, monkeypatch):
        for force in ([], ["--force"]):
            message = f"Cannot write the output {name!r}: it is the file {str(data)!r}, which is read. Give another name."
            refused(*fit(data, name), *force, message=message)
            refused("refit", model, data, "-o", name, "--quiet", *force, message=message)
            refused("predict", model, data, "-o", name, *force, message=message)
            refused("transform", model, data, "-o", name, *force, message=message)


def test_nor_do_spellings_of_the_data_help(data: Path, model: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in spellings(data, monkeypatch):
        refused("predict", model, name, "-o", data, message="which is read")


def test_predictions_are_not_written_over_the_model(data: Path, model: Path, refused: Refused) -> None:
    for command in ("predict", "transform"):
        refused(command, model, data, "-o", model, "--force", message=f"it is the file {str(model)!r}, which is read")


def test_a_journal_is_not_written_into_what_is_read(data: Path, model: Path, tmp_path: Path, refused: Refused) -> None:
    new = tmp_path / "new.acx"
    message = f"Cannot write the journal {str(data)!r}: it is the file {str(data)!r}, which is read"
    refused(*fit(data, new, "--journal", data), message=message)
    refused("refit", model, data, "-o", new, "--journal", data, "--quiet", message=message)
    refused("refit", model, data, "-o", new, "--journal", model, "--quiet", message="which is read")
    with pytest.raises(FileError, match=r"Cannot write the journal .*, which is read"):
        AutoCrossClassifier(quiet=True, journal=str(data)).fit(data, "bought")


def test_two_things_are_not_written_into_one_file(data: Path, tmp_path: Path, refused: Refused) -> None:
    new, rounds = tmp_path / "new.acx", tmp_path / "rounds"
    rounds.mkdir()
    refused(*fit(data, new, "--journal", f"{tmp_path}/./new.acx"), message="it is the output too. Give another name")
    refused(*fit(data, rounds / "search.safetensors", "--checkpoint", rounds), message="Cannot write the checkpoint")


def test_nothing_is_written_into_a_folder_that_is_read(
    folder: Path, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch, saved_model: Path
) -> None:
    other = tmp_path / "other"
    other.symlink_to(folder)
    for name in (folder, other, f"{folder}/../parts"):
        message = "': its folder is read, and what is written there would be read the next time. Give another place."
        for output in ("new.parquet", "a.parquet", "new.csv"):
            refused("predict", saved_model, folder, "-o", f"{name}/{output}", "--force", message=message)
        refused(*fit(folder, f"{name}/m.acx"), message=message)
        refused(*fit(folder, tmp_path / "m.acx", "--checkpoint", name), message=message)
        refused(*fit(folder, tmp_path / "m.acx", "--resume", name), message=message)
        refused(*fit(folder, tmp_path / "m.acx", "--journal", f"{name}/j.jsonl"), message=message)
    link = tmp_path / "link.parquet"
    link.symlink_to(folder / "b.parquet")
    refused(
        "predict",
        saved_model,
        folder,
        "-o",
        link,
        "--force",
        message=f"it is the file {str(folder / 'b.parquet')!r}, which is read",
    )
    with pytest.raises(FileError, match=r"Cannot write the checkpoint .*: its folder is read"):
        AutoCrossClassifier(quiet=True, checkpoint=str(folder)).fit(folder, "bought")
    assert run(["predict", str(saved_model), str(folder), "-o", str(tmp_path / "out.parquet")]) == 0


def test_a_url_that_leads_to_this_machine_is_a_spelling_too(folder: Path, saved_model: Path, refused: Refused) -> None:
    part = folder / "a.parquet"
    refused("predict", saved_model, part.as_uri(), "-o", part, "--force", message="which is read")
    refused("predict", saved_model, folder.as_uri(), "-o", folder / "new.csv", message="its folder is read")


# What others wrote is replaced with --force only.


def test_a_model_replaces_a_model_but_nothing_else(data: Path, tmp_path: Path, refused: Refused) -> None:
    output = tmp_path / "m.acx"
    for _ in range(2):
        assert run([str(word) for word in fit(data, output)]) == 0
    for command in (fit(data, output), ["refit", output, data, "-o", output, "--quiet"]):
        assert run([str(word) for word in command]) == 0  # refit in place as well
    thesis = tmp_path / "thesis.acx"
    damaged = output.read_bytes()[:-1]
    for content in (b"three years of work", damaged, b"\x08\0\0\0\0\0\0\0{}      "):
        thesis.write_bytes(content)
        message = (
            f"Cannot write the output {str(thesis)!r}: it exists, and is no model of autocross. Give another name, or replace it"
        )
        refused(*fit(data, thesis), message=message)
        refused("refit", output, data, "-o", thesis, "--quiet", message=message)
    assert run([str(word) for word in fit(data, thesis, "--force")]) == 0
    assert load(thesis).model.about.target == "bought"
    thesis.write_bytes(b"")  # as mktemp leaves it: nothing can be lost
    assert run(["refit", str(output), str(data), "-o", str(thesis), "--quiet"]) == 0


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_predictions_replace_predictions_but_nothing_else(
    ending: str, data: Path, model: Path, people: pl.DataFrame, tmp_path: Path, refused: Refused
) -> None:
    output = tmp_path / f"out.{ending}"
    command = ["predict", str(model), str(data), "-o", str(output)]
    assert run(command) == run(command) == 0
    other = people.select("job", "age")
    (other.write_csv if ending == "csv" else other.write_parquet)(output)
    refused(*command, message="it exists, and is no table of predictions. Give another name, or replace it with --force.")
    output.write_bytes(b"PAR1 and then no more")
    refused(*command, message="it exists, and is no table of predictions")
    assert run([*command, "--force"]) == 0
    assert run(command) == 0


def test_features_cannot_be_told_from_data(data: Path, model: Path, tmp_path: Path, refused: Refused) -> None:
    command = ["transform", str(model), str(data), "-o", str(tmp_path / "out.csv")]
    assert run(command) == 0
    refused(*command, message="it exists, and cannot be told from data. Give another name, or replace it with --force.")
    assert run([*command, "--force"]) == 0


def test_a_journal_is_appended_to_a_journal_only(data: Path, tmp_path: Path, refused: Refused) -> None:
    journal = tmp_path / "journal.jsonl"
    command = [str(word) for word in fit(data, tmp_path / "m.acx", "--journal", journal)]
    assert run(command) == run(command) == 0
    started = [json.loads(line)["event"] for line in journal.read_text().splitlines()].count("FitStarted")
    assert started == 2
    for content in ("a,b\n1,2\n", '{"a": 1}\n', "[1]\n", "\xff"):
        journal.write_text(content, encoding="latin-1")
        refused(*command, message=f"Cannot write the journal {str(journal)!r}: it is no journal of autocross. Give another path.")


def test_the_library_saves_where_it_is_told_to(classifier: AutoCrossClassifier, tmp_path: Path) -> None:
    (tmp_path / "m.acx").write_text("anything")
    classifier.save(tmp_path / "m.acx")
    assert load(tmp_path / "m.acx").model.about.target == "bought"


def test_the_demo_spares_files_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Path] = []
    monkeypatch.setattr(demo, "flights", lambda: ran.append(tmp_path) or 1 / 0)
    for name in ("flights.acx", "flights_test.parquet"):
        (tmp_path / name).write_text("anything")
        assert run(["demo", "--folder", str(tmp_path)]) == 2
        assert f"{name}': it exists, and is no" in capsys.readouterr().err
        (tmp_path / name).unlink()
    assert not ran
    (tmp_path / "flights.acx").write_text("anything")
    assert run(["demo", "--folder", str(tmp_path), "--force"]) == 1
    assert ran


# Places where nothing can be written.


def test_a_place_where_nothing_can_be_written(data: Path, model: Path, tmp_path: Path, refused: Refused) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "folder.csv").mkdir()
    cases = {
        "": "Cannot write the output '': the name is empty. Give the name of a file.",
        "a\0b.csv": r"Cannot write the output 'a\x00b.csv': the name holds a zero byte.",
        "x" * 5000 + ".csv": "': File name too long. Give another name.",
        "/dev/null": "Cannot write the output '/dev/null': it is no file. Give the name of a file.",
        str(tmp_path / "pipe.csv"): "pipe.csv': it is no file. Give the name of a file.",
        str(tmp_path / "folder.csv"): "folder.csv': it is a folder. Give the name of a file.",
        str(tmp_path / "absent" / "m.csv"): "absent'. Create it first.",
        str(data / "m.csv"): "Create it first.",
        "s3://bucket/m.csv": "the output 's3://bucket/m.csv': it is a URL, and only files on this machine can be written.",
        "file:///tmp/m.csv": "it is a URL",
    }
    for name, message in cases.items():
        refused(*fit(data, name), message=message)
        refused("refit", model, data, "-o", name, "--quiet", message=message)
        refused("predict", model, data, "-o", name, message=message)
        refused("transform", model, data, "-o", name, message=message)
    refused("predict", model, data, "-o", tmp_path / "m.txt", message="Name it .csv or .parquet.")
    refused("predict", model, data, "-o", message="requires an argument")


@pytest.mark.skipif(os.name != "posix" or not os.path.isdir("/proc/self"), reason="needs a folder that nobody can write to")
def test_a_folder_that_cannot_be_written_to(data: Path, refused: Refused) -> None:
    refused(*fit(data, "/proc/self/m.acx"), message="Cannot write the output '/proc/self/m.acx': ")


@pytest.mark.slow
def test_a_path_that_leads_nowhere(model: Path, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")
    cases = {
        "": "The path of the table is empty. Give the path of a CSV or Parquet file, or of a folder of Parquet files.",
        "a\0b.csv": r"There is no file 'a\x00b.csv'. Check the path.",
        "x" * 5000 + ".csv": ".csv': File name too long. Check the path and its permissions.",
        str(tmp_path / "pipe.csv"): "pipe.csv': it is a pipe or a device. Give a file.",
        "/dev/null": "Cannot tell what '/dev/null' is.",
        "nowhere://a.csv": "Cannot reach 'nowhere://a.csv': Protocol not known: nowhere",
        "://a.csv": "There is no file '://a.csv'",
        str(tmp_path / "folder"): "holds no .parquet file",
    }
    for name, message in cases.items():
        refused(*fit(name, tmp_path / "m.acx"), message=message)
        refused(*fit(name, tmp_path / "m.acx", "--engine", "ray"), message=message)
        refused("refit", model, name, "-o", tmp_path / "m.acx", "--quiet", message=message)
        for command in ("evaluate", "predict", "transform", "explain"):
            refused(command, model, name, message=message)
    no_file, not_ordinary = (
        "There is no model file {!r}. Check the path.",
        "There is no model file {!r}, but something that is no ordinary file.",
    )
    models = {
        "": no_file,
        "a\0b": "Cannot read {!r}: ",  # then Python's own words, which change with its versions
        "m" * 5000: "Cannot read {!r}: File name too long. Check the path.",
        str(tmp_path / "pipe.csv"): not_ordinary,
        "/dev/null": not_ordinary,
        str(tmp_path): not_ordinary,
        "s3://bucket/m.acx": no_file,
    }
    for name, message in models.items():
        refused("show", name, message=message.format(name))
        refused("predict", name, "x.csv", message=message.format(name))


@pytest.mark.parametrize("row", ["-1", "400", "100000000000000000000000000000000"])
def test_a_row_that_is_not_there(row: str, model: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", str(model), str(data), "--row", row]) == 2
    assert f"Row {row} is not in {str(data)!r}, which has rows 0 to 399. Give another row" in capsys.readouterr().err


def test_a_row_of_a_file_without_rows(model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "header.csv").write_text(data.read_text().splitlines()[0] + "\n")
    assert run(["explain", str(model), str(tmp_path / "header.csv")]) == 2
    assert "which has no rows" in capsys.readouterr().err


def test_a_journal_or_checkpoint_under_an_absurd_name(data: Path, tmp_path: Path, refused: Refused) -> None:
    output = tmp_path / "m.acx"
    refused(*fit(data, output, "--journal", "a\0b"), message=r"journal='a\x00b' holds a zero byte")
    refused(*fit(data, output, "--checkpoint", "a\0b"), message=r"checkpoint='a\x00b' holds a zero byte")
    refused(*fit(data, output, "--journal", "x" * 5000), message="File name too long. Give another path.")


# Same files.


def test_the_same_file(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    assert outputs.same(first, tmp_path / "x" / ".." / "a")  # neither is there
    assert not outputs.same(first, second)
    first.write_text("")
    assert not outputs.same(first, second)
    shutil.copy(first, second)
    assert not outputs.same(first, second)
    second.unlink()
    os.link(first, second)
    assert outputs.same(first, second)


@pytest.mark.parametrize("ending", ["csv", "parquet", "xlsx"])
@pytest.mark.parametrize("how", [[], ["--apart"]])
def test_weights_replace_weights_and_nothing_else(
    saved_model: Path, tmp_path: Path, ending: str, how: list[str], refused: Refused
) -> None:
    path = tmp_path / f"weights.{ending}"
    command = ["weights", str(saved_model), "-o", str(path)]
    assert [run([*command, *how]), run([*command, *how]), run(command)] == [0, 0, 0]
    others = pl.DataFrame({"term": ["mine"], "value": ["own"]})
    write(others, path)
    refused(*command, message="it exists, and is no table of weights")


def test_an_excel_file_of_others_is_not_replaced(saved_model: Path, tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "card.xlsx"
    assert run(["scorecard", str(saved_model), "-o", str(path)]) == 0
    with ZipFile(path, "a") as parts:
        parts.writestr("xl/worksheets/sheet2.xml", "a sheet that somebody added")
    damaged = path.read_bytes()[:-30]
    for content in (path.read_bytes(), damaged, b"PK", b"no zip file"):
        path.write_bytes(content)
        refused("scorecard", saved_model, "-o", path, message="it exists, and is no scorecard")
