"""The network of a saved model: one row and many agree to the bit, whatever the weights."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autocross.features import FieldCodes
from autocross.producer.deep import DeepPart, Layer
from autocross.producer.unpacking import MOST_WEIGHT

LARGEST, SMALLEST = float(np.finfo(np.float32).max), float(np.finfo(np.float32).smallest_subnormal)
Row = list[Any]


def weights(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Weights as a fit has them, or as only a forger would write them."""
    usual = rng.normal(size=shape)
    if kind == "large":
        usual *= LARGEST / 8
    elif kind == "small":
        usual *= SMALLEST * 8
    elif kind == "any":
        usual *= 10.0 ** rng.uniform(-44, 37, shape)
    elif kind == "extremes":
        usual = rng.choice([LARGEST, -LARGEST, SMALLEST, -SMALLEST, 0.0, 1.0], shape)
    elif kind == "zero":
        usual = np.zeros(shape)
    with np.errstate(over="ignore", under="ignore"):
        return np.clip(usual, -LARGEST, LARGEST).astype(np.float32)


@st.composite
def networks(draw: st.DrawFn) -> tuple[DeepPart, list[Row]]:
    """A network of any shape, and rows of codes, some of them of many values or of none."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kinds = st.sampled_from(["usual", "large", "small", "any", "extremes", "zero"])
    sizes = draw(st.lists(st.integers(2, 9), min_size=1, max_size=4))
    size, hidden = draw(st.integers(1, 12)), draw(st.lists(st.integers(1, 70), max_size=3))
    widths = [len(sizes) * size, *hidden, 1]
    embeddings = tuple(weights(rng, (n, size), draw(kinds)) for n in sizes)
    matrices = tuple(weights(rng, shape, draw(kinds)) for shape in pairwise(widths))
    biases = tuple(weights(rng, (n,), draw(kinds)) for n in widths[1:])
    ragged = draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))

    def code(n_codes: int, many: bool) -> Any:
        return tuple(rng.integers(0, n_codes, rng.integers(0, 5)).tolist()) if many else int(rng.integers(n_codes))

    rows = [[*map(code, sizes, ragged)] for _ in range(draw(st.integers(1, 40)))]
    return DeepPart(embeddings, matrices, biases), rows


def together(rows: list[Row]) -> list[FieldCodes]:
    """The same rows, field by field."""
    found = []
    for column in zip(*rows, strict=True):
        if isinstance(column[0], tuple):
            starts = np.cumsum([0, *map(len, column)])
            found.append(FieldCodes(np.array([code for codes in column for code in codes], np.uint8), starts))
        else:
            found.append(FieldCodes(np.array(column, np.uint8)))
    return found


@pytest.mark.slow
@settings(max_examples=300)
@given(networks())
def test_one_row_and_many_agree_to_the_bit(case: tuple[DeepPart, list[Row]]) -> None:
    deep, rows = case
    assume(deep.most <= MOST_WEIGHT)  # what a file may have
    many = deep.log_odds(together(rows))
    assert np.isfinite(many).all()
    assert np.abs(many).max() <= deep.most * 1.001
    alone = np.array([deep.log_odds_one(row) for row in rows])
    np.testing.assert_array_equal(alone.view(np.int64), many.view(np.int64))
    np.testing.assert_array_equal(deep.log_odds(together(rows[::-1]))[::-1], many)


@pytest.mark.parametrize("n_in", [1, 2, 3, 140, 400, 5000])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_a_layer_is_as_good_as_one_in_single_precision(n_in: int, scale: float) -> None:
    rng = np.random.default_rng(n_in)
    matrix, bias = (rng.normal(size=(n_in, 30)) * scale).astype(np.float32), (rng.normal(size=30) * scale).astype(np.float32)
    values = rng.normal(size=(200, n_in)).astype(np.float32)
    exact = values.astype(np.float64) @ matrix + bias
    found = Layer.of(matrix, bias).apply(values.astype(np.float64))
    assert np.abs(found - exact).max() < np.abs(exact).max() * 1e-7 * n_in**0.5


def test_the_bound_of_a_network_holds_for_every_layer_in_it() -> None:
    """A layer that makes everything small again hides nothing."""
    one = np.ones((1, 1), np.float32)
    deep = DeepPart((one * 1e38,), (one * 1e38, one * 1e38, one * 1e-38, one * 1e-38), (one[0],) * 4)
    assert deep.most > 1e100
