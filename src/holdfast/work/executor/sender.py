"""Sends the messages of an executor to its supervisor, several in one frame."""

import asyncio
import os
import socket
import threading
import time
import traceback
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from ..messages import ExecutorMessage, JobStarted, encode_frame

# How long messages of the event loop may wait for it.
LOOP_WAIT_S = 0.1


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


class LoopSender:
    """Sends the messages of an event loop, one frame for all messages of an iteration.

    If an iteration takes long, because a handler blocks the loop, a thread sends them.
    """

    def __init__(self, sender: Sender, loop: asyncio.AbstractEventLoop) -> None:
        self._sender, self._loop = sender, loop
        # Starts by number: one whose job ends before it is sent need not be sent.
        self._started: dict[int, JobStarted] = {}
        self._others: deque[ExecutorMessage] = deque()
        self._lock = threading.Lock()
        self._is_scheduled = False
        self._has_messages = threading.Event()
        threading.Thread(target=self._send_late, name="loop-sender", daemon=True).start()

    def put_start(self, message: JobStarted) -> None:
        """Send that a job has started; on the event loop."""
        self._started[message.number] = message
        self._schedule()

    def put(self, number: int, message: ExecutorMessage) -> None:
        """Send that the job of this number has ended or was dropped; on the event loop."""
        self._started.pop(number, None)
        self._others.append(message)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._send_scheduled)
        if not self._has_messages.is_set():
            self._has_messages.set()

    def _send_scheduled(self) -> None:
        self._is_scheduled = False
        self.flush()

    def _send_late(self) -> None:
        while True:
            self._has_messages.wait()
            time.sleep(LOOP_WAIT_S)
            # Before sending: what is put from now on sets it again.
            self._has_messages.clear()
            self.flush()

    def flush(self) -> None:
        """Send all messages; once this returns, they are sent, also those that the other thread has taken."""
        try:
            with self._lock:
                messages: list[ExecutorMessage] = []
                # The loop may put or remove others meanwhile: single operations are atomic.
                while self._started:
                    with suppress(KeyError):
                        messages.append(self._started.popitem()[1])
                while self._others:
                    messages.append(self._others.popleft())
                if messages:
                    self._sender.send(messages)
        except BaseException:
            exit_broken()


def exit_orphaned() -> NoReturn:
    """Exit at once: the supervisor has ended, and no process renews the leases of the jobs that run here."""
    os._exit(1)


def exit_broken() -> NoReturn:
    """Exit with the traceback of an error that is ours: otherwise jobs would run here without an end."""
    try:
        traceback.print_exc()
    finally:
        os._exit(1)
