"""The command that turns a model into points: scorecard."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from autocross.commands.common import Force, app, deliver
from autocross.interrupts import finish

OptionalCard = Annotated[
    str | None, Parameter(name=["--output", "-o"], help="File to write, .csv, .xlsx or .html. Without it, CSV goes to stdout.")
]


@app.command
def scorecard(
    model: str,
    /,
    *,
    output: OptionalCard = None,
    points: Annotated[float, Parameter(help="The score that stands for the odds.")] = 600,
    odds: Annotated[float, Parameter(help="The odds of the favourable label at this score: 50 means 50 to 1.")] = 50,
    pdo: Annotated[float, Parameter(help="How many more points double the odds.")] = 20,
    favourable: Annotated[str | None, Parameter(help="The label that is good news. The default is the negative one.")] = None,
    decimals: Annotated[int, Parameter(help="Digits of the points behind the decimal point.")] = 0,
    force: Force = False,
) -> None:
    """Write points for every bin, value and combination of values of a model. The points of a row add up to its score."""
    from autocross.serving.scorer import load
    from autocross.table.atomic import replace_file
    from autocross.table.outputs import CARD, check_output

    path = None if output is None else check_output(output, CARD, force, [model])
    card = load(model).scorecard(points, odds, pdo, favourable, decimals)
    if path is None or not path.name.lower().endswith(".html"):
        deliver(card.table, path)
    else:
        page = card.to_html().encode()
        finish()
        replace_file(path, lambda stream: stream.write(page))
