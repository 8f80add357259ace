"""Jobs and bodies as statements take them: an array for each column; what jobs share that are alike, once."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from ...core.job import Body, Job
from ..common.form import encode, rest_of, rest_parts
from .statements import COLUMNS, numbers, raws, switches, texts

# Data of so many characters or bytes stands beside its job, and is written again whenever that is; what is
# larger is kept apart, and written once. From about 500 on that costs the server less.
BESIDE = 400

# What is so of every new job that stands alone, and is not told of those that are alike.
_NEW = {"domain": None, "parent_id": 0, "ended": None, "lapsed": False, "version": 1}
_NEW |= {"owner": 0, "lease_until": 0, "started_at": 0, "claim": 0}
_unlike_new, _AS_NEW = attrgetter(*_NEW), tuple(_NEW.values())
# Of jobs that are not all of their batch.
_PART = dict.fromkeys(("at_ms", "mark", "state", "first_lock", "second_lock"))

_ARRAYS: dict[str, Callable[[Any], str]] = {"boolean": switches, "text": texts, "bytea": raws}


def columns(jobs: Sequence[Job]) -> dict[str, Any]:
    """Jobs as arrays, one for each column."""
    values = zip(*map(row, jobs), strict=True)
    return {
        name: _ARRAYS.get(kind, numbers)(column)
        for (name, kind), column in zip(COLUMNS.items(), values, strict=True)
    }


def bodies(some: Sequence[Body]) -> dict[str, str]:
    """Bodies as two arrays: text in one, bytes in the other, which is empty where all are text."""
    raw = [body if isinstance(body, bytes) else None for body in some]
    if raw.count(None) == len(raw):
        return {"bodies": texts(some), "raws": "{}"}  # type: ignore[arg-type]
    text = texts(body if isinstance(body, str) else None for body in some)
    return {"bodies": text, "raws": raws(raw)}


def is_new(job: Job) -> bool:
    """Whether a job is as it was made, without a domain or a parent: such are written by `alike`."""
    return _unlike_new(job) == _AS_NEW


def alike(template: Job, rows: Sequence[tuple[int, Body]]) -> dict[str, Any]:
    """New jobs that are as `template`: what they share once, their ids and data as arrays."""
    ids, some = zip(*rows, strict=True)
    _, middle, tail = rest_parts(template)
    return {
        "tenant": template.tenant,
        "task": template.task,
        "place": int(template.place),
        "rank": template.rank,
        "expires_at": template.expires_at,
        "mock": template.mock,
        "retries": bool(template.retry_after),
        "schedule": template.schedule,
        "ids": numbers(ids),
        **bodies(some),
        "apart": max(map(len, some)) > BESIDE,
        "middle": middle,
        "tail": tail,
        **_PART,
    }


def kept(jobs: Sequence[Job]) -> dict[str, str]:
    """Jobs as the archive has them; what none of them has is an array without any."""
    return {
        "finished": numbers([job.finished_at for job in jobs]),
        "parents": numbers([job.parent_id for job in jobs]) if any(job.parent_id for job in jobs) else "{}",
        "tenants": texts([job.tenant for job in jobs]) if any(job.tenant for job in jobs) else "{}",
        "tasks": texts([job.task for job in jobs]),
        "states": texts([job.state.value for job in jobs]),
        "schedules": texts([job.schedule for job in jobs]) if any(job.schedule for job in jobs) else "{}",
        "domains": raws([job.domain for job in jobs])
        if any(job.domain is not None for job in jobs)
        else "{}",
        "records": texts([encode(job).decode() for job in jobs]),
    }


def row(job: Job) -> tuple[Any, ...]:
    """A job in the order of the columns."""
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
        job.mock,
        job.lapsed,
        bool(job.retry_after),
        job.ended.value if job.ended else "",
        job.expires_at,
        job.parent_id,
        job.domain,
        job.schedule,
        rest_of(job),
    )
