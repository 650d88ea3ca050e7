"""The yes/no target."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.errors import LabelError
from autocross.table.values import BOOLEAN_TEXTS, text_of


@dataclass(frozen=True)
class Labels:
    """``code`` is 1 where the label is the positive one; ``classes`` are the negative and the positive label."""

    code: NDArray[np.uint8]
    classes: tuple[Any, Any]


def plain(value: Any) -> Any:
    """A label as Python holds it, in a type that JSON has."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return float(value) if isinstance(value, Decimal) else text_of(value)


def label_text(value: Any) -> str | None:
    """What two labels are compared by, since booleans may come back from a file as text or as numbers."""
    text = text_of(plain(value))
    return None if text is None else BOOLEAN_TEXTS.get(text, text)


@dataclass(frozen=True)
class Classes:
    """The negative and the positive label, as they came."""

    smaller: Any
    larger: Any

    @property
    def words(self) -> tuple[Any, Any]:
        return plain(self.smaller), plain(self.larger)

    def codes(self, values: NDArray[Any]) -> NDArray[np.uint8]:
        """1 where the label is the positive one."""
        return np.asarray(values == self.larger).astype(np.uint8)


class LabelValues:
    """The labels met so far; all rows must have one."""

    def __init__(self, name: str, first_row: int = 0) -> None:
        self.name, self.n_rows = name, first_row
        self.distinct: NDArray[Any] | None = None

    def add(self, values: NDArray[Any]) -> None:
        """The labels of the next rows."""
        distinct = one_of_each(values)
        if any(label_text(value) is None for value in distinct.tolist()):
            missing = np.array([label_text(value) is None for value in values.tolist()])
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
        """Two values; the positive one is the larger, or the one named."""
        name, distinct = self.name, np.zeros(0) if self.distinct is None else self.distinct
        if len(distinct) < 2:
            held = f"the one class {plain(distinct[0])!r}" if len(distinct) else "no value"
            raise LabelError(f"The target {name!r} holds {held}, so there is nothing to learn. Give rows of two classes.")
        if len(distinct) > 2:
            shown = ", ".join(repr(plain(value)) for value in distinct[:3])
            raise LabelError(
                "Only binary classification is supported. The type of the target is multiclass. "
                f"Target {name!r} holds {len(distinct)} values ({shown}, ...). Make it a yes/no column."
            )
        larger = distinct[1]
        if positive is not None:
            matching = [value for value in distinct if value == positive or label_text(value) == label_text(positive)]
            if not matching:
                raise LabelError(
                    f"Option positive={positive!r} is no label of {name!r}, "
                    f"which holds {plain(distinct[0])!r} and {plain(distinct[1])!r}."
                )
            larger = matching[0]
        return Classes(distinct[0] if larger == distinct[1] else distinct[1], larger)


def one_of_each(values: NDArray[Any]) -> NDArray[Any]:
    """The distinct values, in any order: objects need not be sorted for it, since there may be millions."""
    if values.dtype != object:
        return np.unique(values)
    try:
        found = list(dict.fromkeys(values.tolist()))
    except TypeError:  # what cannot be hashed
        return values
    distinct = np.empty(len(found), object)
    distinct[:] = found
    return distinct


def read_labels(values: NDArray[Any], name: str, positive: Any = None) -> Labels:
    """Two values -> 0 and 1."""
    found = LabelValues(name)
    found.add(values)
    classes = found.classes(positive)
    return Labels(classes.codes(values), classes.words)


def match_labels(values: NDArray[Any], name: str, classes: tuple[Any, Any]) -> NDArray[np.uint8]:
    """Labels of new rows by the classes of a model, whatever type they come in."""
    codes = {label_text(classes[0]): 0, label_text(classes[1]): 1}
    for value in one_of_each(values).tolist():
        if label_text(value) not in codes:
            row = next(at for at, other in enumerate(values.tolist()) if label_text(other) not in codes)
            raise LabelError(
                f"The target {name!r} holds {plain(values[row])!r} in row {row}; the model knows {classes[0]!r} and {classes[1]!r}."
            )
    known = {value: codes[label_text(value)] for value in one_of_each(values).tolist()}
    return np.array([known[value] for value in values.tolist()], dtype=np.uint8)
