"""Commands and queries of indexed consumers: progress and logs. Their rows: docs/decisions/0008."""

from typing import Any, TypeVar

import msgspec

from ...core import commands as c
from ...core import indexed
from ...core import queries as q
from ...core.bounds import LOG_KEY_BYTES, MAX_INDEX
from ...core.checks import check_body, check_key, check_name, check_whole
from ...core.errors import NotFound
from ...core.indexed import LogMark, Mark
from ...core.kinds import LOG, LOG_ITEMS, LOG_KEYS, PROGRESS, log_table, name_of
from ...core.redaction import redact_body
from ...store.contract import ReadTxn
from ..batch.batch import Batch
from ..records import check_page, read_pair, scan_of

_pack = msgspec.msgpack.Encoder().encode
_unpack: Any = msgspec.msgpack.Decoder().decode

R = TypeVar("R", Mark, LogMark)


def start_progress(batch: Batch, command: c.StartProgress) -> Mark:
    """Create progress where there is none; see `StartProgress`."""
    check_name("consumer", command.name)
    check_name("tenant", command.tenant, empty=True)
    check_whole("start", command.start, 0, MAX_INDEX)
    name = name_of(command.tenant, command.name)
    before = _record(batch, PROGRESS, name, Mark)
    after = before or Mark(processed=command.start, head=command.start)
    if command.log:
        ends = _record(batch, LOG, name_of(command.tenant, command.log), LogMark) or LogMark()
        indexed.check_reading(command.name, after.processed, command.log, ends)
    after = msgspec.structs.replace(after, log=command.log)
    if after != before:
        batch.rows[PROGRESS, name] = msgspec.json.encode(after)
    return after


def move_progress(batch: Batch, command: c.MoveProgress) -> Mark:
    """Move progress forward; see `MoveProgress`."""
    name, mark = _mark(batch, command)
    check_whole("index", command.to, 0, MAX_INDEX)
    after = indexed.moved(
        mark,
        name=command.name,
        to=command.to,
        resets=command.resets,
        seen=command.seen,
        now_ms=batch.now_ms,
    )
    if after is not mark:
        batch.rows[PROGRESS, name] = msgspec.json.encode(after)
        batch.news = True
    return after


def set_progress(batch: Batch, command: c.SetProgress) -> Mark:
    """Set progress by hand; see `SetProgress`."""
    name, mark = _mark(batch, command)
    check_whole("index", command.to, 0, MAX_INDEX)
    if mark.log:
        ends = _record(batch, LOG, name_of(command.tenant, mark.log), LogMark) or LogMark()
        indexed.check_reading(command.name, command.to, mark.log, ends)
    after = indexed.set_by_hand(mark, to=command.to)
    batch.rows[PROGRESS, name] = msgspec.json.encode(after)
    batch.news = True
    return after


def append(batch: Batch, command: c.Append) -> list[tuple[int, bool]]:
    """Append items to a log; see `Append`."""
    check_name("log", command.log)
    check_name("tenant", command.tenant, empty=True)
    for item in command.items:
        check_body("item", item.data)
        if item.key is not None:
            check_key("key", item.key, LOG_KEY_BYTES)
    log = name_of(command.tenant, command.log)
    ends = _record(batch, LOG, log, LogMark) or LogMark()
    items, keys = log_table(LOG_ITEMS, log), log_table(LOG_KEYS, log)
    wanted = {name_of(item.key) for item in command.items if item.key is not None}
    known = {key: int(raw) for key, raw in batch.rows_of(keys, wanted).items()} if wanted else {}
    appended, head = [], ends.head
    for item in command.items:
        key = None if item.key is None else name_of(item.key)
        at = None if key is None else known.get(key)
        is_new = at is None
        if at is None:
            at = head = head + 1
            batch.rows[items, item_key(at)] = _pack((item.key, item.data))
            if key is not None:
                known[key] = at
                batch.rows[keys, key] = b"%d" % at
                batch.dues[keys, key] = at
        appended.append((at, is_new))
    if head > ends.head:
        batch.rows[LOG, log] = msgspec.json.encode(msgspec.structs.replace(ends, head=head))
        batch.news = True
    return appended


def trim(batch: Batch, command: c.TrimLog) -> int:
    """Remove the items that all consumers of a log have passed; see `TrimLog`."""
    log = name_of(command.tenant, command.log)
    ends = _record(batch, LOG, log, LogMark)
    if ends is None:
        return 0
    passed = [
        mark.processed
        for (tenant, _), mark in marks(batch.rows_of(PROGRESS)).items()
        if tenant == command.tenant and mark.log == command.log
    ]
    bounds = passed if command.up_to is None else [*passed, command.up_to]
    if not bounds:
        # The log has no consumer, and the command names no index.
        return 0
    after = indexed.trimmed(ends, up_to=min(bounds), keep_keys=command.keep_keys, limit=command.limit)
    if after != ends:
        items, keys = log_table(LOG_ITEMS, log), log_table(LOG_KEYS, log)
        for at in range(ends.trimmed + 1, after.trimmed + 1):
            batch.rows[items, item_key(at)] = None
        # Keys appended by this transaction, which the scan does not find.
        own = [key for (table, key), due in batch.dues.items() if table == keys and due <= after.keys_from]
        page = batch.txn.scan(keys, due_before=after.keys_from, limit=2 * command.limit)
        for key in (*own, *(key for key, _ in page)):
            raw = batch.rows.get((keys, key))
            if raw is None or int(raw) <= after.keys_from:
                batch.rows[keys, key] = None
        batch.rows[LOG, log] = msgspec.json.encode(after)
    return after.trimmed - ends.trimmed


def read_log(txn: ReadTxn, query: q.ReadLog) -> q.LogPage:
    """A page of a log; see `ReadLog`."""
    ends = _ends(txn, query.tenant, query.log)
    if not query.limit:
        return q.LogPage(ends=ends)
    table = log_table(LOG_ITEMS, name_of(query.tenant, query.log))
    page = txn.scan(table, after=item_key(query.after), limit=query.limit)
    items = [q.LogRow(int(key), *_unpack(raw)) for key, raw in page]
    if query.redacted:
        items = [one._replace(body=redact_body(one.body)) for one in items]
    return q.LogPage(ends=ends, items=tuple(items))


def item_key(at: int) -> str:
    """The row key of an item; in the order of indexes when compared as text."""
    return f"{at:019d}"


def marks(records: dict[str, bytes]) -> dict[tuple[str, str], Mark]:
    """Progress by (tenant, name)."""
    return {read_pair(name): msgspec.json.decode(raw, type=Mark) for name, raw in records.items()}


def get_progress(txn: ReadTxn, query: q.GetProgress) -> Mark:
    """A consumer's progress; see `GetProgress`."""
    key = name_of(query.tenant, query.name)
    raw = txn.rows(PROGRESS, [key]).get(key)
    if raw is None:
        raise NotFound("consumer", query.name)
    return msgspec.json.decode(raw, type=Mark)


def list_consumers(txn: ReadTxn, query: q.ListConsumers) -> dict[str, Mark]:
    """A page of a tenant's consumers; see `ListConsumers`."""
    check_page(query)
    tenant = query.tenant
    rows = scan_of(txn, PROGRESS, tenant, query.after_name, limit=query.limit)
    found = {name: mark for (_, name), mark in marks(dict(rows)).items()}
    heads = {mark.log: _ends(txn, tenant, mark.log).head for mark in found.values() if mark.log}
    return {
        name: msgspec.structs.replace(mark, head=heads[mark.log]) if mark.log else mark
        for name, mark in found.items()
    }


def _ends(txn: ReadTxn, tenant: str, log: str) -> LogMark:
    """The first and last index of a log; a missing log is empty."""
    key = name_of(tenant, log)
    raw = txn.rows(LOG, [key]).get(key)
    return msgspec.json.decode(raw, type=LogMark) if raw else LogMark()


def _mark(batch: Batch, command: c.MoveProgress | c.SetProgress) -> tuple[str, Mark]:
    name = name_of(command.tenant, command.name)
    mark = _record(batch, PROGRESS, name, Mark)
    if mark is None:
        raise NotFound("consumer", command.name)
    return name, mark


def _record(batch: Batch, kind: str, name: str, form: type[R]) -> R | None:
    raw = batch.rows_of(kind, [name]).get(name)
    return msgspec.json.decode(raw, type=form) if raw else None
