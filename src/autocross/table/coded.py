"""Columns of words for people and for other libraries: categories by their codes, and texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Category:
    """A column of categories: for every row a code, and for every code a text, all of which differ."""

    name: str
    codes: NDArray[Any]
    categories: list[str]
    ordered: bool


@dataclass(frozen=True)
class Texts:
    """A column of texts."""

    name: str
    texts: list[str]


def to_frame(columns: Sequence[Category | Texts]) -> pl.DataFrame:
    """The columns as a polars frame. Categories are an Enum, which is made of the codes without a text for every row."""
    import polars as pl  # not above: scoring single rows does without it

    return pl.DataFrame(
        [
            pl.Series(column.name, column.texts, pl.String)
            if isinstance(column, Texts)
            else pl.Series(column.name, column.categories, pl.Enum(column.categories)).gather(column.codes.astype(np.uint32))
            for column in columns
        ]
    )
