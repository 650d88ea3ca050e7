"""Automatic feature crossing for tables with a yes/no target."""

from __future__ import annotations

from autocross import forks as _forks  # noqa: F401  it must be there before the first fork, to know what a child can do

TYPE_CHECKING = False  # as type checkers understand it: typing takes longer to import than all that is needed here
if TYPE_CHECKING:
    from typing import Any

    from autocross.deep_estimator import WideDeepClassifier
    from autocross.estimator import AutoCrossClassifier
    from autocross.exporting.formats import export
    from autocross.models.evaluation import Evaluation
    from autocross.producer.model import FoundCross
    from autocross.serving.intervals import ScoreInterval
    from autocross.serving.reasons import Explanation, Reason
    from autocross.serving.scorecard import Scorecard
    from autocross.serving.scorer import Scorer, load
    from autocross.transformer import AutoCross

__version__ = "0.1.0"
__all__ = [
    "AutoCross",
    "AutoCrossClassifier",
    "Evaluation",
    "Explanation",
    "FoundCross",
    "Reason",
    "ScoreInterval",
    "Scorecard",
    "Scorer",
    "WideDeepClassifier",
    "__version__",
    "export",
    "load",
]

# Loaded on first use: `load` in a service must not pay for scikit-learn or a frame library.
_HOMES = {
    "AutoCross": "autocross.transformer",
    "AutoCrossClassifier": "autocross.estimator",
    "Evaluation": "autocross.models.evaluation",
    "Explanation": "autocross.serving.reasons",
    "FoundCross": "autocross.producer.model",
    "Reason": "autocross.serving.reasons",
    "Scorecard": "autocross.serving.scorecard",
    "ScoreInterval": "autocross.serving.intervals",
    "Scorer": "autocross.serving.scorer",
    "WideDeepClassifier": "autocross.deep_estimator",
    "export": "autocross.exporting.formats",
    "load": "autocross.serving.scorer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'autocross' has no attribute {name!r}")
    from importlib import import_module  # here, because Ctrl-C ends in a traceback until the program has imported this package

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
