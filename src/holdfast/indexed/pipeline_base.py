"""What pipelines for threads and for asyncio share: how stages are joined, begin and end together."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ..queue.options import Duration
from .base import OnAdvance
from .signals import Signal
from .source import IndexedJob
from .stages import Stage, consumer_name

G = TypeVar("G")


class BasePipeline(Generic[G]):
    """Consumer groups in a row. `groups` has those of this process, by stage."""

    # What a stage is made of: its group, its progress, and its progress as the next one's source.
    make_group: Any
    make_progress: Any
    make_source: Any
    # What is set when anything has moved.
    make_event: Any

    def __init__(
        self,
        source: Any,
        stages: list[Stage],
        queue: Any,
        *,
        name: str,
        only: set[str],
        trim: bool,
        poll: Duration,
    ) -> None:
        self.name, self.queue, self.poll = name, queue, poll
        self.groups: dict[str, G] = {}
        self.error: BaseException | None = None
        self._ready, self._closed = Signal(), Signal()
        self._moved = self.make_event()
        feed: Any = None
        for one in stages:
            if one.name in only:
                self.groups[one.name] = self._group(source, one, feed if trim else None)
            feed = one.into
            source = feed if feed is not None else self.make_source(source, self._progress(one).processed)
        for group in self._all():
            group.ready().then(self._group_ready)
            group.closed().then(self._group_closed)

    def _all(self) -> list[Any]:
        return list(self.groups.values())

    def _progress(self, one: Stage) -> Any:
        return self.make_progress(self.queue, consumer_name(self.name, one), one.start)

    def _group(self, source: Any, one: Stage, trimmed: Any) -> G:
        group: G = self.make_group(
            source,
            self._progress(one),
            self._worker(one),
            max_processing=one.max_processing,
            max_ahead=one.max_ahead,
            on_advance=self._advanced(one.on_advance, trimmed),
            restart=one.restart,
            poll=self.poll,
        )
        return group

    def _worker(self, one: Stage) -> Callable[[IndexedJob[Any]], Any]:
        raise NotImplementedError

    def _advanced(self, call: OnAdvance | None, trimmed: Any) -> OnAdvance:
        raise NotImplementedError

    def check(self) -> None:
        """There may be new work at the source."""
        for group in self._all():
            group.check()

    def ready(self) -> Signal:
        """Comes when all stages have started."""
        return self._ready

    def closed(self) -> Signal:
        """Comes when all stages have ended, with the first error, if any."""
        return self._closed

    def _group_ready(self) -> None:
        if all(group.ready().is_set() for group in self._all()):
            self._ready.set()

    def _group_closed(self) -> None:
        raise NotImplementedError

    def _first_error(self) -> BaseException | None:
        errors = (group.closed().error for group in self._all())
        return self.error or next((error for error in errors if error is not None), None)

    def _close_if_ended(self) -> None:
        self._moved.set()
        if all(group.closed().is_set() for group in self._all()):
            self._closed.set(self.error)
