"""By how much new rows differ from those of the fit: what `monitor` reports.

The population stability index (PSI) compares the shares that the training rows and the new rows have in each of some bins:

    PSI = sum of (observed - expected) * ln(observed / expected)

Shares below 0.0001 count as 0.0001, so that a bin without rows gives a large PSI, but not an infinite one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from autocross.producer.printing import WIDTH, named_line, printable

LEAST_SHARE = 0.0001
SHIFTED, CHANGED = 0.1, 0.25  # the usual reading of a PSI
BY_CHANCE = SHIFTED / 2  # a report says so if equal rows would have more than this
LISTED = 20  # columns and crosses that are printed

Reading = Literal["stable", "shifted", "changed"]
Counts = NDArray[Any]


def shares_of(counts: Counts) -> NDArray[np.float64]:
    """What share of all counts each of them is."""
    shares: NDArray[np.float64] = counts / max(1, counts.sum())
    return shares


def stability_index(expected: NDArray[np.float64], observed: NDArray[np.float64]) -> float:
    """The PSI of shares.

    >>> round(stability_index(np.array([0.5, 0.5]), np.array([0.6, 0.4])), 4)
    0.0405
    """
    before, after = np.maximum(expected, LEAST_SHARE), np.maximum(observed, LEAST_SHARE)
    return float(((after - before) * np.log(after / before)).sum())


@dataclass(frozen=True)
class Bin:
    """A value or an interval, and the shares that the training rows and the new rows have there."""

    value: str
    expected: float
    observed: float


@dataclass(frozen=True)
class Drift:
    """By how much one column, cross or score has changed.

    ``missing`` is the share of the new rows whose value is missing, and ``rare_or_unseen`` the share of those whose value has no
    code of its own, because the fit saw it rarely or never. ``missing_before`` and ``rare_before`` are those of the training rows.
    ``by_chance`` is the PSI that new rows would have on average if nothing had changed: few rows in many bins always differ.
    """

    name: str
    columns: tuple[str, ...]
    psi: float
    missing: float
    rare_or_unseen: float
    missing_before: float
    rare_before: float
    by_chance: float
    bins: tuple[Bin, ...]

    @property
    def reading(self) -> Reading:
        """How such a PSI is usually read."""
        return "stable" if self.psi < SHIFTED else "shifted" if self.psi <= CHANGED else "changed"

    def to_dict(self) -> dict[str, Any]:
        """The same in a form that JSON can hold."""
        return {**asdict(self), "columns": list(self.columns), "bins": [asdict(one) for one in self.bins], "reading": self.reading}


@dataclass(frozen=True)
class Measures:
    """How good the model is on new rows with labels.

    ``ece`` is the expected calibration error. ``positive_rate`` is the share of positive rows, ``mean_probability`` what the model
    expected it to be, and ``positive_rate_before`` that of the training rows.
    """

    auc: float
    log_loss: float
    brier: float
    ece: float
    positive_rate: float
    mean_probability: float
    positive_rate_before: float


@dataclass(frozen=True)
class Report:
    """New rows compared with the rows of the fit. ``score`` is None if the model does not know how its scores were spread, and
    ``measures`` is None if there are no labels."""

    n_rows: int
    n_rows_before: int
    score: Drift | None
    columns: tuple[Drift, ...]
    crosses: tuple[Drift, ...]
    measures: Measures | None = None

    @property
    def judged(self) -> list[Drift]:
        """What a limit applies to, the largest PSI first: the score and the columns. Crosses change with their columns."""
        return by_psi([*([] if self.score is None else [self.score]), *self.columns])

    @property
    def worst(self) -> Drift | None:
        """The column, or the score, that has changed most."""
        return next(iter(self.judged), None)

    def above(self, limit: float) -> list[Drift]:
        """The columns, and the score, whose PSI is above a limit."""
        return [one for one in self.judged if one.psi > limit]

    def to_dict(self) -> dict[str, Any]:
        """The same in a form that JSON can hold."""
        return {
            "n_rows": self.n_rows,
            "n_rows_before": self.n_rows_before,
            "measures": None if self.measures is None else asdict(self.measures),
            "score": None if self.score is None else self.score.to_dict(),
            "columns": [one.to_dict() for one in by_psi(self.columns)],
            "crosses": [one.to_dict() for one in by_psi(self.crosses)],
        }

    def __str__(self) -> str:
        """The report as a page of text, 80 characters wide."""
        lines = [f"{self.n_rows:,} new rows, compared with {self.n_rows_before:,} rows of the fit"]
        if self.measures is not None:
            lines += ["", *measures_in_words(self.measures)]
        lines += ["", f"PSI below {SHIFTED:g} is read as stable, up to {CHANGED:g} as shifted, above as changed."]
        if self.score is None:
            lines += [
                "The model does not know how its scores were spread, because it was changed by",
                "hand or is of an older version. Refit it, or name its training rows (reference).",
            ]
        lines += ["", f"{'psi':>7}  reading  missing     rare  column", *map(line_of, self.judged[:LISTED])]
        lines += rest_in_words(self.judged, "columns")
        if self.crosses:
            crosses = by_psi(self.crosses)
            lines += ["", f"{'psi':>7}  reading  missing     rare  cross", *map(line_of, crosses[:LISTED])]
            lines += rest_in_words(crosses, "crosses")
        lines += chance_in_words([*self.judged, *self.crosses], self.n_rows)
        return "\n".join(lines)


def by_psi(drifts: Iterable[Drift]) -> list[Drift]:
    """The largest PSI first."""
    return sorted(drifts, key=lambda one: -one.psi)


# In words.


def measures_in_words(found: Measures) -> list[str]:
    """Two lines about rows with labels."""
    return [
        f"AUC {found.auc:.4f}   log-loss {found.log_loss:.4f}   Brier {found.brier:.4f}   calibration error {found.ece:.4f}",
        f"positive rows {found.positive_rate:.2%}, expected {found.mean_probability:.2%}, "
        f"in the fit {found.positive_rate_before:.2%}",
    ]


def line_of(one: Drift) -> str:
    """One line of the table. A long name goes on in the next line: crosses may differ only at the end of their names."""
    start = f"{one.psi:7.4f}  {one.reading:7}  {100 * one.missing:5.1f} %  {100 * one.rare_or_unseen:5.1f} %  "
    return named_line(start, one.name)


def rest_in_words(ranked: Sequence[Drift], word: str) -> list[str]:
    """A line about those that are not printed."""
    left = ranked[LISTED:]
    return [f"... and {len(left):,} more {word}, at most {left[0].psi:.4f}; --json lists all"] if left else []


def chance_in_words(drifts: Iterable[Drift], n_rows: int) -> list[str]:
    """A warning, if there are too few rows to tell."""
    doubtful = [one for one in drifts if one.by_chance > BY_CHANCE]
    if not doubtful:
        return []
    worst = max(doubtful, key=lambda one: one.by_chance)
    others = f"; {len(doubtful) - 1:,} others have more than {BY_CHANCE:g}" if len(doubtful) > 1 else ""
    lines = wrap(
        f"{n_rows:,} new rows are few for so many bins: without any change the PSI of {printable(worst.name)} would be about "
        f"{worst.by_chance:.2g}{others}.",
        WIDTH,
    )
    return ["", *lines]
