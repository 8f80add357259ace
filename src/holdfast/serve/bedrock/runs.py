"""Pipelined requests that may be executed together, with one commit and one write for all of them.

They are consecutive, have the same verb, and are submitted without a read before. So they take effect in the
order in which they arrived. A request with a `Connection` header, or one that may read first, is executed
alone.
"""

from collections import deque

from ...core.bounds import PORT_PIPELINED
from .wire import Broken, Request

# By verb: the parameters with which it reads first.
_READS_BY = {
    "createjob": frozenset(("parentjobid", "repeat", "priority")),
    "getjob": frozenset[str](),
    "getjobs": frozenset[str](),
    "finishjob": frozenset(("data",)),
}


def next_run(waiting: deque[Request | Broken]) -> list[Request | Broken]:
    """Remove and return the first request, and those behind it that may be executed with it."""
    run = [waiting.popleft()]
    if kind := _kind(run[0]):
        while waiting and len(run) < PORT_PIPELINED and _kind(waiting[0]) == kind:
            run.append(waiting.popleft())
    return run


def _kind(item: Request | Broken) -> str:
    """The verb by which requests may be executed together; "" for one that is executed alone."""
    if isinstance(item, Broken) or "connection" in item.headers:
        return ""
    verb = item.verb.lower()
    reads_by = _READS_BY.get(verb)
    return verb if reads_by is not None and reads_by.isdisjoint(item.headers) else ""
