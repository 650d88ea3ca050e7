"""Which crosses a search may propose, and which must be there, as the user said."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from autocross.blocks import Cross
from autocross.crossing import MODULUS
from autocross.engines import Engine
from autocross.features import Field
from autocross.models.logistic import counts_of


@dataclass(frozen=True)
class Limits:
    """What is known before the rows are read: ``include`` has the columns of crosses that must be there, ``alone`` those that are
    in no cross, and ``apart`` groups of columns of which no two are in one cross."""

    include: tuple[tuple[str, ...], ...] = ()
    alone: frozenset[str] = frozenset()
    apart: tuple[frozenset[str], ...] = ()

    def allow(self, columns: Collection[str]) -> bool:
        """Whether these columns may be in one cross."""
        return self.alone.isdisjoint(columns) and all(len(group.intersection(columns)) < 2 for group in self.apart)


NO_LIMITS = Limits()


class Allowed:
    """Says of a cross of fields whether it may be proposed."""

    def __init__(self, engine: Engine, fields: Sequence[Field], limits: Limits, max_values: int | None) -> None:
        self.fields = fields
        self.limits = limits
        self.max_values = max_values
        if max_values is not None:
            seen = [counts_of(engine, (number,), field.n_codes)[:, 0] for number, field in enumerate(fields)]
            self.n_values = [int((rows > 0).sum()) for rows in seen]

    def __call__(self, cross: Cross) -> bool:
        """Whether these fields may be crossed. A single field always may stand for itself."""
        if len(cross) < 2:
            return True
        parts = [self.fields[number] for number in cross]
        if not self.limits.allow({part.column for part in parts}) or not can_be_ordered(parts):
            return False
        return self.max_values is None or math.prod(self.n_values[number] for number in cross) <= self.max_values


def can_be_ordered(parts: Sequence[Field]) -> bool:
    """Whether the weights of a cross can be monotone as its fields demand: along one field at most, and with exact keys, because no
    value may share a code along that field."""
    n_ordered = sum(part.direction != 0 for part in parts)
    return n_ordered == 0 or (n_ordered == 1 and math.prod(part.n_codes for part in parts) <= MODULUS)
