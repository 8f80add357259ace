"""How processes that share a store wake each other: PUBLISH and SUBSCRIBE, and polling.

The commit script publishes a message. A waiting process has its own subscribed connection (`Listener`), and
polls a counter that each commit increments.
"""

from typing import Any

from ..common.listener import END, Listener
from ..contract import ENDS, JOBS, NO_WAKE
from .connection import RedisConnection, RedisServer
from .errors import FAULTS, ReplyError
from .keys import Keys


class RedisListener(Listener[RedisConnection]):
    """Waits for commits of other stores."""

    faults = FAULTS

    def __init__(self, server: RedisServer, keys: Keys) -> None:
        super().__init__()
        self._server, self._keys = server, keys
        # The message that a commit publishes, by `Changes.wake`; b"": none.
        self.messages = {NO_WAKE: b"", ENDS: self.name + END, JOBS: self.name}

    def _connect(self) -> RedisConnection:
        connection = self._server.open()
        (reply,) = connection.exchange([(b"SUBSCRIBE", self._keys.news)])
        if isinstance(reply, ReplyError):
            connection.close()
            raise reply
        return connection

    def _socket(self, connection: RedisConnection) -> Any:
        return connection.socket

    def _messages(self, connection: RedisConnection) -> list[bytes]:
        return [data for sort, _, data in connection.read_pushed() if sort == b"message"]

    def _poll(self, connection: RedisConnection) -> Any:
        # By another connection: a subscribed one takes no such command.
        return self._server.call(b"GET", self._keys.tick)

    def _disconnect(self, connection: RedisConnection, *, inherited: bool) -> None:
        connection.close()
