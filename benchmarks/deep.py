"""What the deep part brings: AC+W&D against its own linear part, which is AC+LR, on the same test rows.

.venv/bin/python benchmarks/deep.py bank 0 1 2 3 4        a table and seeds
"""

from __future__ import annotations

import sys
import time
import warnings
from dataclasses import replace

import held_out
import numpy as np
from datasets import FOLDER, split
from polars import DataFrame, read_parquet
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import train_test_split

from autocross import WideDeepClassifier
from autocross.serving.scorer import Scorer

OTHERS = ("hospital", "shop", "search_ads")  # tables of development; a fifth of their rows is tested on
N_ROWS = 300  # rows that are scored one by one


def rows_of(name: str, seed: int) -> tuple[DataFrame, DataFrame]:
    """Training and test rows."""
    if name in held_out.NAMES:
        return held_out.split(name)
    if name not in OTHERS:
        return split(name, seed)
    frame = read_parquet(FOLDER / f"{name}.parquet")
    train, test = train_test_split(np.arange(frame.height), test_size=0.2, random_state=seed, stratify=frame["label"].to_numpy())
    return frame[train], frame[test]


def one_row(scorer: Scorer, rows: list[dict[str, object]]) -> float:
    """Median microseconds of scoring a row on its own."""
    times = []
    for row in rows:
        began = time.perf_counter()
        scorer.score_one(row)
        times.append(time.perf_counter() - began)
    return float(np.median(times)) * 1e6


def main(name: str, seeds: list[int]) -> None:
    warnings.simplefilter("ignore")
    for seed in seeds:
        train, test = rows_of(name, seed)
        began = time.process_time()
        both = WideDeepClassifier(quiet=True, n_jobs=1).fit(train, "label").scorer_
        seconds = time.process_time() - began
        alone = Scorer(replace(both.model, additions=()))
        label, features = test["label"].to_numpy(), test.drop("label")
        scores = [scorer.score(features) for scorer in (alone, both)]
        auc, loss = ([metric(label, score) for score in scores] for metric in (roc_auc_score, log_loss))
        shares = [rule.value for rule in both.model.about.rules if rule.name == "share of the networks"] or ["0"]
        one = [one_row(scorer, features.head(N_ROWS).to_dicts()) for scorer in (alone, both)]
        print(
            f"{name} {seed}  AUC {auc[0]:.4f} {auc[1]:.4f} ({auc[1] - auc[0]:+.4f})  log-loss {loss[0]:.4f} {loss[1]:.4f} "
            f"({loss[1] - loss[0]:+.4f})  share {shares[0]}  {len(both.model.producer.crosses)} crosses  "
            f"one row {one[0]:.0f} {one[1]:.0f} us  {seconds:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1], [int(seed) for seed in sys.argv[2:]] or [0])
