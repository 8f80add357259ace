"""The journal: jobs that are durable in a local folder, on their way to a store.

    write, wsync                    append lines; return when they are durable
    read_reserve, read, rsync       take the next lines; they are in the store
    read_cancel                     they are not: they come back, in order

`add` writes whole commands with their options; the connection of a queue uses that. See docs/journal.md.
"""

import logging
import os
from collections.abc import Callable, Iterable

from ..core import commands as c
from ..core.checks import check_command
from ..core.creating import adds_of_lines
from ..engine.ticket import Ticket
from ..store.common.clock import system_clock
from .backlog import Backlog, backlog_name
from .folder import JournalFolder, JournalPlace
from .ids import JournalIds
from .reader import JournalReader, Line
from .writer import JournalWriter, cut_tail

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
