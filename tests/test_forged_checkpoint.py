"""Damaged and forged checkpoints: a clear error before anything is believed, or the same search."""

from __future__ import annotations

import copy
import json
import math
import re
import resource
import struct
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors import safe_open
from safetensors.numpy import save as to_bytes

from autocross import AutoCrossClassifier, checkpoint
from autocross.checkpoint import Checkpoint, Setting
from autocross.engines import SerialEngine
from autocross.errors import FileError, OptionError
from autocross.features import CAP
from autocross.producer import store
from autocross.search import policy
from conftest import as_nobody

Facts = dict[str, Any]
Arrays = dict[str, np.ndarray[Any, Any]]
OPTIONS: dict[str, Any] = {"quiet": True, "engine": "serial", "beam_width": 2, "types": {"tags": "multivalue"}}
N = 700


def rows() -> pl.DataFrame:
    """Rows with fields of every kind, whose label depends on crosses: one of them of lists."""
    rng = np.random.default_rng(5)
    job, town, age = rng.choice(["cook", "nurse", "clerk"], N), rng.choice(["Rome", "Oslo"], N), rng.normal(40, 12, N).round(0)
    tags = [rng.choice(["a", "b", "c"], rng.integers(0, 3), replace=False).tolist() for _ in range(N)]
    has_a = np.array(["a" in some for some in tags])
    log_odds = np.where((job == "cook") == (town == "Rome"), 1.4, -1.4) + np.where(has_a == (age > 40), 0.9, -0.9)
    bought = rng.random(N) < 1 / (1 + np.exp(-log_odds))
    return pl.DataFrame({"job": job, "town": town, "age": age, "tags": tags, "bought": bought})


class Killed(BaseException):
    """Stands for a process that ends."""


@dataclass(frozen=True)
class Scene:
    """A real checkpoint, and what the fit that is to go on gives to `checkpoint.load`."""

    path: Path
    same: Facts
    setting: Setting

    def load(self, folder: Path) -> Checkpoint:
        return checkpoint.load(folder, self.same, self.setting)

    def parts(self) -> tuple[Facts, Arrays]:
        """The facts and arrays of the file, to be changed."""
        with safe_open(str(self.path), framework="numpy") as stored:
            facts = json.loads(stored.metadata()[checkpoint.KEY])["facts"]
            return facts, {name: stored.get_tensor(name).copy() for name in stored.keys()}  # noqa: SIM118


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("left")
    engine, seen = SerialEngine(), []

    def look(folder: Path, same: Facts, setting: Setting) -> Checkpoint:
        engine.place(setting.engine.blocks)  # type: ignore[attr-defined]  the fit's own engine lets them go
        seen.append((same, replace(setting, engine=engine)))
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy, "AUTO", replace(policy.AUTO, a_round=1))
        AutoCrossClassifier(checkpoint=str(folder), max_crosses=3, **OPTIONS).fit(rows(), "bought")
        patch.setattr(checkpoint, "load", look)
        with pytest.raises(Killed):
            AutoCrossClassifier(resume=str(folder), **OPTIONS).fit(rows(), "bought")
    made = Scene(folder / checkpoint.FILE, *seen[0])
    facts, _ = made.parts()
    assert len(facts["beam"]) == 2
    assert len(facts["crosses"]) >= 2
    assert any(entry["width"] > 1 for entry in facts["crosses"])
    assert facts["last"]
    assert facts["in_vain"]
    yield made


def content(found: Checkpoint) -> Any:
    """All of a checkpoint, as something that can be compared."""
    sets = [
        (
            [(one.coder.fields, one.coder.values.tobytes(), one.coder.n_buckets, one.coder.width) for one in state.accepted],
            [repr(astuple(replace(one, coder=None))) for one in state.accepted],  # type: ignore[type-var, arg-type]
            [
                (cross, term.field, term.penalty, term.weight.tobytes(), term.tied.tobytes())
                for cross, term in state.regression.terms.items()
            ],
            (state.round, repr(state.score), state.loss),
        )
        for state in found.beam
    ]
    rest = (found.kept, found.last, found.in_vain, found.rules, found.score, found.scored_after, found.seconds)
    return sets, repr(rest)


def test_the_checkpoint_itself_is_read(scene: Scene, tmp_path: Path) -> None:
    found = scene.load(scene.path.parent)
    checkpoint.save(tmp_path, found, scene.same)
    assert (tmp_path / checkpoint.FILE).read_bytes() == scene.path.read_bytes()
    assert content(scene.load(tmp_path)) == content(found)


# Facts that cannot be true, under checksums that fit them.

Forge = Callable[[Facts, Arrays], object]


def put(*keys: Any, value: Any) -> Forge:
    """Another value for a fact."""

    def forge(facts: Facts, arrays: Arrays) -> None:
        place: Any = facts
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return forge


def drop(*keys: Any) -> Forge:
    def forge(facts: Facts, arrays: Arrays) -> None:
        place: Any = facts
        for key in keys[:-1]:
            place = place[key]
        del place[keys[-1]]

    return forge


def at(name: str, index: Any, value: Any) -> Forge:
    """Another number in an array."""
    return lambda facts, arrays: arrays[name].__setitem__(index, value)


def become(name: str, change: Callable[[Any], Any]) -> Forge:
    """Another array."""
    return lambda facts, arrays: arrays.update({name: np.ascontiguousarray(change(arrays[name]))})


def tie_others(facts: Facts, arrays: Arrays) -> None:
    """Tie a code whose weight is not that of rare ones."""
    name = next(name for name in arrays if name.startswith("tied.") and arrays[name].any())
    weight, tied = arrays[name.replace("tied", "weight")], arrays[name]
    weight[tied == 1] += 1.0


FORGED: dict[str, tuple[Forge, str]] = {
    "no format": (drop("format"), "its content is damaged"),
    "format as text": (put("format", value="2"), "it has no format number"),
    "no rows": (put("same", "rows", value=None), "its content is damaged"),
    "no options": (put("same", value={"rows": {}}), "its content is damaged"),
    "fields not in order": (lambda f, a: f["kept"].reverse(), "it has fields or candidates out of order"),
    "a field twice": (lambda f, a: f["kept"].append(f["kept"][-1]), "it has fields or candidates out of order"),
    "too few fields": (lambda f, a: f["kept"].pop(), "it keeps too few fields|a column without a field"),
    "no field": (put("kept", value=[]), "it keeps too few fields"),
    "field out of range": (put("kept", -1, value=10**30), "it has a field out of range"),
    "field that is true": (put("kept", 0, value=False), "it has a field out of range"),
    "fields of text": (put("kept", value="0123"), "it has no list where one should be"),
    "round negative": (put("round", value=-1), "it has a round out of range"),
    "round too late": (put("round", value=10**6), "it has a round out of range"),
    "round 0 with crosses": (put("round", value=0), "a set with too few crosses or too many"),
    "no sets": (put("beam", value=[]), "it follows an impossible number of sets"),
    "a third set": (lambda f, a: f["beam"].append(f["beam"][0]), "array 'weight.2.0' is not in it"),
    "a set less": (lambda f, a: f["beam"].pop(), "it has arrays that belong to nothing"),
    "sets of nothing": (put("beam", 0, value={}), "its content is damaged"),
    "a cross twice": (lambda f, a: f["beam"][0]["accepted"].append(f["beam"][0]["accepted"][0]), "a set with a cross twice"),
    "cross out of range": (put("beam", 0, "accepted", 0, "cross", value=99), "it has a cross out of range"),
    "cross negative": (put("beam", 0, "accepted", 0, "cross", value=-1), "it has a cross out of range"),
    "fields of a cross swapped": (lambda f, a: f["crosses"][0]["fields"].reverse(), "out of order"),
    "a cross of one field": (put("crosses", 0, "fields", value=[0]), "it has a cross of one field"),
    "a cross of unknown fields": (put("crosses", 0, "fields", value=[0, 99]), "it has a field out of range"),
    "one cross as another": (lambda f, a: f["crosses"][0].update(fields=f["crosses"][1]["fields"]), "cross 0|a cross twice"),
    "buckets": (put("crosses", 0, "n_buckets", value=5), "cross 0 has no proper number of buckets"),
    "endless buckets": (put("crosses", 0, "n_buckets", value=10**30), "cross 0 has no proper number of buckets"),
    "too wide": (put("crosses", 0, "width", value=65), "cross 0 has no proper width"),
    "no width": (put("crosses", 0, "width", value=0), "cross 0 has no proper width"),
    "values out of range": (at("cross.0", (0, 0), 10**6), "cross 0 has a value that its fields cannot have"),
    "values not in order": (become("cross.0", lambda values: values[::-1]), "cross 0 has values out of order"),
    "values of another kind": (become("cross.0", lambda values: values.astype(np.uint8)), "array 'cross.0' is of the wrong kind"),
    "flat values": (become("cross.0", lambda values: values.ravel()), "cross 0 has no proper values"),
    "no values": (lambda f, a: a.pop("cross.0"), "array 'cross.0' is not in it"),
    "more values": (
        become("cross.0", lambda values: np.zeros((CAP + 1, values.shape[1]), np.uint32)),
        "cross 0 has no proper values",
    ),
    "weight NaN": (at("weight.0.1", (0, 0), np.nan), "has a weight that is no number, or too large"),
    "weight infinite": (at("weight.1.0", (0, 0), -np.inf), "has a weight that is no number, or too large"),
    "weight beyond reason": (at("weight.0.2", (1, 1), 1e6), "has a weight that is no number, or too large"),
    "a weight less": (become("weight.0.1", lambda weight: weight[1:]), "array 'weight.0.1' has the wrong shape"),
    "a model less": (become("weight.0.1", lambda weight: weight[:, 1:]), "array 'weight.0.1' has the wrong shape"),
    "short weights": (become("weight.0.1", lambda weight: weight.astype("f4")), "array 'weight.0.1' is of the wrong kind"),
    "no weights": (lambda f, a: a.pop("weight.0.1"), "array 'weight.0.1' is not in it"),
    "an array more": (lambda f, a: a.update(more=np.zeros(3)), "it has arrays that belong to nothing"),
    "neither tied nor free": (at("tied.0.3", (2, 0), 2), "codes that are neither tied nor free"),
    "missing values tied": (at("tied.0.3", (0, 0), 1), "ties codes that are free"),
    "bins tied": (at("tied.0.1", (2, 0), 1), "ties codes that are free"),
    "other weights tied": (tie_others, "ties codes of several weights"),
    "penalty negative": (put("beam", 0, "penalties", 1, value=[0.0, -1.0, 0.0, 0.0]), "it has a penalty that is no number"),
    "penalty NaN": (put("beam", 0, "penalties", 1, value=[0.0, math.nan, 0.0, 0.0]), "it has a penalty that is no number"),
    "penalty of nothing": (put("beam", 0, "penalties", 1, value=[0.0, 0.0, 1.0, 0.0]), "it has an impossible penalty"),
    "penalty with l1": (put("beam", 0, "penalties", 1, value=[1.0, 1.0, 0.0, 0.0]), "it has an impossible penalty"),
    "two numbers as penalty": (put("beam", 0, "penalties", 1, value=[0.0, 1.0]), "its content is damaged"),
    "intercept penalised": (put("beam", 0, "penalties", 0, value=[0.0, 1.0, 0.0, 0.0]), "it has a penalty of the intercept"),
    "a penalty less": (lambda f, a: f["beam"][0]["penalties"].pop(), "its content is damaged"),
    "gain infinite": (put("beam", 0, "accepted", 0, "gain", value=math.inf), "it has a gain that is no number"),
    "gain NaN": (put("last", 0, 1, value=math.nan), "it has a gain that is no number"),
    "gain of text": (put("last", 0, 1, value="0.1"), "it has a gain that is no number"),
    "error negative": (put("beam", 0, "accepted", 0, "error", value=-1.0), "it has a standard error that is no number"),
    "collisions": (put("beam", 0, "accepted", 0, "n_collisions", value=1), "it has a number of collisions out of range"),
    "score infinite": (put("beam", 0, "accepted", 0, "score", value=math.inf), "it has a score that is no number"),
    "score that is no float": (put("score", value=10**400), "its content is damaged"),
    "seconds negative": (put("seconds", value=-5.0), "it has a number of seconds that is no number"),
    "loss NaN": (put("beam", 0, "loss", value=math.nan), "it has a loss that is no number"),
    "no loss": (put("beam", 0, "loss", value=None), "it has a loss that is no number"),
    "candidates not in order": (lambda f, a: f["last"].reverse(), "it has fields or candidates out of order"),
    "a candidate with two gains": (lambda f, a: f["last"].append([f["last"][-1][0], 1e9]), "out of order"),
    "a candidate twice": (lambda f, a: f["in_vain"].append(f["in_vain"][-1]), "it has fields or candidates out of order"),
    "candidates of nothing": (put("in_vain", value=[[]]), "it has a cross of one field"),
    "candidates unknown": (put("in_vain", value=[[0, 99]]), "it has a field out of range"),
    "rules of nothing": (put("rules", value=[{}]), "its content is damaged"),
    "rules of numbers": (put("rules", 0, "why", value=5), "it has a rule that is no text"),
    "a list too deep": (put("rules", 0, "why", value=[[[]]]), "it has a rule that is no text"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FORGED)
def test_a_forged_checkpoint(name: str, scene: Scene, tmp_path: Path) -> None:
    forge, message = FORGED[name]
    facts, arrays = scene.parts()
    forge(facts, arrays)
    store.write(tmp_path / checkpoint.FILE, checkpoint.KEY, facts, arrays)
    with pytest.raises(FileError, match=rf"Cannot read the checkpoint .*: .*({message}).*Or fit anew, without resume"):
        scene.load(tmp_path)


def test_an_option_that_is_forged(scene: Scene, tmp_path: Path) -> None:
    facts, arrays = scene.parts()
    facts["same"]["options"]["metric"] = "accuracy"
    store.write(tmp_path / checkpoint.FILE, checkpoint.KEY, facts, arrays)
    with pytest.raises(OptionError, match="Option metric='auc' differs from the 'accuracy' of the checkpoint"):
        scene.load(tmp_path)


def test_scores_may_be_undefined(scene: Scene, tmp_path: Path) -> None:
    """Where only rows of one class judge."""
    facts, arrays = scene.parts()
    facts["score"] = facts["beam"][0]["accepted"][-1]["score"] = math.nan
    store.write(tmp_path / checkpoint.FILE, checkpoint.KEY, facts, arrays)
    found = scene.load(tmp_path)
    assert math.isnan(found.score)
    assert math.isnan(found.beam[0].score)


# Files that are none, and sizes.


def header_of(content: bytes) -> Facts:
    return json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])  # type: ignore[no-any-return]


def test_files_that_are_no_checkpoint(scene: Scene, tmp_path: Path) -> None:
    path = tmp_path / checkpoint.FILE

    def refused(message: str) -> None:
        with pytest.raises(FileError, match=rf"Cannot read the checkpoint .*({message}).*Or fit anew, without resume"):
            scene.load(tmp_path)

    for data in (b"", b"\0" * 1000, b"job,age\ncook,37\n", scene.path.read_bytes()[:-1], scene.path.read_bytes() + b"\0"):
        path.write_bytes(data)
        refused("The file is damaged|its content is damaged")
    path.write_bytes(to_bytes({"a": np.zeros(3)}))
    refused("it is a safetensors file, but not a checkpoint of autocross")
    for text in ("", "[]", "{", "null", "[" * 100_000, "1" * 5_000, '{"facts": 1, "arrays": 1, "checksum": 1}'):
        path.write_bytes(to_bytes({"a": np.zeros(3)}, metadata={checkpoint.KEY: text}))
        refused("its content is damaged|The file is damaged|it has no proper facts|its checksum does not fit")


def test_a_file_that_may_not_be_read(scene: Scene) -> None:
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / checkpoint.FILE
        path.write_bytes(scene.path.read_bytes())
        path.chmod(0o000)
        with as_nobody(), pytest.raises(FileError, match=r"Cannot read '.*': Permission denied\."):
            scene.load(Path(folder))


def test_a_file_that_unpacks_to_more_than_it_is(scene: Scene, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / checkpoint.FILE, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("weight.0.1.npy", bytes(1 << 24))
    with pytest.raises(FileError, match=r"Cannot read the checkpoint .*.*The file is damaged"):
        scene.load(tmp_path)


@pytest.mark.parametrize("name", ["weight.0.1", "cross.0", "more"])
def test_an_array_of_4_gb_is_not_read(name: str, scene: Scene, tmp_path: Path) -> None:
    """A file with a hole takes no room on the disk, but would in memory."""
    content, size = scene.path.read_bytes(), 4 << 30
    header = header_of(content)
    facts = json.loads(header["__metadata__"][checkpoint.KEY])
    facts["arrays"].setdefault(name, "0" * 16)
    del facts["checksum"]
    facts["checksum"] = store.hash_of(json.dumps(facts).encode())
    header["__metadata__"][checkpoint.KEY] = json.dumps(facts)
    end = max(entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__")
    kind, itemsize = ("U32", 4) if name == "cross.0" else ("F64", 8)
    old = header.pop(name, {"data_offsets": [0, 0]})["data_offsets"]
    body = content[8 + struct.unpack("<Q", content[:8])[0] :]
    body = body[: old[0]] + body[old[1] :]
    for key, entry in header.items():
        if key != "__metadata__" and entry["data_offsets"][0] >= old[1]:
            entry["data_offsets"] = [offset - (old[1] - old[0]) for offset in entry["data_offsets"]]
    end -= old[1] - old[0]
    shape = [size // itemsize // 2, 2]
    header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
    text = json.dumps(header).encode()
    with (tmp_path / checkpoint.FILE).open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)
        file.truncate(8 + len(text) + end + size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FileError, match=r"has the wrong shape|has no proper values|that belong to nothing"):
        scene.load(tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 18  # KiB


# Fuzz.

VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 7, 10**6, 2**63, 10**30, -(10**30)),
    *(0.0, -0.0, 0.5, -1.5, 1e-300, 1e308, -1e308, math.nan, math.inf, -math.inf),
    *("", "x", "0", "nan", "\ud800", [], [[]], [0], [0, 1], [0, 0], [1, 0], {}, {"cross": 0}, [0.0, 1.0, 0.0], [[0, 1], 0.5]),
)


def places(node: Any) -> list[tuple[Any, Any]]:
    """Every place in a tree of facts: the list or object it is in, and its key there."""
    keys = list(node) if isinstance(node, dict) else list(range(len(node))) if isinstance(node, list) else []
    return [place for key in keys for place in ((node, key), *places(node[key]))]


def mutated_facts(facts: Facts, rng: np.random.Generator) -> None:
    """One change, somewhere."""
    some = places(facts)
    node, key = some[int(rng.integers(len(some)))]
    how = rng.integers(6)
    if how == 0:
        del node[key]
    elif how == 1 and isinstance(node, list):
        node.insert(key, copy.deepcopy(node[key]))
    elif how == 2 and isinstance(node, list):
        rng.shuffle(node)
    elif how == 3 and type(node[key]) in (int, float):
        node[key] = node[key] + type(node[key])(rng.choice([-1, 1, 100])) if rng.random() < 0.5 else -node[key]
    elif how == 4:
        other, name = some[int(rng.integers(len(some)))]
        node[key] = copy.deepcopy(other[name])
    else:
        node[key] = copy.deepcopy(VALUES[int(rng.integers(len(VALUES)))])


def mutated_arrays(arrays: Arrays, rng: np.random.Generator) -> None:
    """One change in one array, or of it."""
    names = sorted(arrays)
    name = names[int(rng.integers(len(names)))]
    array, how = arrays[name], rng.integers(8)
    if how == 0:
        del arrays[name]
    elif how == 1:
        arrays[name] = array.astype(rng.choice(["f4", "f8", "u1", "u4", "i8", "?"]))
    elif how == 2:
        arrays[name] = np.ascontiguousarray(array[: int(rng.integers(len(array) + 1))])
    elif how == 3:
        arrays[name] = np.concatenate([array, array])
    elif how == 4:
        arrays[name] = np.ascontiguousarray(array.T)
    elif how == 5:
        other = names[int(rng.integers(len(names)))]
        arrays[name], arrays[other] = arrays[other], array
    elif array.size:
        values = [0, 1, 2, 3, 255, 2**32 - 1] if array.dtype.kind == "u" else [0.0, 1.0, -50.0, 1e9, 1e308, np.nan, np.inf, -np.inf]
        index = int(rng.integers(array.size))
        array.reshape(-1)[index] = np.array(values[int(rng.integers(len(values)))]).astype(array.dtype)


def mutated_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    """One change in the bytes of a file."""
    place, length = int(rng.integers(len(data))), int(rng.integers(1, 64))
    how = rng.integers(6)
    if how == 0:
        return data[:place]
    if how == 1:
        return data[:place] + data[place + length :]
    if how == 2:
        return data[:place] + rng.bytes(length) + data[place:]
    if how == 3:
        return data[:place] + bytes(length) + data[place + length :]
    if how == 4:
        return data[:place] + rng.bytes(length) + data[place + length :]
    return data[:place] + bytes([data[place] ^ (1 << int(rng.integers(8)))]) + data[place + 1 :]


def outcome(scene: Scene, folder: Path, original: Any) -> str:
    """What became of a changed checkpoint; anything but a refusal with a message and a checkpoint is an error here."""
    try:
        found = scene.load(folder)
    except (FileError, OptionError) as error:
        assert re.search(
            r"checkpoint .*(Or fit anew, without resume|Resume with the (rows|options) of the fit|Fit anew)", str(error)
        )
        return "refused"
    return "same" if content(found) == original else "believed"


def fuzzed_bytes(scene: Scene, folder: Path, n: int, seed: int) -> Counter[str]:
    """Changes of bytes."""
    rng, data, original = np.random.default_rng(seed), scene.path.read_bytes(), content(scene.load(scene.path.parent))
    outcomes: Counter[str] = Counter()
    for _ in range(n):
        (folder / checkpoint.FILE).write_bytes(mutated_bytes(data, rng))
        outcomes[outcome(scene, folder, original)] += 1
    return outcomes


def fuzzed_parts(scene: Scene, folder: Path, n: int, seed: int, go_on: Callable[[], None] | None = None) -> Counter[str]:
    """Changes of facts and arrays, under checksums that fit them; the search goes on with those that are believed."""
    rng, parts, original = np.random.default_rng(seed), scene.parts(), content(scene.load(scene.path.parent))
    outcomes: Counter[str] = Counter()
    for _ in range(n):
        facts, arrays = copy.deepcopy(parts)
        for _ in range(int(rng.integers(1, 3))):
            if rng.random() < 0.6:
                mutated_facts(facts, rng)
            else:
                mutated_arrays(arrays, rng)
        store.write(folder / checkpoint.FILE, checkpoint.KEY, facts, arrays)
        found = outcome(scene, folder, original)
        outcomes[found] += 1
        if found == "believed" and go_on is not None:
            go_on()
    return outcomes


def fuzzed_stale(scene: Scene, folder: Path, n: int, seed: int) -> Counter[str]:
    """Changes of facts and arrays under the checksums of before."""
    rng, parts, original = np.random.default_rng(seed), scene.parts(), content(scene.load(scene.path.parent))
    with safe_open(str(scene.path), framework="numpy") as stored:
        written = json.loads(stored.metadata()[checkpoint.KEY])
    outcomes: Counter[str] = Counter()
    for _ in range(n):
        facts, arrays = copy.deepcopy(parts)
        if rng.random() < 0.6:
            mutated_facts(facts, rng)
        else:
            mutated_arrays(arrays, rng)
        data = to_bytes(arrays, metadata={checkpoint.KEY: json.dumps({**written, "facts": facts})})
        (folder / checkpoint.FILE).write_bytes(data)
        outcomes[outcome(scene, folder, original)] += 1
    return outcomes


@pytest.mark.slow
def test_random_damage_is_refused_or_changes_nothing(scene: Scene, tmp_path: Path) -> None:
    for fuzzed in (fuzzed_bytes, fuzzed_stale):
        outcomes = fuzzed(scene, tmp_path, 150, 0)
        assert outcomes["believed"] == 0
        assert outcomes["refused"] > 100


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_random_forgeries_are_refused_or_can_be_gone_on_with(scene: Scene, tmp_path: Path) -> None:
    def go_on() -> None:
        model = AutoCrossClassifier(resume=str(tmp_path), max_crosses=4, **OPTIONS).fit(rows(), "bought").model_
        assert all(np.isfinite(weight).all() for weight in model.weights)

    outcomes = fuzzed_parts(scene, tmp_path, 150, 0, go_on)
    assert outcomes["refused"] > 100
