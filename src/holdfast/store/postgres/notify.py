"""How processes that share a schema wake each other: LISTEN and NOTIFY, and polling.

A waiting process has its own connection that listens. A notification is a hint: a process that misses it, or
that cannot listen behind a pooler, polls whether any transaction has begun since. A lost connection also
wakes it up, so that it finds out whether the server is up.

Notifications are sent by a thread after the commits; no reply waits for them:

    commit ─▶ reply                a transaction that notifies by itself holds a lock of the whole server
       └──▶ notifier ─▶ NOTIFY     until its commit is on the disk: all would commit one after the other

Several in a row are sent as one, and the last one is sent before the store is closed.
"""

import atexit
import os
import secrets
import select
import threading
import weakref
from typing import Any

import psycopg

from ...core.errors import Conflict, HoldfastError
from ..common.clock import monotonic_s
from ..common.keepalive import enable_keepalive
from ..common.polling import PollTimes
from ..common.waker import Waker
from .connection import OwnConnection
from .pool import Pool
from .statements import channel
from .url import PostgresAddress

# How often a waiting process polls: first and last interval after a notification if it can listen
# (`PollTimes`); if it cannot; and while the server is down. A poll that finds a change costs a transaction.
SOON_S, SELDOM_S, POLL_S, AWAY_S = 5.0, 30.0, 0.25, 1.0

# Changes whenever a transaction that writes begins, in whichever database: cheap, and enough for a hint.
NEWEST = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"

# The end of a payload that is only about completions or log appends.
END = "."
# How long a program that exits waits for its last notification to be sent.
EXIT_S = 2.0
# Without synchronous commit: a notification need not be durable.
_NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"
# The pause after a notification, per commit since the last one and at most: a process that was just woken up
# is still working. A single add notifies at once, a process that only adds a hundred times a second.
PAUSE_S, LONGEST_PAUSE_S = 0.002, 0.01


class PostgresListener:
    """Wakes up the `wait` of one store."""

    def __init__(self, address: PostgresAddress, pool: Pool) -> None:
        self._address, self._pool = address, pool
        # The payload of our own notifications.
        self.name = secrets.token_hex(8)
        self._pid = os.getpid()
        self._connection: OwnConnection | None = None
        self._listens = False
        # The newest transaction at the last poll, and when to poll next.
        self._newest, self._polls = "", PollTimes(SOON_S, SELDOM_S)
        self._waker = Waker()
        self._waiting = threading.Lock()
        self._closed = False

    def wait(self, timeout_s: float, *, ends: bool) -> bool:
        """Sleep until notified or interrupted; False after the time-out.

        `ends`: whether it also wakes up on completions and log appends.
        """
        until_s = monotonic_s() + timeout_s
        if not self._waiting.acquire(timeout=max(timeout_s, 0.0)):
            return False
        try:
            while not (woken := self._sleep(max(until_s - monotonic_s(), 0.0), ends)):
                if monotonic_s() >= until_s:
                    break
            return woken
        finally:
            self._waiting.release()

    def interrupt(self) -> None:
        """Wake up this store's own `wait`, or the next one."""
        self._waker.wake()

    def close(self) -> None:
        """Stop listening, after the last `wait` has returned."""
        self._closed = True
        self.interrupt()
        with self._waiting:
            if self._pid == os.getpid():
                self._forget()
            self._waker.close()

    def _sleep(self, left_s: float, ends: bool) -> bool:
        """Sleep until the next poll at most; return whether `wait` should return."""
        self._notice_fork()
        waker = self._waker
        if waker.is_set or self._closed:
            waker.clear()
            return True
        try:
            if (connection := self._connection) is None or not connection.is_open:
                # Notifications from before were missed, so poll at once.
                return self._listen()
            watched: list[Any] = [waker, connection.pgconn.socket] if self._listens else [waker]
            ready, _, _ = select.select(watched, [], [], min(left_s, self._polls.left_s))
            if waker in ready:
                waker.clear()
                return True
            return self._is_notified(connection, ends) if ready else self._is_changed(connection)
        except psycopg.Error:
            # `wait` returns, once: the next call has the same error, and a caller to raise it to.
            if self._connection is not None:
                self._forget()
                return True
            return bool(select.select([waker], [], [], min(left_s, AWAY_S))[0])

    def _is_notified(self, connection: OwnConnection, ends: bool) -> bool:
        """Whether another store has sent a notification that wakes up this one."""
        connection.pgconn.consume_input()
        payloads = []
        while (notification := connection.pgconn.notifies()) is not None:
            payloads.append(notification.extra.decode())
        others = [payload for payload in payloads if payload.removesuffix(END) != self.name]
        if others:
            self._polls.poll_soon()
        return any(ends or not payload.endswith(END) for payload in others)

    def _is_changed(self, connection: OwnConnection) -> bool:
        """Whether anything was written since the last poll, if a poll is due."""
        if self._polls.left_s:
            return False
        self._polls.polled()
        before, self._newest = self._newest, connection.value(NEWEST)
        return before not in ("", self._newest)

    def _listen(self) -> bool:
        connection = self._pool.connect()
        self._listens = self._address.notify and not self._pool.pooled
        if self._listens:
            connection.execute(f'LISTEN "{channel(self._address.schema)}"')
        self._polls = PollTimes(SOON_S, SELDOM_S) if self._listens else PollTimes(POLL_S, POLL_S)
        enable_keepalive(connection.pgconn.socket)
        self._connection = connection
        return self._is_changed(connection)

    def opened(self, connection: OwnConnection) -> None:
        """Note the newest transaction: later ones wake up `wait`."""
        self._newest = connection.value(NEWEST)

    def _forget(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _notice_fork(self) -> None:
        if self._pid != os.getpid():
            # The connection is the parent's. It is kept open, see `pool.py`.
            self._pid, self._parents, self._connection = os.getpid(), self._connection, None
            self._waker.forget()


class PostgresNotifier:
    """Wakes up the other stores of a schema from a thread."""

    def __init__(self, address: PostgresAddress, pool: Pool, name: str) -> None:
        self._address, self._pool = address, pool
        # The payload, by which the listener of this store recognises its own notifications.
        self._name = name
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._wanted = threading.Event()
        # The approximate number of commits since the last notification; whether one of them had jobs to
        # claim.
        self._times = 0
        self._has_jobs = False
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def notify(self, *, ends: bool) -> None:
        """Wake up other processes soon; `ends`: only those that wait for completions or logs."""
        if self._pid != os.getpid():
            # A forked child has no thread.
            self._begin()
        self._times += 1
        if not ends:
            self._has_jobs = True
        if self._wanted.is_set() or self._closed.is_set():
            return
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._closed.is_set():
                    self._start_thread()
        # Last: after an earlier KeyboardInterrupt the next notification does it.
        self._wanted.set()

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._loop, name="holdfast-notifier", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread can be started now; the other processes poll
            return
        self._thread = thread
        _senders.add(self)

    def close(self, timeout_s: float | None = None) -> None:
        """Send the last notification, and stop the thread."""
        with self._lock:
            self._closed.set()
        if self._pid == os.getpid() and self._thread is not None:
            left = self._wanted.is_set()
            self._wanted.set()
            self._thread.join(timeout_s)
            if left and not self._thread.is_alive():
                self._send()

    def _loop(self) -> None:
        while not self._closed.is_set():
            self._wanted.wait()
            if self._closed.is_set():
                return
            self._wanted.clear()
            times, self._times = self._times, 0
            self._send()
            self._closed.wait(min(PAUSE_S * times, LONGEST_PAUSE_S))

    def _send(self) -> None:
        payload = self._name + END
        if self._has_jobs:
            # Only if it was sent: otherwise a notification requested meanwhile would be lost.
            self._has_jobs = False
            payload = self._name
        try:
            with self._pool.connection() as connection:
                connection.value(_NOTIFY, (channel(self._address.schema), payload))
        except (psycopg.Error, HoldfastError, Conflict):
            # A lost hint: the other processes poll.
            pass


# Notifiers with a thread, so that a program that exits without closing its queue sends its last notification.
_senders: "weakref.WeakSet[PostgresNotifier]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for sender in list(_senders):
        sender.close(EXIT_S)
