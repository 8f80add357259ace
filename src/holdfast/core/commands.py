"""The commands. Every change, through Python, the command line or a server, is one of these records.

Commands of a worker about a job that it runs have a `Hold`: the owner and number of its claim. Commands of
operators have none. A reply means that the command is durably committed; an error other than `Unsettled`,
that it changed nothing. If a command about one job names a `tenant`, jobs of other tenants are not found.
"""

from collections.abc import Iterator
from types import GenericAlias
from typing import Any, ClassVar, Literal

from msgspec.structs import replace

from .defaults import Defaults
from .indexed import LogItem, Seen
from .job import DEFAULT_BACKOFF, STORED_ATTEMPTS, STORED_LOSSES, Backoff, Body, Code, Job, Record, StepKind
from .limits import Limit
from .notes import StepResult
from .schedule import Schedule
from .token import Token
from .worker import Worker

OnConflict = Literal["keep", "merge", "replace"]


class Hold(Record, frozen=True, kw_only=True):
    """A claim under which a command is given. `claim` None: the one that `owner` has now (job-command port).

    With a `tenant`, jobs of other tenants are not found. `job_id` 0, when children are added: the parent of
    each.
    """

    job_id: int
    owner: int
    claim: int | None = None
    tenant: str | None = None


def hold_of(job: Job) -> Hold:
    """The hold of a claimed job."""
    return Hold(job_id=job.id, owner=job.owner, claim=job.claim)


class NewJob(Record, frozen=True, kw_only=True):
    """A job to add: by a caller, a schedule, `then` or `on_failure`."""

    # For annotations: type checkers know it as `PreparedCall[T]`, with the type that its task returns.
    __class_getitem__: ClassVar[Any] = classmethod(GenericAlias)

    task: str
    tenant: str = ""
    data: Body = "{}"
    id: int = 0
    # None: 500, or the priority of the existing job with this unique key.
    priority: int | None = None
    # 0: at once. `delay_ms` counts from the time of the store.
    run_at: int = 0
    delay_ms: int = 0
    expires_at: int = 0
    expires_in_ms: int = 0
    max_attempts: int = STORED_ATTEMPTS
    max_losses: int = STORED_LOSSES
    backoff: Backoff = DEFAULT_BACKOFF
    timeout_ms: int = 0
    retry_after: int | str = 0
    repeat: str = ""
    unique: bytes | None = None
    unique_for_ms: int = 0
    on_conflict: OnConflict = "keep"
    domain: bytes | None = None
    parent_id: int = 0
    wait_for_failed: bool = False
    then: "NewJob | None" = None
    # The parameter of the `then` job that gets the result.
    into: str = ""
    on_failure: "NewJob | None" = None
    schedule: str = ""
    mock: bool = False
    strict: bool = False
    # The options given by the caller, sorted: the defaults of the task never replace them.
    given: tuple[str, ...] = ()
    traceparent: str = ""

    @property
    def followers(self) -> tuple["NewJob", ...]:
        """The jobs that may follow this one."""
        return tuple([one for one in (self.then, self.on_failure) if one is not None])


class Command(Record, frozen=True, kw_only=True, tag=True):
    """The base class of all commands. The class name identifies the type in messages to other processes."""

    is_query: ClassVar = False


class Add(Command, frozen=True, kw_only=True):
    """Add jobs, all or none; replies their ids in order. For an existing unique key: the id of its job.

    `hold`, for children: the claim of their parent or of a sibling.
    """

    jobs: tuple[NewJob, ...]
    # The data of further jobs, which are otherwise equal to the last of `jobs`.
    more: tuple[Body, ...] = ()
    hold: Hold | None = None
    # All ids in order, from `ReserveIds`; empty: the store makes them. A repeated add with ids adds once.
    ids: tuple[int, ...] = ()
    # The ids of jobs that had their unique key before are replied as negative numbers.
    mark_existing: bool = False

    @property
    def count(self) -> int:
        """The number of jobs."""
        return len(self.jobs) + len(self.more)

    @property
    def size(self) -> int:
        """About how many bytes the data of all jobs has."""
        return sum([len(new.data) for new in self.jobs]) + sum(map(len, self.more))

    def every(self) -> Iterator[NewJob]:
        """All jobs, as one `NewJob` each."""
        if self.ids:
            for new, job_id in zip(replace(self, ids=()).every(), self.ids, strict=True):
                yield replace(new, id=job_id)
            return
        yield from self.jobs
        for data in self.more:
            yield replace(self.jobs[-1], data=data)


class ReserveIds(Command, frozen=True, kw_only=True):
    """Reserve ids for jobs to be added later, at most `BATCH_JOBS`; replies them as ranges.

    A client that knows the ids of its jobs before it adds them can safely repeat the add.
    """

    count: int


class Claim(Command, frozen=True, kw_only=True):
    """Lease the first jobs that may run; replies them with their data; may be empty."""

    tasks: tuple[str, ...] | None = None
    # Only tasks whose names match this pattern; see `core.glob`.
    glob: str | None = None
    tenant: str | None = None
    limit: int = 1
    lease_ms: int | None = None
    owner: int = 0
    priority: int | None = None
    mock: bool = False
    # Only these tenants.
    tenants: tuple[str, ...] | None = None
    # Only tasks with a handler in the store.
    handled: bool = False
    # (tenant, task, limit): the first jobs of each, and no others.
    picks: tuple[tuple[str, str, int], ...] = ()
    # The bytes that this claim has already got from other shards; they count towards its limit.
    taken_bytes: int = 0
    # Whether the jobs start now. A worker that prefetches reports the start later, with `Extend` and
    # `Answer`.
    start: bool = True


class NewStep(Record, frozen=True, kw_only=True):
    """An entry among the steps of a job: a result as JSON text, the error of a step, or a version."""

    name: str
    kind: StepKind = "step"
    result: str = ""
    took_ms: int = 0


class Suspension(Record, frozen=True, kw_only=True):
    """How a run ends that goes on later, and what its job waits for.

        sleep      until `delay_ms` have passed, or until `until`
        signal     for a signal `name`, without an end or as long as sleep would wait
        call       until the new children `jobs` have ended
        restart    for nothing: it begins again without steps

    `step`: the number of the entry of an earlier run that waited for the same; the entry has the rest.
    """

    kind: Literal["sleep", "signal", "call", "restart"]
    name: str = ""
    delay_ms: int | None = None
    until: int = 0
    jobs: tuple[NewJob, ...] = ()
    step: int = 0
    # Entries of this run that come before it and are not recorded yet.
    steps: tuple[NewStep, ...] = ()


class Answer(Command, frozen=True, kw_only=True):
    """Report how a run ended. `held` is the record as claimed, which may save the store a read.

    `lines` are the last lines of its log.
    """

    hold: Hold
    code: Code = Code.OK
    result: Body | None = None
    data: Body | None = None
    error: str = ""
    traceback: str = ""
    exit_code: int = 0
    cpu_ms: float = 0.0
    wall_ms: float = 0.0
    delay_ms: int | None = None
    run_at: int = 0
    counts: bool = True
    ignore_repeat: bool = False
    # New data, priority … of a job that will run again; None: unchanged.
    task: str | None = None
    priority: int | None = None
    held: Job | None = None
    lines: tuple[str, ...] = ()
    # How long the handler of a job ran that was claimed with `start` False; None: since the claim.
    ran_ms: int | None = None
    # With the code SUSPEND: what the job waits for.
    suspend: Suspension | None = None
    # Whether a cancel is to let the job run once more, so that it undoes its steps.
    compensates: bool = False


class AnswerAll(Command, frozen=True, kw_only=True):
    """Report how several runs ended; replies for each what `Answer` replies, or its error."""

    answers: tuple[Answer, ...]
    # The records as claimed, in order, instead of `held` in each answer; or empty.
    held: tuple[Job, ...] = ()


class Release(Command, frozen=True, kw_only=True):
    """Return a job to the queue without an answer: this counts as no attempt.

    `delay_ms`: how much later it is due. `lost`: it was running in a process that died, which ran `crowd`
    jobs; 0: the supervisor killed the process because of another job. `error`: how it died, if that is known.
    See `rules.lost`.
    """

    hold: Hold
    delay_ms: int = 0
    lost: bool = False
    crowd: int = 1
    error: str = ""
    # Only if its lease still ends then: the same claim may have been made again. 0: in any case.
    lease_until: int = 0


class Extend(Command, frozen=True, kw_only=True):
    """Renew a lease: it ends at now + `lease_ms`.

    `ran_ms`, for a job claimed with `start` False: how long its handler has run; None: not started yet.
    """

    hold: Hold
    lease_ms: int
    ran_ms: int | None = None


class Report(Command, frozen=True, kw_only=True):
    """Report the progress of a running job."""

    hold: Hold
    fraction: float
    note: str = ""


class Step(Command, frozen=True, kw_only=True):
    """Record the result of a step, as JSON text, for later runs of the job.

    `before`: earlier entries of this run that are not recorded yet. `number`: the results of the jobs that
    the entry with this number has called, which may be archived now; repeated, it changes nothing. Of the
    kind `undo` it is the reason why the job undoes its steps from now on. Without a name it has no entry
    of its own: it says with `compensates` that there is something to undo, before a step that may kill the
    process.
    """

    hold: Hold
    name: str
    result: str
    kind: StepKind = "step"
    took_ms: int = 0
    before: tuple[NewStep, ...] = ()
    number: int = 0
    compensates: bool = False
    # The record as the holder knows it, which may save the store a read.
    held: Job | None = None

    @property
    def is_note(self) -> bool:
        """Whether it has no entry of its own."""
        return self.compensates and not (self.name or self.result or self.number)


class WriteLog(Command, frozen=True, kw_only=True):
    """Add lines to the log of a running job."""

    hold: Hold
    lines: tuple[str, ...]


class Update(Command, frozen=True, kw_only=True):
    """Change the data, priority, time or repeat of a job. What is not given stays as it is."""

    job_id: int
    hold: Hold | None = None
    data: Body | None = None
    priority: int | None = None
    run_at: int | None = None
    repeat: str | None = None
    task: str | None = None
    tenant: str | None = None


class Cancel(Command, frozen=True, kw_only=True):
    """Cancel a job. A running job is asked to stop; with `force` it loses its claim."""

    job_id: int
    force: bool = False
    tenant: str | None = None


class SendSignal(Command, frozen=True, kw_only=True):
    """Send a signal, JSON text, to a job; it is kept until the job waits for it or ends.

    A signal with a `key` that the job was sent within a day is not sent again.
    """

    job_id: int
    name: str
    data: str = "null"
    key: str = ""
    tenant: str | None = None


class Requeue(Command, frozen=True, kw_only=True):
    """Put a job back in the queue, from any state but archived, with its attempts reset.

    `forgive`: how many of its losses to reset, of which the current run counts as one; None: all.
    `unless_running`: refuse a job that runs, which would then run a second time beside itself. `from_step`:
    the name or number of a step; it and what came after it are done again, what came before is kept.
    """

    job_id: int
    run_at: int = 0
    task: str | None = None
    forgive: int | None = None
    tenant: str | None = None
    unless_running: bool = False
    from_step: str = ""


class RequeueAll(Command, frozen=True, kw_only=True):
    """Requeue jobs of a tenant, due since they were created, all or none; ids of unknown jobs are ignored."""

    job_ids: tuple[int, ...]
    tenant: str
    task: str | None = None
    forgive: int | None = None


class Delete(Command, frozen=True, kw_only=True):
    """Delete a job that neither runs nor waits for its family, with all its rows."""

    job_id: int
    tenant: str | None = None


class SetLimit(Command, frozen=True, kw_only=True):
    """Limit a domain, or all domains that match a pattern; `limit` None removes the limit."""

    domain: bytes
    tenant: str = ""
    limit: Limit | None = None


class Pause(Command, frozen=True, kw_only=True):
    """Pause a task, a tenant or a domain: claims skip it. `on` False resumes it.

    Without a `tenant` a task is paused for all tenants. Resumed without one, that pause ends, and the one of
    jobs without a tenant; those of named tenants stay.
    """

    tenant: str | None = None
    task: str | None = None
    domain: bytes | None = None
    on: bool = True


class SetSchedule(Command, frozen=True, kw_only=True):
    """Create or change a schedule; replies the stored schedule."""

    schedule: Schedule
    job: NewJob


class DeleteSchedule(Command, frozen=True, kw_only=True):
    """Delete a schedule; the jobs that it has added remain."""

    name: str
    tenant: str = ""


class PauseSchedule(Command, frozen=True, kw_only=True):
    """Pause a schedule; `on` False resumes it."""

    name: str
    tenant: str = ""
    on: bool = True


class Purge(Command, frozen=True, kw_only=True):
    """Delete archived jobs that ended before a time; replies how many, at most `limit`."""

    before_ms: int
    tenant: str | None = None
    limit: int = 1000


class StartProgress(Command, frozen=True, kw_only=True):
    """Create the progress of a consumer at `start`, if there is none; replies the stored progress.

    `log` is the log that the consumer reads, if any: it is not trimmed beyond this progress.
    """

    name: str
    tenant: str = ""
    start: int = 0
    log: str = ""


class MoveProgress(Command, frozen=True, kw_only=True):
    """Move the progress of a consumer forward; replies it. `resets`: the value when the consumer started."""

    name: str
    tenant: str = ""
    to: int
    resets: int = 0
    seen: Seen = Seen()


class SetProgress(Command, frozen=True, kw_only=True):
    """Set the progress of a consumer, forward or back; replies it. A running consumer stops with an error."""

    name: str
    tenant: str = ""
    to: int


class Append(Command, frozen=True, kw_only=True):
    """Append items to a log, all or none; replies for each its index, and whether it is new.

    An item whose key the log remembers is not appended; its index is that of the earlier item.
    """

    log: str
    tenant: str = ""
    items: tuple[LogItem, ...]


class TrimLog(Command, frozen=True, kw_only=True):
    """Trim a log: remove the items that all its consumers have processed, or those up to a lower index.

    Replies how many were removed, at most `limit`. A log without consumers is trimmed only up to a given
    index.
    """

    log: str
    tenant: str = ""
    up_to: int | None = None
    keep_keys: int = 0
    limit: int = 10_000


class Await(Command, frozen=True, kw_only=True):
    """Replies the job and its result once it has ended; None while it has not.

    `redacted`: the result without its secrets (`core.redaction`).
    """

    job_id: int
    tenant: str | None = None
    redacted: bool = False


class Upkeep(Command, frozen=True, kw_only=True):
    """Process due jobs, expired jobs and ended leases; replies when upkeep is needed next, or None."""


class Enlist(Command, frozen=True, kw_only=True):
    """Register a worker, or update its registration. With a `tenant`: only if it serves no other tenant."""

    worker: Worker
    tenant: str | None = None


class Publish(Command, frozen=True, kw_only=True):
    """Publish the defaults of tasks, which claims fill in; unchanged ones are not written.

    Each is (tenant, task, defaults); `tenant` None: all tenants.
    """

    tasks: tuple[tuple[str | None, str, Defaults], ...]


class Dismiss(Command, frozen=True, kw_only=True):
    """Unregister a worker that has ended. With a `tenant`: only if it serves no other tenant."""

    name: str
    tenant: str | None = None


class CreateToken(Command, frozen=True, kw_only=True):
    """Store a new token; replies it. The caller makes the secret and sends only its hash.

    `expires_in_ms` counts from the time of the store; 0: the token is valid until it is revoked.
    """

    token: Token
    expires_in_ms: int = 0


class RevokeToken(Command, frozen=True, kw_only=True):
    """Delete a token: servers refuse it within `core.token.FRESH_S`."""

    name: str


class Claimed(Record, frozen=True, kw_only=True):
    """A claimed job: the record and its data. `last_run` is the time of its claim before this one, or 0.

    `steps` are all that it has done, or none: then `GetSteps` has them.
    """

    job: Job
    data: Body
    last_run: int = 0
    steps: tuple[StepResult, ...] = ()


class Ended(Record, frozen=True, kw_only=True):
    """A job that has ended, with its result if there is one."""

    job: Job
    result: Body | None = None


class RunSchedule(Command, frozen=True, kw_only=True):
    """Add the job of a schedule now; replies its id in a list, as `Add` does.

    The schedule stays as it is: its times, its counts, and whether it is paused.
    """

    name: str
    tenant: str = ""


class StopWorker(Command, frozen=True, kw_only=True):
    """Ask a worker to finish what it runs and to end; with a `tenant` not one that serves others.

    The worker reads it with its next heartbeat.
    """

    name: str
    tenant: str | None = None


class SetRetention(Command, frozen=True, kw_only=True):
    """Set how long ended jobs are kept; 0: not at all. FAILED jobs are kept until they are dealt with."""

    retention_ms: int


class TakeSysid(Command, frozen=True, kw_only=True):
    """Lease a sysid, or renew the one that has this token; replies it.

    The caller makes the token, a secret, so that a repeated command leases only one sysid. `number` is the
    sysid to renew, or 0. If its token is `previous`, `token` replaces that; if it is neither, another sysid
    is leased. `for_ms` 0 releases it: the reply has `number` 0. With `used_until_ms`, before which its ids
    are, it is released only if many are taken; else the reply has the sysid, which the caller keeps.
    """

    token: str
    for_ms: int
    number: int = 0
    previous: str = ""
    used_until_ms: int = 0


class TakenSysid(Record, frozen=True, kw_only=True):
    """A leased sysid. Its holder makes ids with times from `ids_from_ms` to before `ids_until_ms`."""

    number: int
    token: str
    ids_from_ms: int = 0
    ids_until_ms: int = 0
