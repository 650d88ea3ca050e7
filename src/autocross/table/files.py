"""Paths -> rows, and rows -> paths."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import polars as pl

from autocross import forks
from autocross.errors import AutoCrossError, FileError, TableError
from autocross.table import dialect as dialects
from autocross.table import parquet
from autocross.table.atomic import replace_file
from autocross.table.dialect import ANY, Dialect
from autocross.table.lines import LINE_END, blocks, can_cut
from autocross.table.remote import Remote
from autocross.table.values import MISSING_TEXTS

CSV_ENDINGS = (".csv", ".csv.gz", ".csv.zst", ".tsv", ".tsv.gz", ".tsv.zst")
PARQUET_ENDINGS = (".parquet", ".pq")
MOST_EXCEL_ROWS, MOST_EXCEL_CHARACTERS = 1_048_576, 32_767  # in a sheet, in a cell
OS_ERROR = re.compile(r"\(os error (\d+)\)")  # as polars writes it
Place = Path | Remote  # where rows are
CELL = 24  # bytes that a cell takes in memory, on average over texts and numbers
BLOCK = 8 << 20  # bytes of a CSV file in which rows are counted at a time
INFERRED_FROM = 10_000  # lines of a CSV file that decide which columns are numbers
SHOWN = 100  # characters that are shown of the beginning and of the end of a reader's message
CSV_PLAIN, CSV_PACKED = 3, 15  # how much larger a file is in memory


def place_of(path: str | Path) -> Place:
    """Where a path or a URL leads."""
    if path == "":
        raise FileError("The path of the table is empty. Give the path of a CSV or Parquet file, or of a folder of Parquet files.")
    return Remote(path) if isinstance(path, str) and "://" in path else Path(path)


def read(path: Place, dialect: Dialect = ANY) -> pl.DataFrame:
    """The rows of a CSV file, a Parquet file, or a folder of Parquet files."""
    with understood(path, dialect):
        if path.is_dir():
            return read_folder(path)
        return scan(path).collect() if is_parquet(path) else read_csv(local(path), dialect)


@contextmanager
def understood(path: Place, dialect: Dialect = ANY) -> Iterator[None]:
    """Inside this context, errors of readers become errors of ours, with messages that help."""
    forks.check()
    try:
        str(path).encode()  # polars takes no other names
        if not path.exists():
            raise FileError(f"There is no file {str(path)!r}. Check the path.")
        if not (path.is_dir() or has_ending(path)):
            raise FileError(
                f"Cannot tell what {str(path)!r} is. Name it .csv (also .csv.gz, .csv.zst) or .parquet, "
                "or give a folder of Parquet files."
            )
        if isinstance(path, Path) and not (path.is_dir() or path.is_file()):
            raise FileError(f"Cannot read {str(path)!r}: it is a pipe or a device. Give a file.")
        yield
    except pl.exceptions.NoDataError:
        raise TableError(f"File {str(path)!r} is empty. Give a file with a line of column names and one line a row.") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise FileError(f"Cannot read {str(path)!r}: {explain(error, path, dialect)}") from error
    except UnicodeEncodeError:
        raise FileError(f"Cannot read {str(path)!r}: its name is not UTF-8. Rename it.") from None
    except AutoCrossError:
        raise
    except Exception as error:  # a store has errors of its own
        if not isinstance(path, Remote):
            raise
        why = f"{type(error).__name__}: {error}"
        raise FileError(f"Cannot reach {path.url!r}: {why}. Check the address, the network and your credentials.") from error


def is_parquet(path: Place) -> bool:
    return path.name.lower().endswith(PARQUET_ENDINGS)


def has_ending(path: Place) -> bool:
    """Whether the name says how the file is to be read."""
    return path.name.lower().endswith((*PARQUET_ENDINGS, *CSV_ENDINGS))


# In parts.


def bytes_in_memory(path: Place) -> int:
    """Roughly how many bytes the rows would take if they were read as a whole."""
    with understood(path):
        return sum(bytes_of_file(file) for file in files_of(path))


def bytes_of_file(file: Place) -> int:
    if is_parquet(file):
        with understood(file):
            content, n_bytes = (file.footer(), file.n_bytes) if isinstance(file, Remote) else (file, None)
            return parquet.n_values(str(file), content, n_bytes) * CELL
    return local(file).stat().st_size * (CSV_PACKED if file.suffix.lower() in (".gz", ".zst") else CSV_PLAIN)


def column_names(path: Place, dialect: Dialect = ANY) -> list[str]:
    """The columns of a file, or of the first file of a folder."""
    with understood(path, dialect):
        return head_of(files_of(path)[0], dialect).collect_schema().names()


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of a file."""

    file: Place
    first_row: int
    n_rows: int


def whole_files(path: Place, dialect: Dialect = ANY) -> list[Piece]:
    """All rows, file by file."""
    return [Piece(file, 0, n_rows(file, dialect)) for file in files_of(path)]


def uncounted(path: Place, dialect: Dialect = ANY) -> list[Piece]:
    """All rows, file by file. Rows of CSV files whose lines can be found are not counted, so that they are read only once; such a
    piece ends with its file."""
    with understood(path, dialect):
        return [
            Piece(file, 0, sys.maxsize if not is_parquet(file) and can_cut(local(file)) else n_rows(file, dialect))
            for file in files_of(path)
        ]


def n_rows(file: Place, dialect: Dialect = ANY) -> int:
    with understood(file, dialect):
        if is_parquet(file) or not can_cut(local(file)):
            parts = iter([head_of(file, dialect)])
        else:
            parts = csv_blocks(local(file), dialect, BLOCK)
        return sum(int(part.select(pl.len()).collect().item()) for part in parts)


def spread(pieces: Sequence[Piece], n: int) -> list[list[Piece]]:
    """The same rows in n lists of pieces, or fewer, with about equally many rows in each."""
    total, done = sum(piece.n_rows for piece in pieces), 0
    shares: list[list[Piece]] = [[]]
    for piece in pieces:
        first, last = piece.first_row, piece.first_row + piece.n_rows
        while first < last:
            room = total * len(shares) // n - done
            if room <= 0 and len(shares) < n:
                shares.append([])
                continue
            taken = min(last - first, room)
            shares[-1].append(Piece(piece.file, first, taken))
            first, done = first + taken, done + taken
    return [share for share in shares if share]


def scan(file: Place, dialect: Dialect = ANY, first_row: int = 0, n_rows: int | None = None) -> pl.LazyFrame:
    """A lazy frame of rows of a file, by default of all rows."""
    if not is_parquet(file):
        return scan_csv(local(file), dialect).slice(first_row, n_rows)
    content = file.whole() if isinstance(file, Remote) else file
    parquet.check(str(file), content, first_row, n_rows)
    return pl.scan_parquet(content, glob=False).slice(first_row, n_rows)


def head_of(file: Place, dialect: Dialect = ANY) -> pl.LazyFrame:
    """Enough of a file to know its columns and its number of rows. Of a remote file only this is fetched."""
    if not is_parquet(file):
        return scan_csv(local(file), dialect)
    content, n_bytes = (file.footer(), file.n_bytes) if isinstance(file, Remote) else (file, None)
    parquet.check_footer(str(file), content, n_bytes)
    return pl.scan_parquet(content, glob=False)


def local(file: Place) -> Path:
    """A file that must be on this machine."""
    if isinstance(file, Remote):
        raise FileError(f"Cannot read {file.url!r}: at a URL only Parquet files can be read. Convert it, or copy it here.")
    return file


def files_of(path: Place) -> Sequence[Place]:
    """A folder's Parquet files, or the file itself."""
    return parquet_files(path) if path.is_dir() else [path]


def parquet_files(path: Place) -> Sequence[Place]:
    """The Parquet files of a folder, in the order of their names. Hidden files are skipped, because other programs keep notes in
    them."""
    files = sorted(part for part in path.iterdir() if is_parquet(part) and not part.name.startswith((".", "_")))
    if not files:
        raise FileError(f"Folder {str(path)!r} holds no .parquet file. Give a folder of Parquet files.")
    return files


def check_same(file: Place, columns: Mapping[str, Any], first: Mapping[str, Any]) -> None:
    """Check that every file of a folder has the columns of the first file, with compatible types."""
    odd = sorted(set(columns) ^ set(first))
    if odd:
        which = "lacks" if odd[0] in first else "alone has"
        raise TableError(f"File {str(file)!r} {which} column {odd[0]!r}. Give files with the same columns.")
    for name, kind in columns.items():
        if kind != first[name] and not (kind.is_numeric() and first[name].is_numeric()) and pl.Null not in (kind, first[name]):
            raise TableError(
                f"File {str(file)!r} holds {kind} in column {name!r}, the files before it {first[name]}. "
                "Give files with the same types."
            )


# What went wrong.


def explain(error: BaseException, path: Place, dialect: Dialect) -> str:
    """The first line of a reader's message, with a way out."""
    text = str(getattr(error, "strerror", None) or error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    if len(text) > 2 * SHOWN:  # the message quotes a cell, and names the column at its end
        text = f"{text[:SHOWN]} ... {text[-SHOWN:]}"
    if isinstance(error, OSError) and error.errno is not None:
        return f"{text}. Check the path and its permissions."
    if "utf-8" in text.lower() or "utf8" in text.lower():
        where = first_undecodable(local(path))
        encoding = "UTF-16" if r"\x00" in where else "LATIN1"  # every other byte of Western text in UTF-16 is zero
        return f"{text}{where}. Convert the file, for example with: iconv -f {encoding} -t UTF-8"
    if not is_parquet(path) and ("could not parse" in text or "conversion from" in text):  # part by part: its head had numbers only
        way_out = "Declare the column's kind, as in types={'zip': 'categorical'}, or raise memory_limit."
        return f"{text}. {way_out} {how_it_was_read(path, dialect)}"
    if not path.name.lower().endswith((".csv", ".tsv")):
        return f"{text}. The file is damaged or incomplete; copy it again."
    way_out = "Check that every line has as many cells as the first, and that cells holding a separator are quoted."
    return f"{text}. {way_out} {how_it_was_read(path, dialect)}"


def how_it_was_read(path: Place, dialect: Dialect) -> str:
    """Which separator and decimal point a CSV file was read with, for a message."""
    return f"It was read with {dialects.found_out(local(path), dialect)}; if that is wrong, give these options."


def first_undecodable(path: Path) -> str:
    """The place of the first bytes that are not UTF-8, in a file that is not compressed."""
    if path.suffix.lower() in (".gz", ".zst"):
        return ""
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return f" in line {number}: {line[max(0, error.start - 10) : error.end + 10]!r}"
    return ""


# As a whole.


def read_folder(path: Place) -> pl.DataFrame:
    """All Parquet files of a folder."""
    parts = {part: read(part) for part in parquet_files(path)}
    first = next(iter(parts.values()))
    for part, frame in parts.items():
        check_same(part, frame.schema, first.schema)
    return pl.concat([frame.select(first.columns) for frame in parts.values()], how="vertical_relaxed")


def read_csv(path: Path, dialect: Dialect) -> pl.DataFrame:
    """Read a CSV file. Types are inferred from its head or, if that fails, from all of it.

    Whole numbers with more digits than a column type can hold stay text, which means the same for every kind of column.
    """
    try:
        return scan_csv(path, dialect).collect()
    except (pl.exceptions.ComputeError, pl.exceptions.InvalidOperationError) as error:
        if "utf-8" in str(error).lower():
            raise
    frame = scan_csv(path, dialect, None)
    try:
        return frame.collect()
    except (pl.exceptions.ComputeError, pl.exceptions.InvalidOperationError):
        too_long = [name for name, dtype in frame.collect_schema().items() if dtype == pl.Int128]
        if not too_long:
            raise
        return scan_csv(path, replace(dialect, as_text=[*dialect.as_text, *too_long]), None).collect()


def scan_csv(path: Path, dialect: Dialect, inferred_from: int | None = INFERRED_FROM) -> pl.LazyFrame:
    """A lazy frame of a CSV file."""
    settings, commas = csv_settings(path, dialect, inferred_from)
    return with_decimal_commas(pl.scan_csv(path, **settings), commas)


def csv_blocks(path: Path, dialect: Dialect, n_bytes: int) -> Iterator[pl.LazyFrame]:
    """The rows of a CSV file in blocks of about so many bytes, with the types that its head has."""
    settings, commas = csv_settings(path, dialect, INFERRED_FROM)
    schema, separator = pl.scan_csv(path, **settings).collect_schema(), settings["separator"]
    names = separator.join('"' + name.replace('"', '""') + '"' for name in schema)
    for number, block in enumerate(blocks(path, n_bytes)):
        # The names are put before each block, because its first line tells polars how many columns there are, and may be empty.
        text = names.encode() + LINE_END + block if number else block
        rows = pl.scan_csv(text, schema=schema, separator=separator, null_values=settings["null_values"])
        yield with_decimal_commas(rows, commas)


def csv_settings(path: Path, declared: Dialect, inferred_from: int | None) -> tuple[dict[str, Any], list[str]]:
    """The settings with which polars must read a CSV file, and the columns of numbers with decimal commas, which it leaves as text.

    Dates stay text, so that one rule reads them in files, frames and single rows.
    """
    dialect = dialects.found_out(path, declared)
    assert dialect.separator is not None
    names = dialects.header(path, dialect.separator)
    kinds: dict[str, Any] = {name: pl.String for name in dialect.as_text if name in names}
    commas: list[str] = []
    if dialect.decimal == ",":
        whole, commas = dialects.numbers_with_commas(path, dialect, inferred_from)
        kinds |= dict.fromkeys(whole, pl.Int64)
    settings = {
        "separator": dialect.separator,
        "null_values": sorted(MISSING_TEXTS),
        "schema_overrides": kinds,
        "infer_schema": dialect.decimal == ".",
        "infer_schema_length": inferred_from,
        "glob": False,
    }
    return settings, commas


def with_decimal_commas(rows: pl.LazyFrame, commas: Sequence[str]) -> pl.LazyFrame:
    """The rows, with these columns of numbers with decimal commas as numbers."""
    return rows.with_columns([dialects.number_with_comma(name) for name in commas]) if commas else rows


def write(frame: pl.DataFrame, path: Path) -> None:
    """Write a CSV, Parquet or Excel file, by the ending of its name. An existing file stays until the new one is complete."""
    name = path.name.lower()
    if name.endswith(PARQUET_ENDINGS):
        replace_file(path, lambda stream: written(frame.write_parquet, stream))
    elif name.endswith(".csv"):
        replace_file(path, lambda stream: written(frame.write_csv, stream))
    elif name.endswith(".xlsx"):
        replace_file(path, lambda stream: stream.write(as_excel(frame, path)))
    else:
        raise FileError(f"Cannot write {str(path)!r}: its ending does not tell how. Name it .csv, .parquet or .xlsx.")


def as_excel(frame: pl.DataFrame, path: Path) -> bytes:
    """A frame as an Excel file. Texts stay texts: what a stranger wrote must not become a formula or a link."""
    import xlsxwriter

    if frame.height >= MOST_EXCEL_ROWS:
        raise FileError(f"Cannot write {str(path)!r}: Excel has room for {MOST_EXCEL_ROWS:,} rows. Name it .csv or .parquet.")
    texts = [pl.col(name).str.slice(0, MOST_EXCEL_CHARACTERS) for name, kind in frame.schema.items() if kind == pl.String]
    content = io.BytesIO()
    with xlsxwriter.Workbook(content, {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}) as workbook:
        frame.with_columns(texts).write_excel(workbook, autofit=True)
    return content.getvalue()


def written(write_to: Callable[[IO[bytes]], None], stream: IO[bytes]) -> None:
    """Let polars write. If the system refuses something, it is an OSError, even if polars takes it for an error of the format."""
    try:
        write_to(stream)
    except pl.exceptions.PolarsError as error:
        if number := OS_ERROR.search(str(error)):
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from error
        raise
