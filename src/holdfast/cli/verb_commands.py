"""The verbs on the command line, but for those of jobs: their help, what they ask, and what they print."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from ..core.bounds import MAX_INDEX
from ..core.errors import Forbidden, HoldfastError, NotFound
from ..core.schedule import HISTORY
from ..core.units import counted
from ..core.why import waits_in_short
from . import jobs
from .output import NOTHING, Grid, Listing, Printout, confirm, cut, note, progress, since, span
from .records import (
    consumer_record,
    job_record,
    key,
    key_text,
    limit_record,
    moment,
    pause_text,
    schedule_record,
    token_record,
    worker_record,
)
from .session import now_ms
from .verbs import GROUPS, build, verb_command
from .words import ARG, STATES, Duration, TaskName, chosen, data_of, job_params, moment_word

if TYPE_CHECKING:
    from ..core.queries import LimitLoad, Planned
    from ..core.schedule import Schedule
    from ..core.token import Token
    from ..core.worker import Worker
    from ..queue.queue import Queue

    Counts = dict[str, dict[str, int]]


def command_of(name: str) -> click.Command | None:
    """The command of that name, if the table of verbs has one."""
    return build(name)


GROUPS["token"] = """Create, list or revoke tokens of `holdfast serve`.

A client that shows a token may do what its scopes say, with the jobs of its tenant. docs/security.md tells
what each scope allows.
"""


# The store


@verb_command("why")
def _why(queue: "Queue", *, job_id: int) -> Printout:
    """Explain why a job is not running."""
    text = queue.why(job_id)
    return Printout({"id": str(job_id), "why": text}, text)


@verb_command(
    "signal",
    params=(click.Argument(["words"], nargs=-1, metavar="[DATA]"), ARG),
    without=("data",),
    helps={"key": "Of several signals with one key within a day only the first is sent."},
)
def _signal(
    queue: "Queue", *, job_id: int, name: str, words: tuple[str, ...], args: tuple[str, ...], key: str | None
) -> Printout:
    """Send a signal to a job that waits for it, now or later.

    DATA is JSON; "-" reads it from standard input. Without DATA and --arg it is null.
    """
    from ..core.commands import SendSignal
    from ..core.notes import mailbox

    body = data_of(words, args) if words or args else "null"
    tenant = queue.tenant or None
    queue.connection.ask(SendSignal(job_id=job_id, name=name, data=body, key=key or "", tenant=tenant))
    is_kept, text = None, f"sent the signal {name} to job {job_id}"
    # A token with scope `signal` may not read the job.
    with suppress(HoldfastError):
        job = queue.get(job_id)
        is_kept = mailbox(job, name) is not None
        now = waits_in_short(job)
        if is_kept:
            text = f"kept the signal {name} for job {job_id} until it waits for that"
            text += f"; now it {now}" if now else ""
    return Printout({"id": str(job_id), "signal": name, "kept": is_kept}, text)


@verb_command("counts", without=("merged", "task"), may_create=True)
def _counts(queue: "Queue") -> Printout:
    """Count jobs by task and state, including archived jobs."""
    tasks = queue.counts()
    is_waiting = any(row.get("QUEUED") for row in tasks.values())
    oldest = queue.jobs(state="QUEUED", limit=1) if is_waiting else []
    stopped = [pause_text(one) for one in queue.pauses()]
    totals: Counter[str] = Counter()
    for row in tasks.values():
        totals.update(row)
    first = job_record(oldest[0]) if oldest else None
    record = {"tasks": tasks, "totals": dict(totals), "oldest_queued": first, "paused": stopped}
    lines = [] if tasks else ["no jobs"]
    for job in oldest:
        lines.append(f"\noldest queued: {job.id}, {job.task}, added {since(job.created_at, now_ms(queue))}")
    lines += [f"paused: {text}" for text in stopped]
    return Printout(record, "\n".join(lines), _count_grid(tasks, totals) if tasks else None)


def _count_grid(tasks: "Counts", totals: "Counter[str]") -> Grid:
    states = [state for state in STATES if totals[state]]
    counted_tasks: list[tuple[str, Mapping[str, int]]] = sorted(tasks.items())
    if len(tasks) > 1:
        counted_tasks.append(("TOTAL", totals))
    rows = [
        (name, *(f"{row[state]:,}" if row.get(state) else NOTHING for state in states))
        for name, row in counted_tasks
    ]
    return Grid(("TASK", *states), rows, states)


_BEFORE = click.Option(
    ["--before"],
    required=True,
    metavar="WHEN",
    help="How long ago they ended, such as 7d, or a time: 2026-11-15T01:02:03Z.",
)


@verb_command("purge", params=(_BEFORE,), without=("before_ms", "limit"))
def _purge(queue: "Queue", *, before: str) -> Printout:
    """Delete archived jobs that ended before a time.

    Old jobs are also purged automatically, after a day or after `connect(retention=…)`. FAILED jobs are not
    in the archive; `holdfast delete --state FAILED` deletes them.
    """
    from ..core.commands import Purge

    asked = Purge(before_ms=moment_word("before", before, now_ms(queue)), tenant=queue.tenant)
    total = 0
    with progress("purging") as advance:
        while gone := queue.connection.ask(asked):
            total += gone
            advance(gone)
    return Printout({"purged": total}, f"purged {counted(total, 'job')}")


@verb_command("retention", params=(click.Argument(["time"], required=False),))
def _retention(queue: "Queue", *, time: str | None) -> Printout:
    """Show or set how long ended jobs are kept.

    TIME is a duration such as 7d; with 0 they are not kept. FAILED jobs are kept until they are retried,
    cancelled or deleted.
    """
    if time is not None:
        queue.set_retention(time)
    kept_ms = round(queue.retention().total_seconds() * 1000)
    return Printout({"retention_ms": kept_ms}, span(kept_ms))


@verb_command("workers stop", params=(click.Argument(["worker"], metavar="ID"),), without=("name",))
def _stop_worker(queue: "Queue", *, worker: str) -> Printout:
    """Have a worker finish what it runs and end, as on SIGTERM.

    ID is its process number, or its name as in `holdfast workers --json`. The worker reads it within three
    seconds while jobs run or if its store is a file, and within a minute otherwise.
    """
    found = [one for one in queue.workers() if worker in (one.name, str(one.pid))]
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise click.UsageError(f"several workers have the number {worker}: {names}")
    name = found[0].name if found else worker
    queue.stop_worker(name)
    return Printout({"name": name, "stopping": True}, f"asked {name} to stop")


def _worker_row(worker: "Worker", now: int) -> tuple[str, ...]:
    tasks = [f"{one.tenant}/{task}" if one.tenant else task for one in worker.serves for task in one.tasks]
    at_once = f"{worker.processes} × {worker.threads}"
    numbers = f"{worker.running:,}", f"{worker.done:,}"
    started = since(worker.started_at, now)
    return str(worker.pid), worker.host, started, at_once, *numbers, cut(", ".join(tasks))


WORKERS = Listing(
    "no worker is alive",
    ("PID", "HOST", "STARTED", "AT ONCE", "RUNNING", "DONE", "TASKS"),
    _worker_row,
    lambda worker, _now: worker_record(worker),
    right=("PID", "RUNNING", "DONE"),
)


@verb_command("workers", listing=WORKERS, without=("name",))
def _workers(queue: "Queue") -> "list[Worker]":
    """List live workers and their tasks, or stop one."""
    return queue.workers()


# Limits and pauses


@verb_command("limit", creates=True)
def _limit(
    queue: "Queue", *, domain: bytes, rate: float | None, burst: int | None, concurrency: int | None
) -> Printout:
    """Limit how fast the jobs of a domain start, or how many run.

    DOMAIN may be a pattern, 'cdn-*'. The limit applies from the next claim on, and replaces the old limit
    of the domain completely. If your code declares a limit of it, that one is back when a worker starts.
    """
    from ..core.limits import limit_text

    if rate is None and concurrency is None:
        raise click.UsageError("give --rate, --concurrency or --off; `holdfast limits` lists the limits")
    if rate is None and burst is not None:
        raise click.UsageError("--burst needs --rate")
    queue.limit(domain, rate=rate, burst=1 if burst is None else burst, concurrency=concurrency)
    kept = queue.limits()[domain]
    return Printout(limit_record(domain, kept), f"{key_text(domain)}: {limit_text(kept)}")


@verb_command("limit --off")
def _remove_limit(queue: "Queue", *, domain: bytes) -> Printout:
    """Remove the limit."""
    if domain not in queue.limits():
        raise NotFound("limit on", key_text(domain))
    queue.limit(domain)
    return Printout({"domain": key(domain)}, f"{key_text(domain)}: no limit")


def _limit_row(one: "LimitLoad", _now: int) -> tuple[str, ...]:
    from ..core.limits import rate_text

    limit = one.limit
    rate = "" if limit.rate is None else rate_text(limit.rate)
    burst = "" if limit.rate is None else f"{limit.burst:,}"
    most = "" if limit.concurrency is None else f"{limit.concurrency:,}"
    more = "+" if one.is_partial else ""
    return key_text(one.domain), rate, burst, most, f"{one.running:,}{more}", f"{one.held:,}{more}"


LIMITS = Listing(
    "no limits",
    ("DOMAIN", "RATE", "BURST", "CONCURRENCY", "RUNNING", "HELD"),
    _limit_row,
    lambda one, _now: (
        limit_record(one.domain, one.limit)
        | {"running": one.running, "held": one.held, "is_partial": one.is_partial}
    ),
    right=("RATE", "BURST", "CONCURRENCY", "RUNNING", "HELD"),
    key=lambda one: one.domain,
)


@verb_command(
    "limits",
    listing=LIMITS,
    helps={"domain": "Only the limit of this domain.", "holding": "Only domains whose jobs are held."},
)
def _limits(queue: "Queue", *, domain: bytes | None, holding: bool) -> "list[LimitLoad]":
    """List limits, and how many jobs run or are HELD under them.

    Of a pattern these are the sums of its domains; --holding lists such domains one by one. `holdfast counts`
    shows what is paused.
    """
    from ..core.queries import ListLimits, ask_all

    asked = ListLimits(tenant=queue.tenant, domain=domain, holding=holding)
    found: list[LimitLoad] = ask_all(queue.connection.ask, asked)
    return found


_PAUSED = {"task": "One task.", "domain": "One domain."}


@verb_command("pause", params=(jobs.YES,), without=("on",), helps=_PAUSED, creates=True)
def _pause(queue: "Queue", *, task: str | None, domain: bytes | None, yes: bool) -> Printout:
    """Pause a task, a domain, or all jobs of the tenant.

    Workers do not claim paused jobs. Running jobs continue, and jobs keep their states. `holdfast resume`
    undoes it, `holdfast counts` shows what is paused.
    """
    _check_one(task, domain)
    text = pause_text((queue.tenant, task, domain))
    if task is None and domain is None and not yes:
        confirm(f"Pause {text}?")
    queue.pause(task, domain=domain)
    return Printout({"paused": text}, f"paused {text}")


@verb_command("resume", helps=_PAUSED)
def _resume(queue: "Queue", *, task: str | None, domain: bytes | None) -> Printout:
    """Undo a pause, with the same options.

    Without --tenant this includes the pause of a task for all tenants, which the HTTP API can make.
    """
    _check_one(task, domain)
    ended = (queue.tenant,) if queue.tenant else ("", None)
    before = queue.pauses()
    found = [one for one in before if one[0] in ended and one[1:] == (task, domain)]
    if not found:
        asked, others = (queue.tenant, task, domain), ", ".join(map(pause_text, before))
        raise NotFound("pause of", pause_text(asked) + (f"; paused is: {others}" if others else ""))
    queue.resume(task, domain=domain)
    if left := [pause_text(one) for one in found if one in queue.pauses()]:
        # A server takes what a token of one tenant asks for as asked for that tenant.
        raise Forbidden(f"{left[0]} stays paused: this token is for one tenant")
    text = ", ".join(pause_text(one) for one in found)
    return Printout({"resumed": text}, f"resumed {text}")


def _check_one(task: str | None, domain: bytes | None) -> None:
    if task is not None and domain is not None:
        raise click.UsageError("give --task or --domain, not both")


# Schedules


@verb_command(
    "schedule",
    params=(
        click.Argument(["task"], required=False, type=TaskName()),
        click.Argument(["data"], nargs=-1, metavar="[DATA]"),
        ARG,
        *job_params(schedule=True),
    ),
    without=("job", "paused", *HISTORY),
    creates=True,
)
def _schedule(
    queue: "Queue",
    *,
    name: str,
    task: str | None,
    data: tuple[str, ...],
    args: tuple[str, ...],
    **options: Any,
) -> Printout:
    """Add a job at given times, again and again.

    To change a schedule, give its NAME and all options again.
    DATA is JSON, {} if there is none; - reads it from standard input.
    """
    from msgspec.structs import replace

    from ..core.checks import check_new
    from ..core.schedule import upcoming

    fields = ("cron", "every_ms", "repeat", "tz", "catch_up", "overlap", "jitter_ms")
    when = {name: value for name in fields if (value := options.pop(name)) is not None}
    if task is None:
        raise click.UsageError("TASK is missing; to change a schedule, give all of it again")
    if not when.keys() & {"cron", "every_ms", "repeat"}:
        raise click.UsageError("give one of --cron, --every and --repeat; to run one now: NAME --run")
    for field in ("every", "jitter"):
        if (ms := when.pop(f"{field}_ms", None)) is not None:
            when[field] = ms / 1000
    new = replace(queue.call(task, **chosen(options)), data=data_of(data, args))
    check_new(new)
    kept = queue.schedule(name, new, **when)
    moments = upcoming(kept, now_ms(queue), 3)
    after = f"next at {moment(moments[0])}" if moments else "paused" if kept.paused else "next after its job"
    return Printout(schedule_record(kept, task, moments), f"{name}: {after}")


@verb_command("schedule --delete")
def _delete_schedule(queue: "Queue", *, name: str) -> Printout:
    """Delete the schedule; its jobs stay."""
    queue.unschedule(name)
    return Printout({"name": name, "deleted": True}, f"{name}: deleted")


@verb_command("schedule --pause")
def _pause_schedule(queue: "Queue", *, name: str, on: bool = True) -> Printout:
    """Pause the schedule."""
    kept = queue.pause_schedule(name, on=on)
    text = "paused" if kept.paused else "goes on"
    return Printout({"name": name, "paused": kept.paused}, f"{name}: {text}")


@verb_command("schedule --resume")
def _resume_schedule(queue: "Queue", *, name: str) -> Printout:
    """Resume the schedule."""
    return _pause_schedule(queue, name=name, on=False)


@verb_command("schedule --run")
def _run_schedule(queue: "Queue", *, name: str) -> Printout:
    """Add its job now; its times stay as they are."""
    job = queue.run_schedule(name)
    return Printout({"name": name, "id": str(job.id)}, f"{name}: added job {job.id}")


def _schedule_row(found: "tuple[Planned, list[int]]", now: int) -> tuple[str, ...]:
    from ..core.units import iso

    planned, moments = found
    one = planned.schedule
    last = since(one.last_at, now) if one.last_at else NOTHING
    if one.paused or one.ended:
        after = "paused" if one.paused else "ended"
    elif not moments:
        after = "when its job has ended"
    else:
        # These times are whole seconds.
        after = ", ".join(iso(at).replace(".000Z", "Z") for at in moments)
    return one.name, planned.task, _times(one), last, f"{one.fired:,}", after


def _times(one: "Schedule") -> str:
    """The times of a schedule, as they were given."""
    if one.every_ms:
        return f"every {span(one.every_ms)}"
    zone = "" if one.tz == "UTC" else f" {one.tz}"
    return (one.cron or one.repeat) + zone


SCHEDULES = Listing(
    "no schedules",
    ("NAME", "TASK", "TIMES", "LAST", "FIRED", "NEXT"),
    _schedule_row,
    lambda found, _now: schedule_record(found[0].schedule, found[0].task, found[1]),
    right=("FIRED",),
)


_NEXT = click.Option(
    ["--next", "count"],
    type=click.IntRange(1, 1000),
    default=3,
    metavar="N",
    help="How many next times to list.  [3]",
)


@verb_command("schedules", listing=SCHEDULES, params=(_NEXT,))
def _schedules(queue: "Queue", *, count: int) -> "Iterator[tuple[Planned, list[int]]]":
    """List schedules and their next times."""
    from ..core.queries import ListSchedules, ask_all
    from ..core.schedule import upcoming

    now = now_ms(queue)
    for one in ask_all(queue.connection.ask, ListSchedules(tenant=queue.tenant)):
        yield one, upcoming(one.schedule, now, count)


# Consumers


@verb_command(
    "consumers set",
    params=(click.Argument(["index"], type=click.IntRange(0, MAX_INDEX)), jobs.YES),
    without=("to",),
)
def _set_progress(queue: "Queue", *, name: str, index: int, yes: bool) -> Printout:
    """Set the progress of a consumer to INDEX.

    If you set it forward, the indexes in between are never processed; if you set it back, they are processed
    again. A running consumer stops with an error, and continues there when you start it again.
    """
    from ..indexed.progress import consumers, set_by_hand

    mark = consumers(queue).get(name)
    if mark is None:
        raise NotFound("consumer", name)
    note(f"warning: {_warning(name, mark.processed, index)}")
    if not yes:
        confirm("Set it?")
    after = set_by_hand(queue, name, index)
    record = consumer_record(name, after, now_ms(queue))
    return Printout(record, f"{name} continues after {after.processed:,}")


def _warning(name: str, processed: int, index: int) -> str:
    between = counted(abs(index - processed), "index", "indexes")
    if index > processed:
        return f"{between} after {processed:,} will never be processed by {name}"
    if index < processed:
        return f"{between} up to {processed:,} will be processed again by {name}"
    return f"{name} is already there; if it runs, it stops"


def _consumer_row(found: Any, now: int) -> tuple[str, ...]:
    name, mark = found
    record = consumer_record(name, mark, now)
    numbers = (f"{record[field]:,}" for field in ("processed", "head", "lag", "in_flight"))
    moved = since(mark.moved_ms, now) if mark.moved_ms else "never"
    return name, *numbers, f"{record['per_s']:,.1f}/s", moved, mark.log


CONSUMERS = Listing(
    "no consumers",
    ("NAME", "PROCESSED", "HEAD", "LAG", "IN FLIGHT", "RATE", "MOVED", "LOG"),
    _consumer_row,
    lambda found, now: consumer_record(found[0], found[1], now),
    right=("PROCESSED", "HEAD", "LAG", "IN FLIGHT", "RATE"),
)


@verb_command("consumers", listing=CONSUMERS)
def _consumers(queue: "Queue") -> Any:
    """List indexed consumers and their progress.

    HEAD is the last index. For a log it is read now; for other sources it is what the consumer saw when it
    last advanced. IN FLIGHT and RATE are also from then.
    """
    from ..indexed.progress import consumers

    return consumers(queue).items()


# Tokens

SCOPES = ("add", "work", "read", "manage", "handlers", "data", "signal")


_TOKEN: tuple[click.Parameter, ...] = (
    click.Argument(["name"]),
    click.Option(
        ["--scope", "scopes"],
        multiple=True,
        type=click.Choice(SCOPES),
        help="What it allows; say it again for more.  [all]",
    ),
    click.Option(["--all-tenants"], is_flag=True, help="For the jobs of all tenants, not of --tenant alone."),
    click.Option(
        ["--expires"],
        type=Duration(),
        metavar="TIME",
        help="How long it is valid, such as 90d.  [until it is revoked]",
    ),
)


@verb_command("token create", params=_TOKEN, without=("token", "expires_in_ms"), creates=True)
def _create_token(
    queue: "Queue", *, name: str, scopes: tuple[str, ...], all_tenants: bool, expires: int | None
) -> Printout:
    """Create a token and print its secret, which is shown only this once."""
    import secrets

    from ..core.commands import CreateToken
    from ..core.token import RANDOM_BYTES, Scope, Token, hash_of, secret_of

    if all_tenants and queue.tenant:
        raise click.UsageError("say --tenant or --all-tenants, not both")
    secret = secret_of(name, secrets.token_bytes(RANDOM_BYTES))
    made = Token(
        name=name,
        scopes=tuple(Scope(one) for one in dict.fromkeys(scopes or SCOPES)),
        tenant=None if all_tenants else queue.tenant,
        hash=hash_of(secret),
    )
    kept: Token = queue.connection.ask(CreateToken(token=made, expires_in_ms=expires or 0))
    return Printout(token_record(kept) | {"secret": secret}, secret)


def _token_row(one: "Token", _now: int) -> tuple[str, ...]:
    tenant = "all" if one.tenant is None else one.tenant or '""'
    return one.name, tenant, " ".join(one.scopes), str(moment(one.expires_at) or "never")


TOKENS = Listing(
    "no tokens",
    ("NAME", "TENANT", "SCOPES", "EXPIRES"),
    _token_row,
    lambda one, _now: token_record(one),
)


@verb_command("token list", listing=TOKENS)
def _list_tokens(queue: "Queue") -> "list[Token]":
    """List tokens, without their secrets."""
    from ..core.queries import ListTokens, ask_all

    found: list[Token] = ask_all(queue.connection.ask, ListTokens())
    return found


@verb_command("token revoke")
def _revoke(queue: "Queue", *, name: str) -> Printout:
    """Revoke a token: servers refuse it from then on."""
    from ..core.commands import RevokeToken

    queue.connection.ask(RevokeToken(name=name))
    return Printout({"revoked": name}, f"revoked {name}")
