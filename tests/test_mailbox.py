"""Messages through memory: whole, in order, of any size, and none that cannot come."""

from __future__ import annotations

import os
import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path

import pytest

from autocross.engines import mailbox
from autocross.engines.mailbox import Box


def pair() -> tuple[Box, Box]:
    """The two ends of a box that has no name any more."""
    writer = Box.new()
    reader = Box(writer.path)
    writer.hide()
    assert not list(Path(writer.path).parent.glob(f"{Path(writer.path).name}*"))
    return writer, reader


def echo(calls: str, replies: str) -> None:
    """Send back what comes, twice as long, until nothing comes."""
    asked, told = Box(calls), Box(replies)
    while data := asked.wait():
        told.send(bytes(data) * 2)


@pytest.mark.slow
def test_messages_go_to_another_process_and_back() -> None:
    calls, replies = Box.new(), Box.new()
    other = get_context("spawn").Process(target=echo, args=(calls.path, replies.path))
    other.start()
    for n in (1, 100, 70_000, 3, 5_000_000, 0):  # longer than the box, then shorter
        calls.send(data := os.urandom(n))
        if n:
            assert replies.wait() == data * 2
    other.join(60)
    assert other.exitcode == 0
    calls.hide()
    replies.hide()


def test_messages_are_found_in_their_order() -> None:
    writer, reader = pair()
    for data in (b"", b"one", b"two", b""):
        writer.send(data)
        assert reader.wait() == data


def test_who_waits_is_told_that_nothing_can_come() -> None:
    _, reader = pair()

    def still_there() -> None:
        raise ProcessLookupError

    with pytest.raises(ProcessLookupError):
        reader.wait(still_there)


def test_who_waits_long_still_gets_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "EVERY", 0.001)
    writer, reader = pair()
    looks = iter([lambda: None, lambda: None, lambda: writer.send(b"late")])
    assert reader.wait(lambda: next(looks)()) == b"late"


def test_memory_that_is_not_there_is_an_error() -> None:
    code = (
        "import resource; from autocross.engines.mailbox import Box\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "box = Box.new()\n"
        "box.hide()\n"
        "box.send(bytes(1 << 20))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "FileError: A message between processes takes 2.0 MiB in '" in done.stderr
    assert "File too large. Make room there, set TMPDIR" in done.stderr


def test_where_shared_memory_is_small_a_temporary_file_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mailbox, "ROOM", 1 << 62)
    monkeypatch.setattr(mailbox.tempfile, "tempdir", str(tmp_path))
    assert Path(Box.new().path).parent == tmp_path
