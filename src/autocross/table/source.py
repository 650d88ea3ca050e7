"""Where rows come from: a table in memory, or files that are read part by part, as often as needed, in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from autocross.table.files import batches, column_names


@dataclass(frozen=True)
class Part:
    """Some rows in sequence: their features, their labels as they came, and how much each counts."""

    features: pl.DataFrame
    label: NDArray[Any]
    weight: NDArray[np.float32]


class Source(Protocol):
    """Rows to learn from."""

    @property
    def target(self) -> str: ...
    @property
    def names(self) -> list[str]:
        """The columns beside the target and the weights."""

    @property
    def in_memory(self) -> bool: ...
    def parts(self) -> Iterator[Part]: ...


@dataclass(frozen=True)
class InMemory:
    """One part is all."""

    part: Part
    target: str
    in_memory = True

    @property
    def names(self) -> list[str]:
        return self.part.features.columns

    def parts(self) -> Iterator[Part]:
        yield self.part


@dataclass(frozen=True)
class InFiles:
    """Files too large for memory. ``split`` takes target and weights out of a frame whose first row has the number given."""

    path: Path
    as_text: Sequence[str]
    target: str
    besides: frozenset[str]
    split: Callable[[pl.DataFrame, int], Part]
    in_memory = False

    @property
    def names(self) -> list[str]:
        return [name for name in column_names(self.path) if name not in self.besides]

    def parts(self) -> Iterator[Part]:
        first_row = 0
        for frame in batches(self.path, self.as_text):
            yield self.split(frame, first_row)
            first_row += frame.height
