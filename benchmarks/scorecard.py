"""What rounding to whole points costs: the test AUC of scorecards beside that of their models.

make bench-search
"""

from __future__ import annotations

import warnings

import numpy as np
from datasets import split
from sections import SOURCE, machine, stamp_now, table, write_section

from autocross import AutoCrossClassifier
from autocross.models.metrics import auc

TABLES = {"adult": (0,), "bank": (0, 1, 2), "credit": (0, 1, 2)}
OTHERS = {"hospital": (0,), "shop": (0,), "search_ads": (0,), "employee": (0,)}


def measure(name: str, seed: int) -> dict[str, float]:
    """The test AUC of a default fit, of its card, and of its card with one decimal; and how long the card is."""
    train, test = split(name, seed)
    model = AutoCrossClassifier(quiet=True).fit(train, "label")
    rows, bad, weight = test.drop("label"), test["label"].to_numpy(), np.ones(test.height)
    card, finer = model.scorecard(), model.scorecard(decimals=1)
    return {
        "model": auc(bad, model.scorer_.log_odds(rows), weight),
        "card": auc(1 - bad, card.score(rows).astype(np.float64), weight),
        "finer": auc(1 - bad, finer.score(rows), weight),
        "terms": len({line.term for line in card.lines}) - 1,
        "lines": len(card.lines),
    }


def main() -> None:
    warnings.simplefilter("ignore")
    rows, stamp = [], stamp_now(SOURCE)
    for name, seeds in (TABLES | OTHERS).items():
        for seed in seeds:
            found = measure(name, seed)
            cells = [f"{found['model']:.5f}", f"{found['card']:.5f}", f"{found['card'] - found['model']:+.5f}"]
            cells += [f"{found['finer'] - found['model']:+.5f}", f"{found['terms']:.0f}", f"{found['lines']:,.0f}"]
            print(name, seed, cells, flush=True)
            rows.append([name.capitalize(), str(seed), *cells])
    head = ["", "seed", "AUC of the model", "of the card", "difference", "with one decimal", "terms", "lines"]
    text = f"""## Scorecards, by benchmarks/scorecard.py

{table(head, rows)}

Default fits, and their scorecards in whole points: 600 points for odds of 50 to 1, and 20 points to double the odds. Beside it, the
difference that remains with one decimal. Adult has one split. On Employee, whose terms have thousands of values each,
`scorecard` warns that whole points are coarse. ({machine()})
"""
    write_section("scorecard", text, stamp)
    print(text)


if __name__ == "__main__":
    main()
