"""What the answers to all requests share: the models, the limits, and how rows are scored."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from autocross.errors import AutoCrossError
from autocross.server.limits import Body, Limits, Refused
from autocross.server.metrics import OTHER, Metrics
from autocross.server.models import Loaded, Shelf
from autocross.server.payload import Row, parse
from autocross.serving.scorer import Scorer

JSON = b"application/json"
FEW = 16  # rows that are scored at once; more are scored in a thread, so that other requests need not wait

encode = msgspec.json.Encoder(enc_hook=str).encode  # a label may be of a type that JSON does not have


class Answer(NamedTuple):
    """An answer, ready to be sent."""

    status: int
    body: bytes
    kind: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


def answer(facts: Any, status: int = 200) -> Answer:
    """An answer in JSON."""
    return Answer(status, encode(facts))


def text(content: str, status: int = 200) -> Answer:
    """An answer in plain text."""
    return Answer(status, content.encode(), b"text/plain; charset=utf-8")


@dataclass
class Service:
    """What is served, and how."""

    shelf: Shelf
    limits: Limits
    metrics: Metrics
    strict: bool = False
    n_threads: int = 2
    stopping: bool = False
    n_connections: Callable[[], int] = field(default=lambda: 1)
    pool: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self.pool = ThreadPoolExecutor(self.n_threads, "scoring")


@dataclass(slots=True)
class Call:
    """A request on its way. ``route``, ``model`` and ``n_rows`` are for logs and metrics."""

    service: Service
    scope: MutableMapping[str, Any]
    body: Body
    deadline: float
    route: str = OTHER
    model: str | None = None
    n_rows: int | None = None
    answer: Answer | None = None

    def header(self, name: bytes) -> str:
        """A header, or an empty text."""
        return next((value.decode("latin-1") for key, value in self.scope["headers"] if key == name), "")

    def query(self) -> dict[str, str]:
        """The options behind the question mark."""
        return dict(parse_qsl(self.scope["query_string"].decode("latin-1"), keep_blank_values=True))

    async def content(self) -> bytes:
        return await self.body.read(self.service.limits.body)

    async def json(self) -> Any:
        return parse(await self.content(), self.service.limits.depth)

    def find(self) -> Loaded:
        """The model that the address names, or the default one."""
        names = self.scope["path_params"]
        found = self.service.shelf.find(names.get("name", ""), names.get("version"))
        self.model = found.name
        return found

    async def score(self, model: Loaded, rows: list[Row]) -> list[float]:
        """The probabilities of rows."""
        strict = self.service.strict
        return await self.each(model, rows, lambda scorer, row: scorer.score_one(row, strict))

    async def each(self, model: Loaded, rows: list[Row], work: Callable[[Scorer, Row], Any]) -> list[Any]:
        """Do something with every row, in a thread if there are many."""
        service, self.n_rows = self.service, len(rows)
        if len(rows) <= FEW:
            done = for_each(model.scorer, rows, work, self.deadline)
        else:
            loop = asyncio.get_running_loop()
            done = await loop.run_in_executor(service.pool, for_each, model.scorer, rows, work, self.deadline)
        service.metrics.scored(model.name, len(rows))
        return done


def for_each(scorer: Scorer, rows: list[Row], work: Callable[[Scorer, Row], Any], deadline: float) -> list[Any]:
    """Do something with every row. A row that cannot be read is named."""
    done: list[Any] = []
    for number, row in enumerate(rows):
        if number % FEW == FEW - 1 and time.monotonic() > deadline:
            raise TimeoutError
        try:
            done.append(work(scorer, row))
        except AutoCrossError as error:
            place = "" if len(rows) == 1 else f"Row {number}: "
            raise Refused(422, f"{place}{error}", number, culprit(scorer, row)) from None
    return done


def culprit(scorer: Scorer, row: Row) -> str | None:
    """The field for which a row cannot be scored."""
    for name, value in row.items():
        try:
            scorer.score_one({name: value})
        except AutoCrossError:
            return name
    return None
