"""Addresses of servers: `grpc://host:port?token=…`, and `grpcs://` for TLS."""

import socket
import ssl
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
# How long a probe waits for the server: the caller that asked waits too.
PROBE_S = 3.0

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

    def find_tls_fault(self) -> str:
        """Why no try can succeed: the server or this address lacks TLS, or a certificate is wrong; else "".

        gRPC reports all of these as a connection that failed, as if the server were away.
        """
        context = ssl.create_default_context(cafile=self.ca or None)
        if not self.is_secure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if self.cert and self.key:
            context.load_cert_chain(self.cert, self.key)
        context.set_alpn_protocols(["h2"])
        try:
            with (
                socket.create_connection((self.host, self.port), PROBE_S) as sock,
                context.wrap_socket(sock, server_hostname=self.host),
            ):
                return "" if self.is_secure else "the server uses TLS: write grpcs:// instead of grpc://"
        except ssl.SSLCertVerificationError as error:
            why = error.verify_message
            hint = "check the host" if "mismatch" in why else "name its authority by ?ca=FILE"
            return f"the certificate of the server is refused: {why}; {hint}"
        except ssl.SSLError as error:
            if self.is_secure and error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
                return "the server does not use TLS: write grpc:// instead of grpcs://"
        except OSError:
            pass
        return ""


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
