"""The methods of the tables, each behind one interface: fit to a frame with the column `label`, score frames, score one row."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
import polars.selectors as cs
from cmi_lr import conditional_crosses, with_crosses
from numpy.typing import NDArray

from autocross import AutoCross, AutoCrossClassifier, load

Scores = NDArray[np.float64]
TARGET = "label"


class Method(Protocol):
    """What a cell of a table needs."""

    def fit(self, train: pl.DataFrame) -> None: ...

    def score(self, rows: pl.DataFrame) -> Scores:
        """Probabilities of label 1."""

    def score_one(self, row: Mapping[str, Any]) -> float: ...


class OneRow:
    """A row scored as a frame of one, for those that know frames only."""

    def score_one(self, row: Mapping[str, Any]) -> float:
        return float(self.score(pl.DataFrame([row], schema=self.schema))[0])

    def keep_schema(self, train: pl.DataFrame) -> pl.DataFrame:
        features = train.drop(TARGET)
        self.schema = features.schema
        return features


# Ours.


class AutoCrossed:
    """AC+LR, or LR (base) with ``max_crosses=0``, under any options."""

    def __init__(self, **options: Any) -> None:
        self.model = AutoCrossClassifier(quiet=True, **options)

    def fit(self, train: pl.DataFrame) -> None:
        self.model.fit(train, TARGET)
        with tempfile.TemporaryDirectory() as folder:
            self.model.save(Path(folder) / "model.acx")
            self.scorer = load(Path(folder) / "model.acx")

    def score(self, rows: pl.DataFrame) -> Scores:
        return self.scorer.score(rows)

    def score_one(self, row: Mapping[str, Any]) -> float:
        return self.scorer.score_one(row)

    def facts(self) -> dict[str, Any]:
        """What the figures show: the orders of the crosses, the crosses themselves, and the curve."""
        crosses = [{"columns": list(cross.columns), "gain": cross.gain} for cross in self.model.crosses_]
        return {"crosses": crosses, "history": list(self.model.history_)}


PAPER_SETTINGS = {
    "evaluation": "holdout",
    "halving": "paper",
    "bins": "width",
    "granularities": [10, 100, 1000],
    "penalty": "shared",
    "min_count": 1,
}


# The paper's reference, and LR with every pair.


def one_value(rows: pl.DataFrame) -> pl.DataFrame:
    """Lists as one text each: a cross by hand needs one value a row."""
    return rows.with_columns(cs.by_dtype(pl.List(pl.String)).list.join("|"))


class CrossedByHand(OneRow):
    """LR on the table with columns added that cross two fields each."""

    def fields(self, train: pl.DataFrame) -> None:
        base = AutoCross(max_crosses=0, quiet=True).set_output(transform="polars")
        self.base = base.fit(one_value(self.keep_schema(train)), train[TARGET])

    def codes(self, rows: pl.DataFrame) -> NDArray[np.int64]:
        """The fields' codes."""
        return np.asarray(self.base.transform(one_value(rows.select(self.schema.names())), output="codes"))

    def crossed(self, rows: pl.DataFrame) -> pl.DataFrame:
        rows, codes = rows.select(self.schema.names()), self.codes(rows)
        return with_crosses(rows, codes, self.base.get_feature_names_out().tolist(), self.pairs)

    def learn(self, train: pl.DataFrame) -> None:
        crossed = self.crossed(train)
        kinds = dict.fromkeys(crossed.columns[len(self.schema) :], "categorical")
        self.model = AutoCrossClassifier(max_crosses=0, quiet=True, types=kinds).fit(crossed, train[TARGET])

    def score(self, rows: pl.DataFrame) -> Scores:
        return self.model.predict_proba(self.crossed(rows))[:, 1]


class CmiLR(CrossedByHand):
    """Crosses of second order by conditional mutual information, 15 at most, five at a time."""

    MOST, AT_ONCE = 15, 5

    def fit(self, train: pl.DataFrame) -> None:
        self.fields(train)
        self.pairs: list[tuple[int, int]] = []
        codes = self.codes(train)
        columns = [field["column"] for field in fields_of(self.base)]
        label = train[TARGET].to_numpy()
        while len(self.pairs) < self.MOST:
            self.learn(train)
            found = conditional_crosses(codes, columns, label, self.score(train), {frozenset(pair) for pair in self.pairs})
            self.pairs += found[: self.AT_ONCE]
            if len(found) < self.AT_ONCE:
                break
        self.learn(train)


class AllPairs(CrossedByHand):
    """Every pair of columns, numbers by their coarsest field."""

    def fit(self, train: pl.DataFrame) -> None:
        self.fields(train)
        coarsest: dict[str, tuple[int, int]] = {}
        for at, field in enumerate(fields_of(self.base)):
            known = coarsest.get(field["column"])
            if known is None or field["n_codes"] < known[0]:
                coarsest[field["column"]] = (field["n_codes"], at)
        self.pairs = list(combinations(sorted(at for _, at in coarsest.values()), 2))
        self.learn(train)


def fields_of(base: AutoCross) -> list[dict[str, Any]]:
    """The fields of a fitted producer: column and number of codes."""
    return [{"column": field.column, "n_codes": field.n_codes} for field in base.model_.producer.fields]


# Rivals, by their defaults.


def plain(rows: pl.DataFrame) -> pl.DataFrame:
    """Times as numbers and lists as text, for those that know neither."""
    times = [name for name in rows.columns if rows[name].dtype.is_temporal()]
    lists = [name for name in rows.columns if rows[name].dtype == pl.List]
    parts = [
        getattr(pl.col(name).dt, part)().cast(pl.Float64).alias(f"{name}.{part}")
        for name in times
        for part in ("year", "month", "day", "weekday", "hour")
    ]
    return rows.with_columns(*parts, pl.col(lists).list.join("|")).drop(times)


def as_pandas(rows: pl.DataFrame) -> Any:
    import pandas

    return pandas.DataFrame({name: rows[name].to_numpy() for name in rows.columns})


def text_columns(rows: pl.DataFrame) -> list[str]:
    return [name for name in rows.columns if rows[name].dtype == pl.String]


class LightGBM(OneRow):
    def fit(self, train: pl.DataFrame) -> None:
        from lightgbm import LGBMClassifier

        features = plain(self.keep_schema(train))
        self.known = {name: features[name].drop_nulls().unique().sort().to_list() for name in text_columns(features)}
        self.model = LGBMClassifier(n_jobs=2, verbose=-1).fit(self.coded(train), train[TARGET].to_numpy())

    def coded(self, rows: pl.DataFrame) -> Any:
        import pandas

        frame = as_pandas(plain(rows.select(self.schema.names())))
        for name, values in self.known.items():
            frame[name] = pandas.Categorical(frame[name], categories=values)
        return frame

    def score(self, rows: pl.DataFrame) -> Scores:
        return self.model.predict_proba(self.coded(rows))[:, 1]


def filled(rows: pl.DataFrame, names: list[str]) -> Any:
    """The rows for pandas, a missing text being a text."""
    rows = plain(rows.select(names))
    return as_pandas(rows.with_columns(pl.col(text_columns(rows)).fill_null("missing")))


class CatBoost(OneRow):
    def fit(self, train: pl.DataFrame) -> None:
        from catboost import CatBoostClassifier

        features = plain(self.keep_schema(train))
        given = {"cat_features": text_columns(features), "thread_count": 2, "verbose": 0, "allow_writing_files": False}
        self.model = CatBoostClassifier(**given).fit(filled(train, self.schema.names()), train[TARGET].to_numpy())

    def score(self, rows: pl.DataFrame) -> Scores:
        return self.model.predict_proba(filled(rows, self.schema.names()))[:, 1]


class EBM(OneRow):
    def fit(self, train: pl.DataFrame) -> None:
        from interpret.glassbox import ExplainableBoostingClassifier

        self.keep_schema(train)
        self.model = ExplainableBoostingClassifier(n_jobs=2).fit(filled(train, self.schema.names()), train[TARGET].to_numpy())

    def score(self, rows: pl.DataFrame) -> Scores:
        return self.model.predict_proba(filled(rows, self.schema.names()))[:, 1]


class ScikitLR(OneRow):
    """One-hot categories and scaled numbers, as most would write it."""

    def fit(self, train: pl.DataFrame) -> None:
        from sklearn.compose import make_column_transformer
        from sklearn.impute import SimpleImputer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder, StandardScaler

        words = text_columns(plain(self.keep_schema(train)))
        rows = filled(train, self.schema.names())
        numbers = [name for name in rows.columns if name not in words]
        columns = make_column_transformer(
            (make_pipeline(SimpleImputer(), StandardScaler()), numbers), (OneHotEncoder(handle_unknown="ignore"), words)
        )
        self.model = make_pipeline(columns, LogisticRegression(max_iter=1000)).fit(rows, train[TARGET].to_numpy())

    def score(self, rows: pl.DataFrame) -> Scores:
        return self.model.predict_proba(filled(rows, self.schema.names()))[:, 1]


class VowpalWabbit(OneRow):
    """Hashed features with all interactions of two, three passes over shuffled rows."""

    PASSES = 3

    def fit(self, train: pl.DataFrame) -> None:
        from vowpalwabbit import Workspace

        features = plain(self.keep_schema(train))
        self.scale = {
            name: (float(features[name].mean() or 0.0), float(features[name].std() or 0.0) or 1.0)
            for name in features.columns
            if name not in text_columns(features)
        }
        self.model = Workspace("--loss_function logistic --link logistic -b 22 -q :: --quiet --random_seed 1")
        lines = [f"{2 * y - 1} {line}" for y, line in zip(train[TARGET].to_list(), self.lines(train), strict=True)]
        for seed in range(self.PASSES):
            for at in np.random.default_rng(seed).permutation(len(lines)).tolist():
                self.model.learn(lines[at])

    def lines(self, rows: pl.DataFrame) -> list[str]:
        """One line of text a row: texts as they are, numbers scaled."""
        found = []
        rows = plain(rows.select(self.schema.names()))
        for row in rows.iter_rows():
            words = []
            for at, (name, value) in enumerate(zip(rows.columns, row, strict=True)):
                if value is None:
                    words.append(f"{at}_none")
                elif name in self.scale:
                    mean, spread = self.scale[name]
                    words.append(f"{at}:{(value - mean) / spread:.6g}")
                else:
                    words.append(f"{at}_" + "".join("_" if sign in " :|\n\t" else sign for sign in str(value)))
            found.append("|f " + " ".join(words))
        return found

    def score(self, rows: pl.DataFrame) -> Scores:
        return np.array([self.model.predict(line) for line in self.lines(rows)])


def network(kind: str) -> Method:
    """A network; PyTorch is loaded for these alone."""
    import networks

    return networks.METHODS[kind]()


METHODS: dict[str, Callable[[], Method]] = {
    "LR (base)": partial(AutoCrossed, max_crosses=0),
    "AC+LR": AutoCrossed,
    "AC+LR, order 2": partial(AutoCrossed, max_order=2),
    "AC+LR, paper's settings": partial(AutoCrossed, **PAPER_SETTINGS),
    "LR (base), paper's settings": partial(AutoCrossed, max_crosses=0, **PAPER_SETTINGS),
    "CMI+LR": CmiLR,
    "LR, all pairs": AllPairs,
    "LightGBM": LightGBM,
    "CatBoost": CatBoost,
    "EBM": EBM,
    "Vowpal Wabbit": VowpalWabbit,
    "Deep": partial(network, "Deep"),
    "xDeepFM": partial(network, "xDeepFM"),
    "AC+W&D": partial(network, "AC+W&D"),
}
RIVALS = ("LightGBM", "CatBoost", "EBM", "Vowpal Wabbit")  # no code of ours takes part in these
OTHERS: dict[str, Callable[[], Method]] = {"scikit-learn's LR": ScikitLR}  # for benchmarks/peers.py, no part of the paper's tables
SLOW = ("EBM", "Deep", "xDeepFM")  # two seeds will do
