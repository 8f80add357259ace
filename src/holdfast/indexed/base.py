"""What consumers of both kinds are: their limits, their state, what they say of themselves."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ..core.bounds import MAX_INDEX, MAX_PROCESSING
from ..core.checks import check_whole
from ..core.errors import (
    Backwards,
    BadInput,
    Closed,
    HoldfastError,
    SchemaMismatch,
    StoreCorrupt,
    Trimmed,
)
from ..core.indexed import Seen
from .progress import BaseProgress
from .scan import Ledger, Walk
from .signals import Signal
from .source import IndexedJob, looker

T = TypeVar("T")
# The source and the progress: those of threads or of asyncio.
S = TypeVar("S")
P = TypeVar("P", bound=BaseProgress)
OnAdvance = Callable[[int, int], Any]

log = logging.getLogger("holdfast.indexed")

# Errors that end the consumer. Others are retried with the next check.
LASTING = (Backwards, Trimmed, BadInput, Closed, SchemaMismatch, StoreCorrupt)


class AlreadyStarted(HoldfastError):
    """A consumer starts once; make another."""

    __module__ = "holdfast.indexed"
    code = "ALREADY_STARTED"


class BaseConsumer(Generic[T, S, P]):
    """A source, a progress, a worker function, and what is between them."""

    def __init__(
        self,
        source: S,
        progress: P,
        run: Callable[[IndexedJob[T]], Any],
        *,
        max_processing: int = 1,
        max_ahead: int = 0,
        on_advance: OnAdvance | None = None,
    ) -> None:
        check_whole("max_processing", max_processing, 0, MAX_PROCESSING)
        check_whole("max_ahead", max_ahead, 0, MAX_INDEX)
        if not callable(run):
            raise BadInput("run", type(run).__name__, needed="a function of one job")
        self.source, self.progress, self.run = source, progress, run
        self.max_processing, self.max_ahead = max_processing, max_ahead
        # The first error of a worker, or one that is not retried.
        self.error: BaseException | None = None
        # The error of the last check, which is retried; None: it succeeded.
        self.trouble: Exception | None = None
        self._on_advance = on_advance
        self._look = looker(source)
        self._ledger: Ledger[T] = Ledger(0)
        self._head, self._head_is_fresh = 0, False
        # The error of the source that ended the last walk early.
        self._source_error: Exception | None = None
        # Protects the attributes below; never held during I/O.
        self._state = threading.Condition()
        self._ids: dict[str, int] = {}
        self._reported: list[int] = []
        self._tentative: set[str] = set()
        self._advances: deque[tuple[int, int]] = deque()
        self._in_flight = 0
        self._started = self._running = self._asked = False
        self._stored = 0
        self._ready, self._closed = Signal(), Signal()
        self._prepare()

    def _prepare(self) -> None:
        """Make the events and locks, of threads or of asyncio; with threads, also read the progress."""
        raise NotImplementedError

    @property
    def processed(self) -> int:
        """P: every index up to it has been worked on to its end, and the store knows."""
        return self._ledger.saved

    @property
    def size(self) -> int:
        """How many indexes above P were started: those that run, and those that finished early."""
        return self._ledger.size

    def ready(self) -> Signal:
        """Comes when the consumer has started; to wait for, or to await."""
        return self._ready

    def closed(self) -> Signal:
        """Comes when the consumer has ended and nothing of it runs, with the error that ended it, if any."""
        return self._closed

    def _begin_at(self, processed: int) -> None:
        self._ledger = Ledger(processed)
        self._stored = processed

    def _begun(self) -> None:
        with self._state:
            if self._started:
                raise AlreadyStarted("this consumer was started before; make another to start again")
            self._started = self._running = self._asked = True

    def _may_look(self) -> bool:
        """Whether a `check` means anything: before the start it must not touch what is stored."""
        if not self._started:
            log.warning("consumer %s was asked to check before it was started", self.progress.name)
        return self._started

    def _report(self, job_id: str) -> bool:
        """Note that a job is done; False where it is not one that runs."""
        with self._state:
            index = self._ids.pop(job_id, None)
            if index is None:
                return False
            self._reported.append(index)
            self._asked = True
            return True

    def _take_reports(self) -> None:
        with self._state:
            reported, self._reported = self._reported, []
        self._ledger.finish(reported)

    def _admit(self, jobs: list[IndexedJob[T]]) -> list[IndexedJob[T]]:
        """The jobs that are to run from now on; none once the consumer stops."""
        with self._state:
            if not self._running:
                return []
            self._ledger.admit(jobs)
            self._ids.update((job.id, job.index) for job in jobs)
            self._in_flight += len(jobs)
        return jobs

    def _seen(self) -> Seen:
        return Seen(head=self._head, in_flight=len(self._ledger.running))

    def _saved(self, to: int) -> None:
        """The store has it."""
        before, self._ledger.saved = self._ledger.saved, to
        self._stored = max(self._stored, to)
        self._advances.append((before, to))

    def _index_to_move(self, job_id: str) -> int | None:
        """The index of a running job whose worker writes P in its own transaction; None: no such job runs."""
        if self.max_ahead != 1:
            needed = "absent unless max_ahead=1: only then is the next index the one that is done"
            raise BadInput("connection", "given", needed=needed)
        return self._ids.get(job_id)

    def _settle_at(self, job_id: str, stored: int) -> None:
        """Raise unless the stored P shows that the transaction in which the worker moved it was committed."""
        self._stored = max(self._stored, stored)
        index = self._ids.get(job_id)
        if index is not None and self._stored < index:
            found = f"at {self._stored:,}: the transaction that was to move it was not committed"
            raise Backwards(self.progress.name, index, found=found)

    def _in_the_way(self, error: Exception) -> None:
        """Handle the error of a check: it ends the consumer, or is retried with the next check."""
        if isinstance(error, LASTING):
            self._fail(error)
            return
        if self.trouble is None:
            log.warning("consumer %s: %s; tried again", self.progress.name, type(error).__name__)
        self.trouble = error

    def _fail(self, error: BaseException) -> None:
        """Stop for an error: the first is the owner's to see, later ones are only noted."""
        with self._state:
            first = self.error is None
            if first:
                self.error = error
            self._running = False
            self._state.notify_all()
        if first:
            log.error("consumer %s stops: %s", self.progress.name, type(error).__name__)
        else:
            log.warning("consumer %s, stopping: %s", self.progress.name, type(error).__name__)
        self._stopping()
        self._end_if_failed()

    def _end_if_failed(self) -> None:
        """Close a failed consumer after the last of its workers has returned."""
        with self._state:
            over = self.error is not None and not self._in_flight
        if over:
            self._end()

    def _end(self) -> None:
        self._closed.set(self.error)

    def _walk(self) -> Walk[T]:
        self._head_is_fresh, self._source_error = False, None
        # After a stop no jobs are read, but P still follows finished ones.
        head = None if self._running else self._ledger.folded
        return self._ledger.walk(max_processing=self.max_processing, max_ahead=self.max_ahead, head=head)

    def _is_idle(self, saved: int) -> bool:
        """Whether nothing runs, and nothing was or is to be written since P was `saved`.

        A write finds by itself that an operator has set P.
        """
        ledger = self._ledger
        return self._running and not ledger.running and ledger.saved == ledger.folded == saved

    def _end_turn(self) -> None:
        """Raise the error of the source, after finished jobs were counted and found ones started."""
        if self._source_error is not None:
            raise self._source_error
        self.trouble = None

    def _stopping(self) -> None:
        """Called when the consumer stops: interrupt a look-up in the source."""
