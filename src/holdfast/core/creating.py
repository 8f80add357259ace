"""How lines of text become new jobs, new jobs `Add` commands, and a `NewJob` a `Job`."""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from . import rank
from .bounds import BATCH_JOBS, DEFAULT_PRIORITY, FULL_BATCH_BYTES
from .checks import check_body, check_new
from .commands import Add, Hold, NewJob
from .defaults import kept_names
from .errors import BadInput
from .job import Body, Job, Place, size_of
from .rules import repeat_text

# The fields that do not depend on the caller: the same for most jobs of a task.
_COMMON = tuple(name for name in NewJob.__struct_fields__ if name not in ("data", "id", "traceparent"))
# All fields of a new job except id and data. If two new jobs in one transaction have these in common, their
# records differ only in id and data: stores write them with shared columns (`NewJobs`).
_common_of: Callable[[NewJob], tuple[Any, ...]] = attrgetter(*_COMMON)
alike: Callable[[NewJob], tuple[Any, ...]] = attrgetter(*_COMMON, "traceparent")


def add_commands(calls: Iterable[NewJob | Body], hold: Hold | None = None) -> Iterator[Add]:
    """Yield commands for all jobs, each for one transaction.

    Jobs are checked. Data alone, which was checked when it was written, is a job like the one before it.
    Similar jobs at the end of a command are one record and their data.
    """
    jobs: list[NewJob] = []
    more: list[Body] = []
    last: NewJob | None = None
    # The last record without its data; None if no job can be like it.
    said: tuple[Any, ...] | None = None
    count = size = 0
    for new in calls:
        is_like = True
        if not isinstance(new, NewJob):
            data = new
        elif not new.id and alike(new) == said:
            data = new.data
            check_body("data", data)
        else:
            check_new(new)
            jobs += [replace(jobs[-1], data=one) for one in more]
            jobs.append(new)
            more, is_like = [], False
            last, said, data = new, None if new.id else alike(new), new.data
        if is_like and jobs:
            more.append(data)
        elif is_like:
            assert last is not None
            jobs.append(replace(last, data=data))
        count, size = count + 1, size + (len(data) if data.isascii() else size_of(data))
        if count >= BATCH_JOBS or size > FULL_BATCH_BYTES:
            yield Add(jobs=tuple(jobs), more=tuple(more), hold=hold)
            jobs, more, count, size = [], [], 0, 0
    if count:
        yield Add(jobs=tuple(jobs), more=tuple(more), hold=hold)


def create(new: NewJob, *, job_id: int, now_ms: int, kind: tuple[Any, ...] = ()) -> Job:
    """Return the new record: due at once, or at its time. `kind` is `alike(new)`, if the caller has it."""
    run_at = new.run_at or now_ms + new.delay_ms
    expires_at = new.expires_at or (now_ms + new.expires_in_ms if new.expires_in_ms else 0)
    base, waits, data = _prototype(kind[:-1] or _common_of(new)), run_at > now_ms, new.data
    return replace(
        base,
        id=job_id,
        created_at=now_ms,
        run_at=run_at,
        expires_at=expires_at,
        size=len(data) if data.isascii() else size_of(data),
        place=Place.SCHEDULED if waits else Place.READY,
        rank=run_at if waits else rank.ready(base.priority, run_at),
        then_id=new.then.id if new.then else 0,
        traceparent=new.traceparent,
    )


def _stored(follower: NewJob | None) -> str:
    return msgspec.json.encode(replace(follower, id=0)).decode() if follower else ""


@lru_cache(maxsize=1024)
def _prototype(common: tuple[Any, ...]) -> Job:
    """The fields that depend neither on the time nor on the data: the same for most jobs of a task."""
    new = NewJob(**dict(zip(_COMMON, common, strict=True)))
    return Job(
        id=0,
        task=new.task,
        tenant=new.tenant,
        priority=DEFAULT_PRIORITY if new.priority is None else new.priority,
        max_attempts=new.max_attempts,
        max_losses=new.max_losses,
        backoff=new.backoff,
        timeout_ms=new.timeout_ms,
        retry_after=new.retry_after,
        repeat=repeat_text(new.repeat, strict=new.strict) if not new.mock else "",
        unique=new.unique,
        unique_for_ms=new.unique_for_ms,
        domain=new.domain,
        schedule=new.schedule,
        then=_stored(new.then),
        into=new.into,
        on_failure=_stored(new.on_failure),
        parent_id=new.parent_id,
        wait_for_failed=new.wait_for_failed,
        mock=new.mock,
        strict=new.strict,
        given=kept_names(new.given),
    )


def check_line_names(tenant: str, task: str) -> None:
    """Refuse names for which TENANT-TASK would be ambiguous."""
    if any(char in task for char in ",|\n"):
        raise BadInput("task", task, needed="without , | and newline in lines of jobs")
    if any(char in tenant for char in "-,|\n"):
        raise BadInput("tenant", tenant, needed="without - , | and newline in lines of jobs")


def body_of_line(line: str | bytes) -> Body | None:
    """The data of a line: JSON text or bytes; None for an empty line or a comment."""
    raw = line.encode() if isinstance(line, str) else line
    raw = raw.removesuffix(b"\n")
    if not raw or raw.startswith(b"#"):
        return None
    try:
        msgspec.json.decode(raw, type=msgspec.Raw)
        return raw.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return raw


def adds_of_lines(tenant: str, task: str, lines: Iterable[str | bytes]) -> Iterator[Add]:
    """Commands that add a job for each line with data; each command fits a transaction."""
    check_line_names(tenant, task)
    if isinstance(lines, str | bytes):
        raise BadInput("lines", lines, needed="a list of lines: text would be a job for each character")
    bodies = (body for line in lines if (body := body_of_line(line)) is not None)
    first = next(bodies, None)
    if first is not None:
        yield from add_commands(chain([NewJob(task=task, tenant=tenant, data=first)], bodies))
