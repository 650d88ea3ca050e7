"""Models that a change of structure must not change. All of them, on every engine: `make golden`."""

from __future__ import annotations

import pytest

from golden import models

pytestmark = pytest.mark.slow

needs_tables = pytest.mark.skipif(not models.datasets.FOLDER.is_dir(), reason="needs the benchmark tables")


def test_every_model_is_kept() -> None:
    assert set(models.kept()) == set(models.MODELS)


@needs_tables
@pytest.mark.parametrize("name", models.QUICK)
@pytest.mark.filterwarnings("ignore")
def test_a_fit_gives_the_model_that_was_kept(name: str) -> None:
    assert models.difference(models.found(name, "threads"), models.kept()[name]) is None


def test_a_difference_is_told() -> None:
    kept = models.kept()["adult"]
    assert models.difference(kept, kept) is None
    n = len(kept["crosses"])
    told = models.difference({**kept, "crosses": kept["crosses"][1:]}, kept)
    assert told == f"it has {n - 1} crosses, others than the {n} that were kept"
    assert models.difference({**kept, "weights": "0"}, kept) == "other bits: weights"
    elsewhere = {**kept, "made_on": {}, "weights": "0"}
    assert models.difference(elsewhere, kept) is None
    off = [float(float.fromhex(value) + 1e-8).hex() for value in kept["some_log_odds"]]
    assert models.difference({**elsewhere, "some_log_odds": off}, kept) == "log-odds are up to 1e-08 apart"
