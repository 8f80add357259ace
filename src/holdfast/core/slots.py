"""Slots of jobs, keys and rows. See docs/decisions/0010.

There are 64 slots, and shard = slot mod N. A store that is not sharded has all of them.
"""

from binascii import a2b_base64
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from . import ids
from . import kinds as k
from .commands import Add, NewJob
from .errors import BadInput
from .job import Job

_OF_SHARDS = "where there are several shards"
CHILD_DOMAIN = f"its parent's, or absent, {_OF_SHARDS}: a child lives with its parent, a job with its domain"
# Allowed numbers of shards: powers of two, so that all shards have equally many slots.
SHARDS = (1, 2, 4, 8, 16, 32, 64)


def slot_in(job_id: int) -> int:
    """The slot of a job."""
    return job_id & (ids.SLOTS - 1)


def shard_of(job_id: int, shards: int) -> int:
    """The shard of a job, of `count`."""
    return (job_id & (ids.SLOTS - 1)) % shards


def slot_for(new: NewJob | Job) -> int | None:
    """The slot that a job must have: that of its parent, its domain or its unique key; None: any.

    At the job-command port a unique job conflicts with any job of its name, so these share a slot.
    """
    if new.parent_id:
        return slot_in(new.parent_id)
    if new.domain is not None:
        return ids.slot_of(new.tenant, new.domain)
    if new.unique is not None:
        return ids.slot_of(new.tenant, new.task, new.unique)
    if new.strict:
        return ids.slot_of(new.tenant, new.task, new.task.encode())
    return None


def check_one_slot(new: NewJob) -> None:
    """Refuse a job that would belong in two slots, as no command concerns two shards.

    Its parent, its domain and its unique key must be in one slot, which an id of the caller's names too; and
    all jobs that follow it are there, so they have its domain or none.
    """
    slot = slot_for(new)
    if new.parent_id and new.domain is not None and ids.slot_of(new.tenant, new.domain) != slot:
        raise BadInput("domain", new.domain, needed=CHILD_DOMAIN)
    if new.id and not new.strict and slot not in (None, slot_in(new.id)):
        needed = f"of slot {slot}, where its parent, its domain or its unique key is"
        raise BadInput("id", new.id, needed=needed)
    check_followers(new.followers, new.domain)


def check_followers(followers: Iterable[NewJob], domain: bytes | None) -> None:
    """Refuse follow-up jobs of a job with this domain that would belong in another slot than that."""
    for new in followers:
        if new.domain is not None and new.domain != domain:
            needed = f"that of the job that it follows, or absent, {_OF_SHARDS}"
            raise BadInput("the domain of a follow-up job", new.domain, needed=needed)
        if new.unique is not None and new.domain is None:
            needed = f"absent {_OF_SHARDS}, unless it is in the domain of the job that it follows"
            raise BadInput("the unique key of a follow-up job", new.unique, needed=needed)
        check_followers(new.followers, domain)


def with_slots(command: Add, bare: Sequence[int]) -> Add:
    """Return a command with its ids, given in slot 0, moved to the slots that the jobs must have.

    Jobs that may have any slot share one, so that they are added in one transaction on one shard.
    """
    anywhere = bare[0] // ids.SLOTS % ids.SLOTS
    slots = [anywhere if (slot := slot_for(new)) is None else slot for new in command.jobs]
    slots += [slots[-1]] * len(command.more)
    return replace(command, ids=tuple(map(int.__add__, bare, slots)))


def slot_of_schedule(name: str, new: NewJob) -> int:
    """The slot of a schedule, and of its jobs: that of their domain or unique key, or else of its name."""
    slot = slot_for(new)
    return ids.slot_of(new.tenant, name) if slot is None else slot


def slot_of_indexed(tenant: str) -> int:
    """The slot of the consumers and logs of a tenant."""
    return ids.slot_of(tenant)


def slot_of_worker(name: str) -> int:
    """The slot of a worker's registration."""
    return ids.slot_of("", name)


def slot_of_record(table: str, key: str) -> int | None:
    """The slot of a row; None: it is in every shard."""
    find = _RECORDS.get(table)
    if find is not None:
        return find(key)
    slot = slot_of_table(table)
    return ids.slot_of("", table, key) if slot is None else slot


def slot_of_table(table: str) -> int | None:
    """The slot of all rows of a table; None: it depends on the row."""
    kind, _, log = table.partition(" ")
    return slot_of_record(k.LOG, log) if kind in (k.LOG_ITEMS, k.LOG_KEYS) else None


def _everywhere(_name: str) -> None:
    return None


def _paused(name: str) -> int | None:
    tenant, _, domain = msgspec.json.decode(name, type=tuple[str | None, str | None, bytes | None])
    return None if domain is None else ids.slot_of(tenant or "", domain)


def _chore(name: str) -> int | None:
    kind, subject = msgspec.json.decode(name, type=tuple[str, str])
    return None if kind == "domains" else _number(subject)


def _number(name: str) -> int:
    return int(name) % ids.SLOTS


def _of_key(tenant: str, task: str, scope: int | str | None, key: str, *hashed: int) -> int:
    """The slot of a unique key by the parts of its name: that of its job."""
    if hashed:
        return hashed[0]
    if isinstance(scope, int):
        return slot_in(scope)
    if scope is not None:
        return ids.slot_of(tenant, a2b_base64(scope))
    # Without the mark of real or mocked jobs.
    return ids.slot_of(tenant, task, a2b_base64(key).partition(b":")[2])


def _by(read: Any, find: Callable[..., int]) -> Callable[[str], int]:
    def slot(name: str) -> int:
        try:
            return find(*msgspec.json.decode(name, type=read))
        except msgspec.MsgspecError:
            # An unknown format of key: any slot, but always the same.
            return ids.slot_of("", name)

    return slot


_RECORDS: dict[str, Callable[[str], int | None]] = {
    **dict.fromkeys((k.DOMAIN, k.LIMIT), _by(tuple[str, bytes], ids.slot_of)),
    k.PATTERNS: _everywhere,
    k.SETTING: _everywhere,
    k.SHARD: _everywhere,
    k.TASK: _everywhere,
    k.HANDLED: _everywhere,
    k.HANDLER: _by(tuple[str, str], ids.slot_of),
    k.HANDLER_VERSION: _by(tuple[str, str, str], lambda tenant, task, _: ids.slot_of(tenant, task)),
    k.PAUSE: _paused,
    # The key ends with the number of its shard.
    k.HISTORY: lambda name: _number(name[-2:]),
    k.SYSID: _number,
    k.FLOOR: _number,
    k.NUMBER: _number,
    k.JOB_LOG: _number,
    k.STEPS: _by(tuple[str, str], lambda job, _: _number(job)),
    **dict.fromkeys((k.SIGNALS, k.SIGNAL_KEY), _by(tuple[str, str, str], lambda job, *_: _number(job))),
    k.CHORE: _chore,
    k.PROGRESS: _by(tuple[str, str], lambda tenant, _: slot_of_indexed(tenant)),
    k.LOG: _by(tuple[str, str], lambda tenant, _: slot_of_indexed(tenant)),
    k.UNIQUE: _by(tuple[Any, ...], _of_key),
    k.WORKER: slot_of_worker,
}
