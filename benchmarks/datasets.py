"""The paper's benchmark tables and the splits every benchmark uses."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import polars as pl
from sklearn.model_selection import train_test_split

FOLDER = Path(os.environ.get("AUTOCROSS_DATA", Path(__file__).parents[2] / "shared" / "data"))
TEST_SHARE = {"bank": 1 / 3, "credit": 1 / 3, "employee": 1 / 10, "criteo": 1 / 10}
NAMES = ["adult", *TEST_SHARE]
SEEDS = range(5)
DEVELOPMENT = {"hospital": 1 / 5, "shop": 1 / 5, "search_ads": 1 / 5}  # tables beside the paper's, and their test shares


def split(name: str, seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Training and test rows; the target is the column `label`. Adult's own split has no seed."""
    if name == "adult":
        return pl.read_parquet(FOLDER / "adult_train.parquet"), pl.read_parquet(FOLDER / "adult_test.parquet")
    frame = pl.read_parquet(FOLDER / f"{name}.parquet")
    rows, share = np.arange(frame.height), (TEST_SHARE | DEVELOPMENT)[name]
    train, test = train_test_split(rows, test_size=share, random_state=seed, stratify=frame["label"].to_numpy())
    return frame[train], frame[test]


def seeds(name: str) -> list[int]:
    """Adult has one split only, and tables of development have three."""
    return [0] if name == "adult" else list(SEEDS[:3] if name in DEVELOPMENT else SEEDS)
