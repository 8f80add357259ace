"""What ours is measured against: the bare engine under a store, chosen by the kind of store.

Each kind has a file of its own, `raw_KIND.py`, with one class that keeps `Side`. What stands there is
as fast as its author could make it: whoever makes the thing divided by slower fools nobody but himself.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from ...core.errors import BadInput


class Raw(Protocol):
    """A bare table of jobs with one index, under the durability that Holdfast ships."""

    def insert(self, first: int, count: int, by: int, data: str) -> None:
        """Insert jobs, so many a transaction."""

    def drain(self, by: int) -> int:
        """Claim and delete all jobs, two transactions for each batch; how many."""


class Side(Protocol):
    """One kind of store: where to make fresh ones, and its raw limit."""

    def settings(self) -> str:
        """The engine and what it was told, for whoever reads the figures."""

    def store(self) -> AbstractContextManager[str]:
        """A fresh store, by its address; gone afterwards."""

    def raw(self) -> AbstractContextManager[Raw]:
        """A fresh bare table in the same place."""

    def slow(self) -> AbstractContextManager[None] | None:
        """Let every sync take two milliseconds; None where that cannot be had."""

    def written(self, url: str) -> object:
        """Something that is different after every write."""


def side_of(url: str | None, folder: Path | None) -> Side:
    """The kind of a store's address; None: SQLite, in a folder or wherever temporary files are."""
    scheme = "sqlite" if url is None or "://" not in url else url.partition("://")[0]
    make = SIDES.get(scheme)
    if make is None:
        needed = f"a store with a raw side to be measured against: {', '.join(SIDES)}"
        raise BadInput("store", f"{scheme}://…", needed=needed)
    return make(url, folder)


def _sqlite(url: str | None, folder: Path | None) -> Side:
    from .raw_sqlite import SqliteSide

    return SqliteSide(url, folder)


def _postgres(url: str | None, folder: Path | None) -> Side:
    from .raw_postgres import PostgresSide

    return PostgresSide(url, folder)


def _redis(url: str | None, _folder: Path | None) -> Side:
    from .raw_redis import RedisSide

    return RedisSide(url)


SIDES: dict[str, Callable[[str | None, Path | None], Side]] = {
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "postgres": _postgres,
    "redis": _redis,
    "rediss": _redis,
    "redis+cluster": _redis,
}
