"""What is paused, for the commands that change or show it."""

from typing import TYPE_CHECKING

from .records import key_text

if TYPE_CHECKING:
    from ..core.queries import Paused
    from ..queue.queue import Queue


def paused(queue: "Queue") -> "list[Paused]":
    """The pauses of this tenant."""
    from ..core.queries import ListPauses

    found: list[Paused] = queue.connection.ask(ListPauses(tenant=queue.tenant))
    return found


def pause_text(pause: "Paused") -> str:
    """A pause as text."""
    tenant, task, domain = pause
    if task is not None:
        return f"task {task}"
    if domain is not None:
        return f"domain {key_text(domain)}"
    return f"tenant {tenant}" if tenant else "all jobs"
