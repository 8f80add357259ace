"""The contexts of an executor: batches of stored handlers, started job by job, in the executor's threads."""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...core import commands as c
from ...core.errors import HoldfastError
from ...queue.queue import ClaimedJob
from ...queue.running import as_error
from ..messages import ExecutorMessage, JobEnded, QueueInfo
from .job_buffer import BufferedJob
from .stored_handlers import Key, StoredHandlers, open_runner

if TYPE_CHECKING:
    from ..runners.runner import HandlerRunner

# How often contexts are closed that were not used for long.
SWEEP_S = 5.0


class HandlerContexts:
    """The stored handlers of an executor, one for each store, and the one runner of all of them."""

    def __init__(
        self,
        announce: Callable[[list[BufferedJob], list[ExecutorMessage]], Sequence[Any]],
        make_message: Callable[[Any, c.Answer | None, float], JobEnded],
        return_jobs: Callable[[list[BufferedJob]], None],
    ) -> None:
        self._announce, self._make_message, self._return = announce, make_message, return_jobs
        self._runner: HandlerRunner | None = None
        self.stored: dict[int, StoredHandlers] = {}
        # Jobs of batches that have not started, by queue and id.
        self._unstarted: dict[Key, BufferedJob] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def open(self, queue: Any, queue_index: int) -> None:
        """Run the handlers of a store."""
        if self._runner is None:
            self._runner = open_runner()
            threading.Thread(target=self._sweep, name="contexts", daemon=True).start()
        self.stored[queue_index] = StoredHandlers(queue, queue_index, self._runner)

    def describe(self, queue_index: int) -> QueueInfo | None:
        """What the supervisor learns about stored handlers; None of another queue."""
        if queue_index not in self.stored:
            return None
        assert self._runner is not None
        text = f"{', '.join(self._runner.languages)}; {self._runner.description}"
        return QueueInfo(url=self.stored[queue_index].url, handlers=True, isolation=text)

    def run(self, taken: Sequence[BufferedJob], unsent: list[ExecutorMessage]) -> None:
        """Run jobs of one tenant's task. Messages that need not be sent at once are left in `unsent`."""
        queue_index = taken[0][1].queue_index
        items = {(queue_index, item[0].job.id): item for item in taken}
        running: dict[Key, ClaimedJob] = {}
        with self._lock:
            self._unstarted |= items

        def start(key: Key) -> ClaimedJob | None:
            with self._lock:
                item = self._unstarted.pop(key, None)
            started = self._announce([item], unsent) if item is not None else ()
            if item is not None:
                unsent.clear()
            if not started:
                return None
            running[key] = started[0]
            return running[key]

        def end(key: Key, answer: c.Answer | None, duration_s: float) -> None:
            unsent.append(self._make_message(running.pop(key), answer, duration_s))

        try:
            self.stored[queue_index].run([item[0] for item in taken], start, end)
        except Exception as error:
            self._give_up(items, running, end, error)

    def _give_up(
        self,
        items: dict[Key, BufferedJob],
        running: dict[Key, ClaimedJob],
        end: Callable[[Key, c.Answer | None, float], None],
        error: Exception,
    ) -> None:
        """After an error of the store or of ours: started jobs get the error, the others are returned."""
        for key, job in list(running.items()):
            try:
                ask = job._conclude(as_error(error))
            except HoldfastError:
                ask = None
            answer: Any = None if ask is None else ask.asked
            end(key, answer, 0.0)
        self._return([item for key in items if (item := self._take(key)) is not None])

    def _take(self, key: Key) -> BufferedJob | None:
        with self._lock:
            return self._unstarted.pop(key, None)

    def take_unstarted(self) -> list[BufferedJob]:
        """Remove and return the jobs of batches that have not started."""
        with self._lock:
            items, self._unstarted = list(self._unstarted.values()), {}
            return items

    def cancel(self, key: Key) -> None:
        """End a job that runs in a context."""
        if self._runner is not None and key[0] in self.stored:
            self._runner.cancel(key)

    def _sweep(self) -> None:
        assert self._runner is not None
        while not self._stopping.wait(SWEEP_S):
            self._runner.close_idle()

    def close(self) -> None:
        """End all contexts."""
        self._stopping.set()
        if self._runner is not None:
            self._runner.close()
