"""Limits of requests from other processes, which may contain anything that the field types allow.

Calls in this process are checked in `queue/`, and `checks` has the rules of jobs. This module has the rest:
numbers that a store could not keep, invalid names, pages without limits. A server calls it first.
"""

from collections.abc import Callable
from typing import Any

from . import bounds
from . import commands as c
from . import queries as q
from .checks import check_key, check_name, check_whole
from .errors import BadInput, TooLarge
from .ids import MAX_ID, SYSIDS
from .queries import SearchJobs

_Check = Callable[[str, Any], None]
# The largest page, and the longest list.
MOST_AT_ONCE = bounds.BATCH_JOBS
# How many paths into the data one search may have.
SEARCHED_PATHS = 8


def check_incoming(asked: c.Command | q.Query) -> None:
    """Refuse a request with values outside these limits."""
    for field in asked.__struct_fields__:
        check = _CHECKS.get(field)
        if check is not None and (value := getattr(asked, field)) is not None:
            check(field, value)
    if isinstance(asked, c.Add) and asked.count > bounds.BATCH_JOBS:
        raise TooLarge("jobs", f"{asked.count:,} jobs", needed=f"at most {bounds.BATCH_JOBS:,}")
    if isinstance(asked, q.ListJobs | SearchJobs):
        _check_filter(asked.filter)


def _data_paths(name: str, value: Any) -> None:
    """Check the search terms of a query: few paths, and short ones."""
    if isinstance(value, tuple):
        if len(value) > SEARCHED_PATHS:
            raise TooLarge(name, len(value), needed=f"at most {SEARCHED_PATHS}")
        for path, text in value:
            if len(path) + len(text) > bounds.NAME_BYTES * 4:
                raise TooLarge(name, f"{len(path) + len(text):,} characters", needed="shorter")


def _whole(least: int, most: int) -> _Check:
    return lambda name, value: check_whole(name, value, least, most)


def _name(name: str, value: Any) -> None:
    check_name(name, value, empty=True)


def _names(name: str, values: Any) -> None:
    _many(name, values)
    for value in values:
        # `Publish` has more than names there, and checks them itself.
        if isinstance(value, str):
            check_name(name, value, empty=True)


def _many(name: str, values: Any) -> None:
    if len(values) > MOST_AT_ONCE:
        raise TooLarge(name, len(values), needed=f"at most {MOST_AT_ONCE:,}")


def _ids(name: str, values: Any) -> None:
    _many(name, values)
    for value in values:
        check_whole(name, value, 0, MAX_ID)


def _hold(_name: str, hold: c.Hold) -> None:
    check_whole("job_id", hold.job_id, 0, MAX_ID)
    check_whole("owner", hold.owner, 0, SYSIDS - 1)
    if hold.claim is not None:
        check_whole("claim", hold.claim, 0, MAX_ID)
    if hold.tenant is not None:
        check_name("tenant", hold.tenant, empty=True)


def _text(name: str, value: str) -> None:
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise BadInput(
            name, "text with lone surrogates", needed="text that can be written as UTF-8"
        ) from None
    if "\0" in value:
        raise BadInput(name, value, needed="text without NUL")
    if size > bounds.QUERY_BYTES:
        raise TooLarge(name, f"{size:,} bytes", needed=f"at most {bounds.QUERY_BYTES:,} bytes")


def _check_filter(wanted: q.JobFilter) -> None:
    for name in ("tenant", "task", "schedule"):
        if (value := getattr(wanted, name)) is not None:
            check_name(name, value, empty=True)
    if wanted.parent_id is not None:
        check_whole("parent_id", wanted.parent_id, 0, MAX_ID)
    if wanted.domain is not None:
        check_key("domain", wanted.domain, bounds.DOMAIN_BYTES)


def _check_worker(_field: str, worker: Any) -> None:
    for name in ("pid", "started_at", "processes", "threads", "done", "running", "said_at", "until_ms"):
        check_whole(name, getattr(worker, name), 0, bounds.MAX_INDEX)
    _many("serves", worker.serves)
    for one in worker.serves:
        _many("tasks", one.tasks)


_CHECKS: dict[str, _Check] = {
    "job_id": _whole(0, MAX_ID),
    "job_ids": _ids,
    "hold": _hold,
    "owner": _whole(0, SYSIDS - 1),
    "limit": lambda name, value: (
        None if not isinstance(value, int) else check_whole(name, value, 0, MOST_AT_ONCE)
    ),
    "after": _whole(0, bounds.MAX_INDEX),
    "before": lambda name, value: None if isinstance(value, tuple) else check_whole(name, value, 0, MAX_ID),
    "span_ms": _whole(0, bounds.YEAR_MS),
    "data": _data_paths,
    "to": _whole(0, bounds.MAX_INDEX),
    "up_to": _whole(0, bounds.MAX_INDEX),
    "start": lambda name, value: (
        None if isinstance(value, bool) else check_whole(name, value, 0, bounds.MAX_INDEX)
    ),
    "resets": _whole(0, bounds.MAX_INDEX),
    "keep_keys": _whole(0, bounds.MAX_INDEX),
    "crowd": _whole(0, bounds.MAX_INDEX),
    "forgive": _whole(0, bounds.MAX_INDEX),
    "exit_code": _whole(-(1 << 31), (1 << 31) - 1),
    "ran_ms": _whole(0, bounds.MAX_DURATION_MS),
    "priority": _whole(0, bounds.MAX_PRIORITY),
    "before_ms": _whole(0, bounds.MAX_TIME_MS),
    "tenant": _name,
    "after_tenant": _name,
    "after_task": _name,
    "after_name": _name,
    "after_domain": lambda name, value: check_whole(f"bytes of {name}", len(value), 0, bounds.DOMAIN_BYTES),
    "name": _name,
    "log": _name,
    "tenants": _names,
    "tasks": _names,
    "text": _text,
    "error_text": _text,
    "since_ms": _whole(0, bounds.MAX_TIME_MS),
    "until_ms": _whole(0, bounds.MAX_TIME_MS),
    "worker": _check_worker,
    **dict.fromkeys(("jobs", "more", "ids", "answers", "items", "lines", "picks", "pairs"), _many),
}
