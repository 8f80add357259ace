"""`holdfast worker`: claims jobs and runs them in separate processes."""

import asyncio
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ..session import Session

if TYPE_CHECKING:
    from ...engine.connection import Connection
    from ...work.logs import LogOptions
    from ...work.supervisor.metrics import Listen

MOST_PROCESSES = 256
# An executor that has just started needs about twice as much.
LEAST_MEMORY = 16_000_000
# The switch interval of the supervisor's threads: a reply of the store must not wait for a busy thread.
SWITCH_S = 0.000_5


@click.command()
@click.argument("names", metavar="[MODULE:QUEUE...]", nargs=-1)
@click.option("--handlers", is_flag=True, help="Run the stored handlers of --store.")
@click.option("--runners", metavar="FILE", help="Settings of the runners of stored handlers, a TOML file.")
@click.option(
    "--private-hosts", is_flag=True, help="Let http handlers reach this machine and private networks."
)
@click.option(
    "--store",
    "stores",
    multiple=True,
    help="Use this store instead of the queue's own; with one queue only. Repeatable with --handlers alone.",
)
@click.option("--journal", metavar="DIR", help="Keep jobs that handlers add there until the store has them.")
@click.option("--create", is_flag=True, help="Create the store if there is none.")
@click.option("--tasks", multiple=True, help="Run only tasks that match; repeatable.")
@click.option(
    "--processes",
    default="1",
    show_default=True,
    help="Executor processes: N, or MIN..MAX to scale with load.",
)
@click.option(
    "--shrink-after",
    default="30s",
    show_default=True,
    help="With MIN..MAX: stop an executor that was idle this long.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Functions that run at once in each executor.",
)
@click.option(
    "--handler-slots",
    type=click.IntRange(1, 256),
    default=8,
    show_default=True,
    help="With --handlers: jobs that run at once in each executor; of one tenant, one less.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Coroutines that run at once in each executor.",
)
@click.option(
    "--lease", default="60s", show_default=True, help="How long a claim lasts unless it is renewed."
)
@click.option(
    "--wait", default="60s", show_default=True, help="How long to wait at the start for an unreachable store."
)
@click.option(
    "--drain-timeout",
    default="30s",
    show_default=True,
    help="How long running jobs may continue at shutdown.",
)
@click.option(
    "--tenant", "tenants", multiple=True, help="Run jobs of this tenant, or of all: '*'; repeatable."
)
@click.option(
    "--scheduler", default="fair", show_default=True, help="Which job is next: fair, first, random, weighted."
)
@click.option(
    "--weight",
    "weights",
    multiple=True,
    metavar="TASK=N",
    help="Weight of a task for `weighted`; repeatable.",
)
@click.option(
    "--until-empty",
    is_flag=True,
    help="Stop when no job is left to run; waits for those due later, and functions that sleep.",
)
@click.option(
    "--burst-seconds", type=click.FloatRange(0, min_open=True), help="Stop claiming after this time."
)
@click.option("--memory-limit", metavar="SIZE", help="Memory limit of an executor, such as 500MB.")
@click.option("--max-growth", metavar="SIZE", help="Replace an executor that has grown by this much.")
@click.option("--max-jobs", type=click.IntRange(1), help="Replace an executor after this many jobs.")
@click.option(
    "--health-file", metavar="PATH", help="Write the worker's health to this file, for doctor --worker."
)
@click.option("--metrics", metavar="HOST:PORT", help="Serve Prometheus metrics at /metrics of this address.")
@click.option("--reload", is_flag=True, help="For development: replace executors when your files change.")
@click.option("-v", "--verbose", count=True, help="Log finished jobs too; -vv logs started jobs too.")
@click.option("-q", "--quiet", is_flag=True, help="Log only failed jobs and errors of the worker.")
@click.option(
    "--log-format",
    type=click.Choice(("text", "json")),
    help="Format of log lines.  [text, or json unless stderr is a terminal]",
)
@click.option(
    "--json", "as_json", is_flag=True, help="The same as --log-format json, and prints errors as JSON."
)
@click.pass_context
def worker(ctx: click.Context, /, names: tuple[str, ...], **said: Any) -> None:
    """Run the jobs of one or more queues.

    MODULE:QUEUE names a queue, such as app:queue for `queue` in app.py. With --handlers, run the jobs of the
    handlers that are kept in a store. Jobs that fail or are retried are
    logged to stderr with their tracebacks. The exit code is 0 if the worker was stopped or has no job left,
    also if jobs failed; see `holdfast --help` for the others.
    """
    from ...core.units import counted
    from ...work.logs import WORKER, configure
    from ...work.supervisor.supervisor import Supervisor

    options = _options(names, _with_settings(ctx, said))
    configure(options.log)
    listen = _metrics_listener(said["metrics"]) if said["metrics"] else None
    supervisor = Supervisor(options, WORKER.warning, listen=listen)
    sys.setswitchinterval(SWITCH_S)
    asyncio.run(supervisor.run())
    failed = f", {supervisor.failed:,} failed" if supervisor.failed else ""
    WORKER.info("done: %s%s", counted(supervisor.done, "job"), failed)


def _metrics_listener(text: str) -> "Listen":
    """What serves the metrics of a worker at an address."""
    from ...serve.service import read_address
    from ...serve.worker_metrics import WorkerMetricsServer
    from ...work.logs import WORKER

    address = read_address("metrics", text)

    async def listen(connection: "Connection", render: Callable[[], bytes]) -> None:
        for where in await WorkerMetricsServer(address, connection, render).start():
            WORKER.info("metrics on http://%s/metrics", where)

    return listen


def _with_settings(ctx: click.Context, said: dict[str, Any]) -> dict[str, Any]:
    """The options after the command, and --store, --tenant and --json also before it.

    Workers ignore HOLDFAST_STORE: a queue names its own store.
    """
    from ...work.options import SERVED_STORE

    root = ctx.find_root()
    session = root.ensure_object(Session)
    # Removed from the environment: a worker that a job starts has a store of its own.
    if store := os.environ.pop(SERVED_STORE, ""):
        said["stores"] = (store,)
    if not said["stores"] and root.get_parameter_source("store") is ParameterSource.COMMANDLINE:
        said["stores"] = (session.store,)
    if not said["tenants"] and session.tenant:
        said["tenants"] = (session.tenant,)
    said["as_json"] = said["as_json"] or session.as_json
    return said


def _log_options(said: dict[str, Any]) -> "LogOptions":
    from ...core.errors import BadInput
    from ...work.logs import JSON, LogOptions, read_log_options

    if said["quiet"] and said["verbose"]:
        raise BadInput("quiet", "with verbose", needed="alone: -q or -v")
    # Defaults come from the environment, which `holdfast serve` sets for the workers that it starts.
    known = read_log_options(os.environ)
    verbosity = -1 if said["quiet"] else min(said["verbose"], 2) or known.verbosity
    return LogOptions(said["log_format"] or (JSON if said["as_json"] else known.format), verbosity)


def _options(names: tuple[str, ...], said: dict[str, Any]) -> Any:
    from ...core.units import duration_ms
    from ...work.options import WorkerOptions
    from ...work.scheduler import read_weights

    _check_names(names, said)
    least, most = _processes(said["processes"])
    return WorkerOptions(
        names=names,
        handlers=said["handlers"],
        runners=said["runners"] or "",
        private_hosts=said["private_hosts"],
        stores=said["stores"],
        journal=said["journal"] or "",
        create=said["create"],
        tasks=said["tasks"],
        processes=least,
        most_processes=most,
        shrink_s=duration_ms(said["shrink_after"], name="shrink-after") / 1000,
        threads=said["threads"],
        handler_slots=said["handler_slots"],
        concurrency=said["concurrency"],
        tenants=said["tenants"],
        scheduler=said["scheduler"],
        weights=read_weights(said["weights"]),
        lease_ms=_lease_ms(said["lease"]),
        wait_s=duration_ms(said["wait"], name="wait") / 1000,
        drain_s=duration_ms(said["drain_timeout"], name="drain-timeout") / 1000,
        until_empty=said["until_empty"],
        burst_s=said["burst_seconds"] or 0.0,
        **_sizes(said),
        max_jobs=said["max_jobs"] or 0,
        health_file=said["health_file"] or "",
        reload=said["reload"],
        log=_log_options(said),
    )


def _check_names(names: tuple[str, ...], said: dict[str, Any]) -> None:
    """What the worker runs: queues of modules, handlers of a store, or both."""
    from ...core.checks import check_name
    from ...core.errors import BadInput

    stores = said["stores"]
    if stores and len(names) > 1:
        raise BadInput("store", stores[0], needed=f"absent: each of the {len(names)} queues has its own")
    if len(stores) > 1 and (names or not said["handlers"]):
        raise BadInput("store", stores[1], needed="one: several are for --handlers without MODULE:QUEUE")
    if len(stores) > 1 and said["journal"]:
        raise BadInput("journal", said["journal"], needed="absent: it belongs to one store")
    if len(set(stores)) < len(stores):
        raise BadInput("stores", " ".join(stores), needed="each named once")
    for name in names:
        if not name.partition(":")[0]:
            raise BadInput("queue", name, needed="MODULE:QUEUE, such as app:queue")
        check_name("queue", name)
        _check_module(name)
    if not names and not said["handlers"]:
        raise click.UsageError("name a queue as MODULE:QUEUE, such as app:queue, or use --handlers")
    if said["handlers"] and not stores:
        raise BadInput("handlers", "without a store", needed="--store, the store that they are in")
    if len(set(names)) < len(names):
        raise BadInput("queues", " ".join(names), needed="each named once")


def _check_module(name: str) -> None:
    """Refuse the name of a file, which shells complete, with that of its module."""
    from ...core.errors import BadInput

    module, _, attribute = name.partition(":")
    path = Path(module)
    if path.suffix == ".py" or len(path.parts) > 1 or module.startswith("."):
        parts = (path.name,) if path.is_absolute() or ".." in path.parts else path.parts
        meant = ".".join(parts).removesuffix(".py").lstrip(".") or "app"
        needed = f"a module, not a file: {meant}:{attribute or 'queue'}"
        raise BadInput("queue", name, needed=needed)


def _lease_ms(text: str) -> int:
    """Check the lease at the start, not with the first claim."""
    from ...core.bounds import MIN_LEASE_MS
    from ...core.units import duration_ms

    return duration_ms(text, name="lease", least_ms=MIN_LEASE_MS)


def _sizes(said: dict[str, Any]) -> dict[str, int]:
    from ...core.units import size_bytes

    return {
        name: size_bytes(said[name], name=name.replace("_", "-"), least=least)
        for name, least in (("memory_limit", LEAST_MEMORY), ("max_growth", 1))
        if said[name] is not None
    }


def _processes(text: str) -> tuple[int, int]:
    """The minimum and the maximum; maximum 0: the same as the minimum."""
    from ...core.errors import BadInput

    match = re.fullmatch(r"([0-9]{1,4})(?:\.\.([0-9]{1,4}))?", text)
    least, most = (int(match[1]), int(match[2] or 0)) if match else (0, 0)
    if not 1 <= least <= MOST_PROCESSES or (match and match[2] and not least <= most <= MOST_PROCESSES):
        raise BadInput("processes", text, needed=f"a number from 1 to {MOST_PROCESSES}, or two such as 1..8")
    return least, most
