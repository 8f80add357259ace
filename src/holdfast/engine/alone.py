"""Which commands a caller's own thread may commit, where nobody else asks for anything.

To wake the committer and to be woken by it takes a part of what a single add takes. What it must not be is
broken into, between a commit and what has to be remembered of it:

    main thread        what a program has set for a signal runs between any two steps, and may raise (Ctrl-C)
    a handler's        its soft limit is raised in it at any step
    any other          nothing breaks in: such a thread may
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..core import commands as c
from .commands.plain import plain
from .ticket import Ticket

_limited: set[int] = set()


def may_commit(ticket: Ticket) -> bool:
    """Whether this thread may commit it: a plain add, from which nothing follows for others who wait here."""
    return (
        ticket.loop is None
        and type(ticket.command) is c.Add
        and plain([ticket.command]) is not None
        and (thread := threading.get_ident()) not in _limited
        and thread != threading.main_thread().ident
    )


@contextmanager
def may_be_struck() -> Iterator[None]:
    """This thread is one in which something may be raised at any step."""
    thread = threading.get_ident()
    outermost = thread not in _limited
    try:
        _limited.add(thread)
        yield
    finally:
        if outermost:
            _limited.discard(thread)
