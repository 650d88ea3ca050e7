"""No data leaves the machine: fitting, scoring and the command line open no connection."""

from __future__ import annotations

import functools
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from autocross import AutoCrossClassifier, load
from autocross.cli import run

pytestmark = pytest.mark.slow


class Guard(socket.socket):
    """A socket that may only be of this machine's file system."""

    def __init__(self, family: int = -1, *args: Any, **kwargs: Any) -> None:
        if family != socket.AF_UNIX:
            raise AssertionError("a socket to the network was opened")
        super().__init__(family, *args, **kwargs)


def refuse(*args: object, **kwargs: object) -> None:
    raise AssertionError(f"a name was looked up: {args}")


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", Guard)
    for name in ("create_connection", "getaddrinfo", "gethostbyname", "gethostbyaddr", "getnameinfo"):
        monkeypatch.setattr(socket, name, refuse)


@pytest.mark.usefixtures("guarded")
def test_python_opens_no_socket(people: pl.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="to the network was opened"):
        socket.socket(socket.AF_INET)
    people.write_parquet(tmp_path / "rows.parquet")
    model = AutoCrossClassifier(quiet=True, journal=str(tmp_path / "journal"), checkpoint=str(tmp_path / "kept"), max_crosses=1)
    model.fit(people, "bought").save(tmp_path / "model.acx")
    load(tmp_path / "model.acx").score(people)
    for command in commands(tmp_path):
        assert run(command) == 0


def commands(folder: Path) -> list[list[str]]:
    """Every command but the demo, which reads data of another package."""
    rows, model = str(folder / "rows.parquet"), str(folder / "model.acx")
    return [
        ["fit", rows, "--target", "bought", "-o", model, "--quiet", "--max-crosses", "1"],
        ["refit", model, rows, "-o", str(folder / "again.acx"), "--quiet"],
        ["evaluate", model, rows, "--json"],
        ["predict", model, rows, "-o", str(folder / "scores.csv")],
        ["transform", model, rows, "-o", str(folder / "features.parquet")],
        ["show", model],
        ["explain", model, rows],
    ]


# In a network of its own the kernel counts every attempt, whichever library makes it.

PROGRAM = """
import json, socket, sys
from autocross.cli import run

def counted():
    lines = [line.split() for line in open("/proc/self/net/snmp")]
    facts = {}
    for names, values in zip(lines[::2], lines[1::2]):
        facts |= {names[0] + name: int(value) for name, value in zip(names[1:], values[1:])}
    kept = ("Ip:OutRequests", "Ip:OutNoRoutes", "Tcp:ActiveOpens", "Udp:OutDatagrams")
    return {name: facts[name] for name in kept}

before = counted()
for command in json.loads(sys.argv[1]):
    assert run(command) == 0
after = counted()
try:
    socket.create_connection(("192.0.2.1", 80), timeout=5)
except OSError:
    pass
print(json.dumps([before, after, counted()]))
"""


@functools.cache
def cut_off() -> list[str]:
    """How to start a process in a network of its own, if this machine lets us."""
    for words in (["unshare", "--net"], ["unshare", "--map-root-user", "--net"]):
        try:
            done = subprocess.run([*words, "true"], capture_output=True, check=False)
        except OSError:
            break
        if done.returncode == 0:
            return words
    return []


def test_no_library_tries_to_reach_the_network(people: pl.DataFrame, tmp_path: Path) -> None:
    if not cut_off():
        pytest.skip("this machine gives us no network of our own")
    people.write_parquet(tmp_path / "rows.parquet")
    arguments = [*cut_off(), sys.executable, "-c", PROGRAM, json.dumps(commands(tmp_path))]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before, after, tried = json.loads(done.stdout.splitlines()[-1])
    assert after == before
    assert tried != after  # what the counters are for: an attempt shows
