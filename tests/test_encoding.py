"""Codes: vocabularies, hashed tails, multi-value columns, calendars, bins, and their one-row twins."""

from __future__ import annotations

from bisect import bisect_left
from datetime import date, datetime, timedelta
from fractions import Fraction
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from autocross.encoding import plan
from autocross.encoding.discretize import Bins, midpoints, quantile_places, thick, width_places
from autocross.encoding.encoder import Encoder, stem_codes
from autocross.encoding.plan import EncodingPlan
from autocross.encoding.timestamps import Calendar, Course, parts_of, parts_of_all
from autocross.encoding.values import Span
from autocross.encoding.vocabulary import Vocabulary, bucket_of
from autocross.features import FIRST, MISSING, RARE, FieldCodes, narrowest
from autocross.producer.wording import words
from autocross.table.coerce import lists, moments, texts, typed
from autocross.table.columns import NO_TIME, NumberColumn, Table, TimeColumn
from autocross.table.digest import Digests
from autocross.table.inference import infer
from autocross.table.schema import ColumnSchema

TEXT = ColumnSchema("job", "categorical", "text", "")
TAGS = ColumnSchema("tags", "multivalue", "list", "")
NUMBER = ColumnSchema("age", "numerical", "number", "")
TIME = ColumnSchema("when", "time", "time", "")
RULES = EncodingPlan(min_count=2, granularities=(10, 100))


def all_stems(encoder: Encoder, table: Table) -> list[FieldCodes]:
    """The codes of all columns, stem by stem."""
    return [codes for column in encoder.columns for codes in stem_codes(column, table)]


def test_codes_are_missing_rare_then_values_by_frequency() -> None:
    column = texts(pl.Series("job", ["b", "b", "a", "a", "a", "once", None, ""]))
    vocabulary = Vocabulary.fit(TEXT, column, RULES)
    assert vocabulary.values == ("a", "b")
    assert vocabulary.encode(column)[0].codes.tolist() == [3, 3, 2, 2, 2, RARE, MISSING, MISSING]
    assert [vocabulary.encode_one(value)[0] for value in ("a", "new", None)] == [2, RARE, MISSING]
    assert [words(vocabulary.value(0, code)) for code in range(4)] == ["(missing)", "(rare)", "a", "b"]


@pytest.mark.parametrize(("n_values", "kind"), [(100, np.uint8), (254, np.uint8), (255, np.uint16), (65_535, np.uint32)])
def test_codes_take_the_narrowest_type(n_values: int, kind: type) -> None:
    values = [f"v{at}" for at in range(n_values)] * 2
    coded = Vocabulary.fit(TEXT, column := texts(pl.Series("job", values)), RULES).encode(column)[0]
    assert coded.codes.dtype == kind
    assert narrowest(FIRST + n_values) is kind


def test_a_vocabulary_beyond_its_cap_hashes_the_tail() -> None:
    values = ["often"] * 9 + ["sometimes"] * 5 + [f"tail{at}" for at in range(50)] * 2
    column = texts(pl.Series("job", values))
    vocabulary = Vocabulary.fit(TEXT, column, EncodingPlan(2, (10,), cap=2, n_buckets=16))
    assert vocabulary.values == ("often", "sometimes")
    assert vocabulary.fields[0].n_codes == FIRST + 2 + 16
    tail = vocabulary.encode(column)[0].codes[14:]
    assert tail.min() >= FIRST + 2
    assert len(set(tail.tolist())) > 8  # spread over the buckets
    for text in ("tail7", "never seen"):
        assert vocabulary.encode_one(text) == (FIRST + 2 + bucket_of(text, 16),)
    assert vocabulary.encode_one(None) == (MISSING,)
    assert words(vocabulary.value(0, FIRST + 2)).startswith("(hashed")


@pytest.mark.parametrize(
    ("text", "digest"), [("", 0xEF46DB3751D8E999), ("a", 0xD24EC4F1A98C6E5B), ("abc", 0x44BC2CF5AD770999), ("ünïcode", None)]
)
def test_the_hash_has_its_published_values(text: str, digest: int | None) -> None:
    found = xxhash.xxh64_intdigest(text.encode())
    assert digest is None or found == digest
    assert bucket_of(text, 1 << 18) == found % (1 << 18)


def test_multi_value_codes_are_sets_in_order() -> None:
    column = lists(pl.Series("tags", [["b", "a", "b"], [], None, ["x", "y"], ["a", None]]), None)
    vocabulary = Vocabulary.fit(TAGS, column, RULES)
    coded = vocabulary.encode(column)[0]
    assert vocabulary.values == ("a",)
    assert coded.starts.tolist() == [0, 2, 2, 3, 4, 5]
    assert coded.codes.tolist() == [RARE, 2, MISSING, RARE, 2]
    assert vocabulary.fields[0].width == 2
    one_by_one = [vocabulary.encode_one(value)[0] for value in (["b", "a", "b"], [], None, ["x", "y"], ["a", None])]
    assert one_by_one == [(RARE, 2), (), (MISSING,), (RARE,), (2,)]


@given(st.lists(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)), min_size=1, max_size=20))
def test_the_calendar_of_many_is_the_calendar_of_each(values: list[datetime]) -> None:
    micros = moments(pl.Series("when", values))
    many = parts_of_all(micros)
    for at, value in enumerate(values):
        assert {part: int(column[at]) for part, column in many.items()} == parts_of(value)


def test_only_calendar_parts_that_vary_become_fields() -> None:
    days = [date(2024, 1, 1) + timedelta(days=at) for at in range(28)] * 2
    column = TimeColumn(moments(pl.Series("when", [*days, None])))
    course = Calendar.fit(TIME, column, RULES)
    assert [field.name for field in course.fields][:2] == ["when.day", "when.weekday"]
    calendar = course.keep([0, 1])
    assert type(calendar) is Calendar
    codes = calendar.encode(column)
    assert codes[1].codes[:7].tolist() == [2, 3, 4, 5, 6, 7, 8]
    assert codes[0].codes[-1] == MISSING
    assert calendar.encode_one("2024-01-31") == (RARE, codes[1].codes[2])
    assert calendar.encode_one(datetime(2024, 1, 2, 5)) == (3, 3)
    assert calendar.encode_one(None) == (MISSING, MISSING)
    assert words(calendar.value(1, 2)) == "Monday"


def fitted_course(values: list[datetime | None], rules: EncodingPlan) -> tuple[Course, TimeColumn]:
    column = TimeColumn(moments(pl.Series("when", values, pl.Datetime("us"))))
    course = Calendar.fit(TIME, column, rules)
    assert isinstance(course, Course)
    return course, column


MANY_MOMENTS = st.lists(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)), min_size=2, max_size=40, unique=True)


@pytest.mark.slow
@given(MANY_MOMENTS, st.sampled_from([(2,), (3, 10), (10, 100)]))
def test_the_course_of_many_is_the_course_of_each(values: list[datetime], granularities: tuple[int, ...]) -> None:
    calendar = Calendar.fit(TIME, TimeColumn(moments(pl.Series("when", values))), EncodingPlan(1, granularities))
    column = TimeColumn(np.append(moments(pl.Series("when", values)), NO_TIME))
    codes = np.stack([coded.codes for coded in calendar.encode(column)])
    for at, value in enumerate([*values, None]):
        assert calendar.encode_one(value) == tuple(codes[:, at].tolist())
        assert calendar.encode_one(None if value is None else value.isoformat()) == tuple(codes[:, at].tolist())
    intervals = [coded.codes for coded in calendar.stem_codes(column)]
    for number, stem in enumerate(calendar.stems):
        for place, table in stem.tables.items():
            np.testing.assert_array_equal(table[intervals[number]], codes[place])


@given(MANY_MOMENTS)
def test_the_spans_of_a_course_are_in_order_and_read_differently(values: list[datetime]) -> None:
    calendar = Calendar.fit(TIME, TimeColumn(moments(pl.Series("when", values))), EncodingPlan(1, (2, 10, 100)))
    n_parts = len(calendar.seen)
    for place, field in enumerate(calendar.fields[n_parts:], start=n_parts):
        spans = [calendar.value(place, code) for code in range(2, field.n_codes)]
        assert all(isinstance(span, Span) for span in spans)
        assert all(earlier.high == later.low for earlier, later in pairwise(spans))
        assert len({words(span) for span in spans}) == len(spans)
        if max(values) < datetime(2255, 1, 1):  # beyond, floats do not tell microseconds apart
            for value in values:
                code = calendar.encode_one(value)[place]
                low, high = spans[code - 2].low, spans[code - 2].high
                assert low <= (value - datetime(1970, 1, 1)) // timedelta(microseconds=1) < high


def test_bins_of_moments_begin_at_round_ones() -> None:
    days = [datetime(2024, 1, 1, 9, 30) + timedelta(days=7 * at) for at in range(20)]
    course, column = fitted_course([*days, None], EncodingPlan(1, (4,)))
    assert [field.name for field in course.fields] == ["when.quarter", "when.month", "when.day", "when [4 wide]"]
    assert [words(course.value(3, code)) for code in range(6)] == [
        "(missing)",
        "(rare)",
        "before 2024-02-05",
        "2024-02-05 to 2024-03-11",
        "2024-03-11 to 2024-04-15",
        "2024-04-15 or later",
    ]
    assert course.encode(column)[3].codes.tolist() == [*np.repeat([2, 3, 4, 5], 5), MISSING]
    hours = [datetime(2024, 1, 1, 9) + timedelta(minutes=7 * at, seconds=at, microseconds=at) for at in range(4)]
    course, _ = fitted_course([*hours], EncodingPlan(1, (10,)))
    assert [words(course.value(len(course.seen), code)) for code in (2, 3, 5)] == [
        "before 2024-01-01 09:07",
        "2024-01-01 09:07 to 2024-01-01 09:14",
        "2024-01-01 09:21 or later",
    ]


def test_moments_that_differ_by_microseconds_have_edges_of_their_own() -> None:
    values = [datetime(2024, 1, 1) + timedelta(microseconds=at) for at in (0, 1, 2)] + [datetime(2025, 1, 1)]
    course, column = fitted_course([*values], EncodingPlan(1, (10,)))
    assert course.encode(column)[-1].codes.tolist() == [2, 3, 4, 5]
    assert words(course.value(len(course.seen), 3)) == "2024-01-01 00:00:00.000001 to 2024-01-01 00:00:00.000002"


def test_times_of_a_day_are_printed_without_a_date() -> None:
    values = [datetime(1970, 1, 1, hour) for hour in range(24)]
    course, _ = fitted_course([*values], EncodingPlan(1, (4,)))
    assert words(course.value(1, 3)) == "06:00 to 12:00"


def test_a_single_moment_has_no_course() -> None:
    column = TimeColumn(moments(pl.Series("when", [datetime(2024, 1, 1)] * 5)))
    assert type(Calendar.fit(TIME, column, RULES)) is Calendar
    thin = TimeColumn(moments(pl.Series("when", [datetime(2024, 1, 1), datetime(2025, 1, 1)])))
    assert type(Calendar.fit(TIME, thin, EncodingPlan(2, (10,)))) is Calendar  # no bin would have two rows


def test_bins_of_equal_width_and_of_equal_counts() -> None:
    values = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 100.0])
    assert width_places(values, 4).tolist() == [9]
    assert quantile_places(np.ones(10, int), 5).tolist() == [2, 4, 6, 8]
    assert midpoints(values, np.array([1, 9])).tolist() == [0.5, 54.0]


LARGEST = float(np.finfo(np.float64).max)
EXTREME = {
    "whole range": np.random.default_rng(0).uniform(-1, 1, 2_000) * LARGEST,
    "upper half": np.random.default_rng(1).uniform(0, 1, 2_000) * LARGEST,
    "ends only": np.array([-LARGEST, -1.0, 0.0, 5e-324, 1.0, 1.7e308]),
    "smallest and largest": np.array([*np.arange(1, 50) * 5e-324, 1.7e308, -1.7e308]),
    "everyday and largest": np.array([*np.random.default_rng(2).normal(0, 1, 500), 1.7e308]),
    "every power": 2.0 ** np.arange(-1_074, 1_024),
}


@pytest.mark.parametrize("name", EXTREME)
def test_the_largest_numbers_have_exact_places(name: str) -> None:
    """Fractions cannot overflow. A warning from NumPy would be an error here."""
    values = np.unique(EXTREME[name])
    exact = [Fraction(value) for value in values.tolist()]
    for granularity in (10, 1_000):
        edges = [exact[0] + (exact[-1] - exact[0]) * at / granularity for at in range(1, granularity)]
        assert width_places(values, granularity).tolist() == sorted({bisect_left(exact, edge) for edge in edges})
    bins = Bins.fit(NUMBER, NumberColumn(values), EncodingPlan(1, (10, 100)))
    many = zip(*(one.codes.tolist() for one in bins.encode(NumberColumn(values))), strict=True)
    assert [bins.encode_one(value) for value in values.tolist()] == list(many)


@given(st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=30, unique=True), st.sampled_from([10, 100, 1_000]))
def test_everyday_numbers_keep_their_places(numbers: list[float], granularity: int) -> None:
    values = np.unique(np.array(numbers) + 0.0)
    low, high = values[0] / 2, values[-1] / 2
    edges = (low + (high - low) * np.arange(1, granularity) / granularity) * 2
    assert width_places(values, granularity).tolist() == np.unique(np.searchsorted(values, edges)).tolist()


def test_thin_bins_join_their_neighbour() -> None:
    counts = np.array([5, 1, 1, 5, 1])
    assert thick(np.array([1, 2, 3, 4]), counts, 1) == (1, 2, 3, 4)
    assert thick(np.array([1, 2, 3, 4]), counts, 2) == (1, 3)


def test_few_values_get_a_bin_each_and_equal_granularities_are_one_field() -> None:
    bins = Bins.fit(NUMBER, NumberColumn(np.repeat([1.0, 2.0, 5.0], 4)), RULES)
    assert bins.names == ("age [values]",)
    assert bins.edges[0].tolist() == [1.5, 3.5]


def test_numbers_beyond_the_training_range_and_infinities_fall_into_the_outer_bins() -> None:
    bins = Bins.fit(NUMBER, NumberColumn(np.linspace(0, 1, 1000)), RULES)
    last = [field.n_codes - 1 for field in bins.fields]
    for value in (1.5, 1e308, np.inf):
        assert list(bins.encode_one(value)) == last
    assert set(bins.encode_one(-np.inf)) == {FIRST}
    assert set(bins.encode_one(None)) == set(bins.encode_one(float("nan"))) == {MISSING}


@given(
    st.lists(
        st.one_of(st.floats(allow_nan=True, allow_infinity=True, width=32), st.sampled_from([0.0, 1.0, 2.0])),
        min_size=1,
        max_size=60,
    ),
    st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=10),
)
def test_one_number_gets_the_codes_of_many(train: list[float], extra: list[float]) -> None:
    bins = Bins.fit(NUMBER, NumberColumn(np.array(train)), EncodingPlan(1, (2, 3, 10)))
    column = NumberColumn(np.array(train + extra))
    codes = [one.codes.tolist() for one in bins.encode(column)]
    for at, value in enumerate(train + extra):
        assert list(bins.encode_one(value)) == [field_codes[at] for field_codes in codes]
    for field, field_codes in zip(bins.fields, codes, strict=True):
        assert max(field_codes) < field.n_codes


def test_edges_by_counts_spread_the_rows_evenly() -> None:
    values = np.random.default_rng(0).lognormal(0, 2, 10_000)
    bins = Bins.fit(NUMBER, NumberColumn(values), EncodingPlan(2, (10, 100), widths=False))
    for field, coded in zip(bins.fields, bins.encode(NumberColumn(values)), strict=True):
        counts = np.bincount(coded.codes, minlength=field.n_codes)[FIRST:]
        assert counts.min() > 0.9 * counts.mean()


def test_a_coarse_field_of_quarters_stands_behind_those_kept() -> None:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"job": ["a", "b"] * 500, "few": rng.integers(0, 3, 1000) / 2, "age": rng.lognormal(0, 2, 1000)})
    frame = frame.with_columns(age=pl.when(pl.col("age") > 0.1).then("age"))
    schema = infer(frame, {"few": "numerical"}, {})
    table = typed(frame, schema)
    encoder = Encoder.fit(schema, table.columns, EncodingPlan(2, (10, 100), coarse=True))
    assert not any("[4 even]" in field.name for field in encoder.fields)
    ((stem, codes_by_stem, twin),) = encoder.coarse(encoder)  # three values tell less than four quarters would
    assert [field.name for field in twin.fields] == ["age [4 even]"]
    codes = codes_by_stem[all_stems(encoder, table)[stem].codes]
    assert codes.tolist() == twin.encode(table.columns["age"])[0].codes.tolist()
    assert (codes == MISSING).tolist() == frame["age"].is_null().to_list()
    counts = np.bincount(codes)[FIRST:]
    assert len(counts) == 4
    assert np.ptp(counts) <= 2
    without = Encoder.fit(schema, table.columns, EncodingPlan(2, (10, 100)))
    assert without.coarse(without) == []


def test_keeping_some_fields_keeps_their_codes() -> None:
    frame = pl.DataFrame({"job": ["a", "b"] * 30, "age": np.arange(60) / 7, "when": [date(2024, m, 1) for m in range(1, 13)] * 5})
    schema = infer(frame, {}, {})
    table = typed(frame, schema)
    encoder = Encoder.fit(schema, table.columns, RULES)
    all_codes = encoder.encode(table)
    kept = [0, 2, len(encoder.fields) - 1]
    narrowed = encoder.keep(kept)
    assert [field.name for field in narrowed.fields] == [encoder.fields[at].name for at in kept]
    for codes, at in zip(narrowed.encode(table), kept, strict=True):
        np.testing.assert_array_equal(codes.codes, all_codes[at].codes)


def test_codes_by_the_numbers_of_values_are_those_of_the_rows() -> None:
    rng = np.random.default_rng(0)
    columns = {
        "job": rng.choice(["a", "b", "c", "NA", "", None, "once"], 300, p=[0.3, 0.2, 0.1, 0.1, 0.1, 0.19, 0.01]).tolist(),
        "tail": [f"t{at}" for at in rng.zipf(1.5, 300)],
        "vip": rng.choice(["True", "false", None], 300).tolist(),
        "floor": pl.Series(rng.integers(0, 5, 300)).set(pl.Series(rng.random(300) < 0.2), None),
        "age": np.where(rng.random(300) < 0.1, np.nan, rng.normal(0, 9, 300)),
        "visits": pl.Series(rng.integers(0, 90, 300)).set(pl.Series(rng.random(300) < 0.2), None),
        "when": [date(2024, 1, 1) + timedelta(int(day)) for day in rng.integers(0, 60, 300)],
        "tags": [["x", "y"][: int(n)] for n in rng.integers(0, 3, 300)],
    }
    frame = pl.DataFrame(columns).with_columns(pl.col("job").cast(pl.Categorical).alias("kind"))
    schema = infer(frame, {}, {})
    whole = typed(frame, schema)
    encoder = Encoder.fit(schema, whole.columns, EncodingPlan(2, (10, 100), cap=3, n_buckets=8))
    numbered = {}
    for name in frame.columns:
        parts = Digests(name, None)
        parts.add(frame[name])
        parts.seal()
        assert parts.numbered is not None
        numbered[name] = parts.numbered
    by_number = typed(frame, schema, numbered)
    assert set(by_number.index) == set(frame.columns) - {"when", "tags"}
    for found, expected in zip(all_stems(encoder, by_number), all_stems(encoder, whole), strict=True):
        assert found.codes.dtype == expected.codes.dtype
        np.testing.assert_array_equal(found.codes, expected.codes)


def test_granularities_by_rule() -> None:
    assert plan.granularities(100, 5, 8 << 30) == (10,)
    assert plan.granularities(1_000_000, 50, 8 << 30) == (10, 100, 1000)
    assert plan.granularities(100_000_000, 50, 8 << 30) == (10,)
    assert plan.min_count(10_000) == 2
    assert plan.min_count(10_000_000) > 2


@given(st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=10), st.data())
def test_taking_rows_of_ragged_codes(rows: list[list[int]], data: st.DataObject) -> None:
    coded = FieldCodes(np.array([code for row in rows for code in row], np.uint8), np.cumsum([0, *map(len, rows)]).astype(np.int64))
    order = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=12)) if rows else []
    taken = coded.take(np.array(order, np.int64))
    assert taken.n_rows == len(order)
    found = [taken.codes[a:b].tolist() for a, b in zip(taken.starts[:-1], taken.starts[1:], strict=True)]
    assert found == [rows[at] for at in order]
