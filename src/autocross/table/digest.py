"""What a column holds: its distinct values, how often each occurs, and where first.

Kinds, vocabularies and edges rest on this alone. Digests of parts of a table merge into that of the whole, the same whatever
the parts are, so that a table need not be in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from autocross.table.schema import parse_kind
from autocross.table.values import MISSING_TEXTS

MOST_NUMBERS = 1 << 20  # distinct numbers, beyond which their last bits are dropped: edges need no more
BITS = 52  # of a float's digits


@dataclass(frozen=True)
class Digest:
    """``counted`` has each value once, null among them if some are missing, its rows ``n`` and its ``first`` one, in their order.

    Of lists the entries count. ``dtype`` is that of the column itself. ``exact`` says that numbers must keep all their digits;
    ``bits`` is how many they have here. ``all_differ`` and ``whole`` are what was so before digits were dropped.
    """

    name: str
    counted: pl.DataFrame
    n_rows: int
    n_null: int
    dtype: Any
    exact: bool
    bits: int
    all_differ: bool
    whole: bool

    @cached_property
    def values(self) -> pl.Series:
        return self.counted["value"].alias(self.name)

    @cached_property
    def n(self) -> NDArray[np.int64]:
        return self.counted["n"].to_numpy()

    @property
    def first(self) -> NDArray[np.int64]:
        return self.counted["first"].to_numpy()

    @cached_property
    def present(self) -> pl.Series:
        """The values that are not missing."""
        return self.values if (gone := missing(self.values)) is None else self.values.filter(~gone)

    @property
    def n_missing(self) -> int:
        """Rows without a value; of lists those without a list."""
        if isinstance(self.dtype, (pl.List, pl.Array)):
            return self.n_null
        return 0 if (gone := missing(self.values)) is None else int(self.n[gone.to_numpy()].sum())


class Digests:
    """A column's parts as they come, merged now and then. ``declared`` is the kind the user gave it, if any."""

    def __init__(self, name: str, declared: str | None) -> None:
        kind, separator = (None, None) if declared is None else parse_kind(name, declared)
        self.exact, self.separator = kind in ("categorical", "multivalue"), separator
        self.parts: list[Digest] = []
        self.n_rows = 0

    def add(self, series: pl.Series) -> None:
        """The next rows."""
        self.parts.append(digest(series, self.n_rows, exact=self.exact, separator=self.separator))
        self.n_rows += len(series)
        if sum(part.counted.height for part in self.parts[1:]) > max(MOST_NUMBERS, self.parts[0].counted.height):
            self.parts = [merged(self.parts)]

    def whole(self) -> Digest:
        """That of all rows so far."""
        return self.parts[0] if len(self.parts) == 1 else merged(self.parts)


def missing(values: pl.Series) -> pl.Series | None:
    """Which of the values mean that there is none; None where no value does."""
    gone = values.is_null()
    if values.dtype == pl.String:
        gone |= values.is_in(sorted(MISSING_TEXTS))
    elif values.dtype.is_float():
        gone |= values.is_nan().fill_null(True)
    return gone if gone.any() else None


def digest(series: pl.Series, first_row: int = 0, *, exact: bool = False, separator: str | None = None) -> Digest:
    """That of some rows, the first of which is the ``first_row`` of the whole table."""
    dtype, n_rows, n_null = series.dtype, len(series), series.null_count()
    if separator is not None and dtype == pl.String:
        series = pieces(series, separator)
    if isinstance(dtype, pl.Array):
        series = series.arr.to_list()
    if isinstance(series.dtype, pl.List):
        series = series.drop_nulls().list.unique(maintain_order=True).explode(empty_as_null=False)
    if isinstance(series.dtype, (pl.Categorical, pl.Enum)):
        series = series.cast(pl.String)
    if series.dtype.is_nested() or series.dtype == pl.Object:
        series = pl.Series(series.name, dtype=pl.Null)  # nobody will look at these
    each = pl.repeat(1, len(series), dtype=pl.Int64, eager=True)
    rows = pl.int_range(first_row, first_row + len(series), dtype=pl.Int64, eager=True)
    counted = summed(pl.DataFrame({"value": series, "n": each, "first": rows}))
    present = Digest("", counted, n_rows, n_null, dtype, exact, BITS, False, False).present
    counted, bits = shortened(counted, BITS, exact)
    return Digest(series.name, counted, n_rows, n_null, dtype, exact, bits, len(present) == n_rows, is_whole(present))


def pieces(series: pl.Series, separator: str) -> pl.Series:
    """Texts as lists of what stands between the separators."""
    whole = series.set(series.is_in(sorted(MISSING_TEXTS)), None)
    return whole.str.split(separator).list.eval(pl.element().str.strip_chars())


def merged(parts: Sequence[Digest]) -> Digest:
    """That of the rows of all parts."""
    one = parts[0]
    bits = min(part.bits for part in parts)
    together = summed(pl.concat([cut(part.counted, bits) for part in parts], how="vertical_relaxed"))
    n_rows, n_null = sum(part.n_rows for part in parts), sum(part.n_null for part in parts)
    # Once digits are gone, parts that all differ are taken for a whole that does.
    all_differ = all(part.all_differ for part in parts) and (bits < BITS or together.height == n_rows)
    counted, bits = shortened(together, bits, one.exact)
    whole = all(part.whole for part in parts)
    dtype = one.dtype if len({part.dtype for part in parts}) == 1 else counted["value"].dtype
    return Digest(one.name, counted, n_rows, n_null, dtype, one.exact, bits, all_differ, whole)


def summed(counted: pl.DataFrame) -> pl.DataFrame:
    """Each value once, in the order of their first rows."""
    return counted.group_by("value").agg(pl.col("n").sum(), pl.col("first").min()).sort("first")


def shortened(counted: pl.DataFrame, bits: int, exact: bool) -> tuple[pl.DataFrame, int]:
    """Drop digits until few enough numbers are left: how many that takes depends on the numbers, not on how they came."""
    if exact or not counted["value"].dtype.is_numeric():
        return counted, bits
    while counted.height > MOST_NUMBERS:
        bits -= 4
        counted = summed(cut(counted, bits))
    return counted, bits


def cut(counted: pl.DataFrame, bits: int) -> pl.DataFrame:
    """The numbers with their last digits dropped."""
    if bits == BITS:
        return counted
    kept = np.uint64(0xFFFFFFFFFFFFFFFF ^ ((1 << (BITS - bits)) - 1))
    numbers = counted["value"].cast(pl.Float64).fill_null(np.nan).to_numpy().view(np.uint64) & kept
    return counted.with_columns(pl.Series("value", numbers.view(np.float64) + 0.0, nan_to_null=True))


def is_whole(values: pl.Series) -> bool:
    """Whether no number has a fraction, also where they are stored as floats."""
    if not values.dtype.is_float():
        return bool(values.dtype.is_integer())
    numbers = values.to_numpy()
    finite = numbers[np.isfinite(numbers)]
    return bool((finite == np.floor(finite)).all())
