"""Runs an exported query on rows in real databases: DuckDB, SQLite, and a PostgreSQL server of its own on a socket in a folder."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from autocross.exporting.description import Column
from autocross.exporting.sql_dialects import identifier

Rows = Sequence[Sequence[Any]]
TYPES = {
    "duckdb": {"number": "DOUBLE", "text": "VARCHAR", "list": "VARCHAR[]", "moment": "TIMESTAMP", "joined": "VARCHAR"},
    "postgres": {"number": "double precision", "text": "text", "list": "text[]", "moment": "timestamp", "joined": "text"},
    "sqlite": {"number": "REAL", "text": "TEXT", "list": "TEXT", "moment": "TEXT", "joined": "TEXT"},
}


def type_of(column: Column, dialect: str) -> str:
    """The type that a column usually has."""
    return TYPES[dialect]["joined" if column.separator else column.reads]


def create(columns: Sequence[tuple[str, str]], table: str) -> str:
    """The statement that makes a table."""
    return f"CREATE TABLE {identifier(table)} ({', '.join(f'{identifier(name)} {kind}' for name, kind in columns)})"


def insert(n: int, table: str, mark: str) -> str:
    """The statement that adds a row."""
    return f"INSERT INTO {identifier(table)} VALUES ({', '.join([mark] * n)})"


def in_sqlite(value: Any) -> Any:
    """A value as SQLite holds it: lists are JSON, and times are texts."""
    if isinstance(value, datetime):
        return value.isoformat(" ")
    return json.dumps(value) if isinstance(value, list) else value


def run_duckdb(query: str, columns: Sequence[tuple[str, str]], rows: Rows, table: str = "input") -> list[dict[str, Any]]:
    import duckdb

    with closing(duckdb.connect()) as database:
        database.execute(create(columns, table))
        if rows:
            database.executemany(insert(len(columns), table, "?"), [list(row) for row in rows])
        result = database.execute(query)
        names = [entry[0] for entry in result.description]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def run_sqlite(query: str, columns: Sequence[tuple[str, str]], rows: Rows, table: str = "input") -> list[dict[str, Any]]:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(create(columns, table))
        database.executemany(insert(len(columns), table, "?"), [[in_sqlite(value) for value in row] for row in rows])
        result = database.execute(query)
        names = [entry[0] for entry in result.description]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def run_postgres(query: str, columns: Sequence[tuple[str, str]], rows: Rows, table: str = "input") -> list[dict[str, Any]]:
    import psycopg

    with psycopg.connect(server(), autocommit=True) as database, database.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {identifier(table)}".encode())
        cursor.execute(create(columns, table).encode())
        cursor.executemany(insert(len(columns), table, "%s").replace("%", "%").encode(), rows)
        cursor.execute(query.encode())
        names = [entry.name for entry in cursor.description or []]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


RUN = {"duckdb": run_duckdb, "sqlite": run_sqlite, "postgres": run_postgres}
STARTED = ExitStack()  # has the server, once it is needed
ADDRESS: list[str] = []


def server() -> str:
    """Where the server listens. It is started for the first test that needs it, which is skipped where there is none."""
    if not ADDRESS:
        folder = programs()
        if folder is None:
            pytest.skip("there is no PostgreSQL server")
        STARTED.enter_context(postgres(folder))
    return ADDRESS[0]


def programs() -> Path | None:
    """The folder of the programs of PostgreSQL."""
    found = [*Path("/usr/lib/postgresql").glob("*/bin/initdb"), *map(Path, filter(None, [shutil.which("initdb")]))]
    return found[0].parent if found else None


@contextmanager
def postgres(folder: Path) -> Iterator[None]:
    """A server of its own, which listens on a socket in its folder only. It does not run as root."""
    user = "postgres" if os.geteuid() == 0 else None
    place = Path(tempfile.mkdtemp(prefix="autocross-"))
    if user:
        shutil.chown(place, user)

    def call(program: str, *arguments: str) -> None:
        subprocess.run(
            [folder / program, "-D", place / "data", *arguments], user=user, cwd=place, check=True, stdout=subprocess.DEVNULL
        )

    try:
        call("initdb", "--username=tester", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
        options = f"-c listen_addresses= -c unix_socket_directories={place} -c fsync=off"
        call("pg_ctl", "start", "--wait", "--silent", f"--log={place / 'log'}", f"--options={options}")
        try:
            ADDRESS.append(f"host={place} user=tester dbname=postgres")
            yield
        finally:
            ADDRESS.clear()
            call("pg_ctl", "stop", "--wait", "--silent", "--mode=immediate")
    finally:
        shutil.rmtree(place, ignore_errors=True)
