"""How a CSV file writes its cells: which separator it has, and whether the decimal point is a point or a comma.

The user may say both. Otherwise rules decide, from the head of the file:

1. The separator is the comma, semicolon, tab or bar that cuts the first line into several cells, and all lines of the head into
   equally many. If two of them do so, the user must say which one it is. If none does, it is the first one that cuts the first
   line. In a file named .tsv it is the tab.
2. The decimal point is a comma if the separator is something else, and some column has only numbers such as 1,5. If so, a column in
   which every cell is a number, but some are in another notation (1.5, or 1.234,5), is an error, because its meaning is not clear.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from autocross.errors import TableError
from autocross.options import SEPARATORS
from autocross.table.lines import first_lines as head_of
from autocross.table.lines import mark_of
from autocross.table.values import MISSING_TEXTS

NAMES = dict(zip(SEPARATORS, ("comma", "semicolon", "tab", "bar"), strict=True))
HEAD = 100  # lines that decide the separator
UNUSED = "\x1f"  # a separator that no file has, so that a line is read as a whole
WHOLE = r"^[+-]?[0-9]{1,18}$"  # whole numbers that fit into 64 bits
WITH_COMMA, WITH_POINT = (
    rf"^[+-]?(([0-9]+{mark}?[0-9]*|{mark}[0-9]+)([eE][+-]?[0-9]+)?|(?i:inf|infinity|nan))$" for mark in (",", r"\.")
)
WITH_GROUPS = r"^[+-]?[0-9]{1,3}((\.[0-9]{3})+(,[0-9]*)?|(,[0-9]{3})+(\.[0-9]*)?)$"  # of thousands


@dataclass(frozen=True)
class Dialect:
    """What is known about a CSV file before it is read. ``as_text`` names columns that must stay text. None means not known yet."""

    as_text: Sequence[str] = ()
    separator: str | None = None
    decimal: str | None = None

    def __str__(self) -> str:
        return f"separator={self.separator!r} and decimal={self.decimal!r}"


ANY = Dialect()


def found_out(path: Path, declared: Dialect) -> Dialect:
    """The dialect of a file; what is not given is found by rule."""
    separator = declared.separator or ("\t" if ".tsv" in path.name.lower() else separator_of(path))
    with_separator = replace(declared, separator=separator)
    if declared.decimal is not None:
        return with_separator
    return replace(with_separator, decimal="," if separator != "," and has_decimal_commas(path, with_separator) else ".")


# The separator.


def first_lines(path: Path) -> list[str]:
    """The lines of the head that are not empty."""
    check_encoding(path)
    frame = pl.read_csv(
        head_of(path, HEAD),
        separator=UNUSED,
        quote_char=None,
        has_header=False,
        n_rows=HEAD,
        infer_schema=False,
        truncate_ragged_lines=True,
        glob=False,
    )
    lines = [line for line in frame.to_series().to_list() if line]
    if not lines:
        raise pl.exceptions.NoDataError("no line")
    if "\0" in lines[0]:
        raise TableError(
            f"File {str(path)!r} is not UTF-8: its first line holds zero bytes, as text in UTF-16 or UTF-32 does. "
            "Convert it, for example with: iconv -f UTF-16LE -t UTF-8"
        )
    return lines


def check_encoding(path: Path) -> None:
    """Refuse a file whose first bytes say that it has another encoding than UTF-8."""
    mark = mark_of(path)
    for name, marks in (("UTF-32", (b"\xff\xfe\0\0", b"\0\0\xfe\xff")), ("UTF-16", (b"\xff\xfe", b"\xfe\xff"))):
        if mark.startswith(marks):
            raise TableError(f"File {str(path)!r} is text in {name}. Convert it, for example with: iconv -f {name} -t UTF-8")


def cells(lines: Sequence[str], separator: str) -> list[list[str]]:
    """The lines, cut into cells. A cell in quotes may extend over several lines."""
    try:
        return [record for record in csv.reader([line + "\n" for line in lines], delimiter=separator) if record]
    except csv.Error:
        return [[]]


def separator_of(path: Path) -> str:
    """The separator, by rule."""
    lines = first_lines(path)
    fits, cuts = {}, []
    for separator in SEPARATORS:
        records = cells(lines, separator) if separator in lines[0] else [[]]
        n_cells = len(records[0])
        if n_cells > 1:
            cuts.append(separator)
            if all(len(record) == n_cells for record in records[: max(2, len(records) - 1)]):  # the last line may be incomplete
                fits[separator] = n_cells
    if len(fits) > 1:
        ways = " or ".join(f"a {NAMES[separator]} ({n_cells} columns)" for separator, n_cells in fits.items())
        raise TableError(
            f"The cells of {str(path)!r} may be separated by {ways}. Say which, as in separator={next(iter(fits))!r} "
            f"(--separator on the command line)."
        )
    return next(iter([*fits, *cuts, ","]))


def header(path: Path, separator: str) -> list[str]:
    """The column names as they are in the file. Polars would rename the second of two equal names."""
    names = cells(first_lines(path), separator)[0]
    if names:
        name, n_times = Counter(names).most_common(1)[0]
        if n_times > 1:
            raise TableError(f"Column name {name!r} occurs {n_times} times in {str(path)!r}. Rename the columns.")
    return names


# The decimal point.


def texts_of(path: Path, dialect: Dialect, n_rows: int | None) -> pl.DataFrame:
    """The first rows as texts, without columns that must stay text."""
    assert dialect.separator is not None
    lines = path if n_rows is None else head_of(path, n_rows + 1)
    rows = pl.scan_csv(lines, separator=dialect.separator, null_values=sorted(MISSING_TEXTS), infer_schema=False, glob=False)
    return rows.drop(dialect.as_text, strict=False).slice(0, n_rows).collect()


def has_decimal_commas(path: Path, dialect: Dialect, n_rows: int = 10_000) -> bool:
    """Whether some column has only numbers, and some of these with a comma."""
    try:
        columns = texts_of(path, dialect, n_rows).get_columns()
    except pl.exceptions.PolarsError:  # this will be explained when the rows themselves are read
        return False
    return any(
        bool(column.str.contains(",", literal=True).any()) and bool(column.str.contains(WITH_COMMA).all()) for column in columns
    )


def numbers_with_commas(path: Path, dialect: Dialect, n_rows: int | None) -> tuple[list[str], list[str]]:
    """The columns of whole numbers, and the columns of other numbers with decimal commas, judged by the first rows.

    A column that is empty in these rows is taken for numbers. If it is not, there will be an error, but never a wrong number.
    """
    whole: list[str] = []
    decimal: list[str] = []
    for column in texts_of(path, dialect, n_rows).iter_columns():
        present = column.drop_nulls()
        with_comma = present.str.contains(WITH_COMMA)
        if with_comma.all():
            (whole if len(present) and present.str.contains(WHOLE).all() else decimal).append(column.name)
        elif (with_comma | present.str.contains(WITH_POINT) | present.str.contains(WITH_GROUPS)).all():
            raise TableError(
                f"Column {column.name!r} of {str(path)!r} holds {present.filter(~with_comma)[0]!r}, in a file with decimal commas: "
                "it is not clear which number that is. Give decimal='.' (--decimal on the command line) if no comma is a decimal "
                f"point, declare the column's kind, as in types={{{column.name!r}: 'categorical'}}, or write its numbers alike."
            )
    return whole, decimal


def number_with_comma(name: str) -> pl.Expr:
    """A column of texts as numbers. A text that is no number with a decimal comma is put into quotes, so that polars refuses it."""
    text = pl.col(name)
    with_point = text.str.replace(",", ".", literal=True)
    return pl.when(text.str.contains(WITH_COMMA)).then(with_point).otherwise(pl.format("'{}'", text)).cast(pl.Float64)
