"""Sends the messages of an executor to its supervisor, several in one frame."""

import os
import socket
import threading
from collections.abc import Sequence
from typing import NoReturn

from ..messages import UpMessage, frame


class Sender:
    """The sending end of an executor's line; for any thread."""

    def __init__(self, wire: socket.socket) -> None:
        self._send = wire.sendall
        self._lock = threading.Lock()

    def send(self, messages: Sequence[UpMessage]) -> None:
        """Send messages, in order. When this returns, they reach the supervisor even if this process dies."""
        data = frame(messages)
        with self._lock:
            try:
                self._send(data)
            except ConnectionError:
                orphaned()


def orphaned() -> NoReturn:
    """End this process: the supervisor is gone, and with it the leases of whatever still runs here."""
    os._exit(1)
