"""What every encoder of a column does. A kind of column is one file with a child of this class, and a line in the registry.

An encoder is fitted to the training values of its column, and turns values into the codes of its fields: those of many rows at
once, or of one row. It knows what a code stands for, and how it is written to a bundle and read again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from autocross.checks import Facts
from autocross.encoding.plan import EncodingPlan
from autocross.encoding.values import Value, without_value
from autocross.features import FIRST, Field, FieldCodes
from autocross.table.schema import ColumnSchema, Schema

Arrays = dict[str, NDArray[Any]]


class StoredArrays(Protocol):
    """The arrays of a bundle, which may be forged: shapes are compared before anything is read."""

    def expect(self, name: str, kind: str, shape: tuple[int | None, ...], complaint: str) -> tuple[int, ...]: ...
    def array(self, name: str, owner: str) -> NDArray[Any]: ...


@dataclass(frozen=True)
class Stem:
    """What is coded once a row: a field, or the finest intervals of a number, from which several fields are read.

    ``tables`` has, for each field that is read from it, the field's code for every code of the stem. Fields are numbered as those
    of their column are, or, once they are moved, as those of all columns.
    """

    n_codes: int
    field: int | None
    tables: Mapping[int, NDArray[Any]]
    ragged: bool = False

    def moved(self, by: int) -> Stem:
        """The same where so many fields come before those of the column."""
        tables = {by + place: table for place, table in self.tables.items()}
        return Stem(self.n_codes, None if self.field is None else by + self.field, tables, self.ragged)


@dataclass(frozen=True)
class ColumnEncoder(ABC):
    """One column's values -> the codes of its fields. A time or numerical column has several fields.

    ``coder`` is its word in a bundle, ``format`` the oldest format of a bundle whose readers know the word.
    """

    coder: ClassVar[str]
    format: ClassVar[int] = 1

    column: ColumnSchema

    # From values to codes.

    @classmethod
    @abstractmethod
    def fit(cls, schema: ColumnSchema, column: Any, plan: EncodingPlan, n: NDArray[np.int64] | None = None) -> ColumnEncoder:
        """Learn from a typed column; ``n`` says how many rows each entry of it stands for, by default one."""

    @property
    @abstractmethod
    def fields(self) -> tuple[Field, ...]:
        """What a weight can be learned for."""

    @property
    def ragged(self) -> bool:
        """Whether a row may hold any number of codes; there is one field then."""
        return False

    @abstractmethod
    def encode(self, column: Any) -> list[FieldCodes]:
        """The codes of all rows of a typed column, field by field."""

    @abstractmethod
    def encode_one(self, value: Any) -> tuple[Any, ...]:
        """The codes of one value as a caller gives it, field by field; where the column is ragged, a tuple of codes."""

    def contributions(self, weights: list[list[float]]) -> Callable[[Any], Sequence[float]]:
        """What one value adds to the log-odds, of fields with these weights by code. Looked up ahead where that can be done."""

        def by_code(value: Any) -> Sequence[float]:
            codes = self.encode_one(value)
            if self.ragged:
                return [weights[0][code] for code in codes[0]]
            return [weight[code] for weight, code in zip(weights, codes, strict=True)]

        return by_code

    # From codes to values.

    def value(self, place: int, code: int) -> Value:
        """What a code of the field at this place stands for."""
        return without_value(code) if code < FIRST else self.value_of(place, code - FIRST)

    @abstractmethod
    def value_of(self, place: int, number: int) -> Value:
        """What the code of this number stands for, counted from the first that is neither missing nor rare."""

    # What training asks for.

    @property
    def stems(self) -> tuple[Stem, ...]:
        """What is coded once a row: by default every field."""
        return tuple(Stem(field.n_codes, place, {}, self.ragged) for place, field in enumerate(self.fields))

    def stem_codes(self, column: Any) -> list[FieldCodes]:
        """The codes of all rows, stem by stem."""
        return self.encode(column)

    @abstractmethod
    def keep(self, places: Sequence[int]) -> Self:
        """Only these of its fields."""

    def widened(self, width: int) -> Self:
        """Wide enough for rows with so many codes."""
        return self

    def coarser(self, than: Sequence[Field]) -> tuple[NDArray[Any], ColumnEncoder] | None:
        """A field coarser than these, if there is one: its codes by those of the first stem, and its encoder."""
        return None

    def coarsest(self) -> Sequence[int]:
        """The places of the fields that do where there is little time: by default all."""
        return range(len(self.fields))

    def rest(self) -> None:  # noqa: B027 (most have nothing to let go of)
        """Let go of the tables by which many rows are encoded; they are made again when they are needed."""

    @property
    def n_texts(self) -> int:
        """How many texts it keeps, which take memory."""
        return 0

    # What is kept.

    def private(self, schema: Schema) -> ColumnEncoder:
        """The same codes without values that may say something about persons."""
        return self

    @abstractmethod
    def pack(self, number: int, arrays: Arrays) -> Facts:
        """What a bundle keeps of it: small facts, and among the arrays, by names that end in the column's number, long ones."""

    def unsaved(self) -> Arrays:
        """What a search depends on beyond what is packed."""
        return {}

    @classmethod
    @abstractmethod
    def expect(cls, number: int, entry: Facts, column: ColumnSchema, stored: StoredArrays) -> list[tuple[str, int]]:
        """The names of the fields that were packed, and their numbers of codes: facts are checked, and shapes, before all else."""

    @classmethod
    @abstractmethod
    def unpack(cls, number: int, entry: Facts, column: ColumnSchema, stored: StoredArrays) -> Self:
        """What was packed, once it is as expected: now the content of arrays is read and checked."""
