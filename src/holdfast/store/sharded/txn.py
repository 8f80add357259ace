"""One batch over several shards: every write goes to the shard that it belongs to.

For whoever writes below the engine: suites, and copying a queue. The engine has a lane for each shard,
and none of its transactions is one of these.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ...core import ids, kinds
from ...core.job import Body, Job
from ...core.kinds import Names
from ...core.limits import Domain, DomainKey
from ...core.slots import shard_of, slot_of_key, slot_of_record
from ...core.unique import Unique, UniqueKey
from ..common.picks import picks_left
from ..contract import ClaimQuery, CountKey, LogRow, Turn, Txn
from .keys import Pointer, pointer_name
from .reads import ShardedReads, grouped


class ShardedTxn(ShardedReads, Txn):
    """A batch. All shards are open; `turn` is the one that a claim begins with."""

    def __init__(self, txns: Sequence[Txn], turn: int) -> None:
        super().__init__(len(txns), dict(enumerate(txns)), {})
        self._txns, self._turn = txns, turn

    def _each(self, items: Iterable[Any], job_id: Callable[[Any], int]) -> Iterable[tuple[Txn, list[Any]]]:
        groups = grouped(items, lambda item: shard_of(job_id(item), self._shards))
        return ((self._txns[shard], those) for shard, those in sorted(groups.items()))

    def insert(self, rows: Sequence[tuple[Job, Body]]) -> set[int]:
        return set().union(*(txn.insert(those) for txn, those in self._each(rows, lambda row: row[0].id)))

    def insert_alike(self, template: Job, rows: Sequence[tuple[int, Body]]) -> set[int]:
        parts = self._each(rows, lambda row: row[0])
        return set().union(*(txn.insert_alike(template, those) for txn, those in parts))

    def swap(self, jobs: Sequence[Job]) -> None:
        for txn, those in self._each(jobs, lambda job: job.id):
            txn.swap(those)

    def remove(self, jobs: Sequence[Job]) -> None:
        for txn, those in self._each(jobs, lambda job: job.id):
            txn.remove(those)

    def archive(self, jobs: Sequence[Job], *, keep: bool) -> None:
        for txn, those in self._each(jobs, lambda job: job.id):
            txn.archive(those, keep=keep)

    def forget(self, ids: Collection[int]) -> None:
        for txn, those in self._each(ids, lambda job_id: job_id):
            txn.forget(those)

    def purge(self, before_ms: int, *, tenant: str | None, limit: int) -> list[Job]:
        gone: list[Job] = []
        for txn in self._txns:
            gone += txn.purge(before_ms, tenant=tenant, limit=limit - len(gone)) if len(gone) < limit else []
        return gone

    def put_bodies(self, bodies: Mapping[int, Body], *, result: bool = False) -> None:
        for txn, those in self._each(bodies, lambda job_id: job_id):
            txn.put_bodies({job_id: bodies[job_id] for job_id in those}, result=result)

    def put_unique(self, holders: Sequence[Unique]) -> None:
        """Beside its job; where that is not the key's home, with a pointer there."""
        self.drop_unique([holder.id for holder in holders])
        for txn, those in self._each(holders, lambda holder: holder.job_id):
            txn.put_unique(those)
        for holder in holders:
            home = slot_of_key(holder.id) % self._shards
            if home != shard_of(holder.job_id, self._shards):
                pointer = msgspec.json.encode(Pointer(job_id=holder.job_id, taken_ms=0))
                self._txns[home].put_records(kinds.POINTER, {pointer_name(holder.id): pointer})

    def drop_unique(self, keys: Collection[UniqueKey]) -> None:
        for txn in self._txns:
            txn.drop_unique(keys)
        for key in keys:
            home = self._txns[slot_of_key(key) % self._shards]
            home.put_records(kinds.POINTER, {pointer_name(key): None})

    def lapse_unique(self, up_to: int, limit: int) -> int:
        gone = 0
        for txn in self._txns:
            gone += txn.lapse_unique(up_to, limit - gone) if gone < limit else 0
        return gone

    def claim(self, query: ClaimQuery) -> list[Job]:
        """From the shards in turn: in order within each."""
        found: list[Job] = []
        for step in range(self._shards):
            if len(found) < query.limit:
                txn = self._txns[(self._turn + step) % self._shards]
                left = picks_left(query.picks, found)
                found += txn.claim(query._replace(limit=query.limit - len(found), picks=left))
        return found

    def read_ahead(self, records: Names, domains: Collection[DomainKey]) -> None:
        """Nothing: each shard is asked by itself."""

    def swap_domains(self, domains: Sequence[Domain]) -> None:
        for txn, those in self._domained(domains):
            txn.swap_domains(those)

    def drop_domains(self, domains: Sequence[Domain]) -> None:
        for txn, those in self._domained(domains):
            txn.drop_domains(those)

    def _domained(self, domains: Sequence[Domain]) -> Iterable[tuple[Txn, list[Domain]]]:
        groups = grouped(domains, lambda domain: ids.slot_of(*domain.key) % self._shards)
        return ((self._txns[shard], those) for shard, those in sorted(groups.items()))

    def count(self, changes: Mapping[CountKey, int]) -> None:
        # Whose jobs these are cannot be told from here; sums are all that anybody sees of them.
        self._txns[0].count(changes)

    def put_records(self, kind: str, records: Mapping[str, bytes | None]) -> None:
        for slot, names in grouped(records, lambda name: slot_of_record(kind, name)).items():
            for txn in self._txns if slot is None else [self._txns[slot % self._shards]]:
                txn.put_records(kind, {name: records[name] for name in names})

    def append_log(self, log: str, rows: Sequence[LogRow]) -> None:
        self._log(log).append_log(log, rows)

    def trim_log(self, log: str, *, after: int, up_to: int, keys_up_to: int) -> None:
        self._log(log).trim_log(log, after=after, up_to=up_to, keys_up_to=keys_up_to)

    def put_notice(self, notice: bytes | None) -> None:
        for txn in self._txns:
            txn.put_notice(notice)

    def put_turns(self, turns: Sequence[Turn]) -> None:
        for txn in self._txns:
            txn.put_turns(turns)
