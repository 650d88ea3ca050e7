"""The command that writes a model in a form that other programs run: export."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from autocross.commands.common import Force, app

To = Literal["json", "python", "c", "sql", "onnx", "pmml"]
DIALECTS = Literal["duckdb", "postgres", "sqlite"]


@app.command
def export(
    model: str,
    /,
    *,
    to: Annotated[To, Parameter(help="The format.")],
    output: Annotated[
        str, Parameter(name=["--output", "-o"], help="File to write. An existing file is replaced only with --force.")
    ],
    dialect: Annotated[DIALECTS | None, Parameter(help="The database that SQL is for. The default is duckdb.")] = None,
    table: Annotated[str | None, Parameter(help="The table that SQL reads. The default is input.")] = None,
    key: Annotated[str | None, Parameter(help="The column of that table that stands beside each score of SQL.")] = None,
    reasons: Annotated[bool, Parameter(help="Also what each column adds to the log-odds, as explain says.")] = False,
    force: Force = False,
) -> None:
    """Write a model in a form that runs without autocross. Its scores are those of the model."""
    from autocross.exporting.formats import export as write
    from autocross.table.outputs import EXPORTED, check_output

    path = check_output(output, EXPORTED, force, [model])
    write(model, path, to, dialect=dialect, table=table, key=key, reasons=reasons)
