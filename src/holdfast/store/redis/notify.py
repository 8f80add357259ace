"""How processes that share a store wake each other: PUBLISH and SUBSCRIBE, and polling.

The commit script publishes a message. A waiting process has its own subscribed connection (`Listener`), and
polls the mark of the last commit: often if it has no right to subscribe.

Each running process has a key that expires unless it is renewed.
"""

import os
from typing import Any

from ..common.clock import monotonic_s
from ..common.listener import END, POLL_S, SELDOM_S, SOON_S, Listener, PollTimes
from ..contract import ENDS, JOBS, NO_WAKE
from .connection import RedisConnection, RedisServer
from .errors import FAULTS, ReplyError, is_lost
from .keys import Keys


class RedisListener(Listener[RedisConnection]):
    """Waits for commits of other stores."""

    faults = FAULTS

    def __init__(self, server: RedisServer, keys: Keys) -> None:
        super().__init__()
        self._server, self._keys = server, keys
        self._listens = False
        # The message that a commit publishes, by `Changes.wake`; b"": none.
        self.messages = {NO_WAKE: b"", ENDS: self.name + END, JOBS: self.name}

    def _connect(self) -> RedisConnection:
        connection = self._server.open()
        (reply,) = connection.exchange([(b"SUBSCRIBE", self._keys.marks)])
        self._listens = not isinstance(reply, ReplyError)
        if not self._listens and is_lost(reply):
            connection.close()
            raise reply
        self._polls = PollTimes(SOON_S, SELDOM_S) if self._listens else PollTimes(POLL_S, POLL_S)
        return connection

    def _socket(self, connection: RedisConnection) -> Any:
        return connection.socket if self._listens else None

    def _messages(self, connection: RedisConnection) -> list[bytes]:
        return [data for sort, _, data in connection.read_pushed() if sort == b"message"]

    def _poll(self, connection: RedisConnection) -> Any:
        # By another connection: a subscribed one takes no such command.
        return self._server.call(b"LINDEX", self._keys.marks, 0)

    def _disconnect(self, connection: RedisConnection, *, inherited: bool) -> None:
        connection.close()


# The expiry of a key, and how often it is renewed.
SEEN_MS, RENEWED_S = 60_000, 20.0


class RedisPresence:
    """The announced names of this process."""

    def __init__(self, server: RedisServer, keys: Keys) -> None:
        self._server, self._keys = server, keys
        self.names: list[str] = []
        self._renewed_s = 0.0
        self._pid = os.getpid()

    def appear(self, name: str) -> None:
        """Announce a unique name."""
        if name not in self.names:
            self.names.append(name)
        self._renew()

    def keep(self) -> None:
        """Renew the keys if that is due. Called before each wait and each commit."""
        if self.names and monotonic_s() - self._renewed_s > RENEWED_S and self._pid == os.getpid():
            try:
                self._renew()
            except FAULTS:
                # The server is down: retried at the next call.
                pass

    def close(self) -> None:
        """Delete the keys."""
        names, self.names = self.names, []
        if names and self._pid == os.getpid():
            try:
                self._server.call_many([(b"DEL", self._keys.here(name)) for name in names])
            except FAULTS:
                pass

    def _renew(self) -> None:
        self._renewed_s = monotonic_s()
        self._server.call_many([(b"SET", self._keys.here(name), b"", b"PX", SEEN_MS) for name in self.names])
