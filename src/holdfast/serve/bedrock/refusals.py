"""The error replies of the protocol for errors of the rules."""

from ...core.errors import BadInput, HoldfastError, NotFound, Refused
from .parameters import PortRefusal

NO_JOB = "404 No job with this jobID"
NOTHING = "404 No job found"

PARENT_GONE = "404 parentJobID does not exist"
PARENT_STATE = "405 Can only create child job when parent is RUNNING, RUNQUEUED or PAUSED"
OTHER_PARENT = "404 Trying to create a child that already exists, but it is tied to a different parent"
GRANDCHILD = "405 Cannot create grandchildren"
MOCK_PARENT = "405 Parent and child jobs must have matching mockRequest setting"

NOT_OUT = "405 Can only retry/finish RUNNING and RUNQUEUED jobs"
PARENT_NOT_PAUSED = "405 Can only retry/finish child job when parent is PAUSED"
OUTSTANDING = "405 Failed to delete a job with outstanding children"
NOT_OUT_TO_FAIL = "405 Can only fail RUNNING or RUNQUEUED jobs"
MOCK_MISMATCH = "500 Mock Mismatch"

WITH_CHILDREN = "404 Invalid jobID - Cannot cancel a job with children"
WITHOUT_PARENT = "404 Invalid jobID - Cannot cancel a job without a parent"

RUNNING = "405 Can't delete a RUNNING job"
CHILDREN_RUNNING = "405 Can't delete a parent jobs with children running"
KEY_TAKEN = "405 Cannot requeue: another job has its unique name"


def creating(error: HoldfastError) -> PortRefusal | None:
    """CreateJob(s)."""
    if isinstance(error, NotFound):
        return PortRefusal(PARENT_GONE)
    if isinstance(error, Refused):
        if error.verb == "add again":
            return PortRefusal(OTHER_PARENT)
        return PortRefusal(GRANDCHILD if error.because == "generation" else PARENT_STATE)
    return None


def answering(error: HoldfastError) -> PortRefusal | None:
    """FinishJob and RetryJob."""
    if isinstance(error, NotFound):
        return PortRefusal(NO_JOB)
    if isinstance(error, Refused):
        return PortRefusal(
            {"parent": PARENT_NOT_PAUSED, "outstanding": OUTSTANDING}.get(error.because, NOT_OUT)
        )
    return None


def failing(error: HoldfastError) -> PortRefusal | None:
    """FailJob."""
    if isinstance(error, NotFound):
        return PortRefusal(NO_JOB)
    return PortRefusal(NOT_OUT_TO_FAIL) if isinstance(error, Refused) else None


def deleting(error: HoldfastError) -> PortRefusal | None:
    """DeleteJob."""
    if isinstance(error, NotFound):
        return PortRefusal(NO_JOB)
    if isinstance(error, Refused):
        return PortRefusal(RUNNING if error.found == "RUNNING" else CHILDREN_RUNNING)
    return None


def gone(error: HoldfastError) -> PortRefusal | None:
    """Commands that any live job allows: other jobs are not found."""
    return PortRefusal(NO_JOB) if isinstance(error, NotFound | Refused) else None


def otherwise(error: HoldfastError, verb: str) -> PortRefusal:
    """Errors without a specific reply."""
    if isinstance(error, BadInput):
        return PortRefusal(f"402 Malformed {error.name}")
    return PortRefusal(f"502 {verb} failed")
