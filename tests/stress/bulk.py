"""Fills a store with millions of jobs in minutes.

one job of each kind, all counts, history    by the store, in one transaction
all other jobs                               copies of these rows with other ids, by SQL statements that
                                             are the same on SQLite and PostgreSQL
"""

import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import psycopg
from msgspec.structs import replace

from holdfast.core import ids, rank
from holdfast.core.bounds import HOUR_MS
from holdfast.core.history import NAMED_TASKS, TIERS, TaskEnds, start_of
from holdfast.core.job import Code, Job, Outcome, Place, State
from holdfast.core.kinds import HISTORY
from holdfast.engine.history import key_of
from holdfast.queue.connect import store_maker
from holdfast.store.contract import Changes, CountKey, NewJobs, RowKey, Store, count_key

TASKS = 40
# The ids of the jobs are spread over this time, in so many chunks; the jobs of a chunk have one task.
SPAN_MS, CHUNKS = 10 * HOUR_MS, 200
DATA = '{"user":{"id":7}}'


class Chunk(NamedTuple):
    """A job that is in the store, and the ids of its copies."""

    job: Job
    copies: range

    @property
    def is_archived(self) -> bool:
        """Whether the job is in the archive: failed jobs are not."""
        return self.job.ended not in (None, State.FAILED)


def fill(url: str, archived: int, waiting: int) -> None:
    """Add jobs to an empty store: the older half of the chunks has ended jobs, the newer half waiting ones.

    One in a hundred of the ended was cancelled, one in a thousand failed; one in ten of the waiting is
    scheduled.
    """
    (store,) = store_maker(url)().shards
    chunks = list(_chunks(store.now_ms(), archived, waiting))
    _write(store, chunks)
    store.close()
    if url.startswith("sqlite"):
        _copy_all(sqlite3.connect(url.removeprefix("sqlite:///")), "holdfast_", ("data",), chunks)
        return
    address, _, schema = url.partition("&schema=")
    _copy_all(psycopg.connect(address), f"{schema}.", (), chunks)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"VACUUM (ANALYZE) {schema}.jobs, {schema}.archive")


def _chunks(now_ms: int, archived: int, waiting: int) -> Iterator[Chunk]:
    """What to copy, oldest first. The copied jobs are older than their copies."""
    kinds = {(job.task, job.ended or job.place): job for job in _kinds(now_ms)}
    first_id, half = ids.first_at(now_ms - SPAN_MS), CHUNKS // 2
    step = (ids.first_at(now_ms) - first_id) // (archived + waiting) // ids.SLOTS * ids.SLOTS
    for number in range(CHUNKS):
        size = (archived if number < half else waiting) // half
        shares: tuple[tuple[State | Place, int], ...] = (
            ((State.FAILED, -(-size // 1_000)), (State.CANCELLED, -(-size // 100)), (State.FINISHED, size))
            if number < half
            else ((Place.SCHEDULED, -(-size // 10)), (Place.READY, size))
        )
        copied = 0
        for kind, share in shares:
            count = min(share, size - copied)
            copies = range(first_id, first_id + count * step, step)
            yield Chunk(kinds[f"t{number % TASKS}", kind], copies)
            first_id, copied = copies.stop, copied + count


def _kinds(now_ms: int) -> Iterator[Job]:
    """A job of each task in each state."""
    first_id = ids.first_at(now_ms - SPAN_MS - HOUR_MS)
    new = Job(id=1, task="", place=Place.READY, created_at=now_ms - SPAN_MS, run_at=now_ms, size=len(DATA))
    ready = replace(new, rank=rank.ready(new.priority, now_ms))
    later = replace(new, place=Place.SCHEDULED, rank=now_ms + 10 * HOUR_MS, run_at=now_ms + 10 * HOUR_MS)
    ends = (State.FINISHED, State.CANCELLED, State.FAILED)
    ended = replace(ready, place=Place.DONE, rank=now_ms, version=2, finished_at=now_ms, attempts=1)
    outcome = Outcome(code=Code.OK, at=now_ms)
    kinds = [ready, later, *(replace(ended, ended=state, outcome=outcome) for state in ends)]
    for number in range(TASKS * len(kinds)):
        job = kinds[number % len(kinds)]
        yield replace(job, id=first_id + number * ids.SLOTS, task=f"t{number // len(kinds)}")


def _write(store: Store, chunks: list[Chunk]) -> None:
    """Add the jobs that are copied later, with the counts of all, and history as long as it is kept."""
    jobs = {chunk.job: chunk.is_archived for chunk in chunks}
    counts: dict[CountKey, int] = {}
    for job, copies in [*chunks, *((job, range(1)) for job in jobs)]:
        key = count_key(job)
        counts[key] = counts.get(key, 0) + len(copies)
    added = [NewJobs(_as_added(job), [(job.id, DATA)]) for job in jobs]
    changes = Changes(
        added=added,
        archived=[job for job, is_archived in jobs.items() if is_archived],
        swapped=[job for job, is_archived in jobs.items() if job.ended and not is_archived],
        counts=counts,
        rows=_history(store.now_ms()),
    )
    store.run(lambda _txn: (changes, None))


def _as_added(job: Job) -> Job:
    """A job as it was before it ended."""
    before = replace(job, place=Place.READY, version=1, ended=None, finished_at=0, attempts=0, outcome=None)
    return before if job.ended else job


def _history(now_ms: int) -> dict[RowKey, bytes]:
    """The runs of as many tasks as are listed, in every bucket that is kept."""
    ends = [TaskEnds(task=f"t{n}", finished=1_000, failed=1, run_ms=60_000) for n in range(NAMED_TASKS)]
    value = msgspec.json.encode(ends)
    return {
        (HISTORY, key_of(tier, start_ms, 0)): value
        for tier in TIERS[:-1]
        for start_ms in range(start_of(tier, now_ms - tier.kept_ms), now_ms, tier.step_ms)
    }


def _copy_all(connection: Any, prefix: str, beside: tuple[str, ...], chunks: list[Chunk]) -> None:
    """Copy the rows of jobs, in their own table and in those beside it."""
    for chunk in chunks:
        for table in ("archive" if chunk.is_archived else "jobs", *beside):
            _copy(connection, f"{prefix}{table}", chunk)
        connection.commit()
    connection.close()


def _copy(connection: Any, table: str, chunk: Chunk) -> None:
    id, new_ids = chunk.job.id, chunk.copies
    if not new_ids:
        return
    columns = [column[0] for column in connection.execute(f"SELECT * FROM {table} LIMIT 0").description]
    copied = {"id": "new_id"}
    for name in {"record", "rest"} & set(columns):
        copied[name] = f"""replace({name}, '"id":{id},', '"id":' || new_id || ',')"""
    connection.execute(
        f"INSERT INTO {table} ({', '.join(columns)}) "
        f"WITH RECURSIVE series (new_id) AS (SELECT {new_ids[0]} UNION ALL "
        f"SELECT new_id + {new_ids.step} FROM series WHERE new_id < {new_ids[-1]}) "
        f"SELECT {', '.join(copied.get(name, name) for name in columns)} "
        f"FROM {table} CROSS JOIN series WHERE id = {id}"
    )
