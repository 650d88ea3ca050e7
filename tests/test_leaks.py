"""Warnings about validation scores that are too good to be true. They change no model."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest

from autocross import AutoCrossClassifier
from autocross.blocks import Block, make_blocks
from autocross.engines import Engine
from autocross.errors import TableWarning
from autocross.features import RARE, FieldCodes
from autocross.fitting import leaks
from autocross.folds import FoldPlan, by_row

pytestmark = pytest.mark.slow  # all of it takes seconds, and few changes touch it


def table(n_rows: int = 1500, seed: int = 3) -> pl.DataFrame:
    """A number, a text of some values and one of many, of which the first two tell something about the label."""
    rng = np.random.default_rng(seed)
    size, colour = rng.normal(0, 1, n_rows), rng.integers(0, 4, n_rows)
    label = rng.random(n_rows) < 1 / (1 + np.exp(-size - (colour == 1)))
    town = rng.integers(0, 300, n_rows)
    return pl.DataFrame({"size": size, "colour": colour.astype(str), "town": town.astype(str), "y": label.astype(int)})


def said(rows: pl.DataFrame, **options: Any) -> list[str]:
    """What a fit without crosses warns about."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TableWarning)
        AutoCrossClassifier(quiet=True, **{"engine": "serial", "max_crosses": 0, **options}).fit(rows, "y")
    return [str(warning.message) for warning in caught]


# A column that knows the label.

Y, N = pl.col("y") == 1, pl.len()
ANSWERS = {
    "text": pl.when(Y).then(pl.lit("paid")).otherwise(pl.lit("open")),
    "whole numbers": pl.when(Y).then(pl.int_range(N) % 50 + 20).otherwise(pl.int_range(N) % 20),
    "a number": pl.col("y") + pl.col("size").rank() / pl.len() * 0.9,
    "missing for one label": pl.when(Y).then(pl.col("size")),
}


@pytest.mark.parametrize("case", ANSWERS)
@pytest.mark.parametrize("options", [{}, {"metric": "log_loss"}, {"evaluation": "holdout"}], ids=str)
def test_a_column_that_knows_the_label_is_named(case: str, options: dict[str, Any]) -> None:
    (message,) = said(table().with_columns(ANSWERS[case].alias("after")), **options)
    assert message.startswith("Column 'after' alone predicts the label almost perfectly (AUC ")
    assert message.endswith("leave it out by exclude=['after'] (--exclude after).")
    assert said(table().with_columns(ANSWERS[case].alias("after")), exclude=["after"], **options) == []


def test_several_columns_that_know_the_label_are_named_together() -> None:
    (message,) = said(table().with_columns(ANSWERS["text"].alias("paid"), ANSWERS["a number"].alias("late")))
    assert message.startswith("Columns 'late', 'paid' predict, each alone, the label almost perfectly")
    assert "exclude=['late', 'paid']" in message


NO_ANSWERS = {
    "an ordinary table": table(),
    "a strong column": table().with_columns((pl.col("y") * 2 + pl.col("town").hash(1) % 1000 / 400).alias("strong")),
    "only together": table().with_columns(  # each of the two tells some of the positive rows
        (pl.col("y") * (pl.col("town").hash(2) % 2)).alias("one"), (pl.col("y") * (1 - pl.col("town").hash(2) % 2)).alias("other")
    ),
    "few rows": table(80).with_columns(ANSWERS["text"].alias("after")),
    "the only column": table().select("y", ANSWERS["text"].alias("after")),
    "lists": table().with_columns(pl.concat_list(ANSWERS["text"]).alias("after")),
}


@pytest.mark.parametrize("case", NO_ANSWERS)
def test_other_columns_are_not_named(case: str) -> None:
    assert said(NO_ANSWERS[case]) == []


@pytest.mark.parametrize("forward", [False, True])
def test_auc_alone_is_that_of_rates_of_the_rows_learned_from(forward: bool) -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    n, n_codes, n_folds = 500, 7, 5
    code, fold, label = rng.integers(0, n_codes, n), rng.integers(0, n_folds + forward, n), rng.integers(0, 2, n)
    counts = np.zeros((n_codes, n_folds + 1, 2), np.int64)
    np.add.at(counts, (code, fold, label), 1)
    score = np.zeros(n)
    for row in range(n):
        others = (fold < fold[row]) | (fold == n_folds) if forward else fold != fold[row]
        same = others & (code == code[row])
        score[row] = (label[same].sum() + leaks.PRIOR * label[others].mean()) / (same.sum() + leaks.PRIOR)
    judges = fold < n_folds
    assert leaks.auc_alone(counts, forward) == pytest.approx(roc_auc_score(label[judges], score[judges]), abs=1e-12)


# Rows that occur several times.


def with_copies(rows: pl.DataFrame, share: float) -> pl.DataFrame:
    """The rows, and copies of some of them."""
    return pl.concat([rows, rows.sample(fraction=share, seed=5)])


@pytest.mark.parametrize("options", [{}, {"metric": "log_loss"}, {"evaluation": "holdout"}, {"engine": "threads"}], ids=str)
def test_copies_of_rows_give_two_figures(options: dict[str, Any]) -> None:
    (message,) = said(with_copies(table(4000), 0.6), **options)
    assert "of the rows have a twin in another fold that is equal in every column" in message
    first, second = (float(word.strip(",")) for word in message.split() if word.startswith("0."))
    assert first > second + leaks.TOO_GOOD
    assert message.endswith("Drop duplicates, or name what twins share by groups=.")


@pytest.mark.parametrize("label", [0, 1])
def test_copies_of_one_label_are_called_oversampling(label: int) -> None:
    rows = table()
    (message,) = said(pl.concat([rows, *[rows.filter(pl.col("y") == label)] * 9]))
    assert message.startswith(f"100% of the rows with label {label} have a twin in another fold that is equal in every column")
    assert "and 0% of the others have, as after oversampling" in message
    assert message.endswith("Drop duplicates; sample weights can do what copies are for.")


def of_few_values() -> pl.DataFrame:
    """Rows that are equal by chance, because there are few values. The label depends on both columns."""
    rng = np.random.default_rng(1)
    a, b = rng.zipf(1.5, 4000).clip(0, 60), rng.zipf(1.5, 4000).clip(0, 60)
    label = rng.random(4000) < 1 / (1 + np.exp(1 - a / 3 + b / 5))
    return pl.DataFrame({"a": a.astype(str), "b": b.astype(str), "y": label.astype(int)})


NO_COPIES = {
    "no copies": (table(), {}),
    "few copies": (with_copies(table(), 0.02), {}),
    "copies in one group": (with_copies(table().with_row_index("who"), 0.6), {"groups": "who"}),
    "rows of few values": (of_few_values(), {}),
    "all rows have twins": (of_few_values().with_columns(pl.col("a", "b").str.len_chars()), {}),
    "few rows": (with_copies(table(80), 0.6), {}),
    "values that are rare": (table().select("colour", "y", pl.int_range(pl.len()).clip(20).cast(pl.String).alias("who")), {}),
}


@pytest.mark.parametrize("case", NO_COPIES)
def test_where_nothing_is_wrong_twins_are_not_mentioned(case: str) -> None:
    rows, options = NO_COPIES[case]
    assert [message for message in said(rows, **options) if "twin" in message] == []


def test_many_rows_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autocross.fitting.run.EXACT_ROWS", 1000)
    assert said(with_copies(table(), 0.6)) == []


def test_the_model_is_the_same_without_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = with_copies(table().with_columns(ANSWERS["a number"].alias("after")), 0.6)

    def fitted() -> np.ndarray[Any, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TableWarning)
            return AutoCrossClassifier(quiet=True, engine="serial", max_crosses=2).fit(rows, "y").decision_function(rows)

    looked = fitted()
    monkeypatch.setattr(leaks, "find_twins", lambda *_: None)
    monkeypatch.setattr(leaks, "warn_of_answers", lambda *_: None)
    assert fitted().tobytes() == looked.tobytes()


def stems(n_rows: int) -> list[FieldCodes]:
    """Codes of two columns, the second of them with several codes in a row."""
    rng = np.random.default_rng(2)
    starts = np.arange(n_rows + 1) * 2
    return [
        FieldCodes(rng.integers(0, 6, n_rows).astype(np.uint8)),
        FieldCodes(rng.integers(2, 5, 2 * n_rows).astype(np.uint8), starts),
    ]


def hashed(block: Block) -> Any:
    """`row_hashes` of a block that has its fields where they would be before they are laid out."""
    block.codes = {(-1 - cross[0],) if cross else cross: coded for cross, coded in block.codes.items()}
    return leaks.row_hashes(block, [0])


@pytest.mark.parametrize("n_blocks", [1, 3])
def test_twins_are_equal_rows_of_different_folds(engine: Engine, n_blocks: int) -> None:
    n_rows = 400
    codes, label = stems(n_rows), np.zeros(n_rows, np.uint8)
    folds = by_row(n_rows, 0, False, "")
    engine.place(make_blocks(codes, label, np.ones(n_rows, np.float32), FoldPlan(1, holdout=True), 0, n_blocks))
    hashes = np.zeros(n_rows, np.uint64)
    for row, row_hash, _ in engine.each(hashed):
        hashes[row] = row_hash
    twins = leaks.grouped(hashes, label, folds)
    held = [(int(one), *several) for one, several in zip(codes[0].codes, codes[1].codes.reshape(-1, 2).tolist(), strict=True)]
    for row, (what, fold) in enumerate(zip(held, folds.fold, strict=True)):
        others = [folds.fold[other] for other in range(n_rows) if held[other] == what and what[0] != RARE]
        assert twins.apart[row] == any(other != fold for other in others)
