"""Which losses a regression can reduce: the only list of losses.

A new loss is a file with its kernels, and a call of `register`. `Regression` and the search use a loss only through its `Loss`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from autocross.kernels import logistic

Codes = NDArray[Any]
Labels = NDArray[np.uint8]
Weights = NDArray[np.float32]
Folds = NDArray[np.uint8]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Kernels(Protocol):
    """What a module must have to be the kernels of a loss. The arrays, and what they mean, are those of `kernels.logistic`.

    `gather` takes the learners of rows, all other functions take their folds.

    The odds of a row are its state: a positive number, at first 1, which a change of weights multiplies by exp(change). The loss is
    a function of log(odds), and its third derivative must be at most its second (`kernels.steps`).
    """

    __name__: str

    def gather(
        self, codes: Codes, label: Labels, weight: Weights, learners: Folds, odds: Floats, unit: float, sums: Ints, /
    ) -> None: ...

    def gather_ragged(
        self, codes: Codes, starts: Ints, label: Labels, weight: Weights, learners: Folds, odds: Floats, unit: float, sums: Ints, /
    ) -> None: ...

    def row_losses(self, label: Labels, odds: Floats, losses: Floats, /) -> None: ...

    def total_loss(self, label: Labels, weight: Weights, fold: Folds, odds: Floats, unit: float, losses: Ints, /) -> None: ...

    def try_scales(
        self, codes: Codes, label: Labels, weight: Weights, fold: Folds, odds: Floats, factors: Floats, unit: float, losses: Ints, /
    ) -> None: ...

    def try_scales_ragged(
        self,
        codes: Codes,
        starts: Ints,
        label: Labels,
        weight: Weights,
        fold: Folds,
        odds: Floats,
        factors: Floats,
        unit: float,
        losses: Ints,
        /,
    ) -> None: ...


@dataclass(frozen=True)
class Loss:
    """A loss: its kernels, and two bounds for rows of weight one, by which fixed-point sums get their room.

    ``steepest`` is a bound of a row's gradient and curvature. Where all rows together lose no more than at odds 1, their gradients
    must add up to at most half of it for each row; of a loss for which they do not, ``steepest`` is twice the bound. ``largest`` is
    a bound of a row's loss.
    """

    name: str
    kernels: Kernels
    steepest: float
    largest: float

    def __reduce__(self) -> tuple[Callable[..., Loss], tuple[str, str]]:
        """A loss goes to another process by its name. That process imports the module of the kernels, which may register it."""
        return named, (self.name, self.kernels.__name__)


def named(name: str, module: str) -> Loss:
    """The loss of this name, registered by whoever is imported with the module of its kernels."""
    import_module(module)
    return LOSSES[name]


# No odds are as large as 2^1024, and the loss is their logarithm at most.
LOGISTIC = Loss("logistic", logistic, steepest=1.0, largest=1024.0)
LOSSES: dict[str, Loss] = {LOGISTIC.name: LOGISTIC}


def register(loss: Loss) -> None:
    """Add a loss. A worker in another process knows it if importing the module of its kernels calls this function."""
    assert loss.name not in LOSSES, f"there is a loss {loss.name!r} already"
    LOSSES[loss.name] = loss
