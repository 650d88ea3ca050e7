"""From the bytes of a request to rows; and what else of the server needs no connection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autocross.errors import OptionError
from autocross.server.limits import Limits, Refused
from autocross.server.metrics import Metrics
from autocross.server.models import Source, source_of
from autocross.server.payload import parse
from autocross.server.service import FEW, for_each

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), inner, max_size=3)
    ),
    max_leaves=10,
)


@settings(max_examples=50)
@given(VALUES, st.booleans())
def test_what_is_json_is_read_as_it_is(value: Any, ascii_only: bool) -> None:
    assert parse(json.dumps(value, ensure_ascii=ascii_only).encode(), 100) == value


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(["a", "b:", "c\\", 'd"']), VALUES, min_size=1), st.integers(0, 3))
def test_a_key_that_is_there_twice_is_always_found(row: dict[str, Any], place: int) -> None:
    name = [*row][place % len(row)]
    inner = json.dumps(row)[1:-1]
    for body in (f"{{{inner}, {json.dumps(name)}: 1}}", f'[{{"x": {{{json.dumps(name)}: ":", {inner}}}}}]'):
        with pytest.raises(Refused, match="twice") as refused:
            parse(body.encode(), 100)
        assert refused.value.status == 400


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for nan in (False, True):
        try:
            parse(body, 5, nan)
        except Refused as refused:
            assert refused.status == 400 and refused.message


def test_depth_is_counted() -> None:
    assert parse(b"[[[1]]]", 3) == [[[1]]]
    with pytest.raises(Refused, match="nested too deeply"):
        parse(b"[[[1]]]", 2)
    with pytest.raises(Refused, match="nested too deeply"):
        parse(b'{"a": [{"b": {}}]}', 3)


def test_nan_is_missing_where_clients_write_it() -> None:
    assert parse(b'{"a": NaN}', 5, nan=True) == {"a": None}
    for body, nan in (
        (b'{"a": NaN}', False),
        (b'{"a": [Infinity, NaN]}', True),
        (b'{"a": 1, "a": NaN}', True),
        (b'["NaN", "\\ud800", 1e999', True),
    ):
        with pytest.raises(Refused):
            parse(body, 5, nan)


def test_names_and_versions_of_models(tmp_path: Path) -> None:
    odd = tmp_path / "a=b.acx"
    with pytest.raises(OptionError, match="cannot be part of an address"):
        source_of("a b/=x")
    odd.touch()
    with pytest.raises(OptionError, match="'a=b' cannot be part of an address"):
        source_of(str(odd))
    assert source_of(f"shop={odd}") == Source("shop", None, odd)
    assert source_of("shop:2024-12=x.acx") == Source("shop", "2024-12", Path("x.acx"))


def test_limits_are_numbers_that_make_sense() -> None:
    with pytest.raises(OptionError, match="--max-body 0 is out of range"):
        Limits(body=0)
    with pytest.raises(OptionError, match="--timeout nan is out of range"):
        Limits(seconds=float("nan"))


def test_workers_count_together() -> None:
    metrics = Metrics(["/score"], ["shop"], n_workers=2)
    for worker in range(2):
        metrics.use(worker)
        metrics.request("/score", 200, 0.003)
        metrics.request("/elsewhere", 418, 99.0)
        metrics.scored("shop", 3)
    text = metrics.text([{"model": "shop", "version": "1"}])
    assert 'autocross_requests_total{route="/score",status="200"} 2\n' in text
    assert 'autocross_requests_total{route="other",status="500"} 2\n' in text
    assert 'autocross_request_seconds_bucket{route="/score",le="0.0025"} 0\n' in text
    assert 'autocross_request_seconds_bucket{route="/score",le="0.005"} 2\n' in text
    assert 'autocross_request_seconds_bucket{route="other",le="10.0"} 0\n' in text
    assert 'autocross_rows_total{model="shop"} 6\n' in text
    assert 'autocross_model_info{model="shop",version="1"} 1\n' in text


def test_scoring_ends_when_its_time_is_over() -> None:
    scorer: Any = None
    assert for_each(scorer, [{}] * FEW, lambda *_: 1, float("inf")) == [1] * FEW
    with pytest.raises(TimeoutError):
        for_each(scorer, [{}] * FEW, lambda *_: 1, 0.0)
