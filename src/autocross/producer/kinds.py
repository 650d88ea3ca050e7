"""Which kinds of models there are beside the logistic one: the only list of additions.

A new kind of model is a file with its `Addition`, a call of `register`, and a stage of the fit that makes it
(`fitting.fit.LaterStage`). Bundle, scorer, words and estimators do not know which kinds there are.
"""

from __future__ import annotations

from autocross.producer.addition import Addition
from autocross.producer.deep import DeepPart
from autocross.producer.network import Network

KINDS: dict[str, type[Addition]] = {DeepPart.key: DeepPart, Network.key: Network}


def register(kind: type[Addition]) -> None:
    """Add a kind of model. A bundle with such an addition is read where it is registered too."""
    assert kind.key not in KINDS, f"there is an addition {kind.key!r} already"
    KINDS[kind.key] = kind
