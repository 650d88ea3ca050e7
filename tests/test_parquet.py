"""Damaged Parquet files: an error, where polars alone would end the process."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from autocross import AutoCrossClassifier
from autocross.cli import run
from autocross.errors import FileError
from autocross.kernels import thrift
from autocross.table import files, parquet
from autocross.table.batches import batches
from autocross.table.dialect import ANY

DAMAGED = "The file is damaged or incomplete; copy it again"


def rows(n: int = 200) -> pl.DataFrame:
    """Columns of several kinds, with missing values and lists."""
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "job": rng.choice(["cook", "nurse", "clerk"], n),
            "score": rng.normal(size=n),
            "tags": [["a", "b", "c"][: int(size)] for size in rng.integers(0, 4, n)],
            "pair": [{"x": int(x), "y": str(x)} for x in rng.integers(0, 9, n)],
            "y": rng.integers(0, 2, n),
        }
    )
    return frame.with_columns(pl.when(pl.col("age") % 9 > 0).then(pl.col("age")).alias("age"))


def negative_count(path: Path) -> Path:
    """Flip one bit: the first page with 200 values claims to have -201, for which polars makes room."""
    rows().write_parquet(path)
    header = b"\x2c\x15\x90\x03"  # a page of data follows; its first field is a whole number, 200
    content = path.read_bytes()
    assert header in content
    path.write_bytes(content.replace(header, b"\x2c\x15\x91\x03", 1))
    return path


def read_alone(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program in a process that may die."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_damage_would_end_the_process(tmp_path: Path) -> None:
    done = read_alone("import sys, polars; polars.read_parquet(sys.argv[1])", negative_count(tmp_path / "rows.parquet"))
    if done.returncode >= 0:
        pytest.skip("this version of polars survives it")
    assert "memory allocation" in done.stderr


READERS: dict[str, Callable[[Path], object]] = {
    "as a whole": files.read,
    "a folder": lambda path: files.read(path.parent),
    "at a URL": lambda path: files.read(files.place_of(path.as_uri())),
    "part by part": lambda path: list(batches(path, ANY, files.whole_files(path))),
    "a folder part by part": lambda path: list(batches(path.parent, ANY, files.whole_files(path.parent))),
    "fit": lambda path: AutoCrossClassifier(quiet=True).fit(path, "y"),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_page_that_cannot_be_right_is_refused_however_it_is_read(reader: str, tmp_path: Path) -> None:
    path = negative_count(tmp_path / "rows.parquet")
    with pytest.raises(FileError, match=rf"Cannot read .*rows\.parquet': the header of the page at byte \d+ .*{DAMAGED}"):
        READERS[reader](path)


def test_the_command_line_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = negative_count(tmp_path / "rows.parquet")
    assert run(["fit", str(path), "--target", "y", "-o", str(tmp_path / "m.acx"), "--quiet"]) == 2
    assert DAMAGED in capsys.readouterr().err
    assert not (tmp_path / "m.acx").exists()


def test_only_the_pages_of_rows_that_are_read_are_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    rows(600).write_parquet(path, row_group_size=200)
    content = bytearray(path.read_bytes())
    begin = pq.read_metadata(path).row_group(1).column(0).data_page_offset
    content[begin : begin + 20] = bytes(20)
    path.write_bytes(content)
    for first_row, n_rows in ((0, 200), (400, 200), (0, 0)):
        parquet.check("rows", path, first_row, n_rows)
    for first_row, n_rows in ((0, 201), (399, 1), (200, 1), (0, 600)):
        with pytest.raises(FileError, match=f"page at byte {begin} "):
            parquet.check("rows", path, first_row, n_rows)


# Footers.


def rewritten(path: Path, change: Callable[[bytearray], None]) -> None:
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)


def lengthen(content: bytearray) -> None:
    content[-8:-4] = (10**9).to_bytes(4, "little")


def empty(content: bytearray) -> None:
    del content[:]


def open_lists(content: bytearray) -> None:
    """A footer of structures within structures, with no end."""
    content[4:] = b"\x1c" * 1000 + (1000).to_bytes(4, "little") + b"PAR1"


def one_row_fewer(content: bytearray) -> None:
    """The file claims a row fewer than its groups have; the field behind the columns, before the list of groups."""
    at = content.rindex(b"\x16\x90\x03\x19")
    content[at + 1 : at + 3] = b"\x8e\x03"


FOOTERS: dict[str, tuple[Callable[[bytearray], None], str]] = {
    "nothing": (empty, "it is empty"),
    "too long": (lengthen, "its footer should have 1,000,000,000 bytes, and the file has"),
    "no mark": (lambda content: content.__setitem__(slice(0, 4), b"PART"), "does not begin and end as a Parquet file does"),
    "too deep": (open_lists, "its footer is not well formed"),
    "rows": (one_row_fewer, "it should have 199 rows, but its groups of rows have other numbers"),
}


@pytest.mark.parametrize("name", FOOTERS)
def test_a_footer_that_cannot_be_right(name: str, tmp_path: Path) -> None:
    change, message = FOOTERS[name]
    path = tmp_path / "rows.parquet"
    rows().write_parquet(path)
    rewritten(path, change)
    for reader in (files.read, files.n_rows, files.column_names, files.bytes_in_memory):
        with pytest.raises(FileError, match=f"{message}.*{DAMAGED}"):
            reader(path)
        if name not in ("nothing", "no mark"):  # of a remote file only the end is fetched
            with pytest.raises(FileError, match=f"{message}.*{DAMAGED}"):
                reader(files.place_of(path.as_uri()))


def test_columns_within_columns_without_end(tmp_path: Path) -> None:
    """A table without rows whose one column lies 10,000 structures deep, for which polars' stack is too small."""
    n = 10_000
    group, leaf = bytes.fromhex("3502180161150200"), bytes.fromhex("1502250218016100")
    columns = b"\x19\xfc" + bytes([(n + 2) & 127 | 128, (n + 2) >> 7]) + group * (n + 1) + leaf
    footer = b"\x15\x02" + columns + b"\x16\x00\x19\x0c\x00"
    path = tmp_path / "deep.parquet"
    path.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(FileError, match=f"its columns lie more than 64 deep within each other.*{DAMAGED}"):
        files.column_names(path)


@pytest.mark.parametrize("kept", ["nothing behind the group", "a column too many"])
def test_columns_that_do_not_fit_together(kept: str, tmp_path: Path) -> None:
    group, leaf = bytes.fromhex("3502180161150200"), bytes.fromhex("1502250218016100")
    columns = b"\x19\x1c" + group if kept == "nothing behind the group" else b"\x19\x3c" + group + leaf + leaf
    footer = b"\x15\x02" + columns + b"\x16\x00\x19\x0c\x00"
    path = tmp_path / "odd.parquet"
    path.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(FileError, match=f"its columns do not fit together.*{DAMAGED}"):
        files.column_names(path)


# Sound files are read as before, whoever wrote them.

WRITERS: dict[str, Callable[[pl.DataFrame, Path], None]] = {
    **{
        f"polars, {packed}": lambda frame, path, packed=packed: frame.write_parquet(path, compression=packed, row_group_size=70)
        for packed in ("uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4")
    },
    "pyarrow": lambda frame, path: pq.write_table(frame.to_arrow(), path, row_group_size=70),
    "pyarrow, newer pages": lambda frame, path: pq.write_table(frame.to_arrow(), path, data_page_version="2.0", data_page_size=64),
    "pyarrow, index and checksums": lambda frame, path: pq.write_table(
        frame.to_arrow(), path, write_page_index=True, write_page_checksum=True
    ),
    "pyarrow, differences of texts": lambda frame, path: pq.write_table(
        frame.select("job", "y").to_arrow(), path, use_dictionary=False, column_encoding={"job": "DELTA_BYTE_ARRAY", "y": "PLAIN"}
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS)
def test_sound_files_pass(writer: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    for frame in (rows(), rows().clear(), rows()[:1]):
        WRITERS[writer](frame, path)
        assert files.read(path).to_dicts() == frame.select(files.column_names(path)).to_dicts()


@pytest.mark.slow
def test_lengths_within_a_page_that_would_end_the_process(tmp_path: Path) -> None:
    """Headers do not tell: another process must try."""
    path = tmp_path / "rows.parquet"
    texts = pl.DataFrame({"text": [f"{number * 7919 % 100003:x}" for number in range(120)]})
    pq.write_table(texts.to_arrow(), path, compression="none", use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY"})
    assert files.read(path).equals(texts)
    content = path.read_bytes()
    lengths = content.index(b"\x80\x01\x04") + 1  # behind it the page says how much of a text is that of the one before
    path.write_bytes(content[:lengths] + bytes.fromhex("f0ffffffffff0f") + content[lengths + 7 :])
    for place in (path, files.place_of(path.as_uri())):
        with pytest.raises(FileError, match=f"the process that tried to read it has died.*{DAMAGED}"):
            files.read(place)
    gc.collect()  # a view of a stream in a traceback that holds itself ends Python 3.12.1


@pytest.mark.slow
def test_a_remote_file_is_read_first_where_that_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    WRITERS["pyarrow, differences of texts"](rows(), path)
    parquet.check("rows", BytesIO(path.read_bytes()), 10, 20)
    assert files.read(files.place_of(path.as_uri())).height == 200


# Bits that flip.

READ_ALL = """
import sys
from pathlib import Path
from autocross.errors import AutoCrossError
from autocross.table import files
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        files.read(path)
    except AutoCrossError:
        pass
    print(path.name, flush=True)
"""


def flipped(content: bytes, rng: random.Random) -> bytes:
    """One to four bits, half of them where the file describes itself."""
    damaged = bytearray(content)
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for _ in range(rng.choice([1, 2, 4])):
        at = rng.randrange(footer, len(content)) if rng.random() < 0.25 else rng.randrange(4, footer)
        damaged[at] ^= 1 << rng.randrange(8)
    return bytes(damaged)


@pytest.mark.slow
def test_no_flipped_bit_ends_the_process(tmp_path: Path) -> None:
    rng = random.Random(1)
    folder = tmp_path / "damaged"
    folder.mkdir()
    path = tmp_path / "rows.parquet"
    for writer in ("polars, zstd", "polars, uncompressed", "pyarrow", "pyarrow, newer pages"):
        WRITERS[writer](rows(50).drop("score"), path)  # little data, so that many bits hit headers
        content = path.read_bytes()
        for number in range(150):
            (folder / f"{writer} {number:03}.parquet").write_bytes(flipped(content, rng))
    done = read_alone(READ_ALL, folder)
    assert done.returncode == 0, done.stdout.splitlines()[-1:] + done.stderr.splitlines()[-3:]
    assert len(done.stdout.splitlines()) == 600


# The reader of Thrift's compact protocol.


def thrift_values(data: bytes) -> tuple[list[tuple[int, int]], int]:
    room = np.empty(100, np.int64), np.empty(100, np.int64)
    n, end = thrift.read(np.frombuffer(data, np.uint8), 0, *room, parquet.new_stack())
    return list(zip(room[0][:n].tolist(), room[1][:n].tolist(), strict=True)), end


def test_every_kind_of_value_is_read() -> None:
    data = bytes.fromhex(
        "11"  # field 1 is true
        "12"  # field 2 is false
        "13ff"  # field 3, a byte
        "1503"  # field 4, -2
        "1680808080808080808001"  # field 5, 2^62
        "170000000000000000"  # field 6, a double
        "18026869"  # field 7, a text of two
        "193502040600"  # field 8, a list of 1, 2, 3; the end
    )
    path = parquet.path_of
    expected = [(1, 1), (2, 0), (3, 0), (4, -2), (5, 2**62), (6, 0), (7, 2), (8, 1), (8, 2), (8, 3)]
    assert thrift_values(data) == ([(path(field), value) for field, value in expected], len(data))
    for length in range(len(data)):
        assert thrift_values(data[:length])[1] == -1
    nested = bytes.fromhex("0554001c15020000")  # 0 in field 42, then a structure in field 43 with 1 in its field 1
    assert thrift_values(nested) == ([(path(42), 0), (path(43), 0), (path(43, 1), 1)], len(nested))


@pytest.mark.parametrize(
    "data",
    ["18ffffffff7f", "19f5ffffffff0f", "1b00", "1d00", "1680808080808080808080808001", "19" * 40, "1c" * 40],
    ids=["a long text", "a long list", "a map", "no kind", "a long number", "lists in lists", "structures in structures"],
)
def test_what_is_not_well_formed_has_no_end(data: str) -> None:
    assert thrift_values(bytes.fromhex(data))[1] == -1


def test_no_byte_outside_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """As plain Python, in which an index beyond an array is an error."""
    for name in ("varint", "signed", "value_at", "read", "walk_pages"):
        compiled = getattr(thrift, name)
        monkeypatch.setattr(thrift, name, getattr(compiled, "py_func", compiled))
    rng = random.Random(2)
    for _ in range(1000):
        content = rng.randbytes(rng.randrange(1, 60))
        thrift_values(content)
        data, ends = np.frombuffer(content, np.uint8), np.array([len(content)])
        room = np.empty(64, np.int64), np.empty(64, np.int64)
        thrift.walk_pages(data, np.array([0]), ends, np.array([9]), np.array([99]), parquet.new_stack(), *room)
