"""The supervisor's side of the socket to an executor: decodes frames and passes messages on in batches."""

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import cast

from ..messages import ExecutorMessage, FrameReader, Hello

READ_BYTES = 1 << 16


class ExecutorProtocol(asyncio.Protocol):
    """Receives `hello` (None if the executor ended before it), then messages until the socket closes."""

    def __init__(self) -> None:
        self.hello: asyncio.Future[Hello | None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None
        self._frames = FrameReader()
        self._early: list[ExecutorMessage] = []
        self._on_messages: Callable[[Sequence[ExecutorMessage]], None] = self._early.extend
        self._on_closed: Callable[[], None] | None = None
        self._is_closed = False

    def listen(
        self, on_messages: Callable[[Sequence[ExecutorMessage]], None], on_closed: Callable[[], None]
    ) -> None:
        """Set the callbacks for messages and for the end; those that came before are passed on now."""
        self._on_messages, self._on_closed = on_messages, on_closed
        if self._early:
            on_messages(self._early)
        if self._is_closed:
            on_closed()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Decode bytes, and pass on the messages that are complete."""
        messages = self._frames.feed(data)
        if messages and not self.hello.done():
            first = messages.pop(0)
            self.hello.set_result(first if isinstance(first, Hello) else None)
        if messages:
            self._on_messages(messages)

    def _read_rest(self) -> None:
        """Read what the executor sent before it ended: a failed send closes the transport before that."""
        assert self.transport is not None
        fd = self.transport.get_extra_info("socket").fileno()
        try:
            while data := os.read(fd, READ_BYTES):
                self.data_received(data)
        except OSError:
            pass

    def connection_lost(self, exc: Exception | None) -> None:
        """The executor has ended."""
        self._is_closed = True
        try:
            self._read_rest()
        finally:
            # Also after a frame that cannot be decoded.
            if not self.hello.done():
                self.hello.set_result(None)
            if self._on_closed is not None:
                self._on_closed()
