"""Generated rows and tables, with the cases that break things: empty, one row, one code, no code."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from autocross.features import narrowest
from reference import CodedRows


@st.composite
def coded_rows(draw: st.DrawFn, ragged: bool | None = None, max_rows: int = 40) -> CodedRows:
    """Rows of one field, for one to five models."""
    n_rows = draw(st.integers(0, max_rows))
    n_codes = draw(st.sampled_from([2, 3, 7, 300]))
    n_models = draw(st.sampled_from([1, 2, 3, 5]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if draw(st.booleans()) if ragged is None else ragged:
        rows = [rng.choice(n_codes, min(n_codes, rng.integers(0, 4)), replace=False) for _ in range(n_rows)]
    else:
        rows = [rng.integers(0, n_codes, 1) for _ in range(n_rows)]
    return CodedRows(
        codes=np.concatenate([*rows, np.empty(0, int)]).astype(narrowest(n_codes)),
        starts=np.cumsum([0, *map(len, rows)]).astype(np.int64),
        n_codes=n_codes,
        label=rng.integers(0, 2, n_rows).astype(np.uint8),
        weight=rng.choice([0.0, 0.5, 1.0, 3.0], n_rows).astype(np.float32),
        fold=rng.choice([*range(n_models), 255], n_rows).astype(np.uint8),
        offset=rng.normal(0, draw(st.sampled_from([0.1, 2.0, 20.0])), (n_rows, n_models)),
    )
