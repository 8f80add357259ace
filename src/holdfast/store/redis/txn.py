"""One atomic batch on the Redis store: what is decided is kept here, and written by one script.

    read ──▶ seen       fn decides       draft ──▶ commit.lua: all that was seen is still so? then write
      ▲                                                   │
      └──────────────── again, from the start ◀── no ─────┘

No rule is here. What a batch adds it takes for new at first: that an id exists already is found by the
commit, and the second time it is looked for before. See docs/decisions/0009.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ...core.errors import Conflict
from ...core.job import Body, Job, Place, size_of
from ...core.limits import Domain, DomainKey
from ...core.unique import Unique, UniqueKey
from .. import fairness
from ..contract import ClaimQuery, CountKey, LogRow, Moments, Turn, leased
from . import keys as k
from .calm import Calm, Sight
from .claim import Taker
from .connection import GIVE_BACK, Link
from .draft import Stamped
from .keys import Keys, member
from .lists import NOTICE, RedisLists, unique_key
from .reads import HEADS, ROSTER

# What a store remembers of jobs that it wrote: who finishes a job need not read it again.
Mine = dict[int, Stamped]


class Behind(Conflict):
    """A domain was written at a moment that is later than ours: by our time it would lie in the future."""

    def __init__(self, at_ms: int) -> None:
        super().__init__("a domain was written later than now")
        self.at_ms = at_ms


class RedisTxn(RedisLists):
    """A batch; see `Txn` for what each verb promises. A job or domain comes once in a call."""

    def __init__(
        self,
        link: Link,
        keys: Keys,
        now_ms: int,
        *,
        mine: Mine,
        calm: Calm,
        careful: bool,
        timed: bool,
    ) -> None:
        super().__init__(link, keys, now_ms)
        self._mine = mine
        self._calm = calm
        self._careful = careful
        # Whether the time is the server's, which all go by; not that of a test.
        self._timed = timed
        # Out of READY by our hand, or found there astray: each is put where its record says in the end.
        self.taken: set[int] = set()
        self._mends = False
        self.last_turn: int | None = None
        # Turns of lanes and tenants, and of those who are forgotten.
        self.served_lanes: dict[fairness.Pair, int] = {}
        self.served_tenants: dict[str, int] = {}
        self.forgotten: dict[bytes, list[bytes]] = {}

    # What one who seeks sees; he may go as he came.
    sight: "RedisTxn | None" = None
    may_end = True

    # Reading

    def written_at(self, at_ms: int) -> None:
        """Nobody goes by an earlier moment than the one before him."""
        if self._timed and at_ms > self.now_ms:
            raise Behind(at_ms)

    def moments(self) -> Moments:
        """When something becomes true by itself; for one who is idle, or has just looked, as it was then,
        unless somebody has committed."""
        if self._heads is None and (self._calm.is_idle or self._calm.is_fresh):
            sight = self._calm.sight
            if sight is None or self.ask([(b"GET", self.keys.tick)]) != [sight.tick]:
                sight = None
            self._look_at_all(sight)
        return super().moments()

    def _look_at_all(self, sight: Sight | None) -> None:
        """See all that upkeep and claims go by, as it is now or was seen before."""
        self.go_by(sight or self._calm.saw(self.ask(self._calm.words(HEADS, ROSTER)), ROSTER))
        self._confirm()

    def seek(self) -> None:
        """Begin as one who waits, and was woken: the first question shows him all that he looks for."""
        self._look_at_all(None)
        kind, name = NOTICE
        self.seen.records[NOTICE] = self.seen.kinds[kind][1].get(name)
        self.sight = self

    def _confirm(self) -> None:
        """What was believed to stand on the door has been seen."""
        kind, name = NOTICE
        if self.believes and self.seen.kinds[kind][1].get(name) != self.believed:
            raise Conflict("another notice is on the door")
        self.believes = False

    def _is_before(self, order: bytes, moment: int) -> bool:
        """Whether an order may have anything up to a moment, as far as was looked."""
        head = (self._heads or {}).get(order)
        return head is None or (bool(head) and head[0][0] <= moment)

    def first(self, place: Place, up_to: int, limit: int) -> list[Job]:
        """The first jobs of a place. One that was taken, and whose claim never followed, is put right."""
        self._mends = place is Place.RUNNING and up_to <= self.now_ms
        try:
            return super().first(place, up_to, limit)
        finally:
            self._mends = False

    def astray(self, job_id: int) -> None:
        """It was taken out of READY by somebody who was not heard of again."""
        if self._mends:
            self.taken.add(job_id)

    def _expect(self, versions: dict[int, int]) -> None:
        """Have jobs seen, which must be of these versions.

        One that we wrote ourselves in that version need not be read: the commit tells whether it is still so.
        """
        for job_id, version in versions.items():
            known = self._mine.get(job_id)
            if known is not None and known.job.version == version and job_id not in self.draft.jobs:
                self.seen.jobs.setdefault(job_id, known)
        self.fetch(versions)
        for job_id, version in versions.items():
            stored = self.job_now(job_id)
            if stored is None or stored.version != version:
                raise Conflict(f"job {job_id} is not of version {version}")

    # Jobs

    def insert(self, rows: Sequence[tuple[Job, Body]]) -> set[int]:
        """Add jobs with their data; those that exist are left alone and returned."""
        if self._careful:
            ids = [job.id for job, _ in rows]
            self.fetch(ids)
            self.archived(ids)
        known = set()
        for job, data in rows:
            if self._exists(job.id):
                known.add(job.id)
                continue
            if job.id not in self.seen.jobs or job.id not in self.seen.archive:
                self.draft.hoped.add(job.id)
            self.draft.put(job.id, job)
            self.draft.bodies[job.id, False] = data
        return known

    def _exists(self, job_id: int) -> bool:
        drafts, seen = self.draft, self.seen
        for draft, read in ((drafts.jobs, seen.jobs), (drafts.archive, seen.archive)):
            found = draft[job_id] if job_id in draft else read.get(job_id)
            if found is not None:
                return True
        return False

    def insert_alike(self, template: Job, rows: Sequence[tuple[int, Body]]) -> set[int]:
        """Add jobs that are as `template`."""
        return self.insert([(replace(template, id=id, size=size_of(data)), data) for id, data in rows])

    def swap(self, jobs: Sequence[Job]) -> None:
        """Replace each job by its next version."""
        self._expect({job.id: job.version - 1 for job in jobs})
        for job in jobs:
            self.draft.put(job.id, job)

    def remove(self, jobs: Sequence[Job]) -> None:
        """Remove live jobs with data and result."""
        self._expect({job.id: job.version for job in jobs})
        for job in jobs:
            self.draft.put(job.id, None)
            self._drop_bodies(job.id)

    def archive(self, jobs: Sequence[Job], *, keep: bool) -> None:
        """Move live jobs, as their next version, to the archive, or away."""
        self._expect({job.id: job.version - 1 for job in jobs})
        for job in jobs:
            self.draft.put(job.id, None)
            if keep:
                self.draft.archive[job.id] = job
            else:
                self._drop_bodies(job.id)

    def forget(self, ids: Collection[int]) -> None:
        """Remove archived jobs with their bodies."""
        # What was read of them must still be so: who forgets also counts.
        self.archived(ids)
        for job_id in ids:
            self.draft.archive[job_id] = None
            self._drop_bodies(job_id)

    def purge(self, before_ms: int, *, tenant: str | None, limit: int) -> list[Job]:
        """Remove and return the first archived jobs that ended before a moment."""
        old = [job for job in self.draft.archive.values() if job is not None]
        old = [job for job in old if job.finished_at < before_ms and tenant in (None, job.tenant)]
        keys, skip, page, theirs = self.keys, 0, limit + len(self.draft.archive), 0
        while theirs < limit and self._is_before(keys.archive_ends, before_ms):
            words = (b"-inf", b"(%d" % before_ms, "BYSCORE", "LIMIT", skip, page)
            members, raws = self.page(keys.archive_ends, keys.archive, *words)
            for name, raw in zip(members, raws, strict=True):
                job_id = int(name)
                if raw is None or job_id in self.draft.archive:
                    continue
                if tenant is None or k.read_job(raw).tenant == tenant:
                    job = self.see_archived(job_id, raw)
                    theirs += 1
                    old += [job] if job is not None else []
            if len(members) < page:
                break
            skip += page
        old = sorted(old, key=lambda job: (job.finished_at, job.id))[:limit]
        self.forget([job.id for job in old])
        return old

    def _drop_bodies(self, job_id: int) -> None:
        for result in (False, True):
            self.draft.bodies[job_id, result] = None

    def put_bodies(self, bodies: Mapping[int, Body], *, result: bool = False) -> None:
        """Write or replace data or results."""
        for job_id, body in bodies.items():
            self.draft.bodies[job_id, result] = body

    def claim(self, query: ClaimQuery) -> list[Job]:
        """Lease the first jobs that match."""
        jobs = Taker(self, query).take()
        for job in jobs:
            self.draft.put(job.id, leased(job, query))
        if jobs:
            self._serve(jobs, query)
        return jobs

    def _serve(self, jobs: list[Job], query: ClaimQuery) -> None:
        if (last := self.last_turn) is None:
            orders = (self.keys.turn_tenants, self.keys.rest_tenants)
            tops = self.ask([(b"ZREVRANGE", order, 0, 0, "WITHSCORES") for order in orders])
            last = max((int(top[1]) for top in tops if top), default=0)
        served = fairness.served(jobs, query, last)
        self.served_lanes |= served.lanes
        self.served_tenants |= served.tenants
        self.last_turn = last + len(served.lanes)
        if fairness.is_sweep(last, self.last_turn):
            orders = (self.keys.rest_lanes, self.keys.rest_tenants)
            words = (b"-inf", f"({self.last_turn - fairness.REMEMBERED}", "LIMIT", 0, fairness.SWEPT_AT_ONCE)
            self.forgotten = dict(
                zip(orders, self.ask([(b"ZRANGEBYSCORE", order, *words) for order in orders]), strict=True)
            )

    # All else

    def put_unique(self, holders: Sequence[Unique]) -> None:
        """Let these jobs hold their keys."""
        for holder in holders:
            self.draft.uniques[holder.id] = holder

    def drop_unique(self, keys: Collection[UniqueKey]) -> None:
        """Set keys free."""
        for key in keys:
            self.draft.uniques[key] = None

    def lapse_unique(self, up_to: int, limit: int) -> int:
        """Set free the keys whose time is over."""
        names: list[bytes] = []
        if self._is_before(self.keys.unique_lapses, up_to):
            words = (self.keys.unique_lapses, 1, up_to, "LIMIT", 0, limit + len(self.draft.uniques))
            (names,) = self.ask([(b"ZRANGEBYSCORE", *words)])
        keys = [unique_key(name) for name in names]
        held = self.find_unique(dict.fromkeys([*keys, *self.draft.uniques]))
        over = [key for key, holder in held.items() if 0 < holder.until_ms <= up_to][:limit]
        self.drop_unique(over)
        return len(over)

    def _expect_domains(self, domains: Sequence[Domain], *, ahead: int) -> None:
        stored = self.domains([domain.key for domain in domains])
        for domain in domains:
            found = stored.get(domain.key)
            if (found.version if found else 0) != domain.version - ahead:
                raise Conflict(f"domain {domain.name!r} is not of version {domain.version - ahead}")

    def swap_domains(self, domains: Sequence[Domain]) -> None:
        """Add domains of version 1, replace others by their next version."""
        self._expect_domains(domains, ahead=1)
        self.draft.domains |= {domain.key: domain for domain in domains}

    def drop_domains(self, domains: Sequence[Domain]) -> None:
        """Forget domains."""
        self._expect_domains(domains, ahead=0)
        gone: dict[DomainKey, Domain | None] = {domain.key: None for domain in domains}
        self.draft.domains |= gone

    def count(self, changes: Mapping[CountKey, int]) -> None:
        """Add these differences; what comes to zero vanishes."""
        for key, change in changes.items():
            self.draft.counts[key] += change

    # What stands on the door, as far as is known from before: the commit tells if it is not so.
    believed: bytes | None = None
    believes = False
    # Whether those who wait should be told once it is committed, and of nothing but ends.
    tells = ends = False

    @property
    def door(self) -> bytes | None:
        """What stands on the door once this is committed."""
        return self.draft.records.get(NOTICE, self.seen.records.get(NOTICE, self.believed))

    def tell(self, *, ends: bool) -> None:
        """Let those who wait be told."""
        self.tells, self.ends = True, ends

    def notice(self) -> bytes | None:
        """What stands on the store's door."""
        if not self._careful and NOTICE not in self.seen.records:
            self.seen.records[NOTICE], self.believes = self.believed, True
        return super().notice()

    def put_notice(self, notice: bytes | None) -> None:
        """Put this on the door."""
        kind, name = NOTICE
        self.put_records(kind, {name: notice})

    def put_turns(self, turns: Sequence[Turn]) -> None:
        """Let these have been served at these turns."""
        self.served_lanes |= {(turn.tenant, turn.task): turn.served for turn in turns if turn.task}
        self.served_tenants |= {turn.tenant: turn.served for turn in turns if not turn.task}

    def put_records(self, kind: str, records: Mapping[str, bytes | None]) -> None:
        """Write small records; None deletes one."""
        for name, value in records.items():
            self.draft.records[kind, name] = value

    def append_log(self, log: str, rows: Sequence[LogRow]) -> None:
        """Write items of a log and their keys."""
        items = self.draft.items.setdefault(log, {})
        for row in rows:
            if row.at in items:
                raise Conflict(f"index {row.at} of the log {log} is taken")
            items[row.at] = row
            if row.key is not None:
                self.draft.log_keys.setdefault(log, {})[row.key] = row.at

    def trim_log(self, log: str, *, after: int, up_to: int, keys_up_to: int) -> None:
        """Remove items of a log, and old keys."""
        if up_to > after:
            self.draft.trims.setdefault(log, []).append((after, up_to))
        if keys_up_to <= 0:
            return
        self.draft.keys_up_to[log] = max(self.draft.keys_up_to.get(log, 0), keys_up_to)
        words = (self.keys.log("order", log), b"-", b"(" + member(keys_up_to + 1))
        (names,) = self.ask([(b"ZRANGEBYLEX", *words)])
        own = self.draft.log_keys.setdefault(log, {})
        known = self.find_in_log(log, {*(name[19:] for name in names), *own})
        own.update(dict.fromkeys(key for key, at in known.items() if at <= keys_up_to))

    def give_back(self) -> None:
        """Put what was taken, and will not be written, back into READY."""
        if not self.taken:
            return
        taken, self.taken = self.taken, set()
        keys = [self.keys.in_process_queue, self.keys.jobs]
        places = {key: at for at, key in enumerate(keys, start=1)}
        plan: list[Any] = []
        # Not those whose records could not be read: `mend.py` sees to them.
        for job_id in taken & self.seen.jobs.keys():
            seen = self.seen.jobs[job_id]
            spots = self.keys.spots(seen.job) if seen is not None else {}
            plan += (member(job_id), seen.stamp if seen is not None else b"", len(spots))
            for key, score in spots.items():
                plan += (places.setdefault(key, len(places) + 1), score)
        self.link.call(*GIVE_BACK.words(list(places), *plan))
