"""Another kind of model is a file of its own: bundle, scorer, words and estimators do not know of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from autocross import AutoCrossClassifier, load
from autocross.checks import Facts, is_number, require
from autocross.errors import AutoCrossError, BundleError
from autocross.events import Reporter
from autocross.features import FieldCodes
from autocross.fitting.encode import Encoded
from autocross.fitting.finish import Finished
from autocross.fitting.fit import LaterStage, fit
from autocross.fitting.run import Run
from autocross.interrupts import Interrupt
from autocross.options import Options
from autocross.producer import bundle, kinds
from autocross.producer.addition import Addition, Arrays
from autocross.producer.container import Container
from autocross.producer.model import Model
from autocross.producer.words import in_words, summary
from autocross.table.columns import Table
from autocross.table.ingest import source_of
from autocross.table.source import Source


@dataclass(frozen=True)
class Shift(Addition):
    """Adds one number to every row, and as much again for each code of the first field."""

    key = "shift"
    format = 3
    reason = "(shift)"
    no_refit = "A shift cannot be refitted."

    by: float

    def log_odds(self, codes: Sequence[FieldCodes], log_odds: NDArray[np.float64], table: Table) -> NDArray[np.float64]:
        return self.by * (1.0 + codes[0].codes)

    def log_odds_one(self, codes: Sequence[Any], log_odds: float, row: Mapping[str, Any]) -> float:
        return self.by * (1.0 + codes[0])

    def pack(self, arrays: Arrays) -> Facts:
        arrays["shift.by"] = np.array([self.by])
        return {"n": 1}

    @classmethod
    def expect(cls, entry: Facts, sizes: Sequence[tuple[str, int]], stored: Container) -> None:
        require(entry["n"] == 1, "its shift is not one number")
        stored.expect("shift.by", "F64", (1,), "its shift is not one number")

    @classmethod
    def unpack(cls, entry: Facts, model: Model, stored: Container) -> Self:
        (by,) = stored.array("shift.by", "its shift").tolist()
        require(is_number(by), "its shift is no number")
        return cls(by)

    def summary(self) -> Facts:
        return {"by": self.by}

    @classmethod
    def in_words(cls, summary: Facts) -> str:
        return f"shifted by {summary['by']}"


def shifted(run: Run, source: Source, encoded: Encoded, finished: Finished) -> Finished:
    return replace(finished, additions=(*finished.additions, Shift(0.25)))


@pytest.fixture
def registered() -> Iterator[None]:
    kinds.register(Shift)
    yield
    del kinds.KINDS[Shift.key]


@pytest.mark.usefixtures("registered")
def test_a_model_of_another_kind_is_fitted_saved_read_scored_and_explained(people: pl.DataFrame, tmp_path: Path) -> None:
    people = people.drop("tags")
    options = Options(engine="serial", quiet=True, max_crosses=1)
    stage = LaterStage(0.5, lambda options, source: None, shifted)
    source = source_of(people, "bought", None, options)
    model = fit(source, options, Reporter(), Interrupt(), stage)
    bundle.save(model, tmp_path / "model.acx")
    scorer = load(tmp_path / "model.acx")
    assert scorer.model.additions == (Shift(0.25),)
    plain = AutoCrossClassifier(engine="serial", quiet=True, max_crosses=1).fit(people, "bought").scorer_
    rows = people.drop("bought")
    first = model.producer.codes_one(rows.row(0, named=True))[0]
    explanation = scorer.explain(rows.row(0, named=True))
    assert {reason.name: reason.contribution for reason in explanation.reasons}["(shift)"] == 0.25 * (1 + first)
    assert explanation.log_odds == pytest.approx(plain.log_odds_one(rows.row(0, named=True)) + 0.25 * (1 + first))
    np.testing.assert_array_equal(scorer.score(rows), [scorer.score_one(row) for row in rows.iter_rows(named=True)])
    assert "shifted by 0.25" in in_words(summary(scorer.model))
    classifier = AutoCrossClassifier(quiet=True)
    classifier._keep(model)
    with pytest.raises(AutoCrossError, match=r"A shift cannot be refitted\."):
        classifier.refit(people, "bought")


def test_who_does_not_know_the_kind_refuses_the_file(people: pl.DataFrame, tmp_path: Path) -> None:
    model = AutoCrossClassifier(engine="serial", quiet=True, max_crosses=0).fit(people, "bought").model_
    kinds.register(Shift)
    try:
        bundle.save(replace(model, additions=(Shift(0.5),)), tmp_path / "model.acx")
    finally:
        del kinds.KINDS[Shift.key]
    with pytest.raises(BundleError, match="a part 'shift', which this version of autocross does not know"):
        load(tmp_path / "model.acx")
