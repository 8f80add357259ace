"""Why a job is not running, in a sentence."""

from .job import Job, Place, Record, State
from .limits import Domain, Limit, next_start_ms
from .units import counted, iso
from .worker import Blocker

# How many workers are named whose slots are all occupied.
SHOWN_WORKERS = 3
# And how many names of signals, and of steps that were undone.
SHOWN_SIGNALS = 10
SHOWN_UNDONE = 10
UNLISTED = "Workers inside a program (holdfast.work) are not listed."


class Facts(Record, frozen=True, kw_only=True):
    """The facts outside a job's record that keep it from running."""

    now_ms: int
    parent: Job | None = None
    limit: Limit | None = None
    domain: Domain | None = None
    # What is paused, such as "task 'resize'"; "": nothing.
    paused: tuple[str, ...] = ()
    # How many live workers run its task.
    workers: int = 0
    # Whether its task has a handler in the store, and how many live workers run handlers of its tenant.
    is_handled: bool = False
    handler_workers: int = 0
    ready_before: int = 0
    # The handlers that block executors of these workers.
    blockers: tuple[Blocker, ...] = ()
    # The names of the steps that were undone after it failed; None: it has not begun to.
    undone: tuple[str, ...] | None = None
    # The workers that may have it, by the process that has claimed it.
    holders: tuple[str, ...] = ()
    # Those that had it, if they are no longer alive.
    dead: tuple[str, ...] = ()
    # Those that have all slots, by the name of the worker, if no worker has another.
    occupied: tuple[tuple[str, Blocker], ...] = ()


def why(job: Job, facts: Facts) -> str:
    """One sentence: what the job waits for, which worker has it, or how it ended."""
    return _WHY[job.place](job, facts) + _undoing(job) + _unread(job)


def waits_in_short(job: Job) -> str:
    """What a suspended job waits for, in a few words for lists; "": it is not suspended."""
    wait = job.waits_for
    if wait is None or job.place not in (Place.SCHEDULED, Place.PAUSED):
        return ""
    if wait.kind == "sleep":
        return "sleeps"
    if wait.kind == "signal":
        return f"waits for {wait.name!r}"
    return f"waits for {counted(job.children.pending or wait.calls, 'job')}"


def _unread(job: Job) -> str:
    """The signals that no run has waited for yet: perhaps a name is mistyped; "": there are none."""
    if not job.signals or job.place is Place.DONE:
        return ""
    names = [repr(box.name) for box in job.signals[:SHOWN_SIGNALS]]
    more = len(job.signals) - len(names)
    return f" Signals not read yet: {', '.join(names)}{f' and {more} more' if more else ''}."


def _undoing(job: Job) -> str:
    """Why the next run of a waiting job only undoes its steps; "": it does not."""
    if job.place in (Place.RUNNING, Place.DONE):
        return ""
    if job.undoes:
        return f" It runs once more to undo its steps, and then fails: {job.undoes}."
    return " It was cancelled, and runs once more to undo its steps." if job.cancel_requested else ""


def _waits(job: Job) -> str:
    """What a suspended job waits for; "": nothing."""
    wait = job.waits_for
    if wait is None:
        return ""
    if wait.kind == "sleep":
        return f"It sleeps until {iso(job.run_at)}."
    if wait.kind == "call":
        left = f"{job.children.pending:,} of " if job.children.pending else ""
        return (
            f"It waits for {left}{counted(max(wait.calls, job.children.pending), 'job')} that it has called."
        )
    until = f", until {iso(job.run_at)}" if job.place == Place.SCHEDULED else ""
    return f"It has waited for the signal {wait.name!r} since {iso(wait.since)}{until}."


def _scheduled(job: Job, facts: Facts) -> str:
    if job.run_at <= facts.now_ms:
        return "It is due, and becomes ready with the next claim." + _blocked(job, facts)
    if job.waits_for is not None:
        return _waits(job)
    again = f" It was tried {counted(job.attempts, 'time')}." if job.attempts else ""
    return f"It is not due until {iso(job.run_at)}.{again}"


def _ready(job: Job, facts: Facts) -> str:
    if facts.paused:
        return _blocked(job, facts).strip()
    before = (
        f" {counted(facts.ready_before, 'ready job')} of its task may go first." if facts.ready_before else ""
    )
    known = f" {_workers(facts.workers)} its task." if facts.workers else _blocked(job, facts)
    return f"It is ready, and waits for a worker to claim it.{before}{known}{_blockers(job, facts)}"


def _blockers(job: Job, facts: Facts) -> str:
    """What keeps executors that know the task of a job from starting any."""
    texts = dict.fromkeys(f"{blocker.text(job.tenant)} of an executor" for blocker in facts.blockers)
    for worker, blocker in facts.occupied[:SHOWN_WORKERS]:
        since = f" since {iso(blocker.since)}" if blocker.since else ""
        texts[f"{blocker.text(job.tenant)} of worker {worker}{since}"] = None
    return f" There, {', and '.join(texts)}." if texts else ""


def _workers(count: int) -> str:
    return "1 live worker knows" if count == 1 else f"{count:,} live workers know"


def _blocked(job: Job, facts: Facts) -> str:
    if facts.paused:
        return f" {_paused_text(facts.paused)}"
    if not facts.workers and facts.is_handled:
        return f" The task {job.task!r} has a stored handler, but no live worker runs stored handlers."
    if not facts.workers:
        handler = ", and it has no stored handler" if facts.handler_workers else ""
        return f" No live worker knows the task {job.task!r}{handler}. {UNLISTED}"
    return ""


def _paused_text(paused: tuple[str, ...]) -> str:
    """The pauses that stop a job: each must be resumed."""
    *others, last = paused
    if not others:
        return f"The {last} is paused; resume it."
    each = "both" if len(paused) == 2 else "all of them"
    return f"The {', the '.join(others)} and the {last} are paused; resume {each}."


def _held(job: Job, facts: Facts) -> str:
    name = job.domain.decode(errors="replace") if job.domain else ""
    text = f"Its domain {name!r} holds it back"
    domain, limit = facts.domain, facts.limit
    if domain is not None and limit is not None:
        if limit.concurrency == 0:
            # A pause acts as such a limit, and is named below.
            is_paused = f"domain {name!r}" in facts.paused
            text += "" if is_paused else ": its limit is 0 at once, so no job of it starts"
        elif limit.concurrency is not None and domain.running >= limit.concurrency:
            text += f": {domain.running} of {limit.concurrency} run already"
        elif limit.rate is not None:
            at_ms = next_start_ms(limit, domain, now_ms=facts.now_ms)
            text += f": {limit.rate:g} starts a second, the next at {iso(at_ms)}"
        text += f"; {counted(domain.held, 'of its jobs is', 'of its jobs are')} HELD"
    return f"{text}.{_blocked(job, facts)}"


def _running(job: Job, facts: Facts) -> str:
    begun = (
        f"It has been running since {iso(job.started_at)}"
        if job.started_at
        else "A worker has it and has not started it"
        if facts.workers
        else "It has been claimed"
    )
    known = 0 < len(facts.holders) <= SHOWN_WORKERS
    holder = f"worker {' or '.join(facts.holders)}" if known else f"owner {job.owner}"
    since = f"{begun}, claim {job.claim} of {holder}"
    own = [blocker.effect for blocker in facts.blockers if blocker.job_id == job.id]
    asked = f" It {own[0]} of its executor." if own else ""
    asked += " It was asked to stop." if job.cancel_requested else ""
    asked += f" It undoes its steps: {job.undoes}." if job.undoes else ""
    if not job.lease_until:
        return f"{since}, without a lease.{asked}"
    if job.lease_until <= facts.now_ms:
        return f"{since}, but its lease ended at {iso(job.lease_until)}.{asked}"
    return f"{since}, leased until {iso(job.lease_until)}.{_left_alone(job, facts)}{asked}"


def _left_alone(job: Job, facts: Facts) -> str:
    """What happens if the owner of a running job has died, or may have; "": it lives."""
    if facts.dead:
        ends = "fails" if 0 < job.max_losses <= job.losses + 1 else "runs again"
        return f" Its worker {' or '.join(facts.dead)} is no longer alive: it {ends} when that lease ends."
    if facts.workers:
        return ""
    # The owner may also be `holdfast.work` or a loop of `next`, which are not registered as workers.
    return f" No live worker knows its task: if its owner has died, it is queued then. {UNLISTED}"


def _paused(job: Job, facts: Facts) -> str:
    children = job.children
    if job.waits_for is not None:
        return _waits(job)
    if children.pending:
        return f"It waits for {children.pending:,} of its children."
    if children.failed:
        return f"{children.failed:,} of its children FAILED: requeue, cancel or delete them."
    if facts.parent is None:
        return f"It waits for its parent {job.parent_id}, which is gone: cancel or requeue it."
    return f"It waits for its parent {job.parent_id} to finish its run; that is {facts.parent.state}."


def _done(job: Job, facts: Facts) -> str:
    how = "was cancelled" if job.ended == State.CANCELLED else str(job.ended).lower()
    ended = f"It {how} at {iso(job.finished_at)}"
    if job.ended == State.FINISHED or (job.ended == State.CANCELLED and job.reason == "cancelled"):
        return f"{ended}."
    return f"{ended}: {job.reason or 'no reason given'}.{_undone(facts.undone)}"


def _undone(names: tuple[str, ...] | None) -> str:
    """What a requeue does with a job that has undone these of its steps; the reason has the others."""
    if names is None:
        return ""
    if not names:
        return " It has undone none of its steps: a plain requeue tries again."
    more = f" and {len(names) - SHOWN_UNDONE} more" if len(names) > SHOWN_UNDONE else ""
    return (
        f" It has undone {', '.join(map(repr, names[:SHOWN_UNDONE]))}{more}: a plain requeue undoes only what"
        " is left; from such a step, or from one before it, it goes forward again."
    )


_WHY = {
    Place.SCHEDULED: _scheduled,
    Place.READY: _ready,
    Place.HELD: _held,
    Place.RUNNING: _running,
    Place.PAUSED: _paused,
    Place.DONE: _done,
}
