"""Every export scores every row as the model does, whatever stands in it."""

from __future__ import annotations

import json
import math
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime, time
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl
import pytest

import exported_c
import exported_sql
from autocross import export, load
from autocross.cli import run
from autocross.commands.export import To
from autocross.errors import OptionError
from autocross.estimator import AutoCrossClassifier
from autocross.exporting.description import describe
from autocross.exporting.formats import FORMATS
from autocross.exporting.reader import Reader, xxh64
from autocross.producer import bundle
from autocross.serving.scorer import probability
from autocross.table.schema import ColumnSchema
from autocross.table.values import stored_text
from conftest import DATA
from exported import categories_and_numbers, every_kind, loose_rows, saved, typed_rows

pytestmark = pytest.mark.slow  # all of it takes seconds, and few changes touch it

Rows = list[dict[str, Any]]
ROOT = Path(__file__).parents[1]
NEAR = 1e-9


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of every kind of field and cross."""
    return saved(every_kind(), tmp_path_factory.mktemp("model") / "model.acx")


@pytest.fixture(scope="module")
def with_buckets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with hashed codes."""
    return saved(every_kind(buckets=True), tmp_path_factory.mktemp("model") / "model.acx")


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    """A PostgreSQL server, if a test needs it."""
    with exported_sql.STARTED:
        yield


def exported(model: Path, folder: Path, to: str, *flags: str) -> Path:
    """The export of a model, by the command."""
    out = folder / f"{to}{''.join(flags).replace('-', '_')}"
    to, _, dialect = to.partition(" ")
    flags = (*flags, "--dialect", dialect, "--key", "id;--") if dialect else flags
    assert run(["export", str(model), "--to", to, "-o", str(out), *flags]) == 0
    return out


def python_module(path: Path) -> dict[str, Any]:
    """The names of an exported Python file."""
    names: dict[str, Any] = {"__name__": "exported_model"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names


def reader_of_the_docs(path: Path) -> dict[str, Any]:
    """The names of the reader in docs/exports.md, which has forty lines beside its imports."""
    (code,) = re.findall(r"```python\n(import json\n.*?)```", (ROOT / "docs" / "exports.md").read_text(), re.DOTALL)
    assert len([line for line in code.splitlines() if line and not line.startswith(("import", "from"))]) <= 40
    names: dict[str, Any] = {}
    exec(code.replace('"model.json"', repr(str(path))), names)
    return names


# How rows are scored in each format: log-odds, probabilities and, if the file has them, the reasons of every row.


def by_python(path: Path, rows: Rows) -> Any:
    names = python_module(path)
    reasons = [names["reasons_one"](row) for row in rows] if "reasons_one" in names else []
    return [names["log_odds_one"](row) for row in rows], [names["score_one"](row) for row in rows], reasons


def by_json(path: Path, rows: Rows) -> Any:
    rows = [{name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()} for row in rows]
    log_odds_one = reader_of_the_docs(path)["log_odds_one"]
    log_odds = [log_odds_one(row) for row in rows]
    document = json.loads(path.read_text())
    reasons = [Reader(document).reasons_one(row) for row in rows] if "mean" in document else []
    return log_odds, [probability(one) for one in log_odds], reasons


def by_c(path: Path, rows: Rows) -> Any:
    if shutil.which("gcc") is None:
        pytest.skip("there is no C compiler")
    folder = path.with_name(f"{path.name}_built")
    folder.mkdir()
    model = bundle.read(path.parent / "model.acx")
    described = describe(model, b"autocross_reasons" in path.read_bytes())
    log_odds, scores, *reasons = zip(*exported_c.scored(path, described, rows, folder), strict=True)
    names = [column.name for column in described.columns]
    return log_odds, scores, [dict(zip(names, own, strict=True)) for own in zip(*reasons, strict=True)]


def by_sql(path: Path, rows: Rows, dialect: str) -> Any:
    described = describe(bundle.read(path.parent / "model.acx"))
    columns = [(column.name, exported_sql.type_of(column, dialect)) for column in described.columns]
    cells = [[number, *(row.get(name) for name, _ in columns)] for number, row in enumerate(rows)]
    found = exported_sql.RUN[dialect](path.read_text(), [("id;--", "INTEGER"), *columns], cells)
    found.sort(key=lambda row: row["id;--"])  # rows of a table have no order
    assert [row["id;--"] for row in found] == [*range(len(rows))]
    reasons = [{name: row[f"reason_{name}"] for name, _ in columns} for row in found if len(row) > 3]
    return [row["log_odds"] for row in found], [row["probability"] for row in found], reasons


def by_onnx(path: Path, rows: Rows) -> Any:
    import onnx
    import onnxruntime

    onnx.checker.check_model(onnx.load(path), full_check=True)
    schema = bundle.read(path.parent / "model.acx").producer.encoder.schema
    inputs: dict[str, Any] = {}
    for column in schema:
        values = [row.get(column.name) for row in rows]
        if column.reading == "moment":
            values = [None if value is None else (value - datetime(1970, 1, 1)).total_seconds() for value in values]
        if column.reading in ("number", "moment"):
            inputs[column.name] = np.array([[math.nan if value is None else value] for value in values], np.float64)
        elif column.reading is not None:
            inputs[column.name] = np.array([[in_onnx(value, column)] for value in values], object)
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    assert [(one.name, one.shape) for one in session.get_inputs()] == [(name, ["n", 1]) for name in inputs]
    found = session.run(["log_odds", "probability"], inputs)
    assert all(one.shape == (len(rows), 1) for one in found)
    return found[0][:, 0], found[1][:, 0], []


def in_onnx(value: Any, column: ColumnSchema) -> str:
    """A category or a list as a graph takes it: numbers as they are written, and lists with a separator behind each entry."""
    if column.kind == "categorical":
        return stored_text(value, column.stored) or ""
    return "".join(f"{entry or ''}|" for entry in value) or "|" if isinstance(value, list) else value or ""


JPMML = """
import pickle, sys
from jpmml_evaluator import make_evaluator
evaluator = make_evaluator(sys.argv[1], backend="jpype")
with open(sys.argv[2], "rb") as file:
    found = [evaluator.evaluate(row) for row in pickle.load(file)]
with open(sys.argv[3], "wb") as file:
    pickle.dump([(row["log_odds"], row["probability"]) for row in found], file)
"""


def by_pmml(path: Path, rows: Rows) -> Any:
    """In a process of its own, which holds the Java machine."""
    if shutil.which("java") is None or find_spec("jpmml_evaluator") is None:
        pytest.skip("there is no evaluator of PMML")
    schema = bundle.read(path.parent / "model.acx").producer.encoder.schema
    cells = [
        {column.name: as_category(row.get(column.name), column) for column in schema if column.kind != "ignore"} for row in rows
    ]
    given, found = path.with_name("given"), path.with_name("found")
    given.write_bytes(pickle.dumps(cells))
    command = [sys.executable, "-W", "ignore", "-c", JPMML, str(path), str(given), str(found)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    log_odds, scores = zip(*pickle.loads(found.read_bytes()), strict=True)
    return log_odds, scores, []


def as_category(value: Any, column: ColumnSchema) -> Any:
    """A category that was a number as the number is written; other values as they are."""
    digits = column.kind == "categorical" and column.stored != "text"
    return stored_text(value, column.stored) if digits else value


RUNNERS: dict[str, Callable[[Path, Rows], Any]] = {
    "json": by_json,
    "python": by_python,
    "c": by_c,
    "onnx": by_onnx,
    "pmml": by_pmml,
} | {f"sql {dialect}": partial(by_sql, dialect=dialect) for dialect in exported_sql.RUN}
C = pytest.param("c", marks=pytest.mark.slow)
SQL = [pytest.param(f"sql {dialect}", marks=pytest.mark.slow) for dialect in exported_sql.RUN]
ONNX = pytest.param("onnx", marks=pytest.mark.slow)
TYPED = ["json", "python", C, *SQL, ONNX]
LOOSE = ["json", "python"]
WITH_REASONS = ["json", "python", C, *SQL]
WITH_BUCKETS = ["python", C]


def check_parity(model: Path, folder: Path, to: str, rows: Rows, *flags: str) -> None:
    """The export has the scores of the model, and its reasons if they are asked for."""
    scorer = load(model)
    expected = [scorer.log_odds_one(row) for row in rows]
    shutil.copy(model, folder / "model.acx")  # some need to know the columns
    found, scores, reasons = RUNNERS[to](exported(model, folder, to, *flags), rows)
    np.testing.assert_allclose(found, expected, rtol=0, atol=NEAR)
    np.testing.assert_allclose(scores, [probability(one) for one in expected], rtol=0, atol=NEAR)
    if "--reasons" in flags:
        assert len(reasons) == len(rows)
        for row, own in zip(rows, reasons, strict=True):
            told = {reason.name: reason.contribution for reason in scorer.explain(row).reasons}
            assert own == pytest.approx(told, abs=NEAR)


@pytest.mark.parametrize("to", TYPED)
def test_every_export_scores_as_the_model_does(to: str, model: Path, tmp_path: Path) -> None:
    check_parity(model, tmp_path, to, typed_rows())


@pytest.mark.parametrize("to", WITH_REASONS)
def test_reasons_are_those_of_explain(to: str, model: Path, tmp_path: Path) -> None:
    check_parity(model, tmp_path, to, typed_rows(50), "--reasons")


@pytest.mark.parametrize("to", LOOSE)
def test_values_of_other_types_are_read_as_the_model_reads_them(to: str, model: Path, tmp_path: Path) -> None:
    check_parity(model, tmp_path, to, loose_rows())


@pytest.mark.parametrize("to", WITH_BUCKETS)
def test_hashed_codes_are_found(to: str, with_buckets: Path, tmp_path: Path) -> None:
    check_parity(with_buckets, tmp_path, to, typed_rows())


@pytest.mark.slow
def test_pmml_scores_categories_and_numbers_as_the_model_does(tmp_path: Path) -> None:
    model = saved(categories_and_numbers(), tmp_path / "simple.acx")
    check_parity(model, tmp_path, "pmml", typed_rows())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adult_train", "bank", "credit", "employee", "criteo"])
def test_pmml_scores_real_tables(name: str, real_tables: Callable[[str], tuple[Path, Rows]], tmp_path: Path) -> None:
    model, rows = real_tables(name)
    check_parity(model, tmp_path, "pmml", rows[:100])


REAL = ["adult_train", "bank", "credit", "employee", "criteo", "movielens"]


@pytest.fixture(scope="module")
def real_tables(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Rows]]:
    """A model of some rows of a real table, and other rows of it, whose values have the types of their columns."""

    @cache
    def fitted(name: str) -> tuple[Path, Rows]:
        if not (DATA / f"{name}.parquet").exists():
            pytest.skip(f"the benchmark table {name} is not here")
        rows = pl.read_parquet(DATA / f"{name}.parquet").sample(3_300, seed=0)
        model = tmp_path_factory.mktemp(name) / "model.acx"
        classifier = AutoCrossClassifier(quiet=True, engine="serial").fit(rows[:3_000], "label")
        classifier.save(model)
        kinds = {column.name: column.kind for column in classifier.model_.producer.encoder.schema}
        as_types = [pl.col(name).cast(pl.Float64) for name, kind in kinds.items() if kind == "numerical"]
        as_types += [pl.col(name).cast(pl.String) for name, kind in kinds.items() if kind == "categorical"]
        return model, rows[3_000:].with_columns(as_types).rows(named=True)

    return fitted


@pytest.mark.parametrize("to", [pytest.param(to, marks=pytest.mark.slow) for to in RUNNERS if to != "pmml"])
@pytest.mark.parametrize("name", REAL)
def test_real_tables_are_scored_as_the_model_scores_them(
    name: str, to: str, real_tables: Callable[[str], tuple[Path, Rows]], tmp_path: Path
) -> None:
    model, rows = real_tables(name)
    check_parity(model, tmp_path, to, rows)


# JSON and Python.


def test_the_json_export_says_its_version(model: Path, tmp_path: Path) -> None:
    document = json.loads(exported(model, tmp_path, "json").read_text())
    assert (document["format"], document["version"]) == ("autocross-model", 1)
    assert [column["name"] for column in document["columns"]][:3] == ["select", 'a"b', "zip"]
    assert "mean" not in document


def test_the_python_export_needs_the_standard_library_only(model: Path, tmp_path: Path) -> None:
    path = exported(model, tmp_path, "python", "--reasons").rename(tmp_path / "scores.py")
    assert path.read_bytes().isascii()
    code = "import sys; sys.path.insert(0, '.'); import scores; print(scores.score_one({'select': 'cook'}))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert float(done.stdout) == pytest.approx(load(model).score_one({"select": "cook"}), abs=NEAR)


def test_the_python_export_refuses_what_the_model_refuses(model: Path, tmp_path: Path) -> None:
    score_one = python_module(exported(model, tmp_path, "python"))["score_one"]
    for row in ({'a"b': "seven"}, {'a"b': [1]}, {"double": "yesterday"}, {"double": 5}, {"select": ["a"]}, {"tags": {"a": 1}}):
        with pytest.raises(ValueError, match=re.escape(f"Column {next(iter(row))!r} holds")):
            score_one(row)
        with pytest.raises(ValueError, match="Column"):
            load(model).score_one(row)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 7, 8, 15, 31, 32, 33, 100])
def test_the_hash_is_xxh64(size: int) -> None:
    import xxhash

    data = bytes(range(size))
    assert xxh64(data) == xxhash.xxh64_intdigest(data)


# SQL.

NUMBER, MOMENT = 'a"b', "double"
# Columns of other types than the usual ones: how a database has a value, and what it is for the model.
OTHER_TYPES: list[tuple[str, str, Any, Any]] = [
    *((NUMBER, "VARCHAR", text, text) for text in ("3.5", " 40 ", "NA", "", "-inf", "1e-3", "+2", "5.", ".5", "Infinity", "nan")),
    (NUMBER, "INTEGER", 40, 40),
    (NUMBER, "REAL", 0.1, float(np.float32(0.1))),
    (NUMBER, "BOOLEAN", True, True),
    (NUMBER, "DECIMAL(10, 2)", 40.25, 40.25),
    ("zip", "INTEGER", 39353, 39353),
    ("zip", "DOUBLE PRECISION", 39353.0, 39353),
    ("zip", "DOUBLE PRECISION", 1.5, 1.5),
    ("zip", "DOUBLE PRECISION", math.inf, math.inf),
    ("zip", "DOUBLE PRECISION", 1e-05, 1e-05),
    ("member", "BOOLEAN", True, True),
    ("member", "BOOLEAN", False, False),
    ("member", "INTEGER", 1, 1),
    ("tags", "VARCHAR", "cook", "cook"),
    *((MOMENT, "VARCHAR", text, text) for text in (
        "2003-07-06", "2003-07-06 05:04", "2003-07-06T05:04:03", "2003-07-06 05:04:03.25", "2003-07-06 05:04:03Z", "05:04", " NA ",
        "2003-07-06T23:04:03.123456+02:00", "2003-07-06 05:04:03-0130", "1969-12-31 23:59:59.999999", "0001-01-01", "05:04:03.5",
    )),
    (MOMENT, "DATE", date(2003, 7, 6), date(2003, 7, 6)),
    (MOMENT, "TIME", time(5, 4, 3), time(5, 4, 3)),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("dialect", exported_sql.RUN)
def test_columns_of_other_types_are_read_as_the_model_reads_them(dialect: str, model: Path, tmp_path: Path) -> None:
    query = exported(model, tmp_path, f"sql {dialect}").read_text()
    usual = {column.name: exported_sql.type_of(column, dialect) for column in describe(bundle.read(model)).columns}
    by_type: dict[tuple[str, str], list[tuple[Any, Any]]] = {}
    for name, kind, value, known in OTHER_TYPES:
        by_type.setdefault((name, kind), []).append(
            (value.isoformat() if dialect == "sqlite" and hasattr(value, "isoformat") else value, known)
        )
    for (name, kind), pairs in by_type.items():
        columns = [("id;--", "INTEGER"), *(usual | {name: "" if dialect == "sqlite" else kind}).items()]
        cells = [[value if column == name else None for column, _ in columns] for value, _ in pairs]
        found = [row["log_odds"] for row in exported_sql.RUN[dialect](query, columns, cells)]
        expected = [load(model).log_odds_one({name: known}) for _, known in pairs]
        assert found == pytest.approx(expected, abs=NEAR), (name, kind, pairs)


@pytest.mark.slow
@pytest.mark.parametrize("dialect", exported_sql.RUN)
@pytest.mark.parametrize(("name", "value"), [(NUMBER, "seven"), (NUMBER, "1 2"), (MOMENT, "yesterday")])
def test_a_query_fails_where_the_model_refuses_a_value(dialect: str, name: str, value: str, model: Path, tmp_path: Path) -> None:
    query = exported(model, tmp_path, f"sql {dialect}").read_text()
    usual = {column.name: exported_sql.type_of(column, dialect) for column in describe(bundle.read(model)).columns}
    columns = [("id;--", "INTEGER"), *(usual | {name: "" if dialect == "sqlite" else "VARCHAR"}).items()]
    cells = [[value if column == name else None for column, _ in columns]]
    with pytest.raises(Exception, match=r"(?i)convert|malformed|invalid"):
        exported_sql.RUN[dialect](query, columns, cells)


@pytest.mark.slow
@pytest.mark.parametrize("dialect", exported_sql.RUN)
def test_a_table_may_have_any_name_and_no_key(dialect: str, model: Path, tmp_path: Path) -> None:
    table, out = 'my "rows"; DROP TABLE x; --', tmp_path / "out"
    assert run(["export", str(model), "--to", "sql", "--dialect", dialect, "--table", table, "-o", str(out)]) == 0
    columns = [(column.name, exported_sql.type_of(column, dialect)) for column in describe(bundle.read(model)).columns]
    (row,) = exported_sql.RUN[dialect](out.read_text(), columns, [[None] * len(columns)], table)
    assert row == {
        "log_odds": pytest.approx(load(model).log_odds_one({}), abs=NEAR),
        "probability": pytest.approx(load(model).score_one({})),
    }
    assert exported_sql.RUN[dialect](out.read_text(), columns, [], table) == []


@pytest.mark.slow
@pytest.mark.parametrize("to", ["json", "python", "sql duckdb", "sql sqlite", "onnx"])
def test_texts_with_zero_bytes_are_found(to: str, tmp_path: Path) -> None:
    model = saved(every_kind(nul=True), tmp_path / "nul.acx")
    check_parity(model, tmp_path, to, [{"{row}$1%s": text} for text in ("c\0d", "c", "c\0", "a")])


def test_the_function_writes_what_the_command_writes(model: Path, tmp_path: Path) -> None:
    export(model, tmp_path / "one", "sql", dialect="sqlite", key="id;--")
    assert (tmp_path / "one").read_bytes() == exported(model, tmp_path, "sql sqlite").read_bytes()
    with pytest.raises(OptionError, match=r"--dialect 'oracle' is unknown\. Choose one of: duckdb, postgres, sqlite"):
        export(model, tmp_path / "two", "sql", dialect="oracle")
    with pytest.raises(OptionError, match=r"--to 'xml' is unknown\. Choose one of: json, python, c, sql, onnx, pmml"):
        export(model, tmp_path / "two", "xml")
    assert not (tmp_path / "two").exists()


# What cannot be exported.


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The message of a command that is refused."""
    assert run(arguments) == 2
    return capsys.readouterr().err


def test_an_existing_file_is_replaced_only_if_it_is_an_export(model: Path, tmp_path: Path, capsys: Any) -> None:
    out = exported(model, tmp_path, "json")
    assert exported(model, tmp_path, "json") == out
    out.write_text("mine")
    assert "--force" in refusal(["export", str(model), "--to", "json", "-o", str(out)], capsys)
    assert out.read_text() == "mine"


def test_a_private_model_is_refused(model: Path, tmp_path: Path, capsys: Any) -> None:
    known = every_kind()
    hidden = replace(known, producer=replace(known.producer, encoder=known.producer.encoder.private()))
    arguments = ["export", str(saved(hidden, tmp_path / "private.acx")), "--to", "json", "-o", str(tmp_path / "out")]
    assert "column 'select' by their hashes only" in refusal(arguments, capsys)
    assert not (tmp_path / "out").exists()


def test_a_network_is_refused(tmp_path: Path, capsys: Any) -> None:
    deep = ROOT / "tests" / "golden" / "format-4-networks.acx"
    arguments = ["export", str(deep), "--to", "python", "-o", str(tmp_path / "out")]
    assert re.search("This model has .*, which no export can hold. Fit an AutoCrossClassifier", refusal(arguments, capsys))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--to", "onnx", "--reasons"],
            "--reasons cannot be exported to onnx. Leave it out, or export to one of: json, python, c, sql.",
        ),
        (["--to", "sql", "--dialect", "oracle"], "oracle"),
        (["--to", "sql", "--table", "Autocross_1"], "--table 'Autocross_1' begins like the query's own tables"),
        (["--to", "sql", "--table", ""], "'' cannot be the name of a table or a column in SQL"),
        (["--to", "sql", "--key", "a\0b"], "cannot be the name of a table or a column in SQL"),
        (["--to", "xml"], "xml"),
        (["--to", "json", "--dialect", "duckdb"], "--dialect is for --to sql, and says nothing in json. Leave it out."),
        (["--to", "json", "--table", "rows"], "--table is for --to sql"),
        (["--to", "json", "--key", "id"], "--key is for --to sql"),
    ],
)
def test_options_that_say_nothing_are_refused(flags: list[str], message: str, model: Path, tmp_path: Path, capsys: Any) -> None:
    assert message in refusal(["export", str(model), *flags, "-o", str(tmp_path / "out")], capsys)
    assert not (tmp_path / "out").exists()


def test_the_list_of_formats_is_that_of_the_command() -> None:
    assert set(get_args(To)) == set(FORMATS)


@pytest.mark.parametrize("to", ["sql", "onnx"])
def test_hashed_codes_are_refused_where_there_is_no_hash(to: str, with_buckets: Path, tmp_path: Path, capsys: Any) -> None:
    message = refusal(["export", str(with_buckets), "--to", to, "-o", str(tmp_path / "out")], capsys)
    assert "'select' has hashed codes, because it has more than a million values" in message
    assert "Export to c, python or json" in message
    assert not (tmp_path / "out").exists()


def test_lists_times_and_what_xml_cannot_hold_are_refused_in_pmml(model: Path, tmp_path: Path, capsys: Any) -> None:
    arguments = ["--to", "pmml", "-o", str(tmp_path / "out")]
    assert "Column 'tags' holds lists, which PMML does not have" in refusal(["export", str(model), *arguments], capsys)
    simple = categories_and_numbers()
    vocabulary, *others = simple.producer.encoder.columns
    values = tuple("\x01" if text == "cook" else text for text in vocabulary.values)
    encoder = replace(simple.producer.encoder, columns=(replace(vocabulary, values=values), *others))
    odd = saved(replace(simple, producer=replace(simple.producer, encoder=encoder)), tmp_path / "odd.acx")
    assert r"Column 'select' has the category '\x01', with a character that XML cannot hold" in refusal(
        ["export", str(odd), *arguments], capsys
    )
    assert not (tmp_path / "out").exists()
