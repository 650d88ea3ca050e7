"""The package as users will have it: the wheel in empty environments, on the lowest and the newest version of each dependency.

The lowest are those that pyproject.toml allows and that have a wheel for the Python at hand. Every environment first holds the
wheel and nothing else, and must fit and score; then come the libraries that the tests need, and the tests, from a copy that has no
source tree beside it. Run by `make release-test`, in an environment with the extra `release`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RESOLUTION = {"lowest": "lowest-direct", "newest": "highest"}

# Tests of the repository, not of the package.
NOT_OF_THE_PACKAGE = ("architecture", "benchmarks", "criteo_like", "docs", "golden_models", "paper", "release")


class StepError(Exception):
    """A step that went wrong, with what it printed."""


def run(*command: str | Path, cwd: Path, name: str) -> str:
    """What a command prints; nothing of this environment or this folder reaches it but the path to programs."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(command, cwd=cwd, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise StepError(f"{name} failed:\n{done.stdout}")
    return done.stdout


def uv(*arguments: str | Path, cwd: Path, name: str) -> str:
    return run(sys.executable, "-m", "uv", *arguments, cwd=cwd, name=name)


def supported() -> list[str]:
    """The versions of Python that the classifiers name."""
    return [entry.rpartition(" ")[2] for entry in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", entry)]


def pythons() -> list[str]:
    """Those of them that are at hand."""
    return [f"python{version}" for version in supported() if runs(f"python{version}")]


def runs(command: str) -> bool:
    """Whether there is such a command and it does anything: version managers leave stand-ins for Pythons that are not chosen."""
    return shutil.which(command) is not None and subprocess.run([command, "--version"], capture_output=True).returncode == 0


class Environment:
    """An environment of its own with the wheel in it."""

    def __init__(self, folder: Path, python: str, end: str, wheel: Path) -> None:
        self.folder, self.wheel = folder, wheel
        self.bin = folder / "venv" / "bin"
        uv("venv", "--python", python, folder / "venv", cwd=folder, name="Making the environment")
        # Wheels only: where a version has none for this Python, the next one is the lowest.
        how = ("--no-build", "--resolution", RESOLUTION[end], "--extra", "test", "--output-file", "constraints.txt")
        self.uv_pip("compile", *how, ROOT / "pyproject.toml", name="Choosing versions")
        self.install("")

    def install(self, extras: str) -> None:
        wanted = f"autocross{extras} @ {self.wheel.as_uri()}"
        self.uv_pip("install", "--no-build", "--constraints", "constraints.txt", wanted, name=f"Installing autocross{extras}")

    def uv_pip(self, command: str, *arguments: str | Path, name: str) -> str:
        return uv("pip", command, "--python", self.folder / "venv", *arguments, cwd=self.folder, name=name)

    def versions(self) -> str:
        """The Python, and the versions of what pyproject.toml names."""
        installed = {
            one["name"]: one["version"] for one in json.loads(self.uv_pip("list", "--format", "json", "-q", name="Listing"))
        }
        named = [re.split(r"[^a-z0-9-]", text)[0] for text in PROJECT["dependencies"]]
        python = run(self.bin / "python", "--version", cwd=self.folder, name="Asking for the version").strip()
        return ", ".join([python, *(f"{name} {installed[name]}" for name in [*named, "pandas", "pyarrow"])])

    def smoke(self) -> None:
        """Fit, evaluate and score with nothing installed but the wheel."""
        rows = [f"{job},{age},{int(job == 'nurse' or age > 45)}" for age in range(20, 60) for job in ("cook", "nurse", "pilot")]
        (self.folder / "rows.csv").write_text("\n".join(["job,age,bought", *rows, ""]))
        command = self.bin / "autocross"
        fit = ("fit", "rows.csv", "--target", "bought", "-o", "model.acx", "--quiet")
        run(command, *fit, cwd=self.folder, name="autocross fit")
        measured = json.loads(
            run(command, "evaluate", "model.acx", "rows.csv", "--json", cwd=self.folder, name="autocross evaluate")
        )
        scored = "import autocross; print(autocross.load('model.acx').score_one({'job': 'nurse', 'age': 37}), autocross.__file__)"
        score, home = run(self.bin / "python", "-c", scored, cwd=self.folder, name="load").split()
        if not (measured["auc"] > 0.9 and float(score) > 0.5 and Path(home).is_relative_to(self.folder)):
            raise StepError(f"The wheel alone: {measured}, a score of {score} by {home}")

    def test(self) -> str:
        """The tests and the examples of the package; what they count."""
        shutil.copytree(ROOT / "tests", self.folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", self.folder)
        left_out = [f"--ignore=tests/test_{topic}.py" for topic in NOT_OF_THE_PACKAGE]
        # Networks need PyTorch, clusters Ray: `make test` has both.
        without = ("--ignore-glob=*deep*", "--doctest-ignore-import-errors", "-p", "no:cacheprovider")
        where = ("tests", "--pyargs", "autocross")
        printed = run(self.bin / "python", "-m", "pytest", *left_out, *without, *where, cwd=self.folder, name="pytest")
        return printed.strip().rpartition("\n")[2]

    def resolve_extras(self) -> None:
        """Everything that an extra names can be had together; nothing is installed."""
        for extra in PROJECT["optional-dependencies"]:
            wanted = f"autocross[{extra}] @ {self.wheel.as_uri()}"
            self.uv_pip("install", "--dry-run", wanted, name=f"Resolving the extra {extra}")


def check(python: str, end: str, wheel: Path) -> bool:
    """One Python, one end; True where all went well."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            environment = Environment(Path(folder), python, end, wheel)
            environment.smoke()
            environment.install("[test]")
            print(f"{python} {end}: {environment.versions()}", flush=True)
            print(f"{python} {end}: {environment.test()}", flush=True)
            if end == "newest":
                environment.resolve_extras()
                print(f"{python} {end}: every extra resolves", flush=True)
        except StepError as error:
            print(f"{python} {end}: {error}", flush=True)
            return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", help="interpreters; by default those of pyproject.toml's classifiers that are here")
    parser.add_argument("--end", action="append", choices=RESOLUTION, help="lowest or newest; by default both")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        build = ("-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
        run(sys.executable, *build, cwd=ROOT, name="Building the wheel")
        (wheel,) = Path(folder).glob("*.whl")
        ends = given.end or list(RESOLUTION)
        outcomes = [check(python, end, wheel) for python in given.pythons or pythons() for end in ends]
    if not outcomes or not all(outcomes):
        sys.exit(f"{outcomes.count(False)} of {len(outcomes)} environments failed.")


if __name__ == "__main__":
    main()
