"""Pipelines: stages in a row, each a consumer group with its own progress.

A slow stage delays only the stages after it. A stage that fails stops the pipeline, which raises its error.
Stages of one pipeline may run in different processes: they share state only through the store.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Any, overload

from ..core.errors import BadInput, Timeout, Unavailable
from ..queue.aio import AsyncQueue
from ..queue.options import Duration
from ..queue.queue import Queue
from ..store.common.clock import monotonic_s
from .aio_pipeline import AsyncPipeline
from .base import OnAdvance
from .group import LATER, ConsumerGroup
from .pipeline_base import BasePipeline
from .progress import Progress
from .source import IndexedJob, UpTo
from .stages import PATIENCE_S, Stage, as_stages, call_of, is_time_to_trim, items_of, keys_for

# How often `drain` looks by itself.
LOOK_S = 0.1


@overload
def pipeline(
    source: Any,
    *stages: Any,
    queue: Queue,
    name: str = ...,
    only: Iterable[str] | None = ...,
    trim: bool = ...,
    poll: Duration = ...,
) -> "Pipeline": ...


@overload
def pipeline(
    source: Any,
    *stages: Any,
    queue: AsyncQueue,
    name: str = ...,
    only: Iterable[str] | None = ...,
    trim: bool = ...,
    poll: Duration = ...,
) -> AsyncPipeline: ...


def pipeline(
    source: Any,
    *stages: Any,
    queue: Queue | AsyncQueue,
    name: str = "pipeline",
    only: Iterable[str] | None = None,
    trim: bool = True,
    poll: Duration = 1,
) -> "Pipeline | AsyncPipeline":
    """A pipeline over a source: functions, or what `stage` returns. Progress is kept in the queue's store.

    A stage's consumer is called `name.stage`. `only` names the stages that run in this process, by default
    all. `trim` removes the items from a log between two stages that all its readers have passed.
    """
    chosen = as_stages(stages)
    known = {one.name for one in chosen}
    here = known if only is None else set(only)
    if not here <= known:
        raise BadInput("only", min(here - known), needed=f"one of {', '.join(sorted(known))}")
    kind = AsyncPipeline if isinstance(queue, AsyncQueue) else Pipeline
    return kind(source, chosen, queue, name=name, only=here, trim=trim, poll=poll)


class Pipeline(BasePipeline[ConsumerGroup[Any]]):
    """Consumer groups in a row; made by `pipeline`. `groups` has those of this process, by stage."""

    make_group, make_progress, make_source = ConsumerGroup, Progress, UpTo
    make_event = threading.Event

    def __init__(self, *args: Any, **options: Any) -> None:
        self._lock = threading.Lock()
        super().__init__(*args, **options)

    def _worker(self, one: Stage) -> Callable[[IndexedJob[Any]], Any]:
        work = one.run if one.via is None else lambda job: self._through(one, job)
        if one.into is None:
            return work

        def push(job: IndexedJob[Any]) -> Any:
            result = work(job)
            if result is not LATER:
                items = items_of(one, result)
                one.into.append_many(items, keys_for(one, self.name, job, len(items)))
            return None if result is not LATER else LATER

        return push

    def _through(self, one: Stage, job: IndexedJob[Any]) -> Any:
        """Have a job of a queue do it; what that fails with is an error of this stage."""
        (handle,) = one.via.add_many([call_of(one, self.name, job)])
        stopping = self.groups[one.name].stopping
        while not stopping.is_set():
            try:
                return one.via.result(handle, wait=PATIENCE_S)
            except Timeout:
                continue
        # It goes on without us, and is found again by its key.
        return LATER

    def _advanced(self, call: OnAdvance | None, trimmed: Any) -> OnAdvance:
        def advanced(old: int, new: int) -> None:
            if call is not None:
                call(old, new)
            if trimmed is not None and is_time_to_trim(old, new):
                try:
                    trimmed.trim()
                except Unavailable:
                    pass  # the next time does it too
            self._moved.set()

        return advanced

    def start(self) -> None:
        """Begin, once, with the last stage: who is fed is ready before who feeds."""
        for group in reversed(self.groups.values()):
            group.start()

    def stop(self) -> None:
        """Start no more jobs in any stage, and wait until all running ones have returned."""
        for group in self.groups.values():
            group.stop(wait=False)
        for group in self.groups.values():
            group.stop()

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until every stage of this process has done all that there is; False when the time is up.

        Raises what stopped the pipeline.
        """
        until = None if timeout is None else monotonic_s() + timeout
        while not self._closed.is_set():
            self._moved.clear()
            # In order: what a stage hands on is there before its own progress says that it is done.
            if all(group.processed >= group.head() for group in self.groups.values()):
                return True
            if until is not None and monotonic_s() >= until:
                return False
            self._moved.wait(LOOK_S)
        self._closed.wait()
        return False

    def _group_closed(self) -> None:
        # One stage alone does not go on: what feeds it would, or what it feeds would wait.
        for group in self.groups.values():
            group.stop(wait=False)
        with self._lock:
            self.error = self._first_error()
        self._close_if_ended()

    def __enter__(self) -> "Pipeline":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop()
        if kind is None:
            self._closed.wait()
