"""`holdfast doctor --worker`: whether the last claims of a worker succeeded.

It reads the health file: that of a path, of a process id, or of every worker on this machine that is
registered in the store.
"""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..exits import Exit
from ..output import emit, say
from ..session import Session, now_ms

if TYPE_CHECKING:
    from ...core.worker import Worker

# The value of --worker without an argument.
ALL = "all"


def examine(session: Session, which: str) -> None:
    """Check workers, print the results, and exit with 1 if one is unhealthy."""
    from ...store.common.clock import system_clock

    verdicts = list(_verdicts(session, which, system_clock()))
    well = all(verdict["ok"] for verdict in verdicts)
    if session.as_json:
        emit({"ok": well, "workers": verdicts})
    else:
        for verdict in verdicts:
            which = f"worker {verdict['worker']}: " if verdict["worker"] else ""
            say(f"{'✓' if verdict['ok'] else '✗'} {which}{verdict['text']}")
    if not well:
        raise click.exceptions.Exit(Exit.ERROR)


def _verdicts(session: Session, which: str, now: int) -> Iterator[dict[str, Any]]:
    if which != ALL and not which.isdecimal():
        yield _judged(which, which, now)
        return
    with session.existing() as queue:
        here = [worker for worker in queue.workers() if worker.host == socket.gethostname()]
        now = now_ms(queue)
    chosen = [worker for worker in here if which in (ALL, str(worker.pid))]
    for worker in chosen:
        yield _of_worker(worker, now)
    if not chosen:
        text = "no such worker of this machine is alive on this store; see holdfast workers"
        if which == ALL:
            text = "no worker of this machine is alive on this store"
        yield {"worker": "" if which == ALL else which, "ok": False, "text": text}


def _of_worker(worker: "Worker", now: int) -> dict[str, Any]:
    if worker.health:
        return _judged(str(worker.pid), worker.health, now)
    text = "it is alive, but its health is unknown; start it with --health-file PATH"
    return {"worker": str(worker.pid), "ok": False, "text": text}


def _judged(name: str, path: str, now: int) -> dict[str, Any]:
    from ...core.errors import HoldfastError
    from ...work import health

    try:
        found = health.read(Path(path))
    except HoldfastError as error:
        return {"worker": name, "ok": False, "text": f"{error}: it has not started, or has ended"}
    wrong = health.complaint(found, now_ms=now)
    text = wrong or health.summary(found, now_ms=now)
    return {"worker": str(found.pid), "ok": not wrong, "text": text}
