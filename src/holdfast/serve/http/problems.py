"""Errors as RFC 9457 problems: a status, a code for machines, and words for people."""

import re
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from ...core import errors as e
from ...core.checks import json_fault
from ..guard import incidents

TYPE = "application/problem+json"
# What msgspec says of a field that the outermost object must not have.
_UNKNOWN_FIELD = re.compile(r"unknown field `(.+)`$")
# How much of an error of msgspec is replied: it has the whole name of an unknown field.
ERROR_CHARS = 1_000
# The first that fits.
_STATUSES: tuple[tuple[type[e.HoldfastError], int], ...] = (
    (e.TooLarge, 413),
    (e.BadInput, 400),
    (e.QueryFailed, 400),
    (e.Unauthenticated, 401),
    (e.Forbidden, 403),
    (e.NotFound, 404),
    (e.Trimmed, 410),
    (e.Refused, 409),
    (e.Backwards, 409),
    (e.RateLimited, 429),
    (e.StoreFull, 507),
    (e.StoreError, 503),
    (e.Closed, 503),
)


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """What went wrong (RFC 9457)."""

    type: Annotated[
        str, Meta(description="A name of the kind of problem.", examples=["urn:holdfast:NOT_FOUND"])
    ]
    title: str
    status: Annotated[int, Meta(ge=400, le=599)]
    detail: str
    code: Annotated[str, Meta(description="The same as the end of `type`.")]


class Refusal(e.HoldfastError):
    """A request that HTTP itself refuses, by its status."""

    code = "BAD_REQUEST"

    def __init__(self, status: int, code: str, text: str, headers: dict[str, str] | None = None) -> None:
        self.status, self.code, self.headers = status, code, headers or {}
        super().__init__(text)


TITLES = {
    400: "The request is wrong",
    401: "A token is needed",
    403: "The token does not allow it",
    404: "There is no such thing",
    405: "The path has other methods",
    408: "The request came too slowly",
    409: "The state does not allow it",
    410: "It is gone",
    413: "It is too large",
    415: "The content has another type",
    422: "The key was used for another request",
    429: "Too many requests",
    431: "The headers are too large",
    500: "The server failed",
    503: "The store cannot be used now",
    507: "The store is full",
}


def status_of(error: e.HoldfastError) -> int:
    """The HTTP status that an error stands for."""
    if isinstance(error, Refusal):
        return error.status
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def problem(status: int, code: str, detail: str) -> bytes:
    """A problem as it is sent."""
    title = TITLES.get(status, "The request failed")
    return msgspec.json.encode(
        Problem(type=f"urn:holdfast:{code}", title=title, status=status, detail=detail, code=code)
    )


def problem_of(error: e.HoldfastError) -> bytes:
    """The problem that tells of an error."""
    error = incidents.report(error)
    return problem(status_of(error), error.code, str(error))


def response_to(error: e.HoldfastError) -> Response:
    """The response that tells of an error."""
    status, headers = status_of(error), {}
    if isinstance(error, Refusal):
        headers = error.headers
    if isinstance(error, e.Unauthenticated):
        headers = {"WWW-Authenticate": "Bearer"}
    if isinstance(error, e.RateLimited):
        headers = {"Retry-After": str(max(1, round(error.after_s)))}
    if isinstance(error, e.Unavailable):
        headers = {"Retry-After": "1"}
    return Response(problem_of(error), status, headers, TYPE)


def bad_json(error: Exception, kind: Any = None, raw: bytes = b"") -> Refusal:
    """What msgspec found wrong, with the path to it; of an unknown field of `kind`, what may be meant."""
    if isinstance(error, msgspec.DecodeError) and not isinstance(error, msgspec.ValidationError):
        return Refusal(400, "BAD_INPUT", f"the body is not JSON: {json_fault(error, raw)}")
    hint, text = "", str(error)
    if len(text) > ERROR_CHARS:
        text = f"{text[:ERROR_CHARS]}…"
    unknown = _UNKNOWN_FIELD.search(text)
    if unknown and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        names = [field.encode_name for field in msgspec.structs.fields(kind)]
        meant = get_close_matches(unknown[1], names, 1)
        hint = f"; did you mean `{meant[0]}`?" if meant else f"; the fields are {', '.join(names)}"
    return Refusal(400, "BAD_INPUT", f"the request is not what it must be: {text}{hint}")


def unexpected() -> Response:
    """A fault of ours: no words of its own, as there may be data in them."""
    detail = "the server failed in a way that it should not; its log tells more"
    return Response(problem(500, "UNEXPECTED", detail), 500, None, TYPE)
