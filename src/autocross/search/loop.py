"""The search: beam search over feature sets, round by round.

A round judges all children of the current set by field-wise regression, refits the set without and with the best of them on
fresh folds, and accepts those for which the left-out loss falls by more than chance among so many candidates would explain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autocross.blocks import INTERCEPT, Block, Cross, codes_of, refold
from autocross.crossing import (
    MODULUS,
    MOST_ENTRIES,
    CrossCoder,
    count_keys,
    cross_key,
    in_parts,
    most_frequent,
    pair_up,
    values_of,
)
from autocross.engines import Engine, changes
from autocross.events import CandidatesRanked, CrossTried, Reporter
from autocross.features import CAP, Field, hash_bits
from autocross.folds import Folds
from autocross.kernels import slots
from autocross.models import tuning
from autocross.models.logistic import Penalty, Regression, again
from autocross.options import Options
from autocross.search import fieldwise, halving
from autocross.search.candidates import children

Ints = NDArray[np.int64]
ACCURACY = tuning.FINE
# How many times sqrt(2 ln n) standard errors the best of n candidates must gain. The first cross must show that the table has
# any: with labels shuffled, one in twenty tables lets one pass. Once there is one, others are likelier.
FIRST_CAUTION, CAUTION = 1.1, 0.9
NO_MORE = "no cross gains more than chance would"
HARDLY_MORE = "the last round hardly raised the metric"
WIDEST = 64  # most features that are crossed with each other: some 2,000 candidates
FEWEST = 100  # rows of the rarer label without which no cross could be told from chance
STALE = 100  # candidates of former rounds that are scored again
EVERYTHING = 5  # in every fifth round all are
TRIES = 4  # how many of a round's best are refitted in vain before the round ends
A_ROUND = 5  # crosses that a round accepts at most
ROUGH_SWEEPS = 5  # over all fields, before crosses choose their penalties anew
WARM_SWEEPS = 3  # over the columns of a cross, to see what it gains; over all fields, once it is accepted or penalties moved
ALL_SWEEPS = 50  # where nothing but the metric decides, a set must have all it can get
LOOK_SWEEPS = 1  # after which a cross without hope is given up
HOPE = 0.25  # of what a cross needs; of those that passed some had gained 0.4 of it by then
SIMPLER = 0.98  # of a cross's gain, for which one of fewer of its columns is tried before it
SLACK = 0.0002  # the metric may fall by this much: less than folds tell apart; a round that does not raise it by more is the last
MOST_BITS = 22  # of the numbers of buckets by which rare keys are told
SQUARE_DIGITS = (1 << 52, 1 << 26, 1)  # by which a summed square is written: none overflows below 2^37 rows
SHRINK = 3.0  # times the penalty that is best for a cross alone
RELAX = 30.0  # loss that a cross must gain to move its penalty by a factor of ten


# Tasks.


def sift(block: Block, one: fieldwise.Candidate, n_buckets: int, least: int) -> Ints:
    """How many entries have a key of each bucket, as far as it matters."""
    found = np.zeros(n_buckets, np.int64)
    for part in in_parts([block.coded((at,)) for at in one.cross]):
        keys = cross_key(pair_up(part)[0], one.sizes)
        slots.lay_out(keys, True, len(keys), np.empty(len(keys), np.uint32), found)
    return np.minimum(found, least, out=found)


def distinct(
    block: Block, one: fieldwise.Candidate, n_buckets: int, bits: NDArray[np.uint8]
) -> tuple[Ints, NDArray[np.uint32], Ints]:
    """Keys of a cross in the buckets that ``bits`` tells, the fields' codes behind each, and how many entries have it."""
    enough, exact = np.unpackbits(bits, count=n_buckets).view(np.bool_), math.prod(one.sizes) <= MODULUS
    found: list[Ints] = []
    values: list[NDArray[np.uint32]] = []  # of hashed keys, which do not tell them
    for part in in_parts([block.coded((at,)) for at in one.cross]):
        columns, _ = pair_up(part)
        keys = cross_key(columns, one.sizes)
        kept = enough[keys % n_buckets]
        found.append(keys[kept])
        if not exact:
            values.append(np.stack([column[kept] for column in columns], axis=1).astype(np.uint32))
    keys = np.concatenate(found)
    del found
    if exact:
        keys, counts = count_keys(keys, one.sizes)
        return keys, values_of(keys, one.sizes), counts
    keys, entry, counts = np.unique(keys, return_index=True, return_counts=True)
    return keys, np.concatenate(values)[entry], counts.astype(np.int64)


@changes(lambda coder: [codes_of(coder.fields)], anew=True)
def put(block: Block, coder: CrossCoder) -> int:
    """Keep the cross's codes; returns the most codes of a row."""
    coded = coder.encode([block.coded((at,)) for at in coder.fields])
    block.keep(coder.fields, coded)
    return coded.width


@changes(lambda crosses: map(codes_of, crosses), anew=True)
def forget(block: Block, crosses: Collection[Cross]) -> None:
    """Drop the codes of crosses."""
    for cross in crosses:
        block.codes.pop(cross, None)


def row_losses(block: Block) -> NDArray[np.float64]:
    """Loss of every row that judges, under the model that did not learn from it."""
    rows = np.flatnonzero(block.fold < block.odds.shape[1])
    odds = block.odds[rows, block.fold[rows]]
    return block.weight[rows].astype(np.float64) * np.log1p(np.where(block.label[rows] == 1, 1 / odds, odds))


@changes("former", reads=("odds", "fold"), anew=True)
def remember(block: Block) -> None:
    """Keep odds and losses of the current set, for comparison."""
    block.former = (copied(block.odds, block.former[0]), row_losses(block))


@changes("odds", reads=("former",), anew=True)
def recall(block: Block) -> None:
    """Go back to what was remembered."""
    block.odds = copied(block.former[0], block.odds)


def copied(values: NDArray[np.float64], room: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same values elsewhere: in an array that is no longer needed, if it has the shape."""
    if room.shape != values.shape:
        return values.copy()
    np.copyto(room, values)
    return room


def compare(block: Block, unit: float) -> Ints:
    """Number of rows, summed gain, and summed square of the gain over the remembered losses, in fixed point.

    The square of a heavy row's gain may be far larger than any sum of gains, so squares are added up digit by digit, the highest
    first.
    """
    gains = block.former[1] - row_losses(block)
    squares, digits = gains**2 * unit, []
    for power in SQUARE_DIGITS:
        digit = np.floor(squares / power)
        digits.append(digit.astype(np.int64).sum())
        squares -= digit * power
    return np.array([len(gains), (gains * unit).astype(np.int64).sum(), *digits], np.int64)


def compare_clusters(block: Block, unit: float, n_clusters: int) -> Ints:
    """Rows and summed gain of every cluster, in fixed point: (n_clusters, 2)."""
    assert block.cluster is not None
    gains = block.former[1] - row_losses(block)
    of_row = block.cluster[block.fold < block.odds.shape[1]]
    found = np.zeros((n_clusters, 2), np.int64)
    np.add.at(found[:, 0], of_row, 1)
    np.add.at(found[:, 1], of_row, (gains * unit).astype(np.int64))
    return found


# The search.


@dataclass(frozen=True)
class Accepted:
    """A cross of the solution: its codes, its first penalty, and what it gained a row on fresh folds, with the standard error."""

    coder: CrossCoder
    penalty: Penalty
    gain: float
    error: float
    seconds: float
    score: float
    n_collisions: int


@dataclass(frozen=True)
class State:
    """A feature set of the tree: its crosses, and a regression of it on the folds of its round, with its score and loss there.

    ``rise`` is by how much its round raised the score.
    """

    accepted: tuple[Accepted, ...]
    regression: Regression
    round: int = 0
    score: float = -math.inf
    loss: float = math.inf
    rise: float = math.inf

    @property
    def features(self) -> list[Cross]:
        return list(self.regression.terms)


class Search:
    """One run of the search on the blocks of an engine."""

    def __init__(
        self,
        engine: Engine,
        fields: Sequence[Field],
        n_rows: int,
        options: Options,
        reporter: Reporter,
        n_clusters: int,
        fresh: Callable[[int], Folds],
        score: Callable[[Regression], float],
    ) -> None:
        self.engine = engine
        self.fields = fields
        self.n_rows = n_rows
        self.options = options
        self.to_the_letter = options.halving == "paper"  # candidates compete in the metric, and the best one must raise it
        self.reporter = reporter
        self.n_clusters = n_clusters
        self.fresh = fresh
        self.score = score
        self.last: dict[Cross, float] = {}  # a candidate's gain a row when it was last scored
        self.in_vain: set[Cross] = set()  # crosses that were refitted and did not gain enough
        self.there: set[Cross] = set()  # crosses whose codes the blocks have
        self.keep: Callable[[State], None]

    def run(self, beam: list[State], keep: Callable[[State], None], finished: Callable[[list[State]], None]) -> tuple[State, str]:
        """Add crosses round by round, following the best few sets, until a condition ends it; returns the best set and which.

        ``keep`` is given the best set whenever there is a better one, in case the search is not let to its end, ``finished`` all
        sets that a round begins with.
        """
        self.keep = keep
        keep(beam[0])
        while (why := self.reason(beam[0])) is None:
            finished(beam)
            grown = {frozenset(child.features): child for state in beam for child in self.step(state)}
            if not grown:
                return beam[0], f"the best cross does not raise the {self.options.metric}" if self.to_the_letter else NO_MORE
            beam = sorted(grown.values(), key=lambda child: (child.loss, child.features))[: self.options.beam_width]
            keep(beam[0])
            self.forget_all_but(beam)
            self.reporter.count_workers(self.engine, f"round {beam[0].round}")
        return beam[0], why

    def put(self, coder: CrossCoder) -> int:
        """Put the codes of a cross into the blocks; returns the most codes of a row."""
        self.there.add(coder.fields)
        return max(self.engine.each(put, coder))

    def forget_all_but(self, states: Sequence[State]) -> None:
        """Drop the codes of crosses that none of these sets has."""
        gone = self.there - {cross for state in states for cross in state.features}
        self.engine.each(forget, sorted(gone))
        self.there -= gone

    def reason(self, state: State) -> str | None:
        """Why the search ends here, if it does."""
        if state.regression.rarer_rate * self.n_rows < FEWEST:
            return f"fewer than {FEWEST} rows of the rarer label tell no cross from chance"
        if self.options.max_crosses is not None and len(state.accepted) >= self.options.max_crosses:
            return "the number of crosses asked for is reached"
        if state.rise <= SLACK and not self.to_the_letter:
            return HARDLY_MORE
        return None

    def step(self, state: State) -> list[State]:
        """The best children, if they are better than the state beyond chance."""
        found = self.children(state)
        if not found:
            return []
        self.enter(state)
        regression = state.regression
        entrants = self.worth_scoring(state, found)
        rungs = halving.plan(self.options.halving, len(entrants), self.n_rows, regression.rarer_rate)

        def watch(rung: int, rows: int, ranked: Sequence[halving.Scored]) -> None:
            self.last.update((scored.candidate.cross, scored.gain / rows) for scored in ranked)
            best = [[self.name(scored.candidate.cross), scored.gain] for scored in ranked[:5]]
            facts = {"rung": rung + 1, "n_rungs": len(rungs), "rows": rows, "n_candidates": len(ranked), "best": best}
            self.reporter.tell(CandidatesRanked, round=state.round + 1, **facts)

        ranked = halving.tournament(self.engine, regression, self.contest(regression), entrants, rungs, self.n_rows, watch)
        return self.accept(state, [scored for scored in ranked if scored.gain > 0 or self.to_the_letter], len(found))

    def contest(self, regression: Regression) -> fieldwise.Contest:
        """Candidates compete in the loss, which tells finer than AUC what a cross brings; in the paper, in the metric."""
        metric = self.options.metric if self.to_the_letter else "log_loss"
        if self.options.penalty == "shared":
            (shared,) = {term.penalty for cross, term in regression.terms.items() if cross != INTERCEPT}
            return fieldwise.Contest(metric, (shared,))
        unit = regression.mean_weight
        plain, smooth = (tuple(one.times(unit) for one in grid) for grid in (fieldwise.PLAIN, fieldwise.SMOOTH))
        return fieldwise.Contest(metric, plain, smooth)

    def enter(self, state: State) -> None:
        """Bring the blocks to a state, from its weights alone: what happened to the odds before leaves no trace in a round."""
        self.draw_folds(state.round, state.regression.n_models)
        state.regression.restore()

    def draw_folds(self, round: int, n_models: int) -> None:
        """The folds of a round; the rows of a single holdout stay the same."""
        if n_models > 1:
            self.engine.each(refold, self.fresh(round).rule)

    def children(self, state: State) -> list[fieldwise.Candidate]:
        """The crosses that may come next."""
        features = state.features
        if len(features) > WIDEST:
            # So many columns that their pairs cannot all be tried: those with the largest effects of their own may cross.
            features = sorted(features, key=lambda cross: (-state.regression.effect(cross), cross))[:WIDEST]
        found = children(features, self.fields, self.options.max_order)
        return [fieldwise.candidate(cross, self.fields) for cross in found if cross not in state.regression.terms]

    def worth_scoring(self, state: State, found: list[fieldwise.Candidate]) -> list[fieldwise.Candidate]:
        """What a round makes new, and of the rest those that were best when last scored; everything every few rounds."""
        if state.round % EVERYTHING == 0 or self.to_the_letter:
            return found
        known = [one for one in found if one.cross in self.last]
        known.sort(key=lambda one: (-self.last[one.cross], one.cross))
        kept = {one.cross for one in known[:STALE]} | {one.cross for one in found if one.cross not in self.last}
        return [one for one in found if one.cross in kept]

    def name(self, cross: Cross) -> str:
        return " x ".join(self.fields[at].name for at in cross)

    def columns(self, cross: Cross) -> frozenset[str]:
        return frozenset(self.fields[at].column for at in cross)

    def accept(self, state: State, ranked: list[halving.Scored], n_candidates: int) -> list[State]:
        """Refit without and with each of the best on fresh folds, and compare row by row.

        A wider beam takes several children side by side. A single set takes several crosses in a row, each judged on top of the
        ones before: the tournament has ranked them all, and the next one is far dearer than a try.
        """
        if not ranked:
            return []
        in_a_row = self.options.beam_width == 1
        wanted = self.options.beam_width if self.to_the_letter or not in_a_row else A_ROUND
        if self.options.max_crosses is not None and in_a_row:
            wanted = min(wanted, self.options.max_crosses - len(state.accepted))
        regression = self.refit(state)
        begun = self.score(regression)
        former = replace(state, regression=regression, round=state.round + 1, score=begun)
        self.engine.each(remember)
        found: list[State] = []
        in_vain, tried = 0, set()
        for best in self.simpler_first(ranked):
            columns = self.columns(best.candidate.cross)
            if columns in tried or best.candidate.cross in self.in_vain:
                continue
            tried.add(columns)
            child = self.compare(former, best, n_candidates)
            if child is None:
                self.in_vain.add(best.candidate.cross)
            else:
                found.append(child)
            if child is not None and in_a_row:
                former = child
                self.keep(child)
                self.engine.each(remember)
            else:
                in_vain += child is None
                self.engine.each(recall)
            if in_vain == (1 if self.to_the_letter else TRIES) or len(found) == wanted:
                break
        return [replace(child, rise=child.score - begun) for child in (found[-1:] if in_a_row else found)]

    def simpler_first(self, ranked: Sequence[halving.Scored]) -> list[halving.Scored]:
        """Before each cross those of fewer of its columns that gain nearly as much: more columns fit chance better."""
        found: list[halving.Scored] = []
        for one in ranked:
            enough, columns = SIMPLER * one.gain, self.columns(one.candidate.cross)
            parts = [part for part in ranked if part.gain >= enough and self.columns(part.candidate.cross) < columns]
            found += [each for each in [*parts, one] if each not in found]
        return found

    def compare(self, state: State, best: halving.Scored, n_candidates: int) -> State | None:
        """The state with the cross, if that gains more than chance among so many candidates would, and the metric does not fall."""
        regression = state.regression.copy()
        cross = best.candidate.cross
        coder, n_collisions = self.code(best.candidate, regression.min_count)
        field = coder.field([self.fields[at] for at in cross])
        # A stronger penalty than the best for the cross alone leaves room for others, as small steps do in boosting.
        penalty = best.penalty.times(1.0 if self.options.penalty == "shared" else SHRINK)
        regression.add(cross, field, penalty)
        # What the cross changes most are the weights of its own columns.
        near = [one for one in regression.terms if not self.columns(one).isdisjoint(self.columns(cross))]
        caution = CAUTION if state.accepted else FIRST_CAUTION
        errors = 0.0 if self.to_the_letter else caution * math.sqrt(2 * math.log(max(n_candidates, 2)))
        regression.converge(ACCURACY, LOOK_SWEEPS, near)
        gain, error = self.gain(regression)
        if gain > errors * error * HOPE or self.to_the_letter:
            regression.converge(ACCURACY, WARM_SWEEPS - LOOK_SWEEPS, near)
            gain, error = self.gain(regression)
        needed = errors * error
        enough = gain > needed or self.to_the_letter
        if enough:
            regression.converge(ACCURACY, ALL_SWEEPS if self.to_the_letter else WARM_SWEEPS)
        score = self.score(regression)
        accepted = score > state.score if self.to_the_letter else enough and not score < state.score - SLACK
        facts = {"cross": field.name, "gain": gain, "error": error, "needed": needed, "accepted": accepted, "score": score}
        self.reporter.tell(CrossTried, round=state.round, **facts)
        if not accepted:
            return None
        if math.prod(self.fields[at].width for at in cross) > MOST_ENTRIES:
            self.reporter.warn(
                f"Cross {field.name!r} of multi-value columns: of a row's combinations the first {MOST_ENTRIES} count."
            )
        found = Accepted(coder, penalty, gain, error, self.reporter.seconds_in_all, score, n_collisions)
        return State((*state.accepted, found), regression, state.round, score, regression.left_out_loss())

    def gain(self, regression: Regression) -> tuple[float, float]:
        """Gain a row of mean weight over what is remembered, and its standard error. Rows of one group or period do not err on
        their own."""
        unit, mean_weight = regression.loss_unit, regression.mean_weight
        rows, total, *digits = self.engine.total(compare, unit).tolist()
        n, squares = float(rows), float(sum(digit * power for digit, power in zip(digits, SQUARE_DIGITS, strict=True)))
        gain = float(total) / unit / n
        error = math.sqrt(max(squares / unit / n - gain**2, 0.0) / n)
        if not self.n_clusters:
            return gain / mean_weight, error / mean_weight
        found = self.engine.total(compare_clusters, unit, self.n_clusters).astype(np.float64)
        off = found[:, 1] / unit - gain * found[:, 0]  # what each cluster gained beyond its rows' share
        n_judging = np.count_nonzero(found[:, 0])
        error = max(error, math.sqrt((off**2).sum() * n_judging / max(1, n_judging - 1)) / n)
        return gain / mean_weight, error / mean_weight

    def code(self, one: fieldwise.Candidate, min_count: int) -> tuple[CrossCoder, int]:
        """Exact codes of a cross, put into the blocks, and how many of its values share a bucket with another."""
        # A key of a bucket with few entries is rare: most keys of a wide cross need not be looked at one by one.
        n_buckets = min(math.prod(one.sizes), 1 << min(MOST_BITS, math.ceil(math.log2(max(self.n_rows, 2)))))
        enough = np.packbits(self.engine.total(sift, one, n_buckets, min_count) >= min_count)
        parts = self.engine.each(distinct, one, n_buckets, enough)
        keys, first = np.unique(np.concatenate([part[0] for part in parts]), return_index=True)
        values = np.concatenate([part[1] for part in parts])[first]
        counts = np.zeros(len(keys), np.int64)
        for part in parts:
            counts[np.searchsorted(keys, part[0])] += part[2]
        kept, hashed = most_frequent(keys, values, counts, min_count, CAP)
        n_hashed = 1 << hash_bits(self.n_rows)
        coder = CrossCoder(one.cross, one.sizes, kept, n_hashed if len(hashed) else 0)
        n_collisions = len(hashed) - len(np.unique(hashed % n_hashed))
        return replace(coder, width=self.put(coder)), n_collisions

    def refit(self, state: State) -> Regression:
        """The state's set on fresh folds, from nothing: old weights have seen the rows that judge now. A holdout stays unseen."""
        relaxes = bool(state.accepted) and self.options.penalty != "shared"
        if state.regression.n_models > 1:
            self.draw_folds(state.round + 1, state.regression.n_models)
            regression = again(state.regression, ACCURACY, ROUGH_SWEEPS if relaxes else tuning.MAX_SWEEPS)
        else:
            regression = state.regression.copy()
        if relaxes:
            # A cross with much to say may say it now. The choices of a greedy search flatter it: it must gain a lot.
            for one in state.accepted:
                tuning.choose_near(regression, one.coder.fields, one.penalty, RELAX)
        regression.converge(ACCURACY, ALL_SWEEPS if self.to_the_letter else WARM_SWEEPS)
        return regression
