"""Handlers that are URLs: single requests and batches, against a real server."""

import http.server
import ipaddress
import socket
import threading
import time
from contextlib import closing, contextmanager

import pytest

from holdfast.work.runners import http as http_runner
from holdfast.work.runners.isolation import Isolation
from holdfast.work.runners.records import HandlerJob, RunEvents
from holdfast.work.runners.runner import HandlerRunner
from holdfast.work.runners.settings import RunnerSettings

from .running import handler, replying, run


class _Server(http.server.ThreadingHTTPServer):
    """A server with what it was given and has seen."""

    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), _Answers)
        self.answer, self.seen, self.connections = answer, [], 0
        self.stop = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Answers(http.server.BaseHTTPRequestHandler):
    """Replies what its server was given; counts connections."""

    protocol_version = "HTTP/1.1"
    timeout = 60
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_POST(self) -> None:
        payload = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, payload))
        reply = self.server.answer(self.path, payload)
        if reply is None:
            self.server.stop.wait(60)
            self.close_connection = True
            return
        status, kind, body = reply
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words) -> None:
        pass


@contextmanager
def served(answer):
    """A server that answers requests with (status, content type, body), or never with None."""
    server = _Server(answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.stop.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def runner():
    """A runner; http handlers need no walls."""
    runner = HandlerRunner(Isolation(settings=RunnerSettings(private_hosts=True)))
    yield runner
    runner.close()


def test_the_exit_code_is_the_status_and_the_result_the_body(runner):
    """One request for each job, over one connection, with a newline after the payload."""

    def answer(path, payload):
        status = int(payload)
        return (
            status,
            "application/json" if status == 200 else "text/plain",
            b'{"a":1}' if status == 200 else b"why",
        )

    with served(answer) as server:
        payloads = [b"200", b"202", b"404", b"302", b"503"]
        found = run(runner, handler("http", server.url + "/a?b=c"), payloads)
        assert server.seen[0] == ("/a?b=c", b"200\n")
        assert server.connections == 1

    assert [result.exit_code for result in found] == [200, 202, 404, 302, 503]
    assert [result.code.value for result in found] == ["ok", "ok", "failed", "error", "error"]
    assert [found[0].body, found[1].body] == ['{"a":1}', '"why"']
    assert all(result.wall_ms > 0 for result in found)


def test_a_status_that_is_no_exit_code_is_an_error_of_the_server(runner):
    """Singly and in a batch, where the other lines count."""
    with served(
        lambda path, _: (
            (600, "text/plain", b"no") if path == "/a" else (200, "text/plain", b"200\n99\n600\n404\n")
        )
    ) as server:
        (single,) = run(runner, handler("http", server.url + "/a"), [b"1"])
        batch = run(runner, handler("http", server.url + "/b", batch=True), [b"1", b"2", b"3", b"4"])

    assert (single.exit_code, single.code.value) == (500, "error")
    assert single.error == "INVALID_RESPONSE: exit code 600: a number from 100 to 599 is needed"
    assert [one.exit_code for one in batch] == [200, 500, 500, 404]
    assert [one.error.partition(":")[0] for one in batch] == ["", *["INVALID_RESPONSE"] * 2, ""]


def test_a_batch_is_one_request_with_a_line_for_each_job(runner):
    """Replies are in order; comments and blank lines are skipped, and what follows a number is ignored."""
    with served(
        lambda *_: (200, "text/plain", b"# hello\n200 fine\n\n404\n#\n100 later\n503 bad\n")
    ) as server:
        found = run(runner, handler("http", server.url, batch=True), [b"1", b"2", b"3", b"4"])
        assert server.seen == [("/", b"1\n2\n3\n4\n")]

    assert [result.exit_code for result in found] == [200, 404, 100, 503]


def test_a_job_of_several_lines_shifts_no_results_of_others(runner):
    """JSON becomes one line, as it is but for its blanks; other data has a request of its own."""

    def answer(_path, payload):
        lines = payload.splitlines()
        return 200, "text/plain", b"".join(b"200\n" if b"ok" in line else b"404\n" for line in lines)

    payloads = [b'{\n "bad": [1.50,\r\n "\\n"]\n}', b"bad\nok", b"ok 1", b'"ok 2"']
    with served(answer) as server:
        found = run(runner, handler("http", server.url, batch=True), payloads)
        assert [seen for _, seen in server.seen] == [
            b'{"bad":[1.50,"\\n"]}\nok 1\n"ok 2"\n',
            b"bad\nok\n",
        ]

    assert [result.exit_code for result in found] == [404, 404, 200, 200]


def test_missing_and_invalid_replies_of_a_batch(runner):
    """The rest gets NO_RESPONSE; after a line without a number every job gets INVALID_RESPONSE."""
    replies = {"/few": b"200\n", "/odd": b"200\nfine\n200\n", "/none": b""}
    with served(lambda path, _: (200, "text/plain", replies[path])) as server:
        few, odd, none = (
            [
                (result.exit_code, result.error.split(":")[0])
                for result in run(runner, handler("http", server.url + path, batch=True), [b"1", b"2", b"3"])
            ]
            for path in replies
        )

    assert few == [(200, ""), (500, "NO_RESPONSE"), (500, "NO_RESPONSE")]
    assert odd == [(200, ""), (500, "INVALID_RESPONSE"), (500, "INVALID_RESPONSE")]
    assert none == [(500, "NO_RESPONSE")] * 3


@pytest.mark.parametrize("batch", [False, True])
def test_errors_of_the_connection_have_their_codes(runner, batch):
    """No server, a server that does not answer in time, a name that is not there."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    with served(lambda *_: None) as server:
        urls = (f"http://127.0.0.1:{port}/", server.url, "http://no-such-host.invalid/")
        # Only the second is waited for until its limit: a busy machine must not reach that of the others.
        limits = zip(urls, (60_000, 500, 60_000), strict=True)
        handlers = [handler("http", url, batch=batch, timeout_ms=limit) for url, limit in limits]
        found = [run(runner, one, [b"1", b"2"]) for one in handlers]

    codes = [{(result.exit_code, result.error.split(":")[0]) for result in results} for results in found]
    assert codes == [{(500, "ECONNREFUSED")}, {(500, "ETIMEDOUT")}, {(500, "ENOTFOUND")}]


def test_a_connection_that_the_server_closed_is_opened_again(runner):
    """The server may close a connection between two jobs."""
    what = []

    def answer(path, payload):
        return 200, "text/plain", b"1"

    with served(answer) as server:
        what.append(run(runner, handler("http", server.url))[0])
        for context in runner._contexts._idle.values():
            context._connection.sock.shutdown(socket.SHUT_RDWR)
        what.append(run(runner, handler("http", server.url))[0])
        assert server.connections == 2

    assert [result.exit_code for result in what] == [200, 200]


def test_scripts_around_a_batch_are_urls(runner):
    """Each is requested with an empty body; a status that is not 2xx fails the jobs."""
    with served(lambda path, _: (503 if path == "/bad" else 200, "text/plain", b"")) as server:
        urls = {name: f"{server.url}/{name}" for name in ("before", "before_each", "after_each")}
        run(runner, handler("http", server.url + "/body", **urls), [b"1", b"2"])
        [failed] = run(runner, handler("http", server.url + "/body", before_each=server.url + "/bad"))
        paths = [path for path, _ in server.seen]

    assert paths == ["/before", "/before_each", "/body", "/body", "/after_each", "/bad"]
    assert failed.error.startswith("BAD_HANDLER: before_each: status 503")


@pytest.mark.parametrize(
    "url",
    [
        "http://a..b/",
        f"http://{'a' * 64}.example/",
        "http://127.0.0.1:1/ü",
        "http://127.0.0.1:1/a b",
        "http://127.0.0.1:1/a\nhttp://127.0.0.1:1/b",
    ],
)
def test_a_url_that_cannot_be_sent_fails_its_jobs(runner, url):
    """As others that are no URLs do."""
    [result] = run(runner, handler("http", url))

    assert (result.exit_code, result.error.partition(":")[0]) == (500, "BAD_HANDLER")


def test_errors_show_no_secrets_of_a_url(runner):
    """Who may read a job may not read its handler."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
    [result] = run(runner, handler("http", f"http://user:hidden@{where}/hidden?key=hidden"))

    assert result.error == f"ECONNREFUSED: no response of http://{where}"


def test_the_limit_of_a_job_is_its_own(runner):
    """That of the job that opened the connection does not count for the next one."""
    with served(lambda *_: (200, "text/plain", b"")) as server:
        run(runner, handler("http", server.url), [b"1", b"2"], limits_ms=[10_000, 20_000])
        (context,) = runner._contexts._idle.values()

        assert (context._connection.sock.gettimeout(), server.connections) == (18.5, 1)


def test_a_short_limit_holds_after_a_long_one(runner):
    """A body that comes byte by byte is ended at the limit of its own job, not at that of an earlier one."""

    class Dripping(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            payload = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                while payload == b"drip\n":
                    self.wfile.write(b"1\r\nx\r\n")
                    time.sleep(0.01)
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                pass  # ended, as it should be

        def log_message(self, *words) -> None:
            pass

    with replying(Dripping) as url:
        what = handler("http", url, timeout_ms=20_000)
        quick, slow = run(runner, what, [b"1", b"drip"], limits_ms=[0, 400])

    assert quick.exit_code == 200
    assert (slow.error.partition(":")[0], slow.wall_ms < 10_000) == ("ETIMEDOUT", True)


@pytest.mark.parametrize("head", [b"Content-Length: 100\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_a_body_that_breaks_off_is_no_result(runner, head):
    """A server that dies in the middle of its response: the job runs again."""

    class Dying(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.wfile.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n64\r\n200 half")

        def log_message(self, *words) -> None:
            pass

    with replying(Dying) as url:
        [single] = run(runner, handler("http", url))
        [batched] = run(runner, handler("http", url, batch=True))

    assert (single.exit_code, single.error.partition(":")[0]) == (500, "ECONNRESET")
    assert (batched.exit_code, batched.error.partition(":")[0]) == (500, "ECONNRESET")


def test_a_body_without_a_length_that_takes_too_long_is_no_result(runner):
    """Its connection is ended at the time limit, which is not the end of the body."""

    class Endless(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            try:
                while True:
                    self.wfile.write(b"x")
                    time.sleep(0.01)
            except OSError:
                pass  # ended, as it should be

        def log_message(self, *words) -> None:
            pass

    with replying(Endless) as url:
        [result] = run(runner, handler("http", url, timeout_ms=300))

    assert (result.exit_code, result.error.partition(":")[0]) == (500, "ETIMEDOUT")
    assert result.wall_ms < 10_000


@pytest.mark.parametrize("batch", [False, True])
def test_a_cancelled_request_is_told_as_such(runner, batch):
    """It is not taken for one that timed out, which would cost all jobs of a batch an attempt."""
    arrived = threading.Event()

    def answer(_, payload):
        arrived.set()
        return None if payload.startswith(b"0") else (200, "text/plain", b"")

    with served(answer) as server:
        jobs = [HandlerJob(id=n, task="t", payload=b"%d" % n) for n in range(2)]
        results = []
        events = RunEvents(lambda job: True, lambda job, result: results.append(result))
        what = handler("http", server.url, batch=batch)
        thread = threading.Thread(target=runner.run, args=(what, jobs, events))
        thread.start()
        arrived.wait(60)
        runner.cancel((0, 0))
        thread.join(60)

    found = [result.error.partition(":")[0] for result in results]
    assert found == (["CANCELLED", "CANCELLED"] if batch else ["CANCELLED", ""])


def test_the_limit_holds_while_the_host_is_looked_up(runner, monkeypatch):
    """A request that could begin only after it is not sent."""
    resolve = socket.getaddrinfo

    def resolve_late(*words, **options):
        time.sleep(0.3)
        return resolve(*words, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_late)
    with served(lambda *_: (200, "text/plain", b"")) as server:
        [result] = run(runner, handler("http", server.url, timeout_ms=100))

        assert (result.error.partition(":")[0], server.seen) == ("ETIMEDOUT", [])


@pytest.fixture
def public():
    """A runner as it is by default: http handlers reach public addresses only."""
    runner = HandlerRunner(Isolation(settings=RunnerSettings()))
    yield runner
    runner.close()


@pytest.mark.parametrize(
    "host",
    [
        *(
            "127.0.0.1",
            "localhost",
            "[::1]",
            "0.0.0.0",
            "2130706433",
            "[::ffff:127.0.0.1]",
            "[64:ff9b::7f00:1]",
        ),
        *("169.254.169.254", "[fe80::1]", "10.1.2.3", "172.16.0.1", "192.168.0.1", "100.64.0.1", "[fd00::1]"),
    ],
)
def test_only_public_addresses_are_reached(public, host):
    """By whatever name this machine, its link or a private network is called."""
    [result] = run(public, handler("http", f"http://{host}:1/"))

    assert result.exit_code == 500
    assert result.error.startswith("FORBIDDEN_ADDRESS: ")
    assert "list the host in `hosts`" in result.error


def test_scripts_around_a_batch_reach_only_public_addresses(public):
    """They are URLs too."""
    [result] = run(public, handler("http", "http://127.0.0.1:1/", before="http://10.0.0.1/"))

    assert result.error.startswith("FORBIDDEN_ADDRESS: before: 10.0.0.1 has no public address")


def test_the_address_that_was_checked_is_the_one_that_is_used(public, monkeypatch):
    """A name that has a public address first, and then that of this machine, does not lead here."""
    asked = []

    def resolve(host, port, **_options):
        asked.append(host)
        address = ("192.0.9.1" if len(asked) == 1 else "127.0.0.1", port)
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with served(lambda *_: (200, "text/plain", b"")) as server:
        url = server.url.replace("127.0.0.1", "rebound.example")
        [result] = run(public, handler("http", url, timeout_ms=200))

        assert (result.exit_code, server.seen, asked) == (500, [], ["rebound.example"])


def test_a_private_name_does_not_tell_its_address(public, monkeypatch):
    """A tenant would learn the addresses of names that only this network knows."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("10.9.8.7", 80))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

    [result] = run(public, handler("http", "http://db.internal/"))

    assert result.error.startswith("FORBIDDEN_ADDRESS: db.internal has no public address")
    assert "10.9.8.7" not in result.error


@pytest.mark.parametrize(
    "address",
    [
        *("1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "168.63.129.15"),
        *("168.63.129.17", "172.15.255.255", "172.32.0.0", "191.255.255.255", "192.0.1.0", "192.0.3.0"),
        *("198.17.255.255", "198.20.0.0", "223.255.255.255", "::ffff:1.1.1.1", "64:ff9b::101:101"),
        *("2606:4700::1111", "2001:200::", "2001:4860:4860::8888", "2001:db7:ffff::", "2001:db9::"),
        *("2003::", "2620:4f:7fff::", "2620:4f:8001::", "3ffe:ffff::", "3fff:1000::"),
    ],
)
def test_public_addresses(address):
    """Of both kinds, and those next to blocks with a special purpose."""
    assert http_runner.is_public(address)


@pytest.mark.parametrize("answer", [False, True])
@pytest.mark.parametrize(
    "block",
    [
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16"),
        *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24"),
        *("192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24"),
        *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "255.255.255.255/32"),
        *("::/128", "::1/128", "::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64"),
        *("2001::/23", "2001::/32", "2001:2::/48", "2001:20::/28", "2001:30::/28", "2001:db8::/32"),
        *("2002::/16", "2620:4f:8000::/48", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10"),
        *("ff00::/8", "fd00:ec2::254/128"),
    ],
)
def test_no_block_with_a_special_purpose_is_public(monkeypatch, block, answer):
    """Nor inside of an IPv6 address, and whatever the `ipaddress` of this Python says about it."""
    for kind in (ipaddress.IPv4Address, ipaddress.IPv6Address):
        monkeypatch.setattr(kind, "is_global", answer)
        for flag in ("is_private", "is_multicast", "is_reserved"):
            monkeypatch.setattr(kind, flag, not answer)
    network = ipaddress.ip_network(block)
    ends = [str(network[at]) for at in (0, network.num_addresses // 2, -1)]
    if network.version == 4:
        ends += [f"{prefix}{one}" for one in ends for prefix in ("::ffff:", "64:ff9b::", "::")]

    assert [one for one in ends if http_runner.is_public(one)] == []


def test_every_connection_is_checked_and_no_redirect_is_followed(public, monkeypatch):
    """A name is resolved for each connection: when a kept one was closed, its address may be another."""
    monkeypatch.setattr(http_runner, "is_public", lambda address: address == "127.0.0.1")
    hosts, resolve = iter(["127.0.0.1", "10.0.0.1"]), socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda _host, *rest, **options: resolve(next(hosts), *rest, **options)
    )

    with served(lambda *_: (302, "text/plain", b"moved")) as server:
        url = server.url.replace("127.0.0.1", "name.example")
        [redirected] = run(public, handler("http", url))
        for context in public._contexts._idle.values():
            context._connection.sock.shutdown(socket.SHUT_RDWR)
        [refused] = run(public, handler("http", url))

    assert (redirected.exit_code, len(server.seen)) == (302, 1)
    assert refused.error.startswith("FORBIDDEN_ADDRESS: ")


def test_a_listed_host_may_be_private():
    """The operator knows it."""
    runner = HandlerRunner(Isolation(settings=RunnerSettings(hosts=("127.0.0.1",))))
    try:
        with served(lambda *_: (200, "text/plain", b"")) as server:
            [result] = run(runner, handler("http", server.url))
    finally:
        runner.close()

    assert result.exit_code == 200


def test_hosts_that_the_operator_allows():
    """A handler that names another host is refused before a connection is opened."""
    runner = HandlerRunner(Isolation(settings=RunnerSettings(hosts=("*.example.com",))))

    try:
        [result] = run(runner, handler("http", "http://169.254.169.254/latest"))
    finally:
        runner.close()

    assert result.error.startswith("BAD_HANDLER: 169.254.169.254 is not a host")


@pytest.mark.parametrize("address", ["fec0::1", "::10.0.0.1", "64:ff9b:1::a00:1", "fc00::1", "fe80::1%eth0"])
def test_addresses_outside_the_internet(address):
    """Private networks of today and of before, and forms of IPv4 addresses."""
    assert not http_runner.is_public(address)
