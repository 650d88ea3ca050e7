"""The only list of exports, and how a model is written in one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from autocross.errors import OptionError
from autocross.exporting import c_file, json_file, onnx_file, pmml_file, python_file, sql_file
from autocross.exporting.description import Description, describe
from autocross.exporting.sql_dialects import DIALECTS
from autocross.interrupts import finish
from autocross.producer import bundle
from autocross.producer.model import Model
from autocross.table.atomic import replace_file


@dataclass(frozen=True)
class Ask:
    """What was asked for, beside the format. Only some formats know what to do with each of these."""

    reasons: bool = False
    dialect: str | None = None
    table: str | None = None
    key: str | None = None


@dataclass(frozen=True)
class Format:
    """A format: how a description is rendered in it, and what it can be asked for."""

    render: Callable[[Description, Ask], str | bytes]
    reasons: bool = True
    query: bool = False  # whether it reads a table, and so has a dialect, a table and a key


FORMATS = {
    "json": Format(lambda described, ask: json_file.render(described)),
    "python": Format(lambda described, ask: python_file.render(described)),
    "c": Format(lambda described, ask: c_file.render(described)),
    "sql": Format(lambda described, ask: sql_file.render(described, ask.dialect, ask.table, ask.key), query=True),
    "onnx": Format(lambda described, ask: onnx_file.render(described), reasons=False),
    "pmml": Format(lambda described, ask: pmml_file.render(described), reasons=False),
}


def exported(model: Model, to: str, ask: Ask) -> bytes:
    """The model in another format. What the format cannot hold is refused."""
    if to not in FORMATS:
        raise OptionError(f"--to {to!r} is unknown. Choose one of: {', '.join(FORMATS)}.")
    form = FORMATS[to]
    if ask.reasons and not form.reasons:
        able = ", ".join(name for name, other in FORMATS.items() if other.reasons)
        raise OptionError(f"--reasons cannot be exported to {to}. Leave it out, or export to one of: {able}.")
    for name in ("dialect", "table", "key"):
        if getattr(ask, name) is not None and not form.query:
            raise OptionError(f"--{name} is for --to sql, and says nothing in {to}. Leave it out.")
    if ask.dialect is not None and ask.dialect not in DIALECTS:
        raise OptionError(f"--dialect {ask.dialect!r} is unknown. Choose one of: {', '.join(DIALECTS)}.")
    content = form.render(describe(model, ask.reasons), ask)
    return content.encode("utf-8") if isinstance(content, str) else content


def export(
    model: str | Path,
    output: str | Path,
    to: str,
    *,
    dialect: str | None = None,
    table: str | None = None,
    key: str | None = None,
    reasons: bool = False,
) -> None:
    """Write a saved model in a form that runs without autocross: ``to`` is json, python, c, sql, onnx or pmml.

    ``reasons`` adds what each column adds to the log-odds. ``dialect``, ``table`` and ``key`` are for SQL: the database (duckdb,
    postgres or sqlite), the table that is read, and the column that stands beside each score. Nothing is written unless all of it
    can be.
    """
    content = exported(bundle.read(model), to, Ask(reasons, dialect, table, key))
    finish()
    replace_file(Path(output), lambda stream: stream.write(content))
