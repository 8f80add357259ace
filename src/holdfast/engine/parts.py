"""What a store consists of, part by part: how each is listed, compared and written, by the contract alone.

    archive   jobs that have ended, with data and result         counts    how many of each kind there are
    jobs      live jobs, with data and result                    turns     who was served when
    records   all small records: sysids, schedules, limits …     logs      items, and where keys lead
    unique    who holds which key
    domains   what is kept of limited domains

A part is listed by its key, in the same order by every store. Nothing is translated: what goes in is what
came out, with ids, versions, claims and leases as they are. Only a domain's version begins anew, which nobody
sees.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from ..core.bounds import CLAIM_BYTES
from ..core.errors import Conflict
from ..core.indexed import LogMark
from ..core.job import Body, Job
from ..core.limits import Domain, DomainKey
from ..core.unique import Unique, UniqueKey
from ..store.contract import CountKey, JobFilter, LogRow, ReadTxn, Turn, Txn
from .records import LOG

K = TypeVar("K")
R = TypeVar("R")

# Bodies are fetched so many at a time, until a transaction's worth is there: 16 MB is a body's limit.
BODIES_AT_ONCE = 50


class Part(Generic[K, R]):
    """One part of a store. `last_only`: nothing to copy before the source stands still."""

    name: str
    start: K
    last_only = False
    # What is to be written before anything of the part is compared.
    prepare: Any = None

    def page(self, txn: ReadTxn, after: K, limit: int) -> list[R]:
        """Rows by key, from the first above `after`; fewer than `limit` says nothing, none is the end."""
        raise NotImplementedError

    def key(self, row: R) -> K:
        """What a row is found by."""
        raise NotImplementedError

    def seen(self, row: R) -> Any:
        """What can be seen of a row, and must be the same in both stores."""
        return row

    def fill(self, txn: ReadTxn, rows: Sequence[R]) -> "Sequence[R | None]":
        """The first of these rows with all that belongs to them; None where one is gone."""
        return rows

    def put(self, txn: Txn, rows: Sequence[R], olds: Sequence[R]) -> None:
        """Remove the old ones, and write these."""
        raise NotImplementedError


class Whole(NamedTuple):
    """A job and its bodies; None where they were not fetched, or there is none."""

    job: Job
    data: Body | None = None
    result: Body | None = None


class _JobPart(Part[int, Whole]):
    start = 0
    archived = False

    def __init__(self, *, deep: bool) -> None:
        # Whether bodies are compared as well.
        self._deep = deep

    def page(self, txn: ReadTxn, after: int, limit: int) -> list[Whole]:
        jobs = txn.jobs(JobFilter(archived=self.archived), after=after, limit=limit)
        return _with_bodies(txn, jobs) if self._deep else [Whole(job) for job in jobs]

    def key(self, row: Whole) -> int:
        return row.job.id

    def fill(self, txn: ReadTxn, rows: Sequence[Whole]) -> Sequence[Whole | None]:
        if self._deep:
            return rows
        whole = _with_bodies(txn, [row.job for row in rows])
        return [row if row.data is not None else None for row in whole]


class Live(_JobPart):
    """Live jobs, wherever they stand."""

    name = "jobs"

    def put(self, txn: Txn, rows: Sequence[Whole], olds: Sequence[Whole]) -> None:
        """One whose id was in the archive has been deleted there and added anew."""
        txn.remove([row.job for row in olds])
        ids = [row.job.id for row in rows]
        txn.forget(txn.archived(ids))
        _insert(txn, rows, version=0)


class Settled(_JobPart):
    """Jobs of the archive: written once, so that whoever has the record has the bodies too."""

    name = "archive"
    archived = True

    def put(self, txn: Txn, rows: Sequence[Whole], olds: Sequence[Whole]) -> None:
        """They go in one version earlier, and to the archive in the same transaction."""
        txn.forget([row.job.id for row in olds])
        ids = [row.job.id for row in rows]
        live = txn.load(ids)
        txn.remove([live[id] for id in ids if id in live])
        _insert(txn, rows, version=-1)
        txn.archive([row.job for row in rows], keep=True)


def _with_bodies(txn: ReadTxn, jobs: Sequence[Job]) -> list[Whole]:
    """The first of these jobs with their bodies, as many as a transaction should carry."""
    found: list[Whole] = []
    size = 0
    for at in range(0, len(jobs), BODIES_AT_ONCE):
        some = jobs[at : at + BODIES_AT_ONCE]
        data = txn.bodies([job.id for job in some])
        results = txn.bodies([job.id for job in some], result=True)
        found += [Whole(job, data.get(job.id), results.get(job.id)) for job in some]
        size += sum(map(len, (*data.values(), *results.values())))
        if size >= CLAIM_BYTES:
            break
    return found


def _insert(txn: Txn, rows: Sequence[Whole], *, version: int) -> None:
    jobs = [
        (
            replace(row.job, version=row.job.version + version) if version else row.job,
            "" if row.data is None else row.data,
        )
        for row in rows
    ]
    if txn.insert(jobs):
        raise Conflict("an id was taken")
    if results := {row.job.id: row.result for row in rows if row.result is not None}:
        txn.put_bodies(results, result=True)


class Records(Part[tuple[str, str], tuple[str, str, bytes]]):
    """All small records, of whatever kind there is or will be."""

    name = "records"
    start = ("", "")

    def page(self, txn: ReadTxn, after: tuple[str, str], limit: int) -> list[tuple[str, str, bytes]]:
        return txn.list_records(after=after, limit=limit)

    def key(self, row: tuple[str, str, bytes]) -> tuple[str, str]:
        return row[:2]

    def put(
        self, txn: Txn, rows: Sequence[tuple[str, str, bytes]], olds: Sequence[tuple[str, str, bytes]]
    ) -> None:
        by_kind: dict[str, dict[str, bytes | None]] = {}
        for kind, name, _ in olds:
            by_kind.setdefault(kind, {})[name] = None
        for kind, name, value in rows:
            by_kind.setdefault(kind, {})[name] = value
        for kind, records in by_kind.items():
            txn.put_records(kind, records)


class Keys(Part[UniqueKey, Unique]):
    """Who holds which unique key."""

    name = "unique keys"
    start = ("", "", b"")

    def page(self, txn: ReadTxn, after: UniqueKey, limit: int) -> list[Unique]:
        return txn.list_unique(after=after, limit=limit)

    def key(self, row: Unique) -> UniqueKey:
        return row.id

    def put(self, txn: Txn, rows: Sequence[Unique], olds: Sequence[Unique]) -> None:
        txn.drop_unique({row.id for row in olds} - {row.id for row in rows})
        txn.put_unique(rows)


class Domains(Part[DomainKey, Domain]):
    """What is kept of limited domains."""

    name = "domains"
    start = ("", b"")

    def page(self, txn: ReadTxn, after: DomainKey, limit: int) -> list[Domain]:
        return txn.list_all_domains(after=after, limit=limit)

    def key(self, row: Domain) -> DomainKey:
        return row.key

    def seen(self, row: Domain) -> Domain:
        return replace(row, version=1)

    def put(self, txn: Txn, rows: Sequence[Domain], olds: Sequence[Domain]) -> None:
        txn.drop_domains(olds)
        txn.swap_domains([replace(row, version=1) for row in rows])


class Counts(Part[tuple[Any, ...], tuple[CountKey, int]]):
    """How many jobs there are of each kind."""

    name = "counts"
    start = ()
    last_only = True

    def page(self, txn: ReadTxn, after: tuple[Any, ...], limit: int) -> list[tuple[CountKey, int]]:
        return sorted((key, number) for key, number in txn.counts().items() if key > after)[:limit]

    def key(self, row: tuple[CountKey, int]) -> tuple[Any, ...]:
        return row[0]

    def put(
        self, txn: Txn, rows: Sequence[tuple[CountKey, int]], olds: Sequence[tuple[CountKey, int]]
    ) -> None:
        changes = {key: -number for key, number in olds}
        for key, number in rows:
            changes[key] = changes.get(key, 0) + number
        txn.count(changes)


class Turns(Part[tuple[str, ...], Turn]):
    """Who was served when. Whether somebody has READY jobs follows from the counts, which come before."""

    name = "turns"
    start = ()
    last_only = True

    def page(self, txn: ReadTxn, after: tuple[str, ...], limit: int) -> list[Turn]:
        return [turn for turn in txn.list_turns() if turn[:2] > after][:limit]

    def key(self, row: Turn) -> tuple[str, ...]:
        return row[:2]

    def put(self, txn: Txn, rows: Sequence[Turn], olds: Sequence[Turn]) -> None:
        txn.put_turns(rows)


class LogItems(Part[int, LogRow]):
    """The items of one log."""

    def __init__(self, log: str, ends: LogMark) -> None:
        self.name, self.start = f"log {log}", ends.trimmed
        self._log = log
        # What the source has trimmed since the last walk.
        self.prepare = lambda txn: txn.trim_log(log, after=0, up_to=ends.trimmed, keys_up_to=ends.keys_from)

    def page(self, txn: ReadTxn, after: int, limit: int) -> list[LogRow]:
        found: list[LogRow] = []
        size = 0
        while len(found) < limit and size < CLAIM_BYTES:
            last = found[-1].at if found else after
            rows = txn.read_log(self._log, after=last, limit=min(BODIES_AT_ONCE, limit - len(found)))
            if not rows:
                break
            found += rows
            size += sum(len(row.body) for row in rows)
        return found

    def key(self, row: LogRow) -> int:
        return row.at

    def put(self, txn: Txn, rows: Sequence[LogRow], olds: Sequence[LogRow]) -> None:
        for row in olds:
            txn.trim_log(self._log, after=row.at - 1, up_to=row.at, keys_up_to=0)
        txn.append_log(self._log, rows)


class LogKeys(Part[int, tuple[int, bytes]]):
    """The keys of one log whose items are trimmed: those of the others come with their items."""

    def __init__(self, log: str, ends: LogMark) -> None:
        self.name, self.start = f"keys of log {log}", ends.keys_from
        self._log, self._trimmed = log, ends.trimmed

    def page(self, txn: ReadTxn, after: int, limit: int) -> list[tuple[int, bytes]]:
        rows = txn.list_log_keys(self._log, after=after, limit=limit)
        return [row for row in rows if row[0] <= self._trimmed]

    def key(self, row: tuple[int, bytes]) -> int:
        return row[0]

    def put(self, txn: Txn, rows: Sequence[tuple[int, bytes]], olds: Sequence[tuple[int, bytes]]) -> None:
        """An item that comes and goes leaves its key."""
        for at, key in rows:
            txn.append_log(self._log, [LogRow(at, key, "")])
            txn.trim_log(self._log, after=at - 1, up_to=at, keys_up_to=0)


def standing() -> Iterator[Part[Any, Any]]:
    """All parts that every store has, but for the archive."""
    yield Live(deep=True)
    yield from (Records(), Keys(), Domains(), Counts(), Turns())


def logs_of(txn: ReadTxn) -> dict[str, LogMark]:
    """All logs, by the names of their records, and their ends."""
    return {name: msgspec.json.decode(raw, type=LogMark) for name, raw in txn.records(LOG).items()}
