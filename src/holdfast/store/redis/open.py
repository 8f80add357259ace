"""Opening a Redis store: checks whether the server can be used, and has the durability asked for."""

from typing import Any, NamedTuple

from ...core.errors import StoreCorrupt, StoreError, StoreMissing
from ...core.layout import Layout, check_layout
from ...core.units import counted
from ..common.outage import Unreachable
from .connection import Command, RedisServer
from .errors import ReplyError
from .keys import Keys
from .rows import KnownVersion
from .url import RedisAddress

OLDEST = (6, 2)
# The first version with WAITAOF, by which replicas confirm that data is on disk.
WAITAOF = (7, 2)
# The migrations, each a Lua script and the oldest version that may still write after it: the first makes
# layout 2. A script gets the first part of all keys as `base`. It is run when a store is opened, in one step
# with the new version, so no process writes meanwhile: docs/decisions/0023.
MIGRATIONS: tuple[tuple[str, int], ...] = ()
# The version of the layout in docs/decisions/0009.
LAYOUT = 1 + len(MIGRATIONS)
_MIGRATE = """if redis.call('GET', KEYS[1]) ~= ARGV[1] then return end
local base = ARGV[3]
{script}
redis.call('SET', KEYS[1], ARGV[2])"""


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
    # Of the last commit.
    mark: bytes | None


def look(connections: RedisServer, keys: Keys) -> ServerInfo:
    """Read the `ServerInfo` of a server."""
    sections, (seconds, micros), mark = connections.call_many(
        [(b"INFO",), (b"TIME",), (b"LINDEX", keys.marks, 0)]
    )
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
        mark=mark,
    )


def open_server(
    connections: RedisServer, keys: Keys, address: RedisAddress, *, create: bool, was_open: bool
) -> tuple[ServerInfo, Layout, KnownVersion]:
    """Check a server, and that the store on it can be used; return what is known of both.

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
    return server, *open_layout(connections, keys, address, create=create or was_open)


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


def open_layout(
    connections: RedisServer, keys: Keys, address: RedisAddress, *, create: bool
) -> tuple[Layout, KnownVersion]:
    """Write the layout of a new store, migrate an older one, and refuse one that this version may not write.

    A store exists once it has a layout. Without `create` it must exist.
    """
    begin = [(b"SET", keys.version, f"{LAYOUT} {_oldest_writer(LAYOUT)} ", b"NX")] if create else []
    while True:
        *_, found, notice = connections.call_many(
            [*begin, (b"GET", keys.version), (b"HGET", keys.notice, b"")]
        )
        if found is None:
            raise StoreMissing(address.shown)
        layout = _layout_of(bytes(found), keys, address)
        check_layout(address.shown, layout, LAYOUT)
        if layout.version >= LAYOUT:
            return layout, KnownVersion(bytes(found), notice)
        _migrate(connections, keys, bytes(found), layout.version + 1)


def _layout_of(found: bytes, keys: Keys, address: RedisAddress) -> Layout:
    version, oldest, *_ = [*found.split(b" "), b""]
    if not version.isdigit() or not int(version) or oldest.strip(b"0123456789"):
        raise StoreCorrupt(
            f"{address.shown} is damaged: its key {keys.version.decode()} must begin with the number of its "
            "layout, which is at least 1, and does not; restore a backup"
        )
    return Layout(int(version), int(oldest or 0))


def _oldest_writer(version: int) -> int:
    return MIGRATIONS[version - 2][1] if version > 1 else 1


def _migrate(connections: RedisServer, keys: Keys, found: bytes, version: int) -> None:
    """Migrate to a version, unless another process has done it."""
    script, oldest = MIGRATIONS[version - 2]
    changed = b"%d %d %s" % (version, oldest, found.split(b" ")[2])
    text = _MIGRATE.replace("{script}", script)
    connections.call(b"EVAL", text, 1, keys.version, found, changed, keys.base)


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
