"""The job-command port as a server of `holdfast serve`."""

from collections.abc import Callable

from ...engine.connection import Connection
from ..config import Options
from ..guard import Guard
from ..service import is_loopback
from .access import PortGuard
from .port import Port
from .server import PortServer


class BedrockService:
    """Listens where the options say, for one tenant."""

    name = "bedrock"

    def __init__(
        self, connection: Connection, guard: Guard, options: Options, log: Callable[[str], None]
    ) -> None:
        assert options.bedrock is not None
        self._address, tenant = options.bedrock, options.bedrock_tenant
        self.where = str(self._address)
        port = Port(connection, tenant=tenant, lease_ms=options.bedrock_lease_ms)
        loopback = is_loopback(self._address.host)
        self._server = PortServer(port, log, PortGuard(guard, tenant=tenant, loopback=loopback))

    async def start(self) -> list[str]:
        """Listen; see `Service`."""
        addresses = await self._server.start(self._address.host, self._address.port)
        return [f"job commands on {address}" for address in addresses]

    async def drain(self) -> None:
        """Answer waiting requests, and close; see `Service`."""
        await self._server.drain()
