"""Unique keys in a transaction: which jobs hold them, before and after its changes."""

from collections.abc import Iterable

import msgspec

from ...core import unique
from ...core.errors import Refused
from ...core.job import Job, Place
from ...core.kinds import UNIQUE
from ...core.slots import slot_for
from ...core.unique import Unique, UniqueKey, read_unique
from ...store.contract import ReadTxn
from .working_set import Draft, WorkingSet

_encode = msgspec.json.Encoder().encode


def find_holders(txn: ReadTxn, keys: Iterable[UniqueKey]) -> dict[UniqueKey, Unique]:
    """The jobs that hold these keys, including those whose `until_ms` has passed."""
    found = map(read_unique, txn.rows(UNIQUE, [key.name for key in keys]).values())
    return {holder.id: holder for holder in found}


class Holders:
    """The unique keys that one transaction touches. `now` has their holders after its changes so far."""

    def __init__(self, batch: WorkingSet) -> None:
        self._batch = batch
        self.now: Draft[UniqueKey, Unique | None] = Draft()
        self.now.undo = batch.undo
        self._stored: dict[UniqueKey, Unique | None] = {}

    def of(self, key: UniqueKey) -> Unique | None:
        """The holder of a key; None if the key has expired or its job is gone."""
        self._load([key])
        holder = self.now.get(key)
        if holder is None or 0 < holder.until_ms <= self._batch.now_ms:
            return None
        if not holder.until_ms and self._batch.find(holder.job_id) is None:
            return None
        return holder

    def followed(self, before: Job | None, after: Job | None) -> None:
        """Update the key of a changed job: it takes it, keeps it until a given time, or frees it."""
        if before and after and not before.strict and before.place is after.place is Place.DONE:
            # A FAILED job is cancelled: its key, free or held for some time, stays as it is since it failed.
            return
        old = unique.held_after(before) if before else None
        new = unique.held_after(after) if after else None
        if old == new:
            return
        self._load(held.id for held in (old, new) if held)
        if old and (new is None or new.id != old.id) and self._is_holder(old):
            self.now[old.id] = None
        if new and after:
            self._check_slot(before, after)
            self._check_free(new)
            self.now[new.id] = new

    def _load(self, keys: Iterable[UniqueKey]) -> None:
        unknown = [key for key in keys if key not in self.now]
        if unknown:
            held = find_holders(self._batch.txn, unknown)
            found = {key: held.get(key) for key in unknown}
            self.now.update(found)
            self._stored |= found
            self._batch.load({holder.job_id for holder in held.values()})

    def _is_holder(self, claimed: Unique) -> bool:
        holder = self.now.get(claimed.id)
        return holder is not None and holder.job_id == claimed.job_id

    def _check_free(self, wanted: Unique) -> None:
        holder = self.of(wanted.id)
        if holder is not None and holder.job_id != wanted.job_id:
            raise put_back_refused(wanted.job_id, holder.job_id)

    def _check_slot(self, before: Job | None, after: Job) -> None:
        """Refuse a new name by which the key of a job would belong to another shard.

        Not at the job-command port, whose creations look for the name in all shards.
        """
        shard_info = self._batch.shard_info
        if shard_info.is_only_store or before is None or before.task == after.task or after.strict:
            return
        if not shard_info.has_slot(slot_for(after) or 0):
            needed = "without a unique key, or in a domain: by the new name the key belongs to another shard"
            raise Refused("rename", after.id, found="unique", needed=needed)

    def lapse(self, limit: int) -> int:
        """Free expired keys; return how many were examined."""
        now_ms = self._batch.now_ms
        page = self._batch.txn.scan(UNIQUE, due_before=now_ms, limit=limit)
        keys = [read_unique(raw).id for _, raw in page]
        self._load(keys)
        for key in keys:
            holder = self.now.get(key)
            if holder is not None and 0 < holder.until_ms <= now_ms:
                self.now[key] = None
        return len(page)

    def write(self) -> None:
        """Write the holders to the rows of the batch."""
        changed = {key: holder for key, holder in self.now.items() if self._stored[key] != holder}
        for key, holder in changed.items():
            row = (UNIQUE, key.name)
            self._batch.rows[row] = None if holder is None else _encode(holder)
            if holder is not None and holder.until_ms:
                self._batch.dues[row] = holder.until_ms
        self._stored.update(changed)


def put_back_refused(job_id: int, holder_id: int) -> Refused:
    """The error for a job that cannot be requeued because another job has its key."""
    found = f"without its unique key, which job {holder_id} holds now"
    return Refused("put back", job_id, found=found, needed="the only one with it")
