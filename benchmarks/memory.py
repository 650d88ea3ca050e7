"""What a fit takes of memory under a limit, beside what the libraries take anyway.

make bench-memory
.venv/bin/python benchmarks/memory.py --tables mixed.csv --limits 0.25 0.5     only these cells; the page keeps its others
.venv/bin/python benchmarks/memory.py --rows 100000 --print                    tell more, write nothing

Each fit is a process of its own. It first fits a small table of the same columns, so that libraries and compiled loops are loaded;
what it has then is the base, with the table where that is a frame. Its memory is looked at from outside every few milliseconds.
What counts is what it has allocated beyond the base; pages of files that are mapped do not, since the system can drop them at any
time.
"""

from __future__ import annotations

import argparse
import gzip
import json
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from sections import PAGE, SOURCE, Stamp, machine, sections, stamp_in, stamp_now, table, table_rows, write_section

LIMITS = (0.25, 0.5, 1.0, 2.0)
ROWS = 2_000_000
PART = 250_000  # rows generated at once
SMALL = 3000
EVERY = 0.003  # seconds
SLACK = 1.2  # times the limit, which a fit may take

# Run in a process of its own: the small fit, then the one that is watched, between two words on stdout.
CHILD = """
import json, sys
import polars as pl
from autocross import AutoCrossClassifier
from autocross.errors import AutoCrossError

small, rows, is_frame, options, journal = sys.argv[1:]
for evaluation in ("kfold", "holdout"):
    AutoCrossClassifier(quiet=True, max_crosses=2, evaluation=evaluation).fit(small, "label")
rows = pl.read_parquet(rows) if is_frame == "yes" else rows
print("begin", flush=True)
sys.stdin.readline()
try:
    model = AutoCrossClassifier(quiet=True, journal=journal, **json.loads(options)).fit(rows, "label")
    outcome = f"{len(model.crosses_)} crosses"
except AutoCrossError as error:
    outcome = f"refused: {error}"
print(json.dumps(outcome), flush=True)
sys.stdin.readline()
"""


def mixed(rng: np.random.Generator, first: int, n: int) -> dict[str, Any]:
    """20 columns: floats that all differ, amounts, whole numbers, categories of 5 to 50,000 values, a date and time."""
    columns: dict[str, Any] = {f"float{number}": rng.normal(size=n) for number in range(6)}
    columns |= {f"amount{number}": np.round(rng.lognormal(3, 1, n), 2) for number in range(2)}
    columns |= {f"whole{number}": rng.integers(0, 10 ** (number + 1), n) for number in range(4)}
    columns |= {f"group{size}": words(rng.integers(0, size, n)) for size in (5, 10, 20, 100, 1000, 10_000, 50_000)}
    columns["when"] = np.datetime64("2024-01-01T00:00:00", "us") + (first + np.arange(n)).astype("timedelta64[s]")
    return columns


def texts(rng: np.random.Generator, first: int, n: int) -> dict[str, Any]:
    """Six columns of texts, most of which differ from row to row or nearly so, and two of few values."""
    columns: dict[str, Any] = {f"word{number}": words(rng.zipf(1.1 + 0.1 * number, n) % 10**7) for number in range(4)}
    columns |= {"user": words(rng.integers(0, 500_000, n)), "device": words(rng.integers(0, 2_000_000, n))}
    columns |= {f"group{size}": words(rng.integers(0, size, n)) for size in (10, 20)}
    return columns


def lists(rng: np.random.Generator, first: int, n: int) -> dict[str, Any]:
    """Three multi-value columns of up to 4, 8 and 16 values a row, and five others."""
    columns: dict[str, Any] = {f"float{number}": rng.normal(size=n) for number in range(3)}
    columns |= {f"group{size}": words(rng.integers(0, size, n)) for size in (10, 20)}
    for most, size in ((4, 200), (8, 2000), (16, 20_000)):
        ends = np.cumsum(rng.integers(0, most + 1, n))
        values = words(rng.integers(0, size, int(ends[-1])))
        row = np.searchsorted(ends, np.arange(ends[-1]), side="right")
        some = pl.DataFrame({"row": row, "value": values}).group_by("row", maintain_order=True).agg("value")
        columns[f"tags{most}"] = pl.DataFrame({"row": np.arange(n)}).join(some, on="row", how="left", maintain_order="left")[
            "value"
        ]
    return columns


def words(codes: Any) -> pl.Series:
    return pl.Series(codes).cast(pl.String) + "-word"


KINDS = {"mixed": mixed, "texts": texts, "lists": lists}
TABLES = ["mixed.parquet", "mixed.csv", "texts.parquet", "lists.parquet", "mixed frame", "mixed.csv.gz"]


def part(kind: str, first: int, n: int) -> pl.DataFrame:
    """Some rows, with labels that follow from two groups together."""
    rng = np.random.default_rng(first)
    columns = KINDS[kind](rng, first, n)
    odd = (columns["group10"].str.slice(0, 1).cast(pl.Int64) + columns["group20"].str.slice(0, 1).cast(pl.Int64)).to_numpy() % 2
    return pl.DataFrame(columns).with_columns(label=(rng.random(n) < np.where(odd, 0.4, 0.2)).astype(np.uint8))


def written(folder: Path, name: str, n_rows: int) -> Path:
    """The rows in a file, unless it is there already."""
    kind, _, ending = name.replace(" frame", ".parquet").partition(".")
    path = folder / f"{kind}-{n_rows}.{ending}"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        rows = pl.concat([part(kind, first, min(PART, n_rows - first)) for first in range(0, n_rows, PART)])
        if ending == "parquet":
            rows.write_parquet(path)
        elif ending == "csv":
            rows.write_csv(path)
        else:
            with open(written(folder, f"{kind}.csv", n_rows), "rb") as plain, gzip.open(path, "wb", compresslevel=1) as packed:
                shutil.copyfileobj(plain, packed)
    return path


def allocated(process: int) -> int:
    """Bytes that a process has in memory and that are not pages of a file."""
    facts = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return sum(int(facts[word].split()[0]) << 10 for word in ("RssAnon", "RssShmem"))


def phases(journal: Path) -> list[tuple[float, str]]:
    """When each phase of a fit began."""
    found = []
    for event in [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []:
        if event["event"] == "PhaseStarted":
            found.append((event["seconds"], event["phase"]))
        elif event["event"] == "RuleApplied" and event["name"] in ("min_count", "hash_bits", "evaluation"):
            after = {"min_count": "making encoders", "hash_bits": "encoding rows", "evaluation": "shuffling"}
            found.append((event["seconds"], after[event["name"]]))
    return found


def measured(folder: Path, name: str, n_rows: int, options: dict[str, Any]) -> dict[str, Any]:
    """One fit: what came of it, and the most bytes allocated beyond the base, in all and by phase."""
    small, path, is_frame = written(folder, name, SMALL), written(folder, name, n_rows), "yes" if "frame" in name else "no"
    with tempfile.TemporaryDirectory() as work:
        journal = Path(work) / "journal.jsonl"
        command = [sys.executable, "-c", CHILD, str(small), str(path), is_frame, json.dumps(options), str(journal)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdin is not None and child.stdout is not None
            assert child.stdout.readline() == "begin\n"
            base, began, samples = allocated(child.pid), time.perf_counter(), []
            print(file=child.stdin, flush=True)
            with selectors.DefaultSelector() as ready:
                ready.register(child.stdout, selectors.EVENT_READ)
                while not ready.select(EVERY):
                    samples.append((time.perf_counter() - began, allocated(child.pid) - base))
            outcome = json.loads(child.stdout.readline())
            print(file=child.stdin, flush=True)
        starts, most = phases(journal), {}
        for (begin, phase), (end, _) in zip(starts, [*starts[1:], (float("inf"), "")], strict=True):
            inside = [n_bytes for seconds, n_bytes in samples if begin <= seconds < end]
            most[phase] = max(inside, default=0)
        peak = max(n_bytes for _, n_bytes in samples)
        return {"outcome": outcome, "peak": peak, "seconds": samples[-1][0], "phases": most, "base": base}


def told(found: dict[str, Any], limit: float) -> str:
    """A cell of the table."""
    share = f"{found['peak'] / 2**30:.2f}"
    if found["peak"] > SLACK * limit * 2**30:
        share += " (missed)"
    return f"refused at {share}" if found["outcome"].startswith("refused") else f"{share}, {found['seconds']:.0f} s"


Cells = dict[tuple[str, float], str]  # by table and limit


def kept(page: str) -> tuple[Cells, Stamp | None]:
    """The cells that the page has, and the stamp of their section."""
    text = sections(page).get("memory", "")
    stamp = stamp_in(text)
    if stamp is None:
        return {}, None
    head, *lines = table_rows(text)
    limits = [float(word.split()[1]) for word in head[1:]]
    return {(name, limit): cell for name, *row in lines for limit, cell in zip(limits, row, strict=True) if cell}, stamp


def text_of(cells: Cells) -> str:
    """The section."""
    limits = sorted({limit for _, limit in cells})
    head = ["table", *(f"limit {limit:g} GiB" for limit in limits)]
    known = [name for name in TABLES if any((name, limit) in cells for limit in limits)]
    lines = [[name, *(cells.get((name, limit), "") for limit in limits)] for name in known]
    return f"""## Memory under a limit, by benchmarks/memory.py

{table(head, lines)}

The most GiB that a fit had allocated beyond what libraries, compiled loops and a frame of the caller take, and its seconds; a fit
that would need more than its limit is refused, and had allocated so much by then. {ROWS:,} rows: `mixed` has 20 columns of numbers,
categories and times, `texts` six columns of up to 2 million values, `lists` three multi-value columns. One cross at most, 2
threads. ({machine()})
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory of a fit under a limit.")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--limits", type=float, nargs="+", default=LIMITS)
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=TABLES)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "autocross-memory")
    parser.add_argument("--options", type=json.loads, default={"max_crosses": 1})
    parser.add_argument("--print", action="store_true", help="do not write the section, tell more")
    given, now = parser.parse_args(), stamp_now(SOURCE)
    cells, before = kept(PAGE.read_text())
    anew: set[tuple[str, float]] = set()
    for name in given.tables:
        for limit in given.limits:
            found = measured(given.folder, name, given.rows, {"memory_limit": limit, **given.options})
            cells[name, limit] = told(found, limit)
            by_phase = ", ".join(f"{phase} {n_bytes >> 20}" for phase, n_bytes in found["phases"].items())
            print(f"{name}, {limit:g} GiB: {cells[name, limit]}. {found['outcome']}. MiB: {by_phase}", file=sys.stderr, flush=True)
            anew.add((name, limit))
            if not given.print:
                write_section("memory", text_of(cells), now if before is None or anew >= cells.keys() else now.joined(before))


if __name__ == "__main__":
    main()
