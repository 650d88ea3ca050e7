"""Processes beside the one that fitted: what works in each of them, and an error instead of a wait for ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from autocross import AutoCrossClassifier

pytestmark = pytest.mark.slow

# What a child does, and how the parent asks for it: in a file, since spawned children import it.
WORK = """
import multiprocessing, os, select, signal, sys, warnings
warnings.simplefilter("ignore")
import pandas as pd
from autocross import AutoCross, AutoCrossClassifier, load

MODEL, TABLE = sys.argv[1:3] if len(sys.argv) == 3 else (None, None)
LIMIT = 120  # seconds; who takes longer hangs


def fit(rows):
    return AutoCrossClassifier(quiet=True, max_crosses=0, n_jobs=2).fit(rows, "bought")


def score(model, table):
    return load(model).score(pd.read_csv(table)).sum()


DEEDS = {
    "score_one": lambda model, table: load(model).score_one({"job": "cook"}),
    "score": score,
    "score a file": lambda model, table: load(model).score(table).sum(),
    "fit": lambda model, table: fit(table).predict_proba(pd.read_csv(table))[0, 1],
    "transform": lambda model, table: AutoCross(quiet=True, max_crosses=0).fit(table, "bought").transform(table).sum(),
}


def answer(work):
    try:
        return f"{work():.6f}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def answers(model, table, end):
    for what, work in DEEDS.items():
        end.send((what, answer(lambda: work(model, table))))


def in_process(method):
    context = multiprocessing.get_context(method)
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=answers, args=[MODEL, TABLE, there])
    process.start()
    for _ in DEEDS:
        what, told = here.recv() if here.poll(LIMIT) else ("", "hangs")
        show(f"{method} {what}", told)
    process.kill()
    process.join()


def in_fork(work):
    # As a server does that forks its workers.
    here, there = os.pipe()
    if not (child := os.fork()):
        os.write(there, answer(work).encode())
        os._exit(0)
    os.close(there)
    told = os.read(here, 10_000).decode() if select.select([here], [], [], LIMIT)[0] else "hangs"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return told


def show(name, told):
    print(f"{name}\\t{told}", flush=True)
"""

EVERYTHING = ("score_one", "score", "score a file", "fit", "transform")
REFUSED = "EngineError: This process was forked from one that had worked on tables"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, people: pl.DataFrame) -> Path:
    """A file with times and texts, which need more of polars than numbers do, and a model of it beside it."""
    path = tmp_path_factory.mktemp("forks") / "people.csv"
    people.drop("tags").write_csv(path)
    AutoCrossClassifier(quiet=True, max_crosses=0).fit(path, "bought").save(path.with_suffix(".acx"))
    return path


def run(script: str, folder: Path, table: Path) -> dict[str, str]:
    """What the script shows, by name."""
    (folder / "work.py").write_text(WORK)
    (folder / "script.py").write_text(f"from work import *\nif __name__ == '__main__':\n{script}")
    command = [sys.executable, str(folder / "script.py"), str(table.with_suffix(".acx")), str(table)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return dict(line.split("\t", 1) for line in done.stdout.splitlines())


def test_children_of_a_process_that_has_fitted(table: Path, tmp_path: Path) -> None:
    script = """
    fit(TABLE)
    for method in ("fork", "spawn", "forkserver"):
        in_process(method)
    for what, work in DEEDS.items():
        show(f"here {what}", answer(lambda: work(MODEL, TABLE)))
    """
    seen = run(script, tmp_path, table)
    for method in ("spawn", "forkserver"):
        for what in EVERYTHING:
            assert seen[f"{method} {what}"] == seen[f"here {what}"]
    assert seen["fork score_one"] == seen["here score_one"]
    for what in EVERYTHING[1:]:
        message = seen[f"fork {what}"]
        assert message.startswith(REFUSED)
        for way_out in ("spawn or forkserver", "set_start_method('forkserver')", "loky", "gunicorn", "--preload", "score_one"):
            assert way_out in message


def test_a_server_that_loads_and_then_forks(table: Path, tmp_path: Path) -> None:
    script = """
    import autocross.estimator  # all libraries are there, and nothing was done with them
    model, rows, one = load(MODEL), pd.read_csv(TABLE), {"job": "cook", "age": 37.0}

    def score_all():
        return model.score(rows).sum()

    def work_and_fork(work):
        score_all()
        told = in_fork(work)
        return float(told) if told[0] == "0" else told.startswith(REFUSED)

    for worker in (1, 2):
        show(f"{worker} score_one", in_fork(lambda: model.score_one(one)))
        show(f"{worker} score", in_fork(score_all))
        show(f"{worker} fit", in_fork(lambda: DEEDS["fit"](MODEL, TABLE)))
    show("a worker's fork score_one", in_fork(lambda: work_and_fork(lambda: model.score_one(one))))
    show("a worker's fork score", in_fork(lambda: work_and_fork(score_all)))
    show("here score_one", answer(lambda: model.score_one(one)))
    show("here score", answer(score_all))
    show("here fit", answer(lambda: DEEDS["fit"](MODEL, TABLE)))
    show("late score_one", in_fork(lambda: model.score_one(one)))
    show("late score", in_fork(score_all))
    show("a late fork's fork score", in_fork(lambda: in_fork(score_all).startswith(REFUSED)))
    """.replace("REFUSED", repr(REFUSED))
    seen = run(script, tmp_path, table)
    for worker in "12":
        for what in ("score_one", "score", "fit"):
            assert seen[f"{worker} {what}"] == seen[f"here {what}"]
    assert seen["a worker's fork score_one"] == seen["late score_one"] == seen["here score_one"]
    assert seen["a worker's fork score"] == seen["a late fork's fork score"] == "1.000000"  # refused
    assert seen["late score"].startswith(REFUSED)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux tells which threads run")
def test_children_of_a_process_that_has_used_polars_itself(table: Path, tmp_path: Path) -> None:
    script = """
    import polars as pl
    model, rows = load(MODEL), pd.read_csv(TABLE)
    frame = pl.DataFrame({"a": [1, 2], "b": [1.0, 2.0]})
    show("before", in_fork(lambda: model.score(rows).sum()))
    frame.group_by("a").agg(pl.col("b").sum())
    show("after", in_fork(lambda: model.score(rows).sum()))
    show("here", f"{model.score(rows).sum():.6f}")
    """
    seen = run(script, tmp_path, table)
    assert seen["before"] == seen["here"]
    assert seen["after"].startswith(REFUSED)


def test_joblib_and_cross_validation(table: Path, tmp_path: Path) -> None:
    script = """
    from joblib import Parallel, delayed
    from sklearn.model_selection import cross_val_score
    rows = pd.read_csv(TABLE)
    X, y = rows.drop(columns="bought"), rows["bought"]
    model = AutoCrossClassifier(quiet=True, max_crosses=0)
    show("alone", cross_val_score(model, X, y, cv=2).tolist())
    show("n_jobs=2", cross_val_score(model, X, y, cv=2, n_jobs=2).tolist())
    show("here", [score(MODEL, TABLE)] * 2)
    for backend in ("loky", "threading", "multiprocessing"):
        try:
            show(backend, Parallel(n_jobs=2, backend=backend, timeout=LIMIT)(delayed(score)(MODEL, TABLE) for _ in range(2)))
        except Exception as error:
            show(backend, f"{type(error).__name__}: {error}")
    """
    seen = run(script, tmp_path, table)
    assert seen["n_jobs=2"] == seen["alone"]
    assert seen["loky"] == seen["threading"] == seen["here"]
    assert seen["multiprocessing"].startswith(REFUSED)
