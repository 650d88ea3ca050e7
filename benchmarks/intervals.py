"""Planted truth: how often does the interval around a score cover the true probability?

.venv/bin/python benchmarks/intervals.py             some ten minutes; writes docs/benchmarks.md
.venv/bin/python benchmarks/intervals.py 1           only the first seed, nothing is written
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
from sections import SOURCE, machine, stamp_now, table, write_section

from autocross import AutoCrossClassifier

ROWS, NEW_ROWS, LEVEL, N_SEEDS = (2_000, 10_000, 50_000), 20_000, 0.9, 3
Columns = dict[str, Any]
Rng = np.random.Generator
Generator = Callable[[Rng, Rng, int], tuple[Columns, Any, float]]  # effects, rows, how many -> columns, log-odds, base rate


def category(rows: Rng, n: int, n_values: int, skew: float) -> Any:
    """Codes of a category whose values are the rarer the later they come."""
    share = 1 / np.arange(1, n_values + 1) ** skew
    return rows.choice(n_values, n, p=share / share.sum())


def text(codes: Any) -> list[str]:
    return [f"v{code}" for code in codes.tolist()]


def named(**groups: list[Any]) -> Columns:
    """Columns by the name of their group and their number in it."""
    return {f"{name}{at}": column for name, columns in groups.items() for at, column in enumerate(columns)}


# The tables on which the rule was chosen.


def few_values(effects: Rng, rows: Rng, n: int) -> tuple[Columns, Any, float]:
    """Five categories of 3 to 10 values."""
    sizes = effects.integers(3, 11, 5)
    codes = [category(rows, n, size, 0.5) for size in sizes]
    log_odds = sum(effects.normal(0, 0.6, size)[code] for size, code in zip(sizes, codes, strict=True))
    return named(c=[text(code) for code in codes]), log_odds, 0.3


def many_values(effects: Rng, rows: Rng, n: int) -> tuple[Columns, Any, float]:
    """Categories of 8, 20, 200 and 800 values."""
    sizes = (8, 20, 200, 800)
    codes = [category(rows, n, size, 0.7) for size in sizes]
    log_odds = sum(effects.normal(0, 0.7, size)[code] for size, code in zip(sizes, codes, strict=True))
    return named(c=[text(code) for code in codes]), log_odds, 0.25


def smooth(effects: Rng, rows: Rng, n: int) -> tuple[Columns, Any, float]:
    """Five numbers with curves."""
    numbers = [rows.normal(0, 1, n) if at % 2 else rows.gamma(2, 1, n) for at in range(5)]
    log_odds = np.zeros(n)
    for x in numbers:
        line, bow, wave = effects.normal(0, [0.6, 0.25, 0.7])
        log_odds += line * x + bow / 2 * np.clip(x, -3, 5) ** 2 + wave * np.sin(1.5 * x)
    return named(x=numbers), log_odds, 0.3


def steps(effects: Rng, rows: Rng, n: int) -> tuple[Columns, Any, float]:
    """Five numbers with four steps each."""
    numbers, log_odds = [10 * rows.random(n) for _ in range(5)], np.zeros(n)
    for x in numbers:
        log_odds += effects.normal(0, 0.7, 5)[np.searchsorted(np.sort(10 * effects.random(4)), x)]
    return named(x=numbers), log_odds, 0.3


def two_pairs(effects: Rng, rows: Rng, n: int) -> tuple[Columns, Any, float]:
    """Six categories, two crosses of two."""
    sizes = effects.integers(4, 13, 6)
    codes = [category(rows, n, size, 0.3) for size in sizes]
    log_odds = sum(effects.normal(0, 0.3, size)[code] for size, code in zip(sizes, codes, strict=True))
    for a, b in ((0, 1), (2, 3)):
        log_odds = log_odds + effects.normal(0, 0.8, (sizes[a], sizes[b]))[codes[a], codes[b]]
    return named(c=[text(code) for code in codes]), log_odds, 0.3


def triple(effects: Rng, rows: Rng, n: int) -> tuple[Columns, Any, float]:
    """Seven categories, a cross of three and one of two."""
    sizes = effects.integers(3, 7, 7)
    codes = [category(rows, n, size, 0.3) for size in sizes]
    log_odds = effects.normal(0, 0.9, sizes[:3])[codes[0], codes[1], codes[2]]
    log_odds = log_odds + effects.normal(0, 0.6, sizes[3:5])[codes[3], codes[4]]
    return named(c=[text(code) for code in codes]), log_odds, 0.35


def product(effects: Rng, rows: Rng, n: int) -> tuple[Columns, Any, float]:
    """Five numbers, the product of two among them."""
    x = rows.normal(0, 1, (5, n))
    return named(x=list(x)), 0.7 * x[0] * x[1] + 0.5 * x[2] + 0.4 * np.sin(2 * x[3]), 0.3


def correlated(effects: Rng, rows: Rng, n: int) -> tuple[Columns, Any, float]:
    """Eight numbers in two groups with correlations of 0.64, and a category made of one."""
    x = 0.8 * rows.normal(0, 1, (2, n))[[0, 0, 0, 0, 1, 1, 1, 1]] + 0.6 * rows.normal(0, 1, (8, n))
    group = np.digitize(x[4], [-1, 0, 1])
    log_odds = effects.normal(0, 0.4, 8) @ x + 0.5 * np.tanh(2 * x[0]) + effects.normal(0, 0.4, 4)[group]
    return named(x=list(x), g=[text(group)]), log_odds, 0.3


def rare_positives(effects: Rng, rows: Rng, n: int) -> tuple[Columns, Any, float]:
    """Two categories and two numbers, 3 % positive."""
    c, d, x, u = category(rows, n, 30, 0.6), category(rows, n, 6, 0.3), rows.normal(0, 1, n), rows.random(n)
    log_odds = effects.normal(0, 0.6, 30)[c] + effects.normal(0, 0.5, 6)[d] + 0.8 * x + 1.2 * (u > 0.8)
    return named(c=[text(c), text(d)], x=[x, u]), log_odds, 0.03


def mixed(effects: Rng, rows: Rng, n: int) -> tuple[Columns, Any, float]:
    """Four categories of up to 150 values, six numbers, two crosses, one of them with a number."""
    sizes = (3, 8, 40, 150)
    c, x, u = [category(rows, n, size, 0.5) for size in sizes], rows.normal(0, 1, (4, n)), rows.gamma(1.5, 2, (2, n))
    log_odds = sum(effects.normal(0, 0.5, size)[code] for size, code in zip(sizes, c, strict=True))
    log_odds = log_odds + 0.5 * x[0] + 0.4 * np.abs(x[1]) + 0.6 * (u[0] > 4)
    log_odds = log_odds + effects.normal(0, 0.6, (3, 8))[c[0], c[1]] + effects.normal(0, 0.6, 8)[c[1]] * x[2]
    return named(c=[text(code) for code in c], x=[*x, *u]), log_odds, 0.2


def mostly_noise(effects: Rng, rows: Rng, n: int) -> tuple[Columns, Any, float]:
    """Three categories and six numbers, of which one each matters."""
    c, x = [category(rows, n, size, 0.5) for size in (4, 12, 60)], rows.normal(0, 1, (6, n))
    return named(c=[text(code) for code in c], x=list(x)), 0.6 * x[0] + effects.normal(0, 0.5, 12)[c[1]], 0.4


def steps_by_value(effects: Rng, rows: Rng, n: int) -> tuple[Columns, Any, float]:
    """A number whose steps depend on a category."""
    c, d, x = category(rows, n, 5, 0.3), category(rows, n, 10, 0.3), rows.random((2, n))
    log_odds = effects.normal(0, 0.8, (5, 4))[c, np.searchsorted([0.2, 0.5, 0.7], x[0])]
    return named(c=[text(c), text(d)], x=list(x)), log_odds + effects.normal(0, 0.4, 10)[d] + 0.8 * x[1], 0.3


def ids(effects: Rng, rows: Rng, n: int) -> tuple[Columns, Any, float]:
    """Ids of 300 and 400 values, one of them in a cross of 3,000: too many for few rows."""
    a, b, g, x = category(rows, n, 300, 0.8), category(rows, n, 400, 0.8), category(rows, n, 10, 0.2), rows.normal(0, 1, n)
    log_odds = effects.normal(0, 0.8, 300)[a] + effects.normal(0, 0.8, 400)[b] + effects.normal(0, 0.8, (300, 10))[a, g] + 0.3 * x
    return named(c=[text(a), text(b), text(g)], x=[x]), log_odds, 0.2


def with_missing(effects: Rng, rows: Rng, n: int) -> tuple[Columns, Any, float]:
    """Two categories and four numbers, a fifth of the cells of each missing."""
    c, x = [category(rows, n, size, 0.5) for size in (5, 15)], rows.normal(0, 1, (4, n))
    absent = rows.random((4, n)) < 0.2
    log_odds = effects.normal(0, 0.5, 5)[c[0]] + effects.normal(0, 0.5, 15)[c[1]] + np.where(absent[0], 0.0, 0.7 * x[0])
    log_odds = log_odds + np.where(absent[1], 0.5, 0.6 * x[1] ** 2 - 0.6)
    numbers = [pl.Series(np.where(gone, np.nan, one)).fill_nan(None) for gone, one in zip(absent, x, strict=True)]
    return named(c=[text(code) for code in c], x=numbers), log_odds, 0.3


CHOSEN_ON: list[Generator] = [
    few_values, many_values, smooth, steps, two_pairs, triple, product, correlated, rare_positives, mixed, mostly_noise,
    steps_by_value, ids, with_missing,
]  # fmt: skip


# Tables that took no part.


def anything(effects: Rng, rows: Rng, n: int) -> tuple[Columns, Any, float]:
    """3 to 10 columns of any kind, up to two crosses of any two of them, and any base rate from 0.05 to 0.5."""
    n_columns = int(effects.integers(3, 11))
    columns, bins, log_odds = [], [], np.zeros(n)
    for _ in range(n_columns):
        strength = effects.choice([0.0, 0.3, 0.6])
        if effects.random() < 0.5:
            size = int(effects.choice([2, 4, 8, 16, 50, 200]))
            code = category(rows, n, size, effects.random())
            columns.append(text(code))
            bins.append(code % 6)
            log_odds += strength * effects.normal(0, 1, size)[code]
            continue
        kind = effects.integers(3)
        x = rows.normal(0, 1, n) if kind == 0 else rows.gamma(2, 0.7, n) if kind == 1 else 3.5 * rows.random(n)
        columns.append(np.round(x, 1) if effects.random() < 0.3 else x)
        bins.append(np.digitize(x, [-1, 0, 1, 2]))
        wave, edge, line = effects.normal(0, 1, 3)
        log_odds += strength * (line * x if kind == 0 else wave * np.sin(2 * x) if kind == 1 else 2 * edge * (x > 1.2))
    for _ in range(int(effects.integers(3))):
        a, b = effects.choice(n_columns, 2, replace=False)
        log_odds += effects.normal(0, 0.6, (6, 6))[bins[a], bins[b]]
    return named(column=columns), log_odds, float(effects.uniform(0.05, 0.5))


N_OTHERS = 12


def planted(generator: Generator, seed: int, n: int) -> tuple[pl.DataFrame, Any, pl.DataFrame, Any]:
    """Rows with labels, and new rows with their true probabilities."""
    parts = []
    for part, n_part in enumerate((n, NEW_ROWS)):
        parts.append(generator(np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2, part]), n_part))
    (columns, log_odds, rate), (new_columns, new_log_odds, _) = parts
    low, high = -20.0, 20.0
    for _ in range(60):  # the intercept that gives the base rate
        middle = (low + high) / 2
        low, high = (middle, high) if (1 / (1 + np.exp(-new_log_odds - middle))).mean() < rate else (low, middle)
    label = np.random.default_rng([seed, 3]).random(n) < 1 / (1 + np.exp(-log_odds - low))
    return pl.DataFrame(columns), label.astype(np.int8), pl.DataFrame(new_columns), 1 / (1 + np.exp(-new_log_odds - low))


def coverage(generator: Generator, seed: int, n: int) -> float:
    """In which share of new rows the interval covers the true probability."""
    frame, label, new, true = planted(generator, seed, n)
    low, _, high = AutoCrossClassifier(quiet=True).fit(frame, label).score_interval(new, LEVEL)
    return float(((low <= true) & (true <= high)).mean())


def measured(name: str, cases: list[tuple[Generator, int]]) -> list[str]:
    """One line: the mean over some tables for each number of rows, with the lowest and the highest."""
    cells = []
    for n in ROWS:
        found = [100 * coverage(generator, seed, n) for generator, seed in cases]
        cells.append(f"{np.mean(found):.0f} ({min(found):.0f} to {max(found):.0f})")
    print(name, cells, flush=True)
    return [name, *cells]


def main(n_seeds: int) -> None:
    stamp, head = stamp_now(SOURCE), ["table", *(f"{n:,} rows" for n in ROWS)]
    seeds = range(n_seeds)
    lines = [measured(one.__doc__.rstrip(".").lower(), [(one, seed) for seed in seeds]) for one in CHOSEN_ON if one.__doc__]
    others = [measured(f"seed {seed}", [(anything, 1000 + seed)]) for seed in range(N_OTHERS if n_seeds == N_SEEDS else 2)]
    others.append(["mean", *(f"{np.mean([float(line[at].split()[0]) for line in others]):.0f}" for at in (1, 2, 3))])
    text = f"""## How often intervals cover the truth, by benchmarks/intervals.py

New rows, in %, whose true probability lies in the interval of level {LEVEL} (aim: 85 to 95). Mean over {n_seeds} tables that differ
in effects and rows, with the lowest and the highest:

{table(head, lines)}

The rule was chosen on these tables. Tables of 3 to 10 columns of any kind that took no part in that, one for each seed:

{table(head, others)}

Each table has {NEW_ROWS:,} new rows. The true log-odds are known, because labels are drawn from them. ({machine()})
"""
    print(text)
    if n_seeds == N_SEEDS:
        write_section("intervals", text, stamp)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else N_SEEDS)
