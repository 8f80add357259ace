"""How processes that share a store wake each other: PUBLISH and SUBSCRIBE, and polling.

The commit script publishes a message. A waiting process has its own subscribed connection. A message is a
hint: a process that misses one polls a counter that each commit increments. A lost connection also wakes it
up, so that it finds out whether the server is up.
"""

import os
import secrets
import select
import threading
from typing import Any

from ..common.clock import monotonic_s
from ..common.polling import PollTimes
from ..common.waker import Waker
from ..contract import ENDS, JOBS, NO_WAKE
from .connection import RedisConnection, RedisServer
from .errors import FAULTS, ReplyError
from .keys import Keys

# How often a waiting process polls, first and last interval after a message (`PollTimes`), and while the
# server is down.
SOON_S, SELDOM_S, AWAY_S = 5.0, 30.0, 1.0
# The end of a message that is only about completions or log appends.
END = b"."


class RedisNotifier:
    """Waits for commits of other stores."""

    def __init__(self, server: RedisServer, keys: Keys) -> None:
        self._server, self._keys = server, keys
        # The name by which this store recognises its own messages.
        self._name = secrets.token_hex(8).encode()
        # The message that a commit publishes, by `Changes.wake`; b"": none.
        self.messages = {NO_WAKE: b"", ENDS: self._name + END, JOBS: self._name}
        self._connection: RedisConnection | None = None
        self._pid = os.getpid()
        # The commit counter at the last poll, and when to poll next.
        self._tick: bytes | None = None
        self._polls = PollTimes(SOON_S, SELDOM_S)
        self._waker = Waker()
        self._waiting = threading.Lock()
        self._closed = False

    def wait(self, timeout_s: float, *, ends: bool) -> bool:
        """Sleep until notified or interrupted; False after the time-out."""
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

    def begin(self, tick: bytes | None) -> None:
        """Wake up for every commit after this one."""
        self._tick = tick

    def interrupt(self) -> None:
        """Wake up this store's own `wait`, or the next one."""
        self._waker.wake()

    def close(self) -> None:
        """Stop listening, after the last `wait` has returned."""
        self._closed = True
        self.interrupt()
        with self._waiting:
            self._disconnect()
            self._waker.close()

    def _sleep(self, left_s: float, ends: bool) -> bool:
        """Sleep until the next poll at most; return whether `wait` should return."""
        self._notice_fork()
        waker = self._waker
        if waker.is_set or self._closed:
            waker.clear()
            return True
        try:
            if self._connection is None:
                # Messages from before were missed, so poll at once.
                self._subscribe()
                return self._has_changed()
            sources: list[Any] = [waker, self._connection.socket]
            ready, _, _ = select.select(sources, [], [], min(left_s, self._polls.left_s))
            if waker in ready:
                waker.clear()
                return True
            return self._has_message(ends) if ready else self._has_changed()
        except FAULTS:
            # `wait` returns, once: the next call has the same error, and a caller to raise it to.
            if self._connection is not None:
                self._disconnect()
                return True
            return bool(select.select([waker], [], [], min(left_s, AWAY_S))[0])

    def _has_message(self, ends: bool) -> bool:
        """Whether another process has published a message that wakes up this one."""
        assert self._connection is not None
        told = [data for sort, _, data in self._connection.read_pushed() if sort == b"message"]
        others = [data for data in told if data.removesuffix(END) != self._name]
        if others:
            self._polls.poll_soon()
        return any(ends or not data.endswith(END) for data in others)

    def _has_changed(self) -> bool:
        """Whether a batch was committed since the last poll, if a poll is due."""
        if self._polls.left_s:
            return False
        self._polls.polled()
        before, self._tick = self._tick, self._server.call(b"GET", self._keys.tick)
        return before != self._tick

    def _subscribe(self) -> None:
        connection = self._server.open()
        (reply,) = connection.exchange([(b"SUBSCRIBE", self._keys.news)])
        if isinstance(reply, ReplyError):
            connection.close()
            raise reply
        self._connection = connection
        self._polls.poll_now()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _notice_fork(self) -> None:
        if self._pid != os.getpid():
            # The connection is the parent's.
            self._pid = os.getpid()
            self._disconnect()
            self._waker.forget()
