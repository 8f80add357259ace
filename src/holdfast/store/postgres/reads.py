"""What can be read from the PostgreSQL store. In a batch it is locked too: see `txn.py`."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec

from ...core import rank
from ...core.job import Body, Job, Place, State
from ...core.jump import Jump
from ...core.limits import Domain, DomainCounts, DomainKey
from ...core.unique import Unique, UniqueKey
from .. import fairness
from ..contract import CountKey, JobFilter, LogRow, Moments, Waiting, WaitingQuery
from .connection import Link, Values
from .fairness import PostgresTurns
from .lists import PostgresLists
from .presence import sees
from .starts import Starts, Walks
from .statements import numbers, raws, texts

_JOBS = msgspec.json.Decoder(list[Job])
_DOMAINS = msgspec.json.Decoder(list[Domain])

# `core.job.state`, for the listing alone.
_STATES = {
    State.QUEUED: "place IN (1, 2, 3) AND NOT lapsed",
    State.RUNQUEUED: "(place IN (1, 2, 3) AND lapsed OR place = 4 AND retries)",
    State.RUNNING: "place = 4 AND NOT retries",
    State.PAUSED: "place = 5",
    State.FINISHED: "place = 6 AND ended IN ('', 'FINISHED')",
    State.FAILED: "place = 6 AND ended = 'FAILED'",
    State.CANCELLED: "place = 6 AND ended = 'CANCELLED'",
}
_RUNNING: set[Place | State | None] = {Place.RUNNING, State.RUNNING}


class PostgresReads(PostgresLists):
    """A view of the store; see `ReadTxn` for what each verb promises."""

    # The clock is the server's.
    jump: Jump | None = None

    def __init__(
        self, link: Link, sql: dict[str, str], now_ms: int, *, schema: str, notice: bytes | None = None
    ) -> None:
        self.link, self.sql, self.now_ms, self.schema = link, sql, now_ms, schema
        # It came along with the time; an empty one says nothing.
        self._notice = notice or None
        self.turns = PostgresTurns(link, sql, schema)
        # Where walks begin, as far as this process knows; a view of its own begins at the front.
        self.starts = Starts()
        # When the domains that were last read had been written.
        self.domains_at_ms = 0
        # How many differences of counts were added up when they were last read.
        self.unfolded = 0

    def _jobs(self, name: str, values: Values) -> list[Job]:
        answer = self.link.value(self.sql[name], values)
        return _JOBS.decode(answer) if answer is not None else []

    def _domains(self, name: str, values: Values) -> list[Domain]:
        answer = self.link.value(self.sql[name], values)
        return _DOMAINS.decode(answer) if answer is not None else []

    def load(self, ids: Collection[int]) -> dict[int, Job]:
        """The live jobs among these, and the parents of all of them."""
        return {job.id: job for job in self._jobs("load", {"ids": numbers(ids)})} if ids else {}

    def archived(self, ids: Collection[int]) -> dict[int, Job]:
        """The archived jobs among these."""
        return {job.id: job for job in self._jobs("archived", (numbers(ids),))} if ids else {}

    def bodies(self, ids: Collection[int], *, result: bool = False) -> dict[int, Body]:
        """The data of jobs, or their results."""
        return self._bodies("results" if result else "data", ids)

    def _bodies(self, name: str, ids: Collection[int]) -> dict[int, Body]:
        rows = self.link.rows(self.sql[name], {"ids": numbers(ids)}) if ids else []
        return {id: body if raw is None else raw for id, body, raw in rows}

    def children(
        self, parent_id: int, *, place: Place | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        """The live children of a job, by id."""
        if place is None:
            return self._jobs("children", (parent_id, after, limit))
        asked = {"parent": parent_id, "place": int(place), "after": after, "limit": limit}
        return self._jobs("children_at", asked)

    def find_unique(self, keys: Collection[UniqueKey]) -> dict[UniqueKey, Unique]:
        """Who holds these keys."""
        wanted = list(keys)
        if not wanted:
            return {}
        tenants, tasks, names = zip(*wanted, strict=True)
        rows = self.link.rows(self.sql["find_unique"], (texts(tenants), texts(tasks), raws(names)))
        found = {}
        for number, job_id, until_ms in rows:
            tenant, task, key = wanted[number - 1]
            held = Unique(tenant=tenant, task=task, key=key, job_id=job_id, until_ms=until_ms)
            found[held.id] = held
        return found

    def named(self, tenant: str, task: str, *, mock: bool) -> int | None:
        """A live job of a task, looked for where the counts say that one stands."""
        for (place,) in self.link.rows(self.sql["places_of_task"], {"tenant": tenant, "task": task}):
            if place == Place.READY and not mock:
                found: int | None = self.link.value(self.sql["named_ready"], (tenant, task))
            else:
                sql = self.sql["named"].replace("{place}", str(place))
                found = self.link.value(sql, (tenant, task, mock))
            if found is not None:
                return found
        return None

    def first(self, place: Place, up_to: int, limit: int) -> list[Job]:
        """The first jobs of a place."""
        return self._jobs(f"first_{int(place)}", (self.starts.of(place), up_to, limit))

    def expiring(self, up_to: int, limit: int) -> list[Job]:
        """Jobs that wait and whose `expires_at` has come."""
        return self._jobs("expiring", (up_to, limit))

    def jobs(self, query: JobFilter, *, after: int, limit: int) -> list[Job]:
        """Jobs that match, by id."""
        if query.archived and query.place not in (None, Place.DONE):
            return []
        conditions, values = _conditions(query)
        sql = self.sql["list_archived" if query.archived else "list"].replace("{conditions}", conditions)
        # What is usually a small part of all is found by another index than that of the ids, and sorted.
        small = query.parent_id or query.domain is not None or _RUNNING & {query.place, query.state}
        sql = sql.replace("{order}", "id + 0" if small else "id")
        answer = self.link.value(sql, (after, *values, limit))
        return _JOBS.decode(answer) if answer is not None else []

    def waiting(self, query: WaitingQuery) -> list[Waiting]:
        """Whose turn it is."""
        return fairness.waiting(self.turns, query)

    def lineup(self, key: DomainKey, task: str, place: Place, *, last: bool, limit: int) -> list[Job]:
        """The first or last jobs of one task of a domain in a place."""
        return self._jobs("lineup_last" if last else "lineup", (*key, task, int(place), limit))

    def domain_counts(self, keys: Collection[DomainKey]) -> dict[DomainKey, DomainCounts]:
        """How many jobs of these domains stand READY, HELD and RUNNING."""
        if not keys:
            return {}
        tenants, names = zip(*keys, strict=True)
        found: dict[DomainKey, DomainCounts] = {}
        values = (texts(tenants), raws(names))
        for tenant, name, task, place, count in self.link.rows(self.sql["domain_counts"], values):
            found.setdefault((tenant, bytes(name)), {})[task, Place(place)] = count
        return found

    def domains(self, keys: Collection[DomainKey]) -> dict[DomainKey, Domain]:
        """What is kept of these domains."""
        self.domains_at_ms = 0
        if not keys:
            return {}
        tenants, names = zip(*keys, strict=True)
        ((answer, at_ms),) = self.link.rows(self.sql["domains"], (texts(tenants), raws(names)))
        self.domains_at_ms = at_ms or 0
        return {found.key: found for found in _DOMAINS.decode(answer)} if answer is not None else {}

    def due_domains(self, up_to: int, limit: int) -> list[Domain]:
        """The domains whose moment has come."""
        return self._domains("due_domains", (up_to, limit))

    def list_domains(self, tenant: str, *, after: bytes, limit: int) -> list[Domain]:
        """What is kept of a tenant's domains, by name."""
        return self._domains("list_domains", (tenant, after, limit))

    def counts(self, *, tenant: str | None = None) -> dict[CountKey, int]:
        """How many jobs there are of each kind."""
        if tenant is None:
            rows = self.link.rows(self.sql["counts"])
        else:
            rows = self.link.rows(self.sql["counts_of_tenant"], {"tenant": tenant})
        self.unfolded = sum(row[5] for row in rows)
        return {CountKey(t, task, Place(place), State(state)): n for t, task, place, state, n, _ in rows}

    def moments(self) -> Moments:
        """When something becomes true by itself."""
        return self._walked(lambda began: self.link.rows(self.sql["moments"], as_named(began))[0])

    def _walked(self, ask: Callable[[tuple[int, ...]], tuple[Any, ...]]) -> Moments:
        """Ask for moments from where their walks begin, and remember where they ended."""
        walks = Walks(self.starts)
        row = ask(walks.began)
        walks.ended(row, self.now_ms)
        return moments_of(row)

    def records(self, kind: str, names: Collection[str] | None = None) -> dict[str, bytes]:
        """Small named records."""
        if names is None:
            return dict(self.link.rows(self.sql["records"], (kind,)))
        return dict(self.link.rows(self.sql["records_named"], (kind, texts(names)))) if names else {}

    def present(self, name: str) -> bool:
        """Whether a process that appeared under a name is still there."""
        return sees(self.link, self.schema, name)

    def read_log(self, log: str, *, after: int, limit: int) -> list[LogRow]:
        """Items of a log in order."""
        rows = self.link.rows(self.sql["read_log"], (log, after, limit))
        return [LogRow(at, key, body if raw is None else raw) for at, key, body, raw in rows]

    def notice(self) -> bytes | None:
        """What stands on the door."""
        return self._notice

    def find_in_log(self, log: str, keys: Collection[bytes]) -> dict[bytes, int]:
        """Where in a log these keys are."""
        return dict(self.link.rows(self.sql["find_in_log"], (log, raws(keys)))) if keys else {}


def as_named(began: Iterable[int]) -> dict[str, Any]:
    """Where the walks begin, as the statements call them."""
    return dict(zip(Moments._fields, began, strict=True))


def moments_of(row: Sequence[int | None]) -> Moments:
    """What walks have found; what never comes is nothing."""
    return Moments(*(m if m is None or m < rank.LAST else None for m in row))


def _conditions(query: JobFilter) -> tuple[str, list[Any]]:
    """What a listing asks for, after the first condition, `id > …`."""
    asked: list[tuple[str, Any]] = [
        ("tenant = %s", query.tenant),
        ("task = %s", query.task),
        ("domain = %s", query.domain),
        ("parent_id = %s" + (" AND parent_id > 0" if query.parent_id else ""), query.parent_id),
        ("schedule = %s" + (" AND schedule <> ''" if query.schedule else ""), query.schedule),
    ]
    fixed = []
    if query.archived:
        asked.append(("state = %s", query.state))
    else:
        # The numbers of places stand in the statement, as they do in the indexes.
        fixed += [f"place = {int(query.place)}"] if query.place is not None else []
        fixed += [_STATES[query.state]] if query.state is not None else []
    chosen = [(sql, value) for sql, value in asked if value is not None]
    return " AND ".join(["id > %s", *(sql for sql, _ in chosen), *fixed]), [value for _, value in chosen]
