"""The reads of the SQLite store: each is one statement that returns one JSON value."""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from ...core.damage import UNREADABLE
from ...core.glob import first_above
from ...core.job import COUNTED, Body, Job, Place, State, Unreadable
from ...core.limits import DomainCounts, DomainKey
from .. import ready_pairs
from ..contract import CountKey, JobFilter, Moments, Row, TallyKey, Waiting, WaitingQuery
from .connection import SqliteConnection
from .notify import SqlitePresence
from .statements import (
    JOBS,
    ROWS,
    SQL,
    as_jobs,
    bodies_of,
    children,
    cut,
    listed,
    sized,
    waiting_tasks,
)

# A body as returned by SQL: text as it is; bytes as hexadecimal text in a list.
SqlBody = str | list[str]

_decode_jobs = msgspec.json.Decoder(list[Job]).decode
_decode_bodies = msgspec.json.Decoder(list[tuple[int, SqlBody]]).decode
_decode_rows = msgspec.json.Decoder(list[tuple[str, SqlBody]]).decode
_decode_names = msgspec.json.Decoder(list[str]).decode
_decode_tasks = msgspec.json.Decoder(list[tuple[str, list[tuple[str, int]]]]).decode
_decode_counts = msgspec.json.Decoder(list[tuple[str, str, Place, str, int]]).decode
_decode_tallies = msgspec.json.Decoder(list[tuple[str, str, int, str, int]]).decode
_decode_domain_counts = msgspec.json.Decoder(list[tuple[int, str, Place, int]]).decode
_decode_moments = msgspec.json.Decoder(Moments).decode

_NONE = b"[]"
# Greater than all text, as every BLOB is.
_ABOVE = b""
_NOTICE = SQL["notice"]

# A damaged record matches no filter: otherwise SQLite would fail the whole listing.
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
# These have an index by id; its condition is part of the listing.
_STANDING: set[Place | State | None] = {
    *(Place.PAUSED, Place.DONE),
    *(State.PAUSED, State.FINISHED, State.FAILED, State.CANCELLED),
}
_RUNNING: set[Place | State | None] = {Place.RUNNING, State.RUNNING}


class SqliteReads:
    """A view of the store; see `ReadTxn` for what each method promises."""

    def __init__(self, connection: SqliteConnection, now_ms: int, presence: SqlitePresence) -> None:
        self.connection = connection
        self.now_ms = now_ms
        self._presence = presence

    # Jobs

    def _jobs(self, sql: str, *values: Any) -> list[Job]:
        answer = self.connection.value(sql, values)
        return _decode_jobs(answer) if answer is not None else []

    def _by_id(self, ids: Collection[int]) -> dict[int, Job]:
        return {job.id: job for job in self._jobs(JOBS["load"], listed(ids))}

    def load(self, ids: Collection[int]) -> dict[int, Job]:
        """The live jobs with these ids, and their parents."""
        if not ids:
            return {}
        found = self._by_id(ids)
        parents = {job.parent_id for job in found.values() if job.parent_id} - found.keys()
        return found | self._by_id(parents) if parents else found

    def archived(self, ids: Collection[int]) -> dict[int, Job]:
        """The archived jobs with these ids."""
        return {job.id: job for job in self._jobs(SQL["archived"], listed(ids))} if ids else {}

    def bodies(self, ids: Collection[int], *, result: bool = False) -> dict[int, Body]:
        """The data of jobs, or their results, by id."""
        if not ids:
            return {}
        one = len(ids) == 1
        value = next(iter(ids)) if one else listed(ids)
        answer = self.connection.value(bodies_of("bodies", results=result, one=one), (value,))
        try:
            return {
                id: told if type(told) is str else bytes.fromhex(told[0])
                for id, told in _decode_bodies(answer or _NONE)
            }
        except UNREADABLE:
            raw = self.connection.rows(bodies_of("raw_bodies", results=result, one=one), (value,))
            return {id: _body(kind, body) for id, kind, body in raw}

    def children(
        self, parent_id: int, *, place: Place | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        """The live children of a job, by id."""
        places = [int(one) for one in ((place,) if place is not None else Place)]
        return self._jobs(children(*places), parent_id, after, limit)

    def named(self, tenant: str, task: str, *, mock: bool) -> int | None:
        """The id of the first live job of a task, in the places that have some by the counts."""
        for (place,) in self.connection.rows(SQL["places_of_task"], (tenant, task)):
            is_ready = place == Place.READY
            values = (tenant, task, int(mock)) if is_ready else (tenant, task, place, int(mock))
            found: int | None = self.connection.value(SQL["named_ready" if is_ready else "named"], values)
            if found is not None:
                return found
        return None

    def first(self, place: Place, up_to: int, limit: int) -> list[Job]:
        """The first jobs of a place."""
        return self._jobs(JOBS["first"], int(place), up_to, limit)

    def expiring(self, up_to: int, limit: int) -> list[Job]:
        """Jobs that have not started and have expired."""
        return self._jobs(JOBS["expiring"], up_to, limit)

    def ended(self, before_ms: int, *, tenant: str | None, limit: int) -> list[Job]:
        """The first archived jobs that ended before `before_ms`."""
        return self._jobs(SQL["ended"], before_ms, tenant, limit)

    def jobs(self, query: JobFilter, *, after: int, limit: int, before: int | None = None) -> list[Job]:
        """Jobs that match, by id."""
        if query.archived and query.place not in (None, Place.DONE):
            return []
        # Of a part of the ids: these are walked, which are few, rather than all of the place.
        sql, values = _listing(query, by_id=before is not None and after > 0)
        if before is None:
            return self._jobs(sql, after, *values, limit)
        sql = sql.replace("id > ?", "id > ? AND id < ?").replace(
            "ORDER BY id LIMIT", "ORDER BY id DESC LIMIT"
        )
        return self._jobs(sql, after, before, *values, limit)

    def heads(self, pairs: Collection[tuple[str, str]]) -> dict[tuple[str, str], Job]:
        """The first READY job of each pair."""
        ids = {pair: self.connection.value(SQL["named_ready"], (*pair, 0)) for pair in pairs}
        jobs = self._by_id([id for id in ids.values() if id is not None]) if ids else {}
        return {pair: jobs[id] for pair, id in ids.items() if id in jobs}

    def domain_queue(self, key: DomainKey, task: str, place: Place, *, last: bool, limit: int) -> list[Job]:
        """The first or last jobs of one task of a domain in a place."""
        return self._jobs(
            JOBS["domain_queue_last" if last else "domain_queue"], *key, task, int(place), limit
        )

    def domain_counts(self, keys: Collection[DomainKey]) -> dict[DomainKey, DomainCounts]:
        """The numbers of READY, HELD and RUNNING jobs of domains."""
        wanted = [*keys]
        found: dict[DomainKey, DomainCounts] = {}
        for size, values in cut([(n, *key) for n, key in enumerate(wanted)]):
            answer = self.connection.value(sized("domain_counts", size, 3), values)
            for n, task, place, count in _decode_domain_counts(answer or _NONE):
                found.setdefault(wanted[n], {})[task, place] = count
        return found

    def counts(
        self, *, tenant: str | None = None, after: tuple[str, str] = ("", ""), limit: int | None = None
    ) -> dict[CountKey, int]:
        """The numbers of jobs by tenant, task, place and state."""
        if limit is not None:
            return self._counts("counts_after", *after, tenant, limit)
        return self._counts("counts") if tenant is None else self._counts("counts_of_tenant", tenant)

    def totals(self, *, task: str | None = None) -> dict[CountKey, int]:
        """The numbers of all tenants together."""
        return self._counts("totals", task)

    def _counts(self, name: str, *values: Any) -> dict[CountKey, int]:
        found = _decode_counts(self.connection.value(SQL[name], values) or _NONE)
        return {CountKey(tenant, task, place, COUNTED[state]): n for tenant, task, place, state, n in found}

    def tallies(self) -> dict[TallyKey, int]:
        """What was tallied and is in no bucket yet."""
        found = _decode_tallies(self.connection.value(SQL["tallies"]) or _NONE)
        return {TallyKey(tenant, task, place, kind): n for tenant, task, place, kind, n in found}

    def moments(self) -> Moments:
        """When upkeep has something to do next."""
        return _decode_moments(self.connection.value(SQL["moments"]))

    # READY pairs

    def waiting(self, query: WaitingQuery) -> list[Waiting]:
        """The pairs with READY jobs."""
        return ready_pairs.waiting(self, query, self.rows)

    def ready_tenants(self, after: str, limit: int) -> list[str]:
        """The tenants with READY jobs from above a name on."""
        return _decode_names(self.connection.value(SQL["ready_tenants"], (after, limit)) or _NONE)

    def having_ready(self, tenants: Sequence[str]) -> list[str]:
        """Those of these tenants that have READY jobs."""
        return _decode_names(self.connection.value(SQL["having_ready"], (listed(tenants),)) or _NONE)

    def ready_tasks(
        self, tenants: Sequence[str], query: WaitingQuery, *, looked_at: int, limit: int
    ) -> ready_pairs.Tasks:
        """The first tasks of each tenant that match the query."""
        values: list[Any] = [listed(tenants), looked_at, limit, query.after[1]]
        if query.tasks is not None:
            values.append(listed(query.tasks))
        if query.skipped:
            values.append(listed(query.skipped))
        sql = waiting_tasks(query.tasks is not None, bool(query.skipped))
        return dict(_decode_tasks(self.connection.value(sql, values) or _NONE))

    # Rows

    def _rows(self, name: str, *values: Any) -> list[Row]:
        return [
            (key, told.encode() if type(told) is str else bytes.fromhex(told[0]))
            for key, told in _decode_rows(self.connection.value(ROWS[name], values) or _NONE)
        ]

    def rows(self, table: str, keys: Collection[str] | None = None) -> dict[str, bytes]:
        """The values of rows by key."""
        if keys is None:
            return dict(self._rows("table", table))
        return dict(self._rows("rows", table, listed(keys))) if keys else {}

    def scan(
        self,
        table: str,
        *,
        after: str = "",
        prefix: str = "",
        due_before: int | None = None,
        limit: int,
    ) -> list[Row]:
        """A page of a table, by key or by due time."""
        above = first_above(prefix)
        end = _ABOVE if above is None else above
        if due_before is None:
            return self._rows("scan", table, max(after, prefix), after, end, limit)
        return self._rows("scan_due", table, due_before, after, prefix, end, limit)

    def tables(self) -> list[str]:
        """The tables that have rows."""
        return _decode_names(self.connection.value(SQL["tables"]) or _NONE)

    # The store itself

    def present(self, names: Collection[str]) -> set[str]:
        """Those of these names whose processes are running."""
        return {name for name in names if self._presence.sees(name)}

    def is_busy(self, now_ms: int) -> bool:
        """Whether something is due, paused or being moved, so that a claim is not plain."""
        return bool(self.connection.value(SQL["is_busy"], (now_ms,)))

    def notice(self) -> bytes | None:
        """The notice of a store that is being moved."""
        found = self.connection.execute(_NOTICE).fetchall()
        return found[0][0] if found else None


def _body(kind: str, raw: bytes) -> Body:
    """Decode a body that was read alone, because one of several is damaged."""
    if kind != "text":
        return raw
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return Unreadable(raw)


def _listing(query: JobFilter, *, by_id: bool) -> tuple[str, list[Any]]:
    """The statement for a listing, and its values: those between the id to begin after and the limit."""
    if query.archived:
        asked = _asked_of_archive(query)
        sql = SQL["list_archived"]
    else:
        asked = _asked_of_live(query)
        sql = as_jobs(SQL["list"]).replace("{index}", _index(query, by_id=by_id))
    asked += [("tenant = ?", query.tenant), ("task = ?", query.task)]
    chosen = [(condition, value) for condition, value in asked if value is not None]
    conditions = ["id > ?", *(condition for condition, _ in chosen)]
    if query.state is not None and not query.archived:
        conditions.append(_STATES[query.state])
    if _STANDING & {query.place, query.state} and not query.archived:
        conditions.append("place IN (5, 6)")
    return sql.replace("{conditions}", " AND ".join(conditions)), [value for _, value in chosen]


def _asked_of_archive(query: JobFilter) -> list[tuple[str, Any]]:
    from base64 import b64encode

    domain = None if query.domain is None else b64encode(query.domain).decode()
    return [
        ("state = ?", None if query.state is None else str(query.state)),
        (f"{_IF_JSON} 'domain' END = ?", domain),
        (f"coalesce({_IF_JSON} 'parent_id' END, 0) = ?", query.parent_id),
        (f"coalesce({_IF_JSON} 'schedule' END, '') = ?", query.schedule),
    ]


def _asked_of_live(query: JobFilter) -> list[tuple[str, Any]]:
    return [
        ("place = ?", None if query.place is None else int(query.place)),
        ("domain = ?", query.domain),
        ("parent_id = ?" + (" AND parent_id > 0" if query.parent_id else ""), query.parent_id),
        ("schedule = ?" + (" AND schedule <> ''" if query.schedule else ""), query.schedule),
    ]


def _index(query: JobFilter, *, by_id: bool) -> str:
    """The index that a listing uses; NOT INDEXED: a scan of all live jobs by id."""
    if not by_id:
        if query.parent_id:
            return "INDEXED BY holdfast_children"
        if query.schedule:
            return "INDEXED BY holdfast_schedule"
        if query.domain is not None:
            return "INDEXED BY holdfast_domain"
        if _RUNNING & {query.place, query.state}:
            return "INDEXED BY holdfast_place"
    return "INDEXED BY holdfast_standing" if _STANDING & {query.place, query.state} else "NOT INDEXED"
