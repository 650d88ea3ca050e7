"""Where a command may write: never over what it reads, and over files of another kind only if the user says so."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from autocross.errors import AutoCrossError, FileError
from autocross.table.files import column_names, place_of
from autocross.table.remote import Remote

PREDICTIONS = ["probability", "prediction"]
DECILES = ["decile", "rows", "weight", "low", "high", "mean_score", "observed"]
INTERVAL = ["low", "high"]  # what predictions have in addition, if bounds are asked for
WEIGHT_COLUMNS = ("term", "value", "low", "high", "rows", "positives", "weight", "error")
CARD_COLUMNS = ("term", "value", "low", "high", "rows", "points")
MOST_OF_A_TABLE = 10_000  # bytes of the part of an Excel file that names its columns
CARD_MARK = '<meta name="generator" content="autocross scorecard">'  # by which a page is recognised


@dataclass(frozen=True)
class Kind:
    """A kind of file that a command writes: how its name may end, how to recognise it, and what is said about other files."""

    endings: tuple[str, ...]
    recognises: Callable[[Path], bool]
    otherwise: str


def has_columns(path: Path, names: Sequence[str]) -> bool:
    """Whether a file is a table with these columns and no others."""
    try:
        return (names_in_excel if path.name.lower().endswith(".xlsx") else column_names)(path) == list(names)
    except AutoCrossError:
        return False


def names_in_excel(path: Path) -> list[str]:
    """The columns of an Excel file that consists of a single table, as this package writes it. Other files have none."""
    try:
        with ZipFile(path) as parts, parts.open("xl/tables/table1.xml") as table:
            names = re.findall(r'<tableColumn [^>]*name="([^"]*)"', table.read(MOST_OF_A_TABLE).decode())
            return [] if "xl/worksheets/sheet2.xml" in parts.namelist() else names
    except (BadZipFile, KeyError, RuntimeError, ValueError, EOFError, zlib.error):  # damaged, encrypted, or no Excel file at all
        return []


def is_card(path: Path) -> bool:
    """Whether a file is a scorecard: a table or a page."""
    if not path.name.lower().endswith(".html"):
        return has_columns(path, CARD_COLUMNS)
    with path.open("rb") as stream:
        return CARD_MARK.encode() in stream.read(1000)


def is_export(path: Path) -> bool:
    """Whether a file is an export, as far as its beginning tells."""
    with path.open("rb") as stream:
        return EXPORT_MARK.encode() in stream.read(200)


TABLE_ENDINGS = (".csv", ".parquet")
CALIBRATION = Kind(TABLE_ENDINGS, lambda path: has_columns(path, DECILES), "is no table of deciles")
SHEET_ENDINGS = (*TABLE_ENDINGS, ".xlsx")
WEIGHTS = Kind(
    SHEET_ENDINGS,
    lambda path: has_columns(path, WEIGHT_COLUMNS) or has_columns(path, ["field", *WEIGHT_COLUMNS]),
    "is no table of weights",
)
CARD = Kind((".csv", ".xlsx", ".html"), is_card, "is no scorecard")
FEATURES = Kind(TABLE_ENDINGS, lambda path: False, "cannot be told from data")
EXPORT_MARK = "autocross-model"  # stands at the beginning of every export
EXPORTED = Kind((), is_export, "is no export of a model")


def predicted(kept: Sequence[str] = ()) -> Kind:
    """A table of predictions, behind columns that are kept, and perhaps with their bounds."""
    plain = [*kept, *PREDICTIONS]
    return Kind(
        TABLE_ENDINGS,
        lambda path: has_columns(path, plain) or has_columns(path, [*plain, *INTERVAL]),
        "is no table of predictions",
    )


def check_output(name: str, kind: Kind, force: bool, read: Sequence[Any], **beside: str | Path | None) -> Path:
    """Check, before the work begins, that a file can and may be written.

    ``read`` has the files that are read meanwhile, and ``beside`` those that are written as well. An existing file must be empty or
    of the same kind; otherwise the user must allow by ``force`` that it is replaced.
    """

    def refuse(why: str) -> FileError:
        return FileError(f"Cannot write the output {name!r}: {why}")

    if not name:
        raise refuse("the name is empty. Give the name of a file.")
    if "\0" in name:
        raise refuse("the name holds a zero byte. Give the name of a file.")
    if "://" in name:
        raise refuse("it is a URL, and only files on this machine can be written. Give a path.")
    path = Path(name)
    try:
        if not path.absolute().parent.is_dir():
            raise refuse(f"there is no folder {str(path.parent)!r}. Create it first.")
        if path.is_dir():
            raise refuse("it is a folder. Give the name of a file.")
        if path.exists() and not path.is_file():
            raise refuse("it is no file. Give the name of a file.")
        if kind.endings and not path.name.lower().endswith(kind.endings):
            raise refuse(f"its ending does not tell how. Name it {' or '.join(kind.endings)}.")
        if not os.access(path.absolute().parent, os.W_OK):
            raise refuse("its folder cannot be written to. Give another place.")
        keep_apart(read, output=name, **beside)
        if not force and path.exists() and path.stat().st_size and not kind.recognises(path):
            raise refuse(f"it exists, and {kind.otherwise}. Give another name, or replace it with --force.")
    except OSError as error:
        raise refuse(f"{error.strerror}. Give another name.") from None
    return path


def keep_apart(read: Sequence[Any], **written: str | Path | None) -> None:
    """Refuse to write over a file that is read, into a folder that is read, or twice into one file. Frames are not files."""
    outputs = {role: os.fspath(path) for role, path in written.items() if path is not None}
    for role, name in outputs.items():
        for place in map(local_path, read):
            if place is None:
                continue
            if place.is_dir() and same(Path(name).absolute().parent, place):
                raise FileError(
                    f"Cannot write the {role} {name!r}: its folder is read, and what is written there would be read the next time. "
                    "Give another place."
                )
            for file in place.iterdir() if place.is_dir() else [place]:
                if same(name, file):
                    raise FileError(
                        f"Cannot write the {role} {name!r}: it is the file {str(file)!r}, which is read. Give another name."
                    )
    for (role, first), (other_role, second) in combinations(outputs.items(), 2):
        if same(first, second):
            raise FileError(f"Cannot write the {other_role} {second!r}: it is the {role} too. Give another name.")


def local_path(data: Any) -> Path | None:
    """The path on this machine from which rows are read, or None."""
    if not isinstance(data, (str, Path)):
        return None
    place = place_of(data)
    if not isinstance(place, Remote):
        return place if os.path.exists(place) else None
    return Path(place.store[1]) if place.url.startswith(("file://", "local://")) else None


def same(first: str | Path, second: str | Path) -> bool:
    """Whether two paths lead to the same file, also through links and in other spellings."""
    try:
        return os.path.samefile(first, second)
    except OSError:  # one of them does not exist
        return os.path.realpath(first) == os.path.realpath(second)
