"""Authentication and errors, for all calls of the gRPC server."""

from collections.abc import Callable, Iterable
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
from ...core.incoming import check_incoming
from ...core.job import Body
from ...core.queries import Query, ReadLog
from ...proto.conversion import encode_error
from ..asking import Decoding
from ..guard import Guard, incidents
from .lending import Lending

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


class Caller:
    """The client at the other end of one call."""

    def __init__(
        self, guard: Guard, lending: Lending, decoding: Decoding, context: Any, *, loopback: bool
    ) -> None:
        self._guard, self.lending, self.decoding, self._loopback = guard, lending, decoding, loopback
        self._peer = str(context.peer()).rpartition(":")[0]
        given = dict(context.invocation_metadata() or ()).get("authorization", "")
        self.secret = given.removeprefix("Bearer ").strip() if isinstance(given, str) else None

    async def admit(self) -> Grant:
        """What the client may do now; raises `Unauthenticated` or `RateLimited`."""
        return await self._guard.admit(self.secret or None, loopback=self._loopback, peer=self._peer)

    async def check_token(self) -> Grant:
        """What the token allows; raises `Unauthenticated` unless it holds, still, after a long wait."""
        return await self._guard.grant(self.secret or None, loopback=self._loopback, peer=self._peer)


def allowed(grant: Grant, asked: A, lending: Lending | None = None) -> A:
    """What was asked for, checked and kept to what the client may do; `lending` knows the ids it may use."""
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
        and lending is not None
        and lending.has(grant.tenant, asked.ids)
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
