"""Where the time goes: a generated table with interactions of many orders, on which the search accepts crosses for a long time.

make bench-search
.venv/bin/python benchmarks/many_orders.py 1         only the first seeds
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sections import SOURCE, machine, stamp_now, table, write_section

from autocross import AutoCrossClassifier
from autocross.models.metrics import auc

N_ROWS, N_TEST, N_NUMBERS, N_CATEGORIES = 100_000, 50_000, 10, 16
MOST_VALUES = 300  # of a category
N_TYPES, KEPT = 10_000, 0.93  # rows belong to types, and take a value from their type with this probability
N_CHAINS, LONGEST = 10, 5  # chains of columns; every beginning of a chain, from two columns on, is an interaction
LEVELS = 3  # an interaction sees a column by so many levels, so that each of its combinations has rows
STRENGTH = 6.0  # standard deviation of the log-odds
BASE_RATE = 0.35


def generated(seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Training and test rows. The log-odds are a sum of effects of single columns, of interactions of two to five columns, and
    of types of rows.

    An interaction gives an effect to every combination of the levels of its columns. The levels of a category are groups of its
    values, those of a number are ranges of unequal width. Rows of a type share most of their values, and have an effect in common
    that only crosses of many columns can tell. Some columns take part more often than others, and some values are far more frequent
    than others, as they are in real tables.
    """
    rng = np.random.default_rng(seed)
    n_rows, n_columns = N_ROWS + N_TEST, N_NUMBERS + N_CATEGORIES
    kind = (N_TYPES * rng.random(n_rows) ** 2).astype(int)  # some types have far more rows than others
    hidden = [of_types(kind, rng) for _ in range(n_columns)]
    numbers = [np.exp(values) if at % 2 else values for at, values in enumerate(hidden[:N_NUMBERS])]
    sizes = np.geomspace(3, MOST_VALUES, N_CATEGORIES).astype(int)
    categories = [as_category(values, size, rng) for values, size in zip(hidden[N_NUMBERS:], sizes, strict=True)]
    levels = [np.digitize(number, np.quantile(number, np.sort(rng.uniform(0.1, 0.9, LEVELS - 1)))) for number in numbers]
    levels += [rng.integers(0, LEVELS, size)[codes] for size, codes in zip(sizes, categories, strict=True)]
    popularity = rng.dirichlet(np.full(n_columns, 1.5))
    log_odds = 4.0 * rng.normal(size=N_TYPES)[kind]
    for level in levels:
        log_odds += standardised(rng.normal(size=LEVELS)[level])
    for _ in range(N_CHAINS):
        chain = rng.choice(n_columns, LONGEST, replace=False, p=popularity)
        for order in range(2, LONGEST + 1):
            effect = rng.normal(size=(LEVELS,) * order)
            log_odds += standardised(effect[tuple(levels[at] for at in chain[:order])])
    log_odds = STRENGTH * standardised(log_odds)
    log_odds -= np.quantile(log_odds, 1.0 - BASE_RATE)
    label = rng.random(n_rows) < 1 / (1 + np.exp(-log_odds))
    columns: dict[str, object] = {f"number {at}": number.round(4) for at, number in enumerate(numbers)}
    columns |= {f"category {at}": [f"v{code}" for code in codes.tolist()] for at, codes in enumerate(categories)}
    frame = pl.DataFrame({**columns, "label": label.astype(np.int8)})
    return frame[:N_ROWS], frame[N_ROWS:]


def of_types(kind: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
    """A number for each row, which most rows of a type have in common."""
    return np.where(rng.random(len(kind)) < KEPT, rng.normal(size=N_TYPES)[kind], rng.normal(size=len(kind)))


def as_category(values: NDArray[np.float64], size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Numbers cut into so many ranges, the share of the k-th of which is proportional to 1/k; the ranges are in random order."""
    shares = rng.permutation(1.0 / np.arange(1, size + 1))
    return np.digitize(values, np.quantile(values, np.cumsum(shares)[:-1] / shares.sum()))


def standardised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values with mean 0 and standard deviation 1."""
    return (values - values.mean()) / max(float(values.std()), 1e-9)


KINDS = {"CandidatesRanked": "tournaments", "SetRefitted": "refits", "CrossTried": "trials"}


def seconds_by_kind(journal: Path) -> dict[str, float]:
    """How many seconds of a fit went into tournaments, refits, trials and the rest, by its journal."""
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    seconds: dict[str, float] = defaultdict(float)
    for event in events:
        if event["event"] in KINDS:
            seconds[KINDS[event["event"]]] += event["took"]
    seconds["rest"] = events[-1]["seconds"] - sum(seconds.values())
    return seconds


def main(n_seeds: int) -> None:
    rows, stamp = [], stamp_now(SOURCE)
    AutoCrossClassifier(quiet=True).fit(generated(0)[0].head(3000), "label")  # compile before the clock starts
    for seed in range(n_seeds):
        train, test = generated(seed)
        with TemporaryDirectory() as folder:
            journal = Path(folder) / "journal"
            began = time.process_time()
            model = AutoCrossClassifier(quiet=True, journal=str(journal)).fit(train, "label")
            processor = time.process_time() - began
            seconds = seconds_by_kind(journal)
        found = auc(test["label"].to_numpy(), model.decision_function(test), np.ones(test.height))
        order = max((cross.order for cross in model.crosses_), default=1)
        parts = [f"{seconds[kind]:.1f}" for kind in (*KINDS.values(), "rest")]
        rows.append([str(seed), f"{found:.4f}", str(len(model.crosses_)), str(order), f"{processor:.0f}", *parts])
        print(rows[-1], flush=True)
    head = ["seed", "test AUC", "crosses", "highest order", "processor s", *KINDS.values(), "rest"]
    text = f"""## Interactions of many orders, by benchmarks/many_orders.py

{table(head, rows)}

{N_ROWS:,} rows, {N_NUMBERS} numbers and {N_CATEGORIES} categories of up to {MOST_VALUES} values. The log-odds are
a sum of effects of single columns, of interactions of two to {LONGEST} columns, and of {N_TYPES:,} types of rows that share most
of their values. Seconds of tournaments, refits and trials by the events of the journal; default fits on 2 threads. ({machine()})
"""
    if n_seeds == 3:
        write_section("many-orders", text, stamp)
    print(text)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
