"""Merged terms: what all fields and crosses of the same columns say together, and what a model remembers about its rows."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from autocross import AutoCrossClassifier, load
from autocross.errors import AutoCrossError
from autocross.producer import bundle
from autocross.producer.merging import apart, listed
from autocross.producer.model import Model
from autocross.table.coerce import typed

N = 4_000


def people(seed: int) -> tuple[pl.DataFrame, np.ndarray]:
    """A table with every kind of column, in which a job counts from a certain income on."""
    rng = np.random.default_rng(seed)
    income = np.where(rng.random(N) < 0.1, np.nan, rng.lognormal(3, 1, N))
    days = rng.integers(0, 700, N)
    frame = pl.DataFrame(
        {
            "age": rng.integers(18, 80, N),
            "income": pl.Series(income).fill_nan(None),
            "job": rng.choice(["cook", "nurse", "chef", "maid"], N),
            "tags": [[["red", "green", "blue"][k] for k in range(3) if mask >> k & 1] for mask in rng.integers(0, 8, N)],
            "since": pl.Series(np.datetime64("2020-01-01") + days).cast(pl.Datetime),
        }
    )
    effect = (frame["age"].to_numpy() - 45) / 20 + np.where((frame["job"] == "cook").to_numpy() & (income > 25), 2.0, -0.5)
    effect += 0.5 * frame["tags"].list.contains("red").to_numpy() + 0.4 * np.sin(days / 60)
    return frame, (rng.random(N) < 1 / (1 + np.exp(-effect))).astype(int)


@pytest.fixture(scope="module", params=[False, True], ids=["equal", "weighted"])
def fitted(request: pytest.FixtureRequest) -> tuple[pl.DataFrame, np.ndarray, np.ndarray, Model]:
    frame, label = people(0)
    weight = np.random.default_rng(1).integers(1, 4, N) if request.param else np.ones(N)
    classifier = AutoCrossClassifier(quiet=True, n_jobs=1)
    model = classifier.fit(frame, label, weight if request.param else None).model_
    return frame, label, weight, model


def test_cells_add_up_to_the_log_odds_of_every_row(fitted: tuple[pl.DataFrame, np.ndarray, np.ndarray, Model]) -> None:
    frame, _, _, model = fitted
    codes = model.producer.codes(typed(frame, model.producer.encoder.schema))
    total = np.full(N, model.intercept)
    for shape in model.producer.shapes:
        if not shape.axes:
            coded, cells = codes[shape.parts[0]], np.arange(shape.n_cells)
        else:
            coder, order = shape.coder()
            coded = coder.encode([codes[number] for number in coder.fields])
            cells = np.concatenate([[-1, -1], order])
        weight = shape.sums(model.weights)
        n = np.ones(N, int) if coded.starts is None else np.diff(coded.starts)
        assert cells[coded.codes].min() >= 0, "every row is in a cell"
        np.add.at(total, np.repeat(np.arange(N), n), weight[cells[coded.codes]])
    np.testing.assert_allclose(total, model.log_odds(typed(frame, model.producer.encoder.schema)), atol=1e-12)


def test_rows_of_cells_are_those_of_the_table(fitted: tuple[pl.DataFrame, np.ndarray, np.ndarray, Model]) -> None:
    frame, label, _, model = fitted
    assert model.counts is not None and model.background is not None
    counts = {
        shape.name: shape.counts(model.counts, uncounted)
        for shape, uncounted in zip(model.producer.shapes, model.background.cells, strict=True)
    }
    shapes = {shape.name: shape for shape in model.producer.shapes}
    income = frame["income"].to_numpy()
    for cell in listed(shapes["income"]).tolist():
        value = shapes["income"].value(cell)
        inside = np.isnan(income) if not hasattr(value, "low") else (income >= value.low) & (income < value.high)
        assert counts["income"][cell].tolist() == [inside.sum(), label[inside].sum()]
    assert len(shapes["income"].parts) > 1, "the income has several granularities"


def test_names_and_order(fitted: tuple[pl.DataFrame, np.ndarray, np.ndarray, Model]) -> None:
    model = fitted[3]
    names = [shape.name for shape in model.producer.shapes]
    alone = [name for name in dict.fromkeys(names) if " & " not in name]
    assert alone == [column.name for column in model.producer.encoder.schema]
    assert "income & job" in names
    assert names.count("age") == 1, "all granularities of a number are one shape"
    everything = [part for shape in model.producer.shapes for part in shape.parts]
    assert sorted(everything) == list(range(len(model.producer.fields)))
    assert len(apart(model.producer)) == len(model.producer.fields)


def test_the_mean_is_that_of_the_training_rows(fitted: tuple[pl.DataFrame, np.ndarray, np.ndarray, Model]) -> None:
    frame, _, weight, model = fitted
    log_odds = model.log_odds(typed(frame, model.producer.encoder.schema))
    assert model.mean_log_odds == pytest.approx(np.average(log_odds, weights=weight), abs=1e-6)


def test_a_file_is_read_in_two_steps(
    fitted: tuple[pl.DataFrame, np.ndarray, np.ndarray, Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, path = fitted[3], tmp_path / "model.acx"
    bundle.save(model, path)
    scorer = load(path)
    assert "background" not in scorer.model.__dict__, "scoring reads nothing of it"
    assert scorer.model.means.tolist() == model.means.tolist()
    assert pickle.loads(pickle.dumps(load(path).model)).means.tolist() == model.means.tolist()
    again = tmp_path / "again.acx"
    bundle.save(load(path).model, again)
    assert again.read_bytes() == path.read_bytes()


def test_a_file_that_has_changed_is_noticed(fitted: tuple[pl.DataFrame, np.ndarray, np.ndarray, Model], tmp_path: Path) -> None:
    model, path = fitted[3], tmp_path / "model.acx"
    bundle.save(model, path)
    scorer = load(path)
    bundle.save(replace(model, intercept=0.0), path)
    with pytest.raises(AutoCrossError, match=r"model\.acx': the file has changed since the model was loaded\. Load it again\.$"):
        _ = scorer.model.background
    bundle.save(model, path)
    content = bytearray(path.read_bytes())
    content[content.rindex(np.asarray(model.background.cells[1]).astype(np.uint32).tobytes())] ^= 1  # type: ignore[union-attr]
    path.write_bytes(content)
    damaged = load(path)  # scoring does not need what is damaged
    with pytest.raises(AutoCrossError, match="its checksum does not fit its content"):
        _ = damaged.model.background


@pytest.mark.slow
def test_every_engine_remembers_the_same() -> None:
    frame, label = people(2)
    weight = np.random.default_rng(3).random(N) + 0.5
    models = [
        AutoCrossClassifier(quiet=True, engine=engine, n_jobs=n, max_crosses=2).fit(frame, label, weight).model_
        for engine, n in (("serial", None), ("threads", 2))
    ]
    first, second = (model.background for model in models)
    assert first is not None and second is not None and first.mass is not None and second.mass is not None
    assert all(map(np.array_equal, first.mass, second.mass)) and all(map(np.array_equal, first.cells, second.cells))
    assert first.total == second.total
