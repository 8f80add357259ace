"""Addresses of servers: `grpc://host:port?token=…`, and `grpcs://` for TLS."""

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import grpc
from msgspec import Struct

from ..core.errors import BadInput

DEFAULT_PORT = 9090
NEEDED = "grpc://HOST:PORT?token=…, or grpcs:// with TLS"
# What may stand in the query of an address; `ca`, `cert` and `key` are files, for TLS.
OPTIONS = ("token", "ca", "cert", "key")

CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", 160 * 1024 * 1024),
    ("grpc.max_send_message_length", -1),
    # Whether the server is there at all is asked when nothing comes from it.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A connection of its own for each queue: one that hangs holds up no other.
    ("grpc.use_local_subchannel_pool", 1),
]


class ServerAddress(Struct, frozen=True):
    """Where a server is, and how one gets in."""

    host: str
    port: int
    is_secure: bool = False
    token: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'grpcs' if self.is_secure else 'grpc'}://{host}:{self.port}"

    @property
    def metadata(self) -> list[tuple[str, str]]:
        """The headers of every call."""
        return [("authorization", f"Bearer {self.token}")] if self.token else []

    def channel(self) -> Any:
        """A channel to the server; it is not connected before it is used."""
        target = str(self).partition("://")[2]
        if not self.is_secure:
            return grpc.insecure_channel(target, CHANNEL_OPTIONS)
        ca, cert, key = (_read(name) if name else None for name in (self.ca, self.cert, self.key))
        credentials = grpc.ssl_channel_credentials(ca, key, cert)
        return grpc.secure_channel(target, credentials, CHANNEL_OPTIONS)


def _read(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise BadInput("file", name, needed=f"one that can be read ({error.strerror})") from None


def parse(url: str) -> ServerAddress:
    """An address, or `BadInput`."""
    # The query may have a secret.
    shown = url.partition("?")[0]
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORT
    except ValueError:
        raise BadInput("store", shown, needed=NEEDED) from None
    if not parts.hostname or parts.path.strip("/"):
        raise BadInput("store", shown, needed=NEEDED)
    asked = dict(parse_qsl(parts.query))
    if unknown := asked.keys() - set(OPTIONS):
        raise BadInput("store option", min(unknown), needed=" or ".join(OPTIONS))
    return ServerAddress(parts.hostname, port, is_secure=parts.scheme == "grpcs", **asked)
