"""Compares new rows with the rows of a fit, in one pass and in memory that does not grow with the rows.

A model knows how many training rows had each code. The codes of a term are put into groups, and the new rows are counted by group:

- a number has a group for each bin of its coarsest field;
- everything else has one for each of its 19 most frequent values, one for all other values, and one for those without a code of
  their own, which are rare or were never seen;
- what is missing has a group too. A combination of values is missing if one of them is.

Rows with several values of a field count once for each of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.encoding.values import Hashed
from autocross.errors import AutoCrossError, LabelError, TableError
from autocross.features import FIRST, MISSING, RARE, FieldCodes, narrowest
from autocross.options import OptionList, Options
from autocross.producer.deciles import FARTHEST, FINE, N_CELLS, Deciles, cell_of, count_cells
from autocross.producer.model import Model
from autocross.producer.printing import shortened
from autocross.serving.drift import Bin, Drift, Measures, Report, shares_of, stability_index
from autocross.serving.scorer import probabilities, probability

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_VALUES = 19  # values with a bin of their own, in columns that are not numbers, and in crosses
MISSING_WORD, OTHERS_WORD, SCORE = "(missing)", "(all others)", "(score)"


def monitor(
    model: Model,
    data: Any,
    target: Any = None,
    weight: Any = None,
    reference: Any = None,
    options: OptionList | None = None,
) -> Report:
    """Compare the rows of a frame or of a file of any size with the rows that the model was fitted to.

    With labels, which ``target`` names or has, the report says how good the model is on these rows. ``weight`` says how much each
    row counts in that. The PSI counts every row once, unless its weight is zero. Scores are compared with those of the rows of
    ``reference`` instead of those of the fit, if it is given.
    """
    from autocross.table.coerce import typed
    from autocross.table.ingest import in_parts

    options = Options() if options is None else options
    if model.counts is None:
        raise AutoCrossError(
            "The model does not know how often its values occurred in the fit: its file is of an older version. Refit it, as by "
            "autocross refit, to monitor it."
        )
    producer, n_rows = model.producer, 0
    groupings, deciles = [*groupings_of(model)], deciles_of(model, reference, options)
    judge = None if target is None else Judge(target if isinstance(target, str) else "y", model.about.classes)
    of_score = np.zeros(0 if deciles is None else len(deciles.rows), np.int64)
    for part in in_parts(data, target, weight, producer.encoder.schema, options):
        table = typed(part.features, producer.encoder.schema, rows_here=part.rows)
        codes = producer.codes(table)
        log_odds = model.log_odds_of(codes, table)
        for grouping in groupings:
            grouping.add(codes[grouping.number])
        if deciles is not None:
            of_score += deciles.count(log_odds)
        if judge is not None:
            judge.add(part.label, log_odds, part.weight, part.rows)
        n_rows += table.n_rows
    if not n_rows:
        raise TableError("The new table has no rows to compare with those of the fit, or none that count. Give at least one row.")
    n_base = len(producer.encoder.fields)
    drifts = [(grouping.number < n_base, grouping.drift(n_rows, model.about.n_rows)) for grouping in groupings]
    return Report(
        n_rows,
        model.about.n_rows,
        None if deciles is None else score_drift(deciles, of_score),
        tuple(drift for is_column, drift in drifts if is_column),
        tuple(drift for is_column, drift in drifts if not is_column),
        None if judge is None else judge.measures(model),
    )


def deciles_of(model: Model, reference: Any, options: OptionList) -> Deciles | None:
    """How scores are spread among the rows of a reference or, without one, among the training rows, if the model knows it."""
    from autocross.table.coerce import typed
    from autocross.table.ingest import in_parts

    if reference is None:
        return None if model.background is None else model.background.deciles
    schema, cells = model.producer.encoder.schema, np.zeros(N_CELLS, np.int64)
    for part in in_parts(reference, None, None, schema, options):
        cells += count_cells(model.log_odds(typed(part.features, schema, rows_here=part.rows)))
    if not cells.any():
        raise TableError("The reference has no rows, so there are no scores to compare with. Give at least one row.")
    return Deciles.of(cells)


# Columns and crosses.


@dataclass
class Grouping:
    """The groups that the codes of one term are put into, and how many codes of rows were met in each.

    The first groups are those of the values that have a bin of their own, in the order of ``values``. Behind them there are four
    more: what is missing, other values, other values of which a part is missing, and what is rare or was never seen.
    ``is_missing`` says of which groups the values, or parts of them, are missing.
    """

    number: int
    name: str
    columns: tuple[str, ...]
    values: tuple[str, ...]
    group: NDArray[Any]
    is_missing: NDArray[np.bool_]
    expected: Ints
    by_row: bool  # whether shares of missing and rare values are those of rows, and not of the codes that rows have
    observed: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.observed = np.zeros(len(self.expected), np.int64)

    def add(self, coded: FieldCodes) -> None:
        """Count some rows."""
        codes = coded.codes if coded.starts is None else coded.codes[coded.starts[0] : coded.starts[-1]]
        self.observed += np.bincount(self.group[codes], minlength=len(self.observed))

    def drift(self, n_rows: int, n_before: int) -> Drift:
        """By how much the rows that were counted differ from the training rows."""
        n = len(self.values)
        before, after = (np.append(counts[: n + 1], counts[n + 1 :].sum()) for counts in (self.expected, self.observed))
        expected, observed = shares_of(before), shares_of(after)
        shares = zip([*self.values, MISSING_WORD, OTHERS_WORD], expected.tolist(), observed.tolist(), strict=True)
        return Drift(
            self.name,
            self.columns,
            stability_index(expected, observed),
            *self.without_value(self.observed, n_rows),
            *self.without_value(self.expected, n_before),
            by_chance(before, after),
            tuple(Bin(*share) for share in shares if any(share[1:])),
        )

    def without_value(self, counts: Ints, n_rows: int) -> tuple[float, float]:
        """The shares of missing values, and of rare ones. A row has several values in some columns, of which one may be hashed."""
        whole = max(1, n_rows if self.by_row else int(counts.sum()))
        return min(1.0, float(counts[self.is_missing].sum() / whole)), min(1.0, float(counts[-1] / whole))


def by_chance(before: NDArray[Any], after: NDArray[Any]) -> float:
    """The PSI that is to be expected if both come from the same rows, by the usual approximation."""
    return float((np.count_nonzero(before) - 1) * (1 / max(1, before.sum()) + 1 / max(1, after.sum())))


def groupings_of(model: Model) -> Iterator[Grouping]:
    """The columns, and then the crosses, of a model. A number is compared by its coarsest field; all fields of a calendar are."""
    producer = model.producer
    base = producer.encoder.fields
    of_column: dict[str, list[int]] = {}
    for number, one in enumerate(base):
        of_column.setdefault(one.column, []).append(number)
    for column, numbers in of_column.items():
        binned = [number for number in numbers if base[number].chain is not None]
        coarsest = min(binned, key=lambda number: base[number].n_codes, default=None)
        for number in numbers:
            if number == coarsest or number not in binned:
                alone = len(numbers) == len(binned)  # a column of numbers, which needs no names of fields
                yield grouping_of(model, number, column if alone else base[number].name, (column,))
    for number in (number for number in producer.found if number >= len(base)):
        cross = producer.crosses[number - len(base)]
        columns = tuple(dict.fromkeys(base[part].column for part in cross.fields))
        yield grouping_of(model, number, producer.fields[number].name, columns)


def grouping_of(model: Model, number: int, name: str, columns: tuple[str, ...]) -> Grouping:
    """The groups of the codes of one term."""
    assert model.counts is not None
    producer, one = model.producer, model.producer.fields[number]
    n_base, counts = len(producer.encoder.fields), model.counts[number][:, 0].copy()
    if number in producer.statistics:  # which count rare values as never seen
        counts[RARE] = max(0, model.about.n_rows - int(counts.sum()))
    n_values = bisect_left(range(FIRST, one.n_codes), True, key=lambda code: isinstance(producer.value(number, code), Hashed))
    own = np.arange(FIRST, FIRST + n_values)
    if number >= n_base or one.chain is None:
        own = own[np.argsort(-counts[own], kind="stable")[:MOST_VALUES]]
    n = len(own)
    of_missing, of_others, of_partly, of_rare = range(n, n + 4)
    group = np.full(one.n_codes, of_rare, narrowest(n + 4))
    group[FIRST : FIRST + n_values] = of_others
    is_missing = np.zeros(n + 4, np.bool_)
    is_missing[[of_missing, of_partly]] = True
    if number >= n_base:
        partly = (producer.crosses[number - n_base].values == MISSING).any(axis=1)
        group[FIRST : FIRST + n_values][partly] = of_partly
        is_missing[:n] = partly[own - FIRST]
    group[own], group[MISSING] = np.arange(n), of_missing
    expected = np.bincount(group, counts, n + 4).astype(np.int64)
    values = tuple(shortened(producer.describe(number, code)) for code in own.tolist())
    return Grouping(number, name, columns, values, group, is_missing, expected, by_row=number < n_base)


# The score.


def score_drift(deciles: Deciles, counts: Ints) -> Drift:
    """By how much the scores have changed. Bins are printed as probabilities."""
    bounds = [f"{probability(edge):.4g}" for edge in deciles.edges.tolist()]
    words = ["any"]
    if bounds:
        between = [f"{low} to {high}" for low, high in pairwise(bounds)]
        words = [f"below {bounds[0]}", *between, f"{bounds[-1]} or more"]
    expected, observed = shares_of(deciles.rows), shares_of(counts)
    bins = tuple(map(Bin, words, expected.tolist(), observed.tolist()))
    psi = stability_index(expected, observed)
    return Drift(SCORE, (), psi, 0.0, 0.0, 0.0, 0.0, by_chance(deciles.rows, counts), bins)


class Judge:
    """Judges scores by labels, part by part. For AUC and calibration rows are counted in cells of 1 / 4,096 of log-odds."""

    def __init__(self, target: str, classes: tuple[Any, Any]) -> None:
        self.target, self.classes = target, classes
        self.cells = np.zeros((2, N_CELLS))
        self.sums = np.zeros(4)  # weight; log-loss, squared error and probability, each times the weight

    def add(self, values: NDArray[Any] | None, log_odds: Floats, weight: Floats, rows: Ints) -> None:
        """Take in some rows."""
        from autocross.models.metrics import brier, log_loss
        from autocross.table.labels import match_labels

        assert values is not None
        label = match_labels(values, self.target, self.classes, rows)
        for one in (0, 1):
            chosen = label == one
            self.cells[one] += np.bincount(cell_of(log_odds[chosen]), weight[chosen], N_CELLS)
        means = [1.0, log_loss(label, log_odds, weight), brier(label, log_odds, weight)]
        means.append(float(np.average(probabilities(log_odds), weights=weight)))
        self.sums += weight.sum() * np.array(means)

    def measures(self, model: Model) -> Measures:
        """How good the scores are."""
        from autocross.models.evaluation import calibration_error, deciles
        from autocross.models.metrics import auc

        of_label = self.cells.sum(axis=1)
        for one, other in ((0, 1), (1, 0)):
            if not of_label[one]:
                raise LabelError(
                    f"The target {self.target!r} holds {self.classes[other]!r} in all rows, so the model cannot be judged. "
                    "Give rows of both labels, or leave out the target."
                )
        label, cell = np.nonzero(self.cells)
        weight, score = self.cells[label, cell], (cell + 0.5) / FINE - FARTHEST
        _, loss, squared, mean = (self.sums / self.sums[0]).tolist()
        error = calibration_error(deciles(label == 1, probabilities(score), weight))
        assert model.about.n_positive is not None
        before = model.about.n_positive / model.about.n_rows
        return Measures(auc(label, score, weight), loss, squared, error, float(of_label[1] / of_label.sum()), mean, before)
