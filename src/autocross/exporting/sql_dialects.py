"""How databases differ: how a cell of any type is read as a number, a text, a list or a moment, and how names and texts are quoted.

Cells are read as `autocross.table.values` reads them. A cell that cannot be read is an error of the query.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from autocross.table.values import BLANKS, MISSING_TEXTS

NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
WHOLE = r"^[+-]?[0-9]+$"
ENDLESS = r"^[+-]?[iI][nN][fF]([iI][nN][iI][tT][yY])?$"
NAN = r"^[+-]?[nN][aA][nN]$"
ZONE = r"(:[0-9.]+)(Z|[+-][0-9:]+)$"
CONTROL = re.compile("([\x00-\x1f\x7f-\x9f\u2028\u2029])")
EXACT_DIGITS = 15  # that every database reads without rounding


def identifier(name: str) -> str:
    """A name of a column or a table."""
    return '"' + name.replace('"', '""') + '"'


def number(value: float) -> str:
    """A number as a literal. With an exponent no database takes it for a decimal of few digits."""
    text = repr(value)
    return text if "e" in text else f"{text}e0"


@dataclass(frozen=True)
class Dialect:
    """What differs between databases; this one is DuckDB, and the others are children."""

    name: str = "duckdb"
    text_type: str = "VARCHAR"
    float_type: str = "DOUBLE"
    divide: str = "//"  # whole numbers, rounded towards zero
    character: str = "chr"  # the function that gives a character by its number
    folds_case: bool = True  # whether names are equal if they differ in case only

    def literal(self, text: str) -> str:
        """A text as a literal. Control characters stand there by their numbers: not every program that reads a query keeps them."""
        pieces = [
            f"{self.character}({ord(piece)})" if CONTROL.fullmatch(piece) else self.quoted(piece)
            for piece in CONTROL.split(text)
            if piece
        ]
        return "(" + " || ".join(pieces) + ")" if len(pieces) > 1 else "".join(pieces) or "''"

    def quoted(self, text: str) -> str:
        """A text without control characters as a literal."""
        return "'" + text.replace("'", "''") + "'"

    def holds(self, text: str) -> bool:
        """Whether the database can hold this text at all."""
        return True

    def edge(self, value: float) -> str:
        """A number that others are compared with, so that not even its last bit may differ."""
        return number(value)

    @property
    def blanks(self) -> str:
        """The characters of white space, as a text."""
        return " || ".join(f"chr({ord(blank)})" for blank in BLANKS)

    def or_null(self, text: str) -> str:
        """A text, or null if it means missing."""
        words = ", ".join(self.literal(word) for word in sorted(MISSING_TEXTS))
        return f"CASE WHEN {text} IN ({words}) THEN NULL ELSE {text} END"

    def as_text(self, cell: str) -> str:
        """The text of a cell of any type."""
        return f"CAST({cell} AS {self.text_type})"

    def text_of_number(self, cell: str) -> str:
        """The text of a cell of a column of numbers, if it is needed to read the number."""
        return f"CASE WHEN typeof({cell}) = 'VARCHAR' THEN {self.as_text(cell)} END"

    def stripped(self, text: str) -> str:
        """A text without white space around it."""
        return f"trim({text}, w.blanks)"

    def matches(self, text: str, pattern: str) -> str:
        return f"regexp_matches({text}, '{pattern}')"

    def replaced(self, text: str, pattern: str, by: str) -> str:
        return f"regexp_replace({text}, '{pattern}', '{by}')"

    def pairs(self, keys: Sequence[str], weights: Sequence[str]) -> str:
        """A query of keys and weights. A text that becomes a list is read much faster than as many rows."""
        return f"SELECT unnest('[{', '.join(keys)}]'::BIGINT[]), unnest('[{', '.join(weights)}]'::DOUBLE[])"

    # Cells, by what they are read as. ``bare`` is a column that has the text of the cell without white space around it.

    def as_number(self, cell: str, bare: str) -> str:
        """A number, or null."""
        of_text = f"CAST({self.or_null(bare)} AS {self.float_type})"
        return f"nullif(CASE WHEN typeof({cell}) = 'VARCHAR' THEN {of_text} ELSE CAST({cell} AS DOUBLE) END, 'NaN'::DOUBLE)"

    def digits(self, cell: str, text: str, bare: str) -> tuple[str, str]:
        """A category that was a number in training: its text, and its number if it is not written as a whole one."""
        missing = f"{self.or_null(text)} IS NULL OR {self.or_null(bare)} IS NULL OR {self.matches(bare, NAN)}"
        whole = self.replaced(self.replaced(bare, r"^\+", ""), "^(-?)0+([0-9])", r"\1\2")
        endless = f"CASE WHEN {bare} LIKE '-%' THEN '-inf' ELSE 'inf' END"
        as_text = (
            f"CASE WHEN {missing} THEN NULL WHEN {self.matches(bare, ENDLESS)} THEN {endless} "
            f"WHEN {self.matches(bare, WHOLE)} THEN CASE WHEN {whole} = '-0' THEN '0' ELSE {whole} END ELSE {text} END"
        )
        spelled = f"{self.matches(bare, NUMBER)} AND NOT {self.matches(bare, WHOLE)}"
        return as_text, f"CASE WHEN {spelled} THEN {self.float_of(bare)} END"

    def float_of(self, bare: str) -> str:
        """The number that a text spells."""
        return f"TRY_CAST({bare} AS DOUBLE)"

    def micros(self, bare: str) -> str:
        """The microseconds since 1970 of a moment, or null."""
        return f"epoch_us(CAST({self.wall_clock(self.or_null(bare))} AS TIMESTAMP))"

    def wall_clock(self, text: str) -> str:
        """A moment as text with its date, and without its zone and what is finer than a microsecond."""
        cut = self.replaced(self.replaced(text, ZONE, r"\1"), r"(\.[0-9]{6})[0-9]+$", r"\1")
        seconds = self.replaced(cut, "^([^:]*:[0-9]{2})$", r"\1:00")
        return f"CASE WHEN {text} LIKE '%-%-%' THEN {seconds} ELSE '1970-01-01 ' || {seconds} END"

    def as_list(self, cell: str, text: str, separator: str | None) -> str:
        """A list of texts, or null."""
        pieces = f"[{text}]"
        if separator is not None:
            pieces = f"[trim(x, w.blanks) for x in string_split({text}, {self.literal(separator)})]"
        of_text = f"CASE WHEN {self.or_null(text)} IS NULL THEN NULL ELSE {pieces} END"
        return f"CASE WHEN typeof({cell}) = 'VARCHAR' THEN {of_text} ELSE CAST({cell} AS VARCHAR[]) END"

    def entries(self, rows: str, column: str) -> str:
        """A query of the entries of a list: the number of the row, and a text."""
        return f"SELECT n, unnest({column}) AS value FROM {rows} WHERE {column} IS NOT NULL"


@dataclass(frozen=True)
class Postgres(Dialect):
    """PostgreSQL 12 or newer."""

    name: str = "postgres"
    text_type: str = "text"
    float_type: str = "double precision"
    divide: str = "/"
    folds_case: bool = False

    def quoted(self, text: str) -> str:
        """An escaping literal if there is a backslash, which means the same whatever standard_conforming_strings says."""
        quoted = "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
        return f"E{quoted}" if "\\" in text else quoted

    def holds(self, text: str) -> bool:
        return "\0" not in text

    def text_of_number(self, cell: str) -> str:
        return self.as_text(cell)

    def stripped(self, text: str) -> str:
        return f"btrim({text}, w.blanks)"

    def matches(self, text: str, pattern: str) -> str:
        return f"{text} ~ {self.literal(pattern)}"

    def replaced(self, text: str, pattern: str, by: str) -> str:
        return f"regexp_replace({text}, {self.literal(pattern)}, {self.literal(by)})"

    def as_number(self, cell: str, bare: str) -> str:
        """Single floats have to be read as such, and booleans are 0 or 1."""
        kind = f"pg_typeof({cell})::text"
        booleans = f"CASE {bare} WHEN 'true' THEN 1.0 WHEN 'false' THEN 0.0 END"
        cases = f"WHEN 'real' THEN {bare}::real::double precision WHEN 'boolean' THEN {booleans}"
        return f"nullif(CASE {kind} {cases} ELSE ({self.or_null(bare)})::double precision END, 'NaN'::double precision)"

    def pairs(self, keys: Sequence[str], weights: Sequence[str]) -> str:
        lists = f"'{{{', '.join(keys)}}}'::bigint[], '{{{', '.join(weights)}}}'::double precision[]"
        return f"SELECT * FROM unnest({lists})"

    def float_of(self, bare: str) -> str:
        return f"{bare}::double precision"

    def micros(self, bare: str) -> str:
        moment = f"({self.wall_clock(self.or_null(bare))})::timestamp"
        return f"CAST(extract(epoch FROM {moment}) * 1000000 AS bigint)"

    def as_list(self, cell: str, text: str, separator: str | None) -> str:
        pieces = f"ARRAY[{text}]"
        if separator is not None:
            split = f"unnest(string_to_array({text}, {self.literal(separator)})) AS piece"
            pieces = f"(SELECT array_agg(btrim(piece, w.blanks)) FROM {split})"
        of_text = f"CASE WHEN {self.or_null(text)} IS NULL THEN NULL ELSE {pieces} END"
        is_text = f"pg_typeof({cell})::text IN ('text', 'character varying', 'character')"
        return f"CASE WHEN {is_text} THEN {of_text} ELSE {text}::text[] END"


@dataclass(frozen=True)
class Sqlite(Dialect):
    """SQLite 3.35 or newer, with its mathematical functions. It has neither regular expressions nor types of its own for times and
    lists: times are ISO texts, and lists are JSON texts."""

    name: str = "sqlite"
    text_type: str = "TEXT"
    float_type: str = "REAL"
    divide: str = "/"
    character: str = "char"

    def edge(self, value: float) -> str:
        """SQLite may round the last of many digits. A fraction of whole numbers is exact."""
        text = number(value)
        exact = Fraction(value)
        if len(text.partition("e")[0].strip("-0").replace(".", "")) <= EXACT_DIGITS or exact.denominator > 1 << 62:
            return text
        return text if abs(exact.numerator) > 1 << 53 else f"({exact.numerator} / {exact.denominator}.0)"

    @property
    def blanks(self) -> str:
        return f"char({', '.join(str(ord(blank)) for blank in BLANKS)})"

    def text_of_number(self, cell: str) -> str:
        return f"CASE typeof({cell}) WHEN 'text' THEN {cell} END"

    def pairs(self, keys: Sequence[str], weights: Sequence[str]) -> str:
        if not keys:
            return "SELECT 0, 0e0 WHERE 1 = 0"
        return "VALUES " + ", ".join(f"({key}, {weight})" for key, weight in zip(keys, weights, strict=True))

    def refusal(self, text: str) -> str:
        """An expression whose value is an error."""
        return f"json('cannot be read: ' || {text})"

    def as_number(self, cell: str, bare: str) -> str:
        body = f"lower(ltrim({bare}, '+-'))"
        sign = f"CASE WHEN {bare} LIKE '-%' THEN -1 ELSE 1 END"
        of_text = (
            f"CASE WHEN {self.or_null(bare)} IS NULL OR {body} = 'nan' THEN NULL WHEN {self.is_spelled(bare)} THEN "
            f"CAST({bare} AS REAL) WHEN {body} IN ('inf', 'infinity') THEN {sign} * 9e999 ELSE {self.refusal(bare)} END"
        )
        return f"CASE typeof({cell}) WHEN 'text' THEN {of_text} ELSE CAST({cell} AS REAL) END"

    def is_spelled(self, bare: str) -> str:
        """Whether a text spells a number: compared with a number it becomes one, or else it is above all numbers."""
        return f"({bare} GLOB '*[0-9]*' AND {bare} NOT GLOB '*[^0-9.eE+-]*' AND NOT {bare} > CAST(9e999 AS REAL))"

    def digits(self, cell: str, text: str, bare: str) -> tuple[str, str]:
        body = f"CASE WHEN substr({bare}, 1, 1) IN ('+', '-') THEN substr({bare}, 2) ELSE {bare} END"
        zeros = f"ltrim({body}, '0')"
        whole = f"CASE WHEN {zeros} = '' THEN '0' WHEN {bare} LIKE '-%' THEN '-' || {zeros} ELSE {zeros} END"
        is_whole = f"({body} <> '' AND {body} NOT GLOB '*[^0-9]*')"
        endless = f"CASE WHEN {bare} LIKE '-%' THEN '-inf' ELSE 'inf' END"
        real = f"CASE {cell} WHEN 9e999 THEN 'inf' WHEN -9e999 THEN '-inf' ELSE '' END"
        missing = f"{self.or_null(text)} IS NULL OR {self.or_null(bare)} IS NULL OR lower({body}) = 'nan'"
        as_text = (
            f"CASE WHEN {missing} THEN NULL WHEN typeof({cell}) = 'real' THEN {real} "
            f"WHEN lower({body}) IN ('inf', 'infinity') THEN {endless} WHEN {is_whole} THEN {whole} ELSE {text} END"
        )
        is_number = f"typeof({cell}) = 'real' AND abs({cell}) < 9e999"
        spelled = f"typeof({cell}) = 'text' AND NOT {is_whole} AND {self.is_spelled(bare)}"
        return as_text, f"CASE WHEN {is_number} THEN {cell} WHEN {spelled} THEN CAST({bare} AS REAL) END"

    def micros(self, bare: str) -> str:
        text = self.wall_clock(bare)
        fraction = f"CAST(substr(substr({text}, 21) || '000000', 1, 6) AS INTEGER)"
        seconds = f"CAST(strftime('%s', substr({text}, 1, 19)) AS INTEGER)"
        micros = f"coalesce({seconds}, {self.refusal(bare)}) * 1000000 + {fraction}"
        return f"CASE WHEN {self.or_null(bare)} IS NULL THEN NULL ELSE {micros} END"

    def wall_clock(self, text: str) -> str:
        dated = f"CASE WHEN {text} LIKE '%-%-%' THEN {text} ELSE '1970-01-01 ' || {text} END"
        long_zone = f"length({text}) > 16 AND substr({text}, -6, 1) IN ('+', '-')"
        short_zone = f"length({text}) > 16 AND substr({text}, -5, 1) IN ('+', '-')"
        cut = f"WHEN {text} LIKE '%Z' THEN rtrim({text}, 'Z') WHEN {long_zone} THEN substr({text}, 1, length({text}) - 6) "
        return f"CASE {cut}WHEN {short_zone} THEN substr({text}, 1, length({text}) - 5) ELSE {dated} END"

    def as_list(self, cell: str, text: str, separator: str | None) -> str:
        pieces = f"json_array({text})"
        if separator is not None:
            inner = self.literal(json.dumps(separator, ensure_ascii=False)[1:-1])
            split = f"json_each('[' || replace(json_quote({text}), {inner}, '\",\"') || ']')"
            pieces = f"(SELECT json_group_array(trim(value, w.blanks)) FROM {split})"
        is_list = f"json_valid({text}) AND substr(ltrim({text}), 1, 1) = '['"
        return f"CASE WHEN {self.or_null(text)} IS NULL THEN NULL WHEN {is_list} THEN {text} ELSE {pieces} END"

    def entries(self, rows: str, column: str) -> str:
        return f"SELECT n, CAST(value AS TEXT) AS value FROM {rows}, json_each({rows}.{column}) WHERE {column} IS NOT NULL"


DIALECTS = {dialect.name: dialect for dialect in (Dialect(), Postgres(), Sqlite())}
