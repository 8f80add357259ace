"""`holdfast workers`: lists the live workers of a store, and stops one."""

from typing import TYPE_CHECKING, Any

import click

from ..output import answer, cut, emit, say, since, table
from ..records import moment
from ..session import Session, now_ms, settings

if TYPE_CHECKING:
    from ...core.worker import Worker

COLUMNS = ("PID", "HOST", "STARTED", "AT ONCE", "RUNNING", "DONE", "TASKS")
NUMBERS = ("PID", "RUNNING", "DONE")


@click.group(invoke_without_command=True)
@settings(create=True)
@click.pass_context
def workers(ctx: click.Context) -> None:
    """List live workers and their tasks, or stop one."""
    if ctx.invoked_subcommand is None:
        _list(ctx.ensure_object(Session))


@workers.command("stop")
@click.argument("worker", metavar="ID")
@settings()
@click.pass_obj
def stop_worker(session: Session, /, *, worker: str) -> None:
    """Have a worker finish what it runs and end, as on SIGTERM.

    ID is its process number, or its name as in `holdfast workers --json`. The worker reads it within three
    seconds while jobs run or if its store is a file, and within a minute otherwise.
    """
    with session.existing() as queue:
        found = [one for one in queue.workers() if worker in (one.name, str(one.pid))]
        if len(found) > 1:
            names = ", ".join(one.name for one in found)
            raise click.UsageError(f"several workers have the number {worker}: {names}")
        name = found[0].name if found else worker
        queue.stop_worker(name)
    answer({"name": name, "stopping": True}, f"asked {name} to stop", as_json=session.as_json)


def _list(session: Session) -> None:
    with session.existing() as queue:
        found, now = queue.workers(), now_ms(queue)
    if session.as_json:
        for worker in found:
            emit(worker_record(worker))
    elif found:
        table(COLUMNS, [row(worker, now) for worker in found], right=NUMBERS)
    else:
        say("no worker is alive")


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
        "stopping": worker.stopping,
        "blocked": [blocker.text() for blocker in worker.blocked],
        "health_file": worker.health or None,
        "serves": [{"tenant": one.tenant, "tasks": list(one.tasks)} for one in worker.serves],
    }
