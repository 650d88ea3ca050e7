"""The release: what is shipped, what it says of itself, what a type checker learns from it, and what SECURITY.md promises."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from packaging.metadata import Metadata
from packaging.requirements import Requirement

import autocross

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RELEASE = runpy.run_path(str(ROOT / "scripts" / "release.py"))
RELEASE_TEST = runpy.run_path(str(ROOT / "scripts" / "release_test.py"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").iterdir())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Wheel and source archive of this tree, by suffix."""
    pytest.importorskip("flit_core", reason="flit_core, which builds, is not installed")
    folder = tmp_path_factory.mktemp("built")
    code = "import sys; from flit_core.buildapi import *; build_wheel(sys.argv[1]), build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, folder], cwd=ROOT, check=True, timeout=60)
    return {path.suffix: path for path in folder.iterdir()}


# What is shipped.


@pytest.mark.parametrize("suffix", [".whl", ".gz"])
def test_the_package_is_shipped_and_nothing_else(suffix: str, built: dict[str, Path]) -> None:
    RELEASE["check_content"](built[suffix].name, built[suffix].read_bytes(), ROOT / "src")


def test_a_file_of_data_is_not_shipped(built: dict[str, Path]) -> None:
    content = BytesIO(built[".whl"].read_bytes())
    with zipfile.ZipFile(content, "a") as wheel:
        wheel.writestr("autocross/rows.parquet", b"PAR1")
    with pytest.raises(SystemExit, match=r"lacks \[\] and should not hold \['autocross/rows\.parquet'\]"):
        RELEASE["check_content"](built[".whl"].name, content.getvalue(), ROOT / "src")


def test_what_is_in_no_commit_is_not_released(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "release.py", tmp_path / "scripts")
    done = subprocess.run([sys.executable, tmp_path / "scripts" / "release.py"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert re.search(r"made of a commit, but these files are not in one:\n.*scripts/\nCommit or remove them", done.stderr)


# What it says of itself.


def test_metadata(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built[".whl"]) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith("METADATA")]
        metadata = Metadata.from_email(wheel.read(name))  # an error where a field is not as the standard has it
    assert (metadata.name, str(metadata.version)) == ("autocross", autocross.__version__)
    assert (metadata.license_expression, metadata.license_files) == ("Apache-2.0", ["LICENSE"])
    assert metadata.description_content_type == "text/markdown"
    assert (metadata.description or "").strip() == (ROOT / "README.md").read_text().strip()
    assert set(metadata.provides_extra or []) == {*PROJECT["optional-dependencies"]}


@pytest.mark.parametrize("text", PROJECT["dependencies"])
def test_dependencies_have_a_lowest_version_and_no_highest(text: str) -> None:
    assert [bound.operator for bound in Requirement(text).specifier] == [">="]


def test_the_changelog_begins_with_this_version() -> None:
    heading = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading is not None
    assert re.fullmatch(rf"{re.escape(autocross.__version__)} \((unreleased|\d{{4}}-\d\d-\d\d)\)", heading.group(1))


# What a type checker learns from it.


@pytest.mark.slow
def test_types_of_the_installed_package(built: dict[str, Path], tmp_path: Path) -> None:
    """In an environment of its own, with NumPy beside it, so that mypy believes its types for its py.typed and nothing else."""
    venv.create(tmp_path / "venv")
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    with zipfile.ZipFile(built[".whl"]) as wheel:
        wheel.extractall(packages)
    (packages / "numpy").symlink_to(Path(np.__file__).parent)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--python-executable={tmp_path / 'venv/bin/python'}"]
    checks = shutil.copy(ROOT / "tests" / "typing_checks.py", tmp_path)
    done = subprocess.run([*command, checks], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout == "Success: no issues found in 1 source file\n"


# What SECURITY.md promises.

NETWORK = {"socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname", "urllib.Request"}
CODE = {"pickle.find_class", "marshal.loads", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "ctypes.dlopen"}


def run_watched(before: str, code: str, forbidden: set[str]) -> subprocess.CompletedProcess[str]:
    """A program of its own, whose second part ends where Python tells its auditors of one of these events."""
    watch = "def watch(event, arguments):\n    assert event not in forbidden, f'forbidden: {event} {arguments}'"
    text = f"{before}\nimport sys\nforbidden = {forbidden!r}\n{watch}\nsys.addaudithook(watch)\n{code}"
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)


def test_loading_and_scoring_run_no_code_and_reach_no_network(saved_model: Path) -> None:
    row = "{'job': 'cook', 'age': 37.0}"
    code = f"model = autocross.load({str(saved_model)!r}); model.score_one({row}); model.explain({row})"
    # Once unwatched: the first time Python reads the modules themselves, which is code.
    done = run_watched(f"import autocross; {code}", code, NETWORK | CODE)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_fit_reaches_no_network(tmp_path: Path) -> None:
    rows = 'pl.DataFrame({"job": ["cook", "nurse"] * 40, "age": [*range(20, 60)] * 2, "bought": [0, 1] * 40})'
    path = str(tmp_path / "model.acx")
    code = f"import polars as pl, autocross; autocross.AutoCrossClassifier(quiet=True).fit({rows}, 'bought').save({path!r})"
    done = run_watched("", code, NETWORK)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "code", ["import pickle; pickle.loads(pickle.dumps(print))", "import socket; socket.socket().bind(('', 0))"]
)
def test_the_watch_sees_code_and_network(code: str) -> None:
    assert "forbidden: " in run_watched("import pickle, socket", code, NETWORK | CODE).stderr


# What is asked for exists.


def test_every_target_is_explained() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    explained = re.findall(r"^([a-z-]+):.*## .+$", MAKEFILE, re.MULTILINE)
    assert set(phony.split()) - {"help"} == set(explained)
    assert all((ROOT / path).exists() for path in re.findall(r"python ((?:scripts|docs|benchmarks|paper)/\S+\.py)", MAKEFILE))


def test_tests_that_stay_behind_exist() -> None:
    assert all((ROOT / "tests" / f"test_{name}.py").exists() for name in RELEASE_TEST["NOT_OF_THE_PACKAGE"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow(path: Path) -> None:
    workflow: dict[Any, Any] = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    targets = set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE))
    pythons = set(RELEASE_TEST["supported"]())
    for job in workflow["jobs"].values():
        assert "permissions" not in job
        matrix = job.get("strategy", {}).get("matrix", {})
        assert set(matrix.get("python", pythons)) == pythons
        assert set(matrix.get("end", RELEASE_TEST["RESOLUTION"])) == set(RELEASE_TEST["RESOLUTION"])
        for step in job["steps"]:
            assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"]) if "uses" in step else step["run"].split()[0] == "make"
            assert step.get("run", "make test").split()[1] in targets
