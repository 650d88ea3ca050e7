"""What constraints cost: AC+LR with and without monotone columns on tables of the benchmark.

make bench-search
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from datasets import SEEDS, split
from polars import DataFrame
from sections import SOURCE, machine, stamp_now, table, write_section

from autocross import AutoCrossClassifier
from autocross.models.metrics import auc

# Directions that people who know the field would ask for, written down before anything was measured.
WAYS = {
    "adult": {"age": "increasing", "hours_per_week": "increasing", "education_num": "increasing"},
    "bank": {"duration": "increasing", "campaign": "decreasing", "euribor3m": "decreasing"},
    "credit": {
        "RevolvingUtilizationOfUnsecuredLines": "increasing",
        "age": "decreasing",
        "NumberOfTime30-59DaysPastDueNotWorse": "increasing",
        "NumberOfTimes90DaysLate": "increasing",
        "MonthlyIncome": "decreasing",
    },
}
N_SEEDS = 3


def measured(train: DataFrame, test: DataFrame, options: dict[str, Any]) -> tuple[float, float, int]:
    """Test AUC, seconds of processor time, and the number of crosses."""
    began = time.process_time()
    model = AutoCrossClassifier(quiet=True, n_jobs=1, **options).fit(train, "label")
    seconds = time.process_time() - began
    return auc(test["label"].to_numpy(), model.decision_function(test), np.ones(test.height)), seconds, len(model.crosses_)


def main() -> None:
    warnings.simplefilter("ignore")
    rows, stamp = [], stamp_now(SOURCE)
    for name, ways in WAYS.items():
        for seed in SEEDS[:N_SEEDS]:  # Adult has a split of its own, so that only the folds differ
            train, test = split(name, seed)
            measured(train.head(3_000), test.head(100), {"monotone": ways})  # compiles
            free = measured(train, test, {"random_state": seed})
            held = measured(train, test, {"random_state": seed, "monotone": ways})
            cells = [
                f"{free[0]:.4f} ({free[2]})",
                f"{held[0]:.4f} ({held[2]})",
                f"{held[0] - free[0]:+.4f}",
                f"{held[1] / free[1]:.2f}",
            ]
            rows.append([f"{name.capitalize()}, seed {seed}", str(len(ways)), *cells])
            print(rows[-1], flush=True)
    head = ["", "monotone columns", "free", "monotone", "difference", "time, monotone / free"]
    ways_in_words = "; ".join(
        f"{name.capitalize()}: {', '.join(f'`{column}` {way}' for column, way in ways.items())}" for name, ways in WAYS.items()
    )
    text = f"""## Constraints, by benchmarks/constraints.py

{table(head, rows)}

Test AUC of AC+LR with default options and with monotone columns, in brackets the crosses found, and the ratio of their processor
times on one core. Directions were written down before anything was measured; that of `euribor3m` is wrong, as the log of the fit
says. {ways_in_words}. ({machine()})
"""
    write_section("constraints", text, stamp)
    print(text)


if __name__ == "__main__":
    main()
