"""What a server bears: nonsense, too much, too slow, too many; and others are served meanwhile."""

import json
import random
import resource
import select
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast.core import queries as q
from holdfast.core.bounds import HTTP_HEAD_BYTES
from holdfast.core.verbs import REPLIES
from holdfast.engine import queries
from holdfast.queue.connect import store_maker
from holdfast.serve.http import service
from holdfast.serve.http.api import PLANS, SPECIAL
from tests.http.test_access import path_of
from tests.queue_suite.tools import LONG_S, until

JSON = {"Content-Type": "application/json"}
PATHS = [(plan.route.method, plan.route.path) for plan in PLANS] + [
    (method, path) for method, path, *_ in SPECIAL
]
# Those of commands and queries by their names all go one way: a few here, the others in `make proof`.
BY_NAME = [one for one in PATHS if one[1].startswith(("/v1/commands/", "/v1/queries/"))]
OTHERS = [pytest.param(*one, marks=pytest.mark.proof) for one in BY_NAME if one not in BY_NAME[::8]]
TRIED = [one for one in PATHS if one not in BY_NAME] + BY_NAME[::8] + OTHERS


def reply_of(sock):
    """All that comes until the server hangs up."""
    found = b""
    while part := sock.recv(65536):
        found += part
    return found


def memory_mb():
    """The memory of this process, the server's too."""
    with open("/proc/self/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def test_a_body_that_is_no_json_is_told_so(client):
    """Not as a request with something wrong in it."""
    for body, where in (
        (b'{"task":"t"', "Input data was truncated"),
        (b"task=t", "invalid character (byte 4)"),
        (
            b'{"task":"t","data":{"v":"\\ud800"}}',
            "a lone surrogate, such as \\ud800, is half of a character",
        ),
    ):
        reply = client.ask("POST", "/v1/jobs", body)

        assert (reply.status, reply.json["detail"]) == (400, f"the body is not JSON: {where}")


@pytest.mark.parametrize("number", ["1e400", "-1E+999", "1" * 400 + ".5"])
def test_a_number_that_no_handler_could_read_is_refused(client, number):
    """Of data, results and steps; the same characters in a text, and numbers that can be read, are fine."""
    for path, body in (
        ("/v1/jobs", f'{{"task":"t","data":{{"a":[{number}]}}}}'),
        ("/v1/commands/Add", f'{{"jobs":[{{"task":"t","data":1}}],"more":[{number}]}}'),
        ("/v1/jobs/5/answer", f'{{"owner":1,"claim":1,"result":{number}}}'),
    ):
        reply = client.ask("POST", path, body.encode())

        assert (reply.status, reply.json["code"]) == (400, "BAD_INPUT"), reply
        assert "out of range" in reply.json["detail"]
    for data in (f'"{number}"', "1e300", "1" * 400, "1e-400"):
        reply = client.ask("POST", "/v1/jobs", f'{{"task":"t","data":{data}}}'.encode())

        assert reply.status == 201, reply


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_pages_of_other_sites_are_not_answered(served, client, site):
    """Not even where no token is needed, nor with a token; the pages of the dashboard may be linked to."""
    for one in (client, served.client(served.token("ops"))):
        statuses = [
            one.ask("GET", path, headers={"Sec-Fetch-Site": site}).status
            for path in ("/v1/counts", "/metrics", "/v1/events", "/")
        ]
        own = one.ask("GET", "/v1/counts", headers={"Sec-Fetch-Site": "same-origin"})
        one.close()

        assert statuses == [403, 403, 403, 200]
        assert own.status == 200


def test_a_path_that_is_no_text_is_refused(client):
    """Else it would name what its sender did not mean."""
    job_id = client.post("/v1/jobs", {"task": "t"}).json["id"]

    broken = client.ask("POST", f"/v1/jobs/{job_id}/signals/%ff", b"1", JSON)
    whole = client.ask("POST", f"/v1/jobs/{job_id}/signals/%ef%bf%bd", b"1", JSON)

    assert (broken.status, broken.json["code"], whole.status) == (400, "BAD_INPUT", 204)


def test_a_signal_may_have_very_many_values(client):
    """As many as its bytes allow; a larger one is refused before it is read."""
    job_id = client.post("/v1/jobs", {"task": "t"}).json["id"]

    statuses = [
        client.ask("POST", f"/v1/jobs/{job_id}/signals/x", b"[%s1]" % (b"1," * count), JSON).status
        for count in (100_000, 150_000)
    ]

    assert statuses == [204, 413]


def test_no_reply_is_guessed_at_by_browsers(served, client):
    """Each has `nosniff`: replies, problems, pages, files, what is no HTTP."""
    paths = ("/v1/counts", "/v1/jobs/5", "/nope", "/", "/static/app.js", "/healthz", "/v1/openapi.json")
    for path in paths:
        assert client.get(path).headers["x-content-type-options"] == "nosniff", path
    with served.raw() as sock:
        sock.sendall(b"nonsense\r\n\r\n")
        assert b"x-content-type-options: nosniff" in reply_of(sock)


CHUNKED = (
    b"POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n%s\r\n"
    b'c\r\n{"task":"t"}\r\n0\r\n%s\r\n'
)


def chunked(served, path, head=b"", trailer=b""):
    """The reply to a request with a chunked body and trailers behind it."""
    with served.raw() as sock:
        sock.sendall(CHUNKED % (path, head, trailer))
        return reply_of(sock)


def test_trailers_are_no_headers(serve):
    """A token behind the body admits no one; an idempotency key there is none."""
    served = serve(token_always=True)
    header = f"Authorization: Bearer {served.token('ops')}\r\n".encode()
    key = b"Idempotency-Key: k\r\n"

    inside = [chunked(served, b"/v1/jobs", head=header, trailer=key) for _ in range(2)]
    refused = chunked(served, b"/v1/jobs", trailer=header)

    assert refused.startswith(b"HTTP/1.1 401")
    assert [one[:12] for one in inside] == [b"HTTP/1.1 201"] * 2
    assert len(served.connection.ask(q.ListJobs(limit=10))) == 2


def test_endless_trailers_and_chunk_sizes_are_refused(served):
    """They are as large as headers may be at the most, and one read of the socket."""
    for tail in (b"X: " + b"x" * 16 * HTTP_HEAD_BYTES + b"\r\n", b"X: y\r\n" * 3 * HTTP_HEAD_BYTES):
        with served.raw() as sock:
            head, _, _ = (CHUNKED % (b"/v1/jobs", b"", b"")).rpartition(b"0\r\n")
            sock.sendall(head + b"0\r\n")
            reply = send_slowly(sock, tail)

            assert reply == b"" or reply.startswith(b"HTTP/1.1 431"), reply
    with served.raw() as sock:
        sock.sendall(head)
        assert send_slowly(sock, b"1;" + b"x" * 16 * HTTP_HEAD_BYTES)[:12] in (b"", b"HTTP/1.1 431")


def send_slowly(sock, raw):
    """Send bytes in pieces until the server hangs up; what it has sent."""
    try:
        for at in range(0, len(raw), 8_192):
            sock.sendall(raw[at : at + 8_192])
        return reply_of(sock)
    except ConnectionError:
        return b""


@pytest.mark.parametrize(("method", "path"), TRIED)
def test_nonsense_is_refused_clearly(client, method, path):
    """Malformed, truncated, of other types, too deep, noise: a problem each time, and never a crash."""
    rng = random.Random(f"{method} {path}")
    good = (
        b'{"task":"t","data":{"a":[1,2,3]},"jobs":[{"task":"t"}],"hold":{"job_id":"5","owner":2,"claim":1}}'
    )
    bodies = [
        b"",
        b"null",
        b"[]",
        b"5",
        b'"x"',
        b"{",
        good[: rng.randrange(1, len(good))],
        b"\xff\xfe",
        b"{} {}",
    ]
    bodies += [
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"1" * 10_000,
        b'{"job_id":5}',
        b'{"job_id":"' + b"9" * 40 + b'"}',
    ]
    bodies += [
        b'{"limit":1e400}',
        b'{"wait":1e400}',
        b'{"wait":"NaN"}',
        b'{"tenant":"\\u0000"}',
        b'{"name":"\\ud800"}',
    ]
    bodies += [rng.randbytes(rng.randrange(1, 300)) for _ in range(5)]
    bodies += [bytes(rng.choice(good) for _ in range(60)) for _ in range(5)]
    for name in ("5", "x", "0", "9" * 30, "%00", "%ff", "-1"):
        at = path
        for field in ("job_id", "name", "log", "domain:path"):
            at = at.replace(f"{{{field}}}", name)
        for body in bodies if name == "5" else bodies[:6]:
            reply = client.ask(method, at, body)
            if reply.status >= 400:
                assert reply.headers["content-type"] == "application/problem+json", (body, reply)
                assert reply.json["status"] == reply.status
            assert reply.status < 500 or (method, path, reply.status) == ("POST", "/schedule/", 500), (
                body,
                reply,
            )
        if name == path:
            break
    assert client.get("/healthz").status == 200


@pytest.mark.parametrize("kind_of_store", ["memory", pytest.param("sqlite", marks=pytest.mark.proof)])
def test_numbers_and_texts_at_their_ends_are_refused_or_taken(tmp_path, serve, kind_of_store):
    """Every field of every command and query with values that nobody means."""
    values: tuple[Any, ...] = (
        -1,
        0,
        1 << 62,
        (1 << 63) - 1,
        -(1 << 63),
        1 << 64,
        1.5,
        True,
        None,
        "",
        "x",
        "\0",
        "é" * 300,
        [],
        {},
        [0],
    )
    made = store_maker(str(tmp_path / "jobs.db") if kind_of_store == "sqlite" else "memory://")
    client = serve(made).client()
    from holdfast.serve.http.forms import form_of
    from tests.core.test_access import one_of
    from tests.http.test_access import body_of

    failed: list[tuple[str, str, object, str]] = []
    for kind in REPLIES:
        if kind.__name__ == "FindToken":
            continue
        body = body_of(one_of(kind))
        for field in form_of(kind).type.__struct_fields__:
            for value in values:
                reply = client.post(path_of(kind), body | {field: value})
                if reply.status >= 500:
                    failed.append((kind.__name__, field, value, reply.json["detail"]))
    assert failed == []
    assert client.get("/healthz").status == 200
    client.close()


def test_a_body_that_is_too_large_is_not_read(serve):
    """Neither where its length says so, nor where it comes in chunks."""
    served = serve(max_body_bytes=100_000)
    with served.client() as client:
        reply = client.post("/v1/jobs", {"task": "t", "data": "x" * 200_000})
        assert (reply.status, reply.json["code"]) == (413, "TOO_LARGE")
    with served.raw() as sock:
        sock.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        try:
            for _ in range(1_000):
                sock.sendall(chunk)
        except OSError:
            # It hung up, as it should.
            pass
        else:
            pytest.fail("the server has read all of it")


def test_data_beyond_the_limit_of_a_job_is_refused(client):
    """As everywhere: 16 MB."""
    reply = client.post("/v1/jobs", b'{"task":"t","data":"' + b"x" * (16 << 20) + b'"}')

    assert (reply.status, reply.json["code"]) == (413, "TOO_LARGE")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 2 * HTTP_HEAD_BYTES, 431),
        (b"GET /" + b"x" * 2 * HTTP_HEAD_BYTES, 431),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: x\r\n" % n for n in range(10_000)) + b"\r\n", 431),
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n", 400),
        (b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    ],
    ids=["header", "url", "headers", "words", "tls", "version", "length", "chunk"],
)
def test_a_head_that_is_too_large_or_no_http_is_refused(served, sent, status):
    """And the connection ends."""
    with served.raw() as sock:
        sock.sendall(sent)
        found = reply_of(sock)

    assert found.startswith(b"HTTP/1.1 %d " % status), found[:200]
    assert b"application/problem+json" in found


def test_slow_clients_are_cut_off_while_others_are_served(serve, monkeypatch):
    """200 that send a head or a body byte by byte, and some that do not read; a neighbour sees none of it."""
    served = serve()
    with served.client() as client:
        many = "".join('{"task":"t","data":"%s"}\n' % ("x" * 500) for _ in range(20_000))
        client.ask("POST", "/v1/jobs", many.encode(), {"Content-Type": "application/x-ndjson"})
        monkeypatch.setattr(service, "HEAD_S", 1.0)
        monkeypatch.setattr(service, "WRITE_S", 2.0)
        slow = [served.raw() for _ in range(200)]
        for n, sock in enumerate(slow):
            sock.sendall(
                b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\n"
                + (b"Content-Length: 90\r\n\r\n{" if n % 2 else b"")
            )
        deaf = [served.raw() for _ in range(5)]
        for sock in deaf:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-ndjson\r\n\r\n")
        answered, open_ones, end_s = 0, set(slow), time.monotonic() + 2 * LONG_S
        while open_ones and time.monotonic() < end_s:
            assert client.get("/v1/time").status == 200
            answered += len(open_ones)
            for sock in list(open_ones):
                if select.select([sock], [], [], 0)[0]:
                    try:
                        assert sock.recv(65536).startswith(b"HTTP/1.1 408 ")
                    except ConnectionError:
                        pass
                    open_ones.discard(sock)
                else:
                    try:
                        sock.send(b"x")
                    except OSError:
                        open_ones.discard(sock)
            time.sleep(0.05)
        assert not open_ones
        # All but the neighbour's: those that did not read are gone too.
        until(lambda: len(served.service._state.connections) == 1)
        for sock in (*slow, *deaf):
            sock.close()
    # While each of them was slow, and not only after they had been cut off.
    assert answered >= len(slow)


def test_there_is_a_limit_to_connections(serve):
    """One more is told so, and those that are there stay."""
    served = serve(max_connections=20)
    with served.client() as client:
        assert client.get("/healthz").status == 200
        idle = [served.raw() for _ in range(19)]
        with served.raw() as more:
            assert reply_of(more).startswith(b"HTTP/1.1 503 ")
        assert client.get("/healthz").status == 200
        for sock in idle:
            sock.close()
        until(lambda: len(served.service._state.connections) == 1)
        with served.client() as another:
            assert another.get("/healthz").status == 200


@pytest.mark.proof
def test_ten_thousand_idle_connections_are_held(tmp_path):
    """By a server process; a client among them is served as if it were alone."""
    import re
    import subprocess
    import sys

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 12_000:
        pytest.skip("this system allows too few files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (12_000, hard))
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "serve", "--http", "127.0.0.1:0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    idle: list[socket.socket] = []
    try:
        assert process.stdout is not None
        match = re.search(r"http on 127.0.0.1:(\d+)", process.stdout.readline())
        assert match
        address = ("127.0.0.1", int(match[1]))
        from tests.http.served import Client

        with Client(address) as client:
            for _ in range(10_000):
                idle.append(socket.create_connection(address, timeout=30))
            begun = time.monotonic()
            for _ in range(100):
                assert client.post("/v1/jobs", {"task": "t"}).status == 201
            took = time.monotonic() - begun
        for sock in idle:
            sock.setblocking(False)
            with pytest.raises(BlockingIOError):
                sock.recv(1)
        print(f"100 adds beside 10,000 idle connections: {took:.2f} s")  # noqa: T201
    finally:
        for sock in idle:
            sock.close()
        process.terminate()
        process.communicate(timeout=60)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_many_large_bodies_at_once_are_bounded(serve, monkeypatch):
    """What is being read of all clients together has a limit: beyond it they are told to wait."""
    monkeypatch.setattr("holdfast.serve.http.exchange.HTTP_BUFFERED_BYTES", 4 << 20)
    served = serve()
    before = memory_mb()
    socks = [served.raw() for _ in range(20)]
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (60 << 20)
    for sock in socks:
        sock.settimeout(5)
        try:
            sock.sendall(head + b" " * (1 << 20))
        except OSError:
            # Refused, and cut off.
            pass
    until(lambda: len(select.select(socks, [], [], 0)[0]) >= 10)
    assert memory_mb() - before < 100
    for sock in socks:
        sock.close()
    with served.client() as client:
        assert client.get("/healthz").status == 200


def test_sql_queries_of_one_client_hold_up_no_other(tmp_path, serve, monkeypatch):
    """Two run at once, and what others ask for does not wait for them."""
    running: list[str] = []
    leave = threading.Event()

    def select(_txn, asked):
        running.append(asked.text)
        assert leave.wait(60)
        return b"[]"

    monkeypatch.setitem(queries.QUERIES, q.SelectJobs, select)
    served = serve(store_maker(str(tmp_path / "jobs.db")), token_always=True)
    secret = served.token("slow", tenant="a")
    slow = [served.client(secret) for _ in range(40)]
    with ThreadPoolExecutor(len(slow)) as pool, served.client(served.token("other", tenant="b")) as other:
        asked = [pool.submit(one.post, path_of(q.SelectJobs), {"text": "select 1"}) for one in slow]
        try:
            until(lambda: len(running) == 2)
            assert other.post("/v1/jobs", {"task": "t"}).status == 201
            assert len(other.ok("GET", "/v1/jobs")["jobs"]) == 1
            assert len(running) == 2
        finally:
            leave.set()
        assert [one.result().status for one in asked] == [200] * len(slow)
    for one in slow:
        one.close()


def test_json_that_is_large_is_answered_whole(client):
    """A page of a thousand jobs, read at once."""
    lines = "".join(json.dumps({"task": "t"}) + "\n" for _ in range(1_000))
    client.ask("POST", "/v1/jobs", lines.encode(), {"Content-Type": "application/x-ndjson"})

    assert len(client.ok("GET", "/v1/jobs?limit=1000")["jobs"]) == 1_000
