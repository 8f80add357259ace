"""Requests with an idempotency key: the reply to the first one with a key is kept for a day.

    a new key      ──▶ the ids of its jobs are reserved and noted ──▶ the jobs are added ──▶ marked as done
    the same key   ──▶ the noted ids: existing jobs are not added twice; after "done" nothing is added

Only servers submit these commands; clients cannot.
"""

import msgspec

from ...core import commands as c
from ...core.bounds import DAY_MS
from ...core.job import Record
from ...core.kinds import REQUEST, name_of
from ...core.slots import slot_of_record
from ..batch.batch import Batch

KEPT_MS = DAY_MS
# How many expired notes each new one deletes; more than one, so that they do not accumulate.
REMOVED_AT_ONCE = 10


class RequestNote(Record, frozen=True, kw_only=True):
    """A request: a hash of its content, the ids of its jobs, and whether it is done."""

    fingerprint: str
    ids: tuple[int, ...]
    is_done: bool = False
    until_ms: int = 0


class NoteRequest(c.Command, frozen=True, kw_only=True):
    """Note a request, or that it is done; replies the stored note, which is that of the first request."""

    tenant: str
    key: str
    note: RequestNote


def note_request(batch: Batch, command: NoteRequest) -> RequestNote:
    """Note a request; see `NoteRequest`."""
    name, note = name_of(command.tenant, command.key), command.note
    raw = batch.rows_of(REQUEST, [name]).get(name)
    before = None if raw is None else read_note(raw)
    if before is not None and before.until_ms > batch.now_ms:
        if not note.is_done or before.is_done or before.fingerprint != note.fingerprint:
            return before
        return _keep(batch, name, note, until_ms=before.until_ms)
    for old, _ in batch.txn.scan(REQUEST, due_before=batch.now_ms, limit=REMOVED_AT_ONCE):
        batch.rows[REQUEST, old] = None
    return _keep(batch, name, note, until_ms=batch.now_ms + KEPT_MS)


def _keep(batch: Batch, name: str, note: RequestNote, *, until_ms: int) -> RequestNote:
    kept = msgspec.structs.replace(note, until_ms=until_ms)
    batch.rows[REQUEST, name] = msgspec.json.encode(kept)
    batch.dues[REQUEST, name] = until_ms
    return kept


def read_note(raw: bytes) -> RequestNote:
    """Decode a note."""
    return msgspec.json.decode(raw, type=RequestNote)


def slot_of_request(command: NoteRequest) -> int | None:
    """The slot in whose shard a request is noted."""
    return slot_of_record(REQUEST, name_of(command.tenant, command.key))
