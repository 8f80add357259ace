"""Whether an event loop is blocked: asked from another thread, from time to time."""

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

from ..core.job import Job
from ..core.worker import Blocker
from ..queue.base import BaseQueue
from ..queue.claimed import Holding
from ..queue.running import job_of_task
from ..queue.stacks import thread_stack
from ..queue.timers import TimerThread
from ..store.common.clock import monotonic_s
from .logs import warn_blocked

# After how long a blocked loop is logged, and how often a worker in this process checks that.
BLOCKED_S, WATCH_S = 1.0, 0.5


class LoopWatch:
    """Asks an event loop to call back."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # When it was asked, and has not called back yet; 0: it has.
        self._asked_s = 0.0

    def blocked_s(self) -> float:
        """For how long the loop has not called back; 0: it has, and is asked again."""
        asked_s, now_s = self._asked_s, monotonic_s()
        if asked_s:
            return now_s - asked_s
        self._asked_s = now_s
        self._loop.call_soon_threadsafe(self._on_called_back)
        return 0.0

    def _on_called_back(self) -> None:
        self._asked_s = 0.0


def loop_blocker(task: "asyncio.Task[Any] | None", job: Job | None) -> Blocker:
    """What blocks a loop: a task, and the job that it runs, if that is known."""
    found = job or (job_of_task(task) if task is not None else None)
    if isinstance(found, Job):
        return Blocker(part="event loop", tenant=found.tenant, task=found.task, job_id=found.id)
    name = getattr(task.get_coro(), "__qualname__", "") if task is not None else ""
    return Blocker(part="event loop", task=found or name)


class LoopAlarm:
    """Logs what blocks the event loop of a worker in this process; made on the loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, queue: BaseQueue, running: Mapping[Any, Holding]
    ) -> None:
        self._loop, self._queue, self._running = loop, queue, running
        self._watch, self._thread = LoopWatch(loop), threading.get_ident()
        self._timers: TimerThread | None = None
        # Whether a timer is set, and what has been logged last, until the loop runs again.
        self._is_armed = False
        self._logged: Blocker | None = None

    def arm(self) -> None:
        """Watch the loop from now on, while jobs run."""
        if not self._is_armed:
            self._is_armed = True
            self._timers = self._timers or self._queue.session.timers
            self._timers.after(WATCH_S, self._check)

    def _check(self) -> None:
        """In the thread of timers."""
        self._is_armed = False
        if not self._running:
            return
        try:
            blocked_s = self._watch.blocked_s()
        except RuntimeError:  # the loop has ended
            return
        self.arm()
        if blocked_s < BLOCKED_S:
            self._logged = None if not blocked_s else self._logged
            return
        task = asyncio.current_task(self._loop)
        job = self._running.get(task)
        blocker = loop_blocker(task, None if job is None else job.record)
        if self._logged != blocker:
            self._logged = blocker
            warn_blocked(blocker.text(), thread_stack(self._thread))
