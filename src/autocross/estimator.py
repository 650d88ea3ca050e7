"""The scikit-learn face: arguments in, a fitted model out, no algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any, Literal, Self, overload

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from autocross.errors import AutoCrossError, OptionError
from autocross.fitted import FITTED, observed, refit
from autocross.models.evaluation import Evaluation
from autocross.options import OptionList, documented
from autocross.producer import changes, weights
from autocross.producer.model import Model
from autocross.serving.drift import Report
from autocross.serving.intervals import LEVEL, ScoreInterval
from autocross.serving.monitor import monitor
from autocross.serving.reasons import TOP, By, Explanation
from autocross.serving.scorecard import Scorecard
from autocross.transformer import AutoCross

OF_CLASSIFIER = {
    "classes_": "The two labels, the smaller one first.",
    **FITTED,
    "path_": FITTED["path_"] + " `at` gives these models.",
    "weights_": "All weights, as a frame: a row for every bin, value and combination of values, merged by term.",
    "feature_importances_": "How much each column moves the log-odds of a row, up or down, on average.",
}
# Where an older file knows nothing, a column would have no type.
WEIGHT_TYPES = {"low": pl.Float64, "high": pl.Float64, "rows": pl.Int64, "positives": pl.Int64, "error": pl.Float64}


class AutoCrossClassifier(ClassifierMixin, AutoCross):  # type: ignore[misc]
    """A logistic regression on a table's fields and crosses that tunes itself. Like `AutoCross`, it gives these features as well.

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
        return self

    def _keep(self, model: Model) -> None:
        super()._keep(model)
        self.classes_ = np.array(sorted(model.about.classes))

    @classmethod
    def _check_kind(cls, model: Model, path: str | Path) -> None:
        for addition in model.additions:
            raise AutoCrossError(
                f"{str(path)!r} holds more than a regression, {addition.reason}, which {cls.__name__} does not fit. Load it by "
                "WideDeepClassifier.load or, if you want scores only, by autocross.load."
            )

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

    def without(self, term: str, X: Any = None, y: Any = None, sample_weight: Any = None, note: str = "") -> Self:
        """A fitted classifier without a term: without all fields and crosses of exactly these columns, such as "job & education".

        The other weights stay, and the intercept moves by the mean of the term over the training rows, so that the mean log-odds
        stays too. If rows are given, the rest is refitted to them instead. ``note`` says why; the model keeps it.
        """
        check_is_fitted(self, "model_")
        if X is None and (y is not None or sample_weight is not None):
            raise OptionError("Labels and weights are for rows to which the rest is refitted. Give X too, or leave them out.")
        changed = copy(self)
        changed._keep(changes.without(self.model_, term, note, refit=X is not None))
        return changed if X is None else changed.refit(X, y, sample_weight)

    def with_weight(self, term: str, value: Any, weight: float, note: str = "") -> Self:
        """A fitted classifier in which one cell of a term has this weight, and all else stays.

        ``term`` and ``value`` name the cell as ``weights_`` does. For a single column, ``value`` may also be a plain value, such as
        37, which stands for the cell that holds it. ``note`` says why; the model keeps it.
        """
        check_is_fitted(self, "model_")
        changed = copy(self)
        changed._keep(changes.with_weight(self.model_, term, value, weight, note))
        return changed

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

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Logarithms of the probabilities, one column for each of ``classes_``. They are exact where a probability is rounded to 0
        or 1."""
        log_odds = self.decision_function(X)
        return -np.logaddexp(0.0, np.stack((log_odds, -log_odds), axis=1))

    def predict(self, X: Any) -> NDArray[Any]:
        """The more probable label."""
        is_larger = self.decision_function(X) > 0
        return self.classes_[is_larger.astype(int)]  # type: ignore[no-any-return]

    def evaluate(self, X: Any, y: Any = None, sample_weight: Any = None, threshold: float = 0.5) -> Evaluation:
        """How good the probabilities of labelled rows are: see `autocross.Scorer.evaluate`. ``y`` has the labels, or is the name of
        their column, by default that of the fit."""
        return self.scorer_.evaluate(self._rows(X), y, sample_weight, threshold=threshold)

    def score_interval(self, row: Any, level: float = LEVEL) -> ScoreInterval:
        """The probability of the positive label, and the bounds between which it lies: at this ``level``, in so many of all rows.

        One row is a mapping or a Series and gives three numbers, ``low``, ``probability`` and ``high``. A frame or a file gives
        three arrays.
        """
        check_is_fitted(self, "model_")
        one = isinstance(row, Mapping) or (hasattr(row, "to_dict") and not hasattr(row, "columns"))
        return self.scorer_.score_interval(row if one else self._rows(row), level)

    @overload
    def explain(self, row: Mapping[str, Any], top: int = TOP, by: By = "column") -> Explanation: ...

    @overload
    def explain(self, row: Any, top: int = TOP, by: By = "column") -> Any: ...

    def explain(self, row: Any, top: int = TOP, by: By = "column") -> Any:
        """Why rows score as they do, compared with the mean of the training rows.

        One row is a mapping, a Series or a frame of one row, and gives an `Explanation`. A frame of more rows gives a frame with
        the contributions of every row, which has a column for each reason. ``by`` says what a reason is: a column of the table, a
        term (all fields and crosses of the same columns), or a single field. ``top`` is how many reasons are printed.
        """
        check_is_fitted(self, "model_")
        return self.scorer_.explain(row, top, by)

    def scorecard(
        self, points: float = 600, odds: float = 50, pdo: float = 20, favourable: Any = None, decimals: int = 0
    ) -> Scorecard:
        """The model as a scorecard: whole points, or points with decimals, whose sum is the score of a row.

        ``points`` stand for ``odds`` of the favourable label, and ``pdo`` more points double them. The favourable label is the
        negative one unless ``favourable`` says otherwise.
        """
        check_is_fitted(self, "model_")
        return self.scorer_.scorecard(points, odds, pdo, favourable, decimals)

    @property
    def weights_(self) -> pl.DataFrame:
        """All weights: a row for every bin, value and combination of values, merged by term."""
        check_is_fitted(self, "model_")
        return pl.DataFrame(weights.table(self.model_), schema_overrides=WEIGHT_TYPES)

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """How much each column moves the log-odds of a row, up or down, on average. A cross is shared equally by its columns."""
        check_is_fitted(self, "model_")
        importances = weights.column_importances(self.model_)
        return np.array([importances.get(name, 0.0) for name in self._names_in])

    def monitor(self, X: Any, y: Any = None, sample_weight: Any = None, reference: Any = None) -> Report:
        """By how much the rows of a frame, or of a file of any size, differ from the rows of the fit. With labels, also how good
        the model is on them. Scores are compared with those of the rows of ``reference``, if it is given."""
        check_is_fitted(self, "model_")
        rows, others = (one if one is None or isinstance(one, (str, Path)) else self._rows(one) for one in (X, reference))
        return monitor(self.model_, rows, y, sample_weight, others, self._options())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


AutoCrossClassifier.__doc__ = documented(AutoCrossClassifier.__doc__, OptionList, OF_CLASSIFIER)
