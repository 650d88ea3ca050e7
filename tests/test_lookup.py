"""Values found again: numbers among edges, texts and numbers in a table of hashes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autocross.encoding.discretize import Search
from autocross.table import digest as digests
from autocross.table.digest import Digests, digest
from autocross.table.places import FEWEST_SLOTS, Places

ANY = st.floats(allow_nan=True, allow_infinity=True)
EDGES = st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=40, unique=True).map(sorted)


@given(EDGES, st.lists(ANY, max_size=50))
@example([], [1.0, math.nan])
@example([0.0], [-0.0, 0.0, math.inf, -math.inf, math.nan])
@example([-1.7e308, 1.7e308], [-1.7e308, 0.0, 1.7e308, math.inf, -math.inf])
@example([1.0, np.nextafter(1.0, 2.0), 1e300], [1.0, np.nextafter(1.0, 2.0), np.nextafter(1.0, 0.0), 1e300])
def test_places_among_edges_are_those_of_a_binary_search(edges: list[float], values: list[float]) -> None:
    numbers = np.array([*values, *edges], dtype=np.float64)
    expected = np.searchsorted(np.array(edges), numbers, side="right")
    expected[np.isnan(numbers)] = len(edges) + 1
    np.testing.assert_array_equal(Search(np.array(edges, dtype=np.float64)).find(numbers), expected)


def test_places_among_thousands_of_edges_in_a_narrow_range() -> None:
    rng = np.random.default_rng(0)
    edges = np.unique(np.concatenate([1 + rng.random(3000) * 1e-9, [-1e300, 1e300]]))
    values = np.concatenate([1 + rng.random(5000) * 1e-9, rng.normal(size=100) * 1e299])
    np.testing.assert_array_equal(Search(edges).find(values), np.searchsorted(edges, values, side="right"))


@pytest.mark.parametrize(
    "values",
    [
        [None, "a", "b", "a", "", None, "é"],
        [1.5, -0.0, 0.0, math.nan, None, math.nan],
        [3, None, 3, -(2**62)],
        [True, None, False, True],
    ],
)
def test_values_are_numbered_as_they_come(values: list[Any]) -> None:
    places = Places()
    series = pl.Series(values)
    index, new = places.add(series)
    assert places.values.equals(series.unique(maintain_order=True), null_equal=True)
    assert places.values.gather(index).equals(series, null_equal=True)
    assert series.gather(new).equals(places.values, null_equal=True)
    assert (places.find(series, np.arange(places.n + 1)) == index).all()
    assert places.n_rows.tolist() == np.bincount(index).tolist()
    later, none_new = places.add(series.reverse())
    assert later.tolist() == index[::-1].tolist()
    assert not len(none_new)


def test_a_table_of_hashes_grows() -> None:
    places = Places()
    values = pl.Series(np.random.default_rng(0).integers(0, 50_000, 200_000).astype(str))
    for first in range(0, len(values), 30_000):
        index, _ = places.add(values[first : first + 30_000])
        assert places.values.gather(index).equals(values[first : first + 30_000])
    assert places.n == values.n_unique() < len(places.keys) / 2
    assert len(places.keys) > FEWEST_SLOTS
    numbers = np.append(np.arange(places.n), -1)
    assert places.find(pl.Series(["no such text", *values[:5]]), numbers).tolist() == [-1, *places.add(values[:5])[0]]
    expected = values.value_counts().select(pl.col("count").sum()).item() + 5
    assert places.n_rows.sum() == expected


# What digests forget.


def test_of_too_many_texts_the_rarest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "MOST_TEXTS", 100)
    often, rest = [f"often{at}" for at in range(10)], iter(range(10_000))
    parts = Digests("x", None)
    for _ in range(20):
        parts.add(pl.Series("x", often + [f"once{next(rest)}" for _ in range(60)]))
        assert parts.open is not None
        assert parts.open.places.n <= 160
    whole = parts.whole()
    n = dict(zip(whole.values, whole.n.tolist(), strict=True))
    assert [n[text] for text in often] == [20] * 10
    assert whole.n_rows == 20 * 70
    assert not whole.all_differ


def test_rows_have_numbers_where_they_came_at_once_and_nothing_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    parts, series = Digests("x", None), pl.Series("x", ["b", "a", None, "b"])
    parts.add(series)
    parts.seal()
    assert parts.numbered is not None
    assert parts.numbered.values.gather(parts.numbered.index).equals(series, null_equal=True)
    parts = Digests("x", None)
    parts.add(series)
    parts.add(series)
    parts.seal()
    assert parts.numbered is None
    monkeypatch.setattr(digests, "MOST_TEXTS", 3)
    monkeypatch.setattr(digests, "MOST_NUMBERS", 3)
    for values in (["a", "b", "c", "d"], [1.5, 2.5, 3.5, 4.5]):
        parts = Digests("x", None)
        parts.add(pl.Series("x", values))
        parts.seal()
        assert parts.numbered is None


def test_an_id_is_told_though_its_values_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "MOST_TEXTS", 100)
    assert digest(pl.Series("x", [f"{at}" for at in range(500)])).all_differ


def test_of_too_many_moments_the_minutes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "MOST_NUMBERS", 100)
    seconds = np.arange(5000).astype("datetime64[s]").astype("datetime64[us]")
    series = pl.Series("x", seconds)
    parts = Digests("x", None)
    for first in range(0, 5000, 700):
        parts.add(series[first : first + 700])
    whole = parts.whole()
    assert whole.counted.equals(digest(series).counted)
    assert len(whole.values) == math.ceil(5000 / 60)
    assert whole.n.sum() == 5000
