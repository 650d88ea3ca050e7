"""One row by compiled code: the same bits as by Python and as many rows have, in threads, in forks, and without Numba."""

from __future__ import annotations

import copy
import math
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocross import AutoCrossClassifier, load
from autocross.crossing import MODULUS, CrossCoder
from autocross.encoding.discretize import Bins
from autocross.encoding.encoder import Encoder
from autocross.encoding.vocabulary import Vocabulary
from autocross.errors import ColumnError
from autocross.kernels import scoring
from autocross.producer.model import Model, Producer
from autocross.serving import many_rows
from autocross.serving.scorer import Scorer
from autocross.table.schema import ColumnSchema

Row = dict[str, Any]
N_TEXTS = 1_500
ODD = [None, "", "never seen", "NA", math.nan, 7, 7.0, True, np.float64(3.5), np.str_("t3"), "3.5", 10**400, -0.0, -math.inf]


def by_python(scorer: Scorer) -> Scorer:
    """A scorer of the same model that has no compiled code."""
    plain = Scorer(scorer.model)
    plain.__dict__["compiled"] = None
    return plain


def crossed(fields: tuple[int, ...], sizes: tuple[int, ...], n_values: int, n_buckets: int, rng: Any) -> CrossCoder:
    """A cross with some combinations of values, in the order of their keys."""
    own = tuple(sizes[field] for field in fields)
    values = np.stack([rng.integers(0, size, n_values) for size in own], axis=1).astype(np.uint32)
    unsorted = CrossCoder(fields, own, values)
    _, kept = np.unique(unsorted.keys, return_index=True)
    return CrossCoder(fields, own, values[kept], n_buckets)


@pytest.fixture(scope="module")
def made() -> Scorer:
    """A model made by hand. Its crosses have tables or slots, exact keys or hashed ones, values or none, and buckets or none. One
    of its numbers has two encoders."""
    rng = np.random.default_rng(3)
    texts = [ColumnSchema(f"text{number}", "categorical", "text", "") for number in range(5)]
    numbers = [ColumnSchema(f"number{number}", "numerical", "number", "") for number in range(2)]
    words = tuple(f"t{number}" for number in range(N_TEXTS))
    columns = (
        Bins(numbers[0], ("number0 [a]", "number0 [b]"), (np.array([-1.5, 0.0, 2.0]), np.array([0.5]))),
        *(Vocabulary(column, words, n_buckets=40 if number == 4 else 0) for number, column in enumerate(texts)),
        Bins(numbers[1], ("number1 [a]",), (np.array([]),)),
        Bins(numbers[0], ("number0 [c]",), (np.array([1.0, 1e300]),)),
    )
    encoder = Encoder((*texts, *numbers), columns)
    sizes = tuple(field.n_codes for field in encoder.fields)
    assert math.prod(sizes[2:6]) > MODULUS
    shapes = [((0, 1), 6), ((0, 2), 900), ((2, 3), 3_000), ((2,), 50), ((2, 3, 4, 5), 2_000), ((4, 6, 8), 2_000), ((1, 7), 0)]
    crosses = tuple(crossed(fields, sizes, n, buckets, rng) for fields, n in shapes for buckets in (0, 17))
    producer = Producer(encoder, crosses)
    weights = tuple(rng.normal(0, 1, field.n_codes) for field in producer.fields)
    return Scorer(Model(producer, -0.25, weights, ((0.0, 1.0, 0.0),) * len(weights)))


@pytest.fixture(scope="module")
def plain(made: Scorer) -> Scorer:
    """The same without compiled code."""
    return by_python(made)


def rows_of_made(n: int, seed: int = 0) -> list[Row]:
    """Rows of which half have combinations that are likely to be known, and some have odd values."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        row: Row = {f"text{number}": f"t{rng.integers(0, 40 if rng.random() < 0.5 else N_TEXTS + 100)}" for number in range(5)}
        row |= {"number0": float(rng.normal(0, 2)), "number1": int(rng.integers(-3, 4))}
        for name in row:
            if rng.random() < 0.1:
                row[name] = ODD[rng.integers(0, len(ODD))] if name.startswith("text") else None
        rows.append(row)
    return rows


def test_the_kernels_know_the_modulus_of_keys() -> None:
    assert scoring.MODULUS == MODULUS


def test_compiled_rows_have_the_bits_of_plain_ones(made: Scorer, plain: Scorer) -> None:
    rows = rows_of_made(2_000)
    assert made.compiled is not None
    assert [made.log_odds_one(row) for row in rows] == [plain.log_odds_one(row) for row in rows]


def test_known_combinations_have_the_bits_of_plain_ones(made: Scorer, plain: Scorer) -> None:
    n_known = 0
    for cross in made.model.producer.crosses:
        if all(2 <= field <= 6 for field in cross.fields):
            for codes in cross.values[:200].tolist():
                row = {f"text{field - 2}": f"t{code - 2}" for field, code in zip(cross.fields, codes, strict=True) if code > 1}
                assert made.log_odds_one(row) == plain.log_odds_one(row)
                n_known += 1
    assert n_known > 500


@given(
    st.fixed_dictionaries({name: st.one_of(st.sampled_from(ODD), st.floats(), st.integers()) for name in ("number0", "number1")})
)
def test_numbers_fall_into_the_bins_of_plain_ones(made: Scorer, plain: Scorer, row: Row) -> None:
    def outcome(scorer: Scorer) -> Any:
        try:
            return scorer.log_odds_one(row)
        except ColumnError as error:
            return str(error)

    assert outcome(made) == outcome(plain)


@pytest.mark.parametrize("value", [["a"], {"a": 1}, np.array([1, 2]), 3j])
@pytest.mark.parametrize("name", ["text1", "number0"])
def test_a_value_that_is_refused_is_named(made: Scorer, plain: Scorer, name: str, value: Any) -> None:
    row = {"text0": "t1", name: value}
    with pytest.raises(ColumnError, match=f"Column '{name}'") as compiled:
        made.score_one(row)
    with pytest.raises(ColumnError) as by_value:
        plain.score_one(row)
    assert str(compiled.value) == str(by_value.value)
    assert made.score_one({}) == plain.score_one({})  # and nothing of it stays behind


def test_threads_do_not_disturb_each_other(made: Scorer) -> None:
    rows = rows_of_made(500)
    expected, start = [made.score_one(row) for row in rows], Barrier(8)

    def work(first: int) -> list[float]:
        start.wait()
        return [made.score_one(row) for row in rows[first:] + rows[:first]]

    with ThreadPoolExecutor(8) as pool:
        for number, scores in enumerate(pool.map(work, range(0, 400, 50))):
            assert scores == expected[50 * number :] + expected[: 50 * number]


def test_a_scorer_that_was_pickled_or_copied_scores_the_same(made: Scorer) -> None:
    rows = rows_of_made(50)
    expected = [made.score_one(row) for row in rows]
    for twin in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert [twin.score_one(row) for row in rows] == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_scores_the_same(made: Scorer) -> None:
    rows = rows_of_made(50)
    expected = [made.score_one(row) for row in rows]
    here, there = os.pipe()
    if not (child := os.fork()):
        os.write(there, b"same" if [made.score_one(row) for row in rows] == expected else b"other")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(here, 10) == b"same"


# Many rows, by the same plan.


@pytest.mark.parametrize("n_rows", [0, 1, 257, 3_000])
def test_many_rows_have_the_bits_of_the_model(made: Scorer, n_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_rows, "FEW", 700)
    monkeypatch.setattr(many_rows, "TOGETHER", 300)
    monkeypatch.setattr(many_rows, "n_cores", lambda: 3)
    texts = {f"text{number}": pl.String for number in range(5)}
    rows = [
        {name: value if isinstance(value, str) or "number" in name else None for name, value in row.items()}
        for row in rows_of_made(n_rows)
    ]
    frame = pl.DataFrame(rows, schema={**texts, "number0": pl.Float64, "number1": pl.Int64})
    expected = made.model.log_odds(made.table(frame))
    assert made.compiled is not None
    np.testing.assert_array_equal(made.log_odds(frame), expected)
    assert [made.log_odds_one(row) for row in rows] == expected.tolist()


# A fitted model, with columns of every kind that has one value a row.


@pytest.fixture(scope="module")
def fitted(people: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("one_row") / "model.acx"
    AutoCrossClassifier(quiet=True, engine="serial").fit(people.drop("tags"), "bought").save(path)
    return path


def test_a_fitted_model_scores_one_row_as_many(fitted: Path, people: pl.DataFrame) -> None:
    scorer, rows = load(fitted), people.drop("tags", "bought").to_dicts()
    assert scorer.compiled is not None
    assert [scorer.score_one(row) for row in rows] == scorer.score(people).tolist()
    assert [by_python(scorer).score_one(row) for row in rows] == scorer.score(people).tolist()


@pytest.mark.slow
def test_a_private_model_scores_one_row_as_many(people: pl.DataFrame) -> None:
    model = AutoCrossClassifier(quiet=True, engine="serial", max_crosses=1, private=True).fit(people.drop("tags"), "bought")
    assert model.scorer_.compiled is not None
    rows = people.drop("tags", "bought").head(50)
    assert [model.scorer_.score_one(row) for row in rows.to_dicts()] == model.scorer_.score(rows).tolist()


def test_lists_are_scored_without_compiled_code(saved_model: Path) -> None:
    assert load(saved_model).compiled is None


@pytest.mark.slow
@pytest.mark.parametrize("without", [True, False])
def test_without_numba_the_scores_are_the_same(fitted: Path, without: bool) -> None:
    row = {"job": "cook", "age": 37.5, "rooms": 2, "member": True, "born": "1971-02-03"}
    block = 'sys.modules["numba"] = None' if without else "pass"
    code = (
        f"import sys; {block}; from autocross import load; model = load({str(fitted)!r}); "
        f"assert (model.compiled is None) is {without}; print(model.score_one({row}).hex())"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, timeout=120, capture_output=True, text=True).stdout
    assert float.fromhex(told) == load(fitted).score_one(row)


@pytest.mark.slow
def test_nothing_compiles_after_the_load(fitted: Path) -> None:
    code = (
        f"from autocross import load; model = load({str(fitted)!r}); from autocross.kernels import scoring; "
        "before = scoring.log_odds.signatures; assert len(before) == 1; "
        "[model.score_one(row) for row in ({}, {'job': 'x', 'age': 3}, {'age': None, 'born': '2024-01-01'}, {'rooms': 10**400})]; "
        "assert scoring.log_odds.signatures == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
