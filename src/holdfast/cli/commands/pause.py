"""`holdfast pause` and `holdfast resume`."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ...core.errors import Forbidden, NotFound
from ..output import answer
from ..records import pause_text, paused
from ..selection import Selecting
from ..session import Session, settings
from ..words import Key, TaskName

F = TypeVar("F", bound=Callable[..., Any])


def _what(function: F) -> F:
    task = click.option("--task", type=TaskName(), metavar="NAME", help="One task.")
    domain = click.option("--domain", type=Key(), metavar="NAME", help="One domain.")
    return task(domain(function))


@click.command(cls=Selecting)
@_what
@settings()
@click.pass_obj
def pause(session: Session, /, *, task: str | None, domain: bytes | None) -> None:
    """Pause a task, a domain, or all jobs of the tenant.

    Workers do not claim paused jobs. Running jobs continue, and jobs keep their states. `holdfast resume`
    undoes it, `holdfast counts` shows what is paused.
    """
    _check(task, domain)
    with session.open() as queue:
        queue.pause(task, domain=domain)
    text = pause_text((session.tenant, task, domain))
    answer({"paused": text}, f"paused {text}", as_json=session.as_json)


@click.command(cls=Selecting)
@_what
@settings()
@click.pass_obj
def resume(session: Session, /, *, task: str | None, domain: bytes | None) -> None:
    """Undo a pause, with the same options.

    Without --tenant this includes the pause of a task for all tenants, which the HTTP API can make.
    """
    _check(task, domain)
    ended = (session.tenant,) if session.tenant else ("", None)
    with session.existing() as queue:
        before = paused(queue)
        found = [one for one in before if one[0] in ended and one[1:] == (task, domain)]
        if not found:
            asked, others = (session.tenant, task, domain), ", ".join(map(pause_text, before))
            raise NotFound("pause of", pause_text(asked) + (f"; paused is: {others}" if others else ""))
        queue.resume(task, domain=domain)
        if left := [pause_text(one) for one in found if one in paused(queue)]:
            # A server takes what a token of one tenant asks for as asked for that tenant.
            raise Forbidden(f"{left[0]} stays paused: this token is for one tenant")
    text = ", ".join(pause_text(one) for one in found)
    answer({"resumed": text}, f"resumed {text}", as_json=session.as_json)


def _check(task: str | None, domain: bytes | None) -> None:
    if task is not None and domain is not None:
        raise click.UsageError("give --task or --domain, not both")
