"""Paths -> rows, and rows -> paths."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from autocross.errors import FileError, TableError
from autocross.table.atomic import replace_file
from autocross.table.values import MISSING_TEXTS

CSV_ENDINGS = (".csv", ".csv.gz", ".csv.zst", ".tsv", ".tsv.gz", ".tsv.zst")
PARQUET_ENDINGS = (".parquet", ".pq")


def read(path: Path, as_text: Sequence[str] = ()) -> pl.DataFrame:
    """The rows of a CSV file, a Parquet file, or a folder of Parquet files."""
    if not path.exists():
        raise FileError(f"There is no file {str(path)!r}. Check the path.")
    name = path.name.lower()
    try:
        if path.is_dir():
            return read_folder(path)
        if name.endswith(PARQUET_ENDINGS):
            return pl.read_parquet(path)
        if name.endswith(CSV_ENDINGS):
            return read_csv(path, as_text)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise FileError(f"Cannot read {str(path)!r}: {explain(error)}") from error
    raise FileError(
        f"Cannot tell what {str(path)!r} is. Name it .csv (also .csv.gz, .csv.zst) or .parquet, or give a folder of Parquet files."
    )


def explain(error: Exception) -> str:
    """The first line of a reader's complaint, with the way out where one is known."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if "utf-8" in text.lower() or "utf8" in text.lower():
        return f"{text}. The file is not UTF-8; convert it, for example with: iconv -f LATIN1 -t UTF-8"
    if "parquet" in text.lower() or "out of spec" in text.lower() or "thrift" in text.lower():
        return f"{text}. The file is damaged or incomplete; copy it again."
    return text


def read_folder(path: Path) -> pl.DataFrame:
    """All Parquet files of a folder, in the order of their names."""
    parts = sorted(part for part in path.iterdir() if part.name.lower().endswith(PARQUET_ENDINGS))
    if not parts:
        raise FileError(f"Folder {str(path)!r} holds no .parquet file. Give a folder of Parquet files.")
    return pl.concat([pl.read_parquet(part) for part in parts], how="vertical_relaxed")


def read_csv(path: Path, as_text: Sequence[str]) -> pl.DataFrame:
    """A CSV file; types are inferred from its head and, where that fails, from all of it."""
    separator = "\t" if ".tsv" in path.name.lower() else ","
    try:
        head = pl.read_csv(path, separator=separator, has_header=False, n_rows=1, infer_schema=False)
    except pl.exceptions.NoDataError:
        raise TableError(f"File {str(path)!r} is empty. Give a file with a line of column names and one line a row.") from None
    names = [str(name) for name in head.row(0)]
    for name in names:
        if names.count(name) > 1:
            raise TableError(f"Column name {name!r} occurs {names.count(name)} times in {str(path)!r}. Rename the columns.")
    overrides = {name: pl.String for name in as_text if name in names}

    def parse(inferred_from: int | None) -> pl.DataFrame:
        return pl.read_csv(
            path,
            separator=separator,
            null_values=sorted(MISSING_TEXTS),
            schema_overrides=overrides,
            infer_schema_length=inferred_from,
            try_parse_dates=True,
        )

    try:
        return parse(10_000)
    except pl.exceptions.ComputeError as error:
        if "utf-8" in str(error).lower():
            raise
        return parse(None)


def write(frame: pl.DataFrame, path: Path) -> None:
    """A CSV or Parquet file, by the ending of its name; the old file stays until the new one is complete."""
    name = path.name.lower()
    if name.endswith(PARQUET_ENDINGS):
        replace_file(path, frame.write_parquet)
    elif name.endswith(".csv"):
        replace_file(path, frame.write_csv)
    else:
        raise FileError(f"Cannot tell how to write {str(path)!r}. Name it .csv or .parquet.")
