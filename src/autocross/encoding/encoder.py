"""A table's columns -> fields of codes: one encoder a column, all granularities side by side."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from autocross.encoding.discretize import Bins
from autocross.encoding.rules import EncodingRules
from autocross.encoding.timestamps import Calendar
from autocross.encoding.vocabulary import Vocabulary
from autocross.features import Field, FieldCodes
from autocross.table.columns import Column, ListColumn, NumberColumn, Table, TextColumn, TimeColumn
from autocross.table.schema import ColumnSchema, Schema


class ColumnEncoder(Protocol):
    """What every column's encoder can do; a time or numerical column has several fields."""

    @property
    def column(self) -> ColumnSchema: ...
    @property
    def fields(self) -> tuple[Field, ...]: ...
    @property
    def ragged(self) -> bool: ...
    def encode(self, column: Any) -> list[FieldCodes]: ...
    def encode_one(self, value: Any) -> tuple[Any, ...]: ...
    def describe(self, at: int, code: int) -> str: ...
    def keep(self, positions: Sequence[int]) -> ColumnEncoder: ...


def fit_column(schema: ColumnSchema, column: Column, rules: EncodingRules, n: NDArray[np.int64] | None) -> ColumnEncoder:
    """The encoder of one column, by its type."""
    if isinstance(column, (TextColumn, ListColumn)):
        return Vocabulary.fit(schema, column, rules, n)
    if isinstance(column, NumberColumn):
        return Bins.fit(schema, column, rules, n)
    assert isinstance(column, TimeColumn)
    return Calendar.fit(schema, column, rules.min_count, n)


@dataclass(frozen=True)
class Encoder:
    """All columns' encoders, in the order of the schema; their fields are numbered through."""

    schema: Schema
    columns: tuple[ColumnEncoder, ...]

    @classmethod
    def fit(
        cls, schema: Schema, columns: Mapping[str, Column], rules: EncodingRules, n: Mapping[str, NDArray[np.int64]] | None = None
    ) -> Encoder:
        """Learn vocabularies, edges and calendars from the training rows, or from distinct values and their numbers of rows."""
        used = [column for column in schema if column.kind != "ignore"]
        found = (fit_column(column, columns[column.name], rules, None if n is None else n[column.name]) for column in used)
        return cls(schema, tuple(found))

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return tuple(field for column in self.columns for field in column.fields)

    @cached_property
    def places(self) -> tuple[tuple[ColumnEncoder, int], ...]:
        """For every field its column's encoder and its place there."""
        return tuple((column, at) for column in self.columns for at in range(len(column.fields)))

    def encode(self, table: Table) -> list[FieldCodes]:
        """The codes of all rows, field by field."""
        return [codes for column in self.columns for codes in column.encode(table.columns[column.column.name])]

    def widened(self, codes: Sequence[FieldCodes]) -> Encoder:
        """Wide enough for these rows: a multi-value field knows how many codes a row may have."""
        columns, at = [], 0
        for column in self.columns:
            columns.append(column.widened(codes[at]) if isinstance(column, Vocabulary) else column)
            at += len(column.fields)
        return self if all(map(operator.is_, columns, self.columns)) else Encoder(self.schema, tuple(columns))

    def encode_one(self, row: Mapping[str, Any]) -> list[Any]:
        """The codes of one row, field by field; a multi-value field has a tuple of them. An absent column is missing."""
        codes: list[Any] = []
        for column in self.columns:
            codes.extend(column.encode_one(row.get(column.column.name)))
        return codes

    def describe(self, field: int, code: int) -> str:
        """The value behind a code, in words."""
        column, at = self.places[field]
        return column.describe(at, code)

    def keep(self, kept: Sequence[int]) -> Encoder:
        """Only these fields; a column left without any is no longer looked at."""
        wanted = set(kept)
        columns, first = [], 0
        for column in self.columns:
            positions = [at for at in range(len(column.fields)) if first + at in wanted]
            first += len(column.fields)
            if positions:
                columns.append(column.keep(positions))
        return Encoder(self.schema, tuple(columns))
