"""Consumer groups: what those for threads and for asyncio share, and those for threads.

supervisor ─ start ─▶ ready ─▶ [ notified, or `poll` ─▶ check ]* ─▶ stop ─▶ closed
    │                          [ something finished          ─▶ write P, on_advance ]*
    └─ error ─▶ restart policy ─▶ wait ─▶ a new consumer, from the progress as stored

A thread pool around a consumer, with a supervisor thread that checks for jobs and writes progress. `Restart`
says when a group that failed starts again.
"""

import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ..core.bounds import MAX_INDEX
from ..core.checks import check_whole
from ..core.errors import BadInput
from ..core.units import duration_ms
from ..queue.options import Duration
from .base import AlreadyStarted, BaseConsumer, OnAdvance, P, S, T, log
from .consumer import Consumer
from .progress import Progress
from .signals import Milestones, Signal, following
from .source import IndexedJob, Source, checked_head


class Restart:
    """Start again after an error, first after `delay`, then after twice that, up to `most`.

    At most `times` in a row without progress. `when` says of an error whether to; what is no `Exception` (an
    interrupt, an exit) never is.
    """

    def __init__(
        self,
        times: int | None = None,
        *,
        delay: Duration = 1,
        most: Duration = 60,
        when: Callable[[Exception], bool] | None = None,
    ) -> None:
        if times is not None:
            check_whole("times", times, 1, 1_000_000)
        if when is not None and not callable(when):
            raise BadInput("when", type(when).__name__, needed="a function of an error")
        self._times, self._when = times, when
        self._first_s = duration_ms(delay, name="delay") / 1000
        self._most_s = duration_ms(most, name="most") / 1000

    def delay_s(self, error: BaseException, failures: int) -> float | None:
        """How long to wait after this many failures in a row; None: do not restart."""
        if not isinstance(error, Exception) or (self._when is not None and not self._when(error)):
            return None
        if self._times is not None and failures > self._times:
            return None
        # Far fewer doublings than this are longer than any life.
        return float(min(self._first_s * 2 ** min(failures - 1, 50), self._most_s))


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


class _Later:
    def __repr__(self) -> str:
        return "LATER"


# Returned by `run` if the job is not done yet: it is reported by `done` later.
LATER = _Later()
# The delay after which progress that could not be written is written again.
TRY_AGAIN_S = 0.5


class _Pooled(Consumer[T]):
    """A consumer whose jobs run in a thread pool, and whose progress is written by the supervisor."""

    def __init__(self, *args: Any, bell: threading.Event, **options: Any) -> None:
        super().__init__(*args, **options)
        self._bell = bell
        self._jobs: queue.SimpleQueue[IndexedJob[T] | None] = queue.SimpleQueue()
        self._idle = 0
        self._pool: list[threading.Thread] = []

    def done(self, job_id: str, *, connection: Any = None) -> int:
        super().done(job_id, connection=connection)
        if connection is None:
            self.save()
        return self.processed

    def save(self) -> bool:
        """Write P if it moved; return whether it is written."""
        try:
            self._save()
        except Exception as error:
            self._in_the_way(error)
            return False
        return True

    def tell(self) -> None:
        self._tell()

    def asked(self) -> None:
        self._asked = True

    def dismiss(self) -> None:
        """Stop the threads of the pool, after all jobs have returned."""
        for _ in self._pool:
            self._jobs.put(None)
        for thread in self._pool:
            thread.join()

    def _stopping(self) -> None:
        super()._stopping()
        self._bell.set()

    def _written(self) -> None:
        if self._ledger.folded > self._ledger.saved:
            self._bell.set()

    def _after_turns(self) -> None:
        if self._advances:
            self._bell.set()

    def _launch(self, job: IndexedJob[T]) -> None:
        with self._state:
            spare = self._idle > 0
            self._idle -= spare
        if not spare:
            # Before the job is queued: if no thread can be started, no other thread may run it.
            thread = threading.Thread(target=self._work, name="holdfast-indexed", daemon=True)
            thread.start()
            self._pool.append(thread)
        self._jobs.put(job)

    def _work(self) -> None:
        self._threads.add(threading.get_ident())
        while (job := self._jobs.get()) is not None:
            self._run_one(job)
        # The identifier may be reused by another thread.
        self._threads.discard(threading.get_ident())

    def _run_one(self, job: IndexedJob[T]) -> None:
        try:
            # A job that comes too late is not run, and starts again after a restart.
            result = LATER if self.stopping.is_set() else self.run(job)
            with self._state:
                self._idle += 1
            if result is not LATER:
                self._finish(job)
        except BaseException as error:
            self._fail(error)
        finally:
            self._returned()

    def _finish(self, job: IndexedJob[T]) -> None:
        self._settle(job.id)
        if self._report(job.id):
            self._turns(wait=False)


class ConsumerGroup(BaseGroup[T, Source[T], Progress, _Pooled[T]]):
    """A consumer with a pool of `max_processing` threads, which looks for work by itself.

    When `run(job)` returns the job is done, unless it returns `LATER`. Progress is written behind the work;
    with `max_ahead=1` before the next job begins. The group looks for new work whenever a log or a consumer
    of its store moves, when `check` is called, and every `poll` seconds. `restart` says whether it starts
    again after an error; without it the first error ends it and is raised by `closed()`.
    """

    def _prepare(self) -> None:
        self._bell, self._stop = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def _made(self) -> _Pooled[T]:
        consumer: _Pooled[T] = _Pooled(
            self.source, self.progress, self._run, bell=self._bell, **self._options
        )
        self._milestones.passed(consumer.processed)
        return consumer

    def _advanced(self, old: int, new: int) -> None:
        if self._on_advance is not None:
            self._on_advance(old, new)
        self._milestones.passed(new)

    @property
    def stopping(self) -> threading.Event:
        """Set when the group stops: for workers that wait for something."""
        return self._consumer.stopping

    def head(self) -> int:
        """The last index of the source."""
        return self.source.head()

    def start(self) -> None:
        """Start, once; `ready()` completes after the first check."""
        with self._lock:
            if self._thread is not None:
                raise AlreadyStarted("this group was started before; make another to start again")
            name = f"holdfast-consumer-{self.progress.name}"
            self._thread = threading.Thread(target=self._supervise, name=name, daemon=True)
            self._thread.start()

    def stop(self, *, wait: bool = True) -> None:
        """Start no more jobs, wait until every `run` has returned, write the progress, stop the threads.

        Without `wait` it returns at once; `closed()` completes when the group has stopped. A group that is
        stopped before its start ends as soon as it is started: a stage may fail while others are not started.
        """
        self._stop.set()
        self._consumer._stopping()
        self._bell.set()
        thread, here = self._thread, threading.get_ident()
        if wait and thread is not None and thread.ident != here and here not in self._consumer._threads:
            thread.join()

    def check(self) -> None:
        """Check for new jobs soon. May be called from any thread at any time; returns at once."""
        self._consumer.asked()
        self._bell.set()

    def done(self, job_id: str, *, connection: Any = None) -> int:
        """Report a job that was left for `LATER`, or whose worker writes P itself; see `Consumer.done`."""
        return self._consumer.done(job_id, connection=connection)

    def wait(self, *, until: int, timeout: float | None = None) -> bool:
        """Wait until P has reached an index; False after `timeout` seconds.

        Raises the error that ended the group before, or `Closed` if it was stopped before.
        """
        check_whole("until", until, 0, MAX_INDEX)
        return self._milestones.at(until).wait(timeout)

    def drained(self) -> Signal:
        """A signal that completes when all items that the source has now are processed.

        It has the error that ended the group before, or `Closed` if it was stopped before.
        """
        return self._milestones.at(checked_head(self.head()))

    def __enter__(self) -> "ConsumerGroup[T]":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop()
        if kind is None:
            self._closed.wait()

    # The supervisor

    def _supervise(self) -> None:
        error: BaseException | None
        try:
            with following(self.progress.queue, self.check):
                error = self._lives()
        except BaseException as unforeseen:
            error = unforeseen
        self._milestones.close(error)
        self._closed.set(error)

    def _lives(self) -> BaseException | None:
        failures, reached = 0, -1
        error = self._live()
        while error is not None and self._restart is not None:
            failures = 1 if self._consumer.processed > reached else failures + 1
            reached = self._consumer.processed
            delay_s = self._restart.delay_s(error, failures)
            if delay_s is None or self._stop.wait(delay_s):
                break
            self.restarts += 1
            log.warning("consumer %s starts again, restart %d", self.progress.name, self.restarts)
            try:
                self._consumer = self._made()
            except Exception as again:
                error = again
            else:
                error = self._live()
        return error

    def _live(self) -> BaseException | None:
        consumer = self._consumer
        try:
            consumer.start()
            self._ready.set()
            while not self._stop.is_set() and not consumer.stopping.is_set():
                self._step(consumer)
        finally:
            consumer.stop()
            consumer.dismiss()
            if consumer.save():
                consumer.tell()
        return consumer.error

    def _step(self, consumer: _Pooled[T]) -> None:
        """Write progress and report advances; check for new jobs if there may be some."""
        saved = consumer.save()
        consumer.tell()
        word = self._bell.wait(self._poll_s if saved else min(self._poll_s, TRY_AGAIN_S))
        self._bell.clear()
        if not word:
            consumer.asked()
        consumer._turns(wait=False)
