"""Authentication and errors, for all calls of the gRPC server."""

from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.message import DecodeError

from ...core import errors as e
from ...core.access import Grant, confine
from ...core.bounds import BATCH_JOBS, LOG_PAGE_ITEMS, PAGE_JOBS
from ...core.checks import check_command, check_whole
from ...core.commands import Add, Command
from ...core.errors import BadInput, HoldfastError, TooLarge, Unauthenticated
from ...core.ids import FIRST_SYSID, SLOTS, IdRange, unpack
from ...core.incoming import check_incoming
from ...core.queries import Query, ReadLog
from ...proto.verbs import encode_error
from ..guard import Guard

A = TypeVar("A", bound=Command | Query)

# The trailer that has the code of an error.
CODE = "holdfast-code"
_STATUS = grpc.StatusCode
# By the kind of an error, the most special first.
STATUSES: dict[type[HoldfastError], Any] = {
    BadInput: _STATUS.INVALID_ARGUMENT,
    e.NotFound: _STATUS.NOT_FOUND,
    e.LeaseLost: _STATUS.ABORTED,
    e.Refused: _STATUS.FAILED_PRECONDITION,
    e.JobFailed: _STATUS.FAILED_PRECONDITION,
    e.Timeout: _STATUS.DEADLINE_EXCEEDED,
    e.Backwards: _STATUS.FAILED_PRECONDITION,
    e.Trimmed: _STATUS.OUT_OF_RANGE,
    e.QueryFailed: _STATUS.INVALID_ARGUMENT,
    Unauthenticated: _STATUS.UNAUTHENTICATED,
    e.Forbidden: _STATUS.PERMISSION_DENIED,
    e.RateLimited: _STATUS.RESOURCE_EXHAUSTED,
    e.Closed: _STATUS.UNAVAILABLE,
    e.StoreFull: _STATUS.RESOURCE_EXHAUSTED,
    e.StoreCorrupt: _STATUS.DATA_LOSS,
    e.Unsettled: _STATUS.UNKNOWN,
    e.Unavailable: _STATUS.UNAVAILABLE,
    e.StoreError: _STATUS.INTERNAL,
}


class Caller:
    """The client at the other end of one call."""

    def __init__(self, guard: Guard, context: Any, *, loopback: bool) -> None:
        self._guard, self._loopback = guard, loopback
        self._peer = str(context.peer())
        given = dict(context.invocation_metadata() or ()).get("authorization", "")
        self.secret = given.removeprefix("Bearer ").strip() if isinstance(given, str) else None

    async def admit(self) -> Grant:
        """What the client may do now; raises `Unauthenticated` or `RateLimited`."""
        peer = self._peer.rpartition(":")[0]
        return await self._guard.admit(self.secret or None, loopback=self._loopback, peer=peer)


def parse(kind: Any, raw: bytes) -> Any:
    """A message as it came."""
    try:
        return kind.FromString(raw)
    except DecodeError:
        raise BadInput("message", f"{len(raw):,} bytes", needed=f"a {kind.DESCRIPTOR.name}") from None


def allowed(grant: Grant, asked: A, *, lent: "Lent | None" = None, now_ms: Callable[[], int]) -> A:
    """What was asked for, checked and kept to what the client may do; `lent` are ids that it was given."""
    check_incoming(asked)
    if isinstance(asked, Command):
        check_command(asked)
    else:
        _check_query(asked)
    is_own = (
        grant.tenant is not None
        and isinstance(asked, Add)
        and ((lent is not None and lent.has(asked.ids)) or _are_past(asked.ids, now_ms()))
    )
    return confine(grant, asked, ids_are_own=is_own)


def _check_query(query: Query) -> None:
    if (limit := getattr(query, "limit", None)) is not None:
        check_whole("limit", limit, 0, LOG_PAGE_ITEMS if isinstance(query, ReadLog) else PAGE_JOBS)
    if (job_ids := getattr(query, "job_ids", None)) is not None and len(job_ids) > BATCH_JOBS:
        raise TooLarge("job_ids", f"{len(job_ids):,} ids", needed=f"at most {BATCH_JOBS:,}")


def _are_past(ids: tuple[int, ...], now_ms: int) -> bool:
    """Whether these are ids that no process makes any more, nor a schedule."""
    return all(one.sysid >= FIRST_SYSID and one.time_ms < now_ms for one in map(unpack, ids))


class Lent:
    """The ids that a client was given last: they may still be ahead of the clock."""

    def __init__(self) -> None:
        self._before: set[int] = set()
        self._last: set[int] = set()

    def add(self, ranges: Iterable[IdRange]) -> None:
        """Note ids that are given out now."""
        self._before = self._last
        self._last = {one.first // SLOTS + at for one in ranges for at in range(one.count)}

    def has(self, ids: Iterable[int]) -> bool:
        """Whether all of these were given out, in whatever slot."""
        return all((bare := job_id // SLOTS) in self._last or bare in self._before for job_id in ids)


async def abort(context: Any, error: Exception) -> NoReturn:
    """End a call with an error."""
    told = encode_error(error)
    status = next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), _STATUS.INTERNAL)
    await context.abort(status, told["text"], ((CODE, told["code"]),))
    raise AssertionError("abort raises")
