"""Keeps every finished round of a search in a file, so that the search can be resumed.

The file has weights, penalties and crosses, but no rows: the rows are read again and must be the same. Odds are computed from the
weights, so a resumed search finds exactly what a search without a break would have found, to the bit.

The content of a file is checked before it is used: each fact against the others, and against the fit that is to be resumed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross import fingerprint
from autocross.blocks import INTERCEPT, Cross
from autocross.checks import expect_room, require
from autocross.crossing import MOST_ENTRIES, CrossCoder
from autocross.encoding.encoder import Encoder
from autocross.engines import Engine
from autocross.errors import BundleError, FileError, OptionError
from autocross.features import CAP, FIRST, RARE, Field, Penalty, hash_bits
from autocross.kernels.steps import FARTHEST
from autocross.models import monotone
from autocross.models.logistic import UNPENALISED, Regression, Term
from autocross.models.losses import Loss
from autocross.options import Options
from autocross.producer import bundle, store
from autocross.producer.model import Rule
from autocross.producer.store import Stored
from autocross.producer.unpacking import unpack_cross
from autocross.search.judging import Accepted
from autocross.search.loop import State
from autocross.search.policy import policy_of

FILE = "search.safetensors"
KEY = "autocross checkpoint"
FORMAT = 2
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Setting:
    """What a fit knows before its search begins. ``encoder`` has all fields, of which the search keeps some."""

    options: Options
    engine: Engine
    encoder: Encoder
    n_rows: int
    total_weight: float
    n_models: int
    min_count: int
    loss: Loss


@dataclass(frozen=True)
class Checkpoint:
    """Everything that a search needs to go on: the fields it kept, the sets it follows, and what it knows about candidates.

    ``rules`` has the rules that were applied since the rows were read. ``score`` is the score of the set without crosses, which was
    found after ``scored_after`` seconds. ``seconds`` is how long the fit has taken so far.
    """

    kept: list[int]
    beam: list[State]
    last: dict[Cross, float]
    in_vain: set[Cross]
    rules: list[Rule]
    score: float
    scored_after: float
    seconds: float


def file_of(options: Options) -> Path | None:
    """The file in which a fit keeps its rounds, if it does."""
    folder = folder_of(options)
    return None if folder is None else folder / FILE


# Folders.


def prepare(options: Options) -> None:
    """Refuse a folder that cannot be used, before the work begins."""
    if options.resume is not None:
        with opened(Path(options.resume)) as (path, stored):
            check_options(path, stored.facts["same"]["options"], fingerprint.of_options(options))
    if (folder := folder_of(options)) is not None:
        make_folder(folder)
        try:
            with TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise unusable(folder, error.strerror) from error
        if (folder / FILE).is_dir():
            raise unusable(folder, f"{FILE!r} in it is no file")


def folder_of(options: Options) -> Path | None:
    """The folder in which rounds are kept. A resumed fit uses its former folder, unless another one is named."""
    path = options.checkpoint if options.checkpoint is not None else options.resume
    return None if path is None else Path(path)


def make_folder(folder: Path) -> None:
    """Make the folder, if it does not exist or has been removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise unusable(folder, error.strerror if isinstance(error, OSError) else error) from error


def unusable(folder: Path, why: object) -> FileError:
    return FileError(f"Cannot keep checkpoints in {str(folder)!r}: {why}. Give another folder.")


# Writing.


def save(folder: Path, search: Checkpoint, same: Mapping[str, Any]) -> None:
    """Write the present state of the search. The old file stays until the new one is complete."""
    arrays: Arrays = {}
    coders = {accepted.coder.fields: accepted.coder for state in search.beam for accepted in state.accepted}
    numbers = {cross: number for number, cross in enumerate(coders)}
    facts = {
        "format": FORMAT,
        "same": same,
        "kept": search.kept,
        "round": search.beam[0].round,
        "crosses": [bundle.pack_cross(number, coder, arrays) for number, coder in enumerate(coders.values())],
        "beam": [pack_state(number, state, numbers, arrays) for number, state in enumerate(search.beam)],
        "last": [[list(cross), gain] for cross, gain in sorted(search.last.items())],
        "in_vain": [list(cross) for cross in sorted(search.in_vain)],
        "rules": [asdict(rule) for rule in search.rules],
        "score": search.score,
        "scored_after": search.scored_after,
        "seconds": search.seconds,
    }
    make_folder(folder)
    store.write(folder / FILE, KEY, facts, arrays)


def pack_state(number: int, state: State, cross_numbers: Mapping[Cross, int], arrays: Arrays) -> dict[str, Any]:
    """A set of the beam. Its terms are the intercept, the fields that were kept, and its crosses, in this order."""
    terms = state.regression.terms.values()
    for place, term in enumerate(terms):
        arrays[f"weight.{number}.{place}"], arrays[f"tied.{number}.{place}"] = term.weight, term.tied.view(np.uint8)
    return {
        "loss": state.loss if state.round else None,
        "penalties": [astuple(term.penalty) for term in terms],
        "accepted": [pack_accepted(accepted, cross_numbers) for accepted in state.accepted],
    }


def pack_accepted(accepted: Accepted, cross_numbers: Mapping[Cross, int]) -> dict[str, Any]:
    """A cross of a set, and what it gained."""
    numbers = {name: getattr(accepted, name) for name in ("gain", "error", "seconds", "score", "n_collisions")}
    return {"cross": cross_numbers[accepted.coder.fields], "penalty": astuple(accepted.penalty), **numbers}


# Reading.


@contextmanager
def opened(folder: Path) -> Iterator[tuple[Path, Stored]]:
    """Open the checkpoint of a folder. Anything wrong with it raises a FileError, whether it is found here or by the caller."""
    path = folder / FILE
    if not os.path.isfile(path):
        raise FileError(
            f"There is no checkpoint in {str(folder)!r}: no round of a search was kept there. "
            "Give the folder that checkpoint= named, or leave resume out."
        )
    try:
        with store.opened(path, KEY, "checkpoint") as stored:
            written = stored.facts["format"]
            require(isinstance(written, int), "it has no format number")
            if written != FORMAT:
                raise FileError(f"The checkpoint {str(path)!r} has format {written}, and this version reads {FORMAT}. Fit anew.")
            yield path, stored
    except BundleError as error:
        raise FileError(f"Cannot read the checkpoint {str(path)!r}: {error} Or fit anew, without resume.") from error


def load(folder: Path, same: Mapping[str, Any], setting: Setting) -> Checkpoint:
    """The search in the state in which it was left. The rows in the engine, and the options, must be the same as then."""
    with opened(folder) as (path, stored):
        then = stored.facts["same"]
        check_options(path, then["options"], same["options"])
        check_rows(path, then["rows"], same["rows"])
        return Unpacking(stored, setting).checkpoint()


def check_options(path: Path, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on under other options."""
    for name, value in now.items():
        if then.get(name) != value:
            raise OptionError(
                f"Option {name}={value!r} differs from the {then.get(name)!r} of the checkpoint {str(path)!r}. "
                "Resume with the options of the fit that was interrupted."
            )


def check_rows(path: Path, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on with other rows."""
    for fact in {**now, **then}:
        if then.get(fact) != now.get(fact):
            raise FileError(
                f"The checkpoint {str(path)!r} is of other rows than these: {fact} differ. "
                "Resume with the rows of the fit that was interrupted."
            )


class Unpacking:
    """Facts and arrays -> the search, each part checked."""

    def __init__(self, stored: Stored, setting: Setting) -> None:
        self.stored, self.setting, self.options = stored, setting, setting.options
        self.kept = self.fields_kept(stored.facts["kept"])
        self.encoder = setting.encoder.keep(self.kept)
        self.coders = [self.coder(number, entry) for number, entry in enumerate(stored.facts["crosses"])]
        require(len({coder.fields for coder in self.coders}) == len(self.coders), "it has a cross twice")

    def checkpoint(self) -> Checkpoint:
        """All of it."""
        facts = self.stored.facts
        round = whole(facts["round"], "round", len(self.coders))
        beam = [self.state(number, entry, round) for number, entry in enumerate(facts["beam"])]
        require(1 <= len(beam) <= (self.options.beam_width if round else 1), "it follows an impossible number of sets")
        n_arrays = len(self.coders) + 2 * sum(len(state.regression.terms) for state in beam)
        require(len(self.stored.checksums) == n_arrays, "it has arrays that belong to nothing")
        undefined = policy_of(self.options).compete_in is None  # in the metric, which few rows may leave undefined
        crosses = in_order([cross for cross, _ in facts["last"]])
        gains = [finite(gain, "gain", undefined=undefined) for _, gain in facts["last"]]
        last = dict(zip(map(self.cross, crosses), gains, strict=True))
        in_vain = {self.cross(cross) for cross in in_order(facts["in_vain"])}
        rules = [Rule(*(text(entry[name]) for name in ("name", "value", "why"))) for entry in facts["rules"]]
        scored_after, seconds = (finite(facts[name], "number of seconds", least=0.0) for name in ("scored_after", "seconds"))
        return Checkpoint(self.kept, beam, last, in_vain, rules, self.score(facts["score"]), scored_after, seconds)

    def fields_kept(self, kept: Any) -> list[int]:
        """The fields that were kept: some of each column with several granularities, and all of the other columns."""
        encoder = self.setting.encoder
        numbers = [whole(field, "field", len(encoder.fields) - 1) for field in in_order(kept)]
        may_go = {field for stem in encoder.stems for field in stem.tables}
        require({*range(len(encoder.fields))} - may_go <= {*numbers}, "it keeps too few fields")
        columns = {encoder.fields[field].column for field in numbers}
        require(len(columns) == len(encoder.columns), "it has a column without a field")
        return numbers

    def coder(self, number: int, entry: Any) -> CrossCoder:
        """The codes of a cross. It cannot have more values than all rows together have entries."""
        name, parts = f"cross.{number}", [self.encoder.fields[part] for part in self.cross(entry["fields"])]
        n_rows, shape = self.setting.n_rows, self.stored.shape(name)
        # A cross that is monotone along a number has a code for every bin, seen or not.
        most = CAP if any(part.direction for part in parts) else min(CAP, n_rows * MOST_ENTRIES)
        fits = len(shape) == 2 and shape[0] <= most and shape[1] == len(parts)
        require(fits, f"cross {number} has no proper values")
        expect_room(entry, shape[0], f"cross {number}")
        coder = unpack_cross(number, entry, self.encoder, self.stored.array(name, np.uint32, shape))
        hashed = 1 << hash_bits(n_rows) if shape[0] == CAP else 0
        require(coder.n_buckets in (0, hashed), f"cross {number} has no proper number of buckets")
        widest = min(math.prod(part.width for part in parts), MOST_ENTRIES)
        require(min(widest, 2) <= coder.width <= widest, f"cross {number} has no proper width")
        return coder

    def state(self, number: int, entry: Any, round: int) -> State:
        """A set of the beam, with a regression on the blocks of the engine."""
        setting, base = self.setting, self.encoder.fields
        accepted = tuple(self.accepted(cross) for cross in entry["accepted"])
        coders = {cross.coder.fields: cross.coder for cross in accepted}
        require(len(coders) == len(accepted), "it has a set with a cross twice")
        require(min(len(coders), 1) <= round <= len(coders), "it has a set with too few crosses or too many")
        regression = Regression.begin(
            setting.engine, setting.total_weight, setting.n_models, min_count=setting.min_count, loss=setting.loss
        )
        setting.engine.odds_of = None  # the search computes the odds from the weights when it goes on
        fields: dict[Cross, Field] = {INTERCEPT: regression.terms[INTERCEPT].field}
        fields |= {(place,): field for place, field in enumerate(base)}
        fields |= {cross: coder.field([base[part] for part in cross]) for cross, coder in coders.items()}
        of_intercept, *others = entry["penalties"]
        penalties = [self.penalty(strengths) for strengths in others]
        require(tuple(of_intercept) == astuple(UNPENALISED), "it has a penalty of the intercept")
        require(self.options.penalty != "shared" or len({*penalties}) == 1, "it has several penalties, though one is shared")
        farthest = 2 * FARTHEST * len(fields)  # the farthest that all fields together could move a weight
        for place, ((cross, field), penalty) in enumerate(zip(fields.items(), [UNPENALISED, *penalties], strict=True)):
            regression.terms[cross] = self.term(f"{number}.{place}", field, penalty, farthest)
        require(round > 0 or entry["loss"] is None, "it has a loss before there is one")
        loss = finite(entry["loss"], "loss", least=0.0) if round else math.inf
        return State(accepted, regression, round, accepted[-1].score if accepted else -math.inf, loss)

    def term(self, place: str, field: Field, penalty: Penalty, farthest: float) -> Term:
        """One term of a set. Tied codes have the weight of the rare code."""
        shape, name = (field.n_codes, self.setting.n_models), f"field {field.name!r}"
        weight = self.stored.array(f"weight.{place}", np.float64, shape)
        tied = self.stored.array(f"tied.{place}", np.uint8, shape)
        require(bool((np.abs(weight) <= farthest).all()), f"{name} has a weight that is no number, or too large")
        require(bool((tied <= 1).all()), f"{name} has codes that are neither tied nor free")
        may_be_tied = (field.shares_rare and self.setting.min_count > 1) or field.direction
        require(not tied[: FIRST if may_be_tied else None].any(), f"{name} ties codes that are free")
        rare = monotone.wholly_tied(field, tied) if field.direction else tied == 1
        require(not rare.any() or bool((weight == weight[RARE])[rare].all()), f"{name} ties codes of several weights")
        return Term(field, penalty, weight, tied.view(np.bool_))

    def accepted(self, entry: Any) -> Accepted:
        """A cross of a set, and what it gained."""
        coder = self.coders[whole(entry["cross"], "cross", len(self.coders) - 1)]
        return Accepted(
            coder,
            self.penalty(entry["penalty"]),
            finite(entry["gain"], "gain"),
            finite(entry["error"], "standard error", least=0.0),
            finite(entry["seconds"], "number of seconds", least=0.0),
            self.score(entry["score"]),
            whole(entry["n_collisions"], "number of collisions", self.setting.n_rows * MOST_ENTRIES if coder.n_buckets else 0),
        )

    def penalty(self, strengths: Any) -> Penalty:
        """The penalty of a field; those chosen field by field have no l1."""
        l1, l2, smooth, slope = (finite(value, "penalty", least=0.0) for value in strengths)
        require(l2 > 0.0 and (l1 == 0.0 or self.options.penalty == "shared"), "it has an impossible penalty")
        return Penalty(l1, l2, smooth, slope)

    def cross(self, parts: Any) -> Cross:
        """The fields of a cross."""
        cross = tuple(whole(field, "field", len(self.encoder.fields) - 1) for field in in_order(parts))
        require(len(cross) >= 2, "it has a cross of one field")
        return cross

    def score(self, score: Any) -> float:
        """A score. It may be NaN, because AUC is undefined if all rows that judge are of one class."""
        return finite(score, "score", undefined=self.options.metric == "auc")


def in_order(entries: Any) -> list[Any]:
    """Entries that must be in ascending order, without repetition."""
    require(isinstance(entries, list), "it has no list where one should be")
    require(all(former < latter for former, latter in pairwise(entries)), "it has fields or candidates out of order")
    return list(entries)


def whole(value: Any, name: str, most: int) -> int:
    require(type(value) is int and 0 <= value <= most, f"it has a {name} out of range")
    return int(value)


def finite(value: Any, name: str, *, least: float = -math.inf, undefined: bool = False) -> float:
    fits = type(value) in (int, float) and (undefined if value != value else math.isfinite(value) and value >= least)
    require(fits, f"it has a {name} that is no number, or out of range")
    return float(value)


def text(value: Any) -> str:
    require(isinstance(value, str), "it has a rule that is no text")
    return str(value)
