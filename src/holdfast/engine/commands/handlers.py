"""Handlers in the store: set, rolled back, deleted and read. The form of the rows: docs/decisions/0019."""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from ...core import ids
from ...core.bounds import HANDLER_PAGE, HANDLER_VERSIONS, HANDLERS_FOUND
from ...core.checks import check_name, check_whole
from ...core.commands import Command
from ...core.errors import NotFound, TooLarge
from ...core.handler import (
    DeleteHandler,
    FindHandlers,
    GetHandler,
    Handler,
    ListHandlers,
    ListHandlerVersions,
    RollBackHandler,
    SetHandler,
    check_handler,
    is_same_code,
    without_scripts,
)
from ...core.job import Record
from ...core.kinds import HANDLED, HANDLER, HANDLER_VERSION, name_of
from ...store.contract import ReadTxn
from ..batch.batch import Batch
from ..records import check_page, scan_of

# How many versions are read at once where only their heads are wanted.
VERSIONS_AT_ONCE = 10
YES = b"1"


class HandlerHead(Record, frozen=True, kw_only=True):
    """The newest version without its scripts, and the number of the oldest version that is kept."""

    newest: Handler
    oldest: int = 1


class MarkHandled(Command, frozen=True, kw_only=True):
    """Between shards: note in one of them whether a tenant's task has a handler."""

    tenant: str
    task: str
    on: bool


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Handler).decode
_decode_head = msgspec.json.Decoder(HandlerHead).decode


def set_handler(batch: Batch, command: SetHandler) -> Handler:
    """Write a new version; see `SetHandler`."""
    handler = command.handler
    check_handler(handler)
    head = _head(batch, handler.tenant, handler.task)
    if head is not None:
        newest = _kept_version(batch, head, head.newest.version)
        if is_same_code(newest, handler):
            return newest
    return _put(batch, head, replace(handler, restores=0))


def roll_back(batch: Batch, command: RollBackHandler) -> Handler:
    """Write a new version with the content of an earlier one; see `RollBackHandler`."""
    check_whole("version", command.version, 0, ids.MAX_ID)
    head = _head(batch, command.tenant, command.task)
    if head is None:
        raise _no_handler(command.tenant, command.task)
    wanted = command.version or (head.newest.restores or head.newest.version) - 1
    return _put(batch, head, replace(_kept_version(batch, head, wanted), restores=wanted))


def delete_handler(batch: Batch, command: DeleteHandler) -> None:
    """Remove all versions; see `DeleteHandler`."""
    head = _head(batch, command.tenant, command.task)
    if head is None:
        raise _no_handler(command.tenant, command.task)
    for version in range(head.oldest, head.newest.version + 1):
        batch.rows[HANDLER_VERSION, _version_key(head, version)] = None
    name = name_of(command.tenant, command.task)
    batch.rows[HANDLER, name] = batch.rows[HANDLED, name] = None


def mark_handled(batch: Batch, command: MarkHandled) -> None:
    """Note whether there is a handler; see `MarkHandled`."""
    name = name_of(command.tenant, command.task)
    if (name in batch.rows_of(HANDLED, [name])) != command.on:
        batch.rows[HANDLED, name] = YES if command.on else None
        # Waiting claims may find jobs now.
        batch.woke = batch.woke or command.on


def _put(batch: Batch, head: HandlerHead | None, handler: Handler) -> Handler:
    """Write a handler as the newest version, and delete the oldest if there are too many."""
    newest = replace(
        handler,
        id=batch.ids.make(slot=ids.slot_of(handler.tenant, handler.task)),
        version=head.newest.version + 1 if head is not None else 1,
        created_at=batch.now_ms,
    )
    oldest = head.oldest if head is not None else 1
    after = HandlerHead(newest=without_scripts(newest), oldest=oldest)
    if newest.version - oldest >= HANDLER_VERSIONS:
        batch.rows[HANDLER_VERSION, _version_key(after, oldest)] = None
        after = replace(after, oldest=oldest + 1)
    batch.rows[HANDLER_VERSION, _version_key(after, newest.version)] = _encode(newest)
    batch.rows[HANDLER, name_of(newest.tenant, newest.task)] = _encode(after)
    mark_handled(batch, MarkHandled(tenant=newest.tenant, task=newest.task, on=True))
    return newest


def _no_handler(tenant: str, task: str, version: int = 0) -> NotFound:
    of = f" of tenant {tenant!r}" if tenant else ""
    return NotFound(f"version {version:,} of the handler" if version else "handler", f"{task!r}{of}")


def _head(batch: Batch, tenant: str, task: str) -> HandlerHead | None:
    name = name_of(tenant, task)
    raw = batch.rows_of(HANDLER, [name]).get(name)
    return None if raw is None else _decode_head(raw)


def _version_key(head: HandlerHead, version: int) -> str:
    return name_of(head.newest.tenant, head.newest.task, f"{version:010}")


def _kept_version(batch: Batch, head: HandlerHead, version: int) -> Handler:
    key = _version_key(head, version)
    raw = batch.rows_of(HANDLER_VERSION, [key]).get(key)
    if raw is None:
        raise _no_handler(head.newest.tenant, head.newest.task, version)
    return _decode(raw)


# Queries


def find_handled(txn: ReadTxn, pairs: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those of these pairs of tenant and task that have a handler."""
    names = {name_of(*pair): pair for pair in pairs}
    return {names[name] for name in txn.rows(HANDLED, names)} if names else set()


def _heads(txn: ReadTxn, pairs: list[tuple[str, str]]) -> dict[tuple[str, str], HandlerHead]:
    names = {name_of(*pair): pair for pair in pairs}
    return {names[name]: _decode_head(raw) for name, raw in txn.rows(HANDLER, names).items()}


def _read_versions(txn: ReadTxn, head: HandlerHead, versions: range) -> list[Handler]:
    keys = [_version_key(head, version) for version in versions]
    found = txn.rows(HANDLER_VERSION, keys)
    return [_decode(found[key]) for key in keys if key in found]


def get_handler(txn: ReadTxn, query: GetHandler) -> Handler:
    """A version of a handler; see `GetHandler`."""
    check_whole("version", query.version, 0, ids.MAX_ID)
    pair = (query.tenant, query.task)
    head = _heads(txn, [pair]).get(pair)
    if head is None:
        raise _no_handler(*pair)
    version = query.version or head.newest.version
    for found in _read_versions(txn, head, range(version, version + 1)):
        return found
    raise _no_handler(*pair, version)


def find_handlers(txn: ReadTxn, query: FindHandlers) -> list[Handler]:
    """The newest versions of several; see `FindHandlers`."""
    if len(query.pairs) > HANDLERS_FOUND:
        raise TooLarge("handlers", len(query.pairs), needed=f"at most {HANDLERS_FOUND}")
    known = {(tenant, task): version_id for tenant, task, version_id in query.pairs}
    heads = _heads(txn, list(known))
    same = [head.newest for pair, head in heads.items() if head.newest.id == known[pair]]
    keys = [
        _version_key(head, head.newest.version)
        for pair, head in heads.items()
        if head.newest.id != known[pair]
    ]
    changed = txn.rows(HANDLER_VERSION, keys) if keys else {}
    return [*same, *map(_decode, changed.values())]


def list_handlers(txn: ReadTxn, query: ListHandlers) -> list[Handler]:
    """A page of handlers without their scripts; see `ListHandlers`."""
    check_page(query)
    check_name("tenant", query.tenant, empty=True)
    rows = scan_of(txn, HANDLER, query.tenant, query.after_task, limit=query.limit)
    return [_decode_head(raw).newest for _, raw in rows]


def list_versions(txn: ReadTxn, query: ListHandlerVersions) -> list[Handler]:
    """A page of versions without their scripts; see `ListHandlerVersions`."""
    check_whole("limit", query.limit, 1, HANDLER_PAGE)
    check_whole("before", query.before, 0, ids.MAX_ID)
    pair = (query.tenant, query.task)
    head = _heads(txn, [pair]).get(pair)
    if head is None:
        raise _no_handler(*pair)
    last = head.newest.version
    first = min(query.before - 1, last) if query.before else last
    found: list[Handler] = []
    while first >= head.oldest and len(found) < query.limit:
        until = max(head.oldest, first - min(VERSIONS_AT_ONCE, query.limit - len(found)) + 1)
        page = _read_versions(txn, head, range(first, until - 1, -1))
        found += [without_scripts(one) for one in page]
        first = until - 1
    return found
