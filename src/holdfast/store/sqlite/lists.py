"""Whole listings of the SQLite store, by key, for whoever copies it."""

import msgspec

from ...core.limits import Domain, DomainKey
from ...core.unique import Unique, UniqueKey
from ..contract import Turn
from .connection import Link
from .statements import SQL

# Text as it is; bytes as hexadecimal text in a list, which nothing else ever is.
Told = str | list[str]

_RECORDS = msgspec.json.Decoder(list[tuple[str, str, Told]])
_UNIQUES = msgspec.json.Decoder(list[tuple[str, str, str, int, int]])
_DOMAINS = msgspec.json.Decoder(list[Domain])
_TURNS = msgspec.json.Decoder(list[Turn])
_KEYS = msgspec.json.Decoder(list[tuple[int, str]])
_NONE = b"[]"


def as_bytes(told: Told) -> bytes:
    """What was told, as it was given."""
    return told.encode() if isinstance(told, str) else bytes.fromhex(told[0])


class SqliteLists:
    """See `ReadTxn` for what each verb promises."""

    link: Link

    def notice(self) -> bytes | None:
        """What stands on the door."""
        found: bytes | None = self.link.value(SQL["notice"])
        return found

    def list_records(self, *, after: tuple[str, str], limit: int) -> list[tuple[str, str, bytes]]:
        """All small records."""
        answer = self.link.value(SQL["list_records"], (*after, limit)) or _NONE
        return [(kind, name, as_bytes(told)) for kind, name, told in _RECORDS.decode(answer)]

    def list_unique(self, *, after: UniqueKey, limit: int) -> list[Unique]:
        """Who holds which key."""
        rows = _UNIQUES.decode(self.link.value(SQL["list_unique"], (*after, limit)) or _NONE)
        return [
            Unique(tenant=tenant, task=task, key=bytes.fromhex(key), job_id=job_id, until_ms=until_ms)
            for tenant, task, key, job_id, until_ms in rows
        ]

    def list_all_domains(self, *, after: DomainKey, limit: int) -> list[Domain]:
        """What is kept of all domains."""
        return _DOMAINS.decode(self.link.value(SQL["list_all_domains"], (*after, limit)) or _NONE)

    def list_turns(self) -> list[Turn]:
        """The turns of tenants and of their tasks."""
        return _TURNS.decode(self.link.value(SQL["list_turns"]) or _NONE)

    def list_log_keys(self, log: str, *, after: int, limit: int) -> list[tuple[int, bytes]]:
        """The keys of a log by where they lead."""
        rows = _KEYS.decode(self.link.value(SQL["list_log_keys"], (log, after, limit)) or _NONE)
        return [(at, bytes.fromhex(key)) for at, key in rows]
