"""Part 10: tables of noise with weights of any scale.

Only the ratios of weights matter: a power of two changes no bit, and any other factor hardly ever the number of crosses. Where
labels are drawn at random, crosses are found in few tables, as few with large weights as with small ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from autocross import AutoCrossClassifier
from autocross.producer.model import Model
from autocross.serving.scorer import Scorer
from torture.tools import answer, require, same_bits

TABLES = 6  # a case
MOST = 2  # tables in which a factor may let crosses in that were not there without it, or keep them out


def noise(rng: np.random.Generator) -> tuple[pl.DataFrame, Any, Any]:
    """Columns and labels that know nothing of each other, and weights that differ much."""
    n = int(rng.choice([300, 800, 2000]))
    rows = {f"c{at}": rng.integers(0, int(rng.choice([2, 5, 30])), n).astype(str) for at in range(int(rng.integers(3, 6)))}
    frame = pl.DataFrame(rows).with_columns(x=rng.normal(size=n))
    return frame, rng.integers(0, 2, n), rng.lognormal(0, float(rng.choice([0.5, 1.5])), n).astype(np.float32).astype(np.float64)


def fit(rows: pl.DataFrame, label: Any, weight: Any) -> Model:
    found = answer(lambda: AutoCrossClassifier(quiet=True, engine="serial").fit(rows, label, weight))
    return found.model_  # type: ignore[no-any-return]


def attack(seed: int, folder: Path) -> int:
    rng = np.random.default_rng(seed)
    scale = float(10.0 ** rng.uniform(-6, 8))
    power = float(2.0 ** rng.integers(-20, 27))
    came, went = [], []
    for at in range(TABLES):
        rows, label, weight = noise(rng)
        plain, scaled = fit(rows, label, weight), fit(rows, label, weight * scale)
        if scaled.about.crosses and not plain.about.crosses:
            came.append(at)
        if plain.about.crosses and not scaled.about.crosses:
            went.append(at)
        if at == 0:
            doubled = Scorer(fit(rows, label, weight * power)).log_odds(rows)
            require(same_bits(doubled, Scorer(plain).log_odds(rows)), f"weights times {power:g} give other scores")
    require(len(came) <= MOST, f"weights times {scale:g} let crosses into {len(came)} of {TABLES} tables of noise")
    require(len(went) <= MOST, f"weights times {scale:g} keep crosses out of {len(went)} of {TABLES} tables of noise")
    return TABLES
