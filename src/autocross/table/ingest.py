"""The only way in: a table, with the names of its target and weights, becomes rows to learn from or to score.

Fit, refit, evaluate, predict and transform all read tables here, from the command line too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from autocross.errors import LabelError, OptionError, TableError
from autocross.hashing import mix
from autocross.memory import AT_ONCE, BATCH, COPY, gib, give_back, memory_limit
from autocross.options import GRACE, OptionList, Options
from autocross.table.batches import MOST_ROWS, batches, rows_of
from autocross.table.coerce import used_of
from autocross.table.dialect import Dialect
from autocross.table.files import bytes_in_memory, column_names, place_of, uncounted, whole_files
from autocross.table.frames import settled, to_polars
from autocross.table.inference import columns_in_words
from autocross.table.schema import Schema, is_read_as_text, text_columns
from autocross.table.source import InFiles, InMemory, Part, Source
from autocross.table.weights import ClassWeights, class_weights, factors

LEAST_WEIGHT, MOST_WEIGHT = 1e-37, 1e38  # range of a 32-bit float
CELLS_A_SECOND = 4_000_000  # cells that can be read twice and learned from in a second, without crosses
FEWEST_ROWS = 20_000  # so many rows are never thinned out; if they have too many columns, columns are left out
THINNING = 3_000_017  # seed that selects rows if time is short
MOST_TOGETHER = 1 << 17  # most rows that are compared with those of a fit at a time; their codes take far more room than they do
BYTES_A_SECOND, READ_SHARE = 200_000_000, 0.1  # of a file as it is in memory, and of the time limit in which it is read as a whole


# What the commands and the estimators ask for.


def source_of(X: Any, y: Any, sample_weight: Any, options: Options) -> Source:
    """The rows to learn from: as a whole or, if they would fill too much of the memory, part by part."""
    dialect = Dialect(declared_text(options.types or {}), options.separator, options.decimal)
    limit = memory_limit(options.memory_limit)
    check_roles(options, y, sample_weight)
    named = [name for name in (y, sample_weight) if name is not None]
    if isinstance(X, (str, Path)) and y is not None and all(isinstance(name, str) for name in named):
        path = place_of(X)
        n_bytes = bytes_in_memory(path)
        too_large = n_bytes > AT_ONCE * limit
        # Reading a file as a whole cannot be interrupted by the time limit.
        too_slow = options.time_limit is not None and n_bytes > READ_SHARE * (options.time_limit + GRACE) * BYTES_A_SECOND
        # If the workers of a cluster read the rows, these need not fit into the memory of this machine.
        if options.engine == "ray" or too_large or too_slow:
            names, pieces = column_names(path, dialect), whole_files(path, dialect)
            check_columns(names, y, sample_weight)
            share = share_in_time(options, sum(piece.n_rows for piece in pieces), len(names))
            parts = batches(path, dialect, pieces, named, int(BATCH * limit)) if options.class_weight is not None else ()
            by_class = weights_of_classes(options, parts, y, sample_weight, y, first_row=0)

            def split(frame: pl.DataFrame, first_row: int) -> Part:
                return learnable(frame, y, sample_weight, first_row, share, by_class)

            height = min(MOST_ROWS, max(FEWEST_ROWS, CELLS_A_SECOND // len(names))) if too_slow else MOST_ROWS
            return InFiles(path, dialect, y, frozenset(named), split, pieces, int(BATCH * limit), share=share, height=height)
    check_copy(X, limit)
    frame, target = take_target(X, y, sample_weight, dialect)
    share = share_in_time(options, frame.height, frame.width)
    unread = set(options.exclude or ()) - {options.time, options.groups}
    frame = settled(frame, options.types or {}, unread)
    by_class = weights_of_classes(options, [frame], y, sample_weight, target)
    part = learnable(frame, y, sample_weight, share=share, by_class=by_class)
    in_parts = part.features.estimated_size() > AT_ONCE * limit and options.engine != "ray"
    return InMemory(part, target, share=share, most_bytes=int(BATCH * limit) if in_parts else None)


def part_of(X: Any, y: Any, sample_weight: Any, schema: Schema, options: OptionList) -> tuple[Part, str]:
    """All rows in memory, for a model that exists already, and the name of the target."""
    frame, target = with_target(X, y, sample_weight, schema, options)
    return learnable(frame, y, sample_weight, by_class=weights_of_classes(options, [frame], y, sample_weight, target)), target


def rows_of_fit(
    X: Any, y: Any, sample_weight: Any, schema: Schema, options: Options
) -> tuple[pl.DataFrame, NDArray[Any], NDArray[np.int64], str]:
    """All rows of the table that a model was fitted to, their labels, their numbers in the fit, and the name of the target. Rows
    that the fit did not learn from have the number -1."""
    frame, target = with_target(X, y, sample_weight, schema, options)
    label = label_values(frame, y)
    counts = that_count(weight_values(frame, sample_weight, len(label)), 0, share_in_time(options, frame.height, frame.width))
    return frame, label, np.where(counts, np.cumsum(counts) - 1, -1), target


def labelled(
    X: Any, y: Any, sample_weight: Any, schema: Schema, options: OptionList
) -> tuple[pl.DataFrame, NDArray[Any], NDArray[np.float64], str]:
    """Rows to judge a model by, including rows of weight zero: the frame, the labels, the weights and the name of the target."""
    frame, target = take_target(X, y, sample_weight, dialect_of(schema, options))
    label = label_values(frame, y)
    check_rows(frame, len(label))
    return frame, label, weight_values(frame, sample_weight, len(label)).astype(np.float64), target


def unlabelled(X: Any, schema: Schema, options: OptionList, as_text: Sequence[str] = ()) -> pl.DataFrame:
    """Rows to score. Columns that were text for the model are read as text, as are those of ``as_text`` that it does not use."""
    dialect, used = dialect_of(schema, options), {column.name for column in schema if column.kind != "ignore"}
    return to_polars(X, replace(dialect, as_text=[*dialect.as_text, *(name for name in as_text if name not in used)]))


@dataclass(frozen=True)
class NewRows:
    """Some rows that a model is applied to: the columns that it uses, labels where there are any, how much each row counts, and
    the numbers of the rows in their table."""

    features: pl.DataFrame
    label: NDArray[Any] | None
    weight: NDArray[np.float64]
    rows: NDArray[np.int64]


def in_parts(X: Any, y: Any, sample_weight: Any, schema: Schema, options: OptionList) -> Iterator[NewRows]:
    """Rows to compare with those of a fit, some at a time. A file is read as a whole only if it takes little of the memory limit.
    Rows of weight zero are left out, as in a fit."""
    dialect, limit = dialect_of(schema, options), memory_limit(options.memory_limit)
    named = [name for name in (y, sample_weight) if isinstance(name, str)]
    are_names = len(named) == sum(column is not None for column in (y, sample_weight))
    if isinstance(X, (str, Path)) and are_names and bytes_in_memory(path := place_of(X)) > AT_ONCE * limit:
        names = column_names(path, dialect)
        check_columns(names, y, sample_weight)
        used = [column.name for column in used_of(names, schema)]
        wanted, first = [*dict.fromkeys([*used, *named])], 0
        for frame in batches(path, dialect, uncounted(path, dialect), wanted, int(BATCH * limit), MOST_TOGETHER):
            yield from some_of(new_rows(frame, y, sample_weight, first))
            first += frame.height
            give_back()
        return
    frame = to_polars(X, dialect)
    check_columns(frame.columns, y, sample_weight)
    used_of(frame.columns, schema)
    for part in some_of(new_rows(frame, y, sample_weight)):
        n = rows_of(int(BATCH * limit), frame.estimated_size() / frame.height, MOST_TOGETHER)
        for first in range(0, len(part.rows), n):
            rows = slice(first, first + n)
            yield NewRows(part.features[rows], None if part.label is None else part.label[rows], part.weight[rows], part.rows[rows])


def some_of(part: NewRows) -> list[NewRows]:
    """The part, if it has rows."""
    return [part] if len(part.rows) else []


def new_rows(frame: pl.DataFrame, y: Any, sample_weight: Any, first_row: int | None = None) -> NewRows:
    """The rows of a frame that count. ``first_row`` is given where these are not all rows."""
    label = None if y is None else label_values(frame, y)
    if label is not None and len(label) != frame.height:
        raise TableError(f"The table has {frame.height} rows, but there are {len(label)} labels. Give one label a row.")
    if not frame.height:
        return NewRows(frame, label, np.zeros(0), np.zeros(0, np.int64))
    weight = weight_values(frame, sample_weight, frame.height, first_row).astype(np.float64)
    rows = (first_row or 0) + np.arange(frame.height)
    if not (counts := weight > 0).all():
        frame, label = frame.filter(counts), None if label is None else label[counts]
        weight, rows = weight[counts], rows[counts]
    return NewRows(frame, label, weight, rows)


def dialect_of(schema: Schema, options: OptionList) -> Dialect:
    """How a CSV file is read for a model with this schema."""
    return Dialect(text_columns(schema), options.separator, options.decimal)


# How.


def check_copy(X: Any, limit: int) -> None:
    """Refuse a table of another library if its copy alone would take too much of the memory limit."""
    copied = not isinstance(X, (pl.DataFrame, pl.LazyFrame)) and (isinstance(X, np.ndarray) or hasattr(X, "columns"))
    n_bytes = 8 * math.prod(getattr(X, "shape", ())) if copied else 0
    if n_bytes > COPY * limit:
        raise TableError(
            f"The table takes some {gib(n_bytes)} of memory when it is copied, which is too much for memory_limit={gib(limit)}. "
            "Raise it, or save it as a Parquet file and give its path."
        )


def share_in_time(options: Options, n_rows: int, n_columns: int) -> float:
    """The share of the rows that can be read and learned from within the time limit. It is a rule and not a measurement, so that a
    fit can be repeated."""
    if options.time_limit is None or n_rows <= FEWEST_ROWS:
        return 1.0
    in_time = (options.time_limit + GRACE) * CELLS_A_SECOND / max(1, n_columns)
    return min(1.0, max(in_time, FEWEST_ROWS) / n_rows)


def weights_of_classes(
    options: OptionList, frames: Iterable[pl.DataFrame], y: Any, sample_weight: Any, target: str, first_row: int | None = None
) -> ClassWeights | None:
    """How much the labels of these rows count, if the user asks for it. Files are read once more for it, the named columns only."""
    if options.class_weight is None:
        return None

    def rows() -> Iterator[tuple[NDArray[Any], NDArray[np.float32]]]:
        first = first_row
        for frame in frames:
            values = label_values(frame, y)
            yield values, weight_values(frame, sample_weight, len(values), first)
            first = None if first is None else first + len(values)

    return class_weights(options.class_weight, rows(), target)


def learnable(
    frame: pl.DataFrame,
    y: Any,
    sample_weight: Any,
    first_row: int | None = None,
    share: float = 1.0,
    by_class: ClassWeights | None = None,
) -> Part:
    """Features, labels and weights of the rows that count: about that share of them, by a hash of their numbers. ``first_row`` is
    given where these are not all rows. Weights are multiplied by those of the labels, ``by_class``."""
    features = frame.drop({name for name in (y, sample_weight) if isinstance(name, str)})
    values = label_values(frame, y)
    of_label = None if by_class is None else factors(values, by_class, y if isinstance(y, str) else "y")
    weight = weight_values(frame, sample_weight, len(values), first_row, of_label)
    check_rows(features, len(values))
    counts = that_count(weight, first_row or 0, share)
    if not counts.all():  # a row of weight zero must leave no trace, not even in a vocabulary
        features, values, weight = features.filter(counts), values[counts], weight[counts]
    return Part(features, values, weight)


def that_count(weight: NDArray[np.float32], first_row: int, share: float) -> NDArray[np.bool_]:
    """Which rows count: those of weight above zero or, if time is short, about that share of them."""
    counts: NDArray[np.bool_] = weight > 0
    if share < 1.0:
        counts &= mix(THINNING, first_row + np.arange(len(weight))) < np.uint64(share * 2.0**64)
    return counts


def declared_text(types: Mapping[str, str]) -> list[str]:
    """Columns that a CSV reader must leave as text, because the user declared them so."""
    return [name for name, kind in types.items() if is_read_as_text(str(kind).partition(":")[0])]


def with_target(X: Any, y: Any, sample_weight: Any, schema: Schema, options: OptionList) -> tuple[pl.DataFrame, str]:
    """The frame for a model that exists already, with a type for the columns of the target and the weights, and the name of the
    target."""
    frame, target = take_target(X, y, sample_weight, dialect_of(schema, options))
    named = settled(frame.select(name for name in (y, sample_weight) if isinstance(name, str)), {})
    return frame.with_columns(named.get_columns()), target


def take_target(X: Any, y: Any, sample_weight: Any, dialect: Dialect) -> tuple[pl.DataFrame, str]:
    """The frame, and the name of the target."""
    frame = to_polars(X, dialect)
    if frame.width == 0 or frame.height == 0:
        raise TableError(
            f"The table has {frame.height} rows and {frame.width} columns: 0 sample(s) or 0 feature(s) "
            f"(shape=({frame.height}, {frame.width})) while a minimum of 1 is required. Give at least one of each."
        )
    if y is None:
        raise LabelError("The fit requires y to be passed, but the target y is None. Give the labels, or the name of their column.")
    check_columns(frame.columns, y, sample_weight)
    return frame, y if isinstance(y, str) else str(getattr(y, "name", None) or "y")


def check_roles(options: Options, y: Any, sample_weight: Any) -> None:
    """Check that the columns of the target and the weights have no other role in the fit."""
    for word, column in (("target", y), ("weights", sample_weight)):
        if not isinstance(column, str):
            continue
        for name in ("time", "groups"):
            if getattr(options, name) == column:
                raise OptionError(f"Option {name}={column!r} names the {word}. Give another column, or leave the option out.")
        for name in ("exclude", "types"):
            if column in list(getattr(options, name) or ()):
                raise OptionError(
                    f"Option {name} names the {word} {column!r}, which is no feature anyway. Leave it out of the list."
                )


def check_columns(names: Sequence[str], y: Any, sample_weight: Any) -> None:
    """Check that named columns exist and have one role each."""
    if isinstance(y, str) and isinstance(sample_weight, str) and y == sample_weight:
        raise LabelError(f"The column {y!r} is named as target and as weight. Give two columns.")
    for word, name in (("target", y), ("weight", sample_weight)):
        if isinstance(name, str) and name not in names:
            raise LabelError(f"The {word} column {name!r} is not in the table. {columns_in_words(names)}")


def label_values(frame: pl.DataFrame, y: Any) -> NDArray[Any]:
    """The labels as an array."""
    if not isinstance(y, str):
        return np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    series = frame[y]
    if isinstance(series.dtype, (pl.Categorical, pl.Enum)):
        series = series.cast(pl.String)
    return series.to_numpy() if series.null_count() == 0 else np.array(series.to_list(), dtype=object)


def weight_values(
    frame: pl.DataFrame,
    sample_weight: Any,
    n_rows: int,
    first_row: int | None = None,
    of_label: NDArray[np.float64] | None = None,
) -> NDArray[np.float32]:
    """How much each row counts, by default 1, times the weight of its label. The product is rounded once, as if it were given."""
    if sample_weight is None:
        return np.ones(n_rows, np.float32) if of_label is None else of_label.astype(np.float32)
    values = frame[sample_weight].cast(pl.Float64, strict=False).to_numpy() if isinstance(sample_weight, str) else sample_weight
    try:
        weight = np.asarray(values)
        weight = weight.astype(np.float64, casting="same_kind" if weight.dtype.kind == "c" else "unsafe")
    except (TypeError, ValueError, OverflowError) as error:
        raise TableError(f"Sample weights must be numbers: {error}. Give one weight a row.") from None
    if weight.shape != (n_rows,):
        raise TableError(f"Sample weights have shape {weight.shape}, but there are {n_rows} rows. Give one weight a row.")
    bad = ~((weight == 0) | ((weight >= LEAST_WEIGHT) & (weight <= MOST_WEIGHT)))
    if bad.any():
        row = int(np.argmax(bad))
        raise TableError(
            f"Sample weight {weight[row]} in row {(first_row or 0) + row} is no weight. "
            f"Give 0, or a number from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}."
        )
    if first_row is None and weight.sum() <= 0:
        raise TableError("All sample weights are zero, so no row counts. Give a weight above 0 to some rows.")
    if of_label is None:
        return weight.astype(np.float32)
    product = weight * of_label
    if ((product != 0) & ((product < LEAST_WEIGHT) | (product > MOST_WEIGHT))).any():
        raise TableError("Sample weights times class_weight are beyond the range of weights. Give one of them in other units.")
    return product.astype(np.float32)


def check_rows(features: pl.DataFrame, n_labels: int) -> None:
    """Check that the table can be learned from."""
    if features.width == 0:  # first, because up to polars 1 a frame without columns has no rows
        raise TableError("The table has no column beside the target: 0 feature(s). Give at least one feature column.")
    if features.height != n_labels:
        raise TableError(f"The table has {features.height} rows, but there are {n_labels} labels. Give one label a row.")
