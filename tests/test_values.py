"""One row against many: a value is read by the same rule alone and in a table, whatever type and library it comes in."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from autocross import AutoCrossClassifier
from autocross.cli import run
from autocross.crossing import CrossCoder
from autocross.encoding.encoder import Encoder
from autocross.encoding.plan import EncodingPlan
from autocross.errors import AutoCrossError, ColumnError, FileError, LabelError, TableError, TableWarning
from autocross.producer.model import Model, Producer
from autocross.serving.scorer import Scorer
from autocross.table import files
from autocross.table.batches import batches
from autocross.table.coerce import moments, numbers, typed
from autocross.table.columns import NO_TIME
from autocross.table.dialect import ANY, Dialect
from autocross.table.frames import to_polars
from autocross.table.inference import infer
from autocross.table.labels import match_labels, read_labels
from autocross.table.values import BLANKS, MIDNIGHT_1970, moment_of, number_of, shown, stored_text, text_of
from strategies import (
    BERLIN,
    DURATIONS,
    MOMENTS,
    NO_MOMENT,
    NOTHING,
    NUMBERS,
    REFUSED,
    TEXTS,
    WHOLE_NUMBERS,
    Colour,
    Stubborn,
    cells,
    spelled_moments,
    spelled_numbers,
)

HUGE = 10**5_000  # more digits than Python turns into text
KINDS = {
    "word": "categorical",
    "flag": "categorical",
    "digit": "categorical",
    "day": "categorical",
    "number": "numerical",
    "when": "time",
    "tags": "multivalue",
    "parts": "multivalue:|",
}


def training() -> pl.DataFrame:
    """A column for each way of reading a value."""
    whole = [0.0, 0.1, 1.0, 1.5, 7.0, 86_400.0, 2.0**53 + 2, 2.0**53 + 4, 2.0**63, 1e22, 1.7e308, -1.0, -1.7e308]
    days = [date(2024, 2, 29), date(1969, 12, 31), date(2024, 2, 28), date(1, 1, 1), date(9999, 12, 31)]
    clocks = [time(8, 15), time(0), time(23, 59)]
    n = len(whole)
    return pl.DataFrame(
        {
            "word": [["a", "b", "red", "true", "7"][at % 5] for at in range(n)],
            "flag": [at % 2 == 0 for at in range(n)],
            "digit": [[0, 1, 7, 2**53 + 1][at % 4] for at in range(n)],
            "day": [days[at % 5] for at in range(n)],
            "number": whole,
            "when": [datetime.combine(days[at % 5], clocks[at % 3]) for at in range(n)],
            "tags": [["a", "b", "7"][: at % 4] for at in range(n)],
            "parts": [["a|b", "a", "7", None][at % 4] for at in range(n)],
        }
    )


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    """A model in which every code has a weight of its own, also those of values that were never seen: their texts are hashed."""
    return scorer_of(KINDS)


@cache
def single_valued() -> tuple[Scorer, Scorer]:
    """The same without lists, so that single rows are scored by compiled code; and one that scores them without it."""
    compiled = scorer_of({name: kind for name, kind in KINDS.items() if not kind.startswith("multivalue")})
    assert compiled.compiled is not None
    by_python = Scorer(compiled.model)
    by_python.__dict__["compiled"] = None
    return compiled, by_python


def scorer_of(kinds: dict[str, str]) -> Scorer:
    frame = training().select([*kinds])
    schema = infer(frame, kinds, {})
    encoder = Encoder.fit(schema, typed(frame, schema).columns, EncodingPlan(1, (20,), cap=3, n_buckets=1 << 16))
    sizes = tuple(field.n_codes for field in encoder.fields)
    crosses = tuple(
        CrossCoder(pair, tuple(sizes[at] for at in pair), np.zeros((0, 2), np.uint32), 1_009) for pair in ((0, 4), (2, 5))
    )
    producer = Producer(encoder, crosses)
    rng = np.random.default_rng(0)
    weights = tuple(rng.normal(0, 1, field.n_codes) for field in producer.fields)
    return Scorer(Model(producer, 0.5, weights, ((0.0, 1.0, 0.0),) * len(weights)))


# Tables that hold the values of a row: the columns by name, and the rows as the library gives them back.

Rows = list[dict[str, Any]]


def objects(values: list[Any]) -> Any:
    found = np.empty(len(values), object)
    for at, value in enumerate(values):
        found[at] = value
    return found


def in_pandas_objects(columns: dict[str, list[Any]]) -> tuple[Any, Rows]:
    frame = pd.DataFrame({name: pd.Series(objects(values), dtype=object) for name, values in columns.items()})
    return frame, rows_of(columns)


def in_array(columns: dict[str, list[Any]]) -> tuple[Any, Rows]:
    frame = to_polars(np.stack([objects(values) for values in columns.values()], axis=1))
    frame.columns = list(columns)
    return frame, rows_of(columns)


def in_polars_objects(columns: dict[str, list[Any]]) -> tuple[Any, Rows]:
    frame = pl.DataFrame([pl.Series(name, [object(), *values], dtype=pl.Object) for name, values in columns.items()])
    return frame[1:], rows_of(columns)


def in_pandas(columns: dict[str, list[Any]]) -> tuple[Any, Rows]:
    frame = pd.DataFrame({name: pd.Series(values) for name, values in columns.items()})
    return frame, rows_of({name: frame[name].to_list() for name in columns})


def in_polars(columns: dict[str, list[Any]]) -> tuple[Any, Rows]:
    check_for_types(columns)
    frame = pl.DataFrame({name: pl.Series(values, strict=True) for name, values in columns.items()})
    return frame, frame.rows(named=True)


def in_pyarrow(columns: dict[str, list[Any]]) -> tuple[Any, Rows]:
    check_for_types(columns)
    table = pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()})
    return table, table.to_pylist()


def check_for_types(columns: dict[str, list[Any]]) -> None:
    """Values that are not all of one type, or beyond it, may end the process in these libraries, where they should raise."""
    for values in columns.values():
        entries = [entry for value in values for entry in (value if isinstance(value, (list, tuple, np.ndarray)) else [value])]
        if len({type(entry) for entry in entries} - {type(None)}) > 1:
            raise TypeError("several types")
        for entry in entries:
            if (isinstance(entry, Decimal) and not entry.is_finite()) or (isinstance(entry, int) and entry.bit_length() > 127):
                raise ValueError("beyond the type")


def rows_of(columns: dict[str, list[Any]]) -> Rows:
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


# What libraries raise where they have no type for some values.
NO_TYPE = (
    *(TypeError, ValueError, ArithmeticError, RuntimeError, AttributeError, pa.ArrowException),
    *(pl.exceptions.PolarsError, pl.exceptions.PanicException),  # up to polars 1 it panics at rows with a day of the year 0
)
OF_OBJECTS = {"pandas objects": in_pandas_objects, "array": in_array, "polars objects": in_polars_objects}
OF_TYPES = {"pandas": in_pandas, "polars": in_polars, "pyarrow": in_pyarrow}


def outcome(score: Callable[[], Any]) -> Any:
    """The scores, or the class of error; any error that is not ours goes on."""
    try:
        return score()
    except AutoCrossError as error:
        assert "olumn" in str(error), error
        return AutoCrossError


def assert_rows_score_as_their_table(scorer: Scorer, table: Any, rows: Rows) -> None:
    absent = {column.name: None for column in scorer.model.producer.encoder.schema}
    alone = outcome(lambda: [scorer.log_odds_one(row) for row in rows])
    compiled, by_python = single_valued()
    assert outcome(lambda: [*map(compiled.log_odds_one, rows)]) == outcome(lambda: [*map(by_python.log_odds_one, rows)])
    frame = to_polars(table)
    whole = frame.with_columns(pl.lit(None).alias(name) for name in absent if name not in frame.columns)
    together = outcome(lambda: scorer.log_odds(whole).tolist())
    assert alone == together


# Numbers as text.


@pytest.mark.slow
@settings(max_examples=500)
@given(spelled_numbers())
@example("\u0663")
@example("\uff11")
@example("1_000")
@example("\x1c1")
@example("+inf")
@example(" 1 ")
def test_a_text_is_the_same_number_alone_and_in_a_table(text: str) -> None:
    try:
        alone = number_of(text)
    except ValueError:
        with pytest.raises(ColumnError, match="Column 'x' is numerical, but row 1 holds"):
            numbers(pl.Series("x", ["1", text]))
    else:
        np.testing.assert_array_equal(numbers(pl.Series("x", ["1", text]))[1], alone)


@given(spelled_numbers())
@example("\u0663")
@example("1_000")
@example("9" * 5_000)
def test_only_ascii_numbers_are_numbers_where_training_had_numbers(text: str) -> None:
    found = stored_text(text, "number")
    try:
        number = number_of(text)
    except ValueError:
        assert found == {"true": "1", "false": "0"}.get(text, text)
    else:
        assert found is None if np.isnan(number) else float(found or "nan") == number


@pytest.mark.parametrize(
    ("text", "number"), [("1", 1.0), ("+1.5", 1.5), (" 1e5\n", 1e5), ("-INF", -np.inf), (".5", 0.5), ("1.", 1.0)]
)
def test_what_a_number_looks_like(text: str, number: float) -> None:
    assert number_of(text) == number == numbers(pl.Series([text]))[0]


@pytest.mark.slow
def test_blanks_are_those_of_polars() -> None:
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    stripped = pl.Series(characters).str.strip_chars().to_list()
    assert {one for one, left in zip(characters, stripped, strict=True) if not left} == set(BLANKS)


# Times as text.


@pytest.mark.slow
@settings(max_examples=500)
@given(spelled_moments())
@example("0000-01-01")
@example("0001-01-01")
@example("9999-12-31T23:59:59.999999999")
@example("2024-01-01 10:00:60")
@example("2024-01-01 24:00")
@example("2024-01-01T10:00+10:75")
@example("2024-01-01T10:00+99:00")
@example("2024-01-01 10:00:00.1234567890123")
def test_a_text_is_the_same_moment_alone_and_in_a_table(text: str) -> None:
    try:
        alone = moment_of(text)
    except ValueError:
        with pytest.raises(ColumnError, match="Column 'x' is time, but row 1 holds"):
            moments(pl.Series("x", ["2024-01-01", text]))
    else:
        expected = NO_TIME if alone is None else (alone - MIDNIGHT_1970) // timedelta(microseconds=1)
        assert moments(pl.Series("x", ["2024-01-01", text]))[1] == expected


FAR = {
    "microseconds": pl.Series([0, 10**18]).cast(pl.Datetime("us")),
    "milliseconds": pl.Series([0, -(10**18)]).cast(pl.Datetime("ms")),
    "in a zone": pl.Series([0, 253_402_300_799_000_000]).cast(pl.Datetime("us", "Asia/Tokyo")),
    "date": pl.Series([0, 10**9], dtype=pl.Int32).cast(pl.Date),
    "year 0": pl.Series([0, -719_163], dtype=pl.Int32).cast(pl.Date),
    "text": pl.Series(["2024-01-01", "0000-01-01"]),
}


@pytest.mark.parametrize("name", ["when", "day"])
@pytest.mark.parametrize("far", FAR)
def test_times_are_of_the_years_1_to_9999(name: str, far: str, scorer: Scorer) -> None:
    rows = pl.DataFrame({other: [None, None] for other in KINDS}).with_columns(FAR[far].alias(name))
    if far == "text" and name == "day":
        return  # a text is a category
    with pytest.raises(ColumnError, match=rf"Column '{name}' is \w+, but row 1 holds .*(years 0001 to 9999)"):
        scorer.score(rows)
    with pytest.raises(ColumnError, match=rf"Column '{name}' is \w+, but the row holds .*(years 0001 to 9999)"):
        scorer.score_one({name: np.datetime64("0000-01-01")})


def test_the_first_and_the_last_moment_are_read() -> None:
    ends = [datetime.min, datetime.max]
    expected = [(end - MIDNIGHT_1970) // timedelta(microseconds=1) for end in ends]
    for series in (pl.Series(ends), pl.Series(["0001-01-01", "9999-12-31 23:59:59.999999"])):
        assert moments(series).tolist() == expected
    assert [moment_of(np.datetime64(end)) for end in ends] == ends


# What is missing.


@pytest.mark.parametrize("value", NOTHING, ids=shown)
@pytest.mark.parametrize("name", KINDS)
def test_missing_is_missing_in_every_kind(name: str, value: Any, scorer: Scorer) -> None:
    if value == " NA " if isinstance(value, str) else False:
        return  # blanks are part of a category
    assert scorer.score_one({name: value}) == scorer.score_one({name: None})


EMPTY = {
    "null": pl.Null, "float": pl.Float64, "integer": pl.Int64, "boolean": pl.Boolean, "text": pl.String, "date": pl.Date,
    "time": pl.Time, "datetime": pl.Datetime("ns"), "zoned": pl.Datetime("us", "Europe/Berlin"), "duration": pl.Duration("ms"),
    "decimal": pl.Decimal(9, 2), "list": pl.List(pl.Int64), "array": pl.Array(pl.Int64, 2), "struct": pl.Struct({"a": pl.Int64}),
    "binary": pl.Binary, "category": pl.Categorical, "enum": pl.Enum(["a"]), "objects": pl.Object,
}  # fmt: skip


@pytest.mark.parametrize("dtype", EMPTY)
@pytest.mark.parametrize("name", KINDS)
def test_a_column_without_any_value_is_missing_whatever_its_type(name: str, dtype: str, scorer: Scorer) -> None:
    frame = pl.DataFrame({other: [None, None] for other in KINDS}).with_columns(pl.Series(name, [None, None], dtype=EMPTY[dtype]))
    assert scorer.score(frame).tolist() == [scorer.score_one({})] * 2


@pytest.mark.slow
@pytest.mark.parametrize("nothing", [float("nan"), np.float32("nan"), Decimal("NaN"), pd.NaT, pd.NA, NO_MOMENT, "NA"])
@pytest.mark.parametrize("name", KINDS)
def test_a_column_of_nothing_but_one_sign_for_missing(name: str, nothing: Any, scorer: Scorer) -> None:
    others = {other: [None, None] for other in KINDS}
    for frame in (
        pd.DataFrame(others | {name: [nothing, nothing]}),
        pd.DataFrame(others | {name: pd.Series([nothing, nothing], dtype=object)}),
    ):
        assert scorer.score(frame).tolist() == [scorer.score_one({})] * 2


def test_a_list_without_a_value_is_empty_and_no_missing_list(scorer: Scorer) -> None:
    empty = scorer.score_one({"tags": []})
    assert empty != scorer.score_one({"tags": None})
    for nothing in (None, float("nan"), np.float32("nan"), Decimal("NaN"), "NA", pd.NaT):
        assert scorer.score_one({"tags": [nothing]}) == empty
        frame = pd.DataFrame({other: [None] for other in KINDS} | {"tags": pd.Series([[nothing]], dtype=object)})
        assert scorer.score(frame).tolist() == [empty]


def test_masked_cells_of_an_array_are_missing() -> None:
    frame = to_polars(np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[True, False], [False, False]]))
    assert frame.to_dict(as_series=False) == {"x0": [None, 3.0], "x1": [2.0, 4.0]}


# Values of any type.


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.datetime64("2024-01-01"), "2024-01-01"),
        (np.datetime64("2024-01-01T08:00", "ns"), "2024-01-01T08:00:00"),
        (pd.Timestamp("2024-01-01 08:00:00.000000001"), "2024-01-01T08:00:00"),
        (np.timedelta64(90, "m"), "5400"),
        (np.longdouble(7), "7"),
        (np.longdouble(2**64 + 1), str(2**64)),
        (Decimal("Infinity"), "inf"),
        (Decimal("sNaN"), None),
        (HUGE, "1" + "0" * 5_000),
        (-HUGE, "-1" + "0" * 5_000),
        ("\ud800", "\ufffd"),
        ("a\ud83d\ude00", "a\N{GRINNING FACE}"),
        (b"", None),
        (bytearray(b"ab"), "6162"),
        (memoryview(b"ab"), "6162"),
        (np.array(7), "7"),
        (pa.scalar(7.0), "7"),
    ],
    ids=shown,
)
def test_the_text_of_a_value(value: Any, text: str | None) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (HUGE, np.inf),
        (-(10**400), -np.inf),
        (Decimal("Infinity"), np.inf),
        (Decimal("1e400"), np.inf),
        (np.longdouble("1e400"), np.inf),
        (Decimal("sNaN"), np.nan),
        (np.timedelta64(1, "W"), 604_800.0),
        (pd.Timedelta(1_500, "ns"), 1e-6),
        (np.array(7), 7.0),
        (pa.scalar(7), 7.0),
    ],
    ids=shown,
)
def test_the_number_of_a_value(value: Any, number: float) -> None:
    np.testing.assert_array_equal(number_of(value), number)


def test_an_integer_is_rounded_before_it_is_compared(scorer: Scorer) -> None:
    """As a column of integers is: 2^53 + 3 is no float, the next one is an edge of the model."""
    frame = pl.DataFrame({name: [None] for name in KINDS}).with_columns(number=pl.Series([2**53 + 3]))
    assert scorer.score(frame).tolist() == [scorer.score_one({"number": 2**53 + 3})] == [scorer.score_one({"number": 2.0**53 + 4})]


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_every_value_alone_as_in_a_table_of_objects(name: str, scorer: Scorer) -> None:
    for value in (
        *NOTHING,
        *WHOLE_NUMBERS,
        *NUMBERS,
        *MOMENTS,
        *DURATIONS,
        *TEXTS,
        *REFUSED,
        [],
        ["a", None],
        {"a"},
        (),
        [["a"]],
        [1j],
    ):
        assert_rows_score_as_their_table(scorer, *in_pandas_objects({name: [value]}))


@pytest.mark.slow
@pytest.mark.parametrize("library", OF_TYPES)
@pytest.mark.parametrize("name", KINDS)
def test_every_value_alone_as_in_a_table_of_its_type(name: str, library: str, scorer: Scorer) -> None:
    for value in (
        *NUMBERS,
        *WHOLE_NUMBERS,
        *MOMENTS,
        *DURATIONS,
        *TEXTS,
        ["a", None],
        [1, 2],
        [date(2024, 2, 29)],
        [1.5, float("nan")],
    ):
        try:
            table, rows = OF_TYPES[library]({name: [value, None]})
        except NO_TYPE:
            continue
        assert_rows_score_as_their_table(scorer, table, rows)


def columns_of(min_size: int = 1) -> st.SearchStrategy[dict[str, list[Any]]]:
    """Cells for some of the columns, as many for each."""

    def even(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
        n_rows = min(map(len, columns.values()))
        return {name: values[:n_rows] for name, values in columns.items()}

    return st.dictionaries(st.sampled_from(list(KINDS)), cells(), min_size=min_size, max_size=3).map(even)


@pytest.mark.slow
@settings(max_examples=150)
@given(columns=columns_of(), library=st.sampled_from(list(OF_OBJECTS)))
@example(columns={"tags": [np.float32("nan"), Decimal("NaN")]}, library="pandas objects")
@example(columns={"tags": [[np.float32("nan")], [Decimal("NaN"), "a"]]}, library="pandas objects")
@example(columns={"number": [True, "2.5"]}, library="pandas objects")
@example(columns={"number": [Decimal("Infinity"), Decimal("1e-30")]}, library="pandas objects")
@example(columns={"when": [datetime(2024, 2, 29, 23, tzinfo=UTC), "2024-02-29"]}, library="array")
@example(columns={"word": ["\ud800", 1j]}, library="array")
@example(columns={"word": [None, Colour.RED, Colour.BLUE]}, library="polars objects")
@example(columns={"word": [np.datetime64("2024-02-29"), HUGE]}, library="polars objects")
@example(columns={"digit": ["\u0663", np.longdouble(7)]}, library="array")
@example(columns={"tags": [b"ab", {"a": 1}]}, library="pandas objects")
@example(columns={"parts": [(part for part in "ab")]}, library="pandas objects")
def test_any_rows_score_alone_as_in_a_table_of_objects(columns: dict[str, list[Any]], library: str, scorer: Scorer) -> None:
    assert_rows_score_as_their_table(scorer, *OF_OBJECTS[library](columns))


@pytest.mark.slow
@settings(max_examples=150)
@given(columns=columns_of(), library=st.sampled_from(list(OF_TYPES)))
@example(columns={"word": [np.timedelta64(-1, "ns")]}, library="pyarrow")
@example(columns={"number": [complex("nan")]}, library="pandas")
@example(columns={"number": [timedelta.max], "word": [timedelta.max]}, library="polars")
@example(columns={"when": [np.float32("nan")], "tags": [float("nan")]}, library="pandas")
@example(columns={"word": [datetime(2024, 2, 29, 23, tzinfo=BERLIN)], "day": [date(2024, 2, 29)]}, library="polars")
def test_any_rows_score_alone_as_in_a_table_of_types(columns: dict[str, list[Any]], library: str, scorer: Scorer) -> None:
    try:
        table, rows = OF_TYPES[library](columns)
    except NO_TYPE:
        assume(False)
    assert_rows_score_as_their_table(scorer, table, rows)


CSV_CELLS = ["7", "007", "7.0", "+7", " 7", "1e0", "1.5", str(2**53 + 1), "9" * 50, "True", "1.0", "0.0", "a", "NA", "", "inf"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["word", "flag", "digit", "day", "tags", "parts", "number"])
@pytest.mark.parametrize("cells", [*([cell] for cell in CSV_CELLS), ["1.5", str(2**53 + 1)], ["1", "a"], ["007", "7.0"]], ids=shown)
def test_rows_of_a_csv_file_score_alone_as_together(name: str, cells: list[str], scorer: Scorer, tmp_path: Path) -> None:
    """What a reader of the file would make of a column does not change what its cells mean."""
    if name == "number" and not {"a", "True"}.isdisjoint(cells):
        return  # no numbers
    path = tmp_path / "rows.csv"
    path.write_text(
        ",".join(KINDS) + "\n" + "".join(",".join(cell if other == name else "" for other in KINDS) + "\n" for cell in cells)
    )
    assert scorer.score(path).tolist() == [scorer.score_one({name: cell}) for cell in cells]


# Fits to such columns.


def fitted(frame: Any, **options: Any) -> AutoCrossClassifier:
    return AutoCrossClassifier(quiet=True, engine="serial", split="random", **options).fit(frame, [0, 1] * 30)


def odd(values: list[Any], library: str) -> Any:
    """A table of 60 rows with a column of these values and one of jobs."""
    table, _ = OF_OBJECTS[library]({"odd": (values * 60)[:60], "job": ["cook", "nurse", "clerk"] * 20})
    return table


READ: dict[str, tuple[list[Any], str]] = {
    "decimals beyond polars": ([Decimal("Infinity"), Decimal("1" * 50), Decimal("1e-30"), Decimal("NaN")], "numerical"),
    "decimals that polars would lose": ([Decimal("1e30"), Decimal("1e-30"), Decimal("0.5")], "numerical"),
    "long doubles": ([np.longdouble("1e400"), np.longdouble("0.1"), np.longdouble("nan")], "numerical"),
    "integers beyond any type": ([HUGE, 7, -HUGE], "categorical"),
    "half a surrogate pair": (["\ud800", "a", "b\udfff"], "categorical"),
    "moments of NumPy": ([np.datetime64("2024-02-29"), np.datetime64("2023-01-01T08", "ns"), NO_MOMENT], "time"),
    "durations of NumPy": ([np.timedelta64(90, "m"), np.timedelta64(1, "W"), timedelta(1)], "numerical"),
    "wall clocks in several zones": ([datetime(2024, 2, 29, 8, tzinfo=BERLIN), datetime(2024, 2, 28, 8, tzinfo=UTC)], "time"),
    "members of an enumeration": ([Colour.RED, Colour.BLUE], "categorical"),
    "lists of dates": ([[date(2024, 2, 29)], [np.datetime64("2024-02-29"), None], []], "multivalue"),
    "sets": ([{"a"}, frozenset({"b", "a"}), set()], "multivalue"),
}  # fmt: skip


@pytest.mark.parametrize("library", OF_OBJECTS)
@pytest.mark.parametrize("name", READ)
def test_a_fit_to_odd_values_scores_its_own_rows(name: str, library: str) -> None:
    values, kind = READ[name]
    model = fitted(odd(values, library))
    (column,) = [column for column in model.model_.producer.encoder.schema if column.name == "odd"]
    assert column.kind == kind
    rows = [{"odd": value, "job": job} for value, job in zip((values * 60)[:60], ["cook", "nurse", "clerk"] * 20, strict=True)]
    assert [model.scorer_.score_one(row) for row in rows] == model.predict_proba(odd(values, library))[:, 1].tolist()


@pytest.mark.filterwarnings("ignore::autocross.errors.TableWarning")
@settings(max_examples=25)
@given(values=cells(), library=st.sampled_from(list(OF_OBJECTS)))
def test_a_fit_to_any_values_scores_its_own_rows_or_is_refused(values: list[Any], library: str) -> None:
    try:
        model = fitted(odd(values, library), max_crosses=0)
    except AutoCrossError as error:
        assert "olumn" in str(error), error
        return
    rows = [{"odd": value, "job": "cook"} for value in values]
    table, _ = OF_OBJECTS[library]({"odd": values, "job": ["cook"] * len(values)})
    assert [model.scorer_.score_one(row) for row in rows] == model.predict_proba(table)[:, 1].tolist()


UNREAD: dict[str, tuple[list[Any], str]] = {
    "complex": ([1 + 2j, 3j], r"row 0 holds \(1\+2j\)\. Give real and imaginary parts as two columns"),
    "complex of NumPy": ([1.5, np.complex64(2j)], r"row 1 holds .*2j.*\. Give real and imaginary parts as two columns"),
    "far": ([np.datetime64("2024-01-01"), np.datetime64("10000-01-01")], r"row 1 holds .*10000-01-01.* of the years 0001 to 9999"),
    "years": ([np.timedelta64(1, "Y"), np.timedelta64(2, "Y")], r"row 0 holds .*'Y'.*Give durations in weeks or shorter units"),
    "lists beside values": ([["a"], "b"], r"row 0 holds \['a'\]\. Give one value"),
    "without a text": ([Stubborn(), "a"], r"row 0 holds Stubborn\(\)\. Give a value that has a text"),
}  # fmt: skip


@pytest.mark.parametrize("library", OF_OBJECTS)
@pytest.mark.parametrize("name", UNREAD)
def test_a_fit_to_values_that_cannot_be_read(name: str, library: str) -> None:
    values, message = UNREAD[name]
    with pytest.raises(ColumnError, match=f"Column 'odd' is categorical, but {message}"):
        fitted(odd(values, library))
    model = fitted(odd(values, library), exclude=["odd"])
    assert model.predict_proba(odd(values, library)).shape == (60, 2)


@pytest.mark.parametrize("beside", [[], [None], ["7"]], ids=["alone", "beside nothing", "beside a value"])
@pytest.mark.parametrize("value", [["7"], ("7",), np.array(["7"]), np.array([7.0]), np.array(["2024-02-29"], "M8[D]")], ids=repr)
@pytest.mark.parametrize("name", KINDS)
def test_a_list_of_one_value_is_no_value(name: str, value: Any, beside: list[Any], scorer: Scorer) -> None:
    """Wherever it stands, it is refused in the same words, unless the column is multi-value."""
    nothing: dict[str, list[Any]] = {other: [None] * (1 + len(beside)) for other in KINDS}
    table, _ = in_pandas_objects({**nothing, name: [value, *beside]})
    if KINDS[name].startswith("multivalue"):
        assert scorer.score(table)[0] == scorer.score_one({name: value}) == scorer.score_one({name: value[0]})
        return
    told = f"Column '{name}' is {KINDS[name]}, but {{}} holds .*(7|2024).*\\. Give one value\\.$"
    with pytest.raises(ColumnError, match=told.format("the row")):
        scorer.score_one({name: value})
    with pytest.raises(ColumnError, match=told.format("row 0")):
        scorer.score(table)


def test_a_declared_kind_reads_values_of_any_type() -> None:
    for values, kind in (
        ([1, "2.5", True], "numerical"),
        (["2024-02-29", date(2024, 2, 28)], "time"),
        ([["a"], "b|a"], "multivalue:|"),
    ):
        model = fitted(odd(values, "pandas objects"), types={"odd": kind})
        table, rows = in_pandas_objects({"odd": values, "job": ["cook"] * len(values)})
        assert [model.scorer_.score_one(row) for row in rows] == model.predict_proba(table)[:, 1].tolist()


LEFT_OUT: dict[str, list[Any]] = {
    "lists of lists": [[["a"]], [["b"], []]],
    "lists of arrays": [[np.array(["a"])], [np.array(["b"]), np.array([])]],
    "arrays of arrays": [objects([np.array(["a"], dtype=object)]), objects([np.array(["b", "a"], dtype=object)])],
    "arrays of arrays of arrays": [objects([objects([np.array(["a"], dtype=object)])])],
    "tables in cells": [np.array([["a"]]), np.array([["b"]])],
    "mappings": [{"a": 1}, {"a": 2}],
}


@pytest.mark.parametrize("values", LEFT_OUT.values(), ids=list(LEFT_OUT))
def test_columns_that_polars_has_a_type_for_are_left_out_as_in_a_frame_of_polars(values: list[Any]) -> None:
    with pytest.warns(TableWarning, match="Column 'odd' is left out: values of type .* cannot be read"):
        fitted(odd(values, "pandas objects"))


@pytest.mark.parametrize("name", KINDS)
def test_categories_of_pandas_are_their_values(name: str, scorer: Scorer) -> None:
    for values in (["a", None], [7, 1], [0.1, None], [date(2024, 2, 29)], [pd.Timestamp("2024-02-29 08:15")], [1j]):
        frame = pd.DataFrame({name: pd.Series(pd.Categorical(objects(values)))})
        assert_rows_score_as_their_table(scorer, frame, [{name: value} for value in values])


def test_durations_beyond_those_of_python_are_refused(scorer: Scorer) -> None:
    far = pd.Series(np.array([2**60], "m8[s]"))
    for table in (pd.DataFrame({"number": far}), pl.DataFrame({"number": [2**60]}, {"number": pl.Duration("ms")})):
        with pytest.raises(ColumnError, match="Column 'number' is numerical, but row 0 holds"):
            scorer.score(to_polars(table).with_columns(pl.lit(None).alias(other) for other in KINDS if other != "number"))
    with pytest.raises(ColumnError, match="Column 'number' is numerical, but the row holds Timedelta"):
        scorer.score_one({"number": far[0]})


def test_objects_in_arrays_of_polars(scorer: Scorer) -> None:
    frame = pl.DataFrame({"tags": pl.Series([np.array([1, "a"], dtype=object)])})
    assert frame.schema["tags"].inner == pl.Object  # type: ignore[attr-defined]
    assert_rows_score_as_their_table(scorer, frame, [{"tags": [1, "a"]}])


def test_arrow_types_that_polars_does_not_have(scorer: Scorer) -> None:
    columns = {
        "number": pa.array([Decimal("1.50"), None], pa.decimal256(50, 2)),
        "word": pa.array([uuid.UUID(int=7).bytes, None], pa.uuid()),
        "tags": pa.array([["a", "b"], None], pa.list_view(pa.string())),
    }
    table = pa.table(columns)
    assert_rows_score_as_their_table(scorer, table, table.to_pylist())


def test_a_column_whose_library_cannot_give_its_values() -> None:
    far = pd.Series([10**9], dtype="int32").astype(pd.ArrowDtype(pa.date32()))
    with pytest.raises(TableError, match=r"Column 'x' cannot be read: .*\. Convert it to another type, or leave it out"):
        to_polars(pd.DataFrame({"x": far}))


def test_a_column_name_that_cannot_be_written() -> None:
    with pytest.raises(TableError, match=r"Column name '\\ud800' is no text that can be written\. Rename the column"):
        fitted(pd.DataFrame(np.zeros((60, 1)), columns=pd.Index(["\ud800"], dtype=object)))


# Integers of more digits than Python turns into text.


def test_an_integer_without_end_in_a_row(scorer: Scorer) -> None:
    assert scorer.score_one({"number": HUGE}) == scorer.score_one({"number": float("inf")})
    assert scorer.score_one({"word": HUGE}) == scorer.score_one({"word": "1" + "0" * 5_000})
    with pytest.raises(ColumnError, match=r"Column 'when' is time, but the row holds a whole number of 16,610 bits\. Write dates"):
        scorer.score_one({"when": HUGE})


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (HUGE, "The target 'y' holds a whole number of 16,610 bits. Use labels of at most 4,000 digits"),
        ("\ud800", r"The target 'y' holds '\\ud800'. Use labels that can be written"),
        (1 + 2j, r"The target 'y' holds \(1\+2j\). Give real and imaginary parts"),
        (Decimal("sNaN"), "The target 'y' is missing in 30 rows, first in row 0"),
    ],
    ids=["integer", "surrogate", "complex", "signalling NaN"],
)
def test_a_label_that_can_be_none(label: Any, message: str) -> None:
    with pytest.raises(LabelError, match=message):
        AutoCrossClassifier(quiet=True).fit(
            pd.DataFrame({"job": ["cook", "nurse"] * 30}), pd.Series([label, 0] * 30, dtype=object, name="y")
        )
    with pytest.raises(LabelError, match=re.escape(f"Option positive={shown(label)} is no label of 'y', which holds 0 and 1")):
        read_labels(np.array([0, 1]), "y", positive=label)
    with pytest.raises(LabelError, match="The target 'y'"):
        match_labels(objects([0, label]), "y", (0, 1))


def test_an_integer_without_end_in_files_and_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train, rows, model = (str(tmp_path / name) for name in ("train.csv", "rows.csv", "model.acx"))
    Path(train).write_text("n,id,y\n" + "".join(f"{at % 15},{at % 3},{at % 2}\n" for at in range(60)))
    Path(rows).write_text(f"n,id\n1,1\n{'9' * 5_000},{'9' * 5_000}\n")
    assert run(["fit", train, "--target", "y", "-o", model, "--quiet", "--engine", "serial"]) == 0
    assert run(["predict", model, rows]) == 0
    in_file = capsys.readouterr().out.splitlines()[-1].split(",")[0]
    assert run(["explain", model, f'{{"n": {"9" * 5_000}, "id": {"9" * 5_000}}}', "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["probability"] == float(in_file)
    Path(rows).write_text(f"n,id,y\n1,1,0\n2,2,{'9' * 5_000}\n")
    assert run(["evaluate", model, rows]) == 2
    assert "error: The target 'y' holds '9999" in capsys.readouterr().err


def test_a_fit_to_a_file_of_integers_without_end(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("id,y\n" + f"1,0\n{'9' * 5_000},1\n" * 30)
    model = AutoCrossClassifier(quiet=True, engine="serial").fit(str(path), "y")
    alone = [model.scorer_.score_one({"id": value}) for value in (1, 10**5_000 - 1)]
    assert alone == model.predict_proba(str(path))[:2, 1].tolist()
    assert alone[0] < 0.5 < alone[1]


def test_a_file_read_part_by_part_names_the_column_of_such_an_integer(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("id,y\n1,0\n" + "9" * 5_000 + ",1\n")
    with pytest.raises(
        FileError, match=r"could not parse `9+ \.\.\. 9+` as dtype `i\d+` at column 'id'.*Declare the column's kind"
    ):
        list(batches(path, ANY, files.whole_files(path)))
    assert [frame["id"].to_list() for frame in batches(path, Dialect(["id"]), files.whole_files(path))] == [["1", "9" * 5_000]]
