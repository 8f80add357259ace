"""The interface of a connection: commands and queries in, replies out.

    StoreConnection     to a store, with an engine in this process (`store_connection.py`)
    RemoteConnection    to a server (`remote/connection.py`)
    JournalConnection   to either, with new jobs kept in a local folder first (`journal/connection.py`)

This module imports no engine: an executor and a client of a server have none.
"""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..core import commands as c
from ..core.queries import FindToken, GetTime, Query, SelectJobs
from ..store.common.lending import InAutocommit
from ..store.contract import AnyStore
from .ticket import Submitter

if TYPE_CHECKING:
    from .engine import AnyEngine
    from .metrics import CommitMeter

# Opens the store of another address, that a store has moved to; None: it is not there.
Reopen = Callable[[str], AnyStore | None]
# Queries of coroutines that have threads of their own, and how many. An SQL query may run for seconds, and
# other queries must not wait for many of them. A server looks up tokens and the time for all its clients.
OWN_THREADS: dict[type, int] = {SelectJobs: 2, FindToken: 4, GetTime: 4}


class Connection(Submitter):
    """Takes commands and queries, of threads and coroutines, for a store or for a server that has one."""

    @property
    def engine(self) -> "AnyEngine":
        """The engine of the store as it is now; `BadInput` where there is none in this process."""
        raise NotImplementedError

    @property
    def store(self) -> AnyStore:
        """The store as it is now; `BadInput` where there is none in this process."""
        return self.engine.store

    def ask(self, asked: c.Command | Query, *, wait_s: float = 0.0) -> Any:
        """Run a command or query and return its reply; raises its error."""
        return super().ask(asked, wait_s=wait_s)  # type: ignore[arg-type]

    def ask_async(self, asked: c.Command | Query, *, wait_s: float = 0.0) -> Coroutine[Any, Any, Any]:
        """Run a command or query, awaiting its reply in this event loop."""
        return super().ask_async(asked, wait_s=wait_s)  # type: ignore[arg-type]

    def ask_in(self, connection: Any, command: c.Command) -> Any:
        """Run a command inside the caller's transaction; by itself if their connection is in autocommit."""
        with suppress(InAutocommit):
            return self.engine.execute_in(connection, command)
        return self.ask(command)

    async def ask_in_async(self, connection: Any, command: c.Command) -> Any:
        """`ask_in` for asyncio connections."""
        with suppress(InAutocommit):
            return await self.engine.execute_in_async(connection, command)
        return await self.ask_async(command)

    def appear(self, name: str) -> bool:
        """Make this process visible under a name to others; False if the store cannot, see `Store.appear`."""
        raise NotImplementedError

    def measure(self, meter: "CommitMeter") -> None:
        """Have the commits of this process measured; those of a server are measured there."""

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a function, as a hint, when progress or a log may have changed.

        It is called from another thread, must return at once and never raise.
        """
        raise NotImplementedError

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Remove a listener."""
        raise NotImplementedError

    def close(self) -> None:
        """Commit what is pending, and close everything."""
        raise NotImplementedError
