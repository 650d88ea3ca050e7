"""A model in words: what `autocross show` prints."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import numpy as np

from autocross.events import as_reported
from autocross.producer.kinds import KINDS
from autocross.producer.model import Model

STRONGEST = 3
LONGEST = 1000  # characters of a value that are shown
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def printable(line: str) -> str:
    """A line in which control characters are escaped, because names and values may come from a stranger.

    >>> printable("a\\x1b[2J\\n"), printable("naïve 日本")
    ('a\\\\x1b[2J\\\\n', 'naïve 日本')
    """
    return CONTROL.sub(lambda match: repr(match[0])[1:-1], line)


def shortened(value: str) -> str:
    """The beginning of a value that is very long. Every cross with the value would show it again."""
    return value if len(value) <= LONGEST else f"{value[:LONGEST]}..."


def summary(model: Model) -> dict[str, Any]:
    """Everything there is to know about a model, in a form that JSON can hold."""
    producer, about = model.producer, model.about
    fields = []
    for number, field in enumerate(producer.fields):
        weight = model.weights[number]
        order = np.argsort(-np.abs(weight), kind="stable")[:STRONGEST].tolist()
        fields.append(
            {
                "name": field.name,
                "column": field.column,
                "n_codes": field.n_codes,
                **asdict(model.penalties[number]),
                "strongest": [[shortened(model.describe(number, code)), float(weight[code])] for code in order],
            }
        )
    return {
        "target": about.target,
        "negative": about.classes[0],
        "positive": about.classes[1],
        "n_rows": about.n_rows,
        "metric": about.metric,
        "validation_score": about.score,
        "intercept": model.intercept,
        "share_of_statistics": model.share,
        "rules": [{"name": rule.name, "value": rule.value, "why": rule.why} for rule in about.rules],
        "columns": [{"name": column.name, "kind": column.kind, "reason": column.reason} for column in producer.encoder.schema],
        "fields": fields,
        **dict.fromkeys(KINDS),
        **{addition.key: addition.summary() for addition in model.additions},
        "crosses": [
            {**asdict(cross), "order": cross.order, "strongest": field["strongest"]}
            for cross, field in zip(about.crosses, fields[len(producer.encoder.fields) :], strict=True)
        ],
    }


def in_words(facts: dict[str, Any]) -> str:
    """The summary as a page of text."""
    metric, score = facts["metric"], facts["validation_score"]
    score = "" if score is None else f", validation {metric} {as_reported(metric, score):.4f}"
    lines = [f"P({facts['target']} = {facts['positive']!r}), fitted to {facts['n_rows']:,} rows{score}", "", "rules"]
    lines += [f"  {rule['name']:14} {rule['value']} ({rule['why']})" for rule in facts["rules"]]
    for key, kind in KINDS.items():
        lines += [] if facts[key] is None else ["", kind.in_words(facts[key])]
    lines += ["", "columns"]
    lines += [f"  {column['kind']:12} {column['name']} ({column['reason']})" for column in facts["columns"]]
    lines += [
        "",
        f"crosses, with what each gained in loss a row on fresh folds, and its strongest values ({len(facts['crosses'])})",
    ]
    if facts["share_of_statistics"]:
        lines.append(
            f"  statistics have {100 * facts['share_of_statistics']:g} % of the log-odds, fields and crosses have the rest"
        )
    for cross in facts["crosses"]:
        mark = "" if cross["kind"] == "cross" else f" [{cross['kind']}]"
        shared = f", {cross['n_collisions']:,} values share a code" if cross["n_collisions"] else ""
        lines.append(f"  {' x '.join(cross['fields'])}{mark}   {cross['gain']:.5f} ± {cross['error']:.5f}{shared}")
        lines += [f"      {weight:+.2f}  {value}" for value, weight in cross["strongest"]]
    lines += [
        "",
        f"fields, their penalty, and the values with the strongest weights (intercept {facts['intercept']:+.3f})",
    ]
    for field in facts["fields"][: len(facts["fields"]) - len(facts["crosses"])]:
        values = ", ".join(f"{value} {weight:+.2f}" for value, weight in field["strongest"])
        l1 = f"l1 {field['l1']:g} " if field["l1"] else ""
        smooth = f"smooth {field['smooth']:g} " if field["smooth"] else ""
        lines.append(f"  {field['name']:28} {l1}{smooth}l2 {field['l2']:<6g} {values}")
    return "\n".join(map(printable, lines))
