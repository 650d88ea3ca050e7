"""The scikit-learn face of Wide & Deep."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autocross.errors import OptionError
from autocross.estimator import OF_CLASSIFIER, AutoCrossClassifier
from autocross.fitting.fit import LaterStage
from autocross.options import DeepOptionList, DeepOptions, documented, values_of
from autocross.producer.model import Model

GONE = {"hidden", "embedding"}  # options of older versions


class WideDeepClassifier(DeepOptionList, AutoCrossClassifier):
    """The regression of `AutoCrossClassifier`, and networks that learn what it overlooks.

    It needs PyTorch to fit, but not to score. It uses a GPU where PyTorch finds one, which is untested.

    >>> import polars as pl
    >>> X = pl.DataFrame({"job": ["cook", "cook", "nurse", "nurse"] * 10, "age": [20, 30, 40, 50] * 10})
    >>> clf = WideDeepClassifier(epochs=2, quiet=True).fit(X, ["no", "no", "yes", "yes"] * 10)
    >>> clf.predict(X)[:4].tolist()
    ['no', 'no', 'yes', 'yes']
    """

    if not TYPE_CHECKING:  # a type checker knows the options that there are

        @wraps(DeepOptionList.__init__)
        def __init__(self, **options: Any) -> None:
            for name in GONE.intersection(options):
                raise OptionError(
                    f"Option {name}={options[name]!r} is gone: the deep part has no embeddings any more, and its size is "
                    "fixed. Leave the option out."
                )
            super().__init__(**options)

    def _options(self) -> DeepOptions:
        return DeepOptions(**values_of(self))

    @classmethod
    def _check_kind(cls, model: Model, path: str | Path) -> None:
        """A model with networks, or of the regression alone, if these did not help."""

    def _later_stage(self) -> LaterStage:
        from autocross.fitting.deepen import STAGE  # which needs PyTorch

        return STAGE


WideDeepClassifier.__doc__ = documented(WideDeepClassifier.__doc__, DeepOptionList, OF_CLASSIFIER)
