"""The slow, obvious version of the whole search: what the fast one must equal, to the bit.

Loops over rows and models, values where the fast search has codes, no blocks and no engine. Every row has one value a field and
weight 1; the metric is AUC, the beam is one wide. Columns in order keep their rare values.
Rows come in the order of the shuffle: those with places below n / n_rows of 2^32 are what a rung of n rows sees.

Additions are of whole numbers, as in the kernels, so their order is free. Where the fast search takes NumPy's logarithm or
exponential of an array, this takes NumPy's of a number: the C library's may differ in the last bit. Kernels have a logarithm of
their own.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise

import numpy as np

from autocross.features import FIRST, MISSING, RARE, Field, Penalty
from autocross.kernels.steps import FARTHEST, ln
from autocross.models import tuning
from autocross.models.logistic import CENTRE_UNIT
from autocross.options import Options
from autocross.search import fieldwise
from autocross.search.candidates import children
from autocross.search.halving import GrowingRungs
from autocross.search.policy import Group, Policy, Trial, policy_of

Cross = tuple[int, ...]
Value = int | tuple[int, ...]  # a field's code, or those of the fields of a cross
Key = tuple[Value, int]  # a value, and the model that has a weight for it
Chain = list[tuple[int, Key]]  # weights of neighbours, and where each lies on the axis
Sums = dict[Key, tuple[float, float]]  # gradient and curvature of each weight
Step = dict[Key, tuple[float, float]]  # change of each weight, and the slope there


@dataclass
class Term:
    """One field of the models. ``own`` is what each row counts as in each model, ``chains`` is empty without neighbours."""

    own: list[list[Value]]
    penalty: Penalty
    chains: list[Chain]
    weight: dict[Key, float] = field(default_factory=lambda: defaultdict(float))


def row_loss(odds: float, y: int) -> float:
    return ln(1.0 + (1.0 / odds if y == 1 else odds))


def best_move(g: float, h: float) -> float:
    """The u that minimises g*u + h*(exp|u| - |u| - 1)."""
    return math.copysign(ln(1.0 + abs(g) / h), -g) if h > 0 else 0.0


def best_move_to(w: float, g: float, h: float, l1: float) -> float:
    """The u that minimises the same + l1*|w + u|: it ends above zero, below zero, or there."""
    upwards, downwards = best_move(g + l1, h), best_move(g - l1, h)
    return upwards if w + upwards > 0 else downwards if w + downwards < 0 else -w


def kept_near(w: float, move: float) -> float:
    """The move, less what would bring the weight too far from zero."""
    return min(max(w + move, -FARTHEST), FARTHEST) - w


def times(penalty: Penalty, factor: float) -> Penalty:
    return Penalty(factor * penalty.l1, factor * penalty.l2, factor * penalty.smooth, factor * penalty.slope)


def bin_of(odds: float) -> int:
    """Where odds are counted while candidates compete in AUC: 128 bins for every factor of two, from 2^-32 to 2^32."""
    part, power = math.frexp(odds)
    return min(max(128 * (power + 31) + int(128 * (2 * part - 1)), 0), 64 * 128 - 1)


def auc_of(scored: Iterable[tuple[float, int]]) -> float:
    """Share of the pairs of a positive and a negative row in which the positive one scores higher, ties counting half."""
    scored = list(scored)
    down = sorted(score for score, y in scored if y == 0)
    up = [score for score, y in scored if y == 1]
    won = sum((bisect_left(down, score) + bisect_right(down, score)) / 2 for score in up)
    return won / (len(up) * len(down))


def chains_of(keys: Iterable[Key], axis: int) -> list[Chain]:
    """The weights of values that differ along the axis only, from place to place; missing and rare have no neighbours."""
    chains: dict[tuple[object, ...], Chain] = defaultdict(list)
    for value, k in keys:
        if value in (MISSING, RARE):
            chains[value, k].append((0, (value, k)))
        else:
            codes = value if isinstance(value, tuple) else (value,)
            place, others = codes[axis], codes[:axis] + codes[axis + 1 :]
            chains[others, min(place, FIRST), k].append((place, (value, k)))
    return [sorted(chain) for chain in chains.values()]


def single_steps(sums: Sums, weight: dict[Key, float], penalty: Penalty) -> Step:
    """Every weight on its own: its change, and the slope there but for l1."""
    steps = {}
    for key in sums.keys() | weight.keys():
        g, h = sums.get(key, (0.0, 0.0))
        w, slope = weight[key], g + penalty.l2 * weight[key]
        bend = h + penalty.l2
        move = best_move_to(w, slope, bend, penalty.l1) if penalty.l1 else best_move(slope, bend)
        steps[key] = (kept_near(w, move), slope)
    return steps


def chained_step(chain: Chain, sums: Sums, weight: dict[Key, float], penalty: Penalty) -> Step:
    """Newton's step of the weights of a chain, made shorter the further it goes."""
    n = len(chain)
    w = [weight[key] for _, key in chain]
    hold = [0.0] + [penalty.smooth / (place - before) for (before, _), (place, _) in pairwise(chain)]
    slope, bend = [], []
    for position, (_, key) in enumerate(chain):
        g, h = sums.get(key, (0.0, 0.0))  # a value without rows has neighbours too
        slope.append(g + penalty.l2 * w[position])
        bend.append(h + penalty.l2)
    for position in range(1, n):
        pull = hold[position] * (w[position] - w[position - 1])
        slope[position] += pull
        slope[position - 1] -= pull
        bend[position] += hold[position]
        bend[position - 1] += hold[position]
    move = solve(bend, hold, [-gradient for gradient in slope])
    largest = max(abs(change) for change in move)
    shorter = math.log1p(largest) / largest if largest > 0 else 0.0
    return {key: (kept_near(w[position], move[position] * shorter), slope[position]) for position, (_, key) in enumerate(chain)}


def all_chained(chains: list[Chain], sums: Sums, weight: dict[Key, float], penalty: Penalty) -> Step:
    """The step of every chain."""
    return {key: step for chain in chains for key, step in chained_step(chain, sums, weight, penalty).items()}


def solve(diagonal: list[float], beside: list[float], right: list[float]) -> list[float]:
    """The x of a symmetric tridiagonal system; row i has -beside[i] left of its diagonal."""
    pivot, x = [*diagonal], [*right]
    for i in range(1, len(x)):
        ratio = beside[i] / pivot[i - 1]
        pivot[i] -= beside[i] * ratio
        x[i] += ratio * x[i - 1]
    x[-1] /= pivot[-1]
    for i in reversed(range(len(x) - 1)):
        x[i] = (x[i] + beside[i + 1] * x[i + 1]) / pivot[i]
    return x


class Models:
    """Logistic regressions side by side: model k learns from the rows whose fold is not k, and those whose fold is k judge it. With
    ``forward`` it learns only from the rows of earlier folds, and of no fold."""

    forward = False

    def __init__(self, label: Sequence[int], fold: Sequence[int], n_models: int, min_count: int) -> None:
        self.label, self.fold, self.min_count = label, fold, min_count
        self.n_rows, self.models = len(label), range(n_models)
        self.unit = 2.0 ** (61 - math.ceil(math.log2(len(label))))
        self.loss_unit = self.unit / 1024
        self.odds = [[1.0] * n_models for _ in label]
        self.terms: dict[Cross, Term] = {}
        self.add((), [MISSING] * len(label), Penalty(0.0, 0.0))  # the intercept

    def learners(self, row: int) -> list[int]:
        """The models that learn from a row."""
        fold = self.fold[row]
        return [k for k in self.models if fold not in self.models or (fold < k if self.forward else fold != k)]

    def judges(self, n_rows: int) -> list[int]:
        """Those of the first rows that judge a model."""
        return [row for row in range(n_rows) if self.fold[row] in self.models]

    def count_as(self, values: Sequence[Value], n_rows: int, least: int) -> list[list[Value]]:
        """Each row's value, or RARE in the models that learn from too few rows with it."""
        seen = Counter((values[row], k) for row in range(n_rows) for k in self.learners(row))
        rare = {(value, k) for value in values for k in self.models if value != MISSING and seen[value, k] < least}
        return [[RARE if (value, k) in rare else value for k in self.models] for value in values]

    def add(self, cross: Cross, values: Sequence[Value], penalty: Penalty, axis: int | None = None) -> None:
        """Put a field into the models, with weight zero. Its values are neighbours along the axis, if there is one."""
        own = self.count_as(values, self.n_rows, self.min_count)
        term = self.terms[cross] = Term(own, penalty, self.chains(own, axis))
        if cross:
            term.weight |= dict.fromkeys([(value, k) for value in (MISSING, RARE) for k in self.models], 0.0)

    def add_in_order(self, cross: Cross, codes: Sequence[int], n_codes: int, penalty: Penalty) -> None:
        """Put a column in order into the models: no code is too rare, and one without rows has its place too."""
        keys = [(code, k) for code in range(n_codes) for k in self.models]
        self.terms[cross] = Term([[code for _ in self.models] for code in codes], penalty, chains_of(keys, 0))
        self.terms[cross].weight |= dict.fromkeys(keys, 0.0)

    def chains(self, own: list[list[Value]], axis: int | None) -> list[Chain]:
        """Neighbours among the values that have a weight; others are passed over."""
        keys = {(value, k) for row in own for k in self.models for value in (row[k], MISSING, RARE)}
        return [] if axis is None else chains_of(keys, axis)

    def sums(self, own: list[list[Value]], n_rows: int) -> Sums:
        """Gradient and curvature of every weight of a field, over the first rows."""
        gradient: dict[Key, int] = defaultdict(int)
        curvature: dict[Key, int] = defaultdict(int)
        for row in range(n_rows):
            for k in self.learners(row):
                q = 1.0 / (1.0 + self.odds[row][k])
                p = self.odds[row][k] * q
                gradient[own[row][k], k] += int(self.unit * (p - self.label[row]))
                curvature[own[row][k], k] += int(self.unit * (p * q))
        return {key: (gradient[key] / self.unit, curvature[key] / self.unit) for key in gradient}

    def step(self, term: Term, penalty: Penalty) -> tuple[dict[Key, float], float]:
        """The change of a field's weights, and the decrease of the loss it promises."""
        sums = self.sums(term.own, self.n_rows)
        if penalty.smooth and term.chains:
            steps = all_chained(term.chains, sums, term.weight, penalty)
            promised = -sum(int(slope * change * self.loss_unit) for change, slope in steps.values())
        else:
            steps = single_steps(sums, term.weight, penalty)
            promised = sum(int(abs(slope * change) * self.loss_unit) for change, slope in steps.values())
        return {key: change for key, (change, _) in steps.items()}, promised / self.loss_unit

    def move(self, term: Term, delta: dict[Key, float]) -> None:
        """Change the weights and the odds."""
        for key, change in delta.items():
            term.weight[key] += change
        factor = {key: float(np.exp(change)) for key, change in delta.items()}
        for row in range(self.n_rows):
            for k in self.models:
                self.odds[row][k] *= factor.get((term.own[row][k], k), 1.0)

    def restore(self) -> None:
        """The odds from the weights alone, in the order of the terms."""
        self.odds = [[1.0 for _ in self.models] for _ in self.label]
        for term in self.terms.values():
            for row in range(self.n_rows):
                for k in self.models:
                    self.odds[row][k] *= float(np.exp(term.weight[term.own[row][k], k]))

    def converge(self, max_sweeps: int, crosses: Iterable[Cross] | None = None, tolerance: float = tuning.FINE) -> None:
        """One step for every field in turn, until they promise too little; one that does so before the others rests."""
        everyone = at_work = list(crosses or self.terms)
        for _ in range(max_sweeps):
            promised = {}
            for cross in at_work:
                delta, gain = self.step(self.terms[cross], self.terms[cross].penalty)
                self.move(self.terms[cross], delta)
                promised[cross] = gain / self.n_rows / len(self.models)
            for cross in at_work:
                self.centre(cross)
            if sum(promised.values()) >= tolerance:
                at_work = [cross for cross in at_work if promised[cross] > tolerance / len(everyone)]
            elif at_work == everyone:
                break
            else:
                at_work = everyone

    def centre(self, cross: Cross) -> None:
        """The mean of a field's weights goes into the intercept, unless l1 holds each of them at zero."""
        weight, intercept = self.terms[cross].weight, self.terms[()].weight
        for k in self.models if cross and not self.terms[cross].penalty.l1 else ():
            own = [key for key in weight if key[1] == k]
            mean = sum(round(weight[key] * CENTRE_UNIT) for key in own) / len(own) / CENTRE_UNIT
            for key in own:
                weight[key] -= mean
            intercept[MISSING, k] += mean

    def left_out_odds(
        self, n_rows: int, own: list[list[Value]] | None = None, factor: dict[Key, float] | None = None
    ) -> list[tuple[float, int]]:
        """Odds and labels of those of the first rows that judge, after a change of a field's weights if one is given."""
        own, factor = own or self.terms[()].own, factor or {}
        judged = [(row, self.fold[row]) for row in self.judges(n_rows)]
        return [(self.odds[row][k] * factor.get((own[row][k], k), 1.0), self.label[row]) for row, k in judged]

    def left_out_loss(self, n_rows: int, own: list[list[Value]] | None = None, factor: dict[Key, float] | None = None) -> float:
        """Summed loss of those of the first rows that judge."""
        total = sum(int(self.loss_unit * row_loss(odds, y)) for odds, y in self.left_out_odds(n_rows, own, factor))
        return total / self.loss_unit

    def row_losses(self) -> list[float]:
        """Loss of every row that judges."""
        return [row_loss(odds, y) for odds, y in self.left_out_odds(self.n_rows)]

    def auc(self) -> float:
        """That of the rows that judge."""
        return auc_of((float(np.log(odds)), y) for odds, y in self.left_out_odds(self.n_rows))

    def effect(self, cross: Cross) -> float:
        """Mean square of a field's weights, by the rows that models learn from."""
        term = self.terms[cross]
        squares = [term.weight[term.own[row][k], k] ** 2 for row in range(self.n_rows) for k in self.learners(row)]
        return sum(squares) / len(squares)

    def take_out(self, cross: Cross) -> None:
        """Without the field, as if its weights had been zero."""
        self.move(self.terms[cross], {key: -w for key, w in self.terms[cross].weight.items()})
        del self.terms[cross]

    def choose_near(self, cross: Cross, anchor: Penalty, distrust: float) -> None:
        """Let a field take another penalty, the better on the rows left out."""
        term = self.terms[cross]
        tries = []
        for penalty in [times(term.penalty, factor) for factor in tuning.NEAR]:
            delta, _ = self.step(term, penalty)
            loss = self.left_out_loss(self.n_rows, term.own, {key: float(np.exp(change)) for key, change in delta.items()})
            distance = abs(float(np.log10(penalty.l2 / anchor.l2)))
            tries.append((loss + tuning.DISTRUST_OF_FEW * distrust * distance, penalty, delta))
        _, term.penalty, delta = min(tries, key=lambda tried: tried[0])
        self.move(term, delta)

    def tune_shared(self, with_l1: bool) -> None:
        """One penalty for all fields: l2 falls from 10 while that helps, or else rises; then l1 rises."""

        def loss(penalty: Penalty) -> float:
            for cross in self.terms:
                self.terms[cross].penalty = penalty if cross else Penalty(0.0, 0.0)
            self.converge(tuning.SHARED_SWEEPS, tolerance=tuning.ROUGH)
            return self.left_out_loss(self.n_rows)

        best = begun = Penalty(0.0, 10.0)
        least = loss(best)
        for path in ("down", "up", "l1"):
            for number in {"down": (3.0, 1.0, 0.3, 0.1), "up": (30.0, 100.0, 300.0, 1000.0, 3000.0), "l1": tuning.L1_GRID}[path]:
                if (path == "l1" and not with_l1) or (path == "up" and best.l2 < begun.l2):
                    break
                penalty = Penalty(number, best.l2) if path == "l1" else Penalty(0.0, number)
                tried_loss = loss(penalty)
                if tried_loss >= least:
                    break
                best, least = penalty, tried_loss
        for cross in self.terms:
            self.terms[cross].penalty = best if cross else Penalty(0.0, 0.0)

    def gain_alone(
        self, values: Sequence[Value], axis: int | None, learned: int, judged: int, least: int, contest: Contest
    ) -> tuple[float, Penalty]:
        """How far a cross alone raises the score of the rows left out in one step from zero, and under which penalty."""
        own = self.count_as(values, learned, least)
        sums = self.sums(own, learned)
        factors: list[tuple[dict[Key, float], Penalty]] = []
        for penalty in contest.plain:
            factor = {}
            for key, (g, h) in sums.items():
                pull = max(abs(g) - penalty.l1, 0.0)
                factor[key] = (1.0 + pull / (h + penalty.l2)) ** (1 if g < 0 else -1)
            factors.append((factor, penalty))
        if contest.smooth and (chains := self.chains(own, axis)):
            for penalty in contest.smooth:
                step = all_chained(chains, sums, defaultdict(float), penalty)
                factors.append(({key: float(np.exp(change)) for key, (change, _) in step.items()}, penalty))

        def score(factor: dict[Key, float]) -> float:
            if contest.in_loss:
                return -self.left_out_loss(judged, own, factor)
            return auc_of((bin_of(odds), y) for odds, y in self.left_out_odds(judged, own, factor))

        best, penalty = max(((score(factor), penalty) for factor, penalty in factors), key=lambda scored: scored[0])
        return best - score({}), penalty


@dataclass(frozen=True)
class Contest:
    """What candidates compete in, loss or AUC, and under which penalties."""

    in_loss: bool
    plain: Sequence[Penalty]
    smooth: Sequence[Penalty]


@dataclass(frozen=True)
class Rung:
    """What a rung of a tournament saw, and its best five."""

    round: int
    rows: int
    n_candidates: int
    best: list[tuple[Cross, float]]


@dataclass(frozen=True)
class Try:
    """A proposal refitted on fresh folds, one cross or several. ``penalty`` is the one it began with, ``loss`` that of the rows
    left out."""

    round: int
    crosses: tuple[Cross, ...]
    penalty: Penalty
    gain: float
    error: float
    needed: float
    accepted: bool
    score: float
    loss: float

    @property
    def cross(self) -> Cross:
        (only,) = self.crosses
        return only


@dataclass(frozen=True)
class Joined:
    """A cross that came in with a group: its penalty in the end, and its share of what the group gained. ``score`` and ``loss`` are
    those of the whole."""

    cross: Cross
    penalty: Penalty
    gain: float
    error: float
    score: float
    loss: float


def gain_of(models: Models, former: Models) -> tuple[float, float]:
    """What a row that judges gains over former models, and the standard error."""
    unit = models.loss_unit
    gains = [old - new for old, new in zip(former.row_losses(), models.row_losses(), strict=True)]
    gain = sum(int(row_gain * unit) for row_gain in gains) / unit / len(gains)
    square = sum(int(row_gain * row_gain * unit) for row_gain in gains) / unit / len(gains)
    return gain, math.sqrt(max(square - gain**2, 0.0) / len(gains))


class SlowSearch:
    """The search over columns of codes. ``place`` has the rows' places in the shuffle, ``fresh`` draws the folds of a round."""

    def __init__(
        self,
        columns: Sequence[Sequence[int]],
        place: Sequence[int],
        fields: Sequence[Field],
        fresh: Callable[[int], list[int]],
        options: Options,
    ) -> None:
        self.rows = list(zip(*columns, strict=True))
        self.place = place
        self.fields = fields
        self.fresh = fresh
        self.policy: Policy = policy_of(options)
        self.last: dict[Cross, float] = {}  # gain a row when last ranked
        self.in_vain: set[Cross] = set()
        self.rungs: list[Rung] = []
        self.tries: list[Try] = []
        self.joined: list[Joined] = []
        self.reached = (math.inf, -math.inf)  # loss and score of the last set
        self.models: Models  # the present ones,
        self.round = 0  # of which they are

    @property
    def accepted(self) -> list[Try]:
        """The crosses that were accepted one by one."""
        return [tried for tried in self.tries if tried.accepted and len(tried.crosses) == 1]

    def first(self, n: int) -> int:
        """How many rows are among about the first n of the shuffle."""
        return len(self.rows) if n >= len(self.rows) else sum(place < n * 2**32 // len(self.rows) for place in self.place)

    def columns(self, cross: Cross) -> set[str]:
        return {self.fields[number].column for number in cross}

    def values(self, cross: Cross) -> list[Value]:
        return [tuple(row[number] for number in cross) for row in self.rows]

    def axis(self, cross: Cross) -> int | None:
        """Where in its values the cross's finest column in order is, the first of those as fine."""
        sizes = [self.fields[number].n_codes if self.fields[number].chain else 0 for number in cross]
        return sizes.index(max(sizes)) if any(sizes) else None

    def in_slots(self, cross: Cross, learned: int) -> tuple[list[Value], int | None]:
        """The cross's values in the tournament, and their axis. Those of a large cross share slots, about one a row: no axis."""
        sizes = [self.fields[number].n_codes for number in cross]
        bits = max(12, min(17, math.ceil(math.log2(learned))))
        if math.prod(sizes) <= fieldwise.SLOTS[bits]:
            return self.values(cross), self.axis(cross)
        slots: list[Value] = []
        for value in self.values(cross):
            key = 0
            for code, size in zip(value, sizes, strict=True):
                key = key * size + code
            slots.append((key % fieldwise.SLOTS[bits],))
        return slots, None

    def add(self, models: Models, cross: Cross, penalty: Penalty) -> None:
        """Put a column or a cross into the models."""
        if len(cross) > 1:
            models.add(cross, self.values(cross), penalty, self.axis(cross))
            return
        only, codes = self.fields[cross[0]], [row[cross[0]] for row in self.rows]
        if only.chain:
            models.add_in_order(cross, codes, only.n_codes, penalty)
        else:
            models.add(cross, codes, penalty)

    def run(self, label: Sequence[int], n_models: int, min_count: int, penalties: Sequence[Penalty | None], shared: bool) -> None:
        """From the columns that have a penalty alone, rounds until one accepts nothing, or hardly raises the score."""
        self.models = Models(label, self.fresh(0), n_models, min_count)
        for number, penalty in enumerate(penalties):
            if penalty is not None:
                self.add(self.models, (number,), penalty)
        if shared:
            self.models.tune_shared(with_l1=True)
        self.models.converge(tuning.MAX_SWEEPS)
        if min(Counter(label).values()) < self.policy.fewest_rarer:
            return
        while candidates := children(self.models.terms, self.fields, None):
            n_accepted = len(self.accepted)
            self.models.restore()
            ranked = [candidate for candidate in self.tournament(self.models, candidates) if candidate[1] > self.policy.least_gain]
            if not ranked:
                break
            fresh = self.refit(self.models)
            begun = fresh.auc()
            tried = self.accept(fresh, ranked, len(candidates))
            if len(self.accepted) == n_accepted:
                break
            self.models, self.reached = tried, (tried.left_out_loss(tried.n_rows), tried.auc())
            self.round += 1
            few = len(self.accepted) < (1 + self.policy.least_growth) * n_accepted
            if few or tried.auc() - begun <= self.policy.least_rise:
                break

    def contest(self, models: Models) -> Contest:
        """What candidates compete in: under a shared penalty they have that one too."""
        in_loss = self.policy.compete_in == "log_loss"
        if self.policy.plain is None:
            return Contest(in_loss, [next(term.penalty for cross, term in models.terms.items() if cross)], [])
        return Contest(in_loss, self.policy.plain, self.policy.smooth)

    def tournament(self, models: Models, candidates: list[Cross]) -> list[tuple[Cross, float, Penalty]]:
        """The candidates of the last rung with gain and penalty, best first; the better half of a small rung goes on."""
        left = candidates
        n_again = self.policy.rescored if self.round % self.policy.everything_every else self.policy.rescored_then
        if n_again is not None:
            scored = sorted((cross for cross in candidates if cross in self.last), key=lambda cross: (-self.last[cross], cross))
            left = [cross for cross in candidates if cross not in scored[n_again:]]
        ranked = []
        for learned in self.rung_rows(models, len(left)):
            judged = learned if len(models.models) > 1 else min(models.n_rows, self.policy.rungs.judges * learned)
            least = max(min(models.min_count, 2), int(np.rint(models.min_count * learned / models.n_rows)))
            seen = self.first(learned), self.first(judged), least, self.contest(models)
            ranked = [(cross, *models.gain_alone(*self.in_slots(cross, learned), *seen)) for cross in left]
            ranked.sort(key=lambda candidate: (-candidate[1], candidate[0]))
            self.last.update({cross: gain / learned for cross, gain, _ in ranked})
            self.rungs.append(Rung(self.round + 1, learned, len(ranked), [(cross, gain) for cross, gain, _ in ranked[:5]]))
            left = [cross for cross, _, _ in ranked[: max(1, len(ranked) // 2)]]
        return ranked

    def rung_rows(self, models: Models, n_candidates: int) -> list[int]:
        """Twice as many rows from rung to rung, for as long as there are enough; then all. The paper's: see below."""
        rungs = self.policy.rungs
        if not isinstance(rungs, GrowingRungs):
            return self.paper_rung_rows(models.n_rows, n_candidates)
        rarer_rate = min(Counter(models.label).values()) / models.n_rows
        share = min(math.ceil(models.n_rows / rungs.fewest_share), rungs.share_ends)
        first = max(rungs.fewest_rows, math.ceil(rungs.fewest_rarer / rarer_rate), share)
        before = [first * 2**rung for rung in range(99) if n_candidates // 2**rung > rungs.finalists]
        return [rows for rows in before if rows < models.n_rows] + [models.n_rows]

    def paper_rung_rows(self, n_rows: int, n_candidates: int) -> list[int]:
        """Rungs until one candidate is left: the first has one block of rows, each other twice the new blocks of the one before.
        All of them together have half of the rows."""
        new_blocks = [2**rung for rung in range(math.ceil(math.log2(n_candidates)))]
        n_blocks = 2 * sum(new_blocks)
        return [n_rows * sum(new_blocks[: rung + 1]) // n_blocks for rung in range(len(new_blocks))]

    def refit(self, former: Models) -> Models:
        """The same fields on the folds of the next round, from nothing; then the crosses may relax. A holdout stays, and so do the
        weights."""
        models, may_relax = deepcopy(former), bool(self.accepted) and self.policy.relax is not None
        if len(former.models) > 1:
            models = Models(former.label, self.fresh(self.round + 1), len(former.models), former.min_count)
            for cross, term in former.terms.items():
                if cross:
                    self.add(models, cross, term.penalty)
            models.converge(self.policy.rough_sweeps if may_relax else tuning.MAX_SWEEPS)
        for accepted in self.accepted if may_relax else ():
            models.choose_near(accepted.cross, accepted.penalty, self.policy.relax)
        models.converge(self.policy.refit_sweeps)
        return models

    def accept(self, models: Models, ranked: list[tuple[Cross, float, Penalty]], n_candidates: int) -> Models:
        """Try the best one after the other, each on top of those accepted before it."""
        score, n_accepted, n_in_vain = models.auc(), 0, 0
        most = max(self.policy.a_round, int(self.policy.a_round_share * len(self.accepted)))
        most_in_vain, trial = self.policy.tries * most // self.policy.a_round, self.policy.trial
        is_large = self.policy.a_round_share * len(self.accepted) > self.policy.a_round
        if is_large:
            trial = replace(trial, settle=0, reach="own first")
        for cross, _, penalty in self.simpler_first(ranked):
            if cross in self.in_vain:
                continue
            tried = deepcopy(models)
            self.add(tried, cross, times(penalty, self.policy.shrink))
            near = [term for term in tried.terms if self.columns(term) & self.columns(cross)]
            rivals = math.sqrt(2 * math.log(max(n_candidates, 2)))
            verdict = self.judge(models, tried, (cross,), trial, near, rivals, score)
            if verdict.accepted:
                models, score, n_accepted = tried, verdict.score, n_accepted + 1
            else:
                self.in_vain.add(cross)
                n_in_vain += 1
            if n_in_vain == most_in_vain or n_accepted == most:
                break
        if is_large and n_accepted:
            models.converge(self.policy.trial.settle)
        return models

    def simpler_first(self, ranked: list[tuple[Cross, float, Penalty]]) -> list[tuple[Cross, float, Penalty]]:
        """Before each cross those of its parts that gain nearly as much."""
        in_order: list[tuple[Cross, float, Penalty]] = []
        for best in ranked:
            parts = [part for part in ranked if set(part[0]) < set(best[0]) and part[1] >= self.policy.simpler * best[1]]
            in_order += [candidate for candidate in [*parts, best] if candidate not in in_order]
        return in_order

    def judge(
        self,
        former: Models,
        models: Models,
        crosses: tuple[Cross, ...],
        trial: Trial,
        near: list[Cross],
        rivals: float,
        score: float,
    ) -> Try:
        """Whether the models with these crosses gain more than chance would, without costing score. ``rivals`` is how many times
        the error counts."""
        penalty = models.terms[crosses[0]].penalty
        caution = trial.errors if self.accepted else trial.first_errors
        reach = {"own first": (crosses, near), "near": (near, near), "all": (None, None)}[trial.reach]
        for sweeps, terms in zip((trial.look, trial.go_on), reach, strict=True):
            models.converge(sweeps, terms)
            gain, error = gain_of(models, former)
            needed = 0.0 if caution is None else caution * rivals * error
            if caution is not None and gain <= trial.hope * needed:
                break
        proven = caution is None or gain > needed
        if proven:
            models.converge(trial.settle)
        accepted = proven and models.auc() > score + trial.lift
        loss = models.left_out_loss(models.n_rows)
        self.tries.append(Try(self.round + 1, crosses, penalty, gain, error, needed, accepted, models.auc(), loss))
        return self.tries[-1]

    # Weak crosses together.

    def broaden(self) -> None:
        """Propose the groups of weak crosses one after the other, until one is accepted."""
        self.models.restore()
        before = self.refit(self.models)
        groups = [(group, self.weak_crosses(before, group)) for group in self.policy.groups]
        groups = [(group, crosses) for group, crosses in groups if len(crosses) > 1]
        for group, crosses in groups:
            models = deepcopy(before)
            for number in range(len(self.fields)):
                if group.coarse and (number,) not in models.terms:
                    self.add(models, (number,), group.penalty)
            for cross in crosses:
                smooth = group.penalty.smooth if self.axis(cross) is not None else 0.0
                self.add(models, cross, Penalty(group.penalty.l1, group.penalty.l2, smooth))
            verdict = self.judge(before, models, tuple(crosses), group.trial, [], 1.0, before.auc())
            if verdict.accepted:
                self.join(models, group, crosses, verdict)
                return

    def weak_crosses(self, models: Models, group: Group) -> list[Cross]:
        """The crosses of a group: all of some orders of the strongest columns, each column by its coarsest field."""
        strength, coarsest = defaultdict(float), {}
        columns = [field.column for field in self.fields]
        for number, column in enumerate(columns):
            if (number,) in models.terms:
                strength[column] = max(strength[column], models.effect((number,)))
            if (number,) in models.terms or group.coarse:
                coarsest[column] = min(coarsest.get(column, number), number, key=lambda field: (self.fields[field].n_codes, field))
        strongest = sorted(coarsest, key=lambda column: (-strength[column], column))[: group.strongest]
        fields = sorted(coarsest[column] for column in strongest)
        crosses = [cross for order in group.orders for cross in combinations(fields, order)]
        if group.coarse:
            crosses = [cross for cross in crosses if cross not in models.terms]
        else:
            crosses = [cross for cross in crosses if self.columns(cross) not in [self.columns(term) for term in models.terms]]
        sparse = [cross for cross in crosses if self.is_sparse(cross)]
        if (group.needs_cross and not self.accepted) or (group.needs_sparse and not sparse):
            return []
        return [cross for cross in crosses if cross not in sparse] if group.dense_only else crosses

    def is_sparse(self, cross: Cross) -> bool:
        """Whether there are few rows for each of a pair's possible values."""
        n_values = math.prod(self.fields[number].n_codes for number in cross)
        return len(cross) == 2 and len(self.rows) < self.policy.few_rows * n_values

    def join(self, models: Models, group: Group, crosses: list[Cross], verdict: Try) -> None:
        """A group that was accepted: penalties are chosen anew, or the faintest of its crosses are taken out again."""
        if group.retune:
            models.tune_shared(with_l1=False)
            models.converge(self.policy.refit_sweeps)
            for cross in models.terms:
                if cross:
                    models.choose_near(cross, models.terms[cross].penalty, tuning.DISTRUST)
            models.converge(self.policy.refit_sweeps)
        else:
            effect = {cross: models.effect(cross) for cross in crosses}
            faint, gone = self.policy.faintest * sum(effect.values()), 0.0
            for cross in sorted(crosses, key=lambda cross: (effect[cross], cross)):
                gone += effect[cross]
                if gone > faint:
                    break
                models.take_out(cross)
            models.converge(1)
        kept = [cross for cross in crosses if cross in models.terms]
        whole, share = (models.auc(), models.left_out_loss(models.n_rows)), (verdict.gain / len(kept), verdict.error / len(kept))
        self.joined = [Joined(cross, models.terms[cross].penalty, *share, *whole) for cross in kept]
        self.models, self.round, self.reached = models, self.round + 1, whole[::-1]
