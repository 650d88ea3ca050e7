"""A search goes on with the rows it was left with, and with no others, however much alike."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from autocross import AutoCrossClassifier
from autocross.blocks import Block, BlockWriter
from autocross.errors import FileError, OptionError
from autocross.features import FieldCodes
from autocross.fingerprint import row_sums
from autocross.folds import FoldPlan

N = 600


def visits() -> pl.DataFrame:
    """Rows with a column of every kind, a weight, a group and a moment, and a label that a cross decides."""
    rng = np.random.default_rng(11)
    job, town = (rng.choice(["cook", "nurse", "clerk"], N) for _ in range(2))
    log_odds = np.where(job == town, 1.5, -1.0)
    tags = [rng.choice(["a", "b", "c", "d"], rng.integers(0, 4), replace=False).tolist() for _ in range(N)]
    begin = datetime(2024, 1, 1)
    return pl.DataFrame(
        {
            "job": job,
            "town": town,
            "age": rng.normal(40, 12, N).round(0),
            "tags": tags,
            "since": [begin + timedelta(days=int(day), hours=int(day) % 7) for day in rng.integers(0, 300, N)],
            "client": [f"client {number}" for number in rng.integers(0, 40, N)],
            "weight": rng.random(N) + 0.5,
            "bought": rng.random(N) < 1 / (1 + np.exp(-log_odds)),
        }
    )


def fitted(frame: pl.DataFrame | Path, target: str = "bought", **options: Any) -> AutoCrossClassifier:
    given = {"quiet": True, "engine": "serial", "groups": "client", "time": "since", "max_crosses": 2, **options}
    return AutoCrossClassifier(**given).fit(frame, target, "weight")


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("left")
    fitted(visits(), checkpoint=str(folder)).save(folder / "whole.acx")
    return folder


def swapped(frame: pl.DataFrame, column: str, one: int = 0, other: int = 1) -> pl.DataFrame:
    """Two rows exchange their values of a column; they must differ."""
    values = frame[column].to_list()
    while values[one] == values[other]:
        other += 1
    values[one], values[other] = values[other], values[one]
    return frame.with_columns(pl.Series(column, values, dtype=frame[column].dtype))


def shuffled(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    return frame.with_columns(frame[column].shuffle(seed=1))


def exchanged(frame: pl.DataFrame) -> pl.DataFrame:
    """In a row that has other values there, two columns exchange them."""
    row = next(at for at, (job, town) in enumerate(frame.select("job", "town").rows()) if job != town)
    job, town = frame["job"].to_list(), frame["town"].to_list()
    job[row], town[row] = town[row], job[row]
    return frame.with_columns(job=pl.Series(job), town=pl.Series(town))


CHANGES: dict[str, tuple[Callable[[pl.DataFrame], pl.DataFrame], str]] = {
    "tags shuffled": (lambda frame: shuffled(frame, "tags"), "values of column 'tags'"),
    "tags of two rows swapped": (lambda frame: swapped(frame, "tags"), "values of column 'tags'"),
    "weights shuffled": (lambda frame: shuffled(frame, "weight"), "weights"),
    "weights of two rows swapped": (lambda frame: swapped(frame, "weight"), "weights"),
    "labels of two rows swapped": (lambda frame: swapped(frame, "bought"), "labels"),
    "values of two rows swapped": (lambda frame: swapped(frame, "job"), "values of column 'job'"),
    "values of two columns swapped": (exchanged, "values of column 'job'"),
    "numbers of two rows swapped": (lambda frame: swapped(frame, "age"), "values of column 'age'"),
    "groups of two rows swapped": (lambda frame: swapped(frame, "client"), "groups or periods"),
    "rows reversed": (lambda frame: frame.reverse(), "labels"),
    "a row less": (lambda frame: frame[1:], "numbers of rows"),
    "a row twice": (lambda frame: pl.concat([frame, frame[:1]]), "numbers of rows"),
    "other words for the same codes": (
        lambda frame: frame.with_columns(pl.col("job").replace("cook", "chef")),
        "codes of column 'job'",
    ),
    "other words in lists": (
        lambda frame: frame.with_columns(pl.col("tags").list.eval(pl.element() + "x")),
        "codes of column 'tags'",
    ),
    "other numbers in the same bins": (lambda frame: frame.with_columns(pl.col("age") * 2), "codes of column 'age'"),
    "other hours by the same codes": (
        lambda frame: frame.with_columns(pl.col("since").dt.offset_by("1h")),
        "codes of column 'since'",
    ),
    "moments of two rows swapped": (lambda frame: swapped(frame, "since"), "values of column 'since'"),
    "a column renamed": (lambda frame: frame.rename({"town": "city"}), "kinds of columns"),
    "a constant column more": (lambda frame: frame.with_columns(more=pl.lit(1)), "kinds of columns"),
    "numbers stored as text": (
        lambda frame: frame.with_columns(pl.col("age").cast(pl.String)),
        "kinds of columns",
    ),
    "other labels": (lambda frame: frame.with_columns(pl.col("bought").cast(pl.Int8)), "classes"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.filterwarnings("ignore::autocross.errors.TableWarning")
def test_other_rows_are_refused(name: str, left: Path) -> None:
    change, what = CHANGES[name]
    with pytest.raises(FileError, match=rf"is of other rows than these: .*{what}.* differ\. Resume with the rows"):
        fitted(change(visits()), resume=str(left))


def test_periods_are_read_too(tmp_path: Path) -> None:
    options = {"groups": None, "types": {"since": "ignore"}}
    fitted(visits(), checkpoint=str(tmp_path), **options)
    with pytest.raises(FileError, match=r"is of other rows than these: groups or periods differ"):
        fitted(swapped(visits(), "since"), resume=str(tmp_path), **options)


def test_another_target_is_refused(left: Path) -> None:
    with pytest.raises(FileError, match=r"is of other rows than these: names of the target differ"):
        fitted(visits().rename({"bought": "paid"}), "paid", resume=str(left))


def test_another_positive_label_is_refused(left: Path) -> None:
    with pytest.raises(OptionError, match="Option positive=False differs from the None of the checkpoint"):
        fitted(visits(), positive=False, resume=str(left))


def test_memory_that_asks_for_fewer_bins_is_told(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autocross.encoding.plan.granularities", lambda *facts: (10,))
    with pytest.raises(FileError, match=r"granularities, which follow from the rows and memory_limit, differ"):
        fitted(visits(), resume=str(left))


SAME: dict[str, dict[str, Any]] = {
    "three threads": {"engine": "threads", "n_jobs": 3},
    "more memory": {"memory_limit": 100.0},
    "more time": {"time_limit": 1e6},
    "a journal": {"journal": "/dev/null"},
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_rows_go_on_to_the_same_file(name: str, left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autocross.fitting.run.BLOCK_ROWS", 100)  # several blocks
    columns = visits().columns
    frame = visits().select(sorted(columns, reverse=True))  # the order of columns is nothing that a fit reads
    fitted(frame, resume=str(left), checkpoint=str(tmp_path), **SAME[name]).save(tmp_path / "resumed.acx")
    assert (tmp_path / "resumed.acx").read_bytes() == (left / "whole.acx").read_bytes()


def test_the_same_rows_may_be_read_part_by_part(left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autocross.table.ingest.bytes_in_memory", lambda path: 1 << 60)  # every file is too large for memory
    visits().write_parquet(tmp_path / "rows.parquet", row_group_size=90)
    resumed = fitted(tmp_path / "rows.parquet", resume=str(left), checkpoint=str(tmp_path))
    resumed.save(tmp_path / "resumed.acx")
    assert (tmp_path / "resumed.acx").read_bytes() == (left / "whole.acx").read_bytes()


# The sums themselves.


def ragged(rows: list[list[int]]) -> FieldCodes:
    starts = np.cumsum([0, *map(len, rows)])
    return FieldCodes(np.array([code for row in rows for code in row], np.uint8), starts)


def total(blocks: list[Block]) -> list[int]:
    return list(map(int, np.sum([row_sums(block) for block in blocks], axis=0, dtype=np.int64)))


def spread(n_blocks: int, rows: list[list[int]], label: Any = None, weight: Any = None, seed: int = 0) -> list[Block]:
    rng = np.random.default_rng(seed)
    codes = [FieldCodes(rng.integers(0, 300, len(rows)).astype(np.uint16)), ragged(rows)]
    label = rng.integers(0, 2, len(rows)).astype(np.uint8) if label is None else label
    weight = rng.random(len(rows)).astype(np.float32) if weight is None else weight
    writer = BlockWriter([np.uint16, None], len(rows), 0)
    writer.add(0, dict(enumerate(codes)))
    return writer.blocks(n_blocks, range(2), label, weight, FoldPlan(5, holdout=False))


def random_rows(n: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 5, size).tolist() for size in rng.integers(0, 4, n)]


@pytest.mark.parametrize("n_blocks", [2, 3, 7])
def test_sums_do_not_depend_on_how_rows_are_spread(n_blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_rows(500)
    whole = total(spread(1, rows))
    assert len(whole) == len(set(whole))
    assert total(spread(n_blocks, rows)) == whole
    monkeypatch.setattr("autocross.fingerprint.SLICE", 64)
    assert total(spread(n_blocks, rows)) == whole


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([[1, 2], [3]], [[2, 1], [3]]),
        ([[1, 2], [3]], [[1], [2, 3]]),
        ([[1, 2], [3]], [[3], [1, 2]]),
        ([[1, 2], [3]], [[1, 3], [2]]),
        ([[0], []], [[], [0]]),
        ([[0, 0], []], [[0], [0]]),
        ([[], []], [[0], []]),
        ([[1], [1]], [[1, 1], []]),
    ],
)
def test_every_code_of_a_row_counts_and_its_place(one: list[list[int]], other: list[list[int]]) -> None:
    assert total(spread(1, one))[:-1] == total(spread(1, other))[:-1]
    assert total(spread(1, one))[-1] != total(spread(1, other))[-1]


@pytest.mark.slow
def test_no_exchange_of_two_rows_goes_unseen() -> None:
    """All pairs of rows, in each part that is one number a row."""
    n, rows = 60, [[] for _ in range(60)]
    label, weight = (np.arange(n) % 2).astype(np.uint8), np.arange(1, n + 1, dtype=np.float32)
    before = total(spread(1, rows, label, weight))
    for one in range(n):
        for other in range(one):
            order = np.arange(n)
            order[[one, other]] = other, one
            after = total(spread(1, rows, label[order], weight[order]))
            assert (after[0] != before[0]) == (label[one] != label[other])
            assert after[1] != before[1]
            assert after[2:] == before[2:]
