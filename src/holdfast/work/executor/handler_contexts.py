"""The contexts of an executor: batches of stored handlers, started job by job, in the executor's threads."""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...core import commands as c
from ...core.errors import HoldfastError
from ...queue.queue import ClaimedJob
from ...queue.running import as_error
from ..messages import ExecutorMessage, JobEnded, QueueInfo, RequestSize
from .job_buffer import BufferedJob, make_returned
from .stored_handlers import Key, StoredHandlers, StoredTask, open_runner

if TYPE_CHECKING:
    from ..runners.runner import HandlerRunner

# How often contexts are closed that were not used for long.
SWEEP_S = 5.0


class HandlerContexts:
    """The stored handlers of an executor, one for each store, and the one runner of all of them."""

    def __init__(
        self,
        start_jobs: Callable[[list[BufferedJob], list[ExecutorMessage]], Sequence[Any]],
        make_message: Callable[[Any, c.Answer | None, float], JobEnded],
    ) -> None:
        self._start_jobs, self._make_message = start_jobs, make_message
        self._runner: HandlerRunner | None = None
        self.stored: dict[int, StoredHandlers] = {}
        # The jobs of each batch that runs now and that have not started.
        self._unstarted: list[dict[Key, BufferedJob]] = []
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
        unstarted: dict[Key, BufferedJob] = {}
        for item in taken:
            if item.key in unstarted:
                # The supervisor has taken it back, and delivered it again.
                unsent.append(make_returned([unstarted.pop(item.key)]))
            unstarted[item.key] = item
        running: dict[Key, ClaimedJob] = {}
        self._unstarted.append(unstarted)

        def start(key: Key) -> ClaimedJob | None:
            item = unstarted.pop(key, None)
            if item is None:
                # `drop_taken` has dropped it.
                return None
            unsent.extend(_new_size(item))
            started = self._start_jobs([item], unsent)
            if not started:
                return None
            running[key] = started[0]
            return running[key]

        def end(key: Key, answer: c.Answer | None, duration_s: float) -> None:
            unsent.append(self._make_message(running.pop(key), answer, duration_s))

        try:
            self.stored[taken[0].queue_index].run([item.claimed for item in unstarted.values()], start, end)
        except Exception as error:
            # Of the store, or ours: started jobs get it, the others are returned.
            _end_running(running, end, error)
            unsent.append(make_returned(unstarted.values()))
        finally:
            self._unstarted.remove(unstarted)

    def drop_taken(self, is_taken: Callable[[int], bool]) -> list[BufferedJob]:
        """Remove and return the jobs of batches that the supervisor has taken back. In any thread.

        They wait behind a job of the same task. Until they are dropped, the supervisor sends no other jobs.
        """
        dropped = []
        for unstarted in list(self._unstarted):
            for key, item in list(unstarted.items()):
                if is_taken(item.number) and unstarted.pop(key, None) is not None:
                    dropped.append(item)
        return dropped

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


def _end_running(
    running: dict[Key, ClaimedJob], end: Callable[[Key, c.Answer | None, float], None], error: Exception
) -> None:
    """End jobs that have started with an error."""
    for key, job in list(running.items()):
        try:
            ask = job._conclude(as_error(error))
        except HoldfastError:
            ask = None
        answer: Any = None if ask is None else ask.asked
        end(key, answer, 0.0)


def _new_size(item: BufferedJob) -> list[ExecutorMessage]:
    """A message about the size of requests of a job's handler, if the supervisor does not know it yet."""
    job, task = item.claimed.job, item.task
    assert isinstance(task, StoredTask)
    if task.request_size == task.reported_size:
        return []
    task.reported_size = task.request_size
    return [RequestSize(tenant=job.tenant, task=job.task, size=task.request_size)]
