"""What a model file, a checkpoint and a journal tell of the rows: nothing of columns left out, and of private models no value."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from autocross import AutoCross, AutoCrossClassifier, load
from autocross.checkpoint import FILE
from autocross.cli import run
from autocross.encoding import registry
from autocross.encoding.plan import EncodingPlan
from autocross.encoding.vocabulary import PrivateVocabulary, Vocabulary
from autocross.errors import BundleError, ColumnError, OptionError, TableWarning
from autocross.options import Options
from autocross.producer import bundle
from autocross.producer.wording import words
from autocross.table import ingest
from autocross.table.coerce import lists, texts
from autocross.table.schema import ColumnSchema
from forgery import forge, parts

pytestmark = pytest.mark.slow  # all of it takes seconds, and few changes touch it


def patients(n_rows: int = 600) -> pl.DataFrame:
    """A column of every kind, texts that occur nowhere else, and a label that two columns decide together."""
    rng = np.random.default_rng(11)
    ward = rng.choice(["wardalpha", "wardbeta", "wardgamma"], n_rows)
    drug = rng.choice(["drugdelta", "drugzeta", "drugeta"], n_rows)
    risk = 2.0 * ((ward == "wardalpha") == (drug == "drugzeta")) - 1.0
    return pl.DataFrame(
        {
            "ward": ward,
            "drug": drug,
            "signs": [
                [f"sign{name}" for name in rng.choice(["iota", "kappa", "mu"], rng.integers(0, 3), replace=False)] for _ in ward
            ],
            "stage": rng.integers(7_701_234_567_891, 7_701_234_567_895, n_rows),
            "smoker": rng.random(n_rows) < 0.5,
            "weight": rng.normal(80, 15, n_rows).round(2),
            "admitted": [f"2024-{rng.integers(1, 13):02}-{rng.integers(1, 29):02}" for _ in ward],
            "died": rng.random(n_rows) < 1 / (1 + np.exp(-risk)),
        }
    )


VALUES = [
    "wardalpha",
    "wardbeta",
    "wardgamma",
    "drugdelta",
    "drugzeta",
    "drugeta",
    "signiota",
    "signkappa",
    "signmu",
    "770123456789",
]

LEFT_OUT = {
    "constant": pl.lit("hiddenconstant"),
    "constant number": pl.lit(987_654_321),
    "constant moment": pl.lit("1987-06-05"),
    "id": pl.Series([f"hiddenid{at}" for at in range(600)]),
    "struct": pl.Series([{"inner": "hiddeninner"}] * 600, dtype=pl.Struct({"inner": pl.Enum(["hiddeninner", "hiddenother"])})),
    "lists of lists": pl.Series([[["hiddenlist"]]] * 600),
    "excluded": pl.Series([f"hiddenname{at % 7}" for at in range(600)]),
    "ignored": pl.Series([f"hiddenword{at % 7}" for at in range(600)]),
    "group": pl.Series([f"hiddengroup{at % 60}" for at in range(600)]),
}
SECRETS = ["hidden", "987654321", "987,654,321", "1987-06"]


def everything(folder: Path) -> str:
    """The bytes of all files there, with escapes of JSON in them resolved."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found.append(path.read_bytes().decode("latin-1"))
    return "\n".join(found)


def kept(folder: Path, frame: pl.DataFrame, **options: Any) -> AutoCrossClassifier:
    """A fit with everything on that it may write."""
    classifier = AutoCrossClassifier(
        engine="serial", journal=str(folder / "journal.jsonl"), checkpoint=str(folder / "checkpoint"), **options
    )
    classifier.fit(frame, "died").save(folder / "model.acx")
    return classifier


def test_columns_left_out_leave_no_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = patients().with_columns(**LEFT_OUT)
    with pytest.warns(TableWarning, match="left out"):
        kept(tmp_path, frame, exclude=["excluded"], types={"ignored": "ignore"}, groups="group", max_crosses=2)
    reasons = {column.name: column.reason for column in load(tmp_path / "model.acx").model.producer.encoder.schema}
    assert reasons["constant"] == reasons["constant number"] == reasons["constant moment"] == "constant"
    assert reasons["struct"] == "values of type Struct cannot be read"
    assert reasons["lists of lists"] == "values of type List(List(String)) cannot be read"
    assert run(["show", str(tmp_path / "model.acx")]) == 0
    printed = capsys.readouterr()
    assert (tmp_path / "checkpoint" / FILE).exists()
    for secret in SECRETS:
        assert secret not in everything(tmp_path) + printed.out + printed.err, secret


# Private models.


@dataclass(frozen=True)
class Pair:
    """The same fit, readable and private, and the folders of what each wrote."""

    readable: AutoCrossClassifier
    private: AutoCrossClassifier
    of_readable: Path
    of_private: Path


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folders = [tmp_path_factory.mktemp(name) for name in ("readable", "private")]
    fits = [kept(folder, patients(), quiet=True, private=folder is folders[1], max_crosses=3) for folder in folders]
    return Pair(*fits, *folders)


def test_a_private_model_keeps_no_value(pair: Pair) -> None:
    readable, private = pair.readable, pair.private
    assert private.crosses_
    written = everything(pair.of_private) + pickle.dumps(private).decode("latin-1")
    assert (pair.of_private / "checkpoint" / FILE).exists()
    for value in VALUES:
        assert value not in written, value
        assert value in pickle.dumps(readable).decode("latin-1")


def test_a_private_model_scores_as_the_readable_one_to_the_bit(pair: Pair, tmp_path: Path) -> None:
    readable, private = pair.readable, pair.private
    unknown = pl.DataFrame({"ward": ["wardomega", "NA", None], "drug": ["", "drugeta", "drugeta"]})
    frame = pl.concat([patients(), unknown], how="diagonal")
    expected = readable.decision_function(frame)
    scorer = load(pair.of_private / "model.acx")
    np.testing.assert_array_equal(private.decision_function(frame), expected)
    np.testing.assert_array_equal(scorer.log_odds(frame), expected)
    np.testing.assert_array_equal([scorer.log_odds_one(row) for row in frame.to_dicts()], expected)
    frame.write_parquet(tmp_path / "rows.parquet")
    np.testing.assert_array_equal(scorer.log_odds(tmp_path / "rows.parquet"), expected)
    assert private.model_.about.crosses == readable.model_.about.crosses


@pytest.mark.parametrize("way", ["threads", "parts"])
def test_every_way_to_fit_gives_the_same_private_model(
    way: str, pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data: Any = patients()
    if way == "parts":
        monkeypatch.setattr(ingest, "bytes_in_memory", lambda path: 1 << 60)
        monkeypatch.setattr(ingest, "MOST_ROWS", 150)
        data.write_parquet(tmp_path / "rows.parquet")
        data = tmp_path / "rows.parquet"
    engine: dict[str, Any] = {"engine": "threads", "n_jobs": 3} if way == "threads" else {"engine": "serial"}
    other = AutoCrossClassifier(quiet=True, private=True, max_crosses=3, **engine).fit(data, "died")
    np.testing.assert_array_equal(other.decision_function(patients()), pair.readable.decision_function(patients()))
    for name in ("ward", "drug", "signs", "stage", "smoker"):
        assert column_of(other, name) == column_of(pair.private, name)


def test_the_command_line_fits_private_models_too(pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    patients().write_parquet(tmp_path / "rows.parquet")
    (tmp_path / "written").mkdir()
    path = tmp_path / "written" / "model.acx"
    options = ["--private", "--engine", "serial", "--max-crosses", "3", "--journal", str(tmp_path / "written" / "journal.jsonl")]
    assert run(["fit", str(tmp_path / "rows.parquet"), "--target", "died", "-o", str(path), *options]) == 0
    assert not any(value in everything(path.parent) + capsys.readouterr().err for value in VALUES)
    np.testing.assert_array_equal(load(path).log_odds(patients()), pair.readable.decision_function(patients()))


def test_a_search_may_go_on_in_private(pair: Pair) -> None:
    """Checkpoint and journal hold no value of a readable fit either."""
    folder = pair.of_readable / "checkpoint"
    journal = (folder.parent / "journal.jsonl").read_text()
    assert not any(value in everything(folder) + journal for value in VALUES)
    model = AutoCrossClassifier(quiet=True, engine="serial", private=True, max_crosses=3, resume=str(folder)).fit(
        patients(), "died"
    )
    assert column_of(model, "ward") == column_of(pair.private, "ward")
    np.testing.assert_array_equal(model.decision_function(patients()), pair.readable.decision_function(patients()))


def test_what_is_readable_names_columns_and_hashes(pair: Pair, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = pair.of_private / "model.acx"
    row = patients().row(0, named=True)
    patients().head(20).write_parquet(tmp_path / "rows.parquet")
    for command in (["show", "--all"], ["show", "--json"], ["explain", "--top", "9"], ["explain", "--json"], ["transform"]):
        given = [] if command[0] == "show" else [str(tmp_path / "rows.parquet")]
        assert run([command[0], str(path), *given, *command[1:]]) == 0
        printed = capsys.readouterr().out
        assert "#" in printed
        assert "ward" in printed
        assert not any(value in printed for value in VALUES)
    explained = {reason.name: reason.value for reason in pair.private.explain(row, by="field").reasons}
    readable = {reason.name: reason.value for reason in pair.readable.explain(row, by="field").reasons}
    vocabulary = column_of(pair.private, "ward")
    assert explained["ward"] == f"#{vocabulary.hash_of(row['ward'])[:8]}" != readable["ward"] == row["ward"]
    assert explained["weight [10 even]"] == readable["weight [10 even]"]
    assert explained["admitted.month"] == readable["admitted.month"]


def column_of(classifier: Any, name: str) -> Any:
    return next(column for column in classifier.model_.producer.encoder.columns if column.column.name == name)


def test_features_of_a_private_model_have_names_of_their_own() -> None:
    features = AutoCross(quiet=True, engine="serial", private=True, max_crosses=2).fit(patients(), "died")
    names = features.get_feature_names_out().tolist()
    assert len(set(names)) == len(names)
    assert not any(value in name for value in VALUES for name in names)
    assert any(name.startswith("ward=#") for name in names)
    frame = features.transform(patients(), output="frame")
    assert frame["ward"].n_unique() == 3
    assert frame["ward"].cast(pl.String).str.contains("^#[0-9a-f]{8}$").all()
    readable = AutoCross(quiet=True, engine="serial", max_crosses=2).fit(patients(), "died")
    assert (features.transform(patients()) != readable.transform(patients())).nnz == 0


def test_equal_fits_have_equal_hashes_and_other_schemas_others(pair: Pair) -> None:
    again = AutoCrossClassifier(quiet=True, engine="serial", private=True, max_crosses=0).fit(patients()[::2], "died")
    other = AutoCrossClassifier(quiet=True, engine="serial", private=True, max_crosses=0).fit(patients().drop("drug"), "died")
    ours = column_of(pair.private, "ward")
    assert set(column_of(again, "ward").values) == set(ours.values)
    assert set(column_of(other, "ward").values).isdisjoint(ours.values)
    same = patients().with_columns(twin=pl.col("ward"))
    both = AutoCrossClassifier(quiet=True, engine="serial", private=True, max_crosses=0).fit(same, "died")
    assert set(column_of(both, "ward").values).isdisjoint(column_of(both, "twin").values)


def test_the_hash_is_the_one_that_is_documented() -> None:
    """Values of the BLAKE2b of hashlib, which must be the same on every machine and in every version."""
    schema = ColumnSchema("job", "categorical", "text", "text")
    vocabulary = Vocabulary(schema, ("cook", "日本")).private((schema,))
    assert isinstance(vocabulary, PrivateVocabulary)
    assert vocabulary.salt == "9cb877b70160c6e06c1a6d6d6541cfd4"
    assert vocabulary.values == ("4472d910bd62057b8429e27c92b82b6b", "3d46684c5db96283e54a43a068acb8e3")


def test_refit_keeps_the_hashes(pair: Pair, tmp_path: Path) -> None:
    rows = patients(900)[300:]
    rows.write_parquet(tmp_path / "rows.parquet")
    for one, name in ((pair.readable, "open"), (pair.private, "private")):
        one.save(tmp_path / f"{name}.acx")
        assert run(["refit", str(tmp_path / f"{name}.acx"), str(tmp_path / "rows.parquet"), "-o", str(tmp_path / f"{name}2.acx"),
                    "--quiet", "--journal", str(tmp_path / "journal.jsonl")]) == 0  # fmt: skip
    readable, private = (load(tmp_path / f"{name}2.acx") for name in ("open", "private"))
    np.testing.assert_array_equal(readable.log_odds(rows), private.log_odds(rows))
    assert (private.log_odds(rows) != pair.private.decision_function(rows)).any()
    assert private.model.producer.encoder.columns[1] == pair.private.model_.producer.encoder.columns[1]
    assert isinstance(private.model.producer.encoder.columns[1], PrivateVocabulary)
    for path in (tmp_path / "private2.acx", tmp_path / "journal.jsonl"):
        assert not any(value in path.read_bytes().decode("latin-1") for value in VALUES)


def test_a_reader_that_knows_no_private_models_refuses_them(pair: Pair) -> None:
    """They came with format 3; all models are written in a later one now."""
    assert parts(pair.of_private / "model.acx")[0]["format"] > 3
    assert registry.OF_CODER["hashes"].format == 3


def test_a_private_model_without_texts_is_a_readable_one(tmp_path: Path) -> None:
    frame = patients().select("weight", "admitted", "died")
    for private in (False, True):
        AutoCrossClassifier(quiet=True, engine="serial", max_crosses=0, private=private).fit(frame, "died").save(
            tmp_path / f"{private}"
        )
    first, second = (parts(tmp_path / name)[0] for name in ("False", "True"))
    assert first["format"] == second["format"]
    assert first["columns"] == second["columns"]


def test_saving_a_private_model_again_writes_the_same_bytes(pair: Pair, tmp_path: Path) -> None:
    bundle.save(bundle.read(pair.of_private / "model.acx"), tmp_path / "again.acx")
    assert (tmp_path / "again.acx").read_bytes() == (pair.of_private / "model.acx").read_bytes()


def test_buckets_and_lists_of_a_private_vocabulary_are_those_of_the_readable_one() -> None:
    spelled = ["often"] * 9 + ["sometimes"] * 5 + [f"tail{at}" for at in range(50)] * 2 + [None, "NA", "unseen before"]
    column = texts(pl.Series("job", spelled))
    schema = ColumnSchema("job", "categorical", "text", "text")
    readable = Vocabulary.fit(schema, column, EncodingPlan(2, (10,), cap=2, n_buckets=16))
    private = readable.private((schema,))
    assert isinstance(private, PrivateVocabulary)
    np.testing.assert_array_equal(private.encode(column)[0].codes, readable.encode(column)[0].codes)
    assert [private.encode_one(word) for word in spelled] == [readable.encode_one(word) for word in spelled]
    assert [words(private.value(0, code)) for code in (0, 1, 4)] == ["(missing)", "(rare)", "(hashed 0)"]
    several = ColumnSchema("tags", "multivalue", "list", "holds lists")
    rows = pl.Series("tags", [["a", "b"], [], None, ["c", "a"], ["zz"]] * 3)
    readable = Vocabulary.fit(several, lists(rows, None), EncodingPlan(2, (10,)))
    private = readable.private((several,))
    for ours, theirs in zip(private.encode(lists(rows, None)), readable.encode(lists(rows, None)), strict=True):
        np.testing.assert_array_equal(ours.codes, theirs.codes)
        np.testing.assert_array_equal(ours.starts, theirs.starts)
    assert [private.encode_one(row) for row in rows.to_list()] == [readable.encode_one(row) for row in rows.to_list()]
    assert private.width == readable.width


@pytest.mark.slow
def test_hashes_are_shown_by_as_many_digits_as_tell_them_apart() -> None:
    schema = ColumnSchema("id", "categorical", "text", "text")
    private = Vocabulary(schema, tuple(f"value {at}" for at in range(200_000))).private((schema,))
    shown = {words(private.value(0, code)) for code in range(2, 200_002)}
    assert len(shown) == 200_000
    assert max(map(len, shown)) < 16


def test_a_failed_fit_leaves_no_value_in_the_journal(tmp_path: Path) -> None:
    frame = patients().with_columns(odd=pl.Series(["1.5"] * 599 + ["hiddenword"]))
    with pytest.raises(ColumnError, match="hiddenword"):
        AutoCrossClassifier(
            quiet=True, engine="serial", private=True, journal=str(tmp_path / "journal.jsonl"), types={"odd": "numerical"}
        ).fit(frame, "died")
    assert "hiddenword" not in everything(tmp_path)


@pytest.mark.parametrize("name", ["private", "quiet"])
@pytest.mark.parametrize("value", ["yes", "", 1, 0, None, 1.0, [True]], ids=repr)
def test_what_is_neither_true_nor_false_is_refused(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=rf"Option {name}=.* is neither True nor False\. Give one of the two"):
        Options(**{name: value})


def test_truth_of_numpy_is_truth() -> None:
    assert Options(private=np.True_, quiet=np.False_).private


HASHES = {
    "no salt": (lambda entry, arrays, at: entry.pop("salt"), "its manifest is damaged"),
    "a short salt": (lambda entry, arrays, at: entry.update(salt="00"), "column 'drug' has no proper salt"),
    "a salt of words": (lambda entry, arrays, at: entry.update(salt="x" * 32), "column 'drug' has no proper salt"),
    "a hash twice": (
        lambda entry, arrays, at: arrays[f"hash.{at}"].__setitem__(0, arrays[f"hash.{at}"][1]),
        "with one value twice",
    ),
    "short hashes": (
        lambda entry, arrays, at: arrays.update({f"hash.{at}": arrays[f"hash.{at}"][:, 1:].copy()}),
        "column 'drug' has no proper vocabulary",
    ),
    "an older format": (None, "its format does not fit its parts"),
}


@pytest.mark.parametrize("name", HASHES)
def test_forged_hashes_are_refused(name: str, pair: Pair, tmp_path: Path) -> None:
    change, message = HASHES[name]
    manifest, arrays = parts(pair.of_private / "model.acx")
    at = [entry["name"] for entry in manifest["columns"]].index("drug")
    if change is None:
        manifest["format"] = 1
    else:
        change(manifest["columns"][at], arrays, at)
    with pytest.raises(BundleError, match=message):
        load(forge(tmp_path / "bad.acx", manifest, arrays))
