"""The reads of the PostgreSQL store, and the pairs that have READY jobs (`store/ready_pairs.py`).

In a batch they also lock: see `txn.py`.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from ...core import rank
from ...core.glob import first_above
from ...core.job import COUNTED, Body, Job, Place, State
from ...core.jump import Jump
from ...core.kinds import CHORE, PAUSE, SCHEDULE
from ...core.limits import DomainCounts, DomainKey
from .. import ready_pairs
from ..contract import CountKey, JobFilter, Moments, Row, TallyKey, Waiting, WaitingQuery, is_skipped
from ..ready_pairs import Tasks, wrapped
from .connection import PostgresConnection, Values
from .notify import find_present
from .starts import Starts, Walks
from .statements import ABOVE, key_texts, numbers, raws, read_key, texts, written_key

# A tenant and one of its tasks.
Pair = tuple[str, str]


class StoredPairs:
    """`ready_pairs.ReadyPairs` by SQL."""

    def __init__(self, connection: PostgresConnection, sql: dict[str, str]) -> None:
        self._connection, self._sql = connection, sql

    def ready_tenants(self, after: str, limit: int) -> list[str]:
        """The tenants with READY jobs from above a name on, wrapping round."""
        first = first_after(after)
        found = self._tenants(first, ABOVE, limit)
        return found if len(found) == limit else found + self._tenants("", first, limit - len(found))

    def _tenants(self, first: str, below: str, limit: int) -> list[str]:
        rows = self._connection.rows(self._sql["ready_tenants"], (first, below, limit))
        return [tenant for (tenant,) in rows]

    def having_ready(self, tenants: Sequence[str]) -> list[str]:
        """Those of these tenants that have READY jobs."""
        rows = self._connection.rows(self._sql["having_ready"], (texts(tenants),))
        return [tenant for (tenant,) in rows]

    def ready_tasks(
        self, tenants: Sequence[str], query: WaitingQuery, *, looked_at: int, limit: int
    ) -> Tasks:
        """The first tasks of each tenant that match the query."""
        values = {
            "tenants": texts(tenants),
            "first": first_after(query.after[1]),
            "tasks": None if query.tasks is None else texts(query.tasks),
            "skipped_tenants": texts([tenant for tenant, _ in query.skipped]),
            "skipped_tasks": texts([task for _, task in query.skipped]),
            "looked_at": looked_at,
            "limit": limit,
        }
        found: Tasks = {}
        for tenant, task, number in self._connection.rows(self._sql["ready_tasks"], values):
            found.setdefault(tenant, []).append((task, number))
        return found


class SeenPairs:
    """`ready_pairs.ReadyPairs` for pairs that were all read already, because they are few."""

    def __init__(self, pairs: Iterable[tuple[Pair, int]]) -> None:
        self._tasks: Tasks = {}
        for (tenant, task), number in pairs:
            self._tasks.setdefault(tenant, []).append((task, number))

    def ready_tenants(self, after: str, limit: int) -> list[str]:
        """The tenants with READY jobs from above a name on, wrapping round."""
        return wrapped(self._tasks, after)[:limit]

    def having_ready(self, tenants: Sequence[str]) -> list[str]:
        """Those of these tenants that have READY jobs."""
        return [tenant for tenant in tenants if tenant in self._tasks]

    def ready_tasks(
        self, tenants: Sequence[str], query: WaitingQuery, *, looked_at: int, limit: int
    ) -> Tasks:
        """The first tasks of each tenant that match the query."""
        found: Tasks = {}
        for tenant in tenants:
            ready = dict(self._tasks.get(tenant, ()))
            found[tenant] = [
                (task, ready[task])
                for task in wrapped(ready, query.after[1])
                if (query.tasks is None or task in query.tasks)
                and not is_skipped((tenant, task), query.skipped)
            ][:limit]
        return found


def first_after(name: str) -> str:
    """The first name above this one: text has no NUL."""
    return name + "\1"


_JOBS = msgspec.json.Decoder(list[Job])

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

# The tables that a waiting process reads before it claims.
FIRST_TABLES = (CHORE, PAUSE, SCHEDULE)
# Up to this many pairs with READY jobs are read together; with more, `StoredPairs` is used.
FEW_PAIRS = 16


class PostgresReads:
    """A view of the store; see `ReadTxn` for what each method promises."""

    # The clock is the server's.
    jump: Jump | None = None
    # Prefetched by the SQL function `first_reads`.
    _moments: Moments | None = None
    _pairs: dict[Pair, int] | None = None

    def __init__(
        self,
        connection: PostgresConnection,
        sql: dict[str, str],
        now_ms: int,
        *,
        schema: str,
        starts: Starts,
        notice: bytes | None = None,
    ) -> None:
        self.connection, self.sql, self.now_ms, self.schema = connection, sql, now_ms, schema
        self.starts = starts
        # Read together with the time; b"" means none.
        self._notice = notice or None
        # Rows that were read: by key, None for a missing one; and the tables that were read as a whole.
        self._rows: dict[str, dict[str, bytes | None]] = {}
        self._whole: set[str] = set()
        # How many differences were summed up when the counts were last read.
        self.unfolded = 0

    def _jobs(self, name: str, values: Values) -> list[Job]:
        answer = self.connection.value(self.sql[name], values)
        return _JOBS.decode(answer) if answer is not None else []

    def load(self, ids: Collection[int]) -> dict[int, Job]:
        """The live jobs with these ids, and their parents."""
        return {job.id: job for job in self._jobs("load", {"ids": numbers(ids)})} if ids else {}

    def archived(self, ids: Collection[int]) -> dict[int, Job]:
        """The archived jobs with these ids."""
        return {job.id: job for job in self._jobs("archived", (numbers(ids),))} if ids else {}

    def bodies(self, ids: Collection[int], *, result: bool = False) -> dict[int, Body]:
        """The data of jobs, or their results."""
        return self._bodies("results" if result else "data", ids)

    def _bodies(self, name: str, ids: Collection[int]) -> dict[int, Body]:
        rows = self.connection.rows(self.sql[name], {"ids": numbers(ids)}) if ids else []
        return {id: body if raw is None else raw for id, body, raw in rows}

    def children(
        self, parent_id: int, *, place: Place | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        """The live children of a job, by id."""
        if place is None:
            return self._jobs("children", (parent_id, after, limit))
        asked = {"parent": parent_id, "place": int(place), "after": after, "limit": limit}
        return self._jobs("children_at", asked)

    def named(self, tenant: str, task: str, *, mock: bool) -> int | None:
        """The id of the first live job of a task, in the places that have some by the counts."""
        for (place,) in self.connection.rows(self.sql["places_of_task"], {"tenant": tenant, "task": task}):
            if place == Place.READY and not mock:
                found: int | None = self.connection.value(self.sql["named_ready"], (tenant, task))
            else:
                sql = self.sql["named"].replace("{place}", str(place))
                found = self.connection.value(sql, (tenant, task, mock))
            if found is not None:
                return found
        return None

    def first(self, place: Place, up_to: int, limit: int) -> list[Job]:
        """The first jobs of a place."""
        return self._jobs(f"first_{int(place)}", (self.starts.of(place), up_to, limit))

    def expiring(self, up_to: int, limit: int) -> list[Job]:
        """Jobs that have not started and have expired."""
        return self._jobs("expiring", (up_to, limit))

    def ended(self, before_ms: int, *, tenant: str | None, limit: int) -> list[Job]:
        """The first archived jobs that ended before `before_ms`."""
        return self._jobs("ended", {"before": before_ms, "tenant": tenant, "limit": limit})

    def jobs(self, query: JobFilter, *, after: int, limit: int, before: int | None = None) -> list[Job]:
        """Jobs that match, by id."""
        if query.archived and query.place not in (None, Place.DONE):
            return []
        conditions, values = _conditions(query)
        sql = self.sql["list_archived" if query.archived else "list"].replace("{conditions}", conditions)
        # Filters that few jobs match use another index than the primary key, and sort.
        small = query.parent_id or query.domain is not None or _RUNNING & {query.place, query.state}
        sql = sql.replace("{order}", "id + 0" if small else "id")
        between: tuple[int, ...] = (after,)
        if before is not None:
            sql, between = sql.replace("id > %s", "id > %s AND id < %s"), (after, before)
            sql = sql.replace("id + 0 LIMIT", "id + 0 DESC LIMIT").replace("BY id LIMIT", "BY id DESC LIMIT")
        answer = self.connection.value(sql, (*between, *values, limit))
        return _JOBS.decode(answer) if answer is not None else []

    def heads(self, pairs: Collection[tuple[str, str]]) -> dict[tuple[str, str], Job]:
        """The first READY job of each pair."""
        if not pairs:
            return {}
        tenants, tasks = zip(*pairs, strict=True)
        found = self._jobs("heads", (texts(tenants), texts(tasks)))
        return {(job.tenant, job.task): job for job in found}

    def waiting(self, query: WaitingQuery) -> list[Waiting]:
        """The pairs with READY jobs."""
        seen = None if self._pairs is None else SeenPairs(self._pairs.items())
        return ready_pairs.waiting(seen or StoredPairs(self.connection, self.sql), query, self.rows)

    def domain_queue(self, key: DomainKey, task: str, place: Place, *, last: bool, limit: int) -> list[Job]:
        """The first or last jobs of one task of a domain in a place."""
        return self._jobs("domain_queue_last" if last else "domain_queue", (*key, task, int(place), limit))

    def domain_counts(self, keys: Collection[DomainKey]) -> dict[DomainKey, DomainCounts]:
        """The numbers of READY, HELD and RUNNING jobs of domains."""
        if not keys:
            return {}
        tenants, names = zip(*keys, strict=True)
        found: dict[DomainKey, DomainCounts] = {}
        values = (texts(tenants), raws(names))
        for tenant, name, task, place, count in self.connection.rows(self.sql["domain_counts"], values):
            found.setdefault((tenant, bytes(name)), {})[task, Place(place)] = count
        return found

    def counts(
        self, *, tenant: str | None = None, after: tuple[str, str] = ("", ""), limit: int | None = None
    ) -> dict[CountKey, int]:
        """The numbers of jobs by tenant, task, place and state."""
        if limit is not None:
            return self._counts(
                "counts_after",
                {"tenant": tenant, "after_tenant": after[0], "after_task": after[1], "limit": limit},
            )
        if tenant is None:
            return self._counts("counts", {})
        return self._counts("counts_of_tenant", {"tenant": tenant})

    def totals(self, *, task: str | None = None) -> dict[CountKey, int]:
        """The numbers of all tenants together."""
        return self._counts("totals", {"task": task})

    def _counts(self, name: str, values: dict[str, Any]) -> dict[CountKey, int]:
        rows = self.connection.rows(self.sql[name], values)
        self.unfolded = sum(row[5] for row in rows)
        return {CountKey(t, task, Place(place), COUNTED[state]): n for t, task, place, state, n, _ in rows}

    def tallies(self) -> dict[TallyKey, int]:
        """What was tallied and is in no bucket yet."""
        rows = self.connection.rows(self.sql["tallies"])
        return {TallyKey(tenant, task, place, kind): n for tenant, task, place, kind, n in rows}

    def moments(self) -> Moments:
        """When upkeep has something to do next; also prefetches what a waiting process reads after that."""
        if self._moments is None:
            walks = Walks(self.starts)
            ((_, _, *seen),) = self.connection.rows(
                self.sql["first_reads"], for_first_reads(walks, FIRST_TABLES)
            )
            self.see(walks, seen, FIRST_TABLES)
        assert self._moments is not None
        return self._moments

    def see(self, walks: Walks, seen: Sequence[Any], tables: Sequence[str]) -> None:
        """Take over the result of the SQL function `first_reads`."""
        moments, row_tables, keys, values, tenants, tasks, ready, took_us = seen
        self._see_moments(walks, moments, took_us)
        self._whole.update(tables)
        for table in tables:
            self._rows[table] = {}
        for table, key, value in zip(row_tables or (), keys or (), values or (), strict=True):
            self._rows[table][read_key(key)] = value
        pairs = dict(zip(zip(tenants or (), tasks or (), strict=True), ready or (), strict=True))
        if len(pairs) <= FEW_PAIRS:
            self._pairs = pairs

    def _see_moments(self, walks: Walks, moments: Sequence[int | None], took_us: int) -> None:
        walks.ended(moments, took_us / 1_000_000, self.now_ms)
        # The rank of a job that runs without a lease is not a time.
        self._moments = Moments(*[m if m is None or m < rank.LAST else None for m in moments])

    def rows(self, table: str, keys: Collection[str] | None = None) -> dict[str, bytes]:
        """The values of rows by key."""
        if table not in self._whole and (keys is None or not self._rows.get(table, {}).keys() >= set(keys)):
            self._read_rows(table, keys)
        known = self._rows.get(table, {})
        if keys is None:
            return {key: value for key, value in known.items() if value is not None}
        return {key: value for key in keys if (value := known.get(key)) is not None}

    def _read_rows(self, table: str, keys: Collection[str] | None) -> None:
        """Read rows that were not read yet."""
        known = self._rows.setdefault(table, {})
        if keys is None:
            rows = self.connection.rows(self.sql["table"], (table,))
            self._whole.add(table)
        else:
            known.update(dict.fromkeys(keys))
            rows = self.connection.rows(self.sql["rows"], (table, key_texts(keys)))
        known.update([(read_key(key), value) for key, value in rows])

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
        after, prefix = written_key(after), written_key(prefix)
        asked = {
            "table": table,
            "after": after,
            "prefix": prefix,
            "above": first_above(prefix) or ABOVE,
            "limit": limit,
        }
        if due_before is None:
            rows = self.connection.rows(self.sql["scan"], asked)
        else:
            rows = self.connection.rows(self.sql["scan_due"], asked | {"due": due_before})
        return [(read_key(key), value) for key, value in rows]

    def tables(self) -> list[str]:
        """The names of all tables that have rows."""
        return [table for (table,) in self.connection.rows(self.sql["tables"])]

    def present(self, names: Collection[str]) -> set[str]:
        """Those of these names whose processes are running."""
        return find_present(self.connection, self.schema, names)

    def notice(self) -> bytes | None:
        """The notice of a store that is being moved."""
        return self._notice


def for_first_reads(walks: Walks, tables: Sequence[str]) -> dict[str, Any]:
    """The parameters of `first_reads` in a view."""
    return {
        "locks": None,
        "tables": texts(tables),
        "few": FEW_PAIRS + 1,
        "moments": numbers(walks.began),
    }


def _conditions(query: JobFilter) -> tuple[str, list[Any]]:
    """The conditions of a listing after the first one, `id > …`, and their values."""
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
        # Numbers of places are literals, so that the partial indexes match.
        fixed += [f"place = {int(query.place)}"] if query.place is not None else []
        fixed += [_STATES[query.state]] if query.state is not None else []
    chosen = [(sql, value) for sql, value in asked if value is not None]
    return " AND ".join(["id > %s", *(sql for sql, _ in chosen), *fixed]), [value for _, value in chosen]
