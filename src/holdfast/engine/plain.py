"""What users do most, without a working set: the only place that says which commands are plain.

    adds      Changes at once, from the template of each group     ─▶ store.commit
    answers   a batch on a transaction that has nothing to read    ─▶ store.commit; steps too
    a claim   one query                                            ─▶ store.lease

A command is plain if it needs nothing from the store: an add of jobs without unique key, domain, parent and
follow-up; an answer or a step that brings the record of such a job; a claim while nothing is due. Whatever
turns out to need more, and whatever the store refuses, becomes a batch (`Engine.execute`), which knows all
the rules.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NoReturn

from ..core import commands as c
from ..core import creating, defaults, ids
from ..core.bounds import CLAIM_JOBS
from ..core.defaults import Published
from ..core.job import Job, State, damaged_bodies
from ..store.contract import JOBS, Changes, ClaimQuery, CountKey, Leased, NewJobs, leased_all
from .batch.new_jobs import NewJobGroups
from .sysid import IdSource, OwnSysid


class NeedsRead(Exception):
    """The commands are not plain: they need something from the store."""


class NothingToRead:
    """A transaction for a batch that reads nothing: every read and every early write raises `NeedsRead`."""

    jump = None

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def __getattr__(self, name: str) -> NoReturn:
        raise NeedsRead(name)


def are_adds(commands: Sequence[c.Command]) -> bool:
    """Whether these are plain adds."""
    for command in commands:
        if type(command) is not c.Add or command.hold is not None:
            return False
        for new in command.jobs:
            # `adding.is_free`, inlined to save a call.
            if (
                new.unique is not None
                or new.domain is not None
                or new.then is not None
                or new.id
                or new.parent_id
            ):
                return False
    return True


def are_answers(commands: Sequence[c.Command]) -> bool:
    """Whether these are plain answers and steps, and perhaps plain adds."""
    for command in commands:
        kind = type(command)
        if kind is c.Answer or kind is c.Step:
            held: Sequence[Job | None] = (command.held,)  # type: ignore[attr-defined]
        elif kind is c.AnswerAll:
            held = command.held or (None,)  # type: ignore[attr-defined]
        elif are_adds((command,)):
            continue
        else:
            return False
        for job in held:
            if (
                job is None
                or job.unique is not None
                or job.domain is not None
                or job.parent_id
                or job.then
                or job.on_failure
            ):
                return False
    return True


def changes_of_adds(
    commands: Sequence[Any], source: IdSource, held: OwnSysid | None, slots: range, now_ms: int
) -> tuple[Changes, list[list[int]]] | None:
    """What plain adds write, and the ids for each; None if the sysid must be leased or renewed first."""
    command, *others = commands
    if held is None:
        return None
    if len(command.jobs) != 1 or others or command.more or command.ids:
        return _changes_of_groups(commands, source, held, slots, now_ms)
    # Most adds. Groups of similar jobs would be a third of the work.
    (new,), tick = command.jobs, source.tick_within(held, now_ms)
    if tick is None:
        return None
    job_id = ids.pack(tick, held.number, slots[tick % len(slots)])
    job = creating.create(new, job_id=job_id, now_ms=now_ms)
    counts = {_count_key(job.tenant, job.task, job.place, State.QUEUED): 1}
    groups = (NewJobs(job, ((job_id, new.data),), is_fresh=True),)
    return Changes(added=groups, counts=counts, wake=JOBS), [[job_id]]


def _changes_of_groups(
    commands: Sequence[Any], source: IdSource, held: OwnSysid, slots: range, now_ms: int
) -> tuple[Changes, list[list[int]]] | None:
    """The same for many jobs, in groups of similar ones."""
    new_jobs, width = NewJobGroups(), len(slots)
    replies: list[list[int]] = []
    for command in commands:
        # Reserved ids may be those of jobs that the same command has added before.
        made, is_fresh = list(command.ids), not command.ids
        for at, new in enumerate(command.jobs):
            if is_fresh:
                tick = source.tick_within(held, now_ms)
                if tick is None:
                    return None
                made += (ids.pack(tick, held.number, slots[tick % width]),)
            new_jobs.add(new, job_id=made[at], now_ms=now_ms, is_fresh=is_fresh)
        if command.more:
            if is_fresh:
                ticks = source.ticks_within(held, len(command.more), now_ms)
                if ticks is None:
                    return None
                made += ids.pack_all(ticks, held.number, slots)
            new_jobs.add_more(list(zip(made[len(command.jobs) :], command.more, strict=True)))
        replies += (made,)
    groups = new_jobs.take()
    counts: dict[CountKey, int] = {}
    for group in groups:
        job = group.template
        key = _count_key(job.tenant, job.task, job.place, State.QUEUED)
        counts[key] = counts.get(key, 0) + len(group.rows)
    return Changes(added=groups, counts=counts, wake=JOBS), replies


_count_key = lru_cache(maxsize=4096)(CountKey)


def query_of(command: c.Claim, *, owner: int, now_ms: int) -> ClaimQuery:
    """The query of a plain claim to the store."""
    return ClaimQuery(
        owner=owner,
        now_ms=now_ms,
        limit=min(command.limit, CLAIM_JOBS),
        lease_until=now_ms + command.lease_ms if command.lease_ms else 0,
        tenant=command.tenant,
        tasks=command.tasks,
        glob=command.glob,
        priority=command.priority,
        mock=command.mock,
        tenants=command.tenants,
        picks=command.picks,
        start=command.start,
    )


def reply_of(leased: Sequence[Leased], query: ClaimQuery) -> list[c.Claimed]:
    """The reply to a claim that has leased these jobs."""
    now = leased_all([job for job, _ in leased], query)
    return [
        c.Claimed(job=after, data=data, last_run=before.started_at)
        for after, (before, data) in zip(now, leased, strict=True)
    ]


def are_plain(leased: Sequence[Leased], published: Published) -> bool:
    """Whether leased jobs can run as they are: their data is sound, their tasks' defaults change nothing."""
    bodies = {job.id: body for job, body in leased}
    if damaged_bodies(list(bodies), bodies):
        return False
    return not published or all(defaults.follow(job, published) is job for job, _ in leased)


def releases(claimed: Sequence[c.Claimed]) -> list[c.Command]:
    """Commands that undo a claim."""
    return [c.Release(hold=c.hold_of(one.job), lease_until=one.job.lease_until) for one in claimed]
