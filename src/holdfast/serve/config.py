"""The settings of `holdfast serve`: options, environment variables and a TOML file, with the same names.

    --bedrock-tenant acme        HOLDFAST_BEDROCK_TENANT=acme        bedrock-tenant = "acme"

Options come first, then the environment, then the file.
"""

import ssl
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from ..core.bounds import HTTP_BODY_BYTES, HTTP_CONNECTIONS
from ..core.errors import BadInput
from .service import ListenAddress, is_loopback

# The options that a file may set, with the type that each has there.
SETTINGS: dict[str, type | tuple[type, ...]] = {
    "store": str,
    "http": str,
    "grpc": str,
    "bedrock": str,
    "bedrock-tenant": str,
    "bedrock-timeout": str,
    "journal": str,
    "worker": list,
    "log-format": str,
    "no-handlers": bool,
    "runners": str,
    "handler-slots": int,
    "trust-uploads": bool,
    "token-always": bool,
    "tls-cert": str,
    "tls-key": str,
    "tls-client-ca": str,
    "rate": (int, float),
    "max-body": str,
    "max-connections": int,
    "session-key": str,
    "hidden-words": str,
}
# A shorter key could be guessed.
SESSION_KEY_CHARS = 32


class Tls(msgspec.Struct, frozen=True):
    """The files of a server's certificate and key, and of the authority whose clients alone are let in."""

    cert: str
    key: str
    client_ca: str = ""

    def context(self) -> ssl.SSLContext:
        """The same for sockets; `BadInput` where a file cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _load("tls-cert", self.cert, lambda: context.load_cert_chain(self.cert, self.key))
        if self.client_ca:
            _load("tls-client-ca", self.client_ca, lambda: context.load_verify_locations(self.client_ca))
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `holdfast serve`. A server without an address is not started."""

    store: str
    # The folder where new jobs are durable before the store has them; "": there is none.
    journal: str = ""
    http: ListenAddress | None = None
    grpc: ListenAddress | None = None
    bedrock: ListenAddress | None = None
    bedrock_tenant: str = ""
    # How long jobs may be out that name neither `retryAfter` nor `timeout`; None: for ever, as documented.
    bedrock_lease_ms: int | None = None
    # Queues whose jobs are run here too, as `holdfast worker` names them.
    workers: tuple[str, ...] = ()
    # Whether the handlers in the store are run here too, and the file with the settings of their runners.
    handlers: bool = False
    runners: str = ""
    # Jobs of handlers that run at once; 0: as many as a worker runs by default.
    handler_slots: int = 0
    # Whether clients of other machines may upload handlers even where bubblewrap does not confine these.
    trust_uploads: bool = False
    # Whether clients on loopback need a token as well.
    token_always: bool = False
    tls: Tls | None = None
    # Requests of a client in a second; 0: any number.
    rate: float = 0.0
    max_body_bytes: int = HTTP_BODY_BYTES
    max_connections: int = HTTP_CONNECTIONS
    # The key of the dashboard's sessions; "": one is made, and sessions end with the process.
    session_key: str = ""
    # Words of keys whose values are hidden too, and with a minus shown; see `core.redaction`.
    hidden_words: str = ""

    def beyond_loopback(self) -> list[tuple[str, ListenAddress]]:
        """The servers that other machines can reach."""
        named = (("http", self.http), ("grpc", self.grpc), ("bedrock", self.bedrock))
        return [(name, at) for name, at in named if at is not None and not is_loopback(at.host)]

    @property
    def private_hosts(self) -> bool:
        """Whether http handlers may reach private networks by default: all clients are users of this machine.

        With `token_always` they may be others, whose requests a proxy passes on.
        """
        return not self.token_always and not self.beyond_loopback()


def read_file(path: str) -> dict[str, Any]:
    """The settings of a file by their names; `BadInput` tells what is wrong with it."""
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput("config", path, needed=f"a file that can be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput("config", path, needed=f"TOML ({error})") from None
    for name, value in found.items():
        if name not in SETTINGS:
            raise BadInput(f"{name} of {path}", value, needed=f"one of the settings {', '.join(SETTINGS)}")
        kind = SETTINGS[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise BadInput(f"{name} of {path}", value, needed=f"a TOML {_kind_name(kind)}")
    return found


def _kind_name(kind: type | tuple[type, ...]) -> str:
    names = {str: "string", list: "array of strings", bool: "boolean", int: "integer"}
    return names.get(kind, "number") if isinstance(kind, type) else "number"


def _load(name: str, path: str, load: Any) -> None:
    try:
        load()
    except OSError as error:
        # `ssl.SSLError` is one too, and names no file.
        reason = error.strerror or getattr(error, "reason", "") or str(error)
        raise BadInput(name, path, needed=f"a PEM file that fits its key ({reason})") from None
