"""What a column holds: its distinct values, how often each occurs, and where first.

Kinds, vocabularies and edges are decided from this alone. The digests of parts of a table can be merged into the digest of the
whole table. The result does not depend on how the table was divided, so the table need not be in memory.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from autocross.features import TOGETHER
from autocross.memory import Allowance
from autocross.scratch import Stored
from autocross.table.places import Numbers, Places, missing
from autocross.table.schema import is_read_as_text, parse_kind
from autocross.table.values import MISSING_TEXTS

MOST_NUMBERS = 1 << 20  # beyond so many distinct numbers or moments, last bits are dropped; edges need no more
BITS = 52  # binary digits of a float
DROPPED = 4  # digits that are dropped at a time
ENOUGH = 1000  # values that are enough for a column that is not used
MOST_TEXTS = 1 << 23  # beyond so many distinct texts, the rarer half is forgotten


@dataclass(frozen=True)
class Digest:
    """What a column holds. ``values`` has each value once, including null if some are missing, in the order of their first rows.
    ``n`` has the number of rows of each value, and ``first`` its first row. These are arrays and not a frame: a table may have
    100,000 columns, and frames would take several times the memory.

    For lists, the entries are counted. ``dtype`` is the type of the column itself. ``exact`` says that numbers must keep all their
    digits; ``bits`` is the number of digits that they have here. ``all_differ`` and ``whole`` describe the values before digits
    were dropped.

    A digest that is ``shelved`` has its counts on disk, and must be `loaded` before they are looked at.
    """

    name: str
    values: pl.Series
    n: NDArray[np.int64]
    first: NDArray[np.int64]
    n_rows: int
    n_null: int
    dtype: Any
    exact: bool
    bits: int
    all_differ: bool
    whole: bool
    shelf: tuple[Stored, ...] = ()
    n_shelved: int = 0

    def shelved(self, allowed: Allowance) -> Digest:
        """The same digest; if it is large, its counts are on disk."""
        if self.n_bytes <= allowed.for_digest:
            return self
        n, counted = len(self.values), self.counted
        parts = (pickle.dumps(counted[first : first + TOGETHER], 5) for first in range(0, n, TOGETHER))
        shelf = tuple(allowed.scratch.keep(np.frombuffer(part, np.uint8)) for part in parts)
        return replace(self.having(counted.clear()), shelf=shelf, n_shelved=n)

    def loaded(self) -> Digest:
        """The same digest with its counts in memory."""
        if not self.shelf:
            return self
        counted = pl.concat([pickle.loads(part.read().data) for part in self.shelf])
        return replace(self.having(counted), shelf=(), n_shelved=0)

    @property
    def n_values(self) -> int:
        """How many different values there are."""
        return len(self.values) + self.n_shelved

    @property
    def n_bytes(self) -> int:
        """What it takes in memory."""
        return int(self.values.estimated_size()) + self.n.nbytes + self.first.nbytes

    @property
    def counted(self) -> pl.DataFrame:
        """The values, their numbers of rows and their first rows as a frame, for operations that polars does better."""
        return pl.DataFrame({"value": self.values, "n": self.n, "first": self.first})

    def having(self, counted: pl.DataFrame) -> Digest:
        """The same digest with the values, numbers of rows and first rows of this frame."""
        n, first = (counted[part].to_numpy() for part in ("n", "first"))
        return replace(self, values=counted["value"].alias(self.name), n=n, first=first)

    @cached_property
    def gone(self) -> NDArray[np.bool_] | None:
        """Which values mean that there is no value. None if there are no such values."""
        return missing(self.values)

    @cached_property
    def present(self) -> pl.Series:
        """The values that are not missing."""
        return self.values if self.gone is None else self.values.filter(pl.Series(~self.gone))

    def frequent(self, least: int) -> Digest:
        """The digest with only the values that have so many rows or more."""
        enough = self.n >= least
        if enough.all():
            return self
        return replace(self, values=self.values.filter(pl.Series(enough)), n=self.n[enough], first=self.first[enough])

    @property
    def n_missing(self) -> int:
        """The number of rows without a value or, for lists, without a list."""
        if isinstance(self.dtype, (pl.List, pl.Array)):
            return self.n_null
        return 0 if self.gone is None else int(self.n[self.gone].sum())


@dataclass(frozen=True)
class Numbered:
    """The distinct values of a column and, for each row, the place of its value among them."""

    values: pl.Series
    index: Numbers


class Digests:
    """Collects the digest of a column part by part. ``declared`` is the kind that the user gave it, if any; ``apart`` is that of
    `Places`.

    For an ``unused`` column some values are enough to say what it holds. With an allowance, only few numbers are counted at the
    same time, and counts are kept on disk.
    """

    def __init__(
        self,
        name: str,
        declared: str | None,
        allowed: Allowance | None = None,
        *,
        apart: bool = False,
        unused: bool = False,
    ) -> None:
        self.apart, self.unused, self.allowed = apart, unused, allowed
        self.most = MOST_NUMBERS if allowed is None else min(MOST_NUMBERS, allowed.n_numbers)
        kind, separator = (None, None) if declared is None else parse_kind(name, declared)
        self.exact, self.separator = kind is not None and is_read_as_text(kind), separator
        self.closed: list[Digest] = []
        self.open: Tally | None = None
        self.numbered: Numbered | None = None  # the rows by their values' numbers, if there was only one part
        self.n_rows = 0

    def add(self, series: pl.Series, hashes: NDArray[np.uint64] | None = None) -> None:
        """Add the next rows. ``hashes`` has the hashes of their `entries`, if these are known."""
        if self.unused and self.n_values > ENOUGH:
            self.n_rows += len(series)
            return
        if self.open is not None and self.open.dtype != series.dtype:
            self.close()
        if self.open is None:
            self.open = Tally(series.name, series.dtype, exact=self.exact, separator=self.separator, apart=self.apart)
        self.open.add(series, self.n_rows, hashes)
        self.n_rows += len(series)
        if self.open.places.n > self.most and self.open.shortens:
            self.close()
        if sum(part.n_values for part in self.closed[1:]) > self.most:
            with self.turn():
                self.closed = [self.put_aside(merged([part.loaded() for part in self.closed]))]

    def turn(self) -> AbstractContextManager[Any]:
        """If memory is short, only some columns at a time may do something that takes much of it."""
        return nullcontext() if self.allowed is None else self.allowed.turns

    def put_aside(self, digest: Digest) -> Digest:
        """Keep a digest on disk, if there is a file for it."""
        return digest if self.allowed is None else digest.shelved(self.allowed)

    @property
    def n_values(self) -> int:
        """How many different values were counted, part by part."""
        return sum(part.n_values for part in self.closed) + (0 if self.open is None else self.open.places.n)

    @property
    def n_bytes(self) -> int:
        """What it takes in memory."""
        closed = sum(part.n_bytes for part in self.closed)
        return closed + (0 if self.open is None else self.open.n_bytes)

    @property
    def begun(self) -> bool:
        """Whether there were any rows yet."""
        return self.open is not None or bool(self.closed)

    def close(self) -> None:
        """End the present count, because digits are dropped or the type changes. Later rows are counted separately and merged."""
        if self.open is not None:
            with self.turn():
                digest, self.open = self.open.digest(), None
                self.closed.append(self.put_aside(digest))

    def seal(self) -> None:
        """No more rows will come: free the table in which values are looked up."""
        tally = self.open
        if tally is not None and tally.index is not None and not self.closed:
            self.numbered = Numbered(tally.places.values, tally.index)
        self.close()

    def whole(self) -> Digest:
        """The digest of all rows."""
        self.seal()
        if len(self.closed) > 1:
            with self.turn():
                self.closed = [self.put_aside(merged([part.loaded() for part in self.closed]))]
        return self.closed[0]


class Tally:
    """Counts values of one type."""

    def __init__(self, name: str, dtype: Any, *, exact: bool, separator: str | None, apart: bool = False) -> None:
        self.name, self.dtype, self.exact, self.separator = name, dtype, exact, separator
        self.places = Places(apart=apart)
        self.first: list[NDArray[np.int64]] = []
        self.index: Numbers | None = None  # the numbers of the rows' values, in the first part only
        self.n_rows = self.n_null = 0
        self.differed: bool | None = None  # whether all values differed when rare ones were forgotten

    @property
    def n_bytes(self) -> int:
        return self.places.n_bytes + sum(part.nbytes for part in self.first) + (0 if self.index is None else self.index.nbytes)

    @property
    def shortens(self) -> bool:
        return can_shorten(self.dtype) and not self.exact

    def add(self, series: pl.Series, first_row: int, hashes: NDArray[np.uint64] | None = None) -> None:
        index, new = self.places.add(entries(series, self.separator), hashes)
        self.index = None if self.n_rows else index
        self.n_rows, self.n_null = self.n_rows + len(series), self.n_null + series.null_count()
        self.first.append(first_row + new)
        if self.places.n > MOST_TEXTS and not self.shortens:
            self.forget_rare()

    def forget_rare(self) -> None:
        """Go on as if the rarest texts had not occurred. A value that stays rare has no weight of its own anyway."""
        self.differed, self.index = self.all_differ, None
        n = self.places.n_rows
        frequent = np.sort(np.argsort(-n, kind="stable")[: MOST_TEXTS // 2])
        self.places = Places.of(self.places.values.gather(frequent))
        self.places.counts[: len(frequent)] = n[frequent]
        self.first = [np.concatenate(self.first)[frequent]]

    @property
    def all_differ(self) -> bool:
        """Whether every row has a value of its own."""
        if self.differed is not None:
            return self.differed
        if self.places.n < self.n_rows:
            return False
        gone = missing(self.places.values)
        return self.places.n - (0 if gone is None else int(gone.sum())) == self.n_rows

    def digest(self) -> Digest:
        """What was counted."""
        values, first = self.places.values, np.concatenate(self.first)
        named = values if values.name == self.name else values.alias(self.name)
        facts = (self.n_rows, self.n_null, self.dtype, self.exact, BITS, self.all_differ)
        return shortened(Digest(self.name, named, self.places.n_rows, first, *facts, is_whole(values)))


def digest(series: pl.Series, first_row: int = 0, *, exact: bool = False) -> Digest:
    """The digest of some rows. The first of them has the number ``first_row`` in the whole table."""
    tally = Tally(series.name, series.dtype, exact=exact, separator=None)
    tally.add(series, first_row)
    return tally.digest()


def entries(series: pl.Series, separator: str | None) -> pl.Series:
    """What is counted: the values themselves or, for lists and for texts with a separator, their entries, each once per row."""
    if separator is not None and series.dtype == pl.String:
        series = pieces(series, separator)
    if isinstance(series.dtype, pl.Array):
        series = series.arr.to_list()
    if isinstance(series.dtype, pl.List):
        series = series.drop_nulls().list.unique(maintain_order=True).explode(empty_as_null=False)
    if isinstance(series.dtype, (pl.Categorical, pl.Enum)):
        series = series.cast(pl.String)
    if series.dtype.is_nested() or series.dtype == pl.Object:
        series = pl.Series(series.name, dtype=pl.Null)  # nobody looks at these
    return series


def is_counted_as_it_is(dtype: Any, separator: str | None) -> bool:
    """Whether the `entries` of a column are its values, unchanged."""
    if dtype == pl.String:
        return separator is None
    return not (dtype.is_nested() or dtype == pl.Object or isinstance(dtype, (pl.Categorical, pl.Enum)))


def pieces(series: pl.Series, separator: str) -> pl.Series:
    """Texts as lists, cut at the separator."""
    whole = series.set(series.is_in(sorted(MISSING_TEXTS)), None)
    return whole.str.split(separator).list.eval(pl.element().str.strip_chars())


def merged(parts: Sequence[Digest]) -> Digest:
    """The digest of the rows of all parts."""
    first = parts[0]
    bits = min(part.bits for part in parts)
    together = summed(pl.concat([cut(part.counted, bits) for part in parts], how="vertical_relaxed"))
    n_rows, n_null = sum(part.n_rows for part in parts), sum(part.n_null for part in parts)
    # Once digits are dropped, a table counts as all different if all its parts are.
    all_differ = all(part.all_differ for part in parts) and (bits < BITS or together.height == n_rows)
    whole = all(part.whole for part in parts)
    combined = replace(first.having(together), n_rows=n_rows, n_null=n_null, bits=bits, all_differ=all_differ, whole=whole)
    combined = shortened(combined)
    return combined if len({part.dtype for part in parts}) == 1 else replace(combined, dtype=combined.values.dtype)


def moved(part: Digest, by: int) -> Digest:
    """The same rows, so many later in the table."""
    return replace(part, first=part.first + by) if by else part


def summed(counted: pl.DataFrame) -> pl.DataFrame:
    """Merged counts: each value once, in the order of first rows."""
    value = counted["value"]
    plain = value.dtype.is_integer() or value.dtype.is_temporal()
    if value.dtype.is_float():
        plain = not (value.is_nan().any() or (1 / value.filter(value == 0)).lt(0).any())  # zero and NaN have several bit patterns
    if not plain or not counted.height:
        return counted.group_by("value").agg(pl.col("n").sum(), pl.col("first").min()).sort("first")
    # The same in a fraction of the memory: sort, so that equal values are side by side.
    place = value.arg_sort()
    value = value.gather(place)
    begins = np.flatnonzero(np.concatenate([[True], value[1:].ne_missing(value[:-1]).to_numpy()]))
    n = np.add.reduceat(counted["n"].gather(place).to_numpy(), begins)
    first = np.minimum.reduceat(counted["first"].gather(place).to_numpy(), begins)
    order = np.argsort(first)
    return pl.DataFrame({"value": value.gather(begins[order]), "n": n[order], "first": first[order]})


def can_shorten(dtype: Any) -> bool:
    """Whether digits can be dropped. They can for numbers and, below the minute, for moments."""
    return bool(dtype.is_numeric()) or isinstance(dtype, pl.Datetime)


def shortened(digest: Digest) -> Digest:
    """Drop digits until few enough values are left. How many are dropped depends on the values only, not on their order."""
    dtype, bits = digest.values.dtype, digest.bits
    if digest.exact or not can_shorten(dtype) or len(digest.values) <= MOST_NUMBERS:
        return digest
    if dtype.is_numeric():
        numbers = np.sort(digest.values.cast(pl.Float64).fill_null(np.nan).to_numpy()).view(np.uint64)  # equal ones side by side
        n_values = len(numbers)
        while n_values > MOST_NUMBERS:
            bits -= DROPPED
            short = numbers & kept_digits(bits)
            n_values = 1 + int(np.count_nonzero(short[1:] != short[:-1]))
    elif bits == BITS:
        bits -= DROPPED
    else:
        return digest
    return replace(digest.having(summed(cut(digest.counted, bits))), bits=bits)


def kept_digits(bits: int) -> np.uint64:
    """A mask of the digits that are left."""
    return np.uint64(0xFFFFFFFFFFFFFFFF ^ ((1 << (BITS - bits)) - 1))


def cut(counted: pl.DataFrame, bits: int) -> pl.DataFrame:
    """The values with their last digits dropped."""
    if bits == BITS:
        return counted
    values = counted["value"]
    if isinstance(values.dtype, pl.Datetime):
        return counted.with_columns(values.dt.truncate("1m").alias("value"))
    numbers = values.cast(pl.Float64).fill_null(np.nan).to_numpy().view(np.uint64) & kept_digits(bits)
    return counted.with_columns(pl.Series("value", numbers.view(np.float64) + 0.0, nan_to_null=True))


def is_whole(values: pl.Series) -> bool:
    """Whether all numbers are whole, even if they are stored as floats."""
    if not values.dtype.is_float():
        return bool(values.dtype.is_integer())
    numbers = values.to_numpy()  # a null is NaN
    finite = numbers[np.isfinite(numbers)]
    return bool((finite[:100] == np.floor(finite[:100])).all() and (finite == np.floor(finite)).all())
