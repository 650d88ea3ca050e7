"""One row in a few microseconds: each value is looked up once, and a single compiled call does the rest.

The values of a row are written into a buffer, which each thread keeps: the codes of texts, and numbers as they are. Then
`kernels.scoring` bins, crosses, looks up and adds, by a plan that is made once for a model.
"""

from __future__ import annotations

import math
import struct
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import getitem
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autocross.crossing import MODULUS, CrossCoder
from autocross.encoding.column import ColumnEncoder
from autocross.encoding.discretize import Bins
from autocross.encoding.vocabulary import Vocabulary
from autocross.features import FIRST, MISSING, RARE
from autocross.table.values import MISSING_TEXTS

if TYPE_CHECKING:
    from autocross.producer.model import Model

Words = NDArray[np.int64]
SMALL = 1 << 12  # a cross with so many keys always has a table of all of them
NUMBERS = frozenset({float, int})  # types whose values are written into the buffer as they are
LARGE = 1 << 63  # whole numbers beyond this have a text too, but Python may refuse to write it
WORD = 8  # bytes


def compiled(model: Model) -> OneRow | None:
    """What scores single rows by compiled code. None if Numba is not there, or if the model has a part that the plan cannot say:
    an addition, or a column with several values a row."""
    if model.additions or any(column.ragged for column in model.producer.encoder.columns):
        return None
    try:
        from autocross.kernels import scoring  # not above: it imports Numba
    except ImportError:
        return None
    return OneRow(model, scoring.log_odds)


class Codes(dict[Any, int]):
    """The codes of the texts of a column. A value that is not among them is read as any value is. The most frequent cases of that
    have a shorter way: a whole number, and a text that was never seen."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary.code)
        self.update(dict.fromkeys((None, *MISSING_TEXTS), MISSING))
        self.vocabulary = vocabulary
        others_are_rare, stored = not vocabulary.n_buckets, vocabulary.column.stored
        self.digits_are_text = others_are_rare and stored in ("text", "number")
        self.text_is_text = others_are_rare and stored == "text"

    def __missing__(self, value: Any) -> int:
        if self.text_is_text and type(value) is str and value.isascii():
            return RARE
        if self.digits_are_text and type(value) is int and -LARGE < value < LARGE:
            return self.get(str(value), RARE)
        code: int = self.vocabulary.encode_one(value)[0]
        return code


class Buffer(threading.local):
    """The words of a row, once for each thread, as bytes to write into and as an array."""

    def __init__(self, n_words: int) -> None:
        memory = array("q", bytes(WORD * n_words))
        self.views = memory, np.frombuffer(memory, np.int64)


class OneRow:
    """Scores single rows of a model without additions, whose columns have one value a row."""

    def __init__(self, model: Model, log_odds: Callable[[Words, Words, Words], float]) -> None:
        self.kernel = log_odds
        columns = model.producer.encoder.columns
        n_fields = len(model.producer.encoder.fields)
        places = accumulate((len(column.fields) for column in columns), initial=0)
        self.texts: dict[int, Vocabulary] = {}  # by the place of their field
        self.bins: dict[str, list[tuple[int, Bins]]] = {}  # a number may have several encoders
        self.others: list[tuple[int, ColumnEncoder, struct.Struct]] = []
        for place, column in zip(places, columns, strict=False):
            if type(column) is Vocabulary:
                self.texts[place] = column
            elif type(column) is Bins:
                self.bins.setdefault(column.column.name, []).append((place, column))
            else:
                self.others.append((place, column, struct.Struct(f"={len(column.fields)}q")))
        self.names_of_texts = [column.column.name for column in self.texts.values()]
        self.codes_of_texts = [*map(Codes, self.texts.values())]
        self.numbers = [encoders[0][1] for encoders in self.bins.values()]
        gaps = "".join("q" if place in self.texts else "8x" for place in range(n_fields))
        self.pack = struct.Struct(f"={gaps}{len(self.numbers)}d").pack_into
        self.plan, self.words = plan_of(model, [*self.bins.values()])
        self.buffer = Buffer(n_fields + len(self.numbers))

    def log_odds(self, row: Mapping[str, Any]) -> float:
        """The log-odds of one row."""
        memory, words = self.buffer.views
        get = row.get
        numbers = [*map(get, self.bins)]
        if not NUMBERS.issuperset(map(type, numbers)):
            numbers = [
                math.nan if value is None else value if type(value) in NUMBERS else column.number(value)
                for value, column in zip(numbers, self.numbers, strict=True)
            ]
        try:
            self.pack(memory, 0, *map(getitem, self.codes_of_texts, map(get, self.names_of_texts)), *numbers)
        except Exception:  # a value that cannot be hashed, a number beyond all floats, or one that is refused
            codes = [column.encode_one(get(column.column.name))[0] for column in self.texts.values()]
            self.pack(memory, 0, *codes, *(column.number(value) for value, column in zip(numbers, self.numbers, strict=True)))
        for place, column, codes_of in self.others:
            codes_of.pack_into(memory, WORD * place, *column.encode_one(get(column.column.name)))
        return self.kernel(self.plan, self.words, words)


class Memory:
    """Words that are appended, and where each group of them begins."""

    def __init__(self) -> None:
        self.parts: list[Words] = []
        self.n = 0

    def add(self, words: NDArray[Any]) -> int:
        """Append whole numbers, or floats by their bits. Returns where they begin."""
        words = words.view(np.int64) if words.dtype == np.float64 else words.astype(np.int64)
        self.parts.append(words)
        self.n += len(words)
        return self.n - len(words)


def plan_of(model: Model, bins: Sequence[Sequence[tuple[int, Bins]]]) -> tuple[Words, Words]:
    """The plan and the words by which `kernels.scoring` computes the log-odds of a model. ``bins`` has the encoders of each number,
    with the places of their fields."""
    memory, n_fields = Memory(), len(model.producer.encoder.fields)
    memory.add(np.array([model.intercept], np.float64))
    plan = [len(bins)]
    for number, encoders in enumerate(bins):
        plan += [n_fields + number, *steps_of_number(encoders, memory)]
    plan += [n_fields, *(memory.add(weight.astype(np.float64)) for weight in model.weights[:n_fields])]
    plan.append(len(model.producer.crosses))
    for cross, weight in zip(model.producer.crosses, model.weights[n_fields:], strict=True):
        plan += steps_of_cross(cross, weight.astype(np.float64), memory)
    return np.array(plan, np.int64), np.concatenate(memory.parts)


def steps_of_number(encoders: Sequence[tuple[int, Bins]], memory: Memory) -> Iterator[int]:
    """The part of the plan that bins a number. One search serves all fields that are read from it."""
    first = encoders[0][1]
    together = Bins(first.column, sum((one.names for _, one in encoders), ()), sum((one.edges for _, one in encoders), ()))
    fields = [place + number for place, one in encoders for number in range(len(one.edges))]
    yield from (memory.add(together.merged), len(together.merged), len(fields))
    for field, codes in zip(fields, together.codes_by_interval, strict=True):
        yield from (field, memory.add(codes))


def steps_of_cross(cross: CrossCoder, weight: NDArray[np.float64], memory: Memory) -> list[int]:
    """The part of the plan that finds the weight of a cross: in a table of all keys, unless slots take less room."""
    from autocross.kernels import scoring

    span, n_slots = math.prod(cross.sizes), 1 << (2 * len(cross.keys)).bit_length()
    of_keys, others = weight[FIRST : FIRST + len(cross.keys)], weight[FIRST + len(cross.keys) :]
    at_others = memory.add(others)
    if span <= max(SMALL, 2 * n_slots) and span <= MODULUS:
        table = others[np.arange(span) % cross.n_buckets] if cross.n_buckets else np.full(span, weight[RARE])
        table[cross.keys] = of_keys
        first, mask = memory.add(table), scoring.DIRECT
    else:
        slots = np.empty((n_slots, 2), np.int64)
        slots[:, 0], slots[:, 1] = scoring.EMPTY, weight[RARE : RARE + 1].view(np.int64)
        scoring.enter(cross.keys, of_keys.view(np.int64), 0, n_slots - 1, slots.reshape(-1))
        first, mask = memory.add(slots.reshape(-1)), n_slots - 1
    steps, keys = [len(cross.fields), first, mask, at_others, cross.n_buckets], 1
    for field, size in zip(cross.fields, cross.sizes, strict=True):
        keys *= size
        steps += [field, size, int(keys > MODULUS)]
    return steps
