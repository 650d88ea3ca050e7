"""Few rows: AC+LR beside LightGBM and CatBoost on samples of the benchmark's tables.

make bench-small

The cells of the others are kept in benchmarks/small_peers.jsonl, and only those that are missing are run.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from datasets import FOLDER, NAMES
from polars import DataFrame, read_parquet
from sections import SOURCE, machine, stamp_now, table, write_section
from small import cut

sys.path.append(str(Path(__file__).parents[1] / "paper"))
from methods import METHODS

from autocross.models.metrics import auc

SIZES = (500, 1000, 2000)
SEEDS = range(10)
OURS, OTHERS = "AC+LR", ("LightGBM", "CatBoost")
KNOWN = Path(__file__).with_suffix(".jsonl")

Cell = tuple[str, int, int, str]  # table, rows, seed and method


def measured(train: DataFrame, test: DataFrame, method: str) -> float:
    """Test AUC of a method by its defaults."""
    fitted = METHODS[method]()
    fitted.fit(train)
    return auc(test["label"].to_numpy(), fitted.score(test), np.ones(test.height))


def known() -> dict[Cell, float]:
    """The cells that are on file."""
    lines = KNOWN.read_text().splitlines() if KNOWN.is_file() else []
    return {(cell["table"], cell["size"], cell["seed"], cell["method"]): cell["auc"] for cell in map(json.loads, lines)}


def cells() -> Iterator[tuple[Cell, float]]:
    """Every cell with its AUC. Those of the others are put on file as soon as they are known."""
    on_file = known()
    for name in NAMES:
        frame = read_parquet(FOLDER / f"{'adult_train' if name == 'adult' else name}.parquet")
        for size in SIZES:
            for seed in SEEDS:
                parts = cut(frame, size, seed)
                for method in (OURS, *OTHERS):
                    cell = (name, size, seed, method)
                    if cell not in on_file:
                        on_file[cell] = measured(*parts, method)
                        if method in OTHERS:
                            with KNOWN.open("a") as stream:
                                facts = dict(zip(("table", "size", "seed", "method"), cell, strict=True))
                                stream.write(json.dumps({**facts, "auc": on_file[cell]}) + "\n")
                    yield cell, on_file[cell]
            print(name, size, flush=True)


def main() -> None:
    warnings.simplefilter("ignore")  # of columns that are constant in a few rows
    stamp = stamp_now(SOURCE)
    found = dict(cells())
    rows = []
    for name in NAMES:
        for size in SIZES:
            means = [np.mean([found[name, size, seed, method] for seed in SEEDS]) for method in (OURS, *OTHERS)]
            rows.append([f"{name.capitalize()}, {size:,} rows", *(f"{mean:.4f}" for mean in means)])
    overall = [np.mean([value for cell, value in found.items() if cell[3] == method]) for method in (OURS, *OTHERS)]
    rows.append(["all", *(f"{mean:.4f}" for mean in overall)])
    text = f"""## Few rows beside others, by benchmarks/small_peers.py

{table(["", OURS, *OTHERS], rows)}

Test AUC, means over samples with seeds 0 to 9, tested on up to 20,000 other rows. The rules for few rows were chosen on other
seeds.
({machine()})
"""
    write_section("small-peers", text, stamp)
    print(text)


if __name__ == "__main__":
    main()
