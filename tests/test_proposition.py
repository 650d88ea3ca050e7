"""Proposition 1 of the paper on the smallest case: products of embeddings cannot express every embedded cross.

With one-hot x and y, an embedding C of their cross z holds any number for any pair of values. A product of embeddings
Ax o By holds, in each of its D rows, the number a_i b_j: a matrix over the pairs of rank one.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

ALIKE = np.eye(2)  # D = 1 and two values each: 1 where the values are alike
SMALL = st.floats(-100, 100).filter(lambda number: number == 0 or abs(number) > 1e-3)


@given(SMALL, SMALL, SMALL, SMALL)
def test_a_product_of_embeddings_has_rank_one_and_this_cross_has_not(a1: float, a2: float, b1: float, b2: float) -> None:
    product = np.array([[a1 * b1, a1 * b2], [a2 * b1, a2 * b2]])
    assert not (product == ALIKE).all()
    assert abs(np.linalg.det(product)) <= 1e-9 * (1 + np.abs(product).max() ** 2)
    assert np.linalg.det(ALIKE) == 1


def test_the_nearest_product_is_as_far_off_as_the_second_singular_value() -> None:
    left, values, right = np.linalg.svd(ALIKE)
    nearest = values[0] * np.outer(left[:, 0], right[0])
    assert np.linalg.norm(ALIKE - nearest) == values[1] == 1


@given(st.lists(SMALL, min_size=1, max_size=5))
def test_nothing_smaller_would_do(numbers: list[float]) -> None:
    """Where one side has a single value, A = (1) and B = C give any C."""
    assert (np.outer([1.0], numbers) == np.array([numbers])).all()


def test_a_cross_holds_what_no_product_can() -> None:
    x, y = np.eye(2), np.eye(2)
    cross = np.array([np.kron(x[:, i], y[:, j]) for i in range(2) for j in range(2)])  # z of every pair of values
    assert (cross @ ALIKE.ravel() == [1, 0, 0, 1]).all()
