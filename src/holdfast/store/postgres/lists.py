"""Whole listings of the PostgreSQL store, by key, for whoever copies it."""

import msgspec

from ...core.limits import Domain, DomainKey
from ...core.unique import Unique, UniqueKey
from ..contract import Turn
from .connection import Link

_domain = msgspec.json.Decoder(Domain).decode


class PostgresLists:
    """See `ReadTxn` for what each verb promises. Nothing is locked: nobody else writes what is copied."""

    link: Link
    sql: dict[str, str]

    def list_records(self, *, after: tuple[str, str], limit: int) -> list[tuple[str, str, bytes]]:
        """All small records."""
        return [
            (kind, name, raw) for kind, name, raw in self.link.rows(self.sql["list_records"], (*after, limit))
        ]

    def list_unique(self, *, after: UniqueKey, limit: int) -> list[Unique]:
        """Who holds which key."""
        rows = self.link.rows(self.sql["list_unique"], (*after, limit))
        return [
            Unique(tenant=tenant, task=task, key=key, job_id=job_id, until_ms=until_ms)
            for tenant, task, key, job_id, until_ms in rows
        ]

    def list_all_domains(self, *, after: DomainKey, limit: int) -> list[Domain]:
        """What is kept of all domains."""
        rows = self.link.rows(self.sql["list_all_domains"], (*after, limit))
        return [_domain(record) for (record,) in rows]

    def list_turns(self) -> list[Turn]:
        """The turns of tenants and of their tasks."""
        return sorted(Turn(*row) for row in self.link.rows(self.sql["list_turns"]))

    def list_log_keys(self, log: str, *, after: int, limit: int) -> list[tuple[int, bytes]]:
        """The keys of a log by where they lead."""
        return [(at, key) for at, key in self.link.rows(self.sql["list_log_keys"], (log, after, limit))]
