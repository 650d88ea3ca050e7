"""The columns of a table -> fields of codes. Each column has its own encoder, with all its granularities."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from autocross.encoding import registry
from autocross.encoding.column import ColumnEncoder, Stem
from autocross.encoding.plan import EncodingPlan
from autocross.encoding.values import Value
from autocross.features import Field, FieldCodes, narrowest
from autocross.table.columns import Column, Table
from autocross.table.schema import ColumnSchema, Schema

T = TypeVar("T")
Each = Callable[..., Iterable[T]]  # `map`, or a parallel version of it


def spread(codes: FieldCodes, index: NDArray[np.int32]) -> FieldCodes:
    """The codes of rows: ``codes`` has those of the distinct values, and ``index`` says which value each row has."""
    from autocross.kernels import lookup  # not above: scoring single rows does without it

    codes_of_rows = np.empty(len(index), codes.codes.dtype)
    lookup.spread(codes.codes, index, codes_of_rows)
    return FieldCodes(codes_of_rows)


def stem_codes(column: ColumnEncoder, table: Table) -> list[FieldCodes]:
    """A column's codes in all rows, stem by stem."""
    codes = column.stem_codes(table.columns[column.column.name])
    index = table.index.get(column.column.name)
    return codes if index is None else [spread(coded, index) for coded in codes]


@dataclass(frozen=True)
class Encoder:
    """The encoders of all columns, in the order of the schema. Fields are numbered across all columns."""

    schema: Schema
    columns: tuple[ColumnEncoder, ...]

    @classmethod
    def fit(
        cls,
        schema: Schema,
        columns: Mapping[str, Column],
        plan: EncodingPlan,
        n: Mapping[str, NDArray[np.int64]] | None = None,
        each: Each[ColumnEncoder] = map,
    ) -> Encoder:
        """Learn codes from the training rows, or from distinct values and the number of rows of each."""

        def fitted(column: ColumnSchema) -> ColumnEncoder:
            encoder = registry.OF_KIND[column.kind]
            return encoder.fit(column, columns[column.name], plan, None if n is None else n[column.name])

        return cls(schema, tuple(each(fitted, [column for column in schema if column.kind != "ignore"])))

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return tuple(field for column in self.columns for field in column.fields)

    @cached_property
    def places(self) -> tuple[tuple[ColumnEncoder, int], ...]:
        """For every field, the encoder of its column and its place among the fields of that column."""
        return tuple((column, place) for column in self.columns for place in range(len(column.fields)))

    @cached_property
    def place_of(self) -> dict[str, int]:
        """The places of the columns in the schema."""
        return {column.name: place for place, column in enumerate(self.schema)}

    def encode(self, table: Table) -> list[FieldCodes]:
        """The codes of all rows, field by field."""
        return [codes for column in self.columns for codes in column.encode(table.columns[column.column.name])]

    @property
    def origins(self) -> dict[int, tuple[int, NDArray[Any] | None]]:
        """For every field, its stem, and a table from codes of the stem to codes of the field, unless these are the same."""
        origins: dict[int, tuple[int, NDArray[Any] | None]] = {}
        for number, stem in enumerate(self.stems):
            origins |= {field: (number, table) for field, table in stem.tables.items()}
            if stem.field is not None:
                origins[stem.field] = number, None
        return origins

    @cached_property
    def stems(self) -> tuple[Stem, ...]:
        """The stems of all columns, with fields numbered across all columns."""
        stems: list[Stem] = []
        first = 0
        for column in self.columns:
            stems += [stem.moved(first) for stem in column.stems]
            first += len(column.fields)
        return tuple(stems)

    @property
    def stems_of_columns(self) -> dict[str, range]:
        """The stems of each column, by their numbers."""
        stems, first = {}, 0
        for column in self.columns:
            stems[column.column.name] = range(first, first + len(column.stems))
            first = stems[column.column.name].stop
        return stems

    @property
    def bytes_a_row(self) -> int:
        """Bytes that the codes of a row take, those of stems and of the fields read from them. Multi-value fields are not
        counted."""
        kinds = [narrowest(stem.n_codes) for stem in self.stems if not stem.ragged]
        kinds += [narrowest(self.fields[number].n_codes) for stem in self.stems for number in stem.tables]
        return sum(np.dtype(kind).itemsize for kind in kinds)

    def widened(self, widths: Sequence[int]) -> Encoder:
        """The encoder for rows with up to so many codes of each stem. A multi-value field has to know how many codes a row may
        have."""
        columns, first = [], 0
        for column in self.columns:
            last = first + len(column.stems)
            columns.append(column.widened(max(widths[first:last])))
            first = last
        return self if all(map(operator.is_, columns, self.columns)) else Encoder(self.schema, tuple(columns))

    def fitted_to(self, codes: Sequence[FieldCodes], weight: NDArray[np.float64]) -> Encoder:
        """The encoder for rows like these, given by their codes of all fields and their weights: how many codes a row may have, and
        where bins lie on a line."""
        widened = self.widened([1 if stem.field is None else codes[stem.field].width for stem in self.stems])
        columns, first = [], 0
        for column in widened.columns:
            last = first + len(column.fields)
            columns.append(column.placed(codes[first:last], weight))
            first = last
        return Encoder(self.schema, tuple(columns))

    def rest(self) -> None:
        """Free the tables by which many rows are encoded. They are made again when they are needed."""
        for column in self.columns:
            column.rest()

    def private(self) -> Encoder:
        """The same codes, without the values of categories."""
        return Encoder(self.schema, tuple(column.private(self.schema) for column in self.columns))

    def encode_one(self, row: Mapping[str, Any]) -> list[Any]:
        """The codes of one row, field by field. A multi-value field has a tuple of codes. An absent column counts as missing."""
        codes: list[Any] = []
        for column in self.columns:
            codes.extend(column.encode_one(row.get(column.column.name)))
        return codes

    def value(self, field: int, code: int) -> Value:
        """What a code of a field stands for."""
        column, place = self.places[field]
        return column.value(place, code)

    def coarse(self, kept: Encoder) -> list[tuple[int, NDArray[Any], ColumnEncoder]]:
        """Fields that are coarser than those kept of their columns: for each, its stem, a table from codes of the stem to its
        codes, and its encoder."""
        left = {column.column.name: column.fields for column in kept.columns}
        fields, stem = [], 0
        for column in self.columns:
            if coarser := column.coarser(left[column.column.name]):
                fields.append((stem, *coarser))
            stem += len(column.stems)
        return fields

    def coarsest(self) -> list[int]:
        """All fields, except those of a number that has a field with fewer bins."""
        kept: list[int] = []
        first = 0
        for column in self.columns:
            kept += [first + place for place in column.coarsest()]
            first += len(column.fields)
        return kept

    def keep(self, kept: Sequence[int]) -> Encoder:
        """The encoder with only these fields. A column that has none of them is dropped."""
        wanted = set(kept)
        columns, first = [], 0
        for column in self.columns:
            places = [place for place in range(len(column.fields)) if first + place in wanted]
            first += len(column.fields)
            if places:
                columns.append(column.keep(places))
        return Encoder(self.schema, tuple(columns))
