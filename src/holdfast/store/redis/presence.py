"""Which processes are running: each has a key that expires unless it is renewed."""

import os

from ..common.clock import monotonic_s
from .connection import RedisServer
from .errors import FAULTS
from .keys import Keys

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
