"""Paths -> rows, and rows -> paths."""

from __future__ import annotations

from collections import Counter
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
    name = path.name.lower()
    try:
        if not path.exists():
            raise FileError(f"There is no file {str(path)!r}. Check the path.")
        if path.is_dir():
            return read_folder(path)
        if name.endswith(PARQUET_ENDINGS):
            return pl.read_parquet(path, glob=False)
        if name.endswith(CSV_ENDINGS):
            return read_csv(path, as_text)
    except pl.exceptions.NoDataError:
        raise TableError(f"File {str(path)!r} is empty. Give a file with a line of column names and one line a row.") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise FileError(f"Cannot read {str(path)!r}: {explain(error, path)}") from error
    raise FileError(
        f"Cannot tell what {str(path)!r} is. Name it .csv (also .csv.gz, .csv.zst) or .parquet, or give a folder of Parquet files."
    )


def explain(error: BaseException, path: Path) -> str:
    """The first line of a reader's complaint, with the way out."""
    text = str(getattr(error, "strerror", None) or error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    if isinstance(error, OSError) and error.errno is not None:
        return f"{text}. Check the path and its permissions."
    if "utf-8" in text.lower() or "utf8" in text.lower():
        return f"{text}{first_undecodable(path)}. Convert the file, for example with: iconv -f LATIN1 -t UTF-8"
    if not path.name.lower().endswith((".csv", ".tsv")):
        return f"{text}. The file is damaged or incomplete; copy it again."
    return f"{text}. Check that every line has as many cells as the first, and that cells holding a separator are quoted."


def first_undecodable(path: Path) -> str:
    """Where the first text stands that is not UTF-8, in a file that is not compressed."""
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return f" in line {number}: {line[max(0, error.start - 10) : error.end + 10]!r}"
    return ""


def read_folder(path: Path) -> pl.DataFrame:
    """All Parquet files of a folder, in the order of their names; hidden ones are others' notes."""
    found = sorted(part for part in path.iterdir() if part.name.lower().endswith(PARQUET_ENDINGS))
    parts = {part: read(part) for part in found if not part.name.startswith((".", "_"))}
    if not parts:
        raise FileError(f"Folder {str(path)!r} holds no .parquet file. Give a folder of Parquet files.")
    first = next(iter(parts.values()))
    for part, frame in parts.items():
        odd = sorted(set(frame.columns) ^ set(first.columns))
        if odd:
            which = "lacks" if odd[0] in first.columns else "alone has"
            raise TableError(f"File {str(part)!r} {which} column {odd[0]!r}. Give files with the same columns.")
    return pl.concat([frame.select(first.columns) for frame in parts.values()], how="vertical_relaxed")


def read_csv(path: Path, as_text: Sequence[str]) -> pl.DataFrame:
    """A CSV file; types are inferred from its head and, where that fails, from all of it. Dates stay text.

    One rule for dates holds in files, frames and single rows alike, so the reader shall not have its own.
    """
    separator = "\t" if ".tsv" in path.name.lower() else ","
    names = header(path, separator)
    if len(names) == 1 and ";" in names[0]:  # as spreadsheets write it where the comma is the decimal point
        separator = ";"
        names = header(path, separator)
    name, n_times = Counter(names).most_common(1)[0]
    if n_times > 1:
        raise TableError(f"Column name {name!r} occurs {n_times} times in {str(path)!r}. Rename the columns.")
    overrides = {name: pl.String for name in as_text if name in names}

    def parse(inferred_from: int | None) -> pl.DataFrame:
        return pl.read_csv(
            path,
            separator=separator,
            null_values=sorted(MISSING_TEXTS),
            schema_overrides=overrides,
            infer_schema_length=inferred_from,
            glob=False,
        )

    try:
        return parse(10_000)
    except pl.exceptions.ComputeError as error:
        if "utf-8" in str(error).lower():
            raise
        return parse(None)


def header(path: Path, separator: str) -> list[str]:
    """The column names of a CSV file as they stand there; polars would rename the second of two."""
    head = pl.read_csv(path, separator=separator, has_header=False, n_rows=1, infer_schema=False, glob=False)
    return [name or "" for name in head.row(0)]


def write(frame: pl.DataFrame, path: Path) -> None:
    """A CSV or Parquet file, by the ending of its name; the old file stays until the new one is complete."""
    name = path.name.lower()
    if name.endswith(PARQUET_ENDINGS):
        replace_file(path, frame.write_parquet)
    elif name.endswith(".csv"):
        replace_file(path, frame.write_csv)
    else:
        raise FileError(f"Cannot tell how to write {str(path)!r}. Name it .csv or .parquet.")
