"""Part 11: input files that are damaged, and outputs that would overwrite them.

A damaged CSV or Parquet file is refused with its name, or read; the process lives, and its memory stays bounded. Rows that were
given as input are never overwritten by a command.
"""

from __future__ import annotations

import gzip
import os
import resource
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import polars as pl

from autocross import AutoCrossClassifier, load
from autocross.cli import run as cli
from torture.bundles import with_bytes_changed
from torture.tools import Refused, answer, by_parts, planted, require

Rng = np.random.Generator
MOST_MEMORY = 3 << 30  # that a file of some KB may cost
NAMES = ("plain.parquet", "snappy.parquet", "zstd.parquet", "gzip.parquet", "rows.csv", "rows.tsv", "rows.csv.gz")
SELDOM = 20  # of so many cases one is about outputs


@cache
def reference() -> tuple[dict[str, bytes], Path]:
    """Files in good order, and a model of their rows."""
    folder = Path(mkdtemp(prefix="torture-files-"))
    rows = planted(5, 120, 3)
    dates = rows.with_columns(when=pl.datetime_range(pl.datetime(2024, 1, 1), pl.datetime(2024, 1, 5), "48m", eager=True)[:120])
    for name in NAMES[:4]:
        packing: Any = name.split(".")[0].replace("plain", "uncompressed")
        dates.write_parquet(folder / name, compression=packing, row_group_size=50)
    flat = dates.drop("tags")
    flat.write_csv(folder / "rows.csv")
    flat.write_csv(folder / "rows.tsv", separator="\t")
    (folder / "rows.csv.gz").write_bytes(gzip.compress((folder / "rows.csv").read_bytes(), mtime=0))
    model = AutoCrossClassifier(quiet=True, engine="serial", max_crosses=0, split="random").fit(flat, "label")
    model.save(folder / "model.acx")
    return {name: (folder / name).read_bytes() for name in NAMES}, folder / "model.acx"


def attack(seed: int, folder: Path) -> None:
    rng = np.random.default_rng(seed)
    if seed % SELDOM == SELDOM - 1:
        overwritten(rng, folder)
    else:
        damaged(rng, folder)


def with_flipped_bits(content: bytes, rng: Rng) -> bytes:
    """A few bits flipped, often in the footer, which says how to read the rest. Nothing moves: readers get far before they stop."""
    found, footer = bytearray(content), int.from_bytes(content[-8:-4], "little") + 8
    first = len(found) - footer if rng.random() < 0.5 else 0
    for at in rng.integers(first, len(found), int(rng.integers(1, 7))).tolist():
        found[at] ^= 1 << int(rng.integers(8))
    return bytes(found)


def damaged(rng: Rng, folder: Path) -> None:
    contents, model = reference()
    name = str(rng.choice(NAMES))
    path = folder / name
    content = contents[name]
    if name.endswith("parquet") and rng.random() < 0.8:
        content = with_flipped_bits(content, rng)
    else:
        content = with_bytes_changed(content, rng)
    path.write_bytes(content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    calls: list[Callable[[], Any]] = [
        lambda: AutoCrossClassifier(quiet=True, engine="serial", max_crosses=0).fit(path, "label"),
        lambda: load(model).score(path),
    ]
    for call in calls:
        found = answer(call)
        if isinstance(found, Refused):
            require("Traceback" not in str(found.error), str(found.error))
    with by_parts(30):
        answer(calls[0])
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    require(grown < MOST_MEMORY, f"a damaged file of {len(content)} bytes cost {grown / 2**30:.1f} GiB")


def overwritten(rng: Rng, folder: Path) -> None:
    """The output is an input file under its own name, another way to it, or a link."""
    contents, model = reference()
    name = str(rng.choice(["plain.parquet", "rows.csv"]))
    rows = folder / name
    rows.write_bytes(contents[name])
    output = folder / ("linked.parquet" if name.endswith("parquet") else "linked.csv")
    how = str(rng.choice(["same", "dots", "symbolic", "hard"]))
    if how == "symbolic":
        output.symlink_to(rows)
    elif how == "hard":
        os.link(rows, output)
    else:
        output = rows if how == "same" else folder / ".." / folder.name / name
    words: list[list[Any]] = [
        ["fit", rows, "--target", "label", "-o", output, "--quiet", "--max-crosses", "0"],
        ["refit", model, rows, "-o", output, "--quiet"],
        ["predict", model, rows, "-o", output],
        ["transform", model, rows, "-o", output],
        ["fit", rows, "--target", "label", "-o", folder / "new.acx", "--quiet", "--max-crosses", "0", "--journal", output],
    ]
    chosen = [str(word) for word in words[rng.integers(len(words))]]
    code = cli(chosen)
    require(rows.read_bytes() == contents[name], f"the rows were overwritten ({how}): {' '.join(chosen)}")
    # A link may be replaced: what it leads to stays.
    require(how in ("symbolic", "hard") or code == 2, f"exit code {code} where the output is the input: {' '.join(chosen)}")
