"""What is paused, for the commands that change or show it."""

from typing import TYPE_CHECKING

from .records import key_text

if TYPE_CHECKING:
    from ..engine.records import Pause
    from ..queue.queue import Queue


def paused(queue: "Queue") -> "list[Pause]":
    """What claims of this tenant pass by."""
    from ..engine import look

    found = queue.line.committer.read(look.pauses)
    return [one for one in found if one[0] in (None, queue.tenant)]


def pause_text(pause: "Pause") -> str:
    """One of them in words."""
    tenant, task, domain = pause
    if task is not None:
        return f"task {task}"
    if domain is not None:
        return f"domain {key_text(domain)}"
    return f"tenant {tenant}" if tenant else "all jobs"
