"""Decoding of rows that the engine keeps. Their tables and keys stand in `core/kinds.py`."""

from functools import lru_cache

import msgspec

from ..core.bounds import PAGE_JOBS
from ..core.checks import check_whole
from ..core.defaults import TaskKey
from ..core.job import Record
from ..core.kinds import name_of
from ..core.limits import Limit
from ..core.moving import Notice, read_notice
from ..core.queries import PagedQuery, Paused
from ..store.contract import ReadTxn, Row


def check_page(query: PagedQuery) -> None:
    """Refuse a page that is empty or too large."""
    check_whole("limit", query.limit, 1, PAGE_JOBS)


def scan_of(txn: ReadTxn, table: str, tenant: str, after: str | bytes, *, limit: int) -> list[Row]:
    """A page of the rows of a tenant, by (tenant, name), above a name; "": from the first."""
    above = name_of(tenant, after) if after else ""
    return txn.scan(table, after=above, prefix=name_of(tenant)[:-1] + ",", limit=limit)


class Patterns(Record, frozen=True, kw_only=True):
    """The limits of a tenant that match many domains."""

    limits: tuple[tuple[bytes, Limit], ...] = ()


@lru_cache(maxsize=1024)
def read_patterns(raw: bytes) -> Patterns:
    """Decode the patterns of a tenant; cached, since every claim of a domain needs them."""
    return msgspec.json.decode(raw, type=Patterns)


@lru_cache(maxsize=65536)
def read_limit(raw: bytes) -> Limit:
    """Decode a limit."""
    return msgspec.json.decode(raw, type=Limit)


@lru_cache(maxsize=1024)
def read_pause(name: str) -> Paused:
    """Decode the key of a pause."""
    found: Paused = msgspec.json.decode(name, type=Paused)
    return found


def read_limit_name(name: str) -> tuple[str, bytes]:
    """Decode the key of a limit: (tenant, domain)."""
    return msgspec.json.decode(name, type=tuple[str, bytes])


@lru_cache(maxsize=1024)
def read_pair(name: str) -> tuple[str, str]:
    """Decode a key of the form (tenant, name)."""
    return msgspec.json.decode(name, type=tuple[str, str])


@lru_cache(maxsize=4096)
def read_task_key(name: str) -> TaskKey:
    """Decode the key of a task's defaults: (tenant or None, task)."""
    return msgspec.json.decode(name, type=tuple[str | None, str])


def find_notice(txn: ReadTxn) -> Notice | None:
    """Read the notice of a store; None if it never was in a move."""
    raw = txn.notice()
    return read_notice(raw) if raw else None
