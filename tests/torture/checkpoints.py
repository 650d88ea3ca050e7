"""Part 3: checkpoints that are damaged, forged, or of another fit.

Damage is noticed, or does no harm: the resumed model is that of a fit without a break. A forged checkpoint, whole in itself, is
refused or gives a model that works. With other rows, labels, weights or options nothing is resumed, unless the model is that of a
fresh fit.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import polars as pl

from autocross import AutoCrossClassifier, checkpoint
from autocross.errors import FileError, OptionError
from autocross.producer import store
from autocross.producer.model import Model
from autocross.serving.scorer import Scorer
from torture.bundles import bounded_memory, change_array, change_json, split, with_bytes_changed
from torture.tools import Refused, answer, in_rounds, planted, require, require_one_as_many, require_same

Rng = np.random.Generator
ROWS = 500


def fit(rows: pl.DataFrame, **options: Any) -> Model:
    weight = rows["weight"].to_numpy()
    given = {"quiet": True, "engine": "serial", "max_crosses": 3, **options}
    return AutoCrossClassifier(**given).fit(rows.drop("label", "weight"), rows["label"].to_numpy(), weight).model_


@cache
def reference() -> tuple[Path, pl.DataFrame, Model]:
    """A checkpoint left after some rounds, its rows, and the model of a fit without a break."""
    folder = Path(mkdtemp(prefix="torture-checkpoints-"))
    rows = planted(4, ROWS)
    with in_rounds():
        fit(rows, checkpoint=str(folder), max_crosses=1)
        whole = fit(rows)
    require((folder / checkpoint.FILE).exists(), "no checkpoint was kept")
    require(len(whole.about.crosses) >= 2, "the table of the attack has too few crosses")
    return folder, rows, whole


def resumed(rows: pl.DataFrame, folder: Path, **options: Any) -> Any:
    """The model that a resumed fit gives, or how it was refused."""
    with in_rounds(), bounded_memory():
        found = answer(lambda: fit(rows, resume=str(folder), **options))
    if isinstance(found, Refused):
        require(isinstance(found.error, (FileError, OptionError)), f"refused, but not as a checkpoint: {found!r}")
    return found


def damaged(rng: Rng, folder: Path) -> None:
    kept, rows, whole = reference()
    content = with_bytes_changed((kept / checkpoint.FILE).read_bytes(), rng)
    (folder / checkpoint.FILE).write_bytes(content)
    found = resumed(rows, folder)
    if not isinstance(found, Refused):
        require_same(found, whole, "from a damaged checkpoint")


def forged(rng: Rng, folder: Path) -> None:
    kept, rows, _ = reference()
    content, arrays = split((kept / checkpoint.FILE).read_bytes(), checkpoint.KEY)
    facts = content["facts"]
    for _ in range(int(rng.integers(1, 3))):
        if rng.random() < 0.6:
            change_json(facts, rng)
        else:
            change_array(arrays, rng)
    whole_arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    store.write(folder / checkpoint.FILE, checkpoint.KEY, facts, whole_arrays)
    found = resumed(rows, folder)
    if not isinstance(found, Refused):
        row = rows.drop("label", "weight")[:1]
        require_one_as_many(Scorer(found), row.to_dicts()[0], row)


def other_rows(rng: Rng, folder: Path) -> None:
    """One thing about the rows is another than when the checkpoint was kept."""
    kept, rows, _ = reference()
    at = int(rng.integers(ROWS))

    def put(name: str, value: Any) -> pl.DataFrame:
        values = rows[name].to_list()
        values[at] = value
        return rows.with_columns(pl.Series(name, values, dtype=rows[name].dtype))

    changes: dict[str, Callable[[], pl.DataFrame]] = {
        "label": lambda: put("label", 1 - rows["label"][at]),
        "text": lambda: put("c0", "v4" if rows["c0"][at] != "v4" else "v0"),
        "new text": lambda: put("c1", "never seen"),
        "missing": lambda: put("c2", None),
        "number": lambda: put("x", -9.0),
        "list": lambda: put("tags", ["c", "a"] if rows["tags"][at].to_list() != ["c", "a"] else ["b"]),
        "empty list": lambda: put("tags", [] if len(rows["tags"][at]) else ["a"]),
        "weight": lambda: put("weight", rows["weight"][at] + 1),
        "two weights": lambda: rows.with_columns(weight=rows["weight"].reverse()),
        "all lists": lambda: rows.with_columns(tags=rows["tags"].reverse()),
        "order": lambda: rows.sample(fraction=1.0, shuffle=True, seed=int(rng.integers(1000))),
        "one less": lambda: rows[:-1],
        "one more": lambda: pl.concat([rows, rows[:1]]),
        "swapped columns": lambda: rows.with_columns(c0=rows["c1"], c1=rows["c0"]),
        "renamed": lambda: rows.rename({"c4": "c9"}),
    }
    how = str(rng.choice(list(changes)))
    (folder / "case.txt").write_text(f"{how}, row {at}")
    changed = changes[how]()
    shutil.copy(kept / checkpoint.FILE, folder / checkpoint.FILE)
    found = resumed(changed, folder)
    if not isinstance(found, Refused):
        with in_rounds():
            require_same(found, fit(changed), f"resumed with other rows ({how} of row {at})")


def other_options(rng: Rng, folder: Path) -> None:
    kept, rows, _ = reference()
    choices: dict[str, list[Any]] = {
        "metric": ["log_loss", "accuracy"],
        "max_order": [2, 3],
        "beam_width": [2],
        "bins": ["width", "quantile"],
        "min_count": [1, 5],
        "penalty": ["shared"],
        "evaluation": ["holdout"],
        "split": ["random"],
        "random_state": [1],
        "exclude": [["c4"]],
        "types": [{"c0": "ignore"}],
        "granularities": [[10], [7]],
        "positive": [0, 1],
    }
    name = str(rng.choice(list(choices)))
    options = {name: choices[name][rng.integers(len(choices[name]))]}
    (folder / "case.txt").write_text(f"{options}")
    shutil.copy(kept / checkpoint.FILE, folder / checkpoint.FILE)
    found = resumed(rows, folder, **options)
    if not isinstance(found, Refused):
        with in_rounds():
            require_same(found, fit(rows, **options), f"resumed with other options {options}")


WAYS: list[Callable[[Rng, Path], None]] = [damaged, forged, other_rows, forged, other_rows, other_options]


def attack(seed: int, folder: Path) -> None:
    WAYS[seed % len(WAYS)](np.random.default_rng(seed), folder)
