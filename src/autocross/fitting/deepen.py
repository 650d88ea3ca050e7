"""An additional stage for Wide & Deep: networks learn from what regressions say about new rows, and are blended with the finished
regression."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autocross.errors import AutoCrossError, OptionError
from autocross.events import PhaseStarted, StepDone
from autocross.features import TOGETHER, FieldCodes
from autocross.fitting.crossfit import CrossFit, are_replaced, cross_fit, folds_for
from autocross.fitting.encode import Encoded
from autocross.fitting.finish import Finished
from autocross.fitting.fit import LaterStage
from autocross.fitting.run import Run
from autocross.hashing import mix
from autocross.models import wide_deep
from autocross.models.metrics import log_loss, log_losses, measure
from autocross.options import DeepOptions, Options
from autocross.producer.deciles import N_CELLS, Deciles, count_cells
from autocross.producer.inputs import PER_TERM, Inputs, knots_of, known_terms, numbers_of
from autocross.producer.model import Model
from autocross.producer.network import Network
from autocross.search.policy import policy_of
from autocross.search.stopping import Stopped, Stopping
from autocross.table.coerce import typed
from autocross.table.source import Part, Source

NETWORK_SHARE = 0.5  # share of the time limit that is kept for the networks
MOST_ROWS = 250_000  # rows that the networks learn from, drawn at random if there are more
MOST_TERMS, MOST_NUMBERS = 64, 24  # what the networks see at most: one row must be scored fast
SHARES = tuple(tenth / 10 for tenth in range(11))  # of the networks in a blend
LEAST_SPREAD = (1e-6, 1e-6, 0.1)  # of weights, log-odds and numbers of rows: all bins of equal counts have the same number
LEAST_WEIGHT = 1e-30  # of a row that counts, as a share of the mean weight: far less is zero in single precision
PHASE = "training the networks"

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def check(options: Options, source: Source) -> None:
    """Refuse an engine or a table with which no network can be trained, and what no network can keep to."""
    if options.engine == "ray":
        raise OptionError("Option engine='ray' is not for networks, which are trained on this machine. Use engine='threads'.")
    for name in options.monotone or {}:
        raise OptionError(f"Option monotone names {name!r}, but a network is monotone in no column. Fit an AutoCrossClassifier.")
    if options.forbid is not None and len(options.forbid):
        raise OptionError("Option forbid is not for networks, in which all columns meet. Fit an AutoCrossClassifier.")
    if not source.in_memory:
        raise AutoCrossError(
            "The table is larger than a network can be trained on here. "
            "Raise memory_limit if there is memory enough, or fit an AutoCrossClassifier."
        )


def deepen(run: Run, source: Source, encoded: Encoded, finished: Finished) -> Finished:
    """Train networks on what regressions say about rows that they did not learn from. If there are too few rows or no time for
    that, or if there is no gain, the regression stays alone."""
    stopping = run.stopping.for_all()
    (part,) = source.parts(source.names)
    label, kept = encoded.rows.classes.codes(part.label), drawn(run.seed, encoded.rows.n_rows)
    found, fewest = n_rarer(label[kept], part.weight[kept]), policy_of(run.options).fewest_rarer
    if found < fewest:
        run.reporter.notice(f"no networks: they need {fewest} rows of the rarer label, and there are {found}")
        return finished
    with suppress(Stopped):
        run.engine.between = stopping.check
        deep = blended(run, stopping, encoded, finished, Rows.of(run, encoded, finished, part, label, kept))
        return deep if deep is finished else with_deciles(deep, part, kept)
    return finished


def with_deciles(deep: Finished, part: Part, kept: Ints) -> Finished:
    """The same with the deciles of its own scores, by the rows that the networks learned from."""
    model = Model(deep.producer, deep.intercept, tuple(deep.weights), (), additions=deep.additions)
    cells = np.zeros(N_CELLS, np.int64)
    for first in range(0, len(kept), TOGETHER):
        table = typed(part.features[kept[first : first + TOGETHER]], deep.producer.encoder.schema)
        cells += count_cells(model.log_odds(table))
    assert deep.background is not None
    return replace(deep, background=replace(deep.background, deciles=Deciles.of(cells)))


def drawn(seed: int, n_rows: int) -> Ints:
    """The rows that networks learn from."""
    rows = np.arange(n_rows)
    return rows if n_rows <= MOST_ROWS else np.sort(np.argsort(mix(seed + 2_000_003, rows))[:MOST_ROWS])


def n_rarer(label: NDArray[np.uint8], weight: NDArray[np.float32]) -> int:
    """The rows of the rarer label that have a weight."""
    return int(np.bincount(label[weight > LEAST_WEIGHT * weight.mean(dtype=np.float64)], minlength=2).min())


STAGE = LaterStage(NETWORK_SHARE, check, deepen)


@dataclass(frozen=True)
class Rows:
    """The rows that networks learn from, and what regressions that did not learn from them say."""

    crossed: CrossFit
    codes: Sequence[FieldCodes]
    label: NDArray[np.uint8]
    weight: Floats
    columns: tuple[str, ...]
    numbers: Floats

    @classmethod
    def of(cls, run: Run, encoded: Encoded, finished: Finished, part: Part, label: NDArray[np.uint8], kept: Ints) -> Rows:
        producer = finished.producer
        table = typed(part.features, producer.encoder.schema)
        codes = producer.codes(table)
        crossed = cross_fit(run, encoded, finished, codes, label, folds_for(run, encoded))
        encoders = producer.encoder.columns  # a number may have two, if it has a coarse field
        columns = tuple(dict.fromkeys(one.column.name for one in encoders if one.column.kind == "numerical"))
        numbers, weight = numbers_of(table, columns), part.weight.astype(np.float64)
        if len(kept) < len(label):
            codes, label, numbers, weight = [coded.take(kept) for coded in codes], label[kept], numbers[kept], weight[kept]
            crossed = crossed.of_rows(kept)
        return cls(crossed, codes, label, weight / weight.mean(), columns, numbers)


def described(finished: Finished, rows: Rows) -> tuple[Inputs, wide_deep.Examples, Floats]:
    """What the networks see: of new rows, and of the rows that they learn from. For these also the log-odds of the regressions."""
    log_odds, effect = rows.crossed.log_odds(rows.codes)
    strongest = np.argsort(-effect, kind="stable")[:MOST_TERMS]
    terms = tuple(np.sort(strongest[effect[strongest] > 0]).tolist())
    raw = [rows.crossed.known(term, rows.codes[term]) for term in terms]
    scaled = np.concatenate([*raw, log_odds[:, None]], axis=1)
    centre, spread = scaled.mean(axis=0), scaled.std(axis=0)
    spread = np.maximum(spread, np.array([*LEAST_SPREAD * len(terms), LEAST_SPREAD[0]]))
    columns, knots, numbers = pieces(finished, rows, effect)
    weights = [rows.crossed.weights[term][:, -1].astype(np.float32) for term in terms]
    known = known_terms(weights, [finished.counts[term] for term in terms], rows.crossed.base)
    inputs = Inputs(terms, known, columns, knots, centre, spread)
    values = inputs.joined(scaled, numbers).astype(np.float32)
    contributions = np.zeros(inputs.width, np.bool_)
    contributions[: PER_TERM * len(terms) : PER_TERM] = True
    label, weight = rows.label.astype(np.float32), rows.weight.astype(np.float32)
    return inputs, wide_deep.Examples(values, label, weight, contributions), log_odds


def pieces(finished: Finished, rows: Rows, effect: Floats) -> tuple[tuple[str, ...], tuple[Floats, ...], Floats]:
    """The numerical columns whose fields move the log-odds most: their names, knots and numbers."""
    fields = finished.producer.encoder.fields
    strength = {name: sum(effect[at] for at, field in enumerate(fields) if field.column == name) for name in rows.columns}
    knots = [knots_of(rows.numbers[:, place]) for place in range(len(rows.columns))]
    usable = [place for place, own in enumerate(knots) if len(own)]
    kept = sorted(sorted(usable, key=lambda place: (-strength[rows.columns[place]], place))[:MOST_NUMBERS])
    return tuple(rows.columns[place] for place in kept), tuple(knots[place] for place in kept), rows.numbers[:, kept]


def blended(run: Run, stopping: Stopping, encoded: Encoded, finished: Finished, rows: Rows) -> Finished:
    """Train a network without each fold, and choose the share of their mean by the rows left out."""
    options = run.options
    assert isinstance(options, DeepOptions)
    inputs, examples, alone = described(finished, rows)
    fold, n_folds = rows.crossed.fold, rows.crossed.n_folds
    watch, networks = Told(run, stopping, n_folds), []
    log_odds, judged = alone.copy(), np.zeros(len(fold), np.bool_)
    with wide_deep.threads(options.n_jobs):
        for number in range(n_folds):
            left_out = fold == number
            if watch.begin(number) and left_out.any() and not left_out.all():
                members, found = wide_deep.train(examples, left_out, run.seed + number, options.epochs, watch)
                if members.epoch:  # otherwise they know no more than the share of positives
                    networks.append(members)
                    log_odds[left_out], judged[left_out] = found, True
    label, weight = rows.label[judged], rows.weight[judged]
    alone, log_odds = alone[judged], log_odds[judged]
    blends = {share: (1 - share) * alone + share * log_odds for share in SHARES}
    share = min(SHARES, key=lambda share: log_loss(label, blends[share], weight))
    if not networks or not gains(label, alone, blends[share], weight):
        run.reporter.notice("networks do not lower the loss on the rows left out: the model is that of the regression alone")
        return finished
    run.rule("share of the networks", share, f"lowest loss on {int(judged.sum()):,} rows left out")
    matrices, biases = wide_deep.side_by_side(networks)
    score = finished.score
    if not are_replaced(encoded.folds):  # a score on other folds would not be of the split that the model reports
        score = measure(options.metric, label, blends[share], weight)
    assert finished.background is not None
    mean = float(np.average(blends[share] - alone, weights=weight))
    background = replace(finished.background, additions=(*finished.background.additions, mean))
    additions = (*finished.additions, Network(share, inputs, matrices, biases))
    return replace(finished, score=score, additions=additions, background=background)


def gains(label: NDArray[np.uint8], before: Floats, after: Floats, weight: Floats) -> bool:
    """Whether the loss falls by more than chance: what a row gains on average must exceed its standard error."""
    gain = weight * (log_losses(label, before) - log_losses(label, after))
    return bool(gain.mean() > gain.std() / len(gain) ** 0.5)


class Told(wide_deep.Watch):
    """Reports epochs, and ends the training at an interrupt or when the time of a fold is up."""

    def __init__(self, run: Run, stopping: Stopping, n_folds: int) -> None:
        self.tell, self.stopping, self.n_folds = run.reporter.tell, stopping, n_folds
        self.fold, self.kept = 0, 0.0
        self.tell(PhaseStarted, phase=PHASE, steps=n_folds)

    def begin(self, fold: int) -> bool:
        """Begin with another fold, if there is time for it. Each of those to come may have the same share of what is left."""
        self.fold, left = fold, self.stopping.seconds_left
        self.kept = 0.0 if left is None else left * (1 - 1 / (self.n_folds - fold))
        return not self.enough()

    def epoch(self, n: int, loss: float) -> None:
        self.tell(StepDone, phase=PHASE, step=self.fold + 1, detail=f"fold {self.fold + 1}   epoch {n}   loss {loss:.5f}")

    def enough(self, needed: float = 0.0) -> bool:
        left = self.stopping.seconds_left
        return self.stopping.interrupt.asked or (left is not None and left - self.kept < needed)
