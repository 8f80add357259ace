"""One atomic batch on the SQLite store: what can be written.

No rule is here. A statement takes a whole batch, and where versions must agree it says so in its WHERE:
that it changed as many rows as were given is the proof that all were as expected.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ...core import rank
from ...core.errors import Conflict
from ...core.job import Body, Job, Place
from ...core.kinds import Names
from ...core.limits import Domain, DomainKey
from ...core.unique import Unique, UniqueKey
from .. import fairness as order
from ..common.form import encode, rest_maker, rest_of
from ..contract import ClaimQuery, CountKey, LogRow, Turn
from .claim import pick
from .connection import Link
from .glob import pick_matching
from .marks import Marks
from .presence import Presence
from .reads import SqliteReads
from .statements import JOBS, SQL, TURN_OF, in_rows, listed


class SqliteTxn(SqliteReads):
    """A batch; see `Txn` for what each verb promises. A job or domain comes once in a call."""

    def __init__(
        self, link: Link, now_ms: int, presence: Presence | None = None, marks: Marks | None = None
    ) -> None:
        super().__init__(link, now_ms, presence)
        self._marks = Marks() if marks is None else marks
        # About how many rows were written.
        self.changed = 0

    def _write(self, name: str, rows: Sequence[Sequence[Any]]) -> int:
        changed = sum(self.link.change(sql, values) for sql, values in in_rows(name, rows))
        self.changed += changed
        return changed

    def insert(self, rows: Sequence[tuple[Job, Body]]) -> set[int]:
        """Add jobs with their data; those that exist are left alone and returned."""
        fresh, known = self._fresh([job.id for job, _ in rows])
        rows = [row for row, is_fresh in zip(rows, fresh, strict=True) if is_fresh]
        self._write("insert_jobs", [_row(job) for job, _ in rows])
        if self._marks:
            self._marks.note(job for job, _ in rows)
        self._write("put_data", [(job.id, data) for job, data in rows])
        return known

    def insert_alike(self, template: Job, rows: Sequence[tuple[int, Body]]) -> set[int]:
        """Add jobs that are as `template`: what they share is bound once for each statement."""
        fresh, known = self._fresh([id for id, _ in rows])
        rows = rows if not known else [row for row, is_fresh in zip(rows, fresh, strict=True) if is_fresh]
        shared = list(_row(template)[1:-1])
        rest = rest_maker(template)
        for sql, values in in_rows("insert_alike", [(id, rest(id, data)) for id, data in rows]):
            self.changed += self.link.change(sql, shared + values)
        if self._marks and rows:
            self._marks.note([replace(template, id=min(id for id, _ in rows))])
        self._write("put_data", rows)
        return known

    def _fresh(self, ids: list[int]) -> tuple[list[bool], set[int]]:
        """Of each id whether it is to be added, and those that exist already or come twice."""
        # New ids are nearly always above all others; only where not is each one looked up.
        if not ids or (len(set(ids)) == len(ids) and min(ids) > self.link.value(SQL["newest"])):
            return [True] * len(ids), set()
        known, seen, fresh = self._stored(ids), set[int](), []
        for id in ids:
            fresh.append(id not in known and id not in seen)
            seen.add(id)
            if not fresh[-1]:
                known.add(id)
        return fresh, known

    def _stored(self, ids: Collection[int]) -> set[int]:
        answer = self.link.value(SQL["known"], (listed(ids),))
        return set(msgspec.json.decode(answer, type=list[int])) if answer is not None else set()

    def swap(self, jobs: Sequence[Job]) -> None:
        """Replace each job by its next version."""
        if self._write("swap", [_row(job) for job in jobs]) != len(jobs):
            raise Conflict(f"not all of {len(jobs)} jobs are of the version before")
        if self._marks:
            self._marks.note(jobs)

    def _delete(self, expected: Sequence[tuple[int, int]]) -> None:
        # By version: of those there are one or two in a batch, and a list of ids is what SQLite is
        # quickest with.
        by_version: defaultdict[int, list[int]] = defaultdict(list)
        for job_id, version in expected:
            by_version[version].append(job_id)
        for version, ids in by_version.items():
            if self.link.change(SQL["delete_jobs"], (listed(ids), version)) != len(ids):
                raise Conflict(f"not all of {len(ids)} jobs are of version {version}")

    def remove(self, jobs: Sequence[Job]) -> None:
        """Remove live jobs with data and result."""
        self._delete([(job.id, job.version) for job in jobs])
        self._drop_bodies([job.id for job in jobs])

    def archive(self, jobs: Sequence[Job], *, keep: bool) -> None:
        """Move live jobs, as their next version, to the archive, or away."""
        self._delete([(job.id, job.version - 1) for job in jobs])
        if not keep:
            self._drop_bodies([job.id for job in jobs])
            return
        rows = [(j.id, j.finished_at, j.tenant, j.task, j.state.value, encode(j).decode()) for j in jobs]
        self._write("insert_archive", rows)

    def _drop_bodies(self, ids: Collection[int]) -> None:
        if ids:
            self.link.change(SQL["delete_data"], (listed(ids),))
            self.link.change(SQL["delete_results"], (listed(ids),))

    def forget(self, ids: Collection[int]) -> None:
        """Remove archived jobs with their bodies."""
        if ids:
            self.link.change(SQL["delete_archive"], (listed(ids),))
            self._drop_bodies(ids)

    def purge(self, before_ms: int, *, tenant: str | None, limit: int) -> list[Job]:
        """Remove and return the first archived jobs that ended before a moment."""
        old = self._jobs(SQL["ended_before"], before_ms, tenant, limit)
        self.forget([job.id for job in old])
        return old

    def put_bodies(self, bodies: Mapping[int, Body], *, result: bool = False) -> None:
        """Write or replace data or results."""
        self._write("put_results" if result else "put_data", list(bodies.items()))

    def put_unique(self, holders: Sequence[Unique]) -> None:
        """Let these jobs hold their keys."""
        self._write("put_unique", [(*holder.id, holder.job_id, holder.until_ms) for holder in holders])

    def drop_unique(self, keys: Collection[UniqueKey]) -> None:
        """Set keys free."""
        self._write("drop_unique", list(keys))

    def lapse_unique(self, up_to: int, limit: int) -> int:
        """Set free the keys whose time is over."""
        return self.link.change(SQL["lapse_unique"], (up_to, limit))

    def claim(self, query: ClaimQuery) -> list[Job]:
        """Lease the first jobs that match."""
        by_glob = query.glob is not None
        ids = pick_matching(self.link, query, self._marks) if by_glob else pick(self.link, query)
        if not ids:
            return []
        until, text = query.lease_until, listed(ids)
        found = {job.id: job for job in self._jobs(JOBS["load"], text)}
        self.link.change(SQL["claim"], (rank.lease(until), query.owner, until, query.started_at, text))
        jobs = [found[job_id] for job_id in ids]
        self._serve(jobs, query)
        return jobs

    def _serve(self, jobs: Sequence[Job], query: ClaimQuery) -> None:
        if (last := self._last_turn({(job.tenant, job.task) for job in jobs})) is None:
            return
        served = order.served(jobs, query, last)
        self._write("serve_lanes", [(*pair, 0, turn) for pair, turn in served.lanes.items()])
        self._write("serve_tenants", [(tenant, 0, turn) for tenant, turn in served.tenants.items()])
        if order.is_sweep(last, newest := last + len(served.lanes)):
            for name in ("forget_lanes", "forget_tenants"):
                self.link.change(SQL[name], (newest - order.REMEMBERED, order.SWEPT_AT_ONCE))

    def _last_turn(self, pairs: set[order.Pair]) -> int | None:
        """The number of the newest turn; None if it was that of the only pair: then nothing changes."""
        if len(pairs) > 1:
            last: int = self.link.value(SQL["last_turn"])
            return last
        last, *own = msgspec.json.decode(self.link.value(TURN_OF, next(iter(pairs))))
        return None if own == [last, last] and last else last

    def read_ahead(self, records: Names, domains: Collection[DomainKey]) -> None:
        """Nothing: a look-up costs no round trip here."""

    def swap_domains(self, domains: Sequence[Domain]) -> None:
        """Add domains of version 1, replace others by their next version."""
        rows = [(d.tenant, d.name, d.version, d.due_ms, encode(d).decode()) for d in domains]
        changed = self._write("insert_domains", [row for row in rows if row[2] == 1])
        changed += self._write("swap_domains", [row for row in rows if row[2] != 1])
        if changed != len(rows):
            raise Conflict(f"not all of {len(rows)} domains are of the version before")

    def drop_domains(self, domains: Sequence[Domain]) -> None:
        """Forget domains."""
        if self._write("drop_domains", [(d.tenant, d.name, d.version) for d in domains]) != len(domains):
            raise Conflict(f"not all of {len(domains)} domains are of their version")

    def count(self, changes: Mapping[CountKey, int]) -> None:
        """Add these differences; what comes to zero vanishes."""
        rows = [(k.tenant, k.task, int(k.place), k.state.value, n) for k, n in changes.items()]
        self._write("count", [row for row in rows if row[4]])
        if any(row[4] < 0 for row in rows):
            self.link.change(SQL["drop_zero_counts"])
        ready = [
            (key.tenant, key.task, change) for key, change in changes.items() if key.place == Place.READY
        ]
        filled = [(tenant, task, 1, 0) for tenant, task, change in ready if change > 0]
        # Of tenants only where a task of theirs has become ready, or has ceased to be.
        if self._write("fill_lanes", filled):
            self._write("fill_tenants", [(tenant, 1, 0) for tenant in {row[0] for row in filled}])
        emptied = [(tenant, task) for tenant, task, change in ready if change <= 0]
        if self._write("rest_lanes", emptied):
            self._write("rest_tenants", [(tenant,) for tenant in {row[0] for row in emptied}])

    def put_records(self, kind: str, records: Mapping[str, bytes | None]) -> None:
        """Write small records; None deletes one."""
        kept = [(kind, name, _text_or_bytes(value)) for name, value in records.items() if value is not None]
        self._write("put_records", kept)
        gone = [name for name, value in records.items() if value is None]
        if gone:
            self.link.change(SQL["drop_records"], (kind, listed(gone)))

    def append_log(self, log: str, rows: Sequence[LogRow]) -> None:
        """Write items of a log and their keys."""
        if self._write("append_log", [(log, *row) for row in rows]) != len(rows):
            raise Conflict(f"not all of {len(rows)} indexes of the log {log} are free")
        self._write("put_log_keys", [(log, row.key, row.at) for row in rows if row.key is not None])

    def trim_log(self, log: str, *, after: int, up_to: int, keys_up_to: int) -> None:
        """Remove items of a log, and old keys."""
        self.changed += self.link.change(SQL["trim_log"], (log, after, up_to))
        if keys_up_to > 0:
            self.changed += self.link.change(SQL["trim_log_keys"], (log, keys_up_to))

    def put_notice(self, notice: bytes | None) -> None:
        """Put this on the door: the record without a kind and a name."""
        self.put_records("", {"": notice})

    def put_turns(self, turns: Sequence[Turn]) -> None:
        """Let these have been served at these turns."""
        self._write("serve_lanes", [(turn.tenant, turn.task, 0, turn.served) for turn in turns if turn.task])
        self._write("serve_tenants", [(turn.tenant, 0, turn.served) for turn in turns if not turn.task])


def _row(job: Job) -> tuple[Any, ...]:
    """A job in the order of the columns. Plain numbers: one library converts others slowly."""
    return (
        job.id,
        job.tenant,
        job.task,
        int(job.place),
        job.rank,
        job.version,
        job.owner,
        job.lease_until,
        job.started_at,
        job.claim,
        1 if job.mock else 0,
        job.expires_at,
        job.parent_id,
        job.domain,
        job.schedule,
        rest_of(job),
    )


def _text_or_bytes(value: bytes) -> str | bytes:
    """Text where it is text, so that people can read it; SQLite's own functions stop at a NUL."""
    try:
        return value if b"\0" in value else value.decode()
    except UnicodeDecodeError:
        return value
