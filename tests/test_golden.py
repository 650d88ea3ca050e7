"""Bundles of every format, kept from the day on which they were made: they load and score to the bit in all later versions."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
import pytest

from autocross import load
from autocross.producer import unpacking
from autocross.producer.words import in_words, summary
from golden import make

GOLDEN = make.HERE

Expected = tuple[list[dict[str, Any]], list[float]]


def expected(name: str) -> Expected:
    """Rows and their log-odds."""
    kept = json.loads((GOLDEN / f"{name}.json").read_text())
    return [one["row"] for one in kept], [float.fromhex(one["log_odds"]) for one in kept]


@pytest.mark.parametrize("name", make.FORMATS)
def test_a_golden_file_scores_as_on_the_day_it_was_made(name: str) -> None:
    rows, log_odds = expected(name)
    assert len(set(log_odds)) > make.N_KEPT / 2
    scorer = load(GOLDEN / f"{name}.acx")
    np.testing.assert_array_equal([scorer.log_odds_one(row) for row in rows], log_odds)
    np.testing.assert_array_equal(scorer.log_odds(pl.DataFrame(rows, infer_schema_length=None)), log_odds)
    probability = scorer.score(pl.DataFrame(rows, infer_schema_length=None))
    np.testing.assert_array_equal([scorer.score_one(row) for row in rows], probability)
    assert "fitted to 3,000 rows" in in_words(summary(scorer.model))
    assert scorer.explain(rows[0]).log_odds == log_odds[0]


def test_every_format_that_can_be_written_has_a_golden_file() -> None:
    assert {f"format-{number}" for number in range(1, unpacking.FORMAT + 1)} <= {path.stem for path in GOLDEN.glob("*.acx")}


def test_golden_files_are_small_and_are_not_overwritten() -> None:
    before = {path: path.read_bytes() for path in GOLDEN.iterdir() if path.is_file()}
    assert all(len(content) < 100_000 for content in before.values())
    for name in make.FORMATS:
        assert not make.write(name, lambda: pytest.fail("fitted a model for a format that has one"))
    assert {path: path.read_bytes() for path in GOLDEN.iterdir() if path.is_file()} == before
