"""What may stand beside the logistic part of a model and add to its log-odds, as a network does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from autocross.checks import Facts
from autocross.features import FieldCodes
from autocross.producer.container import Container
from autocross.table.columns import Table

if TYPE_CHECKING:
    from autocross.producer.model import Model

Arrays = dict[str, NDArray[Any]]


class Addition(ABC):
    """Rows -> what is added to their log-odds. Of rows it is given the codes of all fields and, behind them, of all crosses; the
    log-odds so far; and the values."""

    key: ClassVar[str]  # its name in a bundle, and in the JSON of `show`
    format: ClassVar[int]  # the first format of bundles that knows it
    reason: ClassVar[str]  # how its contribution is called in an explanation
    no_refit: ClassVar[str]  # why new rows cannot give it new weights, and what to do instead

    @abstractmethod
    def log_odds(self, codes: Sequence[FieldCodes], log_odds: NDArray[np.float64], table: Table) -> NDArray[np.float64]:
        """What it adds in each row."""

    @abstractmethod
    def log_odds_one(self, codes: Sequence[Any], log_odds: float, row: Mapping[str, Any]) -> float:
        """What it adds in one row. Where a row may have several codes, it has a tuple of them."""

    def prepare(self) -> None:  # noqa: B027 (most have nothing to build)
        """Build what the first row needs."""

    @abstractmethod
    def pack(self, arrays: Arrays) -> Facts:
        """Small facts for the manifest of a bundle; long ones go into the arrays, under names that begin with its key."""

    @classmethod
    @abstractmethod
    def expect(cls, entry: Facts, sizes: Sequence[tuple[str, int]], stored: Container) -> None:
        """Check the facts and the shapes of the arrays; ``sizes`` are the fields' names and numbers of codes."""

    @classmethod
    @abstractmethod
    def unpack(cls, entry: Facts, model: Model, stored: Container) -> Self:
        """What was packed, its arrays checked as well. ``model`` is the model without additions."""

    @abstractmethod
    def summary(self) -> Facts:
        """What there is to know about it, as JSON can hold it."""

    @classmethod
    @abstractmethod
    def in_words(cls, summary: Facts) -> str:
        """The summary as a line of text."""
