"""A model as one C file that needs nothing but the C library."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from autocross.crossing import MODULUS
from autocross.encoding.vocabulary import bucket_of
from autocross.exporting.c_runtime import RUNTIME
from autocross.exporting.description import Cross, Description, Field
from autocross.features import FIRST, MISSING, RARE
from autocross.table.values import BLANKS, MISSING_TEXTS

KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """auto break case char const continue default do double else enum extern float for goto if inline int long register
        restrict return short signed sizeof static struct switch typedef union unsigned void volatile while""",
    )
)
PLAIN = frozenset(range(32, 127)) - frozenset(b'"\\?')  # a question mark may begin a trigraph
DENSE = 4  # a cross with at most so many possible keys for each known one has a table of all of them

HEAD = """/* An autocross-model 1: a model of autocross as C. Compile it with any C99 compiler and the mathematical library (-lm).
   With AUTOCROSS_DECLARATIONS_ONLY defined, this file is its own header.

   autocross_score is the probability of the positive label, and autocross_log_odds its log-odds. A text that is NULL and a number
   that is NAN are missing. Texts are UTF-8, times are seconds since 1970 as the clock on the wall showed them. A list is a pointer
   and a count; if the pointer is NULL, the list is missing. Functions have no state, so threads may call them at the same time.
   Numbers in texts are read by strtod, so the locale must have a decimal point (LC_NUMERIC "C", as at the start of a program). */
"""


def render(described: Description) -> str:
    """The whole file, in ASCII."""
    parts = [HEAD, *declarations(described), "#ifndef AUTOCROSS_DECLARATIONS_ONLY", *includes(), *columns_named(described)]
    parts += [RUNTIME, *chain.from_iterable(tables(described)), *function(described), *faces(described)]
    return "\n".join([*parts, "#endif", "#endif", ""])


def literal(text: str) -> str:
    """A text as a C literal. Whatever is not plain ASCII is written in octal digits, of which three always end an escape."""
    return '"' + "".join(chr(byte) if byte in PLAIN else f"\\{byte:03o}" for byte in text.encode("utf-8", "surrogatepass")) + '"'


def members(described: Description) -> list[str]:
    """The names of the members of a row: those of the columns, as far as C allows."""
    names: list[str] = []
    for number, column in enumerate(described.columns):
        name = re.sub(r"[^A-Za-z0-9_]", "_", column.name).strip("_") or "column"
        if name[0].isdigit() or name in KEYWORDS or keyword.iskeyword(name):
            name = f"column_{name}"
        taken = {*names, *(f"{other}_count" for other in names)}
        names.append(f"{name}_{number}" if name in taken or f"{name}_count" in taken else name)
    return names


def declarations(described: Description) -> list[str]:
    """The row, and the functions."""
    types = {
        "text": "const char *{}",
        "number": "double {}",
        "moment": "double {}",
        "list": "const char *const *{0};\n    size_t {0}_count",
    }
    own = [f"    {types[column.reads].format(name)};" for name, column in zip(members(described), described.columns, strict=True)]
    reasons = [
        "/* What each column adds to the log-odds, compared with the mean of the training rows. */",
        "void autocross_reasons(const autocross_row *row, double reasons[AUTOCROSS_COLUMNS]);",
    ]
    return [
        "#ifndef AUTOCROSS_MODEL",
        "#define AUTOCROSS_MODEL",
        "#include <stddef.h>",
        f"#define AUTOCROSS_COLUMNS {len(described.columns)}",
        "typedef struct {",
        *own,
        "} autocross_row;",
        "extern const char *const autocross_columns[AUTOCROSS_COLUMNS]; /* their names, in the same order */",
        "double autocross_log_odds(const autocross_row *row);",
        "double autocross_score(const autocross_row *row);",
        *(reasons if described.mean is not None else []),
    ]


def includes() -> list[str]:
    """What the code needs of the C library."""
    return [f"#include <{name}.h>" for name in ("math", "stdint", "stdio", "stdlib", "string")]


def columns_named(described: Description) -> list[str]:
    """Texts that the code needs: names of columns, white space, and what means missing."""
    names = ", ".join(literal(column.name) for column in described.columns)
    return [
        f"const char *const autocross_columns[AUTOCROSS_COLUMNS] = {{{names}}};",
        f"static const char *const autocross_blanks[] = {{{', '.join(map(literal, BLANKS))}}};",
        f"static const char *const autocross_missing[] = {{{', '.join(map(literal, sorted(MISSING_TEXTS)))}}};",
    ]


def array(kind: str, name: str, values: Iterable[object]) -> str:
    """A table. C has no empty ones, so these have a zero, which is not read."""
    entries = [str(value) for value in values] or ["0"]
    lines = [", ".join(entries[first : first + 12]) for first in range(0, len(entries), 12)]
    return f"static const {kind} {name}[] = {{\n    " + ",\n    ".join(lines) + "\n};"


def tables(described: Description) -> Iterable[list[str]]:
    """The tables of all columns and crosses."""
    for column, one in enumerate(described.columns):
        numbers = described.fields_of(column)
        binned = [number for number in numbers if described.fields[number].edges is not None]
        if binned:
            yield bins(described, column, binned)
        for number in numbers:
            field = described.fields[number]
            if field.edges is None:
                yield [array("double", f"weights_{number}", map(repr, field.weights))]
            if field.texts is not None:
                yield texts(number, field, one.digits, one.words)
            if field.numbers is not None:
                yield [array("int32_t", f"numbers_{number}", field.numbers)]
    for number, cross in enumerate(described.crosses):
        yield weights_of_cross(number, cross)


def bins(described: Description, column: int, numbers: Sequence[int]) -> list[str]:
    """The intervals between the edges of all fields of a column: the weights of the fields together in each, and the codes of those
    fields that stand in a cross. The last entry is for missing values."""
    fields = [described.fields[number] for number in numbers]
    merged = sorted({edge for field in fields for edge in field.edges or []})
    codes = [
        [*(FIRST + np.concatenate([[0], np.searchsorted(field.edges or [], merged, side="right")]).astype(int)).tolist(), MISSING]
        for field in fields
    ]
    weights = [math.fsum(field.weights[code] for field, code in zip(fields, own, strict=True)) for own in zip(*codes, strict=True)]
    lines = [array("double", f"edges_{column}", map(repr, merged)), array("double", f"bins_{column}", map(repr, weights))]
    crossed = described.crossed
    return lines + [
        array("int32_t", f"codes_{number}", own) for number, own in zip(numbers, codes, strict=True) if number in crossed
    ]


def texts(number: int, field: Field, digits: bool, words: dict[str, str]) -> list[str]:
    """The texts of a field with their codes, those that mean missing among them, in a hash table. A text with a zero byte cannot be
    given in C."""
    known = {text: FIRST + place for place, text in enumerate(field.texts or [])}
    n_known = len(known)
    for word, text in words.items():
        known[word] = known.get(text, FIRST + n_known + bucket_of(text, field.n_buckets) if field.n_buckets else RARE)
    known |= dict.fromkeys(MISSING_TEXTS, MISSING)
    entries = [(text, text.encode("utf-8", "surrogatepass"), code) for text, code in known.items() if "\0" not in text]
    size = 1 << (2 * len(entries)).bit_length()
    slots = [0] * size
    for place, (_, content, _) in enumerate(entries):
        at = fnv(content) % size
        while slots[at]:
            at = (at + 1) % size
        slots[at] = place + 1
    rows = [f"{{{literal(text)}, {len(content)}, {code}}}" for text, content, code in entries]
    longest = max(len(content) for _, content, _ in entries)
    facts = f"{size - 1}, {longest}, {n_known}, {field.n_buckets}, {int(digits)}"
    return [
        f"static const autocross_text text_{number}[] = {{\n    " + ",\n    ".join(rows) + "\n};",
        array("uint32_t", f"slots_{number}", slots),
        f"static const autocross_texts texts_{number} = {{text_{number}, slots_{number}, {facts}}};",
    ]


def fnv(content: bytes) -> int:
    """The hash of `autocross_fnv`."""
    value = 2166136261
    for byte in content:
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value ^ value >> 15


def is_dense(cross: Cross) -> bool:
    """Whether a cross has a table of all possible keys."""
    return not cross.n_buckets and math.prod(cross.sizes) <= max(1024, DENSE * len(cross.keys))


def shift_of(cross: Cross) -> int:
    """How far a hashed key is shifted to give its slot."""
    return 64 - max(1, (2 * len(cross.keys)).bit_length())


def weights_of_cross(number: int, cross: Cross) -> list[str]:
    """The weights of a cross by key: in a table of all keys, or in a hash table."""
    if is_dense(cross):
        dense = [cross.weights[RARE]] * math.prod(cross.sizes)
        for key, weight in zip(cross.keys, cross.weights[FIRST:], strict=True):
            dense[key] = weight
        return [array("double", f"cross_{number}", map(repr, dense))]
    shift = shift_of(cross)
    slots = [(-1, 0.0)] * (1 << (64 - shift))
    for key, weight in zip(cross.keys, cross.weights[FIRST:], strict=False):  # buckets come behind
        at = (key * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF) >> shift
        while slots[at][0] >= 0:
            at = (at + 1) % len(slots)
        slots[at] = key, weight
    lines = [array("autocross_weight", f"cross_{number}", (f"{{{key}, {weight!r}}}" for key, weight in slots))]
    if cross.n_buckets:
        lines.append(array("double", f"buckets_{number}", map(repr, cross.weights[FIRST + len(cross.keys) :])))
    return lines


def function(described: Description) -> list[str]:
    """The function that adds up all weights of a row."""
    reasons = described.mean is not None
    lines = [f"static double autocross_run(const autocross_row *row{', double *reasons' if reasons else ''}) {{"]
    lines.append(f"    double total = {described.intercept!r}, added = 0.0;")
    for column in range(len(described.columns)):
        lines += column_code(described, column, reasons)
    for number, cross in enumerate(described.crosses):
        lines += cross_code(described, number, cross, reasons)
    return [*lines, "    (void)row; (void)added;", "    return total;", "}"]


def credit(columns: Sequence[int], reasons: bool) -> str:
    """Add what a term adds to the total and, if they are wanted, to the reasons of its columns, in equal shares."""
    if not reasons:
        return "total += added;"
    share = f" / {len(columns)}.0" if len(columns) > 1 else ""
    own = " ".join(f"reasons[{column}] += added{share};" for column in columns)
    return f"total += added; if (reasons) {{ {own} }}"


def column_code(described: Description, column: int, reasons: bool) -> list[str]:
    """What a column adds, and the codes of its fields that crosses need."""
    member, reads = f"row->{members(described)[column]}", described.columns[column].reads
    numbers, add = described.fields_of(column), credit([column], reasons)
    if reads == "text":
        return [
            line
            for number in numbers
            for line in (
                f"    int32_t c{number} = autocross_text_code(&texts_{number}, {member});",
                f"    added = weights_{number}[c{number}]; {add}",
            )
        ]
    if reads == "list":
        return [
            line
            for number in numbers
            for line in (
                f"    uint64_t bits_{number}[{len(described.fields[number].weights) // 64 + 1}];",
                f"    int32_t c{number}[AUTOCROSS_ENTRIES];",
                f"    size_t n{number};",
                f"    added = autocross_list(&texts_{number}, weights_{number}, bits_{number}, sizeof bits_{number} / 8, {member}, "
                f"{member}_count, c{number}, &n{number}); {add}",
            )
        ]
    lines, value = [], member
    if reads == "moment":
        lines += [f"    autocross_moment m{column};", f"    int is{column} = autocross_calendar({member}, &m{column});"]
        value = f"(is{column} ? (double)m{column}.micros : NAN)"
        for number in numbers:
            field = described.fields[number]
            if field.part is not None:
                place = f"autocross_part(numbers_{number}, {len(field.numbers or [])}, m{column}.{field.part})"
                lines.append(f"    int32_t c{number} = is{column} ? {place} : 0;")
                lines.append(f"    added = weights_{number}[c{number}]; {add}")
    binned = [number for number in numbers if described.fields[number].edges is not None]
    if binned:
        n = len({edge for number in binned for edge in described.fields[number].edges or []})
        lines.append(f"    double x{column} = {value};")
        lines.append(f"    size_t b{column} = isnan(x{column}) ? {n + 1} : autocross_bin(edges_{column}, {n}, x{column});")
        lines.append(f"    added = bins_{column}[b{column}]; {add}")
        lines += [f"    int32_t c{number} = codes_{number}[b{column}];" for number in binned if number in described.crossed]
    return lines


def cross_code(described: Description, number: int, cross: Cross, reasons: bool) -> list[str]:
    """What a cross adds. Where a field has several codes, every combination adds, up to a limit."""
    ragged = [one for one in cross.fields if described.columns[described.fields[one].column].reads == "list"]
    names = {one: f"c{one}[i{one}]" if one in ragged else f"c{one}" for one in cross.fields}
    key, span = f"(int64_t){names[cross.fields[0]]}", cross.sizes[0]
    for one, size in zip(cross.fields[1:], cross.sizes[1:], strict=True):
        key, span = f"({key} * {size} + {names[one]})", span * size
        if span > MODULUS:
            key = f"({key} % {MODULUS})"
    if is_dense(cross):
        weight = f"cross_{number}[key]"
    else:
        other = f"buckets_{number}[key % {cross.n_buckets}]" if cross.n_buckets else repr(cross.weights[RARE])
        weight = f"autocross_look_up(cross_{number}, {shift_of(cross)}, key, {other})"
    add = credit(cross.columns, reasons)
    if not ragged:
        return [f"    {{ int64_t key = {key}; added = {weight}; {add} }}"]
    loops = " ".join(f"for (size_t i{one} = 0; i{one} < n{one}; i{one}++)" for one in ragged)
    return [
        f"    added = 0.0; {{ int left = AUTOCROSS_ENTRIES; {loops}",
        f"        if (left-- > 0) {{ int64_t key = {key}; added += {weight}; }} }}",
        f"    {add}",
    ]


def faces(described: Description) -> list[str]:
    """The functions that others call."""
    call = "autocross_run(row, NULL)" if described.mean is not None else "autocross_run(row)"
    lines = [
        f"double autocross_log_odds(const autocross_row *row) {{ return {call}; }}",
        "double autocross_score(const autocross_row *row) {",
        "    double log_odds = autocross_log_odds(row), e = exp(-fabs(log_odds));",
        "    return (log_odds >= 0 ? 1.0 : e) / (1.0 + e);",
        "}",
    ]
    if described.mean is not None:
        lines += ["void autocross_reasons(const autocross_row *row, double reasons[AUTOCROSS_COLUMNS]) {"]
        lines += [f"    reasons[{number}] = {-(column.mean or 0.0)!r};" for number, column in enumerate(described.columns)]
        lines += ["    autocross_run(row, reasons);", "}"]
    return lines
