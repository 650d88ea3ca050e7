"""Write the golden file of every bundle format that has none yet: `python tests/golden/make.py`.

A golden file is a promise: whatever is changed later, it must load and score to the bit as on the day it was made. So this script
never overwrites one. For a new format, add a line to FORMATS with a function that fits a model of that format.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl

from autocross import AutoCrossClassifier, WideDeepClassifier, load
from autocross.search.policy import AUTO

HERE = Path(__file__).parent
N = 3000
N_KEPT = 60  # rows whose scores are kept

Row = dict[str, Any]


def people(n: int = N, seed: int = 11) -> list[Row]:
    """Rows with a column of every kind, values missing from each, and a label that depends on crosses."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for _ in range(n):
        job, town, rooms = int(rng.integers(0, 5)), min(int(rng.zipf(1.4)), 400), int(rng.integers(1, 5))
        age, tags = float(rng.normal(40, 12)), rng.choice(["a", "b", "c", "d"], rng.integers(0, 4), replace=False).tolist()
        member = bool(rng.random() < 0.5)
        signs = (job + town) % 2, ("a" in tags) == member, (rooms % 2 == 0) ^ (age > 40) ^ (job % 2 == 0)
        log_odds = sum(1.4 if sign else -1.4 for sign in signs)
        row: Row = {
            "job": ["cook", "nurse", "clerk", "pilot", "é日\n"][job],
            "town": f"t{town}",
            "age": round(age, 2),
            "rooms": rooms,
            "member": member,
            "tags": tags,
            "born": f"19{rng.integers(50, 99)}-{rng.integers(1, 13):02}-{rng.integers(1, 29):02}",
            "seen": f"2024-0{rng.integers(1, 9)}-1{rng.integers(0, 9)} {rng.integers(0, 24):02}:{rng.integers(0, 60):02}:00",
        }
        rows.append({name: None if rng.random() < 0.05 else value for name, value in row.items()})
        rows[-1]["bought"] = "yes" if rng.random() < 1 / (1 + np.exp(-log_odds)) else "no"
    return rows


def unusual() -> list[Row]:
    """Rows unlike those of training: nothing known, all at the edge, values never seen."""
    nothing: Row = dict.fromkeys(people(1)[0])
    odd = {"job": "astronaut", "town": "t 1", "age": 1e300, "rooms": -(2**53), "tags": ["z", "a", "a"], "born": "1800-02-28"}
    odd_too = {"job": "", "town": "NA", "age": -0.0, "rooms": 0, "tags": [], "seen": "2031-12-31 23:59:59.999999"}
    return [nothing, {**nothing, **odd}, {**nothing, **odd_too}]


def frame_of(rows: list[Row]) -> pl.DataFrame:
    """The rows as a frame."""
    return pl.DataFrame(rows, infer_schema_length=None)


def fitted(classifier: AutoCrossClassifier) -> AutoCrossClassifier:
    """Fitted to the rows, with few values before the hashed ones begin: a small file then has hashed codes as well."""
    from autocross.encoding.plan import EncodingPlan

    small = partial(EncodingPlan, cap=40)
    with (
        patch("autocross.fitting.encode.EncodingPlan", lambda *args, **rules: small(*args, **{**rules, "n_buckets": 64})),
        patch("autocross.search.coding.CAP", 50),
        patch("autocross.search.coding.hash_bits", lambda n_rows: 5),
    ):
        return classifier.fit(frame_of(people()), "bought")


def linear() -> AutoCrossClassifier:
    """Format 1: fields and crosses."""
    return fitted(AutoCrossClassifier(quiet=True, engine="serial", split="random", max_crosses=5, granularities=[10, 40]))


def deep() -> AutoCrossClassifier:
    """Format 2: the same, and a network on embeddings."""
    raise NotImplementedError("No fit gives such a network any more. Take the file from the history of the repository.")


def private() -> AutoCrossClassifier:
    """Format 3: hashes instead of the values of categories."""
    options: dict[str, Any] = {"max_crosses": 3, "granularities": [10, 40], "private": True}
    return fitted(AutoCrossClassifier(quiet=True, engine="serial", split="random", **options))


def with_statistics() -> AutoCrossClassifier:
    """Format 4: rows and positives of every code, and statistics of values, which are accepted whatever they gain."""
    assert AUTO.statistics is not None
    certain = replace(AUTO.statistics.trial, first_errors=None, errors=None, lift=-1.0)
    policy = replace(AUTO, statistics=replace(AUTO.statistics, trial=certain, most=4))
    with patch("autocross.search.loop.policy_of", lambda options: policy):
        return fitted(AutoCrossClassifier(quiet=True, engine="serial", split="random", granularities=[10, 40]))


def with_networks() -> AutoCrossClassifier:
    """Format 4: networks on cross-fitted inputs. Few columns and two groups, and so two folds, keep the file small."""
    left_out = ["town", "tags", "born", "seen"]
    return fitted(
        WideDeepClassifier(quiet=True, engine="serial", exclude=left_out, groups="member", granularities=[10], max_crosses=2)
    )


def with_course() -> AutoCrossClassifier:
    """Format 4: the moments of times as numbers, which are kept whatever they gain."""
    options: dict[str, Any] = {"exclude": ["town"], "granularities": [10], "max_crosses": 2}
    with patch("autocross.fitting.tune.helpful_moments", lambda run, encoded, stems: [min(tables) for tables in stems.values()]):
        return fitted(AutoCrossClassifier(quiet=True, engine="serial", split="random", **options))


def with_memory() -> AutoCrossClassifier:
    """Format 5: what a model remembers about its rows, of different weights, a monotone column, and a change by hand."""
    options: dict[str, Any] = {"max_crosses": 3, "granularities": [10, 40], "monotone": {"age": "increasing"}}
    fit = fitted(AutoCrossClassifier(quiet=True, engine="serial", split="random", class_weight="balanced", **options))
    return fit.with_weight("job", "cook", 0.25, note="decided by the committee").without("member")


FORMATS: dict[str, Callable[[], AutoCrossClassifier]] = {
    "format-1": linear,
    "format-2": deep,
    "format-3": private,
    "format-4": with_statistics,
    "format-4-networks": with_networks,
    "format-4-course": with_course,
    "format-5": with_memory,
}


def write(name: str, make: Callable[[], AutoCrossClassifier]) -> bool:
    """Write a golden bundle and what it scores, unless there is one."""
    path, expected = HERE / f"{name}.acx", HERE / f"{name}.json"
    if path.exists() or expected.exists():
        return False
    make().save(path)
    scorer = load(path)
    rows = [{key: value for key, value in row.items() if key != "bought"} for row in [*people(N_KEPT, seed=12), *unusual()]]
    log_odds = [scorer.log_odds_one(row) for row in rows]
    np.testing.assert_array_equal(scorer.log_odds(frame_of(rows)), log_odds)
    lines = [json.dumps({"row": row, "log_odds": value.hex()}) for row, value in zip(rows, log_odds, strict=True)]
    expected.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    return True


def main() -> None:
    for name, make in FORMATS.items():
        print(f"{name}: {'written' if write(name, make) else 'is there, and stays as it is'}")


if __name__ == "__main__":
    main()
