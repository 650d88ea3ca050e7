"""Monitoring: PSI against an independent computation, in memory and out of core, on every engine, and from the command line."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from autocross import AutoCrossClassifier, load
from autocross.cli import run
from autocross.errors import AutoCrossError, BundleError, LabelError, TableError
from autocross.fitting import encode
from autocross.models import metrics
from autocross.models.evaluation import calibration_error, deciles
from autocross.producer import bundle
from autocross.producer.deciles import N_CELLS, Deciles, count_cells
from autocross.serving.drift import Bin, Drift, Report
from autocross.serving.monitor import Judge
from autocross.serving.scorer import Scorer
from autocross.table import ingest
from test_statistics import eager, ids  # noqa: F401 (a fixture)

TOWNS = [f"town {number}" for number in range(40)]


def table(n: int, seed: int, shift: float = 0.0) -> pl.DataFrame:
    """Rows with a column of every kind. ``shift`` moves all of them but ``noise``. The label depends on shop and item together."""
    rng = np.random.default_rng(seed)
    share = np.arange(40, 0, -1.0) ** (1 + 2 * shift)
    town = rng.choice(TOWNS, n, p=share / share.sum())
    shop, item = rng.choice(["a", "b"], n, p=[0.5 + shift / 4, 0.5 - shift / 4]), rng.choice(["x", "y"], n)
    day = np.datetime64("2024-01-01") + rng.integers(0, 300, n) + int(60 * shift)
    tags = [rng.choice(["red", "green", "blue"], rng.integers(0, 3), replace=False).tolist() for _ in range(n)]
    if shift:
        tags = [[*entry, "red"] if number % 2 and "red" not in entry else entry for number, entry in enumerate(tags)]
    log_odds = 1.5 * np.where((shop == "a") == (item == "x"), 1, -1) + 0.8 * (rng.normal(0, 1, n) > 0)
    frame = pl.DataFrame(
        {
            "town": town,
            "shop": shop,
            "item": item,
            "age": rng.normal(40 + 15 * shift, 12, n).round(1),
            "noise": rng.normal(0, 1, n).round(3),
            "tags": tags,
            "when": day,
            "bought": np.where(rng.random(n) < 1 / (1 + np.exp(-log_odds)), "yes", "no"),
        }
    )
    gone = rng.random(n) < 0.02 + 0.1 * shift
    return frame.with_columns(pl.when(~pl.Series(gone)).then(pl.col(name)).alias(name) for name in ("town", "age", "tags", "when"))


@pytest.fixture(scope="module")
def before() -> pl.DataFrame:
    return table(3_000, 1)


@pytest.fixture(scope="module")
def after() -> pl.DataFrame:
    new = table(2_000, 2, shift=0.5)
    return new.with_columns(town=pl.when(pl.int_range(pl.len()) % 50 == 0).then(pl.lit("elsewhere")).otherwise(pl.col("town")))


@pytest.fixture(scope="module")
def fitted(before: pl.DataFrame) -> AutoCrossClassifier:
    return AutoCrossClassifier(quiet=True, engine="serial", max_crosses=1).fit(before, "bought")


@pytest.fixture(scope="module")
def model_file(fitted: AutoCrossClassifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "model.acx"
    fitted.save(path)
    return path


def drift_of(report: Report, name: str) -> Drift:
    (found,) = [one for one in [*report.columns, *report.crosses] if one.name == name]
    return found


# Against an independent computation.


def psi(before: Iterable[Any], after: Iterable[Any]) -> float:
    """The PSI of two lists of bins, written down as in a textbook."""
    expected, observed, total = Counter(before), Counter(after), 0.0
    for value in expected.keys() | observed.keys():
        e = max(expected[value] / expected.total(), 0.0001)
        o = max(observed[value] / observed.total(), 0.0001)
        total += (o - e) * np.log(o / e)
    return total


def by_frequency(before: list[Any], after: list[Any]) -> float:
    """The PSI by the 19 most frequent values, missing, and the rest. Equal counts leave a choice, which the tables do not have."""
    top = {value for value, _ in Counter(value for value in before if value is not None).most_common(19)}

    def binned(values: list[Any]) -> list[Any]:
        return [value if value is None or value in top else "the rest" for value in values]

    return psi(binned(before), binned(after))


def entries(frame: pl.DataFrame) -> list[Any]:
    return [value for row in frame["tags"].to_list() for value in ([None] if row is None else row)]


OF_COLUMN: dict[str, Callable[[pl.DataFrame], list[Any]]] = {
    "town": lambda frame: frame["town"].to_list(),
    "shop": lambda frame: frame["shop"].to_list(),
    "tags": entries,
    "when.month": lambda frame: frame["when"].dt.month().to_list(),
    "when.weekday": lambda frame: frame["when"].dt.weekday().to_list(),
}


@pytest.mark.parametrize("name", OF_COLUMN)
def test_psi_of_categories(fitted: AutoCrossClassifier, before: pl.DataFrame, after: pl.DataFrame, name: str) -> None:
    values = OF_COLUMN[name]
    found = drift_of(fitted.monitor(after), name)
    assert found.psi == pytest.approx(by_frequency(values(before), values(after)), rel=1e-12)
    assert found.psi > 0.01 or name == "when.weekday"


@pytest.mark.parametrize("name", ["age", "noise"])
def test_psi_of_numbers(fitted: AutoCrossClassifier, before: pl.DataFrame, after: pl.DataFrame, name: str) -> None:
    encoders = [one for one in fitted.model_.producer.encoder.columns if one.column.name == name]
    edges = min((edges for one in encoders for edges in one.edges), key=len)  # type: ignore[attr-defined]

    def binned(frame: pl.DataFrame) -> list[Any]:
        place = pd.cut(frame[name].to_pandas(), [-np.inf, *edges, np.inf], right=False, labels=False)
        return [None if value != value else value for value in place]

    assert drift_of(fitted.monitor(after), name).psi == pytest.approx(psi(binned(before), binned(after)), rel=1e-12)


def test_psi_of_moments() -> None:
    rng = np.random.default_rng(1)
    day = np.sort(rng.integers(0, 1_000, 2_000))
    when = np.datetime64("2020-01-01") + day
    frame = pl.DataFrame({"when": when, "other": rng.normal(0, 1, 2_000), "y": rng.random(2_000) < 0.1 + 0.8 * (day > 500)})
    clf = AutoCrossClassifier(quiet=True, engine="serial", max_crosses=0, split="random").fit(frame, "y")
    report = clf.monitor(frame)
    (moments,) = [one for one in report.columns if one.name.startswith("when [")]
    assert moments.columns == ("when",) and moments.psi == 0.0
    assert re.fullmatch(r"before 20\d\d-\d\d-\d\d", moments.bins[0].value)
    new = clf.monitor(frame[1_500:])
    (encoder,) = [one for one in clf.model_.producer.encoder.columns if one.column.name == "when"]
    edges = min(encoder.bins.edges, key=len)  # type: ignore[attr-defined]
    place = np.digitize(when.astype("datetime64[us]").astype(float), edges).tolist()
    assert drift_of(new, moments.name).psi == pytest.approx(psi(place, place[1_500:]))


def test_psi_of_a_cross(fitted: AutoCrossClassifier, before: pl.DataFrame, after: pl.DataFrame) -> None:
    def combined(frame: pl.DataFrame) -> list[Any]:
        return [*zip(frame["shop"].to_list(), frame["item"].to_list(), strict=True)]

    found = next(one for one in fitted.monitor(after).crosses if set(one.columns) == {"shop", "item"})
    assert found.psi == pytest.approx(by_frequency(combined(before), combined(after)), rel=1e-12)
    assert found.name == "item x shop"


def test_psi_of_the_score(fitted: AutoCrossClassifier, before: pl.DataFrame, after: pl.DataFrame) -> None:
    report = fitted.monitor(after)
    assert fitted.model_.background is not None
    deciles = fitted.model_.background.deciles
    assert deciles is not None and report.score is not None
    binned = [np.digitize(fitted.scorer_.log_odds(frame), deciles.edges).tolist() for frame in (before, after)]
    assert report.score.psi == pytest.approx(psi(*binned), rel=1e-12)
    assert [one.expected for one in report.score.bins] == pytest.approx([0.1] * 10, abs=0.02)


def test_a_shift_that_is_known(fitted: AutoCrossClassifier) -> None:
    """Town 0 has all rows now: PSI has a closed form."""
    frame = table(500, 3).with_columns(town=pl.lit(TOWNS[0]))
    found = drift_of(fitted.monitor(frame), "town")
    own = next(one.expected for one in found.bins if one.value == TOWNS[0])
    others = [one.expected for one in found.bins if one.value != TOWNS[0]]
    gone = sum((0.0001 - share) * np.log(0.0001 / share) for share in others)
    assert found.psi == pytest.approx((1 - own) * np.log(1 / own) + gone)


# Shares.


def test_the_rows_of_the_fit_have_not_changed(fitted: AutoCrossClassifier, before: pl.DataFrame) -> None:
    report = fitted.monitor(before)
    assert max(one.psi for one in [*report.judged, *report.crosses]) == 0.0
    for one in [*report.columns, *report.crosses]:
        assert (one.missing, one.rare_or_unseen) == (one.missing_before, one.rare_before)
        assert sum(share.expected for share in one.bins) == pytest.approx(1)


def test_other_rows_of_the_same_kind_are_stable(fitted: AutoCrossClassifier) -> None:
    report = fitted.monitor(table(3_000, 9))
    assert all(one.reading == "stable" and one.psi < 3 * one.by_chance + 0.01 for one in [*report.judged, *report.crosses])


def test_shares_of_missing_and_unseen_values(fitted: AutoCrossClassifier, after: pl.DataFrame) -> None:
    report = fitted.monitor(after)
    town, tags = drift_of(report, "town"), drift_of(report, "tags")
    assert town.missing == after["town"].null_count() / after.height
    assert town.rare_or_unseen == (after["town"] == "elsewhere").sum() / after.height
    assert tags.missing == after["tags"].null_count() / after.height
    missing = {one.name: one.missing for one in report.columns}
    assert missing["age"] == missing["when.month"] == after["age"].null_count() / after.height
    assert town.rare_before < 0.01
    assert {"(missing)", "(all others)"} < {one.value for one in town.bins}
    assert len(town.bins) == 21


def test_a_combination_is_missing_if_one_of_its_values_is(people: pl.DataFrame, classifier: AutoCrossClassifier) -> None:
    gaps = {name for name in people.columns if people[name].null_count()}
    found = next(one for one in classifier.monitor(people).crosses if gaps & {*one.columns})
    rows = people.select(gone=pl.any_horizontal(pl.col(found.columns).is_null())).sum().item()
    assert 0 <= rows / people.height - found.missing <= found.rare_or_unseen + 1e-9  # a rare combination is not known


def test_hashed_values_are_unseen(before: pl.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    decide = encode.decide_encoding
    monkeypatch.setattr(encode, "decide_encoding", lambda *of: replace(decide(*of), cap=8, n_buckets=16))
    clf = AutoCrossClassifier(quiet=True, engine="serial", max_crosses=0, private=True).fit(before, "bought")
    town = drift_of(clf.monitor(before), "town")
    top = sum(count for _, count in Counter(before["town"].drop_nulls().to_list()).most_common(8)) / before.height
    assert town.rare_or_unseen == pytest.approx(1 - top - town.missing)
    assert all(one.value.startswith(("#", "(")) for one in town.bins)
    assert town.psi == 0.0


# The score.


def test_deciles_of_scores_that_repeat() -> None:
    for log_odds in (np.full(50, 0.3), np.repeat([-2.0, 0.0, 0.001, 50.0], [1, 60, 30, 9]), np.array([-90.0, 90.0])):
        deciles = Deciles.of(count_cells(log_odds))
        assert deciles.count(log_odds).tolist() == deciles.rows.tolist()
        assert deciles.n_rows == len(log_odds)
        assert len(deciles.rows) == min(10, len(np.unique(log_odds)))
    even = Deciles.of(count_cells(np.linspace(-3, 3, 10_000)))
    assert even.rows.tolist() == pytest.approx([1000] * 10, abs=2)
    assert Deciles.of(np.zeros(N_CELLS, np.int64)).n_rows == 0


def test_forged_deciles_are_refused() -> None:
    proper = np.array([0.0, 1.0]), np.array([3, 4, 5])
    assert Deciles.unpack(*proper).n_rows == 12
    for edges, rows in (
        (np.array([1.0, 0.0]), proper[1]),
        (np.array([0.0, np.nan]), proper[1]),
        (proper[0], np.array([3, 4])),
        (proper[0], np.array([3, 0, 5])),
        (proper[0], np.array([3, 1 << 60, 5])),
        (proper[0].astype(np.float32), proper[1]),
        (np.arange(10.0), np.ones(11, np.int64)),
        (proper[0][:, None], proper[1]),
    ):
        with pytest.raises(BundleError, match="its scores have no proper deciles"):
            Deciles.unpack(edges, rows)


@pytest.mark.slow
@pytest.mark.parametrize("how", [{"engine": "threads", "n_jobs": 2}, {"memory_limit": 0.25}, {"engine": "ray", "n_jobs": 2}])
def test_every_engine_has_the_same_deciles(
    fitted: AutoCrossClassifier, before: pl.DataFrame, how: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.parquet"
    before.write_parquet(path)
    monkeypatch.setattr(ingest, "AT_ONCE", 0 if "memory_limit" in how else 1)
    if how.get("engine") == "ray":
        pytest.importorskip("ray")
    other = AutoCrossClassifier(quiet=True, max_crosses=1, **how).fit(str(path), "bought")
    assert fitted.model_.background is not None and other.model_.background is not None
    assert fitted.model_.background.deciles is not None and other.model_.background.deciles is not None
    assert other.model_.background.deciles.edges.tolist() == fitted.model_.background.deciles.edges.tolist()
    assert other.model_.background.deciles.rows.tolist() == fitted.model_.background.deciles.rows.tolist()


def scores_fit(clf: AutoCrossClassifier, frame: pl.DataFrame) -> bool:
    """Whether the deciles of a model are those of its own scores on these rows."""
    background = clf.model_.background
    assert background is not None and background.deciles is not None
    return background.deciles.count(clf.scorer_.log_odds(frame)).tolist() == background.deciles.rows.tolist()


@pytest.mark.slow
def test_deciles_are_those_of_the_models_own_scores(fitted: AutoCrossClassifier, before: pl.DataFrame, after: pl.DataFrame) -> None:
    assert scores_fit(fitted, before)
    assert scores_fit(fitted.at(0), before)
    again = AutoCrossClassifier(quiet=True, engine="serial", max_crosses=1).fit(before, "bought").refit(after, "bought")
    assert scores_fit(again, after) and not scores_fit(again, before)
    weighted = AutoCrossClassifier(quiet=True, engine="serial", max_crosses=0)
    weighted.fit(before, "bought", sample_weight=np.arange(before.height) % 3)
    assert scores_fit(weighted, before.filter(pl.int_range(pl.len()) % 3 != 0))  # every row that counts, once


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_deciles_of_statistics() -> None:
    frame = ids()
    clf = AutoCrossClassifier(quiet=True, engine="serial").fit(frame, "granted")
    assert clf.model_.producer.statistics
    assert scores_fit(clf, frame)
    report = clf.monitor(frame)
    assert max(one.psi for one in report.crosses) == 0.0
    assert any(one.name.endswith("[statistic]") for one in report.crosses)


@pytest.mark.slow
def test_deciles_of_networks() -> None:
    pytest.importorskip("torch")
    from autocross import WideDeepClassifier
    from test_wide_deep import smooth_table

    clf = WideDeepClassifier(quiet=True, engine="serial", n_jobs=1, max_crosses=0, epochs=5).fit(smooth_table(1_500), "y")
    assert clf.model_.additions
    assert scores_fit(clf, smooth_table(1_500))


def test_a_model_that_was_changed_needs_a_reference(
    fitted: AutoCrossClassifier, before: pl.DataFrame, after: pl.DataFrame, model_file: Path, tmp_path: Path
) -> None:
    model = fitted.model_
    assert model.background is not None
    changed = Scorer(replace(model, intercept=model.intercept + 1, kept=replace(model.background, deciles=None)))
    report = changed.monitor(after)
    assert report.score is None
    assert "does not know how its scores were spread" in str(report)
    assert report.to_dict()["score"] is None
    assert "(score)" not in {one.name for one in report.judged}
    with_reference = changed.monitor(before, reference=before).score
    assert with_reference is not None and with_reference.psi == 0.0
    with pytest.raises(TableError, match=r"The reference has no rows.* Give at least one row\."):
        changed.monitor(after, reference=before[:0])
    bundle.save(changed.model, tmp_path / "changed.acx")
    assert load(tmp_path / "changed.acx").monitor(after).score is None


# Labels.


def test_measures_are_those_of_all_rows(fitted: AutoCrossClassifier, after: pl.DataFrame) -> None:
    weight = 0.5 + np.arange(after.height) % 3
    for sample_weight in (None, weight):
        found = fitted.monitor(after, "bought", sample_weight).measures
        assert found is not None
        score, label = fitted.scorer_.log_odds(after), (after["bought"] == "yes").to_numpy().astype(int)
        counts = np.ones(after.height) if sample_weight is None else weight
        assert found.auc == pytest.approx(metrics.auc(label, score, counts), abs=1e-4)
        assert found.log_loss == pytest.approx(metrics.log_loss(label, score, counts), rel=1e-12)
        chance = 1 / (1 + np.exp(-score))
        assert found.brier == pytest.approx(np.average((chance - label) ** 2, weights=counts), rel=1e-9)
        assert found.ece == pytest.approx(calibration_error(deciles(label == 1, metrics.chances(score), counts)), abs=2e-3)
        assert found.positive_rate == pytest.approx(np.average(label, weights=counts))
        assert found.mean_probability == pytest.approx(np.average(chance, weights=counts))
    as_list = fitted.monitor(after.drop("bought"), after["bought"].to_list()).measures
    assert as_list == fitted.monitor(after, "bought").measures


def test_calibration_error_by_hand() -> None:
    score = np.log(np.array([0.2] * 10 + [0.6] * 10) / np.array([0.8] * 10 + [0.4] * 10))
    label = np.array([1] * 3 + [0] * 7 + [1] * 6 + [0] * 4)
    assert calibration_error(deciles(label == 1, metrics.chances(score), np.ones(20))) == pytest.approx((0.1 + 0.0) / 2)
    assert metrics.brier(label, score, np.ones(20)) == pytest.approx((3 * 0.64 + 7 * 0.04 + 6 * 0.16 + 4 * 0.36) / 20)
    assert np.isnan(calibration_error(()))


def test_auc_of_cells_is_close_to_that_of_rows() -> None:
    rng = np.random.default_rng(0)
    score = rng.normal(-1, 1.5, 100_000)
    label = (rng.random(100_000) < 1 / (1 + np.exp(-score))).astype(np.uint8)
    judge, ones = Judge("y", (0, 1)), np.ones(100_000)
    judge.add(label, score, ones, np.arange(100_000))
    about = type("About", (), {"n_rows": 2, "n_positive": 1})()
    found = judge.measures(type("Model", (), {"about": about})())
    assert found.auc == pytest.approx(metrics.auc(label, score, ones), abs=1e-6)


# Files.


@pytest.mark.parametrize("ending", ["csv", "parquet", "folder"])
def test_out_of_core_is_as_in_memory(
    fitted: AutoCrossClassifier, after: pl.DataFrame, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"new.{ending}"
    frame = after.with_columns(weight=pl.lit(1.0))
    if ending == "folder":
        path.mkdir()
        frame[:700].write_parquet(path / "a.parquet")
        frame[700:].write_parquet(path / "b.parquet")
    elif ending == "csv":
        flat = frame.with_columns(tags=pl.col("tags").list.join("|"))
        flat.write_csv(path)
        declared = [replace(one, separator="|") if one.name == "tags" else one for one in fitted.model_.producer.encoder.schema]
        encoder = replace(fitted.model_.producer.encoder, schema=tuple(declared))
        columns = tuple(
            replace(one, column=replace(one.column, separator="|")) if one.column.name == "tags" else one for one in encoder.columns
        )
        model = replace(fitted.model_, producer=replace(fitted.model_.producer, encoder=replace(encoder, columns=columns)))
    else:
        frame.write_parquet(path)
    if ending != "csv":
        model = fitted.model_
    whole = Scorer(model).monitor(str(path), "bought", "weight")
    monkeypatch.setattr(ingest, "AT_ONCE", 0)
    monkeypatch.setattr(ingest, "MOST_TOGETHER", 300)
    seen = []
    monkeypatch.setattr(ingest, "to_polars", lambda *_: seen.append("read as a whole"))
    parts = Scorer(model).monitor(str(path), "bought", "weight")
    assert not seen
    assert parts.n_rows == whole.n_rows == after.height
    assert (parts.columns, parts.crosses, parts.score) == (whole.columns, whole.crosses, whole.score)
    assert parts.measures is not None and whole.measures is not None
    assert vars(parts.measures) == pytest.approx(vars(whole.measures), rel=1e-9)


def test_errors_of_later_parts_name_the_row(
    fitted: AutoCrossClassifier, after: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = pl.Series(["maybe" if row == 1_234 else value for row, value in enumerate(after["bought"].to_list())])
    monkeypatch.setattr(ingest, "MOST_TOGETHER", 300)
    with pytest.raises(LabelError, match=r"The target 'bought' holds 'maybe' in row 1234"):
        fitted.monitor(after.with_columns(bought=odd), "bought")
    ages = pl.Series(["old" if row == 1_999 else str(value) for row, value in enumerate(after["age"].fill_null(1).to_list())])
    with pytest.raises(AutoCrossError, match=r"'age' .*row 1999 .*'old'"):
        fitted.monitor(after.with_columns(age=ages, weight=pl.lit(1) - (pl.int_range(pl.len()) == 7)), None, "weight")


def test_rows_of_weight_zero_are_left_out(fitted: AutoCrossClassifier, before: pl.DataFrame, after: pl.DataFrame) -> None:
    both = pl.concat([before, after]).with_columns(weight=(pl.int_range(pl.len()) < before.height).cast(pl.Int8))
    report = fitted.monitor(both, "bought", "weight")
    assert report.n_rows == before.height
    assert report.columns == fitted.monitor(before).columns


def test_an_array_without_names_is_taken(before: pl.DataFrame) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(0, 1, (400, 3))
    clf = AutoCrossClassifier(quiet=True, engine="serial", max_crosses=0).fit(X, (X[:, 0] + rng.normal(0, 1, 400) > 0).astype(int))
    assert clf.monitor(X).worst is not None
    moved = clf.monitor(X + np.array([0, 9, 0])).above(0.25)
    assert {name for one in moved for name in one.columns} == {"x1"}


# Bad input.


def test_bad_tables_are_refused(fitted: AutoCrossClassifier, after: pl.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"The new table has no rows to compare .* Give at least one row\."):
        fitted.monitor(after[:0])
    with pytest.raises(TableError, match=r"Column 'town' is missing from the table"):
        fitted.monitor(after.drop("town"))
    with pytest.raises(LabelError, match=r"The target column 'sold' is not in the table\."):
        fitted.monitor(after, "sold")
    with pytest.raises(LabelError, match=r"The weight column 'w' is not in the table\."):
        fitted.monitor(after, None, "w")
    with pytest.raises(LabelError, match=r"The target 'bought' holds 'yes' in all rows, .* Give rows of both labels"):
        fitted.monitor(after.filter(pl.col("bought") == "yes"), "bought")
    with pytest.raises(TableError, match=r"2000 rows, but there are 3 labels"):
        fitted.monitor(after, ["yes", "no", "no"])


def test_a_model_of_an_older_file_must_be_refitted(fitted: AutoCrossClassifier, after: pl.DataFrame) -> None:
    with pytest.raises(AutoCrossError, match=r"older version\. Refit it"):
        Scorer(replace(fitted.model_, counts=None, kept=None)).monitor(after)
    assert Scorer(replace(fitted.model_, kept=None)).monitor(after).score is None


@pytest.mark.parametrize("number", [1, 3])
def test_old_files_are_refused_by_the_command(number: int, new_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden = Path(__file__).parent / "golden" / f"format-{number}.acx"
    assert run(["monitor", str(golden), str(new_file)]) == 2
    assert "its file is of an older version. Refit it" in capsys.readouterr().err


# The command.


@pytest.fixture(scope="module")
def new_file(after: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "new.parquet"
    after.write_parquet(path)
    return path


def test_the_command_prints_a_table(model_file: Path, new_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["monitor", str(model_file), str(new_file), "--target", "bought"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == "2,000 new rows, compared with 3,000 rows of the fit"
    assert max(map(len, lines)) <= 80
    assert "AUC" in out and "calibration error" in out and "(score)" in out
    shown = [float(match[1]) for line in lines if (match := re.match(r" *(\d+\.\d+)  (?:stable|shifted|changed) ", line))]
    n_columns = len(load(model_file).monitor(str(new_file)).judged)
    assert shown[:n_columns] == sorted(shown[:n_columns], reverse=True)


def test_the_command_prints_json(
    model_file: Path, new_file: Path, capsys: pytest.CaptureFixture[str], fitted: AutoCrossClassifier, after: pl.DataFrame
) -> None:
    arguments = ["monitor", str(model_file), str(new_file), "--target", "bought", "--json"]
    assert run(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(json.dumps(fitted.monitor(after, "bought").to_dict()))
    assert {"n_rows", "n_rows_before", "measures", "score", "columns", "crosses"} == set(found)
    assert {"auc", "log_loss", "brier", "ece"} <= set(found["measures"])
    parts = {"name", "columns", "psi", "reading", "missing", "rare_or_unseen", "missing_before", "rare_before", "by_chance", "bins"}
    assert all(set(one) == parts for one in [*found["columns"], *found["crosses"], found["score"]])
    assert run([*arguments, "--fail-above", "0.25"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["fail_above"] == 0.25
    assert found["above"] == [one.name for one in fitted.monitor(after).above(0.25)] != []


def test_the_exit_code_is_3_above_the_limit(
    model_file: Path, new_file: Path, before: pl.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["monitor", str(model_file), str(new_file), "--fail-above", "0.25"]) == 3
    assert "above the limit of 0.25" in capsys.readouterr().out
    assert run(["monitor", str(model_file), str(new_file), "--fail-above", "100"]) == 0
    before.write_parquet(tmp_path / "same.parquet")
    assert run(["monitor", str(model_file), str(tmp_path / "same.parquet"), "--fail-above", "0"]) == 0


@pytest.mark.parametrize("limit", ["nan", "-0.1", "inf"])
def test_a_bad_limit_is_refused(model_file: Path, new_file: Path, limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["monitor", str(model_file), str(new_file), f"--fail-above={limit}"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(rf"--fail-above {limit} is no limit of a PSI\. Give a number of 0 or more", err)


def test_names_are_escaped_and_long_lists_are_cut() -> None:
    drifts = [Drift(f"column {n}\x1b[2J" + n * "long", (), n / 100, 0, 0, 0, 0, 0, (Bin("any", 1, 1),)) for n in range(30)]
    text = str(Report(10, 20, None, tuple(drifts), tuple(drifts)))
    assert "\x1b" not in text and r"\x1b[2J" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "... and 10 more columns, at most 0.0900" in text
    names = "".join(line[36:].replace(" ", "") for line in text.splitlines())
    assert all(rf"column{n}\x1b[2J{n * 'long'}" in names for n in range(10, 30))  # long names are not cut
    assert [one.reading for one in drifts if one.psi in (0.09, 0.1, 0.25, 0.26)] == ["stable", "shifted", "shifted", "changed"]


# The page.
