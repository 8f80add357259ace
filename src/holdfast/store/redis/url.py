"""Parses the URL of a Redis store.

    redis://user:password@host:port/db?prefix=holdfast&durability=always
    rediss://…                                       the same by TLS
    redis+cluster://host:port,host:port/?prefix=…    Redis Cluster; rediss+cluster://… by TLS
    …&shards=16                                      spread over 16 hash tags, and so over the masters

The password is never shown.
"""

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from ...core.errors import BadInput
from ...core.slots import SHARDS

FORM = "redis://user:password@host:port/db?prefix=holdfast, with %40 for @ and so on in its parts"
PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,64}")
PREFIX_NEEDED = "1 to 64 letters, digits, _, - and ."
PORT = 6379
DURABILITIES = ("memory", "everysec", "always", "replicated")
# The options and their defaults.
OPTIONS = {
    "prefix": "holdfast",
    "durability": "",
    "replicas": "1",
    "shards": "1",
    "ssl_ca_certs": "",
    "ssl_certfile": "",
    "ssl_keyfile": "",
}
TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
MOST_REPLICAS = 5
SCHEMES = ("redis", "rediss", "redis+cluster", "rediss+cluster")


class RedisAddress(NamedTuple):
    """Where a store is, and what is asked of it.

    `durability` is what the server must keep for us; where it cannot, opening is refused:

    - `memory`      nothing: all that the server had not saved is lost when it ends
    - `everysec`    its log is synced each second: the last second or two may be lost in a crash
    - `always`      its log is synced before it answers: nothing is lost when the same server comes back
    - `replicated`  `replicas` others have it too (and on their disks, from Redis 7.2 on and where the master
      keeps a log) before we answer. Redis promises no more than that these had it: a replica that had not may
      still be the one that is promoted
    - not given     whatever the server is set to, which `holdfast doctor` tells

    The first three say nothing about a failover: a log is of use to the server that wrote it. What the
    replica that is promoted had not received is lost, with `always` as with `memory`.
    """

    hosts: tuple[tuple[str, int], ...]
    shown: str
    db: int = 0
    # Never shown.
    user: str | None = None
    password: str | None = None
    tls: bool = False
    tls_files: tuple[tuple[str, str], ...] = ()
    cluster: bool = False
    prefix: str = "holdfast"
    durability: str = ""
    replicas: int = 1
    # Of how many stores behind one queue this is one.
    shards: int = 1

    def __repr__(self) -> str:
        return f"RedisAddress({self.shown!r})"


def parse(url: str) -> RedisAddress:
    """Parse a URL, without connecting."""
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        raise BadInput("store", f"{scheme}://…", needed=FORM)
    userinfo, _, where = rest.rpartition("@")
    try:
        hosts, db, asked = _parts(where, cluster=scheme.endswith("+cluster"))
    except ValueError:
        # Without the reason, which may contain a part of the password.
        raise BadInput("store", f"{scheme}://…", needed=FORM) from None
    user, _, password = userinfo.partition(":")
    options = _options(asked)
    named = ",".join(f"{host}:{port}" for host, port in hosts)
    shown_db = f"/{db}" if not scheme.endswith("+cluster") else "/"
    return RedisAddress(
        hosts=hosts,
        shown=f"{scheme}://{unquote(user) + '@' if user else ''}{named}{shown_db}?prefix={options['prefix']}",
        db=db,
        user=unquote(user) or None,
        password=unquote(password) or None,
        tls=scheme.startswith("rediss"),
        tls_files=tuple((name, options[name]) for name in TLS_FILES if options[name]),
        cluster=scheme.endswith("+cluster"),
        prefix=options["prefix"],
        durability=options["durability"],
        replicas=int(options["replicas"]),
        shards=int(options["shards"]),
    )


def _parts(where: str, *, cluster: bool) -> tuple[tuple[tuple[str, int], ...], int, dict[str, str]]:
    """Hosts with their ports, the number of the database, and the query parameters."""
    parts = urlsplit(f"//{where}")
    hosts = tuple(_host(host) for host in (parts.netloc or "localhost").split(","))
    db = parts.path.strip("/") or "0"
    if not re.fullmatch(r"[0-9]{1,5}", db) or (cluster and db != "0") or (len(hosts) > 1 and not cluster):
        raise ValueError("database")
    return (
        hosts,
        int(db),
        dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))),
    )


def _host(text: str) -> tuple[str, int]:
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:/@\s]+)(?::([0-9]{1,5}))?", text)
    if found is None:
        raise ValueError("host")
    return found[1].strip("[]"), int(found[2] or PORT)


def _options(asked: dict[str, str]) -> dict[str, str]:
    if unknown := asked.keys() - OPTIONS.keys():
        raise BadInput("store option", min(unknown), needed=", ".join(OPTIONS))
    options = OPTIONS | asked
    if not PREFIX.fullmatch(options["prefix"]):
        raise BadInput("prefix", options["prefix"], needed=PREFIX_NEEDED)
    if options["durability"] not in ("", *DURABILITIES):
        raise BadInput("durability", options["durability"], needed=", ".join(DURABILITIES))
    replicas = options["replicas"]
    if not re.fullmatch("[0-9]", replicas) or not 1 <= int(replicas) <= MOST_REPLICAS:
        raise BadInput("replicas", replicas, needed=f"a number from 1 to {MOST_REPLICAS}")
    if options["shards"] not in map(str, SHARDS):
        raise BadInput("shards", options["shards"], needed=f"one of {', '.join(map(str, SHARDS))}")
    return options
