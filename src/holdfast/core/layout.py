"""The layout of a store: which versions of Holdfast may use it, and how records keep fields of newer ones.

    layout of the store        this process (it knows layouts up to M)
    older than M               migrates it, or asks for `holdfast migrate`
    M                          as usual
    newer, oldest writer ≤ M   goes on; what it writes keeps the fields that it does not know
    newer, oldest writer > M   SchemaMismatch: nothing is read or written any more

How a process that has a store open notices that its layout has changed is in docs/decisions/0023.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, get_args, get_origin

import msgspec

from .errors import SchemaMismatch, StoreCorrupt

# The line of a migration that names the oldest version that may still write after it.
_OLDEST = re.compile(r"^-- oldest writer: (\d+)$", re.MULTILINE)
_DAMAGED = (UnicodeDecodeError, msgspec.DecodeError)

# The records in rows of JSON objects, by table; the engine registers them.
ROW_RECORDS: dict[str, type[msgspec.Struct]] = {}


class Layout(NamedTuple):
    """The layout of a store, and the oldest version that may write it; 0: from before the first release."""

    version: int
    oldest: int


def layout_in(rows: Sequence[tuple[Any, ...]], where: object, table: str) -> Layout:
    """The layout in the rows of a version table, the highest first; `StoreCorrupt` if there is none.

    Later versions may add columns to the table, but not change what its first two mean.
    """
    if not rows:
        raise _damaged(where, f"its table {table} is empty, and must hold the number of its layout")
    numbers = rows[0][:2]
    # Before the first release it had one column, and a row for each migration.
    if len(numbers) == 2 and len(rows) > 1:
        raise _damaged(where, f"its table {table} holds {len(rows)} rows, and must hold one")
    for number in numbers:
        if not isinstance(number, int) or number < 1:
            raise _damaged(where, f"its table {table} says layout {number}, and layouts begin at 1")
    return Layout(*numbers) if len(numbers) == 2 else Layout(numbers[0], 0)


def missing_version(where: object, table: str) -> StoreCorrupt:
    """The error for a store whose version table is not there."""
    return _damaged(where, f"its table {table} is missing, and its other tables are there")


def _damaged(where: object, what: str) -> StoreCorrupt:
    return StoreCorrupt(f"{where} is damaged: {what}; restore a backup")


def oldest_writer(migration: str, number: int) -> int:
    """The oldest version that may still write after a migration; by default only its own."""
    found = _OLDEST.search(migration)
    return int(found[1]) if found else number


def check_layout(where: object, found: Layout, known: int) -> None:
    """Raise `SchemaMismatch` if this process, which knows layouts up to `known`, may not use a store."""
    if not found.oldest:
        raise SchemaMismatch(
            f"{where} is too old: it has layout {found.version} from before the first release of Holdfast, "
            f"and this one knows layouts from 1 to {known}; let the Holdfast that wrote it finish its jobs, "
            "then give this one a new store"
        )
    if found.oldest > known:
        raise SchemaMismatch(
            f"{where} was written by a newer Holdfast (layout {found.version}; this one knows up to "
            f"{known}): upgrade this process; it has written nothing since"
        )


def unreadable_newer(where: object, found: Layout, known: int) -> SchemaMismatch:
    """The error for a record that this version cannot read in a store of a newer layout."""
    return SchemaMismatch(
        f"{where} has a record that this Holdfast cannot read, perhaps of a newer one (layout "
        f"{found.version}; this one knows up to {known}): upgrade this process"
    )


def unmovable() -> SchemaMismatch:
    """The error for a move by a version that does not know all that it would have to copy."""
    return SchemaMismatch(
        "this store has a newer layout than this Holdfast knows, so a move would lose fields: move it with "
        "the newer version"
    )


def keep_unknown(old: bytes | str, new: bytes | str, kind: type[msgspec.Struct]) -> bytes | None:
    """Return the record `new` with the fields of `old` that `kind` does not have; None if there are none."""
    try:
        before, after = msgspec.json.decode(old), msgspec.json.decode(new)
    except _DAMAGED:
        return None
    kept = _merge(before, after, kind)
    return None if kept == after else msgspec.json.encode(kept)


def keep_rows(
    rows: Mapping[tuple[str, str], bytes | None], read: Callable[[str, Collection[str]], Mapping[str, bytes]]
) -> dict[tuple[str, str], bytes | None]:
    """Rows to be written, by (table, key), with the unknown fields of the stored ones, which `read` reads."""
    kept = dict(rows)
    for table in {table for table, _ in rows} & ROW_RECORDS.keys():
        stored = read(table, [key for name, key in rows if name == table])
        for key, old in stored.items():
            new = rows[table, key]
            if new is not None and (value := keep_unknown(old, new, ROW_RECORDS[table])) is not None:
                kept[table, key] = value
    return kept


def _merge(before: Any, after: Any, kind: type[msgspec.Struct]) -> Any:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    known = _fields(kind)
    kept = after | {name: value for name, value in before.items() if name not in known}
    for name, inner in known.items():
        if inner is not None and name in before and name in after:
            if isinstance(after[name], list) and isinstance(before[name], list):
                kept[name] = [_merge_item(before[name], item, inner) for item in after[name]]
            else:
                kept[name] = _merge(before[name], after[name], inner)
    return kept


def _merge_item(stored: list[Any], item: Any, kind: type[msgspec.Struct]) -> Any:
    """Merge an item of a list: a record with the one with equal fields, a pair with the one of its name."""
    for one in stored:
        if isinstance(item, dict) and isinstance(one, dict):
            if all(one.get(name) == value for name, value in item.items()):
                return _merge(one, item, kind)
        elif isinstance(item, list) and isinstance(one, list) and one[:1] == item[:1]:
            return [_merge(old, new, kind) for old, new in zip(one, item, strict=False)]
    return item


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct] | None]:
    """The fields of a record, and the type of the records inside each, if there are any."""
    return {field.encode_name: _record_in(field.type) for field in msgspec.structs.fields(kind)}


def _record_in(kind: Any) -> type[msgspec.Struct] | None:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    if get_origin(kind) is dict:
        return None
    found = (_record_in(part) for part in get_args(kind))
    return next((one for one in found if one is not None), None)
