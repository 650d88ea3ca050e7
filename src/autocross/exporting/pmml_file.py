"""A model as PMML 4.4: a regression whose predictors are weights, which tables give for the values of columns. It has scores only,
and neither lists nor times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from autocross.errors import OptionError
from autocross.exporting.description import Cross, Description, Field
from autocross.features import FIRST, MISSING, RARE
from autocross.table.outputs import EXPORT_MARK
from autocross.table.values import MISSING_TEXTS

HEAD = f"""<?xml version="1.0" encoding="UTF-8"?>
<!-- An {EXPORT_MARK} 1 as PMML -->
<PMML xmlns="http://www.dmg.org/PMML-4_4" xmlns:data="http://jpmml.org/jpmml-model/InlineTable" version="4.4">
<Header description="A model of autocross"/>"""
OUTPUTS = ("log_odds", "probability")
ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML 1.0
DOUBLE = 'optype="continuous" dataType="double"'


def render(described: Description) -> str:
    """The whole file."""
    refuse(described)
    derived, weights = [], []
    for place in range(len(described.columns)):
        own, names = of_column(described, place)
        derived += own
        weights += names
    for number, cross in enumerate(described.crosses):
        derived += of_cross(number, cross)
        weights.append(name_of("x", number))
    fields = [data_field(column.name, column.reads) for column in described.columns]
    mined = [f'<MiningField name={quoteattr(column.name)} invalidValueTreatment="asIs"/>' for column in described.columns]
    predictors = [f'<NumericPredictor name="{name}" coefficient="1"/>' for name in weights]
    lines = [HEAD, "<DataDictionary>", *fields, "</DataDictionary>"]
    lines += ["<TransformationDictionary>", *derived, "</TransformationDictionary>"]
    lines += ['<RegressionModel functionName="regression">', "<MiningSchema>", *mined, "</MiningSchema>", *output()]
    lines += [f'<RegressionTable intercept="{described.intercept!r}">', *predictors, "</RegressionTable>"]
    return "\n".join([*lines, "</RegressionModel>", "</PMML>", ""])


def refuse(described: Description) -> None:
    """Refuse what PMML cannot hold."""
    for column in described.columns:
        if column.reads in ("list", "moment"):
            kind = {"list": "lists", "moment": "times"}[column.reads]
            raise OptionError(
                f"Column {column.name!r} holds {kind}, which PMML does not have. Leave it out by exclude, or choose another format."
            )
        if not column.name or column.name in OUTPUTS or column.name.startswith(EXPORT_MARK) or ILLEGAL.search(column.name):
            raise OptionError(f"A column of PMML cannot be called {column.name!r}. Rename it and fit again.")
    for field in described.fields:
        for text in field.texts or []:
            if ILLEGAL.search(text):
                raise OptionError(
                    f"Column {field.name!r} has the category {text!r:.99}, with a character that XML cannot hold. Export to "
                    "another format, or replace it and fit again."
                )
    terms: list[Field | Cross] = [*described.fields, *described.crosses]
    for one in terms:
        if one.n_buckets or (isinstance(one, Cross) and one.hashed):
            raise OptionError(f"{one.name!r} has hashed codes, and PMML does not have the hash. Export to c, python or json.")


def name_of(kind: str, number: int) -> str:
    """The name of a derived field, which no column has."""
    return f"{EXPORT_MARK}/{kind}{number}"


def data_field(name: str, reads: str) -> str:
    """A column."""
    if reads == "number":
        return f"<DataField name={quoteattr(name)} {DOUBLE}/>"
    missing = "".join(f'<Value value={quoteattr(text)} property="missing"/>' for text in sorted(MISSING_TEXTS))
    return f'<DataField name={quoteattr(name)} optype="categorical" dataType="string">{missing}</DataField>'


def output() -> list[str]:
    """The log-odds, and the probability as a function of them."""
    negative = '<Apply function="*"><Constant>-1</Constant><FieldRef field="log_odds"/></Apply>'
    odds = f'<Apply function="+"><Constant>1</Constant><Apply function="exp">{negative}</Apply></Apply>'
    return [
        "<Output>",
        f'<OutputField name="log_odds" {DOUBLE} feature="predictedValue"/>',
        f'<OutputField name="probability" {DOUBLE} feature="transformedValue">',
        f'<Apply function="/"><Constant>1.0</Constant>{odds}</Apply>',
        "</OutputField>",
        "</Output>",
    ]


def cell(text: str) -> str:
    """The content of a cell. A carriage return would be read as a line feed."""
    return escape(text, {"\r": "&#13;"})


def table(name: str, source: str, rows: Iterable[tuple[str, object]], missing: object, otherwise: object) -> list[str]:
    """A field that has what a table says about the value of another field."""
    attributes = f'outputColumn="data:to" dataType="double" mapMissingTo="{missing}" defaultValue="{otherwise}"'
    return [
        f'<DerivedField name="{name}" {DOUBLE}><MapValues {attributes}>',
        f'<FieldColumnPair field={quoteattr(source)} column="data:from"/><InlineTable>',
        *(f"<row><data:from>{key}</data:from><data:to>{value}</data:to></row>" for key, value in rows),
        "</InlineTable></MapValues></DerivedField>",
    ]


def of_column(described: Description, place: int) -> tuple[list[str], list[str]]:
    """The derived fields of a column: codes that crosses need, and weights, whose names come second."""
    column, numbers = described.columns[place], described.fields_of(place)
    lines: list[str] = []
    if column.reads == "text":
        for own in numbers:
            one = described.fields[own]
            known = {text: FIRST + at for at, text in enumerate(one.texts or [])}
            known |= {word: known.get(text, RARE) for word, text in column.words.items() if word not in known}
            rows = [(cell(text), code) for text, code in known.items()]
            lines += table(name_of("c", own), column.name, rows, MISSING, RARE)
            by_code = [(str(float(code)), repr(weight)) for code, weight in enumerate(one.weights)]
            lines += table(name_of("w", own), name_of("c", own), by_code, "0", "0")
        return lines, [name_of("w", own) for own in numbers]
    fields = [described.fields[own] for own in numbers]
    edges = sorted({edge for one in fields for edge in one.edges or []})
    together = np.zeros(len(edges) + 1)
    for own, one in zip(numbers, fields, strict=True):
        together += np.array(one.weights)[
            FIRST + np.concatenate([[0], np.searchsorted(one.edges or [], edges, side="right")]).astype(int)
        ]
        if own in described.crossed:
            lines += bins(name_of("c", own), column.name, one.edges or [], range(FIRST, len(one.weights)), MISSING)
    missing = sum(one.weights[MISSING] for one in fields)
    if not fields:
        return [], []
    return lines + bins(name_of("w", numbers[0]), column.name, edges, together.tolist(), missing), [name_of("w", numbers[0])]


def bins(name: str, source: str, edges: Sequence[float], values: Iterable[object], missing: object) -> list[str]:
    """A field that has a value for each interval between edges."""
    first, *others = values
    if not edges:
        is_missing = f'<Apply function="isMissing"><FieldRef field={quoteattr(source)}/></Apply>'
        choice = f"{is_missing}<Constant>{missing!r}</Constant><Constant>{first!r}</Constant>"
        return [f'<DerivedField name="{name}" {DOUBLE}><Apply function="if">{choice}</Apply></DerivedField>']
    intervals = [f'<DiscretizeBin binValue="{first!r}"><Interval closure="openOpen" rightMargin="{edges[0]!r}"/></DiscretizeBin>']
    for number, value in enumerate(others):
        right = f' rightMargin="{edges[number + 1]!r}"' if number + 1 < len(edges) else ""
        interval = f'<Interval closure="closedOpen" leftMargin="{edges[number]!r}"{right}/>'
        intervals.append(f'<DiscretizeBin binValue="{value!r}">{interval}</DiscretizeBin>')
    return [
        f'<DerivedField name="{name}" {DOUBLE}><Discretize field={quoteattr(source)} mapMissingTo="{missing!r}" dataType="double">',
        *intervals,
        "</Discretize></DerivedField>",
    ]


def of_cross(number: int, cross: Cross) -> list[str]:
    """The derived fields of a cross: its key, which doubles hold exactly, and its weight."""
    key = f'<FieldRef field="{name_of("c", cross.fields[0])}"/>'
    for own, size in zip(cross.fields[1:], cross.sizes[1:], strict=True):
        code = f'<FieldRef field="{name_of("c", own)}"/>'
        key = f'<Apply function="+"><Apply function="*">{key}<Constant dataType="double">{size}</Constant></Apply>{code}</Apply>'
    rows = [(str(float(own)), repr(weight)) for own, weight in zip(cross.keys, cross.weights[FIRST:], strict=True)]
    return [
        f'<DerivedField name="{name_of("k", number)}" {DOUBLE}>{key}</DerivedField>',
        *table(name_of("x", number), name_of("k", number), rows, "0", repr(cross.weights[RARE])),
    ]
