"""What may stand beside the logistic part of a model and add to its log-odds, as a network does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from autocross.checks import Facts
from autocross.features import FieldCodes
from autocross.producer.container import Container

Arrays = dict[str, NDArray[Any]]


class Addition(ABC):
    """Codes of the original fields -> what is added to the log-odds."""

    key: ClassVar[str]  # its name in a bundle, and in the JSON of `show`
    format: ClassVar[int]  # the first format of bundles that knows it
    reason: ClassVar[str]  # how its contribution is called in an explanation
    no_refit: ClassVar[str]  # why new rows cannot give it new weights, and what to do instead

    @abstractmethod
    def log_odds(self, codes: Sequence[FieldCodes]) -> NDArray[np.float64]:
        """What it adds in each row."""

    @abstractmethod
    def log_odds_one(self, codes: Sequence[Any]) -> float:
        """What it adds in one row, whose multi-value fields have a tuple of codes."""

    @abstractmethod
    def pack(self, arrays: Arrays) -> Facts:
        """Small facts for the manifest of a bundle; long ones go into the arrays, under names that begin with its key."""

    @classmethod
    @abstractmethod
    def expect(cls, entry: Facts, sizes: Sequence[tuple[str, int]], stored: Container) -> None:
        """Check the facts and the shapes of the arrays; ``sizes`` are the fields' names and numbers of codes."""

    @classmethod
    @abstractmethod
    def unpack(cls, entry: Facts, n_fields: int, stored: Container) -> Self:
        """What was packed, its arrays checked as well."""

    @abstractmethod
    def summary(self) -> Facts:
        """What there is to know about it, as JSON can hold it."""

    @classmethod
    @abstractmethod
    def in_words(cls, summary: Facts) -> str:
        """The summary as a line of text."""
