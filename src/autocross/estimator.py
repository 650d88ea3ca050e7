"""The scikit-learn face: arguments in, a fitted model out, no algorithm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, Self, overload

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils import ClassifierTags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

import autocross
from autocross import checkpoint
from autocross.checks import shown
from autocross.errors import AutoCrossError, LabelError, OptionError, TableError
from autocross.events import FitStarted, Reporter
from autocross.features import FieldCodes
from autocross.fitting import fit as fitting
from autocross.interrupts import interruptible
from autocross.observers.journal import Journal
from autocross.observers.progress import DISPLAY, display
from autocross.options import OptionList, Options, documented, values_of
from autocross.producer import bundle
from autocross.producer.features import Features, Learned
from autocross.producer.model import Model
from autocross.serving.scorer import Explanation, Scorer
from autocross.table.coerce import typed
from autocross.table.frames import to_polars
from autocross.table.ingest import part_of, rows_of_fit, source_of, unlabelled
from autocross.table.labels import match_labels
from autocross.table.outputs import Kind, keep_apart

Output = Literal["csr", "codes", "frame"]

MODEL = Kind((), bundle.is_bundle, "is no model of autocross")  # what fit writes


# What a fit leaves behind, beside the names and the number of columns that scikit-learn asks for.
FITTED = {
    "model_": "The fitted model: its features, their weights and penalties, and how it came about.",
    "scorer_": "What scores with the model, one row or many; the same as `autocross.load` gives after `save`.",
    "crosses_": "The crosses of the model, those that it would miss most first: their columns, gains and standard errors.",
    "history_": "The validation score after each cross that was accepted, with the seconds it took to get there, and at last that "
    "of the model, if crosses were taken out again.",
    "path_": "How many crosses the smaller models of the same fit and the model itself have, and the validation score of each.",
    "n_features_in_": "The number of columns of the table that was fitted.",
    "feature_names_in_": "The names of these columns, where the table had any.",
}
OF_CLASSIFIER = {
    "classes_": "The two labels, the smaller one first.",
    **FITTED,
    "path_": FITTED["path_"] + " `at` gives these models.",
}


class _Fitted(OptionList, BaseEstimator):  # type: ignore[misc]
    """What `AutoCross` and `AutoCrossClassifier` share: the options, and fitting itself."""

    def _options(self) -> Options:
        return Options(**values_of(self))

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        with observed(self._options(), X) as (options, reporter), interruptible() as interrupt:
            checkpoint.prepare(options)
            later = self._later_stage()  # raises an error here if it needs a library that is not installed
            source = source_of(X, checked_labels(y), sample_weight, options)
            model = fitting.fit(source, options, reporter, interrupt, later)
        names = source.names
        self.n_features_in_ = len(names)
        self.__dict__.pop("feature_names_in_", None)  # an earlier fit may have had names
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
        self.history_ = model.about.history
        self.crosses_ = model.about.crosses
        self.path_ = model.path

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "scorer_"}  # it can be made from the model

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "model_" in state:
            self._keep(state["model_"])

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


class AutoCross(TransformerMixin, _Fitted):  # type: ignore[misc]
    """Table -> features for any model: the fields and crosses that a logistic regression found useful.

    >>> import polars as pl
    >>> X = pl.DataFrame({"job": ["cook", "cook", "nurse", "nurse"] * 10, "age": [20, 30, 40, 50] * 10})
    >>> AutoCross(quiet=True).fit(X, [0, 0, 1, 1] * 10).transform(X).shape
    (40, 10)
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Find the features. ``y`` has the labels, or is the name of their column in ``X``."""
        self._fit(X, y, sample_weight)
        return self

    @overload
    def transform(self, X: Any, output: Literal["codes"]) -> NDArray[Any]: ...

    @overload
    def transform(self, X: Any, output: Literal["csr", "frame"] | None = None) -> Any: ...

    def transform(self, X: Any, output: Output | None = None) -> Any:
        """Features of rows: a sparse one-hot matrix (csr), a matrix of integer codes, or a frame of readable columns.

        The default is csr, or a frame after ``set_output(transform="pandas")`` or ``"polars"``.
        """
        rows = self._rows(X)
        return self._features(X, to_polars(rows), output)

    @overload
    def fit_transform(self, X: Any, y: Any, sample_weight: Any = None, *, output: Literal["codes"]) -> NDArray[Any]: ...

    @overload
    def fit_transform(self, X: Any, y: Any, sample_weight: Any = None, output: Literal["csr", "frame"] | None = None) -> Any: ...

    def fit_transform(self, X: Any, y: Any, sample_weight: Any = None, output: Output | None = None) -> Any:
        """Find the features, and return those of the same rows, to train another model on.

        This is ``fit``, then ``transform``, with one exception. A row's statistics of values come from the rows before it in a
        random order, as they did in the fit, because those of all rows know its label. Whatever is trained on the latter trusts
        statistics too much.
        """
        self.fit(X, y, sample_weight)
        rows = self._rows(X)
        if not self.model_.producer.statistics:
            return self._features(X, to_polars(rows), output)
        schema, options = self.model_.producer.encoder.schema, self._options()
        frame, values, number, target = rows_of_fit(rows, checked_labels(y), sample_weight, schema, options)
        label = match_labels(values, target, self.model_.about.classes)
        return self._features(X, frame, output, Learned.of(label, number, options.random_state or 0))

    def _features(self, X: Any, frame: pl.DataFrame, output: Output | None, learned: Learned | None = None) -> Any:
        """The features of the rows of ``X``, which are in ``frame``, in the form that is asked for."""
        features = Features(self.model_)
        codes = features.codes(typed(frame, self.model_.producer.encoder.schema), learned)
        output = output or ("frame" if self._wants_frame() else "csr")
        if output == "csr":
            return one_hot(codes, [field.n_codes for field in features.fields])
        if output == "codes":
            return np.stack(list(features.code_columns(codes).values()), axis=1)
        if output != "frame":
            raise OptionError(f"output={output!r} is unknown. Choose one of: csr, codes, frame.")
        return in_style_of(X, pl.DataFrame(features.readable(codes)), self._wants_frame())

    def _wants_frame(self) -> str | None:
        """The frame library that set_output asks for, here or for all of scikit-learn, or None."""
        everywhere = get_config()["transform_output"]
        wanted: str = getattr(self, "_sklearn_output_config", {}).get("transform", everywhere)
        return None if wanted == "default" else wanted

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the columns that ``transform`` returns. If ``input_features`` is given, it must have the columns of fit."""
        check_is_fitted(self, "model_")
        if input_features is not None:
            self._check_input_features(list(input_features))
        features = Features(self.model_)
        return np.array(features.names if self._wants_frame() else features.value_names(), dtype=object)

    def _check_input_features(self, names: list[Any]) -> None:
        if len(names) != self.n_features_in_:
            raise TableError(
                f"input_features should have length equal to the number of columns in fit, {self.n_features_in_}, not {len(names)}."
            )
        if hasattr(self, "feature_names_in_") and names != self.feature_names_in_.tolist():
            raise TableError("input_features is not equal to feature_names_in_, the columns of fit. Leave it out.")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags = ClassifierTags(multi_class=False)  # this is no classifier, but it too needs labels of two classes
        return tags


class AutoCrossClassifier(ClassifierMixin, _Fitted):  # type: ignore[misc]
    """A logistic regression on a table's fields and crosses that tunes itself.

    >>> import polars as pl
    >>> X = pl.DataFrame({"job": ["cook", "cook", "nurse", "nurse"] * 10, "age": [20, 30, 40, 50] * 10})
    >>> clf = AutoCrossClassifier(quiet=True).fit(X, ["no", "no", "yes", "yes"] * 10)
    >>> clf.predict(X)[:4].tolist()
    ['no', 'no', 'yes', 'yes']
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to a frame or a file. ``y`` has the labels, or is the name of their column in ``X``. The same holds for
        ``sample_weight``."""
        self._fit(X, y, sample_weight)
        first, second = self.model_.about.classes
        self.classes_ = np.array(sorted([first, second]))
        return self

    def refit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """New weights for the same fields and crosses, on new rows."""
        check_is_fitted(self, "model_")
        with observed(self._options(), X) as (options, reporter):
            self._keep(refit(self.model_, self._rows(X), y, sample_weight, options, reporter))
        return self

    def at(self, n: int | Literal["all"]) -> Self:
        """A fitted classifier of the first ``n`` crosses, for n of 0, 5, 10, 20 or "all". It has weights of its own, which were
        fitted at the end of ``fit``; they are in memory only."""
        check_is_fitted(self, "model_")
        smaller = copy(self)
        smaller._keep(self.model_.at(n))
        return smaller

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Log-odds of the larger label, which is the second of ``classes_``."""
        rows = self._rows(X)
        log_odds = self.scorer_.log_odds(rows)
        return log_odds if self.model_.about.classes[1] == self.classes_[1] else -log_odds

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities, one column for each of ``classes_``."""
        rows = self._rows(X)
        positive = self.scorer_.score(rows)
        columns = (1 - positive, positive) if self.model_.about.classes[1] == self.classes_[1] else (positive, 1 - positive)
        return np.stack(columns, axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        """The more probable label."""
        is_larger = self.decision_function(X) > 0
        return self.classes_[is_larger.astype(int)]  # type: ignore[no-any-return]

    def explain(self, row: Mapping[str, Any]) -> Explanation:
        """The contribution of every field to one row's log-odds."""
        check_is_fitted(self, "model_")
        return self.scorer_.explain_one(row)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


AutoCross.__doc__ = documented(AutoCross.__doc__, OptionList, FITTED)
AutoCrossClassifier.__doc__ = documented(AutoCrossClassifier.__doc__, OptionList, OF_CLASSIFIER)


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


def one_hot(codes: Sequence[FieldCodes], sizes: Sequence[int]) -> csr_matrix:
    """The sparse 0/1 matrix with one column for each code of each field."""
    parts = []
    for coded, size in zip(codes, sizes, strict=True):
        starts = np.arange(coded.n_rows + 1) if coded.starts is None else coded.starts
        parts.append(csr_matrix((np.ones(len(coded.codes)), coded.codes.astype(np.int32), starts), shape=(coded.n_rows, size)))
    return hstack(parts, format="csr")


def in_style_of(X: Any, frame: pl.DataFrame, wanted: str | None) -> Any:
    """The frame in the library that is asked for, or else in that of the input, with the index of the input."""
    is_pandas = type(X).__module__.partition(".")[0] == "pandas"
    if wanted == "pandas" or (wanted is None and is_pandas):
        import pandas

        index = X.index if is_pandas else None
        return pandas.DataFrame({name: frame[name].to_list() for name in frame.columns}, index=index)
    return frame
