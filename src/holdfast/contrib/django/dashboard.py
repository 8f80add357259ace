"""The dashboard behind Django's own login: a view that asks the dashboard, which is an ASGI application.

    not signed in                      the login of Django's admin, or LOGIN_URL
    no staff                           403
    staff                              reads; secrets in data are hidden
    staff with `holdfast.manage_jobs`  also changes jobs, limits, schedules; superusers have every permission

Handlers with code are not uploaded here. Pages do not change by themselves: that would take a thread of the
server for each page that is open.
"""

import asyncio
import os
from functools import cache
from hashlib import sha256
from typing import Any
from urllib.parse import quote

try:
    from starlette.requests import Request
except ImportError:
    raise ImportError("the dashboard needs starlette: pip install 'holdfast-queue[django]'") from None
from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import NoReverseMatch, reverse

from ...core.token import Grant, Scope
from ...queue.loop_thread import LoopThread
from ...serve.dashboard import dashboard
from ...serve.http.router import Router
from .project import queue_of_project
from .testing import LoopInTests, is_testing

PERMISSION = "holdfast.manage_jobs"
READ = (Scope.READ,)
MANAGE = tuple(scope for scope in Scope if scope is not Scope.HANDLERS)
GRANT = "holdfast.grant"


def dashboard_page(request: HttpRequest, path: str) -> HttpResponse:
    """Answer one request for a page or an action."""
    user = request.user
    if not user.is_authenticated:
        return redirect_to_login(request.get_full_path(), _login_url())
    if not (user.is_active and user.is_staff):
        raise PermissionDenied
    scopes = MANAGE if user.has_perm(PERMISSION) else READ
    grant = Grant(tenant=queue_of_project().tenant or None, scopes=scopes, name=user.get_username())
    loop, router = (LoopInTests(), _router()) if is_testing() else _served(os.getpid())
    bridge = AsgiBridge(request, path, grant)
    loop.wait(router(bridge.scope, bridge.receive, bridge.send))
    return bridge.response


class AsgiBridge:
    """One request of Django's for an ASGI application, and its response."""

    def __init__(self, request: HttpRequest, path: str, grant: Grant) -> None:
        headers = {name.lower(): value for name, value in request.headers.items()} | {
            "host": request.get_host()
        }
        self.scope = {
            "type": "http",
            "http_version": "1.1",
            "method": request.method,
            "scheme": request.scheme,
            "path": request.path,
            "raw_path": quote(request.path).encode(),
            "root_path": request.path.removesuffix(path).rstrip("/"),
            "query_string": request.META.get("QUERY_STRING", "").encode(),
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
            "client": (request.META.get("REMOTE_ADDR", ""), 0),
            GRANT: grant,
        }
        self._body: bytes | None = request.body
        self.response = HttpResponse()

    async def receive(self) -> dict[str, Any]:
        """The body; then nothing comes any more."""
        if self._body is None:
            await asyncio.Future()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: dict[str, Any]) -> None:
        """Take a part of the response."""
        if message["type"] == "http.response.body":
            self.response.write(message.get("body", b""))
            return
        self.response.status_code = message["status"]
        # Django has a type of content by default.
        del self.response.headers["content-type"]
        for name, value in message["headers"]:
            self.response.headers[name.decode("latin-1")] = value.decode("latin-1")


@cache
def _served(_pid: int) -> tuple[LoopThread, Router]:
    """The dashboard of this process, and the event loop that it runs on."""
    return LoopThread(), _router()


def _router() -> Router:
    # Processes of a server take each other's forms.
    key = sha256(f"holdfast dashboard {settings.SECRET_KEY}".encode()).digest()
    return dashboard(queue_of_project(), admit=_grant_of, key=key, is_live=False)


def _grant_of(request: Request) -> Grant:
    grant: Grant = request.scope[GRANT]
    return grant


def _login_url() -> str | None:
    """The login of the admin, if the project has it; None: LOGIN_URL."""
    try:
        return str(reverse("admin:login"))
    except NoReverseMatch:
        return None
