"""What progress and logs ask of the engine, written once for both kinds of queue."""

from collections.abc import Iterable

from ..core import commands as c
from ..core import queries as q
from ..core.bounds import BATCH_JOBS, FULL_BATCH_BYTES, LOG_KEY_BYTES, MAX_INDEX
from ..core.checks import check_body, check_key, check_name, check_whole
from ..core.indexed import LogItem, Mark, Seen
from ..core.job import size_of
from ..queue.asks import QueueRequest, same


class Appended(int):
    """The index of an item in its log; `is_new` is False where an item with that key was there before."""

    is_new: bool

    def __new__(cls, index: int, is_new: bool = True) -> "Appended":
        """An index that says so of itself."""
        self = super().__new__(cls, index)
        self.is_new = is_new
        return self


def start(tenant: str, name: str, at: int, log: str) -> QueueRequest[Mark]:
    """Create progress where there is none."""
    check_name("consumer", name)
    check_whole("start", at, 0, MAX_INDEX)
    return QueueRequest(c.StartProgress(name=name, tenant=tenant, start=at, log=log), same)


def move(tenant: str, name: str, to: int, resets: int, seen: Seen) -> QueueRequest[Mark]:
    """Move progress forward."""
    check_whole("index", to, 0, MAX_INDEX)
    return QueueRequest(c.MoveProgress(name=name, tenant=tenant, to=to, resets=resets, seen=seen), same)


def set_by_hand(tenant: str, name: str, to: int) -> QueueRequest[Mark]:
    """Set progress, forward or back."""
    check_name("consumer", name)
    check_whole("index", to, 0, MAX_INDEX)
    return QueueRequest(c.SetProgress(name=name, tenant=tenant, to=to), same)


def mark(tenant: str, name: str) -> QueueRequest[Mark]:
    """A consumer's progress, or `NotFound`."""
    return QueueRequest(q.GetProgress(name=name, tenant=tenant), same)


def consumers(tenant: str) -> QueueRequest[dict[str, Mark]]:
    """All consumers, by name."""
    return QueueRequest(q.ListConsumers(tenant=tenant), same)


def append(tenant: str, log: str, items: Iterable[LogItem]) -> list[QueueRequest[list[Appended]]]:
    """Append items: one ask for each transaction's worth."""
    found: list[QueueRequest[list[Appended]]] = []
    batch: list[LogItem] = []
    size = 0
    for item in items:
        check_body("item", item.data)
        if item.key is not None:
            check_key("key", item.key, LOG_KEY_BYTES)
        batch.append(item)
        size += size_of(item.data)
        if len(batch) >= BATCH_JOBS or size > FULL_BATCH_BYTES:
            found.append(QueueRequest(c.Append(log=log, tenant=tenant, items=tuple(batch)), _appended))
            batch, size = [], 0
    if batch:
        found.append(QueueRequest(c.Append(log=log, tenant=tenant, items=tuple(batch)), _appended))
    return found


def _appended(reply: list[tuple[int, bool]]) -> list[Appended]:
    return [Appended(index, is_new) for index, is_new in reply]


def trim(tenant: str, log: str, up_to: int | None, keep_keys: int) -> QueueRequest[int]:
    """Remove some of what all consumers have passed."""
    if up_to is not None:
        check_whole("up_to", up_to, 0, MAX_INDEX)
    return QueueRequest(c.TrimLog(log=log, tenant=tenant, up_to=up_to, keep_keys=keep_keys), same)


def page(tenant: str, log: str, after: int = 0, limit: int = 0) -> QueueRequest[q.LogPage]:
    """Items of a log above an index, and its ends at that moment."""
    return QueueRequest(q.ReadLog(log=log, tenant=tenant, after=after, limit=limit), same)
