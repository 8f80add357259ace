"""`holdfast workers`: the live workers of a store."""

from typing import TYPE_CHECKING, Any

import click

from ..output import cut, emit, say, since, table
from ..records import moment
from ..session import Session, now_ms, settings

if TYPE_CHECKING:
    from ...core.worker import Worker
    from ...queue.queue import Queue

COLUMNS = ("PID", "HOST", "STARTED", "AT ONCE", "RUNNING", "DONE", "TASKS")
NUMBERS = ("PID", "RUNNING", "DONE")


@click.command()
@settings(create=True)
@click.pass_obj
def workers(session: Session) -> None:
    """List live workers and their tasks."""
    with session.existing() as queue:
        found, now = alive(queue), now_ms(queue)
    if session.as_json:
        for worker in found:
            emit(worker_record(worker))
    elif found:
        table(COLUMNS, [row(worker, now) for worker in found], right=NUMBERS)
    else:
        say("no worker is alive")


def alive(queue: "Queue") -> "list[Worker]":
    """The live workers of a store."""
    from ...core.queries import ListWorkers

    found: list[Worker] = queue.connection.ask(ListWorkers())
    return found


def row(worker: "Worker", now: int) -> tuple[str, ...]:
    """A worker as a row of a table."""
    tasks = [task if not served.tenant else f"{served.tenant}/{task}" for served, task in _pairs(worker)]
    return (
        str(worker.pid),
        worker.host,
        since(worker.started_at, now),
        f"{worker.processes} × {worker.threads}",
        f"{worker.running:,}",
        f"{worker.done:,}",
        cut(", ".join(tasks)),
    )


def _pairs(worker: "Worker") -> list[tuple[Any, str]]:
    return [(served, task) for served in worker.serves for task in served.tasks]


def worker_record(worker: "Worker") -> dict[str, Any]:
    """A worker as JSON."""
    return {
        "name": worker.name,
        "host": worker.host,
        "pid": worker.pid,
        "started_at": moment(worker.started_at),
        "processes": worker.processes,
        "threads": worker.threads,
        "running": worker.running,
        "done": worker.done,
        "said_at": moment(worker.said_at),
        "health_file": worker.health or None,
        "serves": [{"tenant": one.tenant, "tasks": list(one.tasks)} for one in worker.serves],
    }
