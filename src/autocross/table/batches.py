"""The rows of files in batches of limited size, however the files are divided internally.

Polars may read hundreds of megabytes ahead, so it is asked for one batch at a time: for some rows of some columns of a Parquet
file, or for the lines in a block of bytes of a CSV file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from autocross.table.dialect import Dialect
from autocross.table.files import (
    CELL,
    Piece,
    Place,
    check_same,
    csv_blocks,
    files_of,
    head_of,
    is_parquet,
    local,
    scan,
    understood,
)
from autocross.table.lines import can_cut

MOST_ROWS, MOST_BYTES = 500_000, 64 << 20  # limits of a batch
FIRST_ROWS = 10_000  # rows of the first batch, which shows how wide a row is
FEWEST_ROWS = 1_000
CSV_WIDER = 2  # rows of a CSV file take roughly this many times its bytes in memory


def batches(
    path: Place,
    dialect: Dialect,
    pieces: Sequence[Piece],
    columns: Sequence[str] | None = None,
    most_bytes: int = MOST_BYTES,
    most_rows: int = MOST_ROWS,
) -> Iterator[pl.DataFrame]:
    """These columns of the rows of all pieces, in order, in batches of about ``most_bytes`` bytes and at most ``most_rows`` rows.
    The pieces belong to files of the path."""
    first_file = files_of(path)[0]
    with understood(first_file, dialect):
        first = head_of(first_file, dialect).collect_schema()
    names = list(first) if columns is None else columns
    for piece in pieces:
        with understood(piece.file, dialect):
            check_same(piece.file, head_of(piece.file, dialect).collect_schema(), first)
            if is_parquet(piece.file):
                rows = scan(piece.file, dialect, piece.first_row, piece.n_rows).select(names)
                yield from parquet_batches(rows, piece.n_rows, most_bytes, most_rows)
            elif can_cut(local(piece.file)):
                yield from csv_batches(piece, dialect, names, most_bytes, most_rows)
            else:
                rows = scan(piece.file, dialect, piece.first_row, piece.n_rows).select(names)
                n = rows_of(most_bytes, CELL * len(names), most_rows)
                yield from rows.collect_batches(chunk_size=n, maintain_order=True)


def rows_of(most_bytes: int, bytes_a_row: float, most_rows: int = MOST_ROWS) -> int:
    """The number of rows of a batch."""
    return int(min(max(most_bytes / max(bytes_a_row, 1), FEWEST_ROWS), most_rows))


def parquet_batches(rows: pl.LazyFrame, n_rows: int, most_bytes: int, most_rows: int) -> Iterator[pl.DataFrame]:
    """Batches of a Parquet file. The size of a batch follows from how wide rows were so far, because texts may have any length."""
    row, n = 0, min(FIRST_ROWS, rows_of(most_bytes, CELL * len(rows.collect_schema()), most_rows))
    while row < n_rows:
        batch = rows.slice(row, min(n, n_rows - row)).collect()
        if not batch.height:  # the file has fewer rows than before
            return
        row += batch.height
        n = rows_of(most_bytes, batch.estimated_size() / batch.height, most_rows)
        yield batch


def csv_batches(piece: Piece, dialect: Dialect, names: Sequence[str], most_bytes: int, most_rows: int) -> Iterator[pl.DataFrame]:
    """Batches of a CSV file, block by block."""
    row, first, last = 0, piece.first_row, piece.first_row + piece.n_rows
    for block in csv_blocks(local(piece.file), dialect, max(1, most_bytes // CSV_WIDER)):
        if row >= last:
            return
        batch = block.select(names).collect()
        batch, row = batch[max(0, first - row) : last - row], row + batch.height
        for begin in range(0, batch.height, most_rows):
            yield batch[begin : begin + most_rows]
