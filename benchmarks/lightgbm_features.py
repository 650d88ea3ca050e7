"""What LightGBM gains from the features of autocross, as dense numbers: test AUC with and without them.

make bench-features
.venv/bin/python benchmarks/lightgbm_features.py --development     a fifth of the training rows judges; nothing is written
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
import polars as pl
from datasets import seeds, split
from lightgbm import LGBMClassifier
from sections import SOURCE, machine, stamp_now, table, write_section
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import train_test_split

from autocross import AutoCross

TABLES = ("employee", "hospital", "search_ads", "shop", "adult", "bank", "credit")
FORMS = ("columns", "columns + statistics", "numbers + statistics")


def columns_of(train: pl.DataFrame, rows: pl.DataFrame) -> Any:
    """The columns as most would give them to LightGBM: numbers, and texts as categories."""
    frame = rows.drop("label").with_columns(pl.col(pl.Boolean).cast(pl.Int8)).to_pandas()
    for name in (name for name in frame if train[name].dtype == pl.String):
        values = train[name].drop_nulls().unique().sort().to_list()
        frame[name] = frame[name].astype("category").cat.set_categories(values)
    return frame


def measured(train: pl.DataFrame, test: pl.DataFrame) -> list[tuple[float, float]]:
    """AUC and log-loss of each form on the test rows."""
    cross = AutoCross(quiet=True, n_jobs=1)
    known = cross.fit_transform(train, "label", output="statistics"), cross.transform(test, output="statistics")
    given = columns_of(train, train), columns_of(train, test)
    names = [f"statistic {number}" for number in range(known[0].shape[1])]
    found = []
    for form in FORMS:
        parts = []
        for frame, numbers in zip(given, known, strict=True):
            kept = frame.select_dtypes(exclude="category") if form.startswith("numbers") else frame
            parts.append(kept if form == "columns" else kept.assign(**dict(zip(names, numbers.T, strict=True))))
        trees = LGBMClassifier(n_jobs=1, verbose=-1).fit(parts[0], train["label"].to_numpy())
        score = trees.predict_proba(parts[1])[:, 1]
        found.append((float(roc_auc_score(test["label"], score)), float(log_loss(test["label"], score))))
    return found


def rows_of(name: str, seed: int, development: bool) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows to train on and rows to judge by."""
    train, test = split(name, seed)
    if not development:
        return train, test
    learned, judged = train_test_split(
        np.arange(train.height), test_size=1 / 5, random_state=seed, stratify=train["label"].to_numpy()
    )
    return train[learned], train[judged]


def main() -> None:
    warnings.simplefilter("ignore")
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--development", action="store_true")
    arguments.add_argument("--tables", nargs="+", default=TABLES)
    given = arguments.parse_args()
    lines, stamp = [], stamp_now(SOURCE)
    for name in given.tables:
        turns = np.array([measured(*rows_of(name, seed, given.development)) for seed in seeds(name)])
        (auc, loss), gain = turns.mean(axis=0).T, turns[:, :, 0] - turns[:, :1, 0]
        error = gain.std(axis=0, ddof=1) / np.sqrt(len(turns)) if len(turns) > 1 else np.full(len(FORMS), np.nan)
        cells = [f"{auc[0]:.4f}"]
        for form in range(1, len(FORMS)):
            uncertain = "" if np.isnan(error[form]) else f" ± {error[form]:.4f}"
            cells += [f"{auc[form]:.4f}", f"{gain[:, form].mean():+.4f}{uncertain}"]
        print(name, cells, [f"{one:.4f}" for one in loss], flush=True)
        lines.append([name, str(len(turns)), *cells, *(f"{one:.4f}" for one in loss)])
    if given.development:
        return
    head = ["", "splits", "columns", "columns + statistics", "gain ± its error", "numbers + statistics", "gain ± its error"]
    text = f"""## LightGBM on features of autocross, by benchmarks/lightgbm_features.py

{table([*head, *(f"log-loss, {form}" for form in FORMS)], lines)}

LightGBM with its defaults, on the same test rows. *Columns*: numbers, and texts as categories. *Columns + statistics*: the same,
and what `AutoCross().fit_transform(train, "label", output="statistics")` gives. *Numbers + statistics*: the statistics stand for
the texts, which are left out. AUC is the mean over the splits, and the gain is paired by split. Where columns have many values with
few rows each, the statistics gain; where they have not, they are a hundred columns more, and may cost a little.
({machine()})
"""
    write_section("lightgbm-features", text, stamp)
    print(text)


if __name__ == "__main__":
    main()
