"""What can be read from the SQLite store: each question is one statement, each answer one JSON value."""

from base64 import b64encode
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from ...core import rank
from ...core.damage import UNREADABLE
from ...core.job import Body, Job, Place, State, Unreadable
from ...core.jump import Jump
from ...core.limits import Domain, DomainCounts, DomainKey
from ...core.unique import Unique, UniqueKey
from .. import fairness
from ..contract import CountKey, JobFilter, LogRow, Moments, Waiting, WaitingQuery
from .connection import Link
from .lists import SqliteLists, Told, as_bytes
from .presence import Presence
from .statements import JOBS, SQL, as_jobs, children, in_rows, listed, waiting_tasks

_JOBS = msgspec.json.Decoder(list[Job])
_BODIES = msgspec.json.Decoder(list[tuple[int, Told]])
_RECORDS = msgspec.json.Decoder(list[tuple[str, Told]])
_LOG = msgspec.json.Decoder(list[tuple[int, str | None, Told]])
_PLACED = msgspec.json.Decoder(list[tuple[int, int]])
_DOMAINS = msgspec.json.Decoder(list[Domain])
_UNIQUES = msgspec.json.Decoder(list[tuple[int, int, int]])
_TURNS = msgspec.json.Decoder(list[tuple[int, str]])
_TASKS = msgspec.json.Decoder(list[tuple[str, list[tuple[str, int]]]])
_COUNTS = msgspec.json.Decoder(list[tuple[str, str, Place, State, int]])
_DOMAIN_COUNTS = msgspec.json.Decoder(list[tuple[int, str, Place, int]])
_MOMENTS = msgspec.json.Decoder(tuple[int | None, int | None, int | None, int | None])

# Of a damaged record nothing is asked: SQLite would refuse the whole listing.
_IF_JSON = "CASE WHEN json_valid(record) THEN record ->>"
_LAPSED = "coalesce(CASE WHEN json_valid(rest) THEN rest ->> 'lapsed' END, 0) <> 0"
_RETRY_AFTER = "coalesce(CASE WHEN json_valid(rest) THEN rest ->> 'retry_after' END, 0) NOT IN (0, '')"
_ENDED = "place = 6 AND coalesce(CASE WHEN json_valid(rest) THEN rest ->> 'ended' END, 'FINISHED') = "

# `core.job.state`, for the listing alone.
_STATES = {
    State.QUEUED: f"place IN (1, 2, 3) AND NOT {_LAPSED}",
    State.RUNQUEUED: f"(place IN (1, 2, 3) AND {_LAPSED} OR place = 4 AND {_RETRY_AFTER})",
    State.RUNNING: f"place = 4 AND NOT {_RETRY_AFTER}",
    State.PAUSED: "place = 5",
    State.FINISHED: f"{_ENDED}'FINISHED'",
    State.FAILED: f"{_ENDED}'FAILED'",
    State.CANCELLED: f"{_ENDED}'CANCELLED'",
}
# What is usually a small part of all jobs, and is found by its place rather than by walking through all.
_SMALL_STATES = (State.RUNNING, State.PAUSED, State.FINISHED, State.FAILED, State.CANCELLED)
_SMALL_PLACES = (Place.RUNNING, Place.PAUSED, Place.DONE)


class SqliteReads(SqliteLists):
    """A view of the store; see `ReadTxn` for what each verb promises."""

    jump: Jump | None = None

    def __init__(self, link: Link, now_ms: int, presence: Presence | None = None) -> None:
        self.link = link
        self.now_ms = now_ms
        self._presence = presence

    def _jobs(self, sql: str, *values: Any) -> list[Job]:
        answer = self.link.value(sql, values)
        return _JOBS.decode(answer) if answer is not None else []

    def _by_id(self, ids: Collection[int]) -> dict[int, Job]:
        return {job.id: job for job in self._jobs(JOBS["load"], listed(ids))}

    def load(self, ids: Collection[int]) -> dict[int, Job]:
        """The live jobs among these, and the parents of all of them."""
        if not ids:
            return {}
        found = self._by_id(ids)
        parents = {job.parent_id for job in found.values() if job.parent_id} - found.keys()
        return found | self._by_id(parents) if parents else found

    def archived(self, ids: Collection[int]) -> dict[int, Job]:
        """The archived jobs among these."""
        return {job.id: job for job in self._jobs(SQL["archived"], listed(ids))} if ids else {}

    def bodies(self, ids: Collection[int], *, result: bool = False) -> dict[int, Body]:
        """The data of jobs, or their results."""
        if not ids:
            return {}
        answer = self.link.value(SQL["results" if result else "data"], (listed(ids),))
        if answer is None:
            return {}
        try:
            return {id: _untold(told) for id, told in _BODIES.decode(answer)}
        except UNREADABLE:
            name = "raw_results" if result else "raw_data"
            return {id: _body(sort, raw) for id, sort, raw in self.link.rows(SQL[name], (listed(ids),))}

    def children(
        self, parent_id: int, *, place: Place | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        """The live children of a job, by id."""
        places = [int(one) for one in ((place,) if place is not None else Place)]
        return self._jobs(children(*places), parent_id, after, limit)

    def find_unique(self, keys: Collection[UniqueKey]) -> dict[UniqueKey, Unique]:
        """Who holds these keys."""
        wanted, found = list(keys), {}
        for sql, values in in_rows("find_unique", [(n, *key) for n, key in enumerate(wanted)]):
            answer = self.link.value(sql, values)
            for n, job_id, until_ms in _UNIQUES.decode(answer) if answer is not None else ():
                tenant, task, key = wanted[n]
                found[wanted[n]] = Unique(tenant=tenant, task=task, key=key, job_id=job_id, until_ms=until_ms)
        return found

    def named(self, tenant: str, task: str, *, mock: bool) -> int | None:
        """A live job of a task, looked for where the counts say that one stands."""
        for (place,) in self.link.rows(SQL["places_of_task"], (tenant, task)):
            sql = "named_ready" if place == Place.READY and not mock else "named"
            values = (tenant, task) if sql == "named_ready" else (tenant, task, place, int(mock))
            found: int | None = self.link.value(SQL[sql], values)
            if found is not None:
                return found
        return None

    def first(self, place: Place, up_to: int, limit: int) -> list[Job]:
        """The first jobs of a place."""
        return self._jobs(JOBS["first"], int(place), up_to, limit)

    def expiring(self, up_to: int, limit: int) -> list[Job]:
        """Jobs that wait and whose `expires_at` has come."""
        return self._jobs(JOBS["expiring"], up_to, limit)

    def jobs(self, query: JobFilter, *, after: int, limit: int) -> list[Job]:
        """Jobs that match, by id."""
        if query.archived and query.place not in (None, Place.DONE):
            return []
        conditions, values = _conditions(query)
        select = (
            SQL["list_archived"] if query.archived else as_jobs(SQL["list"]).replace("{index}", _index(query))
        )
        return self._jobs(select.replace("{conditions}", conditions), after, *values, limit)

    def waiting(self, query: WaitingQuery) -> list[Waiting]:
        """Whose turn it is."""
        return fairness.waiting(self, query)

    def tenants_by_turn(self, after: fairness.Turn, limit: int) -> list[fairness.Turn]:
        """The tenants with READY jobs, in order."""
        answer = self.link.value(SQL["tenants_by_turn"], (*after, limit))
        return _TURNS.decode(answer) if answer is not None else []

    def turns_of(self, tenants: Sequence[str]) -> list[fairness.Turn]:
        """Those of these tenants that have READY jobs."""
        answer = self.link.value(SQL["turns_of"], (listed(tenants),))
        return _TURNS.decode(answer) if answer is not None else []

    def tasks_by_turn(
        self, tenants: Sequence[str], query: WaitingQuery, *, looked_at: int, limit: int
    ) -> dict[str, list[tuple[str, int]]]:
        """Of each tenant the first tasks that are asked for."""
        tasks = None if query.tasks is None else listed(query.tasks)
        passing = listed(query.passing) if query.passing else None
        sql, values = (
            waiting_tasks(tasks is not None, passing is not None),
            [listed(tenants), looked_at, limit],
        )
        answer = self.link.value(sql, [*values, *(text for text in (tasks, passing) if text is not None)])
        return dict(_TASKS.decode(answer)) if answer is not None else {}

    def lineup(self, key: DomainKey, task: str, place: Place, *, last: bool, limit: int) -> list[Job]:
        """The first or last jobs of one task of a domain in a place."""
        return self._jobs(JOBS["lineup_last" if last else "lineup"], *key, task, int(place), limit)

    def domain_counts(self, keys: Collection[DomainKey]) -> dict[DomainKey, DomainCounts]:
        """How many jobs of these domains stand READY, HELD and RUNNING."""
        wanted = list(keys)
        found: dict[DomainKey, DomainCounts] = {}
        for sql, values in in_rows("domain_counts", [(n, *key) for n, key in enumerate(wanted)]):
            answer = self.link.value(sql, values)
            for n, task, place, count in _DOMAIN_COUNTS.decode(answer) if answer is not None else ():
                found.setdefault(wanted[n], {})[task, place] = count
        return found

    def domains(self, keys: Collection[DomainKey]) -> dict[DomainKey, Domain]:
        """What is kept of these domains."""
        found: dict[DomainKey, Domain] = {}
        for sql, values in in_rows("domains", list(keys)):
            answer = self.link.value(sql, values)
            found |= {
                domain.key: domain for domain in (_DOMAINS.decode(answer) if answer is not None else ())
            }
        return found

    def due_domains(self, up_to: int, limit: int) -> list[Domain]:
        """The domains whose moment has come."""
        answer = self.link.value(SQL["due_domains"], (up_to, limit))
        return _DOMAINS.decode(answer) if answer is not None else []

    def list_domains(self, tenant: str, *, after: bytes, limit: int) -> list[Domain]:
        """What is kept of a tenant's domains, by name."""
        answer = self.link.value(SQL["list_domains"], (tenant, after, limit))
        return _DOMAINS.decode(answer) if answer is not None else []

    def counts(self, *, tenant: str | None = None) -> dict[CountKey, int]:
        """How many jobs there are of each kind."""
        name, values = ("counts", ()) if tenant is None else ("counts_of_tenant", (tenant,))
        answer = self.link.value(SQL[name], values)
        found = _COUNTS.decode(answer) if answer is not None else []
        return {CountKey(tenant, task, place, state): n for tenant, task, place, state, n in found}

    def moments(self) -> Moments:
        """When something becomes true by itself."""
        return Moments(
            *(
                m if m is None or m < rank.LAST else None
                for m in _MOMENTS.decode(self.link.value(SQL["moments"]))
            )
        )

    def records(self, kind: str, names: Collection[str] | None = None) -> dict[str, bytes]:
        """Small named records."""
        if names is None:
            answer = self.link.value(SQL["records"], (kind,))
        else:
            answer = self.link.value(SQL["records_named"], (kind, listed(names))) if names else None
        return {name: as_bytes(told) for name, told in _RECORDS.decode(answer)} if answer is not None else {}

    def present(self, name: str) -> bool:
        """Whether somebody is there under a name."""
        return self._presence is not None and self._presence.sees(name)

    def read_log(self, log: str, *, after: int, limit: int) -> list[LogRow]:
        """Items of a log in order."""
        answer = self.link.value(SQL["read_log"], (log, after, limit))
        return [
            LogRow(index, None if key is None else bytes.fromhex(key), _untold(told))
            for index, key, told in (_LOG.decode(answer) if answer is not None else ())
        ]

    def find_in_log(self, log: str, keys: Collection[bytes]) -> dict[bytes, int]:
        """Where in a log these keys are."""
        wanted, found = list(keys), {}
        for sql, values in in_rows("find_in_log", [(n, log, key) for n, key in enumerate(wanted)]):
            answer = self.link.value(sql, values)
            for n, index in _PLACED.decode(answer) if answer is not None else ():
                found[wanted[n]] = index
        return found


def _untold(told: Told) -> Body:
    return told if isinstance(told, str) else bytes.fromhex(told[0])


def _body(sort: str, raw: bytes) -> Body:
    """A body that was read by itself, since one of them cannot be read with others."""
    if sort != "text":
        return raw
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return Unreadable(raw)


def _conditions(query: JobFilter) -> tuple[str, list[Any]]:
    """What a listing asks for, after the first condition, `id > ?`."""
    if query.archived:
        domain = None if query.domain is None else b64encode(query.domain).decode()
        asked: list[tuple[str, Any]] = [
            ("state = ?", query.state),
            (f"{_IF_JSON} 'domain' END = ?", domain),
            (f"coalesce({_IF_JSON} 'parent_id' END, 0) = ?", query.parent_id),
            (f"coalesce({_IF_JSON} 'schedule' END, '') = ?", query.schedule),
        ]
    else:
        asked = [
            ("place = ?", query.place if query.place is None else int(query.place)),
            ("domain = ?", query.domain),
            ("parent_id = ?" + (" AND parent_id > 0" if query.parent_id else ""), query.parent_id),
            ("schedule = ?" + (" AND schedule <> ''" if query.schedule else ""), query.schedule),
        ]
    asked += [("tenant = ?", query.tenant), ("task = ?", query.task)]
    chosen = [(sql, value) for sql, value in asked if value is not None]
    fixed = [_STATES[query.state]] if query.state is not None and not query.archived else []
    return " AND ".join(["id > ?", *(sql for sql, _ in chosen), *fixed]), [value for _, value in chosen]


def _index(query: JobFilter) -> str:
    """Which index a listing goes by; without one it walks all live jobs in order of their ids."""
    if query.parent_id:
        return "INDEXED BY holdfast_children"
    if query.schedule:
        return "INDEXED BY holdfast_schedule"
    if query.domain is not None:
        return "INDEXED BY holdfast_domain"
    if query.place in _SMALL_PLACES or query.state in _SMALL_STATES:
        return "INDEXED BY holdfast_place"
    return "NOT INDEXED"
