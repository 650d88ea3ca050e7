"""A model of every kind of column, field and cross, with names and values that are hard to quote, and rows of every odd value."""

from __future__ import annotations

import math
import random
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from autocross.crossing import CrossCoder, cross_key
from autocross.encoding.encoder import Encoder
from autocross.encoding.plan import EncodingPlan
from autocross.features import Penalty
from autocross.producer import bundle
from autocross.producer.model import About, FoundCross, Model, Producer
from autocross.table.coerce import typed
from autocross.table.schema import ColumnSchema

LONG = "long " * 2_000
HARD_TEXTS = [
    "cook", "it's", '"quoted"', "back\\slash", "new\nline", "tab\t", "\r", "😀", "é", "e\u0301", " blank ",
    "'; DROP TABLE input; --",
    "*/ int x; /*", "??/ trigraph", "%s %n", "{}", "$1", "\\", "'", '"', "true", "1", "1.0", "null ", "\x01", "\x7f", "\u2028",
    LONG,
    "a\\", "\\u0041", "\\'", "*/", "//", "-- ", "NAN", "inf",
]  # fmt: skip
UNSEEN = ["never", "", "NA", "null", "nan", "COOK", "cook ", "\ufffd", "x" * 1_000_000]
NUMBERS = [
    0.0, -0.0, 1.5, -2.25, 3.0, 40.0, 40.5, 41.0, 1e-300, -1e-300, 5e-324, 1e300, -1e300, 0.1, 0.2, 0.30000000000000004, 2.0**53,
    math.inf, -math.inf, math.nan,
]  # fmt: skip
SCHEMA = (
    ColumnSchema("select", "categorical", "text", ""),
    ColumnSchema('a"b', "numerical", "number", ""),
    ColumnSchema("zip", "categorical", "number", ""),
    ColumnSchema("left out", "ignore", "text", ""),
    ColumnSchema("member", "categorical", "boolean", ""),
    ColumnSchema("tags", "multivalue", "list", ""),
    ColumnSchema("genres;\n", "multivalue", "text", "", "|"),
    ColumnSchema("double", "time", "time", ""),
    ColumnSchema("*/ \\ '; DROP TABLE input; -- ??/ 😀", "numerical", "number", ""),
    ColumnSchema("{row}$1%s", "categorical", "text", ""),
)
ZIPS = ["7", "0", "-3", "39353", "1.5", "1e-05", "12345678901234567890123", "-0.1", "100000000000000000000000", "inf"]


def training_rows(n: int = 400) -> pl.DataFrame:
    """Rows in which every value occurs several times."""
    draw = random.Random(3)
    hard = [text for text in HARD_TEXTS if text.strip() not in ("1", "1.0")]
    pieces = [text.strip() for text in hard if "|" not in text and text.strip()]
    moments = [datetime(1999, 12, 31, 23, 59) + timedelta(hours=1000 * step, seconds=step) for step in range(40)]
    return pl.DataFrame(
        {
            "select": [draw.choice([None, *HARD_TEXTS]) for _ in range(n)],
            'a"b': [draw.choice([None, draw.gauss(0, 1), draw.choice(NUMBERS[2:8])]) for _ in range(n)],
            "zip": [draw.choice([None, *ZIPS]) for _ in range(n)],
            "left out": ["x"] * n,
            "member": [draw.choice([None, "true", "false"]) for _ in range(n)],
            "tags": [draw.choice([None, draw.sample(hard, draw.randrange(6))]) for _ in range(n)],
            "genres;\n": [draw.choice([None, "|".join(draw.sample(pieces, draw.randrange(1, 5)))]) for _ in range(n)],
            "double": [draw.choice([None, *moments]) for _ in range(n)],
            SCHEMA[8].name: [draw.choice([None, float(draw.randrange(-5, 60)), 1e300, 5e-324]) for _ in range(n)],
            "{row}$1%s": [draw.choice(["a", "b", "c", None]) for _ in range(n)],
        },
        schema_overrides={"tags": pl.List(pl.String)},
    )


def cross(encoder: Encoder, draw: Any, fields: tuple[int, ...], n: int, n_buckets: int = 0, kind: Any = "cross") -> CrossCoder:
    """A cross with some of the possible combinations, in the order of their keys."""
    sizes = tuple(encoder.fields[number].n_codes for number in fields)
    if math.prod(sizes) < 5_000:
        values = np.array(list(product(*map(range, sizes))))
        values = values[np.sort(draw.choice(len(values), min(n, len(values)), replace=False))]
    else:
        values = np.stack([draw.integers(0, size, n) for size in sizes], axis=1)
    keys = cross_key([values[:, place].astype(np.int64) for place in range(len(fields))], sizes)
    _, first = np.unique(keys, return_index=True)
    ragged = any(encoder.places[number][0].ragged for number in fields)
    return CrossCoder(fields, sizes, values[first].astype(np.uint32), n_buckets, 3 if ragged else 1, kind)


SIMPLE = tuple(column for column in SCHEMA if column.kind in ("categorical", "numerical"))


def categories_and_numbers() -> Model:
    """A model of categories and numbers alone, with texts that XML can hold."""
    draw = np.random.default_rng(6)
    rows = training_rows().with_columns(pl.col("select").str.replace_all("\x01", "cook", literal=True))
    encoder = Encoder.fit(SIMPLE, typed(rows, SIMPLE).columns, EncodingPlan(2, (10, 100)))
    last = len(encoder.fields) - 1
    crosses = (
        cross(encoder, draw, (0, 1), 500),
        cross(encoder, draw, (1, 2, last), 300),
        cross(encoder, draw, (0,), 8, kind="statistic"),
    )
    return with_weights(encoder, crosses, draw)


def every_kind(buckets: bool = False, nul: bool = False) -> Model:
    """A model of all kinds of fields, and of crosses of two and more of them, with weights drawn at random."""
    draw = np.random.default_rng(5)
    rows = training_rows()
    if nul:
        rows = rows.with_columns(
            pl.when(pl.col("{row}$1%s") == "c").then(pl.lit("c\0d")).otherwise(pl.col("{row}$1%s")).alias("{row}$1%s")
        )
    plan = EncodingPlan(2, (10, 100), cap=10 if buckets else 1 << 20, n_buckets=16)
    encoder = Encoder.fit(SCHEMA, typed(rows, SCHEMA).columns, plan)
    at = {}
    for number, field in enumerate(encoder.fields):
        at.setdefault(field.column, []).append(number)
    text, number, zips, member, tags, genres, time, whole, short = (at[column.name] for column in SCHEMA if column.kind != "ignore")
    everything = tuple(sorted([*(of[0] for of in at.values()), number[1], time[1], time[2], time[-1], whole[-1]]))
    crosses = (
        cross(encoder, draw, (text[0], number[0]), 500),
        cross(encoder, draw, (number[0], number[1]), 100),
        cross(encoder, draw, (zips[0], member[0], short[0]), 60),
        cross(encoder, draw, (member[0], tags[0]), 60),
        cross(encoder, draw, (tags[0], genres[0], short[0]), 2_000),
        cross(encoder, draw, (time[0], time[-1]), 400),
        cross(encoder, draw, everything, 500),
        cross(encoder, draw, (member[0], short[0]), 5, n_buckets=7 if buckets else 0),
        cross(encoder, draw, (zips[0],), 8, kind="statistic"),
    )
    assert math.prod(crosses[6].sizes) > 2**40  # keys are hashed
    return with_weights(encoder, crosses, draw)


def with_weights(encoder: Encoder, crosses: tuple[CrossCoder, ...], draw: Any) -> Model:
    """A model with weights and counts drawn at random."""
    producer = Producer(encoder, crosses)
    weights = tuple(draw.normal(0, 1, field.n_codes) for field in producer.fields)
    counts = tuple(draw.integers(1, 50, (field.n_codes, 1)) * np.array([[2, 1]]) for field in producer.fields)
    found = tuple(
        FoundCross(
            tuple(encoder.fields[one].name for one in own.fields),
            tuple(dict.fromkeys(encoder.fields[one].column for one in own.fields)),
            0.1,
            0.01,
            kind=own.kind,
        )
        for own in crosses
    )
    about = About("bought", ("no", "yes"), "auc", None, 400, found, n_positive=100)
    return Model(producer, 0.25, weights, (Penalty(0.0, 1.0),) * len(weights), about, counts=counts, share=0.5)


def saved(model: Model, path: Path) -> Path:
    """The bundle of a model."""
    bundle.save(model, path)
    return path


def typed_rows(n: int = 200) -> list[dict[str, Any]]:
    """Rows with every odd value that a column's own type can hold: floats, texts, lists of texts and moments."""
    draw = random.Random(4)
    texts = [None, *HARD_TEXTS, *UNSEEN]
    pieces = [None, "", "NA", *[text for text in HARD_TEXTS if "|" not in text], *UNSEEN[:-1]]
    stripped = [piece.strip() for piece in pieces if piece is not None]
    moments = [
        None, datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(2000, 2, 29, 12), datetime(1, 1, 1),
        datetime(9999, 12, 31, 23, 59, 59), datetime(1999, 12, 31, 23, 59), datetime(2003, 7, 6, 5, 4, 3, 2), 
        datetime(2026, 11, 18),
    ]  # fmt: skip
    zips = [None, *ZIPS, "007", "+7", " 7 ", "7.0", "-0", "-0.0", "0.00001", "1E-5", "1e23", "1e22", "NaN", "nan", "seven", "True",
            "0x10",
            "Infinity", "-inf", "1_000", "9" * 400, "\u0667", "\u20037\u2003", ".5", "15e-1", "1.5x", "--3", "+", "."]  # fmt: skip
    rows = [
        {
            "select": draw.choice(texts),
            'a"b': draw.choice([*NUMBERS, draw.gauss(0, 1), draw.gauss(0, 1)]),
            "zip": draw.choice(zips),
            "member": draw.choice([None, "true", "false", "True", "FALSE", "1", "0", "1.0", "2", "yes", " 1 "]),
            "tags": draw.choice([None, [], [draw.choice(pieces) for _ in range(draw.randrange(12))], draw.sample(pieces[3:], 30)]),
            "genres;\n": draw.choice([None, "", "|", "NA", "|".join(draw.choice(stripped) for _ in range(draw.randrange(1, 12)))]),
            "double": draw.choice([*moments, datetime(1999, 12, 31, 23, 59) + timedelta(hours=1000 * draw.randrange(40))]),
            SCHEMA[8].name: draw.choice([*NUMBERS, float(draw.randrange(-6, 61))]),
            "{row}$1%s": draw.choice(["a", "b", "c", None, "d"]),
        }
        for _ in range(n)
    ]
    nothing = dict.fromkeys(rows[0])
    return [nothing, {**nothing, "tags": [], 'a"b': math.nan}, *rows]


def loose_rows() -> list[dict[str, Any]]:
    """Rows whose values have other types than their columns: texts in numbers, numbers in texts, times in texts."""
    values: dict[str, list[Any]] = {
        'a"b': ["3.5", " 40 ", "NA", "", "1e400", "-inf", "1e-3", "+2", "5.", ".5", True, False, 7, 10**30, "nan", "NAN"],
        "zip": [7, 7.0, -3, 1.5, 1e-05, 12345678901234567890123, 1e23, True, False, math.inf, math.nan, 39353.0, "39353", "0039353",
                0],
        "member": [True, False, 1, 0, 1.0, 0.0, 2, "true", None],
        "select": [1, 1.0, True, "1", 1.5, math.nan],
        "double": [
            "2003-07-06", "2003-07-06 05:04", "2003-07-06T05:04:03", "2003-07-06 05:04:03.25", "2003-07-06 05:04:03Z", "05:04",
            " NA ",
            "2003-07-06T23:04:03.123456+02:00", "2003-07-06 05:04:03-0130", "1969-12-31 23:59:59.999999", "0001-01-01",
            "05:04:03.5",
        ],
        "tags": ["cook", "it's", None, [], ["cook", "cook", None, "NA"]],
    }  # fmt: skip
    return [{name: value} for name, some in values.items() for value in some]
