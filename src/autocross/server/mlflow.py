"""The protocol of MLflow's scoring server. A prediction is the probability of the positive label."""

from __future__ import annotations

import csv
import io
from typing import Any

import autocross
from autocross.checks import shown
from autocross.server.limits import Refused, check_count
from autocross.server.payload import Row, from_columns, parse, rows_of
from autocross.server.service import Answer, Call, answer, text

FORMS = ("dataframe_split", "dataframe_records", "instances", "inputs")
CONTENT_TYPES = ("application/json", "text/csv")


async def ping(call: Call) -> Answer:
    """The server runs."""
    return text("\n")


async def version(call: Call) -> Answer:
    """The version of autocross."""
    return text(autocross.__version__)


async def invocations(call: Call) -> Answer:
    """Predictions for a table: JSON with dataframe_split, dataframe_records, instances or inputs, or CSV with a header."""
    kind = call.header(b"content-type").partition(";")[0].strip().lower()
    if kind not in CONTENT_TYPES:
        raise Refused(415, f"The content type {shown(kind)} is not known. Send {' or '.join(CONTENT_TYPES)}.")
    model, content = call.find(), await call.content()
    limits = call.service.limits
    rows = of_csv(content, limits.rows) if kind == "text/csv" else of_json(parse(content, limits.depth, nan=True), limits.rows)
    return answer({"predictions": await call.score(model, rows)})


def of_json(value: Any, most: int) -> list[Row]:
    """The rows of a request. Exactly one of the four forms must be there; parameters of a prediction are not used."""
    forms = [form for form in FORMS if form in value] if type(value) is dict else []
    if len(forms) != 1:
        raise Refused(400, f"The body must be an object with exactly one of: {', '.join(FORMS)}.")
    form = forms[0]
    given = value[form]
    if form == "dataframe_split":
        return of_split(given, most)
    if type(given) is dict and form != "dataframe_records":
        return of_named_columns(given, form, most)
    if type(given) is not list:
        raise Refused(422, f"{form} must be a list of rows.", field=form)
    if any(type(row) is list for row in given):
        raise Refused(422, f"{form} has rows without names, and a model does not keep the order of columns. Name them.", field=form)
    return rows_of(given, most)


def of_split(given: Any, most: int) -> list[Row]:
    """Rows from names of columns and lists of cells."""
    if type(given) is not dict or type(given.get("data")) is not list or type(given.get("columns")) is not list:
        raise Refused(422, "dataframe_split must be an object with the lists columns and data.", field="dataframe_split")
    names, rows = given["columns"], given["data"]
    if any(type(name) is not str for name in names) or len({*names}) < len(names):
        raise Refused(422, "columns must be texts, each one once.", field="columns")
    check_count(len(rows), most)
    for number, cells in enumerate(rows):
        if type(cells) is not list or len(cells) != len(names):
            raise Refused(422, f"Row {number} must be a list of {len(names)} values, one for each of the columns.", number)
    return rows_of([dict(zip(names, cells, strict=True)) for cells in rows], most)


def of_named_columns(given: dict[str, Any], form: str, most: int) -> list[Row]:
    """Rows from a list of values for each column."""
    lengths = {len(values) if type(values) is list else -1 for values in given.values()}
    if len(lengths) != 1 or -1 in lengths:
        raise Refused(422, f"{form} must have a list for each column, all of one length.", field=form)
    check_count(max(lengths), most)
    return rows_of(from_columns(list(given), list(given.values())), most)


def of_csv(content: bytes, most: int) -> list[Row]:
    """Rows of a CSV file with a header. An empty cell is a missing value."""
    try:
        lines = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        names = next(lines, [])
        if not names or len({*names}) < len(names):
            raise Refused(422, "The first line must name the columns, each one once.")
        rows: list[Row] = []
        for cells in lines:
            if not cells:
                continue
            if len(cells) != len(names):
                raise Refused(422, f"Row {len(rows)} has {len(cells)} cells, but there are {len(names)} columns.", len(rows))
            check_count(len(rows) + 1, most)
            rows.append(dict(zip(names, cells, strict=True)))
        return rows
    except UnicodeDecodeError as error:
        raise Refused(400, f"The body is not UTF-8: byte {error.start} cannot be read.") from None
    except csv.Error as error:
        raise Refused(400, f"The body is no CSV: {error}.") from None
