"""Runs an exported C file on rows: a small program reads them from a file and prints what it finds. It is compiled with all
warnings as errors, and with sanitizers, which end it at the first wrong access."""

from __future__ import annotations

import struct
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

from autocross.exporting.c_file import members
from autocross.exporting.description import Description

WARNINGS = ["-std=c99", "-Wall", "-Wextra", "-Werror"]
SANITIZERS = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

READER = r"""
#define AUTOCROSS_DECLARATIONS_ONLY
#include "model.c"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static inline void take(void *to, size_t n, FILE *in) { if (fread(to, 1, n, in) != n) abort(); }

static inline char *text(FILE *in) {
    int32_t n;
    take(&n, sizeof n, in);
    if (n < 0) return NULL;
    char *made = malloc((size_t)n + 1);
    take(made, (size_t)n, in);
    made[n] = 0;
    return made;
}

static inline double number(FILE *in) { double value; take(&value, sizeof value, in); return value; }

static inline const char **list(FILE *in, size_t *count) {
    int32_t n;
    take(&n, sizeof n, in);
    *count = n < 0 ? 0 : (size_t)n;
    if (n < 0) return NULL;
    const char **made = malloc((*count + 1) * sizeof *made);
    for (int32_t i = 0; i < n; i++) made[i] = text(in);
    return made;
}

int main(int argc, char **argv) {
    (void)argc;
    FILE *in = fopen(argv[1], "rb");
    for (double rows = number(in); rows > 0; rows--) {
        autocross_row row;
        READS
        printf("%.17g %.17g", autocross_log_odds(&row), autocross_score(&row));
        REASONS
        printf("\n");
        FREES
    }
    fclose(in);
    return 0;
}
"""


def packed(value: Any, reads: str, separator: str | None) -> bytes:
    """A value as the program reads it."""
    if reads == "moment":
        value = None if value is None else (value - datetime(1970, 1, 1)).total_seconds()
    if reads in ("number", "moment"):
        return struct.pack("<d", float("nan") if value is None else value)
    if reads == "text":
        content = b"" if value is None else value.encode()
        return struct.pack("<i", -1 if value is None else len(content)) + content
    if isinstance(value, str):
        value = None if value == "NA" or not value else [piece.strip() for piece in value.split(separator or "|")]
    if value is None:
        return struct.pack("<i", -1)
    return struct.pack("<i", len(value)) + b"".join(packed(entry, "text", None) for entry in value)


def compiled(source: Path, described: Description, folder: Path) -> Path:
    """The program."""
    (folder / "model.c").write_bytes(source.read_bytes())
    reads, frees = [], []
    for name, column in zip(members(described), described.columns, strict=True):
        call = {"text": f"row.{name} = text(in);", "list": f"row.{name} = list(in, &row.{name}_count);"}
        reads.append(call.get(column.reads, f"row.{name} = number(in);"))
        if column.reads == "list":
            frees.append(f"for (size_t i = 0; i < row.{name}_count; i++) free((void *)row.{name}[i]);")
        if column.reads in call:
            frees.append(f"free((void *)row.{name});")
    reasons = ["double reasons[AUTOCROSS_COLUMNS]; autocross_reasons(&row, reasons);"]
    reasons.append('for (int i = 0; i < AUTOCROSS_COLUMNS; i++) printf(" %.17g", reasons[i]);')
    program = READER.replace("READS", " ".join(reads)).replace("FREES", " ".join(frees))
    (folder / "main.c").write_text(program.replace("REASONS", " ".join(reasons) if described.mean is not None else ""))
    command = ["gcc", *WARNINGS, *SANITIZERS, "main.c", "model.c", "-lm", "-o", "scores"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "scores"


def scored(source: Path, described: Description, rows: list[dict[str, Any]], folder: Path) -> list[list[float]]:
    """The log-odds, the probability and perhaps the reasons of every row."""
    program = compiled(source, described, folder)
    content = [struct.pack("<d", len(rows))]
    for row in rows:
        content += [packed(row.get(column.name), column.reads, column.separator) for column in described.columns]
    (folder / "rows").write_bytes(b"".join(content))
    done = subprocess.run([program, folder / "rows"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [[float(number) for number in line.split()] for line in done.stdout.splitlines()]
