"""Typed columns: plain arrays, whatever library the rows came from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NO_TIME = np.iinfo(np.int64).min  # micros of a missing moment


@dataclass(frozen=True)
class TextColumn:
    """Distinct texts and, for each row, the place of its text; -1 is missing."""

    values: list[str]
    index: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True)
class ListColumn:
    """Distinct texts and, for each row, the places of its texts; a missing row holds -1, an empty list nothing."""

    values: list[str]
    index: NDArray[np.int32]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1


@dataclass(frozen=True)
class NumberColumn:
    """NaN is missing."""

    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class TimeColumn:
    """Microseconds since 1970 on the wall clock; NO_TIME is missing."""

    micros: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.micros)


Column = TextColumn | ListColumn | NumberColumn | TimeColumn


@dataclass(frozen=True)
class Table:
    """Columns of equal length by name."""

    n_rows: int
    columns: dict[str, Column]
