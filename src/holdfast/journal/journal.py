"""The journal: jobs that are durable in a local folder, on their way to a store.

    write, wsync                    append lines; return when they are durable
    read_reserve, read, rsync       take the next lines; they are in the store
    read_cancel                     they are not: they come back, in order

`add` writes whole commands with their options; the connection of a queue uses that. See docs/journal.md.

Writes are group commits to the last segment:

    add     ──▶ the first thread writes for all that arrived: ids, records, one group, one sync ──▶ their ids
    write   ──▶ ids and records, in memory until the next group, or `sync`

A group is written at the end of what is durable, which moves only after the sync: whatever ends a write
before that, the next one begins at the same place. See docs/decisions/0018.
"""

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from ..core import commands as c
from ..core.checks import check_command
from ..core.creating import adds_of_lines
from ..core.errors import Closed, StoreError
from ..core.slots import with_slots
from ..engine.group import CommitThread, Group
from ..engine.ticket import Ticket, deliver
from ..store.common.clock import system_clock
from ..store.common.interrupts import may_be_interrupted
from .folder import JournalFolder, JournalPlace, fault_of, write_at
from .ids import JournalIds
from .reader import JournalReader, Line
from .segment import Headless, Segment, encode_runs, frame, runs_of
from .status import Backlog, backlog_name

log = logging.getLogger("holdfast")


class Journal:
    """An open journal. It has its folder for itself, until it is closed."""

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], int] = system_clock) -> None:
        self.folder = JournalFolder(path)
        self.folder.lock()
        try:
            size, kept = cut_tail(self.folder)
            if size:
                where = f"; they are in {kept}" if kept else ", which were never acknowledged"
                log.warning("cut %s torn bytes off the journal %s%s", f"{size:,}", self.folder.name, where)
            self.ids = JournalIds(self.folder, clock)
            self._writer = JournalWriter(self.folder, self.ids, clock)
            self._reader = JournalReader(self.folder, lambda: self._writer.end)
            # Replaced as a whole: other threads look at it.
            self.backlogs = tuple(self._open_backlog(*one) for one in self.folder.backlogs())
        except BaseException:
            self.folder.close()
            raise
        self._closed = False

    # Writing

    def write(self, task: str, lines: Iterable[str | bytes], *, tenant: str = "") -> list[int]:
        """Append a job for each line; their ids. They are durable after `wsync`.

        A newline at the end of a line is no part of its data; empty lines and those that begin with # are
        left out. Data is JSON where the line is, else bytes.
        """
        made: list[int] = []
        for command in adds_of_lines(tenant, task, lines):
            check_command(command)
            made += self._writer.write(command)
        return made

    def wsync(self) -> None:
        """Return when all that was written before this call is durable."""
        self._writer.sync()

    def add(self, command: c.Add) -> list[int]:
        """Append the jobs of a command with their options, durably; their ids."""
        check_command(command)
        return self._writer.add(command)

    def submit(self, ticket: Ticket) -> None:
        """The same for a caller that does not wait in a thread."""
        check_command(ticket.command)
        self._writer.submit(ticket)

    # Reading

    def read_reserve(self, line_count: int, timeout_ms: int) -> int:
        """Reserve up to `line_count` of the next lines, perhaps none, for `timeout_ms`; their token."""
        return self._reader.reserve(line_count, timeout_ms)

    def read(self, token: int) -> list[Line]:
        """The reserved lines; a token that has expired, or was read, is a `StoreError`."""
        return self._reader.read(token)

    def rsync(self, token: int) -> None:
        """Say that the lines are safe elsewhere: they are not read again, even after a crash."""
        self._reader.sync(token)

    def read_cancel(self, token: int) -> None:
        """Give the lines back: the next reservation has them, in order."""
        self._reader.cancel(token)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a function, from any thread, when there is more to read."""
        self._writer.on_written = listener

    @property
    def is_empty(self) -> bool:
        """Whether all that is durable here is in the store."""
        return not self.backlogs and self.is_read_up_to(self._writer.end)

    @property
    def end(self) -> tuple[int, int]:
        """Up to where the journal is durable now, for `is_read_up_to`."""
        return self._writer.end

    def is_read_up_to(self, end: tuple[int, int]) -> bool:
        """Whether all lines before that are in the store, or in the backlog of a shard."""
        return self._read_end() >= end

    def _read_end(self) -> tuple[int, int]:
        position = self._reader.position
        return position.segment, position.offset

    # Shards that are down

    def add_backlog(self, shard: int, of: int, place: JournalPlace) -> Backlog:
        """Keep the lines of a shard from a place on, durably, apart from the others."""
        self.folder.write_position(place, backlog_name(shard, of))
        backlog = self._open_backlog(shard, of)
        self.backlogs = (*self.backlogs, backlog)
        return backlog

    def end_backlog(self, backlog: Backlog) -> bool:
        """Delete a backlog if it has reached the position of the journal; False: it has not."""
        if backlog.reader.position < self._reader.position:
            return False
        self.backlogs = tuple(one for one in self.backlogs if one is not backlog)
        backlog.delete()
        return True

    def _open_backlog(self, shard: int, of: int) -> Backlog:
        # Not up to where it is durable: the journal would read the lines after its position once more.
        return Backlog(self.folder, self._read_end, shard, of)

    def stop_writing(self) -> None:
        """Make durable what was written, and accept nothing more."""
        self._writer.close()

    def close(self) -> None:
        """Stop, and let another process have the folder; lines that were not read are read by that."""
        if not self._closed:
            self._closed = True
            try:
                self._writer.close()
                for reader in (self._reader, *(one.reader for one in self.backlogs)):
                    reader.close()
                self.ids.close()
            finally:
                self.folder.close()


# A segment that has become so large gets no more groups.
SEGMENT_BYTES = 16 * 1024 * 1024


class ActiveSegment(NamedTuple):
    """The segment that is written to; `offset` is the end of what is durable."""

    fd: int
    salt: bytes
    number: int
    offset: int


class JournalWriter:
    """Appends jobs to the segments of one folder."""

    def __init__(self, folder: JournalFolder, ids: JournalIds, clock: Callable[[], int]) -> None:
        self._folder, self._ids, self._clock = folder, ids, clock
        # Called after each group.
        self.on_written: Callable[[], None] = _ignore
        self._group = Group(self._commit)
        # Held while ids are made and their records appended, so that both are in one order.
        self._lock = threading.Lock()
        self._records: list[bytes] = []
        # The error of a write whose records no caller waited for.
        self._lost: StoreError | None = None
        # After a failed sync nothing more is accepted.
        self._broken: StoreError | None = None
        self._closed = False
        # Replaced as a whole: an interrupt may come between any two steps.
        # Not a number that a read position has, though its segment may be gone: lines would be passed over.
        self._active = self._open_segment(max((folder.last_position, *folder.segments())) + 1)
        # Writes for coroutines.
        self._thread = CommitThread(self._group, "holdfast-journal")

    @property
    def end(self) -> tuple[int, int]:
        """Up to where the journal is durable: a segment, and an offset in it."""
        return self._active.number, self._active.offset

    # For callers

    def add(self, command: c.Add) -> list[int]:
        """Write jobs, durably; their ids."""
        reply: Any
        if may_be_interrupted():
            # Alone, so that no other caller is affected.
            ticket = Ticket(command)
            try:
                with self._group.turn:
                    self._commit([ticket])
            finally:
                if self._group.waiting:
                    self._group.wake_next()
        else:
            ticket = Ticket(command)
            self._group.commit(ticket)
        reply = ticket.reply
        if isinstance(reply, BaseException):
            raise reply
        return reply  # type: ignore[no-any-return]

    def submit(self, ticket: Ticket) -> None:
        """Write jobs of a caller that does not wait in a thread; the ticket is answered from another."""
        with self._lock:
            self._check_open()
            # Before `close` ends the thread.
            self._thread.put([ticket])

    def write(self, command: c.Add) -> list[int]:
        """Have jobs written with the next group, or by `sync`; their ids."""
        with self._lock:
            self._check_open()
            made = self._append(command)
            is_much = sum(map(len, self._records)) >= SEGMENT_BYTES
        if is_much:
            self.sync()
        return made

    def sync(self) -> None:
        """Return when all that was written before is durable; raises if any of it is lost."""
        with self._group.turn:
            if self._records:
                self._flush()
            lost, self._lost = self._lost, None
        if self._group.waiting:
            self._group.wake_next()
        if lost is not None:
            raise lost

    def close(self) -> None:
        """Write what is pending, and accept nothing more."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._thread.close()
        with self._group.turn:
            if self._records and self._broken is None:
                self._flush()
            os.close(self._active.fd)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed
        if self._broken is not None:
            raise self._broken

    # Under the turn of the group

    def _commit(self, tickets: Sequence[Ticket]) -> None:
        """Write the jobs of tickets as one group, and answer them."""
        replies: list[Any] = []
        with self._lock:
            for ticket in tickets:
                try:
                    self._check_open()
                    replies.append(self._append(ticket.command))
                except Exception as error:
                    replies.append(error)
        fault = self._flush() if self._records else None
        for_loops = []
        for ticket, reply in zip(tickets, replies, strict=True):
            given = reply if fault is None or isinstance(reply, Exception) else fault
            if ticket.answer(given) and ticket.loop is not None:
                for_loops.append(ticket)
        if for_loops:
            deliver(for_loops, lambda _ticket: None)

    def _append(self, command: Any) -> list[int]:
        """Give jobs their ids, and append their records."""
        now_ms = self._clock()
        if not command.ids:
            command = with_slots(command, self._ids.make(command.count))
        command = replace(command, jobs=tuple(_with_moments(new, now_ms) for new in command.jobs))
        self._records.append(encode_runs(runs_of(command), now_ms=now_ms))
        return list(command.ids)

    def _flush(self) -> StoreError | None:
        """Write all records as one group and sync it; the error where that failed."""
        count = len(self._records)
        try:
            active = self._active
            if active.offset >= SEGMENT_BYTES:
                self._active = self._open_segment(active.number + 1)
                os.close(active.fd)
                active = self._active
            group = frame(b"".join(self._records[:count]), active.salt, active.offset)
            try:
                write_at(active.fd, group, active.offset)
            except OSError as error:
                # What was written may be longer than the next group, and fills the disk.
                with suppress(OSError):
                    os.ftruncate(active.fd, active.offset)
                return self._lose(count, fault_of(self._folder.path, error))
            os.fdatasync(active.fd)
            if not os.fstat(active.fd).st_nlink:
                raise FileNotFoundError(errno.ENOENT, "its folder or its last segment was deleted")
        except OSError as error:
            # The kernel may have dropped the pages, and says so only once; a deleted file does not come back.
            self._broken = fault_of(self._folder.path, error)
            return self._lose(count, self._broken)
        except StoreError as error:
            return self._lose(count, error)
        self._active = active._replace(offset=active.offset + len(group))
        # After an interrupt here they are written twice, under the same ids: once they are added.
        del self._records[:count]
        self.on_written()
        return None

    def _lose(self, count: int, error: StoreError) -> StoreError:
        del self._records[:count]
        self._lost = error
        return error

    def _open_segment(self, number: int) -> "ActiveSegment":
        salt = os.urandom(8).hex().encode()
        fd = self._folder.create_segment(number, salt)
        return ActiveSegment(fd, salt, number, os.fstat(fd).st_size)


def cut_tail(folder: JournalFolder) -> tuple[int, Path | None]:
    """Cut the last segment behind its last group that is whole; how many bytes, and where they are kept.

    They are not kept if the process died while it wrote them: no caller has had a reply for them.
    """
    numbers = folder.segments()
    if not numbers:
        return 0, None
    try:
        segment = Segment(folder.segment_path(numbers[-1]))
    except Headless:
        # The reader sets it aside.
        return 0, None
    try:
        tail, end = segment.find_tail(segment.first), segment.size
        if tail == end:
            return 0, None
        raw = segment.read_raw(tail, end)
        kept = None
        if raw.strip(b"\0") and not segment.is_incomplete(tail, end):
            kept = folder.keep_damaged(segment.number, tail, raw)
        os.truncate(segment.path, tail)
        return end - tail, kept
    finally:
        segment.close()


def _ignore() -> None:
    pass


def _with_moments(new: c.NewJob, now_ms: int) -> c.NewJob:
    """A job whose times count from now, and not from when the store gets it."""
    if not new.delay_ms and not new.expires_in_ms:
        return new
    run_at = new.run_at or (now_ms + new.delay_ms if new.delay_ms else 0)
    expires_at = new.expires_at or (now_ms + new.expires_in_ms if new.expires_in_ms else 0)
    return replace(new, run_at=run_at, delay_ms=0, expires_at=expires_at, expires_in_ms=0)
