"""`holdfast worker`: claims jobs and has them run, in processes of their own."""

import asyncio
import sys
import time

import click


@click.command()
@click.argument("name", metavar="MODULE:QUEUE")
@click.option("--store", help="Another store than the one that the queue names.")
@click.option("--tasks", multiple=True, help="Only tasks that match; may be given several times.")
@click.option(
    "--processes", type=click.IntRange(1, 256), default=1, show_default=True, help="Executor processes."
)
@click.option(
    "--threads", type=click.IntRange(1, 256), default=1, show_default=True, help="Jobs at once in each."
)
@click.option("--lease", default="60s", show_default=True, help="How long a claim lasts unless renewed.")
@click.option(
    "--drain-timeout", default="30s", show_default=True, help="How long running jobs may go on at the end."
)
@click.option("--tenant", "tenants", multiple=True, help="Jobs of this tenant, or of all: '*'; repeatable.")
@click.option(
    "--scheduler", default="fair", show_default=True, help="Whose job is next: fair, first, random, weighted."
)
@click.option(
    "--weight", "weights", multiple=True, metavar="TASK=N", help="A chance for `weighted`; repeatable."
)
@click.option("--until-empty", is_flag=True, help="Stop when nothing is left to do.")
def worker(
    name: str,
    store: str | None,
    tasks: tuple[str, ...],
    processes: int,
    threads: int,
    lease: str,
    drain_timeout: str,
    until_empty: bool,
    tenants: tuple[str, ...],
    scheduler: str,
    weights: tuple[str, ...],
) -> None:
    """Run the jobs of a queue: MODULE:QUEUE is where it is made, such as app:queue."""
    from ..core.durations import duration_ms
    from ..work.scheduler import read_weights
    from ..work.supervisor import Options, Supervisor

    options = Options(
        name=name,
        store=store,
        tasks=tasks,
        processes=processes,
        threads=threads,
        lease_ms=duration_ms(lease, name="lease"),
        drain_s=duration_ms(drain_timeout, name="drain-timeout") / 1000,
        until_empty=until_empty,
        tenants=tenants,
        scheduler=scheduler,
        weights=read_weights(weights),
    )
    supervisor = Supervisor(options, _log)
    asyncio.run(supervisor.run())
    _log(f"done: {supervisor.done:,} jobs")


def _log(text: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} worker {text}", err=True)
    sys.stderr.flush()
