"""The codes of crosses: which combinations of values a cross has, and its codes in the blocks."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from autocross.blocks import Block, Cross, codes_of
from autocross.crossing import MODULUS, CrossCoder, count_keys, cross_key, in_parts, most_frequent, pair_up, values_of
from autocross.engines import Engine, changes
from autocross.features import CAP, FIRST, MISSING, hash_bits
from autocross.kernels import slots
from autocross.search.fieldwise import Candidate

Ints = NDArray[np.int64]
Coded = tuple[CrossCoder, int]  # a cross with its codes, and how many of its values share a bucket with another
MOST_VALUES = 1 << 16  # most values of a statistic, so that model files stay small
MOST_BITS = 22  # log2 of the largest number of buckets by which rare keys are recognised


# Tasks.


def sift(block: Block, candidate: Candidate, n_buckets: int, least: int) -> Ints:
    """How many entries have a key in each bucket. Counts stop at ``least``, beyond which they do not matter."""
    counts = np.zeros(n_buckets, np.int64)
    for part in in_parts([block.coded((number,)) for number in candidate.cross]):
        keys = cross_key(pair_up(part)[0], candidate.sizes)
        slots.lay_out(keys, True, len(keys), np.empty(len(keys), np.uint32), counts)
    return np.minimum(counts, least, out=counts)


def distinct(
    block: Block, candidate: Candidate, n_buckets: int, bits: NDArray[np.uint8] | None
) -> tuple[Ints, NDArray[np.uint32], Ints]:
    """The distinct keys of a cross in the buckets that ``bits`` marks (None: in all), the codes of the fields behind each key, and
    how many entries have it."""
    enough = None if bits is None else np.unpackbits(bits, count=n_buckets).view(np.bool_)
    exact = math.prod(candidate.sizes) <= MODULUS
    kept_keys: list[Ints] = []
    values: list[NDArray[np.uint32]] = []  # needed for hashed keys, from which codes cannot be computed
    for part in in_parts([block.coded((number,)) for number in candidate.cross]):
        columns, _ = pair_up(part)
        keys = cross_key(columns, candidate.sizes)
        kept = slice(None) if enough is None else enough[keys % n_buckets]
        kept_keys.append(keys[kept])
        if not exact:
            values.append(np.stack([column[kept] for column in columns], axis=1).astype(np.uint32))
    keys = np.concatenate(kept_keys)
    del kept_keys
    if exact:
        keys, counts = count_keys(keys, candidate.sizes)
        return keys, values_of(keys, candidate.sizes), counts
    keys, entry, counts = np.unique(keys, return_index=True, return_counts=True)
    return keys, np.concatenate(values)[entry], counts.astype(np.int64)


@changes(lambda coder: [codes_of(coder.fields)], anew=True)
def put(block: Block, coder: CrossCoder) -> int:
    """Keep the codes of the cross; returns the largest number of codes in a row."""
    coded = coder.encode([block.coded((number,)) for number in coder.fields])
    block.keep(coder.fields, coded)
    return coded.width


@changes(lambda crosses: map(codes_of, crosses), anew=True)
def forget(block: Block, crosses: Collection[Cross]) -> None:
    """Drop the codes of crosses."""
    for cross in crosses:
        block.codes.pop(cross, None)


def counted(engine: Engine, n_rows: int, candidate: Candidate, min_count: int) -> tuple[Ints, NDArray[np.uint32], Ints]:
    """The keys of a cross in ascending order, the codes of the fields behind each, and how many entries each has. Keys with fewer
    than ``min_count`` entries may be left out."""
    # A key in a bucket with few entries is rare. So most keys of a cross with many values need not be counted one by one.
    n_buckets = min(math.prod(candidate.sizes), 1 << min(MOST_BITS, math.ceil(math.log2(max(n_rows, 2)))))
    enough = np.packbits(engine.total(sift, candidate, n_buckets, min_count) >= min_count) if min_count > 1 else None
    parts = engine.each(distinct, candidate, n_buckets, enough)
    if len(parts) == 1:
        return parts[0]
    keys, first = np.unique(np.concatenate([part[0] for part in parts]), return_index=True)
    values = np.concatenate([part[1] for part in parts])[first]
    counts = np.zeros(len(keys), np.int64)
    for part in parts:
        counts[np.searchsorted(keys, part[0])] += part[2]
    return keys, values, counts


def statistic_coder(engine: Engine, n_rows: int, candidate: Candidate) -> CrossCoder:
    """The values of a statistic: all that were seen or, if these are too many, those that were seen more often."""
    _, values, counts = counted(engine, n_rows, candidate, 1)
    if len(counts) > MOST_VALUES:
        values = values[counts > np.sort(counts)[-1 - MOST_VALUES]]
    return CrossCoder(candidate.cross, candidate.sizes, values, kind="statistic")


def whole_chains(engine: Engine, n_rows: int, candidate: Candidate, min_count: int) -> NDArray[np.uint32]:
    """The values of a cross whose weights must be monotone along its axis. No value shares a code with others along the axis: a
    combination of the other fields has a code for every bin, seen or not, or none at all, and then it is rare whatever the number.
    """
    axis = candidate.axis
    assert axis is not None and math.prod(candidate.sizes) <= MODULUS
    bins = np.arange(FIRST, candidate.sizes[axis], dtype=np.uint32)
    others = replace(
        candidate,
        cross=candidate.cross[:axis] + candidate.cross[axis + 1 :],
        sizes=candidate.sizes[:axis] + candidate.sizes[axis + 1 :],
        axis=None,
    )
    kept, _ = most_frequent(*counted(engine, n_rows, others, min_count), min_count, CAP // (len(bins) + 1))
    chains = np.insert(np.repeat(kept, len(bins), axis=0), axis, np.tile(bins, len(kept)), axis=1)
    _, values, counts = counted(engine, n_rows, candidate, min_count)
    missing = values[(values[:, axis] == MISSING) & (counts >= min_count)]
    known = np.isin(keys_of(np.delete(missing, axis, axis=1), others.sizes), keys_of(kept, others.sizes))
    values = np.concatenate([chains, missing[known]])
    return values[np.argsort(keys_of(values, candidate.sizes))]


def keys_of(values: NDArray[np.uint32], sizes: Sequence[int]) -> Ints:
    """The keys of combinations of codes, (n_values, n_fields)."""
    keys: Ints = cross_key([values[:, position].astype(np.int64) for position in range(values.shape[1])], sizes)
    return keys


class CodedCrosses:
    """Keeps track of the crosses whose codes are in the blocks of an engine."""

    def __init__(self, engine: Engine, n_rows: int) -> None:
        self.engine = engine
        self.n_rows = n_rows
        self.there: set[Cross] = set()

    def put(self, coder: CrossCoder) -> int:
        """Put the codes of a cross into the blocks; returns the largest number of codes in a row."""
        self.there.add(coder.fields)
        return max(self.engine.each(put, coder))

    def forget_all_but(self, wanted: Collection[Cross]) -> None:
        """Drop the codes of all other crosses."""
        gone = self.there - {*wanted}
        self.engine.each(forget, sorted(gone))
        self.there -= gone

    def code(self, candidate: Candidate, min_count: int) -> Coded:
        """Compute the exact codes of a cross and put them into the blocks. The second result is how many of its values share a
        bucket."""
        if candidate.direction:
            coder = CrossCoder(candidate.cross, candidate.sizes, whole_chains(self.engine, self.n_rows, candidate, min_count))
            return replace(coder, width=self.put(coder)), 0
        keys, values, counts = counted(self.engine, self.n_rows, candidate, min_count)
        kept, hashed = most_frequent(keys, values, counts, min_count, CAP)
        n_hashed = 1 << hash_bits(self.n_rows)
        coder = CrossCoder(candidate.cross, candidate.sizes, kept, n_hashed if len(hashed) else 0)
        n_collisions = len(hashed) - len(np.unique(hashed % n_hashed))
        return replace(coder, width=self.put(coder)), n_collisions
