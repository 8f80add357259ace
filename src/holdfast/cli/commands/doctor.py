"""`holdfast doctor`: checks a store, and tells what to do about problems.

    the store's own check    damage, orphans, a large log, little space
    the clock                jobs from the future: the clock was set back
    the counts               the stored counts against the jobs; in a large store only with --full or --repair

Failed jobs, stuck jobs, pauses and tasks that no worker runs are listed, but are not problems. With --worker
it checks the health file of a path, of a process id, or of every worker of this machine in the store.
"""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...core.bounds import HOUR_MS, MINUTE_MS, PAGE_JOBS
from ...core.errors import BadInput, StoreCorrupt
from ...core.units import counted
from ..exits import Exit
from ..jobs import Selection, find
from ..output import emit, progress, say, span
from ..records import pause_text
from ..session import Session, now_ms, settings

if TYPE_CHECKING:
    from ...core.worker import Worker
    from ...queue.queue import Queue

# The value of --worker without an argument.
ALL = "all"
# Smaller differences between clocks are not reported.
AHEAD_MS = MINUTE_MS
# How long ago a store was last used, without being closed, before it may be a backup.
UNCLOSED_MS = HOUR_MS
# Up to this many jobs are counted without --full.
COUNTED = 100_000


@click.command()
@click.option("--full", is_flag=True, help="Check the counts of a large store too.")
@click.option("--repair", is_flag=True, help="Set wrong counts to the numbers of jobs that were found.")
@click.option(
    "--worker",
    "which",
    metavar="[PATH|PID]",
    is_flag=False,
    flag_value=ALL,
    help="Check a worker instead: by health file, by process id, or all of this machine.",
)
@settings(create=True)
@click.pass_obj
def doctor(session: Session, /, *, full: bool, repair: bool, which: str | None) -> None:
    """Check a store or a worker, and explain problems.

    The exit code is 0 if there is no problem, 1 if there is one, 5 if the store cannot be opened.
    """
    from ...core.queries import GetReport

    if which is not None:
        _examine(session, which)
        return
    with session.existing() as queue:
        if repair:
            _repair(queue)
        with progress("checking"):
            facts, complaints = queue.connection.ask(GetReport())
        try:
            complaints = [*complaints, *_clock(queue), *_counts(queue, full=full or repair)]
            notes = _notes(queue, full=full or repair)
        except StoreCorrupt as error:
            # Found by the store's own check too, most likely; that is the more precise.
            complaints, notes = complaints or [str(error)], []
    if session.as_json:
        emit({"ok": not complaints, "complaints": complaints, "notes": notes, "facts": facts})
    else:
        _show(facts, complaints, notes)
    if complaints:
        raise click.exceptions.Exit(Exit.ERROR)


def _show(facts: dict[str, str], complaints: list[str], notes: list[str]) -> None:
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        say(f"{name:<{width}}  {value}")
    say()
    for text in complaints:
        say(f"✗ {text}")
    for text in notes:
        say(f"· {text}")
    if not complaints:
        say("✓ nothing is wrong")


def _clock(queue: "Queue") -> list[str]:
    """If the clock was set back, the jobs in the store are delayed until it has caught up."""
    from ...core.ids import pack, tick_at

    now = now_ms(queue)
    ahead = pack(tick_at(now + AHEAD_MS), 0, 0)
    # Ids may run ahead of the clock if many are made; `created_at` does not.
    late = max((job.created_at for job in queue.jobs(after=ahead, limit=PAGE_JOBS)), default=0)
    if late <= now + AHEAD_MS:
        return []
    return [
        f"jobs were added {span(late - now)} in the future: this machine's clock is, or was, wrong; set it"
    ]


def _counts(queue: "Queue", *, full: bool) -> list[str]:
    from ...core.queries import CheckCounts

    connection = queue.connection
    if not full and _is_large(queue):
        return []
    with progress("counting"):
        differences = connection.ask(CheckCounts())
    remedy = "if jobs were deleted by hand, run holdfast doctor --repair, otherwise please report it"
    return [
        f"the count of {key.task} {key.state} is {kept:,}, but {found:,} were found; {remedy}"
        for key, kept, found in differences
    ]


def _is_large(queue: "Queue") -> bool:
    from ...core.queries import CountJobs

    total: int = sum(count for _, count in queue.connection.ask(CountJobs(merged=True)))
    return total > COUNTED


def _repair(queue: "Queue") -> None:
    from ...engine.commands.verbs import RepairCounts
    from ...engine.store_connection import StoreConnection

    if not isinstance(queue.connection, StoreConnection):
        raise BadInput("--repair", "a server", needed="the address of the store itself")
    with progress("repairing counts"):
        queue.connection.ask(RepairCounts())


def _notes(queue: "Queue", *, full: bool) -> list[str]:
    notes = []
    if not full and _is_large(queue):
        notes.append("the counts were not checked, since there are many jobs: holdfast doctor --full")
    failed = sum(row.get("FAILED", 0) for row in queue.counts().values())
    if failed:
        notes.append(f"{counted(failed, 'job')} FAILED: holdfast jobs --state FAILED")
    stuck = sum(1 for _ in find(queue, Selection(stuck=True), now=now_ms(queue)))
    if stuck:
        notes.append(f"{counted(stuck, 'job')} past the lease, or without one: holdfast jobs --stuck")
    notes += [f"paused: {pause_text(one)}; holdfast resume undoes it" for one in queue.pauses()]
    return [*notes, *_unclosed(queue), *_unknown_tasks(queue)]


def _unclosed(queue: "Queue") -> list[str]:
    """A store that was in use when it was last written, long ago: it may be a restored backup."""
    from ...engine.commands.sysids import last_used_ms
    from ...engine.store_connection import StoreConnection

    if not isinstance(queue.connection, StoreConnection):
        return []
    used_ms, now = queue.connection.engine.read(last_used_ms), now_ms(queue)
    if used_ms is None or now - used_ms < UNCLOSED_MS:
        return []
    text = "if this is a restored backup, run holdfast restored before you start any process"
    return [f"last used {span(now - used_ms)} ago, by a process that did not close it: {text}"]


def _unknown_tasks(queue: "Queue") -> list[str]:
    """The tasks with waiting jobs that no live worker runs: their names may be mistyped."""
    from ...core.handler import ListHandlers
    from ...core.queries import ListTasks, ask_all
    from ...core.worker import runs_task

    tenant, ask = queue.tenant, queue.connection.ask
    workers = queue.workers()
    if not workers:
        # Then no task is run, whatever its name.
        return []
    handled = {one.task for one in ask_all(ask, ListHandlers(tenant=tenant))}
    return [
        f"{counted(one.ready, 'job')} of task {one.task} {'waits' if one.ready == 1 else 'wait'}, "
        "and no worker runs that task: is the name right? See holdfast workers"
        for one in ask_all(ask, ListTasks(tenant=tenant))
        if one.ready
        and not any(runs_task(w, tenant, one.task, is_handled=one.task in handled) for w in workers)
    ]


# Workers


def _examine(session: Session, which: str) -> None:
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
