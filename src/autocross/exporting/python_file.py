"""A model as one Python file that needs the standard library only: the text of `reader.py`, and the model behind it."""

from __future__ import annotations

from pathlib import Path

from autocross.exporting import json_file, reader
from autocross.exporting.description import Description

HEAD = '''"""An autocross-model 1. `score_one(row)` gives the probability of the positive label for one row, which is a mapping from
names of columns to values. An absent column counts as missing."""
'''
TAIL = '''

def score_one(row: Mapping[str, Any]) -> float:
    """The probability of the positive label for one row."""
    return READER.score_one(row)


def log_odds_one(row: Mapping[str, Any]) -> float:
    """The log-odds of the positive label for one row."""
    return READER.log_odds_one(row)
'''
REASONS = '''

def reasons_one(row: Mapping[str, Any]) -> dict[str, float]:
    """What each column adds to the log-odds of one row, compared with the mean of the training rows."""
    return READER.reasons_one(row)
'''


def render(described: Description) -> str:
    """The whole file, in ASCII. The model is text that only `json.loads` reads, so no name or value in it can be code."""
    source = Path(reader.__file__).read_text(encoding="utf-8").partition("from __future__")
    code = f"{source[1]}{source[2]}".replace("import math\n", "import json\nimport math\n", 1)
    model = "\n".join(f"    {line!a}" for line in json_file.lines(described))
    return f"{HEAD}\n{code}\n\nREADER = Reader(json.loads(\n{model}\n))\n{TAIL}{REASONS if described.mean is not None else ''}"
