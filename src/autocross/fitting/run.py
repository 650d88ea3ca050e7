"""What the stages of one fit share: options, engine, reporter, the clock, and what rules have decided so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from autocross.engines import Engine, in_lanes, make_engine, n_cores
from autocross.events import Reporter, RuleApplied
from autocross.interrupts import Interrupt
from autocross.memory import Allowance, memory_limit
from autocross.models.logistic import Regression, left_out_bins
from autocross.models.losses import LOGISTIC, Loss
from autocross.models.metrics import measure, measure_bins
from autocross.options import Options
from autocross.producer.model import Rule
from autocross.scratch import Scratch
from autocross.search.limits import NO_LIMITS, Limits
from autocross.search.stopping import Stopping

BLOCK_ROWS = 25_000  # work on fewer rows is done before another thread has woken up
EXACT_ROWS = 250_000  # up to so many rows, the scores of those that judge are gathered in one place and ranked


@dataclass
class Run:
    """A fit that is under way. ``each`` is a `map` over columns in threads. ``allowed`` is given if codes are kept on disk.
    ``limits`` say which crosses must be there, and which must not."""

    options: Options
    reporter: Reporter
    stopping: Stopping
    engine: Engine
    each: Callable[..., Iterable[Any]]
    loss: Loss
    allowed: Allowance | None = None
    limits: Limits = NO_LIMITS
    rules: list[Rule] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def seed(self) -> int:
        return self.options.random_state or 0

    def rule(self, name: str, value: object, why: str) -> None:
        """Note what a rule decided; `show` prints it."""
        self.rules.append(Rule(name, str(value), why))
        self.reporter.tell(RuleApplied, name=name, value=str(value), why=why)

    def score(self, regression: Regression) -> float:
        """The validation score in the user's metric. Many rows are counted in bins, which is within 0.00001 of the exact score."""
        metric = self.options.metric
        regression.needs_odds()
        if regression.n_rows > EXACT_ROWS:
            bins = self.engine.total(left_out_bins, regression.n_rows, regression.bin_unit)
            if metric == "log_loss":
                return -regression.left_out_loss() / (int(bins.sum()) / regression.bin_unit)
            return measure_bins(metric, bins)
        score, label, weight = regression.judged()
        return measure(metric, label, score, weight)


@contextmanager
def started(options: Options, reporter: Reporter, interrupt: Interrupt, search_share: float, on_disk: bool) -> Iterator[Run]:
    """A run with an engine of its own. Starting a cluster takes none of the user's time limit.

    ``search_share`` is the share of the time limit that belongs to the search. ``on_disk`` asks to keep codes on disk, if the
    engine can do so.
    """
    stopping = Stopping(options.time_limit, reporter, interrupt, search_share)
    began = reporter.seconds
    with ExitStack() as open_things:
        engine = open_things.enter_context(make_engine(options))
        stopping.excused += reporter.seconds - began
        threads = open_things.enter_context(ThreadPoolExecutor(n_cores()))
        run = Run(options, reporter, stopping, engine, in_lanes(threads, n_cores()), LOGISTIC)
        if on_disk and engine.has_disk:
            run.allowed = Allowance(memory_limit(options.memory_limit), open_things.enter_context(Scratch()))
        yield run


def n_lots(n_rows: int, n_workers: int) -> int:
    """The number of shares or blocks: one for each worker, or fewer if each would have too few rows."""
    return min(n_workers, max(1, n_rows // BLOCK_ROWS))
