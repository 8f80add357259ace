"""The bare driver beside which the soak test measures: one table, one index, the same durability."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg

from tests.servers import PostgresAddress

TABLE = """
CREATE TABLE bare_jobs (id bigint PRIMARY KEY, place smallint, rank bigint, data text);
CREATE INDEX bare_ready ON bare_jobs (place, rank);
"""
CLAIM = """
UPDATE bare_jobs SET place = 1 WHERE id = ANY(ARRAY(
    SELECT id FROM bare_jobs WHERE place = 0 ORDER BY rank LIMIT %s FOR UPDATE SKIP LOCKED
)) RETURNING id, data
"""
DELETE = "DELETE FROM bare_jobs WHERE id = ANY(%s)"


class BareTable:
    """A table of jobs."""

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self._connection = connection

    def fill(self, count: int, data: str) -> None:
        """Insert jobs by one COPY."""
        with self._connection.cursor().copy("COPY bare_jobs FROM STDIN") as rows:
            rows.write("".join([f"{n}\t0\t{n}\t{data}\n" for n in range(count)]))

    def drain(self, by: int) -> None:
        """Claim and delete all jobs, two transactions for each batch."""
        cursor = self._connection.cursor(binary=True)
        while ids := [row[0] for row in cursor.execute(CLAIM, (by,), prepare=True)]:
            cursor.execute(DELETE, (ids,), prepare=True)


@contextmanager
def bare_table(server: PostgresAddress) -> Iterator[BareTable]:
    """A fresh table, which is dropped at the end."""
    with closing(server.connect()) as connection:
        connection.execute(TABLE)
        try:
            yield BareTable(connection)
        finally:
            connection.execute("DROP TABLE bare_jobs")
