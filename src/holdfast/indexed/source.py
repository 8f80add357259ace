"""Where jobs are found by index: the one protocol, and ready-made sources.

Indexes are walked from low to high without gaps; the first one asked for is the progress plus one.
"""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from ..core.bounds import MAX_INDEX
from ..core.checks import check_whole
from ..core.errors import BadInput, NotFound
from ..core.job import Body
from ..queue.encoding import encode, reason_and_path

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class IndexedJob(Generic[T]):
    """A job found by its index. `id` names it among those that run, and reports that it is done."""

    id: str
    item: T
    index: int = 0


class Source(Protocol[T]):
    """Answers what is at an index. `head` and `at` may also be coroutines, for the consumers of asyncio.

    An `at` with a second parameter `stop` gets an event that is set when its consumer stops, so that a
    slow look-up can be given up: it raises then whatever it likes.
    """

    def head(self) -> int:
        """The last index that there is a job at."""

    def at(self, index: int) -> IndexedJob[T]:
        """The job at an index, or `NotFound`: not there yet."""


class Items(Generic[T]):
    """Items of one type and the jobs that they are, both ways; a wrong type is an error.

    `key` gives an item its id; without it the index is the id.
    """

    def __init__(self, item: type[T], *, key: Callable[[T], str] | None = None) -> None:
        self.type = item
        self._key = key
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Any if item is bytes else item)

    def to_job(self, item: T, index: int = 0) -> IndexedJob[T]:
        """The job that an item is."""
        self._check("item", item)
        key = str(index) if self._key is None else self._key(item)
        if not isinstance(key, str):
            raise BadInput("key of an item", type(key).__name__, needed="text")
        return IndexedJob(key, item, index)

    def to_item(self, job: IndexedJob[Any]) -> T:
        """The item that a job is."""
        if not isinstance(job, IndexedJob):
            raise BadInput("job", type(job).__name__, needed="an IndexedJob")
        self._check(f"item of job {job.id}", job.item)
        item: T = job.item
        return item

    def encode(self, item: T) -> Body:
        """An item as it is stored."""
        self._check("item", item)
        body = encode("item", item)
        if isinstance(body, bytes) and self.type not in (bytes, Any):
            # Stored as they are, bytes cannot be told from JSON of another type when they are read.
            raise BadInput("item", type(item).__name__, needed="in a log of bytes, or in one without a type")
        return body

    def decode(self, body: Body) -> T:
        """What was encoded; what was written as another type is refused."""
        is_bytes = isinstance(body, bytes)
        if is_bytes and self.type in (bytes, Any):
            return body  # type: ignore[return-value]
        if is_bytes or self.type is bytes:
            found = "bytes" if is_bytes else "JSON"
            raise BadInput("stored item", found, needed=f"a {_named(self.type)}")
        try:
            item: T = self._decoder.decode(body)
            return item
        except msgspec.DecodeError as error:
            reason, _ = reason_and_path(error)
            raise BadInput("stored item", "JSON", needed=f"a {_named(self.type)} ({reason})") from None

    def source(self, *, head: Callable[[], int], at: Callable[[int], T | None]) -> "ItemSource[T]":
        """A source of two functions; `at` returns None, or raises `NotFound`, where there is nothing yet."""
        return ItemSource(self, head, at)

    def _check(self, what: str, item: object) -> None:
        if self.type is Any:
            return
        try:
            right = isinstance(item, self.type)
        except TypeError:
            # list[int] and its like: msgspec knows them.
            try:
                msgspec.convert(item, type=self.type)
                return
            except msgspec.ValidationError:
                right = False
        if not right:
            raise BadInput(what, type(item).__name__, needed=f"a {_named(self.type)}")


class ItemSource(Generic[T]):
    """A source made of functions; see `Items.source`."""

    def __init__(self, items: Items[T], head: Callable[[], int], at: Callable[[int], T | None]) -> None:
        self.items, self.head, self._at = items, head, at

    def at(self, index: int) -> IndexedJob[T]:
        """The job at an index."""
        item = self._at(index)
        if item is None:
            raise NotFound("item at index", index)
        return self.items.to_job(item, index)


class UpTo(Generic[T]):
    """A source that ends at the progress of another consumer, so that a stage follows the one before."""

    def __init__(self, source: Source[T], limit: Callable[[], int]) -> None:
        self.source, self._limit = source, limit
        self._look = looker(source)
        self._passed = -1

    def head(self) -> int:
        """How far the other has come."""
        try:
            self._passed = self._limit()
        except NotFound:
            self._passed = 0  # it has not begun
        return self._passed

    def at(self, index: int, stop: Any = None) -> IndexedJob[T]:
        """The job at an index that the other has passed; it only goes forward, so it is not asked twice."""
        if index > self._passed and index > self.head():
            raise NotFound("index that the stage before has passed:", index)
        job: IndexedJob[T] = self._look(index, stop)
        return job


class AsyncUpTo(Generic[T]):
    """The same for asyncio; see `UpTo`."""

    def __init__(self, source: Any, limit: Callable[[], Awaitable[int]]) -> None:
        self.source, self._limit = source, limit
        self._look = looker(source)
        self._passed = -1

    async def head(self) -> int:
        """How far the other has come."""
        try:
            self._passed = await self._limit()
        except NotFound:
            self._passed = 0  # it has not begun
        return self._passed

    async def at(self, index: int, stop: Any = None) -> IndexedJob[T]:
        """The job at an index that the other has passed."""
        if index > self._passed and index > await self.head():
            raise NotFound("index that the stage before has passed:", index)
        found = self._look(index, stop)
        job: IndexedJob[T] = await found if inspect.isawaitable(found) else found
        return job


def looker(source: Any) -> Callable[[int, Any], Any]:
    """How a source is asked: with the event that gives up, where it takes one."""
    for name in ("head", "at"):
        if not callable(getattr(source, name, None)):
            raise BadInput("source", type(source).__name__, needed="something with head() and at(index)")
    takes_stop = "stop" in inspect.signature(source.at).parameters
    return (
        (lambda index, stop: source.at(index, stop=stop)) if takes_stop else lambda index, _: source.at(index)
    )


def checked_head(head: object) -> int:
    """What a source said its head is."""
    check_whole("head of the source", head, -1, MAX_INDEX)
    assert isinstance(head, int)
    return head


def checked_job(job: Any, index: int) -> IndexedJob[Any]:
    """What a source said is at an index."""
    if not isinstance(job, IndexedJob):
        needed = "an IndexedJob; Items(type).to_job makes one"
        raise BadInput(f"what the source has at {index:,}", type(job).__name__, needed=needed)
    if not isinstance(job.id, str) or not job.id:
        raise BadInput(f"id of the job at index {index:,}", job.id, needed="text")
    if job.index not in (0, index):
        raise BadInput(f"index of the job at {index:,}", job.index, needed="that index, or 0")
    return job if job.index else replace(job, index=index)


def _named(kind: Any) -> str:
    return getattr(kind, "__name__", str(kind))
