"""The yes/no target."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.errors import LabelError
from autocross.table.values import BOOLEAN_TEXTS, plain, shown, text_of, well_formed, whole_text

MOST_DIGITS = 4_000  # most digits of a label that is a whole number; Python reads and writes hardly more


@dataclass(frozen=True)
class Labels:
    """``code`` is 1 for the positive label and 0 for the negative one. ``classes`` has the negative and the positive label."""

    code: NDArray[np.uint8]
    classes: tuple[Any, Any]


def label_of(value: Any) -> Any:
    """A label in a Python type that JSON has, or None if it is missing. Raises ValueError if there is no such type."""
    value = plain(value)
    if isinstance(value, str) and value != well_formed(value):
        raise ValueError("Use labels that can be written: this has half a surrogate pair.")
    if isinstance(value, int) and len(whole_text(value)) > MOST_DIGITS:
        raise ValueError(f"Use labels of at most {MOST_DIGITS:,} digits.")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return float(value) if isinstance(value, Decimal) else text_of(value)


def label_text(value: Any) -> str | None:
    """The text by which labels are compared. Booleans may come back from a file as text or as numbers."""
    text = text_of(label_of(value))
    return None if text is None else BOOLEAN_TEXTS.get(text, text)


def label_texts(values: Iterable[Any], target: str) -> list[str | None]:
    """`label_text` of labels in the target column."""
    texts = []
    for value in values:
        try:
            texts.append(label_text(value))
        except ValueError as error:
            raise LabelError(f"The target {target!r} holds {shown(value)}. {error}") from None
    return texts


@dataclass(frozen=True)
class Classes:
    """The negative and the positive label, in their original form."""

    negative: Any
    positive: Any

    @property
    def words(self) -> tuple[Any, Any]:
        return label_of(self.negative), label_of(self.positive)

    def codes(self, values: NDArray[Any]) -> NDArray[np.uint8]:
        """1 where the label is the positive one."""
        return np.asarray(values == self.positive).astype(np.uint8)


class LabelValues:
    """Collects the distinct labels. Every row must have a label."""

    def __init__(self, name: str, first_row: int = 0) -> None:
        self.name, self.n_rows = name, first_row
        self.distinct: NDArray[Any] | None = None

    def add(self, values: NDArray[Any]) -> None:
        """The labels of the next rows."""
        distinct = one_of_each(values)
        if None in label_texts(distinct.tolist(), self.name):
            missing = np.array([text is None for text in label_texts(values.tolist(), self.name)])
            row = self.n_rows + int(np.argmax(missing))
            raise LabelError(
                f"The target {self.name!r} is missing in {int(missing.sum())} rows, first in row {row} (a NaN or an empty cell). "
                "Leave out rows without a label."
            )
        self.n_rows += len(values)
        self.add_distinct(distinct)

    def add_distinct(self, distinct: NDArray[Any] | None) -> None:
        """Labels that some rows have."""
        if distinct is None:
            return
        try:
            self.distinct = np.unique(distinct if self.distinct is None else np.concatenate([self.distinct, distinct]))
        except TypeError:
            raise LabelError(
                f"The target {self.name!r} mixes types that cannot be ordered. Use one type for both labels."
            ) from None

    @property
    def n_distinct(self) -> int:
        return 0 if self.distinct is None else len(self.distinct)

    def classes(self, positive: Any = None) -> Classes:
        """The two classes. The positive one is the larger, or the one that the user named."""
        name, distinct = self.name, np.zeros(0) if self.distinct is None else self.distinct
        if len(distinct) < 2:
            held = f"the one class {label_of(distinct[0])!r}" if len(distinct) else "no value"
            raise LabelError(f"The target {name!r} holds {held}, so there is nothing to learn. Give rows of two classes.")
        if len(distinct) > 2:
            examples = ", ".join(repr(label_of(value)) for value in distinct[:3])
            raise LabelError(
                "Only binary classification is supported. The type of the target is multiclass. "
                f"Target {name!r} holds {len(distinct)} values ({examples}, ...). Make it a yes/no column."
            )
        chosen = distinct[1]
        if positive is not None:
            matching = []
            with suppress(ValueError):  # what cannot be a label is not among them
                if (text := label_text(positive)) is not None:
                    matching = [value for value in distinct if value == positive or label_text(value) == text]
            if not matching:
                raise LabelError(
                    f"Option positive={shown(positive)} is no label of {name!r}, "
                    f"which holds {label_of(distinct[0])!r} and {label_of(distinct[1])!r}."
                )
            chosen = matching[0]
        return Classes(distinct[0] if chosen == distinct[1] else distinct[1], chosen)


def one_of_each(values: NDArray[Any]) -> NDArray[Any]:
    """The distinct values, in any order. Objects are not sorted for this, because there may be millions."""
    if values.dtype != object:
        return np.unique(values)
    try:
        unique = list(dict.fromkeys(values.tolist()))
    except TypeError:  # what cannot be hashed
        return values
    distinct = np.empty(len(unique), object)
    distinct[:] = unique
    return distinct


def read_labels(values: NDArray[Any], name: str, positive: Any = None) -> Labels:
    """Two values -> 0 and 1."""
    label_values = LabelValues(name)
    label_values.add(values)
    classes = label_values.classes(positive)
    return Labels(classes.codes(values), classes.words)


def match_labels(
    values: NDArray[Any], name: str, classes: tuple[Any, Any], rows: NDArray[np.int64] | None = None
) -> NDArray[np.uint8]:
    """The labels of new rows as 0 and 1, by the classes of a model, whatever type they have. ``rows`` has the numbers of the rows,
    if these are not 0, 1, ..."""
    codes = {label_text(classes[0]): 0, label_text(classes[1]): 1}
    distinct = one_of_each(values).tolist()
    texts = label_texts(distinct, name)
    if not codes.keys() >= set(texts):
        row = next(row for row, text in enumerate(label_texts(values.tolist(), name)) if text not in codes)
        raise LabelError(
            f"The target {name!r} holds {shown(label_of(values[row]))} in row {row if rows is None else rows[row]}; "
            f"the model knows {classes[0]!r} and {classes[1]!r}."
        )
    code_of = {value: codes[text] for value, text in zip(distinct, texts, strict=True)}
    return np.array([code_of[value] for value in values.tolist()], dtype=np.uint8)
