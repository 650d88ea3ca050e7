"""Scorecards: the points that are listed add up to the score of every row, and the score ranks rows as the model does."""

from __future__ import annotations

import json
import re
import sys
import warnings
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from autocross import AutoCrossClassifier, Scorecard, load
from autocross.cli import run
from autocross.encoding.timestamps import parts_of
from autocross.encoding.values import EPOCH, Interval, Missing, Part, Rare, Span, Text, Value
from autocross.errors import AutoCrossError, OptionError, OptionWarning
from autocross.models.metrics import auc
from autocross.producer.merging import listed
from autocross.producer.points import SHIFTS, best_rounding, variance
from autocross.producer.printing import printable
from autocross.serving.card_page import text
from autocross.serving.scorecard import scorecard
from golden import make
from test_merging import N, people

ROOT = Path(__file__).parents[1]
HOSTILE = "<script>alert('x')</script>&=1+1"


def applicants() -> pl.DataFrame:
    """A table with a column of every kind, one of them with rare values and names that a page must not trust."""
    rng = np.random.default_rng(4)
    town = rng.choice([HOSTILE, "Ulm", "Bonn", *(f"t{k}" for k in range(400))], N, p=[0.3, 0.3, 0.2, *[0.2 / 400] * 400])
    return people(0)[0].with_columns(pl.Series("town <b>", town))


@pytest.fixture(scope="module")
def classifier() -> AutoCrossClassifier:
    weight = np.random.default_rng(1).integers(1, 4, N)
    return AutoCrossClassifier(quiet=True, n_jobs=1, max_crosses=4).fit(
        applicants(), np.where(people(0)[1], "paid", "late"), weight
    )


@pytest.fixture(scope="module")
def saved(classifier: AutoCrossClassifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.acx"
    classifier.save(path)
    return path


# The sum of what is listed.


def random_rows(n: int) -> list[dict[str, Any]]:
    """Rows with every kind of value: known, unseen, missing, several and none."""
    rng = np.random.default_rng(9)
    choices: dict[str, list[Any]] = {
        "age": [*range(10, 100), None],
        "income": [*rng.lognormal(3, 1.5, 50).tolist(), -1.0, 1e9, None],
        "job": ["cook", "nurse", "chef", "maid", "pilot", None],
        "tags": [[], ["red"], ["red", "blue"], ["green", "white"], ["white"], None],
        "since": [datetime(2020, 1 + k % 12, 1 + k % 28, k % 24) for k in range(60)] + [datetime(2050, 5, 5), None],
        "town <b>": ["Ulm", HOSTILE, "t3", "nowhere", None],
    }
    return [{name: values[rng.integers(len(values))] for name, values in choices.items()} for _ in range(n)]


def fits(value: Value, given: Any, known: set[str]) -> bool:
    """Whether a row's value is what a cell of its column stands for."""
    match value:
        case Missing():
            return given is None or given == []
        case Interval(low, high):
            return given is not None and low <= given < high
        case Span(low, high):
            return given is not None and low <= (given - EPOCH).total_seconds() * 1e6 < high
        case Part(part, number):
            return given is not None and parts_of(given)[part] == number
        case Text(text):
            return bool(given == text)
        case Rare():
            return isinstance(given, str) and given not in known
    raise AssertionError(value)


def slow_score(card: Scorecard, row: dict[str, Any]) -> float:
    """The base and the points of all lines that fit the row, found by what the lines stand for."""
    lines, total = iter(card.lines), 0.0
    assert next(lines).points == card.base
    shapes = card.model.producer.shapes
    known: dict[str, set[str]] = {}
    for shape in shapes:
        if len(shape.columns) == 1:
            values = [shape.value(cell) for cell in listed(shape).tolist()]
            known[shape.name] = {value.text for value in values if isinstance(value, Text)}
    for shape in (shapes[number] for number in card.order):
        several = row["tags"] if "tags" in shape.columns and row["tags"] else [row["tags"]]
        own = [(next(lines), shape.value(cell)) for cell in listed(shape).tolist()]
        for tag in several:
            given = [(row | {"tags": tag})[name] for name in shape.columns]
            found, rare = [], []
            for line, value in own:
                values = value if isinstance(value, tuple) else (value,)
                if len(values) < len(given):
                    rare.append(line.points)  # a combination without a line of its own
                elif all(fits(one, had, known[name]) for one, had, name in zip(values, given, shape.columns, strict=True)):
                    found.append(line.points)
            rare = rare or [line.points for line, value in own if isinstance(value, Rare)]
            assert len(found) <= 1, "cells do not overlap"
            total += (found or rare)[0]
    assert next(lines, None) is None
    return card.base + total


@pytest.mark.slow
@pytest.mark.parametrize(("decimals", "favourable"), [(0, None), (0, "paid"), (2, None)])
def test_the_listed_points_add_up_to_the_score(classifier: AutoCrossClassifier, decimals: int, favourable: str | None) -> None:
    card, rows = classifier.scorecard(decimals=decimals, favourable=favourable), random_rows(120)
    scores = card.score(pl.DataFrame(rows))
    assert scores.dtype == (np.float64 if decimals else np.int64)
    for row, score in zip(rows, scores.tolist(), strict=True):
        assert card.score(row) == score
        assert slow_score(card, row) == pytest.approx(score, abs=1e-9)
    assert all(isinstance(line.points, float if decimals else int) for line in card.lines)


def test_the_score_is_the_odds_on_another_scale(classifier: AutoCrossClassifier) -> None:
    frame, scorer = applicants(), classifier.scorer_
    assert classifier.model_.about.classes == ("late", "paid")
    for favourable, sign in ((None, -1), ("late", -1), ("paid", 1)):
        card = classifier.scorecard(points=500, odds=20, pdo=40, favourable=favourable, decimals=6)
        exact = 500 + 40 / np.log(2) * (sign * scorer.log_odds(frame) - np.log(20))
        np.testing.assert_allclose(card.score(frame), exact, atol=1e-4)
        assert card.favourable == ("paid" if favourable == "paid" else "late")
        chance = scorer.score(frame) if sign > 0 else 1 - scorer.score(frame)
        np.testing.assert_allclose(card.points_to_probability(card.score(frame)), chance, atol=1e-6)
        assert card.points_to_probability(500) == pytest.approx(20 / 21)
        assert card.points_to_probability(540) == pytest.approx(40 / 41)
    assert card.points_to_probability(1e300) == 1.0 and card.points_to_probability(-1e300) == 0.0


def test_rounding_keeps_the_mean_and_the_order(classifier: AutoCrossClassifier) -> None:
    frame, label, weight = applicants(), people(0)[1], np.random.default_rng(1).integers(1, 4, N)
    card, exact = classifier.scorecard(), classifier.scorecard(decimals=6)
    assert np.average(card.score(frame), weights=weight) == pytest.approx(np.average(exact.score(frame), weights=weight), abs=0.51)
    found = [auc(1 - label, one.score(frame).astype(float), np.ones(N)) for one in (card, exact)]
    assert found[0] == pytest.approx(found[1], abs=0.001)
    for line in card.lines_of(card.order[0]):
        assert line.points != 0 or line.rows is not None
    job = card.table.filter(term="job")
    assert abs(np.average(job["points"], weights=job["rows"] + 1e-9)) < 3, "points are compared with the average"


def test_a_term_is_moved_so_that_its_errors_vary_least() -> None:
    exact, mass = np.array([0.49, 3.51, -1.49]), np.array([0.5, 0.4, 0.1])
    moved = best_rounding(exact, mass, SHIFTS)
    assert (moved - moved[0]).tolist() == [0.0, 3.0, -2.0]
    assert variance(moved - exact, mass) < 0.001 < 0.2 < variance(np.rint(exact) - exact, mass)


# What the card says.


def test_the_table(classifier: AutoCrossClassifier, saved: Path) -> None:
    card = classifier.scorecard()
    table, weights = card.table, classifier.weights_
    assert table.columns == ["term", "value", "low", "high", "rows", "points"]
    assert table.dtypes == [pl.String, pl.String, pl.Float64, pl.Float64, pl.Int64, pl.Int64]
    assert table.row(0) == ("(base)", "", None, None, N, card.base)
    both = table.join(weights, on=["term", "value"], suffix="_of_weight")
    assert both.height == table.height - 1 == weights.height - 1, "every bin, value and combination has a line"
    assert both["rows"].equals(both["rows_of_weight"])
    for name in ("job", "age", "town <b>", "tags"):
        assert {"(missing)"} <= set(table.filter(term=name)["value"])
    assert "(rare)" in set(table.filter(term="town <b>")["value"])
    order = list(dict.fromkeys(table["term"][1:]))
    assert (
        order[0] == "age"
        and "income & job" in order
        and len(order) == len({shape.name for shape in classifier.model_.producer.shapes})
    )
    assert load(saved).scorecard().table.equals(table)


def test_the_page(classifier: AutoCrossClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    card = classifier.scorecard()
    page = card.to_html()
    assert "<script" not in page and "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;=1+1" in page
    assert "town &lt;b&gt;" in page and "town <b>" not in page
    assert f"Base points: {card.base}" in page
    assert "A score of 600 means odds of 50 to 1 that y is late, a probability of 98.04 %." in page
    assert "points of all of them count" in page
    headings = re.findall("<h2>(.*?)</h2>", page)
    assert headings[0] == "age" and len(headings) == len(set(headings))
    assert not re.search(r"(?:src|href)=|url\(|@import", page), "it needs nothing else"
    for number in range(len(card.units)):
        apart, joined = card.lines_of(number), card.lines_of(number, card.groups_of(number))
        assert sum(line.rows or 0 for line in apart) == sum(line.rows or 0 for line in joined) and len(joined) <= len(apart)
    age = next(number for number in card.order if classifier.model_.producer.shapes[number].name == "age")
    bins = card.lines_of(age, card.groups_of(age))
    assert len(bins) < len(card.lines_of(age)) and all(one.points != two.points for one, two in pairwise(bins[1:]))
    assert [one.high for one in bins[1:-1]] == [two.low for two in bins[2:]]
    monkeypatch.setattr("autocross.serving.card_page.MOST_LINES", 3)
    assert re.search(r"\d more lines, of no more rows than these, are in the card as CSV or Excel", card.to_html())


def test_control_characters_are_shown_not_sent() -> None:
    assert text("a\x1b[2J<") == printable("a\x1b[2J") + "&lt;"


@pytest.mark.parametrize("name", make.FORMATS)
def test_models_of_older_files(name: str) -> None:
    scorer = load(make.HERE / f"{name}.acx")
    if scorer.model.additions:
        with pytest.raises(AutoCrossError, match=r"The model has a network.*Fit an AutoCrossClassifier for a scorecard"):
            scorer.scorecard()
        return
    rows = [one["row"] for one in json.loads((make.HERE / f"{name}.json").read_text())]
    card = scorer.scorecard(decimals=6)
    for row in rows:
        assert card.score(row) == pytest.approx(600 - 20 / np.log(2) * (scorer.log_odds_one(row) + np.log(50)), abs=1e-4)
    assert [card.score(row) for row in rows] == card.score(pl.DataFrame(rows, infer_schema_length=None)).tolist()
    assert all(line.rows is None for line in card.lines[1:]) == (scorer.model.counts is None)
    assert card.table.schema["rows"] == pl.Int64 and "Base points" in card.to_html()


# What is refused.


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pdo": -20}, r"pdo=-20 is out of range. Give a number above 0"),
        ({"pdo": 0}, "pdo=0 is out of range"),
        ({"pdo": float("nan")}, "pdo=nan is out of range"),
        ({"pdo": 1e300}, r"pdo=1e\+300 is out of range"),
        ({"odds": 0}, "odds=0 is out of range. Give a number above 0"),
        ({"odds": -1.5}, "odds=-1.5 is out of range"),
        ({"odds": "50"}, "odds='50' is out of range"),
        ({"points": float("inf")}, "points=inf is out of range"),
        ({"points": None}, "points=None is out of range"),
        ({"points": True}, "points=True is out of range"),
        ({"decimals": -1}, "decimals=-1 is out of range. Give a whole number from 0 to 6"),
        ({"decimals": 0.5}, "decimals=0.5 is out of range"),
        ({"favourable": "good"}, "favourable='good' is no label of the model. Its labels are 'late' and 'paid'"),
    ],
    ids=str,
)
def test_bad_numbers_are_refused(classifier: AutoCrossClassifier, given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        classifier.scorecard(**given)


def test_coarse_points_are_told(classifier: AutoCrossClassifier) -> None:
    with pytest.warns(OptionWarning, match=r"coarse for pdo=1: .* Give a larger pdo, or decimals=1"):
        classifier.scorecard(pdo=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier.scorecard(pdo=1, decimals=2)


def test_weights_beyond_all_bounds(classifier: AutoCrossClassifier) -> None:
    model = classifier.model_
    with pytest.raises(OptionError, match=r"pdo=20\.0 gives points beyond all bounds"):
        scorecard(replace(model, weights=tuple(weight * 1e90 for weight in model.weights)))


@pytest.mark.slow
def test_the_command(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = load(saved).scorecard(points=500, odds=10, pdo=30, favourable="paid")
    flags = ["--points", "500", "--odds", "10", "--pdo", "30", "--favourable", "paid"]
    for ending in ("csv", "xlsx", "html"):
        path = str(tmp_path / f"card.{ending}")
        assert run(["scorecard", str(saved), *flags, "-o", path]) == 0
        assert run(["scorecard", str(saved), *flags, "-o", path]) == 0
    assert pl.read_csv(tmp_path / "card.csv").rows() == card.table.rows()
    assert (tmp_path / "card.html").read_text() == card.to_html()
    assert run(["scorecard", str(saved), *flags]) == 0
    assert capsys.readouterr().out == (tmp_path / "card.csv").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pdo", "-20"], "pdo=-20.0 is out of range"),
        (["--odds", "0"], "odds=0.0 is out of range"),
        (["--odds", "nan"], "odds=nan is out of range"),
        (["--points", "many"], "many"),
        (["--decimals", "9"], "decimals=9 is out of range"),
        (["--favourable", "good"], "favourable='good' is no label"),
    ],
    ids=str,
)
def test_the_command_refuses_and_writes_nothing(
    arguments: list[str], message: str, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["scorecard", str(saved), *arguments, "-o", str(tmp_path / "card.csv")]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_command_spares_files_of_others(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, message in (("card.txt", "Name it .csv or .xlsx or .html"), ("none/card.csv", "there is no folder")):
        assert run(["scorecard", str(saved), "-o", str(tmp_path / name)]) == 2
        assert message in capsys.readouterr().err
    for name in ("page.html", "table.csv"):
        (tmp_path / name).write_text("a,b\n1,2\n")
        assert run(["scorecard", str(saved), "-o", str(tmp_path / name)]) == 2
        assert "it exists, and is no scorecard" in capsys.readouterr().err
        assert (tmp_path / name).read_text() == "a,b\n1,2\n"
    assert run(["scorecard", str(tmp_path / "none.acx"), "-o", str(tmp_path / "card.csv")]) == 2
    assert "none.acx" in capsys.readouterr().err and not (tmp_path / "card.csv").exists()


# Real tables.


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adult", "bank", "credit"])
def test_whole_points_rank_as_the_model_does(name: str, benchmark_data: Any) -> None:
    benchmark_data("adult_train" if name == "adult" else name)  # skips where it is absent
    sys.path.append(str(ROOT / "benchmarks"))
    import scorecard as measured

    found = measured.measure(name, 0)
    assert abs(found["card"] - found["model"]) <= 0.001
