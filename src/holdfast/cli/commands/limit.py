"""`holdfast limit`: how fast the jobs of a domain may start, and how many may run."""

import click

from ...core.errors import NotFound
from ..output import answer
from ..session import Session, settings
from ..words import Key


@click.command()
@click.argument("domain", type=Key())
@click.option("--rate", metavar="RATE", help="Starts per second, or per time: 10/s, 100/m, 5/h.")
@click.option("--burst", type=int, help="How many starts may come at once.  [1]")
@click.option("--concurrency", type=int, help="How many jobs may run at once.")
@click.option("--off", is_flag=True, help="Remove the limit.")
@settings()
@click.pass_obj
def limit(
    session: Session,
    /,
    *,
    domain: bytes,
    rate: str | None,
    burst: int | None,
    concurrency: int | None,
    off: bool,
) -> None:
    """Limit how fast the jobs of a domain start, or how many run.

    DOMAIN may be a pattern, 'cdn-*'. The limit applies from the next claim on, and replaces the old limit
    of the domain completely.
    """
    from ...core.limit_text import limit_text
    from ..records import key, key_text, limit_record

    if off:
        if (rate, burst, concurrency) != (None, None, None):
            raise click.UsageError("--off cannot be combined with other options")
        _lift(session, domain)
        answer({"domain": key(domain)}, f"{key_text(domain)}: no limit", as_json=session.as_json)
        return
    if rate is None and concurrency is None:
        raise click.UsageError("give --rate, --concurrency or --off; `holdfast limits` lists the limits")
    if rate is None and burst is not None:
        raise click.UsageError("--burst needs --rate")
    with session.open() as queue:
        queue.limit(domain, rate=_rate(rate), burst=1 if burst is None else burst, concurrency=concurrency)
        kept = queue.limits()[domain]
    answer(limit_record(domain, kept), f"{key_text(domain)}: {limit_text(kept)}", as_json=session.as_json)


def _lift(session: Session, domain: bytes) -> None:
    from ..records import key_text

    with session.existing() as queue:
        if domain not in queue.limits():
            raise NotFound("limit on", key_text(domain))
        queue.limit(domain)


def _rate(word: str | None) -> float | str | None:
    """Parse a rate; a bare number is starts per second."""
    try:
        return word if word is None else float(word)
    except ValueError:
        return word
