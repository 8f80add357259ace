"""The ids of a journal, made without the store by a number that is leased for days.

The number and its end are kept in the folder, and so is a moment before which ids may have been made: it is
moved ahead, durably, before the first id beyond it. After a crash ids begin there. See docs/decisions/0018.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from ..core import ids
from ..core.bounds import DAY_MS, JOURNAL_LEASE_MS, MINUTE_MS
from ..core.errors import StoreError, Unavailable
from ..core.sysid import TakenSysid, TakeSysid
from .folder import JournalFolder, KeptSysid

# How far ahead of the clock the kept moment is; ids may run ahead as far after a crash.
AHEAD_MS = MINUTE_MS
RENEW_MS = DAY_MS
BARE = range(1)


class JournalIds:
    """Makes ids by the number that is kept in a folder."""

    def __init__(self, folder: JournalFolder, clock: Callable[[], int]) -> None:
        self._folder, self._clock = folder, clock
        self._kept = folder.read_sysid()
        self._last = ids.tick_at(self._kept.used_until_ms) - 1 if self._kept else -1
        # Whether the store has leased the number, as far as is known: it may be another store than before.
        self._is_confirmed = False
        self._is_closed = False
        self._lock = threading.Lock()
        # The token to take another number with: if that cannot be kept, the next try gets the same one.
        self._token = ""
        # Held while the store is asked: ids are made meanwhile.
        self._renewing = threading.Lock()

    @property
    def kept(self) -> KeptSysid | None:
        """The number that is used; None: none yet."""
        return self._kept

    @property
    def is_usable(self) -> bool:
        """Whether an id can be made now."""
        kept = self._kept
        return kept is not None and max(self._clock(), ids.time_of(self._last + 1)) < kept.ids_until_ms

    @property
    def is_due(self) -> bool:
        """Whether the number should be taken or renewed now."""
        kept, now_ms = self._kept, self._clock()
        if kept is None or not self._is_confirmed:
            return True
        return not 0 <= now_ms - kept.taken_at_ms < RENEW_MS

    def doubt(self) -> None:
        """Have the number renewed: after an outage the store may be a backup, or another one."""
        self._is_confirmed = False

    def renew(self, ask: Callable[[TakeSysid], TakenSysid]) -> None:
        """Take a number, or renew it, by asking a store, if that is due or no id can be made."""
        with self._renewing:
            if not self.is_due and self.is_usable:
                # Another thread has done it.
                return
            kept = self._kept
            self._token = self._token or os.urandom(16).hex()
            new = TakeSysid(token=self._token, for_ms=JOURNAL_LEASE_MS)
            if kept is None:
                self.adopt(ask(new))
                return
            try:
                taken = ask(replace(new, token=kept.token, number=kept.number))
            except Unavailable:
                # Of several shards, one that is up leases another number.
                taken = ask(new)
            self.adopt(taken)

    def adopt(self, taken: TakenSysid) -> None:
        """Use a number that was taken or renewed, and keep it."""
        with self._lock:
            if self._is_closed:
                # The store has replied late: another process may have the folder, and more ids, by now.
                return
            kept, now_ms = self._kept, self._clock()
            if kept is not None and kept.number == taken.number and not taken.ids_from_ms:
                new = replace(kept, taken_at_ms=now_ms, ids_until_ms=taken.ids_until_ms)
            else:
                self._last = max(self._last, ids.tick_at(taken.ids_from_ms) - 1)
                new = KeptSysid(
                    number=taken.number,
                    token=taken.token,
                    taken_at_ms=now_ms,
                    ids_until_ms=taken.ids_until_ms,
                    used_until_ms=ids.time_of(self._last + 1),
                    lock_inode=self._folder.lock_inode,
                )
            self._folder.write_sysid(new)
            self._kept = new
            self._is_confirmed = True
            self._token = ""

    def make(self, count: int) -> list[int]:
        """Ids that were never made before, in slot 0; `Unavailable` when the time of the number is over."""
        with self._lock:
            kept = self._kept
            if kept is None:
                raise Unavailable(
                    f"the journal {self._folder.name} has no number to make ids by: it takes the first from "
                    "the store, which cannot be reached"
                )
            ticks = ids.next_ticks(self._last, count, now_ms=self._clock())
            if ticks[-1] >= ids.tick_at(kept.ids_until_ms):
                raise Unavailable(
                    f"the journal {self._folder.name} can make no more ids: it may for "
                    f"{JOURNAL_LEASE_MS // DAY_MS} days without the store, and these are over"
                )
            if ticks[-1] >= ids.tick_at(kept.used_until_ms):
                ahead_ms = min(ids.time_of(ticks[-1]) + AHEAD_MS, kept.ids_until_ms)
                kept = replace(kept, used_until_ms=ahead_ms)
                self._folder.write_sysid(kept)
                self._kept = kept
            self._last = ticks[-1]
            return ids.pack_all(ticks, kept.number, BARE)

    def close(self) -> None:
        """Keep where the next ids begin, so that they do not run ahead of the clock."""
        with self._lock:
            self._is_closed = True
            if self._kept is not None and self._last >= 0:
                used_ms = min(ids.time_of(self._last) + 1, self._kept.ids_until_ms)
                # On a full disk they do run ahead, as after a crash.
                with suppress(StoreError):
                    self._folder.write_sysid(replace(self._kept, used_until_ms=used_ms))
                # None is made after this.
                self._kept = None
