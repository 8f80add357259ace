"""Progress: how far a consumer has come, kept in the store of a queue under the consumer's name."""

from typing import Any

from ..core.bounds import MAX_INDEX
from ..core.checks import check_name, check_whole
from ..core.indexed import Mark, Seen, check_resets
from ..queue.aio import AsyncQueue
from ..queue.asks import QueueRequest
from ..queue.queue import Queue
from . import asks

NOTHING_SEEN = Seen()


class BaseProgress:
    """What both kinds share: the name, and by which word of an operator it goes."""

    def __init__(self, queue: Any, name: str, start: int = 0) -> None:
        check_name("consumer", name)
        check_whole("start", start, 0, MAX_INDEX)
        self.queue, self.name, self.start = queue, name, start
        self._resets = 0

    def _begun(self, mark: Mark) -> int:
        self._resets = mark.resets
        return mark.processed

    def _start_ask(self, log: str) -> QueueRequest[Mark]:
        return asks.start(self.queue.tenant, self.name, self.start, log)

    def _check_ask(self, at: int) -> QueueRequest[None]:
        def check(mark: Mark) -> None:
            check_resets(mark, name=self.name, to=at, resets=self._resets)

        return QueueRequest(asks.mark(self.queue.tenant, self.name).asked, check)

    def _move_ask(self, to: int, seen: Seen) -> QueueRequest[Mark]:
        return asks.move(self.queue.tenant, self.name, to, self._resets, seen)


class Progress(BaseProgress):
    """The durable progress of one consumer. Every index up to `processed` has been worked on to its end."""

    queue: Queue

    def __init__(self, queue: Queue, name: str, start: int = 0) -> None:
        super().__init__(queue, name, start)

    def initialize(self, *, log: str = "") -> int:
        """Where to go on: what is stored, or `start`, which is stored if nothing was."""
        return self._begun(self.queue._ask(self._start_ask(log)))

    def processed(self) -> int:
        """The stored progress; `NotFound` before the first `initialize` by any process."""
        return self.queue._ask(asks.mark(self.queue.tenant, self.name)).processed

    def move(self, to: int, *, seen: Seen = NOTHING_SEEN, connection: Any = None) -> int:
        """Store that all up to `to` is done; what would not go forward is `Backwards`, the same is no write.

        With `connection` it is stored inside your own transaction on that connection.
        """
        return self.queue._ask(self._move_ask(to, seen), connection).processed

    def check(self, at: int) -> None:
        """Raise `Backwards` if an operator has set the progress, which the consumer takes to be `at`."""
        self.queue._ask(self._check_ask(at))


class AsyncProgress(BaseProgress):
    """The same for an `AsyncQueue`; see `Progress`."""

    queue: AsyncQueue

    def __init__(self, queue: AsyncQueue, name: str, start: int = 0) -> None:
        super().__init__(queue, name, start)

    async def initialize(self, *, log: str = "") -> int:
        """Where to go on."""
        return self._begun(await self.queue._ask(self._start_ask(log)))

    async def processed(self) -> int:
        """What is stored now."""
        return (await self.queue._ask(asks.mark(self.queue.tenant, self.name))).processed

    async def move(self, to: int, *, seen: Seen = NOTHING_SEEN, connection: Any = None) -> int:
        """Store that all up to `to` is done; with `connection` inside your own transaction on it."""
        return (await self.queue._ask(self._move_ask(to, seen), connection)).processed

    async def check(self, at: int) -> None:
        """Raise `Backwards` if an operator has set the progress."""
        await self.queue._ask(self._check_ask(at))


def consumers(queue: Queue) -> dict[str, Mark]:
    """All consumers that have progress in a queue's store, by name."""
    return queue._ask(asks.consumers(queue.tenant))


def set_by_hand(queue: Queue, name: str, index: int) -> Mark:
    """Set a consumer's progress, forward or back: what lies between is left out, or done again.

    A consumer that runs is stopped by it, and begins there when it is started again.
    """
    return queue._ask(asks.set_by_hand(queue.tenant, name, index))
