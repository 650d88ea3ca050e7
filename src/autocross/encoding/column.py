"""What every encoder of a column can do. A kind of column is one file with a child of this class, and one call of `register`.

An encoder is fitted to the training values of its column. It turns values into the codes of its fields, for many rows at once or
for a single row. It knows what a code stands for, and how to write itself to a bundle and read itself again.
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
    """The arrays of a bundle. The bundle may be forged, so shapes are compared before any content is read."""

    def expect(self, name: str, kind: str, shape: tuple[int | None, ...], complaint: str) -> tuple[int, ...]: ...
    def array(self, name: str, owner: str) -> NDArray[Any]: ...


@dataclass(frozen=True)
class Stem:
    """What is written once for each row: the codes of a field, or the finest intervals of a number, from which the codes of several
    fields are read.

    ``field`` is the field whose codes these are, if there is such a field. ``tables`` has, for each field that is read from the
    stem, the code of the field for every code of the stem. Fields are numbered within their column or, after `moved`, among those
    of all columns.
    """

    n_codes: int
    field: int | None
    tables: Mapping[int, NDArray[Any]]
    ragged: bool = False

    def moved(self, by: int) -> Stem:
        """The same stem, with fields numbered among those of all columns: ``by`` fields come before those of this column."""
        tables = {by + place: table for place, table in self.tables.items()}
        return Stem(self.n_codes, None if self.field is None else by + self.field, tables, self.ragged)


@dataclass(frozen=True)
class ColumnEncoder(ABC):
    """Turns the values of one column into the codes of its fields. A time or numerical column has several fields.

    ``coder`` is the word for the encoder in a bundle. ``format`` is the oldest format of bundles whose readers know that word.
    """

    coder: ClassVar[str]
    format: ClassVar[int] = 1

    column: ColumnSchema

    # From values to codes.

    @classmethod
    @abstractmethod
    def fit(cls, schema: ColumnSchema, column: Any, plan: EncodingPlan, n: NDArray[np.int64] | None = None) -> ColumnEncoder:
        """Learn from a typed column. ``n`` says how many rows each entry stands for; the default is one."""

    @property
    @abstractmethod
    def fields(self) -> tuple[Field, ...]:
        """The fields of this column."""

    @property
    def ragged(self) -> bool:
        """Whether a row may hold any number of codes. Such a column has a single field."""
        return False

    @abstractmethod
    def encode(self, column: Any) -> list[FieldCodes]:
        """The codes of all rows of a typed column, field by field."""

    @abstractmethod
    def encode_one(self, value: Any) -> tuple[Any, ...]:
        """The codes of one value, as the caller gives it, field by field. If the column is ragged, its field has a tuple of
        codes."""

    def contributions(self, weights: list[list[float]]) -> Callable[[Any], Sequence[float]]:
        """A function that says what one value adds to the log-odds. ``weights`` has, for each field, a weight for each code.
        Encoders look up as much as they can ahead of the first row."""

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
        """What a code stands for. ``number`` counts from the first code that is neither missing nor rare."""

    # What training asks for.

    @property
    def stems(self) -> tuple[Stem, ...]:
        """The stems of this column; by default each field is a stem."""
        return tuple(Stem(field.n_codes, place, {}, self.ragged) for place, field in enumerate(self.fields))

    def stem_codes(self, column: Any) -> list[FieldCodes]:
        """The codes of all rows, stem by stem."""
        return self.encode(column)

    @abstractmethod
    def keep(self, places: Sequence[int]) -> ColumnEncoder:
        """The encoder with only these of its fields."""

    def placed(self, codes: Sequence[FieldCodes], weight: NDArray[np.float64]) -> ColumnEncoder:
        """The encoder that knows where the codes of its fields lie on a line, by their codes in all rows, if there is a line."""
        return self

    def widened(self, width: int) -> Self:
        """The encoder for rows with up to ``width`` codes, if the field has to know that."""
        return self

    def coarser(self, than: Sequence[Field]) -> tuple[NDArray[Any], ColumnEncoder] | None:
        """A field that is coarser than these, if the encoder has one: a table from codes of the first stem to its codes, and its
        encoder."""
        return None

    def coarsest(self) -> Sequence[int]:
        """The places of the fields that are enough if there is little time; by default all."""
        return range(len(self.fields))

    def rest(self) -> None:  # noqa: B027 (most have nothing to free)
        """Free the tables by which many rows are encoded. They are made again when they are needed."""

    @property
    def n_texts(self) -> int:
        """How many texts the encoder keeps in memory."""
        return 0

    # What is kept.

    def private(self, schema: Schema) -> ColumnEncoder:
        """An encoder with the same codes that does not keep values, which may say something about people."""
        return self

    @abstractmethod
    def pack(self, number: int, arrays: Arrays) -> Facts:
        """What a bundle keeps: small facts are returned, and long ones are added to the arrays, by names that end in the column's
        number."""

    def unsaved(self) -> Arrays:
        """What a search depends on, but a bundle does not keep."""
        return {}

    @classmethod
    @abstractmethod
    def expect(cls, number: int, entry: Facts, column: ColumnSchema, stored: StoredArrays) -> list[tuple[str, int]]:
        """The names of the packed fields, and how many codes each has. Facts and shapes are checked here, before any content is
        read."""

    @classmethod
    @abstractmethod
    def unpack(cls, number: int, entry: Facts, column: ColumnSchema, stored: StoredArrays) -> Self:
        """The encoder that was packed. It was checked by `expect` before; now the content of the arrays is read and checked."""
