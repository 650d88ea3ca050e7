"""A saved model: the same scores to the bit, one row or many, and reasons that add up."""

from __future__ import annotations

import json
import math
import os
import pickle
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.special
from safetensors import safe_open
from safetensors.numpy import save as to_bytes
from sklearn.base import clone

from autocross import load
from autocross.encoding.discretize import Bins
from autocross.encoding.encoder import Encoder
from autocross.errors import BundleError, FileError
from autocross.estimator import AutoCrossClassifier
from autocross.features import Penalty
from autocross.producer import bundle
from autocross.producer.model import Model, Producer
from autocross.producer.words import summary
from autocross.serving.scorer import probabilities, probability
from autocross.table.schema import ColumnSchema


def test_a_round_trip_keeps_every_score_to_the_bit(
    classifier: AutoCrossClassifier, saved_model: Path, people: pl.DataFrame
) -> None:
    model = load(saved_model)
    np.testing.assert_array_equal(model.score(people), classifier.predict_proba(people)[:, 1])
    np.testing.assert_array_equal(model.log_odds(people), classifier.decision_function(people))
    assert model.model.about == replace(classifier.model_.about, history=without_seconds(classifier))
    assert model.model.penalties == classifier.model_.penalties


def without_seconds(fitted: AutoCrossClassifier) -> tuple[dict[str, Any], ...]:
    return tuple({"crosses": record["crosses"], "score": record["score"]} for record in fitted.history_)


def test_saving_again_writes_the_same_bytes(saved_model: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.acx"
    bundle.save(bundle.read(saved_model), again)
    assert again.read_bytes() == saved_model.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"engine": "threads", "n_jobs": 1}, {"engine": "threads", "n_jobs": 3}, {"memory_limit": 2.0}, {"time_limit": 1e6}, {}],
    ids=str,
)
def test_equal_fits_write_equal_bytes(options: dict[str, Any], people: pl.DataFrame, saved_model: Path, tmp_path: Path) -> None:
    """Nothing in the file tells where or when the fit ran, or what watched it."""
    journal, kept = str(tmp_path / "journal.jsonl"), str(tmp_path / "kept")
    again = AutoCrossClassifier(quiet=True, journal=journal, checkpoint=kept, **options).fit(people, "bought")
    again.save(tmp_path / "again.acx")
    assert (tmp_path / "again.acx").read_bytes() == saved_model.read_bytes()


@pytest.mark.slow
def test_equal_fits_of_other_processes_write_equal_bytes(people: pl.DataFrame, tmp_path: Path) -> None:
    """Neither the seed of Python's hashes nor the way in shows."""
    rows = tmp_path / "people.parquet"
    people.write_parquet(rows)
    for seed in ("1", "2"):
        command = [sys.executable, "-m", "autocross.cli", "fit", str(rows), "--target", "bought", "--n-jobs", seed, "--quiet"]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([*command, "-o", str(tmp_path / f"{seed}.acx")], env=environment, check=True, capture_output=True)
    AutoCrossClassifier(quiet=True, engine="serial").fit(people, "bought").save(tmp_path / "here.acx")
    assert len({(tmp_path / name).read_bytes() for name in ("1.acx", "2.acx", "here.acx")}) == 1


def test_rows_read_part_by_part_write_equal_bytes(
    people: pl.DataFrame, saved_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autocross.table.ingest.bytes_in_memory", lambda path: 1 << 60)  # every file is too large for memory
    rows, again = tmp_path / "people.parquet", tmp_path / "again.acx"
    people.write_parquet(rows, row_group_size=70)
    AutoCrossClassifier(quiet=True).fit(str(rows), "bought").save(again)
    assert again.read_bytes() == saved_model.read_bytes()


def test_seconds_stay_with_the_estimator_that_was_fitted(classifier: AutoCrossClassifier, saved_model: Path) -> None:
    assert all(record["seconds"] > 0 for record in classifier.history_)
    assert pickle.loads(pickle.dumps(classifier)).history_ == classifier.history_
    assert clone(classifier).get_params() == classifier.get_params()
    about = load(saved_model).model.about
    assert about.history == without_seconds(classifier)
    assert summary(load(saved_model).model) == summary(classifier.model_)


def test_a_bundle_with_seconds_still_loads(classifier: AutoCrossClassifier, saved_model: Path, tmp_path: Path) -> None:
    """As files were written before."""
    with safe_open(str(saved_model), framework="numpy") as stored:
        manifest = json.loads(stored.metadata()["autocross"])
        arrays = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    manifest["about"]["history"] = list(classifier.history_)
    del manifest["checksum"]
    manifest["checksum"] = bundle.checksum(manifest, arrays)
    former, again = tmp_path / "former.acx", tmp_path / "again.acx"
    former.write_bytes(to_bytes(arrays, metadata={"autocross": json.dumps(manifest)}))
    assert b"seconds" in former.read_bytes()
    model = bundle.read(former)
    assert model.about.history == without_seconds(classifier)
    bundle.save(model, again)
    assert again.read_bytes() == saved_model.read_bytes()


def test_the_bundle_is_safetensors_with_a_json_manifest(saved_model: Path) -> None:
    with safe_open(str(saved_model), framework="numpy") as stored:
        manifest = json.loads(stored.metadata()["autocross"])
    assert manifest["format"] == 5
    assert [column["name"] for column in manifest["schema"]] == ["age", "born", "job", "member", "rooms", "tags"]


def test_a_saved_file_has_ordinary_rights(saved_model: Path) -> None:
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(saved_model.stat().st_mode) == 0o666 & ~umask


def test_one_row_scores_as_many_do(saved_model: Path, people: pl.DataFrame) -> None:
    model = load(saved_model)
    rows = people.to_dicts()
    np.testing.assert_array_equal([model.log_odds_one(row) for row in rows], model.log_odds(people))
    np.testing.assert_allclose([model.score_one(row) for row in rows], model.score(people), rtol=1e-14)


def test_probabilities_never_fall_as_log_odds_rise() -> None:
    """Not even where the next float is: a monotone column promises that to the last bit."""
    log_odds = np.random.default_rng(0).uniform(-40, 40, 200_000)
    log_odds = np.concatenate([log_odds, [-1e300, -709.5, -709.0, -0.0, 0.0, 709.0, 1e300]])
    assert (probabilities(np.nextafter(log_odds, np.inf)) >= probabilities(log_odds)).all()
    some = log_odds[-300:].tolist()
    np.testing.assert_array_equal([probability(one) for one in some], probabilities(np.array(some)))
    assert probability(-1e300) == 0.0 < probability(-700.0) and probability(1e300) == 1.0
    np.testing.assert_allclose(probabilities(log_odds), scipy.special.expit(log_odds), rtol=1e-15, atol=1e-307)


def test_reasons_add_up_to_the_log_odds(saved_model: Path, people: pl.DataFrame) -> None:
    model = load(saved_model)
    for row in people.head(50).to_dicts():
        explanation = model.explain(row, by="field")
        assert explanation.mean_log_odds + math.fsum(r.contribution for r in explanation.reasons) == pytest.approx(
            explanation.log_odds, abs=1e-12
        )
        assert explanation.probability == model.score_one(row)
        assert {reason.name for reason in explanation.reasons} == {*model.model.producer.names}
    strongest = explanation.strongest(2)
    assert abs(strongest[0].contribution) >= abs(strongest[1].contribution)


def test_absent_keys_are_missing_and_unknown_keys_are_ignored(saved_model: Path) -> None:
    model = load(saved_model)
    assert model.score_one({"job": "cook"}) == model.score_one({"job": "cook", "age": None, "shoe size": 44})
    assert model.score_one({"job": "astronaut"}) == model.score_one({"job": "never seen"})


def test_probabilities_are_safe_at_both_ends() -> None:
    z = np.array([-1e4, -700.0, -1.0, 0.0, 1.0, 700.0, 1e4])
    np.testing.assert_allclose(probabilities(z), [probability(value) for value in z.tolist()], rtol=1e-15)
    assert probability(-1e4) == 0.0
    assert probability(1e4) == 1.0


def test_texts_of_every_script_survive(tmp_path: Path) -> None:
    words = ["日本", "ελληνικά", "e\u0301", "🙂", "a\nb", "\x00"]
    frame = pl.DataFrame({"word": words * 20, "y": [0, 1, 0, 1, 0, 1] * 20})
    model = AutoCrossClassifier(quiet=True, engine="serial").fit(frame, "y")
    model.save(tmp_path / "m.acx")
    np.testing.assert_array_equal(load(tmp_path / "m.acx").score(frame), model.predict_proba(frame)[:, 1])


def test_a_flipped_bit_is_noticed(saved_model: Path) -> None:
    content = bytearray(saved_model.read_bytes())
    content[-3] ^= 1  # the last array is a weight
    saved_model.write_bytes(content)
    with pytest.raises(BundleError, match="checksum does not fit"):
        load(saved_model)


def test_whole_numbers_that_are_no_floats_score_alike_alone_and_together(tmp_path: Path) -> None:
    """Two ids that a float cannot tell apart are one value, in a row alone too."""
    ids = 2**60 + np.arange(400) * 300
    frame = pl.DataFrame({"id": ids, "y": ((ids - 2**60) // 30_000 % 2 == 1).astype(int)})
    AutoCrossClassifier(quiet=True, engine="serial", types={"id": "numerical"}, max_crosses=0).fit(frame, "y").save(
        tmp_path / "m.acx"
    )
    model = load(tmp_path / "m.acx")
    edges = model.model.producer.encoder.columns[0].one_row[0]  # type: ignore[union-attr]
    near = pl.DataFrame({"id": [int(edge) + step for edge in edges for step in range(-300, 301, 30)]})
    assert len(set(model.log_odds(near).tolist())) > 2
    np.testing.assert_array_equal([model.log_odds_one(row) for row in near.to_dicts()], model.log_odds(near))


def test_a_model_that_could_not_be_read_again_is_not_written(
    classifier: AutoCrossClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.acx"
    path.write_bytes(b"the former file")
    monkeypatch.setattr("autocross.producer.container.MOST_MARKS", 100)
    with pytest.raises(
        FileError, match=r"Cannot save .*model.acx': 6 columns and \d+ crosses are more than a model file may describe"
    ):
        classifier.save(path)
    assert path.read_bytes() == b"the former file"


@pytest.mark.slow
def test_a_model_of_a_hundred_thousand_columns_is_saved_and_read_again(tmp_path: Path) -> None:
    schema = tuple(ColumnSchema(f"x{at}", "numerical", "number", "numbers with 200 different values") for at in range(100_000))
    columns = [Bins(one, (f"{one.name} [10 even]",), (np.array([float(at), at + 1.0]),)) for at, one in enumerate(schema)]
    weights = tuple(np.array([0.0, 0.0, 0.5, 0.25, at / 4]) for at in range(len(schema)))
    model = Model(Producer(Encoder(schema, tuple(columns))), 0.5, weights, (Penalty(0.0, 1.0, 2.0),) * len(schema))
    path = tmp_path / "wide.acx"
    bundle.save(model, path)
    assert path.stat().st_size > 1 << 25
    again = bundle.read(path)
    assert again.producer.encoder.schema == schema
    np.testing.assert_array_equal(np.concatenate(again.weights), np.concatenate(weights))
