"""The second stage: kinds of columns, and codes for their values. A second pass over all rows then puts their codes into blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from autocross import folds as splits
from autocross import reading
from autocross.encoding import plan as encoding_plan
from autocross.encoding.column import ColumnEncoder
from autocross.encoding.encoder import Encoder
from autocross.encoding.plan import EncodingPlan
from autocross.errors import EngineError, OptionError, TableError
from autocross.features import CAP, FIRST, hash_bits
from autocross.fitting import constraints
from autocross.fitting.read import READING, Contents, go_through
from autocross.fitting.run import Run, n_lots
from autocross.folds import FoldPlan, Folds
from autocross.memory import gib, give_back, memory_limit
from autocross.needs import Size
from autocross.reading import Recipe
from autocross.table.coerce import texts, typed, typed_column
from autocross.table.columns import TimeColumn
from autocross.table.digest import Digest
from autocross.table.inference import columns_in_words, infer, infer_all, looks_like_an_id
from autocross.table.labels import Classes
from autocross.table.schema import ColumnSchema, Schema
from autocross.table.source import Source

# Once these shares of the time limit are gone, columns are left out that have no encoder yet, or of which no code was written.
ENCODER_SHARE, FILL_SHARE = 0.4, 0.65
UNREAD = "not reached within time_limit"


@dataclass(frozen=True)
class Rows:
    """What is known about the rows as a whole."""

    n_rows: int
    n_positive: int
    total_weight: float
    target: str
    classes: Classes

    @property
    def n_rarer(self) -> int:
        return min(self.n_positive, self.n_rows - self.n_positive)

    @property
    def mean_weight(self) -> float:
        return self.total_weight / self.n_rows


@dataclass(frozen=True)
class Encoded:
    """The encoder, and what is known about the rows. The engine's blocks have the codes of the encoder's stems. ``redraw`` gives
    other folds of the same kind. ``ahead`` has folds in which later rows judge earlier ones, if it is known when rows happened."""

    encoder: Encoder
    rows: Rows
    folds: Folds
    redraw: Callable[[int], Folds]
    min_count: int
    ahead: FoldPlan | None = None


def encode(run: Run, source: Source, contents: Contents) -> Encoded:
    """Decide how values are coded, and put the codes of all rows into blocks."""
    check_named_columns(run, source)
    schema = decide_schema(run, contents, source.names)
    plan = decide_encoding(run, contents.n_rows, schema)
    encoder = fit_encoder(run, schema, contents, plan)
    check_memory(run, encoder, contents)
    encoded = fill(run, source, contents, encoder, plan.min_count)
    run.reporter.count_workers(run.engine, READING)
    return encoded


def check_named_columns(run: Run, source: Source) -> None:
    """Check that the table has the columns that options name."""
    for word in ("time", "groups"):
        name = getattr(run.options, word)
        if name is not None and name not in source.names:
            raise OptionError(f"Option {word}={name!r} names no column of the table. {columns_in_words(source.names)}")


def decide_schema(run: Run, contents: Contents, names: Collection[str]) -> Schema:
    """Decide a kind for every column, and say which columns are left out. A column without a digest was not reached in time."""
    options, reporter = run.options, run.reporter
    left_out = dict.fromkeys(options.exclude or (), "excluded")
    if options.groups is not None:
        left_out.setdefault(options.groups, "names the group of a row; new rows come from new groups")
    types, unread = dict(options.types or {}), sorted({*names} - {digest.name for digest in contents.digests})
    if unread:
        warn_unread(run, unread)
        left_out, types = ({name: word for name, word in by_name.items() if name not in unread} for by_name in (left_out, types))
    schema = infer_all(contents.digests, types, left_out)
    few = [column.name for column in schema if constraints.may_be_numerical(column, options)]
    if few:
        schema = infer_all(contents.digests, types | dict.fromkeys(few, "numerical"), left_out)
    schema = constraints.in_order(schema, options)
    constraints.check_kinds(run.limits, schema, unread)
    for column in schema:
        if column.kind == "ignore" and column.name not in left_out and column.reason != "declared":
            reporter.warn(
                f"Column {column.name!r} is left out: {column.reason}. To use it all the same, give it a kind, "
                f"as in types={{{column.name!r}: 'categorical'}}."
            )
        else:
            reporter.notice(f"column {column.name!r} is {column.kind}: {column.reason}")
    warn_of_ids(run, contents, schema)
    if all(column.kind == "ignore" for column in schema):
        raise TableError("No column is left to learn from. Give columns that vary, or a kind for one of them by types=.")
    return (*schema, *(ColumnSchema(name, "ignore", "text", UNREAD) for name in unread))


def warn_of_ids(run: Run, contents: Contents, schema: Schema) -> None:
    """Say which columns are numbers by rule, but look like ids."""
    by_rule = {column.name for column in schema if column.kind == "numerical" and column.reason != "declared"}
    ids = sorted(digest.name for digest in contents.digests if digest.name in by_rule and looks_like_an_id(digest))
    if not ids:
        return
    shown = ", ".join(map(repr, ids[:10])) + (" and more" if len(ids) > 10 else "")
    declared = ", ".join(f"{name!r}: 'categorical'" for name in ids[:10])
    subject = f"Column {shown} looks like an id, but is" if len(ids) == 1 else f"Columns {shown} look like ids, but are"
    run.reporter.warn(
        f"{subject} treated as numbers, as all whole numbers are: neighbours share bins. If their order means nothing, declare "
        f"types={{{declared}}} (--type {ids[0]}=categorical). To keep them numbers without this warning, declare 'numerical'."
    )


def decide_encoding(run: Run, n_rows: int, schema: Schema) -> EncodingPlan:
    """Decide what is rare and which granularities there are, as the user said or by rule."""
    options = run.options
    n_numerical = sum(column.kind == "numerical" for column in schema)
    min_count = options.min_count or encoding_plan.min_count(n_rows)
    run.rule("min_count", min_count, "given" if options.min_count else f"rule for {n_rows:,} rows")
    if options.granularities is not None and len(options.granularities):
        granularities, why = tuple(sorted({int(number) for number in options.granularities})), "given"
    else:
        granularities = encoding_plan.granularities(n_rows, n_numerical, memory_limit(options.memory_limit))
        why = f"rule for {n_rows:,} rows and {n_numerical} numerical columns"
    run.rule("granularities", ", ".join(map(str, granularities)), why)
    bits = hash_bits(n_rows)
    run.rule("hash_bits", bits, f"rule for {n_rows:,} rows; for what exceeds {CAP:,} values")
    widths, quantiles = options.bins != "quantile", options.bins != "width"
    coarse = quantiles and why != "given"
    return EncodingPlan(min_count, granularities, widths, quantiles, n_buckets=1 << bits, coarse=coarse)


def fit_encoder(run: Run, schema: Schema, contents: Contents, plan: EncodingPlan) -> Encoder:
    """Learn codes for the values of all columns."""
    kind = {column.name: column for column in schema}

    def with_codes(digest: Digest) -> Digest:
        digest = digest.loaded()
        return digest.frequent(plan.min_count) if kind[digest.name].is_text else digest  # rare texts get no code

    used = [digest for digest in contents.digests if kind[digest.name].kind != "ignore"]
    columns: list[ColumnEncoder] = []
    step = reading.PIECE if run.allowed is None else run.allowed.n_turns
    for first in range(0, len(used), step):
        if columns and run.stopping.hurry(ENCODER_SHARE):
            break
        digests = list(run.each(with_codes, used[first : first + step]))
        values = {digest.name: typed_column(digest.values, kind[digest.name], digest.first, differ=True) for digest in digests}
        part = tuple(kind[digest.name] for digest in digests)
        columns += Encoder.fit(part, values, plan, {digest.name: digest.n for digest in digests}, run.each).columns
        if run.allowed is not None:
            del digests, values
            give_back()
    return reached(run, Encoder(schema, tuple(columns)), {column.column.name for column in columns})


def reached(run: Run, encoder: Encoder, names: Collection[str]) -> Encoder:
    """The encoder without the columns that were not reached in time: only ``names`` stay."""
    late = {column.name for column in encoder.schema if column.kind != "ignore"} - {*names}
    if not late:
        return encoder
    warn_unread(run, late)
    schema = tuple(replace(column, kind="ignore", reason=UNREAD) if column.name in late else column for column in encoder.schema)
    return Encoder(schema, tuple(column for column in encoder.columns if column.column.name not in late))


def warn_unread(run: Run, names: Collection[str]) -> None:
    """Say which columns the model does not know."""
    first = sorted(names)[0]
    run.reporter.warn(
        f"The time limit of {run.options.time_limit:g} s left no time for {len(names):,} columns, {first!r} among them: the "
        "model does not know them. Raise time_limit, or name those that matter least by exclude=."
    )


def check_memory(run: Run, encoder: Encoder, contents: Contents) -> None:
    """Refuse a fit that needs more memory than the limit, before it takes hours."""
    lists = {column.name for column in encoder.schema if column.kind == "multivalue"}
    entries = {digest.name: int(digest.loaded().n.sum()) for digest in contents.digests if digest.name in lists}
    n_rows, of_engine = contents.n_rows, run.engine.memory
    n_models = 1 if splits.use_holdout(run.options.evaluation, n_rows) else splits.N_FOLDS
    needed = Size(n_rows, n_models, run.engine.n_workers, run.allowed is not None, entries).in_all(encoder)
    limit = of_engine or memory_limit(run.options.memory_limit)
    if needed <= limit:
        return
    need = f"{n_rows:,} rows in {len(encoder.fields)} fields need some {gib(needed)} of memory"
    if of_engine:
        raise EngineError(f"{need}, and the workers have {gib(limit)}. Add machines to the cluster, or give fewer rows.")
    widest = max(encoder.fields, key=lambda field: field.n_codes)
    raise TableError(
        f"{need}, and memory_limit is {gib(limit)}. Raise it, give fewer rows, or leave out columns with many values, "
        f"as {widest.column!r} with {widest.n_codes - FIRST:,} of them."
    )


def fill(run: Run, source: Source, contents: Contents, encoder: Encoder, min_count: int) -> Encoded:
    """The second pass: put the codes of all rows into blocks, and collect what must be known about all rows."""
    engine, options, n_rows = run.engine, run.options, contents.n_rows
    scratch = None if run.allowed is None else run.allowed.scratch
    if scratch is not None:
        scratch.needed = n_rows * encoder.bytes_a_row
    named = [name for name in dict.fromkeys((options.time, options.groups)) if name is not None]
    exponent = reading.mean_exponent(contents.total_weight, n_rows)
    recipe = Recipe(encoder, contents.classes, named, list(contents.share_rows), run.seed, exponent, scratch)
    engine.each(reading.begin_to_fill, recipe)
    go_through(run, 2, reading.fill_on, f"in {len(encoder.fields)} fields of {len(encoder.columns)} columns", FILL_SHARE)
    filled = [share for share, n in zip(engine.each(reading.filled), contents.share_rows, strict=True) if n]
    columns = set[str].intersection(*(share.columns for share in filled))
    stems = [stem for name, numbers in encoder.stems_of_columns.items() if name in columns for stem in numbers]
    encoder = reached(run, encoder, columns)
    dated = [name for name in filled[0].times if name in columns]
    times = {name: TimeColumn(np.concatenate([share.times[name] for share in filled])) for name in dated}
    named_columns = pl.concat([share.named for share in filled], how="vertical_relaxed")
    folds, redraw = decide_folds(run, named_columns, times, n_rows)
    n_blocks = n_lots(max(contents.share_rows), engine.n_workers // engine.n_shares)
    engine.exchange(reading.to_blocks, n_blocks, stems, folds.plan, folds.cluster)
    ahead = splits.looking_ahead(folds)
    folds = replace(folds, cluster=None)  # the blocks keep it
    if run.allowed is not None:
        encoder.rest()
        if folds.plan.holdout:  # a holdout stays the same, so the columns that folds are drawn from can be freed
            holdout = folds

            def redraw(seed: int) -> Folds:
                return holdout

        give_back()
    n_labels = np.sum([share.n_labels for share in filled], axis=0)
    total_weight = math.ldexp(contents.total_weight, -exponent)
    rows = Rows(n_rows, int(n_labels[1]), total_weight, source.target, contents.classes)
    widths = np.max([share.widths for share in filled], axis=0)[stems].tolist()
    return Encoded(encoder.widened(widths), rows, folds, redraw, min_count, ahead)


def decide_folds(
    run: Run, named: pl.DataFrame, times: Mapping[str, TimeColumn], n_rows: int
) -> tuple[Folds, Callable[[int], Folds]]:
    """Which rows judge which model, and a function that draws other folds. ``named`` has the columns that options name."""
    options, moments = run.options, dict(times)
    if options.time is not None and options.time not in moments:
        moments[options.time] = as_time(named, options.time)
    if options.split in ("time", "forward") and not moments:
        raise OptionError(f"Option split={options.split!r} needs a time column. Name it by time=, or declare its kind by types=.")
    groups = None if options.groups is None else texts(named[options.groups]).distinct[1].astype(np.int64)
    holdout = splits.use_holdout(options.evaluation, n_rows)

    def redraw(seed: int) -> Folds:
        folds = splits.choose(options.split, n_rows, seed, holdout, groups, moments, options.time)
        return replace(folds, column=options.groups or "") if folds.kind == "group" else folds

    folds = redraw(run.seed)
    share = "the last span of time" if folds.kind == "forward" else "a fifth"
    judged_by = f"holdout of {share}" if folds.plan.holdout else f"{folds.n_models} fold{'s' if folds.n_models > 1 else ''}"
    why = "given" if options.evaluation != "auto" else f"rule for {n_rows:,} rows"
    run.rule("evaluation", judged_by, why if folds.plan.holdout == holdout else "there are only two spans of time")
    run.rule("split", folds.kind, folds.why)
    return folds, redraw


def as_time(frame: pl.DataFrame, name: str) -> TimeColumn:
    """The column that time= names, if it is not a time feature. Numbers do as well as dates, because they order the rows."""
    series = frame[name]
    if series.dtype.is_numeric():
        return TimeColumn(series.rank("dense").fill_null(0).cast(pl.Int64).to_numpy())
    (schema,) = infer(frame.select(name), {name: "time"}, {})
    column = typed(frame, (schema,)).columns[name]
    assert isinstance(column, TimeColumn)
    return column
