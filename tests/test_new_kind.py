"""A new kind of column is one new file: here, texts of which the length tells something, from fit to explanation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from autocross import AutoCross, AutoCrossClassifier, load
from autocross.checks import Facts, require
from autocross.cli import run
from autocross.encoding import registry
from autocross.encoding.column import Arrays, ColumnEncoder, StoredArrays
from autocross.encoding.plan import EncodingPlan, tallied
from autocross.encoding.values import Missing, Part, Rare
from autocross.errors import BundleError, ColumnError, OptionError
from autocross.features import FIRST, MISSING, RARE, Field, FieldCodes, narrowest
from autocross.producer.features import Features
from autocross.table import schema
from autocross.table.columns import TextColumn
from autocross.table.schema import ColumnSchema
from autocross.table.values import refused, shown, stored_text
from forgery import forge, parts

# All that a kind of column needs.


@dataclass(frozen=True)
class Lengths(ColumnEncoder):
    """The lengths of texts that were seen often enough, in order."""

    coder: ClassVar[str] = "lengths"

    lengths: tuple[int, ...]

    @classmethod
    def fit(cls, schema: ColumnSchema, column: TextColumn, rules: EncodingPlan, n: NDArray[np.int64] | None = None) -> Lengths:
        values, index = column.distinct
        there = index >= 0
        lengths, counts = tallied(values.str.len_chars().to_numpy()[index[there]], None if n is None else n[there])
        return cls(schema, tuple(lengths[counts >= rules.min_count].tolist()))

    @property
    def fields(self) -> tuple[Field, ...]:
        return (Field(f"{self.column.name}.length", self.column.name, FIRST + len(self.lengths), shares_rare=True),)

    def code_of(self, text: str | None) -> int:
        if text is None:
            return MISSING
        return FIRST + self.lengths.index(len(text)) if len(text) in self.lengths else RARE

    def encode(self, column: TextColumn) -> list[FieldCodes]:
        values, index = column.distinct
        codes = np.array([*map(self.code_of, values.to_list()), MISSING], narrowest(self.fields[0].n_codes))
        return [FieldCodes(codes[index])]

    def encode_one(self, value: Any) -> tuple[int, ...]:
        try:
            return (self.code_of(stored_text(value, self.column.stored)),)
        except ValueError as error:
            raise refused(self.column.name, self.column.kind, "the row", shown(value), str(error)) from None

    def value_of(self, place: int, number: int) -> Part:
        return Part("length", self.lengths[number])

    def keep(self, places: Sequence[int]) -> Lengths:
        return self

    def pack(self, number: int, arrays: Arrays) -> Facts:
        arrays[f"lengths.{number}"] = np.array(self.lengths, np.int64)
        return {}

    @classmethod
    def expect(cls, number: int, entry: Facts, column: ColumnSchema, stored: StoredArrays) -> list[tuple[str, int]]:
        (n_lengths,) = stored.expect(f"lengths.{number}", "I64", (None,), f"column {column.name!r} has no proper lengths")
        return [(f"{column.name}.length", FIRST + n_lengths)]

    @classmethod
    def unpack(cls, number: int, entry: Facts, column: ColumnSchema, stored: StoredArrays) -> Lengths:
        lengths = stored.array(f"lengths.{number}", f"column {column.name!r}")
        require(bool((np.diff(lengths) > 0).all()), f"column {column.name!r} has lengths that do not rise")
        return cls(column, tuple(lengths.tolist()))


@pytest.fixture(autouse=True)
def length() -> Iterator[None]:
    """The kind, registered for one test."""
    registry.register("length", "text", Lengths)
    yield
    forget()


def forget() -> None:
    """As in a process that knows nothing of the kind."""
    for known, word in ((schema.READINGS, "length"), (registry.OF_KIND, "length"), (registry.OF_CODER, "lengths")):
        known.pop(word, None)  # type: ignore[attr-defined]


# What comes of it.


def notes() -> pl.DataFrame:
    """Texts of digits that all differ, short ones more often of the positive label, in one of two places the other way round."""
    rng = np.random.default_rng(0)
    length, place = rng.integers(5, 12, 3_000), rng.choice(["north", "south"], 3_000)
    text = [f"{number:05d}".rjust(n, "0") for number, n in enumerate(length)]
    label = rng.random(3_000) < np.where((length < 8) == (place == "north"), 0.9, 0.1)
    note = pl.Series(text).set(pl.Series(rng.random(3_000) < 0.05), None)
    return pl.DataFrame({"note": note, "place": place, "label": label})


def fitted(rows: Any = None, **options: Any) -> AutoCrossClassifier:
    rows = notes() if rows is None else rows
    return AutoCrossClassifier(quiet=True, types={"note": "length"}, **options).fit(rows, "label")


def test_fit_save_load_score_and_explain(tmp_path: Path) -> None:
    rows = notes()
    model = fitted()
    assert [cross.fields for cross in model.crosses_] == [("note.length", "place")]
    model.save(tmp_path / "model.acx")
    scorer = load(tmp_path / "model.acx")
    assert scorer.model.producer.encoder.columns[0] == model.model_.producer.encoder.columns[0]
    features = rows.drop("label")
    together = scorer.score(features)
    np.testing.assert_array_equal(together, model.predict_proba(features)[:, 1])
    np.testing.assert_array_equal([scorer.score_one(row) for row in features.head(300).to_dicts()], together[:300])
    assert (
        scorer.score_one({"note": "0" * 6, "place": "north"}) > 0.8 > 0.2 > scorer.score_one({"note": "x" * 10, "place": "north"})
    )
    for note, words in (("abcdefg", "length 7"), ("a" * 99, "(rare)"), (None, "(missing)")):
        explained = scorer.explain({"note": note, "place": "north"}, by="field")
        assert {reason.name: reason.value for reason in explained.reasons}["note.length"] == words
        total = explained.mean_log_odds + sum(reason.contribution for reason in explained.reasons)
        assert total == pytest.approx(explained.log_odds)


def test_values_words_and_transformed_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = notes()
    model = AutoCross(quiet=True, types={"note": "length"}).fit(rows.drop("label"), rows["label"])
    producer = model.model_.producer
    assert [producer.value(0, code) for code in range(3)] == [Missing(), Rare(), Part("length", 5)]
    names = Features(model.model_).value_names()
    assert names[:4] == ["note.length=(missing)", "note.length=(rare)", "note.length=5", "note.length=6"]
    frame = pl.DataFrame(model.transform(rows.drop("label"), output="frame"))
    expected = ["(missing)" if text is None else str(len(text)) for text in rows["note"]]
    assert frame["note.length"].to_list() == expected
    model.save(tmp_path / "model.acx")
    assert run(["show", str(tmp_path / "model.acx"), "--all"]) == 0
    assert "note (declared)" in capsys.readouterr().out


def test_files_refits_checkpoints_and_private_models(tmp_path: Path) -> None:
    rows = notes()
    rows.write_csv(tmp_path / "rows.csv")  # whose cells look like numbers
    model = fitted(checkpoint=str(tmp_path / "rounds"))
    for other in (
        fitted(tmp_path / "rows.csv"),
        fitted(resume=str(tmp_path / "rounds")),
        fitted(private=True),
        fitted(rows.with_columns(note=pl.Series(rows["note"].to_list(), dtype=pl.Object))),
    ):
        np.testing.assert_array_equal(other.decision_function(rows.drop("label")), model.decision_function(rows.drop("label")))
    again = model.refit(rows, "label")
    assert again.model_.producer.names == ["note.length", "place", "note.length x place"]


def test_what_does_not_fit(tmp_path: Path) -> None:
    model = fitted(max_crosses=0)
    model.save(tmp_path / "model.acx")
    with pytest.raises(ColumnError, match=r"Column 'note' is length, but the row holds \['a'\]"):
        load(tmp_path / "model.acx").score_one({"note": ["a"]})
    manifest, arrays = parts(tmp_path / "model.acx")
    forge(tmp_path / "forged.acx", manifest, {**arrays, "lengths.0": arrays["lengths.0"][::-1].copy()})
    with pytest.raises(BundleError, match="column 'note' has lengths that do not rise"):
        load(tmp_path / "forged.acx")
    forget()
    with pytest.raises(BundleError, match="column 'note' has no known kind"):
        load(tmp_path / "model.acx")
    with pytest.raises(OptionError, match=r"'length'\. Choose one of: categorical, numerical, multivalue, time, ignore\."):
        fitted()
