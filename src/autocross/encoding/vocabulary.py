"""Texts -> codes, for categorical and for multi-value columns.

Code 0 is missing, 1 rare or unseen, then one code a value, the most frequent first. Where a column has more values
than the cap, the frequent ones keep their codes and all others, unseen ones too, share hashed codes behind them.
A private vocabulary knows its values by their hashes only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from autocross.encoding.rules import EncodingRules
from autocross.features import FIRST, MISSING, RARE, Field, FieldCodes, narrowest
from autocross.table.columns import ListColumn, TextColumn
from autocross.table.schema import ColumnSchema, Schema
from autocross.table.values import MISSING_TEXTS, entries_of, refused, shown, stored_text

if TYPE_CHECKING:
    from autocross.table.places import Places

Ints = NDArray[np.int64]
FEW = 1_000  # texts that are looked up one by one

DIGEST = 16  # bytes of a private value's hash
FEWEST_SHOWN = 8  # of its digits


def bucket_of(text: str, n_buckets: int) -> int:
    """The bucket of a text: XXH64 of its UTF-8 bytes with seed 0, the same on every machine and in every version.

    >>> hex(xxhash.xxh64_intdigest(b"autocross")), bucket_of("autocross", 1000)
    ('0x18a402afca2fc01', 337)
    """
    return xxhash.xxh64_intdigest(text.encode("utf-8", "surrogatepass")) % n_buckets


@dataclass(frozen=True)
class Vocabulary:
    """The codes of one column's texts. ``width`` is 1, or for a multi-value column the most codes in a training row."""

    column: ColumnSchema
    values: tuple[str, ...]
    n_buckets: int = 0
    width: int = 1

    @classmethod
    def fit(cls, schema: ColumnSchema, column: TextColumn | ListColumn, rules: EncodingRules, n: Ints | None = None) -> Vocabulary:
        """Give codes to the values seen often enough; ``n`` says how many rows each entry of the column stands for."""
        values, index = column.distinct
        counts = np.zeros(len(values) + 1, np.int64)
        np.add.at(counts, index, 1 if n is None else n)
        counts = counts[:-1]  # the last are missing
        frequent = np.flatnonzero(counts >= rules.min_count)
        # Equally frequent values come as they are met first, which is their order: their names decide nothing.
        frequent = frequent[np.argsort(-counts[frequent], kind="stable")]
        kept = tuple(values[frequent[: rules.cap]].to_list())  # `gather` would plan a query first
        vocabulary = cls(schema, kept, rules.n_buckets if len(frequent) > rules.cap else 0)
        return vocabulary if isinstance(column, TextColumn) else vocabulary.widened(vocabulary.encode(column)[0].width)

    def widened(self, width: int) -> Vocabulary:
        """Wide enough for rows with so many codes."""
        return self if width <= self.width else replace(self, width=width)

    @cached_property
    def code(self) -> dict[str, int]:
        return {value: FIRST + at for at, value in enumerate(self.values)}

    @property
    def fields(self) -> tuple[Field, ...]:
        n_codes = FIRST + len(self.values) + self.n_buckets
        return (Field(self.column.name, self.column.name, n_codes, shares_rare=True, width=self.width),)

    @property
    def ragged(self) -> bool:
        return self.column.kind == "multivalue"

    def code_of(self, text: str | None) -> int:
        """The code of one text."""
        if text is None:
            return MISSING
        code = self.code.get(text)
        return self.code_of_other(text) if code is None else code

    def code_of_other(self, text: str) -> int:
        """The code of a text that has none of its own."""
        return FIRST + len(self.values) + bucket_of(text, self.n_buckets) if self.n_buckets else RARE

    @cached_property
    def known(self) -> Places:
        """All texts that have a code, those of missing values among them."""
        from autocross.table.places import Places  # not above: scoring single rows does without it

        return Places.of([None, *sorted(MISSING_TEXTS), *self.values])

    @cached_property
    def code_by_place(self) -> NDArray[Any]:
        """The codes of the known texts; the last entry is for unknown ones."""
        values = np.arange(FIRST, FIRST + len(self.values))
        n_missing = 1 + len(MISSING_TEXTS)
        return np.concatenate([np.full(n_missing, MISSING), values, [RARE]]).astype(narrowest(self.fields[0].n_codes))

    def rest(self) -> None:
        """Let go of what was made of the values to find them again."""
        for made in ("code", "known", "code_by_place"):
            self.__dict__.pop(made, None)

    def encode(self, column: TextColumn | ListColumn) -> list[FieldCodes]:
        """The codes of all rows."""
        if isinstance(column, ListColumn):
            return [distinct_codes(self.by_value(column), column.starts)]
        if len(column) <= FEW:  # for so few the table of known texts is not worth building
            texts = [None if text in MISSING_TEXTS else text for text in column.rows.to_list()]
            return [FieldCodes(np.array([*map(self.code_of, texts)], dtype=narrowest(self.fields[0].n_codes)))]
        codes = column.find(self.known, self.code_by_place)
        if self.n_buckets and len(unknown := np.flatnonzero(codes == RARE)):
            values, index = column.take(unknown).distinct
            codes[unknown] = np.array([*map(self.code_of, values.to_list())], dtype=codes.dtype)[index]
        return [FieldCodes(codes)]

    def by_value(self, column: TextColumn | ListColumn) -> NDArray[Any]:
        """The code of every text, each distinct one looked up once."""
        values, index = column.distinct
        table = np.array([*map(self.code_of, values.to_list()), MISSING], dtype=narrowest(self.fields[0].n_codes))
        codes: NDArray[Any] = table[index]
        return codes

    def encode_one(self, value: Any) -> tuple[Any, ...]:
        """The code of one value; for a multi-value column the codes of its entries."""
        if type(value) is str and not self.ragged and value in self.code:
            return (self.code[value],)
        column = self.column
        try:
            if self.ragged:
                return (self.encode_entries(entries_of(value, column.separator)),)
            return (self.code_of(stored_text(value, column.stored)),)
        except ValueError as error:
            raise refused(column.name, column.kind, "the row", shown(value), str(error)) from None

    def encode_entries(self, texts: list[str] | None) -> tuple[int, ...]:
        if texts is None:
            return (MISSING,)
        return tuple(sorted({self.code_of(text) for text in texts}))

    def describe(self, at: int, code: int) -> str:
        """The value behind a code, in words."""
        if code < FIRST:
            return "(missing)" if code == MISSING else "(rare)"
        if code < FIRST + len(self.values):
            return self.shown(self.values[code - FIRST])
        return f"(hashed {code - FIRST - len(self.values)})"

    def shown(self, value: str) -> str:
        """A value as it is shown: a text "(missing)" is not a missing one."""
        return repr(value) if value.startswith("(") else value

    def keep(self, positions: Sequence[int]) -> Vocabulary:
        """There is only the one field."""
        assert list(positions) == [0]
        return self

    def private(self, schema: Schema) -> Vocabulary:
        """The same codes for the hashes of the values, salted by the schema: equal fits have equal hashes, other tables others."""
        facts = [[column.name, column.kind, column.stored, column.separator] for column in schema]
        salt = blake2b(json.dumps([self.column.name, facts]).encode(), digest_size=DIGEST).hexdigest()
        hidden = PrivateVocabulary(self.column, (), self.n_buckets, self.width, salt)
        return replace(hidden, values=tuple(map(hidden.hash_of, self.values)))


@dataclass(frozen=True)
class PrivateVocabulary(Vocabulary):
    """A vocabulary whose values are hashes, in hexadecimal digits: BLAKE2b of the UTF-8 text, of 16 bytes, with the salt."""

    salt: str = ""

    def hash_of(self, text: str) -> str:
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST, salt=bytes.fromhex(self.salt)).hexdigest()

    def code_of(self, text: str | None) -> int:
        """The code of one text."""
        if text is None:
            return MISSING
        code = self.code.get(self.hash_of(text))
        return self.code_of_other(text) if code is None else code

    def encode(self, column: TextColumn | ListColumn) -> list[FieldCodes]:
        """The codes of all rows."""
        codes = self.by_value(column)
        return [distinct_codes(codes, column.starts) if isinstance(column, ListColumn) else FieldCodes(codes)]

    @cached_property
    def n_shown(self) -> int:
        """How many digits tell all hashes apart."""
        return next(n for n in range(FEWEST_SHOWN, 2 * DIGEST + 1) if len({value[:n] for value in self.values}) == len(self.values))

    def shown(self, value: str) -> str:
        """A hash as it is shown."""
        return f"#{value[: self.n_shown]}"

    def private(self, schema: Schema) -> Vocabulary:
        """It is private already."""
        return self


def distinct_codes(codes: NDArray[Any], starts: NDArray[np.int64]) -> FieldCodes:
    """Each code once a row, in ascending order: two rare values of one row are one rare code."""
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    pairs = np.unique(np.stack([rows, codes.astype(np.int64)], axis=1), axis=0) if len(codes) else np.zeros((0, 2), int)
    sizes = np.bincount(pairs[:, 0], minlength=len(starts) - 1)
    return FieldCodes(pairs[:, 1].astype(codes.dtype), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
