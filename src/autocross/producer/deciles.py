"""How the scores of the training rows are spread: where their tenths end, and how many rows lie in each.

Scores are counted in cells that are the same for every model, 4,096 for each unit of log-odds from -32 to 32. Counts of several
blocks can be added up, wherever the blocks are, and need no room that grows with the rows. Boundaries lie between cells. A unit is
divided by a power of two, which rounds nothing, so that a row is on the same side of a boundary whether its cell or its log-odds
are compared.

cells : int64 (N_CELLS,)    how many rows have log-odds in each cell
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.checks import require

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FINE = 1 << 12  # cells of a unit of log-odds
FARTHEST = 32  # log-odds beyond this are in the first or in the last cell
N_CELLS = 2 * FARTHEST * FINE
N_TENTHS = 10
MOST_ROWS = 1 << 53  # so that sums stay within 64 bits


def cell_of(log_odds: Floats) -> Ints:
    """The cell of every row."""
    cell: Ints = np.clip(np.floor(log_odds * FINE) + FARTHEST * FINE, 0, N_CELLS - 1).astype(np.int64)
    return cell


def count_cells(log_odds: Floats) -> Ints:
    """How many rows have log-odds in each cell."""
    return np.bincount(cell_of(log_odds), minlength=N_CELLS)


@dataclass(frozen=True)
class Deciles:
    """``edges`` has the log-odds at which one tenth of the rows ends and the next begins, and ``rows`` how many rows lie in each.

    Tenth i holds edges[i-1] <= log-odds < edges[i]. Where many rows have the same score there are fewer tenths, and not all are
    equally large.
    """

    edges: Floats
    rows: Ints

    @classmethod
    def of(cls, cells: Ints) -> Deciles:
        """The deciles of rows that were counted in cells.

        A boundary is where the rows below it come closest to so many tenths, midway between two cells with rows, so that there are
        rows on either side. If few rows differ from all others, they are still apart.

        >>> deciles = Deciles.of(count_cells(np.array([-1.0] * 2 + [1.0] * 98)))
        >>> deciles.edges.round(3).tolist(), deciles.rows.tolist()
        ([0.0], [2, 98])
        """
        taken = np.flatnonzero(cells)
        below = np.cumsum(cells[taken])
        if len(taken) < 2:
            return cls(np.zeros(0), below)
        targets = below[-1] * np.arange(1, N_TENTHS) / N_TENTHS
        last = np.unique(np.abs(below[:-1] - targets[:, None]).argmin(axis=1))  # the last taken cell of each tenth
        edges = (taken[last] + 1 + taken[last + 1]) // 2 - FARTHEST * FINE
        return cls(edges / FINE, np.diff(np.concatenate([[0], below[last], below[-1:]])))

    @property
    def n_rows(self) -> int:
        return int(self.rows.sum())

    def count(self, log_odds: Floats) -> Ints:
        """How many of these rows lie in each tenth."""
        return np.bincount(np.searchsorted(self.edges, log_odds, side="right"), minlength=len(self.rows))

    @classmethod
    def unpack(cls, edges: NDArray[Any], rows: NDArray[Any]) -> Deciles:
        """What a file has kept, checked."""
        few = edges.ndim == rows.ndim == 1 and len(edges) < N_TENTHS and len(rows) == len(edges) + 1
        require(few and edges.dtype == np.float64 and rows.dtype == np.int64, "its scores have no proper deciles")
        rising = bool(np.isfinite(edges).all()) and bool((np.diff(edges) > 0).all())
        require(rising and bool(((rows > 0) & (rows < MOST_ROWS)).all()), "its scores have no proper deciles")
        return cls(edges, rows)
