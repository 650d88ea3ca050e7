"""From a table to a model: the whole of fit, step by step."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from autocross import checkpoint, fingerprint, reading
from autocross import folds as splits
from autocross.blocks import INTERCEPT, Block, Cross, keep_fields, make_blocks, narrow, refold, widen
from autocross.checkpoint import Checkpoint, Setting
from autocross.encoding import rules as encoding_rules
from autocross.encoding.encoder import ColumnEncoder, Encoder
from autocross.encoding.rules import EncodingRules
from autocross.engines import Engine, carry_on, in_lanes, make_engine, n_cores
from autocross.errors import EngineError, LabelError, OptionError, TableError
from autocross.events import FitFinished, PhaseStarted, Reporter, RuleApplied, SearchStopped, StepDone
from autocross.features import CAP, FIRST, Penalty, hash_bits, least_rows
from autocross.folds import FoldRule, Folds
from autocross.interrupts import Interrupt
from autocross.memory import Allowance, gib, give_back, memory_limit
from autocross.models import tuning
from autocross.models.logistic import Regression, again, left_out_bins
from autocross.models.metrics import measure, measure_bins
from autocross.needs import Size
from autocross.options import Options
from autocross.producer.model import About, FoundCross, Model, Producer, Rule
from autocross.reading import Looked, Reader, Recipe, Request
from autocross.scratch import Scratch
from autocross.search import granularity
from autocross.search.coding import put
from autocross.search.judging import Accepted
from autocross.search.loop import Search, State
from autocross.search.stopping import Stopped, Stopping, Why
from autocross.search.together import broaden
from autocross.table.coerce import texts, typed, typed_column
from autocross.table.columns import TimeColumn
from autocross.table.digest import Digest
from autocross.table.inference import infer, infer_all, known
from autocross.table.labels import Classes, match_labels
from autocross.table.schema import ColumnSchema, Schema
from autocross.table.source import Part, Source

FINAL_SWEEPS = 100  # of the final fit at most; crosses that share columns share what they say in slow steps
CERTAIN_SWEEPS = 5  # of the final fit, unless the time has been up for a while
# Shares of the time limit after which a stage of reading leaves out the columns it has not reached.
LOOK_SHARE, ENCODER_SHARE, FILL_SHARE = 0.25, 0.4, 0.65
UNREAD = "not reached within time_limit"
READING = "reading columns"
BLOCK_ROWS = 25_000  # a block of fewer rows is done before another thread has woken up
TUNING_ROWS = 1_000_000  # on which penalties are chosen, at most: more rows would choose the same
EXACT_ROWS = 250_000  # up to which rows that judge are gathered in one place and ranked
LEAK = 0.02  # random folds that promise this much more AUC than blocked ones, beyond noise, have seen the answer


def columns_that_fit(expected: Mapping[str, int], allowed: Allowance | None) -> list[str]:
    """Columns that can be looked at in one pass, one at least, by the bytes that the values of each are expected to take."""
    names: list[str] = []
    for name, size in expected.items():
        if names and allowed is not None and size + sum(expected[one] for one in names) > allowed.for_columns:
            break
        names.append(name)
    return names


def weight_of(block: Block) -> NDArray[np.int64]:
    """The weight of a block's rows, as by `weigh`."""
    return reading.weigh(block.weight)


def n_lots(n_rows: int, n_workers: int) -> int:
    """A share or a block for each worker where there are rows enough."""
    return min(n_workers, max(1, n_rows // BLOCK_ROWS))


@dataclass(frozen=True)
class Rows:
    """What is known of the rows as a whole."""

    n_rows: int
    n_rarer: int
    total_weight: float
    target: str
    classes: Classes
    exponent: int  # weights were divided by 2 to this power

    @property
    def mean_weight(self) -> float:
        return self.total_weight / self.n_rows


@dataclass
class SoFar:
    """What a fit has found so far; if it must end early, this is what it ends with."""

    encoder: Encoder
    broader: Encoder | None = None  # with coarse fields behind the others
    regression: Regression | None = None
    accepted: tuple[Accepted, ...] = ()
    score: float | None = None

    def lay_out(self, engine: Engine, kept: Sequence[int], coarse: bool) -> None:
        """Put these fields into the blocks, once, in place of the stems they are read from, and perhaps coarse ones behind them."""
        if self.broader is None:
            origins, narrower = self.encoder.origins, self.encoder.keep(kept)
            added = self.encoder.coarse(narrower) if coarse else []
            engine.run(keep_fields, [*(origins[at] for at in kept), *((stem, table) for stem, table, _ in added)])
            self.encoder = narrower
            self.broader = Encoder(narrower.schema, (*narrower.columns, *(column for _, _, column in added)))

    def penalties(self, producer: Producer, mean_weight: float) -> dict[Cross, Penalty]:
        """Those chosen, else where the choice would begin."""
        terms = {} if self.regression is None else self.regression.terms
        start = Penalty(0.0, tuning.START * mean_weight)
        return {term: terms[term].penalty if term in terms else start for term in producer.terms}

    def weights(self, producer: Producer) -> dict[Cross, NDArray[np.float64]]:
        """Where the last fit may begin."""
        known = {} if self.regression is None else self.regression.mean_weights()
        zero = dict(zip(producer.terms, (np.zeros(field.n_codes) for field in producer.fields), strict=True))
        return {INTERCEPT: np.zeros(1), **zero, **known}


class Training:
    """One fit: the options it runs under, and whom it tells."""

    def __init__(self, options: Options, reporter: Reporter, interrupt: Interrupt) -> None:
        self.options = options
        self.reporter = reporter
        self.stopping = Stopping(options.time_limit, reporter, interrupt)
        self.seed = options.random_state or 0
        self.rules: list[Rule] = []
        self.history: list[dict[str, Any]] = []
        self.redraw: Callable[[int], Folds]
        self.each: Callable[..., Iterable[Any]] = map  # columns, side by side where that is faster

    def rule(self, name: str, value: object, why: str) -> None:
        """Note what a rule decided; `show` prints it."""
        self.rules.append(Rule(name, str(value), why))
        self.reporter.tell(RuleApplied, name=name, value=str(value), why=why)

    # The steps, in order.

    def fit(self, source: Source) -> Model:
        """Schema, codes, folds, granularities, penalties, and the final weights."""
        self.reporter.tell(PhaseStarted, phase=READING, steps=2)
        with ExitStack() as open_things:
            engine = open_things.enter_context(self.start_engine())
            self.each = in_lanes(open_things.enter_context(ThreadPoolExecutor(n_cores())), n_cores())
            allowed = None
            if engine.has_disk and not source.in_memory:
                allowed = Allowance(memory_limit(self.options.memory_limit), open_things.enter_context(Scratch()))
            digests, classes, share_rows, total_weight = self.look(source, engine, allowed)
            n_rows = sum(share_rows)
            schema = self.decide_schema(digests, source.names)
            encoding = self.decide_encoding(n_rows, schema)
            encoder = self.fit_encoder(schema, digests, encoding, allowed)
            lists = {column.name for column in schema if column.kind == "multivalue"}
            entries = {one.name: int(one.loaded().n.sum()) for one in digests if one.name in lists}
            del digests
            n_models = 1 if splits.use_holdout(self.options.evaluation, n_rows) else splits.N_FOLDS
            self.check_memory(encoder, Size(n_rows, n_models, engine.n_workers, allowed is not None, entries), engine.memory)
            encoder, rows, folds = self.read(source, share_rows, total_weight, encoder, classes, engine, allowed)
            self.reporter.count_workers(engine, READING)
            so_far = SoFar(encoder)
            engine.between = self.stopping.check
            try:
                why = self.find(engine, so_far, rows, folds, encoding.min_count)
            except Stopped as stopped:
                why = stopped.why
                engine.run(widen)
                every = range(len(so_far.encoder.fields))
                so_far.lay_out(engine, every if self.options.time_limit is None else so_far.encoder.coarsest(), coarse=False)
            self.reporter.tell(SearchStopped, why=why.value, n_crosses=len(so_far.accepted))
            for n, one in enumerate(so_far.accepted, start=1):
                self.history.append({"seconds": one.seconds, "crosses": n, "score": one.score})
            producer = Producer(so_far.encoder, tuple(one.coder for one in so_far.accepted))
            penalties, start = so_far.penalties(producer, rows.mean_weight), so_far.weights(producer)
            intercept, weights = self.final_weights(engine, producer, rows, penalties, start)
        crosses = tuple(self.record(so_far.encoder, one) for one in so_far.accepted)
        return self.finish(producer, crosses, intercept, weights, penalties, so_far.score, rows)

    def start_engine(self) -> Engine:
        """The engine asked for. Starting a cluster takes none of the user's time limit."""
        began = self.reporter.seconds
        engine = make_engine(self.options)
        self.stopping.excused += self.reporter.seconds - began
        return engine

    def look(self, source: Source, engine: Engine, allowed: Allowance | None) -> tuple[list[Digest], Classes, list[int], float]:
        """The first pass: what each column holds, the labels, the rows of each share, and the weight of all rows.

        Columns that there is no memory for together are looked at one after the other, each time in all rows.
        """
        if not source.n_rows:
            raise TableError("The table has no rows. Give at least one.")
        shares = source.shares(n_lots(source.n_rows, engine.n_shares))
        n_threads = engine.n_workers // engine.n_shares
        engine.place([Reader(share, number, n_threads) for number, share in enumerate(shares)])
        digests: dict[str, Digest] = {}
        waiting = dict.fromkeys(sorted(source.names), 0)  # by name, so that the order of columns changes nothing
        found: list[Looked] = []  # in the first columns
        while waiting and not (found and self.stopping.hurry(LOOK_SHARE)):
            names = columns_that_fit(waiting, allowed)
            engine.each(reading.begin_to_look, Request(names, self.options.types or {}, self.unused(), allowed))
            self.go_through(engine, 1, reading.look_on, "looked at", LOOK_SHARE)
            new = engine.each(reading.looked)
            if found and any(share.cut for share in new):
                break  # these columns are not known in all rows that the first ones are known in
            found = found or new
            digests |= {one.name: one for one in reading.together(new, self.each)}
            waiting = {name: size for name, size in waiting.items() if name not in names} | new[0].waiting
        share_rows = [share.n_rows for share in found]
        if source.share < 1.0 or any(share.cut for share in found):
            which = "those that were read by then" if any(share.cut for share in found) else "drawn at random"
            self.reporter.warn(
                f"The time limit of {self.options.time_limit:g} s leaves no time for all rows: the model learns from "
                f"{sum(share_rows):,}, {which}. Raise time_limit to use more."
            )
        if not sum(share_rows):
            raise TableError("All sample weights are zero, so no row counts. Give a weight above 0 to some rows.")
        classes = reading.labels_of(found).classes(self.options.positive)
        total_weight = reading.weighed(np.sum([share.weight for share in found], axis=0))
        return [digests[name] for name in sorted(digests)], classes, share_rows, total_weight

    def unused(self) -> set[str]:
        """Columns that the user says are no features."""
        ignored = {name for name, kind in (self.options.types or {}).items() if kind == "ignore"}
        return ignored | {*(self.options.exclude or ())} | ({self.options.groups} if self.options.groups else set())

    def go_through(
        self, engine: Engine, step: int, task: Callable[[Reader, bool], tuple[int, bool]], what: str, share: float
    ) -> None:
        """A pass over the rows, piece by piece; once this share of the time limit is gone, in a hurry."""
        n_rows, done = 0, False
        while not done:
            former = n_rows
            found = engine.each(task, self.stopping.hurry(share))
            n_rows, done = sum(n for n, _ in found), all(over for _, over in found)
            if n_rows > former:
                self.reporter.tell(StepDone, phase=READING, step=step, detail=f"{n_rows:,} rows {what}")

    def check_memory(self, encoder: Encoder, size: Size, of_engine: int | None) -> None:
        """Refuse what cannot be done within the limit, before it takes hours."""
        needed, limit = size.in_all(encoder), of_engine or memory_limit(self.options.memory_limit)
        if needed <= limit:
            return
        what = f"{size.n_rows:,} rows in {len(encoder.fields)} fields need some {gib(needed)} of memory"
        if of_engine:
            raise EngineError(f"{what}, and the workers have {gib(limit)}. Add machines to the cluster, or give fewer rows.")
        widest = max(encoder.fields, key=lambda field: field.n_codes)
        raise TableError(
            f"{what}, and memory_limit is {gib(limit)}. Raise it, give fewer rows, or leave out columns with many values, "
            f"as {widest.column!r} with {widest.n_codes - FIRST:,} of them."
        )

    def fit_encoder(self, schema: Schema, digests: Sequence[Digest], rules: EncodingRules, allowed: Allowance | None) -> Encoder:
        """Codes for what the columns hold."""
        kind = {column.name: column for column in schema}

        def with_codes(one: Digest) -> Digest:
            one = one.loaded()
            return one.frequent(rules.min_count) if kind[one.name].is_text else one  # rare texts get no code

        used = [one for one in digests if kind[one.name].kind != "ignore"]
        columns: list[ColumnEncoder] = []
        step = reading.PIECE if allowed is None else allowed.n_turns
        for first in range(0, len(used), step):
            if columns and self.stopping.hurry(ENCODER_SHARE):
                break
            some = list(self.each(with_codes, used[first : first + step]))
            values = {one.name: typed_column(one.values, kind[one.name], one.first, differ=True) for one in some}
            part = tuple(kind[one.name] for one in some)
            columns += Encoder.fit(part, values, rules, {one.name: one.n for one in some}, self.each).columns
            if allowed is not None:
                del some, values
                give_back()
        return self.reached(Encoder(schema, tuple(columns)), {column.column.name for column in columns})

    def reached(self, encoder: Encoder, names: Collection[str]) -> Encoder:
        """The encoder of these columns alone, the others being left out for want of time."""
        late = {column.name for column in encoder.schema if column.kind != "ignore"} - {*names}
        if not late:
            return encoder
        self.warn_unread(late)
        schema = tuple(replace(one, kind="ignore", reason=UNREAD) if one.name in late else one for one in encoder.schema)
        return Encoder(schema, tuple(column for column in encoder.columns if column.column.name not in late))

    def warn_unread(self, names: Collection[str]) -> None:
        """Say which columns the model does not know."""
        first = sorted(names)[0]
        self.reporter.warn(
            f"The time limit of {self.options.time_limit:g} s left no time for {len(names):,} columns, {first!r} among them: the "
            "model does not know them. Raise time_limit, or name those that matter least by exclude=."
        )

    def read(
        self,
        source: Source,
        share_rows: list[int],
        total_weight: float,
        encoder: Encoder,
        classes: Classes,
        engine: Engine,
        allowed: Allowance | None = None,
    ) -> tuple[Encoder, Rows, Folds]:
        """The second pass: codes into blocks, and what must be known of all rows."""
        scratch = None if allowed is None else allowed.scratch
        if scratch is not None:
            scratch.needed = sum(share_rows) * encoder.bytes_a_row
        for word in ("time", "groups"):
            name = getattr(self.options, word)
            if name is not None and name not in source.names:
                raise OptionError(f"Option {word}={name!r} names no column of the table. {known(source.names)}")
        named = [name for name in dict.fromkeys((self.options.time, self.options.groups)) if name is not None]
        n_rows = sum(share_rows)
        exponent = reading.mean_exponent(total_weight, n_rows)
        engine.each(reading.begin_to_fill, Recipe(encoder, classes, named, share_rows, self.seed, exponent, scratch))
        what = f"in {len(encoder.fields)} fields of {len(encoder.columns)} columns"
        self.go_through(engine, 2, reading.fill_on, what, FILL_SHARE)
        found = [share for share, n in zip(engine.each(reading.filled), share_rows, strict=True) if n]
        columns = set[str].intersection(*(share.columns for share in found))
        stems = [stem for name, some in encoder.stems_of_columns.items() if name in columns for stem in some]
        encoder = self.reached(encoder, columns)
        dated = [name for name in found[0].times if name in columns]
        times = {name: TimeColumn(np.concatenate([share.times[name] for share in found])) for name in dated}
        folds = self.decide_folds(pl.concat([share.named for share in found], how="vertical_relaxed"), times, n_rows)
        n_blocks = n_lots(max(share_rows), engine.n_workers // engine.n_shares)
        engine.exchange(reading.to_blocks, n_blocks, stems, folds.rule, folds.cluster)
        folds = replace(folds, cluster=None)  # the blocks have it
        if allowed is not None:
            encoder.rest()
            if folds.rule.holdout:  # which stays the same: nothing has to be drawn from the rows any more
                self.redraw = lambda seed: folds
            give_back()
        n_labels = np.sum([share.n_labels for share in found], axis=0)
        rows = Rows(n_rows, int(n_labels.min()), math.ldexp(total_weight, -exponent), source.target, classes, exponent)
        return encoder.widened(np.max([share.widths for share in found], axis=0)[stems].tolist()), rows, folds

    def find(self, engine: Engine, so_far: SoFar, rows: Rows, folds: Folds, min_count: int) -> Why:
        """Granularities, penalties, crosses: each noted as soon as it is found. Returns why the search ended."""
        folder = checkpoint.folder_of(self.options)
        same = {} if folder is None else self.identity(engine, so_far.encoder, rows)
        left = self.begin(engine, so_far, rows, folds, min_count, same)
        self.reporter.tell(PhaseStarted, phase="searching crosses", steps=0)

        def keep(best: State) -> None:
            so_far.regression, so_far.accepted = best.regression, best.accepted
            self.stopping.reserve = FINAL_SWEEPS / 2 * best.regression.sweep_seconds
            if best.accepted:
                so_far.score = best.accepted[-1].score

        def finished(beam: list[State]) -> None:
            if folder is not None:
                now = replace(left, beam=beam, last=search.last, in_vain=search.in_vain, seconds=self.reporter.seconds_in_all)
                what, after = f"Keeping a checkpoint in {str(folder)!r}", "The fit goes on, and every later round tries again."
                self.reporter.attempt(what, lambda: checkpoint.save(folder, now, same), after)

        def fresh(round: int) -> Folds:
            return self.redraw(self.seed + 7919 * round)

        assert so_far.broader is not None
        fields, n_rows = so_far.broader.fields, rows.n_rows
        search = Search(engine, fields, n_rows, self.options, self.reporter, folds.n_clusters, fresh, self.score)
        search.last, search.in_vain = left.last, left.in_vain
        for coder in {one.coder.fields: one.coder for state in left.beam for one in state.accepted}.values():
            search.codes.put(coder)
        best, why = search.run(left.beam, keep, finished)
        if why.by_itself and (broad := broaden(search, best)):
            if max(at for cross in broad.features for at in cross) >= len(so_far.encoder.fields):
                so_far.encoder = so_far.broader
            keep(broad)
        return why

    def identity(self, engine: Engine, encoder: Encoder, rows: Rows) -> dict[str, Any]:
        """What must be the same for the search to go on another time."""
        return fingerprint.identity(self.options, engine, encoder, rows.n_rows, rows.target, rows.classes.words, self.rules)

    def begin(self, engine: Engine, so_far: SoFar, rows: Rows, folds: Folds, min_count: int, same: Mapping[str, Any]) -> Checkpoint:
        """Where the search begins: without crosses, or where it was left."""
        n_models, n_rules = folds.n_models, len(self.rules)
        coarse = n_models > 1  # else weak crosses are not tried
        if self.options.resume is not None:
            setting = Setting(self.options, engine, so_far.encoder, rows.n_rows, rows.total_weight, n_models, min_count)
            left = checkpoint.load(Path(self.options.resume), same, setting)
            so_far.lay_out(engine, left.kept, coarse)
            so_far.score = left.score
            self.rules += left.rules
            self.history.append({"seconds": left.scored_after, "crosses": 0, "score": left.score})
            self.reporter.seconds_before = left.seconds - self.reporter.seconds
            return left
        kept = self.keep_granularities(engine, so_far.encoder, rows, folds)
        so_far.lay_out(engine, kept, coarse)
        regression = self.fitted(engine, so_far, rows, folds, min_count)
        (scored,) = self.history
        rules, seconds = self.rules[n_rules:], self.reporter.seconds
        return Checkpoint(kept, [State((), regression)], {}, set(), rules, scored["score"], scored["seconds"], seconds)

    def fitted(self, engine: Engine, so_far: SoFar, rows: Rows, folds: Folds, min_count: int) -> Regression:
        """The regression that the search begins with."""
        regression = self.tuned(engine, so_far, rows, folds.n_models, min_count)
        so_far.score = score = self.score(regression)
        self.history.append({"seconds": self.reporter.seconds, "crosses": 0, "score": score})
        self.reporter.count_workers(engine, "tuning penalties")
        if self.look_for_leaks(engine, regression, rows, folds, score):
            engine.each(refold, folds.rule)
            regression = again(regression)
        return regression

    def refit(self, model: Model, part: Part, target: str) -> Model:
        """New weights on new rows, for the same fields under the same penalties."""
        producer = model.producer
        label = match_labels(part.label, target, model.about.classes)
        if label.min() == label.max():
            raise LabelError(
                f"The target {target!r} holds one class only, so there is nothing to learn. Give rows of both classes."
            )
        codes = producer.encoder.encode(typed(part.features, producer.encoder.schema))
        start: dict[Cross, NDArray[np.float64]] = dict(zip(producer.terms, model.weights, strict=True))
        start[INTERCEPT] = np.array([model.intercept])
        total_weight = reading.weighed(reading.weigh(part.weight))
        exponent = reading.mean_exponent(total_weight, len(label))
        weight, total_weight = np.ldexp(part.weight, -exponent), math.ldexp(total_weight, -exponent)
        rows = Rows(len(label), int(np.bincount(label).min()), total_weight, target, Classes(*model.about.classes), exponent)
        chosen = zip(producer.terms, model.penalties, strict=True)
        penalties = {term: Penalty(*three).times(2.0**-exponent) for term, three in chosen}
        with make_engine(self.options) as engine:
            n_blocks = n_lots(rows.n_rows, engine.n_workers)
            engine.place(make_blocks(codes, label, weight, FoldRule(1, holdout=True), self.seed, n_blocks))
            crosses = tuple(replace(cross, width=max(cross.width, *engine.each(put, cross))) for cross in producer.crosses)
            producer = Producer(producer.encoder.widened_to(codes), crosses)
            intercept, weights = self.final_weights(engine, producer, rows, penalties, start)
        self.rules, self.history = list(model.about.rules), list(model.about.history)
        return self.finish(producer, model.about.crosses, intercept, weights, penalties, None, rows)

    def record(self, encoder: Encoder, one: Accepted) -> FoundCross:
        """An accepted cross by the names of its fields and columns."""
        parts = [encoder.fields[at] for at in one.coder.fields]
        columns = tuple(dict.fromkeys(part.column for part in parts))
        return FoundCross(tuple(part.name for part in parts), columns, one.gain, one.error, one.n_collisions)

    def decide_schema(self, digests: Sequence[Digest], names: Collection[str]) -> Schema:
        """A kind for every column; say which are left out. Columns without a digest were not reached in time."""
        left_out = dict.fromkeys(self.options.exclude or (), "excluded")
        if self.options.groups is not None:
            left_out.setdefault(self.options.groups, "names the group of a row; new rows come from new groups")
        types, unread = dict(self.options.types or {}), sorted({*names} - {one.name for one in digests})
        if unread:
            self.warn_unread(unread)
            left_out, types = ({name: word for name, word in some.items() if name not in unread} for some in (left_out, types))
        schema = infer_all(digests, types, left_out)
        for column in schema:
            if column.kind == "ignore" and column.name not in left_out and column.reason != "declared":
                self.reporter.warn(
                    f"Column {column.name!r} is left out: {column.reason}. To use it all the same, give it a kind, "
                    f"as in types={{{column.name!r}: 'categorical'}}."
                )
            else:
                self.reporter.notice(f"column {column.name!r} is {column.kind}: {column.reason}")
        if all(column.kind == "ignore" for column in schema):
            raise TableError("No column is left to learn from. Give columns that vary, or a kind for one of them by types=.")
        return (*schema, *(ColumnSchema(name, "ignore", "text", UNREAD) for name in unread))

    def decide_encoding(self, n_rows: int, schema: Schema) -> EncodingRules:
        """Rare values and granularities, by the user's word or by rule."""
        options = self.options
        n_numerical = sum(column.kind == "numerical" for column in schema)
        min_count = options.min_count or encoding_rules.min_count(n_rows)
        self.rule("min_count", min_count, "given" if options.min_count else f"rule for {n_rows:,} rows")
        if options.granularities is not None and len(options.granularities):
            granularities, why = tuple(sorted({int(one) for one in options.granularities})), "given"
        else:
            granularities = encoding_rules.granularities(n_rows, n_numerical, memory_limit(options.memory_limit))
            why = f"rule for {n_rows:,} rows and {n_numerical} numerical columns"
        self.rule("granularities", ", ".join(map(str, granularities)), why)
        bits = hash_bits(n_rows)
        self.rule("hash_bits", bits, f"rule for {n_rows:,} rows; for what exceeds {CAP:,} values")
        widths, quantiles = options.bins != "quantile", options.bins != "width"
        coarse = quantiles and why != "given"
        return EncodingRules(min_count, granularities, widths, quantiles, n_buckets=1 << bits, coarse=coarse)

    def decide_folds(self, named: pl.DataFrame, times: dict[str, TimeColumn], n_rows: int) -> Folds:
        """Which rows judge which model; ``named`` has the columns that options name."""
        options = self.options
        if options.time is not None and options.time not in times:
            times[options.time] = self.as_time(named, options.time)
        if options.split == "time" and not times:
            raise OptionError("Option split='time' needs a time column. Name it by time=, or declare its kind by types=.")
        groups = None if options.groups is None else texts(named[options.groups]).distinct[1].astype(np.int64)
        holdout = splits.use_holdout(options.evaluation, n_rows)
        self.redraw = lambda seed: splits.choose(options.split, n_rows, seed, holdout, groups, times, options.time)
        folds = self.redraw(self.seed)
        judged_by = "holdout of a fifth" if holdout else f"{folds.n_models} folds"
        self.rule("evaluation", judged_by, "given" if options.evaluation != "auto" else f"rule for {n_rows:,} rows")
        self.rule("split", folds.kind, folds.why)
        return folds

    def as_time(self, frame: pl.DataFrame, name: str) -> TimeColumn:
        """A column named by time= that is no feature, or no date: numbers order the rows just as well."""
        series = frame[name]
        if series.dtype.is_numeric():
            return TimeColumn(series.rank("dense").fill_null(0).cast(pl.Int64).to_numpy())
        (schema,) = infer(frame.select(name), {name: "time"}, {})
        column = typed(frame, (schema,)).columns[name]
        assert isinstance(column, TimeColumn)
        return column

    def keep_granularities(self, engine: Engine, encoder: Encoder, rows: Rows, folds: Folds) -> list[int]:
        """The fields of numerical columns that tell most, and all other fields."""
        fields = encoder.fields
        stems = {at: stem.tables for at, stem in enumerate(encoder.stems) if stem.tables}
        judged = [at for tables in stems.values() for at in tables]
        if not judged:
            return list(range(len(fields)))
        self.reporter.tell(PhaseStarted, phase="choosing granularities", steps=1)
        gain = granularity.gains(engine, rows.total_weight, folds.n_models, fields, stems)
        best = granularity.best_half(fields, gain)
        detail = f"{len(best)} of {len(judged)} numerical fields kept"
        self.reporter.tell(StepDone, phase="choosing granularities", step=1, detail=detail)
        return sorted({*range(len(fields))} - {*judged} | {*best})

    def tuned(self, engine: Engine, so_far: SoFar, rows: Rows, n_models: int, min_count: int) -> Regression:
        """All fields fitted, their penalties chosen: where there are many rows, on a sample of them."""
        share = min(1.0, TUNING_ROWS / rows.n_rows)
        if share < 1.0:
            engine.each(narrow, TUNING_ROWS)
        # A few heavy rows may make a sample weigh more than its share: no sum may be more than twice what is made room for.
        weight = rows.total_weight if share == 1.0 else reading.weighed(engine.total(weight_of)) / 2
        weight = max(weight, rows.total_weight * share)
        so_far.regression = sample = Regression(engine, weight, n_models, min_count=least_rows(min_count, share))
        self.tune(sample, so_far.encoder)
        if share == 1.0:
            return sample
        engine.each(widen)
        regression = Regression(engine, rows.total_weight, n_models, min_count=min_count)
        for cross, term in sample.terms.items():
            if cross == INTERCEPT:
                regression.move(cross, term.weight)
            else:
                regression.add(cross, term.field, term.penalty, term.weight)
        regression.converge(tuning.FINE, tuning.MAX_SWEEPS)
        so_far.regression = regression
        return regression

    def tune(self, regression: Regression, encoder: Encoder) -> None:
        """Fit all fields, their penalties chosen on the rows left out."""
        phase, step = "tuning penalties", 0
        shared = self.options.penalty == "shared"
        at_most = len(tuning.GRID) + (len(tuning.L1_GRID) if shared else tuning.CYCLES)
        self.reporter.tell(PhaseStarted, phase=phase, steps=at_most)

        def report(detail: str) -> None:
            nonlocal step
            step += 1
            self.reporter.tell(StepDone, phase=phase, step=step, detail=detail, score=self.score(regression))

        for at, field in enumerate(encoder.fields):
            regression.add((at,), field, Penalty())
        best = tuning.tune_shared(regression, report, with_l1=shared)
        if shared:
            regression.converge(tuning.FINE, tuning.MAX_SWEEPS)
            self.rule("penalty", f"l1 {best.l1:g}, l2 {best.l2:g} for every field", "best on the rows left out")
        else:
            tuning.tune_fields(regression, best, report)
            self.rule(
                "penalty",
                "one for each field, smooth where bins are neighbours",
                f"best on the rows left out, l2 from {tuning.GRID[0]:g} to {tuning.GRID[-1]:g}",
            )

    def score(self, regression: Regression) -> float:
        """The validation score in the user's metric; of many rows counted in bins, within 0.00001 of the exact one."""
        if regression.n_rows > EXACT_ROWS:
            bins, metric = regression.engine.total(left_out_bins, regression.n_rows, regression.bin_unit), self.options.metric
            if metric == "log_loss":
                return -regression.left_out_loss() / (int(bins.sum()) / regression.bin_unit)
            return measure_bins(metric, bins)
        score, label, weight = regression.judged()
        return measure(self.options.metric, label, score, weight)

    def look_for_leaks(self, engine: Engine, regression: Regression, rows: Rows, folds: Folds, score: float) -> bool:
        """Compare with random folds where rows are kept apart by time or group: a large gap is a leak. Says if it looked."""
        if folds.kind == "random" or self.options.metric != "auc":
            return False
        random = splits.by_row(rows.n_rows, self.seed, folds.n_models == 1, "")
        engine.each(refold, random.rule)
        gap = self.score(again(regression)) - score
        if gap > max(LEAK, 2 * (score * (1 - score) / rows.n_rarer) ** 0.5):  # two standard errors of the AUC, roughly
            self.reporter.warn(
                f"With random folds the AUC would look {gap:.3f} better than with folds by {folds.kind} ({score:.4f}): "
                f"some columns tell which {'period' if folds.kind == 'time' else 'group'} a row is from. "
                "The lower figure is the honest one for new rows."
            )
        return True

    def final_weights(
        self, engine: Engine, producer: Producer, rows: Rows, penalties: Any, start: Any
    ) -> tuple[float, list[NDArray[np.float64]]]:
        """One model on all rows, from the weights already found."""
        engine.between, sweeps = carry_on, 0
        self.reporter.tell(PhaseStarted, phase="fitting all rows", steps=1)
        regression = Regression(engine, rows.total_weight, 1, everyone=True)
        regression.move(INTERCEPT, start[INTERCEPT][:, None])
        for term, field in zip(producer.terms, producer.fields, strict=True):
            regression.add(term, field, penalties[term], start[term][:, None])
        with suppress(Stopped):
            engine.between = self.stopping.check_grace
            sweeps = regression.converge(tuning.FINE, CERTAIN_SWEEPS)
            if sweeps == CERTAIN_SWEEPS:
                engine.between = self.stopping.check_last
                sweeps += regression.converge(tuning.FINE, FINAL_SWEEPS - CERTAIN_SWEEPS)
        engine.between = carry_on
        if not sweeps:
            regression.converge(tuning.FINE, CERTAIN_SWEEPS, [INTERCEPT])  # the rate of the labels, at least
        self.reporter.tell(StepDone, phase="fitting all rows", step=1, detail=f"{sweeps} sweeps")
        weights = [regression.terms[term].weight[:, 0].copy() for term in producer.terms]
        return float(regression.terms[INTERCEPT].weight[0, 0]), weights

    def finish(
        self,
        producer: Producer,
        crosses: tuple[FoundCross, ...],
        intercept: float,
        weights: list[NDArray[np.float64]],
        penalties: Any,
        score: float | None,
        rows: Rows,
    ) -> Model:
        """The model with its record of where it comes from; from here on a private one knows hashes only."""
        if self.options.private:
            producer = Producer(producer.encoder.private(), producer.crosses)
        clean = None if score is None or score != score else score
        about = About(
            rows.target,
            rows.classes.words,
            self.options.metric,
            clean,
            rows.n_rows,
            crosses,
            tuple(self.rules),
            tuple(self.history),
        )
        self.reporter.tell(
            FitFinished,
            n_rows=rows.n_rows,
            n_fields=len(producer.encoder.fields),
            n_crosses=len(crosses),
            metric=self.options.metric,
            score=clean,
        )
        # In units of the weights as they came, so that a refit weighs new rows against them as the fit did.
        chosen = tuple(astuple(penalties[term].times(2.0**rows.exponent)) for term in producer.terms)
        return Model(producer, intercept, tuple(weights), chosen, about)
