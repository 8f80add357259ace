"""The job record, its places and its states.

A job is in exactly one *place*, by which stores keep it in order. Its *state* is what users see; only the
function `state` derives it from the record.

    place        ordered by                    state
    SCHEDULED    due time                      QUEUED    (RUNQUEUED: its `retry_after` ended unanswered)
    READY        priority, due time, id        QUEUED    (likewise)
    HELD         the same, within its domain   QUEUED    (likewise)
    RUNNING      end of the lease              RUNNING   (RUNQUEUED with a `retry_after`)
    PAUSED       —                             PAUSED
    DONE         when it ended                 FINISHED, FAILED or CANCELLED

Data and results are not part of the record: they are written once, while the record changes. The field names
are the stored form; see docs/decisions/0002.
"""

from collections.abc import Collection, Mapping
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from .bounds import SECOND_MS
from .errors import StoreCorrupt

# JSON text, or bytes. Never parsed in between. `Any`, because msgspec cannot decode a field that is either
# str or bytes: in JSON, bytes are decoded as text, so a record with a body needs a second field that tells
# which it was.
if TYPE_CHECKING:
    Body = str | bytes
else:
    Body = Any


class Unreadable(bytes):
    """A damaged body: it was text, but is not valid UTF-8 or JSON any more; empty if it is missing."""


MISSING = Unreadable()


_check_json = msgspec.json.Decoder(msgspec.Raw).decode


def is_damaged(body: Body | None) -> bool:
    """Whether a stored body is missing, or is text that is no JSON any more."""
    if type(body) is not str:
        return body is None or type(body) is Unreadable
    try:
        _check_json(body)
    except RecursionError:  # of this thread, which may be deep in its stack
        return False
    except msgspec.DecodeError:
        return True
    return False


def damaged_bodies(job_ids: Collection[int], bodies: Mapping[int, Body]) -> set[int]:
    """The jobs whose body is missing or damaged."""
    found = bodies.values()
    try:
        # The usual case, without a call of Python for each job.
        if {*map(type, found)} == {str} and len([*map(_check_json, found)]) == len(job_ids):
            return set()
    except (msgspec.DecodeError, RecursionError):
        pass
    return {job_id for job_id in job_ids if is_damaged(bodies.get(job_id))}


def unreadable(job_id: int, what: str) -> StoreCorrupt:
    """The error for the record, data or result of a job that is damaged."""
    way_out = "its bytes are kept: restore a backup, or delete the job"
    return StoreCorrupt(f"the {what} of job {job_id} is damaged and cannot be read; {way_out}")


def marked(body: Body | None) -> Body:
    """A stored body that must be there; `Unreadable` if it is damaged."""
    if body is None or is_damaged(body):
        return Unreadable(body.encode() if isinstance(body, str) else body or b"")
    return body


def readable(job_id: int, what: str, body: Body | None) -> Body:
    """Return a body that must be there, or raise `StoreCorrupt`."""
    if body is None or is_damaged(body):
        raise unreadable(job_id, what)
    return body


def size_of(body: Body) -> int:
    """The stored size of a body in bytes."""
    return len(body) if body.isascii() or isinstance(body, bytes) else len(body.encode())


def whole_second(at_ms: int) -> int:
    """A time rounded down to the second, as the documents write all times of a job that has run."""
    return max(at_ms - at_ms % SECOND_MS, 1)  # 0 would mean "no time"


class Place(IntEnum):
    """Where a store keeps a job. The numbers are stored: never change one."""

    SCHEDULED = 1
    READY = 2
    HELD = 3
    RUNNING = 4
    PAUSED = 5
    DONE = 6


WAITING = (Place.SCHEDULED, Place.READY, Place.HELD)


class State(StrEnum):
    """The state that users see."""

    QUEUED = "QUEUED"
    RUNQUEUED = "RUNQUEUED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class WaitsFor(StrEnum):
    """What counts have instead of the state of a suspended job: what it waits for."""

    SLEEP = "SLEEP"
    SIGNAL = "SIGNAL"
    CALL = "CALL"


# What a job counts as.
Counted = State | WaitsFor
COUNTED: dict[str, Counted] = {str(one): one for one in (*State, *WaitsFor)}


class Code(StrEnum):
    """How one run ended."""

    OK = "ok"
    FAILED = "failed"
    RETRY = "retry"
    ERROR = "error"
    # It goes on later: it sleeps, or waits for a signal or for the jobs that it has called.
    SUSPEND = "suspend"


# What a run does to its job, in errors.
VERB_OF = {
    Code.OK: "finish",
    Code.FAILED: "fail",
    Code.RETRY: "retry",
    Code.ERROR: "retry",
    Code.SUSPEND: "suspend",
}


# Records are stored without fields that have their default, so these defaults are part of the stored form:
# never change one. The defaults for users are `DEFAULT_…` in bounds, which may change.
STORED_PRIORITY = 500
STORED_ATTEMPTS = 10
STORED_LOSSES = 10
# A start that is reported again counts as the known one if it differs by no more.
START_SLACK_MS = 200


class Record(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True, gc=False
):
    """The base class of all records: frozen; fields with their default are neither stored nor shown.

    Records never form reference cycles, so the garbage collector need not track them.
    """


class Backoff(Record, frozen=True, kw_only=True):
    """How long to wait before a run that follows an ERROR or RETRY."""

    first_ms: int = 1_000
    most_ms: int = 3_600_000
    jitter: float = 0.2


class Outcome(Record, frozen=True, kw_only=True):
    """How one run ended, for display and for `result`."""

    code: Code
    at: int
    exit_code: int = 0
    error: str = ""
    traceback: str = ""
    # The resource usage of the run, if its runner has measured it.
    cpu_ms: float = 0.0
    wall_ms: float = 0.0
    # The process whose claim it was. How long it ran, unless it is the last run: that is in the job's times.
    owner: int = 0
    ran_ms: int = 0


class JobProgress(Record, frozen=True, kw_only=True):
    """The progress that a running job has reported."""

    fraction: float
    note: str = ""


class Children(Record, frozen=True, kw_only=True):
    """The counts of a job's children, stored with the parent.

    `pending` have not ended, `failed` are FAILED, `kept` are FINISHED or CANCELLED and stay live until the
    parent has read them; `archived` were archived then.
    """

    pending: int = 0
    failed: int = 0
    kept: int = 0
    archived: int = 0


WaitKind = Literal["sleep", "signal", "call"]
StepKind = Literal["step", "error", "version", "sleep", "signal", "call", "undo"]


class Wait(Record, frozen=True, kw_only=True):
    """What a suspended job waits for; `step` is the number of its entry among the steps.

    `name`: of the signal. `calls`: how many jobs it has called.
    """

    kind: WaitKind
    step: int
    since: int
    name: str = ""
    calls: int = 0


class Mailbox(Record, frozen=True, kw_only=True):
    """The signals of one name that wait for their job: rows from `first` up to `next`, `size` bytes."""

    name: str
    next: int
    first: int = 0
    size: int = 0


DEFAULT_BACKOFF = Backoff()
NO_CHILDREN = Children()


class Job(Record, frozen=True, kw_only=True):
    """A job. Times are integer milliseconds UTC; 0 means not yet, never or none."""

    id: int
    # What a claim changes comes before the task: Redis replaces this part of a record by itself.
    place: Place = Place.SCHEDULED
    rank: int = 0
    version: int = 1
    # The claim: the owner, and the end of the lease. `claim` counts the claims and never decreases.
    owner: int = 0
    lease_until: int = 0
    claim: int = 0
    # When the handler of its last run started. 0 while RUNNING: claimed by a worker, but not started yet.
    started_at: int = 0

    task: str
    tenant: str = ""
    priority: int = STORED_PRIORITY
    created_at: int = 0
    # When it is due next. Retries change it; a SCHEDULED repeat counts from `scheduled_at`.
    run_at: int = 0
    scheduled_at: int = 0
    finished_at: int = 0
    expires_at: int = 0

    attempts: int = 0
    max_attempts: int = STORED_ATTEMPTS
    losses: int = 0
    # It was running in a process that died: until it ends, it shares an executor only with other suspects, at
    # most this many including itself. 0: not a suspect.
    crowd_limit: int = 0
    max_losses: int = STORED_LOSSES
    backoff: Backoff = DEFAULT_BACKOFF
    timeout_ms: int = 0
    # Milliseconds, or one of the documents' date modifiers ("+1 DAY").
    retry_after: int | str = 0
    # Its `retry_after` ended without an answer: RUNQUEUED in the documents.
    lapsed: bool = False

    repeat: str = ""
    # A `replace` or `merge` changed it while it ran: it runs once more, at this time.
    again_at: int = 0
    unique: bytes | None = None
    unique_for_ms: int = 0
    domain: bytes | None = None
    schedule: str = ""
    # The follow-up job, a `NewJob` as JSON; `into` is its parameter that gets the result (core.following).
    then: str = ""
    into: str = ""
    # The id of the follow-up job, made together with this one. `followed`: that job has been added.
    then_id: int = 0
    followed: bool = False
    # The job to add each time that this one becomes FAILED, a `NewJob` as JSON.
    on_failure: str = ""

    parent_id: int = 0
    # The `claim` of the parent when it added this child.
    parent_claim: int = 0
    children: Children = NO_CHILDREN
    wait_for_failed: bool = False

    # The options given by the caller, of those that the defaults of the task can fill in (decision 14).
    given: tuple[str, ...] = ()

    mock: bool = False
    # Added through the job-command port: the rules of the documents apply exactly.
    strict: bool = False
    cancel_requested: bool = False

    ended: State | None = None
    reason: str = ""
    progress: JobProgress | None = None
    outcome: Outcome | None = None
    # The last runs that did not succeed, oldest first.
    errors: tuple[Outcome, ...] = ()
    # The size of its data in bytes; whether it has a result.
    size: int = 0
    has_result: bool = False
    # The bytes of a record that cannot be decoded: see `damage`.
    damaged: bytes | None = None
    # How many steps it has done and lines it has logged; these are stored separately (decision 5).
    steps: int = 0
    log_lines: int = 0
    # The bytes of its steps. `open_call`: the step that called jobs whose results it does not have yet; until
    # then these are not archived.
    step_bytes: int = 0
    open_call: int = 0
    # A cancel lets it run once more, to undo what its steps have done.
    compensates: bool = False
    # Why it fails, after one more run that undoes its steps.
    undoes: str = ""
    # What it waits for since its last run, until it is claimed; and the signals that wait for it.
    waits_for: Wait | None = None
    signals: tuple[Mailbox, ...] = ()
    # The span that added it, as a W3C traceparent; "": none was active (decision 22).
    traceparent: str = ""

    @property
    def trace_id(self) -> str:
        """The id of the trace that it was added in, 32 hexadecimal digits; "": it was added in none."""
        return trace_id_of(self.traceparent)

    @property
    def state(self) -> State:
        """The state that users see; see `state`."""
        return state(self)


def counted(job: Job) -> Counted:
    """What a job counts as."""
    if job.waits_for is None or job.place not in (Place.SCHEDULED, Place.PAUSED):
        return job.state
    return COUNTED[job.waits_for.kind.upper()]


def trace_id_of(traceparent: str) -> str:
    """The trace of a W3C traceparent; "" of none."""
    return traceparent[3:35]


def state(job: Job) -> State:
    """Derive the state from the record."""
    place = job.place
    if place is Place.DONE:
        return job.ended or State.FINISHED
    if place is Place.RUNNING:
        return State.RUNQUEUED if job.retry_after else State.RUNNING
    if place is Place.PAUSED:
        return State.PAUSED
    return State.RUNQUEUED if job.lapsed else State.QUEUED


# Longer than any lease: what `plain_lease_ms` returns for a job without a time limit.
ANY_LEASE_MS = (1 << 53) - 1


def plain_lease_ms(job: Job) -> int:
    """The longest lease with which a claim changes only what a store changes by itself; 0: none is.

    Beyond that, `rules.claim` or the limits of its domain decide about the job.
    """
    if (
        job.expires_at
        or job.retry_after
        or job.lapsed
        or job.again_at
        or job.damaged is not None
        or job.max_losses == 1
        or job.domain is not None
    ):
        return 0
    return job.timeout_ms or ANY_LEASE_MS


def start_of(job: Job, *, now_ms: int, ran_ms: int | None) -> int:
    """When a job's handler started, if its holder reports that it has run for `ran_ms`; None: as recorded."""
    if ran_ms is None or (job.started_at and now_ms - ran_ms <= job.started_at + START_SLACK_MS):
        return job.started_at
    return now_ms - ran_ms if now_ms > ran_ms else 1
