"""What the tests of idle processes share: how little they may ask, and when they are idle."""

import time
from collections.abc import Callable

from holdfast.core import bounds
from holdfast.engine.committer import Committer
from holdfast.engine.store_connection import StoreConnection
from holdfast.queue.queue import Queue

MOST_A_MINUTE = 20
SECONDS = 15.0
# By then upkeep has come by for the last time for long, and looks have become seldom.
SETTLED_S = bounds.UPKEEP_PERIOD_MS / 1000 + 4.0
# A process that only waits.
WAITS = "import holdfast, sys; holdfast.connect(sys.argv[1]).next(['nothing'], wait=600)"


def is_quiet(asked: Callable[[], int], most: float) -> bool:
    """Whether fewer than so many questions come in one of three windows: processes may start late."""
    for _ in range(3):
        before = asked()
        time.sleep(SECONDS)
        if asked() - before < most:
            return True
    return False


def waits(queue: Queue) -> bool:
    """Whether a claim of a queue waits, and listens."""
    connection = queue.connection
    assert isinstance(connection, StoreConnection)
    committer = connection._submitter
    assert isinstance(committer, Committer)
    waiter = committer._waiter
    return bool(waiter._claims) and waiter._sleeps_in_store
