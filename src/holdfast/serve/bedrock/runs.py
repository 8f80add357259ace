"""Requests that were sent ahead and may be carried out together: one commit, and one write, for all of them.

They are of one verb, follow each other, and go straight to the store, without a look at it first: so they
take effect in the order in which they came, each as if the one before had been answered. What says anything
about its connection, and what might look first, is carried out alone.
"""

from collections import deque

from ...core.bounds import PORT_PIPELINED
from .wire import Broken, Request

# By verb: the parameters with which it looks first.
_LOOKS_BY = {
    "createjob": frozenset(("parentjobid", "repeat", "priority")),
    "getjob": frozenset[str](),
    "getjobs": frozenset[str](),
    "finishjob": frozenset(("data",)),
}


def next_run(waiting: deque[Request | Broken]) -> list[Request | Broken]:
    """Take the first, and those behind it that may go with it."""
    run = [waiting.popleft()]
    if kind := _kind(run[0]):
        while waiting and len(run) < PORT_PIPELINED and _kind(waiting[0]) == kind:
            run.append(waiting.popleft())
    return run


def _kind(item: Request | Broken) -> str:
    """What those that may go together have in common; "" for what goes alone."""
    if isinstance(item, Broken) or "connection" in item.headers:
        return ""
    verb = item.verb.lower()
    looks_by = _LOOKS_BY.get(verb)
    return verb if looks_by is not None and looks_by.isdisjoint(item.headers) else ""
