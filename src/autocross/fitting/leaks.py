"""Looks for what makes a validation score too good to be true: a column that knows the label, and rows that occur several times.

Nothing here changes a model. The folds and the odds of the blocks stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autocross.blocks import Block, Cross, stem_key
from autocross.encoding.encoder import Encoder
from autocross.features import RARE
from autocross.fingerprint import held_by
from autocross.fitting import run as running
from autocross.fitting.encode import Encoded
from autocross.fitting.run import Run
from autocross.folds import Folds
from autocross.hashing import mix
from autocross.models.logistic import Regression, left_out, left_out_bins
from autocross.models.metrics import auc, measure_bins

Ints = NDArray[np.int64]

ALMOST_PERFECT = 0.995  # the AUC of a column that knows the label
SLACK = 0.005  # how much less AUC all columns together may have, because their penalties are those of all columns
FEWEST = 50  # rows of each label that a judgement needs
STRONGEST = 3  # columns that are looked at; if one of them knows the label, it has a large effect
MOST_CODES = 1 << 16  # fields with more codes are not looked at, because their counts would take too much memory
PRIOR = 3.0  # rows like all others that are added to those of a code

TWINS = 0.05  # share of the rows that have a twin in another fold
TOO_GOOD = 0.005  # by how much AUC twins must raise the score; crosses, which can tell single rows, will make more of it
COPIED, NOT_COPIED = 0.9, 0.5  # shares of the rows of two labels that have a twin, if only those of one label were copied
DISAGREE = 0.5  # twins whose labels differ at least this share as often as the model expects are no copies


# A column that knows the label.


def counts_by_fold(block: Block, cross: Cross, n_codes: int, n_models: int) -> Ints:
    """How many rows have each code, fold and label: (n_codes, n_models + 1, 2). The last fold has the rows that judge nothing."""
    coded, fold = block.coded(cross), np.minimum(block.fold, n_models).astype(np.int64)
    if coded.starts is not None:  # a row has no single code
        return np.zeros((n_codes, n_models + 1, 2), np.int64)
    key = (coded.codes.astype(np.int64) * (n_models + 1) + fold) * 2 + block.label
    return np.bincount(key, minlength=n_codes * (n_models + 1) * 2).astype(np.int64).reshape(n_codes, n_models + 1, 2)


def auc_alone(counts: Ints, forward: bool = False) -> float:
    """The AUC on the rows left out, if each is judged by the share of positive rows that its code has in the other folds, or in the
    earlier ones if folds go ``forward``."""
    n_models = counts.shape[1] - 1
    left_out = counts[:, :n_models]
    if forward:
        left_out = left_out[:, ::-1].cumsum(axis=1)[:, ::-1]
    learned = counts.sum(axis=1, keepdims=True) - left_out
    everyone = learned.sum(axis=0)
    base = everyone[:, 1] / np.maximum(1, everyone.sum(axis=1))
    score = (learned[:, :, 1] + PRIOR * base) / (learned.sum(axis=2) + PRIOR)
    judged = counts[:, :n_models].astype(np.float64)
    label = np.repeat(np.array([0, 1], np.uint8), score.size)
    return auc(label, np.concatenate([score.ravel()] * 2), np.concatenate([judged[:, :, 0].ravel(), judged[:, :, 1].ravel()]))


def warn_of_answers(run: Run, encoded: Encoded, encoder: Encoder, regression: Regression, score: float) -> None:
    """Warn about columns that predict the label almost perfectly, each by itself. If all columns together do not, none does."""
    if encoded.rows.n_rarer < FEWEST or len(encoder.columns) == 1:  # a single column is meant to predict the label
        return
    if run.options.metric != "auc":
        score = measure_bins("auc", run.engine.total(left_out_bins, regression.n_rows, regression.bin_unit))
    if not score > ALMOST_PERFECT - SLACK:
        return
    known = answers(run, encoder, regression, encoded.folds.plan.forward)
    if not known:
        return
    best, names = max(known.values()), sorted(known)
    shown = ", ".join(map(repr, names))
    subject = f"Column {shown} alone predicts" if len(names) == 1 else f"Columns {shown} predict, each alone,"
    when = "it is" if len(names) == 1 else "they are"
    run.reporter.warn(
        f"{subject} the label almost perfectly (AUC {best:.4f} on rows left out). If {when} known only after the label, leave "
        f"{'it' if len(names) == 1 else 'them'} out by exclude=[{shown}] (--exclude {names[0]})."
    )


def answers(run: Run, encoder: Encoder, regression: Regression, forward: bool) -> dict[str, float]:
    """The columns that predict the label almost perfectly, with their AUC. Only those with the largest effects are looked at."""
    effect: dict[str, float] = {}
    for number, field in enumerate(encoder.fields):
        effect[field.column] = effect.get(field.column, 0.0) + regression.effect((number,))
    strongest = sorted(effect, key=lambda name: -effect[name])[:STRONGEST]
    known: dict[str, float] = {}
    for number, field in enumerate(encoder.fields):
        if field.column in strongest and field.n_codes <= MOST_CODES:
            counts = run.engine.total(counts_by_fold, (number,), field.n_codes, regression.n_models)
            alone = auc_alone(counts, forward)
            if alone >= ALMOST_PERFECT:
                known[field.column] = max(alone, known.get(field.column, 0.0))
    return known


# Rows that occur several times.


@dataclass(frozen=True)
class Twins:
    """Rows that are equal in all columns: the ``group`` of equal rows that each row belongs to, whether another row of it is in
    another fold, and the labels and folds of all rows."""

    group: Ints
    apart: NDArray[np.bool_]
    label: NDArray[np.uint8]
    fold: Ints


def row_hashes(block: Block, of_words: Sequence[int]) -> tuple[Ints, NDArray[np.uint64], NDArray[np.uint8]]:
    """The numbers of the rows, a hash of the codes of all stems, and the labels. A row with a rare value has no equal: the value
    would have more rows. ``of_words`` lists the stems that have a code for rare values."""
    hashes, rare = np.zeros(block.n_rows, np.uint64), np.zeros(block.n_rows, np.bool_)
    for number in range(len(block.codes) - 1):  # all but the intercept
        coded = block.coded(stem_key(number))
        hashes = mix(number, hashes ^ held_by(coded))
        if number in of_words and coded.starts is None:
            rare |= coded.codes == RARE
    return block.row, np.where(rare, mix(len(block.codes), block.row), hashes), block.label


def find_twins(run: Run, encoded: Encoded) -> Twins | None:
    """The rows that have twins in other folds; None if they are few, or if nobody looks for them. Needs the stems in the blocks."""
    n_rows = encoded.rows.n_rows
    if encoded.folds.kind != "random" or n_rows > running.EXACT_ROWS or encoded.rows.n_rarer < FEWEST:
        return None
    of_words = [number for number, stem in enumerate(encoded.encoder.stems) if not stem.tables]
    hashes, label = np.zeros(n_rows, np.uint64), np.zeros(n_rows, np.uint8)
    for row, row_hash, row_label in run.engine.each(row_hashes, of_words):
        hashes[row], label[row] = row_hash, row_label
    twins = grouped(hashes, label, encoded.folds)
    judges = twins.fold < encoded.folds.n_models
    return twins if twins.apart[judges].sum() > TWINS * judges.sum() else None


def grouped(hashes: NDArray[np.uint64], label: NDArray[np.uint8], folds: Folds) -> Twins:
    """Find equal hashes."""
    order = np.argsort(hashes, kind="stable")
    begins = np.concatenate([[True], np.diff(hashes[order]) != 0])
    first, fold = np.flatnonzero(begins), np.minimum(folds.fold, folds.n_models).astype(np.int64)
    group = np.empty(len(hashes), np.int64)
    group[order] = np.cumsum(begins) - 1
    differ = np.minimum.reduceat(fold[order], first) < np.maximum.reduceat(fold[order], first)
    return Twins(group, differ[group], label, fold)


def judged_rows(block: Block) -> tuple[Ints, NDArray[np.float64], NDArray[np.float32]]:
    """The numbers of the rows that judge, their log-odds by the model that did not learn from them, and their weights."""
    log_odds, _, weight, _ = left_out(block)
    return block.row[block.fold < block.odds.shape[1]], log_odds, weight


def warn_of_twins(run: Run, encoded: Encoded, twins: Twins | None) -> None:
    """Warn if copies of rows in other folds make the score of the regression in the blocks look better than it is."""
    if twins is None:
        return
    parts = zip(*run.engine.each(judged_rows), strict=True)
    row, log_odds, weight = (np.concatenate(part) for part in parts)
    order = np.argsort(row)
    row, log_odds, weight = row[order], log_odds[order], weight[order].astype(np.float64)
    label, single = twins.label[row], ~twins.apart[row]
    n_rarer = int(np.bincount(label[single], minlength=2).min())
    if single.all() or not are_copies(twins, row[~single], log_odds[~single]):
        return
    of_all, of_single = auc(label, log_odds, weight), auc(label[single], log_odds[single], weight[single])
    if n_rarer < FEWEST:
        warn_of_oversampling(run, encoded, label, single, of_all)
    elif of_all - of_single > max(TOO_GOOD, (of_single * (1 - of_single) / n_rarer) ** 0.5):  # a standard error, roughly
        run.reporter.warn(
            f"{1 - single.mean():.0%} of the rows have a twin in another fold that is equal in every column, so models have seen "
            f"what judges them: the AUC without crosses is {of_all:.4f} on all rows left out, but {of_single:.4f} on those without "
            "a twin. The lower figure is the honest one for rows that are no copies. Drop duplicates, or name what twins share by "
            "groups=."
        )


def warn_of_oversampling(run: Run, encoded: Encoded, label: NDArray[np.uint8], single: NDArray[np.bool_], of_all: float) -> None:
    """Warn if the rows of one label were copied and those of the other were not. Hardly any row of the first is single then."""
    shares = [float((~single & (label == which)).sum() / max(1, (label == which).sum())) for which in (0, 1)]
    if max(shares) > COPIED and min(shares) < NOT_COPIED and 0 < label.sum() < len(label):
        word = encoded.rows.classes.words[int(np.argmax(shares))]
        run.reporter.warn(
            f"{max(shares):.0%} of the rows with label {word!r} have a twin in another fold that is equal in every column, and "
            f"{min(shares):.0%} of the others have, as after oversampling: models have seen what judges them, and the AUC without "
            f"crosses, {of_all:.4f}, is not that of new rows. Drop duplicates; sample weights can do what copies are for."
        )


def are_copies(twins: Twins, row: Ints, log_odds: NDArray[np.float64]) -> bool:
    """Whether the labels of twins agree far more often than the model expects.

    A table of few values has equal rows as well, and nothing is wrong with them: a twin's label says no more than the columns do.
    Copies have the same label.
    """
    n_folds = int(twins.fold.max()) + 1
    place = twins.group * n_folds + twins.fold
    elsewhere = [
        np.bincount(twins.group, of)[twins.group[row]] - np.bincount(place, of)[place[row]]
        for of in (twins.label.astype(np.float64), np.ones(len(place)))
    ]
    positive = elsewhere[0] / elsewhere[1]  # the share of its twins in other folds that are positive
    expected = 1 / (1 + np.exp(-np.clip(log_odds, -500, 500)))
    disagree = np.abs(twins.label[row] - positive).mean()
    return bool(disagree < DISAGREE * (expected * (1 - positive) + (1 - expected) * positive).mean())
