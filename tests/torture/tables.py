"""Part 1: tables of every type and defect, in every frame and file.

A fit gives a model or an error of ours, and no warning but ours. A model scores a row alone as among many, loaded as fitted, and is
the same from threads, and from files read part by part.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from datetime import time as clock
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl

from autocross import AutoCrossClassifier, load
from autocross.table.dialect import Dialect
from autocross.table.files import read
from torture.tools import Refused, answer, by_parts, require, require_one_as_many, require_same, same_bits, shown

Rng = np.random.Generator

SIZES = (1, 2, 3, 7, 40, 200, 600)
WORDS = [
    "cook",
    "nurse",
    "clerk",
    "Ünï",
    "日本",
    "🙂",
    " a ",
    "a b",
    "A",
    "",
    "NA",
    "nan",
    "None",
    "true",
    "1",
    "x" * 300,
    'q"u,o\nte',
    "\x00",
]
NUMBER_TEXTS = ["007", "7", "7.0", "1e5", " 12 ", "1_000", "٣", "inf", "-inf", "nan", "0x10", "+3", "1.", ".5", "1e999", "-0", ""]
MOMENT_TEXTS = [
    "2024-02-29",
    "2024-02-30",
    "2024-02-29 23:59",
    "2024-02-29T23:59:59Z",
    "2024-02-29 23:59:59.123456789",
    "2024-02-29 24:00:00",
    "23:59",
    "2024-02-29 12:00:00+05:30",
    "2024-02-29T12:00:00-0800",
    "0001-01-01",
    "9999-12-31 23:59:59",
]
ODD: list[Any] = [
    None,
    float("nan"),
    float("inf"),
    float("-inf"),
    -0.0,
    5e-324,
    1.7e308,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
    10**30,
    -(10**400),
    True,
    False,
    "",
    "text",
    "\ud800",
    b"\xff",
    Decimal("1.50"),
    Decimal("NaN"),
    Decimal("1e400"),
    date(2024, 2, 29),
    date(1, 1, 1),
    datetime(2024, 2, 29, 23, 59, 59, 999999),
    datetime(2024, 2, 29, 12, tzinfo=UTC),
    datetime(2024, 2, 29, 12, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    clock(23, 59),
    timedelta(days=-1, microseconds=1),
    [],
    [None],
    ["a", "a", None, ""],
    [1, 2],
    [float("nan")],
    np.float32(0.1),
    np.int8(-3),
    np.bool_(True),
    np.datetime64("2024-02-29T12:00:00", "ns"),
    np.timedelta64(5, "s"),
    pd.NA,
    pd.NaT,
    pd.Timestamp("2024-02-29 12:00", tz="Europe/Berlin"),
    complex(1, 2),
    {"a": 1},
    ("a", "b"),
    *NUMBER_TEXTS,
    *MOMENT_TEXTS,
    *WORDS,
]


@dataclass(frozen=True)
class Column:
    """Values, and the polars type that holds them; None is left to polars. ``loose`` values only pandas and NumPy can hold."""

    values: list[Any]
    dtype: Any = None
    loose: bool = False


def pick(rng: Rng, choices: list[Any], n: int) -> list[Any]:
    return [choices[at] for at in rng.integers(0, len(choices), n)]


def days(rng: Rng, n: int, span: int = 4000) -> list[datetime]:
    return [datetime(2015, 1, 1) + timedelta(minutes=int(at)) for at in rng.integers(0, span * 1440, n)]


def on_the_clock(day: datetime) -> datetime:
    """The moment itself, or an hour later where the clock went forward and never showed it: polars cannot hold such ones."""
    return day.astimezone(UTC).astimezone(day.tzinfo)


def lists_of(rng: Rng, words: list[Any], n: int) -> list[list[Any]]:
    return [pick(rng, words, int(size)) for size in rng.integers(0, 5, n)]


MAKERS: dict[str, Callable[[Rng, int], Column]] = {
    "few texts": lambda rng, n: Column(pick(rng, ["a", "b", "c"], n)),
    "odd texts": lambda rng, n: Column(pick(rng, WORDS, n), pl.String),
    "number texts": lambda rng, n: Column(pick(rng, NUMBER_TEXTS, n), pl.String),
    "moment texts": lambda rng, n: Column(pick(rng, MOMENT_TEXTS, n), pl.String),
    "good moment texts": lambda rng, n: Column([str(day) for day in days(rng, n)], pl.String),
    "separated texts": lambda rng, n: Column(["|".join(one) for one in lists_of(rng, ["a", "b", "c", " d"], n)], pl.String),
    "unique texts": lambda rng, n: Column([f"id{at}" for at in range(n)]),
    "surrogates": lambda rng, n: Column(pick(rng, ["\ud800", "a", "\udfff"], n), loose=True),
    "small ints": lambda rng, n: Column(rng.integers(0, 4, n).tolist(), pl.Int8),
    "ints": lambda rng, n: Column(rng.integers(-1000, 1000, n).tolist()),
    "large ints": lambda rng, n: Column(pick(rng, [2**53, 2**53 + 1, 2**63 - 1, -(2**63), 0], n), pl.Int64),
    "unsigned": lambda rng, n: Column(pick(rng, [0, 2**64 - 1, 2**63], n), pl.UInt64),
    "huge ints": lambda rng, n: Column(pick(rng, [10**30, -(10**30), 1, 2], n), loose=True),
    "normal": lambda rng, n: Column(rng.normal(size=n).tolist()),
    "floats 32": lambda rng, n: Column(rng.normal(size=n).astype(np.float32).tolist(), pl.Float32),
    "extreme floats": lambda rng, n: Column(pick(rng, [1.7e308, -1.7e308, 5e-324, 0.0, -0.0, 1.0, 1 + 2**-52], n), pl.Float64),
    "infinities": lambda rng, n: Column(pick(rng, [float("inf"), float("-inf"), float("nan"), 0.0, 1.5, None], n), pl.Float64),
    "whole floats": lambda rng, n: Column(rng.integers(0, 50, n).astype(float).tolist()),
    "skewed": lambda rng, n: Column(np.exp(rng.normal(0, 5, n)).tolist()),
    "booleans": lambda rng, n: Column(pick(rng, [True, False, None], n), pl.Boolean),
    "dates": lambda rng, n: Column([day.date() for day in days(rng, n)], pl.Date),
    "moments": lambda rng, n: Column(days(rng, n), pl.Datetime(str(rng.choice(["ms", "us", "ns"])))),
    "zoned": lambda rng, n: Column(
        [on_the_clock(day.replace(tzinfo=ZoneInfo("Europe/Berlin"))) for day in days(rng, n)], pl.Datetime("us", "Europe/Berlin")
    ),
    "mixed zones": lambda rng, n: Column(
        [day.replace(tzinfo=timezone(timedelta(hours=int(rng.integers(-5, 5))))) for day in days(rng, n)], loose=True
    ),
    "clocks": lambda rng, n: Column([day.time() for day in days(rng, n)], pl.Time),
    "durations": lambda rng, n: Column([timedelta(seconds=float(at)) for at in rng.normal(0, 1e4, n)], pl.Duration("us")),
    "lists": lambda rng, n: Column(lists_of(rng, ["a", "b", "c", None, ""], n), pl.List(pl.String)),
    "lists of ints": lambda rng, n: Column(lists_of(rng, [1, 2, 3, None], n), pl.List(pl.Int64)),
    "arrays": lambda rng, n: Column([pick(rng, ["a", "b"], 2) for _ in range(n)], pl.Array(pl.String, 2)),
    "nested lists": lambda rng, n: Column([[one] for one in lists_of(rng, ["a", "b"], n)], pl.List(pl.List(pl.String))),
    "structs": lambda rng, n: Column([{"p": int(at)} for at in rng.integers(0, 3, n)]),
    "categories": lambda rng, n: Column(pick(rng, ["lo", "mid", "hi", None], n), pl.Categorical()),
    "enums": lambda rng, n: Column(pick(rng, ["lo", "hi", None], n), pl.Enum(["lo", "mid", "hi"])),
    "decimals": lambda rng, n: Column(pick(rng, [Decimal("1.10"), Decimal("2.20"), Decimal("-3.30")], n), pl.Decimal(10, 2)),
    "bytes": lambda rng, n: Column(pick(rng, [b"a", b"\xff\x00", b""], n), pl.Binary),
    "mixed": lambda rng, n: Column(pick(rng, [1, "1", 1.5, True, None, "x", float("nan"), Decimal(2)], n), loose=True),
    "anything": lambda rng, n: Column(pick(rng, ODD, n), loose=True),
    "constant": lambda rng, n: Column(["same"] * n),
    "nothing": lambda rng, n: Column([None] * n, pl.Null),
    "no text": lambda rng, n: Column([None] * n, pl.String),
    "nearly constant": lambda rng, n: Column([0.0] * (n - 1) + [1.0]),
}
LABELS: list[tuple[Any, ...]] = [(0, 1), (False, True), ("no", "yes"), (1.0, 2.0), (-1, 1), ("日", "é")]
BAD_LABELS: list[tuple[Any, ...]] = [(1,), ("a", "b", "c"), (0, None), (0.0, float("nan")), (0, 1, 2)]


@dataclass(frozen=True)
class Sample:
    """A table in one of the forms that a user may have: what is given to fit, and its rows one by one."""

    form: str
    X: Any
    y: Any
    weight: Any
    frame: pl.DataFrame | None  # the same with label and weight, where polars can hold it
    kinds: dict[str, str]


def columns_of(rng: Rng, n: int) -> dict[str, tuple[str, Column]]:
    """Some columns, values missing from some of them, under ordinary and odd names."""
    found = {}
    odd_names = ["", " ", "é日", "a.b", "a x b", "x" * 200, "label ", "(deep part)", "0", "a\nb", "[10 even]"]
    for at in range(int(rng.integers(1, 7))):
        kind = str(rng.choice(list(MAKERS)))
        made = MAKERS[kind](rng, n)
        if rng.random() < 0.3:
            made = Column([None if rng.random() < 0.2 else value for value in made.values], made.dtype, made.loose)
        name = str(rng.choice(odd_names)) if rng.random() < 0.1 else f"c{at}"
        found[name] = (kind, made)
    return found


def labels_of(rng: Rng, n: int) -> list[Any]:
    labels = BAD_LABELS[rng.integers(len(BAD_LABELS))] if rng.random() < 0.08 else LABELS[rng.integers(len(LABELS))]
    return pick(rng, list(labels), n)


def weights_of(rng: Rng, n: int) -> list[float] | None:
    makers: list[Callable[[], Any]] = [
        lambda: rng.lognormal(0, 1, n),
        lambda: rng.integers(0, 3, n).astype(float),
        lambda: np.full(n, 1e30),
        lambda: np.full(n, 1e-30),
        lambda: rng.choice([1e-12, 1.0, 1e12], n),
        lambda: rng.choice([0.0, 0.0, 5.0], n),
        lambda: np.zeros(n),
        lambda: rng.choice([1.0, -1.0, np.nan, np.inf], n),
    ]
    return None if rng.random() < 0.6 else [float(value) for value in makers[rng.integers(len(makers))]()]


def as_pandas(columns: dict[str, tuple[str, Column]]) -> pd.DataFrame:
    """Columns as pandas has them: objects where the values are mixed, its own types otherwise."""
    found = {}
    for name, (_, column) in columns.items():
        if column.loose:
            found[name] = pd.Series(column.values, dtype=object)
        else:
            found[name] = pl.Series(name, column.values, dtype=column.dtype, strict=False).to_pandas()
    return pd.DataFrame(found)


def sample(rng: Rng, folder: Path) -> Sample:
    """A table in some form."""
    n = int(rng.choice(SIZES))
    columns, labels, weight = columns_of(rng, n), labels_of(rng, n), weights_of(rng, n)
    kinds = {name: kind for name, (kind, _) in columns.items()}
    if any(column.loose for _, column in columns.values()):
        X: Any = as_pandas(columns)
        if rng.random() < 0.2:
            return Sample("numpy", X.to_numpy(dtype=object), labels, weight, None, kinds)
        return Sample("pandas", X, labels, weight, None, kinds)
    rows = pl.DataFrame([pl.Series(name, column.values, dtype=column.dtype, strict=False) for name, (_, column) in columns.items()])
    full = rows.with_columns(pl.Series("the label", labels, strict=False))
    full = full if weight is None else full.with_columns(pl.Series("the weight", weight))
    form = str(rng.choice(["polars", "lazy", "pandas", "pyarrow", "numpy", "csv", "parquet", "folder"]))
    by_name: Any = "the weight" if weight is not None else None
    if form in ("csv", "parquet", "folder"):
        return in_file(form, full, by_name, folder, kinds)
    if form == "numpy":
        return Sample(form, rows.to_pandas().to_numpy(dtype=object), labels, weight, full, kinds)
    convert: dict[str, Callable[[pl.DataFrame], Any]] = {
        "polars": lambda frame: frame,
        "lazy": lambda frame: frame.lazy(),
        "pandas": lambda frame: frame.to_pandas(),
        "pyarrow": lambda frame: frame.to_arrow(),
    }
    if rng.random() < 0.5:
        return Sample(form, convert[form](full), "the label", by_name, full, kinds)
    return Sample(form, convert[form](rows), labels, weight, full, kinds)


def in_file(form: str, full: pl.DataFrame, weight: Any, folder: Path, kinds: dict[str, str]) -> Sample:
    """The table as CSV, Parquet, or Parquet in several files. Columns that the format cannot hold stay out."""
    if form == "csv":
        held = [one.name for one in full if not one.dtype.is_nested() and one.dtype not in (pl.Binary, pl.Duration)]
        full = full.select(held)
        full.write_csv(folder / "rows.csv")
        return Sample(form, folder / "rows.csv", "the label", weight, full, kinds)
    if form == "parquet":
        full.write_parquet(folder / "rows.parquet", row_group_size=97)
        return Sample(form, folder / "rows.parquet", "the label", weight, full, kinds)
    (folder / "rows").mkdir()
    for at, first in enumerate(range(0, full.height, 150)):
        full[first : first + 150].write_parquet(folder / "rows" / f"{at}.parquet")
    return Sample(form, folder / "rows", "the label", weight, full, kinds)


def options_of(rng: Rng, names: list[str]) -> dict[str, Any]:
    """Some options, most of them as they are."""
    choices: dict[str, list[Any]] = {
        "max_crosses": [0, 1, 2],
        "max_order": [2, 3],
        "beam_width": [2],
        "metric": ["auc", "log_loss", "accuracy"],
        "bins": ["width", "quantile"],
        "granularities": [[2], [5, 50], [1000]],
        "min_count": [1, 3, 50],
        "penalty": ["shared"],
        "evaluation": ["holdout", "kfold"],
        "halving": ["paper"],
        "split": ["random", "time"],
        "random_state": [0, 7, 2**31],
        "positive": ["yes", 0, 1, "no"],
    }
    found: dict[str, Any] = {"quiet": True, "engine": "serial"}
    found["max_crosses"] = 2
    for name, values in choices.items():
        if rng.random() < 0.2:
            found[name] = values[rng.integers(len(values))]
    column = str(rng.choice(names))
    if rng.random() < 0.2:
        found["types"] = {column: str(rng.choice(["categorical", "numerical", "time", "multivalue", "multivalue:|", "ignore"]))}
    elif rng.random() < 0.1:
        found[str(rng.choice(["time", "groups"]))] = column
    elif rng.random() < 0.1:
        found["exclude"] = [column]
    return found


def rows_one_by_one(given: Sample, model: AutoCrossClassifier) -> list[dict[str, Any]]:
    """The rows as a user would take them out of what was given to fit."""
    if given.form == "pandas":
        return [{name: given.X[name].iloc[at] for name in given.X.columns} for at in range(len(given.X))]
    if given.form == "pyarrow":
        return given.X.to_pylist()  # type: ignore[no-any-return]
    if given.form == "numpy":
        return model._rows(given.X).to_dicts()  # type: ignore[no-any-return]
    if given.form in ("csv", "parquet", "folder"):
        as_text = [column.name for column in model.model_.producer.encoder.schema if column.stored == "text"]
        return read(given.X, Dialect(as_text)).to_dicts()
    return (given.X.collect() if given.form == "lazy" else given.X).to_dicts()  # type: ignore[no-any-return]


def attack(seed: int, folder: Path) -> None:
    rng = np.random.default_rng(seed)
    given = sample(rng, folder)
    options = options_of(rng, list(given.kinds))

    def fit(X: Any = given.X, y: Any = given.y, weight: Any = given.weight, **changed: Any) -> AutoCrossClassifier:
        return AutoCrossClassifier(**{**options, **changed}).fit(X, y, weight)

    (folder / "case.txt").write_text(ascii(f"{given.form} {given.kinds} {options}\n{given.frame}\n{given.X}"))
    model = answer(fit)
    alike(model, answer(lambda: fit(engine="threads", n_jobs=int(rng.integers(1, 5)))), "threads")
    if given.form in ("csv", "parquet", "folder"):
        with by_parts(int(rng.integers(50, 400))):
            alike(model, answer(fit), "by parts")
    if isinstance(model, Refused):
        return
    if has_weightless_rows(given) and isinstance(answer(lambda: model.scorer_.log_odds(model._rows(given.X))), Refused):
        return  # a row that counts nothing is no row of the fit: it may hold what the others may not
    scores_alike(model, given, rng)
    survives(model, given, folder)
    if given.frame is not None and given.form in ("polars", "pyarrow"):
        backwards = given.frame[np.arange(given.frame.height)[::-1]]
        found = answer(lambda: model.scorer_.log_odds(backwards))
        expected = answer(lambda: model.scorer_.log_odds(given.frame))
        require(same_bits(found, expected[::-1]), "rows score otherwise in another order")


def has_weightless_rows(given: Sample) -> bool:
    weight = given.frame["the weight"] if isinstance(given.weight, str) and given.frame is not None else given.weight
    return weight is not None and 0.0 in weight


def alike(one: Any, other: Any, how: str) -> None:
    """Two fits that must end alike: with the same model, or both refused."""
    if isinstance(one, Refused) or isinstance(other, Refused):
        both = isinstance(one, Refused) and isinstance(other, Refused)
        require(both, f"{how}: {other!r}, without: {one!r}")
        return
    require_same(other.model_, one.model_, how)


def scores_alike(model: AutoCrossClassifier, given: Sample, rng: Rng) -> None:
    """Training rows one by one and together, then rows with odd values."""
    scorer, rows = model.scorer_, rows_one_by_one(given, model)
    many = answer(lambda: scorer.log_odds(model._rows(given.X)))
    require(not isinstance(many, Refused), f"the rows of the fit cannot be scored: {many!r}")
    require(bool(np.isfinite(many).all()), "a score that is no number")
    for at in sorted(set(rng.integers(0, len(rows), 40).tolist())):
        alone = answer(lambda at=at: scorer.log_odds_one(rows[at]))
        require(not isinstance(alone, Refused), f"a row of the fit cannot be scored alone: {alone!r}")
        require(same_bits(alone, many[at]), f"alone {alone!r}, among many {many[at]!r}: {shown(rows[at])}")
    for at in rng.integers(0, len(rows), 12).tolist():
        row = dict(rows[at])
        for name in rng.choice(list(row), int(rng.integers(1, 3))).tolist():
            row[name] = ODD[rng.integers(len(ODD))]
        require_one_as_many(scorer, row, pd.DataFrame({name: pd.Series([value], dtype=object) for name, value in row.items()}))
        explanation = answer(lambda row=row: scorer.explain(row))
        if not isinstance(explanation, Refused):
            require(same_bits(explanation.log_odds, scorer.log_odds_one(row)), f"explained otherwise: {shown(row)}")


def survives(model: AutoCrossClassifier, given: Sample, folder: Path) -> None:
    """Saved and loaded, pickled and unpickled: the same scores."""
    expected = model.scorer_.log_odds(model._rows(given.X))
    path = folder / "model.acx"
    saved = answer(lambda: model.save(path))
    require(not isinstance(saved, Refused), f"the model cannot be saved: {saved!r}")
    again = answer(lambda: load(path))
    require(not isinstance(again, Refused), f"the model that was saved cannot be loaded: {again!r}")
    require(same_bits(again.log_odds(model._rows(given.X)), expected), "a loaded model scores otherwise")
    unpickled = pickle.loads(pickle.dumps(model))
    require(same_bits(unpickled.scorer_.log_odds(model._rows(given.X)), expected), "an unpickled model scores otherwise")
