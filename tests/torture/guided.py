"""Part 2 once more, guided by coverage: atheris keeps the mutated files that reach code no other file has reached.

It begins with the small files in corpus/; what it finds beside them is kept in .torture/corpus for the next run. To take the best
of that into the repository: `python tests/torture/guided.py keep`.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
FOUND = HERE.parents[1] / ".torture" / "corpus"
SECONDS = 30  # a case
MOST_BYTES = 6_000  # of a file of the corpus
MOST_FILES = 60


def fuzzed(folder: Path, *options: str) -> subprocess.CompletedProcess[bytes]:
    """Run this file under libFuzzer; inputs that do harm are written to the folder."""
    FOUND.mkdir(parents=True, exist_ok=True)
    arguments = [
        f"-artifact_prefix={folder}/",
        f"-max_len={MOST_BYTES}",
        "-timeout=60",
        "-rss_limit_mb=6000",
        "-print_final_stats=1",
    ]
    return subprocess.run([sys.executable, __file__, "fuzz", *arguments, *options], capture_output=True, check=False)


def attack(seed: int, folder: Path) -> int:
    done = fuzzed(folder, f"-seed={seed % 2**31 + 1}", f"-max_total_time={SECONDS}", str(FOUND), str(CORPUS))
    if done.returncode != 0:
        message = done.stderr.decode(errors="replace")
        raised = re.search(r"Uncaught Python exception: ===\n(.*)", message)
        why = raised.group(1) if raised else f"atheris ended with code {done.returncode}"
        raise AssertionError(f"{why}; the file is in {folder}\n{done.stdout.decode(errors='replace')[-4000:]}\n{message[-4000:]}")
    units = re.search(rb"number_of_executed_units:\s*(\d+)", done.stderr)
    return int(units.group(1)) if units else 1


def fuzz() -> None:
    """The process that libFuzzer drives."""
    import atheris

    sys.path.insert(0, str(HERE.parent))  # this file is run by itself here, and `torture` is a package
    from autocross import kernels

    for module in pkgutil.iter_modules(kernels.__path__, "autocross.kernels."):
        importlib.import_module(module.name)  # before the others: Numba cannot compile what atheris has changed
    with atheris.instrument_imports(include=["autocross"]):
        import numpy as np

        from torture import bundles

    folder = Path(tempfile.mkdtemp(prefix="torture-guided-"))

    def check(content: bytes) -> None:
        path = folder / "model.acx"
        path.write_bytes(content)
        bundles.check(path, np.random.default_rng(len(content)))

    def mutate(content: bytes, most: int, seed: int) -> bytes:
        return bundles.mutated(bytes(content), np.random.default_rng(seed))[:most]

    atheris.Setup([sys.argv[0], *sys.argv[2:]], check, custom_mutator=mutate)
    atheris.Fuzz()


def keep() -> None:
    """Take the smallest file for each way in which files end into the corpus: complaints of the reader, and models."""
    sys.path.insert(0, str(HERE.parent))
    from autocross.producer import bundle
    from torture.tools import Refused, answer

    smallest: dict[str, Path] = {}
    for path in sorted([*CORPUS.iterdir(), *FOUND.iterdir()], key=lambda one: one.stat().st_size):
        found = answer(lambda path=path: bundle.read(path))  # type: ignore[misc]
        ended = re.sub(r"'[^']*'|\d+", "#", str(found.error)) if isinstance(found, Refused) else " ".join(found.producer.names)
        if path.stat().st_size <= MOST_BYTES:
            smallest.setdefault(ended, path)
    for path in [one for one in smallest.values() if one.parent == FOUND][:MOST_FILES]:
        (CORPUS / f"{path.name[:12]}.acx").write_bytes(path.read_bytes())


if __name__ == "__main__":
    {"fuzz": fuzz, "keep": keep}[sys.argv[1]]()
