"""The reading side of a journal: lines in order, reservations, and the durable read position.

    reserve ──▶ lines that came back, then the next ones ──▶ read ──▶ sync: the position moves on, durably
                        ▲                                      │
                        └────── time ran out, or cancelled ◀───┘

The position is the first line that is reserved, came back, or was not read yet. Segments before it are
deleted. See docs/decisions/0018.
"""

import logging
import threading
from bisect import insort
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import NamedTuple

from ..core import commands as c
from ..core.bounds import BATCH_BYTES
from ..core.errors import BadInput, StoreError
from ..core.job import Body
from ..store.common.clock import monotonic_s
from .folder import POSITION, JournalFolder, JournalPlace
from .segment import Damaged, Headless, Incomplete, Malformed, Segment, decode_runs

log = logging.getLogger("holdfast")

# The most bytes of data of a reservation, about, and the most lines that it passes over.
RESERVED_BYTES = BATCH_BYTES // 4
PASSED_LINES = 100_000


class Line(NamedTuple):
    """A job in the journal; `job` has neither its id nor its data."""

    place: JournalPlace
    id: int
    job: c.NewJob
    data: Body


class Reservation:
    """Lines that one reader has, until a moment."""

    def __init__(self, lines: list[Line], until_s: float) -> None:
        self.lines, self.until_s = lines, until_s
        self.is_read = False


class JournalReader:
    """Reads the lines of one folder. `end` tells up to where the journal is durable.

    `name` is the file of its position. `wants` tells of which ids it reads the lines; it passes over others.
    """

    def __init__(
        self,
        folder: JournalFolder,
        end: Callable[[], tuple[int, int]],
        *,
        name: str = POSITION,
        wants: Callable[[int], bool] | None = None,
    ) -> None:
        self._folder, self._end, self._name, self._wants = folder, end, name, wants
        self._lock = threading.Lock()
        self._reserved: dict[int, Reservation] = {}
        self._tokens = count(1)
        # Lines that came back, in order.
        self._returned: list[Line] = []
        self._segment: Segment | None = None
        self._kept = folder.read_position(name)
        # The next line to read; its group, where some of that was read.
        self._cursor = self._start()
        self._lines: Iterator[Line] = iter(())
        self._next: Line | None = None
        self._closed = False

    def _start(self) -> JournalPlace:
        numbers = self._folder.segments()
        kept = self._kept
        if kept is not None and kept.segment in numbers:
            return kept
        return JournalPlace(next((one for one in numbers if kept is None or one > kept.segment), 0), 0, 0)

    # Reservations

    def reserve(self, most: int, timeout_ms: int) -> int:
        """Take up to `most` of the next lines for `timeout_ms`, perhaps none; a token to read them by."""
        if timeout_ms is None or timeout_ms <= 0:
            raise BadInput("timeout", timeout_ms, needed="milliseconds, at least 1: missing timeout")
        with self._lock:
            self._expire()
            token = next(self._tokens)
            self._reserved[token] = Reservation(self._take(most), monotonic_s() + timeout_ms / 1000)
            return token

    def read(self, token: int) -> list[Line]:
        """The lines of a reservation, once."""
        with self._lock:
            self._expire()
            found = self._reserved.get(token)
            if found is None:
                raise StoreError("token expired: its lines were returned, or are in the store")
            if found.is_read:
                raise StoreError("already read: a reservation is read once")
            found.is_read = True
            return found.lines

    def sync(self, token: int) -> None:
        """The lines of a reservation are in the store: move the position on. Unknown ones are no error."""
        with self._lock:
            self._expire()
            if self._reserved.pop(token, None) is not None and not self._closed:
                self._move_position()

    def cancel(self, token: int) -> None:
        """Give the lines of a reservation back now. Unknown ones are no error."""
        with self._lock:
            self._return(token)

    @property
    def position(self) -> JournalPlace:
        """The first line that is not known to be in the store, as it was kept last."""
        return self._kept or JournalPlace(0, 0, 0)

    def close(self) -> None:
        """Keep the position; what is reserved comes back when the journal is opened again."""
        with self._lock:
            if not self._closed:
                self._closed = True
                # On a full disk the lines since the last one are read again, and added under their ids.
                with suppress(StoreError):
                    self._move_position()
                if self._segment is not None:
                    self._segment.close()

    def _expire(self) -> None:
        now_s = monotonic_s()
        for token in [token for token, one in self._reserved.items() if one.until_s <= now_s]:
            self._return(token)

    def _return(self, token: int) -> None:
        found = self._reserved.pop(token, None)
        for line in found.lines if found is not None else ():
            insort(self._returned, line, key=lambda one: one.place)

    def _front(self) -> JournalPlace:
        places = [one.lines[0].place for one in self._reserved.values() if one.lines]
        places += [line.place for line in self._returned[:1]]
        return min(places, default=self._next.place if self._next is not None else self._cursor)

    def _move_position(self) -> None:
        front = self._front()
        if front != self._kept:
            self._folder.write_position(front, self._name)
            if self._kept is None or front.segment != self._kept.segment:
                self._folder.delete_read_segments()
            self._kept = front

    # Lines

    def _take(self, most: int) -> list[Line]:
        taken: list[Line] = []
        size = passed = 0
        try:
            while len(taken) < most and size < RESERVED_BYTES and passed < PASSED_LINES:
                line = self._returned.pop(0) if self._returned else self._read_line()
                if line is None:
                    break
                size += len(line.data)
                if self._wants is None or self._wants(line.id):
                    taken.append(line)
                else:
                    passed += 1
        except BaseException:
            # The file system failed: without them the position would move past these lines.
            self._returned[:0] = taken
            raise
        return taken

    def _read_line(self) -> Line | None:
        """The next line that was never read; None at the end."""
        while True:
            line, self._next = self._next, None
            line = line or next(self._lines, None)
            if line is not None:
                self._next = next(self._lines, None)
                return line
            records = self._read_group()
            if records is None:
                return None
            place, following, raw = records
            try:
                lines = list(_lines_of(place, raw))
            except Malformed as error:
                lines = []
                self._set_aside(place.segment, place.offset, raw, str(error))
            self._lines, self._cursor = iter(lines), following

    def _read_group(self) -> tuple[JournalPlace, JournalPlace, bytes] | None:
        """The place of the first unread line, that of the next group, and the records; None at the end.

        The cursor stays: it moves on when nothing can fail any more.
        """
        while (limit := self._limit()) is not None:
            assert self._segment is not None
            at = self._cursor
            try:
                raw, following = self._segment.read_group(at.offset, limit)
            except (Incomplete, Damaged):
                following = self._segment.find_group(at.offset + 1, limit)
                damaged = self._segment.read_raw(at.offset, following)
                self._set_aside(at.segment, at.offset, damaged, "its checksum is wrong")
                self._cursor = JournalPlace(at.segment, following, 0)
                continue
            return at, JournalPlace(at.segment, following, 0), raw
        return None

    def _limit(self) -> int | None:
        """Up to where the cursor's segment may be read, or the next if that was read; None at the end."""
        while True:
            last, offset = self._end()
            number = self._cursor.segment
            if self._segment is None or self._segment.number != number:
                if not self._open(number, last):
                    return None
                continue
            limit = offset if number == last else self._segment.size
            if self._cursor.offset < limit:
                return limit
            if number >= last:
                return None
            self._cursor = JournalPlace(number + 1, 0, 0)

    def _open(self, number: int, last: int) -> bool:
        """Open a segment, or the next one that is there; False: there is none.

        One without its header is set aside as a whole, and passed over.
        """
        if not self._folder.segment_path(number).exists():
            number = next((one for one in self._folder.segments() if one >= number), 0)
        if not number or number > last:
            return False
        if self._segment is not None:
            self._segment.close()
        try:
            self._segment = Segment(self._folder.segment_path(number))
        except Headless as error:
            self._set_aside(number, 0, error.raw, "its header is damaged")
            self._cursor = JournalPlace(number + 1, 0, 0)
            return True
        if self._cursor.segment != number or self._cursor.offset < self._segment.first:
            self._cursor = JournalPlace(number, self._segment.first, 0)
        return True

    def _set_aside(self, number: int, offset: int, raw: bytes, reason: str) -> None:
        path = self._folder.keep_damaged(number, offset, raw)
        log.error(
            "%s bytes of the journal %s cannot be read, as %s: they are in %s, and the rest goes on",
            f"{len(raw):,}",
            self._folder.name,
            reason,
            path,
        )


def _lines_of(place: JournalPlace, raw: bytes) -> Iterator[Line]:
    """The lines of a group, from the one at a place on."""
    index = 0
    for run in decode_runs(raw):
        for job_id, data in zip(run.ids, run.bodies, strict=True):
            if index >= place.line:
                yield Line(JournalPlace(place.segment, place.offset, index), job_id, run.job, data)
            index += 1
