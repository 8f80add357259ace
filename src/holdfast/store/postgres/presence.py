"""Who is there: processes that show themselves by a lock of their session, without a write.

The lock ends with the session, and the session with the process, or half a minute after its machine is gone.
Behind a pooler of transactions a session is nobody's: there nobody can be seen.
"""

import os
import select

import psycopg

from .connection import Link, OwnLink
from .pool import Pool
from .statements import lock_number
from .url import Address

# By when the server knows that a machine has gone without a word: its own limit is two hours.
_ALIVE = "SET tcp_keepalives_idle = 15; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"
_SEEN = """SELECT EXISTS (
    SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (classid::bigint << 32) | objid::bigint = %s::bigint
)"""


class Presence:
    """One store's place among those who are there."""

    def __init__(self, address: Address, pool: Pool) -> None:
        self._address, self._pool = address, pool
        self._names: list[str] = []
        self._link: OwnLink | None = None
        self._pid = os.getpid()

    def appear(self, name: str) -> bool:
        """Be there under a name that nobody had before; False where that cannot be."""
        if not self._address.notify or self._pool.pooled:
            # So is somebody told who has a pooler: there are no sessions to speak of.
            return False
        if name not in self._names:
            self._names.append(name)
            try:
                if self._link is None:
                    self._begin()
                else:
                    self._take(self._link, name)
            except psycopg.Error:
                self._names.remove(name)
                self._drop()
                raise
        return True

    def keep(self) -> None:
        """Be there again, if the session was cut."""
        if not self._names or self._pid != os.getpid():
            return
        link = self._link
        try:
            if link is not None and link.is_open:
                if select.select([link.connection.fileno()], [], [], 0)[0]:
                    link.connection.pgconn.consume_input()
                return
            self._begin()
        except psycopg.Error:
            # The server is away; the next time.
            self._drop()

    def close(self) -> None:
        """Be there no longer."""
        self._names.clear()
        if self._pid == os.getpid():
            self._drop()

    def _begin(self) -> None:
        link = self._link = self._pool.connect()
        link.script(_ALIVE)
        for name in self._names:
            self._take(link, name)

    def _take(self, link: Link, name: str) -> None:
        link.value(
            "SELECT pg_advisory_lock(%s) IS NULL", (lock_number(self._address.schema, "present", name),)
        )

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


def sees(link: Link, schema: str, name: str) -> bool:
    """Whether somebody is there under a name."""
    return bool(link.value(_SEEN, (lock_number(schema, "present", name),)))
