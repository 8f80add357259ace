"""Sends the messages of an executor to its supervisor, several in one frame."""

import os
import socket
import threading
import traceback
from collections.abc import Sequence
from typing import NoReturn

from ..messages import ExecutorMessage, encode_frame


class Sender:
    """Sends messages to the supervisor. Thread-safe."""

    def __init__(self, sock: socket.socket) -> None:
        self._send = sock.sendall
        self._lock = threading.Lock()

    def send(self, messages: Sequence[ExecutorMessage]) -> None:
        """Send messages in order. Once this returns, the supervisor gets them even if this process dies."""
        data = encode_frame(messages)
        with self._lock:
            try:
                self._send(data)
            except OSError:
                exit_orphaned()


def exit_orphaned() -> NoReturn:
    """Exit at once: the supervisor has ended, and no process renews the leases of the jobs that run here."""
    os._exit(1)


def exit_broken() -> NoReturn:
    """Exit with the traceback of an error that is ours: otherwise jobs would run here without an end."""
    try:
        traceback.print_exc()
    finally:
        os._exit(1)
