"""What the deep part brings: AC+W&D against its own linear part, which is AC+LR, on the same test rows.

make bench-deep                                           every table and seed; writes docs/benchmarks.md
.venv/bin/python benchmarks/deep.py bank credit           only prints these tables
"""

from __future__ import annotations

import sys
import time
import warnings
from dataclasses import replace

import held_out
import numpy as np
from datasets import DEVELOPMENT, NAMES, seeds, split
from sections import SOURCE, machine, stamp_now, table, write_section
from sklearn.metrics import log_loss, roc_auc_score

from autocross import WideDeepClassifier
from autocross.serving.scorer import Scorer

N_ROWS = 300  # rows that are scored one by one
SEEDS_OF_CRITEO = 2  # a fit takes minutes


def one_row(scorer: Scorer, rows: list[dict[str, object]]) -> float:
    """Median microseconds of scoring a row on its own."""
    times = []
    for row in rows:
        began = time.perf_counter()
        scorer.score_one(row)
        times.append(time.perf_counter() - began)
    return float(np.median(times)) * 1e6


def measured(name: str, seed: int) -> list[float]:
    """AUC of AC+LR and of AC+W&D, their log-losses, the microseconds of one row, and the seconds of the processor for the fit."""
    train, test = held_out.split(name) if name in held_out.NAMES else split(name, seed)
    began = time.process_time()
    both = WideDeepClassifier(quiet=True).fit(train, "label").scorer_
    seconds = time.process_time() - began
    alone = Scorer(replace(both.model, additions=()))
    label, features = test["label"].to_numpy(), test.drop("label")
    scores = [scorer.score(features) for scorer in (alone, both)]
    auc, loss = ([metric(label, score) for score in scores] for metric in (roc_auc_score, log_loss))
    return [*auc, *loss, one_row(both, features.head(N_ROWS).to_dicts()), seconds]


def row_of(name: str) -> list[str]:
    """The line of a table: means over its seeds, and the gains of each seed."""
    chosen = [0] if name in held_out.NAMES else seeds(name)[: SEEDS_OF_CRITEO if name == "criteo" else None]
    found = np.array([measured(name, seed) for seed in chosen])
    wide, deep, wide_loss, deep_loss, micros, seconds = found.mean(axis=0)
    gains = " ".join(f"{gain:+.4f}" for gain in found[:, 1] - found[:, 0])
    line = [name, f"{wide:.4f}", f"{deep:.4f}", gains, f"{wide_loss:.4f}", f"{deep_loss:.4f}", f"{micros:.0f}", f"{seconds:.0f}"]
    print(line, flush=True)
    return line


def main(names: list[str]) -> None:
    warnings.simplefilter("ignore")
    stamp = stamp_now(SOURCE)
    rows = [row_of(name) for name in names or [*NAMES, *DEVELOPMENT, "movielens"]]
    if names:
        return
    head = ["", "AC+LR", "AC+W&D", "gain of each seed", "log-loss of AC+LR", "of AC+W&D", "one row, us", "processor s"]
    text = f"""## What the deep part brings, by benchmarks/deep.py

{table(head, rows)}

Test AUC and log-loss of both parts of one fit, means over the seeds. One row is the median of {N_ROWS} rows that are scored one by
one, without PyTorch. ({machine()})
"""
    write_section("deep", text, stamp)


if __name__ == "__main__":
    main(sys.argv[1:])
