"""What the documentation says is true: options, commands, the README's first block."""

from __future__ import annotations

import re
import runpy
from dataclasses import Field
from pathlib import Path
from typing import Any

import pytest

from autocross.errors import OptionError
from autocross.options import Options, all_options

ROOT = Path(__file__).parents[1]
OPTIONS_PAGE = (ROOT / "docs" / "options.md").read_text()
GENERATE = runpy.run_path(str(ROOT / "docs" / "generate.py"))


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


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


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
    ],
    ids=str,
)
def test_options_out_of_range_are_refused_with_the_way_out(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Options(**given)
