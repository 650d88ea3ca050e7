"""Models that a change of structure must not change: default fits on real tables, kept as digests.

    python tests/golden/models.py                     fit all of them on threads and compare
    python tests/golden/models.py bank --engine ray   one of them on another engine
    python tests/golden/models.py --write             keep what comes out; for a change that is meant to change models

No value of a table is kept: names of columns, digests, and some log-odds. The digests hold where NumPy and the processor are those
they were made on; elsewhere crosses must be the same and log-odds within 1e-9.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))  # which knows the tables and their splits

import datasets  # noqa: E402
import held_out  # noqa: E402

from autocross import AutoCrossClassifier  # noqa: E402

KEPT = Path(__file__).parent / "models.json"
N_SHOWN = 20  # rows whose log-odds are kept
CLOSE = 1e-9

Facts = dict[str, Any]


def of_paper(name: str, n_rows: int | None = None) -> pl.DataFrame:
    """The rows that benchmarks learn from with seed 0."""
    rows, _ = datasets.split(name, 0)
    return rows if n_rows is None else rows.head(n_rows)


MODELS: dict[str, tuple[Callable[[], pl.DataFrame], dict[str, Any]]] = {
    "adult": (lambda: of_paper("adult"), {}),
    "bank": (lambda: of_paper("bank"), {}),
    "bank, halving='paper'": (lambda: of_paper("bank"), {"halving": "paper"}),
    "credit": (lambda: of_paper("credit", 20_000), {}),
    "employee": (lambda: of_paper("employee"), {}),
    "criteo": (lambda: of_paper("criteo", 20_000), {}),
    "flights": (lambda: held_out.split("flights")[0].head(30_000), {}),
    "movielens": (lambda: held_out.split("movielens")[0], {}),
}
QUICK = ["adult", "credit"]  # those that the test suite fits


def found(name: str, engine: str) -> Facts:
    """What is kept of a model, fitted now."""
    rows, options = MODELS[name][0](), MODELS[name][1]
    classifier = AutoCrossClassifier(quiet=True, engine=engine, **options).fit(rows, "label")
    model, log_odds = classifier.model_, classifier.decision_function(rows)
    weights = sha256(np.float64(model.intercept).tobytes())
    for weight in model.weights:
        weights.update(np.ascontiguousarray(weight, np.float64).tobytes())
    return {
        "crosses": [list(cross.fields) for cross in classifier.crosses_],
        "weights": weights.hexdigest(),
        "log_odds": sha256(np.ascontiguousarray(log_odds, np.float64).tobytes()).hexdigest(),
        "some_log_odds": [float(value).hex() for value in log_odds[:: len(log_odds) // N_SHOWN]],
        "made_on": machine(),
    }


def machine() -> Facts:
    """What the bits of a sum depend on."""
    features = np.show_config(mode="dicts")["SIMD Extensions"]  # type: ignore[index]
    return {"numpy": np.__version__, "cpu": sorted({*features.get("baseline", []), *features.get("found", [])})}


def kept() -> dict[str, Facts]:
    return dict(json.loads(KEPT.read_text())) if KEPT.exists() else {}


def difference(now: Facts, before: Facts) -> str | None:
    """In what a model differs from the one that was kept; None if it is the same."""
    if now["crosses"] != before["crosses"]:
        return f"it has {len(now['crosses'])} crosses, others than the {len(before['crosses'])} that were kept"
    if now["made_on"] == before["made_on"]:
        changed = [name for name in ("weights", "log_odds", "some_log_odds") if now[name] != before[name]]
        return f"other bits: {', '.join(changed)}" if changed else None
    here, there = (np.array([float.fromhex(value) for value in facts["some_log_odds"]]) for facts in (now, before))
    apart = float(np.abs(here - there).max())
    return None if apart <= CLOSE else f"log-odds are up to {apart:g} apart"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which; all of them if none is named")
    parser.add_argument("--engine", default="threads")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if unknown := {*arguments.names} - {*MODELS}:
        parser.error(f"there is no model {min(unknown)!r}; there are {', '.join(map(repr, MODELS))}")
    facts, bad = kept(), 0
    for name in arguments.names or MODELS:
        began = time.perf_counter()
        now = found(name, arguments.engine)
        if arguments.write:
            facts[name] = now
            KEPT.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
            result = "kept"
        else:
            result = difference(now, facts[name]) or "the same"
            bad += result != "the same"
        print(f"{name}: {result} ({len(now['crosses'])} crosses, {time.perf_counter() - began:.0f} s)", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
