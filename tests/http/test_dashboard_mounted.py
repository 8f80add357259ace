"""The dashboard inside another ASGI application, and sessions that servers share."""

import asyncio
import re
import socket
import threading

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

import holdfast
from holdfast.core.access import Scope
from holdfast.core.commands import CreateToken
from holdfast.core.token import Token, hash_of, secret_of
from holdfast.serve.dashboard import dashboard
from holdfast.store.sqlite.store import SqliteStore
from tests.http.served import Client
from tests.http.test_dashboard import send, sign_in, token_of
from tests.queue_suite.tools import until

KEY = "k" * 32


class Mounted:
    """An application with the dashboard twice: with a sign-in, and behind the application's own."""

    def __init__(self, queue):
        mounts = [Mount("/ops", dashboard(queue)), Mount("/open", dashboard(queue, sign_in=False))]
        listens = socket.create_server(("127.0.0.1", 0))
        self.address = listens.getsockname()
        config = uvicorn.Config(Starlette(routes=mounts), log_level="error", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve([listens])))
        self._thread.start()
        until(lambda: self._server.started)

    def close(self):
        """Stop it."""
        self._server.should_exit = True
        self._thread.join(60)


@pytest.fixture
def queue():
    """A queue in memory with a job."""
    with holdfast.connect("memory://") as queue:
        queue.add("resize")
        yield queue


@pytest.fixture
def mounted(queue):
    """The application."""
    made = Mounted(queue)
    yield made
    made.close()


def test_it_is_mounted_in_another_application(queue, mounted):
    """Every address of a page begins with the path of the mount; sign-in, files and actions work there."""
    secret = secret_of("ops", b"0" * 24)
    token = Token(name="ops", scopes=tuple(Scope), hash=hash_of(secret))
    queue.connection.ask(CreateToken(token=token))
    with Client(mounted.address) as client:
        away = client.get("/ops/tasks")
        reply = send(client, "/ops/sign-in", "", token=secret, next="/ops/tasks")
        cookie = reply.headers["set-cookie"]
        page = client.get("/ops/tasks", Cookie=cookie.partition(";")[0]).body.decode()
        links = re.findall(r'(?:href|src|action)="([^"#]+)"', page)
        sheet = client.get(next(link for link in links if "style.css" in link))
        form = {"Cookie": cookie.partition(";")[0]}
        done = send(client, "/ops/tasks/pause", token_of(page), form, task="resize", on="yes")

    assert (away.status, away.headers["location"]) == (303, "/ops/sign-in?next=%2Fops%2Ftasks")
    assert (reply.status, reply.headers["location"]) == (303, "/ops/tasks")
    assert "Path=/ops/" in cookie
    assert links
    assert [link for link in links if not link.startswith("/ops/")] == []
    assert sheet.status == 200
    assert done.status == 303
    assert done.headers["location"].startswith("/ops/")
    assert queue.next() is None


def test_without_a_sign_in_the_application_decides_who_comes(queue, mounted):
    """Each client may do everything; a form of another site is refused all the same."""
    with Client(mounted.address) as client:
        page = client.get("/open/jobs").body.decode()
        forged = send(
            client, "/open/tasks/pause", token_of(page), {"Origin": "http://evil.example"}, task="a", on="yes"
        )

    assert "resize" in page
    assert "Sign out" not in page
    assert forged.status == 403


def test_servers_with_the_same_key_share_sessions(serve, tmp_path):
    """Who has signed in to one is signed in to the other, and not to one with a key of its own."""

    def store():
        return SqliteStore(tmp_path / "jobs.db")

    first, second = (serve(store, token_always=True, session_key=KEY) for _ in range(2))
    stranger = serve(store, token_always=True)
    with first.client() as client:
        cookie = sign_in(client, first.token("ops"))
    statuses = []
    for served in (first, second, stranger):
        with served.client() as client:
            statuses.append(client.get("/", Cookie=cookie).status)
    assert statuses == [200, 200, 303]
