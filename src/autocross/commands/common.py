"""What commands share: the program itself, its flags, how they become options, and how tables go in and out."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import field as dataclass_field
from dataclasses import fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_type_hints

from cyclopts import App, Parameter

import autocross
from autocross.errors import OptionError
from autocross.interrupts import finish
from autocross.options import BALANCED, Options, all_options

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
        **dict.fromkeys(("exclude", "monotone", "include", "forbid"), list[str] | None),
        "granularities": list[int] | None,
        "positive": str | None,
        "class_weight": list[str] | None,
    }
    renamed = {"types": "--type"}
    how = {
        "types": " Given as COL=KIND.",
        "monotone": " Given as COL=increasing or COL=decreasing.",
        "class_weight": " Given as LABEL=WEIGHT, or balanced.",
        "separator": " A tab is given as tab.",
    }
    hints = get_type_hints(Options)
    entries = []
    for entry in (entry for entry in all_options() if entry.name in names):
        text = entry.metadata["help"] + how.get(entry.name, "")
        flag = Parameter(name=renamed.get(entry.name), help=text)
        kind = shown.get(entry.name, hints[entry.name])
        entries.append((entry.name, Annotated[kind, flag], dataclass_field(default=entry.default)))
    return make_dataclass("CommandLineOptions", entries, frozen=True, namespace={"__module__": __name__})


FitOptions = command_line_options([entry.name for entry in all_options()])
RunOptions = command_line_options(
    ["class_weight", "engine", "address", "n_jobs", "random_state", "separator", "decimal", "quiet", "journal"]
)
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
        values["types"] = assigned("type", "KIND", "zip=categorical", [text.partition("=") for text in values["types"]])
    if values.get("monotone") is not None:
        pairs = [text.rpartition("=") for text in values["monotone"]]  # a name may hold the sign, a direction does not
        values["monotone"] = assigned("monotone", "DIRECTION", "age=increasing", pairs)
        if len(values["monotone"]) < len(pairs):
            raise OptionError("--monotone names a column twice. Give one direction for each column.")
    if values.get("class_weight") is not None:
        values["class_weight"] = class_weight_of(values["class_weight"])
    if values.get("separator") in ("tab", r"\t"):  # a shell does not turn these into a tab
        values["separator"] = "\t"
    return Options(**values)


def assigned(flag: str, what: str, example: str, pairs: list[tuple[str, str, str]]) -> dict[str, str]:
    """What is assigned to columns by a flag that may be repeated. Each pair has the sign in its middle."""
    for column, sign, value in pairs:
        if not (column and sign and value):
            text = f"--{flag} {column}{sign}{value}"
            raise OptionError(f"{text} is no assignment. Write --{flag} COLUMN={what}, as in --{flag} {example}.")
    return {column: value for column, _, value in pairs}


def class_weight_of(texts: Sequence[str]) -> str | dict[str, float]:
    """Weights of labels, from --class-weight yes=3, or balanced ones."""
    if list(texts) == [BALANCED]:
        return BALANCED
    found = {}
    for text in texts:
        label, _, weight = text.rpartition("=")  # a label may hold the sign too
        try:
            number = float(weight)
        except ValueError:
            number = None
        if not label or number is None or label in found:
            raise OptionError(
                f"--class-weight {text} is no weight of a label. Write --class-weight balanced, or once for each label "
                "--class-weight LABEL=WEIGHT, as in --class-weight yes=3."
            )
        found[label] = number
    return found


def rows_of(model: Any, data: str, flags: Any, kept: Sequence[str] = ()) -> Any:
    """The rows of a file as a frame, its text columns as the model had them. Columns that are ``kept`` and that the model does not
    use stay as they are written, so that an id 007 does not become 7."""
    from autocross.table.ingest import unlabelled

    return unlabelled(data, model.producer.encoder.schema, options_of(flags), kept)


def deliver(frame: Any, path: Path | None) -> None:
    """Write a frame to a file, or as CSV to stdout, in UTF-8 in both cases."""
    from autocross.table.files import write

    if path is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(frame.write_csv().encode())
    else:
        finish()
        write(frame, path)
