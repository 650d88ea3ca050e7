"""What the estimators share: the options, fitting itself, and who watches it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

import autocross
from autocross import checkpoint
from autocross.checks import shown
from autocross.errors import AutoCrossError, LabelError, TableError
from autocross.events import FitStarted, Reporter
from autocross.fitting import fit as fitting
from autocross.interrupts import interruptible
from autocross.observers.journal import Journal
from autocross.observers.progress import DISPLAY, display
from autocross.options import OptionList, Options, values_of
from autocross.producer import bundle
from autocross.producer.features import Features
from autocross.producer.model import About, Model
from autocross.serving.scorer import Scorer
from autocross.table.frames import to_polars, unnamed
from autocross.table.ingest import part_of, source_of, unlabelled
from autocross.table.outputs import Kind, keep_apart

MODEL = Kind((), bundle.is_bundle, "is no model of autocross")  # what fit writes


# What a fit leaves behind, beside the names and the number of columns that scikit-learn asks for.
FITTED = {
    "model_": "The fitted model: its features, their weights and penalties, and how it came about.",
    "scorer_": "What scores with the model, one row or many; the same as `autocross.load` gives after `save`.",
    "crosses_": "The crosses of the model, those that it would miss most first: their columns, gains and standard errors.",
    "history_": "The validation score after each cross that was accepted, with the seconds it took to get there, and at last that "
    "of the model, if crosses were taken out again.",
    "path_": "How many crosses the smaller models of the same fit and the model itself have, and the validation score of each.",
    "changes_": "What was changed by hand since the fit, and why.",
    "n_features_in_": "The number of columns of the table that was fitted.",
    "feature_names_in_": "The names of these columns, where the table had any.",
}


class Fitted(OptionList, BaseEstimator):  # type: ignore[misc]
    """What all estimators share: the options, fitting itself, saving and loading."""

    def _options(self) -> Options:
        return Options(**values_of(self))

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        with observed(self._options(), X) as (options, reporter), interruptible() as interrupt:
            checkpoint.prepare(options)
            later = self._later_stage()  # raises an error here if it needs a library that is not installed
            source = source_of(X, checked_labels(y), sample_weight, options)
            model = fitting.fit(source, options, reporter, interrupt, later)
        names = self._names_in = source.names
        self.n_features_in_ = len(names)
        for name in ("feature_names_in_", "_in_order"):  # an earlier fit may have had names
            self.__dict__.pop(name, None)
        if has_names(X):
            self.feature_names_in_ = np.array(names, dtype=object)
        self._keep(model)

    def _later_stage(self) -> fitting.LaterStage | None:
        """A stage that comes after the logistic model, if there is one."""
        return None

    def _keep(self, model: Model) -> None:
        """Keep a model and a scorer for it, so that scoring need not change the estimator."""
        self.model_ = model
        self.scorer_ = Scorer(model)
        self._described = Features(model)
        self.history_ = model.about.history
        self.crosses_ = model.about.crosses
        self.changes_ = model.about.changes
        self.path_ = model.path

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        made = ("scorer_", "_described")  # from the model
        return {name: value for name, value in state.items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "model_" in state:
            self._keep(state["model_"])

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Self:
        """The estimator of a saved model, as it was after its fit. `autocross.load` is quicker, if all you want is scores.

        Of the options, a file has ``metric``, ``positive``, ``class_weight`` and ``monotone``. The others have their defaults, if
        you do not give them here, as in ``load("model.acx", n_jobs=2)``. A file has no smaller models, nor the order of the
        columns: rows need their names, if those of the fit had any.
        """
        model = bundle.read(path)
        cls._check_kind(model, path)
        about, schema = model.about, model.producer.encoder.schema
        stored = {
            "metric": about.metric,
            "positive": about.classes[1] if about.classes[0] > about.classes[1] else None,
            "class_weight": class_weight_of(about),
            "monotone": {column.name: column.monotone for column in schema if column.monotone is not None} or None,
        }
        loaded = cls(**{**stored, **options})
        names, nameless = [column.name for column in schema], unnamed(len(schema))
        loaded.n_features_in_ = len(names)
        loaded._in_order = {*names} == {*nameless}
        loaded._names_in = nameless if loaded._in_order else names
        if not loaded._in_order:
            loaded.feature_names_in_ = np.array(names, dtype=object)
        loaded._keep(model)
        return loaded

    @classmethod
    def _check_kind(cls, model: Model, path: str | Path) -> None:
        """Refuse a model that another estimator must load."""

    def _rows(self, X: Any) -> Any:
        """Rows to score. Rows without column names must have the columns of fit, in the same order."""
        check_is_fitted(self, "model_")
        if isinstance(X, (str, Path)):
            return unlabelled(X, self.model_.producer.encoder.schema, self)
        if has_names(X):
            return X
        frame = to_polars(X)
        if frame.width != self.n_features_in_:
            raise TableError(
                f"X has {frame.width} features, but {type(self).__name__} is expecting {self.n_features_in_} features as input."
            )
        if not getattr(self, "_in_order", True):
            raise TableError(
                "X has no column names, and a saved model does not know the order of its columns. Give a frame that has names."
            )
        if hasattr(self, "feature_names_in_"):
            frame.columns = self.feature_names_in_.tolist()
        return frame

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.target_tags.required = True
        return tags

    def save(self, path: str | Path) -> None:
        """Write the model to one file, which `autocross.load` reads."""
        check_is_fitted(self, "model_")
        bundle.save(self.model_, path)


def class_weight_of(about: About) -> Any:
    """The weights of classes that a model was fitted with, as an option."""
    weights = about.class_weight
    return dict(zip(about.classes, weights, strict=True)) if isinstance(weights, tuple) else weights


def refit(model: Model, X: Any, y: Any, sample_weight: Any, options: Options, reporter: Reporter) -> Model:
    """New weights for a model's fields on new rows."""
    for addition in model.additions:
        raise AutoCrossError(addition.no_refit)
    part, target = part_of(X, checked_labels(y), sample_weight, model.producer.encoder.schema, options)
    return fitting.refit(model, part, target, options, reporter)


@contextmanager
def observed(options: Options, data: Any) -> Iterator[tuple[Options, Reporter]]:
    """A reporter with the observers that the options ask for, closed whatever happens.

    A journal that cannot be opened is an error before the work begins. If the journal or the display fails later, there is only a
    warning, because the model does not depend on them.
    """
    keep_apart([data], journal=options.journal, checkpoint=checkpoint.file_of(options))
    reporter = Reporter([] if options.journal is None else [Journal(options.journal)])

    def show() -> None:
        if (shown := display(options.metric)) is not None:
            reporter.observers.append(shown)

    try:
        if not options.quiet:
            reporter.attempt(DISPLAY, show)
        values = values_of(options)
        unusual = {entry.name: values[entry.name] for entry in fields(options) if shown(values[entry.name]) != shown(entry.default)}
        reporter.tell(FitStarted, version=autocross.__version__, options=unusual)
        yield options, reporter
    finally:
        reporter.close()


def checked_labels(y: Any) -> Any:
    """Labels, checked by scikit-learn's rules. The name of a column, or None, is returned as it is."""
    if y is None or isinstance(y, str):
        return y
    values = y.to_numpy() if hasattr(y, "to_numpy") else np.asarray(y)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise LabelError("Input y contains NaN or infinity. Leave out rows without a label.")
    in_one_column = column_or_1d(values, warn=True)
    if in_one_column.dtype.kind != "O":
        check_classification_targets(in_one_column)
    return y if values.ndim == 1 else in_one_column


def has_names(X: Any) -> bool:
    """Whether the rows come with column names."""
    return isinstance(X, (str, Path, pl.LazyFrame)) or hasattr(X, "columns") or hasattr(X, "column_names")
