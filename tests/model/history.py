"""What may follow what: promises about a step, given how things stood before it and how they stand now."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.core import commands as c
from holdfast.core.bounds import WAKE_EARLY_MS
from holdfast.core.commands import RunSchedule, SetRetention
from holdfast.core.errors import HoldfastError, LeaseLost, NotFound
from holdfast.core.job import Job, Place
from holdfast.core.kinds import PAUSE, SCHEDULE, SETTING, SIGNAL_KEY, STEPS, name_of
from holdfast.core.limits import Domain, DomainKey, Limit
from holdfast.core.notes import StepResult
from holdfast.engine import upkeep
from holdfast.engine.batch.notes import step_name
from holdfast.engine.commands.governing import RETENTION
from holdfast.engine.commands.schedules import Kept, read_kept
from holdfast.engine.records import read_pause

from .checks import Complaints, limit_of
from .view import View


class Step:
    """One transaction: what was asked, what was replied, the world before and after."""

    def __init__(self, commands: Sequence[c.Command], replies: list[Any], before: View, after: View) -> None:
        self.commands, self.replies = commands, replies
        self.before, self.after = before, after

    @property
    def only(self) -> tuple[c.Command, Any] | None:
        """The command and its reply, if there was but one, and no upkeep came with it."""
        alone = len(self.commands) == 1 and not isinstance(self.commands[0], c.Claim | c.Upkeep)
        return (self.commands[0], self.replies[0]) if alone else None

    def asked(self, *kinds: type[c.Command]) -> Iterator[Any]:
        """The commands of these kinds that were not refused."""
        for command, reply in zip(self.commands, self.replies, strict=True):
            if isinstance(command, kinds) and not isinstance(reply, HoldfastError):
                yield command

    def claimed(self) -> Iterator[tuple[c.Claim, list[c.Claimed]]]:
        """The claims, with what they got."""
        for command, reply in zip(self.commands, self.replies, strict=True):
            if isinstance(command, c.Claim):
                yield command, reply


class History:
    """What must be remembered of earlier steps. `elapsed_ms` only grows, also when the clock goes back."""

    def __init__(self) -> None:
        self.top_ms = 0
        self.elapsed_ms = 0
        self.starts: dict[DomainKey, list[int]] = {}
        self.rates: dict[DomainKey, Limit | None] = {}
        # Which retentions a command has replaced or set.
        self.retentions: set[int] = set()

    def moved(self, ms: int, now_ms: int) -> None:
        """The clock was moved."""
        self.elapsed_ms += max(ms, 0)
        self.top_ms = max(self.top_ms, now_ms)

    def note(self, step: Step) -> None:
        """Remember what started, as far as it counts: a changed limit counts anew."""
        for key in {(job.tenant, job.domain) for job in step.after.live.values() if job.domain is not None}:
            limit = limit_of(step.after, key, pauses=False)
            if self.rates.get(key) != limit:
                self.rates[key] = limit
                self.starts[key] = []
        if any(True for _ in step.asked(SetRetention)):
            views = (step.before, step.after)
            self.retentions |= {int(view.records.get((SETTING, RETENTION), b"86400000")) for view in views}
        for _, got in step.claimed():
            for one in got:
                if one.job.domain is not None:
                    self.starts.setdefault((one.job.tenant, one.job.domain), []).append(self.elapsed_ms)


def nothing_vanishes(step: Step, history: History) -> Complaints:
    """A job is there until it is deleted, or purged, or ended where the archive keeps nothing."""
    before, after = step.before, step.after
    gone = (before.live | before.archived).keys() - after.live.keys() - after.archived.keys()
    gone -= {command.job_id for command in step.asked(c.Delete)}
    if not gone:
        return
    # A process may go by an earlier one for some seconds.
    retention = min(history.retentions | {int(after.records.get((SETTING, RETENTION), b"86400000"))})
    upkeep = any(isinstance(command, c.Claim | c.Upkeep) for command in step.commands)
    cutoffs = [command.before_ms for command in step.asked(c.Purge)]
    cutoff = max(cutoffs + [after.now_ms - retention] * upkeep, default=0)
    cancelled = {command.job_id for command in step.asked(c.Cancel)}
    for job_id in sorted(gone):
        job = before.archived.get(job_id)
        if job is not None:
            if job.finished_at >= cutoff:
                yield f"archived job {job_id} is gone"
            continue
        job = before.live[job_id]
        ends = bool(job.owner) or job.mock or job.place == Place.DONE or job_id in cancelled
        if not ends or (retention and not cutoff > after.now_ms):
            yield f"job {job_id}, {job.state}, is gone"


def nothing_goes_back(step: Step, _history: History) -> Complaints:
    """Versions go up with every change and never otherwise; claim numbers never go back."""
    after = step.after.live | step.after.archived
    deleted = {command.job_id for command in step.asked(c.Delete)}
    for job_id, old in step.before.live.items():
        new = after.get(job_id)
        if new is None or job_id in deleted:
            continue
        if new.claim < old.claim:
            yield f"job {job_id}: claim {old.claim} became {new.claim}"
        if (new != old) != (new.version > old.version):
            yield f"job {job_id}: version {old.version} became {new.version}, {old} became {new}"
    purged = any(True for _ in step.asked(c.Purge))
    for job_id, old in step.before.archived.items():
        # What was purged, and given anew in the same batch, is another job.
        if after.get(job_id, old) != old and job_id not in deleted and not purged:
            yield f"archived job {job_id} changed"


def ready_jobs_are_due(step: Step, history: History) -> Complaints:
    """By the highest clock that there was: a clock that is set back sends no job back."""
    for job in step.after.at(Place.READY, Place.HELD):
        if job.run_at > history.top_ms + WAKE_EARLY_MS:
            yield f"job {job.id} is {job.place.name}, and due in {job.run_at - history.top_ms} ms"


def concurrency_is_kept(step: Step, _history: History) -> Complaints:
    """No start beyond the limit, whatever ran when it was lowered."""
    before, after = _running(step.before), _running(step.after)
    for key, running in after.items():
        limit = limit_of(step.after, key)
        if limit is None or limit.concurrency is None or limit != limit_of(step.before, key):
            continue
        if running > max(limit.concurrency, before.get(key, 0)):
            yield f"{running} jobs of {key} run, {before.get(key, 0)} did before, {limit} allows fewer"


def rates_are_kept(_step: Step, history: History) -> Complaints:
    """No two starts inside one interval beyond the burst, since the limit was last changed."""
    for key, starts in history.starts.items():
        limit = history.rates.get(key)
        if limit is None or limit.rate is None or not starts:
            continue
        last = len(starts) - 1
        for first, began in enumerate(starts):
            least_us = (last - first - limit.burst + 1) * limit.interval_us
            if (starts[last] - began) * 1000 < least_us:
                yield f"{key}: {last - first + 1} starts within {starts[last] - began} ms; {limit}"


def claims_get_what_they_asked_for(step: Step, _history: History) -> Complaints:
    """Matching jobs, in order, each once, nothing that is paused or expired, under a new claim."""
    passed = [read_pause(name) for kind, name in step.after.records if kind == PAUSE]
    # What was deleted, and given anew in the same batch, is another job.
    deleted = {command.job_id for command in step.asked(c.Delete)}
    seen: set[int] = set()
    for command, got in step.claimed():
        jobs = [one.job for one in got]
        for one in got:
            if not _fits(one.job, command) or one.job.id in seen or one.job.place != Place.RUNNING:
                yield f"job {one.job.id} is no answer to {command}"
            old = step.before.live.get(one.job.id) if one.job.id not in deleted else None
            if one.job.claim <= (old.claim if old else 0):
                yield f"job {one.job.id} was handed out under claim {one.job.claim} before"
            if any(_is_paused(one.job, pause) for pause in passed):
                yield f"job {one.job.id} was claimed, and is paused: {passed}"
            if one.job.expires_at and one.job.expires_at <= step.after.now_ms:
                yield f"job {one.job.id} was claimed, and has expired"
            # One that has moved on since has, on shards, perhaps got other data by a message.
            as_it_is = step.after.live.get(one.job.id) == one.job
            if as_it_is and one.data != step.after.data.get(one.job.id):
                yield f"job {one.job.id} was handed out with {one.data!r}"
            seen.add(one.job.id)
        if len(jobs) > command.limit:
            yield f"{len(jobs)} jobs for {command}"
        ranks = [(-job.priority, job.run_at, job.id) for job in jobs]
        if ranks != sorted(ranks):
            yield f"out of order: {ranks}"


def what_is_due_is_so(step: Step, _history: History) -> Complaints:
    """After upkeep nothing is overdue that was when it began, unless it was too much at once."""
    if any(isinstance(command, c.Claim) for command in step.commands):
        yield from _overdue(step)


def what_is_due_is_so_after_upkeep(step: Step, _history: History) -> Complaints:
    """On shards as well, all of which do it; a claim does it in those that it visits."""
    if any(isinstance(command, c.Upkeep) for command in step.commands):
        yield from _overdue(step)


def _overdue(step: Step) -> Complaints:
    overdue = [job for job in step.before.live.values() if _is_overdue(job, step.after.now_ms)]
    left = [job for job in overdue if step.after.live.get(job.id) == job]
    # As tests may have it, who have it do less at once.
    if left and len(overdue) < vars(upkeep)["UPKEEP_JOBS"]:
        yield f"overdue, and as they were: {left}"


def children_wait_for_their_parent(step: Step, _history: History) -> Complaints:
    """A child is born PAUSED, but for one whose parent is so already."""
    if step.only is None or not isinstance(step.only[0], c.Add):
        return
    for job in step.after.live.values():
        parent = step.before.live.get(job.parent_id)
        born = parent is not None and job.id not in step.before.live
        if parent and born and (job.place == Place.PAUSED) == (parent.place == Place.PAUSED):
            yield f"child {job.id} of a parent that is {parent.state} is {job.state}"


def nobody_is_resumed_too_early(step: Step, _history: History) -> Complaints:
    """A parent leaves PAUSED when no child is pending, or somebody puts it back.

    That is a requeue, of it or of a child, or the port's word for a mocked job, which needs no claim.
    """
    requeued = {command.job_id for command in step.asked(c.Requeue)}
    requeued |= {command.hold.job_id for command in step.asked(c.Answer) if command.hold.claim is None}
    # A function that waits for a signal does not wait for its children.
    requeued |= {command.job_id for command in step.asked(c.SendSignal)}
    # One whose last child ended is resumed, also where that child is put back right after it.
    requeued |= {child.parent_id for id in requeued if (child := step.after.live.get(id))}
    for job in step.before.at(Place.PAUSED):
        after = step.after.live.get(job.id, job)
        waits = after.place in (Place.PAUSED, Place.DONE) or job.id in requeued
        if after.children.pending and not waits:
            yield f"parent {job.id} is {after.state} with {after.children}"


def signals_arrive_once(step: Step, _history: History) -> Complaints:
    """A signal that was sent is kept, or is what a wait has got; unless its job ends or begins again."""
    if step.only is None:
        return
    command, reply = step.only
    for job_id, job in step.after.live.items():
        old = step.before.live.get(job_id)
        if old is None or job.place == Place.DONE or job.steps < old.steps:
            continue
        is_sent = False
        if isinstance(command, c.SendSignal) and command.job_id == job_id and reply is None:
            key = (SIGNAL_KEY, name_of(str(job_id), command.name, command.key))
            is_sent = not command.key or step.before.records.get(key) != step.after.records.get(key)
        before, after = _signals(step.before, old), _signals(step.after, job)
        if after != before + is_sent:
            yield f"job {job_id} has {after} signals, and had {before}, before {command}"


def _signals(view: View, job: Job) -> int:
    """How many signals wait for a job, or are what its waits have got."""
    rows = [view.notes.get((STEPS, step_name(job, number + 1)), b"{}") for number in range(job.steps)]
    entries = [msgspec.json.decode(raw, type=StepResult) for raw in rows]
    got = sum(entry.kind == "signal" and bool(entry.ended) for entry in entries)
    return got + sum(box.next - box.first for box in job.signals)


def a_firing_adds_a_job(step: Step, _history: History) -> Complaints:
    """One for each moment and each run by hand, unless it is unique and there is one already."""
    if any(True for _ in step.asked(c.SetSchedule, c.DeleteSchedule, c.Delete, c.Cancel)):
        return
    before, after = _schedules(step.before), _schedules(step.after)
    born = [job for id, job in step.after.live.items() if id not in step.before.live]
    for key, kept in after.items():
        run = sum((asked.tenant, asked.name) == key for asked in step.asked(RunSchedule))
        fired = kept.schedule.fired - before[key].schedule.fired + run
        added = sum((job.tenant, job.schedule) == key for job in born)
        if fired != added and kept.job.unique is None:
            yield f"{key} fired {fired} times and added {added} jobs"


def replies_are_as_stored(step: Step, _history: History) -> Complaints:
    """A job that is replied is the one that stands in the store."""
    for job, stored in _replied(step):
        if stored != job:
            yield f"replied {job}, stored {stored}"


def replies_were_stored(step: Step, _history: History) -> Complaints:
    """What stands in the store is what was replied, or a later version of it."""
    for job, stored in _replied(step):
        if stored.version < job.version or (stored.version == job.version and stored != job):
            yield f"replied {job}, stored {stored}"


def _replied(step: Step) -> Iterator[tuple[Job, Job]]:
    after = step.after.live | step.after.archived
    replied = [reply for reply in step.replies if isinstance(reply, Job)]
    for job in replied + [one.job for _, got in step.claimed() for one in got]:
        if job.id in after:
            yield job, after[job.id]


def a_refusal_changes_nothing(step: Step, _history: History) -> Complaints:
    """What raised left no trace, but for the process's own number."""
    if step.only and isinstance(step.only[1], HoldfastError):
        for field in ("live", "archived", "data", "results", "domains", "uniques", "counts", "notes"):
            before, after = getattr(step.before, field), getattr(step.after, field)
            if field == "domains":
                before = {key: _set_back(domain, after.get(key)) for key, domain in before.items()}
            if before != after:
                yield f"{step.only} changed {field}"


def _set_back(before: Domain, after: Domain | None) -> Domain:
    """A domain, with the next start that whoever loads it sets if the clock was set back."""
    if after is None or after.tat_us >= before.tat_us:
        return before
    return replace(before, tat_us=after.tat_us, due_ms=after.due_ms)


def late_workers_are_refused(step: Step, _history: History) -> Complaints:
    """A hold counts while the job is its owner's under its claim, and then it does."""
    if step.only is None or not isinstance(getattr(step.only[0], "hold", None), c.Hold):
        return
    command, reply = step.only
    hold: c.Hold = getattr(command, "hold")  # noqa: B009 (of no type in particular)
    job = step.before.live.get(hold.job_id)
    own = job is not None and job.owner != 0 and job.owner == hold.owner and hold.claim in (None, job.claim)
    mocked = job is not None and job.mock and hold.claim is None and isinstance(command, c.Answer)
    if isinstance(command, c.Add) or mocked:
        return
    if not own and not isinstance(reply, LeaseLost | NotFound):
        yield f"{command} was accepted, while the job is {job}"
    if own and isinstance(reply, LeaseLost | NotFound) and not isinstance(command, c.Extend):
        yield f"{command} was refused by {reply}, while the job is {job}"


def what_reaches_a_running_job_is_not_lost(step: Step, _history: History) -> Complaints:
    """New data of a unique job that somebody has means one more run."""
    if step.only is None or not isinstance(step.only[0], c.Add):
        return
    for job_id, old in step.before.live.items():
        new = step.after.live.get(job_id)
        changed = step.before.data[job_id] != step.after.data.get(job_id)
        if changed and old.owner and not old.strict and not (new and new.again_at):
            yield f"job {job_id} got new data while {old.owner} has it, and will not run again: {new}"


StepCheck = Callable[[Step, History], Complaints]
STEP_CHECKS: tuple[StepCheck, ...] = (
    nothing_vanishes,
    nothing_goes_back,
    ready_jobs_are_due,
    concurrency_is_kept,
    rates_are_kept,
    claims_get_what_they_asked_for,
    what_is_due_is_so,
    what_is_due_is_so_after_upkeep,
    children_wait_for_their_parent,
    nobody_is_resumed_too_early,
    signals_arrive_once,
    a_firing_adds_a_job,
    replies_are_as_stored,
    replies_were_stored,
    a_refusal_changes_nothing,
    late_workers_are_refused,
    what_reaches_a_running_job_is_not_lost,
)


# What is promised of one store, and of several only within each: a claim looks after what is due in the
# shards that it visits, and an add of many jobs is all or none in each.
WITHIN_A_SHARD: tuple[StepCheck, ...] = (
    what_is_due_is_so,
    a_refusal_changes_nothing,
    replies_are_as_stored,
)


def a_claim_asks_every_shard(step: Step, _history: History) -> Complaints:
    """While it has found less than it asked for; no job without a limit that it could have had is left."""
    pauses = [read_pause(name) for kind, name in step.after.records if kind == PAUSE]
    for command, got in step.claimed():
        if len(got) == command.limit or command.picks or command.handled or command.glob:
            continue
        for job in step.before.at(Place.READY):
            fits = _fits(replace(job, owner=command.owner), command) and job.domain is None
            paused = any(_is_paused(job, pause) for pause in pauses)
            if fits and not paused and step.after.live.get(job.id) == job:
                yield f"{command} got {len(got)} jobs, and left {job}"


def every_command_is_replied(step: Step, _history: History) -> Complaints:
    """An add by as many ids, and an answer by its job, which was its owner's."""
    after = step.after.live | step.after.archived
    for command, reply in zip(step.commands, step.replies, strict=True):
        if isinstance(reply, HoldfastError):
            continue
        if isinstance(command, c.Add) and len(reply) != command.count:
            yield f"{command} was replied {reply}"
        if isinstance(command, c.Answer):
            job_id = command.hold.job_id
            if job_id not in step.before.live or (job_id in after and (reply is None or reply.id != job_id)):
                yield f"{command} was replied {reply}"


# What is promised between shards, none of which is ever down here: both sides go through the same router, so
# its mistakes are no difference between them.
BETWEEN_SHARDS: tuple[StepCheck, ...] = (
    a_claim_asks_every_shard,
    every_command_is_replied,
)


def _running(view: View) -> dict[DomainKey, int]:
    found: dict[DomainKey, int] = {}
    for job in view.at(Place.RUNNING):
        if job.domain is not None:
            found[job.tenant, job.domain] = found.get((job.tenant, job.domain), 0) + 1
    return found


def _is_overdue(job: Job, now_ms: int) -> bool:
    if job.place == Place.RUNNING:
        return 0 < job.lease_until <= now_ms
    expired = job.place != Place.DONE and 0 < job.expires_at <= now_ms
    return expired or (job.place == Place.SCHEDULED and job.run_at <= now_ms)


def _schedules(view: View) -> dict[tuple[str, str], Kept]:
    found = [read_kept(raw) for (kind, _), raw in view.records.items() if kind == SCHEDULE]
    return {(kept.schedule.tenant, kept.schedule.name): kept for kept in found}


def _fits(job: Job, command: c.Claim) -> bool:
    return (
        (command.tasks is None or job.task in command.tasks)
        and command.tenant in (None, job.tenant)
        and (command.tenants is None or job.tenant in command.tenants)
        and command.priority in (None, job.priority)
        and (command.mock or not job.mock)
        and command.owner in (0, job.owner)
    )


def _is_paused(job: Job, pause: tuple[str | None, str | None, bytes | None]) -> bool:
    tenant, task, domain = pause
    return tenant in (None, job.tenant) and task in (None, job.task) and domain in (None, job.domain)
