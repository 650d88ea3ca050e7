"""What the user prescribes for the model, checked: columns that must be monotone, crosses that must be there, and forbidden ones.

Names are checked before the rows are read, and kinds of columns when they are known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from autocross.errors import OptionError
from autocross.options import Direction, Options
from autocross.search.limits import NO_LIMITS, Limits
from autocross.table.inference import columns_in_words
from autocross.table.schema import ColumnSchema, Schema

JOIN = " & "  # between the columns of a cross, as in the name of a term


def limits_of(options: Options, names: Sequence[str]) -> Limits:
    """The limits that the options set on crosses of a table with these columns."""
    left_out = dict.fromkeys(options.exclude or (), "exclude") | {name: "groups" for name in [options.groups] if name}
    for name in options.monotone or {}:
        check_column("monotone", name, names, left_out)
    include, forbid = (
        [columns_of(entry, names) for entry in (() if entries is None else entries)]
        for entries in (options.include, options.forbid)
    )
    if not include and not forbid:
        return NO_LIMITS
    for columns in include:
        for name in columns:
            check_column("include", name, names, left_out)
    for name in (name for columns in forbid for name in columns):
        check_column("forbid", name, names, {})
    alone = frozenset(columns[0] for columns in forbid if len(columns) == 1)
    apart = tuple(frozenset(columns) for columns in forbid if len(columns) > 1)
    limits = Limits(tuple(include), alone, apart)
    check_include(limits, options)
    return limits


def columns_of(entry: str | Iterable[str], names: Collection[str]) -> tuple[str, ...]:
    """The columns of a cross, given one by one or joined by ' & '. A name may hold that sign itself.

    >>> columns_of("age & R & D", ["age", "R & D"]), columns_of(("age", "job"), []), columns_of("age & jb", ["age", "job"])
    (('age', 'R & D'), ('age', 'job'), ('age', 'jb'))
    """
    if not isinstance(entry, str):
        return tuple(entry)
    words, found = entry.split(JOIN), list[str]()
    while words:
        longest = [n for n in range(len(words), 0, -1) if JOIN.join(words[:n]) in names]
        n = longest[0] if longest else 1
        found.append(JOIN.join(words[:n]))
        words = words[n:]
    return tuple(found)


def check_column(option: str, name: str, names: Sequence[str], left_out: Mapping[str, str]) -> None:
    """Refuse a column that the table or the model does not have."""
    if name not in names:
        raise OptionError(f"Option {option} names column {name!r}, which the table does not have. {columns_in_words(names)}")
    if name in left_out:
        raise OptionError(
            f"Option {option} names column {name!r}, which {left_out[name]}= leaves out. Take it out of one of the two."
        )


def check_include(limits: Limits, options: Options) -> None:
    """Refuse crosses that cannot be there, or not all of them."""
    monotone, seen = options.monotone or {}, list[set[str]]()
    for columns in limits.include:
        cross = f"Option include holds {JOIN.join(columns)!r}"
        if len({*columns}) < 2 or len({*columns}) < len(columns):
            raise OptionError(f"{cross}. A cross has two different columns or more, as in ('job', 'education').")
        if {*columns} in seen:
            raise OptionError(f"{cross} twice. Name each cross once.")
        if not limits.allow(columns):
            raise OptionError(f"{cross}, which forbid does not allow. Take it out of one of the two.")
        ordered = [name for name in columns if name in monotone]
        if len(ordered) > 1:
            raise OptionError(
                f"{cross}, but {ordered[0]!r} and {ordered[1]!r} are both monotone, and a cross can be monotone in one column. "
                "Take the cross out, or one of the two columns out of monotone."
            )
        seen.append({*columns})
    if options.max_crosses is not None and len(limits.include) > options.max_crosses:
        raise OptionError(
            f"Option include has {len(limits.include)} crosses, and max_crosses={options.max_crosses}. Raise max_crosses, which "
            "counts them, or include fewer."
        )


def check_kinds(limits: Limits, schema: Schema, unread: Collection[str]) -> None:
    """Refuse crosses of columns that the model does not use. Those that were not reached in time are not to blame."""
    left_out = {column.name: column.reason for column in schema if column.kind == "ignore" and column.name not in unread}
    for columns in limits.include:
        for name in columns:
            if name in left_out:
                raise OptionError(
                    f"Option include holds {JOIN.join(columns)!r}, but column {name!r} is left out: {left_out[name]}. Give it a "
                    f"kind by types=, as in types={{{name!r}: 'categorical'}}, or take it out of include."
                )


def may_be_numerical(column: ColumnSchema, options: Options) -> bool:
    """Whether a monotone column is categorical by rule only, because it has few whole numbers."""
    wanted = column.name in (options.monotone or {}) and column.name not in (options.types or {})
    return wanted and column.kind == "categorical" and column.stored == "number"


def in_order(schema: Schema, options: Options) -> Schema:
    """The schema with the directions that the options prescribe. Only numbers have an order."""
    monotone = options.monotone or {}
    for column in schema:
        if column.name in monotone and column.kind != "numerical":
            is_what = f"is left out: {column.reason}" if column.kind == "ignore" else f"is {column.kind} ({column.reason})"
            raise OptionError(
                f"Option monotone names column {column.name!r}, which {is_what}. Only numerical columns can be monotone: take it "
                f"out of monotone or, if it holds numbers, declare types={{{column.name!r}: 'numerical'}}."
            )
    ways = cast(Mapping[str, Direction], monotone)
    return tuple(replace(column, monotone=ways.get(column.name)) for column in schema) if ways else schema
