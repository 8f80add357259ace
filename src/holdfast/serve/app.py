"""`holdfast serve`: one process that opens the doors onto one store, until it is told to stop.

    open the store ──▶ open each door ──▶ ready ──▶ upkeep, until SIGTERM or SIGINT ──▶ drain ──▶ close

A door beyond loopback needs somebody who guards it. The job-command port has no password on the wire, so
there it is the operator who says, in words, what does: a firewall, a private network, a tunnel.
"""

import asyncio
import random
import signal
from collections.abc import Callable

import msgspec

from ..core import commands as c
from ..core import queries as q
from ..core.errors import BadInput, HoldfastError
from ..engine.connection import Connection, open_connection
from ..queue.connect import store_maker
from .bedrock.port import Port
from .bedrock.server import Server
from .door import Address, is_loopback

# Who only looks sees what has become true by itself within this time, also where nobody claims.
MOST_UPKEEP_S = 5.0
LEAST_UPKEEP_S = 0.1


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What is served, and where."""

    store: str
    bedrock: Address
    bedrock_tenant: str = ""
    # How long jobs may be out that name neither `retryAfter` nor `timeout`; None: for ever, as documented.
    bedrock_lease_ms: int | None = None
    # What keeps strangers away from an address beyond loopback.
    bedrock_guard: str = ""


def check(options: Options) -> None:
    """Refuse an open door that nobody guards."""
    if not is_loopback(options.bedrock.host) and not options.bedrock_guard:
        needed = (
            "a loopback address, as its commands carry no password; where something else keeps strangers "
            'away, say what: --bedrock-guard "firewall, 10.0.0.0/8 only"'
        )
        raise BadInput("bedrock", str(options.bedrock), needed=needed)


class App:
    """The doors of one process."""

    def __init__(self, options: Options, log: Callable[[str], None]) -> None:
        check(options)
        self._options, self._log = options, log
        self._make_store = store_maker(options.store, join=False)
        self._stopping = asyncio.Event()

    async def run(self, ready: Callable[[list[str]], None]) -> None:
        """Serve until a signal comes; `ready` is told of the addresses once all doors are open."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        committer = open_connection(self._make_store, dice=random.random)
        try:
            await self._serve(committer, ready)
        finally:
            await asyncio.to_thread(committer.close)

    def stop(self) -> None:
        """Begin to stop; what runs comes to its end first."""
        self._stopping.set()

    async def _serve(self, committer: Connection, ready: Callable[[list[str]], None]) -> None:
        # The store must be there before anybody is told that it is.
        await committer.ask_async(c.Upkeep())
        options = self._options
        port = Port(committer, tenant=options.bedrock_tenant, lease_ms=options.bedrock_lease_ms)
        server = Server(port, self._log)
        try:
            addresses = await server.start(options.bedrock.host, options.bedrock.port)
        except OSError as error:
            needed = f"free, and of this machine ({error.strerror or error})"
            raise BadInput("bedrock", str(options.bedrock), needed=needed) from None
        ready([f"job commands on {address}" for address in addresses])
        upkeep = asyncio.create_task(self._upkeep(committer))
        await self._stopping.wait()
        self._log("draining")
        upkeep.cancel()
        await server.drain()

    async def _upkeep(self, committer: Connection) -> None:
        while True:
            left_s = MOST_UPKEEP_S
            try:
                next_ms: int | None = await committer.ask_async(c.Upkeep())
                if next_ms is not None:
                    left_s = (next_ms - await committer.ask_async(q.GetTime())) / 1000
            except HoldfastError as error:
                self._log(f"upkeep: {error}")
            await asyncio.sleep(min(max(left_s, LEAST_UPKEEP_S), MOST_UPKEEP_S))
