"""The raw limit of PostgreSQL: bare psycopg inserting, claiming and deleting the same job.

One table, one index beside the primary key, one job or 1,000 a transaction, with the server's own durability.
Each is one prepared statement a transaction, arrays in binary form: nothing faster was found but COPY, for
inserts by 1,000, and so that is what they are.
"""

import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from time import sleep
from typing import Any

import psycopg

from ...core.errors import BadInput
from ...store.common.clock import monotonic_s
from ...store.postgres.url import parse

SCHEMA = """
CREATE TABLE {schema}.job (id bigint PRIMARY KEY, place smallint, rank bigint, data text);
CREATE INDEX ready ON {schema}.job (place, rank);
"""
INSERT = "INSERT INTO {schema}.job VALUES (%s, 0, %s, %s)"
COPY = "COPY {schema}.job FROM STDIN"
CLAIM = """
UPDATE {schema}.job SET place = 1 WHERE id = ANY(ARRAY(
    SELECT id FROM {schema}.job WHERE place = 0 ORDER BY rank LIMIT %s FOR UPDATE SKIP LOCKED
)) RETURNING id, data
"""
DELETE = "DELETE FROM {schema}.job WHERE id = ANY(%s)"
# What of a server the figures depend on.
SETTINGS = ("server_version", "fsync", "synchronous_commit", "shared_buffers")
SESSIONS = "SELECT pid, query_start FROM pg_stat_activity WHERE application_name = %s"
# How often they are looked at: a worker that is idle says less.
LOOK_S = 0.01


class PostgresRaw:
    """A bare table in a schema of its own."""

    def __init__(self, connection: "psycopg.Connection[Any]", schema: str) -> None:
        self._connection, self._schema = connection, schema
        connection.execute(self._sql(SCHEMA))

    def _sql(self, text: str) -> str:
        return text.replace("{schema}", schema_name(self._schema))

    def insert(self, first: int, count: int, by: int, data: str) -> None:
        """Insert jobs, so many a transaction: a statement, or a COPY."""
        cursor, insert, copy = self._connection.cursor(), self._sql(INSERT), self._sql(COPY)
        for start in range(first, first + count, by):
            if by == 1:
                cursor.execute(insert, (start, start, data), prepare=True)
                continue
            with cursor.copy(copy) as rows:
                rows.write("".join([f"{n}\t0\t{n}\t{data}\n" for n in range(start, start + by)]))

    def drain(self, by: int) -> int:
        """Claim and delete all jobs, two transactions for each batch; how many."""
        cursor, claim, delete, total = (
            self._connection.cursor(binary=True),
            self._sql(CLAIM),
            self._sql(DELETE),
            0,
        )
        while True:
            ids = [row[0] for row in cursor.execute(claim, (by,), prepare=True)]
            if not ids:
                return total
            cursor.execute(delete, (ids,), prepare=True)
            total += len(ids)


class PostgresSide:
    """Schemas of their own, made in the database that was named and dropped afterwards."""

    def __init__(self, url: str | None, folder: Path | None) -> None:
        if folder is not None:
            raise BadInput("folder", str(folder), needed="absent: the server knows where its files are")
        assert url is not None
        self._url, self._address = url, parse(url)

    def settings(self) -> str:
        """The server, and what of its settings counts."""
        with closing(self._connect()) as connection:
            found = {name: _value(connection, "SELECT current_setting(%s)", name) for name in SETTINGS}
        told = ", ".join(f"{name} = {value}" for name, value in found.items() if name != "server_version")
        return f"PostgreSQL {found['server_version']}, {told}, archive on, 100 bytes of data"

    @contextmanager
    def store(self) -> Iterator[str]:
        """A schema that the store makes for itself."""
        with self._schema() as (_, name):
            base, _, query = self._url.partition("?")
            kept = [pair for pair in query.split("&") if pair and not pair.startswith("schema=")]
            yield f"{base}?{'&'.join([*kept, f'schema={name}', f'application_name={name}'])}"

    @contextmanager
    def raw(self) -> Iterator[PostgresRaw]:
        """A bare table in another."""
        with self._schema() as (connection, name):
            connection.execute(f"CREATE SCHEMA {schema_name(name)}")
            yield PostgresRaw(connection, name)

    def slow(self) -> AbstractContextManager[None] | None:
        """There is nothing to stand between a server and its disk."""
        return None

    def written(self, url: str) -> object:
        """Which rows there are, and which transactions wrote them: the server's statistics come late."""
        name = parse(url).schema
        with closing(self._connect()) as connection:
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (name,))
            rows = "SELECT string_agg(ctid::text || xmin::text, ' ' ORDER BY ctid) FROM {}.{}"
            return [_value(connection, rows.format(schema_name(name), table)) for (table,) in tables]

    def questions(self, url: str, seconds: float) -> int:
        """How many statements the users of a store send in a while, by looking at their sessions often."""
        name, until_s = parse(url).parameters["application_name"], monotonic_s() + seconds
        with closing(self._connect()) as connection:
            seen = _sessions(connection, name)
            count = 0
            while monotonic_s() < until_s:
                sleep(LOOK_S)
                now = _sessions(connection, name)
                count += len(now - seen)
                seen = now
        return count

    @contextmanager
    def _schema(self) -> Iterator[tuple["psycopg.Connection[Any]", str]]:
        name = f"holdfast_bench_{secrets.token_hex(4)}"
        with closing(self._connect()) as connection:
            try:
                yield connection, name
            finally:
                connection.execute("SET client_min_messages = warning")
                connection.execute(f"DROP SCHEMA IF EXISTS {schema_name(name)} CASCADE")

    def _connect(self) -> "psycopg.Connection[Any]":
        return psycopg.connect(**self._address.parameters, autocommit=True)


def schema_name(schema: str) -> str:
    """A schema's name as SQL has it."""
    return f'"{schema}"'


def _sessions(connection: "psycopg.Connection[Any]", name: str) -> set[tuple[Any, ...]]:
    return set(connection.execute(SESSIONS, (name,)).fetchall())


def _value(connection: "psycopg.Connection[Any]", sql: str, *values: Any) -> Any:
    row = connection.execute(sql, values).fetchone()
    return row[0] if row else None
