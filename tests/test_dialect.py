"""CSV files as they come: separators, decimal commas, encodings; a guess that fails says what was guessed."""

from __future__ import annotations

import gzip
import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from autocross import AutoCrossClassifier, load
from autocross.cli import run
from autocross.errors import AutoCrossError, ColumnError, FileError, LabelError, OptionError, TableError
from autocross.table import files, ingest
from autocross.table.batches import batches
from autocross.table.dialect import ANY, Dialect, found_out

pytestmark = pytest.mark.slow  # all of it takes seconds, and few changes touch it


def people(n: int = 300) -> pl.DataFrame:
    """Texts with every sign in them, whole and other numbers, and a label that depends on them."""
    rng = np.random.default_rng(4)
    job = rng.choice(["cook, chef", "nurse; night", 'clerk "A"', "pilot|x"], n)
    income = np.round(rng.normal(40, 12, n), 2)
    label = (job == "cook, chef") ^ (income > 42) ^ (rng.random(n) < 0.1)
    frame = pl.DataFrame({"job": job, "income": income, "rooms": rng.integers(1, 30, n), "bought": np.where(label, "yes", "no")})
    return frame.with_columns(pl.when(pl.col("rooms") > 1).then(pl.col("income")).alias("income"))


def written(frame: pl.DataFrame, path: Path, separator: str = ";", decimal: str = ",") -> Path:
    """A CSV file in another dialect."""
    floats = [name for name, kind in frame.schema.items() if kind.is_float()]
    texts = frame.with_columns(pl.col(floats).cast(pl.String).str.replace(".", decimal, literal=True))
    texts.write_csv(path, separator=separator)
    return path


def text_file(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def fitted(data: Any, **options: Any) -> AutoCrossClassifier:
    return AutoCrossClassifier(**{"quiet": True, "engine": "serial", "split": "random", "max_crosses": 0, **options}).fit(
        data, "bought"
    )


# What is found by rule.


@pytest.mark.slow
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
def test_every_dialect_gives_the_same_rows(separator: str, decimal: str, name: str, tmp_path: Path) -> None:
    path = written(people(), tmp_path / "rows.csv", separator, decimal)
    if name.endswith("gz"):
        path = tmp_path / name
        path.write_bytes(gzip.compress((tmp_path / "rows.csv").read_bytes()))
    # A comma between cells and within numbers: the numbers are quoted, and only the user can say that they are numbers.
    given = Dialect(decimal=",") if separator == decimal else ANY
    found = found_out(path, given)
    assert (found.separator, found.decimal) == (separator, decimal)
    assert_frame_equal(files.read(path, given), people())
    parts = list(batches(path, given, files.whole_files(path, given)))
    assert_frame_equal(pl.concat(parts), people())


def test_a_mark_and_other_ends_of_lines(tmp_path: Path) -> None:
    text = written(people(), tmp_path / "rows.csv").read_text()
    (tmp_path / "rows.csv").write_bytes(b"\xef\xbb\xbf" + b"\n\n" + text.replace("\n", "\r\n").encode())
    assert_frame_equal(files.read(tmp_path / "rows.csv"), people())


def test_cells_over_several_lines_do_not_mislead(tmp_path: Path) -> None:
    frame = people().with_columns(job=pl.col("job").str.replace(" ", "\n;,|"))
    assert_frame_equal(files.read(written(frame, tmp_path / "rows.csv")), frame)


NUMBERS = ["1,5", "-1,5", "+1,5", ",5", "5,", "1,5e3", "1,5E-3", "-,5", "12", "inf", "-Infinity"]


def test_numbers_with_a_decimal_comma(tmp_path: Path) -> None:
    path = text_file(tmp_path / "rows.csv", "n;t", *(f"{number};x" for number in NUMBERS), "NA;x", ";x")
    expected = [1.5, -1.5, 1.5, 0.5, 5.0, 1500.0, 0.0015, -0.5, 12.0, float("inf"), float("-inf"), None, None]
    assert files.read(path)["n"].to_list() == expected


def test_whole_numbers_stay_whole_and_long_ones_do_not_overflow(tmp_path: Path) -> None:
    long = "123456789012345678901234567890"
    path = text_file(tmp_path / "rows.csv", "a;b;c", f"1;{long};1,5", f"-2;{long};2,5")
    assert files.read(path).to_dict(as_series=False) == {"a": [1, -2], "b": [float(long)] * 2, "c": [1.5, 2.5]}


@pytest.mark.parametrize(
    "lines",
    [
        ["a;b", "1,2,3;x", "1;y", "1,2;z"],  # lists
        ["a;b", "1,5 EUR;x", "2,5;y"],
        ["a;b", "Ulm, Neu;x", "1,5;y"],
        ["a\tb", "1,234,567\tx", "2,000\ty"],  # thousands
    ],
    ids=str,
)
def test_what_is_not_a_number_throughout_stays_text(lines: list[str], tmp_path: Path) -> None:
    frame = files.read(text_file(tmp_path / "rows.csv", *lines))
    assert frame["a"].to_list() == [line.replace("\t", ";").split(";")[0] for line in lines[1:]]


# What would be a guess in the dark.


@pytest.mark.parametrize("odd", ["1.5", "1.234", "1.234,5", "12.345.678", "1,234.5"])
@pytest.mark.parametrize("far", [False, True], ids=["in the head", "far down"])
def test_numbers_in_two_notations_are_an_error(odd: str, far: bool, tmp_path: Path) -> None:
    before = ["1,5;x"] * (10_050 if far else 1)
    path = text_file(tmp_path / "rows.csv", "n;t", *before, f"{odd};y")
    message = rf"Column 'n' of .*rows\.csv' holds '{odd}', in a file with decimal commas.*Give decimal='\.'.*declare.*'categorical'"
    with pytest.raises(TableError, match=message):
        files.read(path, Dialect(decimal=","))
    assert files.read(path, Dialect(as_text=["n"], decimal=","))["n"][-1] == odd
    assert files.read(path, Dialect(decimal="."))["n"][-1] == odd
    if far:  # part by part there is no second look
        with pytest.raises(FileError, match=rf"conversion from .*'{odd}'.*It was read with separator=';' and decimal=','"):
            list(batches(path, ANY, files.whole_files(path)))


def test_a_column_with_points_beside_one_with_commas_is_an_error(tmp_path: Path) -> None:
    path = text_file(tmp_path / "rows.csv", "version;price", "1.2;1,5", "1.10;2,5")
    with pytest.raises(TableError, match=r"Column 'version' .* holds '1\.2', in a file with decimal commas"):
        files.read(path)
    frame = files.read(path, Dialect(as_text=["version"]))
    assert frame.to_dict(as_series=False) == {"version": ["1.2", "1.10"], "price": [1.5, 2.5]}
    assert files.read(path, Dialect(decimal=".")).to_dict(as_series=False) == {"version": [1.2, 1.1], "price": ["1,5", "2,5"]}


def test_a_comma_far_down_is_found_where_all_is_read(tmp_path: Path) -> None:
    path = text_file(tmp_path / "rows.csv", "n;m", *["1;0,5"] * 10_050, "1,5;2,5")
    assert files.read(path)["n"].to_list()[-2:] == [1.0, 1.5]
    with pytest.raises(FileError, match=r"could not parse `1,5`.*It was read with separator=';' and decimal=','"):
        list(batches(path, ANY, files.whole_files(path)))


def test_a_column_that_begins_empty(tmp_path: Path) -> None:
    path = text_file(tmp_path / "rows.csv", "n;m", *[";0,5"] * 10_050, "1.234;2,5")
    with pytest.raises(TableError, match=r"Column 'n' .* holds '1\.234'"):
        files.read(path)


def test_two_separators_that_fit(tmp_path: Path) -> None:
    path = text_file(tmp_path / "rows.csv", "price, net;size, cm", "1,5;2,5", "3,5;4,5")
    message = r"may be separated by a comma \(3 columns\) or a semicolon \(2 columns\)\. Say which, as in separator=','"
    with pytest.raises(TableError, match=message):
        files.read(path)
    assert files.read(path, Dialect(separator=";"))["price, net"].to_list() == [1.5, 3.5]


def test_lines_of_other_lengths_name_what_was_guessed(tmp_path: Path) -> None:
    path = text_file(tmp_path / "rows.csv", "a;b", "1;2;3")
    with pytest.raises(
        FileError, match=r"every line has as many cells.*It was read with separator=';' and decimal='\.'; if that is"
    ):
        files.read(path)


def test_a_line_that_was_not_cut_says_how_to_cut_it(tmp_path: Path) -> None:
    path = text_file(tmp_path / "rows.csv", "job:bought", "cook:yes", "nurse:no")
    with pytest.raises(LabelError, match=r"columns are 'job:bought'\. If that is a line of several cells, .* separator="):
        fitted(path)


# Encodings.

ENCODINGS = {"utf-16": "UTF-16", "utf-32": "UTF-32"}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_text_in_another_encoding_says_which(encoding: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("job,bought\ncook,yes\nnurse,no\n", encoding=encoding)
    assert run(["fit", str(path), "--target", "bought", "-o", str(tmp_path / "m.acx")]) == 2
    name = ENCODINGS[encoding]
    assert f"is text in {name}. Convert it, for example with: iconv -f {name} -t UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le"])
@pytest.mark.parametrize("packed", [False, True])
def test_text_of_wide_characters_without_a_mark(encoding: str, packed: bool, tmp_path: Path) -> None:
    content = "job,bought\ncook,yes\n".encode(encoding)
    path = tmp_path / ("rows.csv.gz" if packed else "rows.csv")
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(TableError, match=r"is not UTF-8: its first line holds zero bytes.*iconv -f UTF-16"):
        files.read(path)


# The whole way: fit, score, part by part, and from the command line.


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "bytes_in_memory", lambda path: 1 << 60)
    monkeypatch.setattr(ingest, "MOST_ROWS", 70)


def test_every_dialect_gives_the_same_model(tmp_path: Path) -> None:
    expected = fitted(people()).decision_function(people())
    path = written(people(), tmp_path / "rows.csv")
    for options in ({}, {"separator": ";", "decimal": ","}):
        np.testing.assert_array_equal(fitted(path, **options).decision_function(people()), expected)


@pytest.mark.usefixtures("in_parts")
def test_part_by_part_too(tmp_path: Path) -> None:
    path = written(people(), tmp_path / "rows.csv", "|")
    assert not ingest.source_of(path, "bought", None, AutoCrossClassifier()._options()).in_memory
    expected = fitted(people()).decision_function(people())
    for options in ({}, {"separator": "|", "decimal": ","}):
        np.testing.assert_array_equal(fitted(path, **options).decision_function(people()), expected)


def test_what_the_user_says_holds_for_fit_and_scoring(tmp_path: Path) -> None:
    frame = people().rename({"income": "income, net", "rooms": "rooms, all", "job": "job, main"})
    path = written(frame, tmp_path / "rows.csv", ",")  # which only the user can know
    assert fitted(path).n_features_in_ == fitted(path, decimal=",").n_features_in_ == 3
    model = fitted(path, separator=",", decimal=",")
    np.testing.assert_array_equal(model.predict_proba(path), model.predict_proba(frame))
    np.testing.assert_array_equal(model.refit(path, "bought").predict_proba(str(path)), model.predict_proba(frame))


def test_scoring_finds_out_anew_and_never_takes_a_wrong_number(tmp_path: Path) -> None:
    fitted(written(people(), tmp_path / "rows.csv")).save(tmp_path / "m.acx")
    scorer = load(tmp_path / "m.acx")
    expected = scorer.score(people())
    for number, (separator, decimal) in enumerate(itertools.product(";\t|", ".,")):
        path = written(people(), tmp_path / f"{number}.csv", separator, decimal)
        np.testing.assert_array_equal(scorer.score(path), expected)
    with pytest.raises(ColumnError, match=r"'income' is numerical, but row 0 holds '1,5'\. Give decimal=',' \(--decimal\) if"):
        scorer.score(text_file(tmp_path / "quoted.csv", "job,income,rooms", 'cook,"1,5",2'))
    with pytest.raises(TableError, match=r"Column 'income' .* holds '1\.234', in a file with decimal commas"):
        scorer.score(text_file(tmp_path / "groups.csv", "job;income;rooms;other", "cook;1.234;2;0,5"))
    with pytest.raises(TableError, match=r"Column 'income' is missing.*Its columns are 'job:income:rooms'\. If that is"):
        scorer.score(text_file(tmp_path / "uncut.csv", "job:income:rooms", "cook:1:2"))


def test_every_command_that_reads_a_table_takes_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = people().rename({"income": "income, net", "rooms": "rooms, all", "job": "job, main"})
    path, model, new = str(written(frame, tmp_path / "rows.csv", "\t")), str(tmp_path / "m.acx"), str(tmp_path / "n.acx")
    for said in (["--separator", "tab", "--decimal", ","], ["--separator", r"\t", "--decimal", ","]):
        assert run(["fit", path, "--target", "bought", "-o", model, "--quiet", "--max-crosses", "0", *said]) == 0
        assert run(["refit", model, path, "-o", new, "--quiet", *said]) == 0
        for command in (["evaluate", model, path], ["predict", model, path], ["transform", model, path], ["explain", model, path]):
            assert run([*command, *said]) == 0
            capsys.readouterr()
            assert run([*command, "--separator", ";"]) == 2
            assert re.search("is missing from the table|It was read with separator=';'", capsys.readouterr().err)
    assert run(["predict", model, path, "--decimal", ";"]) == 2
    assert "Option decimal=';' is unknown. Choose one of: '.', ','" in capsys.readouterr().err


def test_a_row_of_a_file_is_not_explained_without_its_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fitted(people()).save(tmp_path / "m.acx")
    path = text_file(tmp_path / "uncut.csv", "job:income:rooms", "cook:1:2")
    assert run(["explain", str(tmp_path / "m.acx"), str(path)]) == 2
    assert "Column 'income' is missing from the table" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["separator", "decimal"])
@pytest.mark.parametrize("value", ["", "x", ";;", 5], ids=repr)
def test_signs_that_cannot_be(option: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"Option {option}={value!r} is unknown. Choose one of"):
        fitted(people(), **{option: value})


def test_a_checkpoint_does_not_depend_on_the_dialect(tmp_path: Path) -> None:
    rows = written(people(), tmp_path / "rows.csv", "|")
    first = fitted(rows, checkpoint=str(tmp_path / "rounds"), max_crosses=1)
    again = fitted(people(), resume=str(tmp_path / "rounds"), max_crosses=1)
    np.testing.assert_array_equal(first.decision_function(people()), again.decision_function(people()))
    with pytest.raises(AutoCrossError, match="other rows"):
        fitted(people()[1:], resume=str(tmp_path / "rounds"), max_crosses=1)
