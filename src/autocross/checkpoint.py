"""A search that can go on where it was left: every finished round in a file.

Kept are weights, penalties and crosses, not rows: these are read again, and must be the same. Odds follow from weights, so a
search that goes on finds what one without a break would have found, to the bit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.blocks import INTERCEPT, Cross
from autocross.crossing import CrossCoder
from autocross.engines import Engine
from autocross.errors import FileError, OptionError
from autocross.features import Field
from autocross.models.logistic import Penalty, Regression, Term
from autocross.options import Options
from autocross.producer.model import Rule
from autocross.search.loop import Accepted, State
from autocross.table.atomic import replace_file

FILE = "search.npz"
FORMAT = 2
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Checkpoint:
    """All that a search needs to go on: the fields it was left with, the sets it follows, and what it knows of candidates."""

    kept: list[int]
    beam: list[State]
    last: dict[Cross, float]
    in_vain: set[Cross]
    rules: list[Rule]
    history: list[dict[str, Any]]
    seconds: float


# Writing.


def prepare(options: Options) -> None:
    """Complain about a folder that cannot be used before the work, not after it."""
    if (folder := folder_of(options)) is not None:
        make_folder(folder)
        try:
            with TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise unusable(folder, error.strerror) from error
        if (folder / FILE).is_dir():
            raise unusable(folder, f"{FILE!r} in it is no file")
    if options.resume is not None:
        find(Path(options.resume))


def folder_of(options: Options) -> Path | None:
    """Where every finished round is kept; a fit that was resumed is kept where it was, unless another folder is named."""
    given = options.checkpoint if options.checkpoint is not None else options.resume
    return None if given is None else Path(given)


def make_folder(folder: Path) -> None:
    """Make the folder if it is not there, or no longer."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise unusable(folder, error.strerror if isinstance(error, OSError) else error) from error


def unusable(folder: Path, why: object) -> FileError:
    return FileError(f"Cannot keep checkpoints in {str(folder)!r}: {why}. Give another folder.")


def save(folder: Path, found: Checkpoint, same: Mapping[str, Any]) -> None:
    """Keep the search as it is now; the old file stays until the new one is complete."""
    arrays: Arrays = {}
    facts = {
        "format": FORMAT,
        "same": same,
        "kept": found.kept,
        "beam": [state_facts(state, f"{at}", arrays) for at, state in enumerate(found.beam)],
        "last": [[list(cross), gain] for cross, gain in found.last.items()],
        "in_vain": [list(cross) for cross in found.in_vain],
        "rules": [asdict(rule) for rule in found.rules],
        "history": found.history,
        "seconds": found.seconds,
    }
    arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    make_folder(folder)
    replace_file(folder / FILE, lambda stream: np.savez(stream, **arrays))  # type: ignore[arg-type]


def state_facts(state: State, at: str, arrays: Arrays) -> dict[str, Any]:
    """A set of the beam; its arrays are put among the others."""
    terms = []
    for number, (cross, term) in enumerate(state.regression.terms.items()):
        arrays[f"{at}.weight.{number}"], arrays[f"{at}.tied.{number}"] = term.weight, term.tied
        terms.append([list(cross), asdict(term.penalty)])
    accepted = []
    for number, one in enumerate(state.accepted):
        coder = one.coder
        arrays[f"{at}.values.{number}"] = coder.values
        numbers = [one.gain, one.error, one.seconds, one.score, one.n_collisions]
        accepted.append([list(coder.fields), list(coder.sizes), coder.n_buckets, coder.width, asdict(one.penalty), numbers])
    regression = state.regression
    facts = {"round": state.round, "score": state.score, "loss": state.loss, "terms": terms, "accepted": accepted}
    return {**facts, "n_models": regression.n_models, "min_count": regression.min_count}


# Reading.


def find(folder: Path) -> Path:
    """The file of the checkpoint in a folder."""
    path = folder / FILE
    if not path.is_file():
        raise FileError(f"There is no checkpoint in {str(folder)!r}. Give the folder that checkpoint= named, or leave resume out.")
    return path


def load(folder: Path, same: Mapping[str, Any], engine: Engine, all_fields: Sequence[Field], total_weight: float) -> Checkpoint:
    """A search as it was left. The rows that the engine has, and the options, must be those it was left with."""
    path = find(folder)
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        facts = json.loads(arrays["facts"].tobytes())
    except Exception as error:
        raise FileError(f"Cannot read the checkpoint {str(path)!r}: {error}. It is damaged; fit anew without resume.") from error
    if facts["format"] != FORMAT:
        raise FileError(f"The checkpoint {str(path)!r} has format {facts['format']}, and this version reads {FORMAT}. Fit anew.")
    check_same(path, facts["same"], same)
    known = [all_fields[at] for at in facts["kept"]]
    return Checkpoint(
        facts["kept"],
        [state_of(one, f"{at}", arrays, engine, known, total_weight) for at, one in enumerate(facts["beam"])],
        {tuple(cross): gain for cross, gain in facts["last"]},
        {tuple(cross) for cross in facts["in_vain"]},
        [Rule(**rule) for rule in facts["rules"]],
        facts["history"],
        facts["seconds"],
    )


def check_same(path: Path, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on with something else."""
    for name, value in now["options"].items():
        if then["options"].get(name) != value:
            raise OptionError(
                f"Option {name}={value!r} differs from the {then['options'].get(name)!r} of the checkpoint {str(path)!r}. "
                "Resume with the options of the fit that was interrupted."
            )
    for what in {**now["rows"], **then["rows"]}:
        if then["rows"].get(what) != now["rows"].get(what):
            raise FileError(
                f"The checkpoint {str(path)!r} is of other rows than these: {what} differ. "
                "Resume with the rows of the fit that was interrupted."
            )


def state_of(
    facts: Mapping[str, Any], at: str, arrays: Arrays, engine: Engine, known: Sequence[Field], total_weight: float
) -> State:
    """A set of the beam."""
    accepted = []
    for number, (parts, sizes, n_buckets, width, penalty, numbers) in enumerate(facts["accepted"]):
        coder = CrossCoder(tuple(parts), tuple(sizes), arrays[f"{at}.values.{number}"], n_buckets, width)
        accepted.append(Accepted(coder, Penalty(**penalty), *numbers))
    regression = Regression(engine, total_weight, facts["n_models"], min_count=facts["min_count"])
    of_cross = {one.coder.fields: one.coder.field([known[part] for part in one.coder.fields]) for one in accepted}
    for number, (parts, penalty) in enumerate(facts["terms"]):
        cross = tuple(parts)
        field = regression.terms[INTERCEPT].field if cross == INTERCEPT else of_cross.get(cross) or known[cross[0]]
        weight, tied = arrays[f"{at}.weight.{number}"], arrays[f"{at}.tied.{number}"]
        regression.terms[cross] = Term(field, Penalty(**penalty), weight, tied)
    return State(tuple(accepted), regression, facts["round"], facts["score"], facts["loss"])
