"""Files larger than memory: the same model as from the table in memory, from parts of any size."""

from __future__ import annotations

import gzip
import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocross import AutoCrossClassifier, WideDeepClassifier, memory, reading
from autocross.errors import AutoCrossError, FileError, LabelError, TableError
from autocross.fitting import tune
from autocross.table import batches, files, ingest, lines
from autocross.table import digest as digests
from autocross.table.digest import Digests, digest, merged

pytestmark = pytest.mark.slow

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
    monkeypatch.setattr(ingest, "bytes_in_memory", lambda path: 1 << 60)
    monkeypatch.setattr(ingest, "MOST_ROWS", 700)


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

    def watch(*arguments: Any) -> list[int]:
        sizes.append(size_of_files_in(work))
        assert not list(work.iterdir())
        return kept_granularities(*arguments)

    kept_granularities = tune.kept_granularities
    monkeypatch.setattr(tune, "kept_granularities", watch)
    fit(tmp_path / "rows.parquet", max_crosses=0)
    assert sizes[0] > 10 * N
    assert size_of_files_in(work) == 0


def test_what_fits_is_read_at_once_and_what_does_not_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, frame = tmp_path / "rows.parquet", people()
    frame.write_parquet(path)
    size = files.bytes_in_memory(path)
    assert size > N * 9 * 8
    options = AutoCrossClassifier()._options()
    for rows, limit, in_memory in (
        (path, 5 * size, True),
        (path, 3 * size, False),
        (frame, 5 * size, True),
        (frame, size // 9, False),
    ):
        monkeypatch.setattr(ingest, "memory_limit", lambda gib, limit=limit: limit)
        assert ingest.source_of(rows, "bought", None, options).in_memory == in_memory


def test_a_frame_that_is_large_for_the_limit_is_read_as_files_are(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = people()
    whole = fit(frame)
    monkeypatch.setattr(ingest, "AT_ONCE", 0.0)
    monkeypatch.setattr(ingest, "BATCH", 1e-6)
    monkeypatch.setattr(batches, "FEWEST_ROWS", 700)
    ours = fit(frame)
    np.testing.assert_array_equal(ours.decision_function(frame), whole.decision_function(frame))
    assert ours.crosses_ == whole.crosses_


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
def test_a_part_without_weight_counts_nothing(tmp_path: Path) -> None:
    frame = people()
    frame = frame.with_columns(pl.when(pl.int_range(pl.len()) < 1500).then(0.0).otherwise(pl.col("weight")).alias("weight"))
    frame.write_parquet(tmp_path / "rows.parquet")
    ours, whole = fit(tmp_path / "rows.parquet", max_crosses=0), fit(frame, max_crosses=0)
    np.testing.assert_array_equal(ours.decision_function(frame), whole.decision_function(frame))


@pytest.mark.usefixtures("in_parts")
def test_a_network_needs_memory(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    people().write_parquet(tmp_path / "rows.parquet")
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


# Memory that is short.


@pytest.fixture
def short_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """With memory_limit=0.25 a column may take some 400 kB while it is counted, and several together 100 kB."""
    monkeypatch.setattr(memory, "COUNTS", 0.0015)
    monkeypatch.setattr(memory, "SETTLED", 300_000)
    monkeypatch.setattr(memory, "NUMBERS", 1 << 18)
    monkeypatch.setattr(memory, "SHELF", 0.0)


@pytest.mark.usefixtures("in_parts", "short_of_memory")
@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "rows.csv.gz"])
def test_columns_that_must_wait_and_digests_on_the_disk_change_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = people() if name.endswith("parquet") else people().drop("tags").with_columns(pl.col("when").dt.to_string("iso"))
    frame.write_parquet(tmp_path / name) if name.endswith("parquet") else frame.write_csv(tmp_path / "rows.csv")
    if name.endswith("gz"):
        (tmp_path / name).write_bytes(gzip.compress((tmp_path / "rows.csv").read_bytes()))
    passes: list[list[str]] = []

    class Watching(reading.Looking):
        def __init__(self, source: Any, request: reading.Request, n_threads: int) -> None:
            passes.append(list(request.names))
            super().__init__(source, request, n_threads)

    monkeypatch.setattr(reading, "Looking", Watching)
    ours = fit(tmp_path / name, memory_limit=0.25)
    assert len(passes) > 2
    assert set(passes[0]) > set(passes[-1])
    whole = fit(frame, memory_limit=0.25)
    np.testing.assert_array_equal(ours.decision_function(frame), whole.decision_function(frame))
    assert ours.crosses_ == whole.crosses_


@pytest.mark.usefixtures("in_parts", "short_of_memory")
def test_a_column_whose_values_cannot_be_counted_is_refused_unless_it_is_left_out(tmp_path: Path) -> None:
    frame = people().with_columns(pl.Series("name", [f"person {number} of many" for number in range(N)]))
    frame.with_columns(pl.concat_str(pl.col("name"), pl.lit("x" * 200))).write_parquet(tmp_path / "rows.parquet")
    way_out = r"too much for memory_limit=0\.25\. Leave the column out, exclude=\['name'\], or raise memory_limit to"
    with pytest.raises(TableError, match=rf"Column 'name' has more than [0-9,]+ different values.*{way_out}"):
        fit(tmp_path / "rows.parquet", memory_limit=0.25)
    ours = fit(tmp_path / "rows.parquet", memory_limit=0.25, exclude=["name"], max_crosses=0)
    whole = fit(people(), memory_limit=0.25, max_crosses=0)
    np.testing.assert_array_equal(ours.decision_function(frame), whole.decision_function(people()))


# Lines of CSV files.


@given(st.lists(st.sampled_from(["a,b", '"a\nb",c', '"""",d', "", '"x\n\n",""']), max_size=30), st.integers(1, 40))
def test_blocks_end_where_lines_do(lines_: list[str], n_bytes: int) -> None:
    text = "".join(line + "\n" for line in lines_).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        path.write_bytes(text)
        found = list(lines.blocks(path, n_bytes))
        head = lines.first_lines(path, 3)
    assert b"".join(found) == text
    assert all(block.count(b'"') % 2 == 0 and block.endswith(b"\n") for block in found)
    assert sum(map(lines.n_lines, found)) == len(lines_)
    assert isinstance(head, bytes)
    assert text.startswith(head) and lines.n_lines(head) >= min(3, len(lines_))


@pytest.mark.usefixtures("in_parts")
def test_a_packed_file_that_ends_early_is_damaged(tmp_path: Path) -> None:
    text = people().drop("tags").write_csv().encode()
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(text)[:-2000])
    with pytest.raises(FileError, match=r"rows\.csv\.gz': .*The file is damaged or incomplete; copy it again"):
        fit(tmp_path / "rows.csv.gz")
    (tmp_path / "rows.csv.gz").write_bytes(text)  # not packed at all, as polars can tell, too
    assert fit(tmp_path / "rows.csv.gz", max_crosses=0).n_features_in_ == 6
