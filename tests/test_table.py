"""Any frame, file or single row in; the same columns, and so the same score, out."""

from __future__ import annotations

import csv
import gzip
import uuid
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from fsspec import AbstractFileSystem, register_implementation
from polars.testing import assert_frame_equal

from autocross import AutoCross, AutoCrossClassifier, load
from autocross.errors import ColumnError, FileError, LabelError, OptionError, TableError, TableWarning
from autocross.serving.scorer import Scorer, probabilities, probability
from autocross.table import files
from autocross.table.coerce import typed
from autocross.table.columns import NO_TIME, ListColumn, NumberColumn, TextColumn
from autocross.table.digest import digest
from autocross.table.files import read, write
from autocross.table.frames import settled, to_polars
from autocross.table.inference import infer, looks_like_an_id
from autocross.table.labels import match_labels, read_labels
from autocross.table.remote import Remote
from autocross.table.values import moment_of, number_of, stored_text, text_of

BERLIN = ZoneInfo("Europe/Berlin")

LIBRARIES: dict[str, Callable[[pl.DataFrame], Any]] = {
    "polars": lambda frame: frame,
    "polars lazy": lambda frame: frame.lazy(),
    "pandas": lambda frame: frame.to_pandas(),
    "pandas nullable": lambda frame: frame.to_pandas().convert_dtypes(),
    "pandas on arrow": lambda frame: frame.to_pandas(use_pyarrow_extension_array=True),
    "pyarrow": lambda frame: frame.to_arrow(),
}


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Callable[[pl.DataFrame], Any]:
    """A function that turns a polars frame into one of the library's own."""
    return LIBRARIES[request.param]


def every_kind(n_rows: int = 120) -> pl.DataFrame:
    """A column of every type, each with missing values, and a label that several of them tell something about."""
    rng = np.random.default_rng(5)

    def gaps(values: list[Any]) -> list[Any]:
        return [None if gone else value for value, gone in zip(values, rng.random(n_rows) < 0.1, strict=True)]

    moment = datetime(2023, 12, 20, 8)
    steps = [int(step) for step in rng.integers(0, 60 * 24 * 30, n_rows)]
    moments = [moment + timedelta(minutes=step) for step in steps]
    tags = [[f"t{entry}" for entry in rng.integers(0, 4, size)] for size in rng.integers(0, 4, n_rows)]
    frame = pl.DataFrame(
        {
            "job": gaps(rng.choice(["cook", "nurse", "clerk"], n_rows).tolist()),
            "grade": pl.Series(gaps(rng.choice(["low", "high"], n_rows).tolist()), dtype=pl.Enum(["low", "high"])),
            "city": pl.Series(gaps(rng.choice(["Rome", "Oslo"], n_rows).tolist()), dtype=pl.Categorical),
            "member": gaps((rng.random(n_rows) < 0.5).tolist()),
            "rooms": gaps(rng.integers(1, 3, n_rows).tolist()),
            "steps": gaps(rng.integers(0, 40, n_rows).tolist()),
            "income": gaps(rng.normal(30, 10, n_rows).round(2).tolist()),
            "price": pl.Series(
                gaps([Decimal(int(cents)) / 100 for cents in rng.integers(0, 5000, n_rows)]), dtype=pl.Decimal(9, 2)
            ),
            "born": gaps([moment.date() for moment in moments]),
            "seen": gaps(moments),
            "called": pl.Series(gaps(moments), dtype=pl.Datetime("us")).dt.replace_time_zone("Europe/Berlin"),
            "opens": gaps([moment.time() for moment in moments]),
            "took": gaps([timedelta(seconds=step) for step in steps]),
            "tags": pl.Series(gaps(tags), dtype=pl.List(pl.String)),
        }
    )
    tells = (frame["job"] == "cook").fill_null(False).to_numpy() * 2.0 + (frame["income"].fill_null(30).to_numpy() > 30)
    return frame.with_columns(bought=pl.Series(tells + rng.normal(0, 1, n_rows) > 1.2))


KINDS = {
    **dict.fromkeys(("job", "grade", "city", "member", "rooms"), "categorical"),
    **dict.fromkeys(("steps", "income", "price", "took"), "numerical"),
    **dict.fromkeys(("born", "seen", "called", "opens"), "time"),
    "tags": "multivalue",
}


def classifier(**options: Any) -> AutoCrossClassifier:
    return AutoCrossClassifier(quiet=True, engine="serial", split="random", **options)


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    return every_kind()


@pytest.fixture(scope="module")
def scorer(rows: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Scorer:
    """A saved model with a column of every kind."""
    path = tmp_path_factory.mktemp("model") / "model.acx"
    classifier().fit(rows, "bought").save(path)
    return load(path)


def kinds(frame: pl.DataFrame, **types: str) -> dict[str, str]:
    return {column.name: column.kind for column in infer(frame, types, {})}


def column(values: Any, kind: str | None = None, dtype: Any = None) -> Any:
    """One column, typed as inferred or as told."""
    frame = pl.DataFrame({"x": pl.Series(values, dtype=dtype)})
    return typed(frame, infer(frame, {} if kind is None else {"x": kind}, {})).columns["x"]


def words(found: TextColumn) -> list[str | None]:
    values, index = found.distinct
    return [None if at < 0 else values[at] for at in index.tolist()]


def entries(found: ListColumn) -> list[list[str] | None]:
    """The texts of each row, None where the row is missing."""
    rows = [found.index[a:b].tolist() for a, b in zip(found.starts[:-1], found.starts[1:], strict=True)]
    return [None if row == [-1] else [found.values[at] for at in row] for row in rows]


# Any frame in.


def test_every_library_gives_the_same_kinds(library: Callable[[pl.DataFrame], Any], rows: pl.DataFrame) -> None:
    assert kinds(to_polars(library(rows.drop("bought")))) == KINDS


def test_every_library_gives_the_same_columns(library: Callable[[pl.DataFrame], Any], rows: pl.DataFrame) -> None:
    schema = infer(rows, {}, {})
    ours, theirs = typed(rows, schema), typed(to_polars(library(rows)), schema)
    for name, expected in ours.columns.items():
        found = theirs.columns[name]
        assert type(found) is type(expected), name
        if isinstance(expected, TextColumn):
            assert words(found) == words(expected), name
        elif isinstance(expected, ListColumn):
            assert entries(found) == entries(expected), name
        else:
            attribute = "values" if isinstance(expected, NumberColumn) else "micros"
            np.testing.assert_array_equal(getattr(found, attribute), getattr(expected, attribute), err_msg=name)


def test_every_library_scores_alike(library: Callable[[pl.DataFrame], Any], rows: pl.DataFrame, scorer: Scorer) -> None:
    np.testing.assert_array_equal(scorer.score(library(rows)), scorer.score(rows))


def test_every_library_fits_alike(library: Callable[[pl.DataFrame], Any], rows: pl.DataFrame, scorer: Scorer) -> None:
    model = classifier().fit(library(rows), "bought")
    np.testing.assert_array_equal(model.predict_proba(library(rows))[:, 1], scorer.score(rows))


def test_labels_of_any_library_fit_alike(library: Callable[[pl.DataFrame], Any], rows: pl.DataFrame, scorer: Scorer) -> None:
    frame = library(rows.select("bought"))
    frame = frame.collect() if isinstance(frame, pl.LazyFrame) else frame
    model = classifier().fit(rows.drop("bought"), frame["bought"])
    np.testing.assert_array_equal(model.predict_proba(rows)[:, 1], scorer.score(rows))


def test_two_equal_columns_are_two_columns(library: Callable[[pl.DataFrame], Any]) -> None:
    found = to_polars(library(pl.DataFrame({"a": [1, 2, 3], "b": [1, 2, 3]})))
    assert found.to_dict(as_series=False) == {"a": [1, 2, 3], "b": [1, 2, 3]}


def test_an_array_gets_names() -> None:
    assert to_polars(np.array([[1, 2], [3, 4]])).to_dict(as_series=False) == {"x0": [1, 3], "x1": [2, 4]}
    assert to_polars(np.array([["a", 2.5], [None, 4]], dtype=object)).to_dict(as_series=False) == {
        "x0": ["a", None],
        "x1": [2.5, 4.0],
    }


def test_pandas_index_and_number_names_do_not_matter() -> None:
    frame = pd.DataFrame({0: ["a", "b"], 1: [1.5, np.nan]}, index=[7, 7])
    assert to_polars(frame).to_dict(as_series=False) == {"0": ["a", "b"], "1": [1.5, None]}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pd.Categorical([3, 1, None]), ["3", "1", None]),
        (pd.Categorical(["b", "a", None], categories=["b", "a"], ordered=True), ["b", "a", None]),
        (pd.Categorical([True, False, None]), ["true", "false", None]),
        (pd.cut([1, 9, 1], [0, 5, 10]), ["(0, 5]", "(5, 10]", "(0, 5]"]),
        (pd.period_range("2024-01", periods=3, freq="M"), ["2024-01", "2024-02", "2024-03"]),
        ([uuid.UUID(int=1), uuid.UUID(int=2), None], [str(uuid.UUID(int=1)), str(uuid.UUID(int=2)), None]),
        ([1, "a", None], ["1", "a", None]),
        ([True, "a", 2.0], ["true", "a", "2"]),
    ],
    ids=["numbers", "ordered", "booleans", "intervals", "periods", "uuids", "mixed", "mixed with booleans"],
)
def test_pandas_types_that_become_text(values: Any, expected: list[str | None]) -> None:
    frame = settled(to_polars(pd.DataFrame({"x": pd.Series(values)})), {})
    assert kinds(frame) == {"x": "categorical"}
    assert words(typed(frame, infer(frame, {}, {})).columns["x"]) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([{"b", "a"}, set(), None], [["a", "b"], [], None]),
        ([("a", None), (), None], [["a"], [], None]),
        ([np.array([1, 2]), np.array([]), None], [["1", "2"], [], None]),
        ([["a"], ("b",), None], [["a"], ["b"], None]),
    ],
    ids=["sets", "tuples", "arrays", "mixed"],
)
def test_python_collections_are_lists(values: list[Any], expected: list[Any]) -> None:
    frame = to_polars(pd.DataFrame({"x": pd.Series(values, dtype=object)}))
    found = typed(frame, infer(frame, {}, {})).columns["x"]
    assert [row if row is None else sorted(row) for row in entries(found)] == expected


def test_what_is_no_table_is_refused() -> None:
    class Columned:
        columns = ("a",)

    with pytest.raises(TableError, match=r"Columned is no table\. Give a pandas, polars or pyarrow frame, or the path"):
        to_polars(Columned())
    with pytest.raises(TableError, match=r"1 dimensions.*reshape\(-1, 1\)"):
        to_polars([1, 2, 3])


# Files.


def as_csv(frame: pl.DataFrame, path: Path) -> Path:
    frame.write_csv(path)
    return path


def as_gzip(frame: pl.DataFrame, path: Path) -> Path:
    path.write_bytes(gzip.compress(frame.write_csv().encode()))
    return path


def as_zstd(frame: pl.DataFrame, path: Path) -> Path:
    with pa.output_stream(path, compression="zstd") as stream:
        stream.write(frame.write_csv().encode())
    return path


def as_tsv(frame: pl.DataFrame, path: Path) -> Path:
    frame.write_csv(path, separator="\t")
    return path


def as_spreadsheet(frame: pl.DataFrame, path: Path) -> Path:
    path.write_text("\ufeff" + frame.write_csv(separator=";", line_terminator="\r\n"), newline="")
    return path


def as_parquet(frame: pl.DataFrame, path: Path) -> Path:
    frame.write_parquet(path)
    return path


def as_folder(frame: pl.DataFrame, path: Path) -> Path:
    path.mkdir()
    frame[:50].write_parquet(path / "a.parquet")
    frame[50:].select(reversed(frame.columns)).write_parquet(path / "b.parquet")
    (path / "_metadata.parquet").write_bytes(b"a note of another program")
    return path


FILES = {
    "rows.csv": as_csv,
    "rows [1].csv": as_csv,
    "semicolons.csv": as_spreadsheet,
    "rows.csv.gz": as_gzip,
    "rows.csv.zst": as_zstd,
    "rows.tsv": as_tsv,
    "rows.parquet": as_parquet,
    "rows [1].parquet": as_parquet,
    "folder": as_folder,
}


@pytest.fixture(scope="module")
def flat(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows as a CSV file can hold them: no lists, no lengths of time."""
    return rows.drop("took").with_columns(pl.col("tags").list.join("|"), pl.col("price").cast(pl.Float64))


@pytest.fixture(scope="module")
def flat_scorer(flat: pl.DataFrame) -> Scorer:
    return Scorer(classifier(types={"tags": "multivalue:|"}).fit(flat, "bought").model_)


@pytest.mark.parametrize("name", FILES)
def test_every_file_scores_as_its_frame(name: str, flat: pl.DataFrame, flat_scorer: Scorer, tmp_path: Path) -> None:
    path = FILES[name](flat, tmp_path / name)
    np.testing.assert_array_equal(flat_scorer.score(path), flat_scorer.score(flat))
    np.testing.assert_array_equal(flat_scorer.score(str(path)), flat_scorer.score(flat))


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet", "folder"])
def test_every_file_fits_as_its_frame(name: str, flat: pl.DataFrame, flat_scorer: Scorer, tmp_path: Path) -> None:
    model = classifier(types={"tags": "multivalue:|"}).fit(FILES[name](flat, tmp_path / name), "bought")
    np.testing.assert_array_equal(model.predict_proba(flat)[:, 1], flat_scorer.score(flat))


def test_types_of_a_csv_are_those_of_all_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "late.csv"
    path.write_text("id,n\n" + "1,1\n" * 20_000 + "x,2.5\n")
    assert read(path).schema == {"id": pl.String, "n": pl.Float64}


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_what_is_written_is_read_again(name: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": [1, 2], "b": ["x", None]})
    write(frame, tmp_path / name)
    assert read(tmp_path / name).equals(frame)
    assert [path.name for path in tmp_path.iterdir()] == [name]


# Kinds by rule.

MANY = list(range(100))
INFERRED = {
    "text": (["a", "b"] * 5, None, "categorical"),
    "boolean": ([True, False, None], None, "categorical"),
    "text that says true": (["True", "FALSE", ""], None, "categorical"),
    "category": (["a", "b"], pl.Categorical, "categorical"),
    "category of dates": (["2024-01-01", "2024-01-02"], pl.Categorical, "categorical"),
    "enum": (["a", "b"], pl.Enum(["a", "b"]), "categorical"),
    "list": ([["a"], []], None, "multivalue"),
    "list of numbers": ([[1, 2], None], None, "multivalue"),
    "array": ([[1, 2], [3, 4]], pl.Array(pl.Int64, 2), "multivalue"),
    "date": ([date(2024, 1, 1), None], None, "time"),
    "datetime": ([datetime(2024, 1, 1), None], None, "time"),
    "zoned": ([datetime(2024, 1, 1, tzinfo=BERLIN), None], pl.Datetime("us", "Europe/Berlin"), "time"),
    "time of day": ([time(8), time(9)], None, "time"),
    "date as text": (["2024-01-01", "2024-01-02", "", None], None, "time"),
    "datetime as text": (["2024-01-01T10:00:00Z", "2024-01-02 10:00"], None, "time"),
    "time of day as text": (["08:00", "09:30:15"], None, "time"),
    "almost dates": (["2024-01-01", "soon"], None, "categorical"),
    "dates of another form": (["31/12/2024", "30/12/2024"], None, "categorical"),
    "decimal": ([Decimal("1"), Decimal("2")], None, "numerical"),
    "float": ([1.5, 2.0], None, "numerical"),
    "half float": ([1.5, 2.0], pl.Float32, "numerical"),
    "duration": ([timedelta(1), timedelta(2)], None, "numerical"),
    "two whole numbers": (MANY[:2] * 2, None, "categorical"),
    "three whole numbers": (MANY[:3] * 2, None, "numerical"),
    "ten whole numbers in many rows": (MANY[:10] * 501, None, "categorical"),
    "eleven whole numbers in many rows": (MANY[:11] * 501, None, "numerical"),
    "few whole floats": ([1.0, 2.0, None, float("nan")], None, "categorical"),
    "whole floats and infinity": ([1.0, 1.0, float("inf")], None, "categorical"),
    "many whole floats": ([float(number) for number in MANY] * 2, None, "numerical"),
    "one value or none": (["a", None], None, "categorical"),
    "49 ids": ([f"id{number}" for number in MANY[:49]], None, "categorical"),
    "50 ids": ([f"id{number}" for number in MANY[:50]], None, "ignore"),
    "50 row numbers": (MANY[:50], None, "ignore"),
    "50 row numbers, some missing": ([*MANY[:49], None], None, "numerical"),
    "50 different whole floats": ([float(number) for number in MANY[:50]], None, "numerical"),
    "50 different whole half floats": ([float(number) for number in MANY[:50]], pl.Float32, "numerical"),
    "50 different small integers": (MANY[:50], pl.UInt8, "ignore"),
    "50 different floats": ([number + 0.5 for number in MANY[:50]], None, "numerical"),
    "50 different days": ([date(2024, 1, 1) + timedelta(number) for number in MANY[:50]], None, "time"),
    "50 different days as text": ([str(date(2024, 1, 1) + timedelta(number)) for number in MANY[:50]], None, "time"),
    "constant": (["a", "a"], None, "ignore"),
    "constant number": ([1.5, 1.5], None, "ignore"),
    "never there": ([None, None], None, "ignore"),
    "never a number": ([float("nan"), None], None, "ignore"),
    "never a text": (["", "NA", None], None, "ignore"),
    "struct": ([{"a": 1}, {"a": 2}], None, "ignore"),
    "bytes": ([b"a", b"b"], None, "ignore"),
    "list of lists": ([[["a"]], [["b"]]], None, "ignore"),
    "list of structs": ([[{"a": 1}], []], None, "ignore"),
}


@pytest.mark.parametrize("name", INFERRED)
def test_the_kind_by_rule(name: str) -> None:
    values, dtype, kind = INFERRED[name]
    assert kinds(pl.DataFrame({"x": pl.Series(values, dtype=dtype)})) == {"x": kind}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (["a", "a"], "constant"),
        ([None, None], "always missing"),
        (list(range(50)), "different in every row, as an id is"),
        ([b"a", b"b"], "values of type Binary cannot be read"),
    ],
)
def test_a_column_left_out_has_a_reason(values: list[Any], reason: str) -> None:
    (found,) = infer(pl.DataFrame({"x": values}), {}, {})
    assert (found.kind, found.reason) == ("ignore", reason)


DRAW = np.random.default_rng(11)
WHICH = DRAW.integers(0, 300, 6000)  # of 300 users, shops or products
DAYS = np.array([year * 10_000 + month * 100 + day for year in (2023, 2024) for month in range(1, 13) for day in range(1, 28)])
PRICES = np.sort(np.exp(DRAW.normal(5, 1, 300)).astype(int))

WHOLE_NUMBERS: dict[str, tuple[str, Any, bool]] = {
    "ids": ("user", DRAW.integers(10**6, 10**8, 300)[WHICH], True),
    "ids as floats, some of them missing": ("user", np.where(WHICH > 250, np.nan, DRAW.integers(0, 10**6, 300)[WHICH]), True),
    "ids of 64 bits": ("user", DRAW.integers(2**60, 2**62, 300)[WHICH], True),
    "ids, a few of them frequent": ("user", DRAW.integers(0, 10**7, 300)[WHICH * WHICH // 300], True),
    "ids that count up, by their name": ("shop_id", WHICH, True),
    "ids with few rows, by their name": ("UserID", DRAW.integers(0, 3000, 6000), True),
    "ids that hardly repeat, by their name": ("user_id", DRAW.integers(0, 10**6, 6000), False),
    "ids that all differ": ("user_id", np.arange(6000), False),
    "few ids": ("shop_id", WHICH % 30, False),
    "postcodes": ("zip", DRAW.integers(10_000, 99_999, 300)[WHICH], True),
    "ages": ("age", DRAW.integers(0, 110, 6000), False),
    "years": ("year", DRAW.integers(1880, 2025, 6000), False),
    "counts": ("visits", DRAW.geometric(0.01, 6000), False),
    "numbers from 0 to n": ("place", WHICH, False),
    "incomes": ("income", np.exp(DRAW.normal(8, 1, 6000)).astype(int), False),
    "incomes in hundreds": ("income", np.exp(DRAW.normal(8, 1, 6000)).astype(int) // 100 * 100, False),
    "prices": ("price", PRICES[WHICH], False),
    "prices that end in 9": ("price", 1000 * WHICH + 999, False),
    "mostly zero": ("gain", np.where(DRAW.random(6000) < 0.9, 0, DRAW.integers(0, 10**5, 300)[WHICH]), False),
    "measurements": ("grams", DRAW.normal(50_000, 9000, 6000).astype(int), False),
    "days": ("day", DAYS[DRAW.integers(0, len(DAYS), 6000)], False),
    "seconds": ("at", DRAW.integers(1_600_000_000, 1_700_000_000, 300)[WHICH], False),
    "numbers with decimals": ("user_id", WHICH / 7, False),
    "what was paid": ("paid", DRAW.integers(0, 5000, 6000), False),
}


@pytest.mark.parametrize("case", WHOLE_NUMBERS)
def test_whole_numbers_that_look_like_ids(case: str) -> None:
    name, values, expected = WHOLE_NUMBERS[case]
    assert looks_like_an_id(digest(pl.Series(name, values, nan_to_null=True))) == expected


NAMES_OF_IDS = ["id", "user_id", "userId", "UserID", "user.ID", "shop ids", "userid", "country-code", "ZipCode", "zip", "postcode"]
OTHER_NAMES = [
    "paid",
    "amount_paid",
    "bid",
    "PAID",
    "humid",
    "Covid",
    "grid",
    "barcodes",
    "gzip",
    "identity",
    "idle",
    "code_length",
]


@pytest.mark.parametrize("name", [*NAMES_OF_IDS, *OTHER_NAMES])
def test_names_of_ids(name: str) -> None:
    assert looks_like_an_id(digest(pl.Series(name, WHICH))) == (name in NAMES_OF_IDS)


def test_columns_that_look_like_ids_are_named_in_one_warning() -> None:
    rows = pl.DataFrame(
        {"user": WHOLE_NUMBERS["ids"][1], "shop_id": WHICH, "age": WHICH // 4, "y": DRAW.integers(0, 2, 6000)}
    ).head(2000)
    numbers = AutoCross(quiet=True, engine="serial", max_crosses=0)
    with pytest.warns(TableWarning, match="Columns 'shop_id', 'user' look like ids") as warned:
        numbers.fit(rows, "y")
    (message,) = [str(warning.message) for warning in warned]
    assert "types={'shop_id': 'categorical', 'user': 'categorical'} (--type shop_id=categorical)" in message
    assert {column.name: column.kind for column in numbers.model_.producer.encoder.schema}["user"] == "numerical"
    for kind in ("categorical", "numerical"):
        AutoCross(quiet=True, engine="serial", max_crosses=0, types={"user": kind, "shop_id": kind}).fit(rows, "y")


@pytest.mark.parametrize("table", ["adult_train", "bank", "credit", "criteo", "hospital", "shop", "search_ads"])
def test_ids_of_the_benchmark_tables(table: str, benchmark_data: Callable[[str], pl.DataFrame]) -> None:
    rows = benchmark_data(table).drop("label")
    kind = kinds(rows)
    found = {name for name in rows.columns if kind[name] == "numerical" and looks_like_an_id(digest(rows[name]))}
    ids = {"ad_id", "advertiser_id", "query_id", "keyword_id", "title_id", "description_id", "user_id"}
    assert found == (ids if table == "search_ads" else set())


@pytest.mark.parametrize("kind", ["categorical", "numerical", "time", "ignore", "multivalue:|"])
def test_what_the_user_says_holds(kind: str) -> None:
    (found,) = infer(pl.DataFrame({"x": ["2024-01-01", "2024-01-02"]}), {"x": kind}, {})
    assert (found.kind, found.reason) == (kind.partition(":")[0], "declared")


def test_an_id_can_be_declared_a_feature() -> None:
    frame = pl.DataFrame({"id": list(range(60))})
    assert kinds(frame) == {"id": "ignore"}
    assert kinds(frame, id="numerical") == {"id": "numerical"}


@pytest.mark.parametrize(
    ("types", "error", "message"),
    [
        ({"y": "time"}, OptionError, r"Option types names column 'y', which the table does not have\. Its columns are 'x', 'l'"),
        ({"x": "number"}, OptionError, r"Column 'x' cannot be 'number'\. Choose one of: categorical, numerical"),
        ({"x": "multivalue"}, ColumnError, r"Column 'x' holds text, so multivalue needs its separator.*'multivalue:\|'"),
        ({"l": "numerical"}, ColumnError, r"Column 'l' holds lists and cannot be numerical\. Declare it multivalue or ignore"),
    ],
)
def test_a_kind_that_cannot_be(types: dict[str, str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        infer(pl.DataFrame({"x": ["a", "b"], "l": [["a"], []]}), types, {})


# Columns as their kinds.


def test_numbers() -> None:
    numbers = column([" 1.5", "NA", None, "-inf", "1e3"], "numerical").values
    np.testing.assert_array_equal(numbers, [1.5, np.nan, np.nan, -np.inf, 1000.0])
    np.testing.assert_array_equal(column([True, None], "numerical").values, [1.0, np.nan])
    np.testing.assert_array_equal(column([timedelta(seconds=1.5), None], "numerical").values, [1.5, np.nan])
    np.testing.assert_array_equal(column(["1", "2"], "numerical", pl.Categorical).values, [1.0, 2.0])


def test_moments_are_what_the_wall_clock_shows() -> None:
    day = 1_704_067_200_000_000
    hour = 3_600_000_000
    text = ["2024-01-01", "2024-01-01 01:00", "2024-01-01T01:00:00.5+05:00", "2024-01-01T01:00:00Z", "", None]
    assert column(text, "time").micros.tolist() == [day, day + hour, day + hour + 500_000, day + hour, NO_TIME, NO_TIME]
    zoned = [datetime(2024, 1, 1, 1, tzinfo=BERLIN), None]
    assert column(zoned, dtype=pl.Datetime("ms", "Europe/Berlin")).micros.tolist() == [day + hour, NO_TIME]
    assert column([time(1), None]).micros.tolist() == [hour, NO_TIME]
    assert column(["01:00", "01:00:00.25"], "time").micros.tolist() == [hour, hour + 250_000]


def test_lists_hold_each_value_once_and_no_missing_one() -> None:
    found = column([["b", "a", "b"], [], None, [None, "NA", "a"], [None]])
    assert entries(found) == [["b", "a"], [], None, ["a"], []]
    assert entries(column([[2, 1, 2], [1]])) == [["2", "1"], ["1"]]
    assert entries(column([[], []], dtype=pl.List(pl.String))) == [[], []]
    assert entries(column([None, []], dtype=pl.List(pl.String))) == [None, []]


def test_text_is_split_at_its_separator() -> None:
    found = column(["a|b", " b | a |b", "", None, "|", "a|NA", "NA"], "multivalue:|")
    assert entries(found) == [["a", "b"], ["b", "a"], None, None, [], ["a"], None]


def test_a_single_value_is_a_list_of_one() -> None:
    assert entries(column([1.0, None, float("nan"), 2.0], "multivalue")) == [["1"], None, None, ["2"]]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1, 1.0, np.int64(1), np.float32(1), Decimal("1.00"), "1"], "1"),
        ([2**53 + 1, np.int64(2**53 + 1), Decimal(2**53 + 1)], str(2**53 + 1)),
        ([0.1, np.float64(0.1), Decimal("0.1")], "0.1"),
        ([True, np.True_], "true"),
        ([date(2024, 1, 1), datetime(2024, 1, 1), pd.Timestamp("2024-01-01"), "2024-01-01"], "2024-01-01"),
        ([datetime(2024, 1, 1, 8), datetime(2024, 1, 1, 8, tzinfo=BERLIN)], "2024-01-01T08:00:00"),
        ([timedelta(1), pd.Timedelta(days=1), 86400], "86400"),
        ([None, "", "NA", float("nan"), np.float32("nan"), pd.NA, pd.NaT, Decimal("NaN")], None),
        ([float("inf"), np.float32("inf")], "inf"),
    ],
)
def test_one_text_for_one_value(values: list[Any], text: str | None) -> None:
    assert [text_of(value) for value in values] == [text] * len(values)


def test_values_that_are_missing_whatever_their_type() -> None:
    for value in (None, "", " NA ", float("nan"), pd.NA, pd.NaT):
        assert np.isnan(number_of(value))
        assert moment_of(value) is None
    assert np.isnan(number_of(np.timedelta64("NaT", "s")))
    assert moment_of(np.datetime64("NaT", "s")) is None


@pytest.mark.parametrize("text", ["1_000", "one", "0x10", "1,5"])
def test_text_that_is_no_number_is_none_on_both_paths(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        number_of(text)
    with pytest.raises(ColumnError, match=rf"Column 'x' is numerical, but row 1 holds '{text}'.*types=\{{'x': 'categorical'\}}"):
        column(["1", text], "numerical")


@pytest.mark.parametrize(
    "text", ["soon", "20240101", "2024-1-5", "2024-02-30", "2024-01-01 10:00:60", "2024-01-01 24:00", "2024-W01-1"]
)
def test_text_that_is_no_moment_is_none_on_both_paths(text: str) -> None:
    with pytest.raises(ValueError):
        moment_of(text)
    with pytest.raises(ColumnError, match=rf"Column 'x' is time, but row 1 holds '{text}'\. Write dates as 2024-12-31"):
        column(["2024-01-01", text], "time")


# Scoring coerces by the schema of the fit, and never infers again.


def coerced(train: Any, later: Any, kind: str = "categorical") -> list[str | None]:
    """The texts of a later table's column under the schema of a first."""
    (schema,) = infer(pl.DataFrame({"x": train}), {"x": kind}, {})
    return words(typed(pl.DataFrame({"x": later}), (schema,)).columns["x"])


@pytest.mark.parametrize(
    ("train", "later", "expected"),
    [
        (["39353", "17"], [39353, 17], ["39353", "17"]),
        (["39353", "17"], [39353.0, None], ["39353", None]),
        ([39353, 17], ["39353", "17"], ["39353", "17"]),
        ([39353, 17], ["039353", "17.0"], ["39353", "17"]),
        ([39353, 17], [39353.0, float("nan")], ["39353", None]),
        ([1.5, 2.0], ["1.50", "2"], ["1.5", "2"]),
        ([0, 1], [False, True], ["0", "1"]),
        ([0, 1], ["unknown", "true"], ["unknown", "1"]),
        ([True, False], ["True", "false"], ["true", "false"]),
        ([True, False], [1, 0], ["true", "false"]),
        ([True, False], [1.0, None], ["true", None]),
        (["True", "False"], [True, False], ["true", "false"]),
        (["TRUE", "FALSE"], ["true", "False"], ["true", "false"]),
        (["007", "7"], ["007", "7"], ["007", "7"]),
        ([date(2024, 1, 1), date(2024, 1, 2)], ["2024-01-01", None], ["2024-01-01", None]),
        ([date(2024, 1, 1), date(2024, 1, 2)], [datetime(2024, 1, 1), datetime(2024, 1, 2)], ["2024-01-01", "2024-01-02"]),
    ],
)
def test_categories_keep_their_meaning(train: list[Any], later: list[Any], expected: list[Any]) -> None:
    assert coerced(train, later) == expected
    (schema,) = infer(pl.DataFrame({"x": train}), {"x": "categorical"}, {})
    assert [stored_text(value, schema.stored) for value in later] == expected


def test_ids_are_the_same_ids_in_parquet_and_csv(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ids = rng.choice([7, 39353, 2**60 + 1], 200)
    frame = pl.DataFrame({"id": [str(one) for one in ids], "yes": (ids == 7) ^ (rng.random(200) < 0.1)})
    scorer = Scorer(classifier().fit(frame, "yes").model_)
    expected = scorer.score(frame)
    assert len(np.unique(expected)) == 3
    frame.write_csv(tmp_path / "ids.csv")
    assert read(tmp_path / "ids.csv").schema["id"] == pl.Int64
    np.testing.assert_array_equal(scorer.score(tmp_path / "ids.csv"), expected)
    np.testing.assert_array_equal(scorer.score(pl.DataFrame({"id": ids})), expected)
    np.testing.assert_array_equal(scorer.score(pd.DataFrame({"id": ids})), expected)
    assert [scorer.score_one({"id": one}) for one in ids] == expected.tolist()


def test_dates_may_come_as_text(rows: pl.DataFrame, scorer: Scorer) -> None:
    text = rows.with_columns(
        pl.col("born").cast(pl.String),
        pl.col("opens").cast(pl.String),
        pl.col("seen").dt.to_string("%Y-%m-%dT%H:%M:%S+09:00"),
        pl.col("called").dt.to_string("%Y-%m-%d %H:%M"),
    )
    np.testing.assert_array_equal(scorer.score(text), scorer.score(rows))
    np.testing.assert_array_equal(scorer.score(text.to_pandas()), scorer.score(rows))


def test_extra_and_reordered_columns_do_not_matter(rows: pl.DataFrame, scorer: Scorer) -> None:
    other = rows.select(reversed(rows.columns)).with_columns(extra=pl.lit("x"))
    np.testing.assert_array_equal(scorer.score(other), scorer.score(rows))


# One row scores as it would in a table.

VALUES: dict[str, list[Any]] = {
    "job": ["cook", "pilot", None, "", "NA", float("nan"), 5, True, pd.NA],
    "grade": ["low", "middling", None],
    "city": ["Rome", "Paris", None],
    "member": [True, False, None, "True", "FALSE", "true", 1, 0, 1.0, "1", "maybe", np.True_],
    "rooms": [1, 1.0, "1", "01", "1.0", 99, None, float("nan"), True, "many", np.int64(2), Decimal(3), float("inf")],
    "steps": [3, "3", 3.5, None, -1, 10**6, True, np.int32(7), pd.NA],
    "income": [30.0, 30, " 30.5 ", None, "", float("nan"), float("inf"), float("-inf"), 1e300, -1e300, Decimal("29.99"), 10**18],
    "price": [Decimal("3.10"), 3.1, "3.10", None],
    "born": [date(2023, 12, 25), datetime(2023, 12, 25, 7), "2023-12-25", "2023-12-25T07:00Z", None, "NA", date(1955, 1, 1)],
    "seen": [datetime(2024, 1, 1, 9, 30), "2024-01-01 09:30:59.5", "2024-01-01T09:30:00-0800", None, datetime(1960, 2, 29, 23)],
    "called": [datetime(2024, 1, 1, 9, tzinfo=BERLIN), datetime(2024, 1, 1, 9), "2024-01-01T09:00:00+01:00", None],
    "opens": [time(8, 15), "08:15", "08:15:00.1", None],
    "took": [timedelta(hours=2), 7200, "7200", None, timedelta(days=-1)],
    "tags": [["t1", "t2"], ["t2", "t1", "t1"], ("t1",), [], None, ["new"], ["new", "newer", "t0"], "t1", [None], ["t1", "NA"]],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in VALUES.items() for value in values])
def test_any_value_scores_alone_as_in_a_table(name: str, value: Any, rows: pl.DataFrame, scorer: Scorer) -> None:
    row = rows.row(1, named=True) | {name: value}
    frame = rows[1:2].with_columns(to_polars(pd.DataFrame({name: pd.Series([value], dtype=object)}))[name])
    np.testing.assert_array_equal(scorer.log_odds(frame), [scorer.log_odds_one(row)])
    np.testing.assert_array_equal(scorer.score(frame), [scorer.score_one(row)])


def test_every_row_scores_alone_as_in_its_table(rows: pl.DataFrame, scorer: Scorer) -> None:
    alone = [scorer.score_one(row) for row in rows.iter_rows(named=True)]
    np.testing.assert_array_equal(alone, scorer.score(rows))
    for library in ("pandas", "pandas nullable", "pandas on arrow"):
        alone = [scorer.score_one(row) for row in LIBRARIES[library](rows).to_dict("records")]
        np.testing.assert_array_equal(alone, scorer.score(rows), err_msg=library)


def test_a_log_odds_has_one_probability_alone_and_among_many() -> None:
    log_odds = np.random.default_rng(0).normal(0, 20, 10_000)
    np.testing.assert_array_equal(probabilities(log_odds), [probability(one) for one in log_odds.tolist()])


def test_rows_of_a_file_score_alone_as_together(flat: pl.DataFrame, flat_scorer: Scorer, tmp_path: Path) -> None:
    """Cells as they stand in the file, all of them text."""
    path = as_csv(flat, tmp_path / "rows.csv")
    with open(path, newline="") as lines:
        alone = [flat_scorer.score_one(row) for row in csv.DictReader(lines)]
    np.testing.assert_array_equal(alone, flat_scorer.score(path))


def test_an_absent_column_is_missing_in_a_single_row(rows: pl.DataFrame, scorer: Scorer) -> None:
    nothing = pl.DataFrame({name: [None] for name in rows.columns})
    assert scorer.score_one({}) == scorer.score(nothing)[0]


def test_codes_of_one_row_are_those_of_the_table(rows: pl.DataFrame) -> None:
    encoder = AutoCross(quiet=True, engine="serial", split="random").fit(rows, "bought").model_.producer.encoder
    together = encoder.encode(typed(rows, encoder.schema))
    for at, row in enumerate(rows.iter_rows(named=True)):
        for coded, one in zip(together, encoder.encode_one(row), strict=True):
            expected = coded.codes[at] if coded.starts is None else tuple(coded.codes[coded.starts[at] : coded.starts[at + 1]])
            assert one == expected


# Labels.


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        ([0, 1], (0, 1)),
        ([1.0, 2.0], (1.0, 2.0)),
        (["no", "yes"], ("no", "yes")),
        ([False, True], (False, True)),
        ([Decimal(0), Decimal(1)], (0.0, 1.0)),
        ([date(2024, 1, 1), date(2024, 1, 2)], ("2024-01-01", "2024-01-02")),
    ],
)
def test_labels_are_any_two_values(values: list[Any], classes: tuple[Any, Any]) -> None:
    array = np.array(values, dtype=object if isinstance(values[0], (Decimal, date)) else None)
    found = read_labels(array, "y")
    assert (found.code.tolist(), found.classes) == ([0, 1], classes)
    assert match_labels(array[::-1], "y", found.classes).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("classes", "later"),
    [
        ((False, True), ["False", "True"]),
        (("False", "True"), [False, True]),
        ((0, 1), [False, True]),
        ((False, True), [0, 1]),
        ((0, 1), ["0", "1"]),
        (("0", "1"), [0.0, 1.0]),
        (("no", "yes"), ["no", "yes"]),
    ],
)
def test_labels_may_come_back_in_another_type(classes: tuple[Any, Any], later: list[Any]) -> None:
    assert match_labels(np.array(later), "y", classes).tolist() == [0, 1]


@pytest.mark.parametrize(("values", "positive"), [([0, 1], "0"), ([False, True], "False"), (["a", "b"], "a"), ([0, 1], 0)])
def test_the_positive_label_can_be_named(values: list[Any], positive: Any) -> None:
    assert read_labels(np.array(values), "y", positive).code.tolist() == [1, 0]


def test_a_label_the_model_does_not_know() -> None:
    with pytest.raises(LabelError, match="The target 'y' holds 'maybe' in row 1; the model knows 'no' and 'yes'"):
        match_labels(np.array(["no", "maybe"]), "y", ("no", "yes"))


# Files at URLs.


def test_parquet_files_at_a_url_are_read_like_those_at_a_path(tmp_path: Path) -> None:
    pl.DataFrame({"a": [1, 2], "b": ["x", "y"]}).write_parquet(tmp_path / "1.parquet")
    pl.DataFrame({"a": [3], "b": ["z"]}).write_parquet(tmp_path / "2.parquet")
    assert_frame_equal(files.read(files.place_of(tmp_path.as_uri())), files.read(tmp_path))
    assert files.column_names(files.place_of(tmp_path.as_uri())) == ["a", "b"]


def test_of_a_remote_file_only_the_footer_is_fetched_to_count_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pl.DataFrame({"a": np.random.default_rng(0).random(100_000)})
    rows.write_parquet(tmp_path / "a.parquet")
    remote = Remote((tmp_path / "a.parquet").as_uri())
    assert len(remote.footer().getvalue()) < 10_000
    monkeypatch.setattr(Remote, "whole", None)
    assert files.n_rows(remote) == 100_000


def test_what_a_url_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    with pytest.raises(FileError, match="at a URL only Parquet files can be read"):
        files.read(files.place_of((tmp_path / "a.csv").as_uri()))
    with pytest.raises(FileError, match="There is no file 'file:///"):
        files.read(files.place_of((tmp_path / "b.parquet").as_uri()))
    with pytest.raises(FileError, match="Install what its protocol needs"):
        files.read(files.place_of("nowhere://a.parquet"))


def test_a_store_that_fails_in_its_own_way() -> None:
    class Closed(AbstractFileSystem):  # type: ignore[misc]
        def exists(self, path: str, **options: Any) -> bool:
            raise RuntimeError("no credentials")

    register_implementation("closed", Closed, clobber=True)
    for reader in (files.read, files.bytes_in_memory, files.column_names):
        with pytest.raises(
            FileError, match=r"Cannot reach 'closed://a\.parquet': RuntimeError: no credentials\. Check the address"
        ):
            reader(files.place_of("closed://a.parquet"))
