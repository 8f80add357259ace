"""The keys of a store in Redis, the encodings of values, and the sorted sets that contain a job.

    {hf:NAME:0}:jobs                hash    id ▸ stamp, record, data     :archive the same
    {hf:NAME:0}:results             hash    id ▸ letter, body            :data the same, if it is large
    {hf:NAME:0}:job_queue_TASK      sorted  READY jobs of a task by rank
    {hf:NAME:0}:in_process_queue    sorted  RUNNING jobs by the end of their lease
    {hf:NAME:0}:rows:TABLE          hash    key ▸ stamp, value
    …                               docs/decisions/0009 has them all

All keys of a store have one hash tag, and so one slot of a cluster. An id is written with 19 digits, because
members with equal scores are ordered as text. A **stamp** begins with the time of the batch that wrote the
value, and is different for each commit. The code calls the sorted sets **orders**.

The value of a job is its stamp, its record in JSON, a NUL, while it is READY the longest lease with which it
starts plainly (`plain_lease_ms`; none: any), and its data: a letter and the body.
"""

import os
import random
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from ...core.history import NO_PLACE
from ...core.job import ANY_LEASE_MS, COUNTED, Body, Job, Place, Unreadable, plain_lease_ms
from ...core.kinds import DOMAIN, PAUSE, name_of
from ...core.limits import DomainKey
from ..contract import CountKey, TallyKey

STAMP_BYTES, _TIME_BYTES = 12, 6
_RANDOM_BITS = 8 * (STAMP_BYTES - _TIME_BYTES)
# Larger data is in a hash of its own, which listings do not read.
INLINE_BYTES = 4 * 1024
# Stands in the value of a job for data in the separate hash.
LARGE = b"L"
# How many keys and moves are cached, as every job needs its own.
REMEMBERED = 10_000
# Which score a job has in an order.
ZERO, RANK, EXPIRY = range(3)

Pair = tuple[str, str]
# What determines the orders of a job: place, tenant, task, mock, domain, parent, whether it expires.
Kind = tuple[Place, str, str, bool, bytes | None, int, bool]

# The places in which a job may expire.
EXPIRABLE = (Place.SCHEDULED, Place.READY, Place.HELD, Place.PAUSED)
_PLACES = {
    Place.SCHEDULED: b"scheduled",
    Place.READY: b"ready",
    Place.HELD: b"held",
    Place.RUNNING: b"in_process_queue",
    Place.PAUSED: b"paused",
    Place.DONE: b"done",
}
encode_job = msgspec.json.Encoder().encode
_decode_job = msgspec.json.Decoder(Job).decode
_decode_jobs = msgspec.json.Decoder(list[Job]).decode


class Move(NamedTuple):
    """The orders that jobs leave and enter when their kind changes."""

    leave: tuple[bytes, ...]
    # An order, and which score.
    enter: tuple[tuple[bytes, int], ...]


class Keys:
    """The keys of one store."""

    def __init__(self, prefix: str, shard: int = 0) -> None:
        self.base = b"{hf:%s:%d}:" % (prefix.encode(), shard)
        for name in _FIXED:
            setattr(self, name, self.base + name.encode())
        self.places = {place: self.base + name for place, name in _PLACES.items()}
        # The keys that commit.lua finds by position; then those that most plans use.
        fixed = (self.marks, self.version, self.versions, self.pairs, self.jobs)
        named = (self.archive, self.ids, self.counts, self.ready, self.in_process_queue)
        self.of_every_plan = (*fixed, *named)
        self.of_every_add = (
            self.version,
            self.jobs,
            self.ids,
            self.ready,
            self.counts,
            self.pairs,
            self.marks,
        )
        due = (self.in_process_queue, self.places[Place.SCHEDULED], self.expiring, self.due_rows(DOMAIN))
        self.of_every_lease = (
            *(self.version, self.jobs, self.data, self.counts, self.pairs, self.marks, self.ready),
            *(self.rows(PAUSE), *due),
        )
        self.positions = {key: at for at, key in enumerate(self.of_every_plan, start=1)}
        self._queues: dict[tuple[str, str, bool], bytes] = {}
        self._moves: dict[tuple[Kind | None, Kind | None], Move] = {}
        self._fields: dict[CountKey | TallyKey, bytes] = {}

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
    counts: bytes
    pairs: bytes
    versions: bytes
    marks: bytes
    version: bytes
    notice: bytes

    def queue(self, tenant: str, task: str, *, mock: bool = False) -> bytes:
        """The READY jobs of a tenant's task by rank."""
        found = self._queues.get((tenant, task, mock))
        if found is None:
            name = f"{'mock' if mock else 'job'}_queue_{task}"
            found = self.base + (f"tenant:{quote(tenant, safe='')}:{name}" if tenant else name).encode()
            if len(self._queues) >= REMEMBERED:
                self._queues = {}
            self._queues[tenant, task, mock] = found
        return found

    def all_ready(self, *, mock: bool) -> bytes:
        """All READY jobs by rank; mocked ones have their own."""
        return self.ready_mock if mock else self.ready

    def domain(self, name: str) -> bytes:
        """All live jobs of a domain by id; `name` is the key of the domain's row."""
        return self.base + b"domain:" + name.encode()

    def domain_queue(self, key: DomainKey, task: str, place: Place) -> bytes:
        """The jobs of a task of a domain in a place by rank."""
        return self.base + f"domain_queue:{int(place)}:{name_of(key[0], task, key[1])}".encode()

    def children(self, parent_id: int, place: Place) -> bytes:
        """The live children of a job in a place by id."""
        return self.base + b"children:%d:%d" % (parent_id, place)

    def rows(self, table: str) -> bytes:
        """The rows of a table by key."""
        return self.base + b"rows:" + table.encode()

    def row_keys(self, table: str) -> bytes:
        """The keys of a table in order."""
        return self.base + b"row_keys:" + table.encode()

    def due_rows(self, table: str) -> bytes:
        """The keys of rows that have a due time, by that time."""
        return self.base + b"due_rows:" + table.encode()

    def here(self, name: str) -> bytes:
        """The presence key of a process."""
        return self.base + b"here:" + name.encode()

    def orders(self, kind: Kind) -> dict[bytes, int]:
        """The orders of live jobs of a kind, and which score they have in each."""
        place, tenant, task, mock, domain, parent_id, expires = kind
        is_ready = place is Place.READY
        orders = {self.ids: ZERO, self.all_ready(mock=mock) if is_ready else self.places[place]: RANK}
        if is_ready:
            orders[self.queue(tenant, task, mock=mock)] = RANK
        if domain is not None:
            orders[self.domain_queue((tenant, domain), task, place)] = RANK
            orders[self.domain(name_of(tenant, domain))] = ZERO
        if parent_id:
            orders[self.children(parent_id, place)] = ZERO
        if expires and place in EXPIRABLE:
            orders[self.expiring] = EXPIRY
        return orders

    def scores(self, job: Job) -> dict[bytes, int]:
        """The score of a live job in each of its orders."""
        scores = (0, job.rank, job.expires_at)
        return {key: scores[by] for key, by in self.orders(kind_of(job)).items()}

    def move(self, before: Kind | None, after: Kind | None) -> Move:
        """The move of jobs from one kind to another; None: they are added or removed."""
        if (before, after) not in self._moves:
            if len(self._moves) >= REMEMBERED:
                self._moves = {}
            self._moves[before, after] = self._new_move(before, after)
        return self._moves[before, after]

    def _new_move(self, before: Kind | None, after: Kind | None) -> Move:
        old = self.orders(before) if before is not None else {}
        new = self.orders(after) if after is not None else {}
        leave = [key for key in old if key not in new]
        if before is not None and before[0] is Place.READY and self.in_process_queue not in new:
            # Another claim may have taken the job: its commit will find that the record has changed.
            leave.append(self.in_process_queue)
        enter = tuple((key, by) for key, by in new.items() if key not in old or by != ZERO)
        return Move(tuple(leave), enter)

    def count_field(self, key: CountKey | TallyKey) -> bytes:
        """The field of a count in the hash of counts."""
        if key not in self._fields:
            if len(self._fields) >= REMEMBERED:
                self._fields = {}
            tenant, task, place, state = key
            # A tally has no place: it is there beside the counts.
            self._fields[key] = f"{tenant}\0{task}\0{place:d}\0{state:s}".encode()
        return self._fields[key]


_FIXED = tuple(name for name, kind in Keys.__annotations__.items() if kind is bytes)


def kind_of(job: Job) -> Kind:
    """What determines the orders of a job."""
    return (job.place, job.tenant, job.task, job.mock, job.domain, job.parent_id, job.expires_at > 0)


def member(job_id: int) -> bytes:
    """An id as a member of a sorted set, and as a field."""
    return b"%019d" % job_id


def pair_name(pair: Pair) -> bytes:
    """A tenant's task as a member; no name contains NUL."""
    return f"{pair[0]}\0{pair[1]}".encode()


def pair_of(name: bytes) -> Pair:
    """A tenant's task from its name."""
    tenant, _, task = name.decode().partition("\0")
    return tenant, task


def count_key(field: bytes) -> CountKey:
    """The inverse of `count_field`."""
    tenant, task, place, state = field.decode().split("\0")
    return CountKey(tenant, task, Place(int(place)), COUNTED[state])


def is_tally(field: bytes) -> bool:
    """Whether a field of the hash of counts is a tally."""
    return field.split(b"\0")[2] == b"0"


def tally_key(field: bytes) -> TallyKey:
    """What a field stands for that is a tally."""
    tenant, task, _, kind = field.decode().split("\0")
    return TallyKey(tenant, task, NO_PLACE, kind)


_random = random.Random()
# Otherwise a child would make the stamps of its parent.
os.register_at_fork(after_in_child=_random.seed)
_random_bits = _random.getrandbits


def new_stamp(at_ms: int) -> bytes:
    """A new stamp for a commit of a batch with this time."""
    return (at_ms << _RANDOM_BITS | _random_bits(_RANDOM_BITS)).to_bytes(STAMP_BYTES, "big")


def written_at(raw: bytes) -> int:
    """The time of the batch that wrote a value, from its stamp."""
    return int.from_bytes(raw[:_TIME_BYTES], "big")


def head_of(stamp: bytes, job: Job, record: bytes = b"") -> bytes:
    """The value of a job up to its data."""
    return b"%s%s\0%s" % (stamp, record or encode_job(job), plain_lease(job))


def plain_lease(job: Job) -> bytes:
    """How the value of a job tells the longest lease with which it starts plainly."""
    if job.place is not Place.READY or (lease_ms := plain_lease_ms(job)) == ANY_LEASE_MS:
        return b""
    return b"%d" % lease_ms


def record_of(raw: bytes) -> bytes:
    """The record in the value of a job."""
    return raw[STAMP_BYTES:].partition(b"\0")[0]


def data_of(raw: bytes) -> bytes:
    """The data in the value of a job."""
    return raw[STAMP_BYTES:].partition(b"\0")[2].lstrip(b"0123456789")


def read_job(raw: bytes) -> Job:
    """Decode a record."""
    return _decode_job(record_of(raw))


def read_jobs(raws: Sequence[bytes]) -> list[Job]:
    """Decode many records in one call, which takes half the time of one call each."""
    records = [raw[STAMP_BYTES:].partition(b"\0")[0] for raw in raws]
    jobs = _decode_jobs(b"[%s]" % b",".join(records))
    if len(jobs) != len(raws):
        raise msgspec.DecodeError("a record is not one job")
    return jobs


def write_body(body: Body) -> bytes:
    """Encode a body."""
    return b"b" + body if isinstance(body, bytes) else b"s" + body.encode()


def read_body(raw: bytes) -> Body:
    """Decode a body."""
    if raw[:1] == b"b":
        return raw[1:]
    try:
        return raw[1:].decode() if raw[:1] == b"s" else Unreadable(raw)
    except UnicodeDecodeError:
        return Unreadable(raw[1:])


def read_bodies(raws: dict[int, bytes]) -> dict[int, Body]:
    """Many bodies by id."""
    try:
        return {id: raw[1:].decode() if raw[:1] == b"s" else read_body(raw) for id, raw in raws.items()}
    except UnicodeDecodeError:
        return {id: read_body(raw) for id, raw in raws.items()}
