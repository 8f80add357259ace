"""The ingester: a thread that moves lines of the journal to the store, in bulk and in order.

    reserve ─▶ read ─▶ one Add for each kind of job, under the ids of the lines ─▶ rsync
                          the store is away      ─▶ cancel: the lines come back; again, less and less often
                          it refuses an Add      ─▶ each job by itself; what it refuses alone is set aside

It renews the journal's number daily. See docs/decisions/0018.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from ..core import commands as c
from ..core.bounds import BATCH_JOBS, HOUR_MS
from ..core.counting import counted
from ..core.errors import BadInput, HoldfastError, NotFound, Refused
from ..core.ids import SLOTS
from ..engine.connection import Connection
from ..engine.ticket import Ticket
from ..store.common.clock import monotonic_s
from .folder import RefusedLine, pack_job
from .journal import Journal
from .reader import Line

log = logging.getLogger("holdfast")

FIRST_NAP_S, LONGEST_NAP_S = 0.05, 2.0
# The first batch is small: a process that is killed again and again makes progress all the same.
FIRST_LINES = 100
# How often an idle ingester looks whether the number must be renewed.
IDLE_S = 60.0
# A store that takes longer for a batch counts as away, for callers who ask what needs it.
SILENT_S = 2.0
# Longer than a store is given to answer.
RESERVED_MS = HOUR_MS
# These are about the job, and stay so however often it is added.
FOREVER = (BadInput, NotFound, Refused)
# And these, if they are no errors of ours: a fault in our code, which the job brings about.
FAULTS = (TypeError, ValueError, LookupError, AttributeError, AssertionError, ArithmeticError)


class Ingester:
    """Moves lines to the store that `connect` returns the connection of. Starts with `start`."""

    def __init__(self, journal: Journal, connect: Callable[[], Connection], clock: Callable[[], int]) -> None:
        self._journal, self._connect, self._clock = journal, connect, clock
        self._news = threading.Condition()
        # More was written since the last look; stop; and leave without waiting for the store.
        self._has_news = True
        self._stops = False
        # Why the store could not be used at the last try; None: it could.
        self.outage: HoldfastError | None = None
        self._nap_s = FIRST_NAP_S
        self._most = FIRST_LINES
        # Since when the store is asked; 0: it is not.
        self._asked_s = 0.0
        self._thread = threading.Thread(target=self._run, name="holdfast-ingester", daemon=True)
        journal.listen(self.nudge)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def nudge(self) -> None:
        """Have the journal read: there is more in it."""
        if not self._has_news:
            with self._news:
                self._has_news = True
                self._news.notify_all()

    def find_outage(self) -> str:
        """Why the store cannot be used now, as far as is known; "": it can."""
        if (outage := self.outage) is not None:
            return str(outage)
        asked_s = self._asked_s
        if asked_s and monotonic_s() - asked_s > SILENT_S:
            return f"it has not answered for {monotonic_s() - asked_s:.0f} s"
        return ""

    def wait_until(self, is_done: Callable[[], bool], limit_s: float) -> bool:
        """Wait until ingesting has brought something about; False if that takes too long, or cannot be."""
        until_s = monotonic_s() + limit_s
        with self._news:
            while not is_done():
                left_s = until_s - monotonic_s()
                if left_s <= 0 or self.outage is not None or not self._thread.is_alive():
                    return False
                self._news.wait(min(left_s, 0.5))
        return True

    def stop(self, limit_s: float) -> bool:
        """Stop the thread; False if it is still busy with the store then."""
        with self._news:
            self._stops = True
            self._news.notify_all()
        if self._thread.is_alive():
            self._thread.join(limit_s)
        return not self._thread.is_alive()

    # The thread

    def _run(self) -> None:
        while not self._stops:
            with self._news:
                if not self._has_news:
                    self._news.wait(IDLE_S)
                self._has_news = False
            self._work()

    def _work(self) -> None:
        """Ingest all that is there; where the store is away, wait for a moment."""
        try:
            while not self._stops and self._ingest():
                self._tell(None)
            if self._journal.ids.is_due and not self._stops:
                self._journal.ids.renew(lambda command: self._connect().ask(command))
        except Exception as error:
            if self._stops:
                return
            if not isinstance(error, HoldfastError):
                log.exception("the journal %s could not be ingested", self._journal.folder.name)
                error = HoldfastError(str(error))
            self._tell(error)
            with self._news:
                self._news.wait_for(lambda: self._stops, self._nap_s)
                self._has_news = True
            self._nap_s = min(self._nap_s * 2, LONGEST_NAP_S)
        else:
            self._tell(None)

    def _tell(self, outage: HoldfastError | None) -> None:
        """Note whether the store could be used; each change is logged once."""
        name = self._journal.folder.name
        if outage is not None and self.outage is None:
            log.warning("the journal %s keeps what is added: %s", name, outage)
        elif outage is None and self.outage is not None:
            log.warning("the journal %s is ingested again", name)
        if outage is None:
            self._nap_s = FIRST_NAP_S
        with self._news:
            self.outage = outage
            self._news.notify_all()

    def _ingest(self) -> bool:
        """Move some lines to the store; False if there are none."""
        token = self._journal.read_reserve(self._most, RESERVED_MS)
        try:
            lines = self._journal.read(token)
            if lines:
                self._asked_s = monotonic_s()
                self._add(lines)
        except BaseException:
            self._journal.read_cancel(token)
            raise
        finally:
            self._asked_s = 0.0
        self._journal.rsync(token)
        self._most = min(self._most * 2, BATCH_JOBS)
        return bool(lines)

    def _add(self, lines: Sequence[Line]) -> None:
        connection = self._connect()
        commands = list(_adds(lines, by_slot=_is_sharded(connection)))
        tickets = [Ticket(command) for command in commands]
        if len(tickets) == 1:
            replies = [_ask(connection, commands[0])]
        else:
            connection.submit_all(tickets)
            replies = [ticket.take() for ticket in tickets]
        for reply in replies:
            if isinstance(reply, Exception) and not _is_final(reply):
                raise reply
        refused = [command for command, reply in zip(commands, replies, strict=True) if _is_final(reply)]
        for command in refused:
            self._add_each(connection, command)

    def _add_each(self, connection: Connection, command: c.Add) -> None:
        """Add the jobs of a refused command one by one; what is refused alone is set aside."""
        refused: list[RefusedLine] = []
        for new in command.every():
            reply = _ask(connection, c.Add(jobs=(replace(new, id=0),), ids=(new.id,)))
            if not isinstance(reply, Exception):
                continue
            if not _is_final(reply):
                raise reply
            refused.append(self._refused(new, reply))
        if refused:
            self._journal.folder.keep_refused(refused)
            log.error(
                "the store refused %s of the journal %s, the first as %s; see holdfast journal",
                counted(len(refused), "job"),
                self._journal.folder.name,
                refused[0].error,
            )

    def _refused(self, new: c.NewJob, error: Exception) -> RefusedLine:
        return RefusedLine(
            at_ms=self._clock(),
            id=str(new.id),
            tenant=new.tenant,
            task=new.task,
            code=getattr(error, "code", type(error).__name__),
            error=str(error),
            job=pack_job(new, new.data),
        )


def _is_final(reply: object) -> bool:
    """Whether an Add was refused for what it is, and not because the store cannot be used."""
    return isinstance(reply, FOREVER if isinstance(reply, HoldfastError) else FAULTS)


def _ask(connection: Connection, command: c.Add) -> object:
    try:
        return connection.ask(command)
    except Exception as error:
        return error


def _is_sharded(connection: Connection) -> bool:
    try:
        return connection.store.capabilities.is_sharded
    except BadInput:
        # The server that has the store knows.
        return False


def _adds(lines: Iterable[Line], *, by_slot: bool) -> Iterable[c.Add]:
    """One command for each kind of job: in one transaction the order is that of the ids.

    `by_slot`: and for each slot, so that none needs two shards.
    """
    groups: dict[tuple[c.NewJob, int], list[Line]] = {}
    last: tuple[c.NewJob, int] | None = None
    for line in lines:
        slot = line.id % SLOTS if by_slot else 0
        if last is None or line.job is not last[0] or slot != last[1]:
            last = (line.job, slot)
            group = groups.setdefault(last, [])
        group.append(line)
    for (job, _), some in groups.items():
        # A crash may have left a line twice.
        once = list({line.id: line for line in some}.values())
        yield c.Add(
            jobs=(replace(job, data=once[0].data),),
            more=tuple(line.data for line in once[1:]),
            ids=tuple(line.id for line in once),
        )
