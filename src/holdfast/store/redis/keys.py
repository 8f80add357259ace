"""What everything is called in Redis, and where a job stands there. See docs/decisions/0009.

    {hf:NAME:0}:jobs                  hash    id ▸ stamp, record           :archive the same
    {hf:NAME:0}:data                  hash    id ▸ sort, body              :results the same
    {hf:NAME:0}:job_queue_<task>      sorted  READY jobs of a task by rank
    {hf:NAME:0}:in_process_queue      sorted  RUNNING jobs by the end of their lease
    …

All keys of a store have one tag, and so one slot of a cluster. An id is written with 19 digits: where scores
are equal a sorted set goes by the text. A **stamp** is the mark of the commit that wrote a record last.
"""

from urllib.parse import quote

import msgspec

from ...core.job import Body, Job, Place, Unreadable
from ...core.limits import Domain, DomainKey
from ...core.unique import Unique, UniqueKey
from ..contract import CountKey

STAMP_BYTES = 12
# A domain also has the moment of its writer, so that nobody goes by an earlier one.
MOMENT_BYTES = 14
# A body above this has a key of its own, written before the record that it belongs to.
INLINE_BYTES = 16 * 1024
# What stands for it among the others.
LARGE = b"L"
# The names of so many queues are remembered: every job is asked for its own several times.
QUEUES = 10_000
# More than anything has.
ALL = 1 << 40

_EXPIRABLE = (Place.SCHEDULED, Place.READY, Place.HELD, Place.PAUSED)
_ROWS = {
    Place.SCHEDULED: b"scheduled",
    Place.READY: b"ready",
    Place.HELD: b"held",
    Place.RUNNING: b"in_process_queue",
    Place.PAUSED: b"paused",
    Place.DONE: b"done",
}
_encode = msgspec.json.Encoder().encode
_job = msgspec.json.Decoder(Job).decode
_domain = msgspec.json.Decoder(Domain).decode
_item = msgspec.msgpack.Decoder(tuple[bytes | None, bytes, bytes]).decode
pack = msgspec.msgpack.Encoder().encode

Spots = dict[bytes, int]


class Keys:
    """The names of one store."""

    def __init__(self, prefix: str, shard: int = 0) -> None:
        self.base = b"{hf:%s:%d}:" % (prefix.encode(), shard)
        self.channel = self.base + b"news"
        for name in _FIXED:
            setattr(self, name, self.base + name.encode())
        self._queues: dict[tuple[str, str, bool], bytes] = {}
        self.rows = {place: self.base + name for place, name in _ROWS.items()}
        # What commit.lua knows by its place, after the lane of the one who commits.
        turns = (self.ready_counts, self.turn_tenants, self.rest_tenants, self.rest_lanes)
        self.of_every_plan = (self.tick, *turns, self.jobs, self.archive, self.data)

    jobs: bytes
    archive: bytes
    data: bytes
    results: bytes
    ids: bytes
    archive_ids: bytes
    archive_ends: bytes
    ready: bytes
    ready_mock: bytes
    in_process_queue: bytes
    expiring: bytes
    unique: bytes
    unique_lapses: bytes
    domains: bytes
    domain_names: bytes
    domains_due: bytes
    counts: bytes
    ready_counts: bytes
    lane_counts: bytes
    lanes: bytes
    tenant_counts: bytes
    tenants: bytes
    turn_tenants: bytes
    rest_tenants: bytes
    rest_lanes: bytes
    kinds: bytes
    tick: bytes
    version: bytes

    def queue(self, tenant: str, task: str, *, mock: bool = False) -> bytes:
        """The READY jobs of a tenant's task by rank: a worker queue."""
        found = self._queues.get((tenant, task, mock))
        if found is None:
            name = f"{'mock' if mock else 'job'}_queue_{task}"
            found = self.base + (f"tenant:{quote(tenant, safe='')}:{name}" if tenant else name).encode()
            if len(self._queues) >= QUEUES:
                self._queues = {}
            self._queues[tenant, task, mock] = found
        return found

    def everyone(self, *, mock: bool) -> bytes:
        """All READY jobs by rank; mocked ones apart."""
        return self.ready_mock if mock else self.ready

    def line(self, key: DomainKey, task: str, place: Place) -> bytes:
        """The jobs of a task of a domain in a place."""
        return (
            self.base
            + f"line:{int(place)}:{quote(key[0], safe='')}:{quote(task, safe='')}:".encode()
            + key[1]
        )

    def domain(self, key: DomainKey) -> bytes:
        """All live jobs of a domain by id."""
        return self.base + f"domain:{quote(key[0], safe='')}:".encode() + key[1]

    def children(self, parent_id: int, place: Place) -> bytes:
        """The live children of a job in a place, by id."""
        return self.base + b"children:%d:%d" % (parent_id, place)

    def body(self, job_id: int, *, result: bool) -> bytes:
        """A body too large to lie with the others."""
        return self.base + (b"result:%d" if result else b"data:%d") % job_id

    def bodies(self, *, result: bool) -> bytes:
        """All other bodies."""
        return self.results if result else self.data

    def stage(self, stamp: bytes, number: int) -> bytes:
        """Where such a body lies until its record is written."""
        return self.base + b"stage:%s:%d" % (stamp, number)

    def records(self, kind: str) -> bytes:
        """Small records of a kind."""
        return self.base + b"records:" + kind.encode()

    def tasks(self, tenant: str) -> bytes:
        """The tasks of a tenant that have READY jobs, by their turn."""
        return self.base + b"tasks:" + tenant.encode()

    def lane(self, name: str) -> bytes:
        """The last commit of one who commits."""
        return self.base + b"commit:" + name.encode()

    def here(self, name: str) -> bytes:
        """Somebody who is there."""
        return self.base + b"here:" + name.encode()

    def log(self, part: str, log: str) -> bytes:
        """Of a log: the order of its `items`, their `bodies`, its `keys`, or the `order` of these."""
        return self.base + f"log:{part}:{log}".encode()

    def spots(self, job: Job) -> Spots:
        """Where a live job stands: one score in each order that it is part of."""
        place = job.place
        ready = place is Place.READY
        spots: Spots = {
            self.ids: 0,
            self.everyone(mock=job.mock) if ready else self.rows[place]: job.rank,
        }
        if ready:
            spots[self.queue(job.tenant, job.task, mock=job.mock)] = job.rank
        if job.domain is not None:
            key = (job.tenant, job.domain)
            spots[self.line(key, job.task, place)] = job.rank
            spots[self.domain(key)] = 0
        if job.parent_id:
            spots[self.children(job.parent_id, place)] = 0
        if job.expires_at and place in _EXPIRABLE:
            spots[self.expiring] = job.expires_at
        return spots


_FIXED = tuple(name for name, kind in Keys.__annotations__.items() if kind is bytes)


def member(job_id: int) -> bytes:
    """An id as a member of a sorted set, and as a field."""
    return b"%019d" % job_id


def write_job(stamp: bytes, job: Job) -> bytes:
    """A record as it is kept."""
    return stamp + _encode(job)


def read_job(raw: bytes) -> Job:
    """A record as it was kept."""
    return _job(raw[STAMP_BYTES:])


def write_domain(stamp: bytes, at_ms: int, domain: Domain) -> bytes:
    """A domain as it is kept, with the moment of its writer."""
    return stamp + b"%0*d" % (MOMENT_BYTES, at_ms) + _encode(domain)


def read_domain(raw: bytes) -> tuple[int, Domain]:
    """A domain as it was kept, and the moment of its writer."""
    return int(raw[STAMP_BYTES : STAMP_BYTES + MOMENT_BYTES]), _domain(raw[STAMP_BYTES + MOMENT_BYTES :])


def write_body(body: Body) -> bytes:
    """A body behind a letter that tells text from bytes."""
    return b"s" + body.encode() if isinstance(body, str) else b"b" + body


def read_body(raw: bytes) -> Body:
    """A body as it was given."""
    if raw[:1] == b"b":
        return raw[1:]
    try:
        return raw[1:].decode() if raw[:1] == b"s" else Unreadable(raw)
    except UnicodeDecodeError:
        return Unreadable(raw[1:])


def write_item(key: bytes | None, body: Body) -> bytes:
    """An item of a log."""
    return pack((key, *((b"s", body.encode()) if isinstance(body, str) else (b"b", body))))


def read_item(raw: bytes) -> tuple[bytes | None, Body]:
    """An item of a log: its key and its body."""
    key, sort, body = _item(raw)
    return key, body.decode() if sort == b"s" else body


def joined(*parts: str | bytes | int) -> bytes:
    """A name made of parts. All but the last are without NUL, so none can be mistaken; in their order."""
    return b"\0".join(part if isinstance(part, bytes) else str(part).encode() for part in parts)


def count_field(key: CountKey) -> bytes:
    """What is counted, as a field."""
    return joined(key.tenant, key.task, int(key.place), key.state.value)


def write_unique(holder: Unique) -> bytes:
    """Who holds a key."""
    return b"%d %d" % (holder.job_id, holder.until_ms)


def read_unique(key: UniqueKey, raw: bytes) -> Unique:
    """Who holds a key."""
    job_id, until_ms = raw.split()
    return Unique(tenant=key[0], task=key[1], key=key[2], job_id=int(job_id), until_ms=int(until_ms))
