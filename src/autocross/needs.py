"""Estimates how much memory the rest of a fit will take, from what the first pass has found.

The numbers are bytes and come from measurements: `benchmarks/memory.py` compares the estimates with what fits really take.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autocross.crossing import MOST_ENTRIES
from autocross.encoding.encoder import Encoder
from autocross.features import narrowest

ALWAYS = 64 << 20  # a batch of rows, threads, buffers of the libraries
OF_ROW = 30  # per row: label, weight, fold, number, place in the shuffle, group or period
WORK = 30  # per row, while candidates compete or the values of a cross are counted
WORK_OF_ENTRY = 4  # the same, per entry of a cross of multi-value columns
WORK_OF_JUDGE = 40  # per row that judges: its loss now and before, and intermediate results
OF_ODDS = 16  # per row and model: the odds, and the odds that are remembered
OF_CROSS = 4  # per row and cross that is kept in memory
CROSSES = 10  # how many crosses an ordinary fit keeps in memory
OF_TEXT = 150  # per value of a vocabulary: the text, and the table in which it is looked up
OF_WEIGHT = 40  # per code and model: the weights of all sets that a round compares
OF_SUMS = 16  # per code, model and block, of the field that takes a step
HOLDOUT = 0.2  # share of the rows that judge if there is only one model


@dataclass(frozen=True)
class Size:
    """The size of a fit. ``entries`` has, for each multi-value column, how many values it holds in all rows together."""

    n_rows: int
    n_models: int
    n_blocks: int
    on_disk: bool
    entries: Mapping[str, int]

    def in_all(self, encoder: Encoder) -> int:
        """Bytes that the whole fit takes."""
        return int(ALWAYS + self.n_rows * self.bytes_a_row(encoder) + self.bytes_of_values(encoder))

    def bytes_a_row(self, encoder: Encoder) -> float:
        judging = HOLDOUT if self.n_models == 1 else 1.0
        always = OF_ROW + WORK + OF_ODDS * self.n_models + WORK_OF_JUDGE * judging
        columns = [column for column in encoder.columns if column.column.name in self.entries]
        entries = [self.entries[column.column.name] / self.n_rows for column in columns]
        widths = [np.dtype(narrowest(column.fields[0].n_codes)).itemsize for column in columns]
        lists = [8 + width * n for width, n in zip(widths, entries, strict=True)]
        of_cross = WORK_OF_ENTRY * min(float(np.prod(sorted(entries)[-2:])), MOST_ENTRIES) if entries else 0.0
        if self.on_disk:
            return always + max(of_cross, 2 * max(lists, default=0.0))  # columns are shuffled one after the other
        return always + of_cross + sum(lists) + encoder.bytes_a_row + CROSSES * OF_CROSS

    def bytes_of_values(self, encoder: Encoder) -> float:
        """Bytes that the values of all columns take, however many rows there are."""
        texts = sum(column.n_texts for column in encoder.columns)
        codes = [field.n_codes for field in encoder.fields]
        of_step = max(codes, default=0) * OF_SUMS * (2 + self.n_blocks)
        return OF_TEXT * texts + (OF_WEIGHT * sum(codes) + of_step) * self.n_models
