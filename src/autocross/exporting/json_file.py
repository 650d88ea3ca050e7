"""The description of a model as JSON. `docs/exports.md` has its schema and a reader of forty lines."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from autocross.crossing import MODULUS, MOST_ENTRIES
from autocross.exporting.description import VERSION, Description
from autocross.table.outputs import EXPORT_MARK
from autocross.table.values import BLANKS, MISSING_TEXTS


def document(described: Description) -> dict[str, Any]:
    """The description as JSON has it: with what a reader must know of every model, and without entries that are empty."""
    facts = {name: value for name, value in asdict(described).items() if value is not None}
    for kind in ("columns", "fields", "crosses"):
        facts[kind] = [{name: value for name, value in one.items() if value is not None} for one in facts[kind]]
    return {
        "format": EXPORT_MARK,
        "version": VERSION,
        "missing": sorted(MISSING_TEXTS),
        "blanks": BLANKS,
        "modulus": MODULUS,
        "most_entries": MOST_ENTRIES,
        **facts,
    }


def lines(described: Description) -> list[str]:
    """The document in lines: one for each column, field and cross."""
    entries = []
    for name, value in document(described).items():
        if name in ("columns", "fields", "crosses") and value:
            inner = ",\n".join(f"  {json.dumps(one, allow_nan=False)}" for one in value)
            entries.append(f"{json.dumps(name)}: [\n{inner}\n]")
        else:
            entries.append(f"{json.dumps(name)}: {json.dumps(value, allow_nan=False)}")
    return ("{\n" + ",\n".join(entries) + "\n}\n").split("\n")[:-1]


def render(described: Description) -> str:
    """The whole file, in ASCII."""
    return "\n".join(lines(described)) + "\n"
