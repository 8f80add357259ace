"""The ingester: a thread that moves lines of the journal to the store, in bulk and in order.

    reserve ─▶ read ─▶ one Add for each kind of job, under the ids of the lines ─▶ rsync
                          the store is away      ─▶ cancel: the lines come back; again, less and less often
                          a shard of it is down  ─▶ the lines of the shard get a read position of their own
                          it refuses an Add      ─▶ each job by itself; what it refuses alone is set aside

It renews the journal's number at the start, after an outage, and daily, and offers it back at the end if the
journal is empty. See docs/decisions/0018.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, cast

from msgspec.structs import replace

from ..core import commands as c
from ..core.bounds import BATCH_JOBS, HOUR_MS
from ..core.commands import TakenSysid, TakeSysid
from ..core.errors import BadInput, HoldfastError, NotFound, Refused, StoreFull
from ..core.slots import shard_of
from ..core.units import counted
from ..engine.connection import Connection
from ..engine.ticket import Ticket
from ..store.common.clock import monotonic_s
from ..store.sharded.shard import Shard
from ..store.sharded.store import ShardedStore
from .folder import RefusedLine, pack_job
from .journal import Journal
from .reader import Line
from .status import Backlog

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


class FailedAdd(NamedTuple):
    """The first line of an Add for which the store, or a shard of it, could not be used, and why."""

    line: Line
    error: Exception


class Ingester:
    """Moves lines to the store that `connect` returns the connection of. Starts with `start`."""

    def __init__(self, journal: Journal, connect: Callable[[], Connection], clock: Callable[[], int]) -> None:
        self._journal, self._connect, self._clock = journal, connect, clock
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)
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
            with self._lock:
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

    def find_stop(self) -> Exception | None:
        """Why nothing more can be ingested now; None: something can, or all is in the store."""
        if self.outage is not None:
            return self.outage
        backlogs = self._journal.backlogs
        return backlogs[0].outage if backlogs and self.has_ingested(self._journal.end) else None

    def has_ingested(self, end: tuple[int, int]) -> bool:
        """Whether all lines before that are in the store, but for those of shards that are down."""
        return self._journal.is_read_up_to(end) and all(map(self._is_down, self._journal.backlogs))

    def wait_until(self, is_done: Callable[[], bool], limit_s: float) -> bool:
        """Wait until ingesting has brought something about; False if that takes too long, or cannot be."""
        until_s = monotonic_s() + limit_s
        with self._lock:
            while not is_done():
                left_s = until_s - monotonic_s()
                if left_s <= 0 or self.find_stop() is not None or not self._thread.is_alive():
                    return False
                self._news.wait(min(left_s, 0.5))
        return True

    def stop(self, limit_s: float) -> bool:
        """Stop the thread; False if it is still busy with the store then."""
        with self._lock:
            self._stops = True
            self._news.notify_all()
        if self._thread.is_alive():
            self._thread.join(limit_s)
        return not self._thread.is_alive()

    # The thread

    def _run(self) -> None:
        while not self._stops:
            with self._lock:
                if not (self._has_news or self._stops):
                    self._news.wait(LONGEST_NAP_S if self._journal.backlogs else IDLE_S)
                self._has_news = False
            self._work()
        if self._journal.is_empty and self.outage is None:
            self._journal.ids.close(self._ask_for_number)

    def _work(self) -> None:
        """Ingest all that is there; where the store is away, wait for a moment."""
        try:
            self._renew_number()
            while not self._stops and any([self._ingest(), *map(self._catch_up, self._journal.backlogs)]):
                self._tell(None)
        except Exception as error:
            if self._stops:
                return
            if not isinstance(error, HoldfastError):
                log.exception("the journal %s could not be ingested", self._journal.folder.name)
                error = HoldfastError(str(error))
            self._tell(error)
            self._journal.ids.doubt()
            with self._lock:
                self._news.wait_for(lambda: self._stops, self._nap_s)
                self._has_news = True
            self._nap_s = min(self._nap_s * 2, LONGEST_NAP_S)
        else:
            self._tell(None)

    def _renew_number(self) -> None:
        """Renew the number if that is due, before the rest: another store may have leased it to another."""
        if self._stops or not self._journal.ids.is_due:
            return
        try:
            self._journal.ids.renew(self._ask_for_number)
        except StoreFull:
            # Ingesting makes room for it.
            pass
        with self._lock:
            self._news.notify_all()

    def _ask_for_number(self, command: TakeSysid) -> TakenSysid:
        self._asked_s = monotonic_s()
        try:
            return cast(TakenSysid, self._connect().ask(command))
        finally:
            self._asked_s = 0.0

    def _tell(self, outage: HoldfastError | None) -> None:
        """Note whether the store could be used; each change is logged once."""
        name = self._journal.folder.name
        if outage is not None and self.outage is None:
            log.warning("the journal %s keeps what is added: %s", name, outage)
        elif outage is None and self.outage is not None:
            log.warning("the journal %s is ingested again", name)
        if outage is None:
            self._nap_s = FIRST_NAP_S
        with self._lock:
            self.outage = outage
            self._news.notify_all()

    def _ingest(self) -> bool:
        """Move some lines to the store; False if there are none."""
        token = self._journal.read_reserve(self._most, RESERVED_MS)
        try:
            read = self._journal.read(token)
            behind = self._journal.backlogs
            lines = [line for line in read if not any(one.has(line.id) for one in behind)] if behind else read
            self._pass_over(self._add(lines))
        except BaseException:
            self._journal.read_cancel(token)
            raise
        self._journal.rsync(token)
        self._most = min(self._most * 2, BATCH_JOBS)
        return bool(read)

    def _pass_over(self, failed: Sequence[FailedAdd]) -> None:
        """Begin the backlogs of shards that are down; raises if that is not the reason, or all are."""
        first: dict[int, FailedAdd] = {}
        shards = _shards_of(self._connect()) if failed else ()
        for one in failed:
            at = shard_of(one.line.id, len(shards)) if shards else 0
            if not any(shard.is_up for shard in shards) or shards[at].is_up:
                raise one.error
            first[at] = min(first.get(at, one), one, key=lambda add: add.line.place)
        for at, one in first.items():
            self._tell_backlog(self._journal.add_backlog(at, len(shards), one.line.place), one.error)

    def _catch_up(self, backlog: Backlog) -> bool:
        """Move some lines of a backlog to the store; False if its shard is down."""
        if self._is_down(backlog):
            return False
        reader = backlog.reader
        token = reader.reserve(BATCH_JOBS, RESERVED_MS)
        try:
            for one in self._add(reader.read(token)):
                self._tell_backlog(backlog, one.error)
                reader.cancel(token)
                return False
        except BaseException:
            reader.cancel(token)
            raise
        reader.sync(token)
        self._tell_backlog(backlog, None)
        if self._journal.end_backlog(backlog):
            log.warning(
                "the journal %s: the jobs of %s are ingested", self._journal.folder.name, backlog.title
            )
        return True

    def _is_down(self, backlog: Backlog) -> bool:
        """Whether the shard of a backlog could not be used, and is not up again."""
        if backlog.outage is None:
            return False
        shards = _shards_of(self._connect())
        return len(shards) == backlog.of and not shards[backlog.shard].is_up

    def _tell_backlog(self, backlog: Backlog, outage: Exception | None) -> None:
        """Note whether the shard of a backlog could be used; the begin of an outage is logged."""
        if outage is not None and backlog.outage is None:
            log.warning("the journal %s keeps the jobs of one shard: %s", self._journal.folder.name, outage)
        with self._lock:
            backlog.outage = outage
            self._news.notify_all()

    def _add(self, lines: Sequence[Line]) -> list[FailedAdd]:
        """Add the jobs of lines; what could not be added as the store, or a part of it, cannot be used."""
        if not lines:
            return []
        self._asked_s = monotonic_s()
        try:
            connection = self._connect()
            groups = list(_adds(lines, len(_shards_of(connection))))
            tickets = [Ticket(command) for _, command in groups]
            if len(tickets) == 1:
                replies = [_ask(connection, groups[0][1])]
            else:
                connection.submit_all(tickets)
                replies = [ticket.wait_for_reply() for ticket in tickets]
            failed: list[FailedAdd] = []
            for (line, command), reply in zip(groups, replies, strict=True):
                if _is_final(reply):
                    self._add_each(connection, command)
                elif isinstance(reply, Exception):
                    failed.append(FailedAdd(line, reply))
            return failed
        finally:
            self._asked_s = 0.0

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


def _shards_of(connection: Connection) -> Sequence[Shard]:
    """The shards of the store; none where it is a single store, or a server's, which knows."""
    try:
        store = connection.store
    except BadInput:
        return ()
    return store.shards if isinstance(store, ShardedStore) else ()


def _adds(lines: Iterable[Line], shards: int) -> Iterable[tuple[Line, c.Add]]:
    """One command for each kind of job, with its first line: in one transaction the order is that of the ids.

    And one for each shard, so that none needs two.
    """
    groups: dict[tuple[c.NewJob, int], list[Line]] = {}
    last: tuple[c.NewJob, int] | None = None
    for line in lines:
        shard = shard_of(line.id, shards) if shards else 0
        if last is None or line.job is not last[0] or shard != last[1]:
            last = (line.job, shard)
            group = groups.setdefault(last, [])
        group.append(line)
    for (job, _), some in groups.items():
        # A crash may have left a line twice.
        once = list({line.id: line for line in some}.values())
        command = c.Add(
            jobs=(replace(job, data=once[0].data),),
            more=tuple(line.data for line in once[1:]),
            ids=tuple(line.id for line in once),
        )
        yield some[0], command
