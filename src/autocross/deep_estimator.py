"""The scikit-learn face of Wide & Deep."""

from __future__ import annotations

from autocross.estimator import FITTED, AutoCrossClassifier
from autocross.fitting.fit import LaterStage
from autocross.options import DeepOptionList, DeepOptions, documented, values_of


class WideDeepClassifier(DeepOptionList, AutoCrossClassifier):
    """The regression of `AutoCrossClassifier` plus a network on the same columns, trained together.

    It needs PyTorch to fit, but not to score. It uses a GPU where PyTorch finds one, which is untested.

    >>> import polars as pl
    >>> X = pl.DataFrame({"job": ["cook", "cook", "nurse", "nurse"] * 10, "age": [20, 30, 40, 50] * 10})
    >>> clf = WideDeepClassifier(hidden=(8,), epochs=2, quiet=True).fit(X, ["no", "no", "yes", "yes"] * 10)
    >>> clf.predict(X)[:4].tolist()
    ['no', 'no', 'yes', 'yes']
    """

    def _options(self) -> DeepOptions:
        return DeepOptions(**values_of(self))

    def _later_stage(self) -> LaterStage:
        from autocross.fitting.deepen import STAGE  # which needs PyTorch

        return STAGE


WideDeepClassifier.__doc__ = documented(WideDeepClassifier.__doc__, DeepOptionList, FITTED)
