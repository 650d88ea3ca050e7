"""Counters of a server, in the text format of Prometheus. All workers write to one memory, so each can tell the sums."""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds, upper bounds
STATUSES = (200, 400, 401, 404, 405, 408, 413, 415, 422, 499, 500, 503)
OTHER = "other"  # a path that there is not
RELOADS = ("loaded", "failed")


class Metrics:
    """What is counted: requests by route and status, their seconds, rows by model, and reloads."""

    def __init__(self, routes: Iterable[str], models: Iterable[str], n_workers: int = 1) -> None:
        self.routes, self.models = (*routes, OTHER), tuple(dict.fromkeys(models))
        self.place = {route: place for place, route in enumerate(self.routes)}
        shapes = (
            (len(self.routes), len(STATUSES)),
            (len(self.routes), len(BUCKETS) + 1),
            (len(self.routes),),
            (len(self.models),),
            (len(self.models), len(RELOADS)),
            (2,),
        )
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes]).tolist()
        memory = mmap.mmap(-1, 8 * n_workers * ends[-1])  # processes that are forked later share it
        cells: NDArray[np.float64] = np.frombuffer(memory, np.float64).reshape(n_workers, ends[-1])
        self.parts = [
            cells[:, first:last].reshape(n_workers, *shape) for first, last, shape in zip([0, *ends], ends, shapes, strict=False)
        ]
        self.use(0)

    def use(self, worker: int) -> None:
        """Count for this worker. Nobody else writes to its cells."""
        self.requests, self.buckets, self.seconds, self.rows, self.reloads, self.now = (part[worker] for part in self.parts)
        self.now[:] = 0

    def request(self, route: str, status: int, seconds: float) -> None:
        """A request has been answered."""
        place = self.place.get(route, len(self.routes) - 1)
        self.requests[place, STATUSES.index(status) if status in STATUSES else STATUSES.index(500)] += 1
        self.buckets[place, bisect_left(BUCKETS, seconds)] += 1
        self.seconds[place] += seconds

    def scored(self, model: str, n_rows: int) -> None:
        """Rows have been scored."""
        self.rows[self.models.index(model)] += n_rows

    def reloaded(self, model: str, result: str) -> None:
        """A file has been loaded anew, or could not be."""
        self.reloads[self.models.index(model), RELOADS.index(result)] += 1

    def text(self, infos: Sequence[dict[str, Any]]) -> str:
        """All of it, of all workers. ``infos`` has the labels of each model that is served."""
        requests, buckets, seconds, rows, reloads, now = (part.sum(axis=0) for part in self.parts)
        lines = head("autocross_requests_total", "counter", "Requests that were answered.")
        for place, status in zip(*np.nonzero(requests), strict=True):
            labels = {"route": self.routes[place], "status": STATUSES[status]}
            lines.append(sample("autocross_requests_total", requests[place, status], labels))
        lines += head("autocross_request_seconds", "histogram", "Seconds from the first line of a request to its answer.")
        for place in np.flatnonzero(buckets.sum(axis=1)).tolist():
            route, up_to = {"route": self.routes[place]}, np.cumsum(buckets[place])
            for bound, count in zip((*BUCKETS, "+Inf"), up_to, strict=True):
                lines.append(sample("autocross_request_seconds_bucket", count, {**route, "le": bound}))
            lines.append(sample("autocross_request_seconds_sum", seconds[place], route))
            lines.append(sample("autocross_request_seconds_count", up_to[-1], route))
        lines += head("autocross_rows_total", "counter", "Rows that were scored or explained.")
        lines += [sample("autocross_rows_total", n, {"model": name}) for name, n in zip(self.models, rows, strict=True)]
        lines += head("autocross_reloads_total", "counter", "Model files that were loaded anew, or could not be.")
        for name, counts in zip(self.models, reloads, strict=True):
            lines += [
                sample("autocross_reloads_total", n, {"model": name, "result": how}) for how, n in zip(RELOADS, counts, strict=True)
            ]
        lines += head("autocross_requests_in_progress", "gauge", "Requests that are being answered.")
        lines.append(sample("autocross_requests_in_progress", now[0], {}))
        lines += head("autocross_connections", "gauge", "Open connections.")
        lines.append(sample("autocross_connections", now[1], {}))
        lines += head("autocross_model_info", "gauge", "The models that are served.")
        lines += [sample("autocross_model_info", 1, labels) for labels in infos]
        return "\n".join(lines) + "\n"


def head(name: str, kind: str, about: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]


def sample(name: str, value: float, labels: dict[str, Any]) -> str:
    """A line of the format. Names of models and routes need no escapes."""
    inner = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return f"{name}{{{inner}}} {float(value):.17g}" if inner else f"{name} {float(value):.17g}"
