"""One atomic batch on the PostgreSQL store: what can be written, and what is locked by being read.

No rule is here. A statement takes a whole batch, and where versions must agree it says so in its WHERE: that
it changed as many rows as were given is the proof that all were as expected.

Domains begin at version 1 again after a drop. That cannot deceive anybody: who has read one holds its lock
until the commit, and nobody drops or makes it meanwhile.
"""

import secrets
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ...core import rank
from ...core.errors import Conflict
from ...core.job import Body, Job, Place, size_of
from ...core.kinds import PAUSE, Names
from ...core.limits import Domain, DomainKey
from ...core.unique import Unique, UniqueKey
from ..common.form import encode
from ..contract import ClaimQuery, CountKey, Moments, Turn
from ..fairness import Pair
from .ahead import Ahead
from .claim import Taker
from .connection import Link, OwnLink, Seeing
from .ends import PostgresEnds
from .fairness import few_kept
from .locks import Locks, domain_locks, record_locks
from .logs import PostgresLogs
from .reads import moments_of
from .rows import alike, columns, is_new
from .rows import bodies as as_arrays
from .starts import SLOW_S, Walks
from .statements import lock_number, numbers, raws, texts
from .view import PostgresView

# How many domains are remembered to have a record, and so are locked exclusively at once.
REMEMBERED = 10_000


class PostgresTxn(PostgresEnds, PostgresLogs):
    """A batch; see `Txn` for what each verb promises. A job or domain comes once in a call."""

    def __init__(
        self,
        link: Link,
        sql: dict[str, str],
        now_ms: int,
        *,
        schema: str,
        locks: Locks,
        limited: set[DomainKey],
        notice: bytes | None,
        careful: bool = False,
        blind: bool = False,
    ) -> None:
        super().__init__(link, sql, now_ms, schema=schema, notice=notice)
        self._blind = blind
        # What a batch that reads nothing adds, group by group: told with its counts, perhaps as one call.
        self._born: list[dict[str, Any]] = []
        self._beside = {}
        # What was asked for at once, until it is changed here: `_moments`, and these.
        self._ahead = Ahead()
        self._limited = limited
        self._careful = careful
        self._locks = locks
        # What one who seeks sees, whether he has more than that; what he has in hand, for which claim.
        self.sight: PostgresView | None = None
        self.emptied: dict[Pair, None] = {}
        self.only_looked = False
        self._in_hand: tuple[OwnLink, ClaimQuery, Sequence[Any]] | None = None
        # By which it is known afterwards whether this was committed; how many rows the counts have of it.
        self.mark = 0
        # What a domain remembers as its writer's time; 0: the clock is not the server's, and says nothing.
        self.at_ms = now_ms
        self.appended = 0

    # Reading

    def _lock(self, sort: str, *what: str | bytes) -> int:
        return lock_number(self.schema, sort, *what)

    def children(
        self, parent_id: int, *, place: Place | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        """The live children of a job, by id. Their parent is locked first, as `load` does it."""
        self.link.value(self.sql["hold"], (parent_id,))
        return super().children(parent_id, place=place, after=after, limit=limit)

    def find_unique(self, keys: Collection[UniqueKey]) -> dict[UniqueKey, Unique]:
        """Who holds these keys. Whoever asks is about to take one, or to set it free."""
        self._locks.take({self._lock("unique", *key): True for key in keys})
        return super().find_unique(keys)

    def domains(self, keys: Collection[DomainKey]) -> dict[DomainKey, Domain]:
        """What is kept of these domains."""
        wanted = domain_locks(self.schema, keys, self._limited)
        self._locks.take(wanted)
        found = super().domains(keys)
        if self.domains_at_ms > self.now_ms and not self._locks.were_early(wanted):
            # Whoever had it before us is ahead of our time: by it a rate would seem to lie in the future.
            self._locks.want(dict.fromkeys(wanted, True))
        # One that has a record is about to be changed.
        self._change_domains(found)
        return found

    def _change_domains(self, keys: Collection[DomainKey]) -> None:
        if len(self._limited) > REMEMBERED:
            self._limited.clear()
        self._limited.update(keys)
        self._locks.take({self._lock("domain", *key): True for key in keys})

    def moments(self) -> Moments:
        """When something becomes true by itself. Asked for once, as long as nothing changes it but claims."""
        if self.only_looked:
            raise Seeing("who only looked has something to do")
        if self._moments is None:
            self._moments = self._look_ahead()
        return self._moments

    def _look_ahead(self) -> Moments:
        """Who asks for moments is about to claim, and will ask what is paused: that comes along."""
        number = self._lock("records", PAUSE)
        if self._ahead.has_whole(PAUSE) or not self._locks.can_wait_for(number):
            return super().moments()

        def ask(began: tuple[int, ...]) -> tuple[Any, ...]:
            ((*row, names, contents),) = self.link.rows(self.sql["look_ahead"], (number, *began))
            self._pauses_are(names, contents)
            return tuple(row)

        return self._walked(ask)

    def foresee(self, walks: Walks, seen: Sequence[Any]) -> None:
        """What `_look_ahead` would ask for was told as the batch began."""
        *row, names, contents = seen
        self._pauses_are(names, contents)
        if walks.took_s < SLOW_S:
            walks.ended(row, self.now_ms)
            self._moments = moments_of(row)
        else:
            # It may have waited for its turn before it walked: the walks are timed alone.
            self._moments = super().moments()

    def _pauses_are(self, names: Sequence[str], contents: Sequence[bytes]) -> None:
        self._locks.had(self._lock("records", PAUSE))
        self._ahead.put_whole(PAUSE, dict(zip(names, contents, strict=True)))

    def _claimed(self, jobs: Sequence[Job], lease: int) -> None:
        """What a claim makes of the moments: one more lease that ends."""
        if self._moments is not None and lease < (self._moments.running or rank.LAST):
            self._moments = self._moments._replace(running=lease)
            self.starts.begins(Place.RUNNING, lease)
        if any(job.expires_at for job in jobs):
            self._moments = None

    def records(self, kind: str, names: Collection[str] | None = None) -> dict[str, bytes]:
        """Small named records. Nobody writes any of that kind until the commit."""
        if (known := self._ahead.find(kind, names)) is not None:
            return known
        self._locks.take(record_locks(self.schema, kind, names, exclusive=False))
        return super().records(kind, names)

    def read_ahead(self, records: Names, domains: Collection[DomainKey]) -> None:
        """Lock and read the records at once; the domains are locked with them."""
        asked = {kind: names for kind, names in records.items() if self._ahead.find(kind, names) is None}
        wanted = domain_locks(self.schema, domains, self._limited)
        for kind, names in asked.items():
            wanted |= record_locks(self.schema, kind, names, exclusive=False)
        self._locks.take(wanted)
        if asked:
            self._ahead.read(self.link, self.sql["records_ahead"], asked)

    def bodies(self, ids: Collection[int], *, result: bool = False) -> dict[int, Body]:
        """The data of jobs, or their results; what came along with a claim is at hand."""
        if result or not self._beside:
            return super().bodies(ids, result=result)
        found = {id: body for id in ids if (body := self._beside.get(id)) is not None}
        apart = [id for id in ids if id in self._beside and id not in found]
        rest = [id for id in ids if id not in self._beside]
        return found | self._bodies("data_apart", apart) | self._bodies("data", rest)

    # Jobs

    def insert(self, rows: Sequence[tuple[Job, Body]]) -> set[int]:
        """Add jobs with their data; those that exist are left alone and returned."""
        if not rows:
            return set()
        self.wrote = True
        self._put([job for job, _ in rows])
        ids = [job.id for job, _ in rows]
        values = columns([job for job, _ in rows]) | as_arrays([data for _, data in rows])
        if not self._careful:
            if self.link.change(self.sql["insert"], values) != len(ids):
                raise Conflict("an archived job has one of these ids")
            return set()
        added = self.link.value(self.sql["insert_carefully"], values | {"count": len(ids)})
        left = Counter(ids)
        left.subtract(ids if added is None else added)
        return {id for id, count in left.items() if count > 0}

    def insert_alike(self, template: Job, rows: Sequence[tuple[int, Body]]) -> set[int]:
        """Add jobs that are as `template`: what they share is sent once."""
        if self._careful or not is_new(template):
            return self.insert([(replace(template, id=id, size=size_of(data)), data) for id, data in rows])
        if not rows:
            return set()
        self.wrote = True
        self._put([template])
        self._born.append(alike(template, rows))
        if not self._blind:
            self._tell_born()
        return set()

    def _tell_born(self) -> None:
        for values in self._born:
            self.link.later(self.sql["bear"], values)
        self._born.clear()

    def swap(self, jobs: Sequence[Job]) -> None:
        """Replace each job by its next version."""
        self._put(jobs)
        # By id, as they are locked.
        if jobs and self._write("swap", columns(sorted(jobs, key=lambda job: job.id))) != len(jobs):
            raise Conflict(f"not all of {len(jobs)} jobs are of the version before")

    def _put(self, jobs: Sequence[Job]) -> None:
        """Walks that begin past the dead are to find these."""
        self._moments = None
        if self.starts:
            for job in jobs:
                self.starts.put((job.tenant, job.task) if job.place is Place.READY else job.place, job.rank)
                if job.expires_at:
                    self.starts.put("expiring", job.expires_at)

    def claim(self, query: ClaimQuery) -> list[Job]:
        """Lease the first jobs that match."""
        taker = Taker(self.link, self.sql, query, self.starts, self._beside)
        in_hand, self._in_hand = self._in_hand, None
        if in_hand is not None:
            link, sought, row = in_hand
            link.be_silent(False)
            if query != sought:
                raise Conflict("another claim than the one that was sought")
        if jobs := taker.take() if in_hand is None else taker.told(row):
            self.wrote = True
            lease = rank.lease(query.lease_until)
            self.starts.put(Place.RUNNING, lease)
            self.turns.serve(jobs, query, taker.newest)
            self._claimed(jobs, lease)
        return jobs

    def has_in_hand(self, link: OwnLink, query: ClaimQuery, row: Sequence[Any]) -> None:
        """This was taken for a claim as the batch began, or it was found that others have it all.

        Until it is claimed nobody may ask for anything: what he reads would have it running already.
        """
        if row[3] is not None:
            self._in_hand = (link, query, row)
            link.be_silent(True)

    @property
    def may_end(self) -> bool:
        """Whether one who seeks may go as he came: he has nothing in hand, and has seen all that there is."""
        if self.only_looked:
            return True
        sees_all = self.sight is not None and self.sight.ready_pairs(mock=False) is not None
        return sees_all and self._in_hand is None

    # All else

    def put_unique(self, holders: Sequence[Unique]) -> None:
        """Let these jobs hold their keys."""
        if not holders:
            return
        self._locks.take({self._lock("unique", *holder.id): True for holder in holders})
        tenants, tasks, keys = zip(*(holder.id for holder in holders), strict=True)
        ids, untils = zip(*((holder.job_id, holder.until_ms) for holder in holders), strict=True)
        values = (texts(tenants), texts(tasks), raws(keys), numbers(ids), numbers(untils))
        self._write("put_unique", values)

    def drop_unique(self, keys: Collection[UniqueKey]) -> None:
        """Set keys free."""
        if keys:
            self._locks.take({self._lock("unique", *key): True for key in keys})
            tenants, tasks, names = zip(*keys, strict=True)
            self._write("drop_unique", (texts(tenants), texts(tasks), raws(names)))

    def lapse_unique(self, up_to: int, limit: int) -> int:
        """Set free the keys whose time is over; one that somebody is about to take anew is passed by."""
        gone = self.link.change(self.sql["lapse_unique"], (up_to, limit))
        self.wrote = self.wrote or gone > 0
        return gone

    def swap_domains(self, domains: Sequence[Domain]) -> None:
        """Add domains of version 1, replace others by their next version."""
        self._change_domains([domain.key for domain in domains])
        rows = [(d.tenant, d.name, d.version, d.due_ms, encode(d).decode()) for d in domains]
        if due := [domain.due_ms for domain in domains if domain.due_ms]:
            self.starts.put("domains", min(due))
        changed = self._write_domains("insert_domains", [row for row in rows if row[2] == 1])
        changed += self._write_domains("swap_domains", [row for row in rows if row[2] != 1])
        if changed != len(rows):
            raise Conflict(f"not all of {len(rows)} domains are of the version before")

    def _write_domains(self, name: str, rows: Sequence[tuple[str, bytes, int, int, str]]) -> int:
        if not rows:
            return 0
        tenants, names, versions, dues, records = zip(*rows, strict=True)
        values = (texts(tenants), raws(names), numbers(versions), numbers(dues), texts(records))
        return self._write(name, (self.at_ms, *values))

    def drop_domains(self, domains: Sequence[Domain]) -> None:
        """Forget domains."""
        if not domains:
            return
        self._change_domains([domain.key for domain in domains])
        tenants, names, versions = zip(*((d.tenant, d.name, d.version) for d in domains), strict=True)
        values = (texts(tenants), raws(names), numbers(versions))
        if self._write("drop_domains", values) != len(domains):
            raise Conflict(f"not all of {len(domains)} domains are of their version")

    def count(self, changes: Mapping[CountKey, int]) -> None:
        """Add these differences; what comes to zero vanishes."""
        rows = [(k.tenant, k.task, int(k.place), k.state.value, n) for k, n in changes.items() if n]
        if not rows:
            return
        ready: dict[Pair, int] = {}
        for key, change in changes.items():
            if key.place == Place.READY:
                pair = (key.tenant, key.task)
                ready[pair] = ready.get(pair, 0) + change
        self.wrote = True
        tenants, tasks, places, states, by = zip(*rows, strict=True)
        self.appended += len(rows)
        if len(self._born) == 1 and len(rows) == 1:
            (born,) = self._born
            self._born.clear()
            first, second = self.turns.locks(*ready) if ready else (None, None)
            alone = {"state": states[0], "first_lock": first, "second_lock": second} | self._marked()
            self.link.alone(self.sql["bear"], born | alone)
            return
        self._tell_born()
        values = {"count_tenants": texts(tenants), "count_tasks": texts(tasks), "places": numbers(places)}
        values |= {"count_states": texts(states), "numbers": numbers(by)} | self._marked()
        if self._over is not None:
            over, self._over = self._over, None
            self.link.alone(self.sql["finish"], values | over)
        else:
            ready = ready if self.sight is None else few_kept(ready, self.emptied)
            self.link.later(self.sql["settle"], values | self.turns.counted(ready))

    def _marked(self) -> dict[str, Any]:
        self.mark = secrets.randbits(63)
        return {"at_ms": self.now_ms, "mark": self.mark}

    def put_records(self, kind: str, records: Mapping[str, bytes | None]) -> None:
        """Write small records; None deletes one."""
        self._ahead.forget(kind)
        self._locks.take(record_locks(self.schema, kind, records, exclusive=True))
        kept = {name: value for name, value in records.items() if value is not None}
        if kept:
            self._write("put_records", (kind, texts(kept), raws(kept.values())))
        if gone := [name for name, value in records.items() if value is None]:
            self._write("drop_records", (kind, texts(gone)))

    def put_notice(self, notice: bytes | None) -> None:
        """Put this on the door: the record without a kind and a name. Every batch has that lock, shared."""
        self.link.value("SELECT pg_advisory_xact_lock(%s)", (self._lock("notice"),))
        self._write("put_records", ("", texts([""]), raws([notice or b""])))
        self._notice = notice

    def put_turns(self, turns: Sequence[Turn]) -> None:
        """Let these have been served at these turns."""
        self.wrote = True
        self.turns.put(turns)

    def leave_mark(self) -> None:
        """Leave a mark, if anything was written, by which it can be seen whether this was committed."""
        self._tell_born()
        if self._over is not None:
            raise Seeing("ends that were not counted")
        if self._in_hand is not None or (self.wrote and self.only_looked):
            raise Conflict("another batch than the one that was sought")
        if self.wrote and not self.mark:
            self.link.later(self.sql["mark"], self._marked())
