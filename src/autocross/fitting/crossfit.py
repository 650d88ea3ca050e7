"""Models that did not learn from some rows, so that networks can learn from what these models say about the rows.

A regression fits the rows that it learned from far better than new rows. A network that learned from its log-odds there would trust
them too much. So there is a regression for each fold, with the terms and penalties of the finished model and from zero, and every
row is described by the one that did not learn from its fold: by its weights, and by how many rows each value had and how many of
these were positive. A new row is described by one more regression, which learns from all rows in just the same way: the weights of
the finished model have other origins, and where terms overlap they share their part of the log-odds in another way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autocross import folds as splits
from autocross.blocks import INTERCEPT, draw_folds
from autocross.features import RARE, FieldCodes
from autocross.fitting.encode import Encoded
from autocross.fitting.finish import Finished
from autocross.fitting.run import Run
from autocross.folds import Folds
from autocross.models import tuning
from autocross.models.logistic import Regression
from autocross.producer.inputs import PER_TERM, gathered, known_of
from autocross.search import statistics

SWEEPS = 30  # most sweeps of the regressions
OTHER_FOLDS = 3_000_017  # added to the seed, so that the folds are not those by which penalties were chosen

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def are_replaced(folds: Folds) -> bool:
    """Whether these folds of the search would leave rows that no model is judged by, so that networks need other ones."""
    return folds.plan.holdout or folds.plan.forward


def folds_for(run: Run, encoded: Encoded) -> Folds:
    """Folds of the same kind as those of the search, so that every row is in one of several. Instead of a holdout, and of folds
    that look ahead, there are folds of rows, groups or spans of time."""
    folds = encoded.redraw(run.seed + OTHER_FOLDS)
    if not are_replaced(folds):
        return folds
    if folds.cluster is None or folds.n_clusters < 2:
        return splits.by_row(folds.n_rows, run.seed + OTHER_FOLDS, False, folds.why)
    return splits.by_group(folds.cluster, run.seed + OTHER_FOLDS, False, folds.why)


@dataclass(frozen=True)
class CrossFit:
    """What the regressions know. Weights (n_codes, n_folds + 1) and counts (n_codes, n_folds + 1, 2) of a term are those of the
    rows outside each fold and, at the end, of all rows. ``base`` is the share of positives among all rows."""

    fold: NDArray[np.uint8]
    intercept: Floats
    weights: Sequence[Floats]
    counts: Sequence[Ints]
    base: float

    @property
    def n_folds(self) -> int:
        return len(self.intercept) - 1

    @property
    def folds(self) -> list[Ints]:
        """The rows of each fold."""
        return [np.flatnonzero(self.fold == fold) for fold in range(self.n_folds)]

    def log_odds(self, codes: Sequence[FieldCodes]) -> tuple[Floats, Floats]:
        """The log-odds of each row by the regression that did not learn from it, and how far each term moves them: its variance."""
        total, effect = self.intercept[self.fold], np.zeros(len(codes))
        for term, coded in enumerate(codes):
            own = self.known(term, coded)[:, 0]
            effect[term] = own.var()
            total += own
        return total, effect

    def known(self, term: int, coded: FieldCodes) -> Floats:
        """What is known about the codes of a term in each row, from the rows outside its fold."""
        found = np.empty((len(self.fold), PER_TERM))
        for fold, rows in enumerate(self.folds):
            factor = len(self.fold) / max(1, len(self.fold) - len(rows))
            known = known_of(self.weights[term][:, fold], self.counts[term][:, fold], self.base, factor)
            found[rows] = gathered(known, coded.take(rows))
        return found

    def of_rows(self, rows: Ints) -> CrossFit:
        """The same knowledge, for some of the rows."""
        return replace(self, fold=self.fold[rows])


def cross_fit(
    run: Run, encoded: Encoded, finished: Finished, codes: Sequence[FieldCodes], label: NDArray[np.uint8], folds: Folds
) -> CrossFit:
    """Fit a regression without each fold, and one to all rows."""
    producer, fold, n_models = finished.producer, folds.fold, folds.n_models + 1
    draw_folds(run.engine, folds.plan)

    def begin() -> Regression:
        # No row is in the last of these folds, so the last model learns from all rows.
        return Regression.begin(run.engine, encoded.rows.total_weight, n_models, min_count=encoded.min_count, loss=run.loss)

    regression, base = begin(), encoded.rows.n_positive / encoded.rows.n_rows
    coders = {coder.term: coder for coder in producer.crosses if coder.kind == "statistic"}
    fields = dict(zip(producer.terms, producer.fields, strict=True))
    plain = [term for term in fields if term not in coders]
    counts = {term: others(coded, fields[term].n_codes, label, fold, n_models) for term, coded in zip(fields, codes, strict=True)}
    for term in plain:
        regression.add(term, fields[term], finished.penalties[term])
        pool(counts[term], regression.terms[term].tied)
    regression.converge(tuning.FINE, SWEEPS)
    rest = 1.0 - finished.share
    intercept = rest * regression.terms[INTERCEPT].weight[0]
    weights = {term: rest * regression.terms[term].weight for term in plain}
    if coders:
        regression = begin()
        for term, coder in coders.items():
            statistics.place(run.engine, coder, folds.n_models, base)
            statistics.add(regression, coder, finished.penalties[term], {})
            counts[term][RARE] = 0  # rare values of a statistic count as never seen
        regression.converge(tuning.FINE, SWEEPS)
        for term, coder in coders.items():
            own = [statistics.weights(regression, coder, counts[term][:, model], base, model) for model in range(n_models)]
            weights[term] = finished.share * np.stack(own, axis=1)
        intercept = intercept + finished.share * regression.terms[INTERCEPT].weight[0]
    return CrossFit(fold, intercept, [weights[term] for term in fields], [counts[term] for term in fields], base)


def others(coded: FieldCodes, n_codes: int, label: NDArray[np.uint8], fold: NDArray[np.uint8], n_models: int) -> Ints:
    """Rows and positives of every code outside each fold: (n_codes, n_models, 2)."""
    rows = np.arange(len(label)) if coded.starts is None else np.repeat(np.arange(len(label)), np.diff(coded.starts))
    place = coded.codes.astype(np.int64) * n_models + fold[rows]
    inside = np.stack(
        [np.bincount(place[chosen], minlength=n_codes * n_models) for chosen in (slice(None), label[rows] == 1)], axis=1
    ).reshape(n_codes, n_models, 2)
    outside: Ints = inside.sum(axis=1, keepdims=True) - inside
    return outside


def pool(counts: Ints, tied: NDArray[np.bool_]) -> None:
    """Let codes that are too rare for a weight of their own share the counts of the rare code, as such values will in new rows."""
    for fold in range(counts.shape[1]):
        rare = np.flatnonzero(tied[:, fold])
        counts[RARE, fold] += counts[rare, fold].sum(axis=0)
        counts[rare, fold] = counts[RARE, fold]
