"""What a type checker knows of the public names. Never run: test_release.py has mypy read it beside the installed wheel."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

from autocross import AutoCross, AutoCrossClassifier, Explanation, FoundCross, Reason, Scorecard, Scorer, WideDeepClassifier, load


def classifier(X: object, y: object) -> None:
    model = assert_type(AutoCrossClassifier(time_limit=60, metric="log_loss").fit(X, y, sample_weight=None), AutoCrossClassifier)
    assert_type(model.refit(X, y), AutoCrossClassifier)
    assert_type(model.predict_proba(X), NDArray[np.float64])
    assert_type(model.decision_function(X), NDArray[np.float64])
    assert_type(model.predict(X), NDArray[Any])
    assert_type(model.classes_, NDArray[Any])
    assert_type(model.n_features_in_, int)
    assert_type(model.history_, tuple[dict[str, Any], ...])
    assert_type(model.save("model.acx"), None)
    assert_type(WideDeepClassifier(epochs=8).fit(X, y), WideDeepClassifier)


def crosses(model: AutoCrossClassifier) -> None:
    assert_type(model.crosses_, tuple[FoundCross, ...])
    for cross in model.crosses_:
        assert_type(cross.columns, tuple[str, ...])
        assert_type(cross.fields, tuple[str, ...])
        assert_type(cross.order, int)
        assert_type(cross.gain, float)
        assert_type(cross.error, float)


def transformer(X: object, y: object) -> None:
    features = assert_type(AutoCross(max_order=3).fit(X, y), AutoCross)
    assert_type(features.transform(X, output="codes"), NDArray[Any])
    assert_type(features.fit_transform(X, y, output="codes"), NDArray[Any])
    assert_type(features.get_feature_names_out(), NDArray[Any])
    assert_type(features.crosses_, tuple[FoundCross, ...])


def scorer(rows: object) -> None:
    model = assert_type(load("model.acx"), Scorer)
    assert_type(model.score_one({"job": "nurse", "age": 37}), float)
    assert_type(model.score(rows), NDArray[np.float64])
    assert_type(model.log_odds(rows), NDArray[np.float64])


def explanation(model: AutoCrossClassifier, saved: Scorer) -> None:
    for why in (model.explain({"job": "nurse"}), saved.explain({"job": "nurse"})):
        assert_type(why, Explanation)
        assert_type(why.probability, float)
        assert_type(why.strongest(3), list[Reason])
        assert_type([(reason.name, reason.contribution) for reason in why.reasons], list[tuple[str, float]])


def card(model: AutoCrossClassifier, saved: Scorer) -> None:
    for points in (model.scorecard(pdo=20), saved.scorecard(favourable="no", decimals=1)):
        assert_type(points, Scorecard)
        assert_type(points.base, float)
        assert_type(points.score({"job": "nurse"}), float)
        assert_type(points.points_to_probability(600), float)


def mistakes(saved: Scorer) -> None:
    """What a type checker must refuse: a comment that refuses nothing is an error itself."""
    AutoCrossClassifier(metric="f1")  # type: ignore[arg-type]
    AutoCrossClassifier(max_crosses="all")  # type: ignore[arg-type]
    AutoCross(colour="red")  # type: ignore[call-arg]
    AutoCross().fit([[1]], [0]).transform([[1]], output="matrix")  # type: ignore[call-overload]
    saved.score_one([1, 2])  # type: ignore[arg-type]
    load(7)  # type: ignore[arg-type]
