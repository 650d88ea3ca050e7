"""The scikit-learn face of the features: a transformer for any model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self, get_args, overload

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack
from sklearn import get_config
from sklearn.base import TransformerMixin
from sklearn.utils import ClassifierTags
from sklearn.utils.validation import check_is_fitted

from autocross.errors import OptionError, TableError
from autocross.features import FieldCodes
from autocross.fitted import FITTED, Fitted, checked_labels
from autocross.options import OptionList, documented
from autocross.producer import numbers
from autocross.producer.features import Learned
from autocross.table.coded import Category, Texts, to_frame
from autocross.table.coerce import typed
from autocross.table.frames import to_polars
from autocross.table.ingest import rows_of_fit
from autocross.table.labels import match_labels

Output = Literal["csr", "codes", "frame", "statistics"]
Matrix = Literal["codes", "statistics"]


class AutoCross(TransformerMixin, Fitted):  # type: ignore[misc]
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
    def transform(self, X: Any, output: Matrix) -> NDArray[Any]: ...

    @overload
    def transform(self, X: Any, output: Literal["csr", "frame"] | None = None) -> Any: ...

    def transform(self, X: Any, output: Output | None = None) -> Any:
        """Features of rows: a sparse one-hot matrix (csr), a matrix of integer codes, a frame of readable categories, or a matrix
        of dense numbers (statistics): for each field and cross the log-odds of the training rows with the row's value, and the
        logarithm of one plus their number.

        The default is csr, or a frame after ``set_output(transform="pandas")`` or ``"polars"``.
        """
        rows = self._rows(X)
        return self._features(X, to_polars(rows), output)

    @overload
    def fit_transform(self, X: Any, y: Any, sample_weight: Any = None, *, output: Matrix) -> NDArray[Any]: ...

    @overload
    def fit_transform(self, X: Any, y: Any, sample_weight: Any = None, output: Literal["csr", "frame"] | None = None) -> Any: ...

    def fit_transform(self, X: Any, y: Any, sample_weight: Any = None, output: Output | None = None) -> Any:
        """Find the features, and return those of the same rows, to train another model on.

        This is ``fit``, then ``transform``, with one exception. What is known about a row's values comes from other rows, because
        that of all rows knows its label, and whatever is trained on it trusts it too much. Statistics of values come from the rows
        before it in a random order, as they did in the fit; the numbers of output="statistics" come from the rows of other folds.
        """
        self.fit(X, y, sample_weight)
        rows = self._rows(X)
        if not self.model_.producer.statistics and output != "statistics":
            return self._features(X, to_polars(rows), output)
        schema, options = self.model_.producer.encoder.schema, self._options()
        frame, values, number, target = rows_of_fit(rows, checked_labels(y), sample_weight, schema, options)
        label = match_labels(values, target, self.model_.about.classes)
        return self._features(X, frame, output, Learned.of(label, number, options.random_state or 0))

    def _features(self, X: Any, frame: pl.DataFrame, output: Output | None, learned: Learned | None = None) -> Any:
        """The features of the rows of ``X``, which are in ``frame``, in the form that is asked for."""
        features, wanted = self._described, self._wants_frame()
        output = output or ("frame" if wanted else "csr")
        if output not in get_args(Output):
            raise OptionError(f"output={output!r} is unknown. Choose one of: {', '.join(get_args(Output))}.")
        if output == "statistics" and wanted:
            raise OptionError(
                "output='statistics' gives a matrix, but set_output asks for a frame. Leave one of them out; "
                "get_feature_names_out(output='statistics') has the names of the columns."
            )
        coded = features.producer.codes(typed(frame, features.producer.encoder.schema))
        if output == "statistics":
            return numbers.dense(features, coded, learned)
        codes = features.codes(coded, learned)
        if output == "csr":
            return one_hot(codes, [field.n_codes for field in features.fields])
        if output == "codes":
            return np.stack(list(features.code_columns(codes).values()), axis=1)
        return in_style_of(X, features.worded(codes), wanted)

    def _wants_frame(self) -> str | None:
        """The frame library that set_output asks for, here or for all of scikit-learn, or None."""
        everywhere = get_config()["transform_output"]
        wanted: str = getattr(self, "_sklearn_output_config", {}).get("transform", everywhere)
        return None if wanted == "default" else wanted

    def get_feature_names_out(self, input_features: Any = None, output: Output | None = None) -> NDArray[Any]:
        """Names of the columns that ``transform`` returns. If ``input_features`` is given, it must have the columns of fit."""
        check_is_fitted(self, "model_")
        if input_features is not None:
            self._check_input_features(list(input_features))
        if output == "statistics":
            return np.array(numbers.names(self._described), dtype=object)
        by_code = output == "csr" or (output is None and not self._wants_frame())
        return np.array(self._described.value_names() if by_code else self._described.names, dtype=object)

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


AutoCross.__doc__ = documented(AutoCross.__doc__, OptionList, FITTED)


def one_hot(codes: Sequence[FieldCodes], sizes: Sequence[int]) -> csr_matrix:
    """The sparse 0/1 matrix with one column for each code of each field."""
    parts = []
    for coded, size in zip(codes, sizes, strict=True):
        starts = np.arange(coded.n_rows + 1) if coded.starts is None else coded.starts
        parts.append(csr_matrix((np.ones(len(coded.codes)), coded.codes.astype(np.int32), starts), shape=(coded.n_rows, size)))
    return hstack(parts, format="csr")


def in_style_of(X: Any, columns: Sequence[Category | Texts], wanted: str | None) -> Any:
    """A frame of the library that is asked for, or else of that of the input, with the index of the input."""
    is_pandas = type(X).__module__.partition(".")[0] == "pandas"
    if wanted == "pandas" or (wanted is None and is_pandas):
        import pandas

        values = {
            column.name: column.texts
            if isinstance(column, Texts)
            else pandas.Categorical.from_codes(column.codes, column.categories, column.ordered)
            for column in columns
        }
        return pandas.DataFrame(values, index=X.index if is_pandas else None)
    return to_frame(columns)
