"""Reasons against the average, all weights, and the page that `show` prints."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from autocross import AutoCrossClassifier, Explanation, load
from autocross.cli import run
from autocross.errors import AutoCrossError, OptionError, TableError
from autocross.producer.weights import table
from autocross.producer.words import in_full, in_words, of_term, summary
from test_merging import N, people


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    return people(0)[0].with_columns(country=pl.Series(["here"] * (N - 40) + ["abroad"] * 40))


@pytest.fixture(scope="module")
def classifier(frame: pl.DataFrame) -> AutoCrossClassifier:
    weight = np.random.default_rng(1).integers(1, 4, N)
    return AutoCrossClassifier(quiet=True, n_jobs=1).fit(frame, np.where(people(0)[1], "late", "paid"), weight)


@pytest.fixture(scope="module")
def saved(classifier: AutoCrossClassifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.acx"
    classifier.save(path)
    return path


@pytest.mark.parametrize("by", ["column", "term", "field"])
def test_reasons_add_up_to_the_difference_from_the_mean(classifier: AutoCrossClassifier, frame: pl.DataFrame, by: str) -> None:
    weight = np.random.default_rng(1).integers(1, 4, N)
    many = classifier.explain(frame, by=by)
    mean = np.average(classifier.scorer_.log_odds(frame), weights=weight)
    np.testing.assert_allclose(many.sum_horizontal(), classifier.scorer_.log_odds(frame) - mean, atol=1e-6)
    np.testing.assert_allclose([np.average(column, weights=weight) for column in many], 0.0, atol=1e-6)
    for row in range(20):
        why = classifier.explain(frame.row(row, named=True), by=by)
        assert sum(reason.contribution for reason in why.reasons) == pytest.approx(why.log_odds - why.mean_log_odds, abs=1e-9)
        assert why.mean_log_odds == pytest.approx(mean, abs=1e-6)
        sizes = [abs(reason.contribution) for reason in why.reasons]
        assert sizes == sorted(sizes, reverse=True)
        for reason in why.reasons:
            assert reason.contribution == pytest.approx(many[reason.name][row], abs=1e-9)


def test_what_nearly_everybody_has_explains_nothing(classifier: AutoCrossClassifier, frame: pl.DataFrame) -> None:
    first = Counter(classifier.explain(row).reasons[0].name for row in frame.head(200).iter_rows(named=True))
    assert "country" not in first
    here = classifier.explain(frame.row(0, named=True), by="term")
    assert abs(next(reason.contribution for reason in here.reasons if reason.name == "country")) < 0.02


def test_a_cross_belongs_to_its_columns_in_equal_shares(classifier: AutoCrossClassifier, frame: pl.DataFrame) -> None:
    row = frame.row(3, named=True)
    by_column = {reason.name: reason.contribution for reason in classifier.explain(row).reasons}
    shares = dict.fromkeys(by_column, 0.0)
    for reason in classifier.explain(row, by="term").reasons:
        columns = reason.name.split(" & ")
        for column in columns:
            shares[column] += reason.contribution / len(columns)
    assert {name: pytest.approx(share, abs=1e-9) for name, share in shares.items()} == by_column


def test_every_form_of_a_row(classifier: AutoCrossClassifier, frame: pl.DataFrame, saved: Path) -> None:
    row = frame.row(5, named=True)
    why = classifier.explain(row)
    pandas = frame[:8].to_pandas()
    forms = [frame[5:6], pandas.iloc[5], pandas[5:6], frame[5:6].to_arrow()]
    for explained in (*map(classifier.explain, forms), load(saved).explain(row)):
        assert isinstance(explained, Explanation) and explained == why
    assert list(classifier.explain(pandas).index) == list(pandas.index)
    for nothing in (None, 5, []):
        with pytest.raises(TableError, match="A row to explain is a mapping, a Series or a frame, not"):
            classifier.explain(nothing)


def test_what_is_printed(classifier: AutoCrossClassifier, frame: pl.DataFrame) -> None:
    why = classifier.explain(frame.row(0, named=True), top=2)
    lines = str(why).splitlines()
    assert len(lines) == 4 and lines[-1].endswith("4 other reasons together")
    assert len(why.reasons) == 6 and lines[1].split("  ")[-1] == f"{why.reasons[0].name} = {why.reasons[0].value}"
    rest = sum(reason.contribution for reason in why.reasons[2:])
    assert float(lines[-1].split()[0]) == pytest.approx(rest, abs=1e-4)
    assert {reason.name: reason.value for reason in why.reasons}["age"] == str(frame["age"][0])
    for wrong in (-1, "x", True):
        with pytest.raises(OptionError, match="is no number of reasons"):
            classifier.explain({}, top=wrong)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"by='row' is unknown. Choose one of: column, term, field"):
        classifier.explain({}, by="row")  # type: ignore[call-overload]


def test_a_column_that_is_called_like_a_cross_of_fields() -> None:
    frame = pl.DataFrame({"a": ["p", "q"] * 80, "b": ["r", "r", "s", "s"] * 40, "a x b": [*"uvuvvvvv"] * 20})
    options: dict[str, Any] = {"quiet": True, "n_jobs": 1, "max_crosses": 1, "include": [("a", "b")]}
    classifier = AutoCrossClassifier(**options).fit(frame, [0, 1, 1, 0, 1, 1, 0, 1] * 20)
    contributions = classifier.explain(frame, by="field")
    assert contributions.columns == ["a", "a x b", "b", "a x b (3)"]
    totals = classifier.decision_function(frame) - classifier.model_.mean_log_odds
    assert np.allclose(contributions.sum_horizontal().to_numpy(), totals, rtol=0, atol=1e-9)
    fields = table(classifier.model_, merge=False)
    assert len({*zip(fields["field"], fields["value"], strict=True)}) == len(fields["field"])


def test_adverse_reasons(classifier: AutoCrossClassifier, frame: pl.DataFrame) -> None:
    assert classifier.model_.about.classes == ("late", "paid")
    why = classifier.explain(frame.row(2, named=True))
    against = [reason for reason in why.reasons if reason.contribution > 0]  # "late" is the negative label
    assert why.adverse(9) == [f"{reason.name} is {reason.value}" for reason in against]
    costly = min(why.reasons, key=lambda reason: reason.contribution)
    texts = {costly.name: "Your {value} counted against you."}
    assert why.adverse(1, favourable="paid", texts=texts) == [f"Your {costly.value} counted against you."]
    assert classifier.explain({"age": None}).adverse(9, "paid") != [] and all(
        sentence.endswith("is not known") for sentence in classifier.explain({}).adverse(9)
    )
    with pytest.raises(OptionError, match=r"favourable='x' is no label of the model. Its labels are 'late' and 'paid'"):
        why.adverse(1, favourable="x")
    for n in (-1, 1.5, True):
        with pytest.raises(OptionError, match=f"n={n} is no number of reasons"):
            why.adverse(n)
    with pytest.raises(OptionError, match="texts holds something that is no text"):
        why.adverse(1, texts={"age": 5})  # type: ignore[dict-item]


def test_all_weights(classifier: AutoCrossClassifier, frame: pl.DataFrame) -> None:
    table = classifier.weights_
    assert table.columns == ["term", "value", "low", "high", "rows", "positives", "weight", "error"]
    assert not table.select(pl.struct("term", "value").is_duplicated().any()).item()
    assert table.row(0)[0] == "(intercept)" and table["weight"][0] == classifier.model_.intercept
    age = table.filter(term="age").filter(pl.col("value") != "(missing)")
    assert age["low"].to_list()[1:] == age["high"].to_list()[:-1], "one step function, without gaps"
    assert age["low"][0] is None and age["high"][-1] is None and age["rows"].sum() == N
    low, high = age["low"].fill_null(-np.inf), age["high"].fill_null(np.inf)
    value = frame["age"][7]
    cell = age.filter((low <= value) & (value < high))
    alone = {reason.name: reason for reason in classifier.explain(frame.row(7, named=True), by="term").reasons}["age"]
    parts = next(shape.parts for shape in classifier.model_.producer.shapes if shape.name == "age")
    mean = classifier.model_.means[list(parts)].sum()
    assert cell["weight"].item() - mean == pytest.approx(alone.contribution, abs=1e-9)
    assert cell["value"].item() == alone.value


def test_importances(classifier: AutoCrossClassifier, frame: pl.DataFrame) -> None:
    weight = np.random.default_rng(1).integers(1, 4, N)
    by_term = classifier.explain(frame, by="term")
    page = summary(classifier.model_)["importances"]
    for name in ("age", "job", "income & job"):
        assert page[name] == pytest.approx(np.average(np.abs(by_term[name]), weights=weight), abs=1e-6)
    importances = classifier.feature_importances_
    assert importances.shape == (6,) and importances.sum() == pytest.approx(sum(page.values()))
    assert dict(zip(classifier.feature_names_in_, importances, strict=True))["age"] == importances.max()


def test_the_page(classifier: AutoCrossClassifier) -> None:
    page = in_words(summary(classifier.model_), top=3).splitlines()
    assert page[0].startswith("P(y = 'paid'), fitted to 4,000 rows, ")
    assert sum("█" in line for line in page) == 3 and any(line.endswith("others together") for line in page)
    assert all(len(line) <= 80 for line in page)
    full = in_full(classifier.model_)
    assert all(f"\n{shape.name}\n" in full for shape in classifier.model_.producer.shapes)
    job = of_term(classifier.model_, "job").splitlines()
    assert any(line.endswith("  cook") for line in job) and "  income & job" in job
    with pytest.raises(AutoCrossError, match=r"no column or cross 'jop'. The nearest name is 'job'"):
        of_term(classifier.model_, "jop")
    for name in ("job & incme", "job&income"):
        with pytest.raises(AutoCrossError, match=f"no column or cross '{name}'. The nearest name is 'income & job'"):
            of_term(classifier.model_, name)


def test_long_names_go_on_in_the_next_line(classifier: AutoCrossClassifier) -> None:
    facts = summary(classifier.model_)
    long = " & ".join(f"NumberOfTime{n}-59DaysPastDueNotWorse" for n in (30, 60, 90))
    page = in_words({**facts, "importances": {long: 0.5, "age": 0.1}, "crosses": facts["crosses"][:1]}).splitlines()
    assert all(len(line) <= 80 for line in page)
    assert " ".join("".join(page).split()).count(long) == 1
    assert "6 columns, 1 cross of up to " in "\n".join(page)


def test_commands(saved: Path, frame: pl.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, model = tmp_path / "rows.parquet", str(saved)
    frame.head(20).write_parquet(rows)
    assert run(["explain", model, str(rows), "--row", "7", "--top", "2", "--by", "term", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    why = load(saved).explain(frame.row(7, named=True), by="term")
    assert found["reasons"][0] == asdict(why.reasons[0])
    assert len(found["reasons"]) == len(why.reasons)
    texts = tmp_path / "texts.json"
    texts.write_text(json.dumps({"age": "The applicant is {value}."}))
    assert run(["explain", model, str(rows), "--adverse", "4", "--favourable", "paid", "--texts", str(texts)]) == 0
    assert capsys.readouterr().out.splitlines() == load(saved).explain(frame.row(0, named=True)).adverse(
        4, "paid", {"age": "The applicant is {value}."}
    )
    for ending in ("csv", "parquet", "xlsx"):
        assert run(["weights", model, "-o", str(tmp_path / f"weights.{ending}")]) == 0
    written = pl.read_parquet(tmp_path / "weights.parquet")
    assert written.height == pl.read_csv(tmp_path / "weights.csv").height > 100
    assert run(["weights", model, "--apart"]) == 0
    assert capsys.readouterr().out.startswith("field,term,value,low,high,rows,positives,weight,error\n(intercept),")
    assert run(["show", model, "job"]) == 0 and "cook" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "{}", "--adverse", "0"], "--adverse 0 is no number of reasons"),
        (["explain", "{}", "--favourable", "paid"], "are for --adverse"),
        (["explain", "{}", "--adverse", "1", "--favourable", "good"], "favourable='good' is no label"),
        (["explain", "{}", "--adverse", "1", "--texts", "none.json"], "Cannot read the texts 'none.json'"),
        (["explain", "{}", "--top", "-1"], "top=-1 is no number of reasons"),
        (["show", "jop"], "The nearest name is 'job'"),
        (["show", "--top", "-3"], "--top -3 is no number"),
        (["weights", "-o", "weights.txt"], "Name it .csv or .parquet or .xlsx"),
    ],
)
def test_what_is_refused(arguments: list[str], message: str, saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([arguments[0], str(saved), *arguments[1:]]) == 2
    assert message in capsys.readouterr().err


def test_texts_in_excel_stay_texts(tmp_path: Path) -> None:
    from zipfile import ZipFile

    from autocross.table.files import write

    write(pl.DataFrame({"value": ["=1+1", "http://x.org", "plain"], "n": [1.0, None, 2.0]}), tmp_path / "sheet.xlsx")
    with ZipFile(tmp_path / "sheet.xlsx") as sheet:
        content = sheet.read("xl/worksheets/sheet1.xml").decode()
        assert "<f>" not in content and "hyperlink" not in content
        assert "=1+1" in sheet.read("xl/sharedStrings.xml").decode()
