"""Commands that learn: fit and refit."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from autocross.commands.common import (
    FIT_DEFAULTS,
    RUN_DEFAULTS,
    AsJson,
    FitFlags,
    Force,
    Out,
    RunFlags,
    Target,
    Weight,
    app,
    options_of,
)
from autocross.interrupts import finish, interruptible
from autocross.options import values_of


@app.command
def fit(
    train: str,
    /,
    *,
    target: Target,
    output: Out,
    weight: Weight = None,
    as_json: AsJson = False,
    force: Force = False,
    options: FitFlags = FIT_DEFAULTS,
) -> None:
    """Fit a model to a CSV or Parquet file, or to a folder of Parquet files, which may be at a URL that fsspec knows.

    Ctrl-C ends the search and keeps what it has found so far. A second Ctrl-C aborts.
    """
    with interruptible() as interrupt:
        from autocross import checkpoint
        from autocross.estimator import AutoCrossClassifier
        from autocross.fitted import MODEL
        from autocross.table.outputs import check_output

        chosen = options_of(options)
        rounds = checkpoint.file_of(chosen)
        path = check_output(output, MODEL, force, [train], journal=chosen.journal, checkpoint=rounds)
        classifier = AutoCrossClassifier(**values_of(chosen))
        classifier.fit(train, target, weight)
        ended_early = interrupt.asked
        finish()
        classifier.save(path)
        if ended_early:
            print("interrupted: the model has what was found until then", file=sys.stderr)
        about = classifier.model_.about
        facts = {
            "model": output,
            "n_rows": about.n_rows,
            "n_fields": len(classifier.model_.producer.encoder.fields),
            "n_crosses": len(about.crosses),
            "metric": about.metric,
            "validation_score": about.score,
        }
        if as_json:
            print(json.dumps(facts))
        else:
            print(f"saved {output}", file=sys.stderr)


@app.command
def refit(
    model: str,
    data: str,
    /,
    *,
    output: Out,
    target: Annotated[str | None, Parameter(help="Column of the label. The default is that of the fit.")] = None,
    weight: Weight = None,
    force: Force = False,
    options: RunFlags = RUN_DEFAULTS,
) -> None:
    """Learn new weights for the same fields and crosses on new rows. The output may be the model itself."""
    from autocross import fitted
    from autocross.producer import bundle
    from autocross.table.outputs import check_output, keep_apart

    chosen = options_of(options)
    path = check_output(output, fitted.MODEL, force, [data], journal=chosen.journal)
    keep_apart([model], journal=chosen.journal)
    former = bundle.read(model)
    if chosen.class_weight is None:
        chosen = replace(chosen, class_weight=fitted.class_weight_of(former.about))
    with fitted.observed(chosen, data) as (chosen, reporter):
        renewed = fitted.refit(former, data, target or former.about.target, weight, chosen, reporter)
    finish()
    bundle.save(renewed, path)
    print(f"saved {output}", file=sys.stderr)
