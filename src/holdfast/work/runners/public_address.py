"""Connects http handlers to public addresses only, unless the operator has allowed others.

The address that was checked is the one that is connected to. A name that stands for a public address when it
is checked, and for a private one a moment later, does not get through.
"""

import ipaddress
import socket

from ...store.common.clock import monotonic_s

# The code of a job that named such a host.
FORBIDDEN_ADDRESS = "FORBIDDEN_ADDRESS"
# IPv6 addresses that stand for IPv4 ones, which are their last 32 bits.
NAT64 = ipaddress.ip_network("64:ff9b::/96")
# All other IPv6 addresses of the Internet; outside are also those of former private networks (fec0::/10).
INTERNET = ipaddress.ip_network("2000::/3")
Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


class ForbiddenAddress(Exception):
    """A host has no address that http handlers may reach; which it has is not told to its tenant."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"{host} has no public address, and http handlers may reach no others here; "
            "list the host in `hosts` of the file of --runners"
        )


def open_public(host: str, port: int, until_s: float, *, any_address: bool) -> socket.socket:
    """A connection to the first address of a host that accepts it, before a moment of the monotonic clock.

    Raises `ForbiddenAddress` or `OSError`.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    allowed = [one for one in found if any_address or is_public(str(one[4][0]))]
    if not allowed:
        raise ForbiddenAddress(host)
    for family, kind, protocol, _, address in allowed:
        if (left_s := until_s - monotonic_s()) <= 0:
            raise TimeoutError
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(left_s)
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as error:
            sock.close()
            failed = error
    raise failed


def is_public(text: str) -> bool:
    """Whether an address is reachable from the Internet: not this machine, its link or a private network."""
    address: Ip = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        address = _inner_address(address)
    is_outside = isinstance(address, ipaddress.IPv6Address) and address not in INTERNET
    return address.is_global and not address.is_multicast and not is_outside


def _inner_address(address: ipaddress.IPv6Address) -> Ip:
    """The IPv4 address that an IPv6 address stands for; else itself."""
    if address in NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or address
