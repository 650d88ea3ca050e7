"""The command line: thin commands over the same calls as the library. stdout is data, stderr is logs."""

from __future__ import annotations

from runpy import run_module

if __name__ == "__main__":  # not at the end, so that nothing more is imported before Ctrl-C is handled
    run_module("autocross", run_name="__main__")

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import CycloptsError, Parameter

# Each adds its commands to the program.
from autocross.commands import change, export, fit, monitor, read, score, scorecard, serve  # noqa: F401
from autocross.commands.common import Force, app
from autocross.errors import AutoCrossError


@app.command
def demo(
    *, folder: Annotated[Path, Parameter(help="Where data and model are written.")] = Path("demo"), force: Force = False
) -> None:
    """Run everything on real data: late flights from New York in 2013. Needs `pip install autocross[demo]`."""
    from autocross.demo import run

    run(folder, force)


def run(arguments: list[str] | None, work: Callable[..., Any] = app) -> int:
    """Run a command. Returns 0 for success, 1 for a failure or an interrupt, and 2 for bad usage or bad input. A command may
    return a code of its own."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *rest: print(f"warning: {message}", file=sys.stderr)
            code = work(arguments, exit_on_error=False, print_error=False)
        return code if type(code) is int else 0
    except (AutoCrossError, CycloptsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return interrupted()
    except Exception as error:
        return failed(error)


def interrupted() -> int:
    """Print the message for Ctrl-C; returns the exit code."""
    print("interrupted: nothing was written", file=sys.stderr)
    return 1


def failed(error: Exception) -> int:
    """Print the message for an error that nothing else has handled; returns the exit code."""
    print(f"failed: {type(error).__name__}: {error}", file=sys.stderr)
    return 1


def main() -> None:
    """Run the program, as `python -m autocross` does."""
    run_module("autocross", run_name="__main__")
