"""What a model file, a checkpoint and a journal tell of the rows: nothing of columns left out, and of private models no value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from autocross import AutoCrossClassifier, load
from autocross.cli import run
from autocross.errors import TableWarning


def patients(n_rows: int = 600) -> pl.DataFrame:
    """A column of every kind, texts that occur nowhere else, and a label that two columns decide together."""
    rng = np.random.default_rng(11)
    ward = rng.choice(["wardalpha", "wardbeta", "wardgamma"], n_rows)
    drug = rng.choice(["drugdelta", "drugzeta", "drugeta"], n_rows)
    risk = 2.0 * ((ward == "wardalpha") == (drug == "drugzeta")) - 1.0
    return pl.DataFrame(
        {
            "ward": ward,
            "drug": drug,
            "signs": [
                [f"sign{name}" for name in rng.choice(["iota", "kappa", "mu"], rng.integers(0, 3), replace=False)] for _ in ward
            ],
            "stage": rng.integers(770_001, 770_005, n_rows),
            "smoker": rng.random(n_rows) < 0.5,
            "weight": rng.normal(80, 15, n_rows).round(2),
            "admitted": [f"2024-{rng.integers(1, 13):02}-{rng.integers(1, 29):02}" for _ in ward],
            "died": rng.random(n_rows) < 1 / (1 + np.exp(-risk)),
        }
    )


VALUES = ["wardalpha", "wardbeta", "wardgamma", "drugdelta", "drugzeta", "drugeta", "signiota", "signkappa", "signmu", "77000"]

LEFT_OUT = {
    "constant": pl.lit("hiddenconstant"),
    "constant number": pl.lit(987_654_321),
    "constant moment": pl.lit("1987-06-05"),
    "id": pl.Series([f"hiddenid{at}" for at in range(600)]),
    "struct": pl.Series([{"inner": "hiddeninner"}] * 600, dtype=pl.Struct({"inner": pl.Enum(["hiddeninner", "hiddenother"])})),
    "lists of lists": pl.Series([[["hiddenlist"]]] * 600),
    "excluded": pl.Series([f"hiddenname{at % 7}" for at in range(600)]),
    "ignored": pl.Series([f"hiddenword{at % 7}" for at in range(600)]),
    "group": pl.Series([f"hiddengroup{at % 60}" for at in range(600)]),
}
SECRETS = ["hidden", "987654321", "987_654", "987,654", "1987-06", "1987"]


def everything(folder: Path) -> str:
    """The bytes of all files there, archives unpacked, with escapes of JSON in them resolved."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".npz":
            with np.load(path) as stored:
                found += [stored[name].tobytes().decode("latin-1") for name in stored.files]
        elif path.is_file():
            found.append(path.read_bytes().decode("latin-1"))
    return "\n".join(found)


def kept(folder: Path, frame: pl.DataFrame, **options: Any) -> AutoCrossClassifier:
    """A fit with everything on that it may write."""
    classifier = AutoCrossClassifier(
        engine="serial", journal=str(folder / "journal.jsonl"), checkpoint=str(folder / "checkpoint"), **options
    )
    classifier.fit(frame, "died").save(folder / "model.acx")
    return classifier


def test_columns_left_out_leave_no_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = patients().with_columns(**LEFT_OUT)
    with pytest.warns(TableWarning, match="left out"):
        kept(tmp_path, frame, exclude=["excluded"], types={"ignored": "ignore"}, groups="group", max_crosses=2)
    reasons = {column.name: column.reason for column in load(tmp_path / "model.acx").model.producer.encoder.schema}
    assert reasons["constant"] == reasons["constant number"] == reasons["constant moment"] == "constant"
    assert reasons["struct"] == "values of type Struct cannot be read"
    assert reasons["lists of lists"] == "values of type List(List(String)) cannot be read"
    assert run(["show", str(tmp_path / "model.acx")]) == 0
    printed = capsys.readouterr()
    assert (tmp_path / "checkpoint" / "search.npz").exists()
    for secret in SECRETS:
        assert secret not in everything(tmp_path) + printed.out + printed.err, secret
