"""Planted truth: does the search find crosses that are known to be there?

make bench-search
.venv/bin/python benchmarks/planted.py 3             only the first seeds
"""

from __future__ import annotations

import sys
import time
from math import prod

import numpy as np
import polars as pl
from sections import SOURCE, machine, stamp_now, table, write_section

from autocross import AutoCrossClassifier

N_ROWS, N_COLUMNS, BASE_RATE, MOST_COMBINATIONS = 50_000, 20, 0.3, 600
ORDERS = (2, 3, 4)


def planted(seed: int) -> tuple[pl.DataFrame, list[frozenset[str]]]:
    """A table whose log-odds are the summed N(0, 1) effects of one cross of each order, and those crosses.

    Columns have 3 to 50 values, all equally frequent; the crosses share no column.
    """
    rng = np.random.default_rng(seed)
    while True:
        sizes = rng.integers(3, 51, N_COLUMNS)
        order = rng.permutation(N_COLUMNS)
        members = np.split(order[: sum(ORDERS)], np.cumsum(ORDERS)[:-1])
        if all(prod(sizes[chosen].tolist()) <= MOST_COMBINATIONS for chosen in members):
            break
    codes = np.stack([rng.integers(0, size, N_ROWS) for size in sizes], axis=1)
    log_odds = np.zeros(N_ROWS)
    for chosen in members:
        log_odds += rng.normal(0, 1, sizes[chosen])[tuple(codes[:, chosen].T)]
    low, high = -10.0, 10.0
    for _ in range(60):  # the intercept that gives the base rate
        middle = (low + high) / 2
        low, high = (middle, high) if (1 / (1 + np.exp(-log_odds - middle))).mean() < BASE_RATE else (low, middle)
    label = rng.random(N_ROWS) < 1 / (1 + np.exp(-log_odds - low))
    frame = pl.DataFrame({f"c{at}": [f"v{code}" for code in codes[:, at].tolist()] for at in range(N_COLUMNS)})
    truths = [frozenset(f"c{at}" for at in chosen.tolist()) for chosen in members]
    return frame.with_columns(label=pl.Series(label.astype(np.int8))), truths


def verdict(crosses: list[frozenset[str]], truths: list[frozenset[str]]) -> tuple[list[bool], int]:
    """Which truths are found, exactly or with one column more; and how many crosses are neither these nor steps to them."""
    found = [any(truth <= cross and len(cross - truth) <= 1 for cross in crosses) for truth in truths]
    foreign = [c for c in crosses if not any(c <= truth or (truth <= c and len(c - truth) <= 1) for truth in truths)]
    return found, len(foreign)


def main(n_seeds: int) -> None:
    rows, n_all, stamp = [], 0, stamp_now(SOURCE)
    for seed in range(n_seeds):
        frame, truths = planted(seed)
        began = time.perf_counter()
        model = AutoCrossClassifier(quiet=True).fit(frame, "label")
        seconds = time.perf_counter() - began
        crosses = [frozenset(cross.columns) for cross in model.crosses_]
        found, n_foreign = verdict(crosses, truths)
        n_all += all(found) and n_foreign <= 3
        print(seed, found, n_foreign, [sorted(cross) for cross in crosses], [sorted(one) for one in truths], flush=True)
        cells = ["yes" if one else "no" for one in found]
        rows.append([str(seed), *cells, str(len(crosses)), str(n_foreign), f"{seconds:.1f}"])
    head = ["seed", *(f"order {order}" for order in ORDERS), "crosses", "foreign", "s a fit"]
    text = f"""## Planted truth, by benchmarks/planted.py

{table(head, rows)}

{N_ROWS:,} rows, {N_COLUMNS} columns of 3 to 50 values, base rate {BASE_RATE}, log-odds from N(0, 1) effects of three
crosses that share no column, with at most {MOST_COMBINATIONS} combinations each. Found means exactly or with one column
more; foreign are crosses that are neither these nor steps on the way.
All found with at most 3 foreign ones on {n_all} of {n_seeds} seeds (aim: 9 of 10). ({machine()})
"""
    if n_seeds == 10:
        write_section("planted", text, stamp)
    print(text)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
