"""Texts -> codes, for categorical and for multi-value columns.

Code 0 is missing and 1 is rare or unseen. Then comes a code for each value, the most frequent first. If a column has more values
than the cap, the most frequent ones keep their codes, and all others, including unseen ones, share hashed codes behind them. A
private vocabulary knows its values only by their hashes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from autocross.checks import Facts, expect_room, require
from autocross.encoding.column import Arrays, ColumnEncoder, StoredArrays
from autocross.encoding.plan import EncodingPlan
from autocross.encoding.values import Hash, Hashed, Text
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
SALT = re.compile(f"[0-9a-f]{{{2 * DIGEST}}}")


def bucket_of(text: str, n_buckets: int) -> int:
    """The bucket of a text: XXH64 of its UTF-8 bytes with seed 0, the same on every machine and in every version.

    >>> hex(xxhash.xxh64_intdigest(b"autocross")), bucket_of("autocross", 1000)
    ('0x18a402afca2fc01', 337)
    """
    return xxhash.xxh64_intdigest(text.encode("utf-8", "surrogatepass")) % n_buckets


@dataclass(frozen=True)
class Vocabulary(ColumnEncoder):
    """The codes of the texts of one column. ``width`` is 1 or, for a multi-value column, the most codes that a training row has."""

    coder: ClassVar[str] = "vocabulary"

    values: tuple[str, ...]
    n_buckets: int = 0
    width: int = 1

    @classmethod
    def fit(cls, schema: ColumnSchema, column: TextColumn | ListColumn, plan: EncodingPlan, n: Ints | None = None) -> Vocabulary:
        """Give codes to the values that are seen often enough. ``n`` says how many rows each entry of the column stands for."""
        values, index = column.distinct
        counts = np.zeros(len(values) + 1, np.int64)
        np.add.at(counts, index, 1 if n is None else n)
        counts = counts[:-1]  # the last are missing
        frequent = np.flatnonzero(counts >= plan.min_count)
        # Equally frequent values stay in the order in which they were first met, so that their spelling decides nothing.
        frequent = frequent[np.argsort(-counts[frequent], kind="stable")]
        kept = tuple(values[frequent[: plan.cap]].to_list())  # `gather` would plan a query first
        vocabulary = cls(schema, kept, plan.n_buckets if len(frequent) > plan.cap else 0)
        return vocabulary if isinstance(column, TextColumn) else vocabulary.widened(vocabulary.encode(column)[0].width)

    def widened(self, width: int) -> Self:
        """The vocabulary for rows with up to ``width`` codes."""
        return self if width <= self.width else replace(self, width=width)

    @cached_property
    def code(self) -> dict[str, int]:
        return {value: FIRST + position for position, value in enumerate(self.values)}

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
    def known_texts(self) -> Places:
        """All texts that have a code, including those that mean missing."""
        from autocross.table.places import Places  # not above: scoring single rows does without it

        return Places.of([None, *sorted(MISSING_TEXTS), *self.values])

    @cached_property
    def code_by_place(self) -> NDArray[Any]:
        """The codes of the known texts; the last entry is for unknown ones."""
        values = np.arange(FIRST, FIRST + len(self.values))
        n_missing = 1 + len(MISSING_TEXTS)
        return np.concatenate([np.full(n_missing, MISSING), values, [RARE]]).astype(narrowest(self.fields[0].n_codes))

    @property
    def n_texts(self) -> int:
        return len(self.values)

    def rest(self) -> None:
        """Free the tables in which values are looked up."""
        for name in ("code", "known_texts", "code_by_place"):
            self.__dict__.pop(name, None)

    def encode(self, column: TextColumn | ListColumn) -> list[FieldCodes]:
        """The codes of all rows."""
        if isinstance(column, ListColumn):
            return [distinct_codes(self.by_value(column), column.starts)]
        if len(column) <= FEW:  # building the table of known texts would take longer
            texts = [None if text in MISSING_TEXTS else text for text in column.rows.to_list()]
            return [FieldCodes(np.array([*map(self.code_of, texts)], dtype=narrowest(self.fields[0].n_codes)))]
        codes = column.find(self.known_texts, self.code_by_place)
        if self.n_buckets and len(unknown := np.flatnonzero(codes == RARE)):
            values, index = column.take(unknown).distinct
            codes[unknown] = np.array([*map(self.code_of, values.to_list())], dtype=codes.dtype)[index]
        return [FieldCodes(codes)]

    def by_value(self, column: TextColumn | ListColumn) -> NDArray[Any]:
        """The code of every text. Each distinct text is looked up once."""
        values, index = column.distinct
        table = np.array([*map(self.code_of, values.to_list()), MISSING], dtype=narrowest(self.fields[0].n_codes))
        codes: NDArray[Any] = table[index]
        return codes

    def encode_one(self, value: Any) -> tuple[Any, ...]:
        """The code of one value or, for a multi-value column, the codes of its entries."""
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

    def contributions(self, weights: list[list[float]]) -> Callable[[Any], Sequence[float]]:
        """What one value adds to the log-odds. If the column holds one text per row, the text itself is looked up first."""
        by_code = super().contributions(weights)
        if self.ragged:
            return by_code
        missing, stored = by_code(None), self.column.stored
        by_text = {text: [weights[0][code]] for text, code in self.code.items() if stored_text(text, stored) == text}

        def by_word(value: Any) -> Sequence[float]:
            if type(value) is str:
                return by_text[value] if value in by_text else by_code(value)
            return missing if value is None else by_code(value)

        return by_word

    def value_of(self, place: int, number: int) -> Text | Hash | Hashed:
        """A value that has a code of its own, or the bucket of those that have none."""
        return self.known_value(number) if number < len(self.values) else Hashed(number - len(self.values))

    def known_value(self, number: int) -> Text | Hash:
        return Text(self.values[number])

    def keep(self, places: Sequence[int]) -> Self:
        """The encoder itself: there is only one field."""
        assert list(places) == [0]
        return self

    def pack(self, number: int, arrays: Arrays) -> Facts:
        """Pack the texts joined into one, and where each ends, counted in characters."""
        arrays[f"text.{number}"] = np.frombuffer("".join(self.values).encode("utf-8", "surrogatepass"), np.uint8)
        arrays[f"ends.{number}"] = np.cumsum([len(value) for value in self.values], dtype=np.int64)
        return {"n_buckets": self.n_buckets, "width": self.width}

    @classmethod
    def expect(cls, number: int, entry: Facts, column: ColumnSchema, stored: StoredArrays) -> list[tuple[str, int]]:
        owner = f"column {column.name!r}"
        n_values = cls.expect_values(number, entry, owner, stored)
        expect_room(entry, n_values, owner)
        require(entry["width"] == 1 or column.kind == "multivalue", f"{owner} has no proper width")
        return [(column.name, FIRST + n_values + entry["n_buckets"])]

    @classmethod
    def expect_values(cls, number: int, entry: Facts, owner: str, stored: StoredArrays) -> int:
        """How many values there are."""
        complaint = f"{owner} has no proper vocabulary"
        stored.expect(f"text.{number}", "U8", (None,), complaint)
        (n_values,) = stored.expect(f"ends.{number}", "I64", (None,), complaint)
        return n_values

    @classmethod
    def unpack(cls, number: int, entry: Facts, column: ColumnSchema, stored: StoredArrays) -> Self:
        owner = f"column {column.name!r}"
        values = unpack_texts(owner, stored.array(f"text.{number}", owner), stored.array(f"ends.{number}", owner))
        # Otherwise a single row, whose text is looked up unchanged, could find a value that a table never finds.
        as_read = all(stored_text(value, column.stored) == value for value in values)
        require(as_read, f"{owner} has a vocabulary with a value that is never read")
        return cls(column, values, entry["n_buckets"], entry["width"])

    def private(self, schema: Schema) -> Vocabulary:
        """The same codes for the hashes of the values. The salt depends on the schema, so equal fits have equal hashes, and other
        tables have other hashes."""
        facts = [[column.name, column.kind, column.stored, column.separator] for column in schema]
        salt = blake2b(json.dumps([self.column.name, facts]).encode(), digest_size=DIGEST).hexdigest()
        hidden = PrivateVocabulary(self.column, (), self.n_buckets, self.width, salt)
        return replace(hidden, values=tuple(map(hidden.hash_of, self.values)))


@dataclass(frozen=True)
class PrivateVocabulary(Vocabulary):
    """A vocabulary whose values are hashes in hexadecimal digits: BLAKE2b of the UTF-8 text, 16 bytes, with a salt."""

    coder: ClassVar[str] = "hashes"
    format: ClassVar[int] = 3  # an older reader would not find the values, because it does not hash

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
        """How many digits are enough to tell all hashes apart."""
        return next(n for n in range(FEWEST_SHOWN, 2 * DIGEST + 1) if len({value[:n] for value in self.values}) == len(self.values))

    def known_value(self, number: int) -> Hash:
        return Hash(self.values[number], self.n_shown)

    def private(self, schema: Schema) -> Vocabulary:
        """It is private already."""
        return self

    def contributions(self, weights: list[list[float]]) -> Callable[[Any], Sequence[float]]:
        """What one value adds to the log-odds. Nothing can be looked up ahead, because the texts are not known."""
        return ColumnEncoder.contributions(self, weights)

    def pack(self, number: int, arrays: Arrays) -> Facts:
        """Pack the bytes of the hashes, one row for each."""
        hashes = bytearray.fromhex("".join(self.values))
        arrays[f"hash.{number}"] = np.frombuffer(hashes, np.uint8).reshape(-1, DIGEST)
        return {"n_buckets": self.n_buckets, "width": self.width, "salt": self.salt}

    @classmethod
    def expect_values(cls, number: int, entry: Facts, owner: str, stored: StoredArrays) -> int:
        n_values, _ = stored.expect(f"hash.{number}", "U8", (None, DIGEST), f"{owner} has no proper vocabulary")
        require(isinstance(entry["salt"], str) and SALT.fullmatch(entry["salt"]) is not None, f"{owner} has no proper salt")
        return n_values

    @classmethod
    def unpack(cls, number: int, entry: Facts, column: ColumnSchema, stored: StoredArrays) -> Self:
        owner = f"column {column.name!r}"
        values = tuple(value.tobytes().hex() for value in stored.array(f"hash.{number}", owner))
        require(len(set(values)) == len(values), f"{owner} has a vocabulary with one value twice")
        return cls(column, values, entry["n_buckets"], entry["width"], entry["salt"])


def distinct_codes(codes: NDArray[Any], starts: NDArray[np.int64]) -> FieldCodes:
    """The codes of each row without repetition, in ascending order. Two rare values of a row give one rare code."""
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    pairs = np.unique(np.stack([rows, codes.astype(np.int64)], axis=1), axis=0) if len(codes) else np.zeros((0, 2), int)
    sizes = np.bincount(pairs[:, 0], minlength=len(starts) - 1)
    return FieldCodes(pairs[:, 1].astype(codes.dtype), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))


def unpack_texts(owner: str, content: NDArray[Any], ends: NDArray[Any]) -> tuple[str, ...]:
    """The texts that were joined into one. ``ends`` says where each ends, counted in characters."""
    text = content.tobytes().decode()
    bounds = [0, *ends.tolist()]
    in_order = all(a <= b for a, b in pairwise(bounds)) and bounds[-1] == len(text)
    require(in_order, f"{owner} has a vocabulary with impossible lengths")
    values = tuple(text[a:b] for a, b in pairwise(bounds))
    require(len(set(values)) == len(values), f"{owner} has a vocabulary with one value twice")
    return values
