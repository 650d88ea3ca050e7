"""Time of a default fit beside CatBoost's default fit: the same rows, the same run, 2 threads.

make bench-race
.venv/bin/python benchmarks/race.py adult bank       only these tables
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pandas
import polars as pl
from catboost import CatBoostClassifier
from datasets import NAMES, split
from sections import machine, table, write_section

from autocross import AutoCrossClassifier
from autocross.models.metrics import auc

AIM = {"adult": "1", "bank": "1", "employee": "1", "criteo": "1/4", "credit": ""}


def for_catboost(frame: pl.DataFrame) -> tuple[pandas.DataFrame, list[str]]:
    """Categories as text, numbers as numbers; and which are categories."""
    features = frame.drop("label")
    texts = [column for column in features.columns if features[column].dtype == pl.String]
    filled = features.with_columns(pl.col(texts).cast(pl.String).fill_null("missing"))
    return pandas.DataFrame({column: filled[column].to_numpy() for column in filled.columns}), texts


def main(names: list[str]) -> None:
    warm, _ = split("adult", 0)
    AutoCrossClassifier(quiet=True, max_crosses=1).fit(warm, "label")  # compile before the clock starts
    rows = []
    for name in names:
        train, test = split(name, 0)
        label = test["label"].to_numpy()
        began = time.perf_counter()
        ours = AutoCrossClassifier(quiet=True).fit(train, "label")
        our_seconds = time.perf_counter() - began
        frame, texts = for_catboost(train)
        began = time.perf_counter()
        theirs = CatBoostClassifier(verbose=0, thread_count=2, cat_features=texts, allow_writing_files=False)
        theirs.fit(frame, train["label"].to_numpy())
        their_seconds = time.perf_counter() - began
        our_auc = auc(label, ours.decision_function(test), np.ones(len(label)))
        their_auc = auc(label, theirs.predict_proba(for_catboost(test)[0])[:, 1], np.ones(len(label)))
        ratio = our_seconds / their_seconds
        cells = [f"{our_auc:.4f}", f"{our_seconds:.1f}", f"{their_auc:.4f}", f"{their_seconds:.1f}", f"{ratio:.2f}", AIM[name]]
        rows.append([name.capitalize(), *cells])
        print(rows[-1], flush=True)
        write_section("race", text_of(rows))


def text_of(rows: list[list[str]]) -> str:
    """The section as far as it is measured."""
    head = ["", "AC+LR, test AUC", "s", "CatBoost, test AUC", "s", "ratio", "aim"]
    return f"""## Time beside CatBoost, by benchmarks/race.py

{table(head, rows)}

Default fits on the rows of seed 0, 2 threads each, one after the other. The ratio is our time over CatBoost's. ({machine()})
"""


if __name__ == "__main__":
    main(sys.argv[1:] or NAMES)
