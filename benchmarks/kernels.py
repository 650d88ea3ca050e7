"""Every kernel beside the plain loop in C (kernels.c, compiled here) and the way of NumPy or SciPy: the same arrays, the same run.

make bench-kernels
.venv/bin/python benchmarks/kernels.py --dry             print, write nothing
.venv/bin/python benchmarks/kernels.py --dry gather tie  only these kernels
"""

from __future__ import annotations

import ctypes
import importlib
import math
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher
from numpy.typing import NDArray
from scipy.linalg import solve_banded
from scipy.sparse import csr_array
from sections import machine, stamp_now, table, write_section

from autocross import kernels, statistic
from autocross.encoding.discretize import Search
from autocross.features import FIRST
from autocross.folds import ALL
from autocross.kernels import lookup
from autocross.kernels.steps import FARTHEST

MEASURES = "src/autocross/kernels"
FLAGS = ["-O3", "-march=native", "-shared", "-fPIC"]
C_TYPES = {np.dtype(np.uint8): "uint8_t", np.dtype(np.uint32): "uint32_t"}
SIZES = (1_000_000, 1), (200_000, 5)  # rows and models
CODE_SIZES = (1_000_000, 1), (20_000, 5)
FEW, MANY = 100, 1_000_000  # codes: sums that fit the cache, and sums that do not
UNIT = 2.0**40
L1, L2, SMOOTH = 0.5, 3.0, 30.0
PENALTIES = np.array([(0.0, 3.0), (0.0, 30.0), (0.0, 300.0)])
AT_LEAST, AT_MOST, SECONDS = 9, 60, 0.5  # repeats of a case, and how long they may take
AIM, AIM_OF_TWO = 0.8, 1.7
ATTEMPTS, PAUSE = 10, 3.0  # at a case that is below its aim, over the whole run: a neighbour may take a core or the cache
HANDED_OVER = 0.005  # seconds of work that another thread gets at a time; to hand it over takes up to 0.0001
LOOKUPS = 1_000_000  # rows
SLOTS = (4093, 131071)
# Files of kernels that are not compared: pools are few, headers of pages too, and neither is a loop over rows. Draws are made once.
# Whole models are scored in benchmarks/serving.py.
APART = ("draws", "rising", "scoring", "thrift")
WITHOUT_CODES = ("total_loss", "row_losses")  # kernels that go over rows, whatever their codes
TOLERANCE = 1e-9  # of the largest value, where sums are taken in another order or products fused

Array = NDArray[Any]


def all_kernels() -> dict[str, Any]:
    """Every kernel of autocross.kernels. Parts are compiled into kernels, and compared within them."""
    names = [found.name for found in pkgutil.iter_modules(kernels.__path__) if found.name not in APART]
    modules = [importlib.import_module(f"{kernels.__name__}.{name}") for name in names]
    named = {name: value for module in modules for name, value in vars(module).items() if isinstance(value, Dispatcher)}
    found = {name: value for name, value in named.items() if not value.targetoptions.get("forceinline")}
    # Into sums with a third place, for which C has loops of their own.
    return found | {f"gather_counted{twin}": found[f"gather{twin}"] for twin in ("", "_ragged")}


# What the kernels work on.


@dataclass(frozen=True)
class Rows:
    """Rows as blocks have them; ``starts`` where a row has none to four codes."""

    n_codes: int
    codes: Array
    starts: Array | None
    label: Array
    weight: Array
    fold: Array
    odds: Array

    @property
    def n_models(self) -> int:
        return int(self.odds.shape[1])

    @cached_property
    def matrix(self) -> csr_array:
        """The codes as SciPy keeps them: a row each, a column a code."""
        return csr_array((np.ones(len(self.codes)), self.codes, self.starts), (len(self.label), self.n_codes))

    def between(self, first: int, last: int) -> Rows:
        """Some of the rows, in memory of their own as a block's are."""
        own = {name: getattr(self, name)[first:last].copy() for name in ("label", "weight", "fold", "odds")}
        if self.starts is None:
            return replace(self, codes=self.codes[first:last].copy(), **own)
        codes = self.codes[self.starts[first] : self.starts[last]].copy()
        return replace(self, codes=codes, starts=self.starts[first : last + 1] - self.starts[first], **own)


def make_rows(n_rows: int, n_models: int, n_codes: int, ragged: bool) -> Rows:
    """Rows at random: a fifth left out of each model."""
    rng = np.random.default_rng(0)
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 5, n_rows))]) if ragged else None
    fold = rng.integers(0, 5, n_rows).astype(np.uint8)
    return Rows(
        n_codes=n_codes,
        codes=rng.integers(0, n_codes, n_rows if starts is None else starts[-1]).astype(np.uint8 if n_codes <= 256 else np.uint32),
        starts=starts,
        label=(rng.random(n_rows) < 0.3).astype(np.uint8),
        weight=rng.uniform(0.5, 1.5, n_rows).astype(np.float32),
        fold=np.where(fold < n_models, fold, ALL).astype(np.uint8),
        odds=np.exp(rng.normal(-1, 1, (n_rows, n_models))),
    )


@dataclass(frozen=True)
class Codes:
    """Sums of a field and what a step needs beside them; a fifth of the codes is tied, chains are 20 codes long."""

    sums: Array
    weight: Array
    tied: Array
    order: Array
    gap: Array


def make_codes(n_codes: int, n_models: int, n_parts: int) -> Codes:
    """Codes at random."""
    rng = np.random.default_rng(0)
    g, h = rng.normal(0, 30, (n_codes, n_models, 1)), rng.uniform(1, 100, (n_codes, n_models, n_parts - 1))
    tied = rng.random((n_codes, n_models)) < 0.2
    tied[:2] = False
    gap = np.where(np.arange(n_codes) % 20 == 0, 0.0, rng.integers(1, 3, n_codes))
    sums = (np.concatenate([g, h], axis=2) * UNIT).astype(np.int64)
    return Codes(sums, rng.normal(0, 1, (n_codes, n_models)), tied, rng.permutation(n_codes), gap)


# The way of NumPy and SciPy.


def sum_by_code(rows: Rows, values: Array) -> Array:
    """Values (n_rows, n) summed by code, in floats."""
    if rows.starts is None:
        return np.stack([np.bincount(rows.codes, column, rows.n_codes) for column in values.T], axis=1)
    return np.asarray(rows.matrix.T @ values)


def numpy_count(rows: Rows, counts: Array) -> None:
    counts += sum_by_code(rows, rows.fold[:, None] != np.arange(rows.n_models)).astype(np.int64)


def numpy_gather(rows: Rows, sums: Array) -> None:
    q = 1.0 / (1.0 + rows.odds)
    p = rows.odds * q
    learns = rows.fold[:, None] != np.arange(rows.n_models)
    scaled = rows.weight[:, None] * UNIT * learns
    parts = [scaled * (p - rows.label[:, None]), scaled * (p * q), learns]
    for part, values in enumerate(parts[: sums.shape[2]]):
        sums[:, :, part] += sum_by_code(rows, values).astype(np.int64)


def numpy_scale(rows: Rows, factor: Array, odds: Array) -> None:
    odds *= factor[rows.codes] if rows.starts is None else np.exp(rows.matrix @ np.log(factor))


def numpy_try_scales(rows: Rows, factors: Array, losses: Array) -> None:
    for k in range(rows.n_models):
        at = np.flatnonzero(rows.fold == k)
        factor = factors[rows.codes[at], k] if rows.starts is None else np.exp(rows.matrix[at] @ np.log(factors[:, k]))
        odds = rows.odds[at, k, None] * factor
        loss = np.log(1.0 + np.where(rows.label[at, None] == 1, 1.0 / odds, odds))
        losses += (rows.weight[at, None] * UNIT * loss).astype(np.int64).sum(axis=0)


def numpy_total_loss(rows: Rows, losses: Array) -> None:
    loss = np.log(1.0 + np.where(rows.label[:, None] == 1, 1.0 / rows.odds, rows.odds))
    loss = (rows.weight[:, None] * UNIT * loss).astype(np.int64)
    judges = rows.fold[:, None] == np.arange(rows.n_models)
    losses[:, 0] += np.where(judges, 0, loss).sum(axis=0)
    losses[:, 1] += np.where(judges, loss, 0).sum(axis=0)


def numpy_row_losses(label: Array, odds: Array, losses: Array) -> None:
    losses[:] = np.log(1.0 + np.where(label == 1, 1.0 / odds, odds))


def numpy_tie(sums: Array, tied: Array) -> None:
    sums[1, :, :2] += np.where(tied[:, :, None], sums[:, :, :2], 0).sum(axis=0)


def numpy_centre(weight: Array, tied: Array, unit: float, mean: Array) -> None:
    mean[:] = np.where(tied, 0.0, weight).sum(axis=0) / (~tied).sum(axis=0)
    weight -= mean


def numpy_first_steps(sums: Array, unit: float, tied: Array, penalties: Array, width: int, factors: Array) -> None:
    g, h = sums[:, :, :1] / unit, sums[:, :, 1:2] / unit
    ratio = 1.0 + np.maximum(np.abs(g) - penalties[:, 0], 0.0) / (h + penalties[:, 1] / width)
    factors[:] = np.where(g < 0.0, ratio, 1.0 / ratio) ** (1.0 / width)
    factors[:] = np.where(tied[:, :, None], factors[1], factors)


def numpy_step(sums: Array, unit: float, weight: Array, tied: Array, l1: float, l2: float, width: int, delta: Array) -> float:
    g, h = sums[:, :, 0] / unit + l2 * weight, sums[:, :, 1] / unit + l2 / width
    up, down = (np.copysign(np.log1p(np.abs(side) / h), -side) for side in (g + l1, g - l1))
    move = np.where(width * weight + up > 0.0, up, np.where(width * weight + down < 0.0, down, -width * weight)) / width
    delta[:] = np.clip(weight + move, -FARTHEST, FARTHEST) - weight
    promised = np.abs(g * delta)[~tied].sum()
    delta[:] = np.where(tied, delta[1], delta)
    return float(promised)


def numpy_chained_step(
    sums: Array,
    unit: float,
    weight: Array,
    tied: Array,
    order: Array,
    gap: Array,
    _place: Array,
    l2: float,
    smooth: float,
    _slope: float,
    delta: Array,
) -> float:
    place, link, promised = np.cumsum(gap), np.cumsum(gap == 0), 0.0
    for k in range(weight.shape[1]):
        at = np.flatnonzero(~tied[order, k])
        code = order[at]
        w = weight[code, k]
        linked = link[at[1:]] == link[at[:-1]]
        hold = np.where(linked, smooth / np.where(linked, np.diff(place[at]), 1.0), 0.0)
        pull = hold * np.diff(w)
        slope = sums[code, k, 0] / unit + l2 * w + np.append(0.0, pull) - np.append(pull, 0.0)
        bend = sums[code, k, 1] / unit + l2 + np.append(0.0, hold) + np.append(hold, 0.0)
        move = solve_banded((1, 1), np.stack([np.append(0.0, -hold), bend, np.append(-hold, 0.0)]), -slope)
        first = np.flatnonzero(np.append(True, ~linked))
        largest = np.maximum.reduceat(np.abs(move), first)
        move *= np.repeat(np.log1p(largest) / largest, np.diff(np.append(first, len(move))))
        change = np.clip(w + move, -FARTHEST, FARTHEST) - w
        delta[code, k] = change
        promised -= float(slope @ change)
    delta[:] = np.where(tied, delta[1], delta)
    return promised


# One case: a kernel, its arguments, and the two others.


@dataclass(frozen=True)
class Case:
    """A kernel on some rows or codes. C wants the ``sizes`` too; ``numpy`` does the same to the same arguments."""

    kernel: str
    args: tuple[Any, ...]
    sizes: tuple[int, ...]
    numpy: Callable[[], float | None]

    @property
    def out(self) -> Array:
        """The argument that is written to."""
        return np.asarray(self.args[0 if self.kernel in ("tie", "centre", "before") else -1])


def row_cases(rows: Rows, factors: Array) -> dict[str, Case]:
    """The kernels that go over rows."""
    codes = (rows.codes,) if rows.starts is None else (rows.codes, rows.starts)
    known = (rows.label, rows.weight, rows.fold)
    sizes = len(rows.label), rows.n_models
    counts, sums, counted = (np.zeros((rows.n_codes, rows.n_models, *more), np.int64) for more in ((), (2,), (3,)))
    factor, odds = np.ascontiguousarray(factors[:, :, 0]), rows.odds.copy()
    # Small arrays of two threads must not share a cache line, as those of an engine's threads do not.
    losses, totals = np.zeros(64, np.int64)[: factors.shape[2]], np.zeros((64, 2), np.int64)[: rows.n_models]
    alone = (rows.label, np.ascontiguousarray(rows.odds[:, 0]), np.zeros(len(rows.label)))
    twin = "" if rows.starts is None else "_ragged"
    cases = [
        Case(f"count{twin}", (*codes, rows.fold, counts), sizes, lambda: numpy_count(rows, counts)),
        Case(f"gather{twin}", (*codes, *known, rows.odds, UNIT, sums), sizes, lambda: numpy_gather(rows, sums)),
        Case(f"gather_counted{twin}", (*codes, *known, rows.odds, UNIT, counted), sizes, lambda: numpy_gather(rows, counted)),
        Case(f"scale{twin}", (*codes, factor, odds), sizes, lambda: numpy_scale(rows, factor, odds)),
        Case(
            f"try_scales{twin}",
            (*codes, *known, rows.odds, factors, UNIT, losses),
            (*sizes, len(losses)),
            lambda: numpy_try_scales(rows, factors, losses),
        ),
        Case("total_loss", (*known, rows.odds, UNIT, totals), sizes, lambda: numpy_total_loss(rows, totals)),
        Case("row_losses", alone, sizes[:1], partial(numpy_row_losses, *alone)),
    ]
    if rows.starts is None:
        cases += statistic_cases(rows, factor)
    return {
        case.kernel: case for case in cases if case.kernel not in WITHOUT_CODES or (rows.starts is None and rows.n_codes == FEW)
    }


def statistic_cases(rows: Rows, factor: Array) -> list[Case]:
    """The kernels that count the rows of values, make codes of the counts, and scale odds by these."""
    rng = np.random.default_rng(6)
    n_rows, n_folds, odds = len(rows.label), rows.n_models, rows.odds.copy()
    bucket = rng.integers(0, statistic.N_BUCKETS, n_rows).astype(np.uint32)
    judged = rng.permutation(rows.codes)
    tallied = np.zeros((rows.n_codes, statistic.N_BUCKETS + n_folds, 2), np.int64)
    counts = rng.integers(0, 1000, (rows.n_codes, statistic.N_BUCKETS, 2))
    counts[:, :, 1] //= 1 + rng.integers(0, 5, counts.shape[:2])
    counts = np.sort(counts, axis=2)[:, :, ::-1].copy()
    sums, cuts, edges = counts.copy(), np.zeros((2, n_rows), np.uint8), (np.exp(statistic.RATE_EDGES), statistic.COUNT_EDGES)

    def numpy_tally() -> None:
        for place, inside in ((bucket, np.ones(n_rows, np.bool_)), (statistic.N_BUCKETS + rows.fold, rows.fold < n_folds)):
            cell = rows.codes[inside].astype(np.int64) * tallied.shape[1] + place[inside]
            for number, weight in enumerate((np.ones(n_rows), rows.label)):
                found = np.bincount(cell, weight[inside], rows.n_codes * tallied.shape[1])
                tallied[:, :, number] += found.reshape(tallied.shape[:2]).astype(np.int64)

    def numpy_cut() -> None:
        mine = counts[rows.codes, bucket]
        cuts[0] = FIRST + np.searchsorted(edges[0], (mine[:, 1] + 1.5) / (mine[:, 0] - mine[:, 1] + 1.5))
        cuts[1] = FIRST + np.searchsorted(edges[1], mine[:, 0])

    def numpy_before() -> None:
        sums[:] = np.cumsum(sums, axis=1) - sums

    def numpy_scale_judged() -> None:
        own = rows.fold[:, None] == np.arange(n_folds)
        odds[:] *= np.where(own, factor[judged], factor[rows.codes])

    sizes = (statistic.N_BUCKETS, *map(len, edges))
    judging = Case("scale_judged", (rows.codes, judged, rows.fold, factor, odds), (n_rows, n_folds), numpy_scale_judged)
    return [
        *([judging] if n_folds > 1 else []),
        Case(
            "tally",
            (rows.codes, bucket, rows.fold, rows.label, statistic.N_BUCKETS, tallied),
            (n_rows, tallied.shape[1]),
            numpy_tally,
        ),
        Case("cut", (rows.codes, bucket, counts, *edges, 1.5, 1.5, FIRST, cuts), (n_rows, *sizes), numpy_cut),
        Case("before", (sums,), counts.shape[:2], numpy_before),
    ]


def code_cases(codes: Codes) -> list[Case]:
    """The kernels that go over codes."""
    sums, parts = codes.sums, np.ascontiguousarray(codes.sums[:, :, :2])
    n_codes, n_models, n_parts = sums.shape
    factors, delta = np.zeros((n_codes, n_models, len(PENALTIES))), np.zeros((n_codes, n_models))
    tie = (sums, codes.tied)
    first_steps = (sums, UNIT, codes.tied, PENALTIES, 1, factors)
    step = (parts, UNIT, codes.weight, codes.tied, L1, L2, 1, delta)
    centre = (codes.weight.copy(), codes.tied, UNIT, np.zeros(n_models))
    # Without a slope: only small tables have one.
    chained = (parts, UNIT, codes.weight, codes.tied, codes.order, codes.gap, np.zeros(n_codes), L2, SMOOTH, 0.0, delta)
    return [
        Case("tie", tie, sums.shape, partial(numpy_tie, *tie)),
        Case("first_steps", first_steps, (n_codes, n_models, n_parts, len(PENALTIES)), partial(numpy_first_steps, *first_steps)),
        Case("step", step, delta.shape, partial(numpy_step, *step)),
        Case("chained_step", chained, delta.shape, partial(numpy_chained_step, *chained)),
        Case("centre", centre, delta.shape, partial(numpy_centre, *centre)),
    ]


def slot_cases(n_slots: int) -> list[Case]:
    """The kernels that lay a candidate's keys out in slots, a third of which get codes of their own."""
    rng = np.random.default_rng(5)
    keys, slots, counts = rng.integers(0, 1 << 40, LOOKUPS), np.zeros(LOOKUPS, np.uint32), np.zeros(n_slots, np.int64)
    bits, code = np.packbits(rng.random(n_slots) < 1 / 3), np.zeros(n_slots, np.uint32)

    def numpy_lay_out() -> None:
        slots[:] = keys % n_slots
        counts[:] += np.bincount(slots, minlength=n_slots)

    def numpy_number() -> None:
        own = np.unpackbits(bits, count=n_slots).view(np.bool_)
        code[:] = np.where(own, 1 + np.cumsum(own), 1)

    return [
        Case("lay_out", (keys, True, LOOKUPS, slots, counts), (LOOKUPS, n_slots), numpy_lay_out),
        Case("number", (bits, 2, 1, code), (n_slots,), numpy_number),
    ]


def lookup_cases(n_values: int) -> list[Case]:
    """The kernels that find values: those of a table that has them all, and the places of numbers among edges."""
    rng = np.random.default_rng(4)
    known = rng.integers(0, 2**64, n_values, np.uint64)
    hashes, n_slots = rng.choice(known, LOOKUPS), 1 << (4 * n_values).bit_length()
    keys, number = np.zeros(n_slots, np.uint64), np.full(n_slots, -1, np.int32)
    counts, first = np.zeros(n_values, np.int64), np.zeros(LOOKUPS, np.int64)
    index, table = np.zeros(LOOKUPS, np.int32), np.arange(7, n_values + 8, dtype=np.uint32)
    lookup.enter(known, 0, keys, number, 0, 0, counts, first, index)
    order = np.argsort(known)
    edges = np.sort(rng.normal(size=min(n_values, 2000)))
    search, values = Search(edges), rng.normal(size=LOOKUPS)
    search.prepare()
    found, place = np.zeros(LOOKUPS, table.dtype), np.zeros(LOOKUPS, np.uint16)
    numbers, of_numbers = rng.integers(0, n_values, LOOKUPS, np.int32), np.zeros(LOOKUPS, table.dtype)

    def numpy_find(out: Array, of_number: Array) -> None:
        out[:] = of_number[order[np.searchsorted(known, hashes, sorter=order)]]

    def numpy_locate() -> None:
        place[:] = np.searchsorted(edges, values, side="right")

    def numpy_spread() -> None:
        of_numbers[:] = table[numbers]

    given = (values, values.view(np.int64), search.edges, search.start, search.shift, search.levels, place)
    return [
        Case(
            "enter",
            (hashes, 0, keys, number, n_values, n_values, counts, first, index),
            (LOOKUPS, n_slots),
            partial(numpy_find, index, np.arange(n_values)),
        ),
        Case("find", (hashes, keys, number, table, found), (LOOKUPS, n_slots, len(table)), partial(numpy_find, found, table)),
        Case("spread", (table, numbers, of_numbers), (LOOKUPS,), numpy_spread),
        Case("locate", given, (LOOKUPS, len(search.edges)), numpy_locate),
    ]


# The race.


def compile_c(folder: Path, code: str, *more: str) -> ctypes.CDLL:
    """kernels.c for one type of codes."""
    library = folder / f"{'_'.join([code, *more])}.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["gcc", *FLAGS, *more, f"-DCODE={code}", str(source), "-o", str(library), "-lm"], check=True)
    return ctypes.CDLL(str(library))


def in_c(library: ctypes.CDLL, case: Case) -> Callable[[], float | None]:
    """The call of C's twin."""
    function = getattr(library, case.kernel)
    function.restype = ctypes.c_double if case.kernel in ("step", "chained_step") else None
    kinds = {float: ctypes.c_double, int: ctypes.c_int64, bool: ctypes.c_int64}
    given = [
        value.ctypes.data_as(ctypes.c_void_p) if isinstance(value, np.ndarray) else kinds[type(value)](value) for value in case.args
    ]
    sizes = [ctypes.c_int64(size) for size in case.sizes]
    return lambda: function(*given, *sizes)


def result(call: Callable[[], float | None], case: Case) -> tuple[float, Array]:
    """What a call returns and writes; the arguments are left as they were."""
    before = case.out.copy()
    returned, written = call(), case.out.copy()
    case.out[...] = before
    return returned if isinstance(returned, float) else 0.0, written


def check(case: Case, ours: Callable[..., Any], exact: ctypes.CDLL, fast: ctypes.CDLL) -> None:
    """The same results: to the bit from C that fuses nothing, nearly from the others."""
    returned, written = result(lambda: ours(*case.args), case)
    assert written.any(), case.kernel
    their_returned, their_written = result(in_c(exact, case), case)
    assert returned == their_returned and np.array_equal(written, their_written), f"{case.kernel}: C differs"
    for call in (in_c(fast, case), case.numpy):
        their_returned, their_written = result(call, case)
        np.testing.assert_allclose(their_returned, returned, TOLERANCE)
        np.testing.assert_allclose(their_written, written, 0.0, TOLERANCE * float(np.abs(written).max()))


def fastest(calls: Sequence[Callable[[], Any]], outs: Sequence[Array], at_least: int, at_most: int) -> list[float]:
    """Seconds of each call, the best of several in turns."""
    before = [out.copy() for out in outs]
    best = [np.inf] * len(calls)
    began = perf_counter()
    for turn in range(at_most):
        if turn >= at_least and perf_counter() - began > SECONDS:
            break
        for at, call in enumerate(calls):
            for out, was in zip(outs, before, strict=True):
                np.copyto(out, was)
            start = perf_counter()
            call()
            best[at] = min(best[at], perf_counter() - start)
    return best


def speed_of_two(ours: Callable[..., Any], halves: Sequence[Case], pool: ThreadPoolExecutor, seconds: float) -> float:
    """How much faster two threads are, a half of the rows each, as `engines.threads` shares blocks out; both take ``seconds``.

    The kernel is called again and again: it is compared, not the hand-over.
    """
    first, second = halves
    n_calls = math.ceil(2 * HANDED_OVER / seconds)

    def work(half: Case) -> None:
        for _ in range(n_calls):
            ours(*half.args)

    def one_thread() -> None:
        work(first)
        work(second)

    def two_threads() -> None:
        other = pool.submit(work, second)
        work(first)
        other.result()

    one, two = fastest([one_thread, two_threads], [first.out, second.out], AT_LEAST, AT_MOST)
    return one / two


def of_models(n_models: int) -> str:
    return "1 model" if n_models == 1 else f"{n_models} models"


def all_cases() -> Iterator[tuple[str, int, Case, tuple[Case, ...]]]:
    """Text, number of rows or codes, case, and its two halves where its sums fit the cache."""
    for n_rows, n_models in SIZES:
        for n_codes in (FEW, MANY):
            factors = np.exp(np.random.default_rng(1).normal(0, 0.1, (n_codes, n_models, len(PENALTIES))))
            for ragged in (False, True):
                rows = make_rows(n_rows, n_models, n_codes, ragged)
                parts = [] if n_codes == MANY else [rows.between(0, n_rows // 2), rows.between(n_rows // 2, n_rows)]
                halves = [row_cases(part, factors) for part in parts]
                for kernel, case in row_cases(rows, factors).items():
                    text = f"{n_rows:,} rows, {of_models(n_models)}" + (
                        f", {n_codes:,} codes" if kernel not in WITHOUT_CODES else ""
                    )
                    yield text, n_rows, case, tuple(half[kernel] for half in halves)
    for n_values in (FEW, MANY):
        for case in lookup_cases(n_values):
            yield f"{LOOKUPS:,} rows, {n_values:,} values", LOOKUPS, case, ()
    for n_slots in SLOTS:
        lay_out, number = slot_cases(n_slots)
        yield f"{LOOKUPS:,} rows, {n_slots:,} slots", LOOKUPS, lay_out, ()
        yield f"{n_slots:,} slots", n_slots, number, ()
    for n_codes, n_models in CODE_SIZES:
        for case in code_cases(make_codes(n_codes, n_models, 3)):
            yield f"{n_codes:,} codes, {of_models(n_models)}", n_codes, case, ()


@dataclass
class Timed:
    """A kernel on one case: the least seconds so far of ours, of C's and of NumPy's, and the most that two threads brought."""

    case: Case
    text: str
    n: int
    ours: Callable[[], Any]
    c: Callable[[], Any]
    two_threads: Callable[[float], float] | None
    mine: float = np.inf
    plain: float = np.inf
    numpy: float = np.inf
    two: float = 0.0

    def time(self) -> None:
        """Once more, what is not timed yet or is below its aim."""
        if np.isinf(self.numpy):
            (self.numpy,) = fastest([self.case.numpy], [self.case.out], 2, 3)
        if not self.plain / self.mine >= AIM:
            mine, plain = fastest([self.ours, self.c], [self.case.out], AT_LEAST, AT_MOST)
            self.mine, self.plain = min(self.mine, mine), min(self.plain, plain)
        if self.two_threads and self.two < AIM_OF_TWO:
            self.two = max(self.two, self.two_threads(self.mine))

    def line(self) -> list[str]:
        """Of the section's table."""
        ours, c, numpy = (value / self.n * 1e9 for value in (self.mine, self.plain, self.numpy))
        two = f"{self.two:.2f}" if self.two_threads else ""
        return [self.case.kernel, self.text, f"{ours:.2f}", f"{c:.2f}", f"{self.plain / self.mine:.2f}", f"{numpy:.1f}", two]


def main(names: list[str], dry: bool) -> None:
    stamp, found = stamp_now(MEASURES), all_kernels()
    compared: set[str] = set()
    all_timed: list[Timed] = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as pool:
        fast = {code: compile_c(Path(folder), name) for code, name in C_TYPES.items()}
        exact = {code: compile_c(Path(folder), name, "-ffp-contract=off", "-DOWN_LOG") for code, name in C_TYPES.items()}
        for text, n, case, halves in all_cases():
            compared.add(case.kernel)
            if names and case.kernel not in names:
                continue
            ours, code = found[case.kernel], case.args[0].dtype if case.args[0].dtype in C_TYPES else np.dtype(np.uint8)
            check(case, ours, exact[code], fast[code])
            on_two = partial(speed_of_two, ours, halves, pool) if halves else None
            all_timed.append(Timed(case, text, n, partial(ours, *case.args), in_c(fast[code], case), on_two))
        if missing := set(found) - compared:
            sys.exit(f"No comparison for {', '.join(sorted(missing))}: write one in benchmarks/kernels.py and kernels.c.")
        for attempt in range(ATTEMPTS):
            sleep(PAUSE if attempt else 0)
            for timed in all_timed:
                timed.time()
    lines = [timed.line() for timed in all_timed]
    for line in lines:
        print(" | ".join(line))
    for what, at, aim in (("C", 4, AIM), ("two threads", 6, AIM_OF_TWO)):
        below = [f"{line[0]} ({line[1]}) {line[at]}" for line in lines if line[at] and float(line[at]) < aim]
        print(f"Below the aim of {aim} beside {what}: {'; '.join(below) or 'none'}")
    if not dry:
        write_section("kernels", text_of(lines), stamp)


def text_of(lines: list[list[str]]) -> str:
    """The section."""
    head = ["kernel", "case", "ns", "C, ns", "share of C's speed", "NumPy, ns", "two threads"]
    return f"""## Kernels beside C, by benchmarks/kernels.py

{table(head, sorted(lines, key=lambda line: line[0]))}

Nanoseconds a row (in a ragged kernel one of none to four codes) or a code, on one thread: the best of several turns, all three on
the same arrays. C is the plain loop of benchmarks/kernels.c, `gcc {" ".join(FLAGS)}`; NumPy is NumPy or SciPy without a loop
over rows. Results are the same: C's to the bit (checked in a build that fuses no products and has our logarithm; the one timed may,
and has the C library's),
NumPy's within {TOLERANCE:.0e} of the largest. Aim: {AIM} of C's speed, and {AIM_OF_TWO} times the speed of one thread on two with
half of the rows each, where sums fit the cache. Others share this machine, and take a core or the cache for seconds: a case below
its aim is timed again, up to {ATTEMPTS} times in all, and the best counts, C's as well as ours. Of two threads each calls the
kernel for {HANDED_OVER * 1000:g} ms at a time: to hand over a single call takes 0.03 to 0.1 ms. Kernels that read headers of
Parquet pages are left out: they have few to read, and no rows. ({machine()})
"""


if __name__ == "__main__":
    main([name for name in sys.argv[1:] if name != "--dry"], "--dry" in sys.argv)
