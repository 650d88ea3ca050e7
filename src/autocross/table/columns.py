"""Typed columns, whatever library the rows came from. Scoring single rows needs none of them, and must not import what they
need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl

    from autocross.table.places import Places

NO_TIME = np.iinfo(np.int64).min  # stands for a missing moment


@dataclass(frozen=True)
class TextColumn:
    """The text of each row. Null, and texts that mean the same, are missing. ``differ`` says that no two texts are equal."""

    rows: pl.Series
    differ: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def distinct(self) -> tuple[pl.Series, NDArray[np.int32]]:
        """The distinct texts and, for each row, the place of its text, or -1 for missing."""
        from autocross.table.places import factored

        return factored(self.rows, self.differ)

    def find(self, places: Places, table: NDArray[Any]) -> NDArray[Any]:
        """For each row, the entry of ``table`` at the number that its text has in ``places``. Unknown texts get the last entry."""
        return places.find(self.rows, table)

    def take(self, rows: NDArray[np.int64]) -> TextColumn:
        return TextColumn(self.rows.gather(rows))


@dataclass(frozen=True)
class ListColumn:
    """Distinct texts and, for each row, the places of its texts. A missing row has the place -1, an empty list has no place."""

    values: pl.Series
    index: NDArray[np.int32]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def distinct(self) -> tuple[pl.Series, NDArray[np.int32]]:
        return self.values, self.index


@dataclass(frozen=True)
class NumberColumn:
    """Numbers; NaN is missing."""

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
    """Columns by name. A column has a value for each row. If it is in ``index``, it has each distinct value once, and ``index``
    says which of them each row has."""

    n_rows: int
    columns: dict[str, Column]
    index: Mapping[str, NDArray[np.int32]] = field(default_factory=dict)
