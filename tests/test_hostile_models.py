"""Model files made to attack: refused before they cost much, and never a model that contradicts itself."""

from __future__ import annotations

import json
import math
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autocross import AutoCrossClassifier, load
from autocross.cli import run
from autocross.errors import BundleError, FileError
from autocross.producer import container
from forgery import Arrays, Manifest, forge, parts

pytestmark = pytest.mark.slow

Layout = dict[str, tuple[str, tuple[int, ...]]]

SIZES = {"I8": 1, "U8": 1, "U16": 2, "U32": 4, "F32": 4, "I64": 8, "F64": 8}
ROOM = 100 << 20  # bytes that a refused file may cost beyond what a small model takes
ROOM_OF_A_HEADER = 480 << 20  # the same, of a header as long as one may be, with as many objects in it


def layout_of(arrays: Arrays) -> Layout:
    """What a header says of these arrays."""
    words = {"int8": "I8", "uint8": "U8", "uint16": "U16", "uint32": "U32", "float32": "F32", "int64": "I64", "float64": "F64"}
    return {name: (words[str(array.dtype)], array.shape) for name, array in arrays.items()}


def sparse(path: Path, manifest: Manifest | str, layout: Layout, arrays: Arrays) -> Path:
    """A file whose arrays are holes where they are not of the shape given: as long as its header says, but hardly on the disk."""
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    header: dict[str, Any] = {"__metadata__": {"autocross": text}}
    end = 0
    for name, (dtype, shape) in layout.items():
        start, end = end, end + SIZES[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    content = json.dumps(header, separators=(",", ":")).encode()
    content += b" " * (-len(content) % 8)
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(content)) + content)
        stream.truncate(8 + len(content) + end)
        for name, array in arrays.items():
            if layout.get(name, ("", ()))[1] == array.shape:
                stream.seek(8 + len(content) + header[name]["data_offsets"][0])
                stream.write(array.tobytes())
    return path


def loaded_in_little_memory(path: Path, usual: Path, room: int = ROOM) -> str:
    """What is said of a file by a process that may take little more memory than a usual model needs."""
    code = (
        "import resource, sys\n"
        "from autocross import load\n"
        "from autocross.errors import AutoCrossError\n"
        "load(sys.argv[1])\n"
        "pages = int(open('/proc/self/statm').read().split()[0])\n"
        "limit = pages * resource.getpagesize() + int(sys.argv[3])\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "try:\n"
        "    load(sys.argv[2]); print('loaded')\n"
        "except AutoCrossError as error:\n"
        "    print(f'{type(error).__name__}: {error}')\n"
    )
    command = [sys.executable, "-c", code, str(usual), str(path), str(room)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.strip()


@pytest.fixture(scope="module")
def usual(classifier: AutoCrossClassifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in good order."""
    path = tmp_path_factory.mktemp("usual") / "model.acx"
    classifier.save(path)
    return path


# What a refused file costs.


def longer(name: str, n: int) -> Callable[[Manifest, Layout], None]:
    """One array, longer than anything speaks of."""
    return lambda manifest, layout: layout.update({name: (layout[name][0], (n, *layout[name][1][1:]))})


def endless_vocabulary(manifest: Manifest, layout: Layout) -> None:
    """All sizes fit together: as many weights as values, and values of no length."""
    n_fields = sum(name.startswith("weight.") for name in layout) - len(manifest["crosses"])
    for number, _ in enumerate(manifest["crosses"]):
        del layout[f"cross.{number}"], layout[f"weight.{n_fields + number}"]
    manifest["crosses"] = manifest["about"]["crosses"] = []
    at = [entry["name"] for entry in manifest["columns"]].index("job")
    n = 200_000_000
    layout.update({f"ends.{at}": ("I64", (n,)), f"text.{at}": ("U8", (n,)), f"weight.{weight_of(manifest, at)}": ("F64", (n + 2,))})


def endless_text(manifest: Manifest, layout: Layout) -> None:
    at = [entry["name"] for entry in manifest["columns"]].index("job")
    layout[f"text.{at}"] = ("U8", (4 << 30,))


def endless_buckets(manifest: Manifest, layout: Layout) -> None:
    at = [entry["name"] for entry in manifest["columns"]].index("job")
    manifest["columns"][at]["n_buckets"] = 1 << 29
    n = layout[f"ends.{at}"][1][0] + 2 + (1 << 29)
    layout[f"weight.{weight_of(manifest, at)}"] = ("F64", (n,))


def endless_bins(manifest: Manifest, layout: Layout) -> None:
    at, n = [entry["coder"] for entry in manifest["columns"]].index("bins"), 250_000_000
    layout.update({f"edges.{at}.0": ("F64", (n,)), f"weight.{weight_of(manifest, at)}": ("F64", (n + 3,))})


def endless_cross(manifest: Manifest, layout: Layout) -> None:
    n_fields = sum(name.startswith("weight.") for name in layout) - len(manifest["crosses"])
    layout.update({"cross.0": ("U32", (250_000_000, 2)), f"weight.{n_fields}": ("F64", (250_000_002,))})


def endless_network(manifest: Manifest, layout: Layout) -> None:
    """Embeddings and layers that fit together, all zeros."""
    manifest.update(format=2, deep={"n_layers": 1})
    n_fields = sum(name.startswith("weight.") for name in layout) - len(manifest["crosses"])
    fields = [f"weight.{at}" for at in range(n_fields)]
    size = 10_000_000
    layout.update({f"deep.embeddings.{at}": ("F32", (*layout[name][1], size)) for at, name in enumerate(fields)})
    layout.update({"deep.matrices.0": ("F32", (size * len(fields), 1)), "deep.biases.0": ("F32", (1,))})


def weight_of(manifest: Manifest, column: int) -> int:
    """The number of the weights of a column's first field."""
    sizes = [len(entry.get("seen") or entry.get("names") or [0]) for entry in manifest["columns"]]
    return sum(sizes[:column])


SPARSE: dict[str, tuple[Callable[[Manifest, Layout], None], str]] = {
    "weights that no vocabulary has": (longer("weight.0", 1 << 29), "field 'age .*' has the wrong number of weights"),
    "an array that nothing names": (
        lambda m, layout: layout.update({"weight.999": ("F64", (1 << 29,))}),
        "it has an array 'weight.999', which no part",
    ),
    "an array of another kind": (lambda m, layout: layout.update({"x": ("F64", (1 << 29,))}), "it has an array 'x', which no part"),
    "a vocabulary of nothing": (endless_vocabulary, "column 'job' has .* nothing but zeros"),
    "a text of nothing": (endless_text, "column 'job' has .* nothing but zeros"),
    "buckets for nothing": (endless_buckets, "column 'job' has no proper number of buckets"),
    "edges of nothing": (endless_bins, "column 'age' has .* nothing but zeros"),
    "values of nothing": (endless_cross, "cross 0 has .* nothing but zeros"),
    "a network of nothing": (endless_network, "its deep part has .* nothing but zeros"),
}


def without_counts(manifest: Manifest, arrays: Arrays) -> tuple[Manifest, Arrays]:
    """A model as older formats have it. Its counts would have to be forged as well."""
    del manifest["share"], manifest["background"], arrays["counts"]
    manifest["format"] = 1
    return manifest, {name: array for name, array in arrays.items() if not name.startswith("background.")}


@pytest.mark.parametrize("name", SPARSE)
def test_a_sparse_file_is_refused_before_it_fills_the_memory(name: str, usual: Path, tmp_path: Path) -> None:
    change, message = SPARSE[name]
    manifest, arrays = without_counts(*parts(usual))
    layout = layout_of(arrays)
    change(manifest, layout)
    path = sparse(tmp_path / "bad.acx", manifest, layout, arrays)
    assert path.stat().st_size > 1 << 31
    assert path.stat().st_blocks * 512 < 1 << 20
    assert re.search(rf"^BundleError: Cannot load .*bad\.acx': {message}", said := loaded_in_little_memory(path, usual)), said


MANIFESTS = {
    "lists": lambda: "[" + "[]," * 20_000_000 + "[]]",
    "objects": lambda: "[" + '{"a":1},' * 7_500_000 + "{}]",
    "texts": lambda: "[" + ",".join(f'"{n}"' for n in range(4_400_000)) + "]",
    "blanks": lambda: " " * 70_000_000 + "1",
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_an_endless_manifest_is_refused_before_it_is_built(name: str, usual: Path, tmp_path: Path) -> None:
    path = sparse(tmp_path / "bad.acx", MANIFESTS[name](), {}, {})
    assert "its header is larger than a model of autocross needs" in loaded_in_little_memory(path, usual, 2 * ROOM)


def within(text: str) -> bytes:
    """A header that has this manifest and nothing else."""
    return b'{"__metadata__":{"autocross":' + json.dumps(text).encode() + b"}}"


def arrays_without_content(n: int) -> bytes:
    """What a header says of so many."""
    return ",".join(f'"{at:x}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}' for at in range(n)).encode()


EMOJI = "\\ud83d\\ude00"  # a character of which one makes Python take four bytes for each of a text
LISTS = "[" + "[0.5]," * (container.MOST_MARKS // 2 - 10) + "0]"
AT_THE_WALL: dict[str, tuple[Callable[[], bytes], str]] = {
    "lists of numbers": (lambda: within(LISTS), "it has no format number"),
    "lists, and arrays": (
        lambda: within(LISTS)[:-1] + b"," + arrays_without_content(container.MOST_ARRAYS) + b"}",
        "it has no format number",
    ),
    "a wide text": (lambda: within(f'["{"x" * (container.MOST_BYTES - 1000)}{EMOJI}"]'), "it has no format number"),
    "a wide manifest": (
        lambda: b'{"__metadata__":{"autocross":"' + b"x" * (container.MOST_BYTES - 1000) + EMOJI.encode() + b'"}}',
        "its manifest is no JSON that autocross writes",
    ),
    "too many arrays": (
        lambda: within("{}")[:-1] + b"," + arrays_without_content(container.MOST_ARRAYS + 1) + b"}",
        "its header is larger than a model of autocross needs",
    ),
    "many other texts": (
        lambda: b'{"__metadata__":{' + b",".join(b'"%x":""' % at for at in range(5_500_000)) + b"}}",
        "it is a safetensors file, but not a model of autocross",
    ),
    "a name as long as the header": (
        lambda: within("{}")[:-1] + b',"' + b"x" * (container.MOST_BYTES - 1000) + EMOJI.encode() + b'":1}',
        "array 'xxx.* is not described",
    ),
}


@pytest.mark.parametrize("name", AT_THE_WALL)
def test_a_header_of_all_that_is_allowed_costs_less_than_half_a_gigabyte(name: str, usual: Path, tmp_path: Path) -> None:
    build, message = AT_THE_WALL[name]
    header = build()
    assert len(header) <= container.MOST_BYTES
    path = tmp_path / "bad.acx"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    assert re.search(rf"Cannot load .*: {message}", said := loaded_in_little_memory(path, usual, ROOM_OF_A_HEADER)), said


HEADERS: dict[str, tuple[bytes, str]] = {
    "no object": (b"[]", "its header is no JSON object"),
    "an object without end": (within("{}")[:-1], "its header is no JSON object"),
    "something behind its end": (within("{}") + b" {}", "its header goes on behind its end"),
    "a name that is no text": (b"{1:2}", "its header is no JSON that autocross writes"),
    "a text that is no text": (b'{"__metadata__":{"autocross":[]}}', "its header is no JSON that autocross writes"),
    "a character": ('{"__metadata__":{"autocross":"\u00e9"}}'.encode(), "its header is no JSON that autocross writes"),
    "an array twice": (
        within("{}")[:-1] + b"," + arrays_without_content(1) + b"," + arrays_without_content(1) + b"}",
        "it describes an array twice",
    ),
    "an array in an array": (within("{}")[:-1] + b',"x":{"dtype":{}}}', "its manifest is damaged"),
    "an array that is a list": (within("{}")[:-1] + b',"x":[{}]}', "array 'x' is not described"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_is_not_of_our_kind_is_refused(name: str, tmp_path: Path) -> None:
    header, message = HEADERS[name]
    path = tmp_path / "bad.acx"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(BundleError, match=rf"Cannot load .*bad\.acx': {message}"):
        load(path)


def test_a_manifest_that_the_header_hides_is_refused_all_the_same(usual: Path, tmp_path: Path) -> None:
    """Brackets written as escapes are none to the header."""
    header = b'{"__metadata__":{"autocross":"' + b"\\u005b" * 4_500_000 + b'"}}'
    path = tmp_path / "bad.acx"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    assert "its header is larger than a model of autocross needs" in loaded_in_little_memory(path, usual)


@pytest.mark.parametrize("what", ["array", "column", "fact"])
def test_an_endless_name_is_not_repeated(what: str, usual: Path, tmp_path: Path) -> None:
    manifest, arrays = parts(usual)
    name = "x" * 1_000_000
    if what == "array":
        arrays[name] = np.zeros(1)
    elif what == "column":
        manifest["columns"][0]["name"] = name
    else:
        manifest["schema"][0][name] = 1
    with pytest.raises(BundleError, match="xxx") as caught:
        load(forge(tmp_path / "bad.acx", manifest, arrays))
    assert len(str(caught.value)) < 1000


def test_long_names_in_many_crosses_are_refused_before_they_are_joined(usual: Path, tmp_path: Path) -> None:
    """Each of 20,000 crosses would be named by 1,000 pages, of which the record of the fit says nothing."""
    manifest, arrays = parts(usual)
    layout, name = layout_of(arrays), "x" * 60_000
    manifest["schema"][0]["name"] = name
    for entry in manifest["columns"]:
        if entry["name"] == "age":
            entry.update(name=name, names=[f"{name} [10 even]"])
    n_fields, n = sum(one.startswith("weight.") for one in layout) - len(manifest["crosses"]), 20_000
    for at in range(n):
        layout.update({f"cross.{at}": ("U32", (0, 2)), f"weight.{n_fields + at}": ("F64", (2,))})
    manifest["crosses"] = [{"fields": [0, 2], "n_buckets": 0, "width": 1}] * n
    manifest["about"]["crosses"] = [{"fields": ["age", "job"], "columns": ["age", "job"], "gain": 0.0, "error": 0.0}] * n
    path = sparse(tmp_path / "bad.acx", manifest, layout, arrays)
    assert "it tells of other crosses than it has" in loaded_in_little_memory(path, usual)


def test_a_long_value_is_shown_by_its_beginning(usual: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest, arrays = parts(usual)
    at = [entry["name"] for entry in manifest["columns"]].index("job")
    n = len(arrays[f"ends.{at}"])
    arrays[f"text.{at}"] = np.repeat(np.frombuffer(b"abcdefgh"[:n], np.uint8), 100_000)
    arrays[f"ends.{at}"] = np.arange(1, n + 1) * 100_000
    assert run(["show", str(forge(tmp_path / "long.acx", manifest, arrays)), "job"]) == 0
    printed = capsys.readouterr().out
    assert "aaaa..." in printed
    assert len(printed) < 100_000


def test_a_header_of_holes_is_refused_where_they_begin(usual: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.acx"
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", 30_000_000) + b"{")
        stream.truncate(4 << 30)
    assert "its header is no JSON" in loaded_in_little_memory(path, usual)


SPECIAL: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a terminal": lambda path: path.symlink_to("/dev/tty"),
    "a folder": lambda path: path.mkdir(),
    "a link to a folder": lambda path: path.symlink_to("."),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a link to itself": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_what_is_no_file_is_refused_at_once(name: str, tmp_path: Path) -> None:
    SPECIAL[name](tmp_path / "bad.acx")
    with pytest.raises(FileError, match=r"bad\.acx'.*Check the path"):
        load(tmp_path / "bad.acx")


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000], ids=["a zero in it", "too long"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(FileError, match="Check the path"):
        load(path)


def test_a_large_model_in_good_order_loads(usual: Path, tmp_path: Path) -> None:
    """Values of a hundred MB, and weights of zero."""
    manifest, arrays = without_counts(*parts(usual))
    at, n = [entry["name"] for entry in manifest["columns"]].index("job"), 200_000
    values = [f"{number:0500}" for number in range(n)]
    arrays[f"text.{at}"] = np.frombuffer("".join(values).encode(), np.uint8)
    arrays[f"ends.{at}"] = np.arange(1, n + 1) * 500
    arrays[f"weight.{weight_of(manifest, at)}"] = np.zeros(n + 2)
    model = load(forge(tmp_path / "large.acx", manifest, arrays))
    assert model.model.producer.encoder.columns[at].fields[0].n_codes == n + 2
    assert 0 < model.score_one({"job": values[-1]}) < 1


# Records that are not those of the model.


def in_about(**facts: Any) -> Callable[[Manifest], object]:
    return lambda manifest: manifest["about"].update(facts)


def in_cross(**facts: Any) -> Callable[[Manifest], object]:
    """Other facts about the first cross."""
    return lambda manifest: manifest["about"]["crosses"][0].update(facts)


def in_history(**facts: Any) -> Callable[[Manifest], object]:
    return lambda manifest: manifest["about"]["history"][0].update(facts)


def in_rule(**facts: Any) -> Callable[[Manifest], object]:
    return lambda manifest: manifest["about"]["rules"][0].update(facts)


def in_schema(**facts: Any) -> Callable[[Manifest], object]:
    """Other facts about the first column, a number."""
    return lambda manifest: manifest["schema"][0].update(facts)


HALF = "\ud800"  # half a character, which no terminal can be sent
RECORDS: dict[str, tuple[Callable[[Manifest], object], str]] = {
    "no cross": (in_about(crosses=[]), "it tells of other crosses than it has"),
    "one cross less": (lambda m: m["about"]["crosses"].pop(), "it tells of other crosses than it has"),
    "a cross of other fields": (in_cross(fields=["age", "job"]), "it tells of other crosses than it has"),
    "a cross of other columns": (in_cross(columns=["age"]), "it tells of other crosses than it has"),
    "a cross that is a text": (lambda m: m["about"]["crosses"].__setitem__(0, "x"), "its manifest is damaged"),
    "a gain that is a text": (in_cross(gain="much"), "has a gain that is no number"),
    "a gain beyond numbers": (in_cross(gain=1e999), "has a gain that is no number"),
    "a gain of no number": (in_cross(gain=float("nan")), "has a gain that is no number"),
    "an error of none": (in_cross(error=None), "has a gain that is no number"),
    "collisions of a half": (in_cross(n_collisions=0.5), "has a gain that is no number"),
    "a rule that is a number": (in_rule(value=5), "it has a rule that is no text"),
    "a rule of half a character": (in_rule(why=HALF), "it has a rule that is no text"),
    "an endless rule": (in_rule(name="x" * 100_000), "it has a rule that is no text"),
    "a rule that knows more": (in_rule(more="x"), "its manifest is damaged"),
    "a history that knows more": (in_history(more=1), "its history has an unknown part"),
    "a history of texts": (in_history(score="1"), "its history has something that is no number"),
    "a history of truths": (in_history(crosses=True), "its history has something that is no number"),
    "a history without score": (in_history(score=None), "its history has something that is no number"),
    "a score that is a list": (in_about(score=[]), "its score is no number"),
    "a score beyond numbers": (in_about(score=1e999), "its score is no number"),
    "rows of a half": (in_about(n_rows=0.5), "it has no proper number of rows"),
    "rows below zero": (in_about(n_rows=-1), "it has no proper number of rows"),
    "a metric of its own": (in_about(metric="evil"), "it has no known metric"),
    "a metric that is a list": (in_about(metric=["auc"]), "it has no known metric"),
    "a target that is a number": (in_about(target=5), "it has no proper name of the target"),
    "a target of half a character": (in_about(target=HALF), "it has no proper name of the target"),
    "a label and a number": (in_about(classes=["no", 1]), "it has no two labels"),
    "a label of half a character": (in_about(classes=["no", HALF]), "it has no two labels"),
    "a label of no number": (in_about(classes=[0, float("nan")]), "it has no two labels"),
    "an endless label": (in_about(classes=[0, 10**4000]), "it has no two labels"),
    "a reason that is a list": (in_schema(reason=["x"]), "column 'age' has no proper reason"),
    "a reason of half a character": (in_schema(reason=HALF), "column 'age' has no proper reason"),
    "a name that is a number": (in_schema(name=5), "a column has no proper name"),
    "a separator of nothing": (in_schema(separator=""), "column 'age' has no proper separator"),
    "a penalty that is a text": (lambda m: m["penalties"].__setitem__(0, [0.0, "1", 0.0]), "a penalty that is no number"),
    "a penalty that is a truth": (lambda m: m["penalties"].__setitem__(0, [0.0, True, 0.0]), "a penalty that is no number"),
    "a penalty of five": (lambda m: m["penalties"].__setitem__(0, [0.0, 1.0, 0.0, 0.0, 0.0]), "it has a penalty of other parts"),
    "an intercept beyond measure": (lambda m: m.update(intercept=1e308), "its intercept is no number"),
    "fields without names": (lambda m: m["columns"][0].update(names=[]), "column 'age' has no proper names of fields"),
    "a format that is a truth": (lambda m: m.update(format=True), "it has no format number"),
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_that_is_not_that_of_the_model_is_refused(name: str, usual: Path, tmp_path: Path) -> None:
    change, message = RECORDS[name]
    manifest, arrays = parts(usual)
    change(manifest)
    path = forge(tmp_path / "bad.acx", manifest, arrays)
    with pytest.raises(BundleError, match=rf"Cannot load .*bad\.acx': .*{message}"):
        load(path)


def test_a_score_of_one_class_is_no_number_and_loads(usual: Path, tmp_path: Path) -> None:
    """A fit writes NaN into its history where the rows that judge have one label."""
    manifest, arrays = parts(usual)
    manifest["about"]["history"][0]["score"] = float("nan")
    assert load(forge(tmp_path / "odd.acx", manifest, arrays)).score_one({}) == load(usual).score_one({})


def test_what_is_printed_moves_no_cursor(usual: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names and values of a stranger's model do not speak to the terminal."""
    manifest, arrays = parts(usual)
    manifest["schema"][0]["reason"] = manifest["about"]["target"] = "\x1b[2Jgone\r\n\x9bx"
    at = [entry["name"] for entry in manifest["columns"]].index("job")
    arrays[f"text.{at}"][:2] = [0x1B, 0x0A]
    path = forge(tmp_path / "odd.acx", manifest, arrays)
    for command in (["show", str(path)], ["explain", str(path), '{"job": "cook"}']):
        assert run(command) == 0
        printed = capsys.readouterr().out
        assert not set(printed) & {"\x1b", "\r", "\x9b"}
        assert command[0] == "explain" or "\\x1b[2Jgone\\r\\n\\x9bx" in printed
