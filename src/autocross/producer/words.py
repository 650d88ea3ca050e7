"""A model in words: what `autocross show` prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from textwrap import wrap
from typing import Any

import numpy as np

from autocross.events import as_reported
from autocross.producer.kinds import KINDS
from autocross.producer.merging import named
from autocross.producer.model import Model
from autocross.producer.printing import WIDTH, named_line, printable, shortened
from autocross.producer.weights import Cell, cells_of, importances

STRONGEST = 3
TOP = 20  # terms on the page
BAR = 20  # characters of the longest bar


def summary(model: Model) -> dict[str, Any]:
    """Everything there is to know about a model, in a form that JSON can hold."""
    producer, about = model.producer, model.about
    fields, n_base = {}, len(producer.encoder.fields)
    for number in producer.found:
        weight, field = model.weights[number], producer.fields[number]
        order = np.argsort(-np.abs(weight), kind="stable")[:STRONGEST].tolist()
        fields[number] = {
            "name": field.name,
            "column": field.column,
            "n_codes": field.n_codes,
            **asdict(model.penalties[number]),
            "strongest": [[shortened(model.describe(number, code)), float(weight[code])] for code in order],
        }
    known = model.counts is not None  # older files do not know the rows of a value
    return {
        "target": about.target,
        "negative": about.classes[0],
        "positive": about.classes[1],
        "n_rows": about.n_rows,
        "n_positive": about.n_positive,
        "metric": about.metric,
        "validation_score": about.score,
        "intercept": model.intercept,
        "mean_log_odds": model.mean_log_odds if known else None,
        "share_of_statistics": model.share,
        "rules": [{"name": rule.name, "value": rule.value, "why": rule.why} for rule in about.rules],
        "columns": [{"name": column.name, "kind": column.kind, "reason": column.reason} for column in producer.encoder.schema],
        "importances": importances(model) if known else None,
        "changes": [asdict(change) for change in about.changes],
        "fields": [*fields.values()],
        **dict.fromkeys(KINDS),
        **{addition.key: addition.summary() for addition in model.additions},
        "crosses": [
            {**asdict(cross), "order": cross.order, "strongest": fields[number]["strongest"]}
            for number, cross in enumerate(about.crosses, start=n_base)
        ],
    }


def in_words(facts: dict[str, Any], top: int = TOP) -> str:
    """The summary as a page of text: what the model is, its most important terms, and the rules in brief."""
    lines = [*head(facts), ""]
    if facts["changes"]:
        lines += ["changed by hand", *(line for change in facts["changes"] for line in change_words(change)), ""]
    lines += most_important(facts["importances"], top) if facts["importances"] is not None else strongest_crosses(facts["crosses"])
    for key, kind in KINDS.items():
        lines += [] if facts[key] is None else ["", *wrap(kind.in_words(facts[key]), WIDTH)]
    lines += ["", "rules"]
    brief = ", ".join(f"{rule['name']} {rule['value']}" for rule in facts["rules"])
    lines += wrap(brief, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    if left_out := [column["name"] for column in facts["columns"] if column["kind"] == "ignore"]:
        names = wrap(", ".join(left_out), WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
        lines += ["", "columns left out", *names]
    return "\n".join(map(printable, lines))


def head(facts: dict[str, Any]) -> list[str]:
    """What the model is, in three lines."""
    metric, score, positives = facts["metric"], facts["validation_score"], facts["n_positive"]
    share = "" if positives is None else f", {100 * positives / facts['n_rows']:.1f} % of them {facts['positive']!r}"
    lines = [f"P({facts['target']} = {facts['positive']!r}), fitted to {facts['n_rows']:,} rows{share}"]
    if score is not None:
        lines.append(f"validation {metric} {as_reported(metric, score):.4f}")
    crosses = [cross for cross in facts["crosses"] if cross["kind"] == "cross"]
    used = sum(column["kind"] != "ignore" for column in facts["columns"])
    longest = f" of up to {max(cross['order'] for cross in crosses)} columns" if crosses else ""
    n_statistics = len(facts["crosses"]) - len(crosses)
    statistics = (
        f", {n_statistics} statistics with {100 * facts['share_of_statistics']:g} % of the log-odds" if n_statistics else ""
    )
    n_crosses = f"{len(crosses)} cross{'' if len(crosses) == 1 else 'es'}"
    return [*lines, f"{used} column{'' if used == 1 else 's'}, {n_crosses}{longest}{statistics}"]


def change_words(change: dict[str, Any]) -> list[str]:
    """A change by hand, with the reason for it."""
    term, note = shortened(change["term"]), f": {shortened(change['note'])}" if change["note"] else ""
    if change["what"] == "without":
        text = f"without {term}{', the rest fitted anew' if change['refitted'] else ''}{note}"
    else:
        gone = ", which a refit has learned anew since" if change["refitted"] else ""
        cell = f"{term} = {shortened(change['value'])}"
        text = f"{cell} has {change['after']:+.4g} instead of {change['before']:+.4g}{gone}{note}"
    return wrap(printable(text), WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def most_important(importances: dict[str, float], top: int) -> list[str]:
    """The terms that move the log-odds most, with bars, and what the others have together."""
    ranked = sorted(importances.items(), key=lambda item: -item[1])
    largest = ranked[0][1] if ranked else 0.0
    lines = ["columns and crosses by importance: how much each moves the log-odds, on average"]
    for name, importance in ranked[:top]:
        lines += named_line(f"  {brief_number(importance)}  {bar(importance, largest):{BAR}}  ", name).split("\n")
    if rest := ranked[top:]:
        together = brief_number(sum(importance for _, importance in rest))
        lines.append(f"  {together}  {'':{BAR}}  {len(rest):,} others together")
    return lines


def brief_number(number: float) -> str:
    """A number in few characters, whatever its size: a forged file may have any.

    >>> brief_number(0.75), brief_number(1e90)
    (' 0.750', ' 1e+90')
    """
    return f"{number:6.3f}" if number < 100 else f"{number:6.0e}"


def bar(part: float, largest: float) -> str:
    """A bar whose length is in proportion to a number.

    >>> bar(1.0, 2.0), bar(0.0, 0.0)
    ('██████████', '')
    """
    return "█" * round(BAR * part / largest) if largest > 0 else ""


def strongest_crosses(crosses: Sequence[dict[str, Any]]) -> list[str]:
    """The crosses with their gains, for a model of an older file, which does not know how many rows each value has."""
    lines = ["crosses, with what each gained in loss a row on fresh folds"]
    return lines + [f"  {cross['gain']:.5f} ± {cross['error']:.5f}  {' x '.join(cross['fields'])}" for cross in crosses]


def in_full(model: Model) -> str:
    """Everything: the page with all terms, why each rule decided as it did, the columns, and all weights."""
    facts = summary(model)
    lines = [in_words(facts, top=len(model.producer.shapes)), "", "rules, and why"]
    lines += [f"  {rule['name']:14} {rule['value']} ({rule['why']})" for rule in facts["rules"]]
    lines += ["", "columns", *(f"  {column['kind']:12} {column['name']} ({column['reason']})" for column in facts["columns"])]
    lines += ["", "crosses, with what each gained in loss a row on fresh folds"]
    for cross in facts["crosses"]:
        mark = "" if cross["kind"] == "cross" else f" [{cross['kind']}]"
        shared = f", {cross['n_collisions']:,} values share a code" if cross["n_collisions"] else ""
        lines.append(f"  {' x '.join(cross['fields'])}{mark}   {cross['gain']:.5f} ± {cross['error']:.5f}{shared}")
    lines += ["", "fields, and their penalties"]
    for field in facts["fields"][: len(facts["fields"]) - len(facts["crosses"])]:
        strengths = ", ".join(f"{name} {field[name]:g}" for name in ("l1", "l2", "smooth", "slope") if field[name])
        lines.append(f"  {field['name']:40} {strengths}")
    lines += ["", f"weights (intercept {model.intercept:+.4f})"]
    names = dict.fromkeys(shape.name for shape in model.producer.shapes)
    return "\n".join([*map(printable, "\n".join(lines).split("\n")), *(f"\n{of_term(model, name)}" for name in names)])


def of_term(model: Model, name: str) -> str:
    """The weights of one term, and of a column also the crosses that it stands in."""
    shapes = named(model.producer, name)
    name = shapes[0].name
    lines = [name]
    for shape in shapes:
        own = cells_of(model, shape)
        largest = max((abs(cell.weight) for cell in own), default=0.0)
        lines += [line_of(cell, largest) for cell in own]
    columns = shapes[0].columns
    others = (shape for shape in model.producer.shapes if len(columns) == 1 and shape.columns != columns)
    crosses = dict.fromkeys(shape.name for shape in others if columns[0] in shape.columns)
    if crosses:
        lines += ["", "crosses with it", *(f"  {cross}" for cross in crosses)]
    return "\n".join(map(printable, lines))


def line_of(cell: Cell, largest: float) -> str:
    """One cell: its weight with the error, its rows, and what it stands for."""
    error = "" if cell.error is None else f"± {cell.error:.3f}"
    rows = "" if cell.rows is None else f"{cell.rows:,} rows"
    share = f"{100 * cell.positives / cell.rows:.0f} %" if cell.rows and cell.positives is not None else ""
    return f"  {cell.weight:+8.3f} {error:8} {bar(abs(cell.weight), largest):{BAR}} {rows:>14} {share:>5}  {shortened(cell.value)}"
