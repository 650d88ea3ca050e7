"""Results -> the tables of docs/benchmarks.md and the pictures beside it. Nothing here is measured."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from methods import RIVALS

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "benchmarks"))
from sections import SOURCE, Moment, Stamp, machine, table, write_section  # noqa: E402

PICTURES = HERE.parent / "docs" / "pictures"
NAMES = ["bank", "adult", "credit", "employee", "criteo"]  # in the paper's order
# The paper's own numbers, on other splits and all of Criteo.
PAPER_AUC = {
    "LR (base)": [0.9400, 0.9169, 0.8292, 0.8655, 0.7855],
    "AC+LR": [0.9455, 0.9280, 0.8567, 0.8942, 0.8034],
    "AC+W&D": [0.9420, 0.9260, 0.8623, 0.9033, 0.8068],
    "CMI+LR": [0.9431, 0.9153, 0.8336, 0.8901, 0.7844],
    "Deep": [0.9418, 0.9130, 0.8369, 0.8745, 0.7985],
    "xDeepFM": [0.9419, 0.9131, 0.8358, 0.8746, 0.8059],
}
PAPER_HOURS = [0.0267, 0.0357, 0.3144, 0.0507, 3.0817]
PAPER_MS = {
    "AC+LR": [0.00048, 0.00048, 0.00062, 0.00073, 0.00156],
    "AC+W&D": [0.01697, 0.01493, 0.00974, 0.02807, 0.02698],
    "Deep": [0.01413, 0.01142, 0.00726, 0.02166, 0.01941],
    "xDeepFM": [0.08828, 0.05522, 0.04466, 0.06467, 0.18985],
}
AHEAD = ("CMI+LR", "Deep", "xDeepFM", "EBM")  # AC+LR shall be above these on four of the five

Cells = dict[tuple[str, str], dict[int, dict[str, Any]]]  # by method and table: seed -> record


class Results:
    """The finished cells, and what can be said of them."""

    def __init__(self, records: Sequence[dict[str, Any]]) -> None:
        self.cells: Cells = defaultdict(dict)
        for record in records:
            self.cells[record["method"], record["dataset"]][record["seed"]] = record
        seen = {record["dataset"] for record in records}
        self.names = [name for name in NAMES if name in seen] + sorted(seen - set(NAMES))
        self.methods = list(dict.fromkeys(record["method"] for record in records))

    def values(self, method: str, name: str, what: str = "auc") -> dict[int, float]:
        return {seed: one[what] for seed, one in self.cells[method, name].items() if what in one}

    def mean(self, method: str, name: str, what: str = "auc") -> float:
        found = self.values(method, name, what)
        return float(np.mean(list(found.values()))) if found else float("nan")

    def least(self, method: str, name: str, what: str) -> float:
        """A time, of the seed with the least other work on the machine."""
        return min(self.values(method, name, what).values(), default=float("nan"))

    def difference(self, one: str, other: str, name: str) -> tuple[float, float, int]:
        """Mean of the paired differences of test AUC over the seeds that both have, its standard error, and how many."""
        a, b = self.values(one, name), self.values(other, name)
        paired = np.array([a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())])
        if not len(paired):
            return float("nan"), float("nan"), 0
        return (
            float(paired.mean()),
            float(paired.std(ddof=1) / len(paired) ** 0.5) if len(paired) > 1 else float("nan"),
            len(paired),
        )

    def shown(self, method: str, name: str) -> str:
        """Mean and standard deviation of the test AUC, or why there is none."""
        found = list(self.values(method, name).values())
        if found:
            return f"{np.mean(found):.4f}" + (f" ± {np.std(found, ddof=1):.4f} ({len(found)})" if len(found) > 1 else "")
        stopped = any("stopped" in one for one in self.cells[method, name].values())
        return "stopped after 15 minutes" if stopped else ""


def stamp_of(records: Sequence[dict[str, Any]]) -> Stamp:
    """The oldest and the newest of some cells."""
    moments = [Moment(record["date"], record["commit"]) for record in records]
    changed, derived = (any(record.get(word, False) for record in records) for word in ("changed", "derived"))
    return Stamp((SOURCE,), min(moments), max(moments), changed, derived)


def age_table(results: Results) -> str:
    """Of which code the cells of each method are: those of rivals stay when ours are run again."""
    rows = []
    for method in results.methods:
        cells = [record for (name, _), of_seeds in results.cells.items() if name == method for record in of_seeds.values()]
        stamp = stamp_of(cells)
        ends = [f"`{end.commit}`, {end.date}" for end in (stamp.oldest, stamp.newest)]
        rows.append([method, str(len(cells)), *ends])
    return table(["method", "cells", "the oldest", "the newest"], rows)


def auc_table(results: Results) -> str:
    rows = []
    for method in results.methods:
        paper = PAPER_AUC.get(method)
        beside = [f" [{paper[NAMES.index(name)]:.4f}]" if paper and name in NAMES else "" for name in results.names]
        rows.append([method, *(results.shown(method, name) + more for name, more in zip(results.names, beside, strict=True))])
    return table(["test AUC, mean ± sd (seeds) [paper]", *map(str.capitalize, results.names)], rows)


def improvement_table(results: Results) -> str:
    """Relative improvements, as the paper has them: of the means, in percent."""
    pairs = [
        ("AC+LR", "LR (base)"),
        ("AC+LR, paper's settings", "LR (base), paper's settings"),
        ("AC+LR, order 2", "LR (base)"),
        ("CMI+LR", "LR (base)"),
        ("AC+W&D", "LR (base)"),
        ("AC+W&D", "Deep"),
    ]
    rows = []
    for one, other in pairs:
        plain, base = one.partition(",")[0], other.partition(",")[0]
        cells = []
        for name in results.names:
            a, b = results.mean(one, name), results.mean(other, name)
            cell = f"{100 * (a / b - 1):+.3f} %" if a == a and b == b else ""
            if plain in PAPER_AUC and base in PAPER_AUC and name in NAMES and "order 2" not in one:
                theirs = PAPER_AUC[plain][NAMES.index(name)] / PAPER_AUC[base][NAMES.index(name)]
                cell += f" [{100 * (theirs - 1):+.3f} %]"
            cells.append(cell)
        rows.append([f"{one} over {other}", *cells])
    return table(["improvement of the test AUC [paper]", *map(str.capitalize, results.names)], rows)


def time_table(results: Results) -> str:
    rows = []
    for method in results.methods:
        rows.append([method, *(number(results.least(method, name, "seconds"), ".1f") for name in results.names)])
    paper = [number(PAPER_HOURS[NAMES.index(name)] * 3600, ".0f") if name in NAMES else "" for name in results.names]
    rows.append(["paper's crossing, 24 cores", *paper])
    return table(["seconds of a fit, least of the seeds", *map(str.capitalize, results.names)], rows)


def latency_table(results: Results) -> str:
    rows = []
    for method in results.methods:
        cells = []
        for name in results.names:
            one, batch = results.least(method, name, "one_us"), results.least(method, name, "batch_us")
            paper = PAPER_MS.get(method)
            beside = f" [{1000 * paper[NAMES.index(name)]:.2f}]" if paper and name in NAMES else ""
            cells.append(f"{number(one, '.3g')} / {number(batch, '.3g')}{beside}" if one == one else "")
        rows.append([method, *cells])
    return table(["microseconds a row, least of the seeds: alone / in a batch [paper]", *map(str.capitalize, results.names)], rows)


def number(value: float, form: str) -> str:
    return "" if value != value else f"{value:{form}}"


def verdicts(results: Results) -> str:
    """Where AC+LR stands, and where it falls short, in words."""
    lines = []
    for rival in AHEAD:
        found = {name: results.difference("AC+LR", rival, name) for name in results.names}
        known = {name: one for name, one in found.items() if one[2]}
        if not known:
            continue
        above = [name for name, one in known.items() if one[0] > 0]
        below = [f"{name.capitalize()} by {-one[0]:.4f}" for name, one in known.items() if one[0] <= 0]
        short = f"; below on {', '.join(below)}" if below else ""
        lines.append(f"- AC+LR is above {rival} on {len(above)} of {len(known)}{short}.")
    for name in results.names:
        trees = {rival: results.difference("AC+LR", rival, name) for rival in ("LightGBM", "CatBoost")}
        known = {rival: one for rival, one in trees.items() if one[2]}
        if known:
            words = ", ".join(f"{rival} {one[0]:+.4f}" + (f" ± {one[1]:.4f}" if one[2] > 1 else "") for rival, one in known.items())
            lines.append(f"- {name.capitalize()}, AC+LR minus the trees: {words}.")
    deep = {name: results.difference("AC+W&D", "Deep", name) for name in results.names}
    known = {name: one for name, one in deep.items() if one[2]}
    if known:
        above = sum(one[0] > 0 for one in known.values())
        lines.append(f"- AC+W&D is above Deep on {above} of {len(known)}.")
    return "\n".join([*lines, *below_paper(results)])


def below_paper(results: Results) -> list[str]:
    """Where a number of the paper is higher than ours, its splits being others and its Criteo all of it."""
    lines = []
    for method, theirs in PAPER_AUC.items():
        ours = {name: results.mean(method, name) for name in results.names if name in NAMES}
        short = [
            f"{name.capitalize()} {ours[name]:.4f} [{theirs[NAMES.index(name)]:.4f}]"
            for name in ours
            if ours[name] < theirs[NAMES.index(name)]
        ]
        if short:
            lines.append(f"- {method} is below the paper's number on {', '.join(short)}.")
    return lines


# Pictures.


def curves(results: Results, path: Path) -> None:
    """Validation AUC against seconds, first seed."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(results.names), figsize=(3.2 * len(results.names), 2.8), squeeze=False)
    for axis, name in zip(axes[0], results.names, strict=True):
        history = results.cells["AC+LR", name].get(0, {}).get("history", [])
        axis.plot([one["seconds"] for one in history], [one["score"] for one in history], marker=".", drawstyle="steps-post")
        axis.set(title=name.capitalize(), xlabel="seconds")
    axes[0][0].set_ylabel("validation AUC")
    save(figure, path)


def orders(results: Results, path: Path) -> None:
    """Crosses by order, mean over the seeds."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 3))
    counts = {}
    for name in results.names:
        found = [one["crosses"] for one in results.cells["AC+LR", name].values() if "crosses" in one]
        counts[name] = [[len(cross["columns"]) for cross in crosses] for crosses in found]
    highest = max((order for found in counts.values() for one in found for order in one), default=2)
    below = np.zeros(len(results.names))
    for order in range(2, highest + 1):
        height = np.array([np.mean([one.count(order) for one in counts[name]]) if counts[name] else 0.0 for name in results.names])
        axis.bar([name.capitalize() for name in results.names], height, bottom=below, label=f"order {order}")
        below += height
    axis.set_ylabel("crosses")
    axis.legend(fontsize=7)
    save(figure, path)


def tree(results: Results, name: str, path: Path) -> None:
    """The crosses of one run, by order from left to right, each joined to what it was made of."""
    import matplotlib.pyplot as plt

    crosses = [frozenset(one["columns"]) for one in results.cells["AC+LR", name].get(0, {}).get("crosses", [])]
    columns = sorted({column for cross in crosses for column in cross})
    nodes = [frozenset([column]) for column in columns] + sorted(set(crosses), key=lambda one: (len(one), sorted(one)))
    place: dict[frozenset[str], tuple[float, float]] = {}
    for order in sorted({len(node) for node in nodes}):
        level = [node for node in nodes if len(node) == order]
        for at, node in enumerate(level):
            place[node] = (float(order), -(at + 0.5) / len(level))
    figure, axis = plt.subplots(figsize=(12, max(4, 0.3 * len(columns))))
    for node in nodes:
        if len(node) > 1:
            parts = [other for other in nodes if other < node]
            largest = max(parts, key=lambda one: (len(one), sorted(one)))
            rest = [frozenset([column]) for column in sorted(node - largest)]
            for part in (largest, *rest):
                axis.plot(*zip(place[part], place[node], strict=True), color="lightgrey", linewidth=0.8, zorder=0)
    for node, (x, y) in place.items():
        axis.text(
            x, y, " x ".join(sorted(node)), fontsize=6, ha="center", va="center", bbox={"fc": "white", "ec": "none", "pad": 0.5}
        )
    axis.set(xlim=(0.6, max((len(node) for node in nodes), default=1) + 0.6), ylim=(-1.02, 0.02))
    axis.axis("off")
    axis.set_title(f"{name.capitalize()}: columns and crosses, by order")
    save(figure, path)


def save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    path.parent.mkdir(exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def write(records: Sequence[dict[str, Any]], *, quick: bool, own: bool) -> None:
    """Tables into the page, pictures beside it; for a table of the user's own, tables to the terminal."""
    if not records:
        return
    results = Results(records)
    parts = [auc_table(results), improvement_table(results), time_table(results), latency_table(results), verdicts(results)]
    body = "\n\n".join(parts)
    if own:
        print(body)
        return
    name = "paper-quick" if quick else "paper"
    for word, draw in (("curves", curves), ("orders", orders)):
        draw(results, PICTURES / f"{name}-{word}.png")
    tree(results, "bank", PICTURES / f"{name}-tree.png")
    rows = (
        "One seed, 10,000 training rows of each table"
        if quick
        else "Seeds 0 to 4 (two for EBM, Deep and xDeepFM), Adult's own split"
    )
    text = f"""## The paper's tables{", quickly" if quick else ""}, by paper/run.py

{rows}; defaults of every method, two threads, each cell in a process of its own, stopped after 15 minutes. In brackets the paper's
numbers, on other splits and on all of Criteo. ({machine()})

{body}

Cells are run one by one, and kept until they are run again. The line under the title is of the methods that run code of ours. By
method, with the last commit to that code and the time:

{age_table(results)}

![validation AUC against seconds](pictures/{name}-curves.png)
![crosses by order](pictures/{name}-orders.png)
![the search tree of Bank, seed 0](pictures/{name}-tree.png)
"""
    of_our_code = [record for record in records if record["method"] not in RIVALS]
    write_section(name, text, stamp_of(of_our_code or records))
    print(body)
