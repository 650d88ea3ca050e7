"""The tree of feature sets: the children of a set are the crosses of two of its features.

A cross is the sorted tuple of its fields, so that crosses with the same meaning are one candidate: A x AB is AB. A cross has at
most one granularity of a numerical column. Calendar fields of one time column may be crossed (weekday x hour), unless one
determines the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from autocross.blocks import Cross
from autocross.features import Field

DETERMINED = frozenset({"month", "quarter"})  # a month has one quarter


def may_meet(first: Field, second: Field) -> bool:
    """Whether two fields may be in one cross."""
    if first.column != second.column:
        return True
    parts = {first.part, second.part}
    return len(parts) == 2 and "" not in parts and parts != DETERMINED


def children(features: Iterable[Cross], fields: Sequence[Field], max_order: int | None) -> list[Cross]:
    """All crosses of two features, except those that are features already."""
    present = [feature for feature in features if feature]
    existing, crosses = set(present), set()
    for first, second in combinations(present, 2):
        cross = tuple(sorted({*first, *second}))
        if cross in existing or cross in crosses:
            continue
        if max_order is not None and len({fields[number].column for number in cross}) > max_order:
            continue
        if all(may_meet(fields[a], fields[b]) for a, b in combinations(cross, 2)):
            crosses.add(cross)
    return sorted(crosses)
