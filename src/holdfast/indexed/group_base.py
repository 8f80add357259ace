"""What consumer groups for threads and for asyncio share: their options, and what they say of themselves."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ..core.units import duration_ms
from ..queue.options import Duration
from .base import BaseConsumer, OnAdvance, P, S, T
from .restart import Restart
from .signals import Milestones, Signal
from .source import IndexedJob

C = TypeVar("C", bound=BaseConsumer[Any, Any, Any])


class BaseGroup(Generic[T, S, P, C]):
    """A consumer that looks for work by itself, and that is made again after an error."""

    def __init__(
        self,
        source: S,
        progress: P,
        run: Callable[[IndexedJob[T]], Any],
        *,
        max_processing: int = 1,
        max_ahead: int = 0,
        on_advance: OnAdvance | None = None,
        restart: Restart | None = None,
        poll: Duration = 1,
    ) -> None:
        self.source, self.progress = source, progress
        self.restarts = 0
        self._restart = restart
        self._poll_s = duration_ms(poll, name="poll", least_ms=1) / 1000
        self._ready, self._closed = Signal(), Signal()
        self._options: dict[str, Any] = {
            "max_processing": max_processing,
            "max_ahead": max_ahead,
            "on_advance": self._advanced,
        }
        self._run, self._on_advance = run, on_advance
        self._milestones = Milestones(progress.name)
        self._prepare()
        self._consumer = self._made()

    def _prepare(self) -> None:
        """Make the events and locks, of threads or of asyncio."""
        raise NotImplementedError

    def _made(self) -> C:
        """A new consumer, from the progress as stored."""
        raise NotImplementedError

    def _advanced(self, old: int, new: int) -> Any:
        """Called after P was written."""
        raise NotImplementedError

    @property
    def processed(self) -> int:
        """P, as written; see `Consumer.processed`."""
        return self._consumer.processed

    @property
    def size(self) -> int:
        """How many indexes above P were started."""
        return self._consumer.size

    @property
    def error(self) -> BaseException | None:
        """The error that ended the group, or its last consumer before a restart."""
        return self._consumer.error

    @property
    def trouble(self) -> Exception | None:
        """The error of the last check, which is retried."""
        return self._consumer.trouble

    def ready(self) -> Signal:
        """A signal that completes when the group has started; to wait for, or to await."""
        return self._ready

    def closed(self) -> Signal:
        """A signal that completes when the group has stopped, with the error that ended it, if any."""
        return self._closed
