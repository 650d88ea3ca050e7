"""Ending early, for real: signals to a real process, and the clock."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from autocross import AutoCrossClassifier, load
from autocross.interrupts import Interrupt, interruptible
from autocross.models.metrics import auc

N_ROWS = 30_000


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose search takes some seconds: crosses of two to four columns among twelve."""
    rng = np.random.default_rng(5)
    sizes = (4, 5, 3, 4, 3, 6, 5, 4, 3, 12, 20, 30)
    codes = [rng.integers(0, size, N_ROWS) for size in sizes]
    log_odds = -1 + rng.normal(0, 1, 4)[codes[0]]
    for members in ((0, 1), (2, 3, 4), (5, 6, 7, 8), (9, 10)):
        log_odds = log_odds + rng.normal(0, 1, [sizes[at] for at in members])[tuple(codes[at] for at in members)]
    label = rng.random(N_ROWS) < 1 / (1 + np.exp(-log_odds))
    path = tmp_path_factory.mktemp("stopping") / "table.parquet"
    columns = {f"c{at}": [f"v{code}" for code in column.tolist()] for at, column in enumerate(codes)}
    pl.DataFrame({**columns, "n": rng.normal(size=N_ROWS), "label": label}).write_parquet(path)
    AutoCrossClassifier(quiet=True).fit(path, "label")  # compiles what the tests below are timed without
    return path


@pytest.mark.parametrize("moment", range(20))
def test_an_interrupt_at_any_moment_keeps_what_was_found(moment: int, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.acx"
    command = [sys.executable, "-m", "autocross.cli", "fit", str(table), "--target", "label", "-o", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    first = process.stderr.readline()  # the fit has begun
    time.sleep(float(np.random.default_rng(moment).uniform(0, 3)))
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 0, first + told
    scorer = load(out)
    assert scorer.model.about.n_rows == N_ROWS
    assert 0 < scorer.score_one({"c0": "v1", "n": 0.5}) < 1
    if "done" not in told.partition("interrupted")[0]:
        assert "interrupted: the model has what was found until then" in told
    assert f"saved {out}" in told


def test_an_interrupt_while_polars_works_in_a_thread_only_asks() -> None:
    """Polars puts a handler of its own before the one that is there when it is imported, and raises in its threads."""
    program = (
        "import os, signal, threading\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from autocross.interrupts import interruptible\n"
        "with interruptible() as interrupt, ThreadPoolExecutor(2) as pool:\n"
        "    import polars as pl\n"
        "    frame = pl.DataFrame({'n': range(100_000)})\n"
        "    def work(_):\n"
        "        for _ in range(20): frame.filter((pl.col('n') * 7919 % 1_000_003).sort() % 3 == 0)\n"
        "    with interruptible():\n"
        "        for _ in range(20):\n"
        "            interrupt.asked = False\n"
        "            threading.Timer(0.02, os.kill, [os.getpid(), signal.SIGINT]).start()\n"
        "            while not interrupt.asked: list(pool.map(work, range(4)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_an_interrupt_while_the_program_starts_keeps_the_fit(table: Path, tmp_path: Path) -> None:
    """Python's own start and the parsing of arguments apart."""
    out = tmp_path / "m.acx"
    program = (
        "import os, signal, sys\n"
        "from autocross import cli\n"
        "class Finder:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'autocross.estimator': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "sys.exit(cli.run(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", program, "fit", str(table), "--target", "label", "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "interrupted" in done.stderr
    assert load(out).model.about.crosses == ()


def test_a_second_interrupt_aborts_and_writes_nothing(table: Path, tmp_path: Path) -> None:
    """Both come from within: from outside, two may be taken for one, or the fit may have ended between them."""
    out = tmp_path / "m.acx"
    program = (
        "import os, signal, sys\n"
        "from autocross import cli\n"
        "from autocross.fitting import tune\n"
        "def interrupted(*_):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "tune.kept_granularities = interrupted\n"
        "sys.exit(cli.run(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", program, "fit", str(table), "--target", "label", "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    assert "nothing was written" in done.stderr
    assert not out.exists()


def test_a_call_of_fit_returns_after_an_interrupt_and_ctrl_c_is_itself_again(table: Path) -> None:
    """As in a notebook: the handler that raises is there before and after, and the call returns."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(1.0, signal.raise_signal, [signal.SIGINT]).start()
        model = AutoCrossClassifier(quiet=True).fit(table, "label")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert model.predict_proba(pl.read_parquet(table).head(5)).shape == (5, 2)


def test_interrupts_nest_and_leave_other_handlers_alone() -> None:
    def other(number: int, frame: object) -> None: ...

    before = signal.signal(signal.SIGINT, other)
    try:
        with interruptible() as interrupt:
            assert signal.getsignal(signal.SIGINT) is other
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with interruptible() as interrupt:
            with interruptible() as inner:
                assert inner is interrupt
                signal.raise_signal(signal.SIGINT)
            assert interrupt.asked
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert not Interrupt().asked


@pytest.mark.parametrize("moment", range(20))
def test_the_time_limit_is_kept_and_gives_an_lr_at_least(moment: int, table: Path) -> None:
    limit = float(np.random.default_rng(100 + moment).uniform(0, 3))
    began = time.perf_counter()
    model = AutoCrossClassifier(quiet=True, time_limit=limit).fit(table, "label")
    assert time.perf_counter() - began < 1.1 * limit + 2
    frame = pl.read_parquet(table)
    assert auc(frame["label"].to_numpy(), model.decision_function(frame), np.ones(N_ROWS)) > 0.62
    assert len(model.model_.weights) == len(model.model_.producer.fields)
