"""How much rows count: sums of sample weights, and weights of classes.

Sample weights are floats, but their sum must not depend on how rows are divided. So digits are added up as whole numbers. Only the
ratios of weights count, so all weights are divided by the power of two that brings their mean between 1 and 2; this rounds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.errors import OptionError
from autocross.options import BALANCED
from autocross.table.labels import label_text, label_texts, one_of_each
from autocross.table.values import shown

Ints = NDArray[np.int64]
ClassWeights = Mapping[str, float]  # by the texts of the labels

DIGITS, POWERS = 24, 149  # a 32-bit float has 24 binary digits, and the smallest is a multiple of 2^-149


def weigh(weight: NDArray[np.float32]) -> Ints:
    """For each power of two, the summed digits of the weights with that power, as whole numbers."""
    digits, power = np.frexp(weight)
    return np.bincount(power + POWERS, digits * 2.0**DIGITS, POWERS + 130).astype(np.int64)


def weighed(sums: Ints) -> float:
    """The sum of the weights, rounded once.

    >>> weighed(weigh(np.array([0.1, 1e9, 3e-9], np.float32)) + weigh(np.array([2.5], np.float32)))
    1000000002.6
    """
    return math.fsum(math.ldexp(float(digits), power - POWERS - DIGITS) for power, digits in enumerate(sums.tolist()))


def mean_exponent(total_weight: float, n_rows: int) -> int:
    """The exponent of the power of two that brings the mean weight between 1 and 2.

    >>> mean_exponent(100.0, 100), mean_exponent(1e8, 100), mean_exponent(0.5, 100)
    (0, 19, -8)
    """
    return math.frexp(total_weight / n_rows)[1] - 1


def class_weights(
    wanted: str | Mapping[Any, float], rows: Iterable[tuple[NDArray[Any], NDArray[np.float32]]], target: str
) -> ClassWeights:
    """The weights of the labels in these rows, which come part by part as labels and sample weights.

    Balanced weights are scikit-learn's: the weight of all rows, divided by that of the label's rows and by the number of labels.
    """
    sums: dict[str, Ints] = {}
    for values, weight in rows:
        distinct = one_of_each(values)
        for value, text in zip(distinct.tolist(), label_texts(distinct.tolist(), target), strict=True):
            if text is not None:  # a missing label is an error later on
                sums[text] = sums.get(text, 0) + weigh(weight[np.asarray(values == value)])
    if wanted == BALANCED:
        known = {text: weighed(own) for text, own in sums.items()}
        total = math.fsum(known.values())
        return {text: total / (len(known) * own) for text, own in known.items() if own}
    assert isinstance(wanted, Mapping)
    found: dict[str, float] = {}
    for label, factor in wanted.items():
        text = label_text(label)
        if text not in sums:
            held = " and ".join(sorted(map(repr, sums)))
            raise OptionError(
                f"Option class_weight names the label {shown(label)}, but {target!r} holds {held}. Name one of these."
            )
        if text in found:
            raise OptionError(f"Option class_weight names the label {shown(label)} twice. Give it one weight.")
        found[text] = float(factor)
    return found


def in_order(wanted: str | Mapping[Any, float] | None, classes: tuple[Any, Any]) -> str | tuple[float, float] | None:
    """The weights of classes as a model keeps them: balanced, or those of the negative and of the positive label."""
    if not isinstance(wanted, Mapping):
        return wanted
    by_text = {label_text(label): float(weight) for label, weight in wanted.items()}
    negative, positive = (by_text.get(label_text(label), 1.0) for label in classes)
    return negative, positive


def factors(values: NDArray[Any], weights: ClassWeights, target: str) -> NDArray[np.float64]:
    """The weight of each row's label, which is 1 if it has none."""
    found = np.ones(len(values))
    distinct = one_of_each(values)
    for value, text in zip(distinct.tolist(), label_texts(distinct.tolist(), target), strict=True):
        if text is not None and text in weights:
            found[np.asarray(values == value)] = weights[text]
    return found
