"""How processes that share a schema wake each other, and which are running: LISTEN and NOTIFY, and polling.

A waiting process has its own connection that listens (`Listener`). A process that misses a notification, or
cannot listen behind a pooler, polls whether any transaction has begun since.

Notifications are sent by a thread after the commits; no reply waits for them:

    commit ─▶ reply                a transaction that notifies by itself holds a lock of the whole server
       └──▶ notifier ─▶ NOTIFY     until its commit is on the disk: all would commit one after the other

Several in a row are sent as one, and the last one is sent before the store is closed.

Each running process holds an advisory lock of its session, without a write.

The lock ends with the session, and the session with the process, or half a minute after its machine is gone.
Behind a transaction pooler sessions are shared, so presence is not available.
"""

import atexit
import os
import threading
import weakref
from collections.abc import Collection
from time import sleep
from typing import Any

import psycopg

from ...core.errors import Conflict, HoldfastError
from ..common.interrupts import ServiceThread, wake
from ..common.listener import END, POLL_S, SELDOM_S, SOON_S, Listener, PollTimes
from ..common.waker import wait_readable
from .connection import OwnConnection, PostgresConnection
from .locks import hashed
from .pool import Pool
from .statements import channel, numbers
from .url import PostgresAddress

# Changes whenever a transaction that writes begins, in whichever database: cheap, and enough for a hint.
NEWEST = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"

# How long a program that exits waits for its last notification to be sent.
EXIT_S = 2.0
# Without synchronous commit: a notification need not be durable.
_NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"
# The pause after a notification, per commit since the last one and at most: a process that was just woken up
# is still working. A single add notifies at once, a process that only adds a hundred times a second.
PAUSE_S, LONGEST_PAUSE_S = 0.002, 0.01


class PostgresListener(Listener[OwnConnection]):
    """Waits for commits of other stores."""

    faults = (psycopg.Error,)

    def __init__(self, address: PostgresAddress, pool: Pool) -> None:
        super().__init__()
        self._address, self._pool = address, pool
        self._listens = False
        # The connections of parents.
        self._inherited: list[OwnConnection] = []

    def _connect(self) -> OwnConnection:
        connection = self._pool.connect()
        self._listens = self._address.notify and not self._pool.pooled
        if self._listens:
            connection.execute(f'LISTEN "{channel(self._address.schema)}"')
        self._polls = PollTimes(SOON_S, SELDOM_S) if self._listens else PollTimes(POLL_S, POLL_S)
        return connection

    def _socket(self, connection: OwnConnection) -> Any:
        return connection.pgconn.socket if self._listens else None

    def _messages(self, connection: OwnConnection) -> list[bytes]:
        connection.pgconn.consume_input()
        payloads = []
        while (notification := connection.pgconn.notifies()) is not None:
            payloads.append(notification.extra)
        return payloads

    def _poll(self, connection: OwnConnection) -> Any:
        return connection.value(NEWEST)

    def _disconnect(self, connection: OwnConnection, *, inherited: bool) -> None:
        if inherited:
            # It is kept open, see `pool.py`.
            self._inherited.append(connection)
        else:
            connection.close()


class PostgresNotifier:
    """Wakes up the other stores of a schema from a thread."""

    def __init__(self, address: PostgresAddress, pool: Pool, name: bytes) -> None:
        self._address, self._pool = address, pool
        # The payload, by which the listener of this store recognises its own notifications.
        self._name = name
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        # Released when a notification is wanted, taken by the thread.
        self._wanted = threading.Lock()
        self._wanted.acquire()
        # The approximate number of commits since the last notification; whether one of them had jobs to
        # claim.
        self._times = 0
        self._has_jobs = False
        self._closed = False
        self._thread = ServiceThread(self._loop, "holdfast-notifier")

    def notify(self, *, ends: bool) -> None:
        """Wake up other processes soon; `ends`: only those that wait for completions or logs."""
        if self._pid != os.getpid():
            # A forked child has no thread.
            self._begin()
        self._times += 1
        if not ends:
            self._has_jobs = True
        if self._closed or not self._wanted.locked():
            return
        if not self._thread.is_started:
            _senders.add(self)
            try:
                self._thread.start()
            except RuntimeError:  # no thread can be started now; the other processes poll
                return
        # Last: after an earlier KeyboardInterrupt the next notification does it.
        wake(self._wanted)

    def close(self, timeout_s: float | None = None) -> None:
        """Send the last notification, and stop the thread."""
        self._closed = True
        if self._pid == os.getpid() and self._thread.is_started:
            left = not self._wanted.locked()
            wake(self._wanted)
            if self._thread.join(-1 if timeout_s is None else timeout_s) and left:
                self._send()

    def _loop(self) -> None:
        while True:
            self._wanted.acquire()
            if self._closed:
                return
            times, self._times = self._times, 0
            self._send()
            sleep(min(PAUSE_S * times, LONGEST_PAUSE_S))

    def _send(self) -> None:
        payload = self._name + END
        if self._has_jobs:
            # Only if it was sent: otherwise a notification requested meanwhile would be lost.
            self._has_jobs = False
            payload = self._name
        try:
            with self._pool.connection() as connection:
                connection.value(_NOTIFY, (channel(self._address.schema), payload.decode()))
        except (psycopg.Error, HoldfastError, Conflict):
            # A lost hint: the other processes poll.
            pass


# Notifiers with a thread, so that a program that exits without closing its queue sends its last notification.
_senders: "weakref.WeakSet[PostgresNotifier]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for sender in list(_senders):
        sender.close(EXIT_S)


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
