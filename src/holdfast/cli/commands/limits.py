"""`holdfast limits`: all limits, and how busy their domains are."""

from typing import TYPE_CHECKING

import click

from ..output import emit, say, table
from ..session import Session, settings
from .limit import rate_text

if TYPE_CHECKING:
    from ...core.limits import Domain, Limit
    from ...queue.queue import Queue

COLUMNS = ("DOMAIN", "RATE", "BURST", "CONCURRENCY", "RUNNING", "HELD")


@click.command()
@settings(create=True)
@click.pass_obj
def limits(session: Session) -> None:
    """List limits, and what they hold back."""
    from ..records import limit_record

    with session.existing() as queue:
        found = queue.limits()
        busy = _domains(queue, list(found))
    if session.as_json:
        for domain, limit in found.items():
            emit(limit_record(domain, limit) | _load(busy.get(domain)))
    elif not found:
        say("no limits")
    else:
        table(
            COLUMNS, [_row(name, limit, busy.get(name)) for name, limit in found.items()], right=COLUMNS[1:]
        )


def _domains(queue: "Queue", names: list[bytes]) -> "dict[bytes, Domain]":
    from ...engine.batch.limiting import find_domains

    keys = [(queue.tenant, name) for name in names]
    found = queue.line.committer.read(lambda txn: find_domains(txn, keys))
    return {name: domain for (_tenant, name), domain in found.items()}


def _load(domain: "Domain | None") -> dict[str, int]:
    return {"running": domain.running if domain else 0, "held": domain.held if domain else 0}


def _row(name: bytes, limit: "Limit", domain: "Domain | None") -> tuple[str, ...]:
    from ..records import key_text

    rate = "" if limit.rate is None else rate_text(limit.rate)
    burst = "" if limit.rate is None else f"{limit.burst:,}"
    most = "" if limit.concurrency is None else f"{limit.concurrency:,}"
    load = _load(domain)
    return key_text(name), rate, burst, most, f"{load['running']:,}", f"{load['held']:,}"
