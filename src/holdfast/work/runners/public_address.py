"""Connects http handlers to public addresses only, unless the operator has allowed others.

The address that was checked is the one that is connected to. A name that stands for a public address when it
is checked, and for a private one a moment later, does not get through.
"""

import ipaddress
import socket

from ...store.common.clock import monotonic_s

# The code of a job that named such a host.
FORBIDDEN_ADDRESS = "FORBIDDEN_ADDRESS"
# Where public addresses are. Of IPv6, private networks of today and of before are outside, and multicast.
INTERNET = tuple(map(ipaddress.ip_network, ("0.0.0.0/0", "2000::/3")))
# Where they are not: the blocks of the IANA registries of special-purpose addresses, also the few reachable
# ones, where no web server is. Python versions differ in what their `ipaddress` says about these blocks.
SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # shared by the customers of a provider; the metadata server of a cloud
            "127.0.0.0/8",  # this machine
            "168.63.129.16/32",  # in no registry: the server of a cloud for its own machines
            "169.254.0.0/16",  # the link; metadata servers of clouds
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocols of the IETF; the metadata server of a cloud
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # name servers for private addresses
            "192.52.193.0/24",  # multicast relays
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",  # private
            "192.175.48.0/24",  # name servers for private addresses
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
            "2001::/23",  # protocols of the IETF: Teredo, which contains IPv4 addresses, benchmarks, ORCHID
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4, which contains IPv4 addresses
            "2620:4f:8000::/48",  # name servers for private addresses
            "3fff::/20",  # documentation
        ),
    )
)
# IPv6 addresses that stand for the IPv4 addresses in their last 32 bits: mapped ones, and NAT64.
EMBEDDED = tuple(map(ipaddress.ip_network, ("::ffff:0:0/96", "64:ff9b::/96")))
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
    """Whether an address is one of the Internet: not of this machine, its link, a private network or none."""
    address: Ip = ipaddress.ip_address(text)
    if any(address in network for network in EMBEDDED):
        address = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    is_outside = not any(address in network for network in INTERNET)
    return not is_outside and not any(address in network for network in SPECIAL)
