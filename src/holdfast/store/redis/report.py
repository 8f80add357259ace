"""The report of a Redis store: problems and their fixes, version, settings and sizes."""

from ...core.errors import StoreError
from ..common.report import MEGABYTE, clock_complaints
from ..contract import StoreReport
from .connection import RedisServer
from .keys import Keys
from .open import ServerInfo, check_server, look
from .url import RedisAddress

# A smaller part of free memory is reported.
LEFT = 0.1


def report(connections: RedisServer, keys: Keys, address: RedisAddress, *, own: bool) -> StoreReport:
    """Facts and problems of a store. `own`: the time is the server's."""
    server = look(connections, keys)
    live, archived = connections.call_many([(b"HLEN", keys.jobs), (b"HLEN", keys.archive)])
    facts = {
        "store": "redis cluster" if address.cluster else "redis",
        "address": address.shown,
        "server": server.named,
        "memory": f"{server.used_memory / MEGABYTE:,.1f} MB",
        "live jobs": f"{live:,}",
        "archived": f"{archived:,}",
        "durability asked for": address.durability or "none",
        "log": kept(server),
        "replicas": str(server.replicas),
    }
    return StoreReport(facts, _complaints(server, address, own=own))


def _complaints(server: ServerInfo, address: RedisAddress, *, own: bool) -> list[str]:
    where, told = address.shown, []
    try:
        check_server(server, address)
    except StoreError as error:
        told.append(str(error))
    if not address.durability and not server.aof:
        told.append(
            f"{where} keeps no log (appendonly no): what it accepted since it was last saved is lost when it "
            "ends; CONFIG SET appendonly yes, or say durability=memory if that is meant"
        )
    if server.maxmemory and server.used_memory > (1 - LEFT) * server.maxmemory:
        told.append(
            f"{where} uses {server.used_memory / MEGABYTE:,.0f} of {server.maxmemory / MEGABYTE:,.0f} MB: "
            "when it is full nothing is accepted any more; raise maxmemory, or purge the archive"
        )
    if own:
        told += clock_complaints(server.now_ms)
    return told


def kept(server: ServerInfo) -> str:
    """How the server persists data."""
    if not server.aof:
        return "none" if not server.saves else f"none; saved as a whole: {server.saves}"
    return f"appendfsync {server.appendfsync or 'unknown: CONFIG GET is not allowed'}"
