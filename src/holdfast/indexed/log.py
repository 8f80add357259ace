"""A durable append-only log: producers append items, consumers read them by index.

How keys of items are stored, and which ids the items' jobs have:

    appended          stored key                id of the job
    without a key     none                      #7        # and its index
    key="order-7"     UTF-8                     order-7   the key
    key="#7"          UTF-8                     ##7       a # in front where the key begins with one
    key=b"a"          0xFF and the bytes        #x61      #x and the bytes in hexadecimal

Both are injective. UTF-8 never contains 0xFF, so no text key is stored as a bytes key is. An id that begins
with `##` is that of a text key, with `#x` that of a bytes key, with `#` and a digit that of an index; any
other is the text key itself.
"""

from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Any, Generic, TypeVar

from ..core.bounds import KEEP_KEYS, LOG_PAGE_BYTES, LOG_PAGE_ITEMS, MAX_INDEX, UNIQUE_KEY_BYTES
from ..core.checks import check_key, check_name, check_whole
from ..core.errors import BadInput, NotFound, StoreCorrupt, Trimmed
from ..core.indexed import LogItem
from ..core.job import size_of
from ..core.queries import LogPage, LogRow
from ..queue.addresses import addresses, bare_url
from ..queue.aio import AsyncQueue
from ..queue.asks import QueueRequest
from ..queue.connect import store_file
from ..queue.options import Key, key_bytes
from ..queue.queue import Queue
from . import asks
from .asks import Appended
from .source import AsyncUpTo, IndexedJob, Items, UpTo

_BYTES_MARK = b"\xff"


def stored_key(key: Key) -> bytes:
    """A key as the log keeps it."""
    raw = key_bytes("key", key)
    check_key("key", raw, UNIQUE_KEY_BYTES)
    return _BYTES_MARK + raw if isinstance(key, bytes) else raw


def job_id_of(index: int, stored: bytes | None) -> str:
    """The id of the job that the item at an index is, by its stored key."""
    if stored is None:
        return f"#{index}"
    if stored.startswith(_BYTES_MARK):
        return f"#x{stored.removeprefix(_BYTES_MARK).hex()}"
    try:
        text = stored.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise StoreCorrupt(
            f"the key of the log's item at {index:,} is neither text nor marked bytes"
        ) from None
    return f"#{text}" if text.startswith("#") else text


T = TypeVar("T")

FIRST_PAGE_ITEMS = 16


class _Pages(Generic[T]):
    """A cache of the last page read, as indexes are nearly always read in sequence."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._rows: dict[int, LogRow] = {}
        self.limit = FIRST_PAGE_ITEMS

    def get(self, index: int) -> LogRow | None:
        with self._lock:
            return self._rows.get(index)

    def put(self, rows: Sequence[LogRow]) -> None:
        size = sum(size_of(row.body) for row in rows)
        # Pages grow while their items are small.
        few = size * 2 > LOG_PAGE_BYTES
        with self._lock:
            self._rows = {row.at: row for row in rows}
            self.limit = max(self.limit // 2, 1) if few else min(self.limit * 2, LOG_PAGE_ITEMS)


class BaseLog(Generic[T]):
    """What both kinds share: the form of items, the page that was read last."""

    def __init__(
        self,
        queue: Any,
        name: str,
        item: type[T] = Any,  # type: ignore[assignment]
        *,
        key: Callable[[T], Key] | None = None,
        keep_keys: int = KEEP_KEYS,
    ) -> None:
        check_name("log", name)
        check_whole("keep_keys", keep_keys, 0, MAX_INDEX)
        self.queue, self.name = queue, name
        self.items: Items[T] = Items(item)
        self._key, self._keep_keys = key, keep_keys
        self._pages: _Pages[T] = _Pages()

    @property
    def finds_keys(self) -> bool:
        """Whether items have keys by themselves."""
        return self._key is not None

    def _item(self, item: T, key: Key | None) -> LogItem:
        if key is None and self._key is not None:
            key = self._key(item)
        return LogItem(data=self.items.encode(item), key=None if key is None else stored_key(key))

    def _append_asks(
        self, items: Iterable[T], keys: Iterable[Key | None] | None
    ) -> list[QueueRequest[list[Appended]]]:
        chosen = list(items)
        named = [None] * len(chosen) if keys is None else list(keys)
        if len(named) != len(chosen):
            raise BadInput("keys", f"{len(named):,}", needed=f"as many as there are items, {len(chosen):,}")
        records = [self._item(item, key) for item, key in zip(chosen, named, strict=True)]
        return asks.append(self.queue.tenant, self.name, records)

    def _page_ask(self, index: int) -> QueueRequest[LogPage]:
        return asks.page(self.queue.tenant, self.name, index - 1, self._pages.limit)

    def _found(self, index: int, page: LogPage) -> IndexedJob[T]:
        if index <= page.ends.trimmed:
            raise Trimmed(self.name, index, trimmed=page.ends.trimmed)
        if not page.items or page.items[0].at != index:
            raise NotFound(f"item in the log {self.name} at", index)
        self._pages.put(page.items)
        return self._job(page.items[0])

    def _job(self, row: LogRow) -> IndexedJob[T]:
        return IndexedJob(job_id_of(row.at, row.key), self.items.decode(row.body), row.at)

    def _ends_ask(self) -> QueueRequest[LogPage]:
        return asks.page(self.queue.tenant, self.name)

    def _trim_ask(self, up_to: int | None) -> QueueRequest[int]:
        return asks.trim(self.queue.tenant, self.name, up_to, self._keep_keys)


class Log(BaseLog[T]):
    """A durable append-only log, and a source of its items. The first item has index 1.

    `key` gives an item its key where `append` is given none: what has the key of an item that is, or was,
    in the log is not appended again.
    """

    queue: Queue

    def append(self, item: T, key: Key | None = None) -> Appended:
        """Append an item; its index, or that of the item that had the key before: then it is not `is_new`."""
        return self.append_many([item], None if key is None else [key])[0]

    def append_many(self, items: Iterable[T], keys: Iterable[Key | None] | None = None) -> list[Appended]:
        """Append items in order, all or none of each 10,000; of each what `append` returns."""
        return [at for ask in self._append_asks(items, keys) for at in self.queue._ask(ask)]

    def head(self) -> int:
        """The index of the last item; 0 where there is none."""
        return self.queue._ask(self._ends_ask()).ends.head

    def at(self, index: int) -> IndexedJob[T]:
        """The item at an index, as a job; `NotFound` where none is yet, `Trimmed` where none is any more."""
        row = self._pages.get(index)
        if row is not None:
            return self._job(row)
        return self._found(index, self.queue._ask(self._page_ask(index)))

    def trim(self, up_to: int | None = None) -> int:
        """Remove the items that all consumers of this log have passed, up to `up_to`; return how many.

        A log without consumers is trimmed only with `up_to`.
        """
        return sum(iter(lambda: self.queue._ask(self._trim_ask(up_to)), 0))


class AsyncLog(BaseLog[T]):
    """The same for an `AsyncQueue`; see `Log`."""

    queue: AsyncQueue

    async def append(self, item: T, key: Key | None = None) -> Appended:
        """Append an item; its index, and whether it is new."""
        return (await self.append_many([item], None if key is None else [key]))[0]

    async def append_many(
        self, items: Iterable[T], keys: Iterable[Key | None] | None = None
    ) -> list[Appended]:
        """Append items in order; of each what `append` returns."""
        return [at for ask in self._append_asks(items, keys) for at in await self.queue._ask(ask)]

    async def head(self) -> int:
        """The index of the last item."""
        return (await self.queue._ask(self._ends_ask())).ends.head

    async def at(self, index: int) -> IndexedJob[T]:
        """The item at an index, as a job."""
        row = self._pages.get(index)
        if row is not None:
            return self._job(row)
        return self._found(index, await self.queue._ask(self._page_ask(index)))

    async def trim(self, up_to: int | None = None) -> int:
        """Remove what all consumers of this log have passed; how many items went."""
        total = 0
        while gone := await self.queue._ask(self._trim_ask(up_to)):
            total += gone
        return total


def log_name(source: Any, queue: Any) -> str:
    """The log that a consumer with this source reads, in the store that its progress is in, or ""."""
    while isinstance(source, UpTo | AsyncUpTo):
        source = source.source
    if not isinstance(source, BaseLog) or source.queue.tenant != queue.tenant:
        return ""
    return source.name if _stores_at(source.queue.url) == _stores_at(queue.url) else ""


def _stores_at(url: str) -> list[str]:
    """The stores at an address, the same for each way to write it."""
    return [str(path.resolve()) if (path := store_file(one)) else bare_url(one) for one in addresses(url)]
