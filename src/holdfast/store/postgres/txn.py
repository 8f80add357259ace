"""One atomic batch on the PostgreSQL store: its reads take locks, and its writes are sent at its end.

It contains no rules. Its writes are the statements of `changes.py`, in the middle of the batch (`write`) or
together with its COMMIT (`last_statements`).
"""

import random
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from ...core import rank
from ...core.errors import Conflict
from ...core.job import Body, Job, Place
from ...core.kinds import DOMAIN, Names
from ...core.layout import keep_rows, keep_unknown, unmovable
from ..contract import NOTHING, UNCHANGED, Changes, ClaimQuery, Moments
from .changes import Parameters, parameters_of, put_counts, statement_of, tables_of
from .claim import PostgresClaim
from .connection import PostgresConnection
from .locks import Locks, Wants, row_locks
from .reads import Pair, PostgresReads, for_first_reads
from .starts import Starts, Walks
from .statements import key_texts, numbers, read_key, texts


class PostgresTxn(PostgresReads):
    """A batch; see `Txn` for what each method promises."""

    def __init__(
        self,
        connection: PostgresConnection,
        sql: dict[str, str],
        now_ms: int,
        *,
        schema: str,
        starts: Starts,
        notice: bytes | None,
        locks: Locks,
        at_ms: int,
        version: int,
    ) -> None:
        super().__init__(connection, sql, now_ms, schema=schema, starts=starts, notice=notice)
        self.locks = locks
        # The version of the store's layout.
        self.version = version
        # The time that is stored with written rows; 0 if the clock is not the server's.
        self._at_ms = at_ms
        # The mark that shows later whether this batch was committed.
        self.mark = 0
        # How many rows of count differences were appended.
        self.appended = 0
        self._wrote = False
        # Returned by claims: data in the jobs' rows (None: in its own table).
        self._beside: dict[int, Body | None] = {}
        # Pairs to which this batch has added READY jobs.
        self._own_pairs: dict[Pair, None] = {}

    # Reading

    def children(
        self, parent_id: int, *, place: Place | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        """The live children of a job, by id. The parent is locked first, as in `load`."""
        self.connection.value(self.sql["hold"], (parent_id,))
        return super().children(parent_id, place=place, after=after, limit=limit)

    def bodies(self, ids: Collection[int], *, result: bool = False) -> dict[int, Body]:
        """The data of jobs, or their results; data returned by a claim is not read again."""
        if result or not self._beside:
            return super().bodies(ids, result=result)
        beside = self._beside
        try:
            known = {id: beside[id] for id in ids}
        except KeyError:
            known = {id: beside.get(id) for id in ids}
        found = {id: body for id, body in known.items() if body is not None}
        if len(found) == len(known):
            return found
        apart = [id for id in ids if id in beside and id not in found]
        rest = [id for id in ids if id not in beside]
        return found | self._bodies("data_apart", apart) | self._bodies("data", rest)

    def read_ahead(self, rows: Names) -> None:
        """Lock and read rows together."""
        asked: dict[str, Collection[str] | None] = {}
        for table, keys in rows.items():
            known = self._rows.get(table, {})
            if table not in self._whole:
                missing = None if keys is None else [key for key in keys if key not in known]
                if missing is None or missing:
                    asked[table] = missing
        if asked:
            self._hold(asked)

    def _read_rows(self, table: str, keys: Collection[str] | None) -> None:
        self._hold({table: keys})

    def _hold(self, asked: Names) -> None:
        wanted: Wants = {}
        for table, keys in asked.items():
            wanted |= row_locks(self.schema, table, keys, writes=False)
        late, ordered = self.locks.ask(wanted)
        named = [(table, key) for table, keys in asked.items() for key in keys or ()]
        whole = [table for table, keys in asked.items() if keys is None]
        values = {
            "late": numbers(late),
            "locks": numbers(ordered),
            "tables": texts([table for table, _ in named]),
            "keys": key_texts([key for _, key in named]),
            "whole": texts(whole),
        }
        for table, keys in asked.items():
            self._rows.setdefault(table, {}).update(dict.fromkeys(keys or ()))
        self._whole.update(whole)
        for table, key, at_ms, value in self.connection.rows(self.sql["hold_rows"], values):
            if table == DOMAIN and at_ms > self.now_ms and not self.locks.were_early(wanted):
                # The last writer of the domain had a later time than ours, so the next start of a rate would
                # seem too far ahead.
                self.locks.want()
                raise Conflict("a domain was written by a batch with a later time")
            self._rows[table][read_key(key)] = value

    # Writing

    def claim(self, query: ClaimQuery) -> list[Job]:
        """Lease the first jobs that match."""
        claim = PostgresClaim(self.connection, self.sql, query, self.starts, self._pairs, self._own_pairs)
        jobs = claim.take()
        if jobs:
            self._wrote = True
            self._beside |= claim.beside
            self._claimed(jobs, rank.lease(query.lease_until))
        return jobs

    def _claimed(self, jobs: Sequence[Job], lease: int) -> None:
        """Update the moments after a claim: one more lease that expires."""
        self.starts.put(Place.RUNNING, lease)
        if (before := self._moments) is None:
            return
        if lease < (before.running or rank.LAST):
            self.starts.begins(Place.RUNNING, lease)
        self._moments = before.after_claim(jobs, lease)

    def moments(self) -> Moments:
        """When upkeep has something to do next. Read once, as long as only claims change it."""
        if self._moments is None:
            walks = Walks(self.starts)
            ((_, _, moments, *_, took_us),) = self.connection.rows(
                self.sql["first_reads"], for_first_reads(walks, ())
            )
            self._see_moments(walks, moments, took_us)
        assert self._moments is not None
        return self._moments

    def write(self, changes: Changes) -> None:
        """Write changes that later reads and claims of this batch must see."""
        statements = self._statements(changes)
        if not statements:
            return
        self._wrote = True
        self._moments = None
        for parameters in statements:
            self.connection.execute(statement_of(self.schema, tuple(parameters), self.version), parameters)
        for (table, key), value in changes.rows.items():
            if table in self._rows:
                self._rows[table][key] = value
        for job in (*(group.template for group in changes.added), *changes.swapped):
            if job.place is Place.READY:
                self._own_pairs[job.tenant, job.task] = None
        for job_id in changes.data:
            self._beside.pop(job_id, None)
        if changes.notice != UNCHANGED:
            self._notice = changes.notice

    def last_statements(self, changes: Changes) -> list[Parameters]:
        """The values of the statements at the end of the batch; none if there is nothing to write."""
        statements = self._statements(changes)
        if statements or self._wrote:
            if not statements or "new_notice" in statements[-1]:
                statements.append({})
            self.mark = statements[-1]["new_mark"] = random.getrandbits(63)
            statements[-1]["time_ms"] = self.now_ms
        return statements

    def _statements(self, changes: Changes) -> list[Parameters]:
        """The values of the statements that write the changes, after those of their locks."""
        statements = parameters_of(changes)
        if changes.counts or changes.tallies:
            if not statements or "new_notice" in statements[-1]:
                statements.append({})
            self.appended += put_counts(statements[-1], changes.counts, changes.tallies)
            # The number of READY jobs of a pair may have become 0.
            self._pairs = None
        if changes.rows:
            self._lock_rows(statements, tables_of(changes.rows))
        if self.starts:
            note_starts(self.starts, changes)
        return [parameters for parameters in statements if parameters]

    def _lock_rows(self, statements: list[Parameters], rows: Names) -> None:
        wanted: Wants = {}
        for table, keys in rows.items():
            wanted |= row_locks(self.schema, table, keys, writes=True)
        late, ordered = self.locks.ask(wanted)
        for parameters in statements:
            if self._at_ms and "row_key" in parameters:
                parameters["writer_ms"] = self._at_ms
        if late or ordered:
            statements.insert(0, {"late": numbers(late), "locks": numbers(ordered)})


_LIVE, _ARCHIVE = (("jobs", "rest"), ("archive", "record"))


class PostgresKeepingTxn(PostgresTxn):
    """A batch on a store of a newer layout: records keep the fields that this version does not know."""

    def last_statements(self, changes: Changes) -> list[Parameters]:
        """Write the changes; what is left for the end of the batch is its mark."""
        if changes != NOTHING:
            self.write(changes)
        return super().last_statements(NOTHING)

    def write(self, changes: Changes) -> None:
        """Write the changes, then add the unknown fields of the records before to those after."""
        if changes.notice != UNCHANGED:
            raise unmovable()
        before = self._records(_LIVE, [job.id for job in (*changes.swapped, *changes.archived)])
        super().write(replace(changes, rows=keep_rows(changes.rows, self.rows)))
        for (table, column), jobs in ((_LIVE, changes.swapped), (_ARCHIVE, changes.archived)):
            sql = f'UPDATE "{self.schema}".{table} SET {column} = %s WHERE id = %s::bigint'
            for job_id, record in self._records((table, column), [job.id for job in jobs]).items():
                if (kept := keep_unknown(before[job_id], record, Job)) is not None:
                    self.connection.execute(sql, (kept.decode(), job_id))

    def _records(self, kind: tuple[str, str], ids: Collection[int]) -> dict[int, str]:
        table, column = kind
        sql = f'SELECT id, {column} FROM "{self.schema}".{table} WHERE id = ANY(%s::bigint[])'
        return dict(self.connection.rows(sql, (numbers(ids),))) if ids else {}


def note_starts(starts: Starts, changes: Changes) -> None:
    """Note new entries, so that index scans that start behind dead entries find them."""
    for job in (*(group.template for group in changes.added), *changes.swapped):
        starts.put(job.place, job.rank)
        if job.place is Place.READY:
            starts.put((job.tenant, job.task), job.rank)
        if job.expires_at:
            starts.put("expiring", job.expires_at)
    if due := [due_ms for (table, _), due_ms in changes.dues.items() if table == DOMAIN]:
        starts.put("domains", min(due))
