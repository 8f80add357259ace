"""What can be asked. Every verb of every door is one of these records, and nothing else is.

The holder's verbs carry a `Hold`: who claims to have the job, under which claim. Operators' verbs
carry none. A reply means that the command is durably committed; a refusal changes nothing.

Where a verb on one job names a `tenant`, jobs of other tenants are not found.
"""

from collections.abc import Iterator
from typing import Literal

from msgspec.structs import replace

from .defaults import Defaults
from .indexed import LogItem, Seen
from .job import DEFAULT_BACKOFF, STORED_ATTEMPTS, STORED_LOSSES, Backoff, Body, Code, Job, Record
from .limits import Limit
from .schedule import Schedule
from .token import Token
from .worker import Worker

OnConflict = Literal["keep", "merge", "replace"]


class Hold(Record, frozen=True, kw_only=True):
    """The right to answer for a job. `claim` None: whichever claim `owner` has now (the port).

    Where a `tenant` is named, jobs of others are not found. `job_id` 0, for children: the parent of each.
    """

    job_id: int
    owner: int
    claim: int | None = None
    tenant: str | None = None


def hold_of(job: Job) -> Hold:
    """The right to answer for a job as it was claimed."""
    return Hold(job_id=job.id, owner=job.owner, claim=job.claim)


class NewJob(Record, frozen=True, kw_only=True):
    """A job as it is asked for; also what schedules and `then` add."""

    task: str
    tenant: str = ""
    data: Body = "{}"
    id: int = 0
    # None: 500, and where a unique job exists already, as that has it.
    priority: int | None = None
    # 0: as soon as it may; `delay_ms` counts from the store's now.
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
    # The parameter of `then` that gets the result.
    into: str = ""
    schedule: str = ""
    mock: bool = False
    strict: bool = False
    # The options that the call itself named, sorted: the task's defaults never replace these.
    given: tuple[str, ...] = ()


class Command(Record, frozen=True, kw_only=True, tag=True):
    """The base of all commands. Each is told by its name when it goes to another process."""


class Add(Command, frozen=True, kw_only=True):
    """Add jobs, all or none; replies their ids in order, those of existing jobs for unique hits.

    `hold` is the claim under which children are added: of their parent, or of a sibling.
    """

    jobs: tuple[NewJob, ...]
    # The data of further jobs, which are as the last of `jobs` but for it.
    more: tuple[Body, ...] = ()
    hold: Hold | None = None
    # The ids of all of them in order, which `ReserveIds` has replied; none: the store makes them. A command
    # that is asked again with the same ids adds nothing twice.
    ids: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """How many jobs there are."""
        return len(self.jobs) + len(self.more)

    @property
    def size(self) -> int:
        """About how many bytes of data they have."""
        return sum(len(new.data) for new in self.jobs) + sum(map(len, self.more))

    def every(self) -> Iterator[NewJob]:
        """All jobs, each by itself."""
        if self.ids:
            for new, job_id in zip(replace(self, ids=()).every(), self.ids, strict=True):
                yield replace(new, id=job_id)
            return
        yield from self.jobs
        for data in self.more:
            yield replace(self.jobs[-1], data=data)


class ReserveIds(Command, frozen=True, kw_only=True):
    """Have ids made for jobs that are yet to be added, at most `BATCH_JOBS`; replies them in ranges.

    So a client knows the ids of its jobs before it asks for them, and may ask again.
    """

    count: int


class Claim(Command, frozen=True, kw_only=True):
    """Lease the first jobs that may run; replies them with their data, possibly none."""

    tasks: tuple[str, ...] | None = None
    # Tasks whose names match this pattern; see `core.glob`.
    glob: str | None = None
    tenant: str | None = None
    limit: int = 1
    lease_ms: int | None = None
    owner: int = 0
    priority: int | None = None
    mock: bool = False
    # Any of these tenants.
    tenants: tuple[str, ...] | None = None
    # Only tasks that have a handler in the store.
    handled: bool = False
    # (tenant, task, at most): the first of each, and of nobody else.
    picks: tuple[tuple[str, str, int], ...] = ()
    # How much it has got elsewhere of the bytes that a claim may bring.
    taken_bytes: int = 0
    # Whether the jobs start now. A worker, which may run them later, says when: with `Extend` and `Answer`.
    start: bool = True


class Answer(Command, frozen=True, kw_only=True):
    """Say how a run ended. `held` is the record as claimed, which may save the store a read.

    `lines` are the last of its log.
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
    # What a job that is to run again is from then on; None: as it was.
    task: str | None = None
    priority: int | None = None
    held: Job | None = None
    lines: tuple[str, ...] = ()
    # How long its handler ran, of a job that was claimed without starting it; None: since the claim.
    ran_ms: int | None = None


class AnswerAll(Command, frozen=True, kw_only=True):
    """Say how many runs ended; replies of each what `Answer` replies, or the error that refused it alone."""

    answers: tuple[Answer, ...]
    # Their records as claimed, in order, instead of the `held` of each; or none.
    held: tuple[Job, ...] = ()


class Release(Command, frozen=True, kw_only=True):
    """Give a job back without an answer: it counts as no attempt.

    `delay_ms` puts it back so much later. `lost` says that it was running in a process that died, in a
    `crowd` of so many; 0: the process was ended for another job's sake. See `rules.lost`.
    """

    hold: Hold
    delay_ms: int = 0
    lost: bool = False
    crowd: int = 1
    # Only if its lease still ends then: an undone claim may have been made again. 0: whenever it ends.
    lease_until: int = 0


class Extend(Command, frozen=True, kw_only=True):
    """Move the end of a lease to now + `lease_ms`.

    `ran_ms` says how long the handler of a job has been running that was claimed without starting it; None:
    since the claim, or not at all yet.
    """

    hold: Hold
    lease_ms: int
    ran_ms: int | None = None


class Report(Command, frozen=True, kw_only=True):
    """Tell how far a running job is."""

    hold: Hold
    fraction: float
    note: str = ""


class Step(Command, frozen=True, kw_only=True):
    """Keep the result of a step, JSON text, for later runs of the job."""

    hold: Hold
    name: str
    result: str


class Log(Command, frozen=True, kw_only=True):
    """Add lines to the log of a running job."""

    hold: Hold
    lines: tuple[str, ...]


class Update(Command, frozen=True, kw_only=True):
    """Change what a job will do: data, priority, time, repeat. What is None stays as it is."""

    job_id: int
    hold: Hold | None = None
    data: Body | None = None
    priority: int | None = None
    run_at: int | None = None
    repeat: str | None = None
    task: str | None = None
    tenant: str | None = None


class Cancel(Command, frozen=True, kw_only=True):
    """Take a job out of the queue; a running one is asked to stop, and with `force` loses its claim."""

    job_id: int
    force: bool = False
    tenant: str | None = None


class Requeue(Command, frozen=True, kw_only=True):
    """Put a job back in the queue, whatever its state, with its attempts forgiven.

    `forgive` is how many of its losses are, the run at hand counting as one; None: all.
    """

    job_id: int
    run_at: int = 0
    task: str | None = None
    forgive: int | None = None
    tenant: str | None = None


class RequeueAll(Command, frozen=True, kw_only=True):
    """Requeue a tenant's jobs, due since they were made, all or none; what is not there does not matter."""

    job_ids: tuple[int, ...]
    tenant: str
    task: str | None = None
    forgive: int | None = None


class Delete(Command, frozen=True, kw_only=True):
    """Remove all trace of a job that is neither running nor waiting for its family."""

    job_id: int
    tenant: str | None = None


class SetLimit(Command, frozen=True, kw_only=True):
    """Limit a domain, or all that match a pattern; `limit` None lifts it."""

    domain: bytes
    tenant: str = ""
    limit: Limit | None = None


class Pause(Command, frozen=True, kw_only=True):
    """Have claims pass by a task, a tenant or a domain, or (`on` False) no longer."""

    tenant: str | None = None
    task: str | None = None
    domain: bytes | None = None
    on: bool = True


class SetSchedule(Command, frozen=True, kw_only=True):
    """Create or change a schedule; replies it as it stands."""

    schedule: Schedule
    job: NewJob


class DeleteSchedule(Command, frozen=True, kw_only=True):
    """Remove a schedule; what it has added stays."""

    name: str
    tenant: str = ""


class PauseSchedule(Command, frozen=True, kw_only=True):
    """Stop a schedule from firing, or (`on` False) let it fire again."""

    name: str
    tenant: str = ""
    on: bool = True


class Purge(Command, frozen=True, kw_only=True):
    """Delete archived jobs that ended before a moment; replies how many, at most `limit`."""

    before_ms: int
    tenant: str | None = None
    limit: int = 1000


class StartProgress(Command, frozen=True, kw_only=True):
    """Create a consumer's progress where there is none, at `start`; replies it as it stands.

    `log` is the log that the consumer reads, if it reads one: it is not trimmed beyond its progress.
    """

    name: str
    tenant: str = ""
    start: int = 0
    log: str = ""


class MoveProgress(Command, frozen=True, kw_only=True):
    """Move a consumer's progress forward; replies it. `resets` as it was when the consumer began."""

    name: str
    tenant: str = ""
    to: int
    resets: int = 0
    seen: Seen = Seen()


class SetProgress(Command, frozen=True, kw_only=True):
    """Set a consumer's progress by hand, forward or back; replies it. One that runs is stopped by it."""

    name: str
    tenant: str = ""
    to: int


class Append(Command, frozen=True, kw_only=True):
    """Append items to a log, all or none; replies of each its index, and whether it is new.

    One whose key the log knows is not new, and has the index of the item that had the key before.
    """

    log: str
    tenant: str = ""
    items: tuple[LogItem, ...]


class TrimLog(Command, frozen=True, kw_only=True):
    """Remove the items that all consumers of a log have passed, or up to an index below that.

    Replies how many went, at most `limit`. A log that nobody reads is trimmed only as far as told.
    """

    log: str
    tenant: str = ""
    up_to: int | None = None
    keep_keys: int = 0
    limit: int = 10_000


class Await(Command, frozen=True, kw_only=True):
    """Look whether a job has ended; replies the job and its result, or None while it has not."""

    job_id: int
    tenant: str | None = None


class Upkeep(Command, frozen=True, kw_only=True):
    """Do what has become true by itself; replies when there is next something to do, or None."""


class Enlist(Command, frozen=True, kw_only=True):
    """Make a worker known, or say what has changed; with a `tenant` not of one that serves others."""

    worker: Worker
    tenant: str | None = None


class Publish(Command, frozen=True, kw_only=True):
    """Make the defaults of tasks known, for those who claim their jobs; what is known already is not written.

    Each is (tenant, task, defaults), `tenant` None standing for all tenants.
    """

    tasks: tuple[tuple[str | None, str, Defaults], ...]


class Dismiss(Command, frozen=True, kw_only=True):
    """Forget a worker that has ended, if it is known; with a `tenant` not one that serves others."""

    name: str
    tenant: str | None = None


class CreateToken(Command, frozen=True, kw_only=True):
    """Keep a new token; replies it. Its secret is made by the caller, and only the hash is sent.

    `expires_in_ms` counts from the store's now; 0: it holds until it is revoked.
    """

    token: Token
    expires_in_ms: int = 0


class RevokeToken(Command, frozen=True, kw_only=True):
    """Remove a token: servers refuse it within `core.token.FRESH_S`."""

    name: str


class Claimed(Record, frozen=True, kw_only=True):
    """A job as handed out: the record and its data. `last_run` is when it was handed out before, or 0."""

    job: Job
    data: Body
    last_run: int = 0


class Ended(Record, frozen=True, kw_only=True):
    """A job that has ended, with its result if there is one."""

    job: Job
    result: Body | None = None
