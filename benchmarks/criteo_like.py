"""Rows of the shape of Criteo's display advertising set, as many as wanted, with planted crosses and a known best AUC.

.venv/bin/python benchmarks/criteo_like.py OUT_DIR --rows 10000000 --seed 0

Writes part-00000.parquet, ... of a million rows each: 13 skewed counts I1..I13, 26 columns C1..C26 of eight hex digits, both with
missing values, and `label`. Missing rates, frequencies and the number of values (33.8 million at Criteo's 45.8 million rows) are
Criteo's. What is not: columns are independent, but for those that are missing together. Parts that are there already are kept, and
the first rows are the same whatever the number of rows.

The log-odds are main effects of some columns, and PLANTED crosses of order 2, 3 and 4. A cross of order 3 or 4 has an effect of its
first two columns too, and of its first three: a search that grows crosses column by column needs steps to stand on. Every effect
has mean zero given all but one of its columns, so that no part of it is an effect of fewer columns. facts.json, beside the parts,
has the best possible AUC, with and without the crosses.

code : 0 missing, else 1 + the value's rank in frequency
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Words = NDArray[np.uint32]

PART_ROWS, SAMPLE_ROWS, BASE_RATE = 1_000_000, 500_000, 0.256
BLOCK_ROWS = 100_000  # drawn at once: few enough to stay in the cache
SAMPLE = 10**8  # the number of a part that is never written


class Count(NamedTuple):
    """A whole number: a lognormal one rounded down, plus `least`."""

    missing: float
    mean: float  # of the logarithm
    sd: float
    most: int
    least: int = 0


class Category(NamedTuple):
    """A column whose value of rank r (0, 1, ...) has a share of about (r + shift)^-slope; rank 0 has `top` besides."""

    missing: float
    values: int
    slope: float
    shift: float
    top: float = 0.0


# Fitted to a sample of 137,139 rows, and to the number of values seen in all 45,840,617: the large columns have more.
COUNTS = {
    "I1": Count(0.4509, 0.33, 1.47, 5_775),
    "I2": Count(0.0, 2.07, 2.34, 257_675, -1),
    "I3": Count(0.2134, 1.95, 1.44, 65_535),
    "I4": Count(0.2145, 1.56, 0.99, 969),
    "I5": Count(0.0263, 7.06, 2.81, 23_159_456),
    "I6": Count(0.2227, 3.26, 1.84, 431_037),
    "I7": Count(0.0428, 1.32, 1.75, 56_311),
    "I8": Count(0.0005, 1.90, 1.10, 6_047),
    "I9": Count(0.0428, 3.44, 1.65, 29_019),
    "I10": Count(0.4509, 0.02, 0.49, 11),
    "I11": Count(0.0428, 0.58, 1.09, 231),
    "I12": Count(0.7652, -1.41, 1.80, 4_008),
    "I13": Count(0.2145, 1.58, 1.06, 7_393),
}
CATEGORIES = {
    "C1": Category(0.0, 1_460, 1.943, 0.907),
    "C2": Category(0.0, 583, 2.6, 22.0),
    "C3": Category(0.0345, 1_513_738_482, 1.063, 2.852),
    "C4": Category(0.0345, 7_592_028, 1.195, 8.955),
    "C5": Category(0.0, 305, 2.564, 0.954),
    "C6": Category(0.1218, 23, 4.0, 4.5),
    "C7": Category(0.0, 12_517, 1.7, 150.0),
    "C8": Category(0.0, 633, 2.238, 0.927),
    "C9": Category(0.0, 3, 6.867, 2.138),
    "C10": Category(0.0, 93_500, 1.62, 184.4, 0.21),
    "C11": Category(0.0, 5_683, 2.0, 100.0),
    "C12": Category(0.0345, 1_247_837_744, 1.091, 3.961),
    "C13": Category(0.0, 3_194, 1.3, 18.0),
    "C14": Category(0.0, 27, 5.0, 7.5),
    "C15": Category(0.0, 14_992, 2.19, 193.4),
    "C16": Category(0.0345, 284_760_635, 1.140, 7.454),
    "C17": Category(0.0, 10, 0.969, 0.162),
    "C18": Category(0.0, 5_652, 2.379, 84.2),
    "C19": Category(0.4418, 2_172, 1.906, 26.8, 0.6),
    "C20": Category(0.4418, 3, 2.111, 100.4),
    "C21": Category(0.0345, 987_478_801, 1.116, 5.729),
    "C22": Category(0.7613, 17, 6.0, 5.5),
    "C23": Category(0.0, 15, 3.659, 4.339),
    "C24": Category(0.0345, 305_719, 1.324, 6.419),
    "C25": Category(0.4418, 104, 9.836, 27.45),
    "C26": Category(0.4418, 144_894, 1.296, 9.436),
}
COLUMNS = (*COUNTS, *CATEGORIES)

# Standard deviations in log-odds: of a column's own effect, and of a cross's effects of its first two columns, three, four.
MAINS = {"I1": 0.4, "I2": 0.3, "I5": -0.4, "I6": -0.3, "I7": 0.4, "I11": 0.4}
MAINS |= {"C2": 0.3, "C3": 0.4, "C4": 0.4, "C7": 0.4, "C10": 0.3, "C14": 0.3, "C17": 0.3, "C24": 0.4, "C26": 0.3}
EFFECTS: dict[tuple[str, ...], tuple[float, ...]] = {
    ("C2", "C25"): (0.35,),
    ("C5", "C23"): (0.3,),
    ("C8", "C14"): (0.3,),
    ("C17", "C20", "C22"): (0.2, 0.3),
    ("C6", "C20", "C23"): (0.2, 0.3),
    ("C6", "C14", "C17", "C23"): (0.2, 0.2, 0.35),
}
PLANTED: tuple[tuple[str, ...], ...] = tuple(EFFECTS)


def blocks(number: int, rows: int) -> list[tuple[int, int]]:
    """The blocks of a part: their numbers and rows."""
    if not 0 < rows <= PART_ROWS:
        raise ValueError(f"A part has 1 to {PART_ROWS:,} rows, not {rows:,}.")
    first, each = number * (PART_ROWS // BLOCK_ROWS), range(0, rows, BLOCK_ROWS)
    return [(first + at, min(BLOCK_ROWS, rows - start)) for at, start in enumerate(each)]


def stream(seed: int, block: int, name: str) -> np.random.Generator:
    """Random numbers of their own for everything drawn, so that the first rows of a block do not depend on how many follow."""
    return np.random.default_rng((seed, block, crc32(name.encode())))


def mixed(words: Words, name: str) -> Words:
    """Each word scrambled (MurmurHash3's last step, one to one), another way for every name."""
    out = words ^ np.uint32(crc32(name.encode()))
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        out ^= out >> np.uint32(shift)
        out *= np.uint32(factor)
    return out ^ (out >> np.uint32(16))


def below(rank: Floats, column: Category) -> Floats:
    """The share of the values of a lower rank."""
    power = 1 - column.slope
    start, end = column.shift**power, (column.values + column.shift) ** power
    share: Floats = ((rank + column.shift) ** power - start) / (end - start)
    return np.where(rank > 0, column.top + (1 - column.top) * share, 0.0)


def shares(name: str) -> Floats:
    """The share of rows of each code."""
    column = CATEGORIES[name]
    seen = np.diff(below(np.arange(column.values + 1.0), column))
    return np.concatenate([[column.missing], (1 - column.missing) * seen])


def ranks(uniform: Floats, column: Category) -> Words:
    """The inverse of `below`, rounded down. Overwrites its argument, as memory is what takes the time here."""
    power = 1 - column.slope
    start, end = column.shift**power, (column.values + column.shift) ** power
    at: Floats = np.maximum(uniform - column.top, 0.0) if column.top else uniform
    at *= (end - start) / (1 - column.top)
    at += start
    np.log(at, out=at)  # faster than a power
    at *= 1 / power
    np.exp(at, out=at)
    at -= column.shift
    np.minimum(at, column.values - 1, out=at)
    return at.astype(np.uint32)


def draw(names: Iterable[str], block: int, rows: int, seed: int) -> dict[str, NDArray[Any]]:
    """Codes of categories; counts as floats, NaN where missing. Columns with the same missing rate are missing together."""
    holes: dict[float, NDArray[np.bool_]] = {}
    drawn: dict[str, NDArray[Any]] = {}
    for name in names:
        column = COUNTS.get(name) or CATEGORIES[name]
        rate = column.missing
        if rate not in holes:
            holes[rate] = stream(seed, block, f"missing {rate}").random(rows, np.float32) < rate
        numbers = stream(seed, block, name)
        if isinstance(column, Count):
            whole = np.floor(np.exp(column.mean + column.sd * numbers.standard_normal(rows))) + column.least
            drawn[name] = np.minimum(whole, column.most, out=whole)
            drawn[name][holes[rate]] = np.nan
        else:
            drawn[name] = ranks(numbers.random(rows), column) + np.uint32(1)
            drawn[name] *= ~holes[rate]
    return drawn


def main_effect(name: str, values: NDArray[Any], seed: int) -> Floats:
    """Straight in the logarithm of a count, zero where it is missing; of a category's code, a hash, uniform around zero."""
    if name in COUNTS:
        column = COUNTS[name]
        standard: Floats = (np.log(values - column.least + 1) - column.mean) / column.sd
        return MAINS[name] * np.nan_to_num(standard)
    return MAINS[name] * 12**0.5 * (mixed(values, f"{name} {seed}") / 2**32 - 0.5)


@lru_cache(maxsize=64)
def effects(columns: tuple[str, ...], seed: int) -> Floats:
    """The effect of each combination of codes: mean 0 along every axis, variance 1 over the rows."""
    weights = [shares(name) for name in columns]
    table = stream(seed, 0, " ".join(columns)).standard_normal([len(one) for one in weights])
    for axis, one in enumerate(weights):
        table -= np.expand_dims(np.tensordot(table, one, (axis, 0)), axis)
    square = table**2
    for one in reversed(weights):
        square = square @ one
    table /= float(square) ** 0.5
    return table


def cross_effect(cross: tuple[str, ...], drawn: dict[str, NDArray[Any]], seed: int) -> list[Floats]:
    """What the first two columns of a planted cross add to the log-odds, the first three, ..."""
    added = []
    for order, size in enumerate(EFFECTS[cross], 2):
        columns = cross[:order]
        added.append(size * effects(columns, seed)[tuple(drawn[name] for name in columns)])
    return added


def log_odds(drawn: dict[str, NDArray[Any]], seed: int) -> tuple[Floats, Floats]:
    """By main effects, without the intercept; and by crosses."""
    mains, crosses = np.zeros((2, len(drawn["C2"])))
    for name in MAINS:
        mains += main_effect(name, drawn[name], seed)
    for cross in PLANTED:
        crosses += sum(cross_effect(cross, drawn, seed))
    return mains, crosses


NEEDED = tuple(name for name in COLUMNS if name in MAINS or any(name in cross for cross in PLANTED))


def rate_of(odds: Floats) -> Floats:
    """The probability."""
    out: Floats = 1 / (1 + np.exp(-odds))
    return out


def expected_auc(score: Floats, rate: Floats) -> float:
    """The AUC to expect of a score where each row is a yes with a known probability."""
    yes = rate[np.argsort(score)]
    no = 1 - yes
    return float(yes @ (np.cumsum(no) - no / 2) / (yes.sum() * no.sum()))


def part_log_odds(number: int, rows: int, seed: int) -> tuple[Floats, Floats]:
    """Both log-odds of a part's rows, without the intercept."""
    mains, crosses = zip(*(log_odds(draw(NEEDED, at, n, seed), seed) for at, n in blocks(number, rows)), strict=True)
    return np.concatenate(mains), np.concatenate(crosses)


@lru_cache(maxsize=8)
def intercept(seed: int) -> float:
    """What gives the base rate."""
    odds = np.add(*part_log_odds(SAMPLE, SAMPLE_ROWS, seed))
    low, high = -10.0, 10.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if rate_of(odds + middle).mean() < BASE_RATE else (low, middle)
    return low


def truth(number: int, rows: int, seed: int = 0) -> tuple[Floats, Floats]:
    """The true log-odds of a part's rows: what main effects say, and what crosses add."""
    mains, crosses = part_log_odds(number, rows, seed)
    return mains + intercept(seed), crosses


def facts(rows: int, seed: int) -> dict[str, Any]:
    """What a benchmark wants to know of the rows. The AUCs are from a sample."""
    mains, crosses = truth(SAMPLE, SAMPLE_ROWS, seed)
    rate = rate_of(mains + crosses)
    aucs = {"auc": expected_auc(mains + crosses, rate), "auc_without_crosses": expected_auc(mains, rate)}
    return {"rows": rows, "seed": seed, "planted": [list(cross) for cross in PLANTED]} | {k: round(v, 5) for k, v in aucs.items()}


PAIRS = np.frombuffer(bytes(range(256)).hex().encode(), np.uint16)  # two hex digits of each byte


def hexes(codes: Words, name: str) -> pl.Series:
    """Eight hex digits of each code, null where it is 0."""
    text = PAIRS[mixed(codes, name).view(np.uint8)]
    ends = np.arange(0, 8 * len(codes) + 1, 8)
    seen = np.packbits(codes > 0, bitorder="little")
    return pl.Series(name, pa.LargeStringArray.from_buffers(len(codes), pa.py_buffer(ends), pa.py_buffer(text), pa.py_buffer(seen)))


def block_frame(block: int, rows: int, seed: int) -> pl.DataFrame:
    """The first rows of a block."""
    drawn = draw(COLUMNS, block, rows, seed)
    rate = rate_of(np.add(*log_odds(drawn, seed)) + intercept(seed))
    label = stream(seed, block, "label").random(rows) < rate
    counts = [pl.Series(name, drawn[name], nan_to_null=True).cast(pl.Int32) for name in COUNTS]
    return pl.DataFrame([*counts, *(hexes(drawn[name], name) for name in CATEGORIES), pl.Series("label", label, pl.Int8)])


def part(number: int, rows: int, seed: int = 0) -> pl.DataFrame:
    """The first rows of a part."""
    return pl.concat([block_frame(at, n, seed) for at, n in blocks(number, rows)])


def n_written(path: Path) -> int:
    """The rows of a part that is there."""
    return int(pl.scan_parquet(path).select(pl.len()).collect().item()) if path.exists() else 0


def write(folder: Path, rows: int, seed: int = 0) -> dict[str, Any]:
    """Write what is not there yet. Gives the facts."""
    folder.mkdir(parents=True, exist_ok=True)
    known, note = facts(rows, seed), folder / "facts.json"
    n_parts = -(-rows // PART_ROWS)
    if note.exists() and json.loads(note.read_text()) | {"rows": rows} != known:
        raise ValueError(f"{folder} holds other rows than those of seed {seed}. Choose another folder, or empty it.")
    if (folder / f"part-{n_parts:05}.parquet").exists():
        raise ValueError(f"{folder} holds more than {rows:,} rows. Choose another folder, or empty it.")
    note.write_text(json.dumps(known, indent=1) + "\n")
    began, n_made = time.perf_counter(), 0
    for number in range(n_parts):
        n_here = min(PART_ROWS, rows - number * PART_ROWS)
        path = folder / f"part-{number:05}.parquet"
        if n_written(path) == n_here:
            continue
        fresh = path.with_suffix(".tmp")
        part(number, n_here, seed).write_parquet(fresh, compression_level=1, statistics=False, row_group_size=BLOCK_ROWS)
        fresh.replace(path)
        n_made += n_here
        pace = n_made / (time.perf_counter() - began)
        print(f"{number * PART_ROWS + n_here:,} of {rows:,} rows, {pace:,.0f} a second", file=sys.stderr, flush=True)
    return known


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(json.dumps(write(given.folder, given.rows, given.seed)))
