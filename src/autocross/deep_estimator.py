"""The scikit-learn face of Wide & Deep."""

from __future__ import annotations

from autocross.estimator import FITTED, AutoCrossClassifier
from autocross.events import Reporter
from autocross.interrupts import Interrupt
from autocross.options import DeepOptionList, DeepOptions, Options, documented, values_of
from autocross.training import Training


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

    def _training(self, options: Options, reporter: Reporter, interrupt: Interrupt) -> Training:
        from autocross.deep_training import DeepTraining  # which needs PyTorch

        assert isinstance(options, DeepOptions)
        return DeepTraining(options, reporter, interrupt)


WideDeepClassifier.__doc__ = documented(WideDeepClassifier.__doc__, DeepOptionList, FITTED)
