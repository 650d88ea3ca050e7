"""Every number that steers a search for crosses, in two policies: what works best for us, and what the paper says.

`AUTO` is the default; `PAPER` follows the paper to the letter (``halving="paper"``). The search reads its numbers from the policy
and never asks which of the two it has. How the first regression chooses its penalties, before there is any cross, is decided in
`models.tuning`, in the same way under both policies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from autocross.features import Penalty
from autocross.options import SIZES, Metric, Options
from autocross.search.halving import GrowingRungs, PaperRungs, Rungs
from autocross.search.stopping import Why

NEVER = -math.inf


@dataclass(frozen=True, kw_only=True)
class Trial:
    """How a proposal, which is one cross or several, is judged on the rows left out.

    The weights are given ``look`` sweeps. If the gain is then more than the share ``hope`` of what is needed, they are given
    ``go_on`` more. The gain must exceed so many standard errors: ``first_errors`` while the set has no cross, ``errors`` once it
    has. (For the best of n candidates both count sqrt(2 ln n) times; None means that the loss does not decide.) A proposal that
    has proven itself is given ``settle`` sweeps over all fields, and then the metric must rise by more than ``lift``.

    ``reach`` says over which fields these sweeps go: over all, or over those near the proposal, which share a column with it and
    whose weights change most. With "own first" the ``look`` goes over the proposal's own crosses, and what follows over those near.
    """

    look: int
    go_on: int
    settle: int
    reach: Literal["own first", "near", "all"]
    first_errors: float | None
    errors: float | None
    hope: float
    lift: float
    forced: bool = False  # whether it is accepted whatever it gains


@dataclass(frozen=True, kw_only=True)
class Group:
    """Weak crosses that are proposed together after the search: all crosses of some orders of the strongest columns."""

    orders: tuple[int, ...]
    strongest: int  # columns that are crossed with each other
    penalty: Penalty  # of the crosses while they are judged
    trial: Trial
    coarse: bool  # whether numbers take part by a field of few bins that exists for groups alone
    needs_cross: bool  # whether the group is tried only if the search has found a cross
    needs_sparse: bool  # whether the group is tried only if some pair has few rows for each possible value
    dense_only: bool  # whether the group leaves such pairs out
    retune: bool  # whether an accepted group chooses one penalty for all fields anew, and keeps all its crosses


@dataclass(frozen=True, kw_only=True)
class StatisticsPolicy:
    """Which statistics of values are proposed together after the search, and how they are judged.

    All candidates get ``trial.look`` sweeps: first those of at most ``simple`` columns, if they are ``enough``, and then all. If
    there is hope after each look, the strongest go on, with ``trial.go_on`` sweeps, and ``trial.settle`` more each time that they
    have chosen penalties.
    """

    orders: tuple[int, ...]
    strongest: int  # columns whose crosses are candidates
    many_values: int  # a candidate has a column of at least so many values
    few_rows: int  # and fewer rows than this for each possible value
    most_rows: int  # rows that all candidates may count together
    most: int  # statistics that a model may have
    penalty: Penalty
    trial: Trial
    shares: tuple[float, ...]  # of the log-odds, from which the rows left out choose
    simple: int
    enough: int
    hopeless: float  # a blend by the smallest share that has gained less than so many standard errors after a look is refused


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """How crosses are taken out when the search is over, and which sets on the way are kept.

    Each step keeps the share ``ratio`` of the crosses, but passes none of the ``stops``, whose sets are kept for `at`. A set is as
    good as the best one if its loss is higher by no more than so many standard ``errors``, and its metric lower by no more than
    ``slack``. Once a set is worse, or has fewer than ``least_share`` of all crosses, the steps go from stop to stop, except
    to a model that is to be small.
    """

    ratio: float
    least_share: float
    distrust: float | None  # loss that a cross must gain to move its penalty by a factor of ten; None: penalties stay
    near: float  # a step that would end near a stop, by this factor, ends there
    settle: int  # sweeps of the whole set before the first step
    sweeps: int  # after each step
    few_sweeps: int  # after each step to a set that is small
    errors: float
    slack: float
    stops: tuple[int, ...]
    small: int  # most crosses of a small set, in which single fields have the penalties that they had before groups were tried
    small_share: float  # of the gain in loss, which a small model keeps if it can


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The numbers of one way to search. The comments here say what each number is for; those beside the values say why."""

    # Which crosses compete.
    fewest_rarer: int  # with fewer rows of the rarer label there is no search
    widest: int  # most features that are crossed with each other
    rescored: int  # how many of the best candidates of former rounds compete again
    everything_every: int  # far more candidates compete again after this many rounds:
    rescored_then: int | None  # so many, or all

    # How they compete.
    rungs: Rungs
    compete_in: Metric | None  # None: in the user's metric
    plain: tuple[Penalty, ...] | None  # penalties that a candidate may try; None: only the one that all fields share
    smooth: tuple[Penalty, ...]  # penalties that it may try as well, if it has neighbours to hold together
    least_gain: float  # a finalist must gain more than this to be proposed

    # How the best are proposed.
    simpler: float  # a cross of fewer of the same columns is proposed first, if it reaches this share of the gain
    shrink: float  # a cross begins with the penalty that was best for it alone, times this factor
    trial: Trial  # how a single cross is judged
    tries: int  # the round ends after this many refused proposals
    a_round: int  # most crosses that a round accepts,
    # or this share of the crosses that the set has, if that is more. The tries grow with it. A trial then begins with the cross's
    # own weights, and the set settles once at the end of the round, and not with each cross that it accepts.
    a_round_share: float

    # How the set is refitted on fresh folds.
    rough_sweeps: int  # sweeps before crosses choose their penalties anew
    refit_sweeps: int  # sweeps afterwards
    relax: float | None  # loss that a cross must gain to move its penalty by a factor of ten; None: penalties stay

    # When the search ends, and what comes after it.
    least_rise: float  # a round that does not raise the metric by more than this is the last,
    least_growth: float  # and so is one that adds fewer crosses than this share of those that the set has
    why_none: Why  # the reason that is given when a round accepts no proposal
    groups: tuple[Group, ...]  # tried in this order after the rounds, until one is accepted
    statistics: StatisticsPolicy | None  # tried at the end
    faintest: float  # crosses of a group are dropped again if all of them have no more than this share of its effect
    few_rows: int  # a pair of columns with fewer rows for each possible value is sparse
    pruning: Pruning | None  # what is taken out again at the very end

    @property
    def goes_on(self) -> bool:
        """Whether there is anything to do after the rounds."""
        return bool(self.groups or self.statistics or self.pruning)


SLACK = 0.0002  # a difference of the metric that folds cannot tell from none

ONE_CROSS = Trial(
    look=1,
    go_on=2,  # three sweeps show what a cross gains; more rank it no better
    settle=3,
    reach="near",
    # With labels shuffled, one in twenty tables lets a first cross pass. Once there is one, others are likelier.
    first_errors=1.1,
    errors=0.9,
    hope=0.25,  # some crosses that passed had gained only 0.4 of what they needed after the first sweep
    lift=-SLACK,
)

# The crosses of a group were not chosen by what they gain, so one or two standard errors are enough to tell them from chance.
TOGETHER = Trial(look=2, go_on=3, settle=0, reach="all", first_errors=2.0, errors=1.0, hope=0.0, lift=0.0)

# A group of many sparse crosses, or of every pair, costs time in serving and is harder to read: it must bring much.
SPARSE = Group(  # 120 crosses at most
    orders=(2, 3),
    strongest=9,
    penalty=Penalty(0.0, 30.0),
    trial=replace(TOGETHER, lift=0.001),
    coarse=False,
    needs_cross=True,  # without any cross this group has little chance
    needs_sparse=True,
    dense_only=False,
    retune=True,  # fields say less where crosses say more
)
PAIRS = Group(  # 190 crosses at most
    orders=(2,),
    strongest=20,
    penalty=Penalty(0.0, 100.0, 300.0),  # strong and smooth, as most of them say little
    trial=TOGETHER,
    coarse=True,
    needs_cross=False,
    needs_sparse=False,
    dense_only=True,
    retune=False,
)
EVERY_PAIR = replace(PAIRS, penalty=Penalty(0.0, 1000.0, 3000.0), trial=replace(TOGETHER, lift=0.0005), dense_only=False)

AUTO = Policy(
    fewest_rarer=100,  # fewer tell no cross from chance
    widest=64,  # some 2,000 candidates
    rescored=100,  # a candidate that was weak in one round is hardly ever strong in the next
    everything_every=5,
    rescored_then=400,  # nearly all that are accepted in such a round
    rungs=GrowingRungs(
        fewest_rows=2_000,  # small rungs lie
        fewest_rarer=200,
        fewest_share=4,
        share_ends=32_000,
        going_on=4,
        finalists=8,  # enough for a round to accept several, and few enough to compare them on all rows
        judges=5,  # a holdout has a fifth of the rows, so as many rows judge as learn, until these are 200,000
        most_judges=1_000_000,
    ),
    compete_in="log_loss",  # it shows smaller gains of a cross than AUC does
    plain=(Penalty(0.0, 3.0), Penalty(0.0, 30.0), Penalty(0.0, 300.0)),
    smooth=(Penalty(0.0, 1.0, 30.0), Penalty(0.0, 1.0, 300.0)),
    least_gain=0.0,
    simpler=0.98,  # more columns fit chance better
    shrink=3.0,  # leaves room for other crosses, as small steps do in boosting
    trial=ONE_CROSS,
    tries=4,
    a_round=5,  # the tournament has ranked them, and another tournament costs far more than a proposal
    a_round_share=0.5,  # the larger the set, the less does a cross change what the others gain
    rough_sweeps=5,
    refit_sweeps=3,
    relax=30.0,  # the greedy search flatters a cross, so it must gain a lot to get more room
    least_rise=SLACK,
    least_growth=0.05,  # a large set is fitted again for every round, which is not worth a cross or two
    why_none=Why.NO_MORE,
    groups=(SPARSE, PAIRS, EVERY_PAIR),
    statistics=StatisticsPolicy(
        orders=(1, 2, 3),
        strongest=9,  # 129 candidates at most
        many_values=50,  # of fewer values, a cross can learn each
        few_rows=10,
        most_rows=10_000_000,  # some seconds; a table of a million rows has its three strongest columns crossed
        most=40,  # all 122 of a table of ids were hardly better
        penalty=Penalty(0.0, 10.0, 3000.0),  # a smooth curve over the bins is what makes a statistic worth having
        trial=replace(TOGETHER, look=3, go_on=5, settle=5, lift=0.002),
        shares=(0.25, 0.5, 0.75),
        simple=2,
        enough=10,  # fewer say little about those of more columns
        hopeless=-2.0,  # tables of ids had gained 0 to 4 errors after the first look, others had lost 3 to 5
    ),
    faintest=0.05,  # serving is faster without them
    few_rows=10,
    pruning=Pruning(
        ratio=0.7,  # larger steps take out crosses that are missed once the others are gone
        least_share=0.45,  # many weak crosses help together, which the rows that have chosen among them cannot tell
        distrust=30.0,  # with fewer crosses each may say more, but with 10 a table of weak crosses lost
        near=1.2,
        settle=3,
        sweeps=2,
        few_sweeps=2,
        errors=1.25,
        slack=0.0003,
        stops=SIZES,
        small=20,
        small_share=0.9,
    ),
)

PAPER = replace(
    AUTO,
    everything_every=1,
    rescored_then=None,
    rungs=PaperRungs(judges=AUTO.rungs.judges, most_judges=AUTO.rungs.most_judges, small=1_000_000, n_of_small=2, n_of_large=5),
    compete_in=None,
    least_gain=NEVER,  # the best candidate is proposed whatever it gained
    # Only the metric decides, so the weights must have converged before it is measured.
    trial=replace(ONE_CROSS, settle=50, first_errors=None, errors=None, lift=0.0),
    tries=1,
    a_round=1,
    a_round_share=0.0,
    refit_sweeps=50,
    least_rise=NEVER,
    least_growth=0.0,
    why_none=Why.NO_RISE,
    groups=(),
    statistics=None,
    pruning=None,
)


def policy_of(options: Options) -> Policy:
    """The policy that the options ask for."""
    chosen = PAPER if options.halving == "paper" else AUTO
    if options.penalty == "shared":
        pruning = None if chosen.pruning is None else replace(chosen.pruning, distrust=None)
        chosen = replace(chosen, plain=None, smooth=(), shrink=1.0, relax=None, groups=(), statistics=None, pruning=pruning)
    return chosen
