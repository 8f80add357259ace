"""Moves a live queue from one store to another, using only the store contract. See docs/decisions/0011.

                    source                                   target
    begin           COPYING: in use                          FILLING: refuses all commands
    walk            in use                  ── copied ──▶    filled and updated in several passes
    stop            STOPPED: writes wait
    finish          stopped                 ── copied ──▶    equal, row by row, and verified
    hand over       MOVED: replies the new address
    open                                                     OPEN: in use

Each step is one transaction in one store, so a crash leaves one of these states. Starting the same move again
continues from there with a new run number, and the earlier run can no longer write. Before the hand-over the
users of the queue notice nothing, and `undo` deletes the notice. After it the source is no longer used.
An error before the hand-over, such as a full target, ends the stop; only a kill leaves the source stopped.

In a sharded store a step is one transaction in each shard, one after the other. The first shard of the source
decides: the other shards are brought to its state. The first shard of the target is opened last.
"""

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import sleep
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ...core import ids
from ...core.bounds import PAGE_JOBS, SECOND_MS, SYSID_LEASE_MS
from ...core.errors import BadInput, HoldfastError, StoreError, Unavailable
from ...core.job import Job
from ...core.kinds import SHARD, SYSID
from ...core.moving import Notice, Standing
from ...store.common.clock import monotonic_s
from ...store.contract import JOBS, NO_WAKE, NOTHING, AnyStore, Changes, JobFilter, ReadTxn, Store, Txn
from ...store.sharded.shard import MARK
from ..records import find_notice
from ..sysid import Sysid
from .copying import Copier, Tell, is_empty
from .parts import check_place, check_rows

# Passes while the source is in use: at least two, of which the second finds changes made during the first and
# compares all bodies; more while there is much to write, so that the source is stopped for a shorter time.
WALKS = (2, 6)
# How much the clocks of the two stores may differ: leases and rates are stored as times.
SKEW_MS = 10 * SECOND_MS
NAP_S = 0.02
_UNFINISHED = "one with an unfinished move"

_encode = msgspec.json.Encoder().encode


class Summary(NamedTuple):
    """The result of a move: rows of each part, how long the source was stopped, and a digest of all rows."""

    rows: dict[str, int]
    stopped_s: float
    digest: str


class StoreMove:
    """One move, new or continued. `here` and `there` are the addresses of source and target."""

    def __init__(
        self,
        source: AnyStore,
        target: AnyStore,
        *,
        here: str,
        there: str,
        batch: int = PAGE_JOBS,
        tell: Tell = lambda _part, _rows, _written: None,
        phase: Callable[[str], None] = lambda _name: None,
    ) -> None:
        self._sources, self._targets = source.shards, target.shards
        self._here, self._there = here, there
        self._phase = phase
        self._run = secrets.token_hex(8)
        self._token = ""
        self._copier = Copier(self._sources, self._targets, check=self._check_target, batch=batch, tell=tell)
        self._stopped_s = 0.0

    def run(self) -> Summary:
        """Move everything; returns when the target is open."""
        standing, digest = self.begin(), ""
        if standing is Standing.COPYING:
            self._phase("copying")
            self._walk()
        if standing is not Standing.MOVED:
            digest = self._complete(standing)
        self._open()
        return Summary(self._copier.rows, self._stopped_s, digest or self._found().digest)

    def _complete(self, standing: Standing) -> str:
        """Stop the source, copy the rest and hand over; returns the digest. After an error the stop ends."""
        try:
            if standing is Standing.COPYING:
                self._phase("stopping")
                self._stop()
            digest = self._finish(deep=standing is Standing.STOPPED)
            self._hand_over(digest)
        except (HoldfastError, KeyboardInterrupt):
            # The source must not stay stopped until the reason has gone.
            with suppress(HoldfastError):
                self._end_stop()
            raise
        return digest

    def check(self) -> None:
        """Raise the error that the move would raise, without writing anything."""
        mine = self._sources[0].read(lambda txn: self._begun(txn, token=""))
        if self._here == self._there:
            raise self._same()
        for shard in self._targets:
            shard.read(lambda txn: self._filling(txn, mine))
        self._check_clocks()
        self._check_places(mine)

    def _same(self) -> BadInput:
        return BadInput("the store to move to", self._there, needed="another than the one to move from")

    def _check_clocks(self) -> None:
        ours, theirs = ([shard.now_ms() for shard in shards] for shards in (self._sources, self._targets))
        skew_ms = max(max(theirs) - min(ours), min(theirs) - max(ours), key=abs)
        if abs(skew_ms) > SKEW_MS:
            raise StoreError(
                f"the clocks of {self._here} and {self._there} differ by {skew_ms:+,} ms, and may differ by "
                f"{SKEW_MS:,}: leases and rates would not hold; set one of them right"
            )

    def _check_places(self, mine: Notice) -> None:
        """Refuse what cannot be placed in the target's shards; after `begin` the passes check this."""
        if mine.standing is not Standing.COPYING or len(self._targets) <= len(self._sources):
            return
        for shard in self._sources:
            shard.read(lambda txn: check_rows(txn, len(self._targets)))
            after = 0
            while jobs := shard.read(_jobs_above(after)):
                for job in jobs:
                    check_place(job, len(self._targets))
                after = jobs[-1].id

    # Steps: each is one transaction in each shard.

    def begin(self) -> Standing:
        """Write the notices to all shards, or take over those of an earlier run; return how far it came."""
        self._check_clocks()
        token = secrets.token_hex(8)
        self._check_places(self._sources[0].read(lambda txn: self._begun(txn, token=token)))
        before: list[bytes | None] = []
        filling: list[Store] = []
        try:
            mine = self._begin_source(token, before)
            self._token = mine.token
            for shard in self._targets:
                shard.read(lambda txn: self._filling(txn, mine))
            for shard in self._targets:
                if shard.run(lambda txn: self._begin_target(txn, mine)):
                    filling.append(shard)
        except HoldfastError:
            # Nothing was started, so the notices of this run are removed.
            self._put_back(filling, [None] * len(filling), self._check_target)
            self._put_back(self._sources, before, self._check_source)
            raise
        return mine.standing

    def _begin_source(self, token: str, before: list[bytes | None]) -> Notice:
        """Write the notice to every shard of the source, by that of the first; return that of the first."""
        mine: Notice | None = None

        def fn(txn: Txn) -> tuple[Changes, tuple[bytes | None, Notice]]:
            notice = self._begun(txn, token=token) if mine is None else self._brought(txn, mine)
            return _saying(notice), (txn.notice(), notice)

        for shard in self._sources:
            found, notice = shard.run(fn)
            before.append(found)
            mine = mine or notice
        assert mine is not None
        return mine

    def _begin_target(self, txn: Txn, mine: Notice) -> tuple[Changes, bool]:
        """Write the notice to a shard of the target; return whether there was none before."""
        return _saying(self._filling(txn, mine)), txn.notice() is None

    def _put_back(
        self, shards: Sequence[Store], before: Sequence[bytes | None], check: Callable[[Txn], Any]
    ) -> None:
        def put(notice: bytes | None) -> Callable[[Txn], tuple[Changes, None]]:
            def fn(txn: Txn) -> tuple[Changes, None]:
                check(txn)
                return Changes(notice=notice), None

            return fn

        for shard, notice in zip(shards, before, strict=False):
            shard.run(put(notice))

    def _stop(self) -> None:
        self._set(Standing.STOPPED)

    def _hand_over(self, digest: str) -> None:
        """Mark the source as moved, which cannot be undone."""
        self._await_clock()
        # Wake up waiting claims, so that they follow at once.
        self._set(Standing.MOVED, digest, wake=JOBS)

    def _set(self, standing: Standing, digest: str = "", *, wake: str = NO_WAKE) -> None:
        def fn(txn: Txn) -> tuple[Changes, None]:
            mine = self._check_source(txn)
            return _saying(replace(mine, standing=standing, digest=digest), wake=wake), None

        for shard in self._sources:
            shard.run(fn)

    def _end_stop(self) -> None:
        """Let the source continue, unless it was handed over."""

        def fn(txn: Txn) -> tuple[Changes, bool]:
            mine = self._check_source(txn)
            if mine.standing is not Standing.STOPPED:
                return NOTHING, mine.standing is Standing.COPYING
            return _saying(replace(mine, standing=Standing.COPYING)), True

        first, *others = self._sources
        # The first shard decides. The others are independent: one of them may be the one that has failed.
        if first.run(fn):
            for shard in others:
                with suppress(HoldfastError):
                    shard.run(fn)

    def _open(self) -> None:
        def fn(txn: Txn) -> tuple[Changes, None]:
            notice = find_notice(txn)
            if notice is None or notice.standing is not Standing.FILLING:
                return NOTHING, None
            self._check_target(txn)
            return _saying(Notice(standing=Standing.OPEN, origin=self._token), wake=JOBS), None

        for shard in reversed(self._targets):
            shard.run(fn)

    # Parts of the steps

    def _begun(self, txn: ReadTxn, *, token: str) -> Notice:
        """The notice of this run for the source, given the current one."""
        found = find_notice(txn)
        if len(self._sources) == 1 and (mark := txn.rows(SHARD, [MARK]).get(MARK)):
            needed = f"all shards of the queue: it is {mark.decode().replace('/', ' of ')} of them"
            raise BadInput("the store to move from", self._here, needed=needed)
        if found is None or found.standing is Standing.OPEN:
            origin = found.origin if found else ""
            return Notice(
                standing=Standing.COPYING, token=token, run=self._run, other=self._there, origin=origin
            )
        if found.standing is Standing.FILLING:
            raise Unavailable(
                f"{self._here} is itself being filled from {found.other}: finish that move first"
            )
        if found.other != self._there:
            raise BadInput("the store to move to", self._there, needed=_other_needed(found))
        return replace(found, run=self._run)

    def _brought(self, txn: ReadTxn, mine: Notice) -> Notice:
        """The notice of this run for the other shards of the source, given that of the first."""
        found = find_notice(txn)
        if found is not None and (
            found.standing is Standing.FILLING
            or (found.standing is Standing.MOVED and found.token != mine.token)
        ):
            raise Unavailable(
                f"a shard of {self._here} is {found.standing}, by another move with {found.other}"
            )
        return replace(mine, origin=found.origin if found else "")

    def _filling(self, txn: ReadTxn, mine: Notice) -> Notice:
        """The notice of this run for the target, given the current one."""
        found = find_notice(txn)
        if found is not None and found.run == self._run and found.standing is not Standing.FILLING:
            raise self._same()
        if found is not None and mine.token:
            if (found.standing, found.token) == (Standing.FILLING, mine.token):
                return replace(found, run=self._run)
            if found.origin == mine.token:
                # It was opened already, and may have been moved again since.
                return found
        own = frozenset({SHARD} if len(self._targets) > 1 else ())
        if found is not None or not is_empty(txn, own=own):
            raise BadInput(
                "the store to move to", self._there, needed="empty, or the same move's, unfinished"
            )
        if mine.standing is not Standing.COPYING:
            raise StoreError(
                f"{self._there} is empty, although {self._here} was to be moved there: is it gone?"
            )
        return Notice(standing=Standing.FILLING, token=mine.token, run=self._run, other=self._here)

    def _walk(self) -> None:
        fewest, most = WALKS
        for number in range(1, most + 1):
            written = self._copier.walk(deep=number == fewest)
            if number >= fewest and written < PAGE_JOBS:
                return

    def _finish(self, *, deep: bool) -> str:
        """Copy the rest of the stopped source, and verify that both stores are equal."""
        started_s = monotonic_s()
        until_ms = max(shard.now_ms() for shard in self._sources) + SYSID_LEASE_MS
        for shard in self._sources:
            shard.run(lambda txn: self._keep_ticks(txn, until_ms))
        digest = self._copier.finish(deep=deep)
        self._stopped_s = monotonic_s() - started_s
        return digest

    def _keep_ticks(self, txn: Txn, until_ms: int) -> tuple[Changes, None]:
        """Write the time from which ids made by SQL functions, which lease no sysid, are free."""
        self._check_source(txn)
        name = str(ids.PORT_SYSID)
        raw = txn.rows(SYSID, [name]).get(name)
        if raw is not None and msgspec.json.decode(raw, type=Sysid).ids_until_ms >= until_ms:
            return NOTHING, None
        freed = Sysid(token="", until_ms=0, ids_until_ms=until_ms)
        return Changes(rows={(SYSID, name): _encode(freed)}), None

    def _await_clock(self) -> None:
        """Wait until the target's clock has reached the times that the source has written."""
        until_ms = max(shard.now_ms() for shard in self._sources)
        while min(shard.now_ms() for shard in self._targets) < until_ms:
            sleep(NAP_S)

    def _check_source(self, txn: ReadTxn) -> Notice:
        found = find_notice(txn)
        if found is None or found.run != self._run:
            raise Unavailable(f"the move of {self._here} was taken back, or another process goes on with it")
        return found

    def _check_target(self, txn: ReadTxn) -> None:
        found = find_notice(txn)
        if found is None or found.run != self._run:
            raise Unavailable(f"another process goes on with the move to {self._there}")

    def _found(self) -> Notice:
        found = self._sources[0].read(find_notice)
        assert found is not None
        return found


def undo(source: AnyStore, *, here: str) -> Notice:
    """Delete the notice of an unfinished move and return it. The target stays unusable.

    The first shard decides; notices of earlier runs in the other shards are deleted too.
    """

    def fn(txn: Txn) -> tuple[Changes, Notice | None]:
        found = find_notice(txn)
        if found is not None and found.standing is Standing.MOVED:
            raise BadInput("the store", f"{here}, which has moved to {found.other}", needed=_UNFINISHED)
        if found is None or found.standing not in (Standing.COPYING, Standing.STOPPED):
            return NOTHING, None
        kept = Notice(standing=Standing.OPEN, origin=found.origin) if found.origin else None
        return _saying(kept), found

    taken = [notice for shard in source.shards if (notice := shard.run(fn)) is not None]
    if not taken:
        raise BadInput("the store", f"{here}, which stays", needed=_UNFINISHED)
    return taken[0]


def _jobs_above(after: int) -> Callable[[ReadTxn], list[Job]]:
    return lambda txn: txn.jobs(JobFilter(), after=after, limit=PAGE_JOBS)


def _saying(notice: Notice | None, *, wake: str = NO_WAKE) -> Changes:
    return Changes(notice=_encode(notice) if notice else None, wake=wake)


def _other_needed(found: Notice) -> str:
    if found.standing is Standing.MOVED:
        return f"{found.other}, where it has moved to"
    return f"{found.other}, where an unfinished move leads: finish that, or take it back with --undo"
