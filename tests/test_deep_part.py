"""The networks of saved models, on embeddings as older files have them and as they are today: one row and many agree to the bit,
whatever the weights."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autocross.features import FieldCodes
from autocross.producer.addition import Addition
from autocross.producer.deep import DeepPart, Layer
from autocross.producer.inputs import HUGE, Inputs, knots_of, known_of
from autocross.producer.network import Network
from autocross.producer.unpacking import MOST_WEIGHT
from autocross.table.columns import NumberColumn, Table

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


def added(deep: Addition, codes: list[FieldCodes]) -> Any:
    n_rows = codes[0].n_rows
    return deep.log_odds(codes, np.zeros(n_rows), Table(n_rows, {}))


@pytest.mark.slow
@settings(max_examples=300)
@given(networks())
def test_one_row_and_many_agree_to_the_bit(case: tuple[DeepPart, list[Row]]) -> None:
    deep, rows = case
    assume(deep.most <= MOST_WEIGHT)  # what a file may have
    many = added(deep, together(rows))
    assert np.isfinite(many).all()
    assert np.abs(many).max() <= deep.most * 1.001
    alone = np.array([deep.log_odds_one(row, 0.0, {}) for row in rows])
    np.testing.assert_array_equal(alone.view(np.int64), many.view(np.int64))
    np.testing.assert_array_equal(added(deep, together(rows[::-1]))[::-1], many)


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


# The network of today.

NUMBERS = [0.0, -0.0, 1.0, 0.25, -3.5, 5e-324, 1e300, -1e300, HUGE, math.inf, -math.inf, math.nan]


@st.composite
def blends(draw: st.DrawFn) -> tuple[Network, list[Row], list[float], list[dict[str, float]]]:
    """A network of any shape, and rows: their codes, log-odds and numbers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kinds = st.sampled_from(["usual", "small", "any", "extremes", "zero"])
    sizes = draw(st.lists(st.integers(2, 9), min_size=1, max_size=5))
    terms = sorted(draw(st.sets(st.integers(0, len(sizes) - 1))))
    counts = [np.sort(rng.integers(0, 50, (n, 2)), axis=1)[:, ::-1] for n in sizes]
    known = tuple(known_of(weights(rng, (sizes[term],), draw(kinds)).astype(np.float64), counts[term], 0.3) for term in terms)
    columns = ["a", "b", "c"][: draw(st.integers(0, 3))]
    knots = tuple(np.unique(rng.choice([-HUGE, -3.5, 0.0, 5e-324, 0.1, 1.0, 1.5, HUGE], 5)) for _ in columns)
    kept = [place for place, own in enumerate(knots) if len(own) > 1]
    n_scaled = 3 * len(terms) + 1
    centre, spread = rng.normal(size=n_scaled), 10.0 ** rng.uniform(-100, 100, n_scaled)
    inputs = Inputs(tuple(terms), known, tuple(columns[at] for at in kept), tuple(knots[at] for at in kept), centre, spread)
    n_hidden = draw(st.integers(1, 70))
    matrices = weights(rng, (inputs.width, n_hidden), draw(kinds)), weights(rng, (n_hidden, 1), draw(kinds))
    biases = weights(rng, (n_hidden,), draw(kinds)), weights(rng, (1,), draw(kinds))
    n_rows = draw(st.integers(1, 40))
    ragged = draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))

    def code(n_codes: int, many: bool) -> Any:
        return tuple(rng.integers(0, n_codes, rng.integers(0, 5)).tolist()) if many else int(rng.integers(n_codes))

    rows: list[Row] = [[*map(code, sizes, ragged)] for _ in range(n_rows)]
    log_odds = (rng.normal(size=n_rows) * 10.0 ** rng.uniform(-9, 99, n_rows)).tolist()
    numbers = [{name: float(rng.choice(NUMBERS)) for name in columns} for _ in range(n_rows)]
    return Network(float(rng.uniform(0.1, 1)), inputs, matrices, biases), rows, log_odds, numbers


@pytest.mark.slow
@settings(max_examples=300)
@given(blends())
def test_a_blend_of_one_row_and_of_many_agree_to_the_bit(case: Any) -> None:
    network, rows, log_odds, numbers = case
    assume(network.most <= MOST_WEIGHT)
    table = Table(len(rows), {name: NumberColumn(np.array([row[name] for row in numbers])) for name in numbers[0]})
    many = network.log_odds(together(rows), np.array(log_odds), table)
    assert np.isfinite(many).all()
    alone = np.array([network.log_odds_one(*one) for one in zip(rows, log_odds, numbers, strict=True)])
    np.testing.assert_array_equal(alone.view(np.int64), many.view(np.int64))


def test_the_pieces_of_a_number() -> None:
    knots = knots_of(np.array([0.0, 1.0, 1.0, 3.0, math.nan]))
    assert knots.tolist() == [0.0, 1.0, 3.0]
    assert not len(knots_of(np.array([2.0, 2.0, math.nan]))) and not len(knots_of(np.array([math.nan])))
    assert np.abs(knots_of(np.array([math.inf, -math.inf, 1.0]))).max() == HUGE
    inputs = Inputs((), (), ("a",), (knots,), np.zeros(1), np.ones(1))
    assert inputs.width == 4
    numbers = np.array([[-1.0], [0.25], [1.0], [2.0], [9.0], [math.inf], [-math.inf], [math.nan]])
    found = inputs.joined(np.full((8, 1), 9.0), numbers)
    assert found[:, 0].tolist() == [5.0] * 8
    pieces = [[0, 0, 0], [0.25, 0, 0], [1, 0, 0], [1, 0.5, 0], [1, 1, 0], [1, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert found[:, 1:].tolist() == pieces


def test_what_is_known_about_a_code() -> None:
    weight, rate, count = known_of(np.array([0.5]), np.array([[8, 6]]), 0.25)[0].tolist()
    assert (weight, count) == (0.5, pytest.approx(math.log(9)))
    assert rate == pytest.approx(math.log((6 + 1.25) / (2 + 3.75)) - math.log(0.25 / 0.75))
    np.testing.assert_allclose(known_of(np.array([0.5]), np.array([[4, 3]]), 0.25, 2.0)[0], [weight, rate, count])
