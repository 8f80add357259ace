"""From a path and a method to what answers it.

Most paths are found by one look: a hundred patterns, tried one after the other, took longer than the answer.
"""

import asyncio
import gzip
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote, unquote, unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ...core.bounds import HTTP_QUERY_FIELDS
from .problems import Refusal, response_to

# Smaller replies are sent as they are; larger ones than the second are compressed in a thread.
COMPRESSED_BYTES, COMPRESSED_APART_BYTES = 1_024, 32_768
# Twice as fast as the default, and a tenth larger.
LEVEL = 4
_COMPRESSED_TYPES = (
    "text/",
    "application/json",
    "application/x-ndjson",
    "application/problem+json",
    "image/svg",
)

Answer = Callable[[Request], Awaitable[Response]]
Methods = dict[str, Answer]
_FIELD = re.compile(r"{(\w+)(:path)?}")


async def compressed(scope: Any, response: Response) -> Response:
    """A response as gzip, if its client takes that, it is large enough, and no other site asked for it.

    The length of a compressed page can tell what in it resembles a text that another site sent (BREACH). So
    such a site gets none, and the token of forms is another text in each page.
    """
    headers = dict(scope["headers"])
    body = getattr(response, "body", b"")
    if (
        isinstance(response, StreamingResponse)
        or len(body) < COMPRESSED_BYTES
        or b"gzip" not in headers.get(b"accept-encoding", b"")
        or headers.get(b"sec-fetch-site", b"none") not in (b"same-origin", b"none")
        or not response.headers.get("content-type", "").startswith(_COMPRESSED_TYPES)
    ):
        return response
    is_large = len(body) > COMPRESSED_APART_BYTES
    packed = await asyncio.to_thread(gzip.compress, body, LEVEL) if is_large else gzip.compress(body, LEVEL)
    kept = {name: value for name, value in response.headers.items() if name != "content-length"}
    return Response(
        packed, response.status_code, kept | {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    )


class Router:
    """An ASGI application."""

    def __init__(self) -> None:
        self._exact: dict[str, Methods] = {}
        self._patterns: dict[str, tuple[re.Pattern[str], Methods]] = {}
        # What answers a browser that asks for a page that is not there; None: a problem in JSON.
        self.missing_page: Answer | None = None

    def add(self, method: str, path: str, answer: Answer) -> None:
        """Have a path answered; fields in braces match what is between slashes, `{name:path}` slashes too."""
        if "{" not in path:
            self._exact.setdefault(path, {})[method] = answer
            return
        pattern = _FIELD.sub(lambda field: f"(?P<{field[1]}>{'.+' if field[2] else '[^/]+'})", path)
        self._patterns.setdefault(path, (re.compile(pattern, re.DOTALL), {}))[1][method] = answer

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        # Where it is mounted in another application, the path has that of the mount before it.
        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        methods, fields = self._find(path, scope.get("raw_path") or b"", scope.get("root_path", ""))
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        scope["path_params"] = fields
        if scope.get("query_string", b"").count(b"&") > HTTP_QUERY_FIELDS:
            text = f"the query has more than {HTTP_QUERY_FIELDS} fields"
            response = response_to(Refusal(400, "BAD_INPUT", text))
        elif "\ufffd" in path and not _is_utf8(scope.get("raw_path") or b""):
            response = response_to(Refusal(400, "BAD_INPUT", "the path is not text in UTF-8"))
        elif method in methods:
            response = await methods[method](Request(scope, receive))
            if scope["method"] == "HEAD" and isinstance(response, StreamingResponse):
                # Events have no end, and the next request on the connection would wait for it.
                response = Response(None, response.status_code, response.headers)
        elif self.missing_page is not None and method == "GET" and _wants_page(scope, path):
            response = await self.missing_page(Request(scope, receive))
        elif methods:
            allowed = {"Allow": ", ".join(sorted(methods))}
            response = response_to(Refusal(405, "NO_METHOD", "this path has other methods", allowed))
        else:
            response = response_to(Refusal(404, "NO_PATH", "there is no such path; see /v1/openapi.json"))
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        await (await compressed(scope, response))(scope, receive, send)

    def _find(self, path: str, raw: bytes, root: str) -> tuple[Methods, dict[str, str]]:
        methods = self._exact.get(path)
        if methods is not None:
            return methods, {}
        # A slash that belongs to a name is escaped: it must not part the path.
        is_escaped = b"%2f" in raw.lower()
        if is_escaped:
            path = raw.decode("ascii", "replace").removeprefix(quote(root))
        for pattern, found in self._patterns.values():
            if match := pattern.fullmatch(path):
                fields = match.groupdict()
                return found, {name: unquote(text) for name, text in fields.items()} if is_escaped else fields
        return {}, {}


def _is_utf8(raw_path: bytes) -> bool:
    try:
        unquote_to_bytes(raw_path).decode()
    except UnicodeDecodeError:
        return False
    return True


def _wants_page(scope: Any, path: str) -> bool:
    """Whether a browser asks for a page: it names HTML, which programs do not."""
    accepted = dict(scope["headers"]).get(b"accept", b"")
    return b"text/html" in accepted and path != "/v1" and not path.startswith("/v1/")
