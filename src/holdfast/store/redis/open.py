"""Opening a Redis store: checks whether the server can be used, and has the durability asked for."""

from typing import Any, NamedTuple

from ...core.counting import counted
from ...core.errors import SchemaMismatch, StoreCorrupt, StoreError, StoreMissing
from ..common.outage import Unreachable
from .connection import Command, RedisServer
from .errors import ReplyError
from .keys import Keys
from .url import RedisAddress

OLDEST = (6, 2)
# The first version with WAITAOF, by which replicas confirm that data is on disk.
WAITAOF = (7, 2)
# The version of the layout in docs/decisions/0009.
VERSION = 1


class ServerInfo(NamedTuple):
    """Version, role and settings of a server."""

    version: tuple[int, int]
    named: str
    role: str
    # The eviction policy; maxmemory 0 means no limit.
    policy: str
    maxmemory: int
    used_memory: int
    aof: bool
    # None: no permission for CONFIG GET.
    appendfsync: str | None
    saves: str | None
    replicas: int
    now_ms: int
    tick: bytes | None


def look(connections: RedisServer, keys: Keys) -> ServerInfo:
    """Read the `ServerInfo` of a server."""
    sections, (seconds, micros), tick = connections.call_many([(b"INFO",), (b"TIME",), (b"GET", keys.tick)])
    info = _info(sections)
    named = info.get("valkey_version") or info.get("redis_version", "0")
    major, minor, *_ = f"{info.get('redis_version', '0')}.0".split(".")
    return ServerInfo(
        version=(int(major), int(minor)),
        named=f"Valkey {named}" if "valkey_version" in info else f"Redis {named}",
        role=info.get("role", "master"),
        policy=info.get("maxmemory_policy", "noeviction"),
        maxmemory=int(info.get("maxmemory", 0)),
        used_memory=int(info.get("used_memory", 0)),
        aof=info.get("aof_enabled", "0") == "1",
        appendfsync=_setting(connections, "appendfsync"),
        saves=_setting(connections, "save"),
        replicas=int(info.get("connected_slaves", 0)),
        now_ms=int(seconds) * 1000 + int(micros) // 1000,
        tick=tick,
    )


def open_server(
    connections: RedisServer, keys: Keys, address: RedisAddress, *, create: bool, was_open: bool
) -> ServerInfo:
    """Check a server, and that the store on it can be used.

    A server that lost its data while the store was open is used all the same.
    """
    server = look(connections, keys)
    try:
        check_server(server, address)
    except StoreError as error:
        if was_open:
            # It was usable before: perhaps a replica is being promoted.
            raise Unreachable(str(error)) from None
        raise
    check_layout(connections, keys, address, create=create or was_open)
    return server


def _info(reply: Any) -> dict[str, str]:
    lines = (line.partition(":") for line in bytes(reply).decode(errors="replace").splitlines())
    return {name: value for name, mark, value in lines if mark}


def _setting(connections: RedisServer, name: str) -> str | None:
    try:
        found = connections.call(b"CONFIG", b"GET", name)
    except ReplyError:
        return None
    return found[1].decode() if found else ""


def check_server(server: ServerInfo, address: RedisAddress) -> None:
    """Refuse a server that cannot be used, or lacks the durability asked for."""
    where = address.shown
    if server.version < OLDEST:
        raise StoreError(
            f"{where} is {server.named}, and must be Redis {OLDEST[0]}.{OLDEST[1]} or later, or Valkey"
        )
    if server.role != "master":
        raise StoreError(f"{where} cannot be written: it is a replica; use the address of the master")
    if server.policy != "noeviction":
        raise StoreError(
            f"{where} has maxmemory-policy {server.policy}, by which jobs are thrown away when memory is "
            "short; it must be noeviction: CONFIG SET maxmemory-policy noeviction"
        )
    if complaint := broken_promise(server, address):
        raise StoreError(f"{where}: durability={address.durability} cannot be kept: {complaint}")


def broken_promise(server: ServerInfo, address: RedisAddress) -> str:
    """The setting that must be changed for the durability asked for; "": none."""
    wanted = address.durability
    if wanted in ("everysec", "always") and not server.aof:
        return "the server keeps no log; CONFIG SET appendonly yes"
    if wanted == "everysec" and server.appendfsync == "no":
        return "it has appendfsync no; CONFIG SET appendfsync everysec"
    if wanted == "always" and server.appendfsync is None:
        return "CONFIG GET is not allowed, so nobody can tell; give the user +config|get, or say everysec"
    if wanted == "always" and server.appendfsync != "always":
        return f"it has appendfsync {server.appendfsync}; CONFIG SET appendfsync always"
    if wanted == "replicated" and server.replicas < address.replicas:
        return (
            f"it needs {counted(address.replicas, 'replica')}, and {server.replicas} are connected; add some"
        )
    return ""


def check_layout(connections: RedisServer, keys: Keys, address: RedisAddress, *, create: bool) -> None:
    """Write the layout version of a new store; refuse an unknown version.

    A store exists once it has a layout version. Without `create` it must exist.
    """
    mark = [(b"SET", keys.version, VERSION, b"NX")] if create else []
    found = connections.call_many([*mark, (b"GET", keys.version)])[-1]
    if found is None:
        raise StoreMissing(address.shown)
    if not bytes(found).isdigit():
        raise StoreCorrupt(
            f"{address.shown} is damaged: {keys.version.decode()} is not the number of a layout; "
            "restore a backup"
        )
    if int(found) != VERSION:
        raise SchemaMismatch(
            f"{address.shown} has layout {int(found)}, and this Holdfast knows {VERSION}; use the newer one"
        )


def waiting_commands(server: ServerInfo, address: RedisAddress, timeout_ms: int) -> list[Command]:
    """The commands after a commit that wait for replicas; none without `durability=replicated`.

    A replica replies to WAITAOF before it has synced the data that came with it, and then not again for a
    second. So WAIT is sent first, and by its reply the replica has synced.
    """
    if address.durability != "replicated":
        return []
    if server.version >= WAITAOF and server.aof:
        half_ms = timeout_ms // 2
        return [(b"WAIT", address.replicas, half_ms), (b"WAITAOF", 1, address.replicas, half_ms)]
    return [(b"WAIT", address.replicas, timeout_ms)]


def is_replicated(reply: Any, address: RedisAddress) -> bool:
    """Whether enough replicas have the commit."""
    count = reply[1] if isinstance(reply, list) else reply
    return int(count) >= address.replicas
