"""The program as a whole, for real: closed and broken streams, narrow terminals, and Ctrl-C at any moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from autocross import AutoCrossClassifier, load

PROGRAM = [sys.executable, "-m", "autocross.cli"]
posix = pytest.mark.skipif(os.name != "posix", reason="signals and file descriptors as POSIX has them")
pytestmark = [posix, pytest.mark.slow]


def table(n: int = 120) -> pl.DataFrame:
    """Names, values and labels beyond ASCII."""
    jobs = ["Köchin", "naïf", "医生"]
    return pl.DataFrame(
        {
            "größe": [float(at % 17) for at in range(n)],
            "職業": [jobs[at % 3] for at in range(n)],
            "café": ["oui ✓" if at % 3 == 0 or at % 17 > 12 else "non" for at in range(n)],
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows and a model of them."""
    path = tmp_path_factory.mktemp("program")
    table().write_csv(path / "rows.csv")
    AutoCrossClassifier(quiet=True, engine="serial", max_crosses=0).fit(table(), "café").save(path / "model.acx")
    return path


def fit(folder: Path, output: Path) -> list[str]:
    return ["fit", str(folder / "rows.csv"), "--target", "café", "-o", str(output), "--max-crosses", "0", "--engine", "serial"]


def run(*arguments: object, shell: str = "", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The program with its streams changed by a shell, as in `>&-`."""
    command = ["sh", "-c", f'exec "$@" {shell}', "sh", *PROGRAM, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False, env={**os.environ, **environment})
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    assert b"Exception ignored" not in done.stderr, done.stderr.decode()
    return done


# Streams.


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_a_fit_without_its_streams(closed: str, folder: Path, tmp_path: Path) -> None:
    """A file that is opened must not get the number of a closed stream: what is printed would go into it."""
    output = tmp_path / "m.acx"
    done = run(*fit(folder, output), "--json", shell=closed)
    assert done.returncode == 0
    assert load(output).model.about.n_rows == 120
    if closed.startswith("2"):
        assert json.loads(done.stdout)["model"] == str(output)


def test_other_commands_without_their_streams(folder: Path, tmp_path: Path) -> None:
    model, rows, scores = folder / "model.acx", folder / "rows.csv", tmp_path / "scores.csv"
    assert run("predict", model, rows, "-o", scores, shell=">&- 2>&-").returncode == 0
    assert pl.read_csv(scores).columns == ["probability", "prediction"]
    assert run("predict", model, rows, shell=">&-").returncode == 0
    assert run("show", model, shell=">&-").returncode == 0
    assert run("--help", shell=">&-").returncode == 0
    assert run("show", tmp_path / "absent.acx", shell="2>&-").returncode == 2


@pytest.mark.parametrize("command", ["predict", "show"])
def test_a_disk_that_is_full_is_a_failure(command: str, folder: Path) -> None:
    rows = [folder / "rows.csv"] if command == "predict" else []
    done = run(command, folder / "model.acx", *rows, shell=">/dev/full")
    assert done.returncode == 1
    assert done.stderr == b"failed: OSError: [Errno 28] No space left on device\n"


def test_a_reader_who_has_seen_enough(folder: Path, tmp_path: Path) -> None:
    rows = tmp_path / "many.csv"
    pl.concat([table()] * 2000).write_csv(rows)
    command = [*PROGRAM, "predict", str(folder / "model.acx"), str(rows)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"probability,prediction\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_logs_that_nobody_reads_do_not_end_a_fit(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "m.acx"
    with subprocess.Popen([*PROGRAM, *fit(folder, output)], stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.stderr.readline()
        process.stderr.close()
    assert process.returncode == 0
    assert load(output).model.about.n_rows == 120


NARROW = {"PYTHONIOENCODING": "ascii:strict", "LANG": "C"}


@pytest.mark.parametrize("command", ["show", "explain", "fit"])
def test_a_terminal_that_knows_ascii_only(command: str, folder: Path, tmp_path: Path) -> None:
    model, rows = folder / "model.acx", folder / "rows.csv"
    arguments = {"show": ["show", model], "explain": ["explain", model, rows], "fit": fit(folder, tmp_path / "m.acx")}[command]
    done = run(*arguments, **NARROW)
    assert done.returncode == 0, done.stderr
    assert (done.stdout + done.stderr).isascii()
    assert rb"gr\xf6\xdfe" in done.stdout + done.stderr


def test_data_are_utf8_on_every_terminal(folder: Path, tmp_path: Path) -> None:
    model, rows, scores = folder / "model.acx", folder / "rows.csv", tmp_path / "scores.csv"
    done = run("predict", model, rows, **NARROW)
    assert run("predict", model, rows, "-o", scores).returncode == 0
    assert done.stdout == scores.read_bytes()
    assert "oui ✓" in done.stdout.decode()


def test_a_name_that_is_not_utf8(folder: Path, tmp_path: Path) -> None:
    path = os.fsdecode(bytes(tmp_path) + b"/caf\xe9.csv")
    Path(path).write_bytes((folder / "rows.csv").read_bytes())
    done = run("predict", folder / "model.acx", path)
    assert done.returncode == 2
    assert b"its name is not UTF-8. Rename it" in done.stderr


# Ctrl-C.

# Put into every process that Python starts: Ctrl-C, perhaps several times, when the program imports a module or does something.
MOMENT = """
import os, signal, sys
moment, times = os.environ["MOMENT"].split()
def watch(name, arguments):
    global times
    if name == moment or (name == "import" and arguments[0] == moment):
        for _ in range(int(times)):
            os.kill(os.getpid(), signal.SIGINT)
        times = 0
sys.addaudithook(watch)
"""


@pytest.fixture(scope="module")
def at_moment(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PYTHONPATH with which the environment variable MOMENT says when Ctrl-C is pressed, and how often."""
    folder = tmp_path_factory.mktemp("moment")
    (folder / "sitecustomize.py").write_text(MOMENT)
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.mark.parametrize(
    ("module", "times"),
    [("autocross.interrupts", 2), ("autocross.streams", 1), ("autocross.cli", 3), ("cyclopts", 1), ("autocross.options", 3)],
)
def test_ctrl_c_while_the_program_starts(module: str, times: int, folder: Path, at_moment: str, tmp_path: Path) -> None:
    """From the first lines of its own on; what comes before is Python's."""
    output = tmp_path / "m.acx"
    done = run(*fit(folder, output), PYTHONPATH=at_moment, MOMENT=f"{module} {times}")
    assert done.returncode == 1, done.stderr
    assert done.stderr == b"interrupted: nothing was written\n"
    assert not output.exists()


@pytest.mark.parametrize("module", ["numpy", "polars", "autocross.table.files"])
def test_ctrl_c_while_a_command_starts(module: str, folder: Path, at_moment: str) -> None:
    done = run("predict", folder / "model.acx", folder / "rows.csv", PYTHONPATH=at_moment, MOMENT=f"{module} 2")
    assert done.returncode == 1
    assert done.stdout == b""
    assert done.stderr == b"interrupted: nothing was written\n"


@pytest.mark.parametrize("module", ["autocross.estimator", "polars", "sklearn", "autocross.fitting.fit"])
def test_ctrl_c_while_a_fit_starts_asks_for_what_it_has_found(module: str, folder: Path, at_moment: str, tmp_path: Path) -> None:
    output = tmp_path / "m.acx"
    done = run(*fit(folder, output), PYTHONPATH=at_moment, MOMENT=f"{module} 1")
    assert done.returncode == 0, done.stderr
    assert b"interrupted: the model has what was found until then" in done.stderr
    assert load(output).model.about.n_rows == 120


@pytest.mark.parametrize("event", ["os.rename", "tempfile.mkstemp"])
def test_a_model_that_is_fitted_is_saved(event: str, folder: Path, at_moment: str, tmp_path: Path) -> None:
    """However often Ctrl-C is pressed while it is written."""
    output = tmp_path / "m.acx"
    done = run(*fit(folder, output), PYTHONPATH=at_moment, MOMENT=f"{event} 5")
    assert done.returncode == 0, done.stderr
    assert b"interrupted" not in done.stderr
    assert load(output).model.about.n_rows == 120
    scores = tmp_path / "scores.csv"
    done = run("predict", output, folder / "rows.csv", "-o", scores, PYTHONPATH=at_moment, MOMENT=f"{event} 5")
    assert done.returncode == 0
    assert pl.read_csv(scores).height == 120


# Tells on stdout that the program has begun.
BEGUN = """
import os, sys
def watch(name, arguments):
    if name == "import" and arguments[0] == "autocross.streams":
        os.write(1, b"!")
sys.addaudithook(watch)
"""


def storm(process: subprocess.Popen[bytes]) -> bytes:
    """Ctrl-C without end, until there is one."""
    assert process.stderr is not None
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
    return process.stderr.read()


def test_a_storm_at_the_end_changes_nothing(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "m.acx"
    with subprocess.Popen([*PROGRAM, *fit(folder, output)], stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while b"saved" not in process.stderr.readline():
            assert process.poll() is None
        told = storm(process)
    assert process.returncode == 0, told
    assert told == b""
    assert load(output).model.about.n_rows == 120


@pytest.mark.parametrize("command", ["fit", "predict", "refit"])
def test_a_storm_from_the_beginning_to_the_end(command: str, folder: Path, at_moment: str, tmp_path: Path) -> None:
    output = tmp_path / ("scores.csv" if command == "predict" else "m.acx")
    arguments = [command, str(folder / "model.acx"), str(folder / "rows.csv"), "-o", str(output)]
    arguments = fit(folder, output) if command == "fit" else arguments
    (tmp_path / "sitecustomize.py").write_text(BEGUN)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), at_moment])}
    with subprocess.Popen([*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"!"
        told = storm(process)
    assert (process.returncode, told) == (1, b"interrupted: nothing was written\n")
    assert not output.exists()


def test_what_others_ignore_stays_ignored(folder: Path, at_moment: str, tmp_path: Path) -> None:
    """A shell starts a program in the background with Ctrl-C ignored."""
    output = tmp_path / "m.acx"
    program = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); from autocross.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": at_moment, "MOMENT": "polars 3"}
    command = [sys.executable, "-c", program, *fit(folder, output)]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert b"interrupted" not in done.stderr
    assert load(output).model.about.n_rows == 120


@pytest.mark.parametrize(
    "program", [["-m", "autocross"], ["-c", "from autocross.cli import main; main()"]], ids=["module", "function"]
)
def test_every_way_to_start_it(program: list[str], folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, *program, "show", str(folder / "model.acx")], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0
    assert "größe" in done.stdout.decode()
    done = subprocess.run([sys.executable, *program, "show"], capture_output=True, timeout=120, check=False)
    assert done.returncode == 2
    assert b"requires an argument" in done.stderr
