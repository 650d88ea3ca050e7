"""Do crosses ever hurt? AC+LR against LR (base) on small tables cut from the benchmark's larger ones.

make bench-search
"""

from __future__ import annotations

import warnings

import numpy as np
from datasets import FOLDER, NAMES, SEEDS
from polars import DataFrame, read_parquet
from sections import SOURCE, machine, stamp_now, table, write_section
from sklearn.model_selection import train_test_split

from autocross import AutoCrossClassifier
from autocross.models.metrics import auc

SIZES = (500, 1000, 2000, 5000)
MOST_TEST_ROWS = 20_000
FAR = 0.0005  # a loss within this, or within one standard error, is none


def cut(frame: DataFrame, size: int, seed: int) -> tuple[DataFrame, DataFrame]:
    """A few rows to learn from, and others to test on."""
    label = frame["label"].to_numpy()
    train, rest = train_test_split(np.arange(frame.height), train_size=size, random_state=seed, stratify=label)
    return frame[train], frame[rest[:MOST_TEST_ROWS]]


def difference(frame: DataFrame, size: int, seed: int) -> tuple[float, int]:
    """Test AUC of AC+LR minus that of LR (base), and the number of crosses."""
    train, test = cut(frame, size, seed)
    found = []
    for max_crosses in (0, None):
        model = AutoCrossClassifier(quiet=True, max_crosses=max_crosses).fit(train, "label")
        found.append(auc(test["label"].to_numpy(), model.decision_function(test), np.ones(test.height)))
    return found[1] - found[0], len(model.crosses_)


def main() -> None:
    warnings.simplefilter("ignore")
    rows, n_worse, stamp = [], 0, stamp_now(SOURCE)
    for name in NAMES:
        frame = read_parquet(FOLDER / f"{'adult_train' if name == 'adult' else name}.parquet")
        cells = []
        for size in SIZES:
            found = [difference(frame, size, seed) for seed in SEEDS]
            gains = np.array([one[0] for one in found])
            error = gains.std(ddof=1) / len(gains) ** 0.5
            worse = gains.mean() < -max(FAR, error)
            n_worse += worse
            cells.append(f"{gains.mean():+.4f} ± {error:.4f} ({sum(one[1] for one in found)}){' (worse)' if worse else ''}")
        print(name, cells, flush=True)
        rows.append([name.capitalize(), *cells])
    text = f"""## Small tables, by benchmarks/small.py

{table(["", *(f"{size:,} rows" for size in SIZES)], rows)}

Test AUC of AC+LR minus that of LR (base) on the same rows, mean over seeds 0 to 4 with its standard error; in brackets the crosses
found over all five. Worse, by more than {FAR} and by more than one standard error, in {n_worse} of
{len(rows) * len(SIZES)} cases. ({machine()})
"""
    write_section("small", text, stamp)
    print(text)


if __name__ == "__main__":
    main()
