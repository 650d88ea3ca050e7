"""A model as an ONNX graph, of operators that are in the standard. Numbers are doubles throughout, and codes are 64-bit integers.

A value of the graph has a row for each row of the input. Codes and weights of fields have one column, those of lists one for each
entry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocross.crossing import MODULUS, MOST_ENTRIES
from autocross.errors import MissingLibraryError, OptionError
from autocross.exporting.description import Cross, Description, Field
from autocross.features import FIRST, MISSING, RARE
from autocross.table.outputs import EXPORT_MARK
from autocross.table.values import MISSING_TEXTS

OPSETS = {"": 20, "ai.onnx.ml": 4}
IR_VERSION = 9
OUTPUTS = ("probability", "log_odds")
SEPARATOR = "|"  # between the entries of a list, if training had no other
FEW = 64  # edges that a number is compared with at once
DAY = 86_400_000_000
FROM_MARCH = 719_468  # days from the first of March of the year 0 to 1970
EARLIEST, LATEST = -62_135_596_800.0, 253_402_300_800.0  # the years 1 to 9999


def render(described: Description) -> bytes:
    """The whole file."""
    try:
        import onnx
    except ImportError as error:
        raise MissingLibraryError("--to onnx needs the package onnx. Install it by: pip install 'autocross[export]'") from error
    refuse(described)
    graph = Graph(onnx)
    weights = [graph.constant(np.array([[described.intercept]]))]
    for place in range(len(described.columns)):
        weights += add_column(graph, described, place)
    for cross in described.crosses:
        weights.append(add_cross(graph, described, cross))
    graph.node("Sum", weights, name="log_odds")
    graph.node("Sigmoid", ["log_odds"], name="probability")
    return graph.content(described)


def refuse(described: Description) -> None:
    """Refuse what a graph cannot hold."""
    terms: list[Field | Cross] = [*described.fields, *described.crosses]
    for one in terms:
        if one.n_buckets:
            raise OptionError(
                f"{one.name!r} has hashed codes, because it has more than a million values, and ONNX does not have the hash. "
                "Export to c, python or json, or fit with a larger min_count."
            )
    for column in described.columns:
        if not column.name or column.name in OUTPUTS or column.name.startswith(f"{EXPORT_MARK}/"):
            raise OptionError(f"A column of an ONNX graph cannot be called {column.name!r}. Rename it and fit again.")


@dataclass
class Graph:
    """A graph while it is made."""

    onnx: Any
    nodes: list[Any] = field(default_factory=list)
    tensors: list[Any] = field(default_factory=list)
    codes: dict[int, Any] = field(default_factory=dict)  # of every field: one value, or those of a list

    def new(self) -> str:
        """A name that no column has."""
        return f"{EXPORT_MARK}/{len(self.nodes) + len(self.tensors)}"

    def constant(self, values: NDArray[Any]) -> str:
        """A constant."""
        name = self.new()
        self.tensors.append(self.onnx.numpy_helper.from_array(np.asarray(values), name))
        return name

    def whole(self, *numbers: int) -> str:
        """Whole numbers as a constant."""
        return self.constant(np.array(numbers, np.int64))

    def node(self, kind: str, inputs: Sequence[str], name: str | None = None, **attributes: Any) -> str:
        """Add an operator. Returns the name of its output."""
        name = name or self.new()
        domain = "ai.onnx.ml" if kind == "LabelEncoder" else ""
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [name], domain=domain, **attributes))
        return name

    def cast(self, value: str, kind: type[np.generic]) -> str:
        return self.node("Cast", [value], to=self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)))

    def take(self, table: Sequence[Any], at: str, kind: type[np.generic] = np.float64) -> str:
        """The entries of a table at these places."""
        return self.node("Gather", [self.constant(np.array(table, kind)), at], axis=0)

    def total(self, value: str, *axes: int, keep: bool = True) -> str:
        """The sum over axes."""
        return self.node("ReduceSum", [value, self.whole(*axes)], keepdims=int(keep))

    def text_codes(self, texts: str, known: dict[str, int]) -> str:
        """The codes of texts."""
        return self.node("LabelEncoder", [texts], keys_strings=list(known), values_int64s=list(known.values()), default_int64=RARE)

    def calculated(self, formula: str, **values: str) -> str:
        """A formula of whole numbers in Polish notation: each operator is followed by what it is applied to."""
        operators = {"+": "Add", "-": "Sub", "*": "Mul", "/": "Div", "%": "Mod"}
        words = iter(formula.split())

        def read() -> str:
            word = next(words)
            if word in operators:
                first = read()
                return self.node(operators[word], [first, read()])
            return values[word] if word in values else self.whole(int(word))

        return read()

    def content(self, described: Description) -> bytes:
        """The file."""
        helper, kinds = self.onnx.helper, self.onnx.TensorProto
        types = {"text": kinds.STRING, "list": kinds.STRING, "number": kinds.DOUBLE, "moment": kinds.DOUBLE}
        inputs = [helper.make_tensor_value_info(column.name, types[column.reads], ["n", 1]) for column in described.columns]
        outputs = [helper.make_tensor_value_info(name, kinds.DOUBLE, ["n", 1]) for name in OUTPUTS]
        graph = helper.make_graph(self.nodes, "model", inputs, outputs, self.tensors)
        opsets = [helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
        made = helper.make_model(graph, producer_name=f"{EXPORT_MARK} 1", opset_imports=opsets, ir_version=IR_VERSION)
        return made.SerializeToString(deterministic=True)  # type: ignore[no-any-return]


def texts_of(described: Description, own: int) -> dict[str, int]:
    """The codes of all texts that a field knows, those that mean missing included.

    A graph cannot change a text. Where training read several spellings as one, the usual ones stand here: words for booleans, 7.0
    for 7, and one blank around an entry of a list.
    """
    one = described.fields[own]
    column = described.columns[one.column]
    known = {text: FIRST + place for place, text in enumerate(one.texts or [])}
    more = {word: known.get(text, RARE) for word, text in column.words.items()}
    known |= {word: code for word, code in more.items() if word not in known}
    if column.digits:
        known |= {f"{text}.0": code for text, code in known.items() if text.lstrip("-").isdecimal() and f"{text}.0" not in known}
    if column.separator is not None:
        texts = known | dict.fromkeys(MISSING_TEXTS, MISSING)
        known |= {f"{before}{text}{after}": code for text, code in texts.items() for before in ("", " ") for after in ("", " ")}
    return known | dict.fromkeys(MISSING_TEXTS, MISSING)


def add_column(graph: Graph, described: Description, place: int) -> list[str]:
    """The weights of the fields of a column. The codes of the fields are kept for crosses."""
    column, numbers = described.columns[place], described.fields_of(place)
    if column.reads == "list":
        return [add_list(graph, described, own, column.name, column.separator or SEPARATOR) for own in numbers]
    if column.reads == "text":
        for own in numbers:
            graph.codes[own] = graph.text_codes(column.name, texts_of(described, own))
        return [graph.take(described.fields[own].weights, graph.codes[own]) for own in numbers]
    weights, value = [], column.name
    missing = graph.node("IsNaN", [value])
    if column.reads == "moment":
        micros, parts, missing = add_calendar(graph, value)
        value = graph.cast(micros, np.float64)
        for own in numbers:
            one = described.fields[own]
            if one.part is not None:
                known = {number: FIRST + at for at, number in enumerate(one.numbers or [])}
                code = look_up(graph, parts[one.part], known, RARE)
                graph.codes[own] = graph.node("Where", [missing, graph.whole(MISSING), code])
                weights.append(graph.take(one.weights, graph.codes[own]))
    binned = [own for own in numbers if described.fields[own].edges is not None]
    return weights + (add_bins(graph, described, binned, value, missing) if binned else [])


def look_up(graph: Graph, keys: str, known: dict[int, int], otherwise: int) -> str:
    """What stands for each whole number."""
    if not known:
        return graph.node("Add", [graph.node("Mul", [keys, graph.whole(0)]), graph.whole(otherwise)])
    return graph.node("LabelEncoder", [keys], keys_int64s=list(known), values_int64s=list(known.values()), default_int64=otherwise)


def add_bins(graph: Graph, described: Description, numbers: Sequence[int], value: str, missing: str) -> list[str]:
    """The codes and the weights of fields of bins, by the interval between the edges of all of them."""
    fields = [described.fields[own] for own in numbers]
    edges = sorted({edge for one in fields for edge in one.edges or []})
    cell = graph.node("Where", [missing, graph.whole(len(edges) + 1), cell_of(graph, edges, value)])
    together = np.zeros(len(edges) + 2)
    for own, one in zip(numbers, fields, strict=True):
        bins = FIRST + np.concatenate([[0], np.searchsorted(one.edges or [], edges, side="right")])
        codes = np.append(bins, MISSING).astype(np.int64)
        together += np.array(one.weights)[codes]
        if own in described.crossed:
            graph.codes[own] = graph.take(codes.tolist(), cell, np.int64)
    return [graph.take(together.tolist(), cell)]


def cell_of(graph: Graph, edges: Sequence[float], value: str) -> str:
    """How many edges are not above a value. Many edges are cut into pieces: first a piece is found, and then the place in it."""
    if len(edges) <= FEW:
        own = np.array([list(edges) or [math.nan]])  # nothing is above NaN
        return graph.total(graph.cast(graph.node("GreaterOrEqual", [value, graph.constant(own)]), np.int64), 1)
    size = math.isqrt(len(edges)) + 1
    padded = np.full(-(-len(edges) // size) * size, math.nan)
    padded[: len(edges)] = edges
    pieces = padded.reshape(-1, size)
    piece = cell_of(graph, pieces[1:, 0].tolist(), value)
    inside = graph.node("Squeeze", [graph.take(pieces.tolist(), piece), graph.whole(1)])
    places = graph.total(graph.cast(graph.node("GreaterOrEqual", [value, inside]), np.int64), 1)
    return graph.calculated(f"+ * piece {size} places", piece=piece, places=places)


def add_calendar(graph: Graph, seconds: str) -> tuple[str, dict[str, str], str]:
    """The microseconds since 1970 of moments that are given in seconds, the parts of their calendar, and which are missing. Days
    are counted from the first of March of the year 0, so that no number is below zero."""
    one = [graph.constant(np.array(number)) for number in (EARLIEST, LATEST, 0.0, 1e6, 0.5)]
    is_moment = graph.node("And", [graph.node("GreaterOrEqual", [seconds, one[0]]), graph.node("Less", [seconds, one[1]])])
    seconds = graph.node("Where", [is_moment, seconds, one[2]])
    whole = graph.node("Floor", [seconds])
    rest = graph.node("Mul", [graph.node("Sub", [seconds, whole]), one[3]])
    rest = graph.cast(graph.node("Floor", [graph.node("Add", [rest, one[4]])]), np.int64)
    micros = graph.calculated("+ * whole 1000000 rest", whole=graph.cast(whole, np.int64), rest=rest)
    counted = graph.calculated(f"+ v {FROM_MARCH * DAY}", v=micros)
    days = graph.calculated(f"/ v {DAY}", v=counted)
    minutes = graph.calculated(f"/ - v * d {DAY} 60000000", v=counted, d=days)
    period, o = graph.calculated("/ d 146097", d=days), graph.calculated("% d 146097", d=days)
    y = graph.calculated("/ - + - o / o 1460 / o 36524 / o 146096 365", o=o)
    q = graph.calculated("- o - + * 365 y / y 4 / y 100", o=o, y=y)
    p = graph.calculated("/ + * 5 q 2 153", q=q)
    late = graph.calculated("/ p 10", p=p)  # 1 in January and February
    month = graph.calculated("- + p 3 * late 12", p=p, late=late)
    parts = {
        "year": graph.calculated("+ + y * e 400 late", y=y, e=period, late=late),
        "quarter": graph.calculated("/ + m 2 3", m=month),
        "month": month,
        "day": graph.calculated("+ - q / + * 153 p 2 5 1", q=q, p=p),
        "weekday": graph.calculated(f"% + d {(3 - FROM_MARCH) % 7} 7", d=days),
        "hour": graph.calculated("/ m 60", m=minutes),
        "minute": graph.calculated("% m 60", m=minutes),
    }
    return micros, parts, graph.node("Not", [is_moment])


def add_list(graph: Graph, described: Description, own: int, name: str, separator: str) -> str:
    """The weight of a field of lists. Its codes are kept in ascending order, with one before them for a missing list; of each is
    kept whether it counts, its place among those that do, and how many these are."""
    missing_texts = dict.fromkeys(MISSING_TEXTS, 1)
    found = graph.node(
        "LabelEncoder", [name], keys_strings=[*missing_texts], values_int64s=[*missing_texts.values()], default_int64=0
    )
    is_missing = graph.cast(found, np.bool_)
    ended = graph.node("StringConcat", [name, graph.constant(np.array([separator], object))])  # so that there is an entry
    pieces = graph.new()
    graph.nodes.append(graph.onnx.helper.make_node("StringSplit", [ended], [pieces, f"{pieces}/n"], delimiter=separator))
    flat = graph.node("Squeeze", [pieces, graph.whole(1)])
    unsorted = graph.text_codes(flat, texts_of(described, own))
    n_entries = graph.node("Shape", [unsorted], start=1, end=2)
    codes = graph.new()
    graph.nodes.append(graph.onnx.helper.make_node("TopK", [unsorted, n_entries], [codes, f"{codes}/i"], axis=1, largest=0))
    nothing = graph.calculated("* v 0", v=found)
    shifted = graph.node("Concat", [nothing, codes], axis=1)  # also the codes that are kept
    last = graph.node("Slice", [shifted, graph.whole(0), n_entries, graph.whole(1)])
    is_new = graph.node("Not", [graph.node("Equal", [codes, last])])  # missing entries, which come first, are none
    counts = graph.node("Concat", [is_missing, is_new], axis=1)
    as_numbers = graph.cast(counts, np.int64)
    places = graph.calculated("- v 1", v=graph.node("CumSum", [as_numbers, graph.whole(1)]))
    graph.codes[own] = (shifted, counts, places, graph.total(as_numbers, 1))
    weights = graph.take(described.fields[own].weights, shifted)
    return graph.total(graph.node("Where", [counts, weights, graph.constant(np.array(0.0))]), 1)


def add_cross(graph: Graph, described: Description, cross: Cross) -> str:
    """The weight of a cross. Each of its lists has an axis of its own."""
    lists = [own for own in cross.fields if isinstance(graph.codes[own], tuple)]

    def spread(value: str, own: int | None) -> str:
        """A value with an axis for each list; all but that of its own have one entry."""
        before = lists.index(own) if own is not None else 0
        axes = [*range(1, 1 + before), *range(2 + before, 1 + len(lists))]
        return graph.node("Unsqueeze", [value, graph.whole(*axes)]) if axes else value

    key, span = "", 1
    for own, size in zip(cross.fields, cross.sizes, strict=True):
        code = spread(graph.codes[own][0], own) if own in lists else spread(graph.codes[own], None)
        key, span = graph.calculated(f"+ * key {size} code", key=key, code=code) if key else code, span * size
        if span > MODULUS:
            key = graph.calculated(f"% key {MODULUS}", key=key)
    place = look_up(graph, key, {number: 1 + at for at, number in enumerate(cross.keys)}, 0)
    weight = graph.take([cross.weights[RARE], *cross.weights[FIRST:]], place)
    if not lists:
        return weight
    counts, position = "", ""
    for own in lists:
        _, own_counts, own_places, size = graph.codes[own]
        own_counts, own_places, size_of_row = spread(own_counts, own), spread(own_places, own), spread(size, None)
        counts = graph.node("And", [counts, own_counts]) if counts else own_counts
        position = graph.calculated("+ * at n i", at=position, n=size_of_row, i=own_places) if position else own_places
    counts = graph.node("And", [counts, graph.node("Less", [position, graph.whole(MOST_ENTRIES)])])
    added = graph.node("Where", [counts, weight, graph.constant(np.array(0.0))])
    total = graph.total(added, *range(1, 1 + len(lists)), keep=False)
    return graph.node("Unsqueeze", [total, graph.whole(1)])
