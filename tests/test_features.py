"""Statistics of values as features: what transform and fit_transform give, and the words for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.typing import NDArray

from autocross import AutoCross, AutoCrossClassifier, load
from autocross.blocks import COUNT, RATE, Block
from autocross.cli import run
from autocross.features import FIRST
from autocross.producer.features import PARTS, Features, value_of_bin
from autocross.producer.model import NEVER_SEEN
from autocross.producer.wording import words
from autocross.producer.words import in_words, summary
from autocross.search import statistics
from autocross.statistic import COUNT_EDGES, RATE_EDGES, SIZES, STRENGTH
from autocross.table import ingest

N_ROWS = 6_000
Seen = dict[tuple[int, ...], NDArray[np.uint8]]  # the codes of both parts of a statistic, (2, n_rows)


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    """Ids with an effect each, and one for pairs that recur, so that statistics are accepted."""
    rng, n_ids = np.random.default_rng(5), 600
    shop, item = rng.integers(0, n_ids, N_ROWS), rng.integers(0, n_ids // 2, N_ROWS)
    clerk = (shop * 7 + rng.integers(0, 3, N_ROWS)) % n_ids
    effects = [rng.normal(0, scale, n) for scale, n in ((1.0, n_ids), (1.0, n_ids), (0.5, n_ids), (1.5, n_ids**2))]
    log_odds = effects[0][shop] + effects[1][clerk] + effects[2][item] + effects[3][shop * n_ids + clerk]
    label = np.where(rng.random(N_ROWS) < 1 / (1 + np.exp(-log_odds)), "yes", "no")
    ids = {name: [f"{name}{one}" for one in values] for name, values in (("shop", shop), ("clerk", clerk), ("item", item))}
    return pl.DataFrame({**ids, "age": rng.normal(40, 9, N_ROWS).round(1), "sold": label})


def make(**options: Any) -> AutoCross:
    return AutoCross(quiet=True, engine="serial", **options)


@pytest.fixture(scope="module")
def cross(rows: pl.DataFrame) -> AutoCross:
    found = make().fit(rows, "sold")
    assert {("shop",), ("clerk", "shop")} <= {one.columns for one in found.crosses_ if one.kind == "statistic"}
    return found


@pytest.fixture(scope="module")
def classifier(rows: pl.DataFrame) -> AutoCrossClassifier:
    return AutoCrossClassifier(quiet=True, engine="serial").fit(rows, "sold")


def is_statistic(names: list[str]) -> NDArray[np.bool_]:
    return np.array([name.endswith(("(rate)", "(count)")) for name in names])


def in_blocks(block: Block, fields: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    return block.row, np.stack([block.coded((part, *fields)).codes for part in (RATE, COUNT)])


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What the last fit learns from."""
    found: Seen = {}
    real = statistics.place

    def place(engine: Any, coder: Any, n_folds: int, base: float) -> Any:
        counts = real(engine, coder, n_folds, base)
        if n_folds == 0:
            parts = engine.each(in_blocks, coder.fields)
            number = np.concatenate([row for row, _ in parts])
            found[coder.fields] = np.concatenate([codes for _, codes in parts], axis=1)[:, np.argsort(number)]
        return counts

    monkeypatch.setattr(statistics, "place", place)
    return found


def of_statistics(cross: AutoCross, codes: NDArray[Any]) -> Seen:
    """The columns of codes that belong to each statistic."""
    features = Features(cross.model_)
    found: dict[tuple[int, ...], list[NDArray[Any]]] = {}
    for column, (number, part) in enumerate(features.sources):
        if part is not None:
            found.setdefault(features.producer.statistics[number].fields, []).append(codes[:, column])
    return {fields: np.stack(parts) for fields, parts in found.items()}


def check_same(ours: Seen, theirs: Seen) -> None:
    assert ours.keys() == theirs.keys()
    for fields, codes in ours.items():
        np.testing.assert_array_equal(codes, theirs[fields])


# What new rows get.


def test_a_statistic_is_two_features(cross: AutoCross, rows: pl.DataFrame) -> None:
    features = Features(cross.model_)
    n_statistics = sum(one.kind == "statistic" for one in cross.crosses_)
    assert len(features.fields) == len(cross.model_.producer.fields) + n_statistics
    assert {"shop (rate)", "shop (count)", "clerk x shop (rate)", "clerk x shop (count)"} <= {*features.names}
    assert not any("[statistic]" in name for name in features.names)
    sizes = {field.name: field.n_codes for field in features.fields}
    assert (sizes["shop (rate)"], sizes["shop (count)"]) == SIZES
    names = cross.get_feature_names_out().tolist()
    assert len({*names}) == len(names) == sum(sizes.values()) == cross.transform(rows).shape[1]
    assert {"shop (rate)=below -5", "shop (count)=0", "shop (count)=32768.5 or more"} <= {*names}


def test_rates_and_counts_are_those_of_all_rows(cross: AutoCross, rows: pl.DataFrame) -> None:
    frame = cross.transform(rows, output="frame")
    base = float((rows["sold"] == "yes").mean())  # type: ignore[arg-type]
    for columns in (["shop"], ["clerk", "shop"]):
        name = " x ".join(columns)
        known = rows.select(n=pl.len().over(columns), positive=(pl.col("sold") == "yes").sum().over(columns)).rows()
        for row in range(200):
            n, positive = known[row]
            odds = (positive + STRENGTH * base) / (n - positive + STRENGTH * (1 - base)) * (1 - base) / base
            rate, count = np.searchsorted(RATE_EDGES, math.log(odds)), np.searchsorted(COUNT_EDGES, n)
            assert frame[f"{name} (rate)"][row] == words(value_of_bin(0, FIRST + int(rate)))
            assert frame[f"{name} (count)"][row] == words(value_of_bin(1, FIRST + int(count)))


def test_codes_ones_and_words_agree(cross: AutoCross, rows: pl.DataFrame) -> None:
    features, some = Features(cross.model_), rows.head(50)
    codes = cross.transform(some, output="codes")
    first = np.cumsum([0, *(field.n_codes for field in features.fields[:-1])])
    np.testing.assert_array_equal(cross.transform(some).indices.reshape(codes.shape), codes + first)
    names = cross.get_feature_names_out()
    for row, ones in zip(cross.transform(some, output="frame").iter_rows(named=True), cross.transform(some), strict=True):
        assert [f"{field}={value}" for field, value in row.items()] == names[ones.indices].tolist()


def test_new_rows_and_their_labels(cross: AutoCross, rows: pl.DataFrame) -> None:
    new = rows.head(3).with_columns(shop=pl.lit("never"))
    frame = cross.transform(new, output="frame")
    assert frame["clerk x shop (rate)"].to_list() == ["-0.05 to 0.05"] * 3
    assert frame["clerk x shop (count)"].to_list() == ["0"] * 3
    assert cross.transform(new.drop("sold"), output="frame").equals(frame)


def test_set_output(cross: AutoCross, rows: pl.DataFrame) -> None:
    with_frames = make().set_output(transform="pandas")
    frame = with_frames.fit_transform(rows, "sold")
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == with_frames.get_feature_names_out().tolist() == Features(cross.model_).names


@pytest.mark.parametrize("part", [0, 1], ids=PARTS)
def test_bins_read_differently(part: int) -> None:
    shown = [words(value_of_bin(part, code)) for code in range(SIZES[part])]
    assert len({*shown}) == SIZES[part]
    assert shown[:2] == ["(missing)", "(rare)"]


def test_the_command_line(cross: AutoCross, rows: pl.DataFrame, tmp_path: Path) -> None:
    cross.save(tmp_path / "model.acx")
    rows.write_csv(tmp_path / "rows.csv")
    model, data = str(tmp_path / "model.acx"), str(tmp_path / "rows.csv")
    assert run(["transform", model, data, "-o", str(tmp_path / "words.parquet")]) == 0
    assert pl.read_parquet(tmp_path / "words.parquet").equals(cross.transform(rows, output="frame"))
    assert run(["transform", model, data, "--codes", "-o", str(tmp_path / "codes.parquet")]) == 0
    np.testing.assert_array_equal(pl.read_parquet(tmp_path / "codes.parquet").to_numpy(), cross.transform(rows, output="codes"))


def test_models_of_older_files_have_no_statistics(rows: pl.DataFrame) -> None:
    few = make().fit(rows.select("age", "sold"), "sold")
    older = replace(few.model_, counts=None, about=replace(few.model_.about, n_positive=None))
    assert Features(older).value_names() == few.get_feature_names_out().tolist()
    assert older.describe(0, 2) == older.producer.describe(0, 2)


# What the rows of the fit get.

TABLES: dict[str, Callable[[pl.DataFrame], Any]] = {"polars": lambda rows: rows, "pandas": lambda rows: rows.to_pandas()}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("y", ["name", "array"])
def test_rows_of_the_fit_get_what_was_learned_from(table: Any, y: str, seen: Seen, rows: pl.DataFrame) -> None:
    X = table(rows if y == "name" else rows.drop("sold"))
    cross = make(random_state=3)
    codes = cross.fit_transform(X, "sold" if y == "name" else rows["sold"].to_numpy(), output="codes")
    check_same(of_statistics(cross, codes), seen)
    later, statistic = cross.transform(X, output="codes"), is_statistic(Features(cross.model_).names)
    np.testing.assert_array_equal(codes[:, ~statistic], later[:, ~statistic])
    assert (codes != later).any(axis=0).tolist() == statistic.tolist()


@pytest.mark.slow
def test_every_output_of_fit_transform(cross: AutoCross, rows: pl.DataFrame) -> None:
    codes, matrix, frame = (make().fit_transform(rows, "sold", output=output) for output in ("codes", None, "frame"))
    features = Features(cross.model_)
    first = np.cumsum([0, *(field.n_codes for field in features.fields[:-1])])
    np.testing.assert_array_equal(matrix.indices.reshape(codes.shape), codes + first)
    assert frame.columns == features.names
    for column in np.flatnonzero(is_statistic(features.names)).tolist():
        assert frame[:, column].to_list() == [features.describe(column, code) for code in codes[:, column].tolist()]


def test_rows_without_column_names(seen: Seen, rows: pl.DataFrame) -> None:
    cross = make()
    codes = cross.fit_transform(rows.drop("sold", "age").to_numpy(), rows["sold"].to_list(), output="codes")
    check_same(of_statistics(cross, codes), seen)


def test_a_file(seen: Seen, rows: pl.DataFrame, tmp_path: Path) -> None:
    rows.write_csv(tmp_path / "rows.csv")
    cross = make()
    codes = cross.fit_transform(tmp_path / "rows.csv", "sold", output="codes")
    check_same(of_statistics(cross, codes), seen)


@pytest.mark.filterwarnings("ignore:The time limit of 1000 s leaves no time for all rows")
@pytest.mark.parametrize("why", ["weight", "time"])
def test_rows_that_were_not_learned_from_are_like_new_rows(
    why: str, seen: Seen, rows: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = np.ones(N_ROWS)
    if why == "weight":
        weight[::7] = 0.0
    else:
        monkeypatch.setattr(ingest, "share_in_time", lambda options, n_rows, n_columns: 0.8)
    cross = make(time_limit=1000 if why == "time" else None)
    codes = cross.fit_transform(rows, "sold", weight, output="codes")
    learned = ingest.that_count(weight.astype(np.float32), 0, 0.8 if why == "time" else 1.0)
    assert 0.7 < learned.mean() < 0.9
    check_same(of_statistics(cross, codes[learned]), seen)
    np.testing.assert_array_equal(codes[~learned], cross.transform(rows, output="codes")[~learned])


def test_without_statistics_fit_transform_is_fit_then_transform(rows: pl.DataFrame) -> None:
    cross = make(max_crosses=0)
    assert (cross.fit_transform(rows, "sold") != cross.transform(rows)).nnz == 0


# Words.


def reason_of(classifier: AutoCrossClassifier, row: dict[str, Any], name: str) -> str:
    return next(reason.value for reason in classifier.explain(row, by="field").reasons if reason.name == f"{name} [statistic]")


def test_reasons_say_what_is_known_about_the_rows_of_a_value(classifier: AutoCrossClassifier, rows: pl.DataFrame) -> None:
    row = rows.row(0, named=True)
    known = rows.filter(shop=row["shop"])
    share = f"{100 * (known['sold'] == 'yes').sum() / known.height:.0f} % yes"
    assert reason_of(classifier, row, "shop") == f"{row['shop']}, {known.height} rows, {share}"
    pair = known.filter(clerk=row["clerk"])
    assert reason_of(classifier, row, "clerk x shop").startswith(f"{row['clerk']} & {row['shop']}, {pair.height} row")
    assert reason_of(classifier, {**row, "clerk": "x", "shop": "y"}, "clerk x shop").endswith(NEVER_SEEN)
    explanation = classifier.explain(row)
    total = explanation.mean_log_odds + sum(reason.contribution for reason in explanation.reasons)
    assert total == pytest.approx(explanation.log_odds)


def test_words_for_numbers_of_rows(classifier: AutoCrossClassifier) -> None:
    model = classifier.model_
    number, coder = next(iter(model.producer.statistics.items()))
    assert model.counts is not None

    def described(n_rows: int, n_positive: int, positive: Any = "yes") -> str:
        counts = np.zeros((coder.n_codes, 2), np.int64)
        counts[FIRST] = n_rows, n_positive
        given = tuple(counts if place == number else one for place, one in enumerate(model.counts or ()))
        other = replace(model, counts=given, about=replace(model.about, classes=("no", positive)))
        return other.describe(number, FIRST).rpartition(": ")[2]

    assert described(1, 1) == "1 row, 100 % yes"
    assert described(41, 40) == "41 rows, 98 % yes"
    assert described(1234, 0, True) == "1,234 rows, 0 % positive"
    assert described(0, 0) == "0 rows"
    # If some rows have a value without a code, such a value may have been seen.
    assert model.describe(number, 1).endswith(NEVER_SEEN)
    assert replace(model, about=replace(model.about, n_rows=N_ROWS + 1)).describe(number, 1) == "(rare)"


def test_show(classifier: AutoCrossClassifier, rows: pl.DataFrame, tmp_path: Path) -> None:
    classifier.save(tmp_path / "model.acx")
    facts = summary(load(tmp_path / "model.acx").model)
    assert facts == summary(classifier.model_)
    assert [one["kind"] for one in facts["crosses"]] == [one.kind for one in classifier.crosses_]
    assert facts["share_of_statistics"] == classifier.model_.share > 0
    n = sum(one.kind == "statistic" for one in classifier.crosses_)
    assert f", {n} statistics with {100 * classifier.model_.share:g} % of the log-odds" in in_words(facts)
    strongest = next(field["strongest"] for field in facts["fields"] if field["name"] == "shop [statistic]")
    assert all(" rows, " in value and value.endswith(" % yes") for value, _ in strongest)


def test_show_without_statistics(rows: pl.DataFrame) -> None:
    plain = AutoCrossClassifier(quiet=True, engine="serial", max_crosses=0).fit(rows, "sold")
    assert "statistic" not in in_words(summary(plain.model_))
