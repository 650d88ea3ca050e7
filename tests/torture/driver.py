"""The command line, for attacks: `driver.py ROUNDS PARTS ARGUMENTS...`.

ROUNDS 1 makes a round accept one cross, so that small tables have several; PARTS above 0 reads files so many rows at a time.
"""

from __future__ import annotations

import sys


def main() -> None:
    rounds, parts = int(sys.argv[1]), int(sys.argv[2])
    sys.argv[:3] = ["autocross"]
    if rounds:
        from autocross.search import loop

        loop.A_ROUND = 1
    if parts:
        from autocross import estimator
        from autocross.table import files

        estimator.SHARE, files.BATCH = 0.0, parts
    from autocross.cli import main as command

    command()


if __name__ == "__main__":
    main()
