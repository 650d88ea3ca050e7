"""Ending early: by signals to a real process, and by a clock that the test controls."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from autocross import AutoCrossClassifier, events, load
from autocross.interrupts import Interrupt, interruptible
from autocross.models import logistic
from autocross.models.metrics import auc
from autocross.search import stopping

pytestmark = pytest.mark.slow

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
    return path


@pytest.fixture(scope="module")
def n_lines(table: Path, tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many events of a whole fit there are, about as many as it tells lines."""
    journal = tmp_path_factory.mktemp("stopping") / "journal"
    AutoCrossClassifier(quiet=True, journal=str(journal)).fit(table, "label")
    return len(journal.read_text().splitlines())


@pytest.mark.parametrize("moment", range(20))
def test_an_interrupt_at_any_moment_keeps_what_was_found(moment: int, n_lines: int, table: Path, tmp_path: Path) -> None:
    """A moment is the one when so many lines have been told, from the first to the last."""
    out = tmp_path / "m.acx"
    command = [sys.executable, "-m", "autocross.cli", "fit", str(table), "--target", "label", "-o", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    first = "".join(process.stderr.readline() for _ in range(1 + n_lines * moment // 20))
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    told = first + rest
    assert process.returncode == 0, told
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
        "    at_work = threading.Event()\n"
        "    def work(_):\n"
        "        for number in range(20):\n"
        "            frame.filter((pl.col('n') * 7919 % 1_000_003).sort() % 3 == 0)\n"
        "            at_work.set()\n"
        "    def interrupt_it():\n"
        "        at_work.wait()\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    with interruptible():\n"
        "        for _ in range(20):\n"
        "            interrupt.asked = False\n"
        "            at_work.clear()\n"
        "            other = threading.Thread(target=interrupt_it)\n"
        "            other.start()\n"
        "            while not interrupt.asked: list(pool.map(work, range(4)))\n"
        "            other.join()\n"
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


class Interrupting(io.StringIO):
    """A stream that interrupts its writer when it is told of some phase."""

    def __init__(self, phase: str) -> None:
        super().__init__()
        self.phase = phase

    def write(self, text: str) -> int:
        if text.strip().endswith(self.phase):
            signal.raise_signal(signal.SIGINT)
        return super().write(text)


@pytest.mark.parametrize("phase", ["tuning penalties", "searching crosses", "fitting all rows"])
def test_a_call_of_fit_returns_after_an_interrupt_and_ctrl_c_is_itself_again(
    phase: str, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a notebook: the handler that raises is there before and after, and the call returns."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stream = Interrupting(phase)
    monkeypatch.setattr(sys, "stderr", stream)
    try:
        model = AutoCrossClassifier(max_crosses=1).fit(table, "label")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert phase in stream.getvalue()
    assert ("search ended with 0 crosses: interrupted" in stream.getvalue()) == (phase != "fitting all rows")
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


class Clock:
    """Goes on by a millisecond whenever somebody looks at it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@pytest.mark.parametrize("limit", [0.0, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0])
def test_the_time_limit_is_kept_and_gives_an_lr_at_least(limit: float, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    for module in (events, logistic):
        monkeypatch.setattr(module, "perf_counter", clock)
    monkeypatch.setattr(stopping, "seconds_compiling", lambda: 0.0)
    model = AutoCrossClassifier(quiet=True, engine="serial", time_limit=limit).fit(table, "label")
    assert clock.now < limit + 0.15  # some hundred looks, those of the shortest fit there is
    assert (len(model.crosses_) > 0) == (limit > 0.7)
    frame = pl.read_parquet(table)
    assert auc(frame["label"].to_numpy(), model.decision_function(frame), np.ones(N_ROWS)) > 0.62
    assert len(model.model_.weights) == len(model.model_.producer.fields)
