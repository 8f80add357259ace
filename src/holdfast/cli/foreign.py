"""Jobs of other systems become jobs of a queue, each once: for `holdfast import`.

A function for each system yields its waiting jobs, oldest first, and scheduled ones. The libraries of these
systems are imported where they are needed to decode what they wrote.

read one ──▶ find its task ──▶ its call ──▶ added under a key made of its id ──▶ removed there
                    └──────────────┴─▶ left there, with a reason

A process that ends between the last two has added it, and the next import finds the key and only removes it.
If it cannot be removed, a worker of the other system has it, and the job that was added is cancelled.
"""

import base64
import gzip
import json
import pickle
import sqlite3
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial, wraps
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from ..core.commands import NewJob
from ..core.errors import BadInput, HoldfastError, StoreError, Unavailable
from ..queue.base import BaseQueue
from ..queue.connect import shown_url
from ..queue.options import JobOptions
from ..queue.queue import Queue
from ..queue.task import Task
from ..store.common.clock import system_clock

# How many jobs are added in one transaction.
BATCH_JOBS = 1_000
# How long a job that ended is remembered: an import may be repeated until then.
KEY_S = 30 * 86_400


class ForeignJob(NamedTuple):
    """A job of another system; times are seconds since 1970."""

    id: str
    task: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    # Removes it there; returns whether it was still there.
    remove: Callable[[], bool]
    run_at: float | None = None
    expires_at: float | None = None
    # Why it cannot be taken over; "": it can.
    reason: str = ""


class Imported:
    """What became of the jobs: how many of each task were taken over, and why the others were not."""

    def __init__(self) -> None:
        self.waiting: Counter[str] = Counter()
        self.scheduled: Counter[str] = Counter()
        self.left: Counter[tuple[str, str]] = Counter()

    @property
    def count(self) -> int:
        """How many were taken over."""
        return self.waiting.total() + self.scheduled.total()


class Importer:
    """Takes jobs over into a queue."""

    def __init__(self, queue: BaseQueue, system: str, names: Mapping[str, str]) -> None:
        self._queue, self._system = queue, system
        self._names = {old: self._known(new) for old, new in names.items()}
        for task in queue.tasks.values():
            function = task.function
            self._names.setdefault(f"{function.__module__}.{function.__qualname__}", task)

    def _known(self, name: str) -> Task[..., Any]:
        if name not in self._queue.tasks:
            raise BadInput("task", name, needed=f"one of {', '.join(sorted(self._queue.tasks)) or 'none'}")
        return self._queue.tasks[name]

    def take(self, found: Iterable[ForeignJob], *, dry_run: bool, keep: bool) -> Imported:
        """Take jobs over; with `dry_run` only look, with `keep` leave them there as well."""
        imported = Imported()
        with Queue(self._queue._make_store, url=self._queue.url, tenant=self._queue.tenant) as queue:
            everything = self._calls(found, imported)
            while batch := [*islice(everything, BATCH_JOBS)]:
                handles = [None] * len(batch) if dry_run else queue.add_many(call for _, call in batch)
                for (one, _), handle in zip(batch, handles, strict=True):
                    if handle is None or keep or one.remove():
                        self._count(imported, one)
                    else:
                        handle.cancel()
                        self._count(imported, one, "a worker of the other system has it now")
        return imported

    def _calls(self, found: Iterable[ForeignJob], imported: Imported) -> Iterator[tuple[ForeignJob, NewJob]]:
        for one in found:
            try:
                call = self._call(one)
            except HoldfastError as error:
                self._count(imported, one, str(error))
            else:
                yield one, call

    def _call(self, one: ForeignJob) -> NewJob:
        if one.reason:
            raise HoldfastError(one.reason)
        task = self._find(one.task)
        if one.expires_at is not None and one.expires_at <= system_clock() / 1000:
            raise HoldfastError("it has expired")
        options: JobOptions = {"unique": f"{self._system} {one.id}", "unique_for": KEY_S}
        if one.run_at is not None:
            options["run_at"] = one.run_at
        if one.expires_at is not None:
            options["expires"] = one.expires_at - system_clock() / 1000
        return task.using(**options).call(*one.args, **one.kwargs)

    def _find(self, name: str) -> Task[..., Any]:
        """The task of that name: as given, of that function, or of the last part of the name."""
        task = self._names.get(name) or self._queue.tasks.get(name)
        task = task or self._queue.tasks.get(name.rpartition(".")[2])
        if task is None:
            raise HoldfastError(f"the queue has no such task: give --task {name}=NAME")
        return task

    def _count(self, imported: Imported, one: ForeignJob, reason: str = "") -> None:
        if reason:
            imported.left[one.task, reason] += 1
        else:
            (imported.waiting if one.run_at is None else imported.scheduled)[one.task] += 1


WAITS_FOR_ANOTHER = "it waits for another job"
HAS_FOLLOWERS = "other jobs follow it: callbacks, a chain or a chord"
CELERY_SEPARATOR = "\x06\x16"
CELERY_PRIORITIES = 10
HUEY_TIME_BYTES = 8


class OldQueue(NamedTuple):
    """Which jobs to read."""

    url: str
    # Of these queues; empty: of all.
    queues: Collection[str]
    # Also those that a worker has.
    held: bool
    # Closes what a reader has opened, when the last job was removed.
    stack: ExitStack


def _redis(source: OldQueue) -> Any:
    try:
        import redis
    except ImportError:
        raise StoreError("to read from Redis, install its client for Python: pip install redis") from None
    return source.stack.enter_context(redis.Redis.from_url(source.url))


def _seconds(moment: Any) -> float | None:
    """A time as Celery has it (ISO), or a `datetime`; one without a zone is UTC."""
    if not moment:
        return None
    found = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _or_reason(read: Callable[..., ForeignJob]) -> Callable[..., ForeignJob]:
    """A job that cannot be decoded, such as with a class that is not there, stays where it is."""

    @wraps(read)
    def decode(source: Any, remove: Callable[[], bool], *more: Any) -> ForeignJob:
        try:
            return read(source, remove, *more)
        except Exception as error:
            # Without the text of the error, which may have data of the job.
            return ForeignJob(
                "", "unknown", (), {}, remove, reason=f"it cannot be read: {type(error).__name__}"
            )

    return decode


# ── Celery ───────────────────────────────────────────────────────────────────────────────────────


def celery(source: OldQueue) -> Iterator[ForeignJob]:
    """Celery on Redis, by the messages of kombu."""
    client = _redis(source)
    for name in source.queues or _celery_queues(client):
        for at in ("", *(f"{CELERY_SEPARATOR}{priority}" for priority in range(CELERY_PRIORITIES))):
            key = f"{name}{at}"
            # Added on the left, taken from the right.
            for raw in reversed(client.lrange(key, 0, -1)):
                yield _celery_job(json.loads(raw), partial(_removed, client.lrem, key, -1, raw))
    for tag, raw in client.hgetall("unacked").items() if source.held else ():
        yield _celery_job(json.loads(raw)[0], partial(_removed, client.hdel, "unacked", tag))


def _celery_queues(client: Any) -> list[str]:
    bindings = [one for key in client.scan_iter("_kombu.binding.*") for one in client.smembers(key)]
    # The default queue is there before anything is bound to it.
    found = {"celery", *(one.decode().split(CELERY_SEPARATOR)[-1] for one in bindings)}
    return sorted(name for name in found if not name.startswith("celeryev.") and "pidbox" not in name)


@_or_reason
def _celery_job(message: Any, remove: Callable[[], bool]) -> ForeignJob:
    from kombu import serialization

    headers, body = message["headers"], message["body"]
    if message["properties"].get("body_encoding") == "base64":
        body = base64.b64decode(body)
    kind = message["content-type"]
    loads: Any = serialization.loads
    args, kwargs, more = loads(body, kind, message["content-encoding"], accept={kind})
    follow = any(more.get(name) for name in ("callbacks", "errbacks", "chain", "chord"))
    return ForeignJob(
        headers["id"],
        headers["task"],
        tuple(args),
        kwargs,
        remove,
        run_at=_seconds(headers.get("eta")),
        expires_at=_seconds(headers.get("expires")),
        reason=HAS_FOLLOWERS if follow or headers.get("group") else "",
    )


# ── RQ ───────────────────────────────────────────────────────────────────────────────────────────


def rq(source: OldQueue) -> Iterator[ForeignJob]:
    """RQ, by its own library."""
    from rq import Queue, registry
    from rq.exceptions import NoSuchJobError
    from rq.job import Job

    client = _redis(source)
    for queue in [Queue(name, connection=client) for name in source.queues] or Queue.all(connection=client):
        places: list[tuple[Any, Sequence[str], str]] = [(queue, queue.job_ids, "")]
        made: Any = registry
        scheduled, deferred = made.ScheduledJobRegistry(queue=queue), made.DeferredJobRegistry(queue=queue)
        places.append((scheduled, scheduled.get_job_ids(), ""))
        places.append((deferred, deferred.get_job_ids(), WAITS_FOR_ANOTHER))
        if source.held:
            started = made.StartedJobRegistry(queue=queue)
            places.append((started, started.get_job_ids(), ""))
        for place, ids, reason in places:
            for job_id in ids:
                with suppress(NoSuchJobError):
                    job = Job.fetch(job_id, connection=client)
                    at = scheduled.get_scheduled_time(job).timestamp() if place is scheduled else None
                    yield _rq_job(job, partial(_rq_removed, client, place, job), at, reason)


@_or_reason
def _rq_job(job: Any, remove: Callable[[], bool], run_at: float | None, reason: str) -> ForeignJob:
    if job.dependent_ids:
        reason = reason or HAS_FOLLOWERS
    return ForeignJob(
        job.id, job.func_name, tuple(job.args), job.kwargs, remove, run_at=run_at, reason=reason
    )


def _rq_removed(client: Any, place: Any, job: Any) -> bool:
    key = place.key
    remove = client.lrem(key, 1, job.id) if client.type(key) == b"list" else client.zrem(key, job.id)
    if remove:
        job.delete(remove_from_queue=False)
    return bool(remove)


# ── huey ─────────────────────────────────────────────────────────────────────────────────────────


def huey(source: OldQueue) -> Iterator[ForeignJob]:
    """huey on Redis, or in the SQLite file at a path. It keeps nothing of jobs that a worker has."""
    yield from _huey_on_redis(source) if "://" in source.url else _huey_in_file(source)


def _huey_on_redis(source: OldQueue) -> Iterator[ForeignJob]:
    client = _redis(source)
    for kind in ("redis", "schedule"):
        prefix = f"huey.{kind}."
        keys = [f"{prefix}{name}" for name in source.queues] or sorted(
            key.decode() for key in client.scan_iter(f"{prefix}*")
        )
        for key in keys:
            is_list = client.type(key) == b"list"
            # Added on the left, taken from the right.
            found = reversed(client.lrange(key, 0, -1)) if is_list else client.zrange(key, 0, -1)
            # With priorities each entry begins with a time.
            cut = 0 if is_list or kind == "schedule" else HUEY_TIME_BYTES
            for raw in found:
                remove = partial(client.lrem, key, -1, raw) if is_list else partial(client.zrem, key, raw)
                yield _huey_job(raw[cut:], partial(_removed, remove))


def _huey_in_file(source: OldQueue) -> Iterator[ForeignJob]:
    address = f"{Path(source.url).absolute().as_uri()}?mode=rw"
    file = source.stack.enter_context(closing(sqlite3.connect(address, uri=True, isolation_level=None)))
    for table in ("task", "schedule"):
        for number, queue, raw in file.execute(f"SELECT id, queue, data FROM {table} ORDER BY id").fetchall():
            if not source.queues or queue in source.queues:
                yield _huey_job(raw, partial(_row_removed, file, table, number))


def _row_removed(file: sqlite3.Connection, table: str, number: int) -> bool:
    return file.execute(f"DELETE FROM {table} WHERE id = ?", (number,)).rowcount > 0


@_or_reason
def _huey_job(raw: bytes, remove: Callable[[], bool]) -> ForeignJob:
    raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else zlib.decompress(raw) if raw[:1] == b"x" else raw
    message = pickle.loads(raw)
    return ForeignJob(
        message.id,
        message.name,
        tuple(message.args),
        message.kwargs,
        remove,
        run_at=_seconds(message.eta),
        expires_at=_seconds(message.expires_resolved),
        reason=HAS_FOLLOWERS if message.on_complete or message.on_error else "",
    )


def _removed(remove: Callable[..., int], *values: Any) -> bool:
    return remove(*values) > 0


# ── dramatiq ─────────────────────────────────────────────────────────────────────────────────────


def dramatiq(source: OldQueue) -> Iterator[ForeignJob]:
    """dramatiq on Redis: for each queue, and for its delayed messages, a list of ids and a hash."""
    client = _redis(source)
    found = (key.decode().removesuffix(".msgs") for key in client.scan_iter("dramatiq:*.msgs"))
    named = [f"dramatiq:{name}{delayed}" for name in source.queues for delayed in ("", ".DQ")]
    for key in named or sorted(one for one in found if not one.endswith(".XQ")):
        ids = client.lrange(key, 0, -1)
        for job_id in ids:
            if raw := client.hget(f"{key}.msgs", job_id):
                yield _dramatiq_job(raw, partial(_dramatiq_removed, client, key, job_id))
        for job_id, raw in client.hgetall(f"{key}.msgs").items() if source.held else ():
            if job_id not in ids:
                yield _dramatiq_job(raw, partial(_removed, client.hdel, f"{key}.msgs", job_id))


def _dramatiq_removed(client: Any, key: str, job_id: bytes) -> bool:
    is_there = bool(client.lrem(key, 1, job_id) > 0)
    if is_there:
        client.hdel(f"{key}.msgs", job_id)
    return is_there


@_or_reason
def _dramatiq_job(raw: bytes, remove: Callable[[], bool]) -> ForeignJob:
    message = json.loads(raw)
    more = message["options"]
    follow = any(more.get(name) for name in ("pipe_target", "on_success", "on_failure", "group_info"))
    return ForeignJob(
        message["message_id"],
        message["actor_name"],
        tuple(message["args"]),
        message["kwargs"],
        remove,
        run_at=more["eta"] / 1000 if more.get("eta") else None,
        reason=HAS_FOLLOWERS if follow else "",
    )


# ── Procrastinate ────────────────────────────────────────────────────────────────────────────────


def procrastinate(source: OldQueue) -> Iterator[ForeignJob]:
    """Procrastinate, by its table; what is taken over has the status `cancelled` there."""
    import psycopg

    connection = source.stack.enter_context(psycopg.connect(source.url, autocommit=True))
    states = ["todo", "doing"] if source.held else ["todo"]
    select = """SELECT id, task_name, args, scheduled_at, queue_name FROM procrastinate_jobs
    WHERE status::text = ANY(%s) ORDER BY id"""
    for number, task, data, moment, queue in connection.execute(select, (states,)).fetchall():
        if not source.queues or queue in source.queues:
            remove = partial(_cancelled, connection, number, states)
            yield ForeignJob(str(number), task, (), data, remove, run_at=_seconds(moment))


def _cancelled(connection: Any, number: int, states: list[str]) -> bool:
    update = """UPDATE procrastinate_jobs SET status = 'cancelled'
    WHERE id = %s AND status::text = ANY(%s)"""
    return bool(connection.execute(update, (number, states)).rowcount > 0)


READERS: dict[str, Callable[[OldQueue], Iterator[ForeignJob]]] = {
    "celery": celery,
    "rq": rq,
    "huey": huey,
    "dramatiq": dramatiq,
    "procrastinate": procrastinate,
}


@contextmanager
def errors_of(system: str, url: str) -> Iterator[None]:
    """Translate errors of the other system, and of its library."""
    try:
        yield
    except HoldfastError:
        raise
    except ImportError as error:
        raise StoreError(f"to read jobs of {system}, install it here too: {error}") from None
    except Exception as error:
        is_theirs = type(error).__module__.partition(".")[0] in ("redis", "psycopg")
        if is_theirs or isinstance(error, OSError | sqlite3.Error):
            raise Unavailable(f"{shown_url(url)}: {error}") from error
        raise
