"""How processes that share a store wake each other: PUBLISH and SUBSCRIBE, and polling.

The commit script publishes a message. A waiting process has its own subscribed connection (`Listener`), and
polls the mark of the last commit: often if it has no right to subscribe.
"""

from typing import Any

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
