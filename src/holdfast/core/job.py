"""The job: the one record that everything is about.

A job stands in exactly one *place*, which is how stores keep it in order; its *state* is what
people see, and follows from the record by `state`, here and nowhere else.

    place        ordered by                    state
    SCHEDULED    due time                      QUEUED    (RUNQUEUED: its `retry_after` ran out unreported)
    READY        priority, due time, id        QUEUED    (likewise)
    HELD         the same, behind its domain   QUEUED    (likewise)
    RUNNING      end of the lease              RUNNING   (RUNQUEUED with a `retry_after`)
    PAUSED       —                             PAUSED
    DONE         the moment it ended           FINISHED, FAILED or CANCELLED

Data and results are not part of the record: they are written once and stay where they are while
the record moves. The names of the fields are the stored form; see docs/decisions/0002.
"""

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from .bounds import SECOND_MS
from .errors import StoreCorrupt

# JSON text, or bytes as they are. Never parsed on the way. msgspec decodes no record with a field that
# is one or the other, so it is told nothing: in JSON bytes come back as text, and whoever keeps a
# record with a body says beside it which it was.
if TYPE_CHECKING:
    Body = str | bytes
else:
    Body = Any


class Unreadable(bytes):
    """A body that was text and is no UTF-8 any more, as it was found. Decoding it is `StoreCorrupt`."""


def unreadable(job_id: int, what: str) -> StoreCorrupt:
    """The error for the record, data or result of a job that is damaged."""
    way_out = "its bytes are kept: restore a backup, or delete the job"
    return StoreCorrupt(f"the {what} of job {job_id} is damaged and cannot be read; {way_out}")


def readable(job_id: int, what: str, body: Body | None) -> Body | None:
    """A body, or `StoreCorrupt`."""
    if isinstance(body, Unreadable):
        raise unreadable(job_id, what)
    return body


def size_of(body: Body) -> int:
    """How many bytes a body has when it is written."""
    return len(body) if body.isascii() or isinstance(body, bytes) else len(body.encode())


def whole_second(at_ms: int) -> int:
    """The start of the second that a time is in: how the documents write all times of a job that has run."""
    return max(at_ms - at_ms % SECOND_MS, 1)  # 0 would be no time


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
    """What people see."""

    QUEUED = "QUEUED"
    RUNQUEUED = "RUNQUEUED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class Code(StrEnum):
    """How one run ended."""

    OK = "ok"
    FAILED = "failed"
    RETRY = "retry"
    ERROR = "error"


# Records are written without what is at its default, so these numbers are part of the stored form:
# never change one. What people get who say nothing is `DEFAULT_…` in bounds, which may change.
STORED_PRIORITY = 500
STORED_ATTEMPTS = 10
STORED_LOSSES = 10


class Record(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True, gc=False
):
    """The base of all records: frozen, written and shown without what is at its default.

    None can ever lead back to itself, so the collector of cycles need not look at them.
    """


class Backoff(Record, frozen=True, kw_only=True):
    """How long to wait before a run that follows an ERROR or RETRY."""

    first_ms: int = 1_000
    most_ms: int = 3_600_000
    jitter: float = 0.2


class Outcome(Record, frozen=True, kw_only=True):
    """How one run ended, for people and for `result`."""

    code: Code
    at: int
    exit_code: int = 0
    error: str = ""
    traceback: str = ""
    # What the run used, where its runner has measured it.
    cpu_ms: float = 0.0
    wall_ms: float = 0.0


class Progress(Record, frozen=True, kw_only=True):
    """How far a running job says it is."""

    fraction: float
    note: str = ""


class Children(Record, frozen=True, kw_only=True):
    """What a parent knows of its children; kept on the parent, so that nobody has to count.

    `pending` have not ended, `failed` are FAILED, `kept` are FINISHED or CANCELLED and stay
    beside the parent until it has seen them.
    """

    pending: int = 0
    failed: int = 0
    kept: int = 0


DEFAULT_BACKOFF = Backoff()
NO_CHILDREN = Children()


class Job(Record, frozen=True, kw_only=True):
    """One piece of work. Times are integer milliseconds UTC; 0 means not yet, never or none."""

    id: int
    task: str
    tenant: str = ""
    place: Place = Place.SCHEDULED
    rank: int = 0
    version: int = 1

    priority: int = STORED_PRIORITY
    created_at: int = 0
    # When it is due next. Retries move it; `scheduled_at` remembers what a SCHEDULED repeat counts from.
    run_at: int = 0
    scheduled_at: int = 0
    # When the handler of its last run started. 0 while RUNNING: handed out to a worker, and not started yet.
    started_at: int = 0
    finished_at: int = 0
    expires_at: int = 0

    # The claim: who has the job until when. `claim` counts hand-outs and never goes back.
    owner: int = 0
    lease_until: int = 0
    claim: int = 0

    attempts: int = 0
    max_attempts: int = STORED_ATTEMPTS
    losses: int = 0
    # It was running where a process died: until it has ended it shares an executor with suspects only, at
    # most so many, itself included. 0: it is no suspect.
    crowd_limit: int = 0
    max_losses: int = STORED_LOSSES
    backoff: Backoff = DEFAULT_BACKOFF
    timeout_ms: int = 0
    # Milliseconds, or one of the documents' date modifiers ("+1 DAY").
    retry_after: int | str = 0
    # Its `retry_after` ran out unreported: the documents' RUNQUEUED.
    lapsed: bool = False

    repeat: str = ""
    # A `replace` or `merge` reached it while it ran: run once more, at this moment.
    again_at: int = 0
    unique: bytes | None = None
    unique_for_ms: int = 0
    domain: bytes | None = None
    schedule: str = ""
    # JSON of the job that follows, a `NewJob`; `into` is its parameter that gets the result (core.following).
    then: str = ""
    into: str = ""
    # The id of the job that follows. It is made with this one; once `followed`, that job has been added.
    then_id: int = 0
    followed: bool = False

    parent_id: int = 0
    # Which run of the parent made it: `claim` of the parent then.
    parent_claim: int = 0
    children: Children = NO_CHILDREN
    wait_for_failed: bool = False

    # The options that the caller gave, of those that the task's defaults would fill in (decision 14).
    given: tuple[str, ...] = ()

    mock: bool = False
    # Made at the job-command port: the documents' rules hold to the letter.
    strict: bool = False
    cancel_requested: bool = False

    ended: State | None = None
    reason: str = ""
    progress: Progress | None = None
    outcome: Outcome | None = None
    # The last runs that did not end well, oldest first.
    errors: tuple[Outcome, ...] = ()
    # Bytes of its data; None of the result, `has_result` says whether there is one.
    size: int = 0
    has_result: bool = False
    # Its record as it was found, once that could not be read any more: see `damage`.
    damaged: bytes | None = None
    # How many steps it has done, and lines it has logged: they lie beside the record (decision 5).
    steps: int = 0
    log_lines: int = 0

    @property
    def state(self) -> State:
        """What people see; see `state`."""
        return state(self)


def state(job: Job) -> State:
    """The state that follows from the record."""
    place = job.place
    if place is Place.DONE:
        return job.ended or State.FINISHED
    if place is Place.RUNNING:
        return State.RUNQUEUED if job.retry_after else State.RUNNING
    if place is Place.PAUSED:
        return State.PAUSED
    return State.RUNQUEUED if job.lapsed else State.QUEUED
