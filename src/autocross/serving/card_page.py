"""A scorecard as a page: one file without scripts, to be read, sent and printed. Whatever comes from the data is escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from autocross.producer.points import is_ragged
from autocross.producer.printing import printable, shortened
from autocross.producer.weights import counts_of
from autocross.table.outputs import CARD_MARK

if TYPE_CHECKING:
    from autocross.serving.scorecard import Scorecard

MOST_LINES = 1_000  # lines of a term on the page
STEPS = range(-4, 5)  # the scores whose odds are shown, in points that double the odds
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1a1a1a; max-width: 50rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.1rem; margin: 2rem 0 .4rem }
h1, h2, td, p { overflow-wrap: anywhere }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .15rem .6rem; border-bottom: 1px solid #ddd; vertical-align: top }
th { border-bottom: 2px solid #888 } .number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
.base { font-size: 1.2rem; font-weight: 600 } .note { color: #555 }
@media print { body { margin: 0; max-width: none; font-size: 10pt } tr, h2 { break-inside: avoid } h2 { break-after: avoid } }
"""


def page(card: Scorecard) -> str:
    """The whole page."""
    model = card.model
    title = f"Scorecard for {text(model.about.target or 'the label')}"
    parts = [
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{CARD_MARK}',
        f'<meta name="viewport" content="width=device-width">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>',
        f"<h1>{title}</h1>",
        *(f"<p>{sentence}</p>" for sentence in how_to_read(card)),
        f'<p class="base">Base points: {number(card.base, card)}</p>',
        *scale(card),
    ]
    former = ""
    for place in card.order:
        name = model.producer.shapes[place].name
        parts += [] if name == former else [f"<h2>{text(name)}</h2>"]
        parts += of_shape(card, place)
        former = name
    return "\n".join([*parts, "</body>\n</html>\n"])


def how_to_read(card: Scorecard) -> list[str]:
    """What points, odds and base mean, in sentences."""
    about, target, label = card.model.about, text(card.model.about.target or "the label"), text(card.favourable)
    chance = 100 * card.points_to_probability(card.points)
    sentences = [
        "Add the base points and, from each table, the points of the line that fits the row. The sum is its score.",
        f"A score of {card.points:,.12g} means odds of {card.odds:,.6g} to 1 that {target} is {label}, a probability of "
        f"{chance:.4g} %. Every {card.pdo:,.6g} points more double the odds, and every {card.pdo:,.6g} points less halve them.",
    ]
    if card.model.counts is not None:
        sentences.append(
            "Points compare a value with the average of the training rows: 0 is neither better nor worse. The tables that move "
            f"scores most come first. Rows are those of the {about.n_rows:,} training rows that have the value."
        )
    if any(is_ragged(shape) for shape in card.model.producer.shapes):
        sentences.append("Where a row has several values in a column, the points of all of them count; without any, none do.")
    return sentences


def scale(card: Scorecard) -> list[str]:
    """A table of scores with their odds and probabilities."""
    scores = [card.points + step * card.pdo for step in STEPS]
    rows = [
        [f"{score:,.12g}", f"{card.odds * 2.0**step:,.4g} to 1", f"{100 * card.points_to_probability(score):.4g} %"]
        for step, score in zip(STEPS, scores, strict=True)
    ]
    return table(["Score", "Odds", f"Probability of {text(card.favourable)}"], rows, first_number=0)


def of_shape(card: Scorecard, place: int) -> list[str]:
    """The table of one shape. If it is very long, it has the lines with the most rows."""
    groups = card.groups_of(place)
    left = len(groups) - MOST_LINES
    if left > 0:
        counts = counts_of(card.model, card.model.producer.shapes[place])
        rows_of = [0 if counts is None else -int(counts[cells, 0].sum()) for cells in groups]
        groups = [groups[number] for number in sorted(np.argsort(rows_of, kind="stable")[:MOST_LINES].tolist())]
    rows = [
        [text(line.value), "" if line.rows is None else f"{line.rows:,}", number(line.points, card)]
        for line in card.lines_of(place, groups)
    ]
    note = f'<p class="note">{left:,} more lines, of no more rows than these, are in the card as CSV or Excel.</p>'
    return [*table(["Value", "Rows", "Points"], rows), *([note] if left > 0 else [])]


def table(head: list[str], rows: list[list[str]], first_number: int = 1) -> list[str]:
    """A table; its columns from this one on hold numbers. Everything is escaped already."""

    def row(tag: str, cells: list[str]) -> str:
        kinds = ["" if place < first_number else ' class="number"' for place in range(len(cells))]
        return "<tr>" + "".join(f"<{tag}{kind}>{cell}</{tag}>" for kind, cell in zip(kinds, cells, strict=True)) + "</tr>"

    return [
        "<table>",
        f"<thead>{row('th', head)}</thead>",
        "<tbody>",
        *(row("td", cells) for cells in rows),
        "</tbody>",
        "</table>",
    ]


def number(points: float, card: Scorecard) -> str:
    """Points with the decimals of the card."""
    return f"{points:,.{card.decimals}f}"


def text(value: Any) -> str:
    """A name or a value of a stranger, made safe for a page."""
    return escape(printable(shortened(str(value))))
