"""Commands that say what a model is and why it scores as it does: show, weights and explain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from autocross.commands.common import FILE_DEFAULTS, AsJson, FileFlags, Force, app, deliver, rows_of
from autocross.errors import FileError, OptionError, TableError
from autocross.serving.reasons import By

OptionalSheet = Annotated[
    str | None, Parameter(name=["--output", "-o"], help="File to write, .csv, .parquet or .xlsx. Without it, CSV goes to stdout.")
]


@app.command
def show(
    model: str,
    term: Annotated[str | None, Parameter(help="A column, or columns joined by ' & ': show its weights.")] = None,
    /,
    *,
    top: Annotated[int, Parameter(help="How many columns and crosses the page lists.")] = 20,
    everything: Annotated[bool, Parameter(name="--all", help="Show all weights, rules and columns.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a model is: its most important columns and crosses, and the rules by which it was fitted."""
    from autocross.producer import bundle
    from autocross.producer.words import in_full, in_words, of_term, summary

    if top < 0:
        raise OptionError(f"--top {top} is no number of columns and crosses. Give 0 or more.")
    stored = bundle.read(model)
    if as_json:
        print(json.dumps(summary(stored)))
    elif term is not None:
        print(of_term(stored, term))
    else:
        print(in_full(stored) if everything else in_words(summary(stored), top))


@app.command
def weights(
    model: str,
    /,
    *,
    output: OptionalSheet = None,
    apart: Annotated[bool, Parameter(help="Do not add up the fields of a column: one line for each code of each field.")] = False,
    force: Force = False,
) -> None:
    """Write all weights of a model: a line for every bin, value and combination of values."""
    import polars as pl

    from autocross.estimator import WEIGHT_TYPES
    from autocross.producer import bundle
    from autocross.producer.weights import table
    from autocross.table.outputs import WEIGHTS, check_output

    path = None if output is None else check_output(output, WEIGHTS, force, [model])
    deliver(pl.DataFrame(table(bundle.read(model), not apart), schema_overrides=WEIGHT_TYPES), path)


@app.command
def explain(
    model: str,
    data: str,
    /,
    *,
    row: Annotated[int, Parameter(help="Which row of the file, counted from 0.")] = 0,
    strict: Annotated[bool, Parameter(help="Refuse a row with unknown or absent columns.")] = False,
    top: Annotated[int, Parameter(help="How many reasons are printed; the others are added up in one line.")] = 5,
    by: Annotated[
        By, Parameter(help="What a reason is: a column, a term (all fields and crosses of its columns), or a field.")
    ] = "column",
    adverse: Annotated[int | None, Parameter(help="Print so many reasons that cost most, in words for a letter.")] = None,
    favourable: Annotated[str | None, Parameter(help="The label that is good news. The default is the negative one.")] = None,
    texts: Annotated[
        str | None, Parameter(help="JSON file with a text for each column, for --adverse. {value} stands for the value.")
    ] = None,
    as_json: AsJson = False,
    options: FileFlags = FILE_DEFAULTS,
) -> None:
    """Explain why one row scores as it does, compared with the training rows. DATA is a file, or one row as a JSON object."""
    from autocross.producer.printing import printable
    from autocross.serving.scorer import load

    if adverse is not None and adverse < 1:
        raise OptionError(f"--adverse {adverse} is no number of reasons. Give 1 or more.")
    if adverse is None and (favourable is not None or texts is not None):
        raise OptionError("--favourable and --texts are for --adverse. Give it too, as in --adverse 4.")
    words = None if texts is None else read_texts(texts)
    scorer = load(model)
    is_json = data.lstrip().startswith("{")
    given = json_row(data) if is_json else file_row(scorer.model, data, row, options)
    if strict:
        scorer.check_names(given)
    explanation = scorer.explain(given, top, by)
    letter = None if adverse is None else explanation.adverse(adverse, favourable, words)
    if as_json:
        print(json.dumps(explanation.to_dict() | ({} if letter is None else {"adverse": letter})))
    elif letter is not None:
        for sentence in letter:
            print(printable(sentence))
    else:
        print(explanation)


def read_texts(path: str) -> dict[str, str]:
    """The user's texts for reasons, by column."""
    try:
        texts = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or error
        raise FileError(f"Cannot read the texts {path!r}: {why}. Give a JSON file that maps names of columns to texts.") from None
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise FileError(f'The texts {path!r} are no JSON object of texts. Write them as {{"age": "Your age"}}.')
    return texts


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
