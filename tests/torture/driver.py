"""The command line, for attacks: `driver.py ROUNDS PARTS ARGUMENTS...`.

ROUNDS 1 makes a round accept one cross, so that small tables have several; PARTS above 0 reads files so many rows at a time.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path


def main() -> None:
    rounds, parts = int(sys.argv[1]), int(sys.argv[2])
    sys.argv[:3] = ["autocross"]
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # `torture` is a package there
    from autocross.__main__ import main as command
    from torture.tools import by_parts, in_rounds

    with ExitStack() as changes:
        if rounds:
            changes.enter_context(in_rounds())
        if parts:
            changes.enter_context(by_parts(parts))
        command()


if __name__ == "__main__":
    main()
