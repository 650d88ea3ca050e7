"""A model as one SQL query. It reads a table and gives, for every row, its key, the log-odds and the probability.

The query is a chain of stages, `autocross_1`, `autocross_2` and so on. Each has all columns of the one before and some more: first
the cells as they are (r), as texts (t, b) and as values (v, u), then codes of fields (c), weights of fields (w) and of crosses (x).
Texts, keys and their weights stand in tables of their own, to which rows are joined.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from autocross.crossing import MODULUS, MOST_ENTRIES
from autocross.errors import OptionError
from autocross.exporting.description import Column, Cross, Description, Field
from autocross.exporting.sql_dialects import DIALECTS, Dialect, identifier, number
from autocross.features import FIRST, MISSING, RARE
from autocross.table.outputs import EXPORT_MARK
from autocross.table.values import MISSING_TEXTS, number_text, spelled_number

DAY = 86_400_000_000
TOGETHER = 15  # tables that a stage joins; SQLite takes at most 64
PREFIX = "autocross_"
Items = list[tuple[str, str]]


def render(described: Description, dialect: str | None, table: str | None, key: str | None) -> str:
    """The whole query."""
    query = Query(described, DIALECTS[dialect or "duckdb"], "input" if table is None else table, key)
    query.refuse()
    query.cells()
    query.moments()
    query.codes()
    query.texts()
    query.lists()
    query.crosses()
    return query.text()


def sum_of(terms: Sequence[str]) -> str:
    """A sum whose parentheses are not deep."""
    if len(terms) <= 2:
        return " + ".join(terms) or "0e0"
    half = len(terms) // 2
    return f"({sum_of(terms[:half])}) + ({sum_of(terms[half:])})"


def cases(value: str, results: Iterable[tuple[object, object]], otherwise: object) -> str:
    """What stands for each value."""
    whens = " ".join(f"WHEN {one} THEN {result}" for one, result in results)
    return f"CASE {value} {whens} ELSE {otherwise} END" if whens else str(otherwise)


def texts_of(one: Field, column: Column) -> dict[str, int]:
    """The codes of all texts of a field; words that stand for one of them included."""
    known = {text: FIRST + place for place, text in enumerate(one.texts or [])}
    return known | {word: known.get(text, RARE) for word, text in column.words.items()}


def number_of(text: str) -> float | None:
    """The number that is written like this, if there is one."""
    try:
        found = spelled_number(text)
    except ValueError:
        return None
    return found if number_text(found) == text and abs(found) < float("inf") else None


@dataclass
class Query:
    """A query while it is written: tables and stages, each with a name."""

    described: Description
    dialect: Dialect
    table: str
    key: str | None
    parts: list[str] = field(default_factory=list)
    n_stages: int = 0

    def refuse(self) -> None:
        """Refuse what a query cannot hold."""
        terms: list[Field | Cross] = [*self.described.fields, *self.described.crosses]
        for one in terms:
            if one.n_buckets:
                raise OptionError(
                    f"{one.name!r} has hashed codes, because it has more than a million values, and databases do not have the "
                    "hash. Export to c, python or json, or fit with a larger min_count."
                )
        for name in (self.table, *([] if self.key is None else [self.key]), *(column.name for column in self.described.columns)):
            if not name or "\0" in name:
                raise OptionError(f"{name!r} cannot be the name of a table or a column in SQL. Give it another name.")
        if self.table.lower().startswith(PREFIX):
            raise OptionError(f"--table {self.table!r} begins like the query's own tables. Give it another name.")
        seen: dict[str, str] = {}
        for column in self.described.columns if self.dialect.folds_case else ():
            if seen.setdefault(column.name.lower(), column.name) != column.name:
                raise OptionError(
                    f"Columns {seen[column.name.lower()]!r} and {column.name!r} differ in case only, which {self.dialect.name} "
                    "does not tell apart. Rename one of them and fit again, or export with --dialect postgres."
                )

    # Writing.

    @property
    def rows(self) -> str:
        """The last stage."""
        return f"{PREFIX}{self.n_stages}"

    def stage(self, items: Items, joins: Iterable[str] = (), source: str | None = None) -> None:
        """Add a stage with more columns. In joins and expressions, s is the stage before."""
        if not items:
            return
        chosen = ",\n    ".join(f"{expression} AS {name}" for name, expression in items)
        origin = source or f"{self.rows} AS s"
        first = "" if source else "s.*, "
        joined = "".join(f"\n    LEFT JOIN {join}" for join in joins)
        self.n_stages += 1
        self.parts.append(f"{self.rows} AS MATERIALIZED (\n  SELECT {first}\n    {chosen}\n  FROM {origin}{joined}\n)")

    def values(self, name: str, columns: Sequence[str], kinds: Sequence[str], rows: Sequence[Sequence[str]], about: str) -> str:
        """Add a table of the model. Returns its name."""
        content = "VALUES\n    " + ",\n    ".join(f"({', '.join(row)})" for row in rows)
        if not rows:
            content = "SELECT " + ", ".join(f"CAST(NULL AS {kind})" for kind in kinds) + " WHERE 1 = 0"
        self.parts.append(f"-- {json.dumps(about)}\n{PREFIX}{name}({', '.join(columns)}) AS (\n  {content}\n)")
        return f"{PREFIX}{name}"

    def of_kind(self, *reads: str) -> list[int]:
        return [place for place, column in enumerate(self.described.columns) if column.reads in reads]

    # The stages.

    def cells(self) -> None:
        """The cells of all columns, and what they are read as."""
        dialect, columns = self.dialect, self.described.columns
        self.parts.append(f"{PREFIX}white(blanks) AS (SELECT {dialect.blanks})")
        cells: Items = [("n", "row_number() OVER ()")]
        if self.key is not None:
            cells.append(("autocross_key", f"t.{identifier(self.key)}"))
        for place, column in enumerate(columns):
            cell = f"t.{identifier(column.name)}"
            text = dialect.text_of_number(cell) if column.reads == "number" else dialect.as_text(cell)
            cells += [(f"r{place}", cell), (f"t{place}", text)]
        self.stage(cells, source=f"{identifier(self.table)} AS t")
        white = [f"{PREFIX}white AS w ON 1 = 1"]
        spelled = [place for place, column in enumerate(columns) if column.reads in ("number", "moment") or column.digits]
        self.stage([(f"b{place}", dialect.stripped(f"s.t{place}")) for place in spelled], white)
        values: Items = []
        for place, column in enumerate(columns):
            cell, text, bare = f"s.r{place}", f"s.t{place}", f"s.b{place}"
            if column.reads == "number":
                values.append((f"v{place}", dialect.as_number(cell, bare)))
            elif column.reads == "moment":
                values.append((f"v{place}", dialect.micros(bare)))
            elif column.reads == "list":
                values.append((f"v{place}", dialect.as_list(cell, text, column.separator)))
            elif column.digits:
                as_text, as_number = dialect.digits(cell, text, bare)
                values += [(f"v{place}", as_text), (f"u{place}", as_number)]
            else:
                values.append((f"v{place}", dialect.or_null(text)))
        self.stage(values, white)

    def moments(self) -> None:
        """The calendar of moments, by whole numbers alone: days are counted from the first of March of the year 0."""
        steps: list[list[tuple[str, str]]] = [
            [("d", f"CASE WHEN s.v@ >= 0 THEN s.v@ / {DAY} ELSE -((-s.v@ + {DAY - 1}) / {DAY}) END")],
            [
                ("e", "(s.d@ + 719468) / 146097"),
                ("o", "(s.d@ + 719468) % 146097"),
                ("m", f"(s.v@ - s.d@ * {DAY}) / 60000000"),
            ],
            [("y", "(s.o@ - s.o@ / 1460 + s.o@ / 36524 - s.o@ / 146096) / 365")],
            [("q", "s.o@ - (365 * s.y@ + s.y@ / 4 - s.y@ / 100)")],
            [("p", "(5 * s.q@ + 2) / 153")],
            [
                ("day", "s.q@ - (153 * s.p@ + 2) / 5 + 1"),
                ("month", "CASE WHEN s.p@ < 10 THEN s.p@ + 3 ELSE s.p@ - 9 END"),
                ("year", "s.y@ + s.e@ * 400 + CASE WHEN s.p@ < 10 THEN 0 ELSE 1 END"),
                ("weekday", "(s.d@ % 7 + 10) % 7"),
                ("hour", "s.m@ / 60"),
                ("minute", "s.m@ % 60"),
            ],
            [("quarter", "(s.month@ + 2) / 3")],
        ]
        of_calendar = [one.column for one in self.described.fields if one.part is not None]
        for step in steps:
            self.stage(
                [
                    (f"{name}{place}", expression.replace("@", str(place)).replace(" / ", f" {self.dialect.divide} "))
                    for place in sorted(set(of_calendar))
                    for name, expression in step
                ]
            )

    def codes(self) -> None:
        """Codes of numbers and moments that crosses need, and their weights."""
        codes: Items = []
        weights: Items = []
        for place in self.of_kind("number", "moment"):
            numbers, value = self.described.fields_of(place), f"s.v{place}"
            for own in numbers:
                one = self.described.fields[own]
                if one.edges is None:
                    known = cases(f"s.{one.part}{place}", zip(one.numbers or [], range(FIRST, len(one.weights)), strict=True), RARE)
                    codes.append((f"c{own}", f"CASE WHEN {value} IS NULL THEN {MISSING} ELSE {known} END"))
                    weights.append(
                        (f"w{own}", cases(f"s.c{own}", enumerate(map(number, one.weights[:-1])), number(one.weights[-1])))
                    )
                elif own in self.described.crossed:
                    codes.append((f"c{own}", self.by_edges(value, one.edges, range(FIRST, len(one.weights)), MISSING)))
            binned = [self.described.fields[own] for own in numbers if self.described.fields[own].edges is not None]
            if binned:
                edges = sorted({edge for one in binned for edge in one.edges or []})
                together = np.zeros(len(edges) + 1)
                for one in binned:
                    bins = np.concatenate([[0], np.searchsorted(one.edges or [], edges, side="right")]).astype(int)
                    together += np.array(one.weights)[FIRST + bins]
                missing = number(float(sum(one.weights[MISSING] for one in binned)))
                weights.append((f"w{numbers[-1]}", self.by_edges(value, edges, map(number, together.tolist()), missing)))
        self.stage(codes)
        self.stage(weights)

    def by_edges(self, value: str, edges: Sequence[float], results: Iterable[object], missing: object) -> str:
        """What stands for each interval between edges."""
        *below, last = results
        whens = " ".join(f"WHEN {value} < {self.dialect.edge(edge)} THEN {one}" for edge, one in zip(edges, below, strict=True))
        return f"CASE WHEN {value} IS NULL THEN {missing} {whens} ELSE {last} END"

    def texts(self) -> None:
        """Codes and weights of categories."""
        found = [own for place in self.of_kind("text") for own in self.described.fields_of(place)]
        tables = {own: self.table_of(own) for own in found}
        for first in range(0, len(found), TOGETHER):
            items: Items = []
            joins = []
            for own in found[first : first + TOGETHER]:
                one = self.described.fields[own]
                text, codes, weights = f"s.v{one.column}", f"t{own}.code, {RARE}", f"t{own}.weight, {number(one.weights[RARE])}"
                if self.described.columns[one.column].digits:
                    joins.append(f"{self.numbers_of(own)} AS m{own} ON m{own}.number = s.u{one.column}")
                    joins.append(f"{tables[own]} AS t{own} ON t{own}.value = CASE WHEN s.u{one.column} IS NULL THEN {text} END")
                    codes, weights = f"m{own}.code, {codes}", f"m{own}.weight, {weights}"
                else:
                    joins.append(f"{tables[own]} AS t{own} ON t{own}.value = {text}")
                items.append((f"c{own}", f"CASE WHEN {text} IS NULL THEN {MISSING} ELSE coalesce({codes}) END"))
                missing = number(one.weights[MISSING])
                items.append((f"w{own}", f"CASE WHEN {text} IS NULL THEN {missing} ELSE coalesce({weights}) END"))
            self.stage(items, joins)

    def table_of(self, own: int) -> str:
        """The table of the texts of a field. A text that the database cannot hold cannot be met there."""
        one, dialect = self.described.fields[own], self.dialect
        known = texts_of(one, self.described.columns[one.column])
        rows = [
            [dialect.literal(text), str(code), number(one.weights[code])] for text, code in known.items() if dialect.holds(text)
        ]
        kinds = (dialect.text_type, "INTEGER", dialect.float_type)
        return self.values(f"text_{own}", ("value", "code", "weight"), kinds, rows, one.name)

    def numbers_of(self, own: int) -> str:
        """The table of the numbers that texts of a field stand for."""
        one, dialect = self.described.fields[own], self.dialect
        known = texts_of(one, self.described.columns[one.column])
        pairs = [(number_of(text), code) for text, code in known.items()]
        rows = [[dialect.edge(found), str(code), number(one.weights[code])] for found, code in pairs if found is not None]
        kinds = (dialect.float_type, "INTEGER", dialect.float_type)
        return self.values(f"number_{own}", ("number", "code", "weight"), kinds, rows, f"{one.name}, as numbers")

    def lists(self) -> None:
        """Codes and weights of lists: a table with a row for each code of each list, and what they add together."""
        words = ", ".join(self.dialect.literal(word) for word in sorted(MISSING_TEXTS))
        items: Items = []
        joins = []
        rows = self.rows
        for place in self.of_kind("list"):
            for own in self.described.fields_of(place):
                one, table = self.described.fields[own], self.table_of(own)
                self.parts.append(f"{PREFIX}entries_{own} AS (\n  {self.dialect.entries(rows, f'v{place}')}\n)")
                rare, missing = number(one.weights[RARE]), number(one.weights[MISSING])
                self.parts.append(
                    f"{PREFIX}list_{own} AS MATERIALIZED (\n"
                    "  SELECT n, code, weight, row_number() OVER (PARTITION BY n ORDER BY code) - 1 AS i, "
                    "count(*) OVER (PARTITION BY n) AS size\n  FROM (\n"
                    f"    SELECT DISTINCT e.n, coalesce(t.code, {RARE}) AS code, coalesce(t.weight, {rare}) AS weight\n"
                    f"    FROM {PREFIX}entries_{own} AS e LEFT JOIN {table} AS t ON t.value = e.value\n"
                    f"    WHERE e.value IS NOT NULL AND e.value NOT IN ({words})\n"
                    f"    UNION ALL SELECT n, {MISSING}, {missing} FROM {rows} WHERE v{place} IS NULL\n  ) AS d\n)"
                )
                self.parts.append(f"{PREFIX}sum_{own} AS (SELECT n, sum(weight) AS weight FROM {PREFIX}list_{own} GROUP BY n)")
                items.append((f"w{own}", f"coalesce(l{own}.weight, 0)"))
                joins.append(f"{PREFIX}sum_{own} AS l{own} ON l{own}.n = s.n")
        self.stage(items, joins)

    def crosses(self) -> None:
        """Weights of crosses."""
        rows, crosses = self.rows, self.described.crosses
        for first in range(0, len(crosses), TOGETHER):
            items: Items = []
            joins = []
            for own in range(first, min(first + TOGETHER, len(crosses))):
                cross = crosses[own]
                table, pairs = (
                    f"{PREFIX}cross_{own}",
                    self.dialect.pairs([*map(str, cross.keys)], [*map(number, cross.weights[FIRST:])]),
                )
                self.parts.append(f"-- {json.dumps(cross.name)}\n{table}(key, weight) AS (\n  {pairs}\n)")
                rare = number(cross.weights[RARE])
                if ragged := self.ragged(cross):
                    self.parts.append(self.of_lists(own, cross, ragged, rows, table))
                    items.append((f"x{own}", f"coalesce(x{own}.weight, 0)"))
                    joins.append(f"{PREFIX}of_lists_{own} AS x{own} ON x{own}.n = s.n")
                else:
                    items.append((f"x{own}", f"coalesce(x{own}.weight, {rare})"))
                    joins.append(f"{table} AS x{own} ON x{own}.key = {key_of(cross, ragged)}")
            self.stage(items, joins)

    def ragged(self, cross: Cross) -> list[int]:
        """The fields of a cross that have several codes."""
        return [own for own in cross.fields if self.described.columns[self.described.fields[own].column].reads == "list"]

    def of_lists(self, own: int, cross: Cross, ragged: Sequence[int], rows: str, table: str) -> str:
        """A table of what a cross of lists adds: every combination adds, up to a limit."""
        place = "0"
        for one in ragged:
            place = f"({place}) * l{one}.size + l{one}.i"
        joins = "".join(f"\n    JOIN {PREFIX}list_{one} AS l{one} ON l{one}.n = s.n" for one in ragged)
        return (
            f"{PREFIX}of_lists_{own} AS (\n  SELECT s.n, sum(coalesce(k.weight, {number(cross.weights[RARE])})) AS weight\n"
            f"  FROM {rows} AS s{joins}\n    LEFT JOIN {table} AS k ON k.key = {key_of(cross, ragged)}\n"
            f"  WHERE {place} < {MOST_ENTRIES}\n  GROUP BY s.n\n)"
        )

    def text(self) -> str:
        """The whole query."""
        described, chosen = self.described, []
        names = [name for name in self.weight_names() if name]
        total = sum_of([number(described.intercept), *(f"s.{name}" for name in names)])
        self.stage([("log_odds", f"CAST({total} AS {self.dialect.float_type})")])
        if self.key is not None:
            chosen.append(f"autocross_key AS {identifier(self.key)}")
        clamped = "CASE WHEN log_odds > 700 THEN 700 WHEN log_odds < -700 THEN -700 ELSE log_odds END"
        chosen += ["log_odds", f"1 / (1 + exp(-({clamped}))) AS probability"]
        if described.mean is not None:
            chosen += self.reasons()
        head = f"-- An {EXPORT_MARK} 1 as SQL for {self.dialect.name}: log-odds and probabilities of all rows of a table."
        steps = ",\n".join(self.parts)
        return f"{head}\nWITH\n{steps}\nSELECT\n  " + ",\n  ".join(chosen) + f"\nFROM {self.rows}\nORDER BY n\n"

    def weight_names(self) -> list[str]:
        """The columns that have weights: of categories, parts and lists by field, of all bins of a column together, of crosses."""
        names = []
        for place in range(len(self.described.columns)):
            numbers = self.described.fields_of(place)
            binned = [own for own in numbers if self.described.fields[own].edges is not None]
            names += [f"w{own}" for own in numbers if own not in binned] + ([f"w{numbers[-1]}"] if binned else [])
        return names + [f"x{own}" for own in range(len(self.described.crosses))]

    def reasons(self) -> list[str]:
        """What each column adds, compared with the mean of the training rows."""
        terms: list[list[str]] = [[number(-(column.mean or 0.0))] for column in self.described.columns]
        for name in self.weight_names():
            if name[0] == "w":
                terms[self.described.fields[int(name[1:])].column].append(name)
            else:
                columns = self.described.crosses[int(name[1:])].columns
                for place in columns:
                    terms[place].append(f"{name} / {len(columns)}e0")
        kind = self.dialect.float_type
        named = zip(self.described.columns, terms, strict=True)
        return [f"CAST({sum_of(own)} AS {kind}) AS {identifier(f'reason_{column.name}')}" for column, own in named]


def key_of(cross: Cross, ragged: Sequence[int]) -> str:
    """The key of a cross, given the codes of a row; those of lists are in tables of their own."""
    names = [f"l{own}.code" if own in ragged else f"s.c{own}" for own in cross.fields]
    key, span = f"CAST({names[0]} AS BIGINT)", cross.sizes[0]
    for name, size in zip(names[1:], cross.sizes[1:], strict=True):
        key, span = f"({key} * {size} + {name})", span * size
        if span > MODULUS:
            key = f"({key} % {MODULUS})"
    return key
