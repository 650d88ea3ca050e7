"""The command for changes by hand."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated, Any

from cyclopts import Parameter

from autocross.commands.common import RUN_DEFAULTS, Force, Out, RunFlags, app, options_of
from autocross.errors import OptionError
from autocross.interrupts import finish


@app.command
def change(
    model: str,
    /,
    *,
    output: Out,
    without: Annotated[str | None, Parameter(help="Take out a term: a column, or the columns of a cross joined by ' & '.")] = None,
    data: Annotated[str | None, Parameter(help="File of labelled rows to which the rest is refitted.")] = None,
    target: Annotated[str | None, Parameter(help="Column of the label in these rows. The default is that of the fit.")] = None,
    sample_weight: Annotated[str | None, Parameter(help="Column that says how much a row counts.")] = None,
    term: Annotated[str | None, Parameter(help="Change a weight of this term.")] = None,
    value: Annotated[
        str | None, Parameter(help="Of which value, as `autocross weights` prints it.", allow_leading_hyphen=True)
    ] = None,
    weight: Annotated[float | None, Parameter(help="The new weight.", allow_leading_hyphen=True)] = None,
    note: Annotated[str, Parameter(help="Why. The model keeps it, and `autocross show` prints it.")] = "",
    force: Force = False,
    options: RunFlags = RUN_DEFAULTS,
) -> None:
    """Change a model by hand: take out a term (--without), or set one weight (--term, --value, --weight)."""
    check_flags(without, {"--data": data, "--target": target, "--sample-weight": sample_weight}, (term, value, weight))
    from autocross import fitted
    from autocross.producer import bundle, changes
    from autocross.table.outputs import check_output, keep_apart

    chosen = options_of(options)
    path = check_output(output, fitted.MODEL, force, [] if data is None else [data], journal=chosen.journal)
    keep_apart([model], journal=chosen.journal)
    former = bundle.read(model)
    if chosen.class_weight is None:
        chosen = replace(chosen, class_weight=fitted.class_weight_of(former.about))
    if without is None:
        assert term is not None and weight is not None
        changed = changes.with_weight(former, term, value, weight, note)
    else:
        changed = changes.without(former, without, note, refit=data is not None)
    if data is not None:
        with fitted.observed(chosen, data) as (chosen, reporter):
            changed = fitted.refit(changed, data, target or former.about.target, sample_weight, chosen, reporter)
    finish()
    bundle.save(changed, path)
    print(f"saved {output}", file=sys.stderr)


def check_flags(without: str | None, of_refit: dict[str, Any], of_weight: tuple[Any, Any, Any]) -> None:
    """Exactly one kind of change must be asked for, and nothing that it does not need."""
    given = [flag is not None for flag in of_weight]
    if without is None and not all(given):
        raise OptionError(
            "Nothing to change is given in full. Give --without TERM, or all of --term TERM --value VALUE --weight NUMBER."
        )
    if without is not None and any(given):
        raise OptionError("--without does not go with --term, --value and --weight. Make one change after the other.")
    for flag, value in of_refit.items():
        if value is not None and (without is None or of_refit["--data"] is None):
            raise OptionError(f"{flag} {value} is for the refit after --without. Give --without and --data too, or leave it out.")
