"""Commands that apply a model to the rows of a file: evaluate, predict and transform."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from autocross.commands.common import (
    FILE_DEFAULTS,
    AsJson,
    FileFlags,
    Force,
    OptionalOut,
    Weight,
    app,
    deliver,
    options_of,
    rows_of,
)
from autocross.errors import OptionError, TableError

Threshold = Annotated[float, Parameter(help="Probability above which the positive label is predicted.")]


@app.command
def evaluate(
    model: str,
    data: str,
    /,
    *,
    target: Annotated[str | None, Parameter(help="Column of the label. The default is that of the fit.")] = None,
    weight: Weight = None,
    threshold: Threshold = 0.5,
    deciles: Annotated[str | None, Parameter(help="File for the table of deciles, .csv or .parquet.")] = None,
    force: Force = False,
    as_json: AsJson = False,
    options: FileFlags = FILE_DEFAULTS,
) -> None:
    """Measure a model on labelled rows: AUC, log-loss, calibration by decile, and what is right at a threshold."""
    import polars as pl

    from autocross.models.evaluation import check_threshold
    from autocross.serving.scorer import load
    from autocross.table.outputs import CALIBRATION, DECILES, check_output

    check_threshold(threshold)
    path = None if deciles is None else check_output(deciles, CALIBRATION, force, [model, data])
    dialect = options_of(options)
    measured = load(model).evaluate(data, target, weight, threshold=threshold, separator=dialect.separator, decimal=dialect.decimal)
    tenths = pl.DataFrame([[getattr(tenth, name) for name in DECILES] for tenth in measured.deciles], DECILES, orient="row")
    if path is not None:
        deliver(tenths, path)
    if as_json:
        print(json.dumps(measured.measures))
        return
    for key, value in measured.measures.items():
        print(f"{key:15} {'-' if value is None else f'{value:.6f}' if isinstance(value, float) else f'{value:,}'}")
    print("\ndecile       rows      low     high   mean score   observed")
    for tenth in measured.deciles:
        bounds = f"{tenth.low:8.4f} {tenth.high:8.4f}"
        print(f"{tenth.decile:6} {tenth.rows:10,} {bounds}   {tenth.mean_score:10.4f} {tenth.observed:10.4f}")


@app.command
def predict(
    model: str,
    data: str,
    /,
    *,
    output: OptionalOut = None,
    threshold: Threshold = 0.5,
    keep: Annotated[
        list[str] | None, Parameter(help="Columns of the data to write before the predictions, as in --keep id,name.")
    ] = None,
    interval: Annotated[float | None, Parameter(help="Write bounds of this level, such as 0.9, in columns low and high.")] = None,
    force: Force = False,
    options: FileFlags = FILE_DEFAULTS,
) -> None:
    """Write, for every row, the probability of the positive label, and the predicted label."""
    import polars as pl

    from autocross.models.evaluation import check_threshold
    from autocross.serving.scorer import load
    from autocross.table.outputs import INTERVAL, PREDICTIONS, check_output, predicted

    check_threshold(threshold)
    names = kept_names(keep or [], data, options)
    path = None if output is None else check_output(output, predicted(names), force, [model, data])
    scorer = load(model)
    rows = rows_of(scorer.model, data, options, names)
    kept = rows.select(names)
    check_cells(kept, path)
    bounds = {}
    if interval is None:
        probability = scorer.score(rows)
    else:
        low, probability, high = scorer.score_interval(rows, interval)
        bounds = dict(zip(INTERVAL, (low, high), strict=True))
    negative, positive = scorer.model.about.classes
    labels = [positive if p > threshold else negative for p in probability.tolist()]
    predictions = pl.DataFrame(dict(zip(PREDICTIONS, (probability, labels), strict=True)) | bounds)
    deliver(pl.DataFrame([*kept.get_columns(), *predictions.get_columns()]), path)


def kept_names(keep: Sequence[str], data: str, flags: Any) -> list[str]:
    """The columns of a file that are written too. A text with commas names several columns, unless a column has that very name."""
    from autocross.table.dialect import Dialect
    from autocross.table.files import column_names, place_of
    from autocross.table.inference import columns_in_words
    from autocross.table.outputs import INTERVAL, PREDICTIONS

    if not keep:
        return []
    options = options_of(flags)
    known = column_names(place_of(data), Dialect((), options.separator, options.decimal))
    names = [*dict.fromkeys(name for text in keep for name in ([text] if text in known else text.split(",")))]
    for name in names:
        if name not in known:
            raise TableError(f"The column {name!r} of --keep is not in {data!r}. {columns_in_words(known)}")
        if name in (*PREDICTIONS, *INTERVAL):
            raise TableError(f"The column {name!r} of --keep has the name of a prediction. Leave it out, or rename it in the data.")
    return names


def check_cells(kept: Any, path: Path | None) -> None:
    """Refuse columns that a CSV file cannot hold."""
    for name, dtype in kept.schema.items():
        if dtype.is_nested() and (path is None or path.name.lower().endswith(".csv")):
            raise TableError(
                f"The column {name!r} of --keep holds lists or structs, which a CSV file cannot. Leave it out, or write .parquet."
            )


@app.command
def transform(
    model: str,
    data: str,
    /,
    *,
    output: OptionalOut = None,
    form: Annotated[
        Literal["frame", "codes", "statistics"],
        Parameter(name="--as", help="Readable values, integer codes, or the log-odds and log counts of the values as numbers."),
    ] = "frame",
    codes: Annotated[bool, Parameter(help="The same as --as codes.")] = False,
    force: Force = False,
    options: FileFlags = FILE_DEFAULTS,
) -> None:
    """Write the fields, crosses and statistics of every row, as columns of readable values, of integer codes or of numbers."""
    import polars as pl

    from autocross.producer import bundle, numbers
    from autocross.producer.features import Features
    from autocross.table.coded import to_frame
    from autocross.table.coerce import typed
    from autocross.table.outputs import FEATURES, check_output

    if codes and form == "statistics":
        raise OptionError("--codes and --as statistics contradict each other. Give one of them.")
    path = None if output is None else check_output(output, FEATURES, force, [model, data])
    stored = bundle.read(model)
    features = Features(stored)
    coded = stored.producer.codes(typed(rows_of(stored, data, options), stored.producer.encoder.schema))
    if form == "statistics":
        frame = pl.DataFrame(numbers.dense(features, coded), numbers.names(features), orient="row")
    elif codes or form == "codes":
        frame = pl.DataFrame(features.code_columns(features.codes(coded)))
    else:
        frame = to_frame(features.worded(features.codes(coded)))
    deliver(frame, path)
