"""Every option of a fit: one list for the estimators, the command line and docs/options.md."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field as DataField
from dataclasses import dataclass, field, fields
from inspect import cleandoc
from numbers import Real
from typing import Any, Literal, get_args, get_type_hints

from autocross.checks import shown
from autocross.errors import OptionError

EngineName = Literal["serial", "threads", "ray"]
Metric = Literal["auc", "log_loss", "accuracy"]
Bins = Literal["auto", "width", "quantile"]
PenaltyMode = Literal["field", "shared"]
Evaluation = Literal["auto", "holdout", "kfold"]
Halving = Literal["auto", "paper"]
Split = Literal["auto", "random", "time", "group", "forward"]
Size = Literal["auto", "small"]
Direction = Literal["increasing", "decreasing"]
BALANCED = "balanced"  # class_weight by which both labels count the same in all
SIZES = (0, 5, 10, 20)  # how many crosses the smaller models have that a fit leaves in memory
SEPARATORS = (",", ";", "\t", "|")
DECIMALS = (".", ",")

# Bounds that no sensible value comes near. A number beyond them is a typing error, which would fail late and obscurely.
MOST_JOBS = 1024  # threads or workers; an engine starts that many, on whatever machine it runs
MANY = 1_000_000  # crosses, columns of a cross, bins: each takes memory
MOST_ROWS = 10**12
MOST_SECONDS = 10**9  # 30 years
GRACE = 1.0  # seconds that are added to every time limit; otherwise a short one would leave nothing to learn from
MOST_CLASS_WEIGHT = 10**9
MOST_GIB = 2**20  # a pebibyte
LARGEST_SEED = 2**63 - 1  # PyTorch takes 64 bits, and numbers are added to the seed for folds of later rounds

# What a mapping takes: how the message goes on that refuses anything else.
EXAMPLES = {"types": "kinds, as in {'zip': 'categorical'}", "monotone": "directions, as in {'age': 'increasing'}"}


def option(
    default: Any, help: str, *, at_least: float | None = None, at_most: float | None = None, one_of: Sequence[str] = ()
) -> Any:
    """A field of `Options` with its help text. A number has two bounds; an option of few texts has the list of them."""
    assert (at_least is None) == (at_most is None)
    return field(default=default, metadata={"help": help, "at_least": at_least, "at_most": at_most, "one_of": one_of})


@dataclass(kw_only=True, eq=False, repr=False)
class OptionList:
    """What a user may set; few ever need to. None leaves the choice to a rule, and `autocross show` prints what it chose.

    The estimators inherit from this list, so that their constructors take every option by name and store it as it is.
    """

    types: Mapping[str, str] | None = option(
        None,
        "Kinds of columns for which the inferred kind is wrong: categorical, numerical, time, ignore, "
        "or multivalue (for text with its separator, as in multivalue:|).",
    )
    exclude: Sequence[str] | None = option(None, "Columns to leave out altogether.")
    positive: Any = option(None, "The label that counts as yes. The default is the larger of the two.")
    metric: Metric = option("auc", "The score that is reported, and that must not fall when a cross is accepted.")
    class_weight: str | Mapping[Any, float] | None = option(
        None,
        "How much rows of each label count, times their sample weights: a mapping of labels to weights, or balanced, by which both "
        "labels count the same in all. Probabilities then are those of such rows.",
    )
    max_crosses: int | None = option(None, "Stop after this many crosses. 0 gives LR (base).", at_least=0, at_most=MANY)
    size: Size = option(
        "auto",
        "How many crosses stay in the model. auto: all but those that cost nothing to leave out. small: the fewest that keep nine "
        "tenths of what all of them gain, and at most 20.",
    )
    max_order: int | None = option(None, "Longest cross, counted in columns.", at_least=2, at_most=MANY)
    max_values: int | None = option(
        None,
        "Propose no cross of more values than this: the product of the numbers of values, or bins, that its columns have.",
        at_least=1,
        at_most=MOST_ROWS,
    )
    monotone: Mapping[str, str] | None = option(
        None,
        "Numerical columns along which the probability of the positive label never falls (increasing) or never rises (decreasing), "
        "all else equal, as in {'age': 'increasing'}. Missing values are outside the order.",
    )
    include: Sequence[str | Sequence[str]] | None = option(
        None,
        "Crosses that must be in the model, as in [('job', 'education')] or ['job & education']. They enter before the search, "
        "are never taken out, and count in max_crosses.",
    )
    forbid: Sequence[str | Sequence[str]] | None = option(
        None,
        "Columns that may stand alone but in no cross, and columns that never meet in one cross, as in ['gender', ('age', 'zip')] "
        "or ['gender', 'age & zip']. The same holds for statistics.",
    )
    beam_width: int = option(1, "How many sets of crosses are followed side by side.", at_least=1, at_most=MANY)
    time_limit: float | None = option(
        None,
        "Seconds from the call of fit to its return. If that is too short to read the whole table, the model learns from fewer "
        "columns or rows, and a warning says so.",
        at_least=0,
        at_most=MOST_SECONDS,
    )
    halving: Halving = option(
        "auto",
        "How candidates compete on more and more rows. auto: in the loss, and the first rung has a minimum of rows. paper: exactly "
        "as in the paper, in the metric, and the best candidate is accepted if it raises the metric.",
    )
    granularities: Sequence[int] | None = option(
        None, "Numbers of bins for numerical columns. The default is powers of ten, up to a limit that grows with the rows."
    )
    bins: Bins = option("auto", "Bins of equal width, of equal counts (quantile), or both in competition (auto).")
    min_count: int | None = option(
        None, "A value seen in fewer training rows than this shares the code of rare values.", at_least=1, at_most=MOST_ROWS
    )
    penalty: PenaltyMode = option("field", "Whether each field has its own penalty, or all fields share one.")
    evaluation: Evaluation = option("auto", "Whether models are judged by one holdout of a fifth of the rows, or by five folds.")
    split: Split = option(
        "auto",
        "How the rows that judge are chosen: at random, by time (whole periods), by group, or forward: each period is judged by a "
        "model of earlier rows only, as for predicting the future.",
    )
    time: str | None = option(None, "Column that says when a row happened. Folds are then whole periods.")
    groups: str | None = option(None, "Column that says which rows belong together. Folds are then whole groups.")
    engine: EngineName = option(
        "threads",
        "Where the work runs: in one thread, in threads, or on the machines of a Ray cluster. The result is the same, to the bit.",
    )
    address: str | None = option(
        None, "Address of the Ray cluster, or auto for the one this machine belongs to. By default one is started here for the fit."
    )
    n_jobs: int | None = option(
        None,
        "Number of threads; None or -1 means one for each core. On Ray, the number of workers with one core each; by default each "
        "machine has one worker.",
        at_least=-1,
        at_most=MOST_JOBS,
    )
    random_state: int | None = option(
        None, "Seed of the shuffle and of the folds. None means 0, so that a fit can be repeated.", at_least=0, at_most=LARGEST_SEED
    )
    memory_limit: float | None = option(
        None,
        "GiB of memory that a fit may use. The default is half of the machine's memory. Files that would fill a quarter of "
        "the limit are read part by part.",
        at_least=0.25,
        at_most=MOST_GIB,
    )
    separator: str | None = option(
        None,
        "The separator between cells of a CSV file: a comma, a semicolon, a tab or a bar (|). By default it is found by rule.",
        one_of=SEPARATORS,
    )
    decimal: str | None = option(
        None, "The decimal point of a CSV file: a point or a comma. By default it is found by rule.", one_of=DECIMALS
    )
    checkpoint: str | None = option(
        None, "Folder in which every finished round of the search is kept, so that the fit can be resumed."
    )
    resume: str | None = option(
        None, "Folder of the checkpoint of an interrupted fit to the same rows, which then goes on from there."
    )
    private: bool = option(
        False,
        "Keep no value of a category in the model: the file and all output have salted hashes instead. Edges of bins, parts of the "
        "calendar and the two labels are kept. This hides values from people who read the file, but not from people who guess "
        "them.",
    )
    quiet: bool = option(False, "Show no progress.")
    journal: str | None = option(None, "File to which every event of the fit is appended, as one JSON object per line.")


@dataclass(kw_only=True, eq=False, repr=False)
class DeepOptionList(OptionList):
    """What a user of `WideDeepClassifier` may set: these options, and those of every fit."""

    epochs: int = option(
        20,
        "Largest number of passes over the rows for each network of the deep part. There are fewer if the loss on rows left out no "
        "longer falls. 0 gives the regression alone.",
        at_least=0,
        at_most=MANY,
    )


class Checked:
    """Options that are checked when they are made and do not change afterwards.

    They cannot be frozen dataclasses: these cannot inherit from the option lists, which estimators must be able to change.
    """

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for entry in fields(self):  # type: ignore[arg-type]
            check(entry, hints[entry.name], getattr(self, entry.name))
        self.check_together()
        self.__dict__["checked"] = True

    def check_together(self) -> None:
        """Refuse values that contradict each other."""

    def __setattr__(self, name: str, value: Any) -> None:
        if "checked" in self.__dict__:
            raise AttributeError(f"{type(self).__name__} cannot be changed. Make new ones with another {name}.")
        super().__setattr__(name, value)


@dataclass(kw_only=True)
class Options(Checked, OptionList):
    """The options of one fit."""

    def check_together(self) -> None:
        for granularity in () if self.granularities is None else self.granularities:
            if not is_whole(granularity) or not 2 <= granularity <= MANY:
                raise OptionError(f"Option granularities holds {shown(granularity)}. Give whole numbers of bins from 2 to {MANY}.")
        if self.exclude is not None and "" in list(self.exclude):
            raise OptionError("Option exclude holds ''. Give names of columns; a column without a name must be renamed.")
        check_directions(self.monotone or {})
        for name in ("include", "forbid"):
            check_crosses(name, () if getattr(self, name) is None else getattr(self, name))
        if self.size == "small" and self.halving == "paper":
            raise OptionError(
                "Option size='small' is not for halving='paper', which takes no cross out again. Use max_crosses=20 instead."
            )
        if self.n_jobs == 0:
            raise OptionError("Option n_jobs=0 leaves nobody to work. Give a number of threads, or -1 for one for each core.")
        if self.address is not None and self.engine != "ray":
            raise OptionError(
                f"Option address={self.address!r} is for engine='ray', but engine={self.engine!r}. Give both, or neither."
            )
        if self.split == "group" and self.groups is None:
            raise OptionError("Option split='group' needs groups=, the name of the column that holds the group.")


@dataclass(kw_only=True)
class DeepOptions(Options, DeepOptionList):
    """The options of one fit of Wide & Deep."""


def check(entry: DataField[Any], hint: Any, value: Any) -> None:
    """Refuse a value that is not among the choices, not within the bounds, or of the wrong type."""
    name, kinds = entry.name, get_args(hint) or (hint,)
    if name == "positive" or (value is None and entry.default is None):
        return
    if name == "class_weight":
        check_class_weight(value)
    elif all(isinstance(choice, str) for choice in kinds):
        if value not in kinds:
            raise OptionError(f"Option {name}={shown(value)} is unknown. Choose one of: {', '.join(kinds)}.")
    elif entry.metadata["at_least"] is not None:
        check_number(entry, float in kinds, value)
    elif entry.metadata["one_of"]:
        if value not in entry.metadata["one_of"]:
            signs = ", ".join(map(repr, entry.metadata["one_of"]))
            raise OptionError(f"Option {name}={shown(value)} is unknown. Choose one of: {signs}, or leave it out.")
    elif str in kinds:
        if not isinstance(value, (str, os.PathLike)):
            raise OptionError(f"Option {name}={shown(value)} is no text. Give a text, or leave it out.")
        if not os.fspath(value):
            raise OptionError(f"Option {name}={shown(value)} is empty. Give a text, or leave it out.")
        if "\0" in os.fspath(value):
            raise OptionError(f"Option {name}={shown(value)} holds a zero byte. Give a text without, or leave it out.")
    elif bool in kinds:
        if not is_truth(value):
            raise OptionError(f"Option {name}={shown(value)} is neither True nor False. Give one of the two.")
    elif name in ("exclude", "granularities", "include", "forbid"):
        if isinstance(value, str):
            raise OptionError(f"Option {name}={shown(value)} is one text. Give a list, as in [{shown(value)}].")
        if not isinstance(value, Iterable):
            raise OptionError(f"Option {name}={shown(value)} is no list. Give one, as in [{shown(value)}].")
    elif name in EXAMPLES and not isinstance(value, Mapping):
        raise OptionError(f"Option {name}={shown(value)} is not a mapping. Give column names and {EXAMPLES[name]}.")


def check_directions(monotone: Mapping[str, str]) -> None:
    """Refuse a direction that does not exist."""
    for column, direction in monotone.items():
        if not isinstance(column, str) or not column:
            raise OptionError(f"Option monotone names {shown(column)}. Give names of columns.")
        if not isinstance(direction, str) or direction not in get_args(Direction):
            ways = " or ".join(get_args(Direction))
            raise OptionError(f"Option monotone says {shown(direction)} of column {column!r}. Choose {ways}.")


def check_crosses(name: str, entries: Iterable[Any]) -> None:
    """Refuse what is neither a text nor a group of different columns. Whether the table has the columns is seen later."""
    for entry in entries:
        columns = [entry] if isinstance(entry, str) else list(entry) if isinstance(entry, Iterable) else [None]
        if not columns or not all(isinstance(column, str) and column for column in columns):
            example = "('job', 'education') or 'job & education'"
            raise OptionError(f"Option {name} holds {shown(entry)}. Give columns by their names, as in {example}.")
        if len({*columns}) < len(columns):
            raise OptionError(f"Option {name} holds {shown(entry)}, which names a column twice. Name each column once.")


def check_class_weight(value: Any) -> None:
    """Refuse what is neither balanced nor a mapping of labels to weights above 0."""
    if not isinstance(value, Mapping) and not (isinstance(value, str) and value == BALANCED):
        raise OptionError(
            f"Option class_weight={shown(value)} is unknown. Give {BALANCED!r}, or labels and weights, as in {{'yes': 3}}."
        )
    for label, weight in value.items() if isinstance(value, Mapping) else ():
        is_number = isinstance(weight, Real) and not is_truth(weight)
        if not is_number or not weight <= MOST_CLASS_WEIGHT or weight < 1 / MOST_CLASS_WEIGHT:
            raise OptionError(
                f"Option class_weight gives the label {shown(label)} the weight {shown(weight)}. Give a number above 0, up to "
                f"{MOST_CLASS_WEIGHT:,}."
            )


def check_number(entry: DataField[Any], fractions: bool, value: Any) -> None:
    """Refuse what is not a number, or out of bounds. NaN is always out of bounds."""
    if not is_whole(value) and not (fractions and isinstance(value, float)):
        raise OptionError(f"Option {entry.name}={shown(value)} is not a {'' if fractions else 'whole '}number. Give one.")
    low, high = entry.metadata["at_least"], entry.metadata["at_most"]
    if not low <= value <= high:
        bounds = f"at least {low}" if value < low else f"between {low} and {high}"
        otherwise = ", or leave it out" if entry.default is None else ""
        raise OptionError(f"Option {entry.name}={shown(value)} is out of range. Give a number {bounds}{otherwise}.")


def is_truth(value: Any) -> bool:
    """Whether this is true or false, NumPy's included."""
    return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")


def is_whole(value: Any) -> bool:
    """Whether this is a whole number, NumPy's included."""
    return hasattr(value, "__index__") and not isinstance(value, bool)


def values_of(options: OptionList) -> dict[str, Any]:
    """All options of an estimator or of a fit, by name."""
    return {entry.name: getattr(options, entry.name) for entry in fields(options)}


def documented(text: str | None, options: type, attributes: Mapping[str, str]) -> str:
    """A docstring in the form that numpydoc reads: the text, every option, and what a fit leaves behind."""
    lines = [cleandoc(text or ""), "", "Parameters", "----------"]
    for entry in fields(options):
        lines += [f"{entry.name} : {entry.type}, default {entry.default!r}", f"    {entry.metadata['help']}"]
    lines += ["", "Attributes", "----------"]
    for name, meaning in attributes.items():
        lines += [name, f"    {meaning}"]
    return "\n".join([*lines, ""])


def all_options() -> tuple[DataField[Any], ...]:
    """The options of every fit, in the order in which help and documentation list them."""
    return fields(OptionList)


def deep_options() -> tuple[DataField[Any], ...]:
    """Those that only Wide & Deep has."""
    general = {entry.name for entry in all_options()}
    return tuple(entry for entry in fields(DeepOptionList) if entry.name not in general)
