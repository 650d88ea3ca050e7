"""What statistics of values bring: the same default fit with and without them, on the benchmark tables that have categories.

make bench-search
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from unittest.mock import patch

import numpy as np
from datasets import seeds, split
from polars import DataFrame
from sections import SOURCE, machine, stamp_now, table, write_section
from sklearn.metrics import log_loss, roc_auc_score

from autocross import AutoCrossClassifier
from autocross.search import policy

TABLES = ("employee", "adult", "bank", "criteo", "hospital", "search_ads")
WITHOUT = replace(policy.AUTO, statistics=None)


def measured(train: DataFrame, test: DataFrame, chosen: policy.Policy) -> tuple[float, ...]:
    """Test AUC, log-loss, statistics and seconds of a default fit."""
    with patch.object(policy, "AUTO", chosen):
        began = time.perf_counter()
        model = AutoCrossClassifier(quiet=True).fit(train, "label")
        seconds = time.perf_counter() - began
    score = model.predict_proba(test)[:, 1]
    n_statistics = sum(cross.kind == "statistic" for cross in model.crosses_)
    return roc_auc_score(test["label"], score), log_loss(test["label"], score), n_statistics, seconds


def main() -> None:
    warnings.simplefilter("ignore")
    lines, stamp = [], stamp_now(SOURCE)
    for name in TABLES:
        turns = []
        for seed in seeds(name):
            train, test = split(name, seed)
            turns.append([measured(train, test, chosen) for chosen in (WITHOUT, policy.AUTO)])
        without, found = np.array(turns).mean(axis=0)
        ratio = float(np.median([turn[1][3] / turn[0][3] for turn in turns]))
        cells = [f"{without[0]:.4f}", f"{found[0]:.4f}", f"{without[1]:.4f}", f"{found[1]:.4f}", f"{found[2]:.0f}", f"{ratio:.2f}"]
        print(name, cells, flush=True)
        lines.append([name, *cells])
    head = ["", "AUC without", "AUC", "log-loss without", "log-loss", "statistics", "time, ratio"]
    text = f"""## Statistics of values, by benchmarks/value_statistics.py

{table(head, lines)}

Default fits with and without statistics of values, on the same test rows. Employee, Bank and Criteo are split by seeds 0 to 4,
hospital and search_ads by seeds 0 to 2, and Adult has one split. AUC, log-loss and the number of statistics are means over the
splits, and the ratio of the times is their median. ({machine()})
"""
    write_section("statistics", text, stamp)
    print(text)


if __name__ == "__main__":
    main()
