"""Thousands of forged models, their checksums right: each is refused, or agrees with itself in all that it says."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from autocross import AutoCrossClassifier, load
from autocross.errors import AutoCrossError, BundleError
from autocross.producer import bundle, weights
from autocross.producer.deep import DeepPart
from autocross.producer.features import Features
from autocross.producer.inputs import Inputs, known_terms
from autocross.producer.model import Model, Producer
from autocross.producer.network import Network
from autocross.producer.words import in_words, summary
from autocross.serving.scorer import Scorer
from forgery import Arrays, Manifest, forge, parts

Rng = np.random.Generator

N_CASES = 100  # of each model here; tens of thousands were tried

ODD = [
    None, True, False, 0, 1, 2, -1, 7, 1 << 20, 1 << 31, (1 << 63) - 1, 1 << 63, 10**30, 0.0, -0.0, 0.5, 1e-300, 1e100, 1e308,
    math.nan, math.inf, "", "x", "NA", "\ud800", "\x00", "text", "number", "boolean", "time", "list", "categorical", "numerical",
    "multivalue", "ignore", "vocabulary", "hashes", "bins", "calendar", "course", "age", "job", "tags", "|", "x" * 70_000,
    [], {}, [[]], [0], {"a": 1},
]  # fmt: skip
WORDS = [
    "007", "7", "7.0", "1e3", "1000", "inf", "-0", "0", "True", "true", "1", "FALSE", " a", "a ", "a|b", "(rare)", "日本", "\0",
    "🙂", "2024-01-02", "2024-01-02T00:00:00", "NaN ", "none", "b'x'", "0x10", "1_000", "\u0661",
]  # fmt: skip
NUMBERS = [0.0, -0.0, 1.0, -1.0, 5e-324, -5e-324, 1e-40, 2.0**53, 1e30, 1e38, -1e38, 1e99, -1e99, 1e300, math.nan, math.inf]


# How a file is changed.


def places(node: Any) -> list[tuple[Any, Any]]:
    """Every container in the manifest with every key of it."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else []
    return [place for key in keys for place in ((node, key), *places(node[key]))]


def any_place(rng: Rng, manifest: Manifest) -> tuple[Any, Any]:
    found = places(manifest)
    return found[rng.integers(len(found))]


def any_array(rng: Rng, arrays: Arrays) -> str:
    return sorted(arrays)[rng.integers(len(arrays))]


def put_something_odd(rng: Rng, manifest: Manifest, arrays: Arrays) -> None:
    holder, key = any_place(rng, manifest)
    holder[key] = copy.deepcopy(ODD[rng.integers(len(ODD))])


def put_another_part(rng: Rng, manifest: Manifest, arrays: Arrays) -> None:
    (holder, key), (other, place) = any_place(rng, manifest), any_place(rng, manifest)
    holder[key] = copy.deepcopy(other[place])


def remove(rng: Rng, manifest: Manifest, arrays: Arrays) -> None:
    holder, key = any_place(rng, manifest)
    del holder[key]


def repeat(rng: Rng, manifest: Manifest, arrays: Arrays) -> None:
    holder, key = any_place(rng, manifest)
    if isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    else:
        holder[f"{key}2"] = copy.deepcopy(holder[key])


def change_a_number(rng: Rng, manifest: Manifest, arrays: Arrays) -> None:
    name = any_array(rng, arrays)
    arrays[name] = array = arrays[name].copy()
    if array.size:
        with np.errstate(all="ignore"):
            value = np.array(NUMBERS[rng.integers(len(NUMBERS))]) if rng.random() < 0.7 else rng.normal(scale=100.0)
            array.reshape(-1)[rng.integers(array.size)] = np.asarray(value).astype(array.dtype)


def change_all_numbers(rng: Rng, manifest: Manifest, arrays: Arrays) -> None:
    name = any_array(rng, arrays)
    if arrays[name].dtype.kind == "f":
        with np.errstate(all="ignore"):
            factor = np.array(rng.choice([-1.0, 0.0, 1e-30, 1e30, 1e37, 1e90, 1e300])).astype(arrays[name].dtype)
            arrays[name] = arrays[name] * factor


def cut(rng: Rng, manifest: Manifest, arrays: Arrays) -> None:
    name = any_array(rng, arrays)
    array, n = arrays[name], int(rng.integers(0, 4))
    arrays[name] = np.ascontiguousarray(array[n:] if rng.random() < 0.5 else np.concatenate([array, array[:n]]))


def reshape(rng: Rng, manifest: Manifest, arrays: Arrays) -> None:
    name = any_array(rng, arrays)
    array = arrays[name]
    kind = rng.choice(["u1", "u4", "i8", "f4", "f8", "i4", "f2", "?"])
    with np.errstate(all="ignore"):
        changed = [array.T, array[None], array.reshape(-1), array.astype(kind), np.zeros((0, *array.shape[1:]), array.dtype)]
    arrays[name] = np.ascontiguousarray(changed[rng.integers(len(changed))])


def exchange(rng: Rng, manifest: Manifest, arrays: Arrays) -> None:
    name, other = any_array(rng, arrays), any_array(rng, arrays)
    arrays[name], arrays[other] = arrays[other], arrays[name]


def lose_or_add(rng: Rng, manifest: Manifest, arrays: Arrays) -> None:
    name = any_array(rng, arrays)
    if rng.random() < 0.5:
        arrays[f"{name}0"] = arrays[name]
    else:
        del arrays[name]


# Changes that fit together, and so come further.


def other_words(rng: Rng, manifest: Manifest, arrays: Arrays) -> None:
    """Another vocabulary of as many values."""
    at = [n for n, entry in enumerate(manifest["columns"]) if f"ends.{n}" in arrays and entry]
    if at:
        one = at[rng.integers(len(at))]
        words = rng.permutation(WORDS)[: len(arrays[f"ends.{one}"])].tolist()
        arrays[f"text.{one}"] = np.frombuffer("".join(words).encode(), np.uint8)
        arrays[f"ends.{one}"] = np.cumsum([*map(len, words)], dtype=np.int64)


def other_reading(rng: Rng, manifest: Manifest, arrays: Arrays) -> None:
    """A column that is stored or split in another way, or of another kind."""
    column = manifest["schema"][rng.integers(len(manifest["schema"]))]
    column["stored"] = str(rng.choice(["text", "number", "boolean", "time", "list"]))
    column["separator"] = rng.choice(np.array([None, "|", ",", " ", "a", "||", "\0"], object))
    if rng.random() < 0.3:
        column["kind"] = str(rng.choice(["categorical", "multivalue"]))


def other_weights(rng: Rng, manifest: Manifest, arrays: Arrays) -> None:
    """Weights that cancel, or that are as large as weights may be."""
    for name in arrays:
        if name.startswith("weight."):
            arrays[name] = rng.choice([1e100, -1e100, 1.0, 1e-8, -1.0], arrays[name].shape)


def other_buckets(rng: Rng, manifest: Manifest, arrays: Arrays) -> None:
    """Buckets behind the values of a cross, and weights for them."""
    if manifest["crosses"]:
        at, n = int(rng.integers(len(manifest["crosses"]))), int(rng.integers(1, 9))
        name = f"weight.{sum(name.startswith('weight.') for name in arrays) - len(manifest['crosses']) + at}"
        manifest["crosses"][at]["n_buckets"] = n
        values = len(arrays[f"cross.{at}"])
        arrays[name] = np.concatenate([arrays[name][: 2 + values], rng.normal(size=n)])


def other_edges(rng: Rng, manifest: Manifest, arrays: Arrays) -> None:
    """Edges where numbers are hard to tell apart."""
    names = [name for name in arrays if name.startswith("edges.")]
    if names:
        name = names[rng.integers(len(names))]
        near = np.array([0.0, 40.0, 2.0**53, -(2.0**53), 1e-320, 1e308, -1e308])[rng.integers(7)]
        edges = np.unique(near + np.arange(len(arrays[name])) * np.spacing(abs(near)))
        arrays[name] = edges if len(edges) == len(arrays[name]) else arrays[name]


def other_network(rng: Rng, manifest: Manifest, arrays: Arrays) -> None:
    """A network whose sums depend on their order, if anything does."""
    for name in arrays:
        if name.startswith(("deep.", "network.")):
            with np.errstate(all="ignore"):
                numbers = (rng.normal(size=arrays[name].shape) * 10.0 ** rng.uniform(-30, 20)).astype(arrays[name].dtype)
                arrays[name] = np.sort(numbers) if "knots" in name else np.abs(numbers) if "spread" in name else numbers


CHANGES: list[Callable[[Rng, Manifest, Arrays], None]] = [
    put_something_odd, put_something_odd, put_something_odd, put_another_part, remove, repeat, change_a_number, change_all_numbers,
    cut, reshape, exchange, lose_or_add, other_words, other_reading, other_weights, other_buckets, other_edges, other_network,
]  # fmt: skip


def changed(manifest: Manifest, arrays: Arrays, seed: int) -> tuple[Manifest, Arrays]:
    """One to three changes."""
    rng = np.random.default_rng(seed)
    manifest, arrays = copy.deepcopy(manifest), dict(arrays)
    for _ in range(rng.integers(1, 4)):
        with suppress(Exception):  # what a former change has broken may not bear another one
            CHANGES[rng.integers(len(CHANGES))](rng, manifest, arrays)
    return manifest, arrays


# What must hold of a file that is not refused.


def frames(people: pl.DataFrame) -> list[pl.DataFrame]:
    """Rows as they were, and rows of other types in which all columns are text or lists of it."""
    rows = people.head(6)
    odd = pl.DataFrame({name: WORDS for name in people.columns if name not in ("bought", "age", "born")})
    odd = odd.with_columns(pl.Series("age", [None, 1e308, -1e308, 2.0**53, 40.0, 5e-324] * 4 + [0.0, 0.5, -0.0]))
    odd = odd.with_columns(pl.Series("born", [None, "2024-01-02", "1950-12-31 23:59:59"] * 9))
    whole = (
        people.select("job", "tags", "born", "member").head(9).with_columns(rooms=pl.lit(3), age=pl.Series(range(2**53, 2**53 + 9)))
    )
    return [rows, odd, odd.with_columns(tags=pl.col("tags").str.split("|")), whole]


def check_scores(scorer: Scorer, tables: list[pl.DataFrame]) -> bool:
    """One row and many agree to the bit. Says whether what the model remembers about its rows can be read."""
    for table in tables:
        try:
            many = scorer.score(table)
        except AutoCrossError:
            continue  # such rows are refused, and say why
        assert np.isfinite(many).all()
        for row, expected in zip(table.to_dicts(), many.tolist(), strict=True):
            assert scorer.score_one(row) == expected, row
    try:
        _ = scorer.model.background
    except BundleError as error:
        assert "training rows" in str(error)
        return False
    return True


def check_words(scorer: Scorer, row: dict[str, Any]) -> None:
    """Everything can be shown and explained."""
    explanation = scorer.explain(row)
    assert explanation.probability == scorer.score_one(row)
    json.dumps([(reason.name, reason.value, reason.contribution) for reason in explanation.reasons], allow_nan=False)
    json.dumps(weights.table(scorer.model), allow_nan=False)
    found = summary(scorer.model)
    json.dumps(found, allow_nan=False)
    in_words(found).encode()
    Features(scorer.model).value_names()


def tally(source: Path, people: pl.DataFrame, seeds: range, path: Path) -> dict[str, int]:
    """How many forged files were refused, and how many held."""
    manifest, arrays = parts(source)
    tables, counts = frames(people), {"refused": 0, "held": 0, "refused later": 0}
    for seed in seeds:
        try:
            scorer = load(forge(path, *changed(manifest, arrays, seed)))
        except BundleError as error:
            assert path.name in str(error)
            counts["refused"] += 1
            continue
        try:
            readable = check_scores(scorer, tables)
            counts["refused later"] += not readable
            if readable:
                check_words(scorer, tables[0].row(0, named=True))
        except Exception as error:
            raise AssertionError(f"forged file {seed} of {source.name}") from error
        counts["held"] += 1
    return counts


def with_network(model: Model) -> Model:
    """The same with a network of no use."""
    rng = np.random.default_rng(6)
    assert model.counts is not None and model.about.n_positive is not None
    terms, base = range(0, len(model.weights), 2), model.about.n_positive / model.about.n_rows
    known = known_terms([model.weights[term] for term in terms], [model.counts[term] for term in terms], base)
    scale = rng.normal(size=3 * len(terms) + 1), rng.uniform(0.5, 2, 3 * len(terms) + 1)
    inputs = Inputs(tuple(terms), known, ("age",), (np.array([20.0, 30.0, 50.0]),), *scale)
    shapes = (inputs.width, 8), (8, 1), (8,), (1,)
    first, second, bias, constant = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    return replace(model, additions=(Network(0.5, inputs, (first, second), (bias, constant)),))


def with_embeddings(model: Model) -> Model:
    """The same with a network on embeddings, as older files have it."""
    rng = np.random.default_rng(5)
    fields = model.producer.encoder.fields
    widths = [3 * len(fields), 8, 4, 1]
    embeddings = tuple(rng.normal(size=(field.n_codes, 3)).astype(np.float32) for field in fields)
    matrices = tuple(rng.normal(size=shape).astype(np.float32) for shape in pairwise(widths))
    biases = tuple(rng.normal(size=n).astype(np.float32) for n in widths[1:])
    return replace(model, additions=(DeepPart(embeddings, matrices, biases),))


def hidden(model: Model) -> Model:
    """The same without values of categories."""
    return replace(model, producer=Producer(model.producer.encoder.private(), model.producer.crosses))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wide", "deep", "older", "private"])
def test_a_forged_model_is_refused_or_agrees_with_itself(
    kind: str, classifier: AutoCrossClassifier, people: pl.DataFrame, tmp_path: Path
) -> None:
    made = {"wide": lambda model: model, "deep": with_network, "older": with_embeddings, "private": hidden}[kind](classifier.model_)
    bundle.save(made, tmp_path / f"{kind}.acx")
    counts = tally(tmp_path / f"{kind}.acx", people, range(N_CASES), tmp_path / "forged.acx")
    assert counts["refused"] > N_CASES / 4
    assert counts["held"] > N_CASES / 10
