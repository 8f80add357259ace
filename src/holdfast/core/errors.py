"""The errors. Each text names the object, what was found and what was needed.

    HoldfastError
    ├── BadInput            an argument is wrong; nothing was written
    │   └── TooLarge        … because of its size
    ├── NotFound            no such job, schedule or record
    ├── Refused             the job exists, but its state does not allow the command
    │   └── LeaseLost       … because the caller's claim has ended, or another process has the job
    ├── JobFailed           `result`: the job ended FAILED or CANCELLED
    ├── Timeout             `result`: the job has not ended yet
    ├── Unauthenticated     a server cannot identify the client: no token, or an invalid one
    ├── Forbidden           the token does not allow it
    ├── RateLimited         too many requests; try again after `after_s`
    ├── Backwards           a consumer's progress would move back
    ├── Trimmed             the item of a log has been trimmed
    ├── QueryFailed         SQL over the jobs is wrong, not allowed, or takes too long
    ├── Closed              the queue was closed
    ├── WouldBlock          the caller itself holds the lock that the command needs
    ├── AppError            the application of a worker cannot be imported, or is not a queue
    └── StoreError          the store cannot be used
        ├── StoreMissing    … there is no store at the address, and `create=False` was given
        ├── SchemaMismatch  … it was written by another version
        ├── StoreCorrupt    … it is not a Holdfast store, or it is damaged
        ├── StoreFull       … no space, or no free number, is left
        ├── Moved           … its jobs have moved to another store, at `address`
        └── Unavailable     … not now; trying again may help
            ├── Stopped     … because writes are stopped while the rest of it is moved
            ├── Filling     … because it is being filled from another store
            ├── Contended   … because each try met a conflict; the store itself works
            └── Unsettled   … and the command may have been committed

Each has a `code` for programs; the text is for people. No payload ever appears in it.
"""

from typing import Any, Protocol

import msgspec

# What `holdfast` does not export.
_INTERNAL = ("QueryFailed", "AppError", "Stopped", "Filling")


class HoldfastError(Exception):
    """The base class of all errors that Holdfast raises on purpose."""

    __module__ = "holdfast"
    code = "ERROR"

    def __init_subclass__(cls) -> None:
        # Tracebacks show a class by the name that programs import and catch: of an internal class its base.
        if cls.__module__ == __name__ and cls.__name__ not in _INTERNAL:
            cls.__module__ = "holdfast"
        elif cls.__module__.startswith("holdfast.") and cls.__module__ != "holdfast.indexed":
            cls.__module__, cls.__qualname__ = cls.__mro__[1].__module__, cls.__mro__[1].__qualname__

    def __reduce__(self) -> Any:
        kind: Any = next(one for one in type(self).__mro__ if one.__name__ == one.__qualname__)
        return _restored, (kind, self.args, self.__dict__)


def _restored(kind: type[HoldfastError], args: tuple[Any, ...], fields: dict[str, Any]) -> HoldfastError:
    """A pickled error in another process; its `__init__` takes more than a text."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class BadInput(HoldfastError, ValueError):
    """An argument is invalid. Nothing was written."""

    code = "BAD_INPUT"

    def __init__(self, name: str, found: object, *, needed: str) -> None:
        self.name, self.needed = name, needed
        super().__init__(f"{name} is {shown(found)}, and must be {needed}")


class TooLarge(BadInput):
    """Something exceeds its limit in `core/bounds.py`."""

    code = "TOO_LARGE"


class NotFound(HoldfastError, LookupError):
    """There is no job, schedule or record of that name or id."""

    code = "NOT_FOUND"

    def __init__(self, what: str, name: object) -> None:
        self.what, self.name = what, name
        super().__init__(f"there is no {what} {name}")


class Refused(HoldfastError):
    """The job exists, but its state does not allow the command."""

    code = "REFUSED"

    def __init__(self, verb: str, job_id: int, *, found: str, needed: str, because: str = "") -> None:
        self.verb, self.job_id, self.found, self.needed = verb, job_id, found, needed
        # Which reason it was, of a command that can be refused for several.
        self.because = because
        super().__init__(f"cannot {verb} job {job_id}: it is {found}, and must be {needed}")


class LeaseLost(Refused):
    """The claim of the caller has ended. Nothing was changed."""

    code = "LEASE_LOST"


class RunOutcome(Protocol):
    """The part of `core.job.Outcome` that `JobFailed` shows; the records import the errors."""

    @property
    def exit_code(self) -> int:
        """How the run ended, as a number."""

    @property
    def error(self) -> str:
        """The error in one line."""

    @property
    def traceback(self) -> str:
        """The end of the traceback."""


class JobFailed(HoldfastError):
    """The job ended without a result; `outcome` tells how."""

    code = "JOB_FAILED"

    def __init__(self, job_id: int, reason: str, outcome: RunOutcome | None = None) -> None:
        self.job_id, self.reason, self.outcome = job_id, reason, outcome
        super().__init__(f"job {job_id} ended without a result: {reason}")


class ChildFailed(JobFailed):
    """A job that a running job has called ended without a result; `job_id` is that job."""

    code = "CHILD_FAILED"


class Timeout(HoldfastError, TimeoutError):
    """The job did not end within the given time."""

    code = "TIMEOUT"


class Unauthenticated(HoldfastError):
    """A server cannot identify the client: there is no token, or it is unknown, revoked or expired."""

    code = "UNAUTHENTICATED"


class Forbidden(HoldfastError):
    """The token of the client does not allow the request. Nothing was changed."""

    code = "FORBIDDEN"


class RateLimited(HoldfastError):
    """The client sends requests faster than the server allows; it may try again after `after_s` seconds."""

    code = "RATE_LIMITED"

    def __init__(self, after_s: float) -> None:
        self.after_s = after_s
        super().__init__(f"too many requests; try again in {after_s:.3g} s")


class Backwards(HoldfastError):
    """Progress only moves forward: another process has moved it, or an operator has set it."""

    code = "BACKWARDS"

    def __init__(self, name: str, to: int, *, found: str) -> None:
        self.name, self.to = name, to
        super().__init__(f"cannot move consumer {name} to {to:,}: it is {found}")


class Trimmed(HoldfastError):
    """The item of this index was trimmed from the log, so a consumer would wait for it forever."""

    code = "TRIMMED"

    def __init__(self, log: str, index: int, *, trimmed: int) -> None:
        self.log, self.index = log, index
        super().__init__(f"index {index:,} of the log {log} is gone: it has been trimmed up to {trimmed:,}")


class QueryFailed(HoldfastError):
    """A SELECT over the jobs is invalid, not allowed, or reached a limit; the text says which."""

    code = "QUERY_FAILED"


class Closed(HoldfastError):
    """The queue, or the consumer group that was waited for, is closed; open one with `holdfast.connect`."""

    code = "CLOSED"

    def __init__(self, text: str = "this queue was closed; open another with holdfast.connect") -> None:
        super().__init__(text)


class WouldBlock(HoldfastError):
    """The caller itself holds the write lock, so it would wait forever."""

    code = "WOULD_BLOCK"


class AppError(HoldfastError):
    """The application of a worker cannot be imported, or is not a queue; `trace` is the traceback, or ""."""

    code = "APP"

    def __init__(self, names: str, reason: str, *, trace: str = "") -> None:
        self.names, self.reason, self.trace = names, reason, trace
        super().__init__(f"a worker cannot run {names}: {reason}")


class StoreError(HoldfastError):
    """The store cannot be used."""

    code = "STORE"


class StoreMissing(StoreError):
    """There is no store at the address, and with `create=False` none is created."""

    code = "MISSING"

    def __init__(self, where: object) -> None:
        super().__init__(f"there is no store at {where}")


class SchemaMismatch(StoreError):
    """The store was written by a version of Holdfast that this version cannot read."""

    code = "SCHEMA"


class StoreCorrupt(StoreError):
    """The store is not a Holdfast store, or it is damaged."""

    code = "CORRUPT"


class StoreFull(StoreError):
    """No space, or no free number, is left."""

    code = "FULL"


class Unavailable(StoreError):
    """The store cannot be used now; trying again may help."""

    code = "UNAVAILABLE"


class Contended(Unavailable):
    """A batch was tried several times and met a conflict each time. Nothing was written."""

    code = "CONTENDED"


class Unsettled(Unavailable):
    """The connection was lost during a commit: the command may have been committed, or not."""

    code = "UNSETTLED"


class Stopped(Unavailable):
    """Writes are stopped for a moment while the rest of the store is moved. Try again later."""

    code = "STOPPED"

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(
            f"this store stands still while it is moved to {address}; try again in a moment. If whoever "
            "moves it is gone: run the same holdfast move again, or take it back with holdfast move --undo"
        )


class Filling(Unavailable):
    """The store is being filled from another one, and cannot be used before that is complete."""

    code = "FILLING"

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(
            f"this store is being filled from {address} by holdfast move, and cannot be used before that "
            "is done; if whoever moves it is gone, run the same holdfast move again"
        )


class Moved(StoreError):
    """All jobs have moved to another store, at `address` (without its password)."""

    code = "MOVED"

    def __init__(self, address: str, *, token: str = "") -> None:
        self.address, self.token = address, token
        super().__init__(f"this store has moved to {address}; use that address")


class Conflict(Exception):
    """A conflict with another transaction; `store.run` tries again. Users never see it."""


class Unquoted(str):
    """What was found, in words: an error text shows it without quotes."""

    def __repr__(self) -> str:
        return str(self)


def shown(value: object) -> str:
    """A value for an error text: quoted, and cut off so that no payload gets into a log."""
    text = repr(value)
    if len(text) <= 80:
        return text
    count = len(value) if isinstance(value, str | bytes) else len(text)
    return f"{text[:60]}… ({count:,} {'bytes' if isinstance(value, bytes) else 'characters'})"


def _kinds_below(kind: type[HoldfastError]) -> dict[str, type[HoldfastError]]:
    found = {kind.code: kind}
    for sub in kind.__subclasses__():
        found |= _kinds_below(sub)
    return found


_KINDS = _kinds_below(HoldfastError)


def error_of(code: str, text: str) -> HoldfastError:
    """Decode an error of another process: of the class with this code, with this text and no attributes."""
    kind = _KINDS.get(code, HoldfastError)
    error = kind.__new__(kind)
    Exception.__init__(error, text)
    return error


class Fault(msgspec.Struct, frozen=True):
    """An error as it is sent to another process: its code and its text."""

    code: str
    text: str


def as_fault(error: BaseException) -> Fault:
    """Encode an error; `error_of` decodes it."""
    return Fault(getattr(error, "code", "ERROR"), str(error))
