"""Write docs/options.md and docs/cli.md from the one list of options and from the commands themselves."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import Field
from pathlib import Path
from typing import Any, get_args, get_type_hints

from rich.console import Console

from autocross.cli import app
from autocross.options import DeepOptionList, OptionList, all_options, deep_options

DOCS = Path(__file__).parent
COMMANDS = (
    "fit",
    "refit",
    "change",
    "evaluate",
    "predict",
    "transform",
    "show",
    "weights",
    "explain",
    "monitor",
    "scorecard",
    "export",
    "serve",
    "demo",
)


def values(hint: Any) -> str:
    """What an option takes, in words."""
    choices = get_args(hint)
    if choices and all(isinstance(choice, str) for choice in choices):
        return ", ".join(f"`{choice}`" for choice in choices)
    text = str(hint).replace("typing.", "").replace("collections.abc.", "")
    return f"`{getattr(hint, '__name__', text) if not choices else text}`"


def options_page() -> str:
    """docs/options.md."""
    lines = [
        "# Options",
        "",
        "Few users ever set an option. The estimators take options by name, and `autocross fit` takes them with dashes",
        "(`--max-crosses 0`). `types` is `--type COL=KIND`, which may be repeated, as may `--exclude`, `--granularities`,",
        "`--monotone COL=DIRECTION`, `--include` and `--forbid`, which take columns joined by ` & `.",
        "This page is written by `make docs` from the list in `autocross/options.py`.",
    ]
    lines += entries(OptionList, all_options())
    lines += ["", "## Of `WideDeepClassifier` alone"]
    lines += entries(DeepOptionList, deep_options())
    return "\n".join(lines) + "\n"


def entries(kind: type, options: Iterable[Field[Any]]) -> list[str]:
    """What is said of each option of a class."""
    hints, lines = get_type_hints(kind), []
    for entry in options:
        takes = f"Takes {values(hints[entry.name])}; default `{entry.default!r}`."
        lines += ["", f"### `{entry.name}`", "", entry.metadata["help"], "", takes]
    return lines


def cli_page() -> str:
    """docs/cli.md."""
    lines = [
        "# Command line",
        "",
        "Data goes to stdout and logs go to stderr. The exit code is 0 if all went well, 1 after a failure or an interrupt, and 2",
        "for bad usage or bad input. `monitor --fail-above` has one more: 3, if something has changed by more than the limit.",
        "",
        "No command writes over a file that it reads, or into a folder that it reads, however the path is spelt. A model may",
        "replace a model, and predictions may replace predictions. Any other existing file is replaced only with `--force`.",
        "",
        "A closed stream counts as /dev/null. If the reader of stdout goes away, the rest of the output is dropped, and so are",
        "logs that cannot be written. CSV is UTF-8 on every terminal. In other output, characters that a terminal cannot show are",
        "written with backslashes.",
        "",
        "This page is written by `make docs`.",
    ]
    for command in COMMANDS:
        screen = Console(file=io.StringIO(), width=118, no_color=True, legacy_windows=False)
        app.help_print([command], console=screen)
        shown = "\n".join(line.rstrip() for line in screen.file.getvalue().strip().splitlines())  # type: ignore[attr-defined]
        lines += ["", f"## `autocross {command}`", "", "```text", shown, "```"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (DOCS / "options.md").write_text(options_page())
    (DOCS / "cli.md").write_text(cli_page())
