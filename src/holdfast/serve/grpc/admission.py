"""Authentication, the ids that a client may use, and errors, for all calls of the gRPC server.

Clients of one tenant add jobs only under ids that they have reserved at this server. Any other id, also one
of the past, may be what another client has reserved, or the id of a follow-up job.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, NoReturn, TypeVar

import grpc

from ...core import commands as c
from ...core import errors as e
from ...core.access import Grant, confine
from ...core.bounds import LOG_PAGE_ITEMS, PAGE_JOBS
from ...core.checks import check_command, check_json, check_whole, data_of
from ...core.commands import Command
from ...core.errors import BadInput, HoldfastError, Unauthenticated
from ...core.ids import SEQUENCES, SLOTS, IdRange
from ...core.incoming import check_incoming
from ...core.job import Body
from ...core.queries import Query, ReadLog
from ...proto.conversion import encode_error
from ..asking import Decoding
from ..guard import Guard, incidents

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


def bodies_of(answer: c.Answer) -> Iterable[Body | None]:
    """The bodies of an answer."""
    if answer.suspend is None:
        return (answer.result, answer.data)
    new = (step.result or None for step in answer.suspend.steps)
    return chain((answer.result, answer.data), new, chain.from_iterable(map(data_of, answer.suspend.jobs)))


# The bodies of each command that has some.
BODIES: dict[type[Command], Callable[[Any], Iterable[Body | None]]] = {
    c.Add: lambda asked: chain(chain.from_iterable(map(data_of, asked.jobs)), asked.more),
    c.SetSchedule: lambda asked: data_of(asked.job),
    c.Answer: bodies_of,
    c.AnswerAll: lambda asked: chain.from_iterable(map(bodies_of, asked.answers)),
    c.Step: lambda asked: (asked.result, *(new.result or None for new in asked.before)),
    c.SendSignal: lambda asked: (asked.data,),
    c.Update: lambda asked: (asked.data,),
    c.Append: lambda asked: (item.data for item in asked.items),
}


# What is remembered of one stream: ids by the millisecond, of which each has up to `SEQUENCES`.
RESERVED_MS = 4_000
# How many streams of a tenant that have ended are remembered: a client repeats its last adds in a new one.
ENDED_STREAMS = 100


class ReservedIds:
    """The ids that one stream has reserved, or the unary calls of a tenant."""

    def __init__(self) -> None:
        # By time and sysid the sequences, as bits.
        self._sequences: dict[int, int] = {}
        self.is_over = False

    def add(self, ranges: Iterable[IdRange]) -> None:
        """Note ids that are given out now; the oldest are forgotten."""
        known = self._sequences
        for one in ranges:
            for bare in range(one.first // SLOTS, one.first // SLOTS + one.count):
                moment = bare // SEQUENCES
                known[moment] = known.get(moment, 0) | 1 << bare % SEQUENCES
        while len(known) > RESERVED_MS:
            del known[next(iter(known))]

    def has(self, ids: Iterable[int]) -> bool:
        """Whether all of these were given out, in whatever slot."""
        bare_ids = (job_id // SLOTS for job_id in ids)
        return all(self._sequences.get(bare // SEQUENCES, 0) >> bare % SEQUENCES & 1 for bare in bare_ids)


class Reservations:
    """The ids that clients of each tenant have reserved."""

    def __init__(self) -> None:
        self._by_tenant: dict[str, list[ReservedIds]] = {}

    def open(self, tenant: str) -> ReservedIds:
        """A note for the ids that a stream will reserve."""
        known = self._by_tenant.setdefault(tenant, [])
        for one in [one for one in known if one.is_over][:-ENDED_STREAMS]:
            known.remove(one)
        known.append(ReservedIds())
        return known[-1]

    def has(self, tenant: str, ids: Sequence[int]) -> bool:
        """Whether these ids, of which there are some, were reserved by clients of a tenant."""
        return bool(ids) and any(one.has(ids) for one in self._by_tenant.get(tenant, ()))


class Caller:
    """The client at the other end of one call."""

    def __init__(
        self, guard: Guard, reservations: Reservations, decoding: Decoding, context: Any, *, loopback: bool
    ) -> None:
        self._guard, self._loopback = guard, loopback
        self.reservations, self.decoding = reservations, decoding
        self._peer = str(context.peer()).rpartition(":")[0]
        given = dict(context.invocation_metadata() or ()).get("authorization", "")
        self.secret = given.removeprefix("Bearer ").strip() if isinstance(given, str) else None

    async def admit(self) -> Grant:
        """What the client may do now; raises `Unauthenticated` or `RateLimited`."""
        return await self._guard.admit(self.secret or None, loopback=self._loopback, peer=self._peer)

    async def check_token(self) -> Grant:
        """What the token allows; raises `Unauthenticated` unless it holds, still, after a long wait."""
        return await self._guard.grant(self.secret or None, loopback=self._loopback, peer=self._peer)


def allowed(grant: Grant, asked: A, reservations: Reservations | None = None) -> A:
    """What was asked for, checked and kept to what the client may do; its ids must be in `reservations`."""
    check_incoming(asked)
    if isinstance(asked, Command):
        check_command(asked)
        if (bodies := BODIES.get(type(asked))) is not None:
            for body in bodies(asked):
                check_json("body", body)
    else:
        _check_query(asked)
    is_own = (
        grant.tenant is not None
        and isinstance(asked, c.Add)
        and reservations is not None
        and reservations.has(grant.tenant, asked.ids)
    )
    return confine(grant, asked, ids_are_own=is_own)


def _check_query(query: Query) -> None:
    if (limit := getattr(query, "limit", None)) is not None:
        check_whole("limit", limit, 0, LOG_PAGE_ITEMS if isinstance(query, ReadLog) else PAGE_JOBS)


def shown_error(error: BaseException) -> dict[str, str]:
    """An error as a message tells it."""
    return encode_error(incidents.report(error))


async def abort(context: Any, error: Exception) -> NoReturn:
    """End a call with an error."""
    told = shown_error(error)
    status = next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), _STATUS.INTERNAL)
    await context.abort(status, told["text"], ((CODE, told["code"]),))
    raise AssertionError("abort raises")
