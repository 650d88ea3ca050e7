"""Files larger than memory: the same model as from the table in memory, from parts of any size."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocross import AutoCrossClassifier, WideDeepClassifier, estimator
from autocross.errors import AutoCrossError, FileError, LabelError, TableError
from autocross.table import digest as digests
from autocross.table import files
from autocross.table.digest import Digests, digest, merged

N = 4000


def people(n: int = N, seed: int = 0) -> pl.DataFrame:
    """Columns of every kind, a cross that matters, and missing values."""
    rng = np.random.default_rng(seed)
    job, town = rng.integers(0, 5, n), rng.integers(0, 6, n)
    label = rng.random(n) < np.where((job + town) % 2, 0.75, 0.25)
    tags = [rng.choice(["a", "b", "c", "d"], rng.integers(0, 4), replace=False).tolist() for _ in range(n)]
    frame = pl.DataFrame(
        {
            "job": [f"j{code}" for code in job],
            "town": [f"t{code}" for code in town],
            "age": np.where(rng.random(n) < 0.1, np.nan, rng.normal(40, 12, n)),
            "visits": rng.integers(0, 40, n),
            "tags": tags,
            "when": np.datetime64("2024-01-01T00:00:00", "us") + rng.integers(0, 10**13, n).astype("timedelta64[us]"),
            "rare": [f"r{code}" for code in rng.zipf(1.3, n)],
            "weight": rng.integers(0, 3, n).astype(np.float64),
            "bought": np.where(label, "yes", "no"),
        }
    )
    return frame.with_columns(pl.when(pl.col("visits") < 3).then(None).otherwise(pl.col("town")).alias("town"))


def stored(model: AutoCrossClassifier, folder: Path) -> bytes:
    model.save(folder / "model.acx")
    return (folder / "model.acx").read_bytes()


def fit(data: Any, **options: Any) -> AutoCrossClassifier:
    given = {"quiet": True, "engine": "serial", "split": "random", **options}
    return AutoCrossClassifier(**given).fit(data, "bought", "weight")


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that comes as a path is read part by part."""
    monkeypatch.setattr(estimator, "SHARE", 0.0)
    monkeypatch.setattr(estimator, "BATCH", 700)


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("rows", [N, 900])
def test_a_folder_gives_the_model_of_the_frame(tmp_path: Path, rows: int) -> None:
    frame = people()
    (tmp_path / "parts").mkdir()
    for at, first in enumerate(range(0, N, rows)):
        frame[first : first + rows].write_parquet(tmp_path / "parts" / f"{at:03}.parquet")
    ours, whole = fit(tmp_path / "parts"), fit(frame)
    assert whole.crosses_
    assert ours.feature_names_in_.tolist() == whole.feature_names_in_.tolist()
    np.testing.assert_array_equal(ours.decision_function(frame), whole.decision_function(frame))
    assert ours.crosses_ == whole.crosses_


@pytest.mark.usefixtures("in_parts")
def test_a_csv_gives_the_model_of_the_frame(tmp_path: Path) -> None:
    frame = people().drop("tags").with_columns(pl.col("when").dt.to_string("iso"))
    frame.write_csv(tmp_path / "rows.csv")
    ours, whole = fit(tmp_path / "rows.csv"), fit(frame)
    np.testing.assert_array_equal(ours.decision_function(frame), whole.decision_function(frame))


@pytest.mark.usefixtures("in_parts")
def test_threads_and_time_folds_change_nothing(tmp_path: Path) -> None:
    frame = people(60_000)
    frame.write_parquet(tmp_path / "rows.parquet")
    options = {"engine": "threads", "n_jobs": 2, "split": "time", "max_crosses": 1, "groups": None}
    ours, whole = fit(tmp_path / "rows.parquet", **options), fit(frame, **options)
    np.testing.assert_array_equal(ours.decision_function(frame), whole.decision_function(frame))


@pytest.mark.usefixtures("in_parts")
@pytest.mark.filterwarnings("ignore:With random folds")
def test_groups_are_known_across_parts(tmp_path: Path) -> None:
    frame = people()
    frame.write_parquet(tmp_path / "rows.parquet")
    options = {"groups": "town", "split": "group", "max_crosses": 0}
    ours, whole = fit(tmp_path / "rows.parquet", **options), fit(frame, **options)
    np.testing.assert_array_equal(ours.decision_function(frame), whole.decision_function(frame))


def size_of_files_in(folder: Path) -> int:
    """Bytes on the disk of files that this process has open there, named or not."""
    links = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sum(os.stat(link).st_blocks * 512 for link in links if os.readlink(link).startswith(f"{folder}/"))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux tells which files are open")
@pytest.mark.usefixtures("in_parts")
def test_codes_are_in_a_file_without_a_name_that_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    people().write_parquet(tmp_path / "rows.parquet")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(work))
    sizes: list[int] = []

    class Watching(estimator.Training):
        def keep_granularities(self, *arguments: Any) -> list[int]:
            sizes.append(size_of_files_in(work))
            assert not list(work.iterdir())
            return super().keep_granularities(*arguments)

    monkeypatch.setattr(estimator, "Training", Watching)
    fit(tmp_path / "rows.parquet", max_crosses=0)
    assert sizes[0] > 10 * N
    assert size_of_files_in(work) == 0


def test_what_fits_is_read_at_once_and_what_does_not_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.parquet"
    people().write_parquet(path)
    size = files.bytes_in_memory(path)
    assert size > N * 9 * 8
    called: list[Path] = []
    monkeypatch.setattr(files, "batches", called.append)
    limit = 4 * size / 2**30
    in_memory = estimator.source_of(path, "bought", None, AutoCrossClassifier(memory_limit=max(0.25, limit * 1.1))._options())
    assert in_memory.in_memory
    monkeypatch.setattr(estimator, "memory_limit", lambda gib: 3 * size)
    assert not estimator.source_of(path, "bought", None, AutoCrossClassifier()._options()).in_memory


@pytest.mark.usefixtures("in_parts")
def test_errors_name_the_row_of_the_whole_table(tmp_path: Path) -> None:
    frame = people()
    path = tmp_path / "rows.parquet"
    frame.with_columns(
        pl.when(pl.int_range(pl.len()) == 2500).then(None).otherwise(pl.col("bought")).alias("bought")
    ).write_parquet(path)
    with pytest.raises(LabelError, match="missing in 1 rows, first in row 2500"):
        AutoCrossClassifier(quiet=True).fit(path, "bought")
    frame.with_columns(
        pl.when(pl.int_range(pl.len()) == 2600).then(-1.0).otherwise(pl.col("weight")).alias("weight")
    ).write_parquet(path)
    with pytest.raises(TableError, match="in row 2600 is no weight"):
        fit(path)
    frame.write_parquet(path)
    with pytest.raises(LabelError, match="The target column 'sold' is not in the table"):
        AutoCrossClassifier(quiet=True).fit(path, "sold")


@pytest.mark.usefixtures("in_parts")
def test_a_part_without_weight_counts_nothing_and_a_network_needs_memory(tmp_path: Path) -> None:
    frame = people()
    frame = frame.with_columns(pl.when(pl.int_range(pl.len()) < 1500).then(0.0).otherwise(pl.col("weight")).alias("weight"))
    frame.write_parquet(tmp_path / "rows.parquet")
    ours, whole = fit(tmp_path / "rows.parquet", max_crosses=0), fit(frame, max_crosses=0)
    np.testing.assert_array_equal(ours.decision_function(frame), whole.decision_function(frame))
    with pytest.raises(AutoCrossError, match="Raise memory_limit"):
        WideDeepClassifier(quiet=True).fit(tmp_path / "rows.parquet", "bought")


@pytest.mark.usefixtures("in_parts")
def test_files_must_go_together(tmp_path: Path) -> None:
    frame = people()
    frame[:2000].write_parquet(tmp_path / "1.parquet")
    frame[2000:].with_columns(pl.col("visits").cast(pl.Float64)).write_parquet(tmp_path / "2.parquet")
    fit(tmp_path, max_crosses=0)
    frame[2000:].with_columns(pl.col("visits").cast(pl.String)).write_parquet(tmp_path / "2.parquet")
    with pytest.raises(TableError, match=r"2\.parquet' holds String in column 'visits', the files before it Int64"):
        fit(tmp_path)
    frame[2000:].drop("visits").write_parquet(tmp_path / "2.parquet")
    with pytest.raises(TableError, match=r"2\.parquet' lacks column 'visits'"):
        fit(tmp_path)


@pytest.mark.usefixtures("in_parts")
def test_text_far_down_a_column_of_numbers(tmp_path: Path) -> None:
    rows = [f"{at % 7},{at % 2}" for at in range(10_500)] + ["forty,1"]
    (tmp_path / "rows.csv").write_text("\n".join(["age,bought", *rows]))
    with pytest.raises(FileError, match=r"could not parse `forty`.*Declare the column's kind, as in types="):
        AutoCrossClassifier(quiet=True).fit(tmp_path / "rows.csv", "bought")
    AutoCrossClassifier(quiet=True, max_crosses=0, types={"age": "categorical"}).fit(tmp_path / "rows.csv", "bought")


# Digests.


@given(
    st.lists(st.one_of(st.none(), st.integers(-5, 5), st.floats(allow_nan=True, width=32)), min_size=1, max_size=60),
    st.lists(st.integers(0, 60), max_size=4),
)
def test_digests_of_parts_merge_into_that_of_the_whole(values: list[float | None], cuts: list[int]) -> None:
    series = pl.Series("x", values, dtype=pl.Float64, strict=False)
    whole, parts = digest(series), Digests("x", None)
    bounds = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    for first, last in itertools.pairwise(bounds):
        parts.add(series[first:last])
    found = parts.whole()
    assert found.counted.equals(whole.counted)
    assert (found.n_rows, found.n_null, found.whole, found.all_differ) == (
        whole.n_rows,
        whole.n_null,
        whole.whole,
        whole.all_differ,
    )


def test_too_many_numbers_lose_digits_whatever_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "MOST_NUMBERS", 100)
    series = pl.Series("x", np.random.default_rng(0).lognormal(0, 2, 3000))
    whole = digest(series)
    assert whole.bits < digests.BITS
    assert len(whole.values) <= 100
    for size in (170, 1000):
        found = merged([digest(series[first : first + size], first) for first in range(0, 3000, size)])
        assert found.bits == whole.bits
        assert found.counted.equals(whole.counted)
    np.testing.assert_allclose(np.sort(whole.values.to_numpy())[-1], series.max(), rtol=0.5)
    assert digest(series, exact=True).bits == digests.BITS


@pytest.mark.usefixtures("in_parts")
def test_weights_that_are_all_zero(tmp_path: Path) -> None:
    people().with_columns(pl.lit(0.0).alias("weight")).write_parquet(tmp_path / "rows.parquet")
    with pytest.raises(TableError, match="All sample weights are zero"):
        AutoCrossClassifier(quiet=True).fit(tmp_path / "rows.parquet", "bought", sample_weight="weight")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_the_digest_of_a_column_takes_little_more_than_its_values() -> None:
    """Of 100,000 columns all are kept at once: 200 numbers, how often each occurs and where first take 4 kB, not 8."""
    code = (
        "import resource, numpy as np, polars as pl\n"
        "from autocross.table.digest import digest\n"
        "def resident(): return int(open('/proc/self/statm').read().split()[1]) * resource.getpagesize()\n"
        "columns = [pl.Series('x', np.random.default_rng(seed).integers(0, 150, 200) * 1.5) for seed in range(100)]\n"
        "few = [digest(column) for column in columns]\n"
        "before = resident()\n"
        "many = [digest(column) for column in columns for _ in range(100)]\n"
        "print((resident() - before) / len(many))\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300).stdout
    assert 1000 < float(found) < 5500
