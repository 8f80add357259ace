"""The ids of a journal, made without the store by a number that is leased for days.

The folder keeps the number, its token, until when ids may be made, and a moment before which they may have
been made, which is moved ahead, durably, before the first id beyond it. After a crash ids begin there.

    opening ─┬─ the folder is the one that the number was kept in ──▶ ids; the store replaces the token
             └─ it was copied or restored, or the machine started since ──▶ no id before another number

Each opening makes a token of its own, and the store gives it the number only for the token of the one before.
See docs/decisions/0018.
"""

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from ..core import ids
from ..core.bounds import DAY_MS, JOURNAL_LEASE_MS, MINUTE_MS
from ..core.commands import TakenSysid, TakeSysid
from ..core.errors import HoldfastError, StoreError, Unavailable
from .folder import JournalFolder, KeptSysid

log = logging.getLogger("holdfast")

# How far ahead of the clock the kept moment is; after a crash ids run ahead as far. The rest of the minute is
# for the steps that follow where ids are ahead already: after another crash, or a clock that was set back.
AHEAD_MS = 50 * MINUTE_MS // 60
STEP_MS = 100
RENEW_MS = DAY_MS
BARE = range(1)
Ask = Callable[[TakeSysid], TakenSysid]


class JournalIds:
    """Makes ids by the number that is kept in a folder."""

    def __init__(self, folder: JournalFolder, clock: Callable[[], int]) -> None:
        self._folder, self._clock = folder, clock
        self._kept = self._read_kept()
        self._last = ids.tick_at(self._kept.used_until_ms) - 1
        # The token of this opening; the number is confirmed when the store has replaced the one before by it.
        self._token = os.urandom(16).hex()
        # Whether the store has leased the number, as far as is known: it may be another store than before.
        self._is_confirmed = False
        self._is_closed = False
        self._lock = threading.Lock()
        # Held while the store is asked: ids are made meanwhile.
        self._renewing = threading.Lock()

    def _read_kept(self) -> KeptSysid:
        """The number in the folder, if no other process can have it; else an empty record."""
        kept = self._folder.read_sysid()
        if kept is None or self._folder.is_original(kept):
            return kept or KeptSysid()
        if kept.ids_until_ms:
            log.info(
                "the journal %s takes another number from the store before its first id: its folder was "
                "copied or restored, or the machine was started since",
                self._folder.name,
            )
        return KeptSysid()

    @property
    def kept(self) -> KeptSysid | None:
        """The number that is used; None: none yet."""
        return self._kept if self._kept.ids_until_ms else None

    @property
    def is_usable(self) -> bool:
        """Whether an id can be made now."""
        return max(self._clock(), ids.time_of(self._last + 1)) < self._kept.ids_until_ms

    @property
    def is_due(self) -> bool:
        """Whether the number should be taken or renewed now."""
        return not (self._is_confirmed and 0 <= self._clock() - self._kept.taken_at_ms < RENEW_MS)

    def doubt(self) -> None:
        """Have the number renewed: after an outage the store may be a backup, or another one."""
        self._is_confirmed = False

    def renew(self, ask: Ask) -> None:
        """Take a number, or renew it, by asking a store, if that is due or no id can be made."""
        with self._renewing:
            if not self.is_due and self.is_usable:
                # Another thread has done it.
                return
            if self._kept.token != self._token:
                if self._kept.next_token not in ("", self._token):
                    # The opening before has asked, and did not live to read the reply.
                    self._take(ask, self._kept.next_token)
                # Kept before it is asked for: a number whose token is forgotten cannot be used for days.
                self._write(replace(self._kept, next_token=self._token))
            self._take(ask, self._token)

    def _take(self, ask: Ask, token: str) -> None:
        kept = self._kept
        previous = "" if kept.token == token else kept.token
        command = TakeSysid(token=token, previous=previous, number=kept.number, for_ms=JOURNAL_LEASE_MS)
        try:
            taken = ask(command)
        except Unavailable:
            if not kept.number:
                raise
            # Of several shards, one that is up leases another number.
            taken = ask(replace(command, number=0, previous=""))
        self.adopt(taken)

    def adopt(self, taken: TakenSysid) -> None:
        """Use a number that was taken or renewed, and keep it."""
        with self._lock:
            if self._is_closed:
                # The store has replied late: another process may have the folder, and more ids, by now.
                return
            self._last = max(self._last, ids.tick_at(taken.ids_from_ms) - 1)
            self._keep(
                KeptSysid(
                    number=taken.number,
                    token=taken.token,
                    taken_at_ms=self._clock(),
                    ids_until_ms=taken.ids_until_ms,
                    used_until_ms=max(self._kept.used_until_ms, ids.time_of(self._last + 1)),
                )
            )
            self._is_confirmed = True

    def _write(self, kept: KeptSysid) -> None:
        with self._lock:
            if not self._is_closed and kept != self._kept:
                self._keep(kept)

    def _keep(self, kept: KeptSysid) -> None:
        self._folder.write_sysid(kept)
        self._kept = kept

    def make(self, count: int) -> list[int]:
        """Ids that were never made before, in slot 0; `Unavailable` when the time of the number is over."""
        with self._lock:
            kept = self._kept
            if not kept.ids_until_ms:
                raise Unavailable(
                    f"the journal {self._folder.name} has no number to make ids by: where its folder is new, "
                    "copied or restored, or the machine was started since, it takes one from the store first"
                )
            now_ms = self._clock()
            ticks = ids.next_ticks(self._last, count, now_ms=now_ms)
            if ticks[-1] >= ids.tick_at(kept.ids_until_ms):
                raise Unavailable(
                    f"the journal {self._folder.name} can make no more ids: it may for "
                    f"{JOURNAL_LEASE_MS // DAY_MS} days without the store, and these are over"
                )
            if ticks[-1] >= ids.tick_at(kept.used_until_ms):
                ahead_ms = max(now_ms + AHEAD_MS, ids.time_of(ticks[-1]) + STEP_MS)
                self._keep(replace(kept, used_until_ms=min(ahead_ms, kept.ids_until_ms)))
            self._last = ticks[-1]
            return ids.pack_all(ticks, kept.number, BARE)

    def close(self, offer: Ask | None = None) -> None:
        """Keep where the next ids begin, so that they do not run ahead of the clock; no more are made.

        `offer` asks the store whether it wants the number back. Meanwhile the folder cannot use it: the store
        may give it to another journal at any moment.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed, kept = True, self._kept
            self._kept = KeptSysid()
            if not kept.number or self._last < 0:
                return
            used_ms = min(ids.time_of(self._last) + 1, kept.ids_until_ms or kept.used_until_ms)
            kept = replace(kept, used_until_ms=used_ms)
            is_offered = offer is not None and kept.token == self._token
            try:
                self._folder.write_sysid(replace(kept, ids_until_ms=0) if is_offered else kept)
            except StoreError:
                # On a full disk they do run ahead, as after a crash.
                return
        if offer is None or not is_offered:
            return
        asked = TakeSysid(token=kept.token, number=kept.number, used_until_ms=used_ms, for_ms=0)
        with suppress(HoldfastError):
            if offer(asked).number == kept.number:
                self._folder.write_sysid(kept)
