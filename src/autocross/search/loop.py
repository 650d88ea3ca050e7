"""The search: beam search over feature sets, round by round.

A round ranks all children of the current set by field-wise regression. It then refits the set on fresh folds, with and without the
best children, and accepts those that lower the left-out loss by more than chance would explain among so many candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from autocross.blocks import INTERCEPT, Cross, draw_folds
from autocross.crossing import MOST_ENTRIES
from autocross.engines import Engine
from autocross.events import CandidatesRanked, Reporter, RoundFinished, SetRefitted
from autocross.features import Field
from autocross.folds import Folds
from autocross.models import tuning
from autocross.models.logistic import Regression, again
from autocross.models.tuning import FINE
from autocross.options import Options
from autocross.search import fieldwise, halving
from autocross.search.candidates import children
from autocross.search.coding import CodedCrosses
from autocross.search.judging import Accepted, Judge, Proposal
from autocross.search.limits import NO_LIMITS, Allowed, Limits
from autocross.search.policy import Trial, policy_of
from autocross.search.stopping import Why


@dataclass(frozen=True)
class State:
    """A feature set of the tree: its crosses, and a regression on the folds of its round, with the score and loss there.

    ``rise`` says by how much its round raised the score. ``statistics`` is a second regression, whose log-odds count by this
    ``share``, and those of the first by the rest.
    """

    accepted: tuple[Accepted, ...]
    regression: Regression
    round: int = 0
    score: float = -math.inf
    loss: float = math.inf
    rise: float = math.inf
    statistics: Regression | None = None
    share: float = 0.0

    @property
    def features(self) -> list[Cross]:
        return list(self.regression.terms)

    def with_crosses(self, new: Sequence[Accepted], regression: Regression, score: float) -> State:
        """The set with these crosses, in the same round."""
        return State((*self.accepted, *new), regression, self.round, score, regression.left_out_loss())


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
        limits: Limits = NO_LIMITS,
    ) -> None:
        self.engine = engine
        self.fields = fields
        self.n_rows = n_rows
        self.options = options
        self.policy = policy_of(options)
        self.reporter = reporter
        self.fresh = fresh
        self.score = score
        self.judge = Judge(engine, reporter, n_clusters, score)
        self.codes = CodedCrosses(engine, n_rows)
        self.limits = limits
        self.allows = Allowed(engine, fields, limits, options.max_values)
        self.last: dict[Cross, float] = {}  # what a candidate gained per row when it was last scored
        self.in_vain: set[Cross] = set()  # crosses that were proposed and refused
        self.keep: Callable[[State], None]

    def run(self, beam: list[State], keep: Callable[[State], None], finished: Callable[[list[State]], None]) -> tuple[State, Why]:
        """Add crosses round by round, following the few best sets. Returns the best set, and why the search ended.

        ``keep`` is called with the best set whenever there is a better one, in case something ends the search early. ``finished``
        is called at the beginning of each round, with all sets that are followed.
        """
        self.keep = keep
        keep(beam[0])
        while (why := self.reason(beam[0])) is None:
            finished(beam)
            grown = {frozenset(child.features): child for state in beam for child in self.step(state)}
            if not grown:
                return beam[0], self.policy.why_none
            beam = sorted(grown.values(), key=lambda child: (child.loss, child.features))[: self.options.beam_width]
            keep(beam[0])
            self.forget_all_but(beam)
            self.reporter.count_workers(self.engine, f"round {beam[0].round}")
        return beam[0], why

    def forget_all_but(self, states: Sequence[State]) -> None:
        """Drop the codes of all crosses that are in none of these sets."""
        self.codes.forget_all_but({cross for state in states for cross in state.features})

    def reason(self, state: State) -> Why | None:
        """The reason why the search ends at this state, or None."""
        if state.regression.rarer_rate * self.n_rows < self.policy.fewest_rarer:
            return Why.TOO_FEW
        if self.options.max_crosses is not None and len(state.accepted) >= self.options.max_crosses:
            return Why.AS_MANY_AS_ASKED
        if state.rise <= self.policy.least_rise:
            return Why.HARDLY_MORE
        return None

    def step(self, state: State) -> list[State]:
        """One round: the children that are better than the state by more than chance."""
        began = rung_began = self.reporter.seconds
        possible = self.children(state)
        if not possible:
            return []
        self.enter(state)

        def watch(rung: int, n_rungs: int, rows: int, ranked: Sequence[fieldwise.Candidate]) -> None:
            nonlocal rung_began
            self.last.update((candidate.cross, candidate.gain / rows) for candidate in ranked)
            best = [[self.name(candidate.cross), candidate.gain] for candidate in ranked[:5]]
            facts = {"rung": rung, "n_rungs": n_rungs, "rows": rows, "n_candidates": len(ranked), "best": best}
            self.reporter.tell(CandidatesRanked, round=state.round + 1, **facts, took=self.reporter.seconds - rung_began)
            rung_began = self.reporter.seconds

        regression, entrants = state.regression, self.worth_scoring(state, possible)
        contest = self.contest(regression)
        ranked = halving.tournament(self.engine, regression, contest, entrants, self.policy.rungs, self.n_rows, watch)
        grown = self.accept(state, [candidate for candidate in ranked if candidate.gain > self.policy.least_gain], len(possible))
        n_crosses = max((len(child.accepted) for child in grown), default=len(state.accepted))
        facts = {"n_candidates": len(possible), "n_crosses": n_crosses, "took": self.reporter.seconds - began}
        self.reporter.tell(RoundFinished, round=state.round + 1, **facts)
        return grown

    def contest(self, regression: Regression) -> fieldwise.Contest:
        """The metric and the penalties of a tournament."""
        metric = self.policy.compete_in or self.options.metric
        if self.policy.plain is None:
            (shared,) = {term.penalty for cross, term in regression.terms.items() if cross != INTERCEPT}
            return fieldwise.Contest(metric, (shared,))
        unit = regression.mean_weight
        plain, smooth = (tuple(penalty.times(unit) for penalty in grid) for grid in (self.policy.plain, self.policy.smooth))
        return fieldwise.Contest(metric, plain, smooth)

    def enter(self, state: State) -> None:
        """Set the odds in the blocks from the weights of the state alone, so that nothing that happened before shows in the
        round."""
        self.draw_folds(state.round, state.regression.n_models)
        state.regression.restore()

    def draw_folds(self, round: int, n_models: int) -> None:
        """Draw the folds of a round. A single holdout stays the same."""
        if n_models > 1:
            draw_folds(self.engine, self.fresh(round).plan)

    def children(self, state: State) -> list[fieldwise.Candidate]:
        """The crosses that may come next."""
        features = state.features
        if len(features) > self.policy.widest:
            # There are too many features to try all pairs, so only those with the largest effects are crossed.
            features = sorted(features, key=lambda cross: (-state.regression.effect(cross), cross))[: self.policy.widest]
        crosses = children(features, self.fields, self.options.max_order)
        new = [cross for cross in crosses if cross not in state.regression.terms and self.allows(cross)]
        return [fieldwise.candidate(cross, self.fields) for cross in new]

    def worth_scoring(self, state: State, possible: list[fieldwise.Candidate]) -> list[fieldwise.Candidate]:
        """The candidates that are new in this round, and those of the others that were best when last scored: some, and every few
        rounds many more."""
        full = state.round % self.policy.everything_every == 0
        n_best = self.policy.rescored_then if full else self.policy.rescored
        if n_best is None:
            return possible
        scored = [candidate for candidate in possible if candidate.cross in self.last]
        scored.sort(key=lambda candidate: (-self.last[candidate.cross], candidate.cross))
        best = {candidate.cross for candidate in scored[:n_best]}
        return [candidate for candidate in possible if candidate.cross in best or candidate.cross not in self.last]

    def name(self, cross: Cross) -> str:
        return " x ".join(self.fields[number].name for number in cross)

    def columns(self, cross: Cross) -> frozenset[str]:
        return frozenset(self.fields[number].column for number in cross)

    def accept(self, state: State, ranked: list[fieldwise.Candidate], n_rivals: int) -> list[State]:
        """Refit the set on fresh folds, and propose the best crosses one after the other.

        With a wider beam, several children stand side by side. With a beam of one, several crosses are accepted in a row, and each
        is judged on top of those before it.
        """
        if not ranked:
            return []
        in_a_row = self.options.beam_width == 1
        wanted, tries = self.pace(state) if in_a_row else (self.options.beam_width, self.policy.tries)
        # In a small set, a cross would be credited with what the others have not learned yet.
        settle_once = in_a_row and self.policy.a_round_share * len(state.accepted) > self.policy.a_round
        trial = replace(self.policy.trial, settle=0, reach="own first") if settle_once else self.policy.trial
        former = self.refitted(state)
        begun = former.score
        self.judge.remember(former.regression)
        better: list[State] = []
        n_refused, tried = 0, set()
        for best in self.simpler_first(ranked):
            columns = self.columns(best.cross)
            if columns in tried or best.cross in self.in_vain:
                continue
            tried.add(columns)
            child = self.propose(former, best, n_rivals, trial)
            if child is None:
                self.in_vain.add(best.cross)
                n_refused += 1
            else:
                better.append(child)
            if child is not None and in_a_row:
                former = child
                self.keep(child)
                self.judge.remember(child.regression)
            else:
                self.judge.recall()
            if n_refused == tries or len(better) == wanted:
                break
        if in_a_row and better:
            child = self.settled(better[-1]) if settle_once else better[-1]
            few = len(child.accepted) < (1 + self.policy.least_growth) * len(state.accepted)
            return [replace(child, rise=0.0 if few else child.score - begun)]
        return [replace(child, rise=child.score - begun) for child in better]

    def pace(self, state: State) -> tuple[int, int]:
        """How many crosses the round may accept, and how many proposals may be refused. Both grow with a large set."""
        wanted = max(self.policy.a_round, int(self.policy.a_round_share * len(state.accepted)))
        tries = self.policy.tries * wanted // self.policy.a_round
        most = self.options.max_crosses
        return (wanted if most is None else min(wanted, most - len(state.accepted))), tries

    def settled(self, state: State) -> State:
        """The state, whose odds are in the blocks, after some sweeps over all fields."""
        regression = state.regression.branch()
        regression.converge(FINE, self.policy.trial.settle)
        return replace(state, regression=regression, score=self.score(regression), loss=regression.left_out_loss())

    def simpler_first(self, ranked: Sequence[fieldwise.Candidate]) -> list[fieldwise.Candidate]:
        """The ranking, with simpler crosses first: a cross of fewer of the same columns that gains nearly as much goes ahead."""
        in_order: list[fieldwise.Candidate] = []
        for best in ranked:
            enough, columns = self.policy.simpler * best.gain, self.columns(best.cross)
            parts = [part for part in ranked if part.gain >= enough and self.columns(part.cross) < columns]
            in_order += [candidate for candidate in [*parts, best] if candidate not in in_order]
        return in_order

    def propose(self, state: State, best: fieldwise.Candidate, n_rivals: int, trial: Trial) -> State | None:
        """The state with the cross, or None if the cross is refused."""
        began, regression, cross = self.reporter.seconds, state.regression.branch(), best.cross
        coder, n_collisions = self.codes.code(best, regression.min_count)
        field = coder.field([self.fields[number] for number in cross])
        penalty = best.penalty.times(self.policy.shrink)
        regression.add(cross, field, penalty)
        near = [term for term in regression.terms if not self.columns(term).isdisjoint(self.columns(cross))]
        proposal = Proposal(field.name, [(coder, n_collisions)], regression, trial, began, near, n_rivals)
        verdict = self.judge.judge(proposal, bool(state.accepted), state.score, state.round)
        if verdict is None:
            return None
        if math.prod(self.fields[number].width for number in cross) > MOST_ENTRIES:
            self.reporter.warn(
                f"Cross {field.name!r} of multi-value columns: of a row's combinations the first {MOST_ENTRIES} count."
            )
        gained = (verdict.gain, verdict.error, self.reporter.seconds_in_all, verdict.score)
        return state.with_crosses([Accepted(coder, penalty, *gained, n_collisions)], regression, verdict.score)

    def afresh(self, state: State) -> State:
        """The set for all that comes after the rounds: on fresh folds, because those so far have chosen its crosses, and flatter
        them. Its odds are in the blocks. A holdout stays, and so do its weights."""
        if state.regression.n_models > 1:
            return self.refitted(state)
        self.enter(state)
        return state

    def refitted(self, state: State) -> State:
        """The same set, refitted on the folds of the next round."""
        began = self.reporter.seconds
        regression = self.refit(state)
        n_crosses, took = len(state.accepted), self.reporter.seconds - began
        self.reporter.tell(SetRefitted, round=state.round + 1, n_crosses=n_crosses, took=took)
        return replace(state, regression=regression, round=state.round + 1, score=self.score(regression))

    def refit(self, state: State) -> Regression:
        """A regression of the same set on fresh folds. It begins from zero, because the old weights have seen the rows that judge
        now. With a holdout the old weights can stay."""
        relax = self.policy.relax if state.accepted else None
        if state.regression.n_models > 1:
            self.draw_folds(state.round + 1, state.regression.n_models)
            regression = again(state.regression, FINE, tuning.MAX_SWEEPS if relax is None else self.policy.rough_sweeps)
        else:
            regression = state.regression.branch()
        if relax is not None:  # a strong cross may lower its penalty now
            for accepted in state.accepted:
                tuning.choose_near(regression, accepted.coder.fields, accepted.penalty, relax)
        regression.converge(FINE, self.policy.refit_sweeps)
        return regression
