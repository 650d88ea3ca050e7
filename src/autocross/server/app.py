"""The routes of the server, and the gate before them: every request comes in here, and every answer goes out."""

from __future__ import annotations

import hmac
import time
from asyncio import timeout
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.routing import Route, Router

from autocross.errors import AutoCrossError
from autocross.server import mlflow, openapi, v2
from autocross.server.limits import Body, Gone, Receive, Refused
from autocross.server.logs import Log, place_of
from autocross.server.payload import rows_of
from autocross.server.service import Answer, Call, Service, answer, encode
from autocross.serving.reasons import TOP

Handler = Callable[[Call], Awaitable[Answer]]
Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
INVOCATIONS = "/invocations"
HINTS = {
    404: "There is nothing at this address. /openapi.json lists all addresses.",
    405: "This address has another method. /openapi.json lists all addresses.",
}
CLIENT_GONE = 499  # what nginx calls it; nobody is there to be answered


class Entry(NamedTuple):
    """A route. Those that are open need no token, because probes have none."""

    method: str
    path: str
    handler: Handler
    about: str
    is_open: bool = False


async def score(call: Call) -> Answer:
    """Probabilities of the positive label: of an object, or of each object of a list."""
    model, value = call.find(), await call.json()
    found = await call.score(model, rows_of(value, call.service.limits.rows))
    facts = {"model": model.name, "version": model.version}
    return answer({"probabilities": found, **facts} if isinstance(value, list) else {"probability": found[0], **facts})


async def explain(call: Call) -> Answer:
    """Why an object, or each object of a list, scores as it does: the strongest reasons, and what the others add up to."""
    model, value, asked = call.find(), await call.json(), call.query()
    for name in asked.keys() - {"by", "top"}:
        raise Refused(422, f"The option {name!r} is unknown. There are by and top.", field=name)
    number = asked.get("top", str(TOP))
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        raise Refused(422, f"top={number!r} is no number of reasons. Give a whole number of 0 or more.", field="top")
    by: Any = asked.get("by", "column")
    if by not in ("column", "term", "field"):
        raise Refused(422, f"by={by!r} is unknown. Choose one of: column, term, field.", field="by")

    def reasons(scorer: Any, row: Any) -> dict[str, Any]:
        if call.service.strict:
            scorer.check_names(row)
        facts = scorer.explain(row, by=by).to_dict()
        every = facts["reasons"]
        return {**facts, "reasons": every[: int(number)], "others": sum(one["contribution"] for one in every[int(number) :])}

    found = await call.each(model, rows_of(value, call.service.limits.rows), reasons)
    facts = {"model": model.name, "version": model.version}
    return answer({"explanations": found, **facts} if isinstance(value, list) else {**found[0], **facts})


async def models(call: Call) -> Answer:
    """All models and their versions."""
    shelf = call.service.shelf
    every = [{"name": one.name, "version": one.version, "hash": one.hash} for one in shelf.all]
    return answer({"default": shelf.find().name, "models": every})


async def model_facts(call: Call) -> Answer:
    """A model: its fields, their kinds, its crosses, its version and the hash of its file."""
    model = call.find()
    return answer({**model.facts, "versions": [*call.service.shelf.models[model.name]]})


async def alive(call: Call) -> Answer:
    """The server runs."""
    return answer({"status": "ok"})


async def ready(call: Call) -> Answer:
    """The server takes requests: all models are loaded, and it is not about to stop."""
    return answer({"status": "stopping"}, 503) if call.service.stopping else answer({"status": "ok"})


async def metrics(call: Call) -> Answer:
    """Counters in the text format of Prometheus."""
    service = call.service
    service.metrics.now[1] = service.n_connections()
    content = service.metrics.text([one.labels for one in service.shelf.all])
    return Answer(200, content.encode(), b"text/plain; version=0.0.4; charset=utf-8")


async def document(call: Call) -> Answer:
    """This document."""
    return answer(openapi.document([(entry.method, entry.path, entry.about, entry.is_open) for entry in ENTRIES]))


def entry(method: str, path: str, handler: Handler, is_open: bool = False) -> Entry:
    """A route. What is said about it is the docstring of its handler."""
    return Entry(method, path, handler, " ".join((handler.__doc__ or "").split()), is_open)


ENTRIES = (
    entry("POST", "/score", score),
    entry("POST", "/models/{name}/score", score),
    entry("POST", "/v2/models/{name}/infer", v2.infer),
    entry("POST", INVOCATIONS, mlflow.invocations),
    entry("POST", "/explain", explain),
    entry("POST", "/models/{name}/explain", explain),
    entry("POST", "/models/{name}/versions/{version}/score", score),
    entry("POST", "/models/{name}/versions/{version}/explain", explain),
    entry("POST", "/v2/models/{name}/versions/{version}/infer", v2.infer),
    entry("GET", "/healthz", alive, is_open=True),
    entry("GET", "/readyz", ready, is_open=True),
    entry("GET", "/metrics", metrics),
    entry("GET", "/models", models),
    entry("GET", "/models/{name}", model_facts),
    entry("GET", "/models/{name}/versions/{version}", model_facts),
    entry("GET", "/openapi.json", document),
    entry("GET", "/v2", v2.server),
    entry("GET", "/v2/health/live", v2.live, is_open=True),
    entry("GET", "/v2/health/ready", v2.ready, is_open=True),
    entry("GET", "/v2/models/{name}", v2.metadata),
    entry("GET", "/v2/models/{name}/ready", v2.model_ready),
    entry("GET", "/v2/models/{name}/versions/{version}", v2.metadata),
    entry("GET", "/v2/models/{name}/versions/{version}/ready", v2.model_ready),
    entry("GET", "/ping", mlflow.ping, is_open=True),
    entry("GET", "/health", mlflow.ping, is_open=True),
    entry("GET", "/version", mlflow.version),
)
ROUTES = tuple(one.path for one in ENTRIES)
OPEN = frozenset(one.path for one in ENTRIES if one.is_open)


class Endpoint:
    """A route as the router calls it. The answer stays with the call, and the gate sends it."""

    def __init__(self, found: Entry) -> None:
        self.entry = found

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call: Call = scope["call"]
        call.route = self.entry.path
        call.answer = await self.entry.handler(call)


class Gate:
    """The application. It lets in whom the limits and the token allow, sends answers, counts them and logs them."""

    def __init__(self, service: Service, log: Log, token: str | None = None) -> None:
        self.service, self.log = service, log
        self.expected = None if token is None else b"Bearer " + token.encode()
        routes = [Route(one.path, Endpoint(one), methods=[one.method], name=one.path) for one in ENTRIES]
        self.router = Router(routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started, service = time.monotonic(), self.service
        call = Call(service, scope, Body(scope["headers"], receive), started + service.limits.seconds)
        scope["app"], scope["call"] = self, call
        service.metrics.now[0] += 1
        try:
            reply = await self.answered(call)
            if not call.body.complete:
                await call.body.discard()
            if reply.status != CLIENT_GONE:
                await self.deliver(reply, call, send)
        finally:
            service.metrics.now[0] -= 1
        self.record(call, reply.status, time.monotonic() - started)

    async def answered(self, call: Call) -> Answer:
        """The answer to a request, whatever happens."""
        try:
            self.admit(call)
            async with timeout(self.service.limits.seconds):
                await self.router(call.scope, call.body.receive, self.unused)
            assert call.answer is not None
            return call.answer
        except Gone:
            return Answer(CLIENT_GONE, b"")
        except Exception as failure:
            return error(self.refused(call, failure), call.route)

    def refused(self, call: Call, failure: Exception) -> Refused:
        """What is said to a client whose request has no answer. Only what nobody expected is a failure, and logged."""
        seconds = self.service.limits.seconds
        if isinstance(failure, Refused):
            return failure
        if isinstance(failure, HTTPException):
            headers: dict[str, Any] = {**(failure.headers or {})}
            return Refused(failure.status_code, HINTS.get(failure.status_code, failure.detail), **headers)
        if isinstance(failure, TimeoutError) and call.body.complete:
            return Refused(503, f"The request took more than {seconds:g} seconds. Send fewer rows at a time.")
        if isinstance(failure, TimeoutError):
            return Refused(408, f"The body did not arrive within {seconds:g} seconds. Send it again.")
        if isinstance(failure, AutoCrossError):
            return Refused(422, str(failure))
        self.log.error("failure", route=call.route, failure=place_of(failure))
        return Refused(500, "The server failed. Its log has the kind of the failure and the place.")

    def admit(self, call: Call) -> None:
        """Refuse a request if there are too many connections, or if it has not the token that it needs."""
        limits = self.service.limits
        if self.service.n_connections() > limits.connections:
            raise Refused(503, f"There are more than {limits.connections:,} connections. Try again later.", retry_after="1")
        if self.expected is None or call.scope["path"] in OPEN:
            return
        if not hmac.compare_digest(call.header(b"authorization").encode("latin-1"), self.expected):
            raise Refused(
                401, "The request has no valid token. Send the header Authorization: Bearer TOKEN.", www_authenticate="Bearer"
            )

    async def unused(self, message: MutableMapping[str, Any]) -> None:
        raise AssertionError("answers are sent by the gate")

    async def deliver(self, reply: Answer, call: Call, send: Send) -> None:
        """Send an answer. A connection on which an unread body is on its way can have no other request."""
        headers = [(b"content-type", reply.kind), (b"content-length", b"%d" % len(reply.body)), *reply.headers]
        if not call.body.complete:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})

    def record(self, call: Call, status: int, seconds: float) -> None:
        """Count the request, and log it."""
        self.service.metrics.request(call.route, status, seconds)
        if not self.log.quiet:
            facts: dict[str, Any] = {"route": call.route, "method": call.scope["method"], "status": status}
            if call.n_rows is not None:
                facts |= {"model": call.model, "rows": call.n_rows}
            self.log.info("request", **facts, ms=round(1e3 * seconds, 3))


def error(refused: Refused, route: str = "") -> Answer:
    """An error. Clients of the Open Inference Protocol look for ``error``, those of MLflow for ``error_code`` and ``message``."""
    facts: dict[str, Any] = {"error": refused.message}
    if refused.row is not None:
        facts["row"] = refused.row
    if refused.field is not None:
        facts["field"] = refused.field.encode(errors="replace").decode()  # it may hold half a character
    if route == INVOCATIONS:
        facts |= {"error_code": "INTERNAL_ERROR" if refused.status >= 500 else "BAD_REQUEST", "message": refused.message}
    headers = tuple((name.lower().encode(), value.encode()) for name, value in refused.headers.items())
    return Answer(refused.status, encode(facts), headers=headers)
