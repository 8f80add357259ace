"""The consumer: runs jobs in the order of their indexes, and moves its progress over those that are done.

    check ─▶ walk (scan) ─▶ run(job), each in a thread of its own
      ▲                         │
      └──────── done(job.id) ◀──┘ ─▶ progress written ─▶ on_advance(old, new)

There is at most one walk at a time. A `check` during a walk makes it walk again, so no wake-up is lost.
"""

import threading
from typing import Any, TypeVar

from ..core.errors import NotFound
from ..core.indexed import Seen
from .base import BaseConsumer
from .log import log_name
from .progress import Progress
from .scan import drive
from .source import IndexedJob, Source, checked_head, checked_job

T = TypeVar("T")


class Consumer(BaseConsumer[T, Source[T], Progress]):
    """Works through a source from its progress on, at least once each, leaving none out.

    `run(job)` is called in its own thread, for at most `max_processing` jobs at once, none more than
    `max_ahead` above P (0: no such limit). It reports by `consumer.done(job.id)`, from any thread. An
    exception stops the consumer: it is in `error`, and `closed()` raises it. Such a job is not done.

    `on_advance(old, new)` is called after P was written, once for each advance, in order.
    """

    def _prepare(self) -> None:
        self.stopping = threading.Event()
        self._walking, self._saving, self._telling = threading.Lock(), threading.Lock(), threading.Lock()
        # The thread that walks; 0: none.
        self._walker = 0
        self._threads: set[int] = set()
        self._begin_at(self.progress.initialize(log=log_name(self.source, self.progress.queue)))

    # Lifecycle

    def start(self) -> None:
        """Start, once; the jobs that are there are started before this returns."""
        self._begun()
        self._turns(wait=True)
        self._ready.set()

    def stop(self) -> None:
        """Start no more jobs, and wait until every `run` has returned; none is interrupted.

        Jobs that report later still count. Before the start it does nothing.
        """
        with self._state:
            if not self._started:
                return
            self._running = False
        self._stopping()
        if threading.get_ident() in self._threads:
            return  # it would wait for itself
        with self._state:
            self._state.wait_for(lambda: not self._in_flight)
        # One last walk, for progress that could not be written before; a source may call this in a walk.
        if threading.get_ident() != self._walker:
            self._asked = True
            self._turns(wait=True)
        self._end()

    def _stopping(self) -> None:
        self.stopping.set()

    # What there is to do

    def check(self) -> None:
        """Check for new jobs. May be called from any thread; never raises."""
        if self._may_look():
            self._asked = True
            self._turns(wait=False)

    def done(self, job_id: str, *, connection: Any = None) -> int:
        """Report that a job is done; return P. A job that is not running changes nothing.

        With `connection` P is written inside your own transaction, together with your writes; that needs
        `max_ahead=1`. After your commit call it again without: it then reads P from the store.
        """
        if connection is not None:
            return self._done_in(job_id, connection)
        self._settle(job_id)
        if self._report(job_id):
            self._turns(wait=True)
        return self.processed

    def _done_in(self, job_id: str, connection: Any) -> int:
        index = self._index_to_move(job_id)
        if index is not None:
            # Once it is committed the job is no longer in flight.
            self.progress.move(index, seen=Seen(head=self._head), connection=connection)
            self._tentative.add(job_id)
        return self.processed

    def _settle(self, job_id: str) -> None:
        """Check in the store whether the transaction was committed in which a worker moved P."""
        if job_id in self._tentative:
            self._tentative.discard(job_id)
            self._settle_at(job_id, self.progress.processed())

    def _turns(self, *, wait: bool) -> None:
        """Walk if that was requested and no other thread does; with `wait`, until it was done."""
        while self._asked or wait:
            if not self._walking.acquire(blocking=wait):
                break  # the thread that walks checks again before it ends
            wait, self._walker = False, threading.get_ident()
            try:
                if self._asked:
                    self._asked = False
                    self._turn()
            finally:
                self._walker = 0
                self._walking.release()
        self._after_turns()

    def _after_turns(self) -> None:
        self._tell()

    def _turn(self) -> None:
        self._take_reports()
        saved = self._ledger.saved
        try:
            found = drive(self._walk(), self._find)
            self._ledger.fold(found)
            # With `max_ahead=1` the next job starts after P was written: a worker may write P itself.
            if self.max_ahead == 1:
                self._save()
            for job in self._admit(found.jobs):
                self._launched(job)
            self._written()
            if self._is_idle(saved):
                self.progress.check(self.processed)
            self._end_turn()
        except Exception as error:
            self._in_the_way(error)

    def _find(self, index: int) -> IndexedJob[T] | None:
        """The job at an index, or None; the head is read only when it is reached."""
        try:
            if index > self._head and not self._head_is_fresh:
                self._head, self._head_is_fresh = checked_head(self.source.head()), True
            if index > self._head:
                return None
            return checked_job(self._look(index, self.stopping), index)
        except NotFound:
            return None
        except Exception as error:
            self._source_error = error
            return None

    def _written(self) -> None:
        """Write P now."""
        self._save()

    def _save(self) -> None:
        with self._saving:
            to = self._ledger.folded
            if to > self._ledger.saved:
                if to > self._stored:
                    self.progress.move(to, seen=self._seen())
                self._saved(to)

    def _tell(self) -> None:
        """Call `on_advance` for advances, one at a time and in order, without holding a lock."""
        while self._advances and self._telling.acquire(blocking=False):
            try:
                while self._advances:
                    advance = self._advances.popleft()
                    if self._on_advance is not None:
                        self._on_advance(*advance)
            except Exception as error:
                self._fail(error)
            finally:
                self._telling.release()

    # Running

    def _launched(self, job: IndexedJob[T]) -> None:
        try:
            self._launch(job)
        except BaseException as error:
            # The job counts as running but has no thread, so it would never be reported.
            self._fail(error)
            self._returned()

    def _launch(self, job: IndexedJob[T]) -> None:
        name = f"holdfast-indexed-{job.index}"
        threading.Thread(target=self._run_one, args=(job,), name=name, daemon=True).start()

    def _run_one(self, job: IndexedJob[T]) -> None:
        self._threads.add(threading.get_ident())
        try:
            self.run(job)
        except BaseException as error:
            self._fail(error)
        finally:
            self._threads.discard(threading.get_ident())
            self._returned()

    def _returned(self) -> None:
        with self._state:
            self._in_flight -= 1
            self._state.notify_all()
        self._end_if_failed()
