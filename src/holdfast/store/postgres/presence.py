"""Which processes are running: each holds an advisory lock of its session, without a write.

The lock ends with the session, and the session with the process, or half a minute after its machine is gone.
Behind a transaction pooler sessions are shared, so presence is not available.
"""

import os
from collections.abc import Collection

import psycopg

from ..common.waker import wait_readable
from .connection import OwnConnection, PostgresConnection
from .locks import hashed
from .pool import Pool
from .statements import numbers
from .url import PostgresAddress

# How soon the server notices that a machine has disappeared; its own default is two hours.
_ALIVE = "SET tcp_keepalives_idle = 15; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"
_PRESENT = """SELECT (classid::bigint << 32) | objid::bigint
FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND (classid::bigint << 32) | objid::bigint = ANY(%s::bigint[])"""


class PostgresPresence:
    """The announced names of one process."""

    def __init__(self, address: PostgresAddress, pool: Pool) -> None:
        self._address, self._pool = address, pool
        self._names: list[str] = []
        self._connection: OwnConnection | None = None
        self._pid = os.getpid()

    def appear(self, name: str) -> bool:
        """Announce a unique name; False if that is not possible."""
        if not self._address.notify or self._pool.pooled:
            # `notify=off` is set by users of a pooler, where sessions are shared.
            return False
        if name not in self._names:
            self._names.append(name)
            try:
                if self._connection is None:
                    self._begin()
                else:
                    self._lock(self._connection, name)
            except psycopg.Error:
                self._names.remove(name)
                self._drop()
                raise
        return not self._pool.pooled

    def keep(self) -> None:
        """Announce the names again if the session was lost."""
        if not self._names or self._pid != os.getpid():
            return
        connection = self._connection
        try:
            if connection is not None and connection.is_open:
                if wait_readable([connection.pgconn.socket], 0.0):
                    connection.pgconn.consume_input()
                return
            self._begin()
        except psycopg.Error:
            # The server is down: retried at the next call.
            self._drop()

    def close(self) -> None:
        """Close the session, and so release the locks."""
        self._names.clear()
        if self._pid == os.getpid():
            self._drop()

    def _begin(self) -> None:
        connection = self._connection = self._pool.connect()
        if self._pool.pooled:
            # The first connection has shown it: a lock would stay in the pooler's session after our end.
            self.close()
            return
        connection.execute(_ALIVE)
        for name in self._names:
            self._lock(connection, name)

    def _lock(self, connection: PostgresConnection, name: str) -> None:
        connection.value("SELECT pg_advisory_lock(%s) IS NULL", (hashed(self._address.schema, name),))

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def find_present(connection: PostgresConnection, schema: str, names: Collection[str]) -> set[str]:
    """Those of these names whose processes are running."""
    locks = {name: hashed(schema, name) for name in names}
    found = {row[0] for row in connection.rows(_PRESENT, (numbers([*locks.values()]),))} if locks else set()
    return {name for name, lock in locks.items() if lock in found}
