"""The walls between the rooms: imports go down only, and heavy libraries stay where they live."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import autocross

SOURCE = Path(__file__).parents[1] / "src" / "autocross"

# From the ground up; rooms on one floor do not import each other.
FLOORS = [
    {"errors", "checks", "hashing", "options", "features", "events", "interrupts", "scratch", "forks", "memory", "streams"},
    {"kernels", "engines", "pages"},
    {"table", "observers", "statistic", "crossing"},
    {"encoding"},
    {"folds"},
    {"blocks"},
    {"models", "reading", "needs"},
    {"search", "producer"},
    {"fingerprint"},
    {"checkpoint"},
    {"fitting", "serving"},
    {"fitted", "exporting", "server"},
    {"transformer"},
    {"estimator"},
    {"deep_estimator"},
    {"demo"},
    {"commands"},
    {"cli"},
    {"__main__"},
]
GROUND = FLOORS[0]
FLOOR = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}

HOMES = {
    "numba": {"kernels"},
    "polars": {"table", "reading", "fitting", "fitted", "estimator", "transformer", "commands", "demo"},
    "narwhals": {"table"},
    "pandas": {"transformer"},
    "sklearn": {"fitted", "estimator", "transformer", "demo"},
    "scipy": {"transformer"},
    "safetensors": {"producer"},
    "xxhash": {"encoding", "producer"},
    "rich": {"observers"},
    "cyclopts": {"commands", "cli"},
    "xlsxwriter": {"table"},
    "torch": {"models"},
    "ray": {"engines"},
    "onnx": {"exporting"},
    "starlette": {"server"},
    "uvicorn": {"server"},
    "msgspec": {"server"},
}


@cache
def imports() -> list[tuple[str, str, Path]]:
    """Every import in the package: the room it stands in, the module it names, and the file."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found += [(room, alias.name, path) for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "autocross" else [node.module]
                found += [(room, name, path) for name in names]
    return found


def test_every_room_has_a_floor() -> None:
    rooms = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in SOURCE.rglob("*.py")} - {"__init__"}
    assert rooms == set(FLOOR)


@pytest.mark.parametrize(("room", "module", "path"), imports(), ids=lambda value: str(value).rpartition("/")[2])
def test_imports_go_down(room: str, module: str, path: Path) -> None:
    parts = module.split(".")
    if parts[0] != "autocross" or len(parts) == 1 or room == "__init__" or parts[1] == "__version__":
        return
    other = parts[1]
    same = other == room or (room in GROUND and other in GROUND)
    assert same or FLOOR[other] < FLOOR[room], f"{path.name} imports {module}, which is not below it"


@pytest.mark.parametrize("library", HOMES)
def test_heavy_libraries_have_homes(library: str) -> None:
    rooms = {room for room, module, _ in imports() if module.split(".")[0] == library}
    assert rooms <= HOMES[library]


def test_encoding_never_sees_a_label_and_search_never_a_raw_value() -> None:
    names = {(room, module) for room, module, _ in imports()}
    assert not any(room == "encoding" and "labels" in module for room, module in names)
    assert not any(room == "search" and (".table" in module or ".encoding" in module) for room, module in names)


# Kernels. Numba keeps machine code on disk, and makes it anew when the kernel's own file has changed. What a kernel takes from
# another file, be it a function or a number, is compiled into it: a change there would go unnoticed.


def foreign_names(source: str) -> set[str]:
    """What a file of kernels takes from the rest of the package, the decorators apart."""
    taken = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            taken |= {alias.name for alias in node.names if alias.name.split(".")[0] == "autocross"}
        elif isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] == "autocross"):
            taken |= {f"{node.module}.{alias.name}" for alias in node.names}
    return taken - {"autocross.kernels.kernel", "autocross.kernels.brief", "autocross.kernels.part"}


KERNEL_FILES = sorted(path for path in (SOURCE / "kernels").glob("*.py") if path.name != "__init__.py")


@pytest.mark.parametrize("path", KERNEL_FILES, ids=lambda path: path.name)
def test_kernels_that_call_each_other_share_a_file(path: Path) -> None:
    assert foreign_names(path.read_text()) == set()


def test_what_a_kernel_takes_from_another_file_is_found() -> None:
    assert foreign_names("from autocross.kernels import kernel, logistic") == {"autocross.kernels.logistic"}
    assert foreign_names("from autocross.kernels.logistic import ln") == {"autocross.kernels.logistic.ln"}
    assert foreign_names("def late():\n    import autocross.folds") == {"autocross.folds"}
    assert foreign_names("from . import logistic") == {"None.logistic"}


@pytest.mark.slow
def test_kernels_are_made_in_their_room_only() -> None:
    makers = {f"autocross.kernels.{name}" for name in ("kernel", "brief", "part")}
    makers |= {"numba.njit", "numba.jit", "numba.extending.intrinsic"}
    for path in sorted(SOURCE.rglob("*.py")):
        if path.parent.name != "kernels":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom):
                    assert not makers & {f"{node.module}.{alias.name}" for alias in node.names}, path


# The experiments. They use the package as anyone would, with two exceptions. Crosses by hand read the fields of a fitted model. The
# networks that the paper compares with are trained on the codes of our fields.

PAPER = Path(__file__).parents[1] / "paper"
INNER_NAMES = {
    "methods.py": {"model_.producer"},
    "networks.py": {
        "autocross.encoding.plan.min_count",
        "autocross.features.FieldCodes",
        "autocross.table.coerce.typed",
        "model_.producer",
    },
    "embeddings.py": {
        "autocross.features.FIRST",
        "autocross.features.FieldCodes",
        "autocross.features.RARE",
        "autocross.models.metrics.log_loss",
    },
}


def inner_names(source: str) -> set[str]:
    """What a file takes from the package that is not public: by import, or by way of a fitted model."""
    taken = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            taken |= {alias.name for alias in node.names if alias.name.startswith("autocross.")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "autocross":
            is_public = set(autocross.__all__) if node.module == "autocross" else set()
            taken |= {f"{node.module}.{alias.name}" for alias in node.names if alias.name not in is_public}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "model_":
            taken.add(f"model_.{node.attr}")
    return taken


@pytest.mark.parametrize("path", sorted(PAPER.glob("*.py")), ids=lambda path: path.name)
def test_experiments_use_public_names_and_the_inner_ones_that_are_listed(path: Path) -> None:
    assert inner_names(path.read_text()) == INNER_NAMES.get(path.name, set())


def test_inner_names_are_found() -> None:
    assert inner_names("from autocross import AutoCross, __version__, load\nimport autocross") == set()
    assert inner_names("from autocross import kernels, load") == {"autocross.kernels"}
    assert inner_names("def late():\n    import autocross.folds as f") == {"autocross.folds"}
    assert inner_names("from autocross.estimator import AutoCross") == {"autocross.estimator.AutoCross"}
    assert inner_names("fields = clf.model_.producer.fields") == {"model_.producer"}


def test_the_package_takes_nothing_from_experiments_or_benchmarks() -> None:
    outside = {path.stem for folder in (PAPER, PAPER.parent / "benchmarks") for path in folder.glob("*.py")}
    assert not {module.split(".")[0] for _, module, _ in imports()} & (outside | {"paper", "benchmarks"})


def test_no_test_sleeps_or_looks_at_a_clock() -> None:
    """How long something takes depends on what else the machine does: a test waits for an event, or has a clock of its own."""
    for path in sorted(Path(__file__).parent.glob("*.py")):
        assert not re.findall(r"\b(?:sleep|Timer|perf_counter|monotonic|time\.time)\(", path.read_text()), path.name


def test_scoring_a_row_loads_nothing_heavy(tmp_path: Path, saved_model: Path) -> None:
    code = (
        "import sys; from autocross import load; "
        f"model = load({str(saved_model)!r}); assert 0 < model.score_one({{'job': 'cook', 'age': 37.0}}) < 1; "
        "model.explain({'job': 'cook'}); "
        "heavy = {'pandas', 'sklearn', 'scipy.linalg', 'polars', 'narwhals', 'rich', 'cyclopts', 'autocross.search', "
        "'autocross.fitting', 'torch'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
