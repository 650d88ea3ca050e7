"""Manifest and arrays of a bundle -> model. Everything is checked against everything else before it is used.

First come the facts of the manifest and the shapes of the arrays: how each column is coded, how many codes that gives, and how many
weights these need. Only if all this fits together are arrays read, and then their content is checked too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from autocross.checks import MOST_WEIGHT, Facts, expect_room, is_count, is_number, is_text, quoted, require
from autocross.crossing import MODULUS, CrossCoder, Kind
from autocross.encoding import registry
from autocross.encoding.encoder import Encoder
from autocross.encoding.registry import unpacker
from autocross.errors import BundleError
from autocross.features import FIRST, Penalty, narrowest
from autocross.options import BALANCED, MOST_CLASS_WEIGHT, Direction, Metric
from autocross.producer.background import PREFIX
from autocross.producer.container import Container
from autocross.producer.kinds import KINDS
from autocross.producer.model import About, Change, FoundCross, Model, Producer, Rule, timeless
from autocross.table.schema import READINGS, ColumnSchema, Stored

FORMAT = 5  # the newest format that is read, and the one that is written; it remembers more about the training rows
PARTS = {
    "format",
    "schema",
    "columns",
    "crosses",
    "intercept",
    "penalties",
    "about",
    "share",
    "background",
    "crossed_only",
    "checksum",
}
MOST_CODES = (1 << 63) // MODULUS  # most codes of a field in a cross, so that keys fit into 63 bits


def is_weight(value: Any) -> bool:
    return type(value) is float and abs(value) <= MOST_WEIGHT  # False for NaN


# The whole.


def unpack(manifest: Facts, stored: Container) -> Model:
    """The model of a manifest and of arrays that are not read yet."""
    require(isinstance(manifest, dict) and type(manifest.get("format")) is int, "it has no format number")
    if manifest["format"] > FORMAT:
        raise BundleError(
            f"it has format {manifest['format']}, newer than the {FORMAT} this version reads. "
            "Update autocross, or save it with this version."
        )
    for part in manifest:
        require(part in PARTS or part in KINDS, f"it has a part {quoted(part)}, which this version of autocross does not know")
    require(manifest["format"] == format_of(manifest), "its format does not fit its parts")
    schema = tuple(unpack_schema(entry) for entry in manifest["schema"])
    by_name = {column.name: column for column in schema}
    require(len(by_name) == len(schema), "two columns have the same name")
    for entry in manifest["columns"]:
        require(entry["name"] in by_name, f"column {quoted(entry['name'])} is not in its schema")
    columns = [(number, entry, by_name[entry["name"]]) for number, entry in enumerate(manifest["columns"])]

    # The fields of columns, and of crosses, by their names and numbers of codes.
    sizes = [
        size for number, entry, column in columns for size in unpacker(entry["coder"], column).expect(number, entry, column, stored)
    ]
    recorded = names_of_crosses(manifest)
    crossed = [expect_cross(number, entry, recorded[number], sizes, stored) for number, entry in enumerate(manifest["crosses"])]
    n_weights = [
        expect_weights(number, name, n_codes, is_statistic(manifest, number - len(sizes)), stored)
        for number, (name, n_codes) in enumerate([*sizes, *crossed])
    ]
    if "share" in manifest:
        n_rows = manifest["about"]["n_rows"]
        require(is_count(n_rows), "it has no proper number of rows")
        kind_of_counts = "I64" if n_rows >> 32 else "U32"
        stored.expect("counts", kind_of_counts, (sum(n_weights), 2), "it has the wrong number of counts")
    for key, kind in KINDS.items():
        if key in manifest:
            kind.expect(manifest[key], sizes, stored)
    stored.expected |= {name for name in stored.entries if name.startswith(PREFIX) and "background" in manifest}  # read later
    stored.expect_no_more()

    encoder = Encoder(
        schema, tuple(unpacker(entry["coder"], column).unpack(number, entry, column, stored) for number, entry, column in columns)
    )
    crosses = tuple(
        unpack_cross(number, entry, encoder, stored.array(f"cross.{number}", f"cross {number}"))
        for number, entry in enumerate(manifest["crosses"])
    )
    producer = Producer(encoder, crosses, unpack_crossed_only(manifest.get("crossed_only", []), crosses))
    distinct = [unpack_weights(number, field.name, stored) for number, field in enumerate(producer.fields)]
    indices = [unpack_index(number, len(weight), stored) for number, weight in enumerate(distinct)]
    weights = tuple(weight if index is None else weight[index] for weight, index in zip(distinct, indices, strict=True))
    silent = not any(weights[number].any() for number in producer.crossed_only)
    require(silent, "it has weights for a field that was taken out")
    require(is_weight(manifest["intercept"]), "its intercept is no number")
    penalties = unpack_penalties(manifest["penalties"], len(weights))
    about = unpack_about(manifest["about"], producer)
    counts = unpack_counts(about, n_weights, indices, stored) if "share" in manifest else None
    share = unpack_share(manifest.get("share", 0.0), producer)
    model = Model(producer, manifest["intercept"], weights, penalties, about, (), counts, share)
    additions = tuple(kind.unpack(manifest[key], model, stored) for key, kind in KINDS.items() if key in manifest)
    return replace(model, additions=additions)


def format_of(manifest: Facts) -> int:
    """The oldest format that has all parts of the model. Readers of older formats would overlook an addition, or hashed values."""
    coders = {entry["coder"] for entry in manifest["columns"]}
    formats = [encoder.format for word, encoder in registry.OF_CODER.items() if word in coders]
    additions = [addition.format for key, addition in KINDS.items() if key in manifest]
    return max(
        [
            5 if "background" in manifest or manifest["about"].get("changes") else 4 if "share" in manifest else 1,
            *formats,
            *additions,
        ]
    )


def unpack_schema(entry: Facts) -> ColumnSchema:
    column = ColumnSchema(**entry)
    require(is_text(column.name), "a column has no proper name")
    has_known_kind = column.kind in [*READINGS] and column.stored in get_args(Stored)
    require(has_known_kind, f"column {column.name!r} has no known kind")
    separator = column.separator is None or (is_text(column.separator) and column.separator != "")
    require(separator, f"column {column.name!r} has no proper separator")
    ordered = column.monotone is None or (column.monotone in get_args(Direction) and column.kind == "numerical")
    require(ordered, f"column {column.name!r} cannot be monotone in this way")
    require(is_text(column.reason), f"column {column.name!r} has no proper reason for its kind")
    return column


def unpack_weights(number: int, name: str, stored: Container) -> NDArray[np.float64]:
    weight = stored.array(f"weight.{number}", f"field {name!r}", may_be_zero=True)
    require(bool((np.abs(weight) <= MOST_WEIGHT).all()), f"field {name!r} has a weight that is no number")
    return weight


def is_statistic(manifest: Facts, number: int) -> bool:
    """Whether the cross of this number is a statistic; numbers below zero are those of fields."""
    return number >= 0 and manifest["crosses"][number].get("kind") == "statistic"


def expect_weights(number: int, name: str, n_codes: int, indexed: bool, stored: Container) -> int:
    """The number of weights of a term: one for each code or, in a statistic, one for each entry of its index."""
    complaint = f"field {name!r} has the wrong number of weights"
    (n_weights,) = stored.expect(f"weight.{number}", "F64", (None if indexed else n_codes,), complaint)
    if indexed:
        require(n_weights <= n_codes, complaint)  # and codes have values, which a hole in the file cannot stand for
        stored.expect(f"index.{number}", unsigned(n_weights), (n_codes,), complaint)
    return n_weights


def unsigned(n: int) -> str:
    """The word for the narrowest type of numbers below n."""
    return f"U{8 * np.dtype(narrowest(n)).itemsize}"


def unpack_index(number: int, n_weights: int, stored: Container) -> NDArray[np.int64] | None:
    """Which weight each value of a statistic has; None for other terms."""
    if f"index.{number}" not in stored.entries:
        return None
    index = stored.array(f"index.{number}", f"statistic {number}", may_be_zero=True).astype(np.int64)
    require(bool((index < n_weights).all()), f"statistic {number} has a value without a weight")
    return index


def unpack_counts(
    about: About, n_weights: Sequence[int], indices: Sequence[NDArray[np.int64] | None], stored: Container
) -> tuple[NDArray[np.int64], ...]:
    """Rows and positives of every code, term by term."""
    require(about.n_positive is not None and 0 < about.n_positive < about.n_rows, "it has no rows of both labels")
    counts = stored.array("counts", "its counts", may_be_zero=True).astype(np.int64)
    require(bool((counts >= 0).all() and (counts[:, 1] <= counts[:, 0]).all()), "it has more positive rows than rows")
    of_terms = np.split(counts, np.cumsum(n_weights)[:-1])
    return tuple(own if index is None else own[index] for own, index in zip(of_terms, indices, strict=True))


def unpack_share(share: Any, producer: Producer) -> float:
    """The share of the log-odds that statistics have."""
    has_statistics = any(cross.kind == "statistic" for cross in producer.crosses)
    proper = type(share) is float and (0.0 < share < 1.0 if has_statistics else share == 0.0)
    require(proper, "it has no proper share of statistics")
    return float(share)


def unpack_penalties(entries: Any, n_terms: int) -> tuple[Penalty, ...]:
    proper = all(is_number(strength) and strength >= 0 for strengths in entries for strength in strengths)
    require(proper, "it has a penalty that is no number of 0 or more")
    require(all(len(strengths) in (3, 4) for strengths in entries), "it has a penalty of other parts")  # older files have no slope
    penalties = tuple(Penalty(*map(float, strengths)) for strengths in entries)
    require(len(penalties) == n_terms, "it has the wrong number of penalties")
    held = [penalty for penalty in penalties if penalty.smooth or penalty.slope]
    require(all(penalty.l2 > 0 for penalty in held), "it holds neighbours together, but nothing near zero")
    return penalties


# Crosses.


def names_of_crosses(manifest: Facts) -> list[Any]:
    """The names of the fields of every cross: those of crosses that were found are in the record of the fit, and changes by hand,
    which come last, have their own."""
    recorded, entries = manifest["about"]["crosses"], manifest["crosses"]
    changes = [entry["names"] for entry in entries if entry.get("kind") == "change"]
    n_found = len(entries) - len(changes)
    in_order = all(entry.get("kind") == "change" for entry in entries[n_found:])
    require(isinstance(recorded, list) and len(recorded) == n_found and in_order, "it tells of other crosses than it has")
    return [*(cross["fields"] for cross in recorded), *changes]


def expect_cross(number: int, entry: Facts, recorded: Any, sizes: Sequence[tuple[str, int]], stored: Container) -> tuple[str, int]:
    """The name of a cross and its number of codes. ``recorded`` are the names of its fields."""
    fields = entry["fields"]
    in_range = isinstance(fields, list) and all(is_count(field) and field < len(sizes) for field in fields)
    kind = entry.get("kind", "cross")
    require(kind in get_args(Kind), f"cross {number} has an unknown kind")
    fewest = 2 if kind == "cross" else 1
    enough = in_range and len(fields) >= fewest and all(a < b for a, b in pairwise(fields))
    require(enough, f"cross {number} has impossible fields")
    require(all(sizes[field][1] <= MOST_CODES for field in fields), f"cross {number} has a field of too many codes")
    # Checked before the names are joined. All names of a cross are in the manifest, so they take no more memory than it does.
    names = [sizes[field][0] for field in fields]
    require(recorded == names, "it tells of other crosses than it has")
    stored_as = "U32" if kind != "statistic" else unsigned(max(sizes[field][1] for field in fields))
    n_values, _ = stored.expect(f"cross.{number}", stored_as, (None, len(fields)), f"cross {number} has no proper values")
    expect_room(entry, n_values, f"cross {number}")
    if kind == "statistic":
        require(entry["n_buckets"] == 0 and entry["width"] == 1, f"statistic {number} has several codes a row, or hashed ones")
    require(kind != "change" or (entry["n_buckets"] == 0 and n_values > 0), f"change {number} has no values, or hashed ones")
    return " x ".join(names), FIRST + n_values + entry["n_buckets"]


def unpack_cross(number: int, entry: Facts, encoder: Encoder, values: NDArray[Any]) -> CrossCoder:
    """One cross. Its values must be in the order of their keys."""
    sizes = tuple(encoder.fields[field].n_codes for field in entry["fields"])
    require(bool((values < np.array(sizes)).all()), f"cross {number} has a value that its fields cannot have")
    values, kind = values.astype(np.uint32, copy=False), entry.get("kind", "cross")
    single = not any(encoder.places[field][0].ragged for field in entry["fields"])
    require(single or kind != "statistic", f"statistic {number} has a multi-value field")
    cross = CrossCoder(tuple(entry["fields"]), sizes, values, entry["n_buckets"], entry["width"], kind)
    require(bool((np.diff(cross.keys) > 0).all()), f"cross {number} has values out of order")
    return cross


def unpack_crossed_only(entry: Any, crosses: Sequence[CrossCoder]) -> frozenset[int]:
    """The fields that have no weights, and stand in crosses."""
    crossed = {field for cross in crosses for field in cross.fields}
    proper = isinstance(entry, list) and all(is_count(number) and number in crossed for number in entry)
    require(proper, "it has fields without weights that stand in no cross")
    return frozenset(entry)


# Where the model comes from.


def unpack_about(entry: Facts, producer: Producer) -> About:
    """The record of the fit, which must belong to this producer."""
    about = About(
        target=entry["target"],
        classes=unpack_classes(entry["classes"]),
        metric=entry["metric"],
        score=entry["score"],
        n_rows=entry["n_rows"],
        crosses=unpack_found(entry["crosses"], producer),
        rules=tuple(Rule(**rule) for rule in entry["rules"]),
        history=tuple(timeless(entry["history"])),  # older files have the seconds
        n_positive=entry.get("n_positive"),
        class_weight=unpack_class_weight(entry.get("class_weight")),
        changes=unpack_changes(entry.get("changes", [])),
    )
    require(is_text(about.target), "it has no proper name of the target")
    require(about.metric in get_args(Metric), "it has no known metric")
    require(about.score is None or is_number(about.score), "its score is no number")
    require(is_count(about.n_rows), "it has no proper number of rows")
    require(about.n_positive is None or is_count(about.n_positive), "it has no proper number of positive rows")
    for rule in about.rules:
        require(all(map(is_text, (rule.name, rule.value, rule.why))), "it has a rule that is no text")
    for record in about.history:
        require(set(record) == {"crosses", "score"}, "its history has an unknown part")
        # The score may be NaN, if all rows that judged had one label.
        proper = is_count(record["crosses"]) and type(record["score"]) in (int, float)
        require(proper, "its history has something that is no number")
    return about


def unpack_class_weight(entry: Any) -> str | tuple[float, float] | None:
    """The weights of the labels in the fit: none, balanced, or two numbers."""
    if entry is None or entry == BALANCED:
        return BALANCED if entry else None
    first, second = entry
    require(all(is_number(weight) and 0 < weight <= MOST_CLASS_WEIGHT for weight in entry), "it has no proper weights of labels")
    return float(first), float(second)


def unpack_classes(entry: Any) -> tuple[Any, Any]:
    """The two labels: texts, booleans, or numbers."""
    first, second = entry
    alike = all(map(is_text, entry)) or all(map(is_number, entry)) or all(isinstance(label, bool) for label in entry)
    require(alike and first != second, "it has no two labels")
    return first, second


def unpack_found(entries: Sequence[Facts], producer: Producer) -> tuple[FoundCross, ...]:
    """What the record says about each cross of the producer."""
    crosses = []
    found = [cross for cross in producer.crosses if cross.kind != "change"]
    for entry, cross in zip(entries, found, strict=True):
        names, columns = entry["fields"], list(dict.fromkeys(producer.encoder.fields[number].column for number in cross.fields))
        require(entry["columns"] == columns, "it tells of other crosses than it has")
        n_collisions, kind = entry.get("n_collisions", 0), entry.get("kind", "cross")
        require(kind == cross.kind, "it tells of other crosses than it has")
        proper = is_number(entry["gain"]) and is_number(entry["error"]) and is_count(n_collisions)
        require(proper, f"cross {quoted(' x '.join(names))} has a gain that is no number")
        crosses.append(FoundCross(tuple(names), tuple(columns), float(entry["gain"]), float(entry["error"]), n_collisions, kind))
    return tuple(crosses)


def unpack_changes(entries: Any) -> tuple[Change, ...]:
    """The record of changes by hand."""
    require(isinstance(entries, list), "it has no proper record of changes")
    changes = tuple(Change(**entry) for entry in entries)
    for change in changes:
        texts = all(map(is_text, (change.term, change.value, change.note)))
        require(texts and change.what in ("without", "weight"), "it has a change that is no text")
        numbers = change.before, change.after
        proper = all(map(is_weight, numbers)) if change.what == "weight" else numbers == (None, None)
        require(proper and type(change.refitted) is bool, "it has a change of no proper weights")
    return changes
