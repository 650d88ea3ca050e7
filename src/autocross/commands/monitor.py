"""The command that compares new rows with those of a fit."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import Parameter

from autocross.commands.common import AsJson, Weight, app, command_line_options, options_of
from autocross.errors import OptionError

ABOVE = 3  # the exit code if something has changed by more than the limit

PartOptions = command_line_options(["separator", "decimal", "memory_limit"])
PART_DEFAULTS = PartOptions()
if TYPE_CHECKING:
    PartFlags: TypeAlias = Any
else:
    PartFlags = Annotated[PartOptions, Parameter(name="*")]


@app.command
def monitor(
    model: str,
    new: str,
    /,
    *,
    target: Annotated[str | None, Parameter(help="Column of the label, if the new rows have one.")] = None,
    weight: Weight = None,
    fail_above: Annotated[
        float | None, Parameter(help="End with exit code 3 if the PSI of a column or of the score is above this limit.")
    ] = None,
    reference: Annotated[
        str | None,
        Parameter(
            help="Rows whose scores the new ones are compared with, instead of those of the fit. For models changed by hand."
        ),
    ] = None,
    as_json: AsJson = False,
    options: PartFlags = PART_DEFAULTS,
) -> int:
    """Compare new rows with those of the fit: how much columns, crosses and scores have changed (PSI), and how good the model
    still is. NEW is a file of any size, or a folder of Parquet files."""
    from autocross.producer import bundle
    from autocross.serving.monitor import monitor as compare

    if fail_above is not None and not 0 <= fail_above < math.inf:
        raise OptionError(f"--fail-above {fail_above} is no limit of a PSI. Give a number of 0 or more, as in --fail-above 0.25.")
    report = compare(bundle.read(model), new, target, weight, reference, options_of(options))
    above = [] if fail_above is None else report.above(fail_above)
    if as_json:
        limit = {} if fail_above is None else {"fail_above": fail_above, "above": [one.name for one in above]}
        print(json.dumps({**report.to_dict(), **limit}))
    else:
        print(report)
        if above:
            print(f"\n{len(above):,} above the limit of {fail_above:g}")
    return ABOVE if above else 0
