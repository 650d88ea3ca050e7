"""From the bytes of a request to rows. Whatever is wrong with them is said, with the row and the field where it is."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from autocross.checks import shown
from autocross.server.limits import Refused, check_count

decode = msgspec.json.Decoder().decode
PLAIN = frozenset({str, int, float, bool, type(None)})
is_plain = PLAIN.issuperset  # of types; the loop is inside, so that common rows cost little
WORDS = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    type(None): "null",
}
Row = dict[str, Any]


class Beyond:
    """Stands for a number that no float can hold."""


def parse(body: bytes, depth: int, nan: bool = False) -> Any:
    """The JSON of a body. Objects with a key twice are refused, as are numbers beyond floats, and what is nested too deeply.

    JSON has no NaN, but some clients write it for a missing value; with ``nan``, they may.
    """
    if not body:
        raise Refused(400, "The body is empty. Send JSON.")
    try:
        value = decode(body)
    except RecursionError:
        raise too_deep() from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        value = look_closely(body, missing_constant if nan else refuse_constant)
        if not (nan and b"NaN" in body):
            raise Refused(400, f"The body is no JSON that can be read: {error}.") from None
    # An object has a colon for each key. Where there are more colons than keys, they are in texts, or a key is there twice.
    if survey(value, depth) != body.count(b":"):
        look_closely(body, missing_constant if nan else refuse_constant)
    return value


def survey(value: Any, room: int) -> int:
    """The number of keys of all objects. Refuses what is nested more deeply than there is room for."""
    kind = type(value)
    if kind is not dict and kind is not list:
        return 0
    if room <= 0:
        raise too_deep()
    n_keys = 0
    if kind is dict:
        n_keys, value = len(value), value.values()
    if is_plain(map(type, value)):
        return n_keys
    for entry in value:
        if type(entry) is dict or type(entry) is list:
            n_keys += survey(entry, room - 1)
    return n_keys


def too_deep() -> Refused:
    return Refused(400, "The body has lists or objects nested too deeply. A row is a flat object; a cell may hold a list.")


def look_closely(body: bytes, constant: Callable[[str], None]) -> Any:
    """Read the JSON again, slowly, to find a key that is there twice, or a number that no float can hold."""
    try:
        return json.loads(body, object_pairs_hook=checked_pairs, parse_constant=constant, parse_int=whole)
    except RecursionError:
        raise too_deep() from None
    except json.JSONDecodeError as error:
        raise Refused(400, f"The body is no JSON: {error.msg}, at line {error.lineno}, column {error.colno}.") from None
    except UnicodeDecodeError as error:
        raise Refused(400, f"The body is not UTF-8: byte {error.start} cannot be read.") from None


def checked_pairs(pairs: list[tuple[str, Any]]) -> Row:
    """An object, if no key is there twice and every number is one."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise Refused(400, f"An object has the key {shown(name)} twice. Give it once.", field=name)
            seen.add(name)
    for name, value in pairs:
        for entry in value if isinstance(value, list) else (value,):
            if entry is Beyond or (isinstance(entry, float) and math.isinf(entry)):
                raise Refused(
                    400, f"Field {shown(name)} holds a number that is too large. Give one that a float can hold.", field=name
                )
    return found


def refuse_constant(name: str) -> None:
    raise Refused(400, f"The body holds {name}, which JSON does not have. Write null for a missing value.")


def missing_constant(name: str) -> None:
    """NaN is a missing value."""
    if name != "NaN":
        refuse_constant(name)


def whole(text: str) -> Any:
    """A whole number, unless it has too many digits for Python to read."""
    try:
        return int(text)
    except ValueError:
        return Beyond


def rows_of(value: Any, most: int) -> list[Row]:
    """The rows of an object or a list of objects, checked."""
    rows = value if isinstance(value, list) else [value]
    check_count(len(rows), most)
    single = not isinstance(value, list)
    for number, row in enumerate(rows):
        check_row(row, None if single else number)
    return rows


def check_row(row: Any, number: int | None) -> None:
    """Refuse what is no row. A cell holds one value, or a list of values."""
    if type(row) is not dict:
        place = "The body" if number is None else f"Row {number}"
        raise Refused(422, f"{place} is {WORDS[type(row)]}. Give an object with a value for each column.", number)
    if is_plain(map(type, row.values())):
        return
    for name, value in row.items():
        kind = type(value)
        if kind in PLAIN:
            continue
        odd = next((entry for entry in value if type(entry) not in PLAIN), None) if kind is list else value
        if odd is not None:
            within = " a list with" if kind is list else ""
            raise Refused(
                422,
                f"Field {shown(name)}{'' if number is None else f' of row {number}'} holds{within} {WORDS[type(odd)]}. "
                "Give a text, a number, true, false, null, or a list of these.",
                number,
                name,
            )


def from_columns(names: Sequence[Any], columns: Sequence[Sequence[Any]]) -> list[Row]:
    """Rows from columns of one length."""
    return [dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True)]
