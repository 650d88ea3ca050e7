"""Part 6: scoring and fitting in processes that are forked or spawned, before, during and after a fit.

Each program prints the answers of its children. They are right, or an error of ours; never a hang.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

from autocross import AutoCrossClassifier
from torture.tools import planted, require, run, said

BEGINNING = """
import json, os, sys, warnings, threading
import multiprocessing as mp
warnings.simplefilter("ignore")
import polars as pl
from autocross import AutoCrossClassifier, load
from autocross.errors import AutoCrossError

FOLDER, ENGINE = sys.argv[1], sys.argv[2]
ROW = {"c0": "v1", "c1": "v2", "c2": "v3", "c3": "v0", "c4": "v1", "x": 0.5, "tags": ["a"], "weight": 2.0}

def fit(rows=None):
    rows = FOLDER + "/rows.parquet" if rows is None else rows
    return AutoCrossClassifier(quiet=True, engine=ENGINE, n_jobs=2, max_crosses=1, random_state=0).fit(rows, "label")

def asked(call):
    try:
        return [float(value) for value in call()]
    except AutoCrossError as error:
        return "refused: " + str(error)

def one(_=None):
    return asked(lambda: [load(FOLDER + "/model.acx").log_odds_one(ROW)])

def many(_=None):
    # The path, and no frame: a child that calls polars itself would wait for ever, and nobody could tell it why.
    return asked(lambda: load(FOLDER + "/model.acx").log_odds(FOLDER + "/rows.parquet")[:5])

def many_of_pandas(_=None):
    import pandas
    return asked(lambda: load(FOLDER + "/model.acx").log_odds(pandas.DataFrame([ROW])))

def fitted(_=None):
    return asked(lambda: fit().scorer_.log_odds(FOLDER + "/rows.parquet")[:5])

def forked(call):
    near, far = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(far, json.dumps(call()).encode())
        except BaseException as error:
            os.write(far, json.dumps("failed: " + repr(error)).encode())
        os._exit(0)
    os.close(far)
    with os.fdopen(near) as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    return json.loads(text or '"failed: the child died"')

if __name__ == "__main__":
    answers = main()
    print(json.dumps(answers))
"""
PROGRAMS = {
    "forked before anything": "def main(): return [forked(CALL), forked(CALL)]",
    "forked after a fit": "def main():\n    fit()\n    return [forked(CALL), CALL(), forked(CALL)]",
    "forked after scoring": "def main():\n    many()\n    one()\n    return [forked(CALL), forked(CALL)]",
    "forked after pandas": "def main():\n    many_of_pandas()\n    return [forked(CALL)]",
    "forked with a loaded model": (
        "def main():\n"
        "    model, rows = load(FOLDER + '/model.acx'), pl.read_parquet(FOLDER + '/rows.parquet')\n"
        "    model.log_odds(rows)\n"
        "    first = lambda: asked(lambda: model.log_odds(rows)[:5])\n"
        "    return [forked(first) if CALL is not one else forked(one) for _ in range(3)]"
    ),
    "forked during a fit": (
        "def main():\n"
        "    rows = pl.read_parquet(FOLDER + '/rows.parquet')\n"
        "    thread = threading.Thread(target=lambda: [fit(rows) for _ in range(3)])\n"
        "    thread.start()\n"
        "    found = [forked(CALL) for _ in range(3)]\n"
        "    thread.join()\n"
        "    return found"
    ),
    "a fit in a thread": (
        "def main():\n"
        "    found = []\n"
        "    threads = [threading.Thread(target=lambda: found.append(CALL())) for _ in range(3)]\n"
        "    [one.start() for one in threads]\n"
        "    [one.join() for one in threads]\n"
        "    return found"
    ),
    "a forked child forks": "def main():\n    fit()\n    return [forked(lambda: forked(CALL))]",
    "a pool": (
        "def main():\n    BEFORE()\n    with mp.get_context(METHOD).Pool(2) as pool:\n        return pool.map(CALL, range(4))"
    ),
    "a process": (
        "def child(queue): queue.put(CALL())\n"
        "def main():\n"
        "    BEFORE()\n"
        "    context = mp.get_context(METHOD)\n"
        "    queue = context.Queue()\n"
        "    process = context.Process(target=child, args=(queue,))\n"
        "    process.start()\n"
        "    found = queue.get()\n"
        "    process.join()\n"
        "    return [found]"
    ),
    "joblib": (
        "def main():\n"
        "    import joblib\n"
        "    BEFORE()\n"
        "    return joblib.Parallel(n_jobs=2, backend=BACKEND)(joblib.delayed(CALL)() for _ in range(3))"
    ),
}


@cache
def reference() -> tuple[Path, dict[str, list[float]]]:
    """Rows, a model of them, and what each call must answer."""
    folder = Path(mkdtemp(prefix="torture-forks-"))
    rows = planted(1, 600)
    rows.write_parquet(folder / "rows.parquet")
    model = AutoCrossClassifier(quiet=True, engine="serial", max_crosses=1, random_state=0).fit(rows, "label")
    model.save(folder / "model.acx")
    row = {"c0": "v1", "c1": "v2", "c2": "v3", "c3": "v0", "c4": "v1", "x": 0.5, "tags": ["a"], "weight": 2.0}
    first = [float(value) for value in model.scorer_.log_odds(rows)[:5]]
    alone = [model.scorer_.log_odds_one(row)]
    return folder, {"one": alone, "many_of_pandas": alone, "many": first, "fitted": first}


def attack(seed: int, folder: Path) -> None:
    rng = np.random.default_rng(seed)
    rows, expected = reference()
    how = list(PROGRAMS)[seed % len(PROGRAMS)]
    call = str(rng.choice(list(expected)))
    words = {
        "CALL": call,
        "BEFORE": str(rng.choice(["fit", "many", "one"])),
        "METHOD": repr(str(rng.choice(["fork", "spawn", "forkserver"]))),
        "BACKEND": repr(str(rng.choice(["loky", "multiprocessing", "threading"]))),
    }
    body = PROGRAMS[how]
    for word, value in words.items():
        body = body.replace(word, value)
    program = folder / "program.py"
    program.write_text(BEGINNING.replace('if __name__ == "__main__":', f'{body}\n\nif __name__ == "__main__":'))
    engine = str(rng.choice(["threads", "threads", "serial"]))
    (folder / "case.txt").write_text(f"{how}, {engine}, {words}")
    done = run([sys.executable, str(program), str(rows), engine], timeout=90)
    require(done.returncode == 0, f"{how}, {words}: {said(done.stderr)}")
    for found in json.loads(done.stdout):
        refused = isinstance(found, str) and found.startswith("refused: ")
        if how != "forked with a loaded model" or call == "one":
            require(refused or found == expected[call], f"{how}, {engine}, {words}: {found} is not {expected[call]}")
        else:
            require(refused or found == expected["many"], f"{how}: {found} is not {expected['many']}")
