"""How processes that share a schema wake each other: LISTEN and NOTIFY, and polling.

A waiting process has its own connection that listens (`Listener`). A process that misses a notification, or
cannot listen behind a pooler, polls whether any transaction has begun since.

Notifications are sent by a thread after the commits; no reply waits for them:

    commit ─▶ reply                a transaction that notifies by itself holds a lock of the whole server
       └──▶ notifier ─▶ NOTIFY     until its commit is on the disk: all would commit one after the other

Several in a row are sent as one, and the last one is sent before the store is closed.
"""

import atexit
import os
import threading
import weakref
from time import sleep
from typing import Any

import psycopg

from ...core.errors import Conflict, HoldfastError
from ..common.interrupts import ServiceThread, wake
from ..common.listener import END, POLL_S, SELDOM_S, SOON_S, Listener, PollTimes
from .connection import OwnConnection
from .pool import Pool
from .statements import channel
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
