"""The forms in which features are handed out: categories and dense numbers, and what other libraries make of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from lightgbm import LGBMClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.preprocessing import OneHotEncoder

from autocross import AutoCross, AutoCrossClassifier
from autocross.cli import run
from autocross.errors import AutoCrossError, OptionError
from autocross.producer.features import Features
from autocross.statistic import STRENGTH

N_ROWS = 2000


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    """Shops whose rows turn out alike, jobs of which some are missing, ages and tags."""
    random = np.random.default_rng(5)
    shop, job = random.integers(0, 200, N_ROWS), random.integers(0, 4, N_ROWS)
    level = random.normal(0, 2, 200)
    sold = random.random(N_ROWS) < 1 / (1 + np.exp(-level[shop] - (job == 1)))
    tags = [[f"t{tag}" for tag in set(random.integers(0, 5, random.integers(0, 4)).tolist())] for _ in range(N_ROWS)]
    return pl.DataFrame(
        {
            "shop": [f"s{number}" for number in shop],
            "job": [["cook", "nurse", "pilot", None][number] for number in job],
            "age": random.integers(18, 70, N_ROWS),
            "tags": tags,
            "sold": sold.astype(int),
        }
    )


@pytest.fixture(scope="module")
def fitted(rows: pl.DataFrame) -> AutoCrossClassifier:
    return AutoCrossClassifier(quiet=True, engine="serial", max_crosses=2).fit(rows, "sold")


@pytest.fixture(scope="module")
def plain(rows: pl.DataFrame) -> AutoCross:
    """Without the column of lists."""
    return AutoCross(quiet=True, engine="serial", max_crosses=2).fit(rows.drop("tags"), "sold")


# Categories.


def test_a_frame_has_categories_in_the_order_of_their_codes(fitted: AutoCrossClassifier, rows: pl.DataFrame) -> None:
    by_polars, by_pandas = fitted.transform(rows, output="frame"), fitted.transform(rows.to_pandas(), output="frame")
    features = Features(fitted.model_)
    for feature, (name, field) in enumerate(zip(features.names, features.fields, strict=True)):
        assert by_polars[name].cast(pl.String).to_list() == by_pandas[name].astype(str).to_list()
        if field.width > 1:
            assert by_polars[name].dtype == pl.String
            continue
        expected = [features.describe(feature, code) for code in range(field.n_codes)]
        assert by_polars[name].dtype == pl.Enum(expected)
        assert by_pandas[name].cat.categories.to_list() == expected
        assert by_pandas[name].cat.ordered == name.startswith("age"), name
    assert by_polars["job"].to_list() == rows["job"].fill_null("(missing)").to_list()
    assert by_polars["tags"].to_list()[:50] == ["|".join(cell) for cell in by_pandas["tags"].str.split("|")][:50]


def test_new_rows_have_the_same_categories(fitted: AutoCrossClassifier, rows: pl.DataFrame) -> None:
    new = rows.head(2).with_columns(shop=pl.lit("never"))
    known, found = (fitted.transform(some, output="frame") for some in (rows, new))
    assert known.schema == found.schema
    assert found["shop"].to_list() == ["(rare)"] * 2


def test_values_that_read_alike_are_told_apart() -> None:
    rows = pl.DataFrame({"a": ["1 x b=2", "1"] * 40, "b": ["3", "2 x b=3"] * 40, "label": [0, 1, 0, 1, 1] * 16})
    model = AutoCross(quiet=True, engine="serial", max_crosses=0).fit(rows, "label").model_
    features = Features(model)
    features.describe = lambda feature, code: "same"  # type: ignore[method-assign]
    assert features.categories(0) == ["same", "same (1)", "same (2)", "same (3)"]


@pytest.mark.slow
def test_lightgbm_and_scikit_learn_take_categories_as_they_are(plain: AutoCross, rows: pl.DataFrame) -> None:
    label = rows["sold"].to_numpy()
    frame = plain.transform(rows.drop("tags").to_pandas(), output="frame")
    model = LGBMClassifier(n_jobs=1, n_estimators=5, verbose=-1).fit(frame, label)
    categorical = [name for name in frame if not frame[name].cat.ordered]
    assert {"shop", "job"} <= {*categorical}
    assert model.predict_proba(frame).shape == (N_ROWS, 2)
    assert OneHotEncoder().fit_transform(frame).shape[0] == N_ROWS
    narrow = [name for name in frame if frame[name].nunique() <= 255]
    for some in (frame[narrow], plain.transform(rows.drop("tags"), output="frame")[narrow]):
        boosted = HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=5).fit(some, label)
        assert boosted.is_categorical_.all()


# Dense numbers.


def counted(rows: pl.DataFrame, columns: list[str], base: float) -> tuple[Any, Any]:
    """The two numbers of each row, by all rows with its value."""
    known = rows.select(n=pl.len().over(columns), up=pl.col("sold").sum().over(columns))
    up, n = known["up"].to_numpy(), known["n"].to_numpy()
    odds = (up + STRENGTH * base) / (n - up + STRENGTH * (1 - base))
    return np.log(odds * (1 - base) / base), np.log1p(n)


def test_numbers_of_new_rows_are_those_of_all_rows(fitted: AutoCrossClassifier, rows: pl.DataFrame) -> None:
    found, names = fitted.transform(rows, output="statistics"), fitted.get_feature_names_out(output="statistics").tolist()
    assert found.shape == (N_ROWS, len(names)) == (N_ROWS, 2 * len(fitted.model_.producer.fields))
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    base = float(rows["sold"].mean())  # type: ignore[arg-type]
    for column in ("shop", "job"):
        rate, count = counted(rows, [column], base)
        np.testing.assert_allclose(found[:, names.index(f"{column} (log-odds)")], rate, atol=1e-5)
        np.testing.assert_allclose(found[:, names.index(f"{column} (log count)")], count, atol=1e-5)


def test_lists_have_the_mean_of_their_values(fitted: AutoCrossClassifier, rows: pl.DataFrame) -> None:
    found, names = fitted.transform(rows, output="statistics"), fitted.get_feature_names_out(output="statistics").tolist()
    alone = fitted.transform(
        pl.DataFrame({"shop": "s1", "job": "cook", "age": 30, "tags": [["t0"], ["t1"], ["t2"], ["t3"], ["t4"], []]}),
        output="statistics",
    )
    of_tag = {f"t{number}": alone[number] for number in range(5)}
    for name in ("tags (log-odds)", "tags (log count)"):
        place = names.index(name)
        expected = [np.mean([of_tag[tag][place] for tag in cell]) if cell else alone[5][place] for cell in rows["tags"].to_list()]
        np.testing.assert_allclose(found[:, place], expected, atol=1e-5)


def test_rows_of_the_fit_do_not_know_their_own_label(rows: pl.DataFrame) -> None:
    cross = AutoCross(quiet=True, engine="serial", max_crosses=0, types={"age": "ignore"})
    learned = cross.fit_transform(rows, "sold", output="statistics")
    names, later = cross.get_feature_names_out(output="statistics").tolist(), cross.transform(rows, output="statistics")
    counts = [place for place, name in enumerate(names) if name.endswith("(log count)")]
    np.testing.assert_array_equal(learned[:, counts], later[:, counts])
    shop = names.index("shop (log-odds)")
    assert (learned[:, shop] != later[:, shop]).mean() > 0.9
    # A row whose label is turned round has the same numbers in a fit to the same rows, except for those of its own label.
    for row in range(0, 40, 10):
        turned = rows["sold"].to_numpy().copy()
        turned[row] = 1 - turned[row]
        again = AutoCross(quiet=True, engine="serial", max_crosses=0, types={"age": "ignore"})
        other = again.fit_transform(rows.with_columns(sold=pl.Series(turned)), "sold", output="statistics")
        base, shifted = (float(np.log(label.mean() / (1 - label.mean()))) for label in (rows["sold"].to_numpy(), turned))
        assert abs(other[row, shop] - learned[row, shop]) < abs(shifted - base) + 0.01


def test_rows_of_no_weight_are_like_new_rows(rows: pl.DataFrame) -> None:
    weight = np.ones(N_ROWS)
    weight[::5] = 0.0
    cross = AutoCross(quiet=True, engine="serial", max_crosses=0)
    learned = cross.fit_transform(rows, "sold", weight, output="statistics")
    later = cross.transform(rows, output="statistics")
    np.testing.assert_array_equal(learned[::5], later[::5])
    assert (learned[1::5] != later[1::5]).any(axis=1).all()


def test_what_cannot_be_given_is_refused(fitted: AutoCrossClassifier, plain: AutoCross, rows: pl.DataFrame) -> None:
    with pytest.raises(OptionError, match=r"output='dense' is unknown\. Choose one of: csr, codes, frame, statistics"):
        plain.transform(rows, output="dense")  # type: ignore[call-overload]
    with_frames = AutoCross(quiet=True, engine="serial", max_crosses=0).set_output(transform="pandas").fit(rows, "sold")
    with pytest.raises(OptionError, match="output='statistics' gives a matrix, but set_output asks for a frame"):
        with_frames.transform(rows, output="statistics")
    older = AutoCross(quiet=True)
    older._keep(replace(fitted.model_, counts=None))
    with pytest.raises(AutoCrossError, match="saved by an older version, which kept no counts"):
        older.transform(rows, output="statistics")


@pytest.mark.parametrize("form", ["frame", "codes", "statistics"])
def test_the_command_writes_every_form(
    form: Any, plain: AutoCross, rows: pl.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data, out = (str(tmp_path / name) for name in ("model.acx", "rows.parquet", "out.parquet"))
    plain.save(model)
    rows.drop("tags").write_parquet(data)
    assert run(["transform", model, data, "--as", form, "-o", out]) == 0
    found = pl.read_parquet(out)
    if form == "frame":
        assert found.equals(plain.transform(rows, output="frame"))
    else:
        np.testing.assert_array_equal(found.to_numpy(), plain.transform(rows, output=form))
        assert found.columns == plain.get_feature_names_out(output=form).tolist()
    assert run(["transform", model, data, "--codes", "--as", "statistics", "-o", out]) == 2
    assert "--codes and --as statistics contradict each other" in capsys.readouterr().err
