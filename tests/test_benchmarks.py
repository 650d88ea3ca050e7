"""The benchmarks of scale and of peers, on a few rows: what they print is what they measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
sys.path.append(str(Path(__file__).parents[1] / "paper"))
import criteo_like
import peers
import scale


@pytest.mark.slow
def test_a_fit_and_what_it_took(tmp_path: Path) -> None:
    criteo_like.write(tmp_path, 4000)
    found = scale.fit(tmp_path, {"max_crosses": 0})
    assert found["crosses"] == 0
    assert len(found["missed"]) == len(criteo_like.PLANTED)
    assert 0.6 < found["auc"] < 0.8
    assert 0 < found["own"] < found["peak"] < 8
    assert all(seconds > 0 for seconds in found["phases"].values())
    assert 0 < sum(found["phases"].values()) <= found["seconds"]
    line = scale.row_of({"rows": 4000, "best": 0.8, **found})
    assert line[0] == "4,000"
    assert len(line) == len(scale.HEAD)


@pytest.mark.slow
def test_reading_beside_polars(tmp_path: Path) -> None:
    criteo_like.write(tmp_path, 2000)
    ours, theirs = scale.reading(tmp_path / "part-00000.parquet")
    assert min(ours, theirs) > 0


def test_ratios_in_words() -> None:
    assert peers.ratio(2.0, {"seconds": 8.0}) == "0.250"
    assert peers.ratio(9.0, {"stopped": 900}) == "below 0.010"
    assert (peers.seconds_of({"stopped": 900}), peers.seconds_of({"failed": "x"})) == ("over 900", "failed")
