"""Pieces of HTML. Text that came from data is escaped here, and nowhere else."""

from __future__ import annotations

import json
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

CHARTS = "echarts.min.js"  # Apache ECharts 6.1.0, as published; its licences are beside it


@cache
def asset(name: str) -> str:
    """A file of the folder ``assets``."""
    return (files("autocross.pages") / "assets" / name).read_text(encoding="utf-8")


def text(value: object) -> str:
    """A text as HTML, for contents and for quoted attributes. Half a character, which no encoding has, becomes a question mark."""
    return escape(str(value).encode("utf-8", "replace").decode())


def script_data(data: Any) -> str:
    """Data for a script element of the type application/json. No value can end the element or begin a comment in it."""
    plain = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
