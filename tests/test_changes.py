"""Changes by hand: a term taken out, a weight set, and the record of it."""

from __future__ import annotations

import json
import pickle
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from autocross import AutoCross, AutoCrossClassifier, load
from autocross.checks import shown
from autocross.cli import run
from autocross.errors import AutoCrossError, BundleError, OptionError, TableWarning
from autocross.producer import bundle
from autocross.producer.features import Features
from autocross.producer.model import Change, Model
from autocross.producer.weights import importances
from autocross.producer.words import in_full, in_words, of_term, summary
from autocross.table.coerce import typed
from forgery import Manifest, forge, parts
from test_merging import N, people
from test_new_kind_of_model import Shift
from test_statistics import eager, ids  # noqa: F401  a fixture that is used by its name

pytestmark = pytest.mark.slow  # all of it takes seconds, and few changes touch it

Fitted = tuple[pl.DataFrame, np.ndarray, np.ndarray, AutoCrossClassifier]


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    """A model of fields, merged fields, calendar parts, lists and crosses, of rows that weigh differently."""
    frame, label = people(0)
    weight = np.random.default_rng(1).integers(1, 4, N)
    return frame, label, weight, AutoCrossClassifier(quiet=True, n_jobs=1).fit(frame, label, weight)


def log_odds(classifier: AutoCrossClassifier, frame: pl.DataFrame) -> np.ndarray:
    return classifier.scorer_.log_odds(frame)


def cell_weights(classifier: AutoCrossClassifier) -> dict[tuple[str, str], float]:
    table = classifier.weights_
    return dict(zip(zip(table["term"], table["value"], strict=True), table["weight"], strict=True))


def check_what_is_remembered(fitted: Fitted, changed: AutoCrossClassifier, tmp_path: Path, refitted: bool = False) -> None:
    """Means, reasons, importances, counts, single rows, copies and files of a changed model are right."""
    frame, _, weight, original = fitted
    model, expected = changed.model_, log_odds(changed, frame)
    assert model.mean_log_odds == pytest.approx(np.average(expected, weights=weight), abs=1e-6)
    by_term = changed.explain(frame, by="term")
    for name, importance in importances(model).items():
        alone = sum(shape.name == name for shape in model.producer.shapes) == 1
        if alone and "tags" not in name:  # which may have several values a row
            assert importance == pytest.approx(np.average(np.abs(by_term[name]), weights=weight), abs=1e-6), name
    for by in ("column", "term", "field"):
        reasons = changed.explain(frame[:300], by=by)
        np.testing.assert_allclose(reasons.sum_horizontal(), expected[:300] - model.mean_log_odds, atol=1e-9)
        why = changed.explain(frame.row(5, named=True), by=by)
        assert sum(reason.contribution for reason in why.reasons) == pytest.approx(why.log_odds - why.mean_log_odds, abs=1e-9)
    for row in range(30):
        assert changed.scorer_.log_odds_one(frame.row(row, named=True)) == expected[row]
    before = {line[:2]: line[4:6] for line in original.weights_.rows()}
    assert model.background is not None and (model.background.deciles is not None) == refitted and model.draws is not None
    low, probability, high = changed.score_interval(frame[:50])
    assert (low < probability).all() and (probability < high).all()
    for line in changed.weights_.rows():
        assert before[line[:2]] == line[4:6], "the rows and positives of a cell stay"
    path, again = tmp_path / "changed.acx", tmp_path / "again.acx"
    changed.save(path)
    scorer = load(path)
    assert scorer.log_odds(frame).tolist() == expected.tolist() and scorer.model.about == replace(
        model.about, history=scorer.model.about.history
    )
    assert summary(scorer.model) == summary(model)
    bundle.save(scorer.model, again)
    assert again.read_bytes() == path.read_bytes()
    copied = pickle.loads(pickle.dumps(changed))
    assert log_odds(copied, frame).tolist() == expected.tolist() and copied.changes_ == changed.changes_ != ()


# A term taken out.


SLOW = pytest.mark.slow
TERMS = ["age", "income", "job", "tags", "since", "job & income", "age & job & income"]


@pytest.mark.slow
@pytest.mark.parametrize("term", [pytest.param(term, marks=[SLOW] if term != "income" else []) for term in TERMS])
def test_a_term_is_taken_out(fitted: Fitted, term: str, tmp_path: Path) -> None:
    frame, _, _, original = fitted
    before = log_odds(original, frame)
    name = canonical(original, term)
    own = original.explain(frame, by="term")[name].to_numpy()
    changed = original.without(term, note="It may not be used.")
    assert log_odds(original, frame).tolist() == before.tolist() and original.changes_ == ()
    np.testing.assert_allclose(log_odds(changed, frame), before - own, atol=1e-9)
    assert changed.model_.mean_log_odds == pytest.approx(original.model_.mean_log_odds, abs=1e-12)
    left = {key: value for key, value in cell_weights(original).items() if key[0] not in (name, "(intercept)")}
    assert {key: value for key, value in cell_weights(changed).items() if key[0] != "(intercept)"} == left
    assert changed.changes_ == (Change("without", name, note="It may not be used."),)
    check_what_is_remembered(fitted, changed, tmp_path)


def canonical(classifier: AutoCrossClassifier, term: str) -> str:
    wanted = sorted(term.split(" & "))
    return next(shape.name for shape in classifier.model_.producer.shapes if sorted(shape.columns) == wanted)


def test_what_is_taken_out_is_gone(fitted: Fitted, tmp_path: Path) -> None:
    frame, _, _, original = fitted
    gone = [found for found in original.crosses_ if set(found.columns) == {"income", "job"}]
    changed = original.without("job & income")
    assert len(gone) == 2 and changed.crosses_ == tuple(found for found in original.crosses_ if found not in gone)
    assert "\nincome & job\n" in in_full(original.model_) and "\nincome & job\n" not in in_full(changed.model_)
    alone = original.without("job")
    assert "job" not in set(alone.weights_["term"]) and "income & job" in set(alone.weights_["term"])
    assert alone.crosses_ == original.crosses_, "a cross needs the field of a column, but not its weights"
    names = Features(alone.model_).names
    assert "job" not in names and any("job" in name for name in names)
    apart = [shape.parts for shape in alone.model_.producer.shapes]
    assert alone.model_.producer.crossed_only and not alone.model_.producer.crossed_only & {one for some in apart for one in some}
    assert "job" not in alone.explain(frame[:2], by="field").columns and "job" in alone.explain(frame[:2]).columns


def test_a_column_that_nothing_needs_may_be_absent(fitted: Fitted, tmp_path: Path) -> None:
    frame, _, _, original = fitted
    changed = original
    while terms := [shape.name for shape in changed.model_.producer.shapes if "job" in shape.columns]:
        changed = changed.without(terms[0])
    expected = log_odds(changed, frame)
    assert log_odds(changed, frame.drop("job")).tolist() == expected.tolist()
    assert changed.scorer_.log_odds_one(frame.drop("job").row(0, named=True)) == expected[0]
    column = next(column for column in changed.model_.producer.encoder.schema if column.name == "job")
    assert (column.kind, column.reason) == ("ignore", "taken out by hand")
    assert "columns left out\n  job" in in_words(summary(changed.model_))
    assert changed.feature_importances_[2] == 0.0
    check_what_is_remembered(fitted, changed, tmp_path)
    with pytest.raises(OptionError, match=r"no column or cross 'job'\. The nearest name is"):
        changed.without("job")


@pytest.mark.slow
def test_the_rest_is_refitted_if_asked(fitted: Fitted, tmp_path: Path) -> None:
    frame, label, weight, original = fitted
    changed = original.without("income", frame, label, weight, note="Not reliable.")
    assert "income" not in set(changed.weights_["term"]) and "income & job" in set(changed.weights_["term"])
    assert changed.changes_ == (Change("without", "income", note="Not reliable.", refitted=True),)
    assert cell_weights(changed) != cell_weights(original.without("income"))
    check_what_is_remembered(fitted, changed, tmp_path, refitted=True)
    again = pickle.loads(pickle.dumps(changed)).refit(frame, label, weight)
    np.testing.assert_allclose(log_odds(again, frame), log_odds(changed, frame), atol=1e-2)
    assert again.changes_ == changed.changes_ and "income" not in set(again.weights_["term"])
    with pytest.raises(OptionError, match="Give X too"):
        original.without("income", y=label)


def test_the_last_term_stays() -> None:
    frame = pl.DataFrame({"job": ["cook", "nurse"] * 20, "age": [1, 2, 3, 4] * 10})
    classifier = AutoCrossClassifier(quiet=True, n_jobs=1, max_crosses=0).fit(frame, [0, 1, 1, 1] * 10)
    with pytest.raises(OptionError, match=r"'age' is all that the model has, and cannot be taken out\. Fit another model instead"):
        classifier.without("job").without("age")


# A weight set.


@pytest.mark.parametrize(
    ("term", "value"),
    [
        pytest.param("age", "37", marks=SLOW),
        pytest.param("age", "(missing)", marks=SLOW),
        ("job", "cook"),
        pytest.param("job", "(rare)", marks=SLOW),
        pytest.param("tags", "red", marks=SLOW),
        pytest.param("since", "month 3", marks=SLOW),
        pytest.param("job & income", None, marks=SLOW),
        ("income", None),
        pytest.param("since", None, marks=SLOW),
        pytest.param("tags & age", None, marks=SLOW),
    ],
)
def test_a_weight_is_set(fitted: Fitted, term: str, value: str | None, tmp_path: Path) -> None:
    """Without a value, that of a cell which overlaps with others in every field, if there is one."""
    frame, _, _, original = fitted
    name = canonical(original, term)
    shapes = [shape for shape in original.model_.producer.shapes if shape.name == name]
    if value is None:
        value = next((shape.words(int(cell)) for shape in shapes for cell in shape.uncounted[1:]), shapes[-1].words(3))
    before = cell_weights(original)
    changed = original.with_weight(term, value, 0.7, note="As agreed.")
    after = cell_weights(changed)
    assert after.pop((name, value)) == pytest.approx(0.7, abs=1e-15)
    old = before.pop((name, value))
    assert after == before, "all else stays"
    assert changed.changes_ == (Change("weight", name, value, old, 0.7, "As agreed."),) and original.changes_ == ()
    assert changed.crosses_ == original.crosses_ and changed.path_[-1]["crosses"] == original.path_[-1]["crosses"]
    assert Features(changed.model_).names == Features(original.model_).names
    moved = log_odds(changed, frame) - log_odds(original, frame)
    inside = np.abs(moved) > 1e-12
    np.testing.assert_allclose(moved[inside], 0.7 - old, atol=1e-9)
    errors = {line[:2]: line[7] for line in changed.weights_.rows()}
    assert errors.pop((name, value)) < 0.03, "what was set by hand is certain, up to rounding"
    assert errors == pytest.approx({line[:2]: line[7] for line in original.weights_.rows() if line[:2] in errors}, rel=0.05)
    assert inside.sum() == original.weights_.filter(term=name, value=value)["rows"].item()
    check_what_is_remembered(fitted, changed, tmp_path)


def overlapping(classifier: AutoCrossClassifier) -> tuple[str, list[str]]:
    """A number with cells that no single field has, and some of these."""
    shape = next(shape for shape in classifier.model_.producer.shapes if shape.name == "income")
    assert len(shape.uncounted) > 2
    return "income", [shape.words(cell) for cell in shape.uncounted.tolist()]


@pytest.mark.slow
def test_many_changes_in_one_term(fitted: Fitted, tmp_path: Path) -> None:
    _, _, _, original = fitted
    term, values = overlapping(original)
    changed, wanted = original, {}
    for weight, value in enumerate([*values, values[0], values[1]], start=1):
        changed = changed.with_weight(term, value, weight / 8)
        wanted[term, value] = weight / 8
    changes = [cross for cross in changed.model_.producer.crosses if cross.kind == "change"]
    assert len(changes) == 1 and len(changes[0].values) == len(values)
    found = cell_weights(changed)
    assert {key: found[key] for key in wanted} == pytest.approx(wanted, abs=1e-15)
    assert {key: value for key, value in found.items() if key not in wanted} == {
        key: value for key, value in cell_weights(original).items() if key not in wanted
    }
    assert [change.after for change in changed.changes_] == [(n + 1) / 8 for n in range(len(values) + 2)]
    check_what_is_remembered(fitted, changed, tmp_path)
    alone = changed.without(term)
    assert not any(cross.kind == "change" for cross in alone.model_.producer.crosses)
    assert log_odds(alone, fitted[0]) == pytest.approx(
        log_odds(changed, fitted[0]) - changed.explain(fitted[0], by="term")[term].to_numpy()
    )
    check_what_is_remembered(fitted, alone, tmp_path)
    other = changed.without("age")
    check_what_is_remembered(fitted, other, tmp_path)
    assert {key: value for key, value in cell_weights(other).items() if key[0] == term} == {
        key: value for key, value in found.items() if key[0] == term
    }


def test_plain_values(fitted: Fitted) -> None:
    _, _, _, original = fitted
    for value in (37, 37.0, "37", "37.0", np.int64(37)):
        assert original.with_weight("age", value, 0.1).changes_[0].value == "37"
    (change,) = original.with_weight("income", 20.5, 0.1).changes_
    cell = original.explain({"income": 20.5}, by="term")
    assert change.value == next(reason.value for reason in cell.reasons if reason.name == "income")
    assert original.with_weight("income", None, 0.1).changes_[0].value == "(missing)"
    assert original.with_weight("tags", ["red"], 0.1).changes_[0].value == "red"


@pytest.mark.parametrize(
    ("term", "value", "weight", "message"),
    [
        ("jop", "cook", 0.1, r"The model has no column or cross 'jop'\. The nearest name is 'job'"),
        ("job", "cok", 0.1, r"The term 'job' has no value 'cok'\. The nearest one is 'cook'; `autocross weights` lists all"),
        ("job", 5, 0.1, r"The term 'job' has no value 5\."),
        ("age", "young", 0.1, "The term 'age' has no value 'young'"),
        ("age", float("nan"), 0.1, "The term 'age' has no value nan"),
        ("job", 10**5000, 0.1, "The term 'job' has no value a whole number of 16,610 bits"),
        ("age", [1, 2], 0.1, "The term 'age' has no value"),
        ("since", "2020-05-05", 0.1, "The term 'since' has no value '2020-05-05'"),
        ("tags", ["red", "blue"], 0.1, "The term 'tags' has no value"),
        ("income & job", "cook", 0.1, "The term 'income & job' has no value 'cook'"),
        ("job", "cook", float("nan"), r"weight=nan is no weight\. Give a finite number"),
        ("job", "cook", float("inf"), "weight=inf is no weight"),
        ("job", "cook", 1e300, r"weight=1e\+300 is no weight"),
        ("job", "cook", 10**400, "weight=1000"),
        ("job", "cook", "0.2", "weight='0.2' is no weight"),
        ("job", "cook", True, "weight=True is no weight"),
        (("job",), "cook", 0.1, r"term=\('job',\) is no text\. Give the names of its columns joined by ' & '"),
    ],
    ids=shown,
)
def test_what_cannot_be_changed(fitted: Fitted, term: Any, value: Any, weight: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        fitted[3].with_weight(term, value, weight)


@pytest.mark.parametrize("note", [None, 5, "x" * 100_000, "\ud800"], ids=["none", "number", "long", "half"])
def test_a_note_is_a_text(fitted: Fitted, note: Any) -> None:
    for change in (lambda: fitted[3].without("job", note=note), lambda: fitted[3].with_weight("job", "cook", 1.0, note=note)):
        with pytest.raises(OptionError, match=r"note=.* is no text of up to 65,536 characters"):
            change()


@pytest.mark.slow
def test_a_refit_learns_changed_weights_anew(fitted: Fitted, tmp_path: Path) -> None:
    frame, label, weight, original = fitted
    term, values = overlapping(original)
    changed = original.with_weight("job", "cook", 3.0, note="Cooks.").with_weight(term, values[0], 2.0).without("since")
    told = rf"all weights anew, so those changed by hand are gone: job = cook, {term} = {re.escape(values[0])}\. Change them again"
    with pytest.warns(TableWarning, match=told):
        changed.refit(frame, label, weight)
    assert [change.refitted for change in changed.changes_] == [True, True, True]
    assert not any(cross.kind == "change" for cross in changed.model_.producer.crosses)
    without = original.without("since", frame, label, weight)
    np.testing.assert_allclose(log_odds(changed, frame), log_odds(without, frame), atol=0.05)
    other = original.with_weight("job", "cook", -3.0).with_weight(term, values[0], -2.0).without("since")
    with pytest.warns(TableWarning, match=told):
        other.refit(frame, label, weight)
    assert log_odds(other, frame).tolist() == log_odds(changed, frame).tolist(), "nothing of the changes is left"
    page = in_words(summary(changed.model_))
    assert "job = cook has +3 instead of" in page and "which a refit has learned anew since: Cooks." in " ".join(page.split())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        changed.refit(frame, label, weight)  # there is nothing left to lose
    check_what_is_remembered(fitted, changed, tmp_path, refitted=True)


def test_smaller_models_are_changed_on_their_own(fitted: Fitted) -> None:
    original = fitted[3]
    smaller = original.at(0).with_weight("job", "cook", 1.0)
    assert smaller.crosses_ == () and smaller.changes_
    assert original.with_weight("job", "cook", 1.0).at("all").changes_
    with pytest.raises(AutoCrossError, match="neither in a file nor through a refit or a change by hand"):
        original.with_weight("job", "cook", 1.0).at(0)


def test_the_score_of_the_fit_is_not_that_of_the_changed_model(fitted: Fitted) -> None:
    assert fitted[3].model_.about.score is not None
    changed = fitted[3].with_weight("job", "cook", 1.0)
    assert changed.model_.about.score is None and "validation" not in in_words(summary(changed.model_))


def test_models_with_networks_are_refused(fitted: Fitted) -> None:
    model = replace(fitted[3].model_, additions=(Shift(0.5),))
    classifier = pickle.loads(pickle.dumps(fitted[3]))
    classifier._keep(model)
    for change in (lambda: classifier.without("job"), lambda: classifier.with_weight("job", "cook", 1.0)):
        with pytest.raises(
            AutoCrossError, match=r"has a part that was trained beside its weights.*Change the model of an AutoCross"
        ):
            change()


def test_older_models(fitted: Fitted) -> None:
    """Files of older versions did not count rows."""
    original = pickle.loads(pickle.dumps(fitted[3]))
    original._keep(replace(original.model_, counts=None, kept=None))
    term, values = overlapping(original)
    assert original.with_weight("job", "cook", 1.0).changes_
    with pytest.raises(AutoCrossError, match=r"did not count the training rows of this value\. Fit or refit it first"):
        original.with_weight(term, values[0], 1.0)
    with pytest.raises(AutoCrossError, match="Fit or refit it"):
        original.without("job")
    with pytest.raises(AutoCrossError, match="Fit or refit it"):
        _ = original.feature_importances_


# Statistics, hashed values, private models.


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_one_value_of_a_statistic(tmp_path: Path) -> None:
    frame = ids()
    original = AutoCrossClassifier(quiet=True, engine="serial").fit(frame, "granted")
    model: Model = original.model_
    number, shape = next(
        (shape.parts[-1], shape)
        for shape in model.producer.shapes
        if shape.parts[-1] in model.producer.statistics and not shape.axes
    )
    assert model.counts is not None
    cell = int(np.flatnonzero((model.counts[number] == [1, 1]).all(axis=1))[3])  # many values have as many rows
    changed = original.with_weight(shape.name, shape.words(cell), 0.25)
    expected, found = cell_weights(original), cell_weights(changed)
    expected[shape.name, shape.words(cell)] = pytest.approx(0.25, abs=1e-15)
    assert found == expected
    path = tmp_path / "model.acx"
    changed.save(path)
    assert [weight.tolist() for weight in load(path).model.weights] == [weight.tolist() for weight in changed.model_.weights]
    smaller = changed
    while smaller.model_.producer.statistics:
        part = min(smaller.model_.producer.statistics)
        smaller = smaller.without(next(shape.name for shape in smaller.model_.producer.shapes if part in shape.parts))
    assert smaller.model_.share == 0.0 and not any(cross.kind == "statistic" for cross in smaller.crosses_)
    smaller.save(path)
    assert load(path).log_odds(frame).tolist() == log_odds(smaller, frame).tolist()


def test_private_models_keep_no_value(tmp_path: Path) -> None:
    frame = pl.DataFrame({"job": ["secretcook", "nurse"] * 40, "age": [1, 2, 3, 4, 5, 6, 7, 8] * 10})
    classifier = AutoCrossClassifier(quiet=True, n_jobs=1, private=True, max_crosses=0).fit(frame, [0, 1, 1, 1] * 20)
    changed = classifier.with_weight("job", "secretcook", 0.5)
    assert changed.changes_[0].value.startswith("#")
    moved = log_odds(changed, frame) - log_odds(classifier, frame)
    assert (np.abs(moved) > 0).tolist() == [True, False] * 40
    changed.save(tmp_path / "model.acx")
    assert b"secretcook" not in (tmp_path / "model.acx").read_bytes()
    assert load(tmp_path / "model.acx").log_odds(frame).tolist() == log_odds(changed, frame).tolist()


def test_names_with_the_sign_between_columns() -> None:
    frame = pl.DataFrame({"a & b": ["x", "y"] * 40, "c": ["(missing)", "u", "v", "w"] * 20})
    classifier = AutoCrossClassifier(quiet=True, n_jobs=1, max_crosses=0).fit(frame, [0, 1, 1, 1] * 20)
    assert classifier.without("a & b").changes_[0].term == "'a & b'"
    assert classifier.with_weight("c", "'(missing)'", 1.0).changes_[0].value == "'(missing)'"


def test_a_column_that_is_called_like_a_cross_is_another_term() -> None:
    frame = pl.DataFrame(
        {"a": ["p", "q"] * 80, "b": ["r", "r", "s &", "s"] * 40, "a & b": [*"uvuvvvvv"] * 20, "c": ["x", "x", "x", "x", "& x"] * 32}
    )
    include = [("a", "b"), ("b", "c")]
    classifier = AutoCrossClassifier(quiet=True, n_jobs=1, max_crosses=2, include=include).fit(frame, [0, 1, 1, 0, 1, 1, 0, 1] * 20)
    weights = classifier.weights_
    assert weights["term"].unique(maintain_order=True).to_list() == ["(intercept)", "a", "'a & b'", "b", "c", "a & b", "b & c"]
    assert weights.select("term", "value").is_unique().all()
    row = dict(frame.row(0, named=True))
    assert sorted(reason.name for reason in classifier.explain(row, by="term").reasons) == sorted(set(weights["term"][1:]))
    for taken, left in (("a & b", "'a & b'"), ("b & a", "'a & b'"), ("'a & b'", "a & b")):
        names = {shape.name for shape in classifier.without(taken).model_.producer.shapes}
        assert left in names and len(names) == 5, taken
    assert "'a & b'" not in of_term(classifier.model_, "a")  # it is no cross with a


def test_halves_of_characters_are_recorded_as_a_file_can_hold_them(tmp_path: Path) -> None:
    frame = pl.DataFrame({"job": ["\N{SNOWMAN}" * 70_000, "nurse"] * 40, "age": [1, 2, 3, 4] * 20})
    classifier = AutoCrossClassifier(quiet=True, n_jobs=1, max_crosses=0).fit(frame, [0, 1, 1, 1] * 20)
    changed = classifier.with_weight("job", frame["job"][0], 1.0)
    changed.save(tmp_path / "model.acx")
    assert load(tmp_path / "model.acx").model.about.changes == changed.changes_


# What is printed, commands and files.


def test_what_show_prints(fitted: Fitted) -> None:
    changed = fitted[3].without("job", note="A rule forbids it.").with_weight("age", 37, 0.25, note="New\nlaw.")
    page = in_words(summary(changed.model_)).splitlines()
    start = page.index("changed by hand")
    assert page[start + 1] == "  without job: A rule forbids it."
    assert page[start + 2].startswith("  age = 37 has +0.25 instead of ") and page[start + 2].endswith(": New\\nlaw.")
    assert all(len(line) <= 80 for line in page)
    assert "changed by hand" in in_full(changed.model_) and "changed by hand" not in in_full(fitted[3].model_)
    assert [change["what"] for change in summary(changed.model_)["changes"]] == ["without", "weight"]
    assert summary(fitted[3].model_)["changes"] == []


@pytest.fixture(scope="module")
def saved(fitted: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.acx"
    fitted[3].save(path)
    return path


def test_commands(fitted: Fitted, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame, new = fitted[0], tmp_path / "new.acx"
    assert run(["change", str(saved), "-o", str(new), "--without", "job & income", "--note", "Why not?"]) == 0
    assert load(new).log_odds(frame).tolist() == log_odds(fitted[3].without("income & job"), frame).tolist()
    assert run(["change", str(new), "-o", str(new), "--term", "age", "--value", "37", "--weight", "-0.25"]) == 0
    wanted = fitted[3].without("income & job").with_weight("age", 37, -0.25)
    assert load(new).log_odds(frame).tolist() == log_odds(wanted, frame).tolist()
    capsys.readouterr()
    assert run(["show", str(new), "--json"]) == 0
    changes = json.loads(capsys.readouterr().out)["changes"]
    assert [(change["term"], change["note"], change["after"]) for change in changes] == [
        ("income & job", "Why not?", None),
        ("age", "", -0.25),
    ]


@pytest.mark.slow
def test_the_command_refits_the_rest(fitted: Fitted, saved: Path, tmp_path: Path) -> None:
    frame, label, weight, original = fitted
    rows, new = tmp_path / "rows.parquet", tmp_path / "new.acx"
    target = original.model_.about.target
    frame.with_columns(pl.Series(target, label), pl.Series("w", weight)).write_parquet(rows)
    command = ["change", str(saved), "-o", str(new), "--without", "income", "--data", str(rows), "--sample-weight", "w", "--quiet"]
    assert run([*command, "--n-jobs", "1"]) == 0
    wanted = original.without("income", frame, label, weight)
    np.testing.assert_allclose(load(new).log_odds(frame), log_odds(wanted, frame), atol=1e-9)
    assert load(new).model.about.changes == wanted.changes_


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "Nothing to change is given in full"),
        (["--term", "age"], "all of --term TERM --value VALUE --weight NUMBER"),
        (["--term", "age", "--value", "37"], "Nothing to change is given in full"),
        (["--without", "age", "--weight", "1"], "--without does not go with --term"),
        (["--without", "agge"], "The nearest name is 'age'"),
        (["--term", "jop", "--value", "cook", "--weight", "1"], "The nearest name is 'job'"),
        (["--term", "job", "--value", "cok", "--weight", "1"], "The nearest one is 'cook'"),
        (["--term", "age", "--value", "-5 to 3", "--weight", "1"], "The term 'age' has no value '-5 to 3'"),
        (["--term", "job", "--value", "cook", "--weight", "nan"], "weight=nan is no weight"),
        (["--term", "job", "--value", "cook", "--weight", "much"], "much"),
        (["--term", "job", "--value", "cook", "--weight", "1", "--data", "rows.csv"], "--data rows.csv is for the refit"),
        (["--without", "job", "--target", "y"], "--target y is for the refit after --without"),
        (["--without", "job", "--data", "none.csv"], "none.csv"),
    ],
    ids=str,
)
def test_what_the_command_refuses(
    flags: list[str], message: str, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = tmp_path / "new.acx"
    assert run(["change", str(saved), "-o", str(new), *flags]) == 2
    assert message in capsys.readouterr().err
    assert not new.exists()


def in_change(**facts: Any) -> Callable[[Manifest], object]:
    """Other facts about the change of a weight."""
    return lambda manifest: manifest["about"]["changes"][1].update(facts)


def in_last_cross(**facts: Any) -> Callable[[Manifest], object]:
    return lambda manifest: manifest["crosses"][-1].update(facts)


FORGED: dict[str, tuple[Callable[[Manifest], object], str]] = {
    "changes that are a text": (lambda m: m["about"].update(changes="x"), "it has no proper record of changes"),
    "a change that is a text": (lambda m: m["about"]["changes"].append("x"), "its manifest is damaged"),
    "a change that knows more": (in_change(more=1), "its manifest is damaged"),
    "a note that is a number": (in_change(note=5), "it has a change that is no text"),
    "a note of half a character": (in_change(note="\ud800"), "it has a change that is no text"),
    "an endless note": (in_change(note="x" * 100_000), "it has a change that is no text"),
    "a term that is a list": (in_change(term=[]), "it has a change that is no text"),
    "another kind of change": (in_change(what="more"), "it has a change that is no text"),
    "a kind that is a list": (in_change(what=[]), "it has a change that is no text"),
    "a weight that is a text": (in_change(after="1"), "it has a change of no proper weights"),
    "a weight beyond numbers": (in_change(after=1e999), "it has a change of no proper weights"),
    "a weight of no number": (in_change(before=float("nan")), "it has a change of no proper weights"),
    "no weight": (in_change(before=None), "it has a change of no proper weights"),
    "a term with weights": (lambda m: m["about"]["changes"][0].update(after=1.0), "it has a change of no proper weights"),
    "refitted perhaps": (in_change(refitted=1), "it has a change of no proper weights"),
    "an older format": (lambda m: m.update(format=4), "its format does not fit its parts"),
    "fields without weights that are none": (lambda m: m.update(crossed_only=[10_000]), "fields without weights that stand in no"),
    "fields without weights that are texts": (lambda m: m.update(crossed_only=["job"]), "fields without weights that stand in no"),
    "fields without weights that are a text": (lambda m: m.update(crossed_only="job"), "fields without weights that stand in no"),
    "a change of other fields": (in_last_cross(names=["a", "b"]), "it tells of other crosses than it has"),
    "a change with hashed values": (in_last_cross(n_buckets=1), "has no values, or hashed ones"),
    "a change that is a cross": (in_last_cross(kind="cross"), "it tells of other crosses than it has"),
    "a change before a cross": (lambda m: m["crosses"].insert(0, m["crosses"].pop()), "it tells of other crosses than it has"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_forged_changes_are_refused(name: str, fitted: Fitted, tmp_path: Path) -> None:
    term, values = overlapping(fitted[3])
    usual = tmp_path / "usual.acx"
    fitted[3].without("job").with_weight(term, values[0], 1.0).save(usual)
    manifest, arrays = parts(usual)
    forge(usual, manifest, arrays)
    load(usual)
    change, message = FORGED[name]
    change(manifest)
    with pytest.raises(BundleError, match=rf"Cannot load .*bad\.acx': .*{message}"):
        load(forge(tmp_path / "bad.acx", manifest, arrays))


def test_weights_of_a_field_that_was_taken_out_are_refused(fitted: Fitted, tmp_path: Path) -> None:
    changed = fitted[3].without("job")
    changed.save(tmp_path / "usual.acx")
    manifest, arrays = parts(tmp_path / "usual.acx")
    arrays[f"weight.{min(changed.model_.producer.crossed_only)}"][2] = 1.0
    with pytest.raises(BundleError, match="it has weights for a field that was taken out"):
        load(forge(tmp_path / "bad.acx", manifest, arrays))


def test_a_time_that_stands_in_a_cross_by_its_course_alone(tmp_path: Path) -> None:
    """Of its fields only bins are left, and no part of the calendar."""
    from autocross.crossing import CrossCoder
    from autocross.producer.changes import without

    frame, label = people(0)
    model = AutoCrossClassifier(quiet=True, n_jobs=1, max_crosses=0).fit(frame, label).model_
    names = [field.name for field in model.producer.encoder.fields]
    job, course = names.index("job"), next(n for n, name in enumerate(names) if name.startswith("since ["))
    fields = (min(job, course), max(job, course))
    sizes = tuple(model.producer.encoder.fields[number].n_codes for number in fields)
    values = np.array([[a, b] for a in range(2, sizes[0]) for b in range(2, sizes[1])], np.uint32)
    coder = CrossCoder(fields, sizes, values)
    found = model.about.crosses
    assert found == ()
    crossed = with_cross(model, coder, names)
    changed = without(replace(crossed, counts=None, kept=None), "since", refit=True)
    bundle.save(changed, tmp_path / "model.acx")
    table = typed(frame, changed.producer.encoder.schema)
    assert bundle.read(tmp_path / "model.acx").log_odds(table).tolist() == changed.log_odds(table).tolist()


def with_cross(model: Model, coder: Any, names: list[str]) -> Model:
    """The model with one more cross, as if it had been found."""
    from autocross.features import Penalty
    from autocross.producer.model import FoundCross

    producer = replace(model.producer, crosses=(coder,))
    columns = tuple(model.producer.encoder.fields[number].column for number in coder.fields)
    cross = FoundCross(tuple(names[number] for number in coder.fields), columns, 0.1, 0.1)
    weight = np.linspace(-1, 1, coder.n_codes)
    return replace(
        model,
        producer=producer,
        weights=(*model.weights, weight),
        penalties=(*model.penalties, Penalty()),
        about=replace(model.about, crosses=(cross,)),
    )


def test_the_transformer_keeps_its_features(fitted: Fitted) -> None:
    """A change by hand is no feature."""
    frame, _, _, original = fitted
    term, values = overlapping(original)
    transformer = AutoCross(quiet=True)
    transformer.n_features_in_ = original.n_features_in_
    transformer._keep(original.model_)
    before = transformer.transform(frame[:50])
    transformer._keep(original.with_weight(term, values[0], 1.0).model_)
    assert (transformer.transform(frame[:50]) != before).nnz == 0


def test_monitoring_looks_at_columns_and_crosses_that_were_found(fitted: Fitted) -> None:
    frame, _, _, original = fitted
    term, values = overlapping(original)
    changed = original.with_weight(term, values[0], 1.0).without("job")
    before, after = original.monitor(frame), changed.monitor(frame)
    assert [one.name for one in after.crosses] == [one.name for one in before.crosses]
    assert [one.name for one in after.columns] == [one.name for one in before.columns]
    assert before.score is not None and after.score is None
    reference = changed.monitor(frame, reference=frame).score
    assert reference is not None and reference.psi == 0.0


def test_dense_numbers_and_cards_of_a_changed_model(fitted: Fitted) -> None:
    frame, _, _, original = fitted
    term, values = overlapping(original)
    changed = original.with_weight(term, values[0], 1.0).without("job")
    names = list(original.get_feature_names_out(output="statistics"))
    kept = [name for name in names if not name.startswith("job (")]
    assert list(changed.get_feature_names_out(output="statistics")) == kept and len(kept) == len(names) - 2
    dense = original.transform(frame[:50], output="statistics")[:, [names.index(name) for name in kept]]
    np.testing.assert_array_equal(changed.transform(frame[:50], output="statistics"), dense)
    card = changed.scorecard(points=600, odds=50, pdo=20)
    assert np.corrcoef(card.score(frame), log_odds(changed, frame))[0, 1] ** 2 > 0.99


def test_a_monotone_column_stays_so(tmp_path: Path) -> None:
    frame, label = people(0)
    frame = frame.select("age", "income", "job")
    options = {"quiet": True, "n_jobs": 1, "max_crosses": 2, "granularities": [7, 10, 30], "monotone": {"age": "increasing"}}
    original = AutoCrossClassifier(**options).fit(frame, label)
    shape = next(shape for shape in original.model_.producer.shapes if shape.name == "age")
    assert len(shape.uncounted) > 2, "some cells have no code of their own"
    for cell in (int(shape.uncounted[1]), int(np.flatnonzero(shape.counted_by[0] >= 0)[5])):
        with pytest.raises(OptionError, match=r"would not be monotone: 'age' must be increasing in 'age', but falls from 5 at"):
            original.with_weight("age", shape.words(cell), 5.0)
    lowest = original.weights_.filter(term="age")["weight"][1]
    assert original.with_weight("age", 18, lowest - 0.1).changes_
    changed = original
    while terms := [shape.name for shape in changed.model_.producer.shapes if "age" in shape.columns]:
        changed = changed.without(terms[0])
    changed.save(tmp_path / "model.acx")
    assert load(tmp_path / "model.acx").log_odds(frame).tolist() == log_odds(changed, frame).tolist()
