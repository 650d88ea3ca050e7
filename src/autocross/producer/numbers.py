"""The features of a model as dense numbers, for trees and networks: what is known about the rows of each value.

Every field, cross and statistic gives two numbers. One is the log-odds of the rows of the fit that have the row's value, after
three rows like all others were added to them, compared with those of all rows. The other is the logarithm of one plus their number.
Where a row has several values, both are averaged.

A row that the fit learned from has added its own label to these counts, and whatever is trained on them would trust them too much.
Such a row has the log-odds of rows in other folds instead. The number of rows tells no label, and is the same for all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autocross import statistic
from autocross.errors import AutoCrossError
from autocross.features import RARE, FieldCodes
from autocross.kernels import counting
from autocross.producer.features import PARTS, Features, Learned, part_name
from autocross.producer.wording import apart

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
N_FOLDS = 5  # of rows that the fit learned from
NAMES = ("log-odds", "log count")  # of the two numbers of a field or a cross; those of a statistic are named after its parts


def names(features: Features) -> list[str]:
    """The names of the numbers."""
    named = []
    for number in features.producer.found:
        field = features.producer.fields[number]
        is_statistic = number in features.producer.statistics
        name, parts = (field.name.removesuffix(" [statistic]"), PARTS) if is_statistic else (field.name, NAMES)
        named += [part_name(name, part) for part in parts]
    return apart(named)


def dense(features: Features, coded: list[FieldCodes], learned: Learned | None = None) -> NDArray[np.float32]:
    """The numbers of all rows, which have these codes of the fields, crosses and statistics: (n_rows, 2 n_terms)."""
    counts = features.model.counts
    if counts is None:
        raise AutoCrossError("The model was saved by an older version, which kept no counts of rows. Refit it, or fit it again.")
    n_rows, numbers = coded[0].n_rows, features.producer.found
    found = np.empty((n_rows, 2 * len(numbers)), np.float32)
    for place, number in enumerate(numbers):
        codes = coded[number]
        known = statistic.numbers(counts[number], features.base)[codes.codes]
        if learned is not None:
            entries, rows = entries_of(codes, learned.rows)
            of_others = from_other_folds(
                codes.codes[entries], rows, learned, counts[number], number in features.producer.statistics
            )
            known[entries, 0] = statistic.numbers(of_others, features.base)[:, 0]
        found[:, 2 * place : 2 * place + 2] = known if codes.starts is None else averaged(known, codes.starts)
    return found


def entries_of(codes: FieldCodes, rows: Ints) -> tuple[Ints, Ints]:
    """Where the codes of these rows are, and for each which of the rows it belongs to, by its place among them."""
    if codes.starts is None:
        return rows, np.arange(len(rows))
    sizes = np.diff(codes.starts)[rows]
    of_row = np.repeat(np.arange(len(rows)), sizes)
    first = codes.starts[rows] - (np.cumsum(sizes) - sizes)
    return first[of_row] + np.arange(len(of_row)), of_row


def from_other_folds(codes: Ints, rows: Ints, learned: Learned, counts: Ints, rare_is_new: bool) -> Ints:
    """Rows and positives of each of these codes in the folds that its row is not in, (n, 2). Rows that the fit did not learn from
    are not counted."""
    fold = learned.folds(N_FOLDS)[rows]
    tallied = np.zeros((len(counts), N_FOLDS, 2), np.int64)
    counting.tally(codes, fold, np.zeros(len(codes), np.uint8), learned.label[rows], N_FOLDS, tallied)
    if rare_is_new:
        tallied[RARE] = 0
    of_others: Ints = (tallied.sum(axis=1, keepdims=True) - tallied)[codes, fold]
    return of_others


def averaged(known: Floats, starts: Ints) -> Floats:
    """The mean of what is known about the values of each row; 0 where there are none."""
    sizes, total = np.diff(starts), np.zeros((len(starts) - 1, known.shape[1]))
    np.add.at(total, np.repeat(np.arange(len(sizes)), sizes), known)
    return total / np.maximum(sizes, 1)[:, None]
