"""One block after the other, in this thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Concatenate

from autocross.engines.base import B, Engine, P, R


class SerialEngine(Engine):
    """The plain loop."""

    def __init__(self) -> None:
        self.blocks: Sequence[Any] = ()

    def place(self, blocks: Sequence[Any]) -> None:
        self.blocks = blocks

    def run(self, task: Callable[Concatenate[B, P], R], *args: P.args, **kwargs: P.kwargs) -> list[R]:
        return [task(block, *args, **kwargs) for block in self.blocks]

    def close(self) -> None:
        self.blocks = ()
