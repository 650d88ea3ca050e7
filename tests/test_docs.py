"""What the documentation says is true: options, commands, the README's first block."""

from __future__ import annotations

import ast
import inspect
import re
import runpy
import shlex
import warnings
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import autocross
from autocross import AutoCross, AutoCrossClassifier, WideDeepClassifier
from autocross.cli import run
from autocross.errors import OptionError
from autocross.options import DeepOptions, Options, all_options
from torture import run as torture

ROOT = Path(__file__).parents[1]
OPTIONS_PAGE = (ROOT / "docs" / "options.md").read_text()
GENERATE = runpy.run_path(str(ROOT / "docs" / "generate.py"))


@pytest.mark.parametrize("estimator", [AutoCross, AutoCrossClassifier, WideDeepClassifier])
def test_the_list_of_options_is_seen_everywhere(estimator: Any) -> None:
    """Constructor, clones, completion and the docstring, in the form of numpydoc, have every option."""
    names = [entry.name for entry in (fields(DeepOptions) if estimator is WideDeepClassifier else all_options())]
    assert list(inspect.signature(estimator).parameters) == names
    assert list(inspect.signature(estimator).parameters.values())[3].default == "auc"
    assert clone(estimator(max_order=3)).get_params()["max_order"] == 3
    assert {estimator.__name__, "load", "Scorer"} <= {*dir(autocross)}
    page = estimator.__doc__.splitlines()
    for name in names:
        assert any(line.startswith(f"{name} : ") for line in page), name
    fitted = estimator.__doc__.partition("Attributes")[2]
    assert all(f"\n{name}\n    " in fitted for name in ("model_", "scorer_", "crosses_", "history_", "feature_names_in_"))


@pytest.mark.parametrize("name", ["n_jobs", "time_limit", "memory_limit", "random_state", "min_count", "max_crosses"])
def test_a_number_of_too_many_digits_is_told(name: str) -> None:
    with pytest.raises(OptionError, match=rf"Option {name}=a whole number of 16,610 bits is out of range"):
        Options(**{name: 10**5000})


def test_options_of_a_fit_do_not_change() -> None:
    options = Options(max_order=3)
    with pytest.raises(AttributeError, match=r"Options cannot be changed\. Make new ones with another max_order\."):
        options.max_order = 4
    assert options.max_order == 3


@pytest.mark.parametrize("option", all_options(), ids=lambda option: option.name)
def test_every_option_is_documented(option: Field[Any]) -> None:
    assert f"### `{option.name}`" in OPTIONS_PAGE
    assert option.metadata["help"] in OPTIONS_PAGE


def test_generated_pages_are_up_to_date() -> None:
    assert GENERATE["options_page"]() == OPTIONS_PAGE, "run make docs"
    assert GENERATE["cli_page"]() == (ROOT / "docs" / "cli.md").read_text(), "run make docs"


def test_the_readmes_first_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {}
    exec(block.group(1), names)
    assert 0.5 < names["scorer"].score_one({"job": "nurse", "age": 37}) < 1


# Their examples run as they are; those of docs/cluster.md need a cluster.
PAGES_OF_EXAMPLES = sorted(
    {page.name for page in (ROOT / "docs").glob("*.md") if "```python\n" in page.read_text()} - {"cluster.md"}
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The refit learns all weights anew")  # docs/guide-credit.md says so
@pytest.mark.parametrize("page", PAGES_OF_EXAMPLES)
def test_the_examples_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From top to bottom: Python in one program, commands in its folder, with the exit codes that the page says."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for kind, block in re.findall(r"```(python|sh)\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL):
        if kind == "python":
            exec(block, names)
            continue
        for line in block.replace("\\\n", " ").splitlines():
            command, _, code = line.partition("  # exit code ")
            with warnings.catch_warnings():
                warnings.simplefilter("default")  # the program prints them
                assert run(shlex.split(command)[1:]) == int(code or 0), line


def test_the_readme_leads_to_every_page() -> None:
    targets = re.findall(r"\]\(docs/([^)#:]+)", (ROOT / "README.md").read_text())
    assert {page.name for page in (ROOT / "docs").glob("*.md")} == {*targets}


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_page_on_reliability_tells_of_every_attack() -> None:
    text = torture.PAGE.read_text()
    assert all(text.count(mark) == 1 for mark in torture.MARKS)
    assert [name for name in torture.PARTS if f"{name} |" not in text and f"{name}, " not in text] == []


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


def names_of(body: list[ast.stmt], owner: str = "") -> set[str]:
    """What a file defines at its top, and what its classes define, as ``Class.method``."""
    names: set[str] = set()
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            names.add(owner + statement.name)
            names |= names_of(statement.body, f"{statement.name}.") if isinstance(statement, ast.ClassDef) else set()
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names |= {owner + node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    return names


@pytest.mark.parametrize(("path", "name"), sorted(set(re.findall(r"`((?:\w+/)*\w+\.py):?([\w.]*)`", ARCHITECTURE))))
def test_the_map_of_the_package_names_what_exists(path: str, name: str) -> None:
    file = next((folder / path for folder in (ROOT / "src" / "autocross", ROOT) if (folder / path).is_file()), None)
    assert file is not None, f"docs/architecture.md speaks of {path}, which does not exist"
    assert not name or name in names_of(ast.parse(file.read_text()).body), f"{path} has no {name}"


def test_the_picture_of_the_package_has_every_room() -> None:
    picture = "".join(line for line in ARCHITECTURE.splitlines() if line.startswith("    |"))
    source = ROOT / "src" / "autocross"
    rooms = {path.relative_to(source).parts[0].removesuffix(".py") for path in source.rglob("*.py")} - {"__init__"}
    assert rooms <= {*re.findall(r"\w+", picture)}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metric": "f1"}, "metric='f1' is unknown. Choose one of: auc, log_loss, accuracy"),
        ({"n_jobs": 0}, "n_jobs=0 leaves nobody"),
        ({"n_jobs": -2}, "n_jobs=-2 is out of range. Give a number at least -1"),
        ({"n_jobs": 1.5}, "n_jobs=1.5 is not a whole number"),
        ({"max_crosses": -1}, "max_crosses=-1 is out of range. Give a number at least 0"),
        ({"max_order": 1}, "max_order=1 is out of range. Give a number at least 2"),
        ({"exclude": "zip"}, r"exclude='zip' is one text. Give a list"),
        ({"granularities": [10, 1]}, "granularities holds 1. Give whole numbers"),
        ({"types": ["zip"]}, "types=.* is not a mapping"),
        ({"split": "group"}, "needs groups="),
        ({"n_jobs": 10**9}, "n_jobs=1000000000 is out of range. Give a number between -1 and 1024"),
        ({"time_limit": float("nan")}, "time_limit=nan is out of range. Give a number between 0 and 1000000000"),
        ({"time_limit": float("inf")}, "time_limit=inf is out of range. .* or leave it out"),
        ({"memory_limit": float("nan")}, "memory_limit=nan is out of range. Give a number between 0.25 and"),
        ({"memory_limit": float("inf")}, "memory_limit=inf is out of range"),
        ({"memory_limit": 1e300}, r"memory_limit=1e\+300 is out of range"),
        ({"random_state": 2**64}, "random_state=18446744073709551616 is out of range"),
        (
            {"max_crosses": 10**30},
            "max_crosses=1000000000000000000000000000000 is out of range. Give a number between 0 and 1000000",
        ),
        ({"max_order": 10**30}, "max_order=1000000000000000000000000000000 is out of range"),
        ({"beam_width": 10**30}, "beam_width=1000000000000000000000000000000 is out of range"),
        ({"min_count": 10**30}, "min_count=1000000000000000000000000000000 is out of range"),
        ({"granularities": [10**12]}, "granularities holds 1000000000000. Give whole numbers of bins from 2 to 1000000"),
        ({"granularities": 5}, r"granularities=5 is no list. Give one, as in \[5\]"),
        ({"exclude": 5}, r"exclude=5 is no list. Give one, as in \[5\]"),
        ({"exclude": ["job", ""]}, "exclude holds ''. Give names of columns; a column without a name must be renamed"),
        ({"time": ""}, "time='' is empty. Give a text, or leave it out"),
        ({"groups": ""}, "groups='' is empty. Give a text, or leave it out"),
        ({"groups": 3}, "groups=3 is no text. Give a text, or leave it out"),
        ({"journal": ""}, "journal='' is empty"),
        ({"checkpoint": ""}, "checkpoint='' is empty"),
        ({"resume": ""}, "resume='' is empty"),
        ({"engine": "ray", "address": ""}, "address='' is empty"),
        ({"quiet": "yes"}, "quiet='yes' is neither True nor False. Give one of the two"),
    ],
    ids=str,
)
def test_options_out_of_range_are_refused_with_the_way_out(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Options(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epochs": 10**30}, "epochs=1000000000000000000000000000000 is out of range"),
    ],
    ids=str,
)
def test_options_of_the_network_have_bounds_too(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        DeepOptions(**given)


def test_the_bounds_themselves_are_allowed() -> None:
    Options(n_jobs=1024, time_limit=1e9, memory_limit=2**20, random_state=2**63 - 1, max_crosses=10**6, granularities=[2, 10**6])
    Options(journal=Path("journal.jsonl"), checkpoint=Path("rounds"), granularities=np.array([10, 100]), exclude=("a", "b"))
