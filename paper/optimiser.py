"""The paper's optimiser on our features: does mini-batch gradient descent explain what crosses gained in the paper?

.venv/bin/python paper/optimiser.py            writes the section of docs/benchmarks.md; cells in optimiser.jsonl are not run again

The search runs with the paper's settings; with ten bins instead of 10, 100 and 1,000, so that crosses of numbers have fewer
values; and with our defaults, up to ten crosses. Its fields, and its fields with crosses, are then given to a logistic regression
that is trained as the paper's: by mini-batch gradient descent, with learning rate, L1 and L2 from log-grids, and stopped when the
AUC on the rows left out no longer rises. The features are the same as those of our own regression, so that only the optimiser
differs.

codes  : int32 (n_rows, n_features)   where in `weight` the weight of each feature's value is
weight : float64 (n_weights,)         weight[0] is the intercept
"""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import asdict, dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from methods import PAPER_SETTINGS, TARGET
from numba import njit
from numpy.typing import NDArray
from report import NAMES, PAPER_AUC
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from autocross import AutoCross, AutoCrossClassifier

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from datasets import seeds, split
from sections import SOURCE, Moment, Stamp, machine, stamp_now, table, write_section

BATCH = 256
RATES = (0.005, 0.02, 0.07, 0.27, 1.0)
PENALTIES = (0.0, 1e-6, 1e-5, 1e-4, 1e-3)  # for the mean loss of a row
MOST_EPOCHS, PATIENCE = 40, 3
LEFT_OUT = 0.2
SEEDS = 2
FEATURES = {
    "paper's settings": PAPER_SETTINGS,
    "ten bins": {**PAPER_SETTINGS, "granularities": [10]},
    "our defaults": {"max_crosses": 10},
}
RESULTS = Path(__file__).parent / "optimiser.jsonl"
MOST_ROWS = 40_000  # training rows of Criteo, which has many features

Codes = NDArray[np.int32]
Labels = NDArray[np.int8]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """What the grids are for, and the epochs after which training stops."""

    rate: float
    l1: float = 0.0
    l2: float = 0.0
    epochs: int = MOST_EPOCHS


@njit(cache=True, nogil=True)
def shrink(weight: Floats, last: Any, place: int, step: int, rate: float, l1: float, l2: float) -> None:
    """Apply the penalties of all steps since a weight was last used. The intercept has none."""
    missed = step - last[place]
    if missed > 0 and place > 0:
        shrunk = weight[place] * (1.0 - rate * l2) ** missed
        weight[place] = np.sign(shrunk) * max(0.0, abs(shrunk) - missed * rate * l1)
    last[place] = step


@njit(cache=True, nogil=True)
def descend(
    codes: Codes, label: Labels, order: Any, rate: float, l1: float, l2: float, batch: int, weight: Floats, last: Any, step: int
) -> int:
    """One epoch of steps along the mean gradient of a batch; returns the number of steps so far."""
    error = np.empty(batch)
    for first in range(0, len(order), batch):
        rows = order[first : first + batch]
        for i, row in enumerate(rows):
            odds = weight[0]
            for place in codes[row]:
                shrink(weight, last, place, step, rate, l1, l2)
                odds += weight[place]
            error[i] = 1.0 / (1.0 + np.exp(-odds)) - label[row]
        for i, row in enumerate(rows):
            move = rate * error[i] / len(rows)
            weight[0] -= move
            for place in codes[row]:
                weight[place] -= move
        step += 1
    for place in range(len(weight)):
        shrink(weight, last, place, step, rate, l1, l2)
    return step


@njit(cache=True, nogil=True)
def log_odds(codes: Codes, weight: Floats) -> Floats:
    total = np.full(len(codes), weight[0])
    for row in range(len(codes)):
        for place in codes[row]:
            total[row] += weight[place]
    return total


@dataclass(frozen=True)
class Rows:
    """Rows with their labels. ``n_weights`` is the number of weights of all rows there are."""

    codes: Codes
    label: Labels
    n_weights: int

    def some(self, rows: Any) -> Rows:
        return Rows(self.codes[rows], self.label[rows], self.n_weights)

    def first(self, n_features: int, n_weights: int) -> Rows:
        """The rows with only their first features."""
        return Rows(np.ascontiguousarray(self.codes[:, :n_features]), self.label, n_weights)

    def auc(self, weight: Floats) -> float:
        return float(roc_auc_score(self.label, log_odds(self.codes, weight)))


def trained(rows: Rows, setting: Setting, seed: int, judges: Rows | None = None) -> tuple[Floats, float, int]:
    """Weights, the best AUC of the rows that judge and its epoch. Without such rows, training goes on for all epochs."""
    label, rng, weight = rows.label, np.random.default_rng(seed), np.zeros(rows.n_weights)
    weight[0] = np.log(label.mean() / (1 - label.mean()))
    last, step, best, best_epoch = np.zeros(len(weight), np.int64), 0, 0.0, 0
    for epoch in range(1, setting.epochs + 1):
        order = rng.permutation(len(label))
        step = descend(rows.codes, label, order, setting.rate, setting.l1, setting.l2, BATCH, weight, last, step)
        if judges is not None:
            if (auc := judges.auc(weight)) > best:
                best, best_epoch = auc, epoch
            elif epoch - best_epoch >= PATIENCE:
                break
    return weight, best, best_epoch


def tuned(rows: Rows, seed: int) -> Setting:
    """The best learning rate, then the best L2, then the best L1 beside them, and the number of epochs."""
    places = np.arange(len(rows.label))
    learn, judge = map(rows.some, train_test_split(places, test_size=LEFT_OUT, random_state=seed, stratify=rows.label))

    def judged(setting: Setting) -> tuple[float, Setting]:
        _, auc, epochs = trained(learn, setting, seed, judge)
        return auc, replace(setting, epochs=max(1, epochs))

    def best_of(so_far: tuple[float, Setting], part: str) -> tuple[float, Setting]:
        others = [judged(replace(so_far[1], epochs=MOST_EPOCHS, **{part: penalty})) for penalty in PENALTIES[1:]]
        return max([so_far, *others], key=lambda one: one[0])

    best = max((judged(Setting(rate)) for rate in RATES), key=lambda one: one[0])
    return best_of(best_of(best, "l2"), "l1")[1]


def measured(train: pl.DataFrame, test: pl.DataFrame, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """Test AUC of both optimisers, without and with crosses."""
    model = AutoCrossClassifier(quiet=True, **settings).fit(train, TARGET)
    base = AutoCrossClassifier(quiet=True, **{**settings, "max_crosses": 0}).fit(train, TARGET)
    truth = test[TARGET].to_numpy()
    found: dict[str, Any] = {}
    for name, ours in (("lr", base), ("ac", model)):
        found[name] = float(roc_auc_score(truth, ours.predict_proba(test)[:, 1]))
    features = AutoCross(quiet=True, **settings).fit(train, TARGET)  # the same search again
    found["crosses"] = sum(cross.kind == "cross" for cross in model.crosses_)
    both = [np.asarray(features.transform(rows.drop(TARGET), output="codes")).astype(np.int64) for rows in (train, test)]
    n_plain = both[0].shape[1] - 2 * (len(model.crosses_) - found["crosses"])  # statistics, which come last, have seen the labels
    both = [codes[:, :n_plain] for codes in both]
    sizes = np.maximum(both[0].max(axis=0), both[1].max(axis=0)) + 1
    learned, judged = ((one + 1 + np.concatenate([[0], np.cumsum(sizes[:-1])])).astype(np.int32) for one in both)
    n_weights = 1 + np.cumsum(sizes)
    train_rows, test_rows = (
        Rows(codes, rows[TARGET].to_numpy().astype(np.int8), int(n_weights[-1]))
        for codes, rows in ((learned, train), (judged, test))
    )
    for name, n in (("descent_lr", learned.shape[1] - found["crosses"]), ("descent_ac", learned.shape[1])):
        mine, theirs = (rows.first(n, int(n_weights[n - 1])) for rows in (train_rows, test_rows))
        setting = tuned(mine, seed)
        found[name] = theirs.auc(trained(mine, setting, seed)[0])
        found[f"{name}_setting"] = asdict(setting)
    return found


def row_of(name: str, features: str, cells: list[dict[str, Any]]) -> list[str]:
    """One line: means over seeds, and what crosses gain in per cent."""

    def mean(part: str) -> float:
        return float(np.mean([cell[part] for cell in cells]))

    def gain(lr: float, ac: float) -> str:
        return f"{100 * (ac / lr - 1):+.2f} %".replace("-0.00", "+0.00")

    paper_lr, paper_ac = (PAPER_AUC[method][NAMES.index(name)] for method in ("LR (base)", "AC+LR"))
    shown = [name, features, f"{mean('crosses'):.1f}"]
    for lr, ac in (("lr", "ac"), ("descent_lr", "descent_ac")):
        shown += [f"{mean(lr):.4f}", f"{mean(ac):.4f}", gain(mean(lr), mean(ac))]
    return [*shown, gain(paper_lr, paper_ac)]


def text_of(lines: list[list[str]]) -> str:
    head = ["", "features", "crosses", "LR", "AC+LR", "gain", "LR, descent", "AC+LR, descent", "gain", "gain in the paper"]
    return (
        "## The paper's settings with the paper's optimiser\n\n"
        f"Test AUC, mean over seeds 0 to {SEEDS - 1} (Adult has one split, and Criteo {MOST_ROWS:,} training rows). Crosses are "
        "found by our search: with the paper's settings, with the same and ten bins for each number, and with our defaults, up to "
        "ten. LR and AC+LR are our regression, which goes to the optimum (of our defaults it may have statistics of values "
        "too). Beside them, the same fields and crosses are trained by mini-batch gradient descent: batches of "
        f"{BATCH} rows, learning rate {RATES[0]:g} to {RATES[-1]:g}, L1 and L2 up to {PENALTIES[-1]:g} for the mean loss, all by "
        "log-grid, stopped on a fifth of the training rows and then trained on all. Written by `paper/optimiser.py`. "
        f"({machine()})\n\n" + table(head, lines)
    )


def known() -> dict[tuple[str, str, int], dict[str, Any]]:
    """The cells that were measured already."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {(cell["dataset"], cell["features"], cell["seed"]): cell for cell in map(json.loads, lines)}


def stamp_of(cell: dict[str, Any]) -> Stamp:
    moment = Moment(cell["date"], cell["commit"])
    return Stamp((SOURCE, "paper/optimiser.py"), moment, moment, cell["changed"])


def main() -> None:
    warnings.simplefilter("ignore")
    cells = known()
    for features, settings in FEATURES.items():
        for name in NAMES:
            for seed in seeds(name)[:SEEDS]:
                if (name, features, seed) in cells:
                    continue
                stamp = stamp_now(SOURCE, "paper/optimiser.py")
                train, test = split(name, seed)
                train = train.sample(MOST_ROWS, seed=seed) if name == "criteo" else train
                facts = {"commit": stamp.newest.commit, "date": stamp.newest.date, "changed": stamp.changed}
                cell = {"dataset": name, "features": features, "seed": seed, **measured(train, test, settings, seed), **facts}
                with RESULTS.open("a") as stream:
                    stream.write(json.dumps(cell) + "\n")
    cells = known()
    lines = [
        row_of(name, features, [cells[name, features, seed] for seed in seeds(name)[:SEEDS]])
        for name in NAMES
        for features in FEATURES
    ]
    write_section("optimiser", text_of(lines), reduce(Stamp.joined, map(stamp_of, cells.values())))


if __name__ == "__main__":
    main()
