"""Unique keys: which job holds a key, and what a second add with the key does to it.

A key belongs to a tenant, task and domain, that of a child to a task of its parent; so it is in the slot of
its job. It is held by a job that has not ended. If the job was added through the job-command port, a FAILED
job holds it too. With `unique_for` it is held for some time after the end.
"""

from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from .commands import NewJob
from .errors import BadInput, Refused
from .ids import slot_of
from .job import Body, Job, Place, Record, State
from .kinds import name_of
from .rules import FRESH, WITHOUT_STEPS, expiring, queued, repeat_text, update, waits_for_signal

HAS_BEGUN = "the holder of its unique key, with steps to undo"
# Longer domains are in row keys by their hash and slot: an index of PostgreSQL has at most 2,700 bytes.
DOMAIN_IN_FULL = 64


class UniqueKey(NamedTuple):
    """A key, and what it belongs to; `scope`: the parent or the domain of its job."""

    tenant: str
    task: str
    scope: int | bytes | None
    key: bytes

    @property
    def name(self) -> str:
        """The key of its row, which tells its slot (`core.slots`)."""
        scope = self.scope
        if isinstance(scope, bytes) and len(scope) > DOMAIN_IN_FULL:
            from hashlib import blake2b

            digest = blake2b(scope, digest_size=16).digest()
            return name_of(self.tenant, self.task, digest, self.key, slot_of(self.tenant, scope))
        return name_of(self.tenant, self.task, scope, self.key)


class Unique(Record, frozen=True, kw_only=True):
    """The holder of a key; `until_ms` 0: until that job ends."""

    tenant: str
    task: str
    scope: int | bytes | None = None
    key: bytes
    job_id: int
    until_ms: int = 0

    @property
    def id(self) -> UniqueKey:
        """The key."""
        return UniqueKey(self.tenant, self.task, self.scope, self.key)


read_unique = msgspec.json.Decoder(Unique).decode


def key_of(job: Job | NewJob) -> UniqueKey | None:
    """The key that a job holds. Mocked jobs have separate keys."""
    if job.unique is None:
        return None
    mark = b"mock:" if job.mock else b"real:"
    return UniqueKey(job.tenant, job.task, job.parent_id or job.domain, mark + job.unique)


def held_after(job: Job) -> Unique | None:
    """The key of a job in its current state: held, held for some time, or (None) free."""
    key = key_of(job)
    if key is None:
        return None
    until = 0
    if job.place == Place.DONE and not (job.strict and job.ended == State.FAILED):
        if not job.unique_for_ms:
            return None
        until = job.finished_at + job.unique_for_ms
    return Unique(**key._asdict(), job_id=job.id, until_ms=until)


def hit(job: Job, old: Body, new: NewJob, *, now_ms: int) -> tuple[Job, Body | None]:
    """The holder of a key after another add with it, and its new data, or None if that does not change.

    `keep` changes nothing; `merge` merges the data by RFC 7396; `replace` sets data and time (a debounce). A
    running job runs once more, with the change. By the documents, a merge with equal data changes nothing.
    A function with steps to undo is not changed: what undoes them may depend on its data.
    """
    if new.on_conflict == "keep" or (job.place == Place.DONE and not job.strict):
        return job, None
    merges = new.on_conflict == "merge"
    data = merged(old, new.data) if merges else new.data
    if merges and data == old and (not new.strict or same(old, new.data)):
        return job, None
    if job.compensates:
        raise Refused(new.on_conflict, job.id, found=HAS_BEGUN, needed=WITHOUT_STEPS)
    if merges:
        repeat = repeat_text(new.repeat, strict=new.strict) or job.repeat
        job = replace(update(job, now_ms=now_ms, priority=new.priority), repeat=repeat)
        run_at = job.run_at if job.place != Place.RUNNING else now_ms
    else:
        run_at = new.run_at or now_ms + new.delay_ms
        expires_at = new.expires_at or (now_ms + new.expires_in_ms if new.expires_in_ms else 0)
        job = expiring(job, expires_at) if job.expires_at or expires_at else job
    if job.strict:
        return job, data
    if job.place == Place.PAUSED and not waits_for_signal(job):
        # It is queued for this time when its family lets it run.
        return replace(job, run_at=run_at), data
    if job.place == Place.RUNNING:
        # A request to stop was about the work before this change.
        return replace(job, again_at=max(run_at, 1), cancel_requested=False), data
    # A job whose lease expired may still be finished by its holder, which does not have the new data.
    kept = {"owner": job.owner, "lapsed": job.lapsed, "again_at": max(run_at, 1) if job.owner else 0}
    # It may still be the one that kills its process.
    kept |= {"losses": job.losses, "crowd_limit": job.crowd_limit}
    return queued(job, run_at=run_at, now_ms=now_ms, **(FRESH | kept)), data


def merged(old: Body, new: Body) -> Body:
    """RFC 7396: objects merge, null deletes, everything else replaces."""
    if isinstance(old, bytes) or isinstance(new, bytes):
        return new
    try:
        before, patch = msgspec.json.decode(old), msgspec.json.decode(new)
    except msgspec.DecodeError as error:
        raise BadInput("data", "text", needed=f"JSON, to be merged ({error})") from None
    after = _merge(before, patch)
    return old if after == before else msgspec.json.encode(after).decode()


def same(old: Body, new: Body) -> bool:
    """Whether two bodies are equal as JSON."""
    if old == new or isinstance(old, bytes) or isinstance(new, bytes):
        return old == new
    return bool(msgspec.json.decode(old) == msgspec.json.decode(new))


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value)
    return result
