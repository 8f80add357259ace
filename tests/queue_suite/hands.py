"""The two ways to make a job and to answer for it, under the same verbs.

`Native` is the queue as people hold it. `Port` says what the job-command port says: jobs are strict, so
the documents' rules hold to the letter, their claims have no lease unless they ask for one, and verbs
carry no claim number, but act on whichever claim the port's common owner has.
"""

from typing import Any

from holdfast.core import commands as c
from holdfast.core.errors import NotFound
from holdfast.core.ids import PORT_SYSID
from holdfast.core.job import Code, Job, State
from holdfast.queue.queue import Queue

from .tools import ask

LEASE_MS = 60_000


class Hand:
    """Verbs on jobs by their numbers. Those of a holder go by the last claim that this hand has made."""

    name = ""
    strict = False

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.held: dict[int, c.Hold] = {}

    def new(self, task: str, options: dict[str, Any]) -> c.NewJob:
        """A job as this hand asks for it."""
        return c.NewJob(**{"task": task, **options})

    def add(self, task: str = "work", *, parent: int = 0, **options: Any) -> int:
        """Add a job, or a child on behalf of whoever holds the parent."""
        new = self.new(task, {**options, "parent_id": parent})
        hold = self.held.get(parent) if parent else None
        ids: list[int] = ask(self.queue, c.Add(jobs=(new,), hold=hold))
        return ids[0]

    def take(self, *tasks: str) -> Job | None:
        """The next job, as it was handed out, or None."""
        found = ask(self.queue, self.claim(tasks or None))
        if not found:
            return None
        job: Job = found[0].job
        self.held[job.id] = self.hold_of(job)
        return job

    def claim(self, tasks: tuple[str, ...] | None) -> c.Claim:
        """The command that hands out a job."""
        return c.Claim(tasks=tasks, lease_ms=LEASE_MS)

    def hold_of(self, job: Job) -> c.Hold:
        """The right to answer for a job that was handed out."""
        return c.hold_of(job)

    def hold(self, job_id: int) -> c.Hold:
        """The right that this hand believes to have."""
        return self.held.get(job_id) or c.Hold(job_id=job_id, owner=PORT_SYSID, claim=None)

    def finish(self, job_id: int, **fields: Any) -> Job:
        """It went well."""
        return self._answer(job_id, Code.OK, fields)

    def retry(self, job_id: int, **fields: Any) -> Job:
        """Put it back in the queue."""
        return self._answer(job_id, Code.RETRY, {"delay_ms": 0, **fields})

    def fail(self, job_id: int, **fields: Any) -> Job:
        """It ended in vain."""
        return self._answer(job_id, Code.FAILED, fields)

    def _answer(self, job_id: int, code: Code, fields: dict[str, Any]) -> Job:
        job: Job = ask(self.queue, c.Answer(hold=self.hold(job_id), code=code, **fields))
        return job

    def release(self, job_id: int) -> Job:
        """Give it back unstarted."""
        job: Job = ask(self.queue, c.Release(hold=self.hold(job_id)))
        return job

    def cancel(self, job_id: int) -> Job:
        """Take it out of the queue."""
        return self.queue.cancel(job_id)

    def delete(self, job_id: int) -> None:
        """Remove all trace of it."""
        self.queue.delete(job_id)

    def requeue(self, job_id: int) -> Job:
        """Put it back in the queue, whatever its state."""
        return self.queue.requeue(job_id)

    def state(self, job_id: int) -> State | None:
        """What people see of it; None: there is no trace of it."""
        try:
            return self.queue.get(job_id).state
        except NotFound:
            return None


class Native(Hand):
    """The queue as people hold it."""

    name = "native"


class Port(Hand):
    """The job-command port."""

    name = "port"
    strict = True

    def new(self, task: str, options: dict[str, Any]) -> c.NewJob:
        """A strict job, which is tried for ever, and a parent that waits for its failed children."""
        strict = {"strict": True, "wait_for_failed": True, "max_attempts": 0}
        return c.NewJob(**{"task": task, **strict, **options})

    def add(self, task: str = "work", *, parent: int = 0, **options: Any) -> int:
        """A child may be added by anybody while the port holds its parent, or the parent waits."""
        if parent:
            self.held.setdefault(parent, c.Hold(job_id=parent, owner=PORT_SYSID))
        return super().add(task, parent=parent, **options)

    def claim(self, tasks: tuple[str, ...] | None) -> c.Claim:
        """Without a lease of its own."""
        return c.Claim(tasks=tasks, lease_ms=None, owner=PORT_SYSID)

    def hold_of(self, job: Job) -> c.Hold:
        """Whichever claim the port has."""
        return c.Hold(job_id=job.id, owner=PORT_SYSID)


HANDS: tuple[type[Hand], ...] = (Native, Port)
