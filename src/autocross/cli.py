"""The command line: thin commands over the same calls as the library. stdout is data, stderr is logs."""

from __future__ import annotations

from runpy import run_module

if __name__ == "__main__":  # not at the end, so that nothing more is imported before Ctrl-C is handled
    run_module("autocross", run_name="__main__")

import json
import sys
import warnings
from collections.abc import Callable, Collection
from dataclasses import asdict, fields, make_dataclass
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_type_hints

from cyclopts import App, CycloptsError, Parameter

import autocross
from autocross.errors import AutoCrossError, OptionError, TableError
from autocross.interrupts import finish, interruptible
from autocross.options import Options, all_options, values_of

app = App(
    name="autocross",
    help="Automatic feature crossing: from a table with a yes/no target to a model that scores a row in microseconds.",
    version=autocross.__version__,
    default_parameter=Parameter(negative=()),
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)

Target = Annotated[str, Parameter(help="Column that holds the yes/no label.")]
Weight = Annotated[str | None, Parameter(help="Column that says how much a row counts.")]
AsJson = Annotated[bool, Parameter(name="--json", help="Print JSON for machines.")]
Out = Annotated[str, Parameter(name=["--output", "-o"], help="File to write. An existing model is replaced.")]
OptionalOut = Annotated[
    str | None, Parameter(name=["--output", "-o"], help="File to write, .csv or .parquet. Without it, CSV goes to stdout.")
]
Force = Annotated[bool, Parameter(help="Replace an existing output file even if this command did not write it.")]


def command_line_options(names: Collection[str]) -> Any:
    """Some options of a fit as a dataclass that cyclopts reads: one flag for each field of `Options`."""
    # A mapping or a list is given by repeating the flag. Labels are text.
    shown = {
        "types": list[str] | None,
        "exclude": list[str] | None,
        "granularities": list[int] | None,
        "positive": str | None,
    }
    renamed = {"types": "--type"}
    how = {"types": " Given as COL=KIND.", "separator": " A tab is given as tab."}
    hints = get_type_hints(Options)
    entries = []
    for entry in (entry for entry in all_options() if entry.name in names):
        text = entry.metadata["help"] + how.get(entry.name, "")
        flag = Parameter(name=renamed.get(entry.name), help=text)
        kind = shown.get(entry.name, hints[entry.name])
        entries.append((entry.name, Annotated[kind, flag], dataclass_field(default=entry.default)))
    return make_dataclass("CommandLineOptions", entries, frozen=True, namespace={"__module__": __name__})


FitOptions = command_line_options([entry.name for entry in all_options()])
RunOptions = command_line_options(["engine", "address", "n_jobs", "random_state", "separator", "decimal", "quiet", "journal"])
FileOptions = command_line_options(["separator", "decimal"])
FIT_DEFAULTS, RUN_DEFAULTS, FILE_DEFAULTS = FitOptions(), RunOptions(), FileOptions()
if TYPE_CHECKING:  # these classes are made at run time, which a type checker cannot follow
    FitFlags: TypeAlias = Any
    RunFlags: TypeAlias = Any
    FileFlags: TypeAlias = Any
else:
    FitFlags = Annotated[FitOptions, Parameter(name="*")]
    RunFlags = Annotated[RunOptions, Parameter(name="*")]
    FileFlags = Annotated[FileOptions, Parameter(name="*")]


def options_of(flags: Any) -> Options:
    """The user's flags as options."""
    values = {entry.name: getattr(flags, entry.name) for entry in fields(flags)}
    if values.get("types") is not None:
        pairs = [text.partition("=") for text in values["types"]]
        for column, sign, kind in pairs:
            if not (column and sign and kind):
                raise OptionError(
                    f"--type {column}{sign}{kind} is no assignment. Write --type COLUMN=KIND, as in --type zip=categorical."
                )
        values["types"] = {column: kind for column, _, kind in pairs}
    if values.get("separator") in ("tab", r"\t"):  # a shell does not turn these into a tab
        values["separator"] = "\t"
    return Options(**values)


def rows_of(model: Any, data: str, flags: Any) -> Any:
    """The rows of a file as a frame, its text columns as the model had them."""
    from autocross.table.ingest import unlabelled

    return unlabelled(data, model.producer.encoder.schema, options_of(flags))


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
        from autocross.estimator import MODEL, AutoCrossClassifier
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
    from autocross import estimator
    from autocross.producer import bundle
    from autocross.table.outputs import check_output, keep_apart

    chosen = options_of(options)
    path = check_output(output, estimator.MODEL, force, [data], journal=chosen.journal)
    keep_apart([model], journal=chosen.journal)
    former = bundle.read(model)
    with estimator.observed(chosen, data) as (chosen, reporter):
        renewed = estimator.refit(former, data, target or former.about.target, weight, chosen, reporter)
    finish()
    bundle.save(renewed, path)
    print(f"saved {output}", file=sys.stderr)


@app.command
def evaluate(
    model: str,
    data: str,
    /,
    *,
    target: Annotated[str | None, Parameter(help="Column of the label. The default is that of the fit.")] = None,
    weight: Weight = None,
    as_json: AsJson = False,
    options: FileFlags = FILE_DEFAULTS,
) -> None:
    """Print AUC, log-loss and accuracy of a model on labelled rows."""
    from autocross.models.metrics import accuracy, auc, log_loss
    from autocross.serving.scorer import load
    from autocross.table.ingest import labelled
    from autocross.table.labels import match_labels

    scorer = load(model)
    about = scorer.model.about
    name = target or about.target
    frame, label, counts = labelled(data, name, weight, scorer.model.producer.encoder.schema, options_of(options))
    label = match_labels(label, name, about.classes)
    log_odds = scorer.log_odds(frame)
    measures: dict[str, float | int | None] = {
        "auc": auc(label, log_odds, counts),
        "log_loss": log_loss(label, log_odds, counts),
        "accuracy": accuracy(label, log_odds, counts),
        "n_rows": len(label),
    }
    if measures["auc"] != measures["auc"]:
        measures["auc"] = None  # one class only: JSON has no NaN
    if as_json:
        print(json.dumps(measures))
    else:
        for key, value in measures.items():
            print(f"{key:9} {'-' if value is None else f'{value:.6f}' if isinstance(value, float) else f'{value:,}'}")


@app.command
def predict(
    model: str, data: str, /, *, output: OptionalOut = None, force: Force = False, options: FileFlags = FILE_DEFAULTS
) -> None:
    """Write, for every row, the probability of the positive label, and the more probable label."""
    import polars as pl

    from autocross.serving.scorer import load
    from autocross.table.outputs import PREDICTED, PREDICTIONS, check_output

    path = None if output is None else check_output(output, PREDICTED, force, [model, data])
    scorer = load(model)
    probability = scorer.score(rows_of(scorer.model, data, options))
    negative, positive = scorer.model.about.classes
    labels = [positive if p > 0.5 else negative for p in probability.tolist()]
    deliver(pl.DataFrame(dict(zip(PREDICTIONS, (probability, labels), strict=True))), path)


@app.command
def transform(
    model: str,
    data: str,
    /,
    *,
    output: OptionalOut = None,
    codes: Annotated[bool, Parameter(help="Write integer codes instead of readable values.")] = False,
    force: Force = False,
    options: FileFlags = FILE_DEFAULTS,
) -> None:
    """Write the fields, crosses and statistics of every row, as columns of readable values or of integer codes."""
    import polars as pl

    from autocross.producer import bundle
    from autocross.producer.features import Features
    from autocross.table.coerce import typed
    from autocross.table.outputs import FEATURES, check_output

    path = None if output is None else check_output(output, FEATURES, force, [model, data])
    stored = bundle.read(model)
    features = Features(stored)
    coded = features.codes(typed(rows_of(stored, data, options), stored.producer.encoder.schema))
    deliver(pl.DataFrame(features.code_columns(coded) if codes else features.readable(coded)), path)


@app.command
def show(model: str, /, *, as_json: AsJson = False) -> None:
    """Show what a model consists of: columns, rules, and fields with their penalties and strongest values."""
    from autocross.producer import bundle
    from autocross.producer.words import in_words, summary

    facts = summary(bundle.read(model))
    print(json.dumps(facts) if as_json else in_words(facts))


@app.command
def explain(
    model: str,
    data: str,
    /,
    *,
    row: Annotated[int, Parameter(help="Which row of the file, counted from 0.")] = 0,
    as_json: AsJson = False,
    options: FileFlags = FILE_DEFAULTS,
) -> None:
    """Explain why one row scores as it does. DATA is a file, or one row as a JSON object."""
    from autocross.producer.words import printable
    from autocross.serving.scorer import load

    scorer = load(model)
    is_json = data.lstrip().startswith("{")
    explanation = scorer.explain_one(json_row(data) if is_json else file_row(scorer.model, data, row, options))
    if as_json:
        print(json.dumps(asdict(explanation)))
        return
    print(f"probability {explanation.probability:.4f}   log-odds {explanation.log_odds:+.4f}")
    print(f"{explanation.intercept:+9.4f}  intercept")
    for reason in explanation.strongest(len(explanation.reasons)):
        print(printable(f"{reason.contribution:+9.4f}  {reason.field} = {reason.value}"))


@app.command
def demo(
    *, folder: Annotated[Path, Parameter(help="Where data and model are written.")] = Path("demo"), force: Force = False
) -> None:
    """Run everything on real data: late flights from New York in 2013. Needs `pip install autocross[demo]`."""
    from autocross.demo import run

    run(folder, force)


def json_row(text: str) -> dict[str, Any]:
    """A row given on the command line."""
    from autocross.table.values import whole_number

    try:
        row = json.loads(text, parse_int=whole_number)
    except (json.JSONDecodeError, RecursionError) as error:
        raise TableError(f'The row is no JSON object: {error}. Write it as \'{{"job": "cook", "age": 37}}\'.') from None
    assert isinstance(row, dict)
    return row


def file_row(model: Any, data: str, row: int, flags: Any) -> dict[str, Any]:
    """A row of a file, which must have the columns that the model needs."""
    from autocross.table.coerce import typed

    frame = rows_of(model, data, flags)
    if not 0 <= row < frame.height:
        extent = f"which has rows 0 to {frame.height - 1}" if frame.height else "which has no rows"
        raise TableError(f"Row {row} is not in {data!r}, {extent}. Give another row, or another file.")
    typed(frame[row : row + 1], model.producer.encoder.schema)
    return dict(frame.row(row, named=True))


def deliver(frame: Any, path: Path | None) -> None:
    """Write a frame to a file, or as CSV to stdout, in UTF-8 in both cases."""
    from autocross.table.files import write

    if path is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(frame.write_csv().encode())
    else:
        finish()
        write(frame, path)


def run(arguments: list[str] | None, work: Callable[..., Any] = app) -> int:
    """Run a command. Returns 0 for success, 1 for a failure or an interrupt, and 2 for bad usage or bad input."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *rest: print(f"warning: {message}", file=sys.stderr)
            work(arguments, exit_on_error=False, print_error=False)
        return 0
    except (AutoCrossError, CycloptsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return interrupted()
    except Exception as error:
        return failed(error)


def interrupted() -> int:
    """Print the message for Ctrl-C; returns the exit code."""
    print("interrupted: nothing was written", file=sys.stderr)
    return 1


def failed(error: Exception) -> int:
    """Print the message for an error that nothing else has handled; returns the exit code."""
    print(f"failed: {type(error).__name__}: {error}", file=sys.stderr)
    return 1


def main() -> None:
    """Run the program, as `python -m autocross` does."""
    run_module("autocross", run_name="__main__")
