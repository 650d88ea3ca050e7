"""The release of the last commit, in dist/: wheel, source archive, and a list of all that the wheel brings along (SBOM).

It is built twice, in folders that differ in all that must not matter, and refused where a single byte differs.
Run by `make release`, in an environment with the extra `release`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"


def run(*command: str | Path, **more: Any) -> str:
    """What a command prints; its failure is ours."""
    return str(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **more).stdout)


def python(*arguments: str | Path, **more: Any) -> str:
    return run(sys.executable, *arguments, **more)


# Two builds.


def build(place: Path, *, umask: int, zone: str, age: int) -> dict[str, bytes]:
    """Wheel and source archive of the last commit, built in this folder."""
    commit_time = run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(place, filter="data")
    for path in place.rglob("*"):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)
        os.utime(path, (age, age))
    environment = {**os.environ, "SOURCE_DATE_EPOCH": commit_time, "TZ": zone}
    python("-m", "build", "--no-isolation", "--outdir", place / "built", cwd=place, env=environment, umask=umask)
    return {path.name: path.read_bytes() for path in sorted((place / "built").iterdir())}


def built_twice(folder: Path) -> dict[str, bytes]:
    """The files of the release, the same from both builds."""
    first = build(folder / "a", umask=0o022, zone="UTC", age=1_000_000_000)
    second = build(folder / "another" / "place", umask=0o077, zone="Asia/Tokyo", age=1_700_000_000)
    differing = [name for name in first.keys() | second.keys() if first.get(name) != second.get(name)]
    if differing:
        sys.exit(f"Two builds of one commit differ in {', '.join(sorted(differing))}. Find out what got into them.")
    return first


# What is inside.


OF_THE_WHEEL = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
OF_THE_ARCHIVE = ("LICENSE", "PKG-INFO", "README.md", "pyproject.toml")


def check_content(name: str, content: bytes, source: Path) -> None:
    """Exactly the package, its licence and its metadata: no test, no data, nothing left lying about."""
    shipped = [*source.rglob("*.py"), *source.glob("autocross/*/assets/*"), source / "autocross" / "py.typed"]
    package = {str(path.relative_to(source)) for path in shipped}
    if name.endswith(".whl"):
        with zipfile.ZipFile(BytesIO(content)) as wheel:
            names = set(wheel.namelist())
        folder = name.removesuffix("-py3-none-any.whl") + ".dist-info"
        expected = package | {f"{folder}/{path}" for path in OF_THE_WHEEL}
    else:
        with tarfile.open(fileobj=BytesIO(content)) as archive:
            names = set(archive.getnames())
        folder = name.removesuffix(".tar.gz")
        expected = {f"{folder}/src/{path}" for path in package} | {f"{folder}/{path}" for path in OF_THE_ARCHIVE}
    if names != expected:
        sys.exit(f"{name} lacks {sorted(expected - names)} and should not hold {sorted(names - expected)}.")


def bill_of_materials(wheel: Path, folder: Path) -> str:
    """The packages that an empty environment holds after the wheel, with versions and licences, as CycloneDX JSON.

    It says neither when nor where it was made: the same packages give the same bytes.
    """
    environment = folder / "empty"
    python("-m", "uv", "venv", "--quiet", "--python", sys.executable, environment)
    python("-m", "uv", "pip", "install", "--quiet", "--python", environment, wheel)
    listed = python(
        *("-m", "cyclonedx_py", "environment", "--output-reproducible", "--mc-type", "library", "--of", "JSON"),
        *("--pyproject", ROOT / "pyproject.toml", environment),
    )
    bill = json.loads(listed)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    bill["metadata"]["component"] |= {
        "version": wheel.name.split("-")[1],
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }
    return json.dumps(bill, indent=2, sort_keys=True) + "\n"


def main() -> None:
    if changed := run("git", "status", "--porcelain", cwd=ROOT):
        sys.exit(f"A release is made of a commit, but these files are not in one:\n{changed}Commit or remove them.")
    with tempfile.TemporaryDirectory() as folder:
        files = built_twice(Path(folder))
        for name, content in files.items():
            check_content(name, content, Path(folder) / "a" / "src")
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        for name, content in files.items():
            (DIST / name).write_bytes(content)
        print(python("-m", "twine", "check", "--strict", *sorted(DIST.iterdir())), end="")
        (wheel,) = DIST.glob("*.whl")
        name = wheel.name.removesuffix("-py3-none-any.whl") + ".cdx.json"
        (DIST / name).write_text(bill_of_materials(wheel, Path(folder)))
    for path in sorted(DIST.iterdir()):
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")


if __name__ == "__main__":
    main()
