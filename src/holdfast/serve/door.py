"""A door: one way by which other programs reach the store. `App` starts and drains all of them."""

import ipaddress
import socket
from typing import Protocol

import msgspec

from ..core.errors import BadInput


class Address(msgspec.Struct, frozen=True):
    """Where a door listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Door(Protocol):
    """What `App` needs of a door."""

    name: str
    # Its address, or whatever else it is known by, for errors.
    where: str

    async def start(self) -> list[str]:
        """Listen; lines that say where, such as "http on 127.0.0.1:8080"."""

    async def drain(self) -> None:
        """Take no new requests, answer those that run, and close. Ends within `DRAIN_S`."""


# How long a door waits for its last requests before it cuts them off.
DRAIN_S = 10.0


def read_address(what: str, text: str) -> Address:
    """HOST:PORT, or [HOST]:PORT."""
    host, colon, number = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not number.isascii() or not number.isdigit() or int(number) > 65535:
        raise BadInput(what, text, needed="HOST:PORT, such as 127.0.0.1:8888")
    return Address(host, int(number))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address, all of those that a name stands for."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise BadInput("host", host, needed=f"an address of this machine ({error.strerror})") from None
    return all(ipaddress.ip_address(str(one[4][0]).partition("%")[0]).is_loopback for one in found)
