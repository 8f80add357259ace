"""What can go wrong, in words that name the thing, what was found and what was needed.

    HoldfastError
    ├── BadInput            an argument is wrong; nothing was written
    │   └── TooLarge        … because of its size
    ├── NotFound            no such job, schedule or record
    ├── Refused             the job exists, but its state does not allow the verb
    │   └── LeaseLost       … because somebody else has, or ended, the claim
    ├── JobFailed           `result`: the job ended FAILED or CANCELLED
    ├── Timeout             `result`: the job has not ended yet
    ├── Unauthenticated     a server does not know the caller: no token, or one that does not hold
    ├── Forbidden           the token does not allow it
    ├── RateLimited         too many requests; try again after `after_s`
    ├── Backwards           a consumer's progress would not go forward
    ├── Trimmed             an index of a log that is gone
    ├── QueryFailed         SQL over the jobs is wrong, not allowed, or takes too long
    ├── Closed              the queue was closed
    ├── WouldBlock          the caller itself holds the lock that the verb needs
    ├── AppError            what a worker was to run cannot be imported, or is no queue
    └── StoreError          the store cannot be used
        ├── StoreMissing    … there is none at the address, and `create=False` was given
        ├── SchemaMismatch  … it was written by another version
        ├── StoreCorrupt    … it is not one, or it is damaged
        ├── StoreFull       … no space, or no number, is left
        ├── Moved           … its jobs are in another, whose address it names
        └── Unavailable     … not now; trying again may help
            ├── Stopped     … because it stands still while the last of it is moved
            ├── Filling     … because it is being filled from another
            ├── Contended   … because others were faster each time; the store itself is well
            └── Unsettled   … and what was asked for may have been done

Each has a `code` for machines; the text is for people. No payload ever appears in it.
"""


class HoldfastError(Exception):
    """The base of all that Holdfast raises on purpose."""

    code = "ERROR"


class BadInput(HoldfastError, ValueError):
    """An argument is not what it must be. Nothing was written."""

    code = "BAD_INPUT"

    def __init__(self, name: str, found: object, *, needed: str) -> None:
        self.name, self.needed = name, needed
        super().__init__(f"{name} is {shown(found)}, and must be {needed}")


class TooLarge(BadInput):
    """Something exceeds its limit in `core/bounds.py`."""

    code = "TOO_LARGE"


class NotFound(HoldfastError, LookupError):
    """There is nothing of that name or number."""

    code = "NOT_FOUND"

    def __init__(self, what: str, name: object) -> None:
        self.what, self.name = what, name
        super().__init__(f"there is no {what} {name}")


class Refused(HoldfastError):
    """The job exists, but its state does not allow the verb."""

    code = "REFUSED"

    def __init__(self, verb: str, job_id: int, *, found: str, needed: str, because: str = "") -> None:
        self.verb, self.job_id, self.found, self.needed = verb, job_id, found, needed
        # Where one verb is refused for several reasons, which it was.
        self.because = because
        super().__init__(f"cannot {verb} job {job_id}: it is {found}, and must be {needed}")


class LeaseLost(Refused):
    """The claim that the verb was made under has ended. Nothing was changed."""

    code = "LEASE_LOST"


class JobFailed(HoldfastError):
    """The job ended without a result; `outcome` says how."""

    code = "JOB_FAILED"

    def __init__(self, job_id: int, reason: str, outcome: object = None) -> None:
        self.job_id, self.reason, self.outcome = job_id, reason, outcome
        super().__init__(f"job {job_id} ended without a result: {reason}")


class Timeout(HoldfastError, TimeoutError):
    """What was waited for has not happened in the time given."""

    code = "TIMEOUT"


class Unauthenticated(HoldfastError):
    """A server does not know who asks: there is no token, or it is unknown, revoked or expired."""

    code = "UNAUTHENTICATED"


class Forbidden(HoldfastError):
    """The token by which a client is known does not allow what it asked for. Nothing was changed."""

    code = "FORBIDDEN"


class RateLimited(HoldfastError):
    """The client sends requests faster than the server allows; after `after_s` seconds it may go on."""

    code = "RATE_LIMITED"

    def __init__(self, after_s: float) -> None:
        self.after_s = after_s
        super().__init__(f"too many requests; try again in {after_s:.3g} s")


class Backwards(HoldfastError):
    """Progress goes forward only: somebody else has moved it, or what was to move it was undone."""

    code = "BACKWARDS"

    def __init__(self, name: str, to: int, *, found: str) -> None:
        self.name, self.to = name, to
        super().__init__(f"cannot move consumer {name} to {to:,}: it is {found}")


class Trimmed(HoldfastError):
    """The index was in the log, and is gone: waiting for it would never end."""

    code = "TRIMMED"

    def __init__(self, log: str, index: int, *, trimmed: int) -> None:
        self.log, self.index = log, index
        super().__init__(f"index {index:,} of the log {log} is gone: it has been trimmed up to {trimmed:,}")


class QueryFailed(HoldfastError):
    """A SELECT over the jobs is no SQL, is not allowed, or reached a bound; the text says which."""

    code = "QUERY_FAILED"


class Closed(HoldfastError):
    """The queue was closed, or a consumer group that was waited for; open another with `holdfast.connect`."""

    code = "CLOSED"


class WouldBlock(HoldfastError):
    """The caller holds the write lock itself, so waiting for it would never end."""

    code = "WOULD_BLOCK"


class AppError(HoldfastError):
    """What a worker was to run cannot be imported, or is no queue; `trace` is the traceback, or ""."""

    code = "APP"

    def __init__(self, names: str, reason: str, *, trace: str = "") -> None:
        self.names, self.reason, self.trace = names, reason, trace
        super().__init__(f"{names} cannot be worked: {reason}")


class StoreError(HoldfastError):
    """The store cannot be used."""

    code = "STORE"


class StoreMissing(StoreError):
    """There is no store at the address, and `create=False` forbids to create one."""

    code = "MISSING"

    def __init__(self, where: object) -> None:
        super().__init__(f"there is no store at {where}")


class SchemaMismatch(StoreError):
    """The store was written by a version of Holdfast that this one does not know."""

    code = "SCHEMA"


class StoreCorrupt(StoreError):
    """The file is not a store, or it is damaged."""

    code = "CORRUPT"


class StoreFull(StoreError):
    """No space, or no number, is left."""

    code = "FULL"


class Unavailable(StoreError):
    """The store cannot be reached now; trying again may help."""

    code = "UNAVAILABLE"


class Contended(Unavailable):
    """A batch was done again and again, and each time something had changed. Nothing was written."""

    code = "CONTENDED"


class Unsettled(Unavailable):
    """The store went away during a commit: what was asked for may have been done, or not."""

    code = "UNSETTLED"


class Stopped(Unavailable):
    """Nothing is written for a moment: the last of the store is being moved. Ask again, and it is there."""

    code = "STOPPED"

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(
            f"this store stands still while it is moved to {address}; try again in a moment. If whoever "
            "moves it is gone: run the same holdfast move again, or take it back with holdfast move --undo"
        )


class Filling(Unavailable):
    """The store is being filled, and nobody may use it before that is done."""

    code = "FILLING"

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(
            f"this store is being filled from {address} by holdfast move, and cannot be used before that "
            "is done; if whoever moves it is gone, run the same holdfast move again"
        )


class Moved(StoreError):
    """All jobs of the store are in another now. `address` is that one's, without its password."""

    code = "MOVED"

    def __init__(self, address: str, *, token: str = "") -> None:
        self.address, self.token = address, token
        super().__init__(f"this store has moved to {address}; use that address")


class Conflict(Exception):
    """Somebody else was faster; `store.run` tries again. Never seen by users."""


def shown(value: object) -> str:
    """A value for an error text: short, quoted, and cut off long before it could be a payload."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text):,} characters)"


def _kinds_below(kind: type[HoldfastError]) -> dict[str, type[HoldfastError]]:
    found = {kind.code: kind}
    for sub in kind.__subclasses__():
        found |= _kinds_below(sub)
    return found


_KINDS = _kinds_below(HoldfastError)


def error_of(code: str, text: str) -> HoldfastError:
    """The error that another process told of: of the kind of that code, with that text and no attributes."""
    kind = _KINDS.get(code, HoldfastError)
    error = kind.__new__(kind)
    Exception.__init__(error, text)
    return error
