"""How far the weights of a finished model may be off."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from autocross.blocks import INTERCEPT, Block, Cross, narrowed
from autocross.engines import carry_on
from autocross.fitting.run import Run
from autocross.models.draws import draw, signs
from autocross.models.logistic import Regression
from autocross.producer.draws import Draws, inside_bins
from autocross.producer.model import Producer
from autocross.search.stopping import Stopped

MOST_ROWS = 250_000  # if there are more, so many drawn at random stand for all; errors need no more
OF_BINS = 3_000_000_019  # added to the seed, so that signs differ from those of rows and penalties

Floats = NDArray[np.float64]
Deviations = dict[Cross, Floats]
NOTHING: Deviations = {}


def rows_here(block: Block) -> int:
    return block.n_rows


def drawn(run: Run, regression: Regression) -> Deviations | None:
    """Draws of the weights of a regression whose odds are in the blocks. None if there is no time left, or after an interrupt."""
    engine = run.engine
    deviations: Deviations | None = None
    with suppress(Stopped):
        engine.between = run.stopping.check_spare
        if regression.n_rows <= MOST_ROWS:
            deviations = draw(regression, run.seed)
        else:
            with narrowed(engine, MOST_ROWS):
                regression.restore()
                deviations = draw(regression, run.seed, regression.n_rows / sum(engine.each(rows_here)))
    engine.between = carry_on
    return deviations


def blended(share: float, deviations: Deviations | None, others: Deviations = NOTHING) -> Deviations | None:
    """The deviations of a regression that has this share of a model, added to those of others, if there are any."""
    if deviations is None:
        return None
    total = dict(others)
    for term, deviation in deviations.items():
        total[term] = total.get(term, 0.0) + share * deviation
    return total


def draws_of(run: Run, producer: Producer, weights: Sequence[Floats], deviations: Deviations | None) -> Draws | None:
    """The draws of a model, given those of its terms. Bins deviate by what happens inside them, too."""
    if deviations is None:
        return None
    nothing = np.zeros((1, deviations[INTERCEPT].shape[1]))  # of fields that stand in crosses only
    terms = zip(producer.terms, producer.fields, strict=True)
    of_terms = [deviations[term] if term in deviations else nothing.repeat(field.n_codes, axis=0) for term, field in terms]
    more = [of_term.copy() for of_term in of_terms]
    for number, shape in enumerate(producer.shapes):
        if (found := inside_bins(shape, weights, of_terms)) is not None:
            part, spread = found
            more[part] += spread[:, None] * signs(run.seed + OF_BINS + number, np.arange(1))
    return Draws.rounded(deviations[INTERCEPT][0], more)
