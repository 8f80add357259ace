"""The supervisor's end of the line to an executor: whole messages, all that have come at once."""

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import cast

from ..messages import Frames, Hello, UpMessage

READ_BYTES = 1 << 16


class Wire(asyncio.Protocol):
    """First a greeting, or none where the executor ended before it; then whatever it says, to its end."""

    def __init__(self) -> None:
        self.hello: asyncio.Future[Hello | None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None
        self._frames = Frames()
        self._early: list[UpMessage] = []
        self._heard: Callable[[Sequence[UpMessage]], None] = self._early.extend
        self._gone: Callable[[], None] | None = None
        self._is_gone = False

    def listen(self, heard: Callable[[Sequence[UpMessage]], None], gone: Callable[[], None]) -> None:
        """Tell somebody of what is said from now on, and of its end."""
        self._heard, self._gone = heard, gone
        if self._early:
            heard(self._early)
        if self._is_gone:
            gone()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The line stands."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Some of what is said."""
        messages = self._frames.feed(data)
        if messages and not self.hello.done():
            first = messages.pop(0)
            self.hello.set_result(first if isinstance(first, Hello) else None)
        if messages:
            self._heard(messages)

    def _read_rest(self) -> None:
        """Read what it said before it went: a send that failed ends the transport before that is read."""
        assert self.transport is not None
        fd = self.transport.get_extra_info("socket").fileno()
        try:
            while data := os.read(fd, READ_BYTES):
                self.data_received(data)
        except OSError:
            pass

    def connection_lost(self, exc: Exception | None) -> None:
        """The executor is gone."""
        self._is_gone = True
        self._read_rest()
        if not self.hello.done():
            self.hello.set_result(None)
        if self._gone is not None:
            self._gone()
