"""Bad tables, files and models: a clear error or a sensible answer, and nothing lost."""

from __future__ import annotations

import copy
import errno
import json
import os
import re
import struct
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from safetensors import safe_open
from safetensors.numpy import save as to_bytes

from autocross import AutoCross, AutoCrossClassifier, load
from autocross.cli import run
from autocross.errors import AutoCrossError, BundleError, ColumnError, FileError, LabelError, OptionError, TableError, TableWarning
from autocross.serving.scorer import Scorer
from autocross.table import atomic
from autocross.table.coerce import typed
from autocross.table.files import read, write
from autocross.table.frames import to_polars
from autocross.table.inference import infer


def clients(n_rows: int = 100) -> pl.DataFrame:
    """A small table in good order."""
    rng = np.random.default_rng(3)
    job = rng.choice(["cook", "nurse", "clerk"], n_rows)
    age = rng.integers(18, 80, n_rows)
    return pl.DataFrame(
        {
            "job": job,
            "age": age,
            "member": rng.random(n_rows) < 0.5,
            "since": [date(2024, 1, 1 + int(day)) for day in rng.integers(0, 28, n_rows)],
            "tags": [["a", "b"][: int(size)] for size in rng.integers(0, 3, n_rows)],
            "bought": np.where((job == "cook") ^ (rng.random(n_rows) < 0.2), "yes", "no"),
        }
    )


def classifier(**options: Any) -> AutoCrossClassifier:
    return AutoCrossClassifier(quiet=True, engine="serial", split="random", **options)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in good order."""
    path = tmp_path_factory.mktemp("good") / "model.acx"
    classifier().fit(clients(), "bought").save(path)
    return path


@pytest.fixture(scope="module")
def scorer(good: Path) -> Scorer:
    return load(good)


Refused = Callable[..., None]


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Run a command that must be refused with a message, and leave every file as it was."""

    def contents() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def refuse(*arguments: Any, message: str) -> None:
        before = contents()
        assert run([str(argument) for argument in arguments]) == 2
        printed = capsys.readouterr()
        assert re.search(message, printed.err), printed.err
        assert printed.out == ""
        assert contents() == before

    return refuse


def refused_fit(refused: Refused, path: Path, message: str, *options: str) -> None:
    output = path.parent / "new.acx"
    refused("fit", path, "--target", "bought", "-o", output, "--engine", "serial", "--quiet", *options, message=message)


def as_file(frame: pl.DataFrame, path: Path) -> Path:
    write(frame, path)
    return path


# Tables that cannot be learned from.

TABLES: dict[str, tuple[pl.DataFrame, str]] = {
    "no rows": (clients().clear(), "The table has 0 rows and 6 columns.*Give at least one of each"),
    "no features": (clients().select("bought"), "no column beside the target.*Give at least one feature column"),
    "no target": (clients().drop("bought"), r"target column 'bought' is not in the table\. Its columns are 'job', 'age'"),
    "one row": (clients()[:1], r"target 'bought' holds the one class '(yes|no)', so there is nothing to learn\. Give rows of two"),
    "one class": (
        clients().with_columns(bought=pl.lit("yes")),
        r"target 'bought' holds the one class 'yes', so there is nothing to learn\. Give rows of two classes",
    ),
    "three classes": (
        clients().with_columns(bought=pl.Series(["no", "maybe", "yes", "no"] * 25)),
        r"Target 'bought' holds 3 values \('maybe', 'no', 'yes', \.\.\.\)\. Make it a yes/no column",
    ),
    "label missing": (
        clients().with_columns(bought=pl.when(pl.int_range(pl.len()) == 7).then(None).otherwise("bought")),
        r"target 'bought' is missing in 1 rows, first in row 7.*Leave out rows without a label",
    ),
    "label always missing": (
        clients().with_columns(bought=pl.lit(None, pl.String)),
        r"target 'bought' is missing in 100 rows, first in row 0.*Leave out rows without a label",
    ),
    "label not a number": (
        clients().with_columns(bought=pl.Series([0.0, 1.0, float("nan"), 1.0] * 25)),
        r"target 'bought' is missing in 25 rows, first in row 2.*Leave out rows without a label",
    ),
    "nothing varies": (
        clients().select(pl.lit("x").alias("a"), pl.lit(None).alias("b"), "bought"),
        r"No column is left to learn from\. Give columns that vary, or a kind",
    ),
}


@pytest.mark.filterwarnings("ignore::autocross.errors.TableWarning")
@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_cannot_be_learned_from(name: str, refused: Refused, tmp_path: Path) -> None:
    frame, message = TABLES[name]
    refused_fit(refused, as_file(frame, tmp_path / "train.parquet"), message)
    with pytest.raises(AutoCrossError, match=message):
        classifier().fit(frame, "bought")


def test_a_table_without_columns() -> None:
    with pytest.raises(TableError, match=r"The table has 0 rows and 0 columns.*Give at least one of each"):
        classifier().fit(pl.DataFrame(), [])
    with pytest.raises(TableError, match=r"The table has 3 rows and 0 columns|The table has 0 rows and 0 columns"):
        classifier().fit(pd.DataFrame(index=[0, 1, 2]), [0, 1, 0])


def test_labels_of_mixed_types() -> None:
    with pytest.raises(LabelError, match=r"The target 'bought' mixes types.*Use one type for both labels"):
        classifier().fit(clients().drop("bought").to_pandas(), pd.Series([1, "yes"] * 50, name="bought", dtype=object))


def test_a_label_for_every_row() -> None:
    with pytest.raises(TableError, match=r"The table has 100 rows, but there are 2 labels\. Give one label a row"):
        classifier().fit(clients().drop("bought"), [0, 1])


@pytest.mark.parametrize(
    ("name", "frame"),
    [
        ("pandas", pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"])),
        ("pandas, as text", pd.DataFrame([[1, 2, 3]], columns=["1", "b", 1])),
        ("pyarrow", pa.table([[1], [2], [3]], names=["a", "b", "a"])),
    ],
)
def test_two_columns_of_one_name(name: str, frame: Any) -> None:
    with pytest.raises(TableError, match=r"Column name '(a|1)' occurs 2 times\. Rename the columns"):
        to_polars(frame)


def test_two_columns_of_one_name_in_a_file(refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("job,bought,job\ncook,yes,nurse\n")
    refused_fit(refused, path, r"Column name 'job' occurs 2 times in .*train\.csv'\. Rename the columns")


# Columns that are of no use, and columns that are used in spite of what they hold.


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pl.lit(None), "always missing"),
        (pl.lit(float("nan")), "always missing"),
        (pl.lit("x"), "constant"),
        (pl.format("id{}", pl.int_range(pl.len())), "different in every row, as an id is"),
        (pl.int_range(pl.len()), "different in every row, as an id is"),
        (pl.struct("job", "age"), r"values of type Struct.* cannot be read"),
    ],
    ids=["missing", "nan", "constant", "ids", "row numbers", "struct"],
)
def test_a_useless_column_is_left_out_with_a_warning(column: pl.Expr, reason: str) -> None:
    frame = clients().with_columns(column.alias("odd"))
    with pytest.warns(TableWarning, match=rf"Column 'odd' is left out: {reason}\..*types=\{{'odd': 'categorical'\}}"):
        model = classifier().fit(frame, "bought")
    np.testing.assert_array_equal(model.predict_proba(frame), classifier().fit(clients(), "bought").predict_proba(clients()))


@pytest.mark.parametrize("kind", ["categorical", "numerical", "time", "multivalue", "multivalue:|"])
@pytest.mark.parametrize(
    "column", [pl.struct("job", "age"), pl.concat_list("job").implode().over("job")], ids=["structs", "lists of lists"]
)
def test_no_kind_can_be_given_to_cells_of_many_parts(
    kind: str, column: pl.Expr, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = clients().drop("tags").with_columns(column.alias("odd"))
    frame.write_parquet(tmp_path / "rows.parquet")
    message = r"Column 'odd' holds values of type (Struct|List\(List\(String\)\)), which cannot be .*\. Give the parts columns"
    for share in (1.0, 0.0):  # in memory, and part by part
        monkeypatch.setattr("autocross.table.ingest.AT_ONCE", share)
        with pytest.raises(ColumnError, match=message):
            classifier(types={"odd": kind}).fit(tmp_path / "rows.parquet", "bought")
    assert classifier(types={"odd": "ignore"}).fit(frame, "bought").predict(frame).shape == (frame.height,)


@pytest.mark.filterwarnings("default::autocross.errors.TableWarning")
def test_the_command_line_warns_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = as_file(clients().drop("tags").with_columns(odd=pl.lit("x")), tmp_path / "train.csv")
    assert run(["fit", str(path), "--target", "bought", "-o", str(tmp_path / "m.acx"), "--engine", "serial", "--quiet"]) == 0
    assert "warning: Column 'odd' is left out: constant." in capsys.readouterr().err


def test_infinities_are_the_outermost_numbers() -> None:
    rng = np.random.default_rng(0)
    number = np.where(rng.random(200) < 0.1, np.inf, rng.normal(0, 1, 200))
    number[:10] = -np.inf
    model = classifier().fit(pl.DataFrame({"x": number}), number > 0)
    probability = model.predict_proba(pl.DataFrame({"x": [-np.inf, -5.0, 5.0, np.inf]}))[:, 1]
    assert probability[0] == probability[1] < 0.5 < probability[2] == probability[3]


def test_nothing_but_infinities() -> None:
    model = classifier(types={"x": "numerical"}).fit(pl.DataFrame({"x": [np.inf, -np.inf] * 20}), [1, 0] * 20)
    assert np.isfinite(model.predict_proba(pl.DataFrame({"x": [np.inf, 0.0, None]}))).all()


def test_the_largest_and_the_smallest_numbers() -> None:
    """Warnings are errors in these tests, NumPy's of an overflow too."""
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "wide": rng.uniform(-1, 1, 300) * np.finfo(np.float64).max,
            "mixed": np.where(rng.random(300) < 0.5, rng.normal(0, 1, 300), rng.choice([1.7e308, -1.7e308, 5e-324], 300)),
            "tiny": rng.integers(1, 1_000, 300) * 5e-324,
        }
    )
    with pytest.warns(TableWarning, match="'wide' alone predicts the label"):
        model = classifier(granularities=[10, 1_000]).fit(frame, frame["wide"].to_numpy() > 0)
    alone = [model.scorer_.score_one(row) for row in frame.iter_rows(named=True)]
    assert model.predict_proba(frame)[:, 1].tolist() == alone
    assert ((np.array(alone) > 0.5) == (frame["wide"].to_numpy() > 0)).mean() > 0.95


def test_mixed_types_are_texts() -> None:
    frame = pd.DataFrame({"x": [1, "a", 2.5, None, True] * 20})
    model = classifier().fit(frame, [0, 1, 0, 1, 1] * 20)
    assert model.predict(frame).tolist() == [0, 1, 0, 1, 1] * 20


def test_mixed_types_in_a_column_declared_numerical(refused: Refused, tmp_path: Path) -> None:
    frame = clients().select(pl.lit("12").alias("age"), "bought").with_row_index()
    frame = frame.with_columns(age=pl.when(pl.col("index") == 41).then(pl.lit("forty")).otherwise("age")).drop("index")
    message = r"Column 'age' is numerical, but row 41 holds 'forty'\. Declare it categorical, types=\{'age': 'categorical'\}"
    refused_fit(refused, as_file(frame, tmp_path / "train.csv"), message, "--type", "age=numerical")


@pytest.mark.parametrize("name", ["job", "age", "member", "since", "tags"])
def test_nulls_in_any_column(name: str, scorer: Scorer) -> None:
    frame = clients().with_columns(pl.when(pl.int_range(pl.len()) % 3 == 0).then(None).otherwise(name).alias(name))
    probability = classifier().fit(frame, "bought").predict_proba(frame)
    assert np.isfinite(probability).all()
    assert np.isfinite(scorer.score(frame)).all()
    assert np.isfinite(scorer.score(frame.with_columns(pl.lit(None).alias(name)))).all()


def test_empty_lists_differ_from_missing_ones() -> None:
    frame = pl.DataFrame({"tags": [[], None, ["a"]] * 30})
    model = classifier().fit(frame, [1, 0, 0] * 30)
    assert model.predict(frame).tolist() == [1, 0, 0] * 30


def test_nothing_but_empty_lists() -> None:
    frame = pl.DataFrame({"tags": [[], []] * 30, "job": ["cook", "nurse"] * 30})
    model = classifier().fit(frame, [0, 1] * 30)
    assert model.predict(frame).tolist() == [0, 1] * 30


@pytest.mark.slow
def test_ten_thousand_columns() -> None:
    rng = np.random.default_rng(0)
    wide = {f"c{at}": rng.integers(0, 3, 60).astype(str) if at % 2 else rng.random(60) for at in range(10_000)}
    frame = pl.DataFrame(wide)
    schema = infer(frame, {}, {})
    assert len(schema) == 10_000
    assert len(typed(frame.select(reversed(frame.columns)), schema).columns) == 10_000


@pytest.mark.slow
def test_a_thousand_columns_and_one_that_matters(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 80)
    frame = pl.DataFrame({f"c{at}": rng.integers(0, 3, 80).astype(str) for at in range(1_000)})
    frame = frame.with_columns(answer=pl.Series(label.astype(str)))
    model = classifier().fit(frame, label)
    assert model.predict(frame).tolist() == label.tolist()
    frame.write_csv(tmp_path / "wide.csv")
    np.testing.assert_array_equal(model.predict_proba(tmp_path / "wide.csv"), model.predict_proba(frame))


# Rows to score that differ from those of the fit.


def test_unseen_categories_score_as_rare_ones(scorer: Scorer) -> None:
    frame = clients()[:2].with_columns(job=pl.Series(["pilot", "diver"]), tags=pl.Series([["x"], ["y", "z"]]))
    first, second = scorer.score(frame.with_columns(pl.col("age", "member", "since").first()))
    assert 0 < first == second < 1


def test_numbers_where_text_was(scorer: Scorer) -> None:
    rows = clients()
    unseen = scorer.score(rows.with_columns(job=pl.lit("never seen")))
    np.testing.assert_array_equal(scorer.score(rows.with_columns(job=pl.lit(5))), unseen)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pl.lit("old").alias("age"), r"Column 'age' is numerical, but row 0 holds 'old'\. Declare it categorical.*or correct"),
        (pl.lit(date(2024, 1, 1)).alias("age"), r"Column 'age' is numerical, but the table holds Date there\. Give numbers"),
        (pl.col("tags").alias("age"), r"Column 'age' is numerical, but row 0 holds \[.*\]\. Give one value\."),
        (pl.lit("soon").alias("since"), r"Column 'since' is time, but row 0 holds 'soon'\. Write dates as 2024-12-31"),
        (pl.lit(20240101).alias("since"), r"Column 'since' is time, but the table holds Int32 there\. Give dates or times"),
        (pl.col("tags").alias("job"), r"Column 'job' is categorical, but row 0 holds \[.*\]\. Give one value\."),
        (pl.struct("age").alias("job"), r"Column 'job' is categorical, but the table holds Struct.* there\. Give one value a row"),
    ],
)
def test_values_of_another_kind(
    column: pl.Expr, message: str, good: Path, scorer: Scorer, refused: Refused, tmp_path: Path
) -> None:
    frame = clients().with_columns(column)
    with pytest.raises(ColumnError, match=message):
        scorer.score(frame)
    path = as_file(frame, tmp_path / "rows.parquet")
    refused("predict", good, path, "-o", tmp_path / "scores.csv", message=message)
    refused("transform", good, path, "-o", tmp_path / "features.csv", message=message)
    refused("evaluate", good, path, message=message)
    refused("refit", good, path, "-o", tmp_path / "new.acx", "--quiet", message=message)


@pytest.mark.parametrize(
    ("name", "value"), [("age", "old"), ("age", [1]), ("age", date(2024, 1, 1)), ("since", "soon"), ("since", 5)]
)
def test_a_single_row_with_a_value_of_another_kind(name: str, value: Any, scorer: Scorer) -> None:
    with pytest.raises(
        ColumnError, match=rf"Column '{name}' is (numerical|time), but the row holds {re.escape(repr(value))}\. \w+"
    ):
        scorer.score_one({name: value})


def test_missing_columns(good: Path, scorer: Scorer, refused: Refused, tmp_path: Path) -> None:
    message = r"Column 'age' is missing from the table\. Its columns are 'job', 'member'"
    with pytest.raises(TableError, match=message):
        scorer.score(clients().drop("age"))
    with pytest.raises(TableError, match=r"Column 'age' is missing from the table \(5 columns are\)\. Its columns are 'bought'"):
        scorer.score(clients().select("bought"))
    path = as_file(clients().drop("age"), tmp_path / "rows.parquet")
    refused("predict", good, path, "-o", tmp_path / "scores.csv", message=message)
    refused("refit", good, path, "-o", tmp_path / "new.acx", "--quiet", message=message)


def test_extra_and_reordered_columns(scorer: Scorer) -> None:
    frame = clients().select(reversed(clients().columns)).with_columns(odd=pl.struct("age"))
    np.testing.assert_array_equal(scorer.score(frame), scorer.score(clients()))


def test_one_row_and_no_row(good: Path, scorer: Scorer, tmp_path: Path) -> None:
    np.testing.assert_array_equal(scorer.score(clients()[:1]), scorer.score(clients())[:1])
    assert scorer.score(clients()[:0]).tolist() == []
    path = as_file(clients()[:0], tmp_path / "rows.parquet")
    assert run(["predict", str(good), str(path), "-o", str(tmp_path / "scores.csv")]) == 0
    assert (tmp_path / "scores.csv").read_text() == "probability,prediction\n"


def test_one_row_is_no_list(scorer: Scorer) -> None:
    with pytest.raises(TableError, match=r"One row is a mapping of column names to values, not list\. For many rows call score"):
        scorer.score_one([1, 2])  # type: ignore[arg-type]


def test_a_transformer_refuses_as_a_classifier_does() -> None:
    transformer = AutoCross(quiet=True, engine="serial", split="random").fit(clients(), "bought")
    with pytest.raises(TableError, match=r"Column 'age' is missing from the table\. Its columns are"):
        transformer.transform(clients().drop("age"))


# Columns that cannot play two parts.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": "bought"}, "Option groups='bought' names the target. Give another column, or leave the option out"),
        ({"groups": "w"}, "Option groups='w' names the weights. Give another column"),
        ({"time": "bought"}, "Option time='bought' names the target. Give another column"),
        ({"time": "w"}, "Option time='w' names the weights. Give another column"),
        (
            {"exclude": ["job", "bought"]},
            "Option exclude names the target 'bought', which is no feature anyway. Leave it out of the list",
        ),
        ({"exclude": ["w"]}, "Option exclude names the weights 'w', which is no feature anyway"),
        ({"types": {"bought": "categorical"}}, "Option types names the target 'bought', which is no feature anyway"),
    ],
    ids=str,
)
@pytest.mark.parametrize("as_path", [False, True])
def test_a_column_that_an_option_gives_a_second_part(options: dict[str, Any], message: str, as_path: bool, tmp_path: Path) -> None:
    rows: Any = clients().with_columns(w=1.5)
    if as_path:
        rows = as_file(rows, tmp_path / "rows.parquet")
    with pytest.raises(OptionError, match=message):
        classifier(**options).fit(rows, "bought", "w")


def test_the_target_cannot_be_the_weight(good: Path, refused: Refused, tmp_path: Path) -> None:
    path = as_file(clients(), tmp_path / "rows.parquet")
    message = r"column 'bought' is named as target and as weight\. Give two columns"
    refused_fit(refused, path, message, "--weight", "bought")
    refused("evaluate", good, path, "--weight", "bought", message=message)


# Files.


def test_a_csv_that_is_not_utf8(good: Path, refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_bytes("job,bought\ncook,yes\ncafé,no\n".encode("latin-1"))
    message = r"Cannot read .*train\.csv': invalid utf-8 sequence in line 3: b'caf\\xe9,no\\n'\. Convert the file.*iconv -f LATIN1"
    refused_fit(refused, path, message)
    refused("predict", good, path, "-o", tmp_path / "scores.csv", message=message)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_csv_in_utf16_that_does_not_say_so(encoding: str, refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_bytes("job,bought\ncook,yes\ncafé,no\n".encode(encoding))
    refused_fit(refused, path, r"invalid utf-8 sequence.*Convert the file, for example with: iconv -f UTF-16 -t UTF-8")


@pytest.mark.parametrize("weights", [[10**5000], ["a"], [1j]], ids=["digits", "text", "complex"])
def test_weights_that_are_no_numbers(weights: list[Any]) -> None:
    frame = clients()
    with pytest.raises(TableError, match="Sample weights must be numbers: "):
        classifier().fit(frame, "bought", sample_weight=weights * frame.height)


def test_a_compressed_csv_that_is_not_utf8(refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / "train.csv.gz"
    with pa.output_stream(path, compression="gzip") as stream:
        stream.write("job,bought\ncafé,no\n".encode("latin-1"))
    refused_fit(refused, path, r"Cannot read .*train\.csv\.gz': invalid utf-8 sequence.*Convert the file.*iconv -f LATIN1")


@pytest.mark.parametrize("kept", [0, 3, 20, -1, -8, -100])
def test_a_truncated_parquet_file(kept: int, good: Path, refused: Refused, tmp_path: Path) -> None:
    path = as_file(clients(), tmp_path / "rows.parquet")
    path.write_bytes(path.read_bytes()[:kept])
    message = r"Cannot read .*rows\.parquet': .*The file is damaged or incomplete; copy it again"
    refused_fit(refused, path, message)
    refused("predict", good, path, "-o", tmp_path / "scores.csv", message=message)


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.csv.zst"])
def test_a_truncated_compressed_file(name: str, refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / name
    with pa.output_stream(path, compression="gzip" if name.endswith("gz") else "zstd") as stream:
        stream.write(clients().drop("tags").write_csv().encode())
    path.write_bytes(path.read_bytes()[:-20])
    refused_fit(refused, path, rf"Cannot read .*{name}': .*The file is damaged or incomplete; copy it again")


FILES = {
    "empty.csv": (b"", r"File .*empty\.csv' is empty\. Give a file with a line of column names"),
    "blank.csv": (b"\n\n", r"File .*blank\.csv' is empty\. Give a file with a line of column names"),
    "header.csv": (b"job,bought\n", r"The table has 0 rows and 2 columns.*Give at least one of each"),
    "ragged.csv": (b"job,bought\ncook,yes,5\n", r"Cannot read .*ragged\.csv': .*Check that every line has as many cells"),
    "rows.xlsx": (b"PK", r"Cannot tell what .*rows\.xlsx' is\. Name it \.csv .*or \.parquet"),
    "text.parquet": (b"job,bought\ncook,yes\n", r"Cannot read .*text\.parquet': .*The file is damaged or incomplete"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_table(name: str, refused: Refused, tmp_path: Path) -> None:
    content, message = FILES[name]
    (tmp_path / name).write_bytes(content)
    refused_fit(refused, tmp_path / name, message)


def test_a_path_that_is_not_there(good: Path, refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / "nothing.csv"
    message = r"There is no file .*nothing\.csv'\. Check the path"
    refused_fit(refused, path, message)
    refused("predict", good, path, message=message)
    refused("predict", tmp_path / "no.acx", path, message=r"There is no model file .*no\.acx'\. Check the path")
    refused("show", tmp_path, message=r"There is no model file .*Check the path")


def test_a_file_that_may_not_be_read(refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests may run as a user who may read everything, so the refusal is played."""

    def forbid(*arguments: Any, **options: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    path = as_file(clients().drop("tags"), tmp_path / "train.csv")
    monkeypatch.setattr(pl, "read_csv", forbid)
    refused_fit(refused, path, r"Cannot read .*train\.csv': Permission denied\. Check the path and its permissions")


def test_a_reader_that_panics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Polars panics at some damaged files, with an exception that is no Exception."""

    def panic(*arguments: Any, **options: Any) -> None:
        raise pl.exceptions.PanicException("index out of bounds")

    path = as_file(clients(), tmp_path / "rows.parquet")
    monkeypatch.setattr(pl, "scan_parquet", panic)
    with pytest.raises(FileError, match=r"rows\.parquet': index out of bounds\. The file is damaged or incomplete; copy it again"):
        read(path)


def test_folders(refused: Refused, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    refused_fit(refused, folder, r"Folder .*parts' holds no \.parquet file\. Give a folder of Parquet files")
    as_file(clients(), folder / "a.parquet")
    as_file(clients().drop("age"), folder / "b.parquet")
    refused_fit(refused, folder, r"File .*b\.parquet' lacks column 'age'\. Give files with the same columns")
    as_file(clients().with_columns(odd=1), folder / "b.parquet")
    refused_fit(refused, folder, r"File .*b\.parquet' alone has column 'odd'\. Give files with the same columns")
    (folder / "b.parquet").write_bytes(b"PAR1")
    refused_fit(refused, folder, r"Cannot read .*b\.parquet': .*The file is damaged or incomplete; copy it again")


# Places that cannot be written, and disks that are full.


def test_a_place_that_cannot_be_written(good: Path, refused: Refused, tmp_path: Path) -> None:
    rows = as_file(clients(), tmp_path / "rows.parquet")
    absent = tmp_path / "absent" / "scores.csv"
    refused("predict", good, rows, "-o", absent, message=r"Cannot write .*scores\.csv': there is no folder .*Create it first")
    refused("predict", good, rows, "-o", tmp_path / "scores.txt", message=r"ending does not tell how\. Name it \.csv or \.parquet")
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    refused("predict", good, rows, "-o", folder, message=r"Cannot write .*folder\.csv': it is a folder\. Give the name of a file")
    with pytest.raises(
        FileError, match=r"Cannot write .*model\.acx': No such file or directory\. Give a place that can be written"
    ):
        classifier().fit(clients(), "bought").save(tmp_path / "absent" / "model.acx")


def test_a_device_is_not_replaced() -> None:
    with pytest.raises(FileError, match=r"Cannot write '/dev/null': it is no file\. Give the name of a file"):
        atomic.replace_file(Path("/dev/null"), lambda stream: None)


class FullDisk:
    """A file on a disk that has no room left."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream

    def write(self, content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def __enter__(self) -> FullDisk:
        return self

    def __exit__(self, *error: object) -> None:
        self.stream.close()


@pytest.mark.parametrize("when", ["writing", "syncing"])
@pytest.mark.parametrize("old", [None, b"the former file"])
def test_a_full_disk_loses_nothing(
    when: str, old: bytes | None, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = as_file(clients().drop("tags").with_columns(tags=pl.lit("a")), tmp_path / "rows.csv")
    outputs = [tmp_path / name for name in ("model.acx", "scores.csv", "scores.parquet")]
    for output in outputs:
        if old is not None:
            output.write_bytes(old)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    model = classifier().fit(clients(), "bought")

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    fdopen = os.fdopen
    if when == "syncing":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr(os, "fdopen", lambda handle, mode: FullDisk(fdopen(handle, mode)))
    message = r"Cannot write .*: .*No space left on device.*\. The former file, if any, is unchanged; make room"
    for output, save in zip(outputs, (model.save, lambda path: write(clients().drop("tags"), path)) * 2, strict=False):
        with pytest.raises(FileError, match=message):
            save(output)
    assert run(["predict", str(good), str(rows), "-o", str(outputs[1]), "--force"]) == 2
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_interrupted_save_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "model.acx"
    path.write_bytes(b"the former file")

    def interrupt(stream: IO[bytes]) -> None:
        stream.write(b"half of")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomic.replace_file(path, interrupt)
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"the former file"]


# Models that are damaged, too new, or made to attack.

Manifest = dict[str, Any]
Arrays = dict[str, np.ndarray[Any, Any]]


def parts(path: Path) -> tuple[Manifest, Arrays]:
    with safe_open(str(path), framework="numpy") as stored:
        return json.loads(stored.metadata()["autocross"]), {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118


def place(manifest: Manifest, name: str) -> int:
    """Where a column stands among the coded ones."""
    return [entry["name"] for entry in manifest["columns"]].index(name)


def coder(manifest: Manifest, name: str) -> dict[str, Any]:
    found: dict[str, Any] = manifest["columns"][place(manifest, name)]
    return found


def with_header(content: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """A bundle with another safetensors header before the same arrays."""
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + content[8 + size :]


BYTES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "another file": lambda content: b"job,age\ncook,37\n" * 10,
    "end lost": lambda content: content[:-10],
    "end lost in the header": lambda content: content[:50],
    "something added": lambda content: content + b"more",
    "header of 2^63 bytes": lambda content: struct.pack("<Q", 1 << 63) + content[8:],
    "header of 2^33 bytes": lambda content: struct.pack("<Q", 1 << 33) + content[8:],
    "deep header": lambda content: struct.pack("<Q", 90_000) + b"[" * 90_000,
    "huge array": lambda content: with_header(content, lambda head: head["weight.0"].update(shape=[1 << 62])),
    "negative array": lambda content: with_header(content, lambda head: head["weight.0"].update(shape=[-1])),
    "array beyond the end": lambda content: with_header(content, lambda head: head["weight.0"].update(data_offsets=[0, 1 << 40])),
    "array before the start": lambda content: with_header(content, lambda head: head["weight.0"].update(data_offsets=[-8, 0])),
    "numbers numpy has not": lambda content: with_header(content, lambda head: head["text.1"].update(dtype="F8_E4M3")),
    "array named as a path": lambda content: with_header(content, lambda head: head.update({"../../x": head.pop("weight.0")})),
}  # fmt: skip


@pytest.mark.parametrize("name", BYTES)
def test_a_damaged_bundle(name: str, good: Path, refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / "bad.acx"
    path.write_bytes(BYTES[name](good.read_bytes()))
    refused("show", path, message=r"bad\.acx'.*damaged.*[Ss]ave or copy it again")
    refused("predict", path, as_file(clients(), tmp_path / "rows.parquet"), "-o", tmp_path / "scores.csv", message=r"bad\.acx'")


TEXTS = {
    "no JSON": ("{", "its manifest is damaged"),
    "no object": ("[]", "it has no format number"),
    "nothing": ("null", "it has no format number"),
    "deep list": ("[" * 100_000, "its manifest is damaged"),
    "deep object": ('{"a":' * 100_000, "its manifest is damaged"),
    "endless number": ("1" * 5_000, "its manifest is damaged"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_manifest_that_is_none(name: str, good: Path, refused: Refused, tmp_path: Path) -> None:
    text, message = TEXTS[name]
    (tmp_path / "bad.acx").write_bytes(to_bytes(parts(good)[1], metadata={"autocross": text}))
    refused("show", tmp_path / "bad.acx", message=rf"Cannot load .*bad\.acx': {message}.*[Ss]ave or copy it again")


def test_a_safetensors_file_of_others(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "bad.acx").write_bytes(to_bytes({"layer": np.zeros(3)}))
    refused("show", tmp_path / "bad.acx", message=r"bad\.acx': it is a safetensors file, but not a model of autocross")


def test_a_newer_bundle(good: Path, refused: Refused, tmp_path: Path) -> None:
    manifest, arrays = parts(good)
    manifest["format"] = 99
    (tmp_path / "new.acx").write_bytes(to_bytes(arrays, metadata={"autocross": json.dumps(manifest)}))
    refused(
        "show",
        tmp_path / "new.acx",
        message=r"new\.acx': it has format 99, newer than the \d+ this version reads\. Update autocross",
    )


def vocabulary(*values: str) -> Callable[[Manifest, Arrays], object]:
    """Other texts for the column of jobs."""

    def forge(manifest: Manifest, arrays: Arrays) -> None:
        at = place(manifest, "job")
        arrays[f"text.{at}"] = np.frombuffer("".join(values).encode(), np.uint8)
        arrays[f"ends.{at}"] = np.cumsum([len(value) for value in values])

    return forge


def at_weight(index: int, value: float) -> Callable[[Manifest, Arrays], object]:
    return lambda manifest, arrays: arrays["weight.0"].__setitem__(index, value)


def in_schema(name: str, **entries: Any) -> Callable[[Manifest, Arrays], object]:
    """Other facts for one column of the schema."""
    return lambda manifest, arrays: next(one for one in manifest["schema"] if one["name"] == name).update(entries)


def in_coder(column: str, **entries: Any) -> Callable[[Manifest, Arrays], object]:
    return lambda manifest, arrays: coder(manifest, column).update(entries)


FORGED: dict[str, tuple[Callable[[Manifest, Arrays], object], str]] = {
    "weight NaN": (at_weight(0, np.nan), r"field 'age .*' has a weight that is no number"),
    "weight infinite": (at_weight(-1, np.inf), r"field 'age .*' has a weight that is no number"),
    "too few weights": (lambda m, a: a.update({"weight.0": a["weight.0"][1:].copy()}), "the wrong number of weights"),
    "short weights": (lambda m, a: a.update({"weight.0": a["weight.0"].astype("f4")}), "the wrong number of weights"),
    "no weights": (lambda m, a: a.pop("weight.0"), "it has no array 'weight.0'"),
    "intercept NaN": (lambda m, a: m.update(intercept=float("nan")), "its intercept is no number"),
    "intercept text": (lambda m, a: m.update(intercept="0"), "its intercept is no number"),
    "penalty NaN": (lambda m, a: m["penalties"].__setitem__(0, [0.0, float("nan"), 0.0]), "that is no number of 0 or more"),
    "penalty negative": (lambda m, a: m["penalties"].__setitem__(0, [0.0, -1.0, 0.0]), "a penalty that is no number of 0 or more"),
    "smooth only": (lambda m, a: m["penalties"].__setitem__(0, [0.0, 0.0, 1.0]), "neighbours together, but nothing near zero"),
    "too few penalties": (lambda m, a: m["penalties"].pop(), "the wrong number of penalties"),
    "one value twice": (vocabulary("cook", "cook", "clerk"), "column 'job' has a vocabulary with one value twice"),
    "a value that is missing": (vocabulary("cook", "NA", "clerk"), "column 'job' has a vocabulary with a value that is never read"),
    "too many values": (vocabulary("cook", "nurse", "clerk", "x"), "field 'job' has the wrong number of weights"),
    "values beyond the end": (lambda m, a: a["ends.1"].__setitem__(-1, 99), "column 'job' has a vocabulary with impossible"),
    "values backwards": (lambda m, a: a["ends.1"].__setitem__(0, -1), "column 'job' has a vocabulary with impossible"),
    "values not UTF-8": (lambda m, a: a["text.1"].__setitem__(0, 255), "its manifest is damaged .*utf-8"),
    "endless buckets": (in_coder("job", n_buckets=(1 << 31) - 1), "column 'job' has no proper number of buckets"),
    "impossible buckets": (in_coder("job", n_buckets=10**30), "column 'job' has no proper number of buckets"),
    "code as coder": (in_coder("job", coder="pickle"), "column 'job' is not coded as its kind asks"),
    "edges that fall": (lambda m, a: a["edges.0.0"].__setitem__(0, 1e9), "column 'age' has edges that do not rise"),
    "edge NaN": (lambda m, a: a["edges.0.0"].__setitem__(0, np.nan), "column 'age' has edges that do not rise"),
    "unknown calendar": (in_coder("since", seen={"eon": [1]}), "column 'since' has an unknown calendar part"),
    "endless day": (in_coder("since", seen={"day": [1, 10**30]}), "column 'since' has a day that no calendar has"),
    "unknown kind": (in_schema("job", kind="evil"), "column 'job' has no known kind"),
    "another kind": (in_schema("job", kind="time"), "column 'job' is not coded as its kind asks"),
    "unknown storage": (in_schema("job", stored="evil"), "column 'job' has no known kind"),
    "unknown fact": (in_schema("job", run="rm"), "its manifest is damaged .*unexpected keyword argument 'run'"),
    "unknown column": (in_coder("job", name="../../etc/passwd"), r"column '\.\./\.\./etc/passwd' is not in its schema"),
    "one column twice": (lambda m, a: m["schema"].append(m["schema"][0]), "two columns have the same name"),
    "one label": (lambda m, a: m["about"].update(classes=["yes"]), "its manifest is damaged"),
    "one label twice": (lambda m, a: m["about"].update(classes=["yes", "yes"]), "it has no two labels"),
    "labels of no kind": (lambda m, a: m["about"].update(classes=[{}, []]), "it has no two labels"),
    "no history": (lambda m, a: m["about"].update(history=5), "its manifest is damaged"),
    "no about": (lambda m, a: m.pop("about"), "its manifest is damaged"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_bundle(name: str, good: Path, refused: Refused, tmp_path: Path) -> None:
    forge, message = FORGED[name]
    manifest, arrays = copy.deepcopy(parts(good))
    forge(manifest, arrays)
    (tmp_path / "bad.acx").write_bytes(to_bytes(arrays, metadata={"autocross": json.dumps(manifest)}))
    refused("show", tmp_path / "bad.acx", message=rf"Cannot load .*bad\.acx': .*{message}.*[Ss]ave or copy it again")


def test_column_names_are_never_paths(tmp_path: Path) -> None:
    frame = clients().rename({"job": "../../evil", "age": "/etc/passwd", "member": "a\x00b"})
    path = tmp_path / "model.acx"
    classifier().fit(frame, "bought").save(path)
    np.testing.assert_array_equal(load(path).score(frame), load(path).score(frame[:, ::-1]))
    assert [one.name for one in tmp_path.iterdir()] == ["model.acx"]


def test_no_flipped_byte_of_the_header_does_worse_than_an_error(good: Path, tmp_path: Path) -> None:
    content = good.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    path = tmp_path / "bad.acx"
    for at in np.random.default_rng(0).integers(0, 8 + size, 300).tolist():
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x15]) + content[at + 1 :])
        try:
            scorer = load(path)
        except BundleError as error:
            assert "bad.acx" in str(error)
        else:
            assert np.isfinite(scorer.log_odds_one({})).all()
