"""Sysids that journals hold for days, to make ids while the store is away. See docs/decisions/0018."""

from .commands import Command
from .job import Record


class TakeSysid(Command, frozen=True, kw_only=True):
    """Lease a number for making ids, or renew the one that was leased under this token; replies it.

    The caller makes the token, a secret, so that a store which is asked twice leases one number. `number` is
    the one that is renewed, else 0; one that has another holder by now is replaced. `for_ms` 0 gives it back.
    """

    token: str
    for_ms: int
    number: int = 0


class TakenSysid(Record, frozen=True, kw_only=True):
    """A leased number. Its holder makes ids from the moment `ids_from_ms` on, and before `ids_until_ms`."""

    number: int
    token: str
    ids_from_ms: int = 0
    ids_until_ms: int = 0
