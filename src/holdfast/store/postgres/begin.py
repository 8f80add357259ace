"""How batches and views of the PostgreSQL store begin: what they wait for, the time, what they see first.

batch     BEGIN, notice, time                  what it wanted the last time is locked before
claiming  BEGIN, notice, what is looked at first, time
seeking   the same for one who waits, with all that he looks at, and often with what he takes
blind     nothing: all is sent with the commit, and the time is reckoned
view      BEGIN of a snapshot, notice, time
peek      one question, without a transaction
"""

from typing import Any

from ...core import rank
from ...core.kinds import PAUSE
from ...core.limits import DomainKey
from ..common.clock import Clock, monotonic_s
from ..common.gifts import Sought
from ..common.server_time import Time
from ..fairness import Pair
from .connection import Link, OwnLink
from .locks import Locks, Wants
from .starts import Starts, Walks
from .statements import lock_number, statements, texts
from .txn import PostgresTxn
from .view import FEW_PAIRS, KINDS, PostgresView

# How long the server's clock is reckoned from what it last said.
CLOCK_TRUSTED_S = 60.0

_NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_BATCH = "BEGIN ISOLATION LEVEL READ COMMITTED;"
_VIEW = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"


class Beginnings:
    """What all batches and views of a store have in common, and remember for the next."""

    def __init__(self, schema: str, clock: Clock | None) -> None:
        self.time = Time(clock, CLOCK_TRUSTED_S)
        self.writing = statements(schema, locking=True)
        self.reading = statements(schema, locking=False)
        self._schema, self._clock = schema, clock
        # Domains that have a record, as far as is known.
        self._limited: set[DomainKey] = set()
        self.starts = Starts()
        # Lanes that those who sought have emptied, and left marked as having READY jobs.
        self._emptied: dict[Pair, None] = {}
        # What was last sought, as it is asked for.
        self._sought: dict[Sought, str] = {}

    def batch(
        self,
        link: OwnLink,
        settings: str,
        wants: Wants,
        *,
        careful: bool,
        blind: bool,
        claims: bool,
        sought: Sought | None,
    ) -> PostgresTxn:
        """A batch that has what it waited for; only then is it told the time."""
        locks, begin = Locks(link, self.writing, wants), _BATCH + settings
        if blind and (now_ms := self.time.reckoned()) is not None:
            # Where the notice says otherwise the batch fails, and is done again by who reads it.
            link.begin_blindly(f'{begin}SELECT "{self._schema}".check_open()')
            return self._txn(link, locks, now_ms, None, careful=False, blind=True)
        if sought is not None:
            return self._seeking(link, locks, begin, sought, careful=careful)
        if claims and not wants:
            return self._claiming(link, locks, begin, careful=careful)
        if wants:
            link.script(begin)
            begin = ""
        return self.inside(link, locks, begin, careful=careful)

    def inside(self, link: Link, locks: Locks, begin: str = "", *, careful: bool) -> PostgresTxn:
        """A batch in a transaction that was begun, or is now."""
        locks.begin()
        return self._txn(link, locks, *self._now(link, begin), careful=careful)

    def _claiming(self, link: Link, locks: Locks, begin: str, *, careful: bool) -> PostgresTxn:
        walks = Walks(self.starts)
        row = link.script(f'{begin}SELECT * FROM "{self._schema}".begin_claim({self._walks(walks)})')
        assert row is not None
        notice, now_ms, *seen = row
        txn = self._txn(link, locks, self._told(now_ms), notice, careful=careful)
        txn.foresee(walks, seen)
        return txn

    def _seeking(
        self, link: OwnLink, locks: Locks, begin: str, sought: Sought, *, careful: bool
    ) -> PostgresTxn:
        walks, start_s = Walks(self.starts), monotonic_s()
        given_ms = "NULL" if self._clock is None else self._clock()
        row = link.script(f"{begin}{self._seek(link, walks, sought)}, {given_ms})")
        assert row is not None
        notice, now_ms, *seen = row
        if self._clock is None:
            self.time.heard(now_ms)
        txn = self._txn(link, locks, now_ms, notice, careful=careful)
        if seen[4] is not None:
            txn.foresee(walks, seen[:6])
        else:
            # There was nothing for him, and so it has no locks.
            txn.only_looked = True
        txn.emptied = self._emptied
        txn.sight = self._view(link, now_ms, notice)
        txn.sight.see([*seen[:4], *seen[6:11]], monotonic_s() - start_s)
        txn.has_in_hand(link, sought.at(now_ms), seen[11:])
        return txn

    def _seek(self, link: OwnLink, walks: Walks, sought: Sought) -> str:
        """How `seek` is called, but for the time: what does not change is written once."""
        if (rest := self._sought.get(sought)) is None:
            query = sought.query
            tenants = query.tenants if query.tenant is None else (query.tenant,)
            named = [None if names is None else texts(names) for names in (tenants, query.tasks)]
            asked = (
                texts(KINDS),
                FEW_PAIRS + 1,
                *named,
                query.limit,
                sought.lease_ms,
                rank.lease(0),
                query.owner,
                query.start,
            )
            rest = link.written("%s::text[], %s, %s::text[], %s::text[], %s, %s, %s, %s, %s", asked)
            self._sought = {sought: rest}
        return f'SELECT * FROM "{self._schema}".seek({self._walks(walks)}, {rest}'

    def _walks(self, walks: Walks) -> str:
        """What every claim looks at first: what is paused, and the moments."""
        return ", ".join(map(str, (lock_number(self._schema, "records", PAUSE), *walks.began)))

    def _txn(self, link: Link, locks: Locks, now_ms: int, notice: bytes | None, **how: Any) -> PostgresTxn:
        known: dict[str, Any] = {"schema": self._schema, "limited": self._limited, "notice": notice}
        txn = PostgresTxn(link, self.writing, now_ms, locks=locks, **known, **how)
        txn.at_ms = now_ms if self._clock is None else 0
        txn.starts = self.starts
        return txn

    def view(self, link: Link, settings: str) -> PostgresView:
        """One view of the schema as it is now."""
        return self._view(link, *self._now(link, _VIEW + settings))

    def peek(self, link: Link) -> PostgresView:
        """A view whose parts may be of different moments: what one who waits looks at comes in one answer."""
        start_s = monotonic_s()
        ((notice, *seen, now_ms),) = link.rows(self.reading["glance"], PostgresView.asked(self.starts))
        view = self._view(link, self._told(now_ms), notice)
        view.see(seen, monotonic_s() - start_s)
        return view

    def _view(self, link: Link, now_ms: int, notice: bytes | None) -> PostgresView:
        view = PostgresView(link, self.reading, now_ms, schema=self._schema, notice=notice)
        view.starts = self.starts
        return view

    def _now(self, link: Link, before: str) -> tuple[int, bytes | None]:
        """Run some statements, and ask for the notice and the time with the same breath.

        In this order: a batch may have to wait for the one, and only then is told the other.
        """
        row = link.script(f'{before}SELECT "{self._schema}".notice(), {_NOW}')
        assert row is not None
        notice, now_ms = row
        return self._told(now_ms), notice

    def _told(self, now_ms: int) -> int:
        """The time by the server, which has just told it, or by a clock that was given."""
        if self._clock is not None:
            return self._clock()
        self.time.heard(now_ms)
        return now_ms
