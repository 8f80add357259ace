"""Sysids that journals lease for days, to make ids while the store is down. See docs/decisions/0018."""

from .commands import Command
from .job import Record


class TakeSysid(Command, frozen=True, kw_only=True):
    """Lease a sysid, or renew the one that has this token; replies it.

    The caller makes the token, a secret, so that a repeated command leases only one sysid. `number` is the
    sysid to renew, or 0. If its token is `previous`, `token` replaces that; if it is neither, another sysid
    is leased. `for_ms` 0 releases it: the reply has `number` 0. With `used_until_ms`, before which its ids
    are, it is released only if many are taken; else the reply has the sysid, which the caller keeps.
    """

    token: str
    for_ms: int
    number: int = 0
    previous: str = ""
    used_until_ms: int = 0


class TakenSysid(Record, frozen=True, kw_only=True):
    """A leased sysid. Its holder makes ids with times from `ids_from_ms` to before `ids_until_ms`."""

    number: int
    token: str
    ids_from_ms: int = 0
    ids_until_ms: int = 0
