"""`holdfast limits`: all limits, and how busy their domains are."""

from typing import TYPE_CHECKING

import click

from ..output import emit, say, table
from ..session import Session, settings

if TYPE_CHECKING:
    from ...core.queries import LimitLoad

COLUMNS = ("DOMAIN", "RATE", "BURST", "CONCURRENCY", "RUNNING", "HELD")


@click.command()
@settings(create=True)
@click.pass_obj
def limits(session: Session) -> None:
    """List limits, and how many jobs they hold back."""
    from ...core.queries import ListLimits, ask_all
    from ..records import limit_record

    with session.existing() as queue:
        found: list[LimitLoad] = ask_all(queue.connection.ask, ListLimits(tenant=queue.tenant))
    found.sort(key=lambda one: one.domain)
    if session.as_json:
        for one in found:
            emit(limit_record(one.domain, one.limit) | {"running": one.running, "held": one.held})
    elif not found:
        say("no limits")
    else:
        table(COLUMNS, [_row(one) for one in found], right=COLUMNS[1:])


def _row(one: "LimitLoad") -> tuple[str, ...]:
    from ...core.limit_text import rate_text
    from ..records import key_text

    limit = one.limit
    rate = "" if limit.rate is None else rate_text(limit.rate)
    burst = "" if limit.rate is None else f"{limit.burst:,}"
    most = "" if limit.concurrency is None else f"{limit.concurrency:,}"
    return key_text(one.domain), rate, burst, most, f"{one.running:,}", f"{one.held:,}"
