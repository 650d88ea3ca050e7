"""Values as structures, and their words: two values of a field never read the same."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocross import AutoCross, load
from autocross.encoding.discretize import Bins, between_whole_numbers
from autocross.encoding.plan import EncodingPlan
from autocross.encoding.timestamps import Calendar
from autocross.encoding.values import Hash, Hashed, Interval, Missing, Part, Rare, Text
from autocross.encoding.vocabulary import Vocabulary
from autocross.features import FIRST
from autocross.producer.features import Features
from autocross.producer.wording import words
from autocross.table.columns import NumberColumn
from autocross.table.schema import ColumnSchema

NUMBER = ColumnSchema("x", "numerical", "number", "")
NUMERAL = re.compile(r"-?[0-9.]+(?:e[+-][0-9]+)?")


def bins_of(*edges: float) -> Bins:
    return Bins(NUMBER, ("x [values]",), (np.array(edges),))


def names(bins: Bins, place: int = 0) -> list[str]:
    return [words(bins.value(place, code)) for code in range(bins.fields[place].n_codes)]


def edge_sets() -> st.SearchStrategy[list[float]]:
    """Edges of all sizes, and such as lie side by side: at six digits many would read the same."""
    anywhere = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=8, unique=True)
    start = st.floats(-1e9, 1e9)
    close = st.tuples(start, st.lists(st.integers(0, 40), min_size=1, max_size=8, unique=True)).map(
        lambda drawn: [drawn[0] + step * math.ulp(drawn[0]) for step in drawn[1]]
    )
    halves = st.lists(st.integers(-40, 40).map(lambda twice: 1234567 + twice / 2), min_size=1, max_size=8, unique=True)
    return (anywhere | close | halves).map(lambda edges: sorted({edge + 0.0 for edge in edges}))


@given(edge_sets())
def test_bins_of_a_field_read_differently_and_in_order(edges: list[float]) -> None:
    bins = bins_of(*edges)
    shown = names(bins)
    assert len(set(shown)) == len(shown) == FIRST + len(edges) + 1
    bounds = [[float(text) for text in NUMERAL.findall(name)] for name in shown[FIRST:]]
    printed = [bound for of_bin in bounds for bound in of_bin]
    assert printed == sorted(printed)
    assert all(of_bin[0] < of_bin[1] for of_bin in bounds if len(of_bin) == 2)
    for code, name in enumerate(shown):
        if NUMERAL.fullmatch(name):
            assert bins.value(0, code) == Interval(float(name) - 0.5, float(name) + 0.5)


@given(edge_sets())
def test_a_printed_bound_is_within_a_hundredth_of_the_way_to_the_next_ones(edges: list[float]) -> None:
    bins = bins_of(*edges)
    padded = [-math.inf, *edges, math.inf]
    for number, edge in enumerate(edges):
        text = words(bins.value(0, FIRST + number + 1))
        if (printed := re.fullmatch(rf"({NUMERAL.pattern}) (?:to .*|or more)", text)) is None:
            continue  # the bin of one whole number
        off = abs(float(printed[1]) - edge)
        assert off <= 0.01 * min(edge - padded[number], padded[number + 2] - edge)
        assert off <= 5e-6 * abs(edge)
        assert off == 0 or not bins.whole


@pytest.mark.parametrize(
    ("edges", "shown"),
    [
        ((), ["any"]),
        ((1234567.5, 1234568.5), ["below 1234567.5", "1234568", "1234568.5 or more"]),
        ((8.5, 9.5, 12.0, 20.5), ["below 8.5", "9", "9.5 to 12", "12 to 20.5", "20.5 or more"]),
        ((-0.5, 0.5), ["below -0.5", "0", "0.5 or more"]),
        ((8.5, 9.5, 9.75), ["below 8.5", "8.5 to 9.5", "9.5 to 9.75", "9.75 or more"]),
        ((0.15000000000000002, 0.25), ["below 0.15", "0.15 to 0.25", "0.25 or more"]),
        ((0.123456789, 0.123456889), ["below 0.12345679", "0.12345679 to 0.12345689", "0.12345689 or more"]),
        ((1e-300, 1e300), ["below 1e-300", "1e-300 to 1e+300", "1e+300 or more"]),
        ((2.0**53, 2.0**53 + 2), ["below 9007199254740992", "9007199254740992 to 9007199254740994", "9007199254740994 or more"]),
    ],
)
def test_bins_in_words(edges: tuple[float, ...], shown: list[str]) -> None:
    assert names(bins_of(*edges)) == ["(missing)", "(rare)", *shown]


@given(st.sets(st.integers(-50, 50), min_size=1), st.integers(1, 4), st.sampled_from([1, 2, 1 << 30]))
def test_whole_numbers_are_known_by_their_edges(values: set[int], min_count: int, scale: int) -> None:
    column = NumberColumn(np.repeat(np.array(sorted(values), float) * scale, 2))
    bins = Bins.fit(NUMBER, column, EncodingPlan(min_count, (10, 100)))
    assert bins.whole
    for place, coded in enumerate(bins.encode(column)):
        for name, code in {(words(bins.value(place, code)), code) for code in coded.codes.tolist()}:
            if re.fullmatch(NUMERAL, name):
                assert set(column.values[coded.codes == code]) == {float(name)}


def test_other_numbers_are_known_by_their_edges_too() -> None:
    tenths, quarters = np.arange(200) / 10, np.arange(200) / 2 + 0.25
    for values in (tenths, quarters, np.random.default_rng(0).normal(0, 100, 500)):
        assert not Bins.fit(NUMBER, NumberColumn(values), EncodingPlan(1, (10, 1000))).whole
    assert not between_whole_numbers(np.array([2.0**60, 2.0**61]))


def test_values_are_structures() -> None:
    text, several, time = (
        ColumnSchema(*facts, "") for facts in (("a", "categorical", "text"), ("b", "multivalue", "list"), ("c", "time", "time"))
    )
    vocabulary = Vocabulary(text, ("cook", "(rare)"), n_buckets=4)
    assert [vocabulary.value(0, code) for code in (0, 1, 2, 3, 4)] == [Missing(), Rare(), Text("cook"), Text("(rare)"), Hashed(0)]
    hidden = Vocabulary(several, ("cook",)).private((several,)).value(0, 2)
    assert isinstance(hidden, Hash)
    assert re.fullmatch("#[0-9a-f]{8}", words(hidden))
    assert len(hidden.digits) == 32
    calendar = Calendar(time, {"month": (2,), "weekday": (0, 6)})
    assert [calendar.value(0, 2), calendar.value(1, 3)] == [Part("month", 2), Part("weekday", 6)]
    assert [words(calendar.value(0, 2)), words(calendar.value(1, 3))] == ["2", "Sunday"]
    assert [bins_of(3.5, 7.0).value(0, code) for code in (0, 2, 3)] == [Missing(), Interval(-math.inf, 3.5), Interval(3.5, 7.0)]


@given(st.lists(st.text(alphabet="()'\"\\ar", max_size=6), min_size=2, unique=True))
def test_texts_read_differently(texts: list[str]) -> None:
    special = [words(value) for value in (Missing(), Rare(), Hashed(1))]
    shown = [words(Text(text)) for text in texts]
    assert len({*shown, *special}) == len(texts) + 3


def test_neighbouring_bins_of_large_numbers_stay_apart_in_a_frame(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    account = rng.integers(1_234_560, 1_234_600, 2_000)
    label = rng.random(2_000) < np.where(account % 2 == 0, 0.8, 0.2)
    rows = pl.DataFrame({"account": account, "job": rng.choice(["cook", "pilot"], 2_000)})
    model = AutoCross(quiet=True, max_crosses=1).fit(rows, label)
    frame = pl.DataFrame(model.transform(rows, output="frame"))
    shown = frame["account (values)"].unique().to_list()
    assert sorted(shown) == sorted(["below 1234560.5", *map(str, range(1_234_561, 1_234_599)), "1234598.5 or more"])
    model.save(tmp_path / "model.acx")
    names = Features(load(tmp_path / "model.acx").model).value_names()
    assert len(set(names)) == len(names)
    assert names == Features(model.model_).value_names()
